#!/usr/bin/env python3
# SPDX-License-Identifier: Apache-2.0
"""ps.py BUILD [--regions N] [--processes N] [--runs N]: how long `vgpu ps` takes where many containers
live. Makes regions as the library lays them out, with real processes in held slots, so
that each command line is read and each lock is asked for. Prints medians and the extremes, by the clock
and of processors: on a loaded machine only the latter mean something."""
import argparse
import fcntl
import json
import os
import resource
import signal
import statistics
import struct
import subprocess
import sys
import tempfile
import time

OFFSET = 2011136  # of our part, docs/region.md
FILE_BYTES = 11137792
SLOTS, SLOT_BYTES = OFFSET + 8448, 8320
DEVICES, COMPUTE, HISTORY = OFFSET + 256, OFFSET + 8528128, OFFSET + 9060608
F_OFD_SETLK = 37
MIB = 1 << 20


def write_region(path, processes):
    """One device, limited to 4 GiB and 30 percent, and its head."""
    fd = os.open(path, os.O_RDWR | os.O_CREAT | os.O_EXCL, 0o666)
    os.ftruncate(fd, FILE_BYTES)
    os.pwrite(fd, struct.pack("<QIIQIIII", 0x3147455255504756, 4, 0x01020304, 9126656, 64, 1024, 1, processes),
              OFFSET)
    os.pwrite(fd, struct.pack("<48sQQQII", b"GPU-00000000-0000-0000-0000-000000000001", 4 << 30, 0, 0, 30, 0),
              DEVICES)
    os.pwrite(fd, struct.pack("<i", 1), 2008900)  # HAMi's utilization_switch, as in a new file
    now = max(time.clock_gettime_ns(time.CLOCK_MONOTONIC), 61 * 1000000000)  # of a machine just started
    os.pwrite(fd, struct.pack("<QQQQ", now, now, now, 60 * 300000000), COMPUTE)
    marks = b"".join(struct.pack("<QQ", now - (60 - i) * 1000000000, i * 300000000) for i in range(60))
    os.pwrite(fd, struct.pack("<QQ", 60, 0) + marks, HISTORY)
    return fd


def start_time(pid):
    with open(f"/proc/{pid}/stat", encoding="ascii") as file:
        return int(file.read().rsplit(")", 1)[1].split()[19])


def write_slot(fd, index, pid, namespace):
    slot = struct.pack("<QQQ32sQQ", 1 << 32 | pid << 2 | 2, start_time(pid), namespace, b"ps_work", 1, 0)
    usage = struct.pack("<13Q", 40 * MIB, 0, 0, 0, 30 * MIB, MIB, 9 * MIB, 0, 0, 0, 0, 0, 1)
    os.pwrite(fd, slot, SLOTS + index * SLOT_BYTES)
    os.pwrite(fd, usage, SLOTS + index * SLOT_BYTES + 128)


def hold(fd, processes):
    """The locks of all slots. By one open file, where each process has one of its own: a process that asks for them
    sees no difference."""
    for index in range(processes):
        lock = struct.pack("hhqqi4x", fcntl.F_WRLCK, os.SEEK_SET, SLOTS + index * SLOT_BYTES, 1, 0)
        fcntl.fcntl(fd, F_OFD_SETLK, lock)


def make(directory, regions, processes, pids):
    """Descriptors, which hold the locks."""
    namespace = os.stat("/proc/self/ns/pid").st_ino
    held = []
    for i in range(regions):
        container = f"{directory}/{i:08x}-0000-4000-8000-000000000000_main"
        os.mkdir(container)
        fd = write_region(f"{container}/region.cache", processes)
        hold(fd, processes)
        for slot in range(processes):
            write_slot(fd, slot, pids[i * processes + slot], namespace)
        held.append(fd)
    return held


def measure(command, runs):
    """Milliseconds of each run, by the clock and of processors, and what it wrote."""
    times, used = [], []
    for _ in range(runs):
        begin, before = time.monotonic(), resource.getrusage(resource.RUSAGE_CHILDREN)
        done = subprocess.run(command, stdout=subprocess.PIPE, check=True)
        after = resource.getrusage(resource.RUSAGE_CHILDREN)
        times.append(1000 * (time.monotonic() - begin))
        used.append(1000 * (after.ru_utime + after.ru_stime - before.ru_utime - before.ru_stime))
    return times, used, done.stdout


def main():
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("build")
    parser.add_argument("--regions", type=int, default=200)
    parser.add_argument("--processes", type=int, default=50)
    parser.add_argument("--runs", type=int, default=21)
    options = parser.parse_args()
    build = os.path.abspath(options.build)
    vgpu, count = os.path.join(build, "vgpu"), options.regions * options.processes
    signal.signal(signal.SIGTERM, lambda number, frame: sys.exit(128 + number))  # the processes end, too
    with (subprocess.Popen([os.path.join(build, "bench/ps_work"), str(count)], stdin=subprocess.PIPE,
                           stdout=subprocess.PIPE, start_new_session=True) as work,
          tempfile.TemporaryDirectory(prefix="vgpu-bench-ps-") as directory):
        pids = [int(work.stdout.readline()) for _ in range(count)]
        held = make(directory, options.regions, options.processes, pids)
        seen = json.loads(subprocess.run([vgpu, "ps", "--json", "--search", directory + "/*/*.cache"],
                                         stdout=subprocess.PIPE, check=True).stdout)["containers"]
        if sum(len(container["processes"]) for container in seen) != count:
            sys.exit("not all were seen")
        print(f"{options.regions} regions of {options.processes} processes, {os.cpu_count()} processors, load "
              f"{os.getloadavg()[0]:.1f}, {options.runs} runs: milliseconds, by the clock (and of processors)")
        for what, arguments in (("ps, only there", ["ps", "--search", directory + "/*/*.cache"]),
                                ("ps --json, only there", ["ps", "--json", "--search", directory + "/*/*.cache"]),
                                ("ps, there, the usual places and processes",
                                 ["ps", "--search", directory + "/*/*.cache:"]),
                                ("--version, for comparison", ["--version"])):
            times, used, out = measure([vgpu, *arguments], options.runs)
            print(f"  {what}: median {statistics.median(times):.1f} ({statistics.median(used):.1f}), least "
                  f"{min(times):.1f} ({min(used):.1f}), most {max(times):.1f} ({max(used):.1f}); {len(out)} bytes",
                  flush=True)
        for fd in held:
            os.close(fd)


if __name__ == "__main__":
    main()
