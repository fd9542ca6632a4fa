/* SPDX-License-Identifier: Apache-2.0 */
/* Local memory and heaps under the API ledger. Local memory seen on an H200, driver 580.159.04:
 * threads that the device can hold × bytes a thread, beyond the 1 KiB of the default stack that is
 * part of the context (8,184 MiB for 32 KiB a thread). Heaps are taken by the driver at first use;
 * they are charged when they are sized, because that use is not seen here. */
#include "memory/context_memory.h"

#include "base/saturating.h"
#include "container/container.h"
#include "container/device.h"
#include "driver/cuda.h"
#include "memory/memory.h"

#define DEFAULT_STACK_BYTES 1024u
#define DEFAULT_MALLOC_BYTES (8u << 20)
#define DEFAULT_PRINTF_BYTES (1u << 20)

static CUresult ask_threads(CUdevice ordinal, uint64_t *ret_threads)
{
    int processors = 0, threads = 0;
    CUresult result =
        cuda.cuDeviceGetAttribute(&processors, CU_DEVICE_ATTRIBUTE_MULTIPROCESSOR_COUNT, ordinal);
    if (result == CUDA_SUCCESS)
        result = cuda.cuDeviceGetAttribute(
            &threads, CU_DEVICE_ATTRIBUTE_MAX_THREADS_PER_MULTIPROCESSOR, ordinal);
    if (result == CUDA_SUCCESS)
        *ret_threads = (uint64_t)processors * (uint64_t)threads;
    return result;
}

static uint64_t beyond(uint64_t value, uint64_t included)
{
    return value > included ? value - included : 0;
}

static CUresult ask_limit_bytes(
    CUlimit limit, uint64_t value, CUdevice ordinal, uint64_t *ret_bytes)
{
    uint64_t threads = 0;
    CUresult result = CUDA_SUCCESS;
    switch (limit) {
    case CU_LIMIT_STACK_SIZE:
        result = ask_threads(ordinal, &threads);
        *ret_bytes = saturating_product(beyond(value, DEFAULT_STACK_BYTES), threads);
        return result;
    case CU_LIMIT_MALLOC_HEAP_SIZE:
        *ret_bytes = beyond(value, DEFAULT_MALLOC_BYTES);
        return result;
    case CU_LIMIT_PRINTF_FIFO_SIZE:
        *ret_bytes = beyond(value, DEFAULT_PRINTF_BYTES);
        return result;
    default:
        *ret_bytes = 0;
        return result;
    }
}

/* Addresses have 48 bits or fewer. */
static uint64_t handle_of(uint64_t context, CUlimit limit)
{
    return context ^ (uint64_t)limit << 48;
}

/* A growth that cannot be told is refused where a limit is set. */
static bool untold(struct context_growth *growth, CUresult result)
{
    growth->refusal = result;
    return container_unidentified_device() != CONTAINER_DEVICE_CLOSED;
}

/* What the growth is judged by; where a question fails, the driver's code. */
static CUresult ask_growth(CUlimit limit, size_t value, struct context_growth *growth, int *device)
{
    CUresult result = cuda.cuCtxGetDevice(&growth->ordinal);
    if (result == CUDA_SUCCESS)
        result = device_identify(growth->ordinal, device);
    if (result == CUDA_SUCCESS && memory_current_context(&growth->context) != 0)
        result = CUDA_ERROR_OUT_OF_MEMORY;
    if (result == CUDA_SUCCESS)
        result = ask_limit_bytes(limit, value, growth->ordinal, &growth->bytes);
    return result;
}

bool context_memory_fits_limit(CUlimit limit, size_t value, struct context_growth *ret_growth)
{
    int device;
    *ret_growth = (struct context_growth){.limit = limit, .refusal = CUDA_ERROR_OUT_OF_MEMORY};
    if (memory_ledger() != MEMORY_LEDGER_API)
        return true;
    CUresult result = ask_growth(limit, value, ret_growth, &device);
    if (result != CUDA_SUCCESS)
        return result == CUDA_ERROR_INVALID_CONTEXT || untold(ret_growth, result);
    uint64_t handle = handle_of(ret_growth->context, limit);
    uint64_t wanted = ret_growth->bytes, has = memory_recorded_bytes(MEMORY_CONTEXT_LIMIT, handle);
    ret_growth->former_bytes = has;
    ret_growth->told = true;
    if (wanted <= has)
        return true;
    struct memory_request request;
    if (memory_begin(&request, device, wanted - has, ACCOUNT_CONTEXT) != 0)
        return false;
    memory_set_owned(
        MEMORY_CONTEXT_LIMIT, handle, request.device, wanted, ACCOUNT_CONTEXT, ret_growth->context);
    memory_end(&request, false, MEMORY_CONTEXT_LIMIT, handle);
    ret_growth->charged = true;
    return true;
}

bool context_memory_fits_function(CUfunction function, struct context_growth *ret_growth)
{
    int bytes = 0;
    *ret_growth = (struct context_growth){.limit = CU_LIMIT_STACK_SIZE};
    CUresult result = cuda.cuFuncGetAttribute(&bytes, CU_FUNC_ATTRIBUTE_LOCAL_SIZE_BYTES, function);
    /* A CUkernel may be launched, but is no function to ask about. */
    if (result != CUDA_SUCCESS)
        return result == CUDA_ERROR_INVALID_HANDLE || untold(ret_growth, result);
    if (bytes <= (int)DEFAULT_STACK_BYTES)
        return true;
    return context_memory_fits_limit(CU_LIMIT_STACK_SIZE, (size_t)bytes, ret_growth);
}

static void set_charge(const struct context_growth *growth, uint64_t bytes)
{
    memory_set_owned(MEMORY_CONTEXT_LIMIT, handle_of(growth->context, growth->limit),
        device_index(growth->ordinal), bytes, ACCOUNT_CONTEXT, growth->context);
}

void context_memory_settle(const struct context_growth *growth, bool grown)
{
    if (growth->charged && !grown)
        set_charge(growth, growth->former_bytes);
}

void context_memory_settle_limit(const struct context_growth *growth, bool set)
{
    context_memory_settle(growth, set);
    if (!set || !growth->told || growth->bytes >= growth->former_bytes)
        return;
    /* Unless another thread's launch has grown it meanwhile. */
    uint64_t handle = handle_of(growth->context, growth->limit);
    if (memory_recorded_bytes(MEMORY_CONTEXT_LIMIT, handle) == growth->former_bytes)
        set_charge(growth, growth->bytes);
}
