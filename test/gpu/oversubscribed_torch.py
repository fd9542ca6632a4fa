# SPDX-License-Identifier: Apache-2.0
"""oversubscribed_torch.py [STEPS]: a deterministic training; its last line is the losses' digest and
how long a step took. Runs native, with mappings, and with a share that it does not fit into must all
print the same digest."""
import hashlib
import os
import sys
import time

os.environ.setdefault("CUBLAS_WORKSPACE_CONFIG", ":4096:8")
try:
    import torch
except ImportError:
    print("SKIP: no PyTorch here")
    sys.exit(77)

steps = int(sys.argv[1]) if len(sys.argv) > 1 else 40
torch.manual_seed(1)
torch.use_deterministic_algorithms(True)
torch.backends.cuda.matmul.allow_tf32 = False
layers = [torch.nn.TransformerEncoderLayer(1024, 16, 4096, dropout=0.0, batch_first=True) for _ in range(8)]
model = torch.nn.Sequential(*layers).cuda()
optimizer = torch.optim.AdamW(model.parameters(), lr=1e-4)
data = torch.randn(16, 256, 1024, device="cuda")
digest = hashlib.sha256()
times = []
for step in range(steps):
    torch.cuda.synchronize()
    start = time.monotonic()
    loss = (model(data) - data).square().mean()
    optimizer.zero_grad()
    loss.backward()
    optimizer.step()
    torch.cuda.synchronize()
    times.append(time.monotonic() - start)
    digest.update(loss.detach().cpu().numpy().tobytes())
times.sort()
print(f"losses {digest.hexdigest()[:16]}, last {loss.item():.9g}, a step {times[len(times) // 2] * 1e3:.2f} ms, "
      f"reserved {torch.cuda.max_memory_reserved() >> 20} MiB", flush=True)
