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
SAMPLES_MAX = 256
GPU_UTILIZATION_SAMPLES = 1
BATCH_S = 0.02  # seconds of work; at most twice this is queued


class Sample(ctypes.Structure):
    _fields_ = [("time_us", ctypes.c_ulonglong), ("percent", ctypes.c_ulonglong)]


class Sampler(threading.Thread):
    """The device's utilisation, as NVML samples it."""

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

    def take(self):
        """What NVML has sampled since it was asked last; all of the time is in its samples."""
        samples, kind, count = (Sample * SAMPLES_MAX)(), ctypes.c_int(), ctypes.c_uint(SAMPLES_MAX)
        last = self.samples[-1][0] if self.samples else 0
        if not self.nvml.nvmlDeviceGetSamples(self.device, GPU_UTILIZATION_SAMPLES, ctypes.c_ulonglong(last),
                                              ctypes.byref(kind), ctypes.byref(count), samples):
            self.samples += [(each.time_us, each.percent & 0xffffffff) for each in samples[:count.value]
                             if each.time_us > last]

    def run(self):
        while self.nvml and not self.end.wait(SAMPLE_S):
            self.take()

    def mean(self, began_s, ended_s):
        """Of those that lie between the two moments of the wall's clock."""
        self.end.set()
        self.join()
        if self.nvml:
            self.take()
        within = [percent for (before, _), (at, percent) in zip(self.samples, self.samples[1:])
                  if before >= began_s * 1e6 and at <= ended_s * 1e6]
        return sum(within) / len(within) if within else None


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
    began, wall, cpu = time.monotonic(), time.time(), time.process_time()
    steps = steps_until(step, began + seconds, batch)
    took, cpu = time.monotonic() - began, time.process_time() - cpu
    utilization = sampler.mean(wall, wall + took)
    print(json.dumps({"work_per_second": steps / took, "kernels": steps, "seconds": took,
                      "cpu_seconds": cpu, "nvml_utilization": utilization, "latency_us": None,
                      "torch": torch.__version__}))
