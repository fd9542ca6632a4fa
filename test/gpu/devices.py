# SPDX-License-Identifier: Apache-2.0
"""Two cards with a limit each: the limit follows the card under every form of CUDA_VISIBLE_DEVICES,
and memory counts on the card that it lies on. Usage: devices.py BUILD"""
import os
import subprocess
import sys

build = sys.argv[1]
uuids = [line.split("UUID: ")[1].rstrip(")") for line in
         subprocess.run(["nvidia-smi", "-L"], stdout=subprocess.PIPE, text=True, check=True).stdout.splitlines()]
if len(uuids) < 2:
    print("SKIP: fewer than two cards")
    sys.exit(0)
limits = {uuids[0]: 4096, uuids[1]: 8192}
failed = 0
code = """
import torch
out = []
for i in range(torch.cuda.device_count()):
    p = torch.cuda.get_device_properties(i)
    blocks = []
    try:
        while True:
            blocks.append(torch.empty(64 << 20, dtype=torch.uint8, device=f"cuda:{i}"))
    except torch.OutOfMemoryError:
        pass
    out.append(f"{p.uuid} {p.total_memory >> 20} {len(blocks) * 64}")
print(";".join(out))
"""


def run(visible, **extra):
    environment = dict(os.environ, **extra)
    environment.pop("CUDA_VISIBLE_DEVICES", None)
    if visible is not None:
        environment["CUDA_VISIBLE_DEVICES"] = visible
    return subprocess.run([f"{build}/vgpu", "run", "--memory", "4g,8g", sys.executable, "-c", code], text=True,
                          env=environment, stdout=subprocess.PIPE, stderr=subprocess.DEVNULL).stdout.strip()


cases = [(None, [0, 1]), ("0", [0]), ("1", [1]), ("1,0", [1, 0]), (uuids[1], [1]),
         (f"{uuids[1][:12]},{uuids[0][:12]}", [1, 0])]
for visible, order in cases:
    answer = run(visible)
    devices = [d.split() for d in answer.split(";")] if answer else []
    good = len(devices) == len(order)
    for (uuid, total, got), index in zip(devices, order):
        limit = limits[uuids[index]]
        good = good and uuid in uuids[index] and int(total) == limit and limit - 800 < int(got) < limit
    failed += not good
    print(f"{'ok' if good else 'NOT OK'} - CUDA_VISIBLE_DEVICES={visible}: {answer}", flush=True)
reverse = ",".join(reversed(uuids))
answer = run(None, NVIDIA_VISIBLE_DEVICES=reverse)
totals = [int(d.split()[1]) for d in answer.split(";")]
good = totals == [8192, 4096]
failed += not good
print(f"{'ok' if good else 'NOT OK'} - limits count in NVIDIA_VISIBLE_DEVICES' order: {answer}")
smi = subprocess.run([f"{build}/vgpu", "run", "--memory", "4g,8g", "nvidia-smi"], env=dict(os.environ, CUDA_VISIBLE_DEVICES="1,0"),
                     stdout=subprocess.PIPE, text=True).stdout
good = 0 < smi.find("4096MiB") < smi.find("8192MiB")
failed += not good
print(f"{'ok' if good else 'NOT OK'} - nvidia-smi keeps its own order")
sys.exit(failed != 0)
