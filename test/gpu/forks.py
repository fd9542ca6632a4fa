# SPDX-License-Identifier: Apache-2.0
"""Forks of real CUDA processes: what the card holds for them and what the slice counts, with a
living and with a dead parent. Usage: forks.py BUILD [--sim]"""
import argparse
import os
import re
import signal
import subprocess
import sys

from watch import MIB, Card, Slice, Talker, check, failures, sim_begin, until

parser = argparse.ArgumentParser()
parser.add_argument("build")
parser.add_argument("--sim", action="store_true")
options = parser.parse_args()
build = os.path.abspath(options.build)
CHURN, FORKS, HOLD = f"{build}/test/gpu/churn", f"{build}/test/gpu/forks", f"{build}/test/driver/hold"
LIMIT_MIB, TAKEN_MIB, SLACK_MIB = 8 * 1024, 1024, 66
if options.sim:
    sim_begin(build)
card = Card(build, options.sim)


class Scene:
    """One scenario in a slice of its own."""

    def __init__(self, name):
        self.name = name
        # Over 2 s: beside other programs of the card, some are always being made or torn down, and
        # NVML counts their memory before and after it lists them.
        self.base = card.unowned(40, 0.05) / MIB
        self.where = Slice(build, "forks", LIMIT_MIB, options.sim)

    def start(self, *command):
        """Starts the program; returns it and the pids in its first line."""
        talker = Talker(self.where, [*command])
        line = talker.hear()
        return talker, [int(n) for n in re.findall(r"(?:pid|child) (\d+)", line)]

    def on_card(self):
        """MiB that the card holds for the slice, in the name of its processes or in nobody's."""
        return card.bytes_of(self.where.tag) / MIB + card.unowned() / MIB - self.base

    def left_for_others(self):
        """MiB that a fresh process gets, its context included."""
        filler = Talker(self.where, [CHURN, "--fill", "64"])
        words = filler.hear().split()
        filler.end()
        return float(words[7]) if words[:1] == ["filled"] else -1.0

    def check(self, what, good, detail=""):
        return check(f"{self.name}: {what}", good, detail)

    def compare(self, when, least_mib, most_mib):
        """The card holds what is expected, and the slice counts as much. Whether it holds anything
        for descriptors that an exec may have closed is the driver's affair: see `execs`."""
        held = [0.0]

        def expected():
            held[0] = self.on_card()
            return least_mib <= held[0] <= most_mib

        def counted_well():
            return held[0] - 8 <= counted <= held[0] + SLACK_MIB
        until(expected, 5)
        counted = LIMIT_MIB - self.left_for_others()
        until(lambda: expected() and counted_well(), 5)
        self.check(f"{when}, the card holds what is expected", least_mib <= held[0] <= most_mib, f"{held[0]:.0f} MiB")
        self.check(f"{when}, the slice counts what the card holds", counted_well(),
                   f"{counted:.0f} MiB are not given to others")

    def end(self):
        self.where.kill()
        until(lambda: not self.where.pids(), 10)
        until(lambda: self.on_card() < 16, 10)
        got = self.left_for_others()
        self.check("at the end a fresh process gets the whole slice", got >= LIMIT_MIB - SLACK_MIB, f"{got:.0f} MiB")
        self.where.end()


def outlives():
    scene = Scene("a child that outlives its parent")
    parent, pids = scene.start(HOLD, "--fork", str(TAKEN_MIB), "100")
    if scene.check("starts", len(pids) == 2):
        os.kill(pids[0], signal.SIGKILL)
        parent.process.wait(20)
        scene.compare("parent dead", TAKEN_MIB, TAKEN_MIB + 700)
        os.kill(pids[1], signal.SIGKILL)
        scene.compare("both dead", -8, 16)
    scene.end()


def execs():
    scene = Scene("a child that becomes another program")
    parent, pids = scene.start(FORKS, "exec", str(TAKEN_MIB))
    if scene.check("starts", len(pids) == 2):
        scene.compare("parent alive", TAKEN_MIB, TAKEN_MIB + 700)
        os.kill(pids[0], signal.SIGKILL)
        parent.process.wait(20)
        scene.compare("parent dead", -8, TAKEN_MIB + 700)
    scene.end()


