# SPDX-License-Identifier: Apache-2.0
"""Looks at a load from outside while it runs: the container's words in its region (docs/region.md),
its governor threads' CPU time, and how fast a changed limit comes into force."""
import bisect
import mmap
import os
import struct
import time

OFFSET = 2011136  # of our part of the file
FILE_BYTES = 11137792
DEVICE_COUNT = OFFSET + 32
SLOT_HIGH = OFFSET + 36
PRIORITY = OFFSET + 72
WINDOW_CLOSED = OFFSET + 80
WINDOW_UNTIL = OFFSET + 88
CORE_LIMIT = OFFSET + 256 + 72
COMPUTE = OFFSET + 8528128
COMPUTE_BYTES = 8320
DEVICES_SEEN = 8
CLOSURE_LOOK_S = 0.01  # the library's windows come at most each 50 ms
REACTION_TOLERANCE = 0.10


class Region:
    """The words of a region, once the file is there; None before."""

    def __init__(self, path):
        self.path, self.map = path, None

    def words(self):
        """(core limit, busy seconds, charged seconds), the times over all devices."""
        if not self.map:
            try:
                with open(self.path, "rb") as file:
                    if os.fstat(file.fileno()).st_size < FILE_BYTES:
                        return None
                    self.map = mmap.mmap(file.fileno(), FILE_BYTES, prot=mmap.PROT_READ)
            except OSError:
                return None
        count, = struct.unpack_from("I", self.map, DEVICE_COUNT)
        busy = charged = 0
        for device in range(min(count, DEVICES_SEEN)):
            _, taken, _, measured = struct.unpack_from("4Q", self.map, COMPUTE + device * COMPUTE_BYTES)
            busy, charged = busy + measured, charged + taken
        return struct.unpack_from("I", self.map, CORE_LIMIT)[0], busy / 1e9, charged / 1e9


    def closed_ns(self):
        """When the container's GPU was last closed; 0 never."""
        return struct.unpack_from("Q", self.map, WINDOW_CLOSED)[0] if self.map else 0

    def closed_until_ns(self):
        """Until when it is closed, by CLOCK_MONOTONIC; 0 it is open."""
        return struct.unpack_from("Q", self.map, WINDOW_UNTIL)[0] if self.map else 0

    def priority(self):
        return struct.unpack_from("I", self.map, PRIORITY)[0] if self.map else None

    def slot_high(self):
        return struct.unpack_from("I", self.map, SLOT_HIGH)[0] if self.map else 0


def read_text(path):
    try:
        with open(path, encoding="utf-8", errors="replace") as file:
            return file.read()
    except OSError:
        return ""


def descendants(root):
    """The process and all below it."""
    children = {}
    for name in os.listdir("/proc"):
        if name.isdigit():
            fields = read_text(f"/proc/{name}/stat").rpartition(")")[2].split()
            if fields:
                children.setdefault(int(fields[1]), []).append(int(name))
    found = [root]
    for pid in found:
        found += children.get(pid, [])
    return found


def governors(root):
    """Directories in /proc of the governor threads of the process and all below it."""
    found = []
    for pid in descendants(root):
        try:
            tasks = os.listdir(f"/proc/{pid}/task")
        except OSError:
            continue
        found += [f"/proc/{pid}/task/{task}" for task in tasks
                  if read_text(f"/proc/{pid}/task/{task}/comm").strip() == "vgpu-governor"]
    return found


def thread_cpu_s(directory):
    """None where it has ended."""
    run_ns = read_text(directory + "/schedstat").split()
    if run_ns:
        return int(run_ns[0]) / 1e9
    fields = read_text(directory + "/stat").rpartition(")")[2].split()
    return (int(fields[11]) + int(fields[12])) / os.sysconf("SC_CLK_TCK") if fields else None


