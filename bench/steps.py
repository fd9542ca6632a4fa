# SPDX-License-Identifier: Apache-2.0
"""PyTorch steps per second natively and under a memory limit, alternating. Usage: steps.py BUILD ROUNDS"""
import json
import os
import statistics
import subprocess
import sys

build, rounds = sys.argv[1], int(sys.argv[2])
work = [sys.executable, os.path.join(os.path.dirname(os.path.abspath(__file__)), "steps_work.py")]
figures = {"native": [], "vgpu": []}
for _ in range(rounds):
    for who, prefix in (("native", []), ("vgpu", [f"{build}/vgpu", "run", "--memory", "40g"])):
        output = subprocess.run(prefix + work, check=True, stdout=subprocess.PIPE, text=True).stdout
        figures[who].append(json.loads(output))
print(f"{rounds} rounds each, alternating; steps per second, median (least to most)\n")
print("| training | native | vgpu | ratio of medians |\n| --- | --- | --- | --- |")
for name in figures["native"][0]:
    values = {who: [f[name] for f in figures[who]] for who in figures}
    cells = [f"{statistics.median(v):.1f} ({min(v):.1f} to {max(v):.1f})" for v in values.values()]
    ratio = statistics.median(values["vgpu"]) / statistics.median(values["native"])
    print(f"| {name} | {cells[0]} | {cells[1]} | {ratio:.3f} |")
print("\nraw: " + json.dumps(figures))
