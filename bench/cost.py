# SPDX-License-Identifier: Apache-2.0
"""Added cost of calls: runs build/test/driver/cost natively and under vgpu, each round in a random order, and prints the
medians of each and their ratio as a table. Usage: cost.py BUILD ROUNDS [--sim] [--raw FILE]"""
import json
import random
import statistics
import subprocess
import sys

build, rounds = sys.argv[1], int(sys.argv[2])
sim = ["--sim"] if "--sim" in sys.argv else []
raw_path = sys.argv[sys.argv.index("--raw") + 1] if "--raw" in sys.argv else None
program = f"{build}/test/driver/cost"
native = [f"{build}/vgpu", "run", "--sim", "env", f"LD_PRELOAD={build}/sim/libvgpu-sim-rm.so"] if sim else []
cases = {"10 live": ["--live", "10"], "100,000 live": ["--live", "100000"]}
raw = []
for label, arguments in cases.items():
    figures = {"native": {}, "vgpu": {}}
    for _ in range(rounds):
        for who in random.sample(("native", "vgpu"), 2):
            prefix = native if who == "native" else [f"{build}/vgpu", "run", "--memory", "100g", *sim]
            extra = ["--refuse", str(120 << 30)] if who == "vgpu" else []
            output = subprocess.run(prefix + [program] + arguments + extra, check=True,
                                    stdout=subprocess.PIPE, stderr=subprocess.DEVNULL, text=True).stdout
            result = json.loads(output)
            raw.append({"case": label, "who": who, "result": result})
            for name, value in result.items():
                figures[who].setdefault(name, []).append(value["p50"])
    print(f"\n{label}, {rounds} rounds each, in random order; medians of medians, ns (least to most)\n")
    print("| call | native | vgpu | ratio of medians |\n| --- | --- | --- | --- |")
    for name in figures["vgpu"]:
        def show(values):
            return f"{statistics.median(values):,.0f} ({min(values):,} to {max(values):,})" if values else "-"
        ours, theirs = figures["vgpu"][name], figures["native"].get(name, [])
        ratio = f"{statistics.median(ours) / statistics.median(theirs):.3f}" if theirs else "-"
        print(f"| {name} | {show(theirs)} | {show(ours)} | {ratio} |")
if raw_path:
    with open(raw_path, "w", encoding="utf-8") as file:
        json.dump(raw, file, indent=1)
