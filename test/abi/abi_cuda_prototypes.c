/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Compiling this file is the test: a prototype of ours that differs from the toolkit's is an error,
 * as is an entry of the list that the toolkit does not declare.
 * Build: cc -std=c11 -Wall -Wextra -Werror -Isrc -I<toolkit>/include -c abi_cuda_prototypes.c
 */
#define __CUDA_API_VERSION_INTERNAL
#include <cuda.h>
#include <cudaProfiler.h>

/* Before our own declarations, so that only the toolkit's can make these names known. */
#define ENTRY(symbol, name, version, kind)                                                         \
    _Static_assert(sizeof(&symbol) == sizeof(void *), #symbol);
#define ENTRY_OF_CUDA_H_ALONE
#if CUDA_VERSION < 13050
#define ENTRY_UNTIL_13000 /* the toolkit may lack the later ones */
#endif
#include "abi/cuda_versions.def"
#undef ENTRY

#include "abi/cuda_api.h"
