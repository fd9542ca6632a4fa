# SPDX-License-Identifier: Apache-2.0
"""What a test starts from: the environment without what must not leak in, and a build in which `vgpu`
finds its simulator."""
import os
import sys

BUILD = os.path.abspath(sys.argv[1])
VGPU = os.path.join(BUILD, "vgpu")
MINE = {name: value for name, value in os.environ.items()
        if not name.startswith(("CUDA_", "VGPU_", "LD_", "LIBCUDA_", "NVIDIA_", "GPU_", "MANAGER_"))}

if not os.path.exists(os.path.join(BUILD, "sim")):
    os.symlink("src/sim", os.path.join(BUILD, "sim"))
