# SPDX-License-Identifier: Apache-2.0
"""harness SOURCE BUILD: what the harnesses (check.h, tap.py), scripts/contain and scripts/test say of
tests that must not pass, and that nothing which a test started outlives it."""
import importlib.machinery
import importlib.util
import os
import re
import signal
import subprocess
import sys
import tempfile
import time

SOURCE, BUILD = (os.path.abspath(path) for path in sys.argv[1:3])
sys.path.insert(0, os.path.join(SOURCE, "test/process"))

import tap  # pylint: disable=wrong-import-position
from tap import equal, test, true  # pylint: disable=wrong-import-position

CONTAIN = os.path.join(SOURCE, "scripts/contain")
BAD = os.path.join(BUILD, "test/harness/harness-bad")
GONE_SECONDS = 60  # a bound for a loaded machine: usual are milliseconds
# Starts a process in a session of its own, whose pid is the output, and goes on.
STRAY = "setsid sh -c 'trap \"\" TERM HUP; echo $$; exec sleep 10000' & "


def loaded(name, path):
    loader = importlib.machinery.SourceFileLoader(name, path)
    module = importlib.util.module_from_spec(importlib.util.spec_from_loader(name, loader))
    sys.dont_write_bytecode = True
    loader.exec_module(module)
    return module


RUNNER = loaded("runner", os.path.join(SOURCE, "scripts/test"))


def lives(pid):
    """Whether the process runs; one that has ended and was not reaped does not."""
    try:
        with open(f"/proc/{pid}/stat", encoding="utf-8") as file:
            return file.read().rpartition(")")[2].split()[0] not in "ZX"
    except (FileNotFoundError, ProcessLookupError):
        return False


def goes(holds):
    """Whether it holds no more within the bound."""
    end = time.monotonic() + GONE_SECONDS
    while holds() and time.monotonic() < end:
        time.sleep(0.01)
    return not holds()


def check_verdicts(output):
    """Each point's verdict is the one that its sentence begins with."""
    points = re.findall(r"^(not )?ok \d+ - (\w+): (.*?)( # SKIP .+)?$", output, re.MULTILINE)
    plan = re.search(r"^1\.\.(\d+)$", output, re.MULTILINE)
    equal(len(points), int(plan[1]), f"points of\n{output}")
    for failed, wanted, sentence, skip in points:
        equal("fail" if failed else "skip" if skip else "pass", wanted, f"{sentence!r} of\n{output}")


@test
def c_bodies():
    """a C body passes only where it made a check and returned"""
    with tempfile.TemporaryDirectory() as directory:
        strays = f"{directory}/strays"
        done = subprocess.run([BAD], env={**os.environ, "HARNESS_STRAYS": strays}, capture_output=True,
                              text=True, timeout=300, check=False)
        equal((done.returncode, done.stderr), (1, ""), "status and errors")
        check_verdicts(done.stdout)
        true("# nothing was checked" in done.stdout, done.stdout)
        true("# the process ended with status 0 before its body did" in done.stdout, done.stdout)
        with open(strays, encoding="ascii") as file:
            pids = file.read().split()
        equal(len(pids), 2, "processes that were left")
        equal([pid for pid in pids if lives(pid)], [], "of them live")
        left = re.search(r"^# directory (.*)/\w+$", done.stdout, re.MULTILINE)[1]
        true(goes(lambda: os.path.exists(left)), f"{left} is still there")


@test
def python_functions():
    """a Python test passes only where it made a check and returned"""
    bad = os.path.join(SOURCE, "test/harness/bad.py")
    done = subprocess.run([sys.executable, bad], capture_output=True, text=True, timeout=100, check=False,
                          env={**os.environ, "PYTHONPATH": os.path.join(SOURCE, "test/process")})
    equal((done.returncode, done.stderr), (1, ""), "status and errors")
    check_verdicts(done.stdout)


@test
def runner_judges():
    """scripts/test counts what crashed, ended early or ran past its time as failed"""
    tap_test = {"protocol": "tap", "timeout": 5}
    for status, output, counts in (
            (0, "1..2\nok 1 - a\nok 2 - b\n", (2, 0, [])),
            (0, "1..2\nok 1 - a\n", (1, 1, [])),
            (0, "", (0, 1, [])),
            (1, "1..1\nok 1 - a\n", (1, 1, [])),
            (-11, "1..1\nok 1 - a\n", (1, 1, [])),
            (None, "1..1\nok 1 - a\n", (1, 1, [])),
            (1, "1..1\nnot ok 1 - a\n", (0, 1, [])),
            (0, "1..1\nok 1 - a # SKIP no reason\n", (0, 0, ["no reason"])),
            (0, "1..0 # SKIP nothing here\n", (0, 0, ["nothing here"]))):
        equal(RUNNER.judge(tap_test, status, output)[:3], counts, f"{status} {output!r}")


