# SPDX-License-Identifier: Apache-2.0
"""ps BUILD: what `vgpu ps` finds, shows and leaves alone."""
import contextlib
import fcntl
import json
import os
import pty
import random
import shutil
import signal
import struct
import subprocess
import tempfile
import termios
import threading
import time

import tap
from tap import Skip, equal, test, true

from mine import BUILD, MINE, VGPU
from place import DEVICES, FILE_BYTES, NOBODY, OFFSET, Place, child_of, need_nobody, read, refused_line, tool

MIB = 1 << 20
SLOTS, SLOT_BYTES = OFFSET + 8448, 8320
F_OFD_SETLK = 37
POD = "12345678-1234-4abc-8def-1234567890ab"


def ps(*arguments, status=0, **more):
    """What it says as JSON."""
    done = tool(VGPU, "ps", "--json", *arguments, **more)
    equal(done.returncode, status, f"status, {done.stderr!r}")
    said = json.loads(done.stdout)
    equal(said["ps"], 1)
    return said


def one(*arguments, **more):
    """The one container that it finds."""
    containers = ps(*arguments, **more)["containers"]
    equal(len(containers), 1, f"containers of {containers}")
    return containers[0]


def write(path, offset, data):
    with open(path, "r+b") as file:
        file.seek(offset)
        file.write(data)


def kill(program):
    os.kill(child_of(program), signal.SIGKILL)
    program.process.wait(timeout=20)


@test
def shown():
    """a container is shown with its limits, and its processes with their memory by kind, ledger and command line"""
    with Place() as place, place.program("--memory", "2g", "--priority", "0") as program:
        program.got(300)
        container = one("--region", place.region)
        device, process = container["devices"][0], container["processes"][0]
        pid = child_of(program)
        equal((process["pid"], process["container_pid"], process["ledger"]), (pid, pid, "rm"))
        true("import ctypes, sys" in process["command"], process["command"])
        memory = process["devices"][0]["memory"]
        true(memory["buffer"] >= 300 * MIB and memory["context"] > 0, memory)
        equal(sum(memory[kind] for kind in ("context", "module", "buffer", "managed", "unexplained")),
              memory["bytes"], "the kinds' sum")
        equal((device["memory"]["bytes"], device["memory"]["limit"]), (memory["bytes"], 2 << 30))
        equal((device["gpu"]["now"], device["gpu"]["limit"], container["priority"]), (None, 0, 0))
        text = tool(VGPU, "ps", "--region", place.region).stdout
        true(str(pid) in text and "2.0GiB" in text and "\33" not in text, text)


@test
def searched():
    """a region is found once by the search path's files, directories and patterns, by option and by variable"""
    with Place() as place, place.program("--memory", "2g") as program:
        program.got(1)
        directory = place.directory
        for search in (place.region, directory, directory + "/r*", f"/nowhere:{directory}:{place.region}",
                       f"{directory}/../{os.path.basename(directory)}:{directory}"):
            equal(len(ps("--search", search)["containers"]), 1, search)
            equal(len(ps(environment={"VGPU_REGION_PATH": search})["containers"]), 1, search)
        equal(ps("--search", "/nowhere")["containers"], [], "elsewhere")
        equal(ps("--search", "/nowhere", environment={"VGPU_REGION_PATH": directory})["containers"], [],
              "the option holds")


@test
def odd_names():
    """what a directory's name means in a pattern means nothing in the search path"""
    with Place() as place, place.program("--memory", "2g") as program:
        program.got(1)
        odd = place.directory + "/a[b]*?"
        os.mkdir(odd)
        os.link(place.region, odd + "/region.cache")
        equal(len(ps("--search", odd)["containers"]), 1, odd)


@test
def mapped():
    """a region that lies nowhere known is found by the process that maps it, whatever else the path names"""
    with Place() as place, place.program("--memory", "2g") as program:
        program.got(1)
        for more in ({}, {"environment": {"VGPU_REGION_PATH": "/nowhere:"}}):
            paths = [container["region"] for container in ps(**more)["containers"]]
            equal(paths.count(place.region), 1, f"{place.region} in {paths}")


