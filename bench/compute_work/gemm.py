# SPDX-License-Identifier: Apache-2.0
"""A chain of matrix products, each on the one before."""
import torch
from measure import measure

left = torch.randn(4096, 4096, device="cuda") / 64
right = torch.randn(4096, 4096, device="cuda") / 64


def step():
    product = left
    for _ in range(4):
        product = product @ right


measure(step)
