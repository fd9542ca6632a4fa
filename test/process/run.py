# SPDX-License-Identifier: Apache-2.0
"""vgpu run BUILD: exit statuses, signals, bad values, containers, and nothing left behind."""
import glob
import os
import re
import signal
import subprocess
import sys
import tempfile
import time

import tap
from mine import BUILD, MINE, VGPU
from tap import equal, test, true

HOLD = os.path.join(BUILD, "test/driver/hold")
SMI = os.path.join(BUILD, "examples/vgpu-example-smi")


def run(*arguments, **options):
    return subprocess.run([VGPU, "run", *arguments], env=MINE, capture_output=True, text=True,
                          timeout=30, **options)


def start(*arguments, **options):
    return subprocess.Popen([VGPU, "run", *arguments], env=MINE, stdout=subprocess.PIPE,
                            stderr=subprocess.PIPE, text=True, **options)


def left_behind():
    return set(glob.glob("/tmp/vgpu-run-*"))


def sh(script):
    return ["--", "sh", "-c", script]


@test
def status():
    """the command's exit status is passed through"""
    for code in (0, 1, 3, 126, 255):
        equal(run(*sh(f"exit {code}")).returncode, code, "status")


@test
def output():
    """the command's streams are its own"""
    done = run(*sh("cat; echo out; echo err >&2"), input="in\n")
    equal((done.stdout, done.stderr), ("in\nout\n", "err\n"))


@test
def killed():
    """a command ended by a signal ends us by the same"""
    for number in (signal.SIGTERM, signal.SIGKILL, signal.SIGINT, signal.SIGUSR1, signal.SIGSEGV):
        equal(run(*sh(f"kill -{int(number)} $$")).returncode, -number, "status")


@test
def not_found():
    """a command that is not there is 127, one that cannot be run 126, each with one line"""
    done = run("--", "no-such-command-here")
    equal(done.returncode, 127, "status")
    true(re.fullmatch(r"vgpu: .*no-such-command-here.*\n", done.stderr), done.stderr)
    done = run("--", "/etc/passwd")
    equal(done.returncode, 126, "status")
    true(re.fullmatch(r"vgpu: .*/etc/passwd.*\n", done.stderr), done.stderr)


@test
def forwarded():
    """signals sent to us reach the command"""
    for name in ("TERM", "INT", "USR1", "USR2", "HUP", "WINCH", "CONT"):
        process = start(*sh(f"trap 'echo got {name}; exit 7' {name}; echo ready; "
                            "while :; do sleep 0.02; done"))
        equal(process.stdout.readline(), "ready\n")
        process.send_signal(getattr(signal, "SIG" + name))
        out, _ = process.communicate(timeout=30)
        equal((out, process.returncode), (f"got {name}\n", 7), name)


@test
def default_signals():
    """a signal that the command does not handle ends both"""
    for number in (signal.SIGTERM, signal.SIGINT, signal.SIGHUP):
        process = start(*sh("echo ready; exec sleep 100"))
        equal(process.stdout.readline(), "ready\n")
        process.send_signal(number)
        process.communicate(timeout=30)
        equal(process.returncode, -number, "status")


@test
def late_signals():
    """signals that still come when the command has ended change nothing of how we end, and leave nothing behind"""
    for _ in range(30):
        process = start(*sh("trap '' TERM; echo $CUDA_DEVICE_MEMORY_SHARED_CACHE; exec sleep 0.02"))
        directory = os.path.dirname(process.stdout.readline().strip())
        true(directory.startswith("/tmp/vgpu-run-"), directory)
        while process.poll() is None:
            process.send_signal(signal.SIGTERM)
        equal(process.returncode, 0, "status")
        true(not os.path.exists(directory), f"{directory} is left")


def state(pid):
    with open(f"/proc/{pid}/stat", encoding="ascii", errors="replace") as stat:
        return stat.read().rpartition(")")[2].split()[0]


def wait_for_state(pid, wanted):
    end = time.monotonic() + 5
    while state(pid) not in wanted:
        true(time.monotonic() < end, f"process is {state(pid)}, not {wanted}")
        time.sleep(0.01)


@test
def stopped():
    """a command that stops stops us, and goes on with us"""
    process = start(*sh("echo $$; kill -STOP $$; echo went on"))
    child = int(process.stdout.readline())
    wait_for_state(child, "T")
    wait_for_state(process.pid, "T")
    process.send_signal(signal.SIGCONT)
    try:
        out, _ = process.communicate(timeout=30)
    except subprocess.TimeoutExpired:
        os.kill(child, signal.SIGKILL)
        process.kill()
        process.communicate()
        raise
    equal((out, process.returncode), ("went on\n", 0))


