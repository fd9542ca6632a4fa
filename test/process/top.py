# SPDX-License-Identifier: Apache-2.0
"""top SOURCE BUILD: what `vgpu top` draws on a terminal, what keys do there, and that it leaves the
terminal as it was."""
import contextlib
import fcntl
import importlib.util
import json
import os
import shutil
import signal
import struct
import subprocess
import sys
import tempfile
import termios
import time

SOURCE = os.path.abspath(sys.argv.pop(1))

import tap
from tap import Skip, equal, test, true

from mine import BUILD, MINE, VGPU
from place import OFFSET, Place, Program, child_of, refused_line, tool
from screen import Terminal

TOP = os.path.join(BUILD, "vgpu-top")
HANG = os.path.join(BUILD, "test/process/libtest-hang.so")
F_OFD_SETLK = 37
UTF8 = {**MINE, "LC_ALL": "C.UTF-8", "TERM": "xterm-256color"}


def top(*arguments, environment=None, **more):
    return Terminal(VGPU, "top", *arguments, environment={**UTF8, **(environment or {})}, **more)


def leave(terminal, status=0):
    """By the key for it."""
    terminal.press("q")
    equal(terminal.ends(), status)
    terminal.is_as_before()


def says(place):
    """What `vgpu ps` says of the container."""
    done = tool(VGPU, "ps", "--json", "--region", place.region)
    equal(done.returncode, 0, done.stderr)
    return json.loads(done.stdout)["containers"][0]


@contextlib.contextmanager
def one(*options, name="pod-a", **more):
    """A container with a program in it that has allocated 100 MiB."""
    with Place() as place, place.program(*options, environment={"VGPU_POD_NAME": name}, **more) as program:
        program.got(100)
        yield place, program


@contextlib.contextmanager
def crowd(regions=200, processes=10):
    """Regions whose slots belong to the same living processes, as bench/ps.py writes them."""
    specification = importlib.util.spec_from_file_location("bench_ps", f"{SOURCE}/bench/ps.py")
    bench = importlib.util.module_from_spec(specification)
    specification.loader.exec_module(bench)
    directory = tempfile.mkdtemp(prefix="vgpu-test-top-")
    sleepers = [subprocess.Popen(["sleep", "1000"]) for _ in range(processes)]
    pids = [sleeper.pid for sleeper in sleepers] * regions
    held = bench.make(directory, regions, processes, pids)
    try:
        yield directory
    finally:
        for fd in held:
            os.close(fd)
        for sleeper in sleepers:
            sleeper.kill()
            sleeper.wait()
        shutil.rmtree(directory)


@test
def shown():
    """a container is shown with its limits, its processes and graphs of the GPU and of itself, at 80x24 and 200x50"""
    for lines, columns in ((24, 80), (50, 200)):
        with one("--memory", "2g", "--cores", "30", "--priority", "0") as (place, program), \
                top("--region", place.region, lines=lines, columns=columns) as terminal:
            text = terminal.shows("pod-a", str(child_of(program)), "2.0GiB", "1 container, 1 process")
            header = next(line for line in text if "CONTAINER" in line)
            for word in ("MEMORY", "LIMIT", "GPU%", "MAX%", "STATE", "HISTORY"):
                true(word in header, header)
            equal("1MIN" in header, columns > 80)
            true(text[1].startswith("GPU-"), text[1])
            true("q quit" in text[-1] and "h help" in text[-1], text[-1])
            terminal.shows("pod-a dev 0: GPU")
            terminal.until(lambda lines: any("█" in line or "▁" in line for line in lines), "a graph")
            equal(terminal.screen.unknown, set(), "sequences")
            leave(terminal)


@test
def measured():
    """a process's share of GPU time is what it used between two looks"""
    with Place() as place:
        program = subprocess.Popen(
            [VGPU, "run", "--region", place.region, f"--sim=1xh200,machine={place.directory}/machine", "--cores",
             "40", "--", os.path.join(BUILD, "vgpu-load"), "--seconds", "100"],
            env=MINE, stdout=subprocess.DEVNULL, stderr=subprocess.DEVNULL, start_new_session=True)
        try:
            with top("--search", place.region, "--delay", "0.5", columns=200) as terminal:
                def shares(lines):
                    """Of the container and of the process."""
                    found = [line for line in lines if "rm," in line and "vgpu-load" in line]
                    return [float(word) for word in found[0].split() if word.replace(".", "").isdigit()
                            and "." in word] if found else []
                terminal.until(lambda lines: shares(lines) and 5 < shares(lines)[-1] <= 100, "a share")
                leave(terminal)
        finally:
            os.killpg(program.pid, signal.SIGKILL)
            program.wait()


