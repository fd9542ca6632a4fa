/* SPDX-License-Identifier: Apache-2.0 */
/* test_runtime_alloc_host: pinned host memory by cudaMallocHost. */
#include "runtime.h"

static void *pointer;

static CUresult take(uint64_t bytes)
{
    return (CUresult)runtime.cudaMallocHost(&pointer, bytes);
}

static void use(uint64_t bytes)
{
    raw_check_host(pointer, bytes);
}

static CUresult give(void)
{
    return (CUresult)runtime.cudaFreeHost(pointer);
}

int main(int argc, char **argv)
{
    runtime_begin(argc, argv);
    return raw_host_memory(
        &(struct raw_kind){.name = "cudaMallocHost", .take = take, .use = use, .give = give});
}
