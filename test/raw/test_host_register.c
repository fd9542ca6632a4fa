/* SPDX-License-Identifier: Apache-2.0 */
/* test_host_register: the program's own host memory, pinned where it lies. */
#include "raw.h"

#include <stdlib.h>

#define PAGE_BYTES 4096

static void *memory;

static CUresult take(uint64_t bytes)
{
    memory = aligned_alloc(PAGE_BYTES, bytes);
    return memory ? driver.cuMemHostRegister_v2(memory, bytes, 0) : CUDA_ERROR_OPERATING_SYSTEM;
}

static void use(uint64_t bytes)
{
    raw_check_host(memory, bytes);
}

static CUresult give(void)
{
    CUresult result = driver.cuMemHostUnregister(memory);
    free(memory);
    return result;
}

int main(void)
{
    return raw_host_memory(
        &(struct raw_kind){.name = "cuMemHostRegister", .take = take, .use = use, .give = give});
}
