# SPDX-License-Identifier: Apache-2.0
"""share BUILD: programs under a compute limit, as their own reports and the region's words say."""
import contextlib
import json
import os
import random
import shutil
import signal
import struct
import subprocess
import sys
import tempfile
import time

import tap
from tap import equal, test, true

from mine import BUILD, MINE, VGPU

LOAD = os.path.join(BUILD, "vgpu-load")
OFFSET = 2011136  # of our part, docs/region.md
SLOTS, SLOT_BYTES = OFFSET + 8448, 8320
COMPUTE = OFFSET + 8528128
GRANTED, CHARGED, REFILLED, BUSY = range(4)
SAVED = 0.1  # seconds whose share may be saved up
FORMS = ("full", "one-block", "graph", "cooperative", "persistent")

# Starts CUDA, launches nothing, and says how much processor time a second took.
IDLE = """
import ctypes, os, time
cuda = ctypes.CDLL("libcuda.so.1")
assert cuda.cuInit(0) == 0
context = ctypes.c_void_p()
assert cuda.cuDevicePrimaryCtxRetain(ctypes.byref(context), 0) == 0
best = 1
for _ in range(3):
    before = time.process_time()
    time.sleep(1)
    best = min(best, time.process_time() - before)
print(best, len(os.listdir("/proc/self/task")))
"""


class Container:
    """A region and a machine of the test's own."""

    def __init__(self, *options, sim="1xh200"):
        self.directory = tempfile.mkdtemp(prefix="vgpu-test-share-")
        self.region = self.directory + "/region"
        self.calibration = self.directory + "/calibration"
        # What the simulator's kernels do: one step a nanosecond.
        with open(self.calibration, "w", encoding="ascii") as file:
            json.dump({"calibrated_on": "NVIDIA H200",
                       **{form: {"steps_per_us": 1000, "overhead_us": 0} for form in FORMS}}, file)
        self.options = ["--region", self.region, f"--sim={sim},machine={self.directory}/machine",
                        *options]
        self.programs = []

    def __enter__(self):
        return self

    def __exit__(self, *_):
        for program in self.programs:
            with contextlib.suppress(ProcessLookupError):
                os.killpg(program.pid, signal.SIGKILL)
            program.wait()
            program.stdout.close()
            program.stderr.close()
        shutil.rmtree(self.directory)

    def start(self, *command, environment=None):
        program = subprocess.Popen([VGPU, "run", *self.options, "--", *command],
                                   env={**MINE, **(environment or {})}, stdout=subprocess.PIPE,
                                   stderr=subprocess.PIPE, text=True, start_new_session=True)
        self.programs.append(program)
        return program

    def load(self, *arguments, seconds="0"):
        return self.start(LOAD, "--calibration", self.calibration, "--seconds", seconds, *arguments)

    def report(self, *arguments, seconds="1.2"):
        program = self.load("--json", *arguments, seconds=seconds)
        out, err = program.communicate(timeout=50)
        equal((program.returncode, err), (0, ""), "status and messages")
        return json.loads(out)

    def set(self, *arguments):
        done = subprocess.run([VGPU, "set", "--region", self.region, *arguments], env=MINE,
                              capture_output=True, text=True, timeout=30, check=False)
        equal((done.returncode, done.stderr), (0, ""), "vgpu set")

    def words(self):
        with open(self.region, "rb") as file:
            file.seek(COMPUTE)
            return struct.unpack("4Q", file.read(32))

    def gpu_time(self, program):
        """What the region says of a program, in seconds; None where it has no slot."""
        pid = own_pid(program)
        if not os.path.exists(self.region):
            return None
        with open(self.region, "rb") as file:
            for slot in range(16):
                file.seek(SLOTS + slot * SLOT_BYTES)
                entry = file.read(256)
                word = struct.unpack_from("Q", entry)[0]
                if word & 3 == 2 and (word & 0xffffffff) >> 2 == pid:
                    return struct.unpack_from("Q", entry, 128 + 72)[0] / 1e9
        return None

    def busy_share(self, seconds):
        """The container's share of the time that the next seconds turn out to be."""
        start, busy = time.monotonic(), self.words()[BUSY]
        time.sleep(seconds)
        return (self.words()[BUSY] - busy) / 1e9 / (time.monotonic() - start)

    def until_busy(self, programs):
        """Waits until the region has seen each of them work."""
        end = time.monotonic() + 30
        while not all(self.gpu_time(program) for program in programs):
            true(time.monotonic() < end, "a program does no work")
            time.sleep(0.01)


