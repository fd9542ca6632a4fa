# SPDX-License-Identifier: Apache-2.0
"""turns.py [--sim] BUILD [SECONDS]: two containers with shares of 2 GiB and sets of 3 GiB that take
turns, beside the same work one after the other with all of it on the card, and the hand-overs beside
a plain pinned copy. Exit status 1 where memory was lost, one did not work, or less than 0.85 was
reached."""
import re
import subprocess
import sys

sim = sys.argv[1] == "--sim"
build, *rest = sys.argv[2:] if sim else sys.argv[1:]
seconds = int(rest[0]) if rest else 60
SET_MIB, SHARE_MIB = 3072, 2048
MIB = SET_MIB - 520  # beside the context
program = f"{build}/test/driver/turns"


def command(options, *arguments):
    machine = ["--sim"] if sim else []
    return [f"{build}/vgpu", "run", *options, *machine, "--", program, *map(str, arguments)]


def start(options, *arguments):
    return subprocess.Popen(command(options, *arguments), stdout=subprocess.PIPE, text=True)


def result(process):
    """Rounds, seconds, and the stretches of work: (from, to, rounds)."""
    output = process.communicate(timeout=seconds * 4 + 120)[0]
    last = re.search(r"rounds (\d+) in ([\d.]+) s, whole", output)
    if process.returncode or not last:
        sys.exit(f"exit status {process.returncode}: {output}")
    stretches = [(float(a), float(b), int(n)) for a, b, n in
                 re.findall(r"stretch ([\d.]+) ([\d.]+) (\d+)", output)]
    return int(last[1]), float(last[2]), stretches


rounds, took, _ = result(start(["--memory", "4GiB"], MIB, max(5, seconds // 6)))
alone = rounds / took
print(f"alone, all on the card: {alone:.1f} rounds/s")
rounds, took, _ = result(start(["--memory", "4GiB", "--oversubscribe=2"], MIB, max(5, seconds // 6)))
print(f"alone, with its share of {SHARE_MIB} MiB: {rounds / took:.1f} rounds/s")
options = ["--memory", "4GiB", "--oversubscribe=2"]
both = [result(process) for process in [start(options, MIB, seconds), start(options, MIB, seconds)]]
total = sum(rounds for rounds, _, _ in both)
reached = total / max(took for _, took, _ in both) / alone
print(f"two by turns: {both[0][0]} and {both[1][0]} rounds, {reached:.3f} of one after the other")
copy = subprocess.run(command(["--memory", "8GiB"], "--copy", 2048), stdout=subprocess.PIPE, text=True, check=True)
print(copy.stdout.strip())
turns = sorted((begin, end, who) for who, (_, _, stretches) in enumerate(both)
               for begin, end, count in stretches if count > 3)
gaps = sorted(after[0] - before[1] for before, after in zip(turns, turns[1:]) if before[2] != after[2])
if gaps:
    moved = 2 * SET_MIB - 2 * SHARE_MIB  # what the next one lacks, each way
    gap = gaps[len(gaps) // 2]
    print(f"{len(gaps)} hand-overs, median {gap:.3f} s for {moved} MiB each way: "
          f"{2 * moved / 953.674 / gap:.1f} GB/s both ways together")
sys.exit(0 if reached >= 0.85 and min(rounds for rounds, _, _ in both) > 0 else 1)
