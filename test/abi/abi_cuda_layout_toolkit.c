/* SPDX-License-Identifier: Apache-2.0 */
/*
 * The layout table as the toolkit's header has it. Part of the test abi_cuda_layout.
 */
#define __CUDA_API_VERSION_INTERNAL
#include <cuda.h>

#include "abi_cuda_layout.h"

const struct layout_row layout_toolkit[] = {
#include "abi_cuda_layout.def"
};
const size_t layout_toolkit_count = sizeof(layout_toolkit) / sizeof(layout_toolkit[0]);
