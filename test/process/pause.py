# SPDX-License-Identifier: Apache-2.0
"""pause BUILD: what becomes of running programs when their container is paused, resumed, or told to
wait by HAMi's monitor."""
import contextlib
import json
import os
import re
import signal
import struct
import subprocess
import tempfile
import time

import tap
from tap import equal, test, true

from mine import BUILD, MINE, VGPU
from place import Place

LOAD = os.path.join(BUILD, "vgpu-load")
SWITCH, RECENT_KERNEL = 2008900, 2008904  # HAMi's layout
PAUSED = 2011136 + 68                     # docs/region.md
WINDOW_MS = 50
SETTLED = 0.3  # seconds after which what was on its way has ended
FORMS = ("full", "one-block", "graph", "cooperative", "persistent")
MEMORY, COMPUTE = ("--memory", "4g"), ("--cores", "60")


class Container:
    """A region and a machine of the test's own, and loads in it."""

    def __init__(self, *options, sim="1xh200"):
        self.scratch = tempfile.TemporaryDirectory(prefix="vgpu-test-pause-")
        self.directory = self.scratch.name
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
        self.scratch.cleanup()

    def load(self, *arguments, seconds="0", environment=None):
        """vgpu-load, which says when it is at work and what it did in each window of time."""
        program = subprocess.Popen(
            [VGPU, "run", *self.options, "--", LOAD, "--calibration", self.calibration, "--json",
             "--window-ms", str(WINDOW_MS), "--seconds", seconds, *arguments],
            env={**MINE, **(environment or {})}, stdout=subprocess.PIPE, stderr=subprocess.PIPE,
            text=True, start_new_session=True)
        self.programs.append(program)
        return program

    def order(self, command, *arguments):
        done = subprocess.run([VGPU, command, "--region", self.region, *arguments], env=MINE,
                              capture_output=True, text=True, timeout=30, check=False)
        equal((done.returncode, done.stderr), (0, ""), command)
        return time.monotonic_ns()

    def write(self, offset, value):
        with open(self.region, "r+b") as file:
            file.seek(offset)
            file.write(struct.pack("i", value))
        return time.monotonic_ns()

    def until_there(self):
        """Until a program has made the region, and is at work."""
        end = time.monotonic() + 30
        while not os.path.exists(self.region):
            true(time.monotonic() < end, "there is no region")
            time.sleep(0.01)
        time.sleep(1)


def finish(program):
    """Stops a load and reads its report."""
    for pid in children_of(program.pid):
        os.kill(pid, signal.SIGTERM)
    return report(program)


def children_of(pid):
    with open(f"/proc/{pid}/task/{pid}/children", encoding="ascii") as file:
        return [int(child) for child in file.read().split()]


WHY = re.compile(r"\[HAMI-core Msg\([^)]*\)\]: the container is paused(: work for the GPU waits until 'vgpu resume "
                 r"--pid \d+'| by HAMi's monitor: work for the GPU waits until it lets the container go on)\n")


def report(program):
    out, err = program.communicate(timeout=50)
    true(program.returncode == 0 and (not err or WHY.fullmatch(err)), f"status {program.returncode}, {err}")
    return json.loads(out)


def work_between(said, begin_ns, end_ns):
    """The work in the windows that lie wholly between two moments."""
    width = said["window_ms"] * 1000000
    return [work for i, work in enumerate(said["windows"])
            if said["begin_ns"] + i * width >= begin_ns
            and said["begin_ns"] + (i + 1) * width <= end_ns]


def check_stopped(said, paused_ns, resumed_ns, what=""):
    """Worked before, not in between, and again after."""
    between = work_between(said, paused_ns + int(SETTLED * 1e9), resumed_ns)
    true(len(between) >= 10, f"{what}: {len(between)} windows")
    equal(max(between), 0, f"{what}: work while paused, {between}")
    true(sum(work_between(said, 0, paused_ns)) > 0, f"{what}: no work before")
    true(sum(work_between(said, resumed_ns, 1 << 63)) > 0, f"{what}: no work after")


