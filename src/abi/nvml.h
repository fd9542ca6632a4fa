/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Our own declarations of NVML: types and prototypes, no macro that renames.
 */
#ifndef VGPU_ABI_NVML_H
#define VGPU_ABI_NVML_H

#include "abi/nvml_api.h"
#include "abi/nvml_types.h"

#endif
