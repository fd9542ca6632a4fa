# SPDX-License-Identifier: Apache-2.0
"""Frameworks under `vgpu run --memory`, each program natively too: what it is told, where it is refused,
what NVML sees of it from outside, what it computes. Usage: frameworks.py BUILD [--only TEXT] [--raw FILE]"""
import argparse
import concurrent.futures
import json
import os
import shutil
import subprocess
import sys
import tempfile
import time

from watch import MIB, Card, Peak, Slice, check, failures

LIMIT_MIB, BLOCK_MIB = 10 * 1024, 64
XLA_MOST = {"XLA_CLIENT_MEM_FRACTION": ".99"}
# (name, program, its arguments, its environment, that of the native run, MiB of the limit that may
# stay unused when it is refused; None: it does not fill the slice)
CASES = [
    ("torch.compile, Triton", "torch_compile.py", [], {}, {}, BLOCK_MIB),
    ("DataLoader, spawn", "torch_data.py", ["spawn"], {}, {}, BLOCK_MIB),
    ("DataLoader, fork", "torch_data.py", ["fork"], {}, {}, BLOCK_MIB),
    ("JAX, preallocating", "jax_fill.py", ["preallocate"], {}, {"XLA_CLIENT_MEM_FRACTION": ".05"}, None),
    ("JAX, growing", "jax_fill.py", ["grow"], {"XLA_PYTHON_CLIENT_PREALLOCATE": "false", **XLA_MOST},
     {"XLA_PYTHON_CLIENT_PREALLOCATE": "false"}, 3 * BLOCK_MIB),
    ("JAX, platform allocator", "jax_fill.py", ["platform"], {"XLA_PYTHON_CLIENT_ALLOCATOR": "platform"},
     {"XLA_PYTHON_CLIENT_ALLOCATOR": "platform"}, BLOCK_MIB),
    ("JAX, cuda_async", "jax_fill.py", ["async"],
     {"XLA_PYTHON_CLIENT_ALLOCATOR": "cuda_async", "XLA_PYTHON_CLIENT_PREALLOCATE": "false", **XLA_MOST},
     {"XLA_PYTHON_CLIENT_ALLOCATOR": "cuda_async", "XLA_PYTHON_CLIENT_PREALLOCATE": "false"}, 2 * BLOCK_MIB),
    ("CUDA graphs", "torch_graphs.py", [], {}, {}, BLOCK_MIB),
    ("refused in a capture", "torch_graphs.py", ["capture"], {}, {}, BLOCK_MIB),
    *((f"PyTorch, {name}", "torch_allocators.py", [name], {"PYTORCH_CUDA_ALLOC_CONF": value},
       {"PYTORCH_CUDA_ALLOC_CONF": value}, 2 * BLOCK_MIB)
      for name, value in (("native", "backend:native"), ("cudaMallocAsync", "backend:cudaMallocAsync"),
                          ("expandable", "expandable_segments:True"))),
    ("CuPy, pool", "cupy_fill.py", ["pool"], {}, {}, BLOCK_MIB),
    ("CuPy, cudaMallocAsync", "cupy_fill.py", ["async"], {}, {}, 2 * BLOCK_MIB),
    ("Numba", "numba_fill.py", [], {}, {}, BLOCK_MIB),
]
parser = argparse.ArgumentParser()
parser.add_argument("build")
parser.add_argument("--only", default="")
parser.add_argument("--raw")
parser.add_argument("--lanes", type=int, default=4)
parser.add_argument("--seconds", type=float, default=100)
options = parser.parse_args()
build = os.path.abspath(options.build)
here = os.path.dirname(os.path.abspath(__file__))
scratch = tempfile.mkdtemp(prefix="vgpu-frameworks-")


class Run:
    """One program, natively or in a slice of its own, to its end or until its time is over."""

    def __init__(self, case, where, is_native):
        name, program, arguments, ours, native, _ = case
        log = f"{scratch}/{where.tag}.log"
        caches = {variable: f"{scratch}/{where.tag}-{variable}" for variable in
                  ("TORCHINDUCTOR_CACHE_DIR", "TRITON_CACHE_DIR", "CUPY_CACHE_DIR", "NUMBA_CACHE_DIR")}
        extra = dict(caches, TORCHINDUCTOR_COMPILE_THREADS="4", PYTHONDONTWRITEBYTECODE="1", PYTHONUNBUFFERED="1",
                     **(native if is_native else ours))
        command = [sys.executable, f"{here}/frameworks/{program}", *arguments]
        if not is_native:
            extra["VGPU_TEST_LIMIT_MIB"] = str(LIMIT_MIB)
            command = [f"{build}/vgpu", "run", "--memory", f"{LIMIT_MIB}m", "--region", where.path, "--", *command]
        began = time.monotonic()
        with open(log, "wb") as output:
            child = where.start(command, extra, stdout=output, stderr=subprocess.STDOUT)
            try:
                self.status = child.wait(options.seconds)
            except subprocess.TimeoutExpired:
                self.status = f"none after {options.seconds:.0f} s"
                where.kill()
        self.wall = time.monotonic() - began
        with open(log, encoding="utf-8", errors="replace") as file:
            self.lines = file.read().splitlines()
        said = [line for line in self.lines if line.startswith("OUTCOME ")]
        self.values = json.loads(said[-1][8:]) if said else None

    def library_lines(self):
        """What the library said beside its refusals."""
        return [line for line in self.lines if "HAMI-core" in line and " OOM " not in line]


