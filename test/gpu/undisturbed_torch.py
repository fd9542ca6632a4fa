# SPDX-License-Identifier: Apache-2.0
"""PyTorch's captures in each mode, while another thread launches, and its profiler: that both work and
compute what they compute without."""
import sys
import threading
import time

from watch import check, failures

try:
    import torch
    from torch.profiler import ProfilerActivity, profile
except ImportError:
    print("SKIP: no PyTorch here")
    sys.exit(77)

STEPS, REPLAYS = 20, 100
torch.manual_seed(0)
weight = torch.randn(1024, 1024, device="cuda") / 32
first = torch.randn(256, 1024, device="cuda")


def step(value):
    return torch.relu(value @ weight)


def steps(value, count):
    for _ in range(count):
        value = step(value)
    return value


def differs(value, wanted):
    return (value - wanted).abs().max().item() / max(wanted.abs().max().item(), 1e-30)


class Beside(threading.Thread):
    """Launches in place on a stream of its own: it allocates nothing, which a capture would forbid."""

    def __init__(self):
        super().__init__(daemon=True)
        self.ends, self.begun, self.launched = threading.Event(), threading.Event(), 0
        self.cells = torch.ones(64 << 20, device="cuda")
        self.stream = torch.cuda.Stream()

    def run(self):
        with torch.cuda.stream(self.stream):
            while not self.ends.is_set():
                self.cells.mul_(1.0)
                self.launched += 1
                if self.launched == 500:
                    self.begun.set()

    def launch_more(self, count):
        """Returns when so many more are launched, after 10 s at the latest."""
        wanted, end = self.launched + count, time.monotonic() + 10
        while self.launched < wanted and time.monotonic() < end:
            time.sleep(0.001)


def capture(mode):
    static_in = first.clone()
    stream = torch.cuda.Stream()
    stream.wait_stream(torch.cuda.current_stream())
    with torch.cuda.stream(stream):
        steps(static_in, STEPS)
    torch.cuda.current_stream().wait_stream(stream)
    wanted = steps(static_in, STEPS)
    torch.cuda.synchronize()
    beside = Beside()
    beside.start()
    beside.begun.wait(30)
    graph = torch.cuda.CUDAGraph()
    try:
        with torch.cuda.graph(graph, capture_error_mode=mode):
            static_out = steps(static_in, STEPS)
            beside.launch_more(50)  # some of them wait at the gate while the capture is on
    finally:
        beside.ends.set()
        beside.join(30)
    for _ in range(REPLAYS):
        graph.replay()
    torch.cuda.synchronize()
    difference = differs(static_out, wanted)
    check(f"a capture in mode {mode} beside a thread that launches replays right", difference < 1e-3,
          f"{difference:.1e}, {beside.launched} launches beside")


def profiled():
    wanted = steps(first, STEPS)
    torch.cuda.synchronize()
    with profile(activities=[ProfilerActivity.CPU, ProfilerActivity.CUDA]) as seen:
        value = steps(first, STEPS)
        torch.cuda.synchronize()
    kernels = [event for event in seen.events() if event.device_type == torch.autograd.DeviceType.CUDA]
    took_us = sum(event.time_range.elapsed_us() for event in kernels)
    check("PyTorch's profiler sees each kernel", len(kernels) >= 2 * STEPS, f"{len(kernels)} on the device")
    check("and that each takes time", took_us > 0, f"{took_us:.0f} us in all")
    check("what is profiled computes the same", differs(value, wanted) < 1e-3)


for capture_mode in ("global", "thread_local", "relaxed"):
    try:
        capture(capture_mode)
    except RuntimeError as error:
        check(f"a capture in mode {capture_mode}", False, str(error).splitlines()[0])
try:
    profiled()
except RuntimeError as error:
    check("PyTorch's profiler", False, str(error).splitlines()[0])
sys.exit(failures() != 0)
