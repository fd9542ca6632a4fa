/* SPDX-License-Identifier: Apache-2.0 */
/* Streams: which one a handle means, what they wait for, making, asking and ending them. */
#ifndef _GNU_SOURCE
#define _GNU_SOURCE
#endif
#include "sim/cuda_stream.h"

#include <errno.h>
#include <stdlib.h>
#include <time.h>

static unsigned long long next_id = 1;

/* The calling thread's own streams, one per context that it used. */
#define PER_THREAD_MAX 32
static _Thread_local struct {
    unsigned long long context_id;
    struct stream *stream;
} per_thread[PER_THREAD_MAX];
static _Thread_local unsigned per_thread_count;

uint64_t time_now(void)
{
    return sim_clock_ns();
}

void time_wait(uint64_t until_ns)
{
    while (time_now() < until_ns) {
        /* Never is waited for in steps, so that no conversion overflows. */
        uint64_t until = until_ns == TIME_NEVER ? time_now() + 100000000u : until_ns;
        struct timespec at = {(time_t)(until / 1000000000u), (long)(until % 1000000000u)};

        (void)clock_nanosleep(CLOCK_MONOTONIC, TIMER_ABSTIME, &at, NULL);
    }
}

static struct stream *stream_create(struct context *context, unsigned flags, int priority)
{
    struct stream *stream = calloc(1, sizeof *stream);

    if (!stream)
        return NULL;
    stream->context = context;
    stream->flags = flags;
    stream->priority = priority;
    stream->id = next_id++;
    stream->next = context->streams;
    context->streams = stream;
    object_add(&stream->object, OBJECT_STREAM);
    return stream;
}

/* Streams whose host functions are still to run live on here. */
static struct stream *buried;

static void stream_destroy(struct stream *stream)
{
    struct stream **at = &stream->context->streams;

    while (*at != stream)
        at = &(*at)->next;
    *at = stream->next;
    object_remove(&stream->object);
    capture_stream_gone(stream);
    node_list_finish(&stream->tail);
    if (stream->host_done == stream->host_issued) {
        free(stream);
    } else {
        stream->next = buried;
        buried = stream;
    }
}

CUresult streams_context_init(struct context *context)
{
    context->legacy = stream_create(context, CU_STREAM_DEFAULT, 0);
    return context->legacy ? CUDA_SUCCESS : CUDA_ERROR_OUT_OF_MEMORY;
}

void streams_context_finish(struct context *context)
{
    while (context->streams)
        stream_destroy(context->streams);
    context->legacy = NULL;
}

static struct stream *stream_of_thread(struct context *context)
{
    for (unsigned i = 0; i < per_thread_count; i++) {
        if (per_thread[i].context_id == context->id)
            return per_thread[i].stream;
    }
    if (per_thread_count == PER_THREAD_MAX)
        per_thread_count = 0;
    per_thread[per_thread_count].context_id = context->id;
    per_thread[per_thread_count].stream = stream_create(context, CU_STREAM_DEFAULT, 0);
    return per_thread[per_thread_count++].stream;
}

static CUresult stream_find(CUstream handle, bool spoil, struct stream **ret_stream)
{
    struct context *context = context_current();
    struct stream *stream;

    if ((uintptr_t)handle > 2) {
        stream = object_find(handle, OBJECT_STREAM);
        *ret_stream = stream;
        return stream ? CUDA_SUCCESS : CUDA_ERROR_INVALID_HANDLE;
    }
    if (!context)
        return CUDA_ERROR_INVALID_CONTEXT;
    if (handle == CU_STREAM_PER_THREAD || (!handle && cuda_entry_per_thread())) {
        *ret_stream = stream_of_thread(context);
        return *ret_stream ? CUDA_SUCCESS : CUDA_ERROR_OUT_OF_MEMORY;
    }
    if (capture_blocks_legacy(context, spoil))
        return CUDA_ERROR_STREAM_CAPTURE_IMPLICIT;
    *ret_stream = context->legacy;
    return CUDA_SUCCESS;
}

