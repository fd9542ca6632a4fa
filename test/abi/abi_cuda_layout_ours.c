/* SPDX-License-Identifier: Apache-2.0 */
/*
 * The layout table as our own declarations have it. Part of the test abi_cuda_layout.
 */
#include "abi/cuda.h"

#include "abi_cuda_layout.h"

const struct layout_row layout_ours[] = {
#include "abi_cuda_layout.def"
};
const size_t layout_ours_count = sizeof(layout_ours) / sizeof(layout_ours[0]);
