# SPDX-License-Identifier: Apache-2.0
"""launch.py BUILD ROUNDS [--launches N] [--raw FILE]: what vgpu adds to a launch on a driver whose calls return at
once (launch_driver.c): each case natively, under the library without a compute limit and with one that is not reached,
each round in a random order; medians (least to most) and what was added. On a card: cost.launch of `vgpu bench`."""
import argparse
import json
import os
import random
import statistics
import subprocess
import sys
import tempfile

# What is launched, streams, threads; turns of the processor in each launch of the driver, a kernel's nanoseconds.
CASES = {
    "kernel, one stream": ("kernel", 1, 1, 0, 0),
    "kernel, four streams in turn": ("kernel", 4, 1, 0, 0),
    "kernel, eight streams in turn": ("kernel", 8, 1, 0, 0),
    "kernel, 32 streams in turn": ("kernel", 32, 1, 0, 0),
    "kernel, two threads": ("kernel", 1, 2, 0, 0),
    "graph, one stream": ("graph", 1, 1, 0, 0),
    "graph, four streams in turn": ("graph", 4, 1, 0, 0),
    "kernel, each waited for": ("waited", 1, 1, 0, 0),
    "kernel, 5 ms after another, and its wait": ("rare", 1, 1, 0, 100000),
    "kernel, events 1 us further apart, launched in 1 us": ("kernel", 1, 1, 4000, 1000),
}
WAYS = {"native": None, "no limit": "0", "limit of 95": "95"}
RUN_S = 120
RARE_LAUNCHES = 400


def parse():
    parser = argparse.ArgumentParser(prog="launch.py", description=__doc__,
                                     formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("build", type=os.path.abspath)
    parser.add_argument("rounds", type=int)
    parser.add_argument("--launches", type=int, default=10_000_000)
    parser.add_argument("--raw", metavar="FILE")
    return parser.parse_args()


def preloaded(options, limit, folder):
    """The variables that put the library before a program, and say its limit."""
    return {"LD_PRELOAD": f"{options.build}/libvgpu.so", "CUDA_DEVICE_SM_LIMIT": limit,
            "CUDA_DEVICE_MEMORY_SHARED_CACHE": f"{folder}/region"} if limit is not None else {}


def output_of(command, environment):
    return subprocess.run(command, check=True, env=environment, stdout=subprocess.PIPE, stderr=subprocess.DEVNULL,
                          text=True, timeout=RUN_S).stdout


def run(options, case, limit):
    """[nanoseconds of the processor a launch, sleeps]"""
    what, streams, threads, loops, kernel_ns = CASES[case]
    count = RARE_LAUNCHES if what == "rare" else options.launches // 10 if loops else options.launches
    environment = dict(os.environ, STUB_LAUNCH_LOOPS=str(loops), STUB_KERNEL_NS=str(kernel_ns))
    with tempfile.TemporaryDirectory() as folder:
        if limit is not None:
            environment.update(preloaded(options, limit, folder), VGPU_LEDGER="rm")
        output = output_of([f"{options.build}/bench/launch", what, str(streams), str(threads), str(count)], environment)
    return [float(word) for word in output.split()]


def shown(values):
    return f"{statistics.median(values):.1f} ({min(values):.1f} to {max(values):.1f})"


def row(name, figures, more=""):
    native, free, limited = (statistics.median(figures[way]) for way in WAYS)
    return (f"| {name} | {shown(figures['native'])} | {shown(figures['no limit'])} | {free - native:.1f} "
            f"| {shown(figures['limit of 95'])} | {limited - native:.1f} |{more}")


def measure(options):
    raw = {case: {way: [] for way in WAYS} for case in CASES}
    for _ in range(options.rounds):
        for case in CASES:
            for way in random.sample(list(WAYS), len(WAYS)):
                raw[case][way].append(run(options, case, WAYS[way]))
    print(f"{options.launches:,} launches a run, {options.rounds} runs each, in random order; the thread's nanoseconds of "
          "a processor per launch: median (least to most)\n")
    print("| launches | native | no limit | added | limit that is not reached | added | sleeps a run |")
    print("| --- | --- | --- | --- | --- | --- | --- |")
    for case, ways in raw.items():
        slept = sum(run[1] for run in ways["limit of 95"])
        print(row(case, {way: [run[0] for run in runs] for way, runs in ways.items()},
                  f" {slept / options.rounds:.0f} |"))
    return raw


def main():
    options = parse()
    raw = measure(options)
    if options.raw:
        with open(options.raw, "w", encoding="utf-8") as file:
            json.dump(raw, file, indent=1)


if __name__ == "__main__":
    sys.exit(main())
