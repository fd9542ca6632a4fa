# SPDX-License-Identifier: Apache-2.0
"""doctor BUILD: `vgpu doctor` in places where something is wrong, and what a program's log says of the
channel gate."""
import ctypes
import json
import os
import re
import shutil
import signal
import subprocess
import tempfile
import time

import tap
from tap import Skip, equal, test, true

from mine import BUILD, MINE, VGPU
from place import Place, read, tool

LOAD = os.path.join(BUILD, "vgpu-load")
LIBRARY = os.path.join(BUILD, "libvgpu.so")
DOORS = ["exported symbols", "dlsym", "dlvsym", "cuGetProcAddress", "ioctl"]
STATUSES = {"ok", "note", "problem"}
NOT_STOPPED = "one kernel that never ends is not stopped"


class Answer:
    """What doctor says in JSON, and the exit status that goes with it."""

    def __init__(self, done):
        self.stderr = done.stderr
        self.report = json.loads(done.stdout)
        self.checks, self.facts = self.report["checks"], self.report["facts"]
        equal(done.returncode, 1 if self.report["problems"] else 0, "exit status")

    def find(self, check, device=None):
        return [line for line in self.checks if line["check"] == check and line["device"] == device]

    def one(self, status, check, *words, device=None):
        """The one line of that name."""
        found = self.find(check, device)
        equal([line["status"] for line in found], [status], f"lines {check} in {self.checks}")
        for word in words:
            true(word in found[0]["text"], f"no {word!r} in {found[0]}")
        return found[0]

    def count(self, status):
        return sum(line["status"] == status for line in self.checks)


class Scene(Place):
    """A machine, a region and a directory of boards of the test's own."""

    def __init__(self):
        super().__init__()
        self.boards = self.directory + "/boards"
        os.mkdir(self.boards)
        os.chmod(self.boards, 0o1777)

    def run(self, *command, sim="1xh200", options=(), region=None, **environment):
        return tool(VGPU, "run", "--region", region or self.region,
                    f"--sim={sim},machine={self.directory}/machine", *options, "--", *command,
                    environment={"VGPU_BOARD_DIR": self.boards, **environment})

    def doctor(self, *arguments, **more):
        return Answer(self.run(VGPU, "doctor", "--json", *arguments, **more))


def need_no_driver():
    try:
        ctypes.CDLL("libcuda.so.1")
    except OSError:
        return
    raise Skip("a driver is installed here")


@test
def healthy():
    """where all is well each line is ok: doors, ledger, region, gate, board"""
    with Scene() as scene:
        answer = scene.doctor(options=("--cores", "50", "--soft-cores", "80", "--memory", "2g"))
        equal((answer.count("problem"), answer.count("note"), answer.stderr), (0, 0, ""),
              f"problems and notes in {answer.checks}")
        equal([line["text"] for line in answer.find("door")], DOORS, "doors")
        answer.one("ok", "driver", "580.159.04, CUDA 13.0")
        answer.one("ok", "device", "NVIDIA H200, GPU-", device=0)
        answer.one("ok", "ledger", "below the API", "as the driver (NVML) says")
        answer.one("ok", "region", scene.region, "everybody may write it")
        answer.one("ok", "gate", "works", device=0)
        answer.one("ok", "limits", "memory 2048 MiB", "GPU time 50 %", "80 %", device=0)
        answer.one("ok", "launch", device=0)
        answer.one("ok", "board", scene.boards)
        true(int(answer.facts["ledger.bytes"]) > 100 << 20, "a context's memory")
        equal(answer.facts["ledger.bytes"], answer.facts["ledger.driver_bytes"])


