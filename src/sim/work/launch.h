/* SPDX-License-Identifier: Apache-2.0 */
/* From a launch's parameters to work for a stream or a graph node. */
#ifndef VGPU_SIM_WORK_LAUNCH_H
#define VGPU_SIM_WORK_LAUNCH_H

#include "sim/work/stream.h"

/* Reads the kernel's parameters now, as the driver does. Checks dimensions. */
CUresult launch_work(const CUDA_KERNEL_NODE_PARAMS *params, struct work *ret_work);

#endif
