# SPDX-License-Identifier: Apache-2.0
"""doctor_command BUILD: `vgpu doctor -- COMMAND`: what it finds in the processes of commands of many
kinds, and that the commands run as they do without it."""
import json
import os
import re
import shutil
import signal
import subprocess
import sys
import tempfile

import tap
from tap import Skip, equal, test, true

from mine import BUILD, VGPU
from place import NOBODY, Place, need_nobody, tool

LIBRARY = os.path.join(BUILD, "libvgpu.so")
SIM = os.path.realpath(os.path.join(BUILD, "sim"))
PYTHON = os.path.realpath(sys.executable)

# What each CUDA program here does, and then what is behind it.
WORK = """
import ctypes, os, signal, subprocess, sys, time
def work():
    cuda = ctypes.CDLL("libcuda.so.1")
    context = ctypes.c_void_p()
    assert cuda.cuInit(0) == 0
    assert cuda.cuDevicePrimaryCtxRetain(ctypes.byref(context), 0) == 0
    assert cuda.cuCtxSetCurrent(context) == 0
    return cuda.cuMemAlloc_v2(ctypes.byref(ctypes.c_uint64()), ctypes.c_size_t(1 << 20))
"""

# What a program does that has not got the library: only a look from outside meets it, and on a busy
# machine a look takes its time.
SEEN = WORK + "print(work(), flush=True); time.sleep(0.5)"


class Scene(Place):
    """A container in which doctors run commands."""

    def environment(self, *options):
        """What `vgpu run` gives its command."""
        done = tool(VGPU, "run", "--region", self.region,
                    f"--sim=1xh200,machine={self.directory}/machine", *options, "--", "env", "-0")
        equal(done.returncode, 0, done.stderr)
        return dict(line.split("=", 1) for line in done.stdout.split("\0") if line)

    def doctor(self, *command, options=("--memory", "2g"), status=0, verdict=None, before=(),
               doctor=(), **more):
        """Its report as JSON, after the command went as it was to go."""
        page = f"{self.directory}/page"
        done = subprocess.run([VGPU, "doctor", "--json", "--output", page, *doctor, "--", *before,
                               *command], env=self.environment(*options), capture_output=True,
                              text=True, timeout=60, check=False, **more)
        equal((done.returncode, done.stderr), (status, ""), "status and stderr")
        with open(page, encoding="utf-8") as file:
            report = json.load(file)
        report["stdout"] = done.stdout
        if verdict:
            equal(report["verdict"], verdict, f"verdict in {report['checks']}")
        return report

    def python(self, text, *arguments, **more):
        return self.doctor(PYTHON, "-c", WORK + text, *arguments, **more)


def lines(report, check, status):
    return [line for line in report["checks"] if (line["check"], line["status"]) == (check, status)]


def one(report, check, status, *words):
    found = lines(report, check, status)
    equal(len(found), 1, f"lines {check} {status} in {report['checks']}")
    for word in words:
        true(word in found[0]["text"], f"no {word!r} in {found[0]}")
    return found[0]


def compiled(directory, text, *arguments):
    program = f"{directory}/program"
    with open(program + ".c", "w", encoding="ascii") as file:
        file.write(text)
    if not shutil.which("cc"):
        raise Skip("no C compiler here")
    done = subprocess.run(["cc", "-o", program, program + ".c", *arguments], capture_output=True,
                          text=True, check=False)
    if done.returncode and "-static" in arguments:
        raise Skip("no static C library here")
    equal(done.returncode, 0, done.stderr)
    return program


LINKED = """
#include <stddef.h>
int cuInit(unsigned), cuDevicePrimaryCtxRetain(void **, int), cuCtxSetCurrent(void *);
int cuMemAlloc_v2(unsigned long long *, size_t);
int main(void)
{
    void *context;
    unsigned long long memory;
    return cuInit(0) || cuDevicePrimaryCtxRetain(&context, 0) || cuCtxSetCurrent(context) ||
           cuMemAlloc_v2(&memory, 1 << 20);
}
"""
OPENER = """
#include <fcntl.h>
#include <unistd.h>
int main(void)
{
    return open("/dev/nvidiactl", O_RDONLY) < 0 || usleep(700000);
}
"""


