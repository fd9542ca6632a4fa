# SPDX-License-Identifier: Apache-2.0
"""PyTorch's loads in turns, for vgpu-bench: says "ready"; for each line "NAME WARMUP SECONDS" of its input, NAME being
training or inference, writes "work.NAME STEPS-PER-SECOND STEPS" and "done". Ends with its input."""
import sys
import time

import torch

if not torch.cuda.is_available():
    sys.exit("PyTorch finds no GPU")

from graph import graph  # pylint: disable=wrong-import-position
from measure import BATCH_S, steps_until  # pylint: disable=wrong-import-position
from training_mlp import step  # pylint: disable=wrong-import-position

LOADS = {"training": step, "inference": graph.replay}
FIRST_S = 0.2
batches = {}


def rate(load, seconds, batch):
    """(steps per second, steps)"""
    began = time.monotonic()
    steps = steps_until(load, began + seconds, batch)
    return steps / (time.monotonic() - began), steps


for name, each in LOADS.items():
    for _ in range(10):  # what libraries do at their first use
        each()
    torch.cuda.synchronize()
    batches[name] = max(1, int(rate(each, FIRST_S, 1)[0] * BATCH_S))
print("ready", flush=True)
for line in sys.stdin:
    name, warmup, measured = line.split()
    rate(LOADS[name], float(warmup), batches[name])
    per_second, count = rate(LOADS[name], float(measured), batches[name])
    if count:
        print(f"work.{name} {per_second:.9g} {count}")
    print("done", flush=True)