@test
def resized():
    """the screen follows the terminal's size while it runs, down to a few columns and back"""
    with one("--memory", "2g") as (place, _), top("--region", place.region) as terminal:
        terminal.shows("pod-a", "q quit")
        for lines, columns in ((50, 200), (10, 40), (4, 20), (2, 5), (1, 1), (24, 80)):
            terminal.set_size(lines, columns)
            if lines >= 10:
                text = terminal.until(lambda lines: "q quit" in lines[-1] and "pod-a" in "\n".join(lines),
                                      f"{columns} columns")
                true(max(map(len, text)) <= columns, text)
            else:
                time.sleep(0.3)
                true(terminal.process.poll() is None, f"{columns}x{lines} ended it")
        terminal.shows("1 container, 1 process", "MAX%")
        leave(terminal)


@test
def colourless():
    """colours are used where the terminal has them, and not on a vt100, by --no-color and by NO_COLOR"""
    with one("--memory", "2g") as (place, _):
        program = subprocess.run([VGPU, "pause", "--region", place.region], env=MINE, check=True,
                                 stdout=subprocess.DEVNULL)
        equal(program.returncode, 0)
        for options, variables, coloured in (((), {}, True), (("--no-color",), {}, False),
                                             ((), {"NO_COLOR": "1"}, False), ((), {"NO_COLOR": ""}, True),
                                             ((), {"TERM": "vt100"}, False)):
            with top("--region", place.region, *options, environment=variables) as terminal:
                terminal.shows("pod-a", "paused", "q quit")
                leave(terminal)
                equal(bool(terminal.screen.colours), coloured, f"{options} {variables}")


@test
def ascii_only():
    """without UTF-8 all that is drawn is ASCII"""
    with one("--memory", "2g", "--cores", "30", name="pöd") as (place, _), \
            top("--region", place.region, environment={"LC_ALL": "C"}) as terminal:
        text = terminal.shows("p?d", "MAX%", "q quit")
        terminal.until(lambda lines: any("_" in line for line in lines[1:2]), "a graph of a line")
        true("".join(text).isascii(), text)
        leave(terminal)


@test
def hundreds():
    """200 containers of 10 processes are shown, scrolled, sorted and filtered"""
    with crowd() as directory, top("--search", f"{directory}/*/*") as terminal:
        terminal.shows("200 containers, 2000 processes", "00000000-0000-40")
        terminal.press("\x1b[F" if terminal.screen.modes.get("1") is None else "\x1bOF")
        terminal.shows("000000c7-0000-40")
        terminal.press("t\x1bOH")
        terminal.until(lambda lines: sum("-0000-40" in line for line in lines) > 10, "containers alone")
        terminal.press("/000000c3")
        terminal.until(lambda lines: any(line.startswith("000000c3") and " dev " not in line for line in lines) and
                       not any("000000c2" in line for line in lines), "only that one")
        terminal.press("\r")
        terminal.shows('only what contains "000000c3"')
        terminal.press("\x1b")
        terminal.shows("00000000-0000-40")
        leave(terminal)


@test
def sorted_by():
    """s goes through the orders, i inverts them, and the selection stays with its container"""
    with Place() as place:
        regions = [f"{place.directory}/{name}" for name in ("a", "b")]
        with contextlib.ExitStack() as stack:
            for region, mib, priority in ((regions[0], 50, "0"), (regions[1], 300, "7")):
                program = stack.enter_context(Program("--region", region, "--memory", "2g", "--priority", priority,
                                                      f"--sim=1xh200,machine={place.directory}/machine"))
                program.got(mib)

            def order(lines):
                return [word for line in lines for word in line.split()[:1] if word in regions]
            arguments = [word for region in regions for word in ("--region", region)]
            with top("--sort", "name", *arguments, columns=200, lines=24) as terminal:
                terminal.until(lambda lines: order(lines)[:2] == regions, "by name")
                terminal.press("i")
                terminal.until(lambda lines: order(lines)[:2] == regions[::-1], "by name, inverted")
                terminal.press("ss")  # gpu, minute
                terminal.press("s")
                terminal.shows("by memory reversed")
                terminal.until(lambda lines: order(lines)[:2] == regions, "by memory, inverted")
                terminal.press("\x1bOB\x1bOB")  # b
                terminal.until(lambda lines: any(f"{regions[1]} dev 0" in line for line in lines), "b is selected")
                terminal.press("i")
                terminal.until(lambda lines: order(lines)[:2] == regions[::-1] and
                               any(f"{regions[1]} dev 0" in line for line in lines), "b is still selected")
                leave(terminal)