def nothing_left():
    with os.scandir("/tmp") as entries:
        for entry in entries:
            if entry.name.startswith("vgpu-doctor-"):
                try:  # another doctor's, at work beside this test
                    subprocess.run(["flock", "--nonblock", entry.path, "true"], check=True)
                except subprocess.CalledProcessError:
                    continue
                true(not os.path.exists(entry.path), f"{entry.path} is left")


@test
def holds():
    """a program under a limit: they hold, and the line says by which doors its calls came"""
    with Scene() as scene:
        report = scene.python("print(work())", verdict="hold")
        equal((report["stdout"], report["exit_status"], report["problems"]), ("0\n", 0, 0))
        one(report, "verdict", "ok", "yes")
        one(report, "process", "ok", "dlsym ioctl", "the driver's own allocations")
        process, = report["processes"]
        equal((process["library"], process["library_path"], process["limited"]),
              (True, LIBRARY, True))
        equal(process["facts"]["device.0.memory.limit"], str(2 << 30))
        true(re.search(r" -c ", process["command"]), process)
    nothing_left()


@test
def page():
    """without --json it is a page on stderr, of 80 columns, and stdout is the command's"""
    with Scene() as scene:
        done = subprocess.run([VGPU, "doctor", "--", PYTHON, "-c", WORK + "print(work())"],
                              env=scene.environment("--memory", "2g"), capture_output=True,
                              text=True, timeout=60, check=False)
        equal((done.returncode, done.stdout), (0, "0\n"))
        page = done.stderr.splitlines()
        true(page[0].startswith("ok      verdict     limits hold in it: yes"), done.stderr)
        equal(page[-1], "0 problems, 0 notes")
        true(all(len(line) <= 80 or " " not in line[20:] for line in page), done.stderr)
        true("\033" not in done.stderr, done.stderr)


@test
def unlimited():
    """without a limit it says that none is set, and with --verdict-status that is 1"""
    with Scene() as scene:
        report = scene.python("work()", options=(), verdict="unlimited")
        one(report, "limits", "note", "no limit is set")
        scene.python("work()", options=(), doctor=("--verdict-status",), status=1)
        scene.python("work(); sys.exit(9)", doctor=("--verdict-status",), status=0, verdict="hold")
        report = scene.python("work()", options=("--cores", "40"), verdict="hold")
        equal(report["processes"][0]["facts"]["device.0.cores"], "40")


@test
def unused():
    """a command that uses no GPU leaves the question open, and with --verdict-status that is 1; one
    that loads the driver and calls nothing, too"""
    with Scene() as scene:
        report = scene.doctor("sh", "-c", "exit 3", status=3, verdict="unused")
        equal((report["exit_status"], report["processes"]), (3, []))
        one(report, "verdict", "note", "it used no GPU")
        report = scene.doctor("true", doctor=("--verdict-status",), status=1, verdict="unused")
        equal((report["exit_status"], report["problems"]), (0, 0))
        report = scene.python("ctypes.CDLL('libcuda.so.1'); time.sleep(0.3)", verdict="unused")
        one(report, "process", "ok", "called nothing")
        report = scene.python("ctypes.CDLL('libcuda.so.1').cuInit(0)", verdict="unused")
        one(report, "process", "ok", "used no device")
        report = scene.doctor(os.path.join(BUILD, "examples/vgpu-example-smi"), verdict="unused")
        one(report, "process", "ok", "NVML alone")


@test
def linked():
    """a program that is linked with the driver comes by its symbols"""
    with Scene() as scene:
        program = compiled(scene.directory, LINKED, f"-L{SIM}", "-l:libcuda.so.1",
                           "-Wl,--allow-shlib-undefined")
        report = scene.doctor(program, verdict="hold")
        equal(report["processes"][0]["facts"]["door.used"], "ioctl symbols")
        one(report, "process", "ok", "ioctl symbols")