def run_case(case, native_slice, ours_slice):
    return Run(case, native_slice, True), Run(case, ours_slice, False)


def same(a, b):
    return a == b or abs(a - b) <= 1e-4 * max(1, abs(a))


def judge(case, native, ours, where, card, most):
    name, slack_mib = case[0], case[5]
    if native.values is None or native.status != 0:
        print(f"SKIP: {name} does not run natively here, exit status {native.status}:")
        print("\n".join(f"#   {line[:200]}" for line in native.lines[-6:]))
        return
    check(f"{name}: exit status 0", ours.status == 0, ours.status)
    if ours.status != 0:
        print("\n".join(f"#   {line[:200]}" for line in ours.lines[-25:]))
    if ours.values is None:
        check(f"{name}: says what it found", False)
        return
    for what, good, detail in native.values["checks"]:
        if not good:
            print(f"# {name}, natively: not so: {what}: {detail}")
    native_bad = {what for what, good, _ in native.values["checks"] if not good}
    bad = [c for c in ours.values["checks"] if not c[1] and c[0] not in native_bad]
    for what, _, detail in bad:
        check(f"{name}: {what}", False, detail)
    check(f"{name}: what it was promised holds", not bad, f"{len(ours.values['checks']) - len(bad)} of "
          f"{len(ours.values['checks'])}")
    most_mib = most / MIB
    least = LIMIT_MIB - slack_mib - 8 if slack_mib is not None else 1
    check(f"{name}: NVML saw it fill the slice and never more", least <= most_mib <= LIMIT_MIB,
          f"most {most_mib:.0f} of {LIMIT_MIB} MiB")
    a, b = native.values.get("checksum"), ours.values.get("checksum")
    check(f"{name}: computes what it computes natively", a is not None and b is not None and same(a, b),
          f"{a!r}, {b!r}{'' if a == b else ' (not to the last bit)'}")
    if "same" in native.values:
        check(f"{name}: goes on as natively", native.values["same"] == ours.values.get("same"),
              f"natively: {native.values['same']}; in the slice: {ours.values.get('same')}")
    if ours.library_lines():
        print(f"# {name}: the library also said: {ours.library_lines()[0][:200]} ({len(ours.library_lines())} lines)")
    left = card.bytes_of(where.tag)
    living = [s["pid"] for s in where.region().slots() if s["locked"]] if where.region() else ["no region"]
    check(f"{name}: nothing of it is left", not left and not living, f"{left} bytes, slots {living}")


def table(results):
    print("\n| program | total, MiB | free at start | refused after | free then | refusal | most by NVML | "
          "checksum | work, s native | in the slice | whole run, s native | in the slice |")
    print("| --- |" + " --- |" * 11)
    for case, native, ours, most in results:
        n, v = native.values or {}, ours.values or {}

        def show(values, key, form=".0f"):
            return format(values[key], form) if key in values else "-"
        print(f"| {case[0]} | {show(v, 'total_mib')} | {show(v, 'free_mib')} | {show(v, 'filled_mib')} | "
              f"{show(v, 'free_at_refusal_mib')} | {v.get('refusal', '-')} | {most / MIB:.0f} | "
              f"{'-' if 'checksum' not in n else 'equal' if n['checksum'] == v.get('checksum') else 'near'} | {show(n, 'seconds', '.2f')} | "
              f"{show(v, 'seconds', '.2f')} | {native.wall:.1f} | {ours.wall:.1f} |")


def main():
    cases = [case for case in CASES if options.only in case[0]]
    card = Card(build)
    slices = [(Slice(build, "native", None), Slice(build, "frame", None)) for _ in cases]
    peak = Peak(card, [ours.tag for _, ours in slices])
    peak.start()
    # The first import reads gigabytes: none of the runs should pay for that.
    warm = subprocess.Popen([sys.executable, "-c", "import torch, triton, torch._inductor.compile_fx"],
                            stdout=subprocess.DEVNULL, stderr=subprocess.DEVNULL)
    try:
        warm.wait(60)
    except subprocess.TimeoutExpired:
        warm.kill()
    with concurrent.futures.ThreadPoolExecutor(options.lanes) as lanes:
        futures = [lanes.submit(run_case, case, *pair) for case, pair in zip(cases, slices)]
        results = []
        for case, (_, ours_slice), future in zip(cases, slices, futures):
            try:
                native, ours = future.result()
                judge(case, native, ours, ours_slice, card, peak.most[ours_slice.tag])
            except Exception as error:  # the other cases are run all the same
                check(f"{case[0]} is judged", False, f"{type(error).__name__}: {error}")
                continue
            results.append((case, native, ours, peak.most[ours_slice.tag]))
    peak.stop()
    table(results)
    if options.raw:
        with open(options.raw, "w", encoding="utf-8") as file:
            json.dump([{"case": case[0], "native": native.values, "slice": ours.values, "nvml_most": most,
                        "status": [native.status, ours.status], "wall": [native.wall, ours.wall],
                        "end_of_output": ours.lines[-30:]} for case, native, ours, most in results],
                      file, indent=1)
    for pair in slices:
        for where in pair:
            where.end()
    shutil.rmtree(scratch, ignore_errors=True)
    sys.exit(failures() != 0)


main()
