# SPDX-License-Identifier: Apache-2.0
"""What vgpu adds to a launch, on a driver whose calls return at once (bench/launch_driver.c): runs build/bench/launch
natively, under the library without a compute limit and with one that is not reached, each round in a random order, and
prints medians (least to most) and what was added. Usage: launch.py BUILD ROUNDS [--launches N] [--raw FILE]"""
import json
import os
import random
import statistics
import subprocess
import sys
import tempfile

build, rounds = os.path.abspath(sys.argv[1]), int(sys.argv[2])


def option(name, default):
    return sys.argv[sys.argv.index(name) + 1] if name in sys.argv else default


launches = int(option("--launches", "10000000"))
raw_path = option("--raw", None)
# What is launched, streams, threads; turns of the processor in each launch of the driver, a kernel's nanoseconds.
CASES = {
    "kernel, one stream": ("kernel", 1, 1, 0, 0),
    "kernel, four streams in turn": ("kernel", 4, 1, 0, 0),
    "kernel, eight streams in turn": ("kernel", 8, 1, 0, 0),
    "kernel, two threads": ("kernel", 1, 2, 0, 0),
    "graph, one stream": ("graph", 1, 1, 0, 0),
    "graph, four streams in turn": ("graph", 4, 1, 0, 0),
    "kernel, events 1 us further apart, launched in 1 us": ("kernel", 1, 1, 4000, 1000),
}
WAYS = {"native": None, "no limit": "0", "limit of 95": "95"}


def run(case, limit):
    what, streams, threads, loops, kernel_ns = CASES[case]
    count = launches // 10 if loops else launches
    environment = dict(os.environ, STUB_LAUNCH_LOOPS=str(loops), STUB_KERNEL_NS=str(kernel_ns))
    with tempfile.TemporaryDirectory() as folder:
        if limit is not None:
            environment.update(LD_PRELOAD=f"{build}/libvgpu.so", VGPU_LEDGER="rm", CUDA_DEVICE_SM_LIMIT=limit,
                               CUDA_DEVICE_MEMORY_SHARED_CACHE=f"{folder}/region")
        output = subprocess.run([f"{build}/bench/launch", what, str(streams), str(threads), str(count)], check=True,
                                env=environment, stdout=subprocess.PIPE, stderr=subprocess.DEVNULL, text=True).stdout
    return [float(word) for word in output.split()]


raw = {case: {way: [] for way in WAYS} for case in CASES}
for _ in range(rounds):
    for case in CASES:
        for way in random.sample(list(WAYS), len(WAYS)):
            raw[case][way].append(run(case, WAYS[way]))
print(f"{launches:,} launches a run, {rounds} runs each, in random order; the thread's nanoseconds of a processor per "
      "launch: median (least to most)\n")
print("| launches | native | no limit | added | limit that is not reached | added | sleeps a run |")
print("| --- | --- | --- | --- | --- | --- | --- |")
for case, figures in raw.items():
    slept = sum(run[1] for run in figures["limit of 95"])
    figures = {way: [run[0] for run in runs] for way, runs in figures.items()}
    shown = {way: f"{statistics.median(v):.1f} ({min(v):.1f} to {max(v):.1f})" for way, v in figures.items()}
    native, free, limited = (statistics.median(figures[way]) for way in WAYS)
    print(f"| {case} | {shown['native']} | {shown['no limit']} | {free - native:.1f} | {shown['limit of 95']} "
          f"| {limited - native:.1f} | {slept / rounds:.0f} |")
if raw_path:
    with open(raw_path, "w", encoding="utf-8") as file:
        json.dump(raw, file, indent=1)
