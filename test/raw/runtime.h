/* SPDX-License-Identifier: Apache-2.0 */
/* The CUDA runtime's functions for the raw-API programs that are called test_runtime_*: those of a
 * libcudart where one is found, so that its way to the driver is tried. Elsewhere the driver's own
 * are called as the runtime calls them: found by cuGetProcAddress, in the primary context. */
#ifndef VGPU_TEST_RAW_RUNTIME_H
#define VGPU_TEST_RAW_RUNTIME_H

#include "raw.h"

/* The errors of both that matter here have one number: 0, and 2 for out of memory. */
struct runtime {
    int (*cudaFree)(void *pointer);
    int (*cudaFreeHost)(void *pointer);
    int (*cudaHostAlloc)(void **pointer, size_t bytes, unsigned flags);
    int (*cudaHostRegister)(void *pointer, size_t bytes, unsigned flags);
    int (*cudaHostUnregister)(void *pointer);
    int (*cudaMalloc)(void **pointer, size_t bytes);
    int (*cudaMallocHost)(void **pointer, size_t bytes);
    int (*cudaMallocManaged)(void **pointer, size_t bytes, unsigned flags);
    int (*cudaMemset)(void *pointer, int value, size_t bytes);
};

extern struct runtime runtime;

/* Finds the functions and says which; `--driver-api` among the arguments is for a libcudart that is
 * to be let alone (on the simulator none works). Ends the program with 2 on other arguments, with 1
 * where functions are missing. To be called before raw_begin. */
void runtime_begin(int argc, char **argv);

#endif
