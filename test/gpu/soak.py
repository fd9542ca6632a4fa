# SPDX-License-Identifier: Apache-2.0
"""Mixed load in two slices for some minutes, with a sample each 5 s of what its long-lived processes
use; soak_report.py says whether that is flat. Usage: soak.py BUILD DIR [--minutes M] [--sim]"""
import argparse
import json
import os
import random
import signal
import subprocess
import sys
import threading
import time

from watch import MIB, Card, Peak, Slice, sim_begin, until

parser = argparse.ArgumentParser()
parser.add_argument("build")
parser.add_argument("directory")
parser.add_argument("--minutes", type=float, default=20)
parser.add_argument("--period", type=int, default=5)
parser.add_argument("--sim", action="store_true")
options = parser.parse_args()
build = os.path.abspath(options.build)
here = os.path.dirname(os.path.abspath(__file__))
LIMIT_MIB = 2048 if options.sim else 20 * 1024
BLOCK_MIB = 16 if options.sim else 256
CHURN = f"{build}/test/gpu/churn"


class Load:
    """A long-lived process; its output is kept in the directory."""

    def __init__(self, name, where, command, stop):
        self.name, self.where, self.stop = name, where, stop
        self.log = f"{options.directory}/{name.replace(' ', '-').replace(',', '')}.log"
        with open(self.log, "wb") as output:
            self.process = where.start(command, stdin=subprocess.PIPE, stdout=output, stderr=subprocess.STDOUT)
        self.pid = self.process.pid

    def figures(self):
        with open(f"/proc/{self.pid}/stat", "rb") as file:
            stat = file.read().rsplit(b")", 1)[1].split()
        return {"rss": int(stat[21]) * 4096, "threads": int(stat[17]), "fds": len(os.listdir(f"/proc/{self.pid}/fd"))}

    def end(self):
        """Its exit status, None where it had to be killed."""
        try:
            if self.stop == "input":
                self.process.stdin.close()
            else:
                self.process.terminate()
            return self.process.wait(60)
        except (OSError, subprocess.TimeoutExpired):
            self.process.kill()
            return None


class Passers(threading.Thread):
    """Short-lived processes of a slice, one after another: half of them killed, the others end."""

    def __init__(self, where, seed):
        super().__init__(daemon=True)
        self.where, self.chance = where, random.Random(seed)
        self.count = self.killed = self.refused = self.bad = 0
        self.stopping = False

    def run(self):
        while not self.stopping:
            kills = self.chance.random() < 0.5
            command = [CHURN, "--max", str(4 * BLOCK_MIB), "--block", str(BLOCK_MIB), "--threads", "2", "--seed",
                       str(self.count), "--seconds", f"{self.chance.uniform(0.1, 1.0):.2f}"]
            child = self.where.start(command + ["--abrupt"] * (self.count % 3 == 0), stdout=subprocess.PIPE)
            if kills:
                time.sleep(self.chance.uniform(0, 1.0))
                child.kill()
            try:
                output = child.communicate(timeout=60)[0]
            except subprocess.TimeoutExpired:
                child.kill()
                output = child.communicate()[0]
                self.bad += 1
            self.where.children.remove(child)
            self.count += 1
            self.killed += kills
            self.refused += b"refused cu" in output or b"OUT_OF_MEMORY" in output
            self.bad += child.returncode not in (0, -9) and b"OUT_OF_MEMORY" not in output
            time.sleep(0.5)


class Smi(threading.Thread):
    """nvidia-smi in the slice, again and again."""

    def __init__(self, where):
        super().__init__(daemon=True)
        self.where = where
        self.count = self.bad = 0
        self.stopping = options.sim

    def run(self):
        while not self.stopping:
            try:
                output = subprocess.run(["nvidia-smi"], env=self.where.environment(), stdout=subprocess.PIPE,
                                        stderr=subprocess.DEVNULL, timeout=30, check=False, text=True).stdout
            except subprocess.TimeoutExpired:
                output = ""
            self.count += 1
            self.bad += f"{LIMIT_MIB}MiB" not in output
            for _ in range(50):
                if not self.stopping:
                    time.sleep(0.1)


def accounts(card, loads):
    """{pid: (region, NVML)}: looked at until each stands still and agrees, or for 200 ms."""
    best = {}
    end = time.monotonic() + 0.2

    def region_bytes():
        return {load.pid: load.where.region().bytes_of(load.pid) for load in loads if load.where.region()}
    before = region_bytes()
    while True:
        theirs, after = card.processes(), region_bytes()
        for pid, ours in after.items():
            if ours is not None and before.get(pid) == ours:
                found = ours, theirs.get(pid, 0)
                if pid not in best or abs(found[0] - found[1]) < abs(best[pid][0] - best[pid][1]):
                    best[pid] = found
        before = after
        if time.monotonic() > end or (len(best) == len(after) and all(abs(a - b) <= 2 * MIB for a, b in best.values())):
            return best