def execs_cuda():
    scene = Scene("a child that becomes another CUDA program")
    parent, pids = scene.start(FORKS, "execcuda", CHURN, str(TAKEN_MIB))
    words = parent.hear().split()
    if scene.check("starts", len(pids) == 2 and words[:1] == ["filled"], " ".join(words)):
        first = scene.where.region().bytes_of(pids[0])
        both = (first or 0) / MIB + float(words[7])
        scene.check("parent and child together fill the slice", LIMIT_MIB - SLACK_MIB <= both <= LIMIT_MIB,
                    f"{both:.0f} of {LIMIT_MIB} MiB")
    parent.end()
    scene.end()


def prefork():
    scene = Scene("four workers forked before CUDA")
    parent = Talker(scene.where, [FORKS, "prefork", "0"])
    lines = [parent.hear() for _ in range(4)]
    total = card.bytes_of(scene.where.tag) / MIB
    scene.check("all get a context and fill the slice", all(line.startswith("child") for line in lines)
                and LIMIT_MIB - SLACK_MIB <= total <= LIMIT_MIB,
                f"{total:.0f} of {LIMIT_MIB} MiB by NVML; {'; '.join(lines)}")
    scene.check("exit status 0", parent.end() == 0)
    scene.end()


def daemonises():
    scene = Scene("a daemon that closed all descriptors after asking NVML")
    talker = Talker(scene.where, [FORKS, "daemon", str(TAKEN_MIB)])
    pids = [int(n) for n in re.findall(r"pid (\d+)", talker.hear())]
    if scene.check("starts and allocates", len(pids) == 1):
        ours = (scene.where.region().bytes_of(pids[0]) or 0) / MIB
        theirs = card.processes().get(pids[0], 0) / MIB
        scene.check("its bytes in the region are NVML's", ours > TAKEN_MIB and abs(ours - theirs) <= 2,
                    f"region {ours:.0f}, NVML {theirs:.0f} MiB")
        scene.compare("in the background", TAKEN_MIB, TAKEN_MIB + 700)
    talker.end()
    scene.end()


def closes_all():
    scene = Scene("a CUDA process that closed all its descriptors")
    talker, pids = scene.start(FORKS, "closeall", str(TAKEN_MIB))
    if scene.check("lives", len(pids) == 2 and talker.process.poll() is None):
        counted, held = LIMIT_MIB - scene.left_for_others(), [0.0]

        def counts():
            held[0] = scene.on_card()
            return counted >= held[0] - 8
        scene.check("the slice counts no less than the card holds", until(counts, 5),
                    f"the card holds {held[0]:.0f} MiB, {counted:.0f} are not given to others")
    talker.end()
    scene.end()


def threaded():
    scene = Scene("forks of a process whose threads allocate")
    worker = Talker(scene.where, [CHURN, "--threads", "4", "--max", "2048", "--block", "16", "--quiet"])
    worker.hear()
    forked = worker.ask("fork 30")
    paused = worker.ask("pause")
    scene.check("every child ends well", forked == "forked 30 bad 0", forked)
    scene.check("the parent works on, nothing refused", " refused 0 " in paused, paused)
    said = []

    def equal():
        figures = scene.where.region().bytes_of(worker.pid), card.processes().get(worker.pid)
        said[:] = [(figure or 0) / MIB for figure in figures]
        return said[0] > 0 and abs(said[0] - said[1]) <= 2
    scene.check("its bytes in the region are NVML's", until(equal, 5), f"region {said[0]:.0f}, NVML {said[1]:.0f} MiB")
    scene.check("exit status 0", worker.end() == 0)
    scene.end()


def exits_without_freeing():
    scene = Scene("exit without freeing")
    child = scene.where.start([CHURN, "--max", "2048", "--block", "64", "--seconds", "0.5", "--abrupt"],
                              stdout=subprocess.DEVNULL)
    try:
        status = child.wait(60)
    except subprocess.TimeoutExpired:
        status = None
    scene.check("exit status 0", status == 0, status)
    scene.end()


for scenario in (outlives, execs, execs_cuda, prefork, daemonises, closes_all, threaded, exits_without_freeing):
    try:
        scenario()
    except Exception as error:  # the others are run all the same
        check(f"{scenario.__name__} runs", False, f"{type(error).__name__}: {error}")
sys.exit(failures() != 0)
