# SPDX-License-Identifier: Apache-2.0
"""A load of soak.py, until SIGTERM: `train` (PyTorch, with a DataLoader that forks its workers anew in
each epoch) or `cupy` (arrays of random sizes from its pool; out of memory is part of it)."""
import random
import signal
import sys
import time

stopping = False


def stop(number, frame):
    global stopping
    stopping = True


def train():
    import torch

    class Numbers(torch.utils.data.Dataset):
        def __len__(self):
            return 64 * 40

        def __getitem__(self, index):
            return torch.full((512,), index / 2560)

    model = torch.nn.Sequential(torch.nn.Linear(512, 2048), torch.nn.ReLU(), torch.nn.Linear(2048, 512)).cuda()
    optimizer = torch.optim.SGD(model.parameters(), lr=0.01)
    epoch = 0
    print("begun", flush=True)
    while not stopping:
        loader = torch.utils.data.DataLoader(Numbers(), batch_size=64, num_workers=2, pin_memory=True,
                                             multiprocessing_context="fork")
        for batch in loader:
            x = batch.cuda(non_blocking=True)
            loss = (model(x) - x).square().mean()
            optimizer.zero_grad()
            loss.backward()
            optimizer.step()
            time.sleep(0.05)
        epoch += 1
        print(f"epoch {epoch} loss {loss.item():.5f}", flush=True)


def cupy():
    import cupy
    pool = cupy.get_default_memory_pool()
    chance = random.Random(7)
    held, rounds, refused = [], 0, 0
    a = cupy.ones((1024, 1024), dtype=cupy.float32)
    product = float((a @ a)[0, 0])
    cupy.full(1 << 18, 1, dtype=cupy.float32)
    print(f"begun, product {product}", flush=True)
    while not stopping:
        try:
            held.append(cupy.full(chance.randrange(1 << 18, 1 << 26), rounds, dtype=cupy.float32))
            product = float((a @ a)[0, 0])
        except Exception as error:  # out of memory comes as an error of CuPy's pool, of cuBLAS or of the driver
            if not any(word in str(error).lower() for word in ("out of memory", "out_of_memory", "alloc")):
                raise
            refused += 1
            held.clear()
            pool.free_all_blocks()
        if len(held) > 12 or chance.random() < 0.2:
            held.clear()
            cupy.cuda.Device().synchronize()
            pool.free_all_blocks()
        rounds += 1
        if rounds % 500 == 0:
            print(f"round {rounds} refused {refused} product {product}", flush=True)
        time.sleep(0.02)
        # As `churn --rest`: still in the first quarter of each second.
        while time.time() % 1 < 0.25 and not stopping:
            time.sleep(0.005)


signal.signal(signal.SIGTERM, stop)
{"train": train, "cupy": cupy}[sys.argv[1]]()