@test
def folded():
    """Enter folds a container's processes and unfolds them"""
    with one("--memory", "2g") as (place, program), top("--region", place.region) as terminal:
        pid = f"{child_of(program)} "
        terminal.shows("pod-a", pid)
        terminal.press("\r")
        terminal.until(lambda lines: not any(pid in line for line in lines), "no process")
        terminal.press("\r")
        terminal.shows(pid)
        leave(terminal)


@test
def limits():
    """a limit is changed after a yes, in the container that was selected; a bad value and a no change nothing"""
    with one("--memory", "2g", "--cores", "30") as (place, program), top("--region", place.region) as terminal:
        terminal.shows("pod-a", "2.0GiB")
        for key, bad, value, member, wanted in (("m", "12x", "1g", ("memory", "limit"), 1 << 30),
                                                ("c", "101", "45", ("gpu", "limit"), 45),
                                                ("C", "-1", "60", ("gpu", "soft_limit"), 60)):
            before = says(place)["devices"][0]
            terminal.press(f"{key}")
            terminal.shows("pod-a:", "Enter: done")
            terminal.press(f"{bad}\r")
            terminal.shows(f'"{bad}" is not accepted; accepted:')
            for answer in ("n", "\x1b"):
                terminal.press(f"{key}{value}\r")
                terminal.shows(f"to {value}? y: yes")
                terminal.press(answer)
                terminal.shows("nothing was changed")
            equal(says(place)["devices"][0]["memory"]["limit"], before["memory"]["limit"])
            equal(says(place)["devices"][0]["gpu"]["limit"], before["gpu"]["limit"])
            terminal.press(f"{key}{value}\r")
            terminal.shows(f"to {value}? y: yes")
            terminal.press("y")
            terminal.shows(f"pod-a: {value}")
            equal(says(place)["devices"][0][member[0]][member[1]], wanted)
        terminal.press("P3\r")
        terminal.shows("set priority of pod-a to 3?")
        terminal.press("y")
        terminal.shows("priority of pod-a: 3")
        equal(says(place)["priority"], 3)
        program.refused(1000)
        terminal.press("m50m\ry")
        terminal.shows("in use, over the new limit of 50 MiB")
        leave(terminal)


@test
def typed_ahead():
    """what was confirmed is done where the keys for more, or for the end, come with its own"""
    with one("--memory", "2g", "--cores", "30") as (place, _):
        for keys, cores, status in (("c20\ryq", 20, 0), ("c40\ryc50\rnq", 40, 0), ("c30\ryc50\ryq", 30, 1),
                                    ("c40\ryq", 40, 0)):
            with top("--region", place.region) as terminal:
                terminal.shows("pod-a", "q quit")
                terminal.press(keys)
                equal(terminal.ends(), status, keys)
                terminal.is_as_before()
                true(not status or any("nothing was done" in line for line in terminal.screen.text()), keys)
                equal(says(place)["devices"][0]["gpu"]["limit"], cores, keys)
        with open(place.region, "r+b") as file, top("--region", place.region) as terminal:
            fcntl.fcntl(file, F_OFD_SETLK, struct.pack("hhqqi4x", fcntl.F_WRLCK, 0, OFFSET, 1, 0))
            terminal.shows("pod-a", "q quit")
            terminal.press("c60\ryq")
            equal(terminal.ends(), 1)
            terminal.is_as_before()
            terminal.shows("vgpu: top: ", "lock")
        equal(says(place)["devices"][0]["gpu"]["limit"], 40)