@test
def runner_names_packages():
    """scripts/test tells why tests were skipped, and with which Debian packages more would run"""
    lines = RUNNER.skips(["no strace here", "needs root", "no strace here", "spin is not installed"])
    equal(lines, ["skipped, by reason:", "     2  no strace here", "     1  needs root",
                  "     1  spin is not installed", "with these Debian packages more would run:",
                  "  apt-get install strace spin"], "lines")
    equal(RUNNER.skips(["needs root"])[1:], ["     1  needs root"], "without a package")
    equal(RUNNER.skips([]), [], "where nothing was skipped")


@test
def table_is_installed():
    """.ci/run installs each package that the table in docs/testing.md names"""
    with open(os.path.join(SOURCE, "docs/testing.md"), encoding="utf-8") as file:
        rows = RUNNER.PACKAGES.findall(file.read())
    with open(os.path.join(SOURCE, ".ci/run"), encoding="utf-8") as file:
        installed = set(re.findall(r"[a-z0-9.+-]+", file.read()))
    names = {name for _, packages in rows for name in packages.replace("`", "").split(", ")}
    true(len(names) > 10, f"rows {rows}")
    equal(names - installed - {"chromium", "npm"}, set(), "packages that .ci/run lacks")


def contained(script, *options, **more):
    return subprocess.run([CONTAIN, *options, "sh", "-c", script], capture_output=True, text=True,
                          timeout=GONE_SECONDS, check=False, **more)


@test
def contain_status():
    """scripts/contain ends as the command did"""
    for script, status in (("exit 0", 0), ("exit 3", 3), ("kill -TERM $$", -signal.SIGTERM),
                           ("kill -KILL $$", -signal.SIGKILL)):
        equal(contained(script).returncode, status, script)
    equal(contained("sleep 10000", "--seconds", "0.2").returncode, 124, "past its time")
    done = subprocess.run([CONTAIN, "/nowhere"], capture_output=True, text=True, check=False)
    equal((done.returncode, done.stderr), (127, "contain: /nowhere: No such file or directory\n"), "no command")


@test
def contain_kills():
    """when the command has ended or ran past its time, what it started in other sessions is dead"""
    for script, options in ((STRAY + "sleep 0.5", ()), (STRAY + "sleep 10000", ("--seconds", "1")),
                            (f"setsid sh -c \"{STRAY.replace('$', chr(92) + '$').replace(chr(34), chr(92) + chr(34))} sleep 0.5\"", ())):
        pids = contained(script, *options).stdout.split()
        equal(len(pids), 1, f"pids of {script}")
        true(not lives(pids[0]), f"{script}: process {pids[0]} lives")


@test
def contain_ends_with_runner():
    """a runner that is told to end, or is killed, leaves no process and no directory of its test"""
    for number, direct in ((signal.SIGTERM, True), (signal.SIGKILL, False)):
        command = [CONTAIN, "sh", "-c", f"echo $TMPDIR; {STRAY}sleep 10000"]
        if not direct:  # the killed process is the one that started scripts/contain
            command = [sys.executable, "-c", "import subprocess, sys; subprocess.run(sys.argv[1:])", *command]
        with subprocess.Popen(command, stdout=subprocess.PIPE, text=True) as runner:
            directory, pid = runner.stdout.readline().strip(), runner.stdout.readline().strip()
            true(lives(pid) and os.path.isdir(directory), f"{directory} {pid}")
            runner.send_signal(number)
            true(goes(lambda: lives(pid)), f"{number}: process {pid} lives")
            true(goes(lambda: os.path.exists(directory)), f"{number}: {directory} is there")


@test
def contain_directory():
    """each command has a directory of its own for temporary files, which goes with all that is in it"""
    outer = tempfile.mkdtemp(prefix="vgpu-", dir="/tmp")
    try:
        done = contained("set -e; mkdir -p $TMPDIR/a/b; touch $TMPDIR/a/b/c; chmod 0 $TMPDIR/a; "
                         "stat -c %a $TMPDIR; echo $TMPDIR; echo $VGPU_SIM_MACHINE $CUDA_DEVICE_MEMORY_SHARED_CACHE",
                         env={**os.environ, "TMPDIR": outer})
        mode, directory, files = done.stdout.splitlines()
        equal((mode, os.path.dirname(directory)), ("1777", outer), "mode and place")
        equal(files, f"{directory}/machine {directory}/region", "the simulator's and the region's files")
        equal(os.listdir(outer), [], "what is left")
    finally:
        os.rmdir(outer)


tap.main()
