# SPDX-License-Identifier: Apache-2.0
"""What the PyTorch programs share: memory as PyTorch tells it, a block, a small training."""
import torch


def memory():
    return torch.cuda.mem_get_info()


def take(size):
    block = torch.empty(size, dtype=torch.uint8, device="cuda")
    block.fill_(7)
    return block


def is_refusal(error):
    return isinstance(error, torch.OutOfMemoryError)


def settle():
    torch.manual_seed(1)
    torch.backends.cuda.matmul.allow_tf32 = False


def model():
    torch.manual_seed(2)
    return torch.nn.Sequential(torch.nn.Linear(256, 1024), torch.nn.GELU(), torch.nn.LayerNorm(1024),
                               torch.nn.Linear(1024, 256)).cuda()


def train(network, steps=50):
    """Trains on numbers that are always the same; the sum of all weights."""
    generator = torch.Generator(device="cuda").manual_seed(3)
    optimizer = torch.optim.Adam(network.parameters(), lr=1e-3)
    for _ in range(steps):
        x = torch.randn(128, 256, device="cuda", generator=generator)
        loss = (network(x) - x).square().mean()
        optimizer.zero_grad()
        loss.backward()
        optimizer.step()
    return weights(network)


def weights(network):
    with torch.no_grad():
        return sum(p.double().abs().sum().item() for p in network.parameters())