def own_pid(program):
    """The command's, under `vgpu run`."""
    pid, end = program.pid, time.monotonic() + 30
    while True:
        try:
            with open(f"/proc/{pid}/task/{pid}/children", encoding="ascii") as file:
                children = file.read().split()
        except FileNotFoundError as error:  # it was there a moment ago, as one that another came after
            if program.poll() is not None or time.monotonic() > end:
                raise AssertionError(f"{pid} has gone; vgpu run: {program.poll()}") from error
            pid = program.pid
            continue
        if not children:
            return pid
        pid = int(children[0])


def at_most(share, percent, seconds, what):
    bound = percent / 100 * (1 + SAVED / seconds) + 0.03
    true(share <= bound, f"{what}: {share:.3f} of the device at {percent} %")


def limited(container, programs, percent, seconds=1.2):
    """No more than the limit, and in one of some attempts most of it."""
    shares = []
    for _ in range(4):
        shares.append(container.busy_share(seconds))
        at_most(shares[-1], percent, seconds, f"{len(programs)} programs")
        if shares[-1] > 0.75 * percent / 100:
            return
    raise AssertionError(f"{shares} at {percent} %")


@test
def shapes():
    """each shape of vgpu-load does no more work than its limit, and most of that"""
    for shape, low in (("full", 0.7), ("one-block", 0.7), ("graph", 0.7), ("cooperative", 0.7),
                       ("per-thread-stream", 0.7), ("streams", 0.6), ("sync", 0.5), ("copies", 0.5)):
        with Container("--cores", "25") as container:
            best = 0
            for _ in range(4):
                report = container.report("--shape", shape, "--kernel-us", "400", "--warmup", "0.3")
                at_most(report["work_per_second"], 25, report["seconds"], shape)
                best = max(best, report["work_per_second"])
                if best > low * 0.25:
                    break
            true(best > low * 0.25, f"{shape}: {best} at 25 %")


@test
def little():
    """a load that needs less than its limit is not slowed down"""
    with Container("--cores", "60") as container:
        best = min((container.report("--shape", "burst", "--burst-ms", "5", "--period-ms", "50",
                                     "--kernel-us", "200")["latency_us"]["p50"]
                    for _ in range(3)), default=0)
        true(5000 <= best < 8000, f"bursts of 5 ms take {best} us")


@test
def changed():
    """a limit that is set, changed and removed holds for all programs that run, within a second"""
    with Container() as container:
        programs = [container.load("--kernel-us", str(us)) for us in (300, 1000, 2000)]
        time.sleep(1)
        equal(container.words()[GRANTED], 0, "granted without a limit")
        container.set("--cores", "20")
        time.sleep(0.7)
        container.until_busy(programs)
        limited(container, programs, 20)
        container.set("--cores", "60")
        time.sleep(0.7)
        limited(container, programs, 60)
        container.set("--cores", "10")
        time.sleep(0.7)
        limited(container, programs, 10)
        container.set("--cores", "0")
        time.sleep(0.7)
        before = container.words()
        time.sleep(0.5)
        equal(container.words()[REFILLED], before[REFILLED], "the time of the last grant")


