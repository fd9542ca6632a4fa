# SPDX-License-Identifier: Apache-2.0
"""hami_monitor BUILD: what a monitor that knows HAMi-core's shared region alone (version 1.2) reads of
real containers, and what its commands do. The offsets are HAMi-core's; none is taken from vgpu."""
import mmap
import os
import signal
import struct
import subprocess
import sys
import time

import tap
from tap import equal, test, true

from mine import BUILD, MINE, VGPU
from place import Place, child_of, tool

MAGIC, DEAD, RUNNING, SUSPENDED = 19920718, 0, 1, 2
MIB = 1 << 20
LOAD = os.path.join(BUILD, "vgpu-load")

# Answers each line of stdin with the driver's result: a call with a size in MiB, or "free".
PUMP = """
import ctypes, sys
cuda = ctypes.CDLL("libcuda.so.1")
assert cuda.cuInit(0) == 0
made = []
PTX = b'''.version 7.0
.target sm_70
.address_size 64
.visible .entry nop(.param .u64 cell) { ret; }
\\0'''

def context():
    handle = ctypes.c_void_p()
    return cuda.cuDevicePrimaryCtxRetain(ctypes.byref(handle), 0) or cuda.cuCtxSetCurrent(handle)

def allocate(mib):
    made.append(ctypes.c_uint64())
    return cuda.cuMemAlloc_v2(ctypes.byref(made[-1]), ctypes.c_size_t(mib << 20))

def managed(mib):
    made.append(ctypes.c_uint64())
    return cuda.cuMemAllocManaged(ctypes.byref(made[-1]), ctypes.c_size_t(mib << 20), 1)

def free():
    return cuda.cuMemFree_v2(made.pop())

def load():
    module = ctypes.c_void_p()
    return cuda.cuModuleLoadData(ctypes.byref(module), PTX)

for line in sys.stdin:
    words = line.split()
    print(globals()[words[0]](*map(int, words[1:])), flush=True)
"""


class Monitor:
    """A mapping of the region's file as HAMi's monitor makes it from the host."""

    def __init__(self, path):
        with open(path, "r+b") as file:
            self.map = mmap.mmap(file.fileno(), 2008952)

    def __enter__(self):
        return self

    def __exit__(self, *_):
        self.map.close()

    def get(self, form, offset):
        return struct.unpack_from("<" + form, self.map, offset)[0]

    def put(self, form, offset, value):
        struct.pack_into("<" + form, self.map, offset, value)

    def head(self):
        """Magic, major, minor, sm_init_flag, owner_pid, number of devices."""
        return struct.unpack_from("<iIIiQ", self.map, 0) + (self.get("Q", 56),)

    def uuid(self, device):
        text = self.map[64 + 96 * device:64 + 96 * device + 96]
        return text[:text.index(b"\0")].decode()

    def limit(self, device=0):
        return self.get("Q", 1600 + 8 * device)

    def sm_limit(self, device=0):
        return self.get("Q", 1728 + 8 * device)

    def proc_num(self):
        count = self.get("i", 2008896)
        true(0 <= count <= 1024, f"proc_num is {count}")
        return count

    def slot(self, index):
        return 1856 + 1960 * index

    def status(self, index):
        return self.get("i", self.slot(index) + 1928)

    def pids(self):
        """Of those that are not dead, in the order of their slots."""
        return [self.get("i", self.slot(i)) for i in range(self.proc_num()) if self.status(i) != DEAD]

    def of_pid(self, pid):
        for i in range(self.proc_num()):
            if self.status(i) != DEAD and self.get("i", self.slot(i)) == pid:
                return i
        raise AssertionError(f"{pid} is not among {self.pids()}")

    def used(self, device=0):
        """Context, module, data, offset, total: summed as the monitor does, without a look at the status."""
        sums = [0] * 5
        for i in range(self.proc_num()):
            for k, value in enumerate(struct.unpack_from("<5Q", self.map, self.slot(i) + 8 + 64 * device)):
                sums[k] += value
        return sums

    def monitorused(self, device=0):
        return sum(self.get("Q", self.slot(i) + 1032 + 8 * device) for i in range(self.proc_num()))

    def sm_util(self, device=0):
        return sum(self.get("Q", self.slot(i) + 1160 + 48 * device + 16) for i in range(self.proc_num()))

    switch = property(lambda self: self.get("i", 2008900), lambda self, v: self.put("i", 2008900, v))
    recent_kernel = property(lambda self: self.get("i", 2008904),
                             lambda self, v: self.put("i", 2008904, v))
    priority = property(lambda self: self.get("i", 2008908))
    last_kernel_time = property(lambda self: self.get("Q", 2008912))


