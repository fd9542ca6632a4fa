# SPDX-License-Identifier: Apache-2.0
"""CuPy with its own pool or with the driver's asynchronous one. Usage: cupy_fill.py pool|async"""
import sys
import time

import cupy
from outcome import Outcome

asynchronous = sys.argv[1] == "async"
pool = cupy.cuda.MemoryAsyncPool() if asynchronous else cupy.get_default_memory_pool()
if asynchronous:
    cupy.cuda.set_allocator(pool.malloc)
scale = cupy.RawKernel(r"""
extern "C" __global__ void scale(float *values, float factor, int count)
{
    int i = blockIdx.x * blockDim.x + threadIdx.x;
    if (i < count)
        values[i] *= factor;
}
""", "scale")


def memory():
    return cupy.cuda.runtime.memGetInfo()


def take(size):
    return cupy.full(size, 7, dtype=cupy.uint8)


def is_refusal(error):
    return isinstance(error, cupy.cuda.memory.OutOfMemoryError) or "cudaErrorMemoryAllocation" in str(error)


def empty():
    cupy.cuda.Device().synchronize()
    pool.free_all_blocks()


def work():
    values = cupy.arange(1 << 20, dtype=cupy.float32) / (1 << 20)
    for _ in range(20):
        scale(((1 << 20) // 256,), (256,), (values, cupy.float32(1.01), cupy.int32(1 << 20)))
        values = cupy.sin(values)
    square = values.reshape(1024, 1024)
    return float((square @ square).sum()) + float(cupy.abs(cupy.fft.fft(values)).sum())


def main():
    outcome = Outcome()
    cupy.cuda.Device().synchronize()
    outcome.sees(memory())
    began = time.monotonic()
    outcome.computed(work(), time.monotonic() - began)
    outcome.fill(take, is_refusal, memory, 64)
    outcome.release(empty, memory)
    outcome.again(work())
    outcome.say()


main()
