# SPDX-License-Identifier: Apache-2.0
"""ways.py BUILD: libraries that reach the driver by RTLD_NEXT or were loaded with RTLD_DEEPBIND, on a card.

Runs itself under `vgpu run` in each of several roles. PyTorch, cuDNN and NCCL are the installed ones; what is
absent is said and left out. Exit status 0 where every promise was kept.
"""
import ctypes
import glob
import json
import os
import subprocess
import sys
import time

BUILD = os.path.realpath(sys.argv[1])
ROLE = sys.argv[2] if len(sys.argv) > 2 else None
GIB = 1 << 30
WAYS = ["RTLD_NEXT", "RTLD_DEFAULT", "a handle", "RTLD_NOLOAD", "RTLD_DEEPBIND", "RTLD_GLOBAL", "dlvsym", "main",
        "cuGetProcAddress by RTLD_NEXT", "linked"]
DEEP = os.RTLD_NOW | os.RTLD_DEEPBIND


def find_library(package, pattern):
    """The library of a wheel beside PyTorch, or None."""
    for place in sys.path:
        for path in sorted(glob.glob(os.path.join(place, "nvidia", package, "lib", pattern))):
            return path
    return None


def resident_kib():
    with open("/proc/self/status", encoding="ascii") as status:
        return next(int(line.split()[1]) for line in status if line.startswith("VmRSS"))


def role_deepbind_cost():
    """A library without CUDA that is loaded with RTLD_DEEPBIND."""
    before, start = resident_kib(), time.perf_counter()
    ctypes.CDLL("libz.so.1", mode=DEEP)
    seconds = time.perf_counter() - start
    return {"ms": seconds * 1e3, "kib": resident_kib() - before}


def role_ways(deep):
    """The status of a 2 GiB allocation under 1 GiB, by each way that finds the function."""
    library = ctypes.CDLL(f"{BUILD}/test/hook/libtest-library-ways.so", mode=DEEP if deep else os.RTLD_NOW)
    library.library_way.restype = ctypes.c_void_p
    cuda = ctypes.CDLL("libcuda.so.1")
    context = ctypes.c_void_p()
    assert cuda.cuInit(0) == 0
    assert cuda.cuDevicePrimaryCtxRetain(ctypes.byref(context), 0) == 0
    assert cuda.cuCtxSetCurrent(context) == 0
    results = {}
    for way, name in enumerate(WAYS):
        function = library.library_way(way, b"cuMemAlloc_v2")
        pointer = ctypes.c_uint64()
        if function:
            allocate = ctypes.CFUNCTYPE(ctypes.c_int, ctypes.c_void_p, ctypes.c_size_t)(function)
            results[name] = allocate(ctypes.addressof(pointer), 2 * GIB)
    return results


def role_torch(deep):
    """Matrix products a second over 4 s, and whether an allocation over the limit is refused; cuDNN and NCCL work."""
    if deep:
        sys.setdlopenflags(DEEP)
    import torch
    a = torch.randn(4096, 4096, device="cuda", dtype=torch.bfloat16)
    for _ in range(20):
        a @ a
    torch.cuda.synchronize()
    start, count = time.perf_counter(), 0
    while time.perf_counter() - start < 4:
        for _ in range(20):
            a @ a
        torch.cuda.synchronize()
        count += 20
    rate = count / (time.perf_counter() - start)
    try:
        torch.empty(9 * GIB, dtype=torch.uint8, device="cuda")
        refused = False
    except torch.OutOfMemoryError:
        refused = True
    convolved = torch.nn.Conv2d(3, 16, 3).cuda()(torch.randn(8, 3, 64, 64, device="cuda"))
    import torch.distributed as dist
    os.environ.update(MASTER_ADDR="127.0.0.1", MASTER_PORT="29577", RANK="0", WORLD_SIZE="1")
    dist.init_process_group("nccl", device_id=torch.device("cuda:0"))
    ones = torch.ones(1 << 20, device="cuda")
    dist.all_reduce(ones)
    torch.cuda.synchronize()
    dist.destroy_process_group()
    return {"rate": rate, "refused": refused, "cudnn": torch.backends.cudnn.version(),
            "conv": bool(torch.isfinite(convolved).all()), "nccl": float(ones.sum()) == float(1 << 20)}