@test
def pipeline():
    """a shell's pipeline: each process of it is looked at, and the status is the shell's"""
    with Scene() as scene, tempfile.NamedTemporaryFile("w", suffix=".py") as file:
        file.write(SEEN + "; sys.stdin.read()")
        file.flush()
        report = scene.doctor("sh", "-c", f"true | {PYTHON} {file.name} | cat; exit 4", status=4,
                              verdict="hold")
        equal((report["stdout"], len(report["processes"])), ("0\n", 1))
        report = scene.doctor(
            "sh", "-c", f"true | {PYTHON} {file.name} | LD_PRELOAD={SIM}/libvgpu-sim-rm.so "
            f"{PYTHON} {file.name}", verdict="broken")
        equal([process["library"] for process in report["processes"]].count(False), 1)
        one(report, "process", "problem", "LD_PRELOAD is not in its environment")


@test
def workers():
    """forked workers are one line; the parent's use of the GPU counts for none of them"""
    with Scene() as scene:
        report = scene.python("""
pids = []
for _ in range(8):
    pid = os.fork()
    if not pid:
        work()
        os._exit(0)
    pids.append(pid)
for pid in pids:
    os.waitpid(pid, 0)
""", options=("--memory", "16g"), verdict="hold")
        reported = [process for process in report["processes"] if process["facts"]]
        equal(len(reported), 8, "workers with a report")
        # Who came and went between two looks is known by its short name alone.
        told = lines(report, "process", "ok")
        true(1 <= len(told) <= 2 and "(processes " in told[0]["text"] + told[-1]["text"], told)


@test
def passed():
    """a compute limit that is set and not in force is not kept: by the policy, or lifted by HAMi's monitor"""
    with Scene() as scene:
        options = ("--cores", "40", "--memory", "2g")
        report = scene.python("work()", options=options, verdict="hold")
        equal(lines(report, "policy", "problem"), [])
        report = scene.python("work()", options=options, verdict="broken",
                              before=("env", "GPU_CORE_UTILIZATION_POLICY=disable"))
        one(report, "policy", "problem", "GPU_CORE_UTILIZATION_POLICY=disable")
        with open(scene.region, "r+b") as file:
            file.seek(2008900)  # utilization_switch
            file.write(bytes(4))
        report = scene.python("work()", options=options, verdict="broken")
        line = one(report, "policy", "problem", "HAMi's monitor has lifted it")
        true("force" in line["remedy"], line)
        scene.python("work()", options=options, verdict="hold",
                     before=("env", "GPU_CORE_UTILIZATION_POLICY=force"))
        page = tool(VGPU, "doctor", environment=scene.environment(*options)).stdout
        true("lifted them" in page and "GPU time 40 %, not in force" in page, page)


@test
def dropped():
    """env -i and an exec that drops LD_PRELOAD lose the library, and the line says why and what to do"""
    with Scene() as scene:
        keep = [f"LD_LIBRARY_PATH={SIM}", f"VGPU_SIM=1xh200,machine={scene.directory}/machine"]
        report = scene.doctor("env", "-i", *keep, PYTHON, "-c", SEEN, verdict="broken")
        equal(report["stdout"], "0\n")
        line = one(report, "process", "problem", "without the library", "env -i")
        true("/etc/ld.so.preload" in line["remedy"], line)
        report = scene.python(
            "work(); del os.environ['LD_PRELOAD']; os.execv(sys.executable, ['inner', '-c', "
            "sys.argv[1]])", SEEN, verdict="broken")
        one(report, "process", "problem", "inner -c")
        equal(sorted(process["library"] for process in report["processes"]), [False, True])


@test
def never_there():
    """where nothing preloads the library here, vgpu run is the remedy"""
    with Scene() as scene:
        variables = scene.environment()
        variables["LD_PRELOAD"] = ""
        done = subprocess.run([VGPU, "doctor", "--", PYTHON, "-c", SEEN], env=variables,
                              capture_output=True, text=True, timeout=60, check=False)
        equal((done.returncode, done.stdout), (0, "0\n"))
        true("limits hold in it: no" in done.stderr and "use vgpu run" in done.stderr, done.stderr)


