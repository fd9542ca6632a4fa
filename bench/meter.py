# SPDX-License-Identifier: Apache-2.0
"""The meter beside NVML: loads that stay below their limit, so that the gate never closes, with the GPU time
that the container's region says was used beside NVML's utilisation. docs/benchmarks/README.md, "The meter"."""
import argparse
import json
import os
import shutil
import signal
import sys

import compute
from compute_loads import Load, shape

LIMIT = 95
GATE_PERCENT = 93.0  # a load that uses more may have waited at the gate


def hostbound(kernel_us, host_us):
    return shape(f"hostbound {kernel_us} us, gap {host_us} us", "paced", 0, "hostbound", kernel_us, "--host-us",
                 str(host_us))


PAIRS = [(kernel, kernel + 5) for kernel in (3, 5, 10, 20, 50)] + [(kernel, 4 * kernel) for kernel in (3, 10)]
LOADS = [hostbound(*pair) for pair in PAIRS] + [
    shape(f"launch and synchronise, {kernel} us", "paced", 0, "sync", kernel) for kernel in (5, 20, 100)] + [
    shape("bursts of 10 us kernels", "paced", 0, "burst", 10),
    shape("wait for a value between kernels", "paced", 0, "wait", 1000, "--pause-ms", "20"),
    Load("torch-mlp", "torch", 0, "training_mlp.py"),
    Load("a product and fills", "torch", 0, "memory.py", "fills"),
    Load("a product and copies on the card", "torch", 0, "memory.py", "copies"),
]


def parse():
    parser = argparse.ArgumentParser(prog="meter.py", description=__doc__)
    parser.add_argument("build", nargs="?", default="build", help="build directory (build)")
    parser.add_argument("--output", default="meter-table", metavar="DIR", help="raw rows, calibration and table")
    parser.add_argument("--seconds", type=float, default=3, help="measured window (3)")
    parser.add_argument("--warmup", type=float, default=0.3)
    parser.add_argument("--only", metavar="WORD", default="", help="loads whose name contains it")
    parser.add_argument("--python", default=sys.executable, help="the Python that has PyTorch")
    parser.add_argument("--sim", action="store_true", help="on the simulator, without PyTorch")
    return parser.parse_args()


def bench_of(options):
    more = ["--sim"] if options.sim else []
    return compute.Bench(compute.parse([options.build, "--output", options.output, "--seconds", str(options.seconds),
                                        "--warmup", str(options.warmup), "--python", options.python, *more]))


def row_of(raw):
    """A line of the table; None where nothing came of it."""
    watched, result = raw.get("watch"), raw.get("result") or {}
    if raw["error"] or not watched:
        return None
    nvml, busy = result["nvml_utilization"], 100 * watched["busy"]
    return {"load": raw["load"], "nvml": nvml, "busy": busy, "charged": 100 * watched["charged"],
            "difference": None if nvml is None else busy - nvml, "work": result["work_per_second"],
            "launches": result.get("launches_per_second"), "seconds": watched["seconds"]}


def text(value, form="{:.1f}"):
    return "-" if value is None else form.format(value)


def write(rows, options, out):
    if options.sim:
        print("Simulated: this says nothing of a card.", file=out)
    print(f"Under a limit of {LIMIT}, {options.seconds:g} s each: percent of the time, kernels' native time in a second\n",
          file=out)
    print("| load | NVML | meter | meter less NVML | meter / NVML | charged | work/s | launches/s | |", file=out)
    print("| --- | --- | --- | --- | --- | --- | --- | --- | --- |", file=out)
    for row in rows:
        ratio = row["busy"] / row["nvml"] if row["nvml"] else None
        near = "may have waited at the gate" if max(row["busy"], row["nvml"] or 0) > GATE_PERCENT else ""
        print(f"| {row['load']} | {text(row['nvml'])} | {row['busy']:.1f} | {text(row['difference'], '{:+.1f}')} | "
              f"{text(ratio, '{:.3f}')} | {row['charged']:.1f} | {row['work']:.4g} | {text(row['launches'], '{:.0f}')} | "
              f"{near} |", file=out)


def measure(options):
    bench = bench_of(options)
    loads = [load for load in LOADS if options.only in load.name]
    try:
        if options.sim:
            loads = [load for load in loads if not load.script]
        bench.calibrate()
        return [bench.measure(load, LIMIT, "vgpu") for load in loads]
    finally:
        shutil.rmtree(bench.scratch, ignore_errors=True)


def main():
    signal.signal(signal.SIGTERM, compute.stop)
    options = parse()
    measured = measure(options)
    rows = [row for row in map(row_of, measured) if row]
    with open(os.path.join(options.output, "table.md"), "w", encoding="utf-8") as file:
        write(rows, options, file)
    with open(os.path.join(options.output, "table.json"), "w", encoding="utf-8") as file:
        json.dump(rows, file, indent=1)
    write(rows, options, sys.stdout)
    for raw in measured:
        if not row_of(raw):
            print(f"not measured: {raw['load']}: {raw['error'] or 'the region said nothing'}")
    sys.exit(len(rows) != len(measured))


if __name__ == "__main__":
    main()
