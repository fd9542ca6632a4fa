/* SPDX-License-Identifier: Apache-2.0 */
/* Events: a place in a stream's work and when it was passed, or, recorded in a capture, a set of
 * nodes to depend on; and events that several processes know. */
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#include "sim/work/stream.h"

#define HANDLE_MAGIC 0x3145504955504756u

struct ipc_event_handle {
    uint64_t magic;
    struct sim_event event;
    int32_t pid;
};

_Static_assert(sizeof(struct ipc_event_handle) <= sizeof(CUipcEventHandle), "fits the program's");

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
    struct sim_event shared; /* then that has the ticket */
    bool imported;
};

/* NULL also where its context is gone, and it with it. */
static struct event *event_of(CUevent handle)
{
    struct event *event = object_find(handle, OBJECT_EVENT);

    if (!event || !event->context->live || event->context->id != event->context_id)
        return NULL;
    return event;
}

static struct sim_ticket event_ticket(const struct event *event)
{
    return event->shared.generation ? sim_event_ticket(&event->shared) : event->ticket;
}

static struct event *event_create(unsigned flags)
{
    struct event *event = calloc(1, sizeof *event);

    if (!event)
        return NULL;
    event->context = context_current();
    event->context_id = event->context->id;
    event->flags = flags;
    object_add(&event->object, OBJECT_EVENT);
    return event;
}

CUresult sim_cuEventCreate(CUevent *ret, unsigned int flags)
{
    CUDA_LOCKED;
    struct event *event;

    if (!ret || flags > 7 ||
        ((flags & CU_EVENT_INTERPROCESS) && !(flags & CU_EVENT_DISABLE_TIMING)))
        return CUDA_ERROR_INVALID_VALUE;
    event = event_create(flags);
    if (!event)
        return CUDA_ERROR_OUT_OF_MEMORY;
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
    if (event->shared.generation && !event->imported)
        sim_event_destroy(&event->shared);
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
    if (event->shared.generation)
        sim_event_record(&event->shared, &event->ticket);
    if (event->flags & CU_EVENT_DISABLE_TIMING)
        return CUDA_SUCCESS;
    while (!sim_queue_record(&stream->queue, &event->mark))
        stream_sleep_until(sim_clock_ns() + 100000);
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
    const struct sim_ticket ticket = event_ticket(event);

    return !event->recorded || event->mark.at_ns || sim_ticket_done(&ticket, NULL);
}

/* To ask for an event that was recorded in a capture spoils the capture. */
static CUresult event_refuse_captured(const struct event *event)
{
    struct capture *capture = capture_live(event->capture_id);

    if (capture)
        capture_invalidate(capture);
    return CUDA_ERROR_CAPTURED_EVENT;
}

CUresult sim_cuEventQuery(CUevent handle)
{
    CUDA_LOCKED;
    const struct event *event = event_of(handle);

    if (!event)
        return CUDA_ERROR_INVALID_HANDLE;
    if (event->capture_id)
        return event_refuse_captured(event);
    return event_done(event) ? CUDA_SUCCESS : CUDA_ERROR_NOT_READY;
}

/* Of a shared event: each look finds processes that died. */
static void event_wait(struct sim_event shared, const struct sim_ticket *ticket)
{
    uint64_t look;

    while (!sim_ticket_done(ticket, &look)) {
        stream_sleep_until(look);
        if (shared.generation)
            (void)sim_event_ticket(&shared);
    }
}

CUresult sim_cuEventSynchronize(CUevent handle)
{
    struct device *device;
    struct sim_ticket until;
    struct sim_event shared;

    {
        CUDA_LOCKED;
        const struct event *event = event_of(handle);

        if (!event)
            return CUDA_ERROR_INVALID_HANDLE;
        if (event->capture_id)
            return event_refuse_captured(event);
        until = event->recorded ? event_ticket(event) : (struct sim_ticket){0};
        shared = event->shared;
        device = event->context->device;
    }
    event_wait(shared, &until);
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
    if (event->recorded) {
        const struct sim_ticket ticket = event_ticket(event);

        stream_append_after(stream, &ticket);
    }
    return CUDA_SUCCESS;
}

/* ---- between processes ---- */

/* From now on the machine knows what was recorded last, by whomever. */
CUresult sim_cuIpcGetEventHandle(CUipcEventHandle *ret, CUevent handle)
{
    CUDA_LOCKED;
    struct event *event = event_of(handle);
    struct ipc_event_handle raw = {.magic = HANDLE_MAGIC, .pid = getpid()};

    if (!ret)
        return CUDA_ERROR_INVALID_VALUE;
    if (!event || !(event->flags & CU_EVENT_INTERPROCESS))
        return CUDA_ERROR_INVALID_HANDLE;
    if (!event->shared.generation &&
        sim_event_create(rm_descriptor(), &event->ticket, &event->shared) != 0)
        return CUDA_ERROR_OUT_OF_MEMORY;
    event->recorded = true;
    raw.event = event->shared;
    memset(ret, 0, sizeof *ret);
    memcpy(ret, &raw, sizeof raw);
    return CUDA_SUCCESS;
}

CUresult sim_cuIpcOpenEventHandle(CUevent *ret, CUipcEventHandle handle)
{
    CUDA_LOCKED;
    struct ipc_event_handle raw;
    struct event *event;

    memcpy(&raw, &handle, sizeof raw);
    if (!ret || raw.magic != HANDLE_MAGIC)
        return CUDA_ERROR_INVALID_VALUE;
    if (raw.pid == getpid())
        return CUDA_ERROR_INVALID_CONTEXT;
    if (!sim_event_lives(&raw.event))
        return CUDA_ERROR_MAP_FAILED;
    event = event_create(CU_EVENT_DISABLE_TIMING);
    if (!event)
        return CUDA_ERROR_OUT_OF_MEMORY;
    event->shared = raw.event;
    event->imported = true;
    event->recorded = true;
    *ret = (CUevent)event;
    return CUDA_SUCCESS;
}
