# SPDX-License-Identifier: Apache-2.0
"""What the preload adds to the start of a trivial program: runs `true` natively, with a preload that
does nothing and with libvgpu.so, in a random order in each round, and prints a table of the times and
of their differences. Usage: start.py BUILD [ROUNDS] [--raw FILE] [COMMAND...]"""
import argparse
import json
import os
import platform
import random
import shutil
import statistics
import time

RUNS = 50  # in a row for one figure, so that the clock and the scheduler weigh little


def start_us(program, arguments, environment):
    """Mean time of a start, from posix_spawn to the end of the process, in microseconds."""
    begin = time.monotonic_ns()
    for _ in range(RUNS):
        pid = os.posix_spawn(program, arguments, environment)
        os.waitpid(pid, 0)
    return (time.monotonic_ns() - begin) / RUNS / 1000


def quantiles(values):
    ordered = sorted(values)
    return (statistics.median(ordered), ordered[len(ordered) // 20], ordered[-1 - len(ordered) // 20])


def row(name, values):
    median, low, high = quantiles(values)
    return f"| {name} | {median:,.0f} | {low:,.0f} to {high:,.0f} |"


def main():
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("build")
    parser.add_argument("rounds", nargs="?", type=int, default=100)
    parser.add_argument("--raw")
    parser.add_argument("command", nargs="*", default=["true"])
    options = parser.parse_args()
    program = shutil.which(options.command[0])
    clean = {"PATH": os.environ["PATH"], "HOME": "/", "CUDA_DEVICE_MEMORY_LIMIT": "1g"}
    cases = {"native": clean,
             "empty preload": dict(clean, LD_PRELOAD=f"{options.build}/test/process/libtest-empty.so"),
             "libvgpu.so": dict(clean, LD_PRELOAD=f"{options.build}/libvgpu.so")}
    times = {name: [] for name in cases}
    for _ in range(options.rounds):
        for name in random.sample(list(cases), len(cases)):
            times[name].append(start_us(program, options.command, cases[name]))
    print(f"`{' '.join(options.command)}`, {options.rounds} rounds of {RUNS} starts each, in random order; "
          f"{platform.release()}, {os.cpu_count()} cores; load {os.getloadavg()[0]:.1f}\n")
    print("| start of | median, us | 5th to 95th percentile |\n| --- | --- | --- |")
    for name, values in times.items():
        print(row(name, values))
    for name in ("empty preload", "libvgpu.so"):
        added = [ours - native for ours, native in zip(times[name], times["native"])]
        print(row(f"added by {name}", added))
    if options.raw:
        with open(options.raw, "w", encoding="utf-8") as file:
            json.dump(times, file, indent=1)


main()
