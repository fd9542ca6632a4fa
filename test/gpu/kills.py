# SPDX-License-Identifier: Apache-2.0
"""CUDA processes of one slice killed by SIGKILL at random instants, while others work: nobody is
refused wrongly, the slice is never passed, and card and account are afterwards as before.
Usage: kills.py BUILD [--sim] [--kills N] [--seconds S]"""
import argparse
import os
import random
import re
import subprocess
import sys
import threading
import time

from watch import MIB, Card, Peak, Slice, Talker, check, failures, sim_begin, until

parser = argparse.ArgumentParser()
parser.add_argument("build")
parser.add_argument("--sim", action="store_true")
parser.add_argument("--kills", type=int, default=120)
parser.add_argument("--seconds", type=float, default=25)
options = parser.parse_args()
build = os.path.abspath(options.build)
here = os.path.dirname(os.path.abspath(__file__))
LANES = 6
BLOCK_MIB = 16 if options.sim else 128
SLACK_MIB = 66
# How a program that needs what is refused says so at its end.
REFUSALS = ("out_of_memory", "out of memory", "alloc_failed")


class Lanes:
    """Processes started and killed, LANES at once, each waited for before the next of its lane."""

    def __init__(self, where, command, kills, seconds, least, most):
        self.where, self.command, self.left = where, command, kills
        self.end = time.monotonic() + seconds
        self.least, self.most = least, most
        self.lock = threading.Lock()
        self.before_ready = self.killed = self.ended = 0
        self.said, self.strange = [], []
        threads = [threading.Thread(target=self.lane, args=(i,)) for i in range(LANES)]
        for thread in threads:
            thread.start()
        for thread in threads:
            thread.join()

    def lane(self, index):
        chance = random.Random(20_000 + index)
        path = f"{self.where.directory}/lane-{index}"
        while True:
            with self.lock:
                if self.left <= 0 or time.monotonic() > self.end:
                    return
                self.left -= 1
            with open(path, "wb") as output, open(f"{path}-errors", "wb") as errors:
                # With an input that never ends: the program works until it is killed.
                child = self.where.start(self.command(chance.randrange(1 << 30)), stdin=self.open_input(),
                                         stdout=output, stderr=errors)
            if chance.random() < 0.6:
                until(lambda: os.path.getsize(path) > 0 or child.poll() is not None, 20)
                time.sleep(chance.uniform(0, self.most / 2))
            else:
                time.sleep(chance.uniform(self.least, self.most))
            child.kill()
            status = child.wait()
            with open(path, encoding="utf-8", errors="replace") as file:
                lines = file.read().splitlines()
            with open(f"{path}-errors", encoding="utf-8", errors="replace") as file:
                last = [line for line in [*file.read().splitlines(), *lines] if "HAMI-core" not in line][-12:]
            with self.lock:
                if status != -9 and not any(word in " ".join(last).lower() for word in REFUSALS):
                    self.strange.append(f"exit status {status}: {' '.join(last)[-160:]}")
                self.killed += status == -9
                self.ended += status != -9
                self.before_ready += not lines
                self.said += [line for line in lines if line.startswith(("refused", "error"))]

    def open_input(self):
        reader, self_writer = os.pipe()
        os.set_inheritable(self_writer, False)
        self.writers = getattr(self, "writers", []) + [self_writer]
        return os.fdopen(reader, "rb")

    def close(self):
        for writer in getattr(self, "writers", []):
            os.close(writer)


def churn(maximum_mib, *more):
    def command(seed):
        return [f"{build}/test/gpu/churn", "--threads", "2", "--max", str(maximum_mib), "--block",
                str(BLOCK_MIB), "--seed", str(seed), *more]
    return command


def quiet_account(card, where, worker):
    """What region and NVML say of a process that stands still, in MiB; once they agree, or at last."""
    said = [None, None]

    def agree():
        ours = where.region().bytes_of(worker.pid)
        theirs = card.processes().get(worker.pid)
        said[:] = [None if v is None else v / MIB for v in (ours, theirs)]
        return None not in said and abs(said[0] - said[1]) <= 2
    return until(agree, 5), said


def fresh_fill(where, what):
    """A process that starts now gets the whole slice."""
    filler = Talker(where, [f"{build}/test/gpu/churn", "--fill", "64"])
    words = filler.hear().split()
    filler.end()
    if len(words) < 8 or words[0] != "filled":
        return check(what, False, f"the filling process says {' '.join(words) or 'nothing'}")
    # What it took by its own ledger, context included.
    return check(what, where.limit_mib - SLACK_MIB <= float(words[7]) <= where.limit_mib,
                 f"{words[1]} MiB of blocks, {words[7]} of {where.limit_mib} by its ledger, {words[8]}")


