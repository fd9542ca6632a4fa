# SPDX-License-Identifier: Apache-2.0
"""What a test starts from: the environment without what must not leak in, and a build in which `vgpu`
finds its simulator. Machines and boards are the test's own: no other test's program is on them."""
import os
import sys
import tempfile

import tap  # makes the directory of temporary files

BUILD = os.path.abspath(sys.argv[1])
VGPU = os.path.join(BUILD, "vgpu")
MINE = {name: value for name, value in os.environ.items()
        if not name.startswith(("CUDA_", "VGPU_", "LD_", "LIBCUDA_", "NVIDIA_", "GPU_", "MANAGER_"))}

if not os.path.exists(os.path.join(BUILD, "sim")):
    os.symlink("src/sim", os.path.join(BUILD, "sim"))

assert tap
MINE["VGPU_SIM_MACHINE"] = os.path.join(tempfile.gettempdir(), "machines/")
MINE["VGPU_BOARD_DIR"] = os.path.join(tempfile.gettempdir(), "boards")  # which is not made