@test
def of_device():
    """of a container with several devices a limit is changed of one, or of all"""
    with one("--memory", "2g", sim="2xh200") as (place, program), top("--region", place.region) as terminal:
        program.got(10, 1)
        terminal.until(lambda lines: sum(line.startswith("GPU-") for line in lines) == 2, "two GPUs")
        terminal.press("m1g\r")
        terminal.shows("of which device, 0 to 1")
        terminal.press("1\r")
        terminal.shows("to 1g on device 1?")
        terminal.press("y")
        terminal.shows("memory of pod-a: 1g on device 1")
        equal([device["memory"]["limit"] for device in says(place)["devices"]], [2 << 30, 1 << 30])
        terminal.press("m3g\r\ry")
        terminal.shows("memory of pod-a: 3g on all devices")
        equal([device["memory"]["limit"] for device in says(place)["devices"]], [3 << 30, 3 << 30])
        terminal.press("m3g\r9\ry")
        terminal.shows("met 2 devices so far")
        leave(terminal)


@test
def paused():
    """p pauses the selected container and r resumes it, after a yes"""
    with one("--memory", "2g") as (place, _), top("--region", place.region) as terminal:
        terminal.shows("pod-a")
        for key, word, state in (("p", "pause", True), ("r", "resume", False)):
            terminal.press(key)
            terminal.shows(f"{word} pod-a? y: yes")
            equal(says(place)["paused"], not state)
            terminal.press("x")
            terminal.shows("nothing was changed")
            equal(says(place)["paused"], not state)
            terminal.press(f"{key}y")
            terminal.shows(f"pod-a is {word}d")
            equal(says(place)["paused"], state)
            terminal.until(lambda lines, state=state: any(" paused" in line for line in lines[2:10]) == state, word)
        leave(terminal)


@test
def replaced():
    """what was another file's when it was asked for is not done to the one that has its name"""
    with one("--memory", "2g") as (place, program), top("--region", place.region) as terminal:
        terminal.shows("pod-a")
        terminal.press("p")
        terminal.shows("pause pod-a?")
        program.process.stdin.close()
        program.process.wait(timeout=20)
        os.rename(place.region, place.region + ".old")
        with place.program("--memory", "2g") as other:
            other.got(1)
            terminal.press("y")
            terminal.shows("another file by now")
            equal(says(place)["paused"], False)
            leave(terminal)
        program.process = subprocess.Popen(["true"], stdin=subprocess.PIPE, stdout=subprocess.PIPE,
                                           stderr=subprocess.PIPE)


@test
def vanishing():
    """a region that is shortened or deleted, or whose programs end, while it is shown harms nothing"""
    with one("--memory", "2g") as (place, program), top("--search", place.region, "--delay", "0.1") as terminal:
        terminal.shows("pod-a")
        os.truncate(place.region, 4096)
        terminal.until(lambda lines: not any("pod-a" in line for line in lines[2:10]) or
                       program.process.poll() is not None, "gone")
        os.unlink(place.region)
        terminal.shows("no container with a program in it")
        program.got(1)
        terminal.shows("pod-a")
        leave(terminal)


@test
def hung():
    """a file system that does not answer keeps no key waiting, and the screen says so"""
    with one("--memory", "2g") as (place, _):
        flag = place.directory + "/hang"
        with top("--region", place.region, "--delay", "0.2",
                 environment={"LD_PRELOAD": HANG, "VGPU_TEST_HANG": flag}) as terminal:
            terminal.shows("pod-a", "by gpu")
            open(flag, "wb").close()
            terminal.shows("no answer for")
            terminal.press("s")
            terminal.shows("by minute")
            terminal.press("t/no such thing\r")
            terminal.until(lambda lines: not any("pod-a" in line for line in lines), "a filter's effect")
            terminal.press("\x1b")
            os.unlink(flag)
            terminal.until(lambda lines: not any("no answer for" in line for line in lines), "an answer")
            open(flag, "wb").close()
            terminal.shows("no answer for")
            leave(terminal)


@test
def ended():
    """signals and a hung up terminal end it, with the terminal as it was"""
    with one("--memory", "2g") as (place, _):
        for number in (signal.SIGTERM, signal.SIGINT, signal.SIGQUIT, signal.SIGHUP, signal.SIGSEGV, signal.SIGABRT):
            with top("--region", place.region) as terminal:
                terminal.shows("pod-a", "q quit")
                true(terminal.screen.modes.get("1049"), "it draws where the shell's text was")
                terminal.process.send_signal(number)
                equal(terminal.ends(), -number)
                terminal.is_as_before()
        with top("--region", place.region) as terminal:
            terminal.shows("pod-a", "q quit")
            terminal.press("\x03")
            equal(terminal.ends(), -signal.SIGINT)
            terminal.is_as_before()