@test
def fields():
    """--json has the documented fields, and says what the lines say"""
    with Scene() as scene:
        answer = scene.doctor(sim="1xh200,no-gsp")
        equal(set(answer.report), {"doctor", "problems", "notes", "checks", "facts"}, "members")
        equal((answer.report["doctor"], answer.facts["report"]), (1, "1"), "versions")
        equal((answer.report["problems"], answer.report["notes"]),
              (answer.count("problem"), answer.count("note")), "sums")
        for line in answer.checks:
            equal(set(line), {"check", "device", "status", "text", "remedy"}, "a check's members")
            true(line["status"] in STATUSES, line)
            true(line["status"] == "ok" or line["remedy"] or line["check"] == "log", line)
        for name, value in answer.facts.items():
            true(isinstance(value, str) and re.fullmatch(r"[a-z_]+(\.\w+)*", name), (name, value))
        text = scene.run(VGPU, "doctor", sim="1xh200,no-gsp").stdout
        true("\033" not in text, "colours without a terminal")
        lines = [line for line in text.splitlines() if not line.startswith(" ")]
        equal(sorted(line.split()[0] for line in lines[:-1]),  # the doors share one
              sorted([line["status"] for line in answer.checks if line["check"] != "door"] + ["ok"]),
              "the statuses of the lines")
        true(all(len(line) <= 80 or " " not in line[20:] for line in text.splitlines()), text)
        equal(lines[-1], "0 problems, 1 note")
        equal(text.count("remedy: "), 1, "remedies")


@test
def variables():
    """of the environment ours is shown; what is passed over or no name of ours is a note, and no other value is said"""
    with Scene() as scene:
        answer = scene.doctor(options=("--memory", "2g"), CUDA_OVERSUBSCRIBE="1", ACTIVE_OOM_KILLER="1",
                              VGPU_LEGDER="hush2", API_TOKEN="hush3", VGPU_POD_NAME="trainer", VGPU_REGION_PATH="/x",
                              CUDA_MEM_RATIO_1="1.5", CUDA_REDIRECT="/x", RECORD_KERNEL_INTERVAL="7", CUDA_VISIBLE_DEVICES="0",
                              NVIDIA_VISIBLE_DEVICES="all", MANAGER_VISIBLE_DEVICES=",".join(["GPU-2"] * 40))
        ours, ignored, unknown = answer.find("environ")
        true("CUDA_DEVICE_MEMORY_LIMIT=2g" in ours["text"], ours)
        for word in ("CUDA_OVERSUBSCRIBE=1", "CUDA_MEM_RATIO_1=1.5", "RECORD_KERNEL_INTERVAL=7", "CUDA_VISIBLE_DEVICES=0", "NVIDIA_VISIBLE_DEVICES=all"):
            true(word in ours["text"].split(), f"no {word} in {ours}")
        true(re.search(r"MANAGER_VISIBLE_DEVICES=\S+GPU-2\S*\.\.\.( |$)", ours["text"]), ours)
        equal((ignored["status"], unknown["status"]), ("note", "note"))
        true(ignored["text"].endswith(": ACTIVE_OOM_KILLER CUDA_REDIRECT") or
             ignored["text"].endswith(": CUDA_REDIRECT ACTIVE_OOM_KILLER"), ignored)
        true(unknown["text"].endswith(": VGPU_LEGDER"), unknown)
        true("hush" not in json.dumps(answer.report), "a value that is not ours")


@test
def slots():
    """the region's mode, owner and slots are told, those of the dead too"""
    with Scene() as scene:
        with scene.program() as program:
            program.got(1)
            line = scene.doctor().one("ok", "slots")
            true(re.match(r"[23] of 1024 in use, .*; locks work", line["text"]), line)
        answer = scene.doctor()
        answer.one("ok", "region", "mode 0666", f"user {os.getuid()} and root")
        answer.one("ok", "slots", "1 of 1024 in use, 1 of them by processes that ended")


@test
def many_devices():
    """eight devices are a page: what is alike is said once"""
    with Scene() as scene:
        page = scene.run(VGPU, "doctor", sim="8xh200", options=("--memory", "2g")).stdout
        true("\nok      gate 0-7 " in page and "\nok      limits 0-7 " in page, page)
        true(len(page.splitlines()) <= 60, page)
        equal(page.count("NVIDIA H200, GPU-"), 8)


