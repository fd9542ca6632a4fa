/* SPDX-License-Identifier: Apache-2.0 */
/* Local memory under the API ledger. Formula seen to hold on an H200, driver 580.159.04: threads
 * that the device can hold × bytes a thread, beyond the 1 KiB of the default stack that is part of
 * the context (8,184 MiB for 32 KiB a thread). */
#include "hook/local_memory.h"

#include "hook/hook.h"

#define DEFAULT_BYTES 1024

static uint64_t threads_of(CUdevice ordinal)
{
    int processors = 0, threads = 0;
    if (cuda.cuDeviceGetAttribute(&processors, CU_DEVICE_ATTRIBUTE_MULTIPROCESSOR_COUNT, ordinal) !=
            CUDA_SUCCESS ||
        cuda.cuDeviceGetAttribute(
            &threads, CU_DEVICE_ATTRIBUTE_MAX_THREADS_PER_MULTIPROCESSOR, ordinal) != CUDA_SUCCESS)
        return 0;
    return (uint64_t)processors * (uint64_t)threads;
}

bool local_memory_fits(size_t bytes_per_thread)
{
    CUdevice ordinal;
    if (memory_ledger() != MEMORY_LEDGER_API || cuda.cuCtxGetDevice(&ordinal) != CUDA_SUCCESS)
        return true;
    uint64_t wanted = bytes_per_thread > DEFAULT_BYTES
                          ? (bytes_per_thread - DEFAULT_BYTES) * threads_of(ordinal)
                          : 0;
    struct memory_record held = memory_take(MEMORY_LOCAL, (uint64_t)ordinal);
    uint64_t has = held.device == CONTAINER_DEVICE_UNKNOWN ? 0 : held.bytes;
    memory_taken(&held, false, MEMORY_LOCAL, (uint64_t)ordinal);
    if (wanted <= has)
        return true;
    struct memory_request request;
    if (memory_begin(&request, hook_device(ordinal), wanted - has, ACCOUNT_CONTEXT) != 0)
        return false;
    memory_set(MEMORY_LOCAL, (uint64_t)ordinal, request.device, wanted, ACCOUNT_CONTEXT);
    memory_end(&request, false, MEMORY_LOCAL, 0);
    return true;
}

bool local_memory_fits_function(CUfunction function)
{
    int bytes = 0;
    if (cuda.cuFuncGetAttribute(&bytes, CU_FUNC_ATTRIBUTE_LOCAL_SIZE_BYTES, function) !=
        CUDA_SUCCESS)
        return true;
    return bytes <= DEFAULT_BYTES || local_memory_fits((size_t)bytes);
}

void local_memory_forget(CUdevice ordinal)
{
    struct memory_record record = memory_take(MEMORY_LOCAL, (uint64_t)ordinal);
    memory_taken(&record, true, MEMORY_LOCAL, (uint64_t)ordinal);
}
