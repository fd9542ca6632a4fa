#!/usr/bin/env python3
# SPDX-License-Identifier: Apache-2.0
"""ps.py BUILD [--regions N] [--processes N] [--runs N]: how long `vgpu ps` takes where many containers
live. Makes regions as the library lays them out, and real processes that hold their slots' locks, so
that each command line is read and each lock is asked for. Prints medians and the extremes."""
import argparse
import ctypes
import fcntl
import os
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
    now = time.clock_gettime_ns(time.CLOCK_MONOTONIC)
    os.pwrite(fd, struct.pack("<QQQQ", now, now, now, 60 * 300000000), COMPUTE)
    marks = b"".join(struct.pack("<QQ", now - (60 - i) * 1000000000, i * 300000000) for i in range(60))
    os.pwrite(fd, struct.pack("<QQ", 60, 0) + marks, HISTORY)
    return fd


def start_time(pid):
    with open(f"/proc/{pid}/stat", encoding="ascii") as file:
        return int(file.read().rsplit(")", 1)[1].split()[19])


def write_slot(fd, index, pid, namespace):
    slot = struct.pack("<QQQ32sQQ", 1 << 32 | pid << 2 | 2, start_time(pid), namespace, b"python3", 1, 0)
    usage = struct.pack("<13Q", 40 * MIB, 0, 0, 0, 30 * MIB, MIB, 9 * MIB, 0, 0, 0, 0, 0, 1)
    os.pwrite(fd, slot, SLOTS + index * SLOT_BYTES)
    os.pwrite(fd, usage, SLOTS + index * SLOT_BYTES + 128)


def hold(path, index):
    """The lock of the slot, as the library holds it: of a process's own open file."""
    fd = os.open(path, os.O_RDWR)
    lock = struct.pack("hhqqi4x", fcntl.F_WRLCK, os.SEEK_SET, SLOTS + index * SLOT_BYTES, 1, 0)
    fcntl.fcntl(fd, F_OFD_SETLK, lock)


def start(path, index):
    """A process that holds the slot until this one ends."""
    pid = os.fork()
    if pid:
        return pid
    ctypes.CDLL(None).prctl(1, signal.SIGKILL)  # PR_SET_PDEATHSIG
    hold(path, index)
    while True:
        signal.pause()


def make(directory, regions, processes):
    namespace = os.stat("/proc/self/ns/pid").st_ino
    for i in range(regions):
        container = f"{directory}/{i:08x}-0000-4000-8000-000000000000_main"
        os.mkdir(container)
        path = f"{container}/region.cache"
        fd = write_region(path, processes)
        for slot in range(processes):
            write_slot(fd, slot, start(path, slot), namespace)
        os.close(fd)


def measure(command, runs):
    times = []
    for _ in range(runs):
        begin = time.monotonic()
        done = subprocess.run(command, stdout=subprocess.PIPE, check=True)
        times.append(1000 * (time.monotonic() - begin))
    return times, done.stdout


def main():
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("build")
    parser.add_argument("--regions", type=int, default=200)
    parser.add_argument("--processes", type=int, default=50)
    parser.add_argument("--runs", type=int, default=21)
    options = parser.parse_args()
    vgpu = os.path.join(os.path.abspath(options.build), "vgpu")
    with tempfile.TemporaryDirectory(prefix="vgpu-bench-ps-") as directory:
        make(directory, options.regions, options.processes)
        time.sleep(1)
        ways = (("ps, only there", ["ps", "--search", directory + "/*/*.cache"]),
                ("ps --json, only there", ["ps", "--json", "--search", directory + "/*/*.cache"]),
                ("ps, there and the usual places", ["ps", "--search", directory + "/*/*.cache:"]),
                ("vgpu --version, for comparison", ["--version"]))
        print(f"{options.regions} regions of {options.processes} processes, {os.cpu_count()} processors, "
              f"{options.runs} runs: milliseconds")
        for what, arguments in ways:
            times, out = measure([vgpu, *arguments], options.runs)
            if arguments[0] == "ps" and out.count(b"region.cache" if "--json" in arguments else b"_") < 0:
                sys.exit("not all were seen")
            print(f"  {what}: median {statistics.median(times):.1f}, least {min(times):.1f}, "
                  f"most {max(times):.1f}; {out.count(bytes([10]))} lines")


if __name__ == "__main__":
    main()