def pause_for(container, seconds=1.2):
    """Both moments."""
    paused_ns = container.order("pause")
    time.sleep(seconds)
    resumed_ns = time.monotonic_ns()
    container.order("resume")
    return paused_ns, resumed_ns


@test
def paused():
    """a paused program does no work, and goes on afterwards: with a limit of either kind, and with none"""
    for options in (MEMORY, COMPUTE, (*MEMORY, *COMPUTE), ()):
        with Container(*options) as container:
            program = container.load()
            container.until_there()
            moments = pause_for(container)
            time.sleep(0.7)
            check_stopped(finish(program), *moments, what=str(options))


@test
def shapes():
    """a pause stops all shapes of work"""
    for shape in ("one-block", "graph", "cooperative", "per-thread-stream", "streams", "sync", "hostbound",
                  "burst"):
        with Container(*MEMORY) as container:
            program = container.load("--shape", shape, "--kernel-us", "500")
            container.until_there()
            moments = pause_for(container)
            time.sleep(0.7)
            check_stopped(finish(program), *moments, what=shape)


@test
def explained():
    """a program that waits for a pause says once why, whether it started before the pause or after"""
    with Container(*MEMORY) as container:
        program = container.load()
        container.until_there()
        container.order("pause")
        late = container.load(seconds="0.1")
        for waiting in (program, late):
            line = waiting.stderr.readline()
            true(WHY.fullmatch(line) and f"--pid {children_of(waiting.pid)[0]}'" in line, line)
        for command in ("resume", "pause", "resume"):
            time.sleep(0.5)
            container.order(command)
        for waiting in (program, late):
            for pid in children_of(waiting.pid) if waiting.poll() is None else ():
                os.kill(pid, signal.SIGTERM)
            equal((waiting.communicate(timeout=50)[1], waiting.returncode), ("", 0), "what it says later")


@test
def explained_in_the_driver():
    """so does one whose kernel was stopped, while its thread waits in the driver"""
    with Container(*MEMORY) as container:
        program = container.load("--shape", "persistent", seconds="4")
        container.until_there()
        container.order("pause")
        true(WHY.fullmatch(program.stderr.readline()), "no word of the pause")
        container.order("resume")
        report(program)


@test
def quiet():
    """at LIBCUDA_LOG_LEVEL 0 it says nothing"""
    with Container(*MEMORY) as container:
        program = container.load(environment={"LIBCUDA_LOG_LEVEL": "0"})
        container.until_there()
        pause_for(container)
        time.sleep(0.5)
        for pid in children_of(program.pid):
            os.kill(pid, signal.SIGTERM)
        equal((program.communicate(timeout=50)[1], program.returncode), ("", 0), "what it says")


@test
def ended_while_paused():
    """vgpu-load ends by SIGTERM and SIGINT while it is paused, and says so; several processes of it too"""
    for number, arguments, status in ((signal.SIGTERM, (), -signal.SIGTERM), (signal.SIGINT, (), -signal.SIGINT),
                                      (signal.SIGTERM, ("--processes", "2"), 1)):
        with Container(*MEMORY) as container:
            program = container.load(*arguments)
            container.until_there()
            container.order("pause")
            late = container.load(*arguments)
            time.sleep(SETTLED)
            for waiting in (program, late):
                for pid in children_of(waiting.pid):
                    os.kill(pid, number)
            for waiting in (program, late):
                said = waiting.communicate(timeout=50)[1]
                equal(waiting.returncode, status, said)
                true("vgpu-load: no driver call returned for 5 s" in said, said)


