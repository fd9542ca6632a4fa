# SPDX-License-Identifier: Apache-2.0
"""PyTorch training from a DataLoader whose workers come by fork or by spawn, with CUDA in use before
they start, pinned memory, workers that persist. Usage: torch_data.py fork|spawn"""
import sys
import time

import torch
import torch.utils.data
import torch_parts
from outcome import Outcome


class Numbers(torch.utils.data.Dataset):
    def __len__(self):
        return 1024

    def __getitem__(self, index):
        return torch.randn(256, generator=torch.Generator().manual_seed(index))


def epoch(loader, network, optimizer):
    pinned = True
    for batch in loader:
        pinned = pinned and batch.is_pinned()
        x = batch.cuda(non_blocking=True)
        loss = (network(x) - x).square().mean()
        optimizer.zero_grad()
        loss.backward()
        optimizer.step()
    return pinned


def main():
    outcome = Outcome()
    torch_parts.settle()
    outcome.sees(torch_parts.memory())
    network = torch_parts.model()
    optimizer = torch.optim.SGD(network.parameters(), lr=0.01)
    loader = torch.utils.data.DataLoader(Numbers(), batch_size=64, num_workers=3, pin_memory=True,
                                         persistent_workers=True, multiprocessing_context=sys.argv[1])
    began = time.monotonic()
    pinned = [epoch(loader, network, optimizer) for _ in range(3)]
    outcome.computed(torch_parts.weights(network), time.monotonic() - began)
    outcome.check("batches come in pinned memory", all(pinned))
    # The workers live on meanwhile.
    outcome.fill(torch_parts.take, torch_parts.is_refusal, torch_parts.memory)
    outcome.release(torch.cuda.empty_cache, torch_parts.memory)
    outcome.check("the workers go on after the refusal", epoch(loader, network, optimizer))
    outcome.check("the weights are finite", torch_parts.weights(network) < float("inf"))
    del loader
    outcome.say()


if __name__ == "__main__":
    main()
