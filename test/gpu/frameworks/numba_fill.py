# SPDX-License-Identifier: Apache-2.0
"""Numba's CUDA target: arrays, a kernel, out of memory."""
import time

import numpy
from numba import cuda
from outcome import Outcome


@cuda.jit
def scale(values, factor):
    i = cuda.grid(1)
    if i < values.size:
        values[i] *= factor


def memory():
    free, total = cuda.current_context().get_memory_info()
    return free, total


def take(size):
    return cuda.device_array(size, dtype=numpy.uint8)


def is_refusal(error):
    return "OUT_OF_MEMORY" in str(error)


def work():
    values = cuda.to_device(numpy.arange(1 << 20, dtype=numpy.float32))
    for _ in range(20):
        scale[(1 << 20) // 256, 256](values, numpy.float32(1.01))
    cuda.synchronize()
    return float(values.copy_to_host().astype(numpy.float64).sum())


def main():
    outcome = Outcome()
    outcome.sees(memory())
    began = time.monotonic()
    outcome.computed(work(), time.monotonic() - began)
    outcome.fill(take, is_refusal, memory)
    # Numba frees later, at the latest when it runs out of memory: then all can be taken once more.
    first = outcome.values.get("filled_mib", 0)
    outcome.release(lambda: None)
    outcome.fill(take, is_refusal, memory)
    outcome.check("all can be taken once more", abs(outcome.values.get("filled_mib", 0) - first) <= 64,
                  f"{first} and {outcome.values.get('filled_mib', 0)} MiB")
    outcome.release(lambda: None)
    outcome.again(work())
    outcome.say()


main()
