/* SPDX-License-Identifier: Apache-2.0 */
/* test_runtime_host_register: the program's own host memory, pinned by the CUDA runtime. */
#include "runtime.h"

#include <stdlib.h>

#define PAGE_BYTES 4096

static void *memory;

static CUresult take(uint64_t bytes)
{
    memory = aligned_alloc(PAGE_BYTES, bytes);
    return memory ? (CUresult)runtime.cudaHostRegister(memory, bytes, 0)
                  : CUDA_ERROR_OPERATING_SYSTEM;
}

static void use(uint64_t bytes)
{
    raw_check_host(memory, bytes);
}

static CUresult give(void)
{
    CUresult result = (CUresult)runtime.cudaHostUnregister(memory);
    free(memory);
    return result;
}

int main(int argc, char **argv)
{
    runtime_begin(argc, argv);
    return raw_host_memory(
        &(struct raw_kind){.name = "cudaHostRegister", .take = take, .use = use, .give = give});
}
