/* SPDX-License-Identifier: Apache-2.0 */
/* test_runtime_alloc_managed: managed memory, by the CUDA runtime. */
#include "runtime.h"

static void *pointer;

static CUresult take(uint64_t bytes)
{
    return (CUresult)runtime.cudaMallocManaged(&pointer, bytes, CU_MEM_ATTACH_GLOBAL);
}

static void use(uint64_t bytes)
{
    raw_check(runtime.cudaMemset(pointer, 1, bytes) == 0, "it can be filled");
    raw_check_contents((CUdeviceptr)(uintptr_t)pointer, bytes);
}

static CUresult give(void)
{
    return (CUresult)runtime.cudaFree(pointer);
}

int main(int argc, char **argv)
{
    runtime_begin(argc, argv);
    return raw_device_memory(&(struct raw_kind){
        .name = "cudaMallocManaged", .take = take, .use = use, .give = give, .may_exceed = true});
}