def sample(card, slices, loads, peak, started):
    # In the part of a second in which the loads rest.
    time.sleep((1.06 - time.time() % 1) % 1)
    found = accounts(card, [load for load in loads if load.where.limit_mib])
    row = {"t": round(time.time() - started, 1), "sim": options.sim, "processes": {}, "slices": {}}
    for load in loads:
        try:
            figures = load.figures()
        except OSError:
            continue
        if load.pid in found:
            figures["region"], figures["nvml"] = found[load.pid]
        row["processes"][load.name] = figures
    for name, where in slices.items():
        if where.region():
            slots = where.region().slots()
            row["slices"][name] = {"limit": where.limit_mib * MIB, "high": where.region().high(),
                                   "living": sum(s["locked"] for s in slots), "peak": peak.most[where.tag]}
    return row


def main():
    os.makedirs(options.directory, exist_ok=True)
    with open(f"{options.directory}/soak.pid", "w", encoding="utf-8") as file:
        file.write(f"{os.getpid()}\n")
    if options.sim:
        sim_begin(build)
    card = Card(build, options.sim)
    roomy = Slice(build, "soak", LIMIT_MIB, options.sim)
    tight = Slice(build, "soak", LIMIT_MIB, options.sim)
    native = Slice(build, "soak", None, options.sim)
    slices = {"roomy": roomy, "tight": tight}

    def churn(maximum_mib, block_mib):
        return [CHURN, "--threads", "4", "--max", str(maximum_mib), "--block", str(block_mib), "--rest", "--quiet"]
    loads = []
    if not options.sim:
        program = [sys.executable, f"{here}/soak_load.py"]
        loads += [Load("cupy, tight", tight, program + ["cupy"], "signal"),
                  Load("train", roomy, program + ["train"], "signal"),
                  Load("train, native", native, program + ["train"], "signal")]
        # They have begun before anybody fills their slice: a context may be refused, and CuPy ends then.
        if not until(lambda: all(os.path.getsize(load.log) > 0 for load in loads), 120):
            print("NOT OK - the frameworks' loads do not begin within 120 s: see their logs", flush=True)
    loads += [Load("churn", roomy, churn(16 * BLOCK_MIB, BLOCK_MIB), "input"),
              Load("churn, tight", tight, churn(2 * LIMIT_MIB, 2 * BLOCK_MIB), "input"),
              Load("churn, native", native, churn(16 * BLOCK_MIB, BLOCK_MIB), "input")]
    passers = [Passers(roomy, 1), Passers(tight, 2)]
    smi = Smi(roomy)
    peak = Peak(card, [roomy.tag, tight.tag], 0.05)
    for thread in [*passers, smi, peak]:
        thread.start()
    started = time.time()
    with open(f"{options.directory}/samples.jsonl", "w", encoding="utf-8") as file:
        due = started
        while time.time() < started + options.minutes * 60 and not stopping:
            due += options.period
            time.sleep(max(0, due - time.time()))
            file.write(json.dumps(sample(card, slices, loads, peak, started)) + "\n")
            file.flush()
    for thread in [*passers, smi]:
        thread.stopping = True
    for thread in passers:
        thread.join(90)
    end = {"minutes": round((time.time() - started) / 60, 2), "status": {load.name: load.end() for load in loads},
           "passers": {name: {"started": p.count, "killed": p.killed, "refused": p.refused, "bad": p.bad}
                       for name, p in zip(slices, passers)},
           "smi": {"started": smi.count, "bad": smi.bad}, "said": {}}
    for load in loads:
        with open(load.log, encoding="utf-8", errors="replace") as file:
            end["said"][load.name] = (file.read().splitlines() or [""])[-1][:160]
    peak.stop()
    end["left"] = {name: {"nvml": card.bytes_of(w.tag), "living": sum(s["locked"] for s in w.region().slots())}
                   for name, w in slices.items()}
    with open(f"{options.directory}/end.json", "w", encoding="utf-8") as file:
        json.dump(end, file, indent=1)
    for where in (roomy, tight, native):
        where.end()


stopping = False


def stop(number, frame):
    global stopping
    stopping = True


signal.signal(signal.SIGTERM, stop)
main()