@test
def persistent():
    """a pause stops a kernel that runs, which goes on where it was"""
    for options in (MEMORY, COMPUTE):
        with Container(*options) as container:
            program = container.load("--shape", "persistent", seconds="2.5")
            container.until_there()
            paused_ns = container.order("pause")
            time.sleep(5)
            true(program.poll() is None, f"{options}: a kernel of 2.5 s ended while it was paused")
            resumed_ns = time.monotonic_ns()
            container.order("resume")
            said = report(program)
            least = 2.5 + (resumed_ns - paused_ns) / 1e9 - SETTLED
            true(said["seconds"] >= least, f"{options}: it took {said['seconds']} s, not {least}")


@test
def several():
    """all programs of a container are paused, and one that comes meanwhile waits too"""
    with Container(*MEMORY) as container:
        programs = [container.load("--kernel-us", str(us)) for us in (300, 2000)]
        container.until_there()
        paused_ns = container.order("pause")
        late = container.load(seconds="0.1")
        time.sleep(1.5)
        true(late.poll() is None, "one that came meanwhile has done its work")
        resumed_ns = time.monotonic_ns()
        container.order("resume")
        report(late)
        for program in programs:
            check_stopped(finish(program), paused_ns, resumed_ns)


@test
def others():
    """a pause is of one container, and leaves the GPU to the others"""
    with Container(*MEMORY) as container, Container(*MEMORY) as other:
        other.options[1:3] = [other.region, container.options[2]]  # the same machine
        program, beside = container.load(), other.load()
        container.until_there()
        other.until_there()
        moments = pause_for(container)
        time.sleep(0.5)
        check_stopped(finish(program), *moments)
        true(min(work_between(finish(beside), moments[0] + int(SETTLED * 1e9), moments[1])) > 0,
             "the other container stood still")


@test
def tool_killed():
    """a program whose pausing tool was killed waits, until another process resumes it"""
    with Container(*MEMORY) as container:
        program = container.load()
        container.until_there()
        command = f"'{VGPU}' pause --region '{container.region}' && kill -KILL $$"
        subprocess.run(["sh", "-c", command], env=MINE, stdout=subprocess.DEVNULL, check=False)
        paused_ns = time.monotonic_ns()
        time.sleep(1.2)
        resumed_ns = time.monotonic_ns()
        container.order("resume")
        time.sleep(0.7)
        check_stopped(finish(program), paused_ns, resumed_ns)


@test
def killed_while_paused():
    """a paused program that is killed ends at once, and the others go on when they are resumed"""
    for shape in ("full", "persistent"):
        with Container(*MEMORY) as container:
            program, victim = container.load(), container.load("--shape", shape)
            container.until_there()
            paused_ns = container.order("pause")
            time.sleep(0.6)
            for pid in children_of(victim.pid):
                os.kill(pid, signal.SIGKILL)
            equal(victim.wait(timeout=20), -signal.SIGKILL, "the end")
            time.sleep(0.6)
            resumed_ns = time.monotonic_ns()
            container.order("resume")
            time.sleep(0.7)
            check_stopped(finish(program), paused_ns, resumed_ns, what=shape)


@test
def stopped_while_paused():
    """a paused program that is stopped and continued waits as before, and goes on when it is resumed"""
    with Container(*COMPUTE) as container:
        program = container.load()
        container.until_there()
        paused_ns = container.order("pause")
        for number in (signal.SIGSTOP, signal.SIGCONT):
            time.sleep(0.5)
            os.killpg(program.pid, number)
        time.sleep(0.7)
        resumed_ns = time.monotonic_ns()
        container.order("resume")
        time.sleep(0.7)
        check_stopped(finish(program), paused_ns, resumed_ns)


@test
def limits_while_paused():
    """a limit that is changed or taken away while the container is paused lets nothing run"""
    with Container(*COMPUTE) as container:
        program = container.load()
        container.until_there()
        paused_ns = container.order("pause")
        for percent in ("20", "0", "90", "0"):
            time.sleep(0.4)
            container.order("set", "--cores", percent)
        time.sleep(0.4)
        resumed_ns = time.monotonic_ns()
        container.order("resume")
        time.sleep(0.7)
        check_stopped(finish(program), paused_ns, resumed_ns)


