# SPDX-License-Identifier: Apache-2.0
"""Steps per second of two PyTorch trainings, as one JSON object: a small model whose launches the
host can hardly feed, and one that fills the GPU."""
import json
import time

import torch


def rate(width, batch, layers, seconds):
    model = torch.nn.Sequential(
        *[m for _ in range(layers) for m in (torch.nn.Linear(width, width), torch.nn.ReLU())]).cuda()
    optimizer = torch.optim.Adam(model.parameters())
    x = torch.randn(batch, width, device="cuda")

    def step():
        loss = model(x).square().mean()
        optimizer.zero_grad()
        loss.backward()
        optimizer.step()

    for _ in range(20):
        step()
    torch.cuda.synchronize()
    start, steps = time.perf_counter(), 0
    while time.perf_counter() - start < seconds:
        for _ in range(10):
            step()
        steps += 10
        torch.cuda.synchronize()
    return steps / (time.perf_counter() - start)


print(json.dumps({"small model": rate(256, 64, 8, 3), "large model": rate(4096, 4096, 8, 3)}))
