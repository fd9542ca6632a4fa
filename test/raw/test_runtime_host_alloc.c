/* SPDX-License-Identifier: Apache-2.0 */
/* test_runtime_host_alloc: pinned host memory by cudaHostAlloc. */
#include "runtime.h"

static void *pointer;

static CUresult take(uint64_t bytes)
{
    return (CUresult)runtime.cudaHostAlloc(&pointer, bytes, 0);
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
        &(struct raw_kind){.name = "cudaHostAlloc", .take = take, .use = use, .give = give});
}
