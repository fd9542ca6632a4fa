#!/usr/bin/env python3
# SPDX-License-Identifier: Apache-2.0
"""governor.py BUILD [BUILD ...] [--limit N] [--seconds N] [--rounds N] [--only LOAD,...]: what the library's
own thread takes of a core, and how often it wakes, while vgpu-load runs on the simulator under a limit. The
builds take turns; prints the median of the rounds, and the least and the most. On the simulator a driver's
calls cost what they cost there (a card: bench/compute.py), the library's own and its system calls what they do."""
import argparse
import os
import statistics
import subprocess
import tempfile
import time

import compute_watch

LOADS = {
    "full-10us": ["--shape", "full", "--kernel-us", "10"],
    "full-1ms": ["--shape", "full", "--kernel-us", "1000"],
    "full-5ms": ["--shape", "full", "--kernel-us", "5000"],
    "streams-1ms": ["--shape", "streams", "--kernel-us", "1000"],
    "graph": ["--shape", "graph"],
    "sync-100us": ["--shape", "sync", "--kernel-us", "100"],
    "hostbound": ["--shape", "hostbound"],
    "burst": ["--shape", "burst"],
    "requests": ["--shape", "sync", "--kernel-us", "100", "--period-ms", "10"],
    "persistent": ["--shape", "persistent"],
}
WARM_S = 1.5


def thread_of(pid):
    found = compute_watch.governors(pid)
    if not found:
        raise SystemExit("governor.py: the library has no thread: does BUILD hold libvgpu.so and src/sim/?")
    return found[0]


def used(task):
    """Nanoseconds on a processor, and how often it was put on one."""
    with open(f"{task}/schedstat", encoding="ascii") as file:
        ran, _, times = file.read().split()
    return int(ran), int(times)


def measure(build, load, limit, seconds):
    """(milliseconds, wakes) a second."""
    build = os.path.abspath(build)
    with tempfile.TemporaryDirectory() as directory:
        environment = dict(os.environ, VGPU_SIM="1xh200", LD_LIBRARY_PATH=f"{build}/src/sim",
                           CUDA_DEVICE_SM_LIMIT=str(limit), CUDA_DEVICE_MEMORY_SHARED_CACHE=f"{directory}/region",
                           LD_PRELOAD=f"{build}/libvgpu.so:{build}/src/sim/libvgpu-sim-rm.so")
        process = subprocess.Popen([f"{build}/vgpu-load", *LOADS[load], "--seconds", str(WARM_S + seconds + 2)],
                                   env=environment, stdout=subprocess.DEVNULL, stderr=subprocess.DEVNULL)
        time.sleep(WARM_S)
        task = thread_of(process.pid)
        begin, (ran, times) = time.monotonic(), used(task)
        time.sleep(seconds)
        passed, (ran_then, times_then) = time.monotonic() - begin, used(task)
        process.kill()
        process.wait()
    return (ran_then - ran) / 1e6 / passed, (times_then - times) / passed


def spread(values):
    return f"{statistics.median(values):.1f} ({min(values):.1f} to {max(values):.1f})"


def main():
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("builds", nargs="+", metavar="BUILD")
    parser.add_argument("--limit", type=int, default=20)
    parser.add_argument("--seconds", type=float, default=2)
    parser.add_argument("--rounds", type=int, default=5)
    parser.add_argument("--only", default=",".join(LOADS))
    options = parser.parse_args()
    print("| load | build | ms/s | wakes/s |\n| --- | --- | --- | --- |")
    for load in options.only.split(","):
        if load not in LOADS:
            parser.error(f"--only {load}: accepted: {', '.join(LOADS)}")
        found = {build: [] for build in options.builds}
        for _ in range(options.rounds):
            for build in options.builds:
                found[build].append(measure(build, load, options.limit, options.seconds))
        for build, pairs in found.items():
            took, wakes = zip(*pairs)
            print(f"| {load} | {build} | {spread(took)} | {spread(wakes)} |", flush=True)


if __name__ == "__main__":
    main()
