# SPDX-License-Identifier: Apache-2.0
"""PyTorch with the allocator that PYTORCH_CUDA_ALLOC_CONF names. Usage: torch_allocators.py NAME, one of
native, cudaMallocAsync, expandable: what is then expected to be in use."""
import sys
import time

import torch
import torch_parts
from outcome import Outcome

wanted = sys.argv[1]
outcome = Outcome()
torch_parts.settle()
outcome.sees(torch_parts.memory())
backend = torch.cuda.get_allocator_backend()
outcome.check("the allocator is the one asked for",
              backend == ("cudaMallocAsync" if wanted == "cudaMallocAsync" else "native"), backend)
began = time.monotonic()
checksum = torch_parts.train(torch_parts.model())
torch.cuda.synchronize()
outcome.computed(checksum, time.monotonic() - began)
if wanted != "cudaMallocAsync":
    expandable = any(segment.get("is_expandable") for segment in torch.cuda.memory_snapshot())
    outcome.check("segments are expandable where asked for", expandable == (wanted == "expandable"), expandable)
# The asynchronous pool takes memory from the driver in steps of its own.
outcome.fill(torch_parts.take, torch_parts.is_refusal, torch_parts.memory, 64)
outcome.release(torch.cuda.empty_cache, torch_parts.memory)
outcome.again(torch_parts.train(torch_parts.model()))
outcome.fill(torch_parts.take, torch_parts.is_refusal, torch_parts.memory, 64)
outcome.release(torch.cuda.empty_cache, torch_parts.memory)
outcome.say()