@test
def no_gate():
    """where the channel gate does not work, the lines say why, what is lost and what to do"""
    for word, why, remedy in (("no-gsp", "as without GSP firmware", "GSP firmware"),
                              ("driver=470", "as without GSP firmware", "GSP firmware"),
                              ("filter", "does not tell on which GPU", "sandbox"),
                              ("filter=EPERM", "does not tell on which GPU", "sandbox"),
                              ("mps", "a client of MPS has none", "MPS")):
        with Scene() as scene:
            answer = scene.doctor(sim=f"1xh200,{word}")
            line = answer.one("note", "gate", "does not work", why, NOT_STOPPED, device=0)
            true(remedy in line["remedy"], line)
            equal(answer.count("problem"), 0, f"problems in {answer.checks}")


@test
def filtered():
    """a sandbox that refuses calls leaves the API's ledger, and the line says why"""
    for word, why in (("filter", "does not tell on which GPU memory lies"),
                      ("sandbox=EPERM", "do not pass ioctl"), ("no-rm", "do not pass ioctl")):
        with Scene() as scene:
            scene.doctor(sim=f"1xh200,{word}").one("note", "ledger", "calls of the API", why)


@test
def setting():
    """VGPU_GATE is shown: launch loses something, channel is a problem where it does not work"""
    with Scene() as scene:
        answer = scene.doctor(VGPU_GATE="launch")
        answer.one("note", "gate", "VGPU_GATE=launch", NOT_STOPPED, device=0)
        scene.doctor(VGPU_GATE="channel").one("ok", "gate", "VGPU_GATE=channel", device=0)
        answer = scene.doctor(sim="1xh200,no-gsp", VGPU_GATE="channel")
        answer.one("problem", "gate", "VGPU_GATE=channel", device=0)
        answer = scene.doctor(VGPU_GATE="both")
        answer.one("note", "log", 'VGPU_GATE="both"')


@test
def devices():
    """all devices are tried, or the one that is asked for"""
    with Scene() as scene:
        answer = scene.doctor(sim="2xh200")
        for device in (0, 1):
            answer.one("ok", "launch", device=device)
            answer.one("ok", "gate", device=device)
        true(answer.facts["cuda.0.uuid"] != answer.facts["cuda.1.uuid"], "two UUIDs")
        answer = scene.doctor("--device", "1", sim="2xh200")
        answer.one("ok", "launch", device=1)
        equal(answer.find("launch", 0), [], "lines of the other")
        scene.doctor("--device", "2", sim="2xh200").one("problem", "device", "CUDA sees 2", device=2)


@test
def instance():
    """a MIG compute instance is named by its own UUID, and its limits and its account are found"""
    with Scene() as scene:
        answer = scene.doctor(sim="2xa100,mig=1g.10gb+2g.20gb", options=("--memory", "2g,3g"))
        answer.one("ok", "device", "MIG 1g.10gb, MIG-", device=0)
        answer.one("ok", "limits", "memory 2048 MiB", device=0)
        answer.one("ok", "ledger", "as the driver (NVML) says")
        equal(answer.facts["device.0.uuid"], answer.facts["cuda.0.uuid"], "the library's UUID")
        true("device.1.uuid" not in answer.facts, "one device is met")


@test
def no_driver():
    """without a driver that is the problem, and the rest is said all the same"""
    need_no_driver()
    with Scene() as scene:
        for preload in ({"LD_PRELOAD": LIBRARY}, {}):
            answer = Answer(tool(VGPU, "doctor", "--json", environment={
                "CUDA_DEVICE_MEMORY_SHARED_CACHE": scene.region, "VGPU_BOARD_DIR": scene.boards,
                **preload}))
            answer.one("problem", "driver", "libcuda.so.1")
            answer.one("ok", "region", scene.region)
            answer.one("ok" if preload else "note", "preload")
            equal(answer.count("problem"), 1, f"problems in {answer.checks}")