@test
def of_process():
    """--pid shows the process's container alone, and says where it has none"""
    with Place() as place, place.program("--memory", "2g") as program:
        program.got(1)
        equal(one("--pid", str(child_of(program)))["region"], place.region)
        with subprocess.Popen(["cat"], stdin=subprocess.PIPE) as other:
            for pid, words in ((other.pid, "no region"), (4194303, "no process")):
                refused_line(tool(VGPU, "ps", "--pid", str(pid)), 1, str(pid), words)


@test
def below():
    """--pid of a process that has no region itself shows the containers of those that it started"""
    with Place() as place, Place() as other, place.program("--memory", "2g") as program:
        program.got(1)
        equal(one("--pid", str(program.process.pid))["region"], place.region)
        with other.program("--memory", "1g") as second:
            second.got(1)
            equal(sorted(seen["region"] for seen in ps("--pid", str(os.getpid()))["containers"]),
                  sorted([place.region, other.region]))


@test
def several():
    """the processes' memory adds up to the container's"""
    with Place() as place, place.program("--memory", "4g") as first, place.program("--memory", "4g") as second:
        first.got(100)
        second.got(200)
        container = one("--region", place.region)
        held = [process["devices"][0]["memory"]["bytes"] for process in container["processes"]]
        equal((len(held), container["devices"][0]["memory"]["bytes"]), (2, sum(held)))


@test
def killed():
    """a process that was killed is counted no more, though its slot is as it left it; --all shows what remains"""
    with Place() as place, place.program("--memory", "2g", before=("setsid",)) as program:
        program.got(100)
        pid = child_of(program)
        before = read(place.region, SLOTS, SLOT_BYTES)
        kill(program)
        write(place.region, SLOTS, before)  # whatever `vgpu run` has tidied at its end
        equal(struct.unpack("<Q", before[:8])[0] & 0xffffffff, pid << 2 | 2, "the slot")
        equal(ps("--region", place.region)["containers"], [])
        done = tool(VGPU, "ps", "--region", place.region)
        equal((done.returncode, done.stdout, done.stderr),
              (0, "", "vgpu: ps: no program lives in it; --all shows it\n"))
        container = one("--region", place.region, "--all")
        equal((container["processes"], container["devices"][0]["memory"]["bytes"]), ([], 0))
        equal(container["devices"][0]["state"], "empty")
        equal(read(place.region, SLOTS, SLOT_BYTES), before, "the slot afterwards")


@test
def starting():
    """a slot that is being claimed shows none of what it held before"""
    with Place() as place, place.program("--memory", "2g") as program:
        program.got(1)
        garbage = struct.pack("<QQQ32s", 7 << 32 | os.getpid() << 2 | 1, 1, 1, b"garbage") + b"\x7f" * 1000
        write(place.region, SLOTS + SLOT_BYTES, garbage)
        write(place.region, OFFSET + 36, struct.pack("<I", 2))  # slot_high
        container = one("--region", place.region)
        equal(len(container["processes"]), 1, container)
        true(container["devices"][0]["memory"]["bytes"] < 2 << 30, container["devices"])


@test
def identities():
    """a container is called as its environment says, or as HAMi's directory for it"""
    names = {"VGPU_POD_NAME": "trainer-0", "VGPU_POD_NAMESPACE": "lab", "VGPU_CONTAINER_NAME": "main"}
    with Place() as place, place.program("--memory", "2g", environment=names) as program:
        program.got(1)
        container = one("--region", place.region)
        equal((container["namespace"], container["pod"], container["container"]), ("lab", "trainer-0", "main"))
        true("lab/trainer-0/main" in tool(VGPU, "ps", "--region", place.region).stdout, "the table")
    with Place() as place:
        os.mkdir(f"{place.directory}/{POD}_side_car", 0o777)
        place.region = f"{place.directory}/{POD}_side_car/x.cache"
        with place.program("--memory", "2g") as program:
            program.got(1)
            container = one("--region", place.region)
            equal((container["pod"], container["pod_uid"], container["container"]), (None, POD, "side_car"))


