# SPDX-License-Identifier: Apache-2.0
"""What the PyTorch loads have in common: steps per second over a window, NVML's utilisation in it and
the process's own CPU time, as one JSON object like vgpu-load's. Usage of each: NAME.py SECONDS WARMUP"""
import ctypes
import json
import sys
import threading
import time

import torch

SAMPLE_S = 0.1
FIRST_S = 0.3  # NVML's first figures are of the time before
BATCH_S = 0.02  # so much work at most is queued twice


class Utilization(ctypes.Structure):
    _fields_ = [("gpu", ctypes.c_uint), ("memory", ctypes.c_uint)]


class Sampler(threading.Thread):
    """The device's utilisation, asked each 100 ms."""

    def __init__(self):
        super().__init__(daemon=True)
        self.samples, self.end = [], threading.Event()
        try:
            self.nvml = ctypes.CDLL("libnvidia-ml.so.1")
            self.device = ctypes.c_void_p()
            if self.nvml.nvmlInit_v2() or self.find_device():
                self.nvml = None
        except OSError:
            self.nvml = None

    def find_device(self):
        """The device that PyTorch uses; the first where it is too old to say."""
        uuid = str(getattr(torch.cuda.get_device_properties(0), "uuid", ""))
        if uuid:
            uuid = uuid if uuid.startswith("GPU-") else "GPU-" + uuid
            if not self.nvml.nvmlDeviceGetHandleByUUID(uuid.encode(), ctypes.byref(self.device)):
                return 0
        return self.nvml.nvmlDeviceGetHandleByIndex_v2(0, ctypes.byref(self.device))

    def run(self):
        figure = Utilization()
        began = time.monotonic()
        while self.nvml and not self.end.wait(SAMPLE_S):
            refused = self.nvml.nvmlDeviceGetUtilizationRates(self.device, ctypes.byref(figure))
            if not refused and time.monotonic() - began >= FIRST_S:
                self.samples.append(figure.gpu)

    def mean(self):
        self.end.set()
        return sum(self.samples) / len(self.samples) if self.samples else None


def steps_until(step, end, batch):
    """Steps made until the end, with two batches queued at most."""
    steps, marks = 0, []
    while time.monotonic() < end:
        for _ in range(batch):
            step()
        steps += batch
        marks.append(torch.cuda.Event())
        marks[-1].record()
        if len(marks) > 2:
            marks.pop(0).synchronize()
    torch.cuda.synchronize()
    return steps


def measure(step):
    seconds, warmup = float(sys.argv[1]), float(sys.argv[2])
    sampler = Sampler()
    for _ in range(10):  # what libraries do at their first use
        step()
    torch.cuda.synchronize()
    began = time.monotonic()
    steps = steps_until(step, began + max(warmup, 0.2), 1)
    batch = max(1, int(steps * BATCH_S / (time.monotonic() - began)))
    sampler.start()
    print(flush=True)  # the window begins
    began, cpu = time.monotonic(), time.process_time()
    steps = steps_until(step, began + seconds, batch)
    took, cpu = time.monotonic() - began, time.process_time() - cpu
    print(json.dumps({"work_per_second": steps / took, "kernels": steps, "seconds": took,
                      "cpu_seconds": cpu, "nvml_utilization": sampler.mean(), "latency_us": None,
                      "torch": torch.__version__}))