class Pump:
    """A program in the container that does what it is told."""

    def __init__(self, place, *options, sim="1xh200", **variables):
        self.process = subprocess.Popen(
            [VGPU, "run", "--region", place.region, f"--sim={sim},machine={place.directory}/machine",
             *options, "--", sys.executable, "-c", PUMP], env={**MINE, **variables},
            stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True)

    def __enter__(self):
        return self

    def __exit__(self, *_):
        self.end()

    def does(self, command, wanted=0):
        self.process.stdin.write(command + "\n")
        self.process.stdin.flush()
        equal(self.process.stdout.readline(), f"{wanted}\n", command)

    def end(self):
        if not self.process.stdin.closed:
            self.process.stdin.close()
            self.process.wait(timeout=20)
            self.process.stdout.close()


class Load:
    """vgpu-load in the container, until it is stopped."""

    def __init__(self, place, *options, **variables):
        self.process = subprocess.Popen(
            [VGPU, "run", "--region", place.region, f"--sim=1xh200,machine={place.directory}/machine",
             *options, "--", LOAD, "--seconds", "0"], env={**MINE, **variables},
            stdout=subprocess.DEVNULL)

    def __enter__(self):
        return self

    def __exit__(self, *_):
        self.end()

    def end(self):
        if self.process.poll() is None:
            os.kill(child_of(self), signal.SIGTERM)
            self.process.wait(timeout=30)


def until(condition, what, seconds=30):
    end = time.monotonic() + seconds
    while not (value := condition()):
        true(time.monotonic() < end, f"never: {what() if callable(what) else what}")
        time.sleep(0.02)
    return value


def wait_for_region(place):
    until(lambda: os.path.exists(place.region) and os.path.getsize(place.region) >= 2008952, "the file")
    monitor = Monitor(place.region)
    until(lambda: monitor.head()[0] == MAGIC, "the magic number")
    return monitor


@test
def head():
    """the file says what it is, and has the devices that were met, their UUIDs and their limits"""
    with Place() as place, Pump(place, "--memory", "2g,3g", "--cores", "30,0", sim="2xh200") as pump:
        pump.does("context")
        with Monitor(place.region) as monitor:
            equal(monitor.head()[:5], (MAGIC, 1, 2, 0, 0), "the head")
            until(lambda: monitor.head()[5] >= 1, "a device")
            for device in range(monitor.head()[5]):
                true(monitor.uuid(device).startswith("GPU-") and len(monitor.uuid(device)) == 40,
                     monitor.uuid(device))
            equal((monitor.limit(), monitor.sm_limit()), (2048 * MIB, 30), "the limits")
            equal((monitor.switch, monitor.recent_kernel, monitor.priority), (1, 2, 1), "the words")
            equal(monitor.last_kernel_time, 0, "the time of a kernel that was never launched")


@test
def usage():
    """usage by kind is what was allocated, and goes with it"""
    with Place() as place, Pump(place, "--memory", "2g", sim="1xh200,context=200MiB") as pump:
        pump.does("context")
        with Monitor(place.region) as monitor:
            context, module, data, offset, total = monitor.used()
            equal((module, data, total), (0, 0, context + offset), "before")
            true(context >= 200 * MIB, f"a context of {context}")
            pump.does("allocate 100")
            equal(monitor.used(), [context, 0, 100 * MIB, offset, total + 100 * MIB], "with a buffer")
            pump.does("managed 8")
            equal(monitor.used(), [context, 0, 108 * MIB, offset, total + 108 * MIB], "with managed memory")
            equal(monitor.monitorused(), total + 100 * MIB, "on the device")
            pump.does("load")
            module = monitor.used()[1]
            true(module > 0 or monitor.used()[0] > context, f"a module of {monitor.used()}")
            pump.does("free")
            pump.does("free")
            equal(monitor.used()[2], 0, "data after the frees")
            equal(sum(monitor.used()[:4]), monitor.used()[4], "the sum")
            pump.does("allocate 4000", 2)
            equal(monitor.used()[2], 0, "data after a refusal")