def write_grant(directory, pod="trainer-0", namespace="lab", container="main", lifted=0):
    """As vgpu-device-plugin does."""
    os.makedirs(directory + "/limits.d")
    head = struct.pack("<QIIQIIIIII256s256s64s64s64s", 0x3154524755504756, 1, 0x01020304, 5120, 2, 0, 0, 0, 0, lifted,
                       b"/etc/vgpu/account", pod.encode(), namespace.encode(), POD.encode(), container.encode())
    with open(directory + "/limits.d/grant", "wb") as file:
        file.write(head.ljust(5120, b"\0"))


@test
def granted():
    """on a node where the plugin runs a container is called as its grant says, whatever it says itself or deletes"""
    lie = {"VGPU_POD_NAME": "another", "VGPU_POD_NAMESPACE": "other", "VGPU_CONTAINER_NAME": "x"}
    with Place() as place:
        os.makedirs(f"{place.directory}/containers/8f14e45fceea167a")
        grant = f"{place.directory}/grants/0011"
        write_grant(f"{place.directory}/grants/0000", "nobody")
        write_grant(grant, lifted=1)
        place.region = f"{place.directory}/containers/8f14e45fceea167a/x.cache"
        with place.program("--memory", "2g", "--cores", "30", environment=lie) as program:
            program.got(1)
            os.link(place.region, grant + "/account")
            search = f"{place.directory}/containers/*/*.cache:{place.directory}/grants/*/account"
            for delete in (False, True):
                if delete:
                    os.unlink(place.region)
                container = one("--search", search)
                equal((container["namespace"], container["pod"], container["pod_uid"], container["container"],
                       container["lifted"]), ("lab", "trainer-0", POD, "main", True))
                true("lab/trainer-0/main" in tool(VGPU, "ps", "--search", search).stdout, "the table")
            with open(grant + "/limits.d/grant", "r+b") as file:
                file.write(bytes(8))
            equal(one("--search", search)["pod"], "another", "without a grant that is understood")


class Load:
    """vgpu-load in the place's container."""

    def __init__(self, place, *options, shape="full"):
        self.place = place
        self.program = subprocess.Popen(
            [VGPU, "run", "--region", place.region, f"--sim=1xh200,machine={place.directory}/machine", *options, "--",
             os.path.join(BUILD, "vgpu-load"), "--shape", shape, "--seconds", "30"],
            env=MINE, stdout=subprocess.DEVNULL, stderr=subprocess.DEVNULL, start_new_session=True)

    def __enter__(self):
        return self

    def __exit__(self, *_):
        os.killpg(self.program.pid, signal.SIGKILL)
        self.program.wait()

    def await_container(self, wanted):
        """The container as ps shows it once `wanted` holds of it; as it was last, else."""
        end, seen = time.monotonic() + 25, None
        while time.monotonic() < end and not (seen and seen["devices"] and seen["processes"] and wanted(seen)):
            time.sleep(0.2)
            found = ps("--search", self.place.region)["containers"]
            seen = found[0] if found else None
        return seen


@test
def gpu_time():
    """GPU time is shown against its limit while a program works"""
    with Place() as place, Load(place, "--cores", "40", "--soft-cores", "60") as load:
        gpu = load.await_container(lambda seen: seen["devices"][0]["gpu"]["now"])["devices"][0]["gpu"]
        true(1 < gpu["now"] <= 100 and 1 < gpu["minute"] <= 100, gpu)
        equal((gpu["limit"], gpu["soft_limit"]), (40, 60))
        true("40-60" in tool(VGPU, "ps", "--region", place.region).stdout, "the table")


def gate_of(container):
    return container["processes"][0]["devices"][0]["gate"]


