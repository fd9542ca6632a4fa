# SPDX-License-Identifier: Apache-2.0
"""Two tenants and a persistent kernel under limits that change all the time, pauses, and deaths; then whether the
card, its kernel log, its memory and the regions are as before."""
import json
import os
import random
import shutil
import subprocess
import sys
import tempfile
import time

import compute
import tenants_run
from compute_loads import BY_NAME
from compute_watch import FILE_BYTES
from tenants_loads import Tenant

LOADS = ("full-1ms", "full-100us", "persistent")
CHANGE_S, SAMPLE_S, LOOK_S = 2.0, 1.0, 0.05
DEATH_EVERY = 10         # changes
PAUSE_S = (0.3, 1.5)
ENDS_S = 30              # a load that was told to end has ended after
STARVED_S = 20           # a tenant that is neither paused nor starting has had some of the device
HEALTHY = 0.9            # of the work per second before
MEMORY_MIB = 16          # more in use than before
SLOTS = 8                # of a region that one process at a time uses
MEMORY = """
import ctypes
class Memory(ctypes.Structure):
    _fields_ = [("total", ctypes.c_ulonglong), ("free", ctypes.c_ulonglong), ("used", ctypes.c_ulonglong)]
nvml, device, memory = ctypes.CDLL("libnvidia-ml.so.1"), ctypes.c_void_p(), Memory()
nvml.nvmlInit_v2()
nvml.nvmlDeviceGetHandleByIndex_v2(0, ctypes.byref(device))
assert not nvml.nvmlDeviceGetMemoryInfo(device, ctypes.byref(memory))
print(memory.used >> 20)
"""


def kernel_log():
    """Its lines that name the driver; None where it cannot be read."""
    try:
        done = subprocess.run(["dmesg"], capture_output=True, text=True, errors="replace", timeout=20, check=False)
    except (OSError, subprocess.TimeoutExpired):
        return None
    return None if done.returncode else [line for line in done.stdout.splitlines() if "NVRM" in line or "Xid" in line]


class Soak:
    def __init__(self, bench, seconds, seed):
        self.bench, self.seconds, self.random = bench, seconds, random.Random(seed)
        self.place = tempfile.mkdtemp(dir=bench.scratch)
        os.mkdir(os.path.join(self.place, "boards"), 0o777)
        self.tenants = [Tenant(load, 30) for load in LOADS]
        self.running, self.paused_until = [None] * len(LOADS), [0.0] * len(LOADS)
        self.counts = {"changes": 0, "pauses": 0, "deaths": 0}
        self.wrong, self.samples = [], []
        self.before = [0.0] * len(LOADS)  # busy seconds
        self.fed = [time.monotonic()] * len(LOADS)  # had some of the device last
        self.end = 0.0

    def native(self, program):
        """What it prints, without a limit."""
        command, environment = self.bench.command("native", 0, "", program)
        environment["VGPU_SIM_MACHINE"] = os.path.join(self.place, "machine")
        done = subprocess.run(command, env=environment, capture_output=True, text=True, timeout=120, check=False)
        if done.returncode:
            self.wrong.append(f"{program[0]}: {done.stderr.strip()[-200:]}")
        return done.stdout

    def health(self):
        """(work per second by itself, MiB in use on the card)"""
        try:
            work = compute.report_in(self.native(self.bench.program(BY_NAME["full-1ms"], 1, 0.3)))
            used = int(self.native([sys.executable, "-c", MEMORY]) or -1)
        except (ValueError, subprocess.TimeoutExpired) as error:
            self.wrong.append(f"no health check: {error}")
            return 0.0, -1
        return work["work_per_second"], used

    def start(self, number):
        left = max(5.0, self.end - time.monotonic() + ENDS_S)
        tenant = self.tenants[number]
        program = self.bench.program(tenant.load, round(left, 1), 0)
        self.running[number] = tenants_run.Running(self.bench, tenant, "board", self.place, number,
                                                   [*program, "--window-ms", "1000"])
        self.fed[number] = time.monotonic()

    def tool(self, number, *arguments):
        command = [self.bench.vgpu, *arguments, "--region", self.running[number].region]
        done = subprocess.run(command, capture_output=True, text=True, timeout=20, check=False)
        if done.returncode:
            self.wrong.append(f"{' '.join(arguments)}: {done.stderr.strip()[-200:]}")

    def change(self):
        number = self.random.randrange(len(LOADS))
        if self.running[number].words.words() is None:
            return  # it has no region yet
        self.counts["changes"] += 1
        turn = self.counts["changes"]
        if turn % DEATH_EVERY == 0:
            self.counts["deaths"] += 1
            self.running[number].killed_s = time.monotonic()
            self.running[number].end()
            self.start(number)
        elif turn % 4 == 1 and not self.paused_until[number]:
            self.counts["pauses"] += 1
            self.tool(number, "pause")
            self.paused_until[number] = time.monotonic() + self.random.uniform(*PAUSE_S)
        else:
            self.tool(number, "set", "--cores", str(self.random.choice((0, 5, 10, 20, 30, 50, 70, 95))),
                      "--soft-cores", str(self.random.choice((0, 0, 100))), "--priority",
                      str(self.random.choice((1, 1, 1, 0))))

    def resume_due(self, now, every=False):
        for number, until in enumerate(self.paused_until):
            if until and (every or now >= until):
                self.tool(number, "resume")
                self.paused_until[number], self.fed[number] = 0.0, now

    def sample(self, now):
        """The tenants' shares of the device since the last, by their regions."""
        shares, passed = [], now - (self.samples[-1]["t"] if self.samples else now - SAMPLE_S)
        for number, each in enumerate(self.running):
            words = each.words.words() or (0, 0.0, 0.0)
            shares.append(round((words[1] - self.before[number]) / passed, 4))
            self.before[number] = words[1]
            if shares[-1] > 0 or self.paused_until[number]:
                self.fed[number] = now
            if each.process.poll() is not None:
                self.wrong.append(f"{LOADS[number]} ended: {each.end()[1]}")
                self.start(number)
        self.samples.append({"t": now, "shares": shares, "paused": [bool(each) for each in self.paused_until],
                             "limits": [(each.words.words() or (None,))[0] for each in self.running]})
        for number, when in enumerate(self.fed):
            # A tenant of lower priority may have to wait as long as the others work.
            if now - when > STARVED_S and not self.may_wait():
                self.wrong.append(f"{LOADS[number]} had nothing for {now - when:.0f} s")
                self.fed[number] = now

    def may_wait(self):
        return len({each.words.priority() for each in self.running}) > 1

    def go(self):
        began = time.monotonic()
        self.end = began + self.seconds
        for number in range(len(LOADS)):
            self.start(number)
        next_change, next_sample = began + CHANGE_S, began + SAMPLE_S
        while (now := time.monotonic()) < self.end:
            self.resume_due(now)
            if now >= next_change:
                self.change()
                next_change += CHANGE_S
            if now >= next_sample:
                self.sample(now)
                next_sample += SAMPLE_S
            time.sleep(LOOK_S)
        self.resume_due(time.monotonic(), every=True)
        self.finish()

    def finish(self):
        """All are told to end, and end by themselves."""
        for each in self.running:
            if each.process.poll() is None:
                each.process.terminate()
        until = time.monotonic() + ENDS_S
        while time.monotonic() < until and any(each.process.poll() is None for each in self.running):
            time.sleep(LOOK_S)
        for load, each in zip(LOADS, self.running):
            if each.process.poll() is None:
                self.wrong.append(f"{load} did not end in {ENDS_S} s")
            else:
                error = each.end()[1]
                if error:
                    self.wrong.append(f"{load}: {error}")
            each.kill()
            if os.path.getsize(each.region) != FILE_BYTES or each.words.slot_high() > SLOTS:
                self.wrong.append(f"{load}'s region: {os.path.getsize(each.region)} bytes, "
                                  f"{each.words.slot_high()} slots")

    def kill(self):
        for each in self.running:
            if each:
                each.kill()


