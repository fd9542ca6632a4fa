/* SPDX-License-Identifier: Apache-2.0 */
/* Words that may be pointers, looked up among the ranges. */
#include "vmem/use.h"

#include "base/clock.h"
#include "driver/cuda.h"
#include "residency/residency.h"
#include "vmem/vmem_parts.h"

#include <stddef.h>
#include <string.h>

/* Of one launch; a kernel's parameters have 4 KiB, or 32 since CUDA 12.1. */
#define WORDS_MAX 1024
#define PARAMS_MAX 1024
/* Nanoseconds for which work that shows nothing counts. */
#define UNSEEN_NS 30000000000ull

bool use_is_asked_for;
static uint64_t unseen_ns; /* when some was last noted; 0 never */

void use_reset(void)
{
    use_is_asked_for = false;
    unseen_ns = 0;
}

void use_ask_for(bool asked)
{
    store_relaxed(&use_is_asked_for, asked);
}

bool use_is_seen(uint64_t now_ns)
{
    uint64_t last_ns = load_relaxed(&unseen_ns);
    return !last_ns || now_ns - last_ns >= UNSEEN_NS;
}

void use_note_unseen_slow(void)
{
    store_relaxed(&unseen_ns, clock_now_ns());
}

static void note_locked(CUdeviceptr address, uint64_t now_ns) REQUIRES(vmem_lock)
{
    struct range *range = range_table_find(&vmem.table, address);
    if (range)
        residency_note_use(&range->use, now_ns);
}

void use_note_addresses_slow(CUdeviceptr one, CUdeviceptr other)
{
    uint64_t now_ns = clock_now_ns();
    LOCKED_TO_END(vmem_lock);
    note_locked(one, now_ns);
    note_locked(other, now_ns);
}

void use_note_advice_slow(CUdeviceptr address, enum residency_advice advice)
{
    LOCKED_TO_END(vmem_lock);
    struct range *range = range_table_find(&vmem.table, address);
    if (range)
        range->use.advice = advice;
}

/* Structures among the parameters have their pointers aligned. */
static void note_words(const char *from, size_t bytes)
{
    uint64_t now_ns = clock_now_ns();
    LOCKED_TO_END(vmem_lock);
    for (size_t at = 0; at + sizeof(CUdeviceptr) <= bytes && at / 8 < WORDS_MAX; at += 8) {
        CUdeviceptr address;
        memcpy(&address, from + at, sizeof(address));
        note_locked(address, now_ns);
    }
}

/* Where the parameters lie in one buffer; false where they do not. */
static bool note_buffer(void **extra)
{
    const char *buffer = NULL;
    size_t bytes = 0;
    for (; extra && *extra != CU_LAUNCH_PARAM_END; extra += 2) {
        if (*extra == CU_LAUNCH_PARAM_BUFFER_POINTER)
            buffer = extra[1];
        else if (*extra == CU_LAUNCH_PARAM_BUFFER_SIZE && extra[1])
            bytes = *(const size_t *)extra[1];
    }
    if (buffer)
        note_words(buffer, bytes);
    return buffer != NULL;
}

static CUresult param_bytes(CUfunction function, size_t number, size_t *ret_bytes)
{
    size_t offset;
    CUresult result = cuda.cuFuncGetParamInfo(function, number, &offset, ret_bytes);
    if (result == CUDA_ERROR_INVALID_HANDLE) /* a CUkernel */
        result = cuda.cuKernelGetParamInfo((CUkernel)function, number, &offset, ret_bytes);
    return result;
}

/* Behind the last parameter the driver says that the number is invalid. */
void use_note_kernel_slow(CUfunction function, void **params, void **extra)
{
    size_t bytes;
    CUresult result = CUDA_SUCCESS;
    if (!params) {
        if (!note_buffer(extra) && param_bytes(function, 0, &bytes) != CUDA_ERROR_INVALID_VALUE)
            use_note_unseen_slow();
        return;
    }
    for (size_t i = 0; i < PARAMS_MAX; i++) {
        result = param_bytes(function, i, &bytes);
        if (result != CUDA_SUCCESS)
            break;
        if (params[i] && bytes >= sizeof(CUdeviceptr))
            note_words(params[i], bytes);
    }
    if (result != CUDA_ERROR_INVALID_VALUE)
        use_note_unseen_slow();
}