@test
def terminal_stop():
    """SIGTSTP stops the command and us, and SIGCONT continues both"""
    # In a group of its own: in an orphaned one, as of a test runner, the kernel ignores SIGTSTP.
    process = start(*sh("echo $$; sleep 0.3; echo went on"), preexec_fn=os.setpgrp)
    child = int(process.stdout.readline())
    process.send_signal(signal.SIGTSTP)
    wait_for_state(child, "T")
    wait_for_state(process.pid, "T")
    process.send_signal(signal.SIGCONT)
    out, _ = process.communicate(timeout=30)
    equal((out, process.returncode), ("went on\n", 0))


@test
def stopped_by_another():
    """a command that another stops and continues does not leave us stopped"""
    process = start(*sh("echo $$; sleep 0.3; echo went on"))
    child = int(process.stdout.readline())
    for _ in range(3):
        os.kill(child, signal.SIGSTOP)
        wait_for_state(child, "T")
        time.sleep(0.1)  # in which we hear of it
        os.kill(child, signal.SIGCONT)
    out, _ = process.communicate(timeout=30)
    equal((out, process.returncode), ("went on\n", 0))


@test
def signal_state():
    """the command starts with the signal state that we were given"""
    look = ["grep", "-E", "Sig(Blk|Ign|Cgt)", "/proc/self/status"]
    wanted = subprocess.run(look, capture_output=True, text=True)
    equal(run("--", *look).stdout, wanted.stdout)


@test
def descriptors():
    """the command starts with the descriptors that we were given"""
    wanted = subprocess.run(["ls", "/proc/self/fd"], capture_output=True, text=True)
    equal(run("--", "ls", "/proc/self/fd").stdout, wanted.stdout)
    equal(run("--sim", "--", "ls", "/proc/self/fd").stdout, wanted.stdout)


@test
def without_streams():
    """what is closed stays closed for the command, whose text is never written over its region"""
    script = """import ctypes, os
ctypes.CDLL("libcuda.so.1").cuInit(0)
for stream in range(3):
    try:
        os.write(stream, b"x" * 64)
    except OSError:
        pass
"""
    with tempfile.TemporaryDirectory() as directory:
        for limit in ("", "ulimit -n 64; "):
            done = run("--sim", "--memory", "2g", "--region", f"{directory}/region", "--", "sh", "-c",
                       f'{limit}exec "$0" -c "$1" 0<&- 1>&- 2>&-', sys.executable, script)
            equal((done.returncode, done.stderr), (0, ""), limit)
            with open(f"{directory}/region", "rb") as file:
                equal(file.read(4), (19920718).to_bytes(4, "little"), f"{limit}the region's head")
    script = "import os\nos.write(2, b' '.join(b'%d' % fd for fd in range(3) if os.path.exists(f'/proc/self/fd/{fd}')))"
    done = subprocess.run(["sh", "-c", 'exec "$0" run -- "$1" -c "$2" 0<&- 1>&-', VGPU, sys.executable, script],
                          env=MINE, capture_output=True, text=True, check=False)
    equal((done.returncode, done.stdout, done.stderr), (0, "", "2"))


@test
def bad_values():
    """a value that is not understood is named with what is accepted"""
    for option, value in (("--memory", "abc"), ("--memory", "-1"), ("--memory", "1x"),
                          ("--memory", "1g,abc"), ("--memory", "99999999999g"), ("--memory", ""),
                          ("--memory", "1g,,2g"), ("--memory", "1 2"),
                          ("--cores", "abc"), ("--cores", "101"), ("--cores", "-3")):
        done = run(option, value, "--", "echo", "ran")
        equal((done.returncode, done.stdout), (2, ""), f"{option} {value!r}")
        true(done.stderr.count("\n") == 1 and option in done.stderr and "accepted" in done.stderr,
             done.stderr)
        bad = [item for item in value.split(",") if item not in ("1g", "2g")][0]
        true(f'"{bad}"' in done.stderr, done.stderr)


@test
def bad_options():
    """no command, an unknown option and an unknown command are usage errors"""
    for arguments in (["run"], ["run", "--memory", "1g"], ["run", "--nonsense", "true"],
                      ["nonsense"], []):
        done = subprocess.run([VGPU, *arguments], env=MINE, capture_output=True, text=True)
        equal((done.returncode, done.stdout), (2, ""), " ".join(arguments))
        true(done.stderr, "nothing was said")


@test
def sizes():
    """sizes are taken in every form that is documented"""
    for text, mib in (("2GiB", 2048), ("1.5g", 1536), ("512MiB", 512), ("3072m", 3072),
                      ("1073741824", 1024), ("2G", 2048), ("2gb", 2048)):
        done = run("--memory", text, "--sim", "--", SMI)
        true(f" {mib}MiB" in done.stdout, f"{text}: {done.stdout}{done.stderr}")


