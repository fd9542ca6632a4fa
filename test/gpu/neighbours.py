# SPDX-License-Identifier: Apache-2.0
"""Several PyTorch processes in one slice, watched from outside by NVML. Usage: neighbours.py BUILD"""
import os
import signal
import subprocess
import sys
import tempfile
import time

import pynvml

build = sys.argv[1]
here = os.path.dirname(os.path.abspath(__file__))
limit_mib = 20 * 1024
failed = 0
pynvml.nvmlInit()
card = pynvml.nvmlDeviceGetHandleByIndex(0)


def check(what, good, detail=""):
    global failed
    failed += not good
    print(f"{'ok' if good else 'NOT OK'} - {what}: {detail}", flush=True)


def card_mib():
    return pynvml.nvmlDeviceGetMemoryInfo(card).used / 2**20


def seen_mib(workers):
    """What NVML gives for the workers together."""
    pids = {w.pid for w in workers}
    return sum(p.usedGpuMemory or 0 for p in pynvml.nvmlDeviceGetComputeRunningProcesses(card)
               if p.pid in pids) / 2**20


class Worker:
    def __init__(self, region):
        self.process = subprocess.Popen(
            [f"{build}/vgpu", "run", "--memory", f"{limit_mib}m", "--region", region,
             sys.executable, f"{here}/worker.py"],
            stdin=subprocess.PIPE, stdout=subprocess.PIPE, stderr=subprocess.DEVNULL, text=True)
        self.pid = None

    def tell(self, line):
        self.process.stdin.write(line + "\n")
        self.process.stdin.flush()

    def hear(self):
        return self.process.stdout.readline().strip()

    def ask(self, line):
        self.tell(line)
        return self.hear()

    def end(self):
        self.process.stdin.close()
        self.process.wait()


def start(count, region):
    workers = [Worker(region) for _ in range(count)]
    for worker in workers:
        worker.pid = int(worker.hear())
    return workers


def race(count):
    region = tempfile.mktemp(prefix="vgpu-neighbours-")
    workers = start(count, region)
    for worker in workers:
        worker.tell("storm 8")
    most, end = 0, time.time() + 8
    while time.time() < end:
        most = max(most, seen_mib(workers))
        time.sleep(0.02)
    answers = [worker.hear() for worker in workers]
    refused = sum(int(a.split()[1]) for a in answers)
    check(f"{count} racing processes never pass {limit_mib} MiB", most <= limit_mib,
          f"most seen by NVML {most:.0f} MiB, {refused} refusals")
    filled = int(workers[0].ask("fill 64"))
    total = seen_mib(workers)
    check("one fills what the others leave, to within 64 MiB", limit_mib - 66 <= total <= limit_mib,
          f"{filled} MiB more, {total:.0f} in all by NVML")
    smi = subprocess.run([f"{build}/vgpu", "run", "--region", region, "nvidia-smi"], text=True,
                         stdout=subprocess.PIPE, stderr=subprocess.DEVNULL).stdout
    print("\n".join(line for line in smi.splitlines() if "MiB" in line))
    check("nvidia-smi inside shows the slice's use", f"{limit_mib}MiB" in smi, "")
    victim = workers.pop(0)
    os.kill(victim.pid, signal.SIGKILL)
    victim.process.wait()
    losses = [float(worker.ask("train 20")) for worker in workers]
    check("one killed, the rest train on", all(l < 100 for l in losses), f"{len(losses)} losses")
    filled = int(workers[0].ask("fill 64"))
    check("its memory is free again", filled > 0.5 * (limit_mib - 700 * count), f"{filled} MiB allocated")
    for worker in workers:
        worker.end()
    os.unlink(region)


def forked_children():
    region = tempfile.mktemp(prefix="vgpu-neighbours-")
    before = card_mib()
    parent, other = start(2, region)
    filled = int(parent.ask("fill 1024"))
    child = int(parent.ask("fork 600"))
    both = card_mib()
    os.kill(parent.pid, signal.SIGKILL)
    parent.process.wait()
    time.sleep(0.5)
    held = card_mib()
    check("the card keeps a dead parent's memory while its child holds the descriptors",
          held > before + 0.9 * filled, f"{both - before:.0f} then {held - before:.0f} MiB")
    got = int(other.ask("fill 256"))
    check("and so does the slice", got < 1024, f"another process gets {got} MiB")
    other.ask("free")
    os.kill(child, signal.SIGKILL)
    time.sleep(1.0)
    got = int(other.ask("fill 256"))
    check("with the child gone the memory is there again", got > 0.9 * filled, f"{got} MiB")
    other.end()
    os.unlink(region)


race(2)
race(8)
forked_children()
sys.exit(failed != 0)