@test
def gates():
    """it is shown by which gate a process is held, also while one kernel of it runs on and on"""
    with Place() as place, Load(place, "--cores", "40", shape="persistent") as load:
        equal(gate_of(load.await_container(lambda seen: gate_of(seen) == "channel")), "channel")
    with Place() as place:
        MINE["VGPU_GATE"] = "launch"
        try:
            with Load(place, "--cores", "40") as load:
                equal(gate_of(load.await_container(lambda seen: gate_of(seen))), "launch")
        finally:
            del MINE["VGPU_GATE"]


@test
def states():
    """a pause, HAMi's monitor's, and a limit that is not understood are shown"""
    with Place() as place, place.program("--memory", "2g") as program:
        program.got(1)
        tool(VGPU, "pause", "--region", place.region)
        container = one("--region", place.region)
        equal((container["paused"], container["held"], container["devices"][0]["state"]), (True, False, "paused"))
        tool(VGPU, "resume", "--region", place.region)
        write(place.region, 2008904, struct.pack("<i", -1))
        container = one("--region", place.region)
        equal((container["paused"], container["held"], container["devices"][0]["state"]), (False, True, "held"))
        write(place.region, 2008904, struct.pack("<i", 2))
        write(place.region, DEVICES + 56, struct.pack("<Q", 1))
        equal(one("--region", place.region)["devices"][0]["state"], "closed")


@test
def unmeasured():
    """a share that nobody measures is not known: of a limit that is taken away, lifted by HAMi's monitor, or disabled"""
    def share(container):
        gpu = container["devices"][0]["gpu"]
        return gpu["now"], gpu["minute"]
    for options, policy, change in (
            (("--cores", "40"), "default", lambda path: tool(VGPU, "set", "--cores", "0", "--region", path)),
            (("--cores", "40"), "default", lambda path: write(path, 2008900, struct.pack("<i", 0))),
            (("--cores", "40"), "disable", None)):
        MINE["GPU_CORE_UTILIZATION_POLICY"] = policy
        try:
            with Place() as place, Load(place, *options) as load:
                if change:
                    load.await_container(lambda seen: seen["devices"][0]["gpu"]["now"])
                    change(place.region)
                container = load.await_container(lambda seen: share(seen) == (None, None))
                equal(share(container), (None, None), policy)
                lifted = container["lifted"]
                equal(container["devices"][0]["state"], "lifted" if lifted else "-", policy)
                said = tool(VGPU, "set", "--priority", "1", "--region", place.region).stdout
                equal("lifted its compute limits" in said, lifted, said)
        finally:
            del MINE["GPU_CORE_UTILIZATION_POLICY"]


@test
def others():
    """a region that may not be read is counted and said, and nothing else is"""
    need_nobody("/usr/bin/python3")
    with Place() as place, place.program("--memory", "2g") as program:
        program.got(1)
        os.chmod(place.region, 0o600)
        done = tool(VGPU, "ps", "--search", place.directory, user=NOBODY)
        equal((done.returncode, done.stdout, done.stderr),
              (0, "", "vgpu: ps: 1 region of others: not readable, run as root\n"))
        equal(ps("--search", place.directory, user=NOBODY)["unreadable"], 1)
        refused_line(tool(VGPU, "ps", "--region", place.region, user=NOBODY), 1, place.region, "ermission")
        os.chmod(place.region, 0o644)
        equal(len(ps("--search", place.directory, user=NOBODY)["containers"]), 1, "may be read, not written")