@test
def one_value_a_device():
    """one value per device limits each by its number"""
    done = run("--memory", "1g,2g,3g", "--sim=3xh200", "--", SMI)
    totals = re.findall(r"/ *(\d+)MiB", done.stdout)
    equal(totals, ["1024", "2048", "3072"], "totals")


@test
def outer_limits():
    """a limit replaces all that an outer environment says of it"""
    outer = dict(MINE, CUDA_DEVICE_MEMORY_LIMIT_0="5g", CUDA_MEM_LIMIT="6g")
    done = subprocess.run([VGPU, "run", "--memory", "1g", "--sim", "--", SMI], env=outer,
                          capture_output=True, text=True)
    equal(re.findall(r"/ *(\d+)MiB", done.stdout), ["1024"], "totals")


@test
def refusal():
    """a program inside is refused beyond its slice"""
    done = run("--memory", "2g", "--sim", "--", HOLD, "1400", "0")
    equal(done.returncode, 0, done.stdout + done.stderr)
    done = run("--memory", "2g", "--sim", "--", HOLD, "1600", "0")
    true("CUDA_ERROR_OUT_OF_MEMORY" in done.stdout, done.stdout + done.stderr)


def hold(*options):
    process = start(*options, "--", HOLD, "1000", "100")
    line = process.stdout.readline()
    true("CUDA_SUCCESS" in line, line)
    return process


def end(process):
    process.terminate()
    process.communicate(timeout=30)


@test
def containers():
    """runs are containers of their own on one machine; --region joins them"""
    with tempfile.TemporaryDirectory() as directory:
        sim = f"--sim=machine={directory}/machine"
        region = f"--region={directory}/region"
        first = hold("--memory", "2g", sim)
        done = run("--memory", "2g", sim, "--", HOLD, "1400", "0")
        equal(done.returncode, 0, done.stdout)
        end(first)
        first = hold("--memory", "2g", sim, region)
        done = run("--memory", "2g", sim, region, "--", HOLD, "1000", "0")
        true("OUT_OF_MEMORY" in done.stdout, done.stdout)
        done = run(sim, region, "--", SMI)
        equal(re.findall(r"/ *(\d+)MiB", done.stdout), ["2048"], "totals")
        end(first)
        done = run("--memory", "2g", sim, region, "--", HOLD, "1000", "0")
        equal(done.returncode, 0, done.stdout)


@test
def relative_region():
    """a region's name counts from where we are"""
    with tempfile.TemporaryDirectory() as directory:
        done = run("--memory", "2g", "--sim", "--region", "here", "--", "sh", "-c",
                   f"cd / && {HOLD} 100 0", cwd=directory)
        equal(done.returncode, 0, done.stdout + done.stderr)
        true(os.path.exists(f"{directory}/here"), "no region here")


@test
def refused_region():
    """a region's name that the library would refuse is refused: a link, a directory"""
    with tempfile.TemporaryDirectory() as directory:
        os.symlink(f"{directory}/aim", f"{directory}/link")
        for aim in (None, "w"):
            if aim:
                open(f"{directory}/aim", aim, encoding="ascii").close()
            done = run("--memory", "2g", "--region", f"{directory}/link", "--", "echo", "ran")
            equal((done.returncode, done.stdout, done.stderr.count("\n")), (2, "", 1), done.stderr)
            true("it is a symbolic link" in done.stderr, done.stderr)
        done = run("--memory", "2g", "--region", directory, "--", "echo", "ran")
        equal((done.returncode, done.stdout), (2, ""), done.stderr)


@test
def no_directory():
    """a region's name in a directory that is missing is refused, naming the directory, and none is made"""
    with tempfile.TemporaryDirectory() as directory:
        open(f"{directory}/file", "w", encoding="ascii").close()
        for name, missing in (("none/deep/x", f"{directory}/none/deep"), ("none/x", f"{directory}/none"),
                              ("none/", f"{directory}/none"), ("file/x", f"{directory}/file")):
            for path in (name, f"{directory}/{name}"):
                done = run("--memory", "2g", "--region", path, "--", "echo", "ran", cwd=directory)
                equal((done.returncode, done.stdout, done.stderr.count("\n")), (2, "", 1), done.stderr)
                true(f"there is no directory {missing};" in done.stderr, done.stderr)
        equal(os.listdir(directory), ["file"], "what is there")


@test
def little_memory():
    """a memory limit that no context fits into is told, one that it fits into and no limit are not"""
    unit = "a number without a unit is bytes"
    for size, said in (("2", "2 bytes"), ("1", "1 byte"), ("300m", "300 MiB"), ("519m", "519 MiB"), ("4g,100m", "100 MiB"),
                       ("0", None), ("520m", None), ("2g", None), ("2g,0", None)):
        done = run("--memory", size, "--", "echo", "ran")
        equal((done.returncode, done.stdout, done.stderr.count("\n")), (0, "ran\n", 1 if said else 0), done.stderr)
        true(not said or f"a memory limit of {said} is less than a CUDA context takes" in done.stderr, done.stderr)
        equal(unit in done.stderr, said in ("2 bytes", "1 byte"), f"a word about units for {size}")