@test
def no_device():
    """a driver that sees no device, or fails, is a problem"""
    with Scene() as scene:
        scene.doctor(CUDA_VISIBLE_DEVICES="-1").one("problem", "driver", "CUDA_ERROR_NO_DEVICE")
        scene.doctor(sim="1xh200,fail=cuInit:0:999").one("problem", "driver", "CUDA_ERROR_UNKNOWN")
        answer = scene.doctor(sim="1xh200,fail=cuLaunchKernel:0:719")
        answer.one("problem", "launch", "CUDA_ERROR_LAUNCH_FAILED", device=0)


@test
def no_region():
    """a region that cannot be used is a problem, with the reason"""
    with Scene() as scene:
        answer = Answer(scene.run("env", "CUDA_DEVICE_MEMORY_SHARED_CACHE=/proc/vgpu/region", VGPU, "doctor", "--json"))
        answer.one("problem", "region", "/proc/vgpu/region", "cannot be used")
        strange = scene.directory + "/strange"
        with open(strange, "w", encoding="ascii") as file:
            file.write("no region\n" * 1000)
        answer = scene.doctor(region=strange, options=("--memory", "1g"))
        answer.one("problem", "region", strange)
        answer.one("problem", "context", "CUDA_ERROR_OUT_OF_MEMORY", device=0)


@test
def bad_limit():
    """a limit that is not understood is a problem, and the log's line names it"""
    with Scene() as scene:
        answer = scene.doctor(CUDA_DEVICE_MEMORY_LIMIT="much")
        answer.one("problem", "limits", "looks full", device=0)
        true([line for line in answer.find("log") if line["status"] == "problem" and
              'CUDA_DEVICE_MEMORY_LIMIT="much"' in line["text"]], answer.checks)
        for variables in ({"LOGGER_LEVEL": "5"}, {"LOGGER_LEVEL": "0"}, {"LIBCUDA_LOG_LEVEL": "4"},
                          {"LD_PRELOAD": os.path.join(BUILD, "libvgpu-control.so")}):
            answer = scene.doctor(CUDA_DEVICE_MEMORY_LIMIT="much", **variables)
            logged = answer.find("log")
            equal([line["status"] for line in logged], ["problem", "note"], f"{variables}: {logged}")
            true('CUDA_DEVICE_MEMORY_LIMIT="much"' in logged[0]["text"], f"{variables}: {logged}")
        answer = scene.doctor(options=("--memory", "64m"))
        answer.one("problem", "context", "CUDA_ERROR_OUT_OF_MEMORY", device=0)
        answer.one("note", "gate", "not tried", device=0)


@test
def no_board():
    """without a directory of boards it says what is lost; one that was named and is not there is a problem"""
    with Scene() as scene:
        absent = scene.directory + "/absent"
        answer = scene.doctor(VGPU_BOARD_DIR=absent)
        line = answer.one("problem", "board", absent, "soft limits stay shut", "priorities")
        true("1777" in line["remedy"], line)
        true(not os.path.exists(absent), "it was made")
        with open(absent, "w", encoding="ascii"):
            pass
        scene.doctor(VGPU_BOARD_DIR=absent).one("problem", "board", "is no directory")
        scene.doctor(VGPU_BOARD_DIR="relative").one("problem", "board", "not understood")
        if not os.path.exists("/tmp/vgpulock"):  # vgpu run names a directory, env takes the name away
            done = scene.run("env", "-u", "VGPU_BOARD_DIR", VGPU, "doctor", "--json")
            Answer(done).one("note", "board", "/tmp/vgpulock")
        os.chmod(scene.boards, 0o777)
        scene.doctor().one("note", "board", "lets every user delete")


@test
def hostile_board():
    """what is no board is a problem of its device, named, and left as it is"""
    with Scene() as scene:
        name = f"{scene.boards}/vgpu-board-" + scene.doctor().facts["cuda.0.uuid"]
        for make, remove in ((lambda: os.symlink("/etc/passwd", name), os.unlink),
                             (lambda: os.mkfifo(name), os.unlink),
                             (lambda: os.mkdir(name), os.rmdir)):
            make()
            before = os.lstat(name)
            scene.doctor().one("problem", "board", name, "soft limits stay shut", device=0)
            equal(os.lstat(name).st_ino, before.st_ino, "the file")
            remove(name)
        with open(name, "wb") as file:
            file.write(b"x" * 16384)
        scene.doctor().one("problem", "board", name, "no board of this version", device=0)
        equal(os.path.getsize(name), 16384, "its size")