def role_library(package, pattern, create):
    """A library of NVIDIA's by itself, with RTLD_DEEPBIND: its first call makes a context."""
    path = find_library(package, pattern)
    if not path:
        return {"absent": package}
    library = ctypes.CDLL(path, mode=DEEP)
    handle = ctypes.c_void_p()
    status = getattr(library, create)(ctypes.byref(handle))
    cuda = ctypes.CDLL("libcuda.so.1")
    free, total = ctypes.c_size_t(), ctypes.c_size_t()
    cuda.cuMemGetInfo_v2(ctypes.byref(free), ctypes.byref(total))
    return {"status": status, "total": total.value}


ROLES = {
    "cost": role_deepbind_cost,
    "ways": lambda: role_ways(False),
    "ways-deep": lambda: role_ways(True),
    "torch": lambda: role_torch(False),
    "torch-deep": lambda: role_torch(True),
    "cudnn": lambda: role_library("cudnn", "libcudnn.so.*", "cudnnCreate"),
    "cublas": lambda: role_library("cu13", "libcublas.so.*", "cublasCreate_v2"),
}


def run(role, *options, environment=None):
    """What the role returns; None where it failed, and its last lines are printed."""
    command = [sys.executable, os.path.realpath(__file__), BUILD, role]
    if options:
        command = [f"{BUILD}/vgpu", "run", *options, "--", *command]
    child = subprocess.run(command, capture_output=True, text=True, timeout=150, check=False,
                           env={**os.environ, **(environment or {})})
    lines = child.stdout.splitlines()
    if child.returncode != 0 or not lines:
        print(f"# {role} {' '.join(options)}: status {child.returncode}")
        print("\n".join("#   " + line for line in child.stderr.splitlines()[-5:]))
        return None
    return json.loads(lines[-1])


def main():
    failed = 0

    def check(what, good, detail):
        nonlocal failed
        failed += not good
        print(f"{'ok' if good else 'NOT OK'} - {what}: {detail}", flush=True)

    native, cost = run("cost"), run("cost", "--memory", "1GiB")
    print(f"# dlopen of libz with RTLD_DEEPBIND: natively {native}, under vgpu {cost}")
    for ledger in ("rm", "api"):
        for role in ("ways", "ways-deep"):
            got = run(role, "--memory", "1GiB", environment={"VGPU_LEDGER": ledger}) or {}
            check(f"{role} are refused over the limit, {ledger} ledger",
                  len(got) >= 6 and set(got.values()) == {2}, got)
    for role in ("cudnn", "cublas"):
        got = run(role, "--memory", "8GiB") or {}
        if "absent" in got:
            print(f"# SKIP {role}: {got}")
        else:
            check(f"{role} with RTLD_DEEPBIND works and sees the limit",
                  got.get("status") == 0 and got.get("total") == 8 * GIB, got)
    rates = {}
    for role in ("torch", "torch-deep"):
        free = run(role)
        if not free:
            print(f"# SKIP {role}: PyTorch does not work so without vgpu")
            continue
        for ledger in ("rm", "api"):
            held = run(role, "--memory", "8GiB", "--cores", "30", environment={"VGPU_LEDGER": ledger}) or {}
            rate = held.get("rate", 0)
            plain = rates.setdefault(ledger, rate)
            # More than 0.30 of native: the card clocks higher for a product of its full power that rests in between.
            good = 0.28 < rate / free["rate"] < 0.40 and 0.95 < rate / plain < 1.05
            check(f"{role} at 30 % and 8 GiB, {ledger} ledger",
                  good and held["refused"] and held["conv"] and held["nccl"],
                  f"{rate / free['rate']:.3f} of native, {held}")
    return int(failed > 0)


if ROLE:
    print(json.dumps(ROLES[ROLE]()))
else:
    sys.exit(main())
