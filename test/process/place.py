# SPDX-License-Identifier: Apache-2.0
"""A container of the test's own, programs in it that allocate when they are told to, and tools run on
it from outside."""
import os
import shutil
import subprocess
import sys
import tempfile

from tap import Skip, equal, true

from mine import MINE, VGPU

VARIABLE = "CUDA_DEVICE_MEMORY_SHARED_CACHE"
NOBODY = 65534
OFFSET = 2011136  # of our part, docs/region.md
FILE_BYTES = 11137792
DEVICES = OFFSET + 256
DEVICE_BYTES = 128
REFUSED = 2  # CUDA_ERROR_OUT_OF_MEMORY

# Answers each line "DEVICE MIB" on stdin with what an allocation of that size said.
PUMP = """
import ctypes, sys
cuda = ctypes.CDLL("libcuda.so.1")
assert cuda.cuInit(0) == 0
contexts = {}

def allocate(device, mib):
    if device not in contexts:
        context = ctypes.c_void_p()
        refused = cuda.cuDevicePrimaryCtxRetain(ctypes.byref(context), device)
        if refused:
            return refused
        contexts[device] = context
    cuda.cuCtxSetCurrent(contexts[device])
    return cuda.cuMemAlloc_v2(ctypes.byref(ctypes.c_uint64()), ctypes.c_size_t(mib << 20))

for line in sys.stdin:
    print(allocate(*map(int, line.split())), flush=True)
"""


def nobody_can_run(program):
    """Whether another user can run it and what was built here."""
    try:
        return os.getuid() == 0 and all(tool(word, "--version", user=NOBODY).returncode == 0
                                        for word in (program, VGPU))
    except OSError:
        return False


def need_nobody(*programs):
    """The first of them that another user can run."""
    for program in programs:
        if nobody_can_run(program):
            return program
    raise Skip("needs root, and a build and a Python that another user can run")


class Program:
    """A program in a container, which allocates when it is told to."""

    def __init__(self, *options, before=(), environment=None, python=sys.executable, **more):
        self.process = subprocess.Popen(
            [*before, VGPU, "run", *options, "--", python, "-c", PUMP],
            env={**MINE, **(environment or {})}, stdin=subprocess.PIPE, stdout=subprocess.PIPE,
            stderr=subprocess.PIPE, text=True, **more)

    def __enter__(self):
        return self

    def __exit__(self, *_):
        self.process.stdin.close()
        try:
            self.process.wait(timeout=20)
        finally:
            self.process.kill()
            self.process.stdout.close()
            self.process.stderr.close()

    def allocate(self, mib, device=0):
        self.ask(mib, device)
        return self.answer()

    def ask(self, mib, device=0):
        self.process.stdin.write(f"{device} {mib}\n")
        self.process.stdin.flush()

    def answer(self):
        answer = self.process.stdout.readline()
        if not answer:
            raise AssertionError(f"the program ended: {self.process.stderr.read(2000)}")
        return int(answer)

    def got(self, mib, device=0):
        equal(self.allocate(mib, device), 0, f"an allocation of {mib} MiB")

    def refused(self, mib, device=0):
        equal(self.allocate(mib, device), REFUSED, f"an allocation of {mib} MiB")


class Place:
    """A directory with a region and a machine of the test's own."""

    def __init__(self):
        self.directory = tempfile.mkdtemp(prefix="vgpu-test-set-")
        os.chmod(self.directory, 0o1777)
        self.region = self.directory + "/region"

    def __enter__(self):
        return self

    def __exit__(self, *_):
        shutil.rmtree(self.directory)

    def program(self, *options, sim="1xh200", **more):
        return Program("--region", self.region, f"--sim={sim},machine={self.directory}/machine",
                       *options, **more)


def tool(*command, environment=None, **more):
    return subprocess.run(command, env={**MINE, **(environment or {})}, capture_output=True,
                          text=True, timeout=30, check=False, **more)


def refused_line(done, status, *words):
    """The one line with which it was refused."""
    equal((done.returncode, done.stdout), (status, ""), f"status and output, {done.stderr!r}")
    line = done.stderr
    true(line.count("\n") == 1 and line.endswith("\n") and line[:-1].isprintable(), repr(line))
    for word in words:
        true(word in line, f"no {word!r} in {line!r}")
    return line


def read(path, offset, size):
    with open(path, "rb") as file:
        file.seek(offset)
        return file.read(size)


def child_of(program):
    """The command's own process, under `vgpu run` and what is before it."""
    pid = program.process.pid
    while children := read(f"/proc/{pid}/task/{pid}/children", 0, 4096).split():
        pid = int(children[0])
    return pid
