# SPDX-License-Identifier: Apache-2.0
"""raw BUILD: HAMi-core's raw-API test programs (test/raw) on the simulator: natively, in a slice, and
where the slice does not hold, which they must notice."""
import os
import re
import signal
import subprocess
import tempfile

import tap
from simulated import BUILD, environment, run
from tap import equal, test, true

DEVICE = ["test_alloc", "test_alloc_managed", "test_alloc_pitch", "test_create_array",
          "test_create_3d_array", "test_mem_create", "test_runtime_alloc", "test_runtime_alloc_managed"]
HOST = ["test_alloc_host", "test_host_alloc", "test_host_register", "test_runtime_alloc_host",
        "test_runtime_host_alloc", "test_runtime_host_register"]
LIMIT = "CUDA_DEVICE_MEMORY_LIMIT"


def command(name):
    return [os.path.join(BUILD, name)]


def passes(name, *words, arguments=(), **options):
    with tempfile.TemporaryDirectory() as directory:
        done = run(directory, *command(name), *arguments, **options)
    equal((done.returncode, done.stdout.splitlines()[-1]), (0, "passed"), f"{name}: {done.stdout}{done.stderr}")
    for word in words:
        true(word in done.stdout, f"{name}: no {word!r} in {done.stdout}")
    return done.stdout


def fails(name, word, **options):
    with tempfile.TemporaryDirectory() as directory:
        done = run(directory, *command(name), **options)
    equal(done.returncode, 1, f"{name}: {done.stdout}")
    true("FAILED: " in done.stdout and word in done.stdout, f"{name}: {done.stdout}")


def allocated(said):
    """MiB allocated, MiB that contexts hold, of test_vram_limit."""
    return [int(number) for number in
            re.search(r"(\d+) MiB were allocated, and contexts hold (\d+) MiB", said).groups()]


@test
def natively():
    """each of them passes without the library"""
    for name in DEVICE + HOST:
        passes(name, "no limit", ours=False)
    said = passes("test_vram_limit", "CUDA_ERROR_OUT_OF_MEMORY", ours=False, variables={"VGPU_SIM": "memory=8GiB"})
    true(re.search(r"^7[0-9]00 MiB were allocated$", said, re.M), said)


@test
def without_limit():
    """nor does the library change that where it sets no limit"""
    for name in DEVICE + HOST:
        passes(name, "no limit")


@test
def limited():
    """in a slice device memory counts whole, is refused at the limit, and the program goes on, by each ledger"""
    for variables in ({LIMIT: "1g"}, {LIMIT + "_0": "2049m"}, {LIMIT: "1g", "VGPU_LEDGER": "api"}):
        for name in DEVICE:
            passes(name, "of the whole device", "CUDA_ERROR_OUT_OF_MEMORY", "given back, it does not count",
                   "the program goes on", variables=variables)


@test
def host_memory():
    """in a slice pinned host memory takes nothing of the device"""
    for variables in ({LIMIT: "1g"}, {LIMIT: "1g", "VGPU_LEDGER": "api"}):
        for name in HOST:
            passes(name, "MiB of host memory", "the device reads and writes it", variables=variables)


@test
def vram_limit():
    """test_vram_limit ends with the refusal at the limit, and says what was allocated and what contexts hold"""
    for limit, total in (("1g", 1024), ("4g", 4096)):
        for ledger in ("auto", "api"):
            said = passes("test_vram_limit", f"{total} MiB by the limit", "CUDA_ERROR_OUT_OF_MEMORY",
                          "the program goes on", variables={LIMIT: limit, "VGPU_LEDGER": ledger})
            steps, contexts = allocated(said)
            true(steps % 100 == 0 and total - 100 < steps + contexts <= total and contexts > 0, said)


@test
def shared():
    """what another program of the container holds is missing from what test_vram_limit can have"""
    with tempfile.TemporaryDirectory() as directory:
        variables = environment(directory, **{LIMIT: "4g"})
        alone = allocated(run(directory, *command("test_vram_limit"), variables={LIMIT: "4g"}).stdout)[0]
        with subprocess.Popen([*command("test_alloc_hold"), "500"], env=variables, text=True,
                              stdout=subprocess.PIPE) as holder:
            while not (line := holder.stdout.readline()).startswith("pid"):
                true(line, "it ended")
            done = run(directory, *command("test_vram_limit"), variables={LIMIT: "4g"})
            holder.send_signal(signal.SIGTERM)
            rest = holder.stdout.read()
        equal((done.returncode, holder.returncode, rest.splitlines()[-1]), (0, 0, "passed"), done.stdout + rest)
        true(alone - allocated(done.stdout)[0] >= 500, f"{alone} MiB alone, {done.stdout}")
        equal(line, f"pid {holder.pid} holds 500 MiB\n")


@test
def unheld():
    """where the variable is set and the library is not there, each of them fails and says so"""
    for name in [*DEVICE, *HOST, "test_vram_limit", "test_alloc_hold"]:
        fails(name, "is libvgpu.so preloaded?", ours=False, variables={LIMIT: "1g"})
    fails("test_alloc", "is not a size", variables={LIMIT: "much"})


@test
def broken():
    """a refusal that comes too early, or by another error than the driver's own, is noticed"""
    early = "fail=cuMemAlloc_v2:3:2,fail=cuMemAlloc_v2:4:2"  # it is tried again once
    other = "fail=cuMemAlloc_v2:3:1"
    fails("test_vram_limit", "FAILED: refused at the limit and no earlier", variables={LIMIT: "4g", "VGPU_SIM": early})
    fails("test_vram_limit", "CUDA_ERROR_INVALID_VALUE (1)", variables={LIMIT: "4g", "VGPU_SIM": other})
    for name in ("test_alloc", "test_runtime_alloc"):
        fails(name, "CUDA_ERROR_OUT_OF_MEMORY", variables={LIMIT: "4g", "VGPU_SIM": early})


@test
def arguments():
    """what is not understood is one line and status 2"""
    for words in (["test_alloc_hold", "much"], ["test_alloc_hold", "1", "-1"], ["test_runtime_alloc", "--fast"]):
        with tempfile.TemporaryDirectory() as directory:
            done = run(directory, os.path.join(BUILD, words[0]), *words[1:])
        equal((done.returncode, done.stdout, done.stderr.count("\n")), (2, "", 1), done.stderr)
        true("accepted: " in done.stderr, done.stderr)


@test
def no_driver():
    """without a driver they say SKIP, and end with 77"""
    for name in ("test_alloc", "test_vram_limit", "test_runtime_alloc"):
        done = subprocess.run(command(name), env={"LD_LIBRARY_PATH": "/nonexistent"}, capture_output=True,
                              text=True, timeout=60, check=False)
        if "SKIP" not in done.stdout and os.path.exists("/proc/driver/nvidia"):
            raise tap.Skip("there is a driver here")
        equal(done.returncode, 77, done.stdout)
        true(done.stdout.startswith("SKIP: no CUDA driver"), done.stdout)


@test
def places():
    """they lie beside the library and in test/, as HAMi-core's users look for them"""
    for name in [*DEVICE, *HOST, "test_vram_limit", "test_alloc_hold"]:
        for directory in (BUILD, f"{BUILD}/test"):
            true(os.access(f"{directory}/{name}", os.X_OK), f"no {directory}/{name}")
    with tempfile.TemporaryDirectory() as directory:
        done = subprocess.run(["./test/test_alloc"], cwd=BUILD, env=environment(directory), text=True,
                              capture_output=True, timeout=60, check=False)
    equal(done.returncode, 0, done.stdout)


tap.main()
