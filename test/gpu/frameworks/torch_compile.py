# SPDX-License-Identifier: Apache-2.0
"""torch.compile (inductor, which writes Triton and compiles it in processes of its own) and a Triton
kernel by hand. The caches' directories come from the environment."""
import os
import time

import torch
import torch_parts
import triton
import triton.language as tl
from outcome import Outcome


@triton.jit
def add(a, b, out, count, BLOCK: tl.constexpr):
    offsets = tl.program_id(0) * BLOCK + tl.arange(0, BLOCK)
    mask = offsets < count
    tl.store(out + offsets, tl.load(a + offsets, mask=mask) + tl.load(b + offsets, mask=mask), mask=mask)


def helpers():
    """The commands of the processes that this one started."""
    found = []
    for name in os.listdir("/proc"):
        if name.isdigit():
            try:
                with open(f"/proc/{name}/stat", "rb") as file:
                    parent = int(file.read().rsplit(b")", 1)[1].split()[1])
                with open(f"/proc/{name}/cmdline", "rb") as file:
                    command = file.read().decode(errors="replace")
            except (OSError, IndexError):
                continue
            if parent == os.getpid():
                found.append(command.replace("\0", " ")[:60])
    return found


def main():
    outcome = Outcome()
    torch_parts.settle()
    outcome.sees(torch_parts.memory())
    network = torch_parts.model()
    compiled = torch.compile(network)
    x = torch.randn(128, 256, device="cuda", generator=torch.Generator(device="cuda").manual_seed(5))
    began = time.monotonic()
    with torch.no_grad():
        difference = (network(x) - compiled(x)).abs().max().item()
    outcome.check("compiled gives what the model gives", difference < 1e-3, difference)
    checksum = torch_parts.train(compiled)
    torch.cuda.synchronize()
    outcome.computed(checksum, time.monotonic() - began)
    outcome.note("helpers", helpers())
    a = torch.randn(100_000, device="cuda")
    b = torch.randn(100_000, device="cuda")
    out = torch.empty_like(a)
    add[(triton.cdiv(a.numel(), 1024),)](a, b, out, a.numel(), BLOCK=1024)
    outcome.check("a Triton kernel computes", torch.equal(out, a + b))
    outcome.fill(torch_parts.take, torch_parts.is_refusal, torch_parts.memory)
    outcome.release(torch.cuda.empty_cache, torch_parts.memory)

    # Another function after the refusal: compiled anew.
    def function(value):
        return torch.softmax(value * 2 + 1, dim=-1).cumsum(-1)
    difference = (function(x) - torch.compile(function)(x)).abs().max().item()
    outcome.check("compiles after the refusal", difference < 1e-3, difference)
    outcome.say()


if __name__ == "__main__":
    main()