@test
def loader():
    """a library that the loader does not load is told from one that is not named"""
    with Scene() as scene:
        lost = f"{scene.directory}/libvgpu.so"
        report = scene.doctor(
            "sh", "-c", f"LD_PRELOAD={lost} {PYTHON} -c '{SEEN}' 2>/dev/null", verdict="broken")
        line = one(report, "process", "problem", "the loader did not load it")
        true("stderr" in line["remedy"], line)


DEVICE_NODE = """
mount -t tmpfs none /dev && : > /dev/nvidiactl && exec "$@"
"""


def need_mounts():
    done = subprocess.run(["unshare", "-rm", "sh", "-c", "mount -t tmpfs none /dev"],
                          capture_output=True, check=False)
    if done.returncode:
        raise Skip("needs new mount namespaces")


def opens_device(arguments, *words):
    need_mounts()
    with Scene() as scene:
        program = compiled(scene.directory, OPENER, *arguments)
        report = scene.doctor("unshare", "-rm", "sh", "-c", DEVICE_NODE, "sh", program,
                              verdict="broken")
        found = [line for line in report["checks"] if line["status"] == "problem" and
                 all(word in line["text"] for word in words)]
        equal(len(found), 1, f"lines with {words} in {report['checks']}")


@test
def static():
    """a static program with a device of the GPU's open is found, and that it is static"""
    opens_device(["-static"], "a device is open", "statically linked")


@test
def bypass():
    """a program under the library that uses the GPU by no call of CUDA's is found"""
    opens_device([], "no call of it came to the library")


@test
def killed():
    """a program that is killed has left its report, and we end by its signal"""
    with Scene() as scene:
        report = scene.python("work(); os.kill(os.getpid(), signal.SIGKILL)", status=-9,
                              verdict="hold")
        equal(report["signal"], 9)
        equal(report["processes"][0]["facts"]["ledger.used"], "rm")
        report = scene.python("""
if not os.fork():
    work()
    os.kill(os.getpid(), signal.SIGKILL)
os.wait()
""", verdict="hold")
    nothing_left()


@test
def not_run():
    """a command that is not found is 127, one that cannot be run 126, each with one line and no page"""
    with Scene() as scene:
        for command, status in (("no-such-command", 127), ("/etc/passwd", 126)):
            done = tool(VGPU, "doctor", "--", command, environment=scene.environment())
            equal((done.returncode, done.stdout, done.stderr.count("\n")), (status, "", 1), command)
            true(command in done.stderr, done.stderr)
        equal(tool(VGPU, "doctor", "--", "sh", "-c", "exit 127").returncode, 127, "its own 127")
        done = tool(VGPU, "doctor", "--output", "/no/such/directory/page", "--", "touch",
                    f"{scene.directory}/ran")
        equal((done.returncode, done.stderr.count("\n")), (1, 1), done.stderr)
        true(not os.path.exists(f"{scene.directory}/ran"), "it was run")
    nothing_left()


def start(scene, *command):
    page = f"{scene.directory}/page"
    process = subprocess.Popen([VGPU, "doctor", "--json", "--output", page, "--", *command],
                               env=scene.environment("--memory", "2g"), stdout=subprocess.PIPE,
                               stderr=subprocess.PIPE, text=True, start_new_session=True)
    equal(process.stdout.readline(), "ready\n")
    return process, page


@test
def interrupted():
    """SIGINT to the group reaches the command, and the page is written all the same"""
    with Scene() as scene:
        process, page = start(scene, PYTHON, "-c", WORK + """
work()
signal.signal(signal.SIGINT, signal.default_int_handler)
try:
    print("ready", flush=True)
    time.sleep(60)
except KeyboardInterrupt:
    os._exit(5)
""")
        os.killpg(process.pid, signal.SIGINT)
        _, error = process.communicate(timeout=30)
        equal((process.returncode, error), (5, ""))
        with open(page, encoding="utf-8") as file:
            equal(json.load(file)["verdict"], "hold")
        process, page = start(scene, "sh", "-c", "echo ready; exec sleep 60")
        process.send_signal(signal.SIGTERM)
        process.communicate(timeout=30)
        equal(process.returncode, -signal.SIGTERM)
        with open(page, encoding="utf-8") as file:
            equal(json.load(file)["signal"], int(signal.SIGTERM))