@test
def processes():
    """each process has its slot, and nothing is left of one that exits or of one that is killed"""
    with Place() as place, Pump(place, "--memory", "2g") as first:
        first.does("context")
        first.does("allocate 10")
        with Monitor(place.region) as monitor, Pump(place, "--memory", "2g") as second:
            alone = monitor.used()
            second.does("context")
            second.does("allocate 30")
            pids = [child_of(first), child_of(second)]
            equal(sorted(monitor.pids()), sorted(pids), "the processes")
            equal(monitor.used()[2], 40 * MIB, "data of both")
            slot = monitor.of_pid(pids[1])
            true(monitor.get("i", monitor.slot(slot) + 4) in (0, pids[1]), "its pid on the host")
            equal(monitor.get("Q", monitor.slot(slot) + 1936) % 2, 0, "its sequence")
            second.end()
            equal((monitor.pids(), monitor.used()), (pids[:1], alone), "after an exit")
            with Pump(place, "--memory", "2g") as third:
                third.does("context")
                third.does("allocate 30")
                os.kill(child_of(third), signal.SIGKILL)
                third.process.wait(timeout=20)
                first.does("allocate 1400")  # looks for the dead before it is refused
                first.does("free")
                equal((monitor.pids(), monitor.used()), (pids[:1], alone), "after a kill")
            with Pump(place, "--memory", "2g") as fourth:
                fourth.does("context")
                os.kill(child_of(fourth), signal.SIGKILL)
                fourth.process.wait(timeout=20)
            with Pump(place, "--memory", "2g") as fifth:  # or whoever comes
                fifth.does("context")
                equal(sorted(monitor.pids()), sorted([pids[0], child_of(fifth)]), "with a newcomer")


@test
def work():
    """under load the utilisation is the container's share, the time of the last kernel moves, and both rest"""
    with Place() as place, Load(place, "--cores", "40", RECORD_KERNEL_INTERVAL="1"):
        with wait_for_region(place) as monitor:
            begin = int(time.time())
            until(lambda: monitor.last_kernel_time, "a kernel's time")
            true(begin - 2 <= monitor.last_kernel_time <= time.time(), "it is no time of now")
            until(lambda: 25 <= monitor.sm_util() <= 55, lambda: f"a share of 40 %: {monitor.sm_util()}")
            equal(monitor.recent_kernel, 2, "recent_kernel")
            former = monitor.last_kernel_time
            until(lambda: monitor.last_kernel_time > former, "a later time")


@test
def rest():
    """a program that stops working shows no utilisation a while later, though it lives on"""
    with Place() as place, Pump(place, "--cores", "60") as idle, Load(place, "--cores", "60") as load:
        idle.does("context")
        with Monitor(place.region) as monitor:
            until(lambda: monitor.sm_util() >= 30, lambda: f"utilisation: {monitor.sm_util()}")
            pid = child_of(load)
            os.kill(pid, signal.SIGSTOP)
            monitor.of_pid(pid)
            os.kill(pid, signal.SIGCONT)
            load.end()
            until(lambda: monitor.sm_util() == 0, lambda: f"no utilisation: {monitor.sm_util()}")
            equal(monitor.pids(), [child_of(idle)], "who is left")


@test
def interval():
    """RECORD_KERNEL_INTERVAL says how often the time of the last kernel is written"""
    with Place() as place, Load(place, RECORD_KERNEL_INTERVAL="100000"):
        with wait_for_region(place) as monitor:
            first = until(lambda: monitor.last_kernel_time, "a kernel's time")
            time.sleep(3)
            equal(monitor.last_kernel_time, first, "the time within the interval")