@test
def stopped():
    """a shell stops it with the terminal as it was, and lets it go on"""
    if not shutil.which("bash"):
        raise Skip("needs bash")
    with one("--memory", "2g") as (place, _):
        with Terminal("bash", "--norc", "--noediting", "-i", environment={**UTF8, "PS1": "ready> "}) as terminal:
            terminal.shows("ready>")
            settings = termios.tcgetattr(terminal.slave)
            terminal.press(f"'{VGPU}' top --region '{place.region}'\n")
            terminal.shows("pod-a", "q quit")
            for _ in range(2):
                terminal.press("\x1a")
                terminal.until(lambda lines: not terminal.screen.modes.get("1049"), "the shell's screen")
                terminal.shows("Stopped")
                equal(termios.tcgetattr(terminal.slave), settings, "settings")
                terminal.press("fg\n")
                terminal.until(lambda lines: terminal.screen.modes.get("1049") and "q quit" in lines[-1], "again")
                terminal.press("s")
                terminal.until(lambda lines: "by gpu" not in lines[0], "a key's answer")
                terminal.press("S")
                terminal.shows("by gpu")
            terminal.press("q")
            terminal.until(lambda lines: not terminal.screen.modes.get("1049"), "its end")
            terminal.press("echo st''atus $?\n")
            terminal.shows("status 0")
            equal(termios.tcgetattr(terminal.slave), settings, "settings")
            terminal.press("exit\n")
            terminal.ends()


@test
def plain():
    """--batch prints so many looks as text, without a terminal"""
    with one("--memory", "2g", "--cores", "30") as (place, program):
        done = tool(VGPU, "top", "--batch", "3", "--delay", "0.1", "--region", place.region, environment={"LC_ALL": "C"})
        equal((done.returncode, done.stderr), (0, ""))
        looks = done.stdout.split("\n\n")
        equal(len(looks), 3)
        for look in looks:
            for word in ("1 container, 1 process", "pod-a", str(child_of(program)), "HISTORY", "GPU-"):
                true(word in look, look)
        true("\x1b" not in done.stdout and done.stdout.isascii(), done.stdout)
        done = tool(VGPU, "top", "--batch", "1", "--region", place.directory + "/none")
        equal(done.returncode, 1)
        true("/none" in done.stderr and done.stderr.count("\n") == 1, done.stderr)


@test
def refused():
    """what is not understood, and what is no terminal, is refused with one line"""
    for words in (("--delay", "0"), ("--delay", "x"), ("--delay", "1e1"), ("--delay", "nan"), ("--delay", "3601"),
                  ("--batch", "0"), ("--batch", "-1"), ("--sort", "age")):
        refused_line(tool(VGPU, "top", *words), 2, words[0], words[1], "accepted")
    refused_line(tool(VGPU, "top", "word"), 2, "word", "--help")
    refused_line(tool(VGPU, "top", "--region", "a", "--search", "b"), 2, "exclude")
    refused_line(tool(VGPU, "top", environment={"TERM": "xterm"}, stdin=subprocess.DEVNULL), 2, "terminal", "vgpu ps")
    for name in ("", "no-such-terminal", "dumb"):
        with top(environment={"TERM": name}) as terminal:
            equal(terminal.ends(), 2, name)
            text = [line for line in terminal.screen.text() if line]
            true("TERM" in text[0] and "vgpu ps" in "".join(text), text)
            terminal.is_as_before()


@test
def not_installed():
    """vgpu starts without vgpu-top, and says what is missing"""
    with tempfile.TemporaryDirectory() as directory:
        shutil.copy(VGPU, directory)
        refused_line(tool(f"{directory}/vgpu", "top"), 1, "vgpu-top", "libncurses-dev", "vgpu ps")
        equal(tool(f"{directory}/vgpu", "--version").returncode, 0)


if not os.path.exists(TOP):
    print("1..0 # SKIP vgpu-top is not built: needs libncurses-dev")
    sys.exit(0)
tap.main()
