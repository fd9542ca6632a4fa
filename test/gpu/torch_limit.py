# SPDX-License-Identifier: Apache-2.0
"""PyTorch inside a slice: what it is told, where it is refused, and that it goes on afterwards.

Exit status 0 where every promise was kept; prints one line for each.
"""
import sys

import torch

limit_mib = int(sys.argv[1])
failed = 0


def check(what, good, detail):
    global failed
    failed += not good
    print(f"{'ok' if good else 'NOT OK'} - {what}: {detail}", flush=True)


properties = torch.cuda.get_device_properties(0)
check("total memory is the slice", properties.total_memory == limit_mib << 20,
      f"{properties.total_memory >> 20} MiB")
free, total = torch.cuda.mem_get_info()
check("cuMemGetInfo shows the slice", total == limit_mib << 20 and free < total,
      f"free {free >> 20} of {total >> 20} MiB")

blocks = []
try:
    while True:
        blocks.append(torch.empty(64 << 20, dtype=torch.uint8, device="cuda"))
except torch.OutOfMemoryError:
    taken = len(blocks) * 64
    free, total = torch.cuda.mem_get_info()
    check("refused at the limit with torch.OutOfMemoryError", taken < limit_mib and free < 64 << 20,
          f"after {taken} MiB, free {free >> 20} MiB")
del blocks
torch.cuda.empty_cache()

model = torch.nn.Sequential(torch.nn.Linear(1024, 4096), torch.nn.ReLU(), torch.nn.Linear(4096, 1024)).cuda()
optimizer = torch.optim.Adam(model.parameters())
first = last = None
for step in range(200):
    x = torch.randn(256, 1024, device="cuda")
    loss = (model(x) - x).square().mean()
    optimizer.zero_grad()
    loss.backward()
    optimizer.step()
    if step == 0:
        first = loss.item()
last = loss.item()
check("training goes on after the refusal", last < first, f"loss {first:.4f} to {last:.4f}")

try:
    torch.empty(limit_mib << 20, dtype=torch.uint8, device="cuda")
    check("one request of the whole slice is refused", False, "it was granted")
except torch.OutOfMemoryError:
    check("one request of the whole slice is refused", True, "torch.OutOfMemoryError")
with torch.no_grad():
    y = model(torch.randn(64, 1024, device="cuda"))
check("inference goes on", bool(torch.isfinite(y).all()), f"{tuple(y.shape)}")

static_in = torch.randn(64, 1024, device="cuda")
stream = torch.cuda.Stream()
with torch.cuda.stream(stream), torch.no_grad():
    for _ in range(3):
        model(static_in)
torch.cuda.current_stream().wait_stream(stream)
graph = torch.cuda.CUDAGraph()
with torch.no_grad(), torch.cuda.graph(graph):
    static_out = model(static_in)
graph.replay()
torch.cuda.synchronize()
check("a CUDA graph is captured and replayed", bool(torch.isfinite(static_out).all()), "finite")
sys.exit(failed != 0)