def phase(card, name, limit_mib, victim_mib, kills, seconds, roomy):
    base = card.unowned() / MIB
    where = Slice(build, "kills", limit_mib, options.sim)
    peak = Peak(card, [where.tag])
    peak.start()
    bystanders = [Talker(where, churn(victim_mib, "--quiet")(i)) for i in (1, 2)]
    for worker in bystanders:
        worker.hear()
    lanes = Lanes(where, churn(victim_mib), kills, seconds, 0.0, 0.6)
    refused, agreed, paused = 0, True, []
    for worker in bystanders:
        paused.append(worker.ask("pause"))
        refused += int((re.findall(r"refused (\d+)", paused[-1]) or [0])[0])
    for worker in bystanders:
        good, said = quiet_account(card, where, worker)
        agreed = agreed and good
        paused.append(f"region {said[0]}, NVML {said[1]} MiB")
    print(f"# {name}: {lanes.killed} killed ({lanes.before_ready} before their first context stood), "
          f"{lanes.ended} ended otherwise; {len(lanes.said)} refusals of theirs, "
          f"{refused} of the two that stayed; {peak.looks} looks by NVML")
    print(f"# the two that stayed: {'; '.join(paused)}")
    # A context that is refused ends a victim; where there is room none may be.
    check(f"{name}: no victim ended of an error before it was killed",
          not lanes.strange and (lanes.ended == 0 or not roomy),
          (lanes.strange or [f"{lanes.killed} killed of {kills} started, in {seconds:.0f} s at most"])[0])
    if roomy:
        check(f"{name}: nobody was refused while the slice has room", refused == 0 and not lanes.said,
              f"{refused + len(lanes.said)} refusals")
    check(f"{name}: those that stayed work on", all(p.startswith("paused") for p in paused[:2]))
    check(f"{name}: their bytes in the region are NVML's", agreed)
    statuses = [worker.end() for worker in bystanders]
    check(f"{name}: they end well", statuses == [0, 0], f"exit status {statuses}")
    most = peak.stop()[where.tag] / MIB
    check(f"{name}: NVML never saw more than the limit", 0 < most <= limit_mib, f"most {most:.0f} of {limit_mib} MiB")
    fresh_fill(where, f"{name}: a fresh process then gets the whole slice")
    lanes.close()
    finish(card, where, name, base)


def finish(card, where, name, base):
    left = until(lambda: not card.bytes_of(where.tag) and not [s for s in where.region().slots() if s["locked"]], 10)
    check(f"{name}: no process of the slice is left, on the card or living in the region", left)
    after = [0]

    def back():
        after[0] = card.unowned(5) / MIB
        return after[0] <= base + 16
    check(f"{name}: the card's memory is what it was", until(back, 10),
          f"{base:.0f} MiB in no process's name before, {after[0]:.0f} after")
    where.end()


def torch_phase(card):
    base = card.unowned() / MIB
    where = Slice(build, "kills", 24 * 1024)
    peak = Peak(card, [where.tag])
    peak.start()
    stays = Talker(where, [sys.executable, f"{here}/worker.py"], seconds=90)
    stays.hear()
    script = ("import io, runpy, sys; sys.stdin = io.StringIO('storm 60\\n'); "
              f"runpy.run_path({f'{here}/worker.py'!r})")
    lanes = Lanes(where, lambda seed: [sys.executable, "-c", script], 24, 40, 1.0, 8.0)
    loss = stays.ask("train 50", 30)
    check("PyTorch: no victim ended of an error but a refusal", not lanes.strange and lanes.killed > 0,
          (lanes.strange or [f"{lanes.killed} killed, {lanes.before_ready} of them before their first context stood; "
                             f"{lanes.ended} ended refused"])[0])
    check("PyTorch: the one that stayed trains on", loss.replace(".", "", 1).isdigit() and float(loss) < 100, f"loss {loss}")
    stays.end()
    most = peak.stop()[where.tag] / MIB
    check("PyTorch: NVML never saw more than the limit", 0 < most <= where.limit_mib,
          f"most {most:.0f} of {where.limit_mib} MiB")
    fresh_fill(where, "PyTorch: a fresh process then gets the whole slice")
    lanes.close()
    finish(card, where, "PyTorch", base)


def main():
    if options.sim:
        sim_begin(build)
    card = Card(build, options.sim)
    native = Slice(build, "warm", None, options.sim)
    native.start([f"{build}/test/gpu/churn", "--seconds", "0.1"], stdout=subprocess.DEVNULL).wait(60)
    native.end()
    # Eight processes of at most 1 GiB and a context each have room in 16 GiB, and none in 4.
    phase(card, "room for all", 16 * 1024, 1024, options.kills, options.seconds, True)
    phase(card, "too little for all", 4 * 1024, 1024, options.kills, options.seconds, False)
    if not options.sim:
        torch_phase(card)
    sys.exit(failures() != 0)


main()