@test
def daemon():
    """a command that leaves a daemon: what that did until then counts, and it is said to go on"""
    with Scene() as scene:
        report = scene.python("""
ready, write = os.pipe()
if not os.fork():
    os.setsid()
    if os.fork():
        os._exit(0)
    work()
    os.write(write, str(os.getpid()).encode())
    os.closerange(0, 1024)
    time.sleep(600)
    os._exit(0)
os.wait()
print(os.read(ready, 32).decode())
""", verdict="hold")
        os.kill(int(report["stdout"]), signal.SIGKILL)
        equal((report["processes_left"], report["exit_status"]), (1, 0))
        true("still run" in lines(report, "verdict", "ok")[0]["text"], report["checks"])


@test
def closes_all():
    """a program that closes all descriptors, before or after, leaves its report"""
    with Scene() as scene:
        report = scene.python("""
os.closerange(3, 1024)
work()
os.closerange(0, 1024)
os._exit(6)
""", status=6, verdict="hold")
        equal(report["processes"][0]["facts"]["ledger.used"], "rm")


@test
def no_room():
    """a program that may write no file ends as it does without a doctor"""
    with Scene() as scene:
        report = scene.python("""
import resource
work()
signal.signal(signal.SIGXFSZ, signal.SIG_DFL)
resource.setrlimit(resource.RLIMIT_FSIZE, (0, 0))
for _ in range(3):
    time.sleep(0.12)
    assert ctypes.CDLL("libcuda.so.1").cuDeviceGetCount(ctypes.byref(ctypes.c_int())) == 0
""")
        equal((report["exit_status"], report["problems"]), (0, 0))


@test
def another_user():
    """a process that gave its rights up leaves its report where root looks"""
    python = need_nobody(PYTHON, "/usr/bin/python3")
    with Scene() as scene:
        report = scene.doctor(python, "-c", WORK + f"os.setuid({NOBODY}); work()", verdict="hold")
        true(report["processes"][0]["facts"], report["processes"])


@test
def strangers_reports():
    """what lies among the reports and is none is passed over"""
    with Scene() as scene:
        report = scene.python("""
directory = os.environ["VGPU_REPORT_DIR"]
work()
os.symlink("/etc/passwd", directory + "/1-1")
os.mkfifo(directory + "/2-2")
os.mkdir(directory + "/3-3")
for number, text in enumerate((b"", b"x" * 200000, b"report 1\\n", b"report 1\\nwritten 1\\n",
                               b"report 1\\nprocess.calls cuda\\nwritten 99\\n")):
    with open(f"{directory}/{number + 4}-1", "wb") as file:
        file.write(text)
""", verdict="hold")
        equal(report["problems"], 0, report["checks"])


@test
def swept():
    """what a killed doctor left is removed by the next"""
    left = tempfile.mkdtemp(prefix="vgpu-doctor-", dir="/tmp")
    os.rename(left, left := "/tmp/vgpu-doctor-" + left[-6:].replace("_", "x"))
    with open(left + "/1-1", "w", encoding="ascii"):
        pass
    equal(tool(VGPU, "doctor", "--", "true").returncode, 0)
    try:
        true(not os.path.exists(left), f"{left} is left")
    finally:
        shutil.rmtree(left, ignore_errors=True)


@test
def untouched():
    """the command starts with the descriptors and the signal state that we were given"""
    show = "ls /proc/self/fd; grep -E '^(SigBlk|SigIgn)' /proc/self/status"
    plain = tool("sh", "-c", show)
    under = tool(VGPU, "doctor", "--output", os.devnull, "--", "sh", "-c", show)
    equal(under.stdout, plain.stdout)


tap.main()
