# SPDX-License-Identifier: Apache-2.0
"""A matrix product, then fills or copies on the card, then work on the host: SECONDS WARMUP fills|copies.
What runs beside kernels without being one, well below what the device can do."""
import sys
import time

import torch
from measure import measure

BYTES = 64 << 20
HOST_S = 200e-6
left, right = torch.randn(1024, 1024, device="cuda"), torch.randn(1024, 1024, device="cuda")
target, source = (torch.empty(BYTES, dtype=torch.uint8, device="cuda") for _ in range(2))


def step():
    left @ right
    for _ in range(3):
        if sys.argv[3] == "fills":
            target.zero_()
        else:
            target.copy_(source)
    until = time.perf_counter() + HOST_S
    while time.perf_counter() < until:
        pass


measure(step)
