# SPDX-License-Identifier: Apache-2.0
"""For the checks on a card: slices whose processes are known by a tag in their environment, what NVML
says of them, asked from outside, and what their region file says (its layout: docs/region.md).
With sim=True the simulator stands in the driver's place."""
import atexit
import ctypes
import fcntl
import mmap
import os
import shutil
import signal
import struct
import subprocess
import sys
import tempfile
import threading
import time

MIB = 1 << 20
TAG = "VGPU_TEST_TAG"
failed = 0


def check(what, good, detail=""):
    """Prints one line; returns whether it is good."""
    global failed
    failed += not good
    print(f"{'ok' if good else 'NOT OK'} - {what}{': ' if detail != '' else ''}{detail}", flush=True)
    return bool(good)


def failures():
    return failed


def until(condition, seconds, look_s=0.05):
    """Waits for the condition, looking each so long; its last answer."""
    end = time.monotonic() + seconds
    while True:
        answer = condition()
        if answer or time.monotonic() > end:
            return answer
        time.sleep(look_s)


def median(values):
    ordered = sorted(values)
    return ordered[len(ordered) // 2] if ordered else 0


def _lives(pid):
    try:
        with open(f"/proc/{pid}/stat", "rb") as file:
            return file.read().rsplit(b")", 1)[1].split()[0] not in (b"Z", b"X")
    except (OSError, IndexError):
        return False


class _Memory(ctypes.Structure):
    _fields_ = [("total", ctypes.c_ulonglong), ("free", ctypes.c_ulonglong), ("used", ctypes.c_ulonglong)]


class _Process(ctypes.Structure):
    _fields_ = [("pid", ctypes.c_uint), ("bytes", ctypes.c_ulonglong), ("gpu_instance", ctypes.c_uint),
                ("compute_instance", ctypes.c_uint)]


class _Sample(ctypes.Structure):
    _fields_ = [("end_us", ctypes.c_ulonglong), ("percent", ctypes.c_uint), ("rest", ctypes.c_uint)]


class Card:
    """The first card, by NVML, from a process without the library."""

    def __init__(self, build, sim=False):
        self.library = ctypes.CDLL(f"{build}/src/sim/libnvidia-ml.so.1" if sim else "libnvidia-ml.so.1")
        self.handle = ctypes.c_void_p()
        self.tags = {}
        if self.library.nvmlInit_v2() or self.library.nvmlDeviceGetHandleByIndex_v2(0, ctypes.byref(self.handle)):
            raise RuntimeError("NVML does not start")

    def processes(self):
        """{pid: bytes}; NVML's word for "unknown" counts as 0."""
        count = ctypes.c_uint(512)
        array = (_Process * 512)()
        if self.library.nvmlDeviceGetComputeRunningProcesses_v3(self.handle, ctypes.byref(count), array):
            return {}
        return {p.pid: p.bytes if p.bytes < 1 << 62 else 0 for p in array[:count.value]}

    def used(self):
        memory = _Memory()
        if self.library.nvmlDeviceGetMemoryInfo(self.handle, ctypes.byref(memory)):
            raise RuntimeError("NVML does not give the card's memory")
        return memory.used

    def _samples(self, since_s):
        """[(when it ended, percent)] of the card's utilisation, by time.time()."""
        count, kind, samples = ctypes.c_uint(256), ctypes.c_int(), (_Sample * 256)()
        since = ctypes.c_ulonglong(int(since_s * 1e6))
        if self.library.nvmlDeviceGetSamples(self.handle, 1, since, ctypes.byref(kind), ctypes.byref(count), samples):
            return []
        return [(sample.end_us / 1e6, sample.percent) for sample in samples[:count.value]]

    def utilisation(self, begin_s, end_s):
        """NVML's samples, in percent, that lie whole in that time of time.time(); waits for the last of them."""
        until(lambda: [end for end, _ in self._samples(begin_s) if end > end_s], 2)
        ends = self._samples(begin_s)
        return [percent for (before, _), (end, percent) in zip(ends, ends[1:]) if begin_s <= before and end <= end_s]

    def tag_of(self, pid):
        try:
            with open(f"/proc/{pid}/stat", "rb") as file:
                started = file.read().rsplit(b")", 1)[1].split()[19]
        except (OSError, IndexError):
            started = None
        known = self.tags.get(pid)
        if known and (started is None or known[0] == started):
            return known[1]
        try:
            with open(f"/proc/{pid}/environ", "rb") as file:
                words = file.read().split(b"\0")
        except OSError:
            return None
        for word in words:
            if word.startswith(TAG.encode() + b"="):
                self.tags[pid] = started, word.split(b"=", 1)[1].decode()
                return self.tags[pid][1]
        return None

    def bytes_of(self, tag):
        """What NVML says of the slice's living processes."""
        return sum(size for pid, size in self.processes().items() if _lives(pid) and self.tag_of(pid) == tag)

    def unowned(self, samples=9, pause=0.01):
        """The card's used memory that NVML lists for no living process; the median of some looks in the
        part of a second in which `churn --rest` rests: other programs of the card may come and go
        between the two questions."""
        found = []
        time.sleep((1.06 - time.time() % 1) % 1)
        for _ in range(samples):
            found.append(self.used() - sum(size for pid, size in self.processes().items() if _lives(pid)))
            time.sleep(pause)
        return median(found)


class Region:
    """A container's region file, read from outside."""
    HEAD, SLOTS, SLOT_BYTES, SLOT_MAX = 2_011_136, 2_019_584, 8_320, 1_024
    FIELDS = ("bytes", "pending", "lingering", "imported", "context", "module", "buffer", "managed", "unexplained")
    F_OFD_GETLK = 36

    def __init__(self, path):
        self.fd = os.open(path, os.O_RDONLY | os.O_CLOEXEC)
        self.map = mmap.mmap(self.fd, 0, mmap.MAP_SHARED, mmap.PROT_READ)
        magic, version, order = struct.unpack_from("=QII", self.map, self.HEAD)
        if (magic, version, order) != (0x3147455255504756, 4, 0x01020304):
            raise RuntimeError(f"{path} is no region: {magic:#x} {version} {order:#x}")

    def _locked(self, offset):
        request = struct.pack("@hhqqi4x", fcntl.F_WRLCK, os.SEEK_SET, offset, 1, 0)
        answer = fcntl.fcntl(self.fd, self.F_OFD_GETLK, request)
        return struct.unpack_from("@h", answer)[0] != fcntl.F_UNLCK

    def high(self):
        return min(struct.unpack_from("=I", self.map, self.HEAD + 36)[0], self.SLOT_MAX)

    def slots(self, device=0):
        """The live slots, each a dictionary: pid, locked, and the usage of the device."""
        found = []
        for index in range(self.high()):
            offset = self.SLOTS + index * self.SLOT_BYTES
            word = struct.unpack_from("=Q", self.map, offset)[0]
            if word & 3 != 2:
                continue
            usage = struct.unpack_from("=9Q", self.map, offset + 128 + 128 * device)
            slot = dict(zip(self.FIELDS, usage), pid=(word & 0xFFFFFFFF) >> 2, locked=self._locked(offset))
            if struct.unpack_from("=Q", self.map, offset)[0] == word:
                found.append(slot)
        return found

    def bytes_of(self, pid):
        """What counts for the process on the card: managed memory is not in NVML's figure."""
        for slot in self.slots():
            if slot["pid"] == pid:
                return slot["bytes"] - slot["managed"]
        return None

    def close(self):
        self.map.close()
        os.close(self.fd)


class Slice:
    """A container of a limit, with a region file of its own and a tag. limit_mib None: no library."""

    def __init__(self, build, name, limit_mib, sim=False):
        self.build, self.limit_mib, self.sim = build, limit_mib, sim
        self.tag = f"{name}-{os.getpid()}-{time.monotonic_ns() & 0xFFFFFF:x}"
        self.directory = tempfile.mkdtemp(prefix=f"vgpu-{name}-")
        self.path = f"{self.directory}/region"
        self.children = []
        self._region = None
        atexit.register(self.end)

    def environment(self, **extra):
        limits = ("CUDA_DEVICE_", "CUDA_MEM_LIMIT", "CUDA_CORE_LIMIT", "LD_PRELOAD")
        environment = {k: v for k, v in os.environ.items() if not k.startswith(limits)}
        environment[TAG] = self.tag
        preload = []
        if self.limit_mib is not None:
            preload.append(f"{self.build}/libvgpu.so")
            environment["CUDA_DEVICE_MEMORY_LIMIT"] = f"{self.limit_mib}m"
            environment["CUDA_DEVICE_MEMORY_SHARED_CACHE"] = self.path
        if self.sim:
            preload.append(f"{self.build}/src/sim/libvgpu-sim-rm.so")
            environment["LD_LIBRARY_PATH"] = f"{self.build}/src/sim"
        if preload:
            environment["LD_PRELOAD"] = " ".join(preload)
        environment.update(extra)
        return environment

    def start(self, command, extra=None, **options):
        """A process of the slice, in a session of its own; its pid is the program's."""
        options.setdefault("stdin", subprocess.DEVNULL)
        options.setdefault("stderr", subprocess.DEVNULL)
        child = subprocess.Popen(command, env=self.environment(**(extra or {})), start_new_session=True, **options)
        self.children.append(child)
        return child

    def region(self):
        """The region; None while there is none."""
        if self._region is None and os.path.exists(self.path):
            try:
                self._region = Region(self.path)
            except (OSError, ValueError, struct.error, RuntimeError):
                return None
        return self._region

    def pids(self):
        """All living processes with the slice's tag, whoever their parent is."""
        wanted = f"{TAG}={self.tag}".encode()
        found = []
        for name in os.listdir("/proc"):
            if name.isdigit():
                try:
                    with open(f"/proc/{name}/environ", "rb") as file:
                        if wanted in file.read().split(b"\0"):
                            found.append(int(name))
                except OSError:
                    pass
        return found

    def kill(self):
        for pid in self.pids():
            try:
                os.kill(pid, signal.SIGKILL)
            except OSError:
                pass

    def end(self):
        """Kills what is left of the slice and removes its files; at the program's end at the latest."""
        atexit.unregister(self.end)
        for _ in range(3):
            self.kill()
        for child in self.children:
            try:
                child.wait(10)
            except subprocess.TimeoutExpired:
                check(f"process {child.pid} ends when killed", False, "it still lives after 10 s")
        if self._region:
            self._region.close()
            self._region = None
        shutil.rmtree(self.directory, ignore_errors=True)


class Talker:
    """A child that answers a line for a line; an answer that does not come in time ends it."""

    def __init__(self, where, command, extra=None, seconds=60):
        self.seconds = seconds
        self.process = where.start(command, extra, stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True)
        self.pid = self.process.pid

    def hear(self, seconds=None):
        timer = threading.Timer(seconds or self.seconds, self.process.kill)
        timer.start()
        try:
            return self.process.stdout.readline().strip()
        finally:
            timer.cancel()

    def ask(self, line, seconds=None):
        try:
            self.process.stdin.write(line + "\n")
            self.process.stdin.flush()
        except OSError:
            return ""
        return self.hear(seconds)

    def end(self, seconds=20):
        """Closes its input; its exit status, None where it had to be killed."""
        try:
            self.process.stdin.close()
        except OSError:
            pass
        try:
            return self.process.wait(seconds)
        except subprocess.TimeoutExpired:
            self.process.kill()
            self.process.wait(10)
            return None


class Peak(threading.Thread):
    """The most that NVML says of some slices, looked at all the time; stop() returns {tag: bytes}."""

    def __init__(self, card, tags, pause=0.02):
        super().__init__(daemon=True)
        self.card, self.pause = card, pause
        self.most = {tag: 0 for tag in tags}
        self.looks = 0
        self.stopping = False

    def run(self):
        while not self.stopping:
            sums = dict.fromkeys(self.most, 0)
            for pid, size in self.card.processes().items():
                tag = self.card.tag_of(pid)
                if tag in sums:
                    sums[tag] += size
            for tag, size in sums.items():
                self.most[tag] = max(self.most[tag], size)
            self.looks += 1
            time.sleep(self.pause)

    def stop(self):
        self.stopping = True
        self.join(10)
        return self.most


def sim_begin(build):
    """A simulated machine for this process and its children: the one that VGPU_SIM_MACHINE names, or
    one of this run's own."""
    if not os.environ.get("VGPU_SIM_MACHINE"):
        machine = tempfile.mktemp(prefix="vgpu-sim-gpu-")
        atexit.register(lambda: os.path.exists(machine) and os.unlink(machine))
        os.environ.update(VGPU_SIM="", VGPU_SIM_MACHINE=machine)
    os.environ["LD_LIBRARY_PATH"] = f"{build}/src/sim"


# Ended from outside, a program still ends what it started.
signal.signal(signal.SIGTERM, lambda number, frame: sys.exit(128 + number))
