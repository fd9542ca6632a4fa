/* SPDX-License-Identifier: Apache-2.0 */
/* From a module image as programs give it (PTX text, fat binary, cubin) to parsed PTX. */
#ifndef VGPU_SIM_CUDA_IMAGE_H
#define VGPU_SIM_CUDA_IMAGE_H

#include "sim/cuda/cuda_sim.h"
#include "sim/cuda/ptx.h"

/* NO_BINARY_FOR_GPU where the image holds no PTX that this device could run. */
CUresult image_read(const struct device *device, const void *image, struct ptx *ret_ptx);
/* The file's bytes with a zero behind them, to be freed. */
CUresult image_load(const char *path, char **ret_image);

#endif