@test
def foreign():
    """other files are passed over without a word, and said of where they are named"""
    with tempfile.TemporaryDirectory() as directory:
        os.mkfifo(f"{directory}/pipe")
        os.symlink("pipe", f"{directory}/link")
        os.mkdir(f"{directory}/deep")
        for name, data, size in (("text", b"text", None), ("empty", b"", None), ("hole", b"", FILE_BYTES),
                                 ("large", b"x" * OFFSET + b"OTHERMAG", FILE_BYTES), ("short", b"", OFFSET)):
            with open(f"{directory}/{name}", "wb") as file:
                file.write(data)
                file.truncate(size or len(data))
        done = tool(VGPU, "ps", "--search", directory)
        equal((done.returncode, done.stdout, done.stderr.count("\n")), (0, "", 1), done.stderr)
        for name in sorted(os.listdir(directory)):
            refused_line(tool(VGPU, "ps", "--region", f"{directory}/{name}"), 1, f"{directory}/{name}")
        refused_line(tool(VGPU, "ps", "--region", f"{directory}/nothing"), 1, "No such file")


@test
def untouched():
    """a look changes nothing, and waits for nobody who holds a lock"""
    with Place() as place, place.program("--memory", "2g") as program:
        program.got(1)
        with open(place.region, "r+b") as held:
            lock = struct.pack("hhqqi4x", fcntl.F_WRLCK, os.SEEK_SET, 0, FILE_BYTES, 0)
            with contextlib.suppress(OSError):  # the program's own
                fcntl.fcntl(held, F_OFD_SETLK, lock)
            lock = struct.pack("hhqqi4x", fcntl.F_WRLCK, os.SEEK_SET, OFFSET, 1, 0)
            fcntl.fcntl(held, F_OFD_SETLK, lock)
            before, status = read(place.region, 0, FILE_BYTES), os.stat(place.region)
            equal(len(one("--region", place.region)["processes"]), 1)
            after = os.stat(place.region)
            equal((after.st_mtime_ns, after.st_blocks), (status.st_mtime_ns, status.st_blocks))
            equal(read(place.region, 0, FILE_BYTES) == before, True, "the file is as it was")


def check_hostile(path, what):
    """It ends, by itself, and what it says can be read."""
    for arguments in (("--all", "--region", path), ("--search", path)):
        done = tool(VGPU, "ps", "--json", *arguments)
        true(done.returncode in (0, 1), f"{what}: status {done.returncode}, {done.stderr!r}")
        json.loads(done.stdout)
        done = tool(VGPU, "ps", *arguments)
        true(done.returncode in (0, 1) and "\33" not in done.stdout, f"{what}: {done.returncode}")


