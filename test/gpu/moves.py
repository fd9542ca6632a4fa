# SPDX-License-Identifier: Apache-2.0
"""Memory that moves while programs are killed, stopped and continued at random instants: turns of two
containers, releases, checkpoints. Who stays loses no byte and goes on; card and host have all back.
Usage: moves.py [--sim] BUILD [SECONDS]"""
import os
import random
import re
import signal
import subprocess
import sys
import time

from watch import MIB, Card, check, failures, sim_begin, until

sim = sys.argv[1] == "--sim"
build, *rest = sys.argv[2:] if sim else sys.argv[1:]
build = os.path.abspath(build)
SECONDS = float(rest[0]) if rest else 60
SET_MIB = 700 if sim else 2552  # beside the context
SHARED = ["--memory", "2GiB" if sim else "4GiB", "--oversubscribe=2"]
ALONE = ["--memory", "4GiB" if sim else "8GiB", "--oversubscribe"]
PIECE_S = 5  # after which a program that is left alone has read all of its set again, and ends
HOW = [["--release"], ["--release", "--checkpoint"], ["--release", "--on-demand"]]
ACTS = ["kill it", "kill the command", "stop it"]
SLACK = 8 * MIB
HOST_SLACK = 512 * MIB
chance = random.Random(24)
if sim:
    sim_begin(build)
    os.environ["VGPU_SIM"] = "checkpoint"


class Tenant:
    """driver/turns in a container: it reads its set again and again, and says at the end whether it is whole."""

    def __init__(self, options, seconds=PIECE_S):
        machine = ["--sim"] if sim else []
        self.process = subprocess.Popen(
            [f"{build}/vgpu", "run", *options, *machine, "--", f"{build}/test/driver/turns", str(SET_MIB), str(seconds)],
            stdout=subprocess.PIPE, stderr=subprocess.STDOUT, text=True, start_new_session=True)

    def send(self, number):
        try:
            os.killpg(self.process.pid, number)
        except ProcessLookupError:
            pass

    def kill(self):
        self.send(signal.SIGKILL)
        self.process.communicate()

    def has_ended(self):
        return self.process.poll() is not None

    def end(self, seconds=60):
        """(rounds, why it is not whole)"""
        try:
            said = self.process.communicate(timeout=seconds)[0]
        except subprocess.TimeoutExpired:
            self.kill()
            return 0, f"it hangs: {seconds} s later it runs still"
        last = re.search(r"rounds (\d+) in [\d.]+ s, whole", said)
        return int(last[1]) if last else 0, "" if last and not self.process.returncode else said[-300:]


def vgpu(*arguments):
    return subprocess.Popen([f"{build}/vgpu", *arguments], stdout=subprocess.PIPE, stderr=subprocess.STDOUT, text=True)


def host_available():
    with open("/proc/meminfo", encoding="ascii") as file:
        return int(re.search(r"MemAvailable:\s+(\d+)", file.read())[1]) << 10


def all_is_back(card, used, available, what):
    until(lambda: card.used() <= used + SLACK and host_available() >= available - HOST_SLACK, 20, 0.2)
    check(f"{what}: the card has all back", card.used() <= used + SLACK, f"{(card.used() - used) / MIB:.0f} MiB more in use")
    check(f"{what}: the host has all back", host_available() >= available - HOST_SLACK,
          f"{(available - host_available()) / MIB:.0f} MiB less available")


def turns(card):
    """Two that take turns; one after the other is killed, or stopped for a while, at any moment."""
    used, available, end = card.used(), host_available(), time.monotonic() + SECONDS / 2
    tenants = [Tenant(SHARED), Tenant(SHARED)]
    counts, rounds, wrong = {"killed": 0, "stopped": 0, "whole": 0}, [], []
    while time.monotonic() < end:
        time.sleep(chance.uniform(0.05, 2))
        which = chance.randrange(2)
        if chance.random() < 0.5 and not tenants[which].has_ended():
            tenants[which].kill()
            counts["killed"] += 1
        elif not tenants[which].has_ended():
            tenants[which].send(signal.SIGSTOP)
            time.sleep(chance.uniform(0.05, 2.5))
            tenants[which].send(signal.SIGCONT)
            counts["stopped"] += 1
        for i in range(2):
            if tenants[i].has_ended():
                if tenants[i].process.returncode != -signal.SIGKILL:
                    done, why = tenants[i].end()
                    rounds.append(done)
                    wrong += [why] if why else []
                    counts["whole"] += not why
                tenants[i] = Tenant(SHARED)
    for tenant in tenants:
        done, why = tenant.end()
        rounds.append(done)
        wrong += [why] if why else []
        counts["whole"] += not why
    check("turns: who was not killed lost no byte", not wrong, (wrong or [f"{counts}, rounds {rounds}"])[0])
    check("turns: and went on", rounds and min(rounds) > 0)
    all_is_back(card, used, available, "turns")


def freezes(card):
    """A program is released, or checkpointed; it, or the command, is killed at any moment, or it is stopped for a while."""
    used, available, end = card.used(), host_available(), time.monotonic() + SECONDS / 2
    counts, wrong = {}, []
    while time.monotonic() < end:
        tenant = Tenant(ALONE)
        time.sleep(chance.uniform(2 if sim else 1.5, 3))
        pid = ["--pid", str(tenant.process.pid)]
        number = sum(counts.values())
        how, act = HOW[number % len(HOW)], ACTS[number // len(HOW) % len(ACTS)]
        counts[act] = counts.get(act, 0) + 1
        command = vgpu("pause", *how, *pid)
        time.sleep(chance.uniform(0, 2 if "--checkpoint" in how else 1))
        if act == "kill it":
            tenant.kill()
        elif act == "kill the command":
            command.kill()
        else:
            tenant.send(signal.SIGSTOP)
            time.sleep(chance.uniform(0, 0.5))
            tenant.send(signal.SIGCONT)
        said = command.communicate(timeout=60)[0]
        if act != "kill it":
            back = vgpu("resume", *pid)
            said += back.communicate(timeout=60)[0]
            done, why = tenant.end()
            wrong += [f"{how}, {act}: {why} {said}"] if why or not done else []
        all_is_less = until(lambda: card.used() <= used + SLACK, 20, 0.05)
        wrong += [] if all_is_less else [f"{how}, {act}: {(card.used() - used) / MIB:.0f} MiB stay on the card"]
    check("releases: a program that was not killed lost no byte, and went on", not wrong, (wrong or [f"{counts}"])[0])
    all_is_back(card, used, available, "releases")


the_card = Card(build, sim)
turns(the_card)
freezes(the_card)
sys.exit(1 if failures() else 0)
