# SPDX-License-Identifier: Apache-2.0
"""An NCCL all-reduce of 256 MiB of float32 over all GPUs, a process each, as one JSON object.
Usage: all_reduce.py SECONDS WARMUP LIMIT_S. What has not ended after LIMIT_S is killed, which it says: status 3."""
import json
import os
import subprocess
import sys
import tempfile
import time

BYTES = 256 << 20
CHUNK = 8  # all-reduces between two looks at the clock


def reduce_until(torch, distributed, data, seconds):
    """(all-reduces, seconds); all processes do as many, as the first one's clock says."""
    done, began = 0, time.monotonic()
    while True:
        for _ in range(CHUNK):
            distributed.all_reduce(data)
        data.fill_(1)
        torch.cuda.synchronize()
        done += CHUNK
        goes_on = torch.tensor([time.monotonic() - began < seconds], dtype=torch.int32, device="cuda")
        distributed.broadcast(goes_on, 0)
        if not goes_on.item():
            return done, time.monotonic() - began


def work(rank, world, rendezvous, seconds, warmup):
    import torch
    from torch import distributed
    torch.cuda.set_device(rank)
    distributed.init_process_group("nccl", init_method="file://" + rendezvous, rank=rank, world_size=world)
    data = torch.ones(BYTES // 4, dtype=torch.float32, device="cuda")
    distributed.all_reduce(data)
    right = bool((data == world).all().item())
    data.fill_(1)
    reduce_until(torch, distributed, data, warmup)
    reduces, took = reduce_until(torch, distributed, data, seconds)
    distributed.destroy_process_group()
    if rank == 0:
        print(json.dumps({"work_per_second": reduces / took, "reduces": reduces, "seconds": took, "gpus": world,
                          "gb_per_second": 2 * (world - 1) / world * BYTES * reduces / took / 1e9, "right": right}))
    sys.exit(0 if right else 1)


def main():
    seconds, warmup, limit_s = (float(each) for each in sys.argv[1:4])
    os.environ["NCCL_NVLS_ENABLE"] = "0"  # NVLink multicast is not ours to switch on
    if len(sys.argv) > 4:
        work(int(sys.argv[4]), int(sys.argv[5]), sys.argv[6], seconds, warmup)
    import torch
    world, end = torch.cuda.device_count(), time.monotonic() + limit_s
    with tempfile.TemporaryDirectory() as directory:
        ranks = [subprocess.Popen([sys.executable, __file__, *sys.argv[1:4], str(rank), str(world),
                                   directory + "/rendezvous"]) for rank in range(world)]
        while any(rank.poll() is None for rank in ranks) and not any(rank.poll() for rank in ranks):
            if time.monotonic() > end:
                break
            time.sleep(0.05)
        late = any(rank.poll() is None for rank in ranks) and time.monotonic() > end
        for rank in ranks:
            rank.kill()  # one that failed leaves the others waiting
            rank.wait()
    if late:
        print(f"deadlock: not done after {limit_s:g} s", file=sys.stderr)
    sys.exit(3 if late else int(any(rank.returncode for rank in ranks)))


main()