@test
def hostile():
    """whatever is in a region, it is shown or refused"""
    seed = random.randrange(1 << 32)
    choice = random.Random(seed)
    with Place() as place, place.program("--memory", "2g") as program:
        program.got(1)
        kept = read(place.region, 0, FILE_BYTES)
        path = place.directory + "/copy"
        for i in range(40):
            shutil.copyfile(place.region, path)
            for _ in range(choice.randrange(1, 30)):
                start, size = choice.choice([(OFFSET, 256), (DEVICES, 512), (SLOTS, 4 * SLOT_BYTES), (2008896, 64),
                                             (OFFSET + 8528128, 200), (OFFSET + 9060608, 2048),
                                             (OFFSET + 9126144, 512)])
                data = choice.choice([b"\xff" * 8, b"\0" * 8, b"\33[2J\n\r\t\x80", choice.randbytes(16),
                                      struct.pack("<Q", os.getpid() << 2 | 2)])
                write(path, start + choice.randrange(size) // 8 * 8, data)
            check_hostile(path, f"seed {seed}, file {i}")
        equal(len(read(place.region, 0, FILE_BYTES)), len(kept))


@test
def vanishing():
    """a file that is shortened, emptied and removed while it is read is passed over"""
    with Place() as place, place.program("--memory", "2g") as program:
        program.got(1)
        whole = read(place.region, 0, FILE_BYTES)
        path, over = place.directory + "/copy", threading.Event()

        def change():
            while not over.is_set():
                with open(path, "wb") as file:
                    file.write(whole)
                for size in (FILE_BYTES - 1, SLOTS + 100, DEVICES + 8, OFFSET + 4, 0):
                    os.truncate(path, size)
                os.unlink(path)
        changer = threading.Thread(target=change)
        changer.start()
        try:
            for _ in range(40):
                done = tool(VGPU, "ps", "--json", "--all", "--search", place.directory + "/copy*")
                equal((done.returncode, done.stderr), (0, ""))
                json.loads(done.stdout)
        finally:
            over.set()
            changer.join()


def on_terminal(columns, *arguments):
    """What it writes on a terminal so wide."""
    master, slave = pty.openpty()
    fcntl.ioctl(slave, termios.TIOCSWINSZ, struct.pack("HHHH", 24, columns, 0, 0))
    process = subprocess.Popen([VGPU, "ps", *arguments], env=MINE, stdout=slave, stderr=subprocess.DEVNULL)
    os.close(slave)
    text = b""
    with contextlib.suppress(OSError):  # its end
        while data := os.read(master, 65536):
            text += data
    os.close(master)
    equal(process.wait(timeout=20), 0)
    return text.decode().replace("\r\n", "\n").splitlines()


@test
def widths():
    """on a terminal the table fits, with more columns where there is room; elsewhere it is whole"""
    with Place() as place, place.program("--memory", "2g", "--cores", "30", "--soft-cores", "60") as program:
        program.got(100)
        for columns in (60, 80, 100, 132, 200):
            lines = on_terminal(columns, "--region", place.region)
            equal(len(lines), 3, lines)
            true(max(map(len, lines)) <= columns, f"{columns}: {lines}")
            true(columns == 100 or ("BUFFER" in lines[0]) == (columns > 100), f"{columns}: {lines[0]!r}")
            true("throttled" in lines[1] or "idle" in lines[1] or "running" in lines[1], lines[1])
        whole = tool(VGPU, "ps", "--region", place.region).stdout
        true("for line in sys.stdin" in whole and "MANAGED" in whole, whole)


@test
def spilled():
    """what is backed by the host is shown apart, where something is"""
    with Place() as place, place.program("--memory", "8g", "--oversubscribe=2", "--sim=memory=16GiB") as program:
        program.got(2000)
        before = tool(VGPU, "ps", "--region", place.region).stdout
        true("SPILLED" not in before, before)
        program.got(4000)
        table = tool(VGPU, "ps", "--region", place.region).stdout.splitlines()
        true("SPILLED" in table[0], table)
        device = json.loads(tool(VGPU, "ps", "--json", "--region", place.region).stdout)["containers"][0]["devices"][0]
        memory = device["memory"]
        equal((memory["bytes"] - memory["spilled"]) >> 20, 4096, memory)
        equal(memory["limit"] >> 30, 8)
        top = tool(VGPU, "top", "--batch", "--iterations", "1", "--region", place.region)
        true("SPILLED" in top.stdout or top.returncode, top)


@test
def namespaces():
    """a process in a PID namespace of its own is shown with its pid here, and its command line"""
    probe = subprocess.run(["unshare", "-pf", "--mount-proc", "true"], env=MINE, capture_output=True, check=False)
    if probe.returncode:
        raise Skip("may not make a PID namespace")
    with Place() as place, place.program("--memory", "2g", before=("unshare", "-pf", "--mount-proc")) as program:
        program.got(1)
        process = one("--region", place.region)["processes"][0]
        equal(process["pid"], child_of(program), process)
        true(process["container_pid"] < process["pid"] and "import ctypes" in process["command"], process)


@test
def refused():
    """arguments that cannot be meant are one line and status 2"""
    for arguments, words in ((("--pid", "x"), ("--pid", "x", "process's number")), (("--pid", "0"), ("--pid",)),
                             (("--bogus",), ("--bogus", "--help")), (("region",), ("region",)),
                             (("--region", "a", "--pid", "1"), ("exclude",)),
                             (("--search", "a", "--pid", "1"), ("exclude",)), (("--region",), ("needs a value",))):
        refused_line(tool(VGPU, "ps", *arguments), 2, *words)


tap.main()