CUresult stream_get(CUstream handle, struct stream **ret_stream)
{
    return stream_find(handle, true, ret_stream);
}

CUresult stream_look(CUstream handle, struct stream **ret_stream)
{
    return stream_find(handle, false, ret_stream);
}

static uint64_t later(uint64_t a, uint64_t b)
{
    return a > b ? a : b;
}

/* The legacy stream waits for all blocking streams, and they for it. */
uint64_t stream_begin_ns(const struct stream *stream)
{
    const struct context *context = stream->context;
    uint64_t begin = later(time_now(), stream->end_ns);

    if (stream->flags & CU_STREAM_NON_BLOCKING)
        return begin;
    if (stream != context->legacy)
        return later(begin, context->legacy->end_ns);
    for (const struct stream *other = context->streams; other; other = other->next) {
        if (!(other->flags & CU_STREAM_NON_BLOCKING))
            begin = later(begin, other->end_ns);
    }
    return begin;
}

CUresult stream_run(struct stream *stream, const struct work *work)
{
    uint64_t end;
    CUresult r;

    if (stream->capture)
        return capture_work(stream, work);
    r = work_run(stream, work, stream_begin_ns(stream), &end);
    if (r == CUDA_SUCCESS)
        stream->end_ns = end;
    return r;
}

bool stream_done(const struct stream *stream)
{
    return stream->end_ns <= time_now() && stream->host_done == stream->host_issued;
}

CUresult stream_wait(struct stream *stream)
{
    struct device *device;
    unsigned long long issued;
    uint64_t until;

    {
        CUDA_LOCKED;

        device = stream->context->device;
        issued = stream->host_issued;
        until = stream == stream->context->legacy ? stream_begin_ns(stream) : stream->end_ns;
    }
    time_wait(until);
    host_function_wait(stream, issued);
    {
        CUDA_LOCKED;

        pools_release(device);
    }
    return CUDA_SUCCESS;
}

CUresult context_wait(struct context *context)
{
    uint64_t until = 0;

    {
        CUDA_LOCKED;

        for (const struct stream *stream = context->streams; stream; stream = stream->next)
            until = later(until, stream->end_ns);
    }
    time_wait(until);
    host_function_wait(NULL, 0);
    {
        CUDA_LOCKED;

        pools_release(context->device);
    }
    return CUDA_SUCCESS;
}

/* Asking a context is asking its streams, in every mode. */
static CUresult context_synchronise(struct context *context)
{
    {
        CUDA_LOCKED;

        if (capture_spoil_context(context))
            return CUDA_ERROR_STREAM_CAPTURE_UNSUPPORTED;
    }
    return context_wait(context);
}

CUresult sim_cuCtxSynchronize(void)
{
    return context_synchronise(context_current());
}

CUresult sim_cuCtxSynchronize_v2(CUcontext handle)
{
    struct context *context;

    {
        CUDA_LOCKED;

        context = context_of(handle);
    }
    return context ? context_synchronise(context) : CUDA_ERROR_INVALID_CONTEXT;
}

CUresult sim_cuStreamCreateWithPriority(CUstream *ret, unsigned int flags, int priority)
{
    CUDA_LOCKED;
    struct stream *stream;

    if (!ret || flags > CU_STREAM_NON_BLOCKING)
        return CUDA_ERROR_INVALID_VALUE;
    priority = priority > 0 ? 0 : priority < -5 ? -5 : priority;
    stream = stream_create(context_current(), flags, priority);
    if (!stream)
        return CUDA_ERROR_OUT_OF_MEMORY;
    *ret = (CUstream)stream;
    return CUDA_SUCCESS;
}

CUresult sim_cuStreamCreate(CUstream *ret, unsigned int flags)
{
    return sim_cuStreamCreateWithPriority(ret, flags, 0);
}