@test
def tenants():
    """a neighbour at work is on the board"""
    with Scene() as scene:
        other = subprocess.Popen(
            [VGPU, "run", f"--sim=1xh200,machine={scene.directory}/machine", "--cores", "30", "--",
             LOAD, "--shape", "one-block", "--seconds", "60"], stdout=subprocess.DEVNULL,
            stderr=subprocess.DEVNULL, env={**MINE, "VGPU_BOARD_DIR": scene.boards})
        try:
            until = time.monotonic() + 60
            while True:
                text = scene.doctor().find("board", 0)[0]["text"]
                if "1 tenant, 1 at work" in text or time.monotonic() > until:
                    break
            true("1 tenant, 1 at work" in text and "nothing of this container" in text, text)
        finally:
            other.terminate()
            other.wait()


@test
def turns():
    """of containers that take turns with the card's memory it says how many, and that one has the turn"""
    with Scene() as scene:
        others = [subprocess.Popen(
            [VGPU, "run", f"--sim=1xh200,machine={scene.directory}/machine", "--memory", "2GiB", "--oversubscribe=2",
             "--", f"{os.path.dirname(VGPU)}/test/driver/turns", "1024", "60"], stdout=subprocess.DEVNULL,
            stderr=subprocess.DEVNULL, env={**MINE, "VGPU_BOARD_DIR": scene.boards}) for _ in range(2)]
        try:
            until, wanted = time.monotonic() + 60, "2 want more of the card's memory than its share each, and take turns"
            while True:
                texts = [line["text"] for line in scene.doctor().find("board", 0)]
                if any(wanted in text and "another container has the turn" in text for text in texts) or \
                        time.monotonic() > until:
                    break
            true(any(wanted in text for text in texts), texts)
        finally:
            for other in others:
                other.terminate()
                other.wait()


@test
def paused():
    """in a paused container it ends, says so, and launches nothing"""
    with Scene() as scene, scene.program("--cores", "50") as program:
        program.got(1)
        equal(tool(VGPU, "pause", "--region", scene.region).returncode, 0, "pause")
        answer = scene.doctor()
        line = answer.one("note", "pause", "paused")
        equal(line["remedy"], "vgpu resume", "remedy")
        equal((answer.find("launch", 0), answer.facts["probe.ended"]), ([], "well"), "launch")
        answer.one("ok", "gate", "works", device=0)
        equal(tool(VGPU, "resume", "--region", scene.region).returncode, 0, "resume")
        answer = scene.doctor()
        answer.one("ok", "launch", device=0)
        equal(answer.find("pause"), [], "lines of the pause")


def small_program(pid):
    """The child of the doctor below this process, once it is there."""
    try:
        if b"--inside" in read(f"/proc/{pid}/cmdline", 0, 4096):
            return pid
        children = read(f"/proc/{pid}/task/{pid}/children", 0, 4096).split()
    except OSError:  # gone meanwhile
        return None
    return next(filter(None, map(small_program, map(int, children))), None)


@test
def killed():
    """where the small program is killed, that is the problem, with its step, and the rest is said"""
    with Scene() as scene:
        started = subprocess.Popen(
            [VGPU, "run", f"--sim=1xh200,machine={scene.directory}/machine", "--", VGPU, "doctor",
             "--json"], stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True,
            env={**MINE, "VGPU_BOARD_DIR": scene.boards})
        while (pid := small_program(started.pid)) is None:
            pass
        os.kill(pid, signal.SIGKILL)
        out, error = started.communicate(timeout=60)
        answer = Answer(subprocess.CompletedProcess([], started.returncode, out, error))
        answer.one("problem", "program", "by signal 9", "its step was")