@test
def fair():
    """four programs with kernels of other lengths have a fair part each of their container's share"""
    with Container("--cores", "40") as container:
        programs = [container.load("--kernel-us", str(us)) for us in (100, 500, 2000, 5000)]
        container.until_busy(programs)
        time.sleep(0.5)
        before = [container.gpu_time(program) for program in programs]
        limited(container, programs, 40, 2)
        parts = [container.gpu_time(program) - then for program, then in zip(programs, before)]
        for part in parts:
            true(sum(parts) / 12 < part < sum(parts) / 2, f"parts {parts}")


def kill(program):
    """Its own child may have been another for a moment, which then was killed in its place."""
    while program.poll() is None:
        with contextlib.suppress(ProcessLookupError, AssertionError):
            os.kill(own_pid(program), signal.SIGKILL)
        with contextlib.suppress(subprocess.TimeoutExpired):
            program.wait(timeout=0.5)


@test
def killed():
    """programs that are killed at random moments take nothing from the others for good"""
    seed = random.randrange(1 << 30)
    chance = random.Random(seed)
    with Container("--cores", "30") as container:
        kept = [container.load("--kernel-us", str(us)) for us in (400, 1000)]
        container.until_busy(kept)
        for _ in range(10):
            victim = container.load("--kernel-us", "700")
            time.sleep(chance.random() * 0.3)
            kill(victim)
        before = [container.gpu_time(program) for program in kept]
        limited(container, kept, 30)
        for program, then in zip(kept, before):
            true(container.gpu_time(program) > then + 0.05, f"one starves (seed {seed})")


@test
def alone_again():
    """the last program of a container has all of its share once the others ended"""
    with Container("--cores", "40") as container:
        programs = [container.load("--kernel-us", "500") for _ in range(3)]
        container.until_busy(programs)
        for program in programs[1:]:
            os.kill(own_pid(program), signal.SIGTERM)
            program.wait(timeout=20)
        time.sleep(0.3)
        limited(container, programs[:1], 40)


@test
def idle():
    """a program under a limit that launches nothing uses no processor time, and has no thread more"""
    with Container("--cores", "30") as container:
        program = container.start(sys.executable, "-c", IDLE)
        out, err = program.communicate(timeout=30)
        equal((program.returncode, err), (0, ""), "status and messages")
        used, threads = out.split()
        true(float(used) < 0.01, f"{used} s of a second")
        equal(threads, "1", "threads")


@test
def governor():
    """under a limit that is worked to the full the library's thread takes little of a core"""
    with Container("--cores", "30") as container:
        program = container.load("--kernel-us", "1000")
        container.until_busy([program])
        shares = []
        for _ in range(4):
            before, start = governor_seconds(own_pid(program)), time.monotonic()
            time.sleep(1.5)
            shares.append((governor_seconds(own_pid(program)) - before) / (time.monotonic() - start))
        true(min(shares) <= 0.02, f"{shares} of a core")


def governor_seconds(pid):
    for task in os.listdir(f"/proc/{pid}/task"):
        with open(f"/proc/{pid}/task/{task}/stat", encoding="ascii") as file:
            name, fields = file.read().split(" (", 1)[1].rsplit(") ", 1)
        if name == "vgpu-governor":
            fields = fields.split()
            return (int(fields[11]) + int(fields[12])) / os.sysconf("SC_CLK_TCK")
    raise AssertionError("there is no governor")


@test
def disabled():
    """a program whose policy switches compute limits off keeps to none, and others of its container do"""
    with Container("--cores", "10") as container:
        program = container.start(LOAD, "--calibration", container.calibration, "--seconds", "1",
                                  "--json", environment={"GPU_CORE_UTILIZATION_POLICY": "disable"})
        out, err = program.communicate(timeout=40)
        equal((program.returncode, err), (0, ""), "status and messages")
        true(json.loads(out)["work_per_second"] > 0.3, out)
        equal(container.words()[CHARGED], 0, "charged")
        at_most(container.report()["work_per_second"], 10, 1.2, "the other")


tap.main()
