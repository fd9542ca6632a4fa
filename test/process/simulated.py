# SPDX-License-Identifier: Apache-2.0
"""A program with CUDA over the simulator, natively and under the library."""
import os
import subprocess

from both import CLEAN
from mine import BUILD

SIM = os.path.join(BUILD, "src/sim")
LIBRARY = os.path.join(BUILD, "libvgpu.so")
MANAGER = os.path.join(SIM, "libvgpu-sim-rm.so")


def environment(directory, ours=True, **more):
    """A machine and a region of the directory's."""
    return {**CLEAN, "LD_PRELOAD": f"{LIBRARY}:{MANAGER}" if ours else MANAGER, "LD_LIBRARY_PATH": SIM,
            "VGPU_SIM_MACHINE": f"{directory}/machine", "VGPU_BOARD_DIR": f"{directory}/boards",
            "CUDA_DEVICE_MEMORY_SHARED_CACHE": f"{directory}/region", **more}


def run(directory, *command, ours=True, before=(), variables=None, **options):
    """`before` runs the command, and is not under the library itself."""
    variables = environment(directory, ours, **(variables or {}))
    if before:
        preload = [f"LD_PRELOAD={variables.pop('LD_PRELOAD')}",
                   f"LD_LIBRARY_PATH={variables.pop('LD_LIBRARY_PATH')}"]
        command = (*before, "env", *preload, *command)
    return subprocess.run(command, env=variables, capture_output=True, text=True, timeout=100, check=False,
                          stdin=subprocess.DEVNULL, **options)