class Watch:
    """Figures each `period_s` from when the load begins to use the device."""

    def __init__(self, root, region, processes):
        self.root, self.region, self.processes = root, Region(region), processes
        self.samples, self.began, self.threads = [], None, []
        self.closures, self.closed_ns = [], 0

    def look(self, marked=None):
        """Once; `marked`: whether the load has said that its window begins, None where it does not say."""
        now = time.monotonic()
        words = self.region.words()
        if not words:
            return
        if self.began is None and (words[2] > 0 if marked is None else marked):
            self.began = now
        if self.began is None:
            return
        if len(self.threads) < self.processes and len(self.samples) % 10 == 0:
            self.threads = governors(self.root)
        cpu = [thread_cpu_s(thread) for thread in self.threads]
        cpu = sum(cpu) if cpu and None not in cpu else None
        self.samples.append((now, *words[1:], cpu))

    def rest(self, seconds):
        """Waits, and notes meanwhile when the container was closed."""
        end = time.monotonic() + seconds
        while (left := end - time.monotonic()) > 0:
            time.sleep(min(left, CLOSURE_LOOK_S))
            closed = self.region.closed_ns()
            if closed != self.closed_ns:
                self.closures.append(time.monotonic())
            self.closed_ns = closed

    def over(self, after_s, seconds):
        """Shares of time over the window that begins at a time after the load did."""
        if self.began is None:
            return None
        begin = self.began + after_s
        inside = [each for each in self.samples if begin <= each[0] <= begin + seconds]
        if len(inside) < 2 or inside[-1][0] - inside[0][0] < seconds / 4:
            return None
        took = inside[-1][0] - inside[0][0]
        measured = {"busy": (inside[-1][1] - inside[0][1]) / took,
                    "charged": (inside[-1][2] - inside[0][2]) / took, "seconds": took,
                    "closures": sum(inside[0][0] <= when <= inside[-1][0] for when in self.closures) / took}
        timed = [each for each in inside if each[3] is not None]
        if len(timed) > 1 and timed[-1][0] > timed[0][0]:
            measured["governors"] = len(self.threads)
            measured["governor_cpu"] = (timed[-1][3] - timed[0][3]) / (timed[-1][0] - timed[0][0])
        return measured


def amount_at(times, amounts, when):
    """Of a growing amount, between its samples by proportion."""
    place = bisect.bisect_left(times, when)
    if place == 0:
        return amounts[0]
    if place == len(times):
        return amounts[-1]
    before, after = times[place - 1], times[place]
    part = (when - before) / (after - before) if after > before else 1
    return amounts[place - 1] + part * (amounts[place] - amounts[place - 1])


def share(times, amounts, begin, seconds):
    return (amount_at(times, amounts, begin + seconds) - amount_at(times, amounts, begin)) / seconds


def as_busy_time(times, work, seen):
    """The work of a load that counts in a unit of its own, as busy time: as much in all as the meter saw."""
    begin, end = max(times[0], seen[0][0]), min(times[-1], seen[-1][0])
    done = amount_at(times, work, end) - amount_at(times, work, begin)
    busy = amount_at(*map(list, zip(*seen)), end) - amount_at(*map(list, zip(*seen)), begin)
    return [each * busy / done for each in work] if done else work


def delay_until(times, amounts, changed, seconds, accepted):
    """How long after a change the share over the seconds that follow is accepted first; None: not within a
    second."""
    for step in range(1001):
        if accepted(share(times, amounts, changed + step / 1000, seconds)):
            return step / 1000
    return None


def reaction(times, amounts, changed, limit, seconds):
    """How a growing amount of work follows a limit changed at that time: how long until the share over
    the seconds that follow is within 10 % of it (None: not within a second), and shares after it."""
    wanted = limit / 100
    delay = delay_until(times, amounts, changed, seconds,
                        lambda now: abs(now - wanted) <= REACTION_TOLERANCE * wanted)
    return {"limit": limit, "reaction_s": delay, "share_0_50ms": share(times, amounts, changed, 0.05),
            "share_50_150ms": share(times, amounts, changed + 0.05, 0.1),
            "share_150_1150ms": share(times, amounts, changed + 0.15, 1.0)}