@test
def vain_soft_limits():
    """a soft limit that has no effect is told before the command runs, and one that has some is not"""
    for options, said in ((("--soft-cores", "50"), "all devices: there is no compute limit, so the soft limit of 50 %"),
                          (("--cores", "0", "--soft-cores", "50"), "all devices: there is no compute limit"),
                          (("--cores", "100", "--soft-cores", "50"), "all devices: there is no compute limit"),
                          (("--cores", "50", "--soft-cores", "50"), "all devices: the soft limit of 50 % is not above"),
                          (("--cores", "50", "--soft-cores", "30"), "all devices: the soft limit of 30 % is not above"),
                          (("--cores", "30,60", "--soft-cores", "50"), "device 1: the soft limit of 50 % is not above"),
                          (("--cores", "30", "--soft-cores", "50,20"), "device 1: the soft limit of 20 % is not above"),
                          (("--cores", "30,60", "--soft-cores", "50,0"), None), (("--soft-cores", "0"), None),
                          (("--cores", "30", "--soft-cores", "100"), None), (("--cores", "30,40", "--soft-cores", "60"), None)):
        done = run(*options, "--", "echo", "ran")
        equal((done.returncode, done.stdout, done.stderr.count("\n")), (0, "ran\n", 1 if said else 0), done.stderr)
        true(not said or said in done.stderr, done.stderr)
    done = subprocess.run([VGPU, "run", "--soft-cores", "50", "--", "true"], capture_output=True, text=True, check=False,
                          env={**MINE, "CUDA_DEVICE_SM_LIMIT": "30"})
    equal((done.returncode, done.stderr), (0, ""), "with a compute limit of the environment")


@test
def oversubscribe():
    """--oversubscribe gives the limit where the card is smaller, and says what it needs"""
    def held(*options):
        return run("--memory", "8GiB", *options, "--sim=memory=4GiB", "--", HOLD, "6000", "0").returncode
    true(held() != 0, "6,000 MiB on a card of 4 GiB")
    equal(held("--oversubscribe"), 0, "with it")
    equal(held("--oversubscribe=2.5"), 0, "with a ratio")
    for value in ("1", "0.5", "x", "", "-2", "1.5x", "4097"):
        done = run("--memory", "1g", "--oversubscribe=" + value, "--", "true")
        equal((done.returncode, done.stderr.count("\n")), (2, 1), done.stderr)
        true(f'"{value}"' in done.stderr and "a ratio above 1" in done.stderr, done.stderr)
    done = run("--memory", "1g", "--oversubscribe", "1.5", "true")
    equal((done.returncode, done.stderr), (2, "vgpu: run: --oversubscribe takes its ratio behind '=': --oversubscribe=1.5\n"),
          "a ratio without '='")
    done = run("--oversubscribe", "--", "true")
    equal((done.returncode, done.stderr.count("\n")), (2, 1), done.stderr)
    true("--memory" in done.stderr, done.stderr)
    done = run("--env", "--memory", "1g", "--oversubscribe")
    true("CUDA_MEMORY_OVERSUBSCRIBE" in done.stdout, done.stdout)


@test
def nothing_left():
    """nothing of a run is left in /tmp, however it ends"""
    before = left_behind()
    run("--memory", "2g", "--sim", "--", HOLD, "100", "0")
    run("--memory", "2g", "--sim", "--", "no-such-command-here")
    run("--memory", "2g", "--sim", *sh("kill -9 $$"))
    run("--memory", "bad", "--", "true")
    process = hold("--memory", "2g", "--sim")
    end(process)
    left = left_behind() - before
    deadline = time.monotonic() + 10  # other people's runs end too
    while left & left_behind() and time.monotonic() < deadline:
        time.sleep(0.05)
    equal(left & left_behind(), set(), "left behind")


@test
def nested():
    """a run inside a run is a container of its own"""
    done = run("--memory", "4g", "--sim", "--", VGPU, "run", "--memory", "1g", "--", SMI)
    equal(re.findall(r"/ *(\d+)MiB", done.stdout), ["1024"], "totals")


@test
def shells():
    """a shell's children are in the slice, whatever lies between"""
    done = run("--memory", "1g", "--sim", *sh(f"(env python3 -c \"import os; "
               f"os.execv('{SMI}', ['smi'])\")"))
    equal(re.findall(r"/ *(\d+)MiB", done.stdout), ["1024"], done.stdout + done.stderr)


tap.main()