@test
def replaced():
    """a container whose region's file is deleted while it is paused waits, and is resumed in the next"""
    with Container(*MEMORY) as container:
        program = container.load()
        container.until_there()
        paused_ns = container.order("pause")
        time.sleep(0.5)
        os.unlink(container.region)
        end = time.monotonic() + 20
        while not is_paused(container.region):
            true(time.monotonic() < end, "there is no other region that is paused")
            time.sleep(0.05)
        time.sleep(0.7)
        resumed_ns = time.monotonic_ns()
        container.order("resume")
        time.sleep(1.5)
        check_stopped(finish(program), paused_ns, resumed_ns)


def is_paused(path):
    with contextlib.suppress(FileNotFoundError), open(path, "rb") as file:
        file.seek(PAUSED)
        return file.read(4) == b"\1\0\0\0"
    return False


@test
def again_and_again():
    """a container that is paused and resumed many times has lost nothing of its work"""
    with Container(*MEMORY) as container:
        program = container.load("--kernel-us", "500")
        container.until_there()
        for i in range(30):
            container.order("pause" if i % 2 == 0 else "resume")
        time.sleep(0.8)
        said = finish(program)
        true(work_between(said, said["begin_ns"], 1 << 63)[-3] > 0, f"{said['windows'][-5:]} at the end")


@test
def memory():
    """a paused program can allocate memory and free it"""
    with Place() as place, place.program("--memory", "2g") as program:
        program.got(1)
        subprocess.run([VGPU, "pause", "--region", place.region], env=MINE, check=True,
                       stdout=subprocess.DEVNULL)
        program.got(10)
        program.refused(4000)


@test
def held_by_monitor():
    """recent_kernel below 0 holds a container as a pause does, and 0 or more lets it go on"""
    for options in (MEMORY, COMPUTE):
        with Container(*options) as container:
            program = container.load()
            container.until_there()
            held_ns = container.write(RECENT_KERNEL, -1)
            time.sleep(1.2)
            freed_ns = time.monotonic_ns()
            container.write(RECENT_KERNEL, 0)
            time.sleep(1)
            check_stopped(finish(program), held_ns, freed_ns, what=str(options))


@test
def seen_by_monitor():
    """recent_kernel is positive while programs work, and nobody raises it from below 0"""
    with Container(*COMPUTE) as container:
        container.load()
        container.until_there()
        container.write(RECENT_KERNEL, 0)
        end = time.monotonic() + 20
        while word(container, RECENT_KERNEL) <= 0:
            true(time.monotonic() < end, "recent_kernel stays 0")
            time.sleep(0.01)
        container.write(RECENT_KERNEL, -1)
        time.sleep(0.5)
        equal(word(container, RECENT_KERNEL), -1, "recent_kernel")


def word(container, offset):
    with open(container.region, "rb") as file:
        file.seek(offset)
        return struct.unpack("i", file.read(4))[0]


@test
def switched():
    """utilization_switch 0 lifts the compute limit, but not where the policy forces it"""
    for policy, lifted in (("default", True), ("force", False)):
        with Container("--cores", "20") as container:
            program = container.load(environment={"GPU_CORE_UTILIZATION_POLICY": policy})
            container.until_there()
            off_ns = container.write(SWITCH, 0)
            time.sleep(1.5)
            on_ns = container.write(SWITCH, 1)
            time.sleep(1.5)
            end_ns = time.monotonic_ns()
            said = finish(program)
            off = average(work_between(said, off_ns + int(SETTLED * 1e9), on_ns))
            on = average(work_between(said, on_ns + int(SETTLED * 1e9), end_ns))
            true(on < 0.35, f"{policy}: {on} of the device while the limit is in force")
            true(off > 0.5 if lifted else off < 0.35, f"{policy}: {off} of the device, switched off")


def average(values):
    return sum(values) / len(values)


tap.main()
