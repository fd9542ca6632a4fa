# SPDX-License-Identifier: Apache-2.0
"""What a program in a Pod's container sees of its card, and what it gets."""
import re

from tap import equal, true

from world import World


def fill(pod, container="main", *before):
    """(what a program in the container sees, what it got before it was refused), in MiB"""
    text = World.run(pod, *before, "vgpu-example-fill", "--step", "100MiB", container=container).stdout
    return filled(text)


def filled(text):
    true("then got CUDA_ERROR_OUT_OF_MEMORY" in text, text)
    return int(re.search(r"sees (\d+) MiB", text)[1]), int(re.search(r"allocated (\d+) MiB", text)[1])


def held_to(pod, memory, container="main", *before):
    """A context and its code count too, so a program gets less than the limit."""
    total, taken = fill(pod, container, *before)
    equal(total, memory, f"what {pod}/{container} sees")
    true(memory - 1000 <= taken <= memory, f"{taken} MiB of {memory}")


def restarts(name):
    return World.pod(name)["status"]["containerStatuses"][0]["restartCount"]
