#!/bin/sh
# SPDX-License-Identifier: Apache-2.0
# Builds everything into build/, as HAMi-core's and vgpu-controller's users call it; `make` does the
# same. J is how many jobs run at a time (default: ninja's), CC the compiler.
set -eu
cd "$(dirname "$0")"
make J="${J:-}"
echo "built:"
for product in libvgpu.so libvgpu-control.so vgpu shrreg-tool test_alloc test_vram_limit test_runtime_launch; do
    [ ! -e "build/$product" ] || echo "  build/$product"
done
