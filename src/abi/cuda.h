/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Our own declarations of the CUDA driver API: types and prototypes, no macro that renames.
 * Programs that include the toolkit's <cuda.h> must not include this file.
 */
#ifndef VGPU_ABI_CUDA_H
#define VGPU_ABI_CUDA_H

#include "abi/cuda_api.h"
#include "abi/cuda_types.h"

#endif