CUresult sim_cuStreamDestroy_v2(CUstream handle)
{
    CUDA_LOCKED;
    struct stream *stream = object_find(handle, OBJECT_STREAM);

    if (!stream)
        return CUDA_ERROR_INVALID_HANDLE;
    stream_destroy(stream);
    return CUDA_SUCCESS;
}

CUresult sim_cuStreamDestroy(CUstream handle)
{
    return sim_cuStreamDestroy_v2(handle);
}

/* Asking or waiting while it captures is an error that spoils the capture. */
static CUresult stream_get_outside_capture(CUstream handle, struct stream **ret_stream)
{
    CUDA_LOCKED;
    CUresult r = stream_get(handle, ret_stream);

    if (r == CUDA_SUCCESS && (*ret_stream)->capture) {
        capture_invalidate((*ret_stream)->capture);
        return CUDA_ERROR_STREAM_CAPTURE_UNSUPPORTED;
    }
    return r;
}

CUresult sim_cuStreamQuery(CUstream handle)
{
    CUDA_LOCKED;
    struct stream *stream;
    CUresult r = stream_get_outside_capture(handle, &stream);

    if (r != CUDA_SUCCESS)
        return r;
    return stream_done(stream) ? CUDA_SUCCESS : CUDA_ERROR_NOT_READY;
}

CUresult sim_cuStreamSynchronize(CUstream handle)
{
    struct stream *stream;
    CUresult r = stream_get_outside_capture(handle, &stream);

    return r == CUDA_SUCCESS ? stream_wait(stream) : r;
}

CUresult sim_cuStreamGetPriority(CUstream handle, int *priority)
{
    CUDA_LOCKED;
    struct stream *stream;
    CUresult r = stream_get(handle, &stream);

    if (r == CUDA_SUCCESS && !priority)
        r = CUDA_ERROR_INVALID_VALUE;
    if (r == CUDA_SUCCESS)
        *priority = stream->priority;
    return r;
}

CUresult sim_cuStreamGetFlags(CUstream handle, unsigned int *flags)
{
    CUDA_LOCKED;
    struct stream *stream;
    CUresult r = stream_get(handle, &stream);

    if (r == CUDA_SUCCESS && !flags)
        r = CUDA_ERROR_INVALID_VALUE;
    if (r == CUDA_SUCCESS)
        *flags = stream->flags;
    return r;
}

CUresult sim_cuStreamGetId(CUstream handle, unsigned long long *id)
{
    CUDA_LOCKED;
    struct stream *stream;
    CUresult r = stream_get(handle, &stream);

    if (r == CUDA_SUCCESS && !id)
        r = CUDA_ERROR_INVALID_VALUE;
    if (r == CUDA_SUCCESS)
        *id = stream->id;
    return r;
}

CUresult sim_cuStreamGetCtx(CUstream handle, CUcontext *ret)
{
    CUDA_LOCKED;
    struct stream *stream;
    CUresult r = stream_get(handle, &stream);

    if (r == CUDA_SUCCESS && !ret)
        r = CUDA_ERROR_INVALID_VALUE;
    if (r == CUDA_SUCCESS)
        *ret = (CUcontext)stream->context;
    return r;
}

CUresult sim_cuStreamGetCtx_v2(CUstream handle, CUcontext *ret, CUgreenCtx *ret_green)
{
    CUresult r = sim_cuStreamGetCtx(handle, ret);

    if (r == CUDA_SUCCESS && ret_green)
        *ret_green = NULL;
    return r;
}

CUresult sim_cuStreamGetDevice(CUstream handle, CUdevice *ret)
{
    CUDA_LOCKED;
    struct stream *stream;
    CUresult r = stream_get(handle, &stream);

    if (r == CUDA_SUCCESS && !ret)
        r = CUDA_ERROR_INVALID_VALUE;
    if (r == CUDA_SUCCESS)
        *ret = stream->context->device->ordinal;
    return r;
}
