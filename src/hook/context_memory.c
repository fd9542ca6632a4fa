/* SPDX-License-Identifier: Apache-2.0 */
/* Local memory and heaps under the API ledger. Local memory seen on an H200, driver 580.159.04:
 * threads that the device can hold × bytes a thread, beyond the 1 KiB of the default stack that is
 * part of the context (8,184 MiB for 32 KiB a thread). Heaps are taken by the driver at first use;
 * they are charged when they are sized, because that use is not seen here. */
#include "hook/context_memory.h"

#include "base/saturate.h"
#include "hook/hook.h"

#define DEFAULT_STACK_BYTES 1024u
#define DEFAULT_MALLOC_BYTES (8u << 20)
#define DEFAULT_PRINTF_BYTES (1u << 20)

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

static uint64_t beyond(uint64_t value, uint64_t included)
{
    return value > included ? value - included : 0;
}

static uint64_t limit_bytes(CUlimit limit, uint64_t value, CUdevice ordinal)
{
    switch (limit) {
    case CU_LIMIT_STACK_SIZE:
        return saturating_product(beyond(value, DEFAULT_STACK_BYTES), threads_of(ordinal));
    case CU_LIMIT_MALLOC_HEAP_SIZE:
        return beyond(value, DEFAULT_MALLOC_BYTES);
    case CU_LIMIT_PRINTF_FIFO_SIZE:
        return beyond(value, DEFAULT_PRINTF_BYTES);
    default:
        return 0;
    }
}

/* Addresses have 48 bits or fewer. */
static uint64_t handle_of(uint64_t context, CUlimit limit)
{
    return context ^ (uint64_t)limit << 48;
}

static uint64_t charged_bytes(uint64_t handle)
{
    struct memory_record held = memory_take(MEMORY_CONTEXT_LIMIT, handle);
    memory_taken(&held, false, MEMORY_CONTEXT_LIMIT, handle);
    return held.device < 0 ? 0 : held.bytes;
}

bool context_memory_fits_limit(CUlimit limit, size_t value, struct context_growth *ret_growth)
{
    CUdevice ordinal;
    *ret_growth = (struct context_growth){.limit = limit};
    if (memory_ledger() != MEMORY_LEDGER_API || cuda.cuCtxGetDevice(&ordinal) != CUDA_SUCCESS)
        return true;
    uint64_t context = memory_current_context(), handle = handle_of(context, limit);
    uint64_t wanted = limit_bytes(limit, value, ordinal), has = charged_bytes(handle);
    if (wanted <= has)
        return true;
    struct memory_request request;
    if (memory_begin(&request, hook_device(ordinal), wanted - has, ACCOUNT_CONTEXT) != 0)
        return false;
    memory_set(MEMORY_CONTEXT_LIMIT, handle, request.device, wanted, ACCOUNT_CONTEXT);
    memory_end(&request, false, MEMORY_CONTEXT_LIMIT, handle);
    ret_growth->ordinal = ordinal;
    ret_growth->context = context;
    ret_growth->former_bytes = has;
    ret_growth->charged = true;
    return true;
}

bool context_memory_fits_function(CUfunction function, struct context_growth *ret_growth)
{
    int bytes = 0;
    *ret_growth = (struct context_growth){.limit = CU_LIMIT_STACK_SIZE};
    if (cuda.cuFuncGetAttribute(&bytes, CU_FUNC_ATTRIBUTE_LOCAL_SIZE_BYTES, function) !=
            CUDA_SUCCESS ||
        bytes <= (int)DEFAULT_STACK_BYTES)
        return true;
    return context_memory_fits_limit(CU_LIMIT_STACK_SIZE, (size_t)bytes, ret_growth);
}

void context_memory_settle(const struct context_growth *growth, bool grown)
{
    if (growth->charged && !grown)
        memory_set(MEMORY_CONTEXT_LIMIT, handle_of(growth->context, growth->limit),
            hook_device(growth->ordinal), growth->former_bytes, ACCOUNT_CONTEXT);
}
