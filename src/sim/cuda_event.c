/* SPDX-License-Identifier: Apache-2.0 */
/* Events: a place in a stream's work and when it was passed, or, recorded in a capture, a set of
 * nodes to depend on. */
#include <stdlib.h>

#include "sim/cuda_stream.h"

struct event {
    struct object object;
    struct context *context;
    unsigned long long context_id; /* a primary context comes again */
    unsigned flags;
    bool recorded;
    struct sim_ticket ticket;
    struct sim_mark mark;          /* none with CU_EVENT_DISABLE_TIMING */
    unsigned long long capture_id; /* 0: not recorded in a capture */
    struct node_list nodes;
};

/* NULL also where its context is gone, and it with it. */
static struct event *event_of(CUevent handle)
{
    struct event *event = object_find(handle, OBJECT_EVENT);

    if (!event || !event->context->live || event->context->id != event->context_id)
        return NULL;
    return event;
}

CUresult sim_cuEventCreate(CUevent *ret, unsigned int flags)
{
    CUDA_LOCKED;
    struct event *event;

    if (!ret || flags > 7 ||
        ((flags & CU_EVENT_INTERPROCESS) && !(flags & CU_EVENT_DISABLE_TIMING)))
        return CUDA_ERROR_INVALID_VALUE;
    event = calloc(1, sizeof *event);
    if (!event)
        return CUDA_ERROR_OUT_OF_MEMORY;
    event->context = context_current();
    event->context_id = event->context->id;
    event->flags = flags;
    object_add(&event->object, OBJECT_EVENT);
    *ret = (CUevent)event;
    return CUDA_SUCCESS;
}

CUresult sim_cuEventDestroy_v2(CUevent handle)
{
    CUDA_LOCKED;
    struct event *event = event_of(handle);

    if (!event)
        return CUDA_ERROR_INVALID_HANDLE;
    object_remove(&event->object);
    sim_mark_drop(&event->mark);
    node_list_finish(&event->nodes);
    free(event);
    return CUDA_SUCCESS;
}

CUresult sim_cuEventDestroy(CUevent handle)
{
    return sim_cuEventDestroy_v2(handle);
}

static CUresult event_record_captured(struct event *event, struct stream *stream)
{
    if (stream->capture->status != CU_STREAM_CAPTURE_STATUS_ACTIVE)
        return CUDA_ERROR_STREAM_CAPTURE_INVALIDATED;
    node_list_finish(&event->nodes);
    event->capture_id = stream->capture->id;
    event->recorded = true;
    return node_list_add(&event->nodes, &stream->tail);
}

static CUresult event_mark(struct event *event, struct stream *stream)
{
    event->ticket = stream_here(stream);
    if (event->flags & CU_EVENT_DISABLE_TIMING)
        return CUDA_SUCCESS;
    while (!sim_queue_record(&stream->queue, &event->mark))
        time_wait(sim_clock_ns() + 100000);
    event->ticket = stream->queue.last;
    return event->mark.generation || event->mark.at_ns ? CUDA_SUCCESS : CUDA_ERROR_OUT_OF_MEMORY;
}

CUresult sim_cuEventRecordWithFlags(CUevent handle, CUstream stream_handle, unsigned int flags)
{
    stream_admit(stream_handle);
    CUDA_LOCKED;
    struct event *event = event_of(handle);
    struct stream *stream;
    CUresult r = stream_get(stream_handle, &stream);

    if (r != CUDA_SUCCESS)
        return r;
    if (!event || event->context != stream->context)
        return CUDA_ERROR_INVALID_HANDLE;
    if (flags > CU_EVENT_RECORD_EXTERNAL)
        return CUDA_ERROR_INVALID_VALUE;
    if (stream->capture)
        return event_record_captured(event, stream);
    event->capture_id = 0;
    event->recorded = true;
    return event_mark(event, stream);
}

CUresult sim_cuEventRecord(CUevent handle, CUstream stream)
{
    return sim_cuEventRecordWithFlags(handle, stream, 0);
}

static bool event_done(const struct event *event)
{
    return !event->recorded || event->mark.at_ns || sim_ticket_done(&event->ticket, NULL);
}

CUresult sim_cuEventQuery(CUevent handle)
{
    CUDA_LOCKED;
    const struct event *event = event_of(handle);

    if (!event)
        return CUDA_ERROR_INVALID_HANDLE;
    if (event->capture_id)
        return CUDA_ERROR_CAPTURED_EVENT;
    return event_done(event) ? CUDA_SUCCESS : CUDA_ERROR_NOT_READY;
}

CUresult sim_cuEventSynchronize(CUevent handle)
{
    struct device *device;
    struct sim_ticket until;

    {
        CUDA_LOCKED;
        const struct event *event = event_of(handle);

        if (!event)
            return CUDA_ERROR_INVALID_HANDLE;
        if (event->capture_id)
            return CUDA_ERROR_CAPTURED_EVENT;
        until = event->recorded ? event->ticket : (struct sim_ticket){0};
        device = event->context->device;
    }
    ticket_wait(&until);
    {
        CUDA_LOCKED;

        pools_release(device);
    }
    return CUDA_SUCCESS;
}

CUresult sim_cuEventElapsedTime(float *ms, CUevent start_handle, CUevent end_handle)
{
    CUDA_LOCKED;
    struct event *start = event_of(start_handle);
    struct event *end = event_of(end_handle);
    uint64_t from;
    uint64_t to;

    if (!ms)
        return CUDA_ERROR_INVALID_VALUE;
    if (!start || !end || !start->recorded || !end->recorded || start->capture_id ||
        end->capture_id || ((start->flags | end->flags) & CU_EVENT_DISABLE_TIMING))
        return CUDA_ERROR_INVALID_HANDLE;
    if (!sim_mark_read(&start->mark, &from) || !sim_mark_read(&end->mark, &to))
        return CUDA_ERROR_NOT_READY;
    *ms = (float)((double)(int64_t)(to - from) / 1e6);
    return CUDA_SUCCESS;
}

CUresult sim_cuEventElapsedTime_v2(float *ms, CUevent start, CUevent end)
{
    return sim_cuEventElapsedTime(ms, start, end);
}

CUresult sim_cuStreamWaitEvent(CUstream handle, CUevent event_handle, unsigned int flags)
{
    stream_admit(handle);
    CUDA_LOCKED;
    const struct event *event = event_of(event_handle);
    struct stream *stream;
    CUresult r = stream_get(handle, &stream);

    if (r != CUDA_SUCCESS)
        return r;
    if (!event)
        return CUDA_ERROR_INVALID_HANDLE;
    if (flags > CU_EVENT_WAIT_EXTERNAL)
        return CUDA_ERROR_INVALID_VALUE;
    if (event->capture_id) {
        struct capture *capture = capture_live(event->capture_id);

        return capture ? capture_join(stream, capture, &event->nodes) : CUDA_ERROR_INVALID_VALUE;
    }
    if (stream->capture && stream->capture->status != CU_STREAM_CAPTURE_STATUS_ACTIVE)
        return CUDA_ERROR_STREAM_CAPTURE_INVALIDATED;
    if (stream->capture && event->recorded) {
        capture_invalidate(stream->capture);
        return CUDA_ERROR_STREAM_CAPTURE_ISOLATION;
    }
    if (event->recorded)
        stream_append_after(stream, &event->ticket);
    return CUDA_SUCCESS;
}