def judge(soak, health, log):
    """What is wrong at the end beside what was on the way."""
    wrong = list(soak.wrong)
    (work, used), (work_after, used_after) = health
    if work_after < HEALTHY * work:
        wrong.append(f"work per second afterwards {work_after:.3f}, before {work:.3f}")
    if used_after > used + MEMORY_MIB:
        wrong.append(f"{used_after - used} MiB are still in use")
    before, after = log
    if before is not None and after is not None:
        wrong += [f"kernel log: {line}" for line in after[len(before):]]
    return wrong


def describe(soak, health, log, wrong):
    lines = [f"Soak, {soak.seconds:.0f} s, {', '.join(LOADS)}: " + ", ".join(
        f"{count} {what}" for what, count in soak.counts.items())]
    for number, load in enumerate(LOADS):
        shares = sorted(sample["shares"][number] for sample in soak.samples)
        if shares:
            lines.append(f"- {load}: {sum(shares) / len(shares):.3f} of the time on average, "
                         f"{shares[0]:.3f} to {shares[-1]:.3f} in a second")
    lines.append(f"- work per second by itself {health[0][0]:.3f} before, {health[1][0]:.3f} afterwards; "
                 f"{health[0][1]} MiB in use before, {health[1][1]} afterwards; kernel log "
                 + ("could not be read" if None in log else f"{len(log[1]) - len(log[0])} new lines of the driver"))
    return "\n".join(lines + [f"- NOT OK - {each}" for each in wrong]) + "\n"


def soak(bench, seconds, seed):
    run = Soak(bench, seconds, seed)
    if bench.options.sim:
        print("Simulated: this says nothing of a card.")
    log = [kernel_log()]
    health = [run.health()]
    try:
        run.go()
    finally:
        run.kill()
    health.append(run.health())
    log.append(kernel_log())
    wrong = judge(run, health, log)
    text = describe(run, health, log, wrong)
    with open(os.path.join(bench.options.output, "soak.jsonl"), "w", encoding="utf-8") as file:
        for sample in run.samples:
            file.write(json.dumps(sample) + "\n")
    with open(os.path.join(bench.options.output, "soak.md"), "w", encoding="utf-8") as file:
        file.write(text)
    print(text, end="")
    shutil.rmtree(run.place, ignore_errors=True)
    return not wrong
