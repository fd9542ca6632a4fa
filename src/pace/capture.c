/* SPDX-License-Identifier: Apache-2.0 */
/* Which streams capture. */
#include "pace/capture.h"

#include "driver/cuda.h"

#include "base/atomic.h"
#include "base/lock.h"
#include "base/map.h"

#include <stddef.h>

static struct lock lists_lock;
/* Streams that capture into command lists: few, if any. */
static struct {
    struct map streams;
    size_t count; /* of the map, read without the lock */
} lists GUARDED_BY(lists_lock);

/* The driver's number of the stream, which no other stream of the process ever has: a handle, and
 * each thread's own default stream, may later be another stream. 0: not told (drivers with command
 * lists tell it). */
static uint64_t list_key(CUstream stream, enum stream_zero zero)
{
    unsigned long long id = 0;
    bool per_thread = !stream && zero == STREAM_ZERO_PER_THREAD;
    CUresult result = cuda.cuStreamGetId(per_thread ? CU_STREAM_PER_THREAD : stream, &id);
    return result == CUDA_SUCCESS ? id + 1 : 0;
}

bool capture_list_begins(CUstream stream, enum stream_zero zero)
{
    uint64_t key = list_key(stream, zero);
    if (!key)
        return false;
    LOCKED_TO_END(lists_lock);
    bool newly = !map_get(&lists.streams, key) && map_put(&lists.streams, key, &lists) == 0;
    store_relaxed(&lists.count, lists.streams.count);
    return newly;
}

void capture_list_ends(CUstream stream, enum stream_zero zero)
{
    uint64_t key = load_relaxed(&lists.count) ? list_key(stream, zero) : 0;
    if (!key)
        return;
    LOCKED_TO_END(lists_lock);
    (void)map_remove(&lists.streams, key);
    store_relaxed(&lists.count, lists.streams.count);
}

static bool captures_list(CUstream stream, enum stream_zero zero)
{
    if (__builtin_expect(!load_relaxed(&lists.count), 1))
        return false;
    uint64_t key = list_key(stream, zero);
    LOCKED_TO_END(lists_lock);
    return key && map_get(&lists.streams, key);
}

void capture_reset(void) NO_THREAD_SAFETY_ANALYSIS
{
    lock_reset(&lists_lock);
    map_finish(&lists.streams);
    store_relaxed(&lists.count, (size_t)0);
}

bool capture_records(CUstream stream, enum stream_zero zero)
{
    CUstreamCaptureStatus status = CU_STREAM_CAPTURE_STATUS_NONE;
    if (!stream && zero == STREAM_ZERO_PER_THREAD)
        stream = CU_STREAM_PER_THREAD;
    if (captures_list(stream, zero))
        return true;
    CUresult result = cuda.cuStreamIsCapturing(stream, &status);
    /* The legacy stream beside a capturing stream that it would wait for. */
    if (result == CUDA_ERROR_STREAM_CAPTURE_IMPLICIT)
        return true;
    return result == CUDA_SUCCESS && status != CU_STREAM_CAPTURE_STATUS_NONE;
}

struct capture_relaxed capture_relax(void)
{
    struct capture_relaxed former = {.mode = CU_STREAM_CAPTURE_MODE_RELAXED};
    former.relaxed = cuda.cuThreadExchangeStreamCaptureMode(&former.mode) == CUDA_SUCCESS;
    return former;
}

void capture_restore(struct capture_relaxed *former)
{
    /* Tried once more: a thread that stays relaxed would record what its program must not. */
    if (former->relaxed && cuda.cuThreadExchangeStreamCaptureMode(&former->mode) != CUDA_SUCCESS)
        (void)cuda.cuThreadExchangeStreamCaptureMode(&former->mode);
}
