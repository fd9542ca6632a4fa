# SPDX-License-Identifier: Apache-2.0
"""JAX with the allocator that the XLA_ variables name. Usage: jax_fill.py preallocate|grow|platform|async"""
import sys
import time

from outcome import MIB, BLOCK_MIB, Outcome, limit_mib, nvml_memory

import jax
import jax.numpy as jnp

mode = sys.argv[1]


def take(size):
    block = jnp.full((size,), 7, dtype=jnp.uint8)
    block.block_until_ready()
    return block


def is_refusal(error):
    return "RESOURCE_EXHAUSTED" in str(error) or "out of memory" in str(error).lower()


@jax.jit
def step(w, x):
    loss, slope = jax.value_and_grad(lambda v: jnp.mean((jnp.tanh(x @ v) - x) ** 2))(w)
    return w - 0.1 * slope, loss


def work():
    key = jax.random.PRNGKey(1)
    w = jax.random.normal(key, (256, 256)) * 0.05
    x = jax.random.normal(jax.random.PRNGKey(2), (512, 256))
    for _ in range(50):
        w, loss = step(w, x)
    return float(jnp.sum(jnp.abs(w))) + float(loss)


def main():
    jax.config.update("jax_default_matmul_precision", "highest")
    outcome = Outcome()
    device = jax.devices()[0]
    outcome.check("JAX uses the card", device.platform in ("gpu", "cuda"), device.platform)
    outcome.sees(nvml_memory())
    if mode == "preallocate":
        # Preallocated by now; for later comparisons, what was free without that.
        outcome.values["free_mib"] = outcome.values["total_mib"]
    began = time.monotonic()
    outcome.computed(work(), time.monotonic() - began)
    statistics = device.memory_stats() or {}
    outcome.note("bytes_limit_mib", statistics.get("bytes_limit", 0) / MIB)
    if limit_mib and mode == "preallocate":
        share = statistics.get("bytes_limit", 0) / MIB / limit_mib
        outcome.check("three quarters of the slice are preallocated", 0.72 <= share <= 0.76, f"{share:.3f}")
    outcome.fill(take, is_refusal, None if mode == "preallocate" else nvml_memory, 192 if mode == "grow" else 64)
    if limit_mib and mode == "preallocate":
        filled = outcome.values["filled_mib"]
        outcome.check("all that is preallocated is used", filled >= 0.7 * limit_mib - 2 * BLOCK_MIB, f"{filled} MiB")
    outcome.release(lambda: None)
    outcome.again(work())
    outcome.say()


main()
