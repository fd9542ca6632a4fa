# SPDX-License-Identifier: Apache-2.0
"""calls BUILD: the system calls of a program with CUDA (steps.c), natively and under the library, as
strace shows them."""
import os
import pathlib
import re
import shutil
import subprocess
import tempfile

import tap
from both import PATH
from simulated import BUILD, run
from tap import Skip, equal, test, true

STEPS = os.path.join(BUILD, "test/process/process-steps")
TIMES = 100  # of each step, as in steps.c
LIMIT = {"CUDA_DEVICE_MEMORY_LIMIT": "8g"}


def traced(start):
    """What strace wrote of what start(directory, its file) ran, which returns how that ended."""
    if not shutil.which("strace", path=PATH):
        raise Skip("no strace here")
    with tempfile.TemporaryDirectory() as directory:
        output = os.path.join(directory, "trace")
        done = start(directory, output)
        if not os.path.exists(output) or not os.path.getsize(output):
            raise Skip(f"strace cannot trace here: {done.stderr[:80]}")
        equal(done.returncode, 0, f"{done.stderr[-300:]}: status")
        with open(output, encoding="utf-8", errors="replace") as file:
            return file.read().replace(directory, "DIRECTORY")


def trace(ours, **variables):
    """The lines of the program and of what it starts."""
    text = traced(lambda directory, output: run(directory, STEPS, ours=ours, variables=variables,
                                                before=("strace", "-f", "-qq", "-o", output)))
    # From the program's own start on: env comes before it.
    return text[text.index(f'execve("{STEPS}"'):].splitlines()


def names(lines):
    return [found[1] for found in (re.match(r"\d+ +(\w+)\(", line) for line in lines) if found]


def phases(lines):
    """The calls of each phase, by name."""
    found, current = {}, None
    for line in lines:
        marked = re.search(r'write\(-1, "(\w+)"', line)
        if marked:
            current = None if marked[1] == "end" else found.setdefault(marked[1], [])
        elif current is not None:
            current.append(line)
    return {name: names(inside) for name, inside in found.items()}


BY_NAME = ("open", "openat", "access", "faccessat", "faccessat2", "stat", "lstat", "newfstatat", "statx",
           "readlink", "readlinkat", "mkdir", "mkdirat", "unlink", "unlinkat", "rename", "chmod", "execve", "chdir")


def paths(lines):
    """What is opened or looked at by its name."""
    found = (re.match(r'\d+ +(\w+)\((?:\w+, )?"([^"]+)"', line) for line in lines)
    return {match[2] for match in found if match and match[1] in BY_NAME}


# What a step may take more than natively, on the average: a few looks at the region's file and the
# guard around it (docs/region.md), twice what was seen. Where nothing stands, nothing.
# A launch looks after orders each 5 ms.
BY_RM = {"linear": 16, "view": 8, "refused": 8, "nvml": 8, "launch": 0.3}
BY_API = dict(BY_RM, small=16, refused=16, **{"async": 16})
UNLIMITED = dict(BY_RM, refused=50)  # the driver's own refusal, after all that the pools could give
NEVER = {"open", "openat", "read", "readlink", "nanosleep", "clock_nanosleep", "poll"}


def bounded(bounds, **variables):
    native, ours = phases(trace(False, **variables)), phases(trace(True, **variables))
    equal(sorted(ours), sorted(native), "phases")
    for name in native:
        more = (len(ours[name]) - len(native[name])) / TIMES
        true(more <= bounds.get(name, 0.1),
             f"{name}: {more} system calls more at each step: {sorted(set(ours[name]))}")
        new = set(ours[name]) - set(native[name])
        true(not new & NEVER, f"{name}: {sorted(new)}")


@test
def by_rm():
    """a CUDA call takes a few system calls more than natively, a launch none but each 5 ms"""
    bounded(BY_RM, **LIMIT)


@test
def by_api():
    """also under the API ledger"""
    bounded(BY_API, VGPU_LEDGER="api", **LIMIT)


@test
def without_limit():
    """also without a limit"""
    bounded(UNLIMITED)


@test
def no_thread():
    """no process is made and no timer set, and no thread but one that waits for a pause where there is a limit"""
    made = ("clone", "clone3", "fork", "vfork", "timer_create", "timerfd_create", "setitimer", "alarm",
            "execve", "exit", "kill", "tgkill", "umask", "chdir")
    for variables in (LIMIT, {}, dict(LIMIT, VGPU_LEDGER="api")):
        native, ours = names(trace(False, **variables)), names(trace(True, **variables))
        true(len(native) > 1000 and len(ours) > len(native), f"{len(native)} and {len(ours)} calls were seen")
        threads = [calls.count("clone") + calls.count("clone3") for calls in (ours, native)]
        equal(threads[0] - threads[1], 1 if variables else 0, f"threads under {variables}")
        others = [name for name in made if not name.startswith("clone") or name.startswith("clock")]
        equal([(name, ours.count(name)) for name in others], [(name, native.count(name)) for name in others])
        # The simulated driver sleeps now and then on a loaded computer.
        sleeps = [calls.count("nanosleep") + calls.count("clock_nanosleep") for calls in (ours, native)]
        true(sleeps[0] <= sleeps[1] + 2, f"sleeps: {sleeps}")


@test
def few_files():
    """of files the region's, the grant's, the registries', /overrideEnv, two of its own process and vgpu-controller's are looked at beside the driver's; no cgroup is"""
    above = {str(directory) for directory in pathlib.Path(tempfile.gettempdir(), "any").parents} - {"/"}
    wanted = above | {"DIRECTORY", "DIRECTORY/region", "/etc/vgpu/region", "/etc/vgpu/limits.d/grant", "/overrideEnv", "/proc/self/ns/pid",
                      "/proc/self/stat", "/etc/vgpu-manager/vgpu.config", os.path.join(BUILD, "libvgpu.so")}
    for variables in (LIMIT, {}, dict(LIMIT, VGPU_LEDGER="api")):
        lines = trace(True, **variables)
        boards = {path for path in paths(lines) if path.startswith("DIRECTORY/boards")} if variables else set()
        equal(paths(lines) - paths(trace(False, **variables)) - wanted - boards, set(), "files")
        true("DIRECTORY/region" in paths(lines), "no region was made")


LAUNCH = os.path.join(BUILD, "bench/launch")  # on a driver whose calls return at once
FEW, MANY = 100000, 1100000


def launch_calls(launches, limit):
    """How many system calls the thread makes that launches so often; other threads are not traced."""
    def start(directory, output):
        environment = {"PATH": PATH, "LD_PRELOAD": os.path.join(BUILD, "libvgpu.so"), "VGPU_LEDGER": "rm",
                       "CUDA_DEVICE_SM_LIMIT": str(limit),
                       "CUDA_DEVICE_MEMORY_SHARED_CACHE": os.path.join(directory, "region")}
        settings = [f"-E{name}={value}" for name, value in environment.items()]
        return subprocess.run(["strace", "-qq", "-o", output, *settings, LAUNCH, "kernel", "1", "1", str(launches)],
                              capture_output=True, text=True, timeout=120, check=False)
    return len(traced(start).splitlines())


@test
def usual_launches():
    """the usual launch makes no system call, without a limit and under one that is not reached"""
    for limit in (0, 95):
        more = launch_calls(MANY, limit) - launch_calls(FEW, limit)
        # One in 384 is looked at closely, between two calls that guard the region (docs/decisions/0006).
        true(more < (MANY - FEW) / (100 if limit else 1000), f"{more} system calls in {MANY - FEW} launches at a limit of {limit}")


tap.main()