@test
def commands():
    """the monitor's commands hold the container and lift its limit, as before"""
    with Place() as place, Load(place, "--cores", "20"):
        with wait_for_region(place) as monitor:
            until(lambda: 8 <= monitor.sm_util() <= 35, lambda: f"a share of 20 %: {monitor.sm_util()}")
            monitor.recent_kernel = -1
            until(lambda: monitor.sm_util() == 0, lambda: f"no work while it is held: {monitor.sm_util()}")
            equal(monitor.recent_kernel, -1, "the command")
            monitor.recent_kernel = 1
            until(lambda: monitor.sm_util() >= 8, lambda: f"work again: {monitor.sm_util()}")
            equal(until(lambda: monitor.recent_kernel == 2, "recent_kernel"), True)


@test
def setters():
    """a limit that the monitor sets is the container's, at the next allocation or launch"""
    with Place() as place, Pump(place, "--memory", "2g", "--cores", "30") as pump:
        pump.does("context")
        with Monitor(place.region) as monitor:
            monitor.put("Q", 1600, 1024 * MIB)
            pump.does("allocate 1500", 2)
            monitor.put("Q", 1600, 4096 * MIB)
            monitor.put("Q", 1728, 60)
            pump.does("allocate 2500")
            said = tool(VGPU, "set", "--region", place.region, "--memory", "5g").stdout
            true("cores 60 %" in said, said)
            equal((monitor.limit(), monitor.sm_limit()), (5120 * MIB, 60), "after vgpu set")
            pump.does("allocate 1500")
            monitor.put("Q", 1600, 0)  # as a page that was emptied
            monitor.put("Q", 1728, 0)
            pump.does("allocate 1500", 2)
            equal((monitor.limit(), monitor.sm_limit()), (5120 * MIB, 60), "after zeroes")
            with Pump(place, "--memory", "2g", "--cores", "30") as other:
                other.does("context")
                equal((monitor.limit(), monitor.sm_limit()), (5120 * MIB, 60), "with a newcomer")


@test
def suspended():
    """the processes of a paused container are suspended"""
    with Place() as place, Load(place, "--cores", "50"):
        with wait_for_region(place) as monitor:
            until(lambda: monitor.sm_util() > 10, lambda: f"work: {monitor.sm_util()}")
            for command, status in (("pause", SUSPENDED), ("resume", RUNNING)):
                equal(tool(VGPU, command, "--region", place.region).returncode, 0, command)
                until(lambda: monitor.status(0) == status, lambda: f"{command}: {monitor.status(0)}")


@test
def hostile():
    """whatever a program writes there, nobody crashes, limits hold, and its place is right again"""
    with Place() as place, Pump(place, "--memory", "2g") as pump:
        pump.does("context")
        pump.does("allocate 10")
        with Monitor(place.region) as monitor:
            right = monitor.used()
            for fill in (b"\xff", b"\0", b"\x7f"):
                for start, end in ((0, 1600), (1856, 2008896), (2008896, 2008900)):
                    monitor.map[start:end] = fill * (end - start)
                pump.does("allocate 10")
                pump.does("free")
                pump.does("allocate 3000", 2)
                slot = monitor.slot(0)
                equal([monitor.get("Q", slot + 8 + 8 * k) for k in range(5)], right, "its own slot")
                with Pump(place, "--memory", "2g") as other:
                    other.does("context")
                    equal(monitor.head()[0], MAGIC, "the head after a newcomer")


@test
def another_file():
    """a file that takes the place of one that was deleted or shortened shows the same"""
    with Place() as place, Pump(place, "--memory", "2g") as pump:
        pump.does("context")
        pump.does("allocate 10")
        with Monitor(place.region) as monitor:
            right = monitor.used(), monitor.limit(), monitor.sm_limit(), monitor.pids()
        for take_away in (os.unlink, lambda path: os.truncate(path, 4096),
                          lambda path: os.truncate(path, 0)):
            take_away(place.region)
            time.sleep(0.02)
            pump.does("allocate 1")
            pump.does("free")
            with wait_for_region(place) as monitor:
                equal((monitor.used(), monitor.limit(), monitor.sm_limit(), monitor.pids()), right, "it")


tap.main()
