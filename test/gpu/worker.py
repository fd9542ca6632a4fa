# SPDX-License-Identifier: Apache-2.0
"""A PyTorch process that does what its standard input says, a line each, and answers a line each:
fill MIB (allocate blocks of that size until refused), free, train N, storm SECONDS, fork SECONDS."""
import os
import random
import sys
import time

import torch

blocks = []
model = torch.nn.Sequential(torch.nn.Linear(512, 2048), torch.nn.ReLU(), torch.nn.Linear(2048, 512)).cuda()
optimizer = torch.optim.SGD(model.parameters(), lr=0.01)


def allocate(mib):
    try:
        blocks.append(torch.empty(mib << 20, dtype=torch.uint8, device="cuda"))
        return True
    except torch.OutOfMemoryError:
        return False


def release():
    blocks.clear()
    torch.cuda.empty_cache()


def train(steps):
    for _ in range(steps):
        x = torch.randn(64, 512, device="cuda")
        loss = (model(x) - x).square().mean()
        optimizer.zero_grad()
        loss.backward()
        optimizer.step()
    return loss.item()


def storm(seconds):
    """Allocates and frees at random, as processes that race to the last byte."""
    end, granted, refused = time.time() + seconds, 0, 0
    while time.time() < end:
        if random.random() < 0.6:
            if allocate(random.choice([4, 32, 256, 700])):
                granted += 1
            else:
                refused += 1
                release()
        elif blocks:
            blocks.pop(random.randrange(len(blocks)))
    release()
    return f"{granted} {refused}"


print(os.getpid(), flush=True)
for line in sys.stdin:
    word, *argument = line.split()
    if word == "fill":
        while allocate(int(argument[0])):
            pass
        print(len(blocks) * int(argument[0]), flush=True)
    elif word == "free":
        release()
        print("freed", flush=True)
    elif word == "train":
        print(train(int(argument[0])), flush=True)
    elif word == "storm":
        print(storm(float(argument[0])), flush=True)
    elif word == "fork":
        child = os.fork()
        if child == 0:
            os.close(0)
            time.sleep(float(argument[0]))
            os._exit(0)
        print(child, flush=True)