@test
def another_library():
    """another libvgpu.so in the library's place is a problem"""
    with tempfile.TemporaryDirectory() as directory:
        stranger = directory + "/libvgpu.so"
        shutil.copy(os.path.join(BUILD, "test/process/libtest-empty.so"), stranger)
        answer = Answer(tool(VGPU, "doctor", "--json", environment={"LD_PRELOAD": stranger,
                             "CUDA_DEVICE_MEMORY_SHARED_CACHE": directory + "/region"}))
        answer.one("problem", "preload", stranger)
        answer.one("ok", "library", LIBRARY)


@test
def alone():
    """a vgpu without its library says that, and nothing of what it did not try"""
    with tempfile.TemporaryDirectory() as directory:
        shutil.copy(VGPU, directory)
        answer = Answer(tool(directory + "/vgpu", "doctor", "--json"))
        answer.one("problem", "library", "neither beside this program")
        equal((answer.find("driver"), answer.find("region")), ([], []), "further lines")


@test
def place():
    """a server of MPS is noted"""
    with Scene() as scene:
        equal(scene.doctor(CUDA_MPS_PIPE_DIRECTORY=scene.directory).find("mps"), [], "without one")
        with open(scene.directory + "/control", "w", encoding="ascii"):
            pass
        scene.doctor(CUDA_MPS_PIPE_DIRECTORY=scene.directory).one("note", "mps", "clients")


@test
def usage():
    """arguments that are not understood end it with one line and status 2"""
    for arguments in (["--device"], ["--device", "x"], ["--device=-1"], ["--all"], ["--json=1"],
                      ["ls"], ["--"], ["--output", "x"], ["--verdict-status"],
                      ["--device", "0", "--", "true"]):
        done = tool(VGPU, "doctor", *arguments)
        equal((done.returncode, done.stdout, done.stderr.count("\n")), (2, "", 1), arguments)
    done = tool(VGPU, "doctor", "--help")
    equal((done.returncode, done.stderr), (0, ""), "help")
    true(done.stdout.startswith("usage: vgpu doctor"), done.stdout)


def gate_lines(scene, sim, shape, **environment):
    calibration = scene.directory + "/calibration"
    with open(calibration, "w", encoding="ascii") as file:  # the simulator's: a step a nanosecond
        json.dump({"calibrated_on": "NVIDIA H200",
                   **{form: {"steps_per_us": 1000, "overhead_us": 0} for form in
                      ("full", "one-block", "graph", "cooperative", "persistent")}}, file)
    done = scene.run(LOAD, "--calibration", calibration, "--shape", shape, "--seconds", "1.5",
                     sim=sim, options=("--cores", "30"), **environment)
    equal(done.returncode, 0, done.stderr)
    return [line for line in done.stderr.splitlines() if "the channel gate" in line]


@test
def log():
    """a program whose kernels run for long has one line of the channel gate in its log: an info, or a warning with what is lost"""
    with Scene() as scene:
        lines = gate_lines(scene, "1xh200", "persistent", LIBCUDA_LOG_LEVEL="3")
        equal(len(lines), 1, f"lines {lines}")
        true("Info" in lines[0] and "works" in lines[0], lines[0])
    with Scene() as scene:
        equal(gate_lines(scene, "1xh200", "persistent"), [], "at the default level")
    for word in ("no-gsp", "mps", "filter"):
        with Scene() as scene:
            lines = gate_lines(scene, f"1xh200,{word}", "persistent")
            equal(len(lines), 1, f"{word}: lines {lines}")
            true("Warn" in lines[0] and "does not work" in lines[0] and NOT_STOPPED in
                 lines[0].replace("but ", ""), lines[0])


@test
def silence():
    """where nothing runs for long, or VGPU_GATE is launch, the gate is not needed and nothing is said"""
    for shape, environment in (("one-block", {}), ("persistent", {"VGPU_GATE": "launch"})):
        with Scene() as scene:
            equal(gate_lines(scene, "1xh200,no-gsp", shape, **environment), [], shape)


tap.main()
