# SPDX-License-Identifier: Apache-2.0
"""limit_python BUILD: the frameworks' limit tests (test/python). Here no framework works on the
simulator (it has no CUDA runtime), so that a stand-in for PyTorch allocates by the driver's API: what is
tried is the scripts' own judgement. On a card test/gpu/run runs them with the frameworks."""
import os
import subprocess
import sys
import tempfile

import tap
from simulated import environment
from tap import equal, test, true

PYTHON_TESTS = os.path.join(os.path.dirname(os.path.dirname(os.path.abspath(__file__))), "python")
SCRIPTS = ("limit_pytorch.py", "limit_tensorflow.py", "limit_tensorflow2.py", "limit_mxnet.py")
LIMIT = "CUDA_DEVICE_MEMORY_LIMIT"

STAND_IN = """
import ctypes
__version__ = "0 (a stand-in)"
float32 = None
driver = ctypes.CDLL("libcuda.so.1")
context = ctypes.c_void_p()
assert driver.cuInit(0) == 0 and driver.cuDevicePrimaryCtxRetain(ctypes.byref(context), 0) == 0
assert driver.cuCtxSetCurrent(context) == 0

class cuda:
    class OutOfMemoryError(RuntimeError):
        pass

    @staticmethod
    def device_count():
        return 1

class ones:
    def __init__(self, shape, **_):
        self.pointer, self.count = ctypes.c_uint64(), shape[0] * shape[1] * shape[2]
        result = driver.cuMemAlloc_v2(ctypes.byref(self.pointer), ctypes.c_size_t(self.count * 4))
        if result:
            raise (cuda.OutOfMemoryError if result == 2 else RuntimeError)(f"CUDA error {result}")

    def sum(self):
        return self

    def item(self):
        driver.cuMemFree_v2(self.pointer)
        return self.count
"""


def limit_test(script, *arguments, stand_in=False, ours=True, **variables):
    with tempfile.TemporaryDirectory() as directory:
        if stand_in:
            with open(f"{directory}/torch.py", "w", encoding="utf-8") as file:
                file.write(STAND_IN)
        variables = environment(directory, ours, PYTHONPATH=directory, PYTHONDONTWRITEBYTECODE="1", **variables)
        return subprocess.run([sys.executable, os.path.join(PYTHON_TESTS, script), *arguments], env=variables,
                              capture_output=True, text=True, timeout=100, check=False)


def torch(*arguments, **options):
    return limit_test(SCRIPTS[0], *arguments, stand_in=True, **options)


@test
def skipped():
    """each says SKIP and ends with 77 where its framework, or the framework's GPU, is missing"""
    for script in SCRIPTS:
        done = limit_test(script)
        equal(done.returncode, 77, f"{script}: {done.stdout}{done.stderr}")
        true(done.stdout.startswith("SKIP: "), done.stdout)
    done = torch("--device", "1")
    equal((done.returncode, "sees no CUDA device 1" in done.stdout), (77, True), done.stdout)


@test
def holds():
    """where the limit holds they pass: what fits is granted, what does not is refused, and they go on"""
    for variables in ({LIMIT: "1g"}, {LIMIT + "_0": "2048m"}):
        done = torch(**variables)
        equal((done.returncode, done.stdout.splitlines()[-1]), (0, "passed"), done.stdout + done.stderr)
        true("is refused with OutOfMemoryError" in done.stdout and "goes on" in done.stdout, done.stdout)
    done = torch()
    equal(done.returncode, 0, done.stdout)
    true("nothing is refused" in done.stdout, done.stdout)


@test
def shape():
    """a shape of one's own is granted or refused as its size says"""
    for text, word in (("1024, 1024, 1024", "4096 MiB"), ("512,512,256", "256 MiB")):
        done = torch("--tensor_shape", text, **{LIMIT: "2g"})
        equal(done.returncode, 0, done.stdout + done.stderr)
        true(f"a tensor of {word}" in done.stdout, done.stdout)


@test
def does_not_hold():
    """where it does not hold, or nothing is granted, they fail"""
    for options in ({"ours": False, LIMIT: "1g"}, {"ours": False, LIMIT: "much"}, {LIMIT: "530m"}):
        done = torch(**options)
        equal(done.returncode, 1, done.stdout)
        true("FAILED" in done.stdout + done.stderr, done.stdout)


@test
def own_error():
    """another error than the framework's out of memory does not pass for one"""
    done = torch(VGPU_SIM="fail=cuMemAlloc_v2:1:1", **{LIMIT: "1g"})
    true(done.returncode == 1 and "RuntimeError: CUDA error 1" in done.stderr, done.stdout + done.stderr)


tap.main()
