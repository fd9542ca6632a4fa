/* SPDX-License-Identifier: Apache-2.0 */
/* Streams: which one a handle means, what they wait for, making and ending them. */
#ifndef _GNU_SOURCE
#define _GNU_SOURCE
#endif
#include "sim/work/stream.h"

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

/* How much work a stream takes before a launch blocks: about 1,024 launches outstanding on a
 * channel with a driver. */
#define OUTSTANDING_MAX 1024
#define LOOK_AGAIN_NS 200000u

void stream_sleep_until(uint64_t until_ns)
{
    struct timespec at = {(time_t)(until_ns / 1000000000u), (long)(until_ns % 1000000000u)};

    while (sim_clock_ns() < until_ns)
        (void)clock_nanosleep(CLOCK_MONOTONIC, TIMER_ABSTIME, &at, NULL);
}

static void ticket_wait(const struct sim_ticket *ticket)
{
    uint64_t look;

    while (!sim_ticket_done(ticket, &look))
        stream_sleep_until(look);
}

struct stream *stream_create(
    struct context *context, struct context *green, unsigned flags, int priority)
{
    struct stream *stream = calloc(1, sizeof *stream);

    if (!stream)
        return NULL;
    stream->context = context;
    stream->green = green;
    stream->flags = flags;
    stream->priority = priority;
    stream->id = next_id++;
    stream->queue.group = context->timeline;
    stream->next = context->streams;
    context->streams = stream;
    object_add(&stream->object, OBJECT_STREAM);
    return stream;
}

/* Streams of contexts that are gone live on here while host functions of theirs are still to run.
 */
static struct stream *buried;

static void stream_free(struct stream *stream)
{
    if (stream->host_done == stream->host_issued) {
        free(stream);
    } else {
        stream->next = buried;
        buried = stream;
    }
}

static void stream_leave(struct stream *stream)
{
    if (stream->gone)
        return;
    object_remove(&stream->object);
    capture_stream_gone(stream);
    node_list_finish(&stream->tail);
    stream->gone = true;
}

bool stream_done(const struct stream *stream)
{
    return sim_ticket_done(&stream->queue.last, NULL) && stream->host_done == stream->host_issued;
}

/* Its work goes on: a wait for the context, or the legacy stream, waits for that too. The
 * others that are gone are looked at when twice as many are as the last look left. */
void stream_destroy(struct stream *stream)
{
    struct context *context = stream->context;
    bool all = context->streams_gone >= context->streams_gone_most;
    unsigned left = 0;

    stream_leave(stream);
    for (struct stream **at = &context->streams, *each; (each = *at);) {
        if (each->gone && (all || each == stream) && stream_done(each)) {
            *at = each->next;
            free(each);
        } else {
            left += each->gone;
            at = &each->next;
        }
    }
    context->streams_gone = left;
    if (all)
        context->streams_gone_most = 2 * left + 8;
}

CUresult streams_context_init(struct context *context)
{
    context->legacy = stream_create(context, NULL, CU_STREAM_DEFAULT, 0);
    return context->legacy ? CUDA_SUCCESS : CUDA_ERROR_OUT_OF_MEMORY;
}

void streams_context_finish(struct context *context)
{
    for (struct stream *stream; (stream = context->streams);) {
        context->streams = stream->next;
        stream_leave(stream);
        stream_free(stream);
    }
    context->streams_gone = 0;
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
    per_thread[per_thread_count].stream = stream_create(context, NULL, CU_STREAM_DEFAULT, 0);
    return per_thread[per_thread_count++].stream;
}

CUresult stream_named(CUstream handle, struct stream **ret_stream)
{
    struct stream *stream = object_find(handle, OBJECT_STREAM);

    if (!stream)
        return CUDA_ERROR_INVALID_HANDLE;
    if (stream->green && !stream->green->live)
        return CUDA_ERROR_CONTEXT_IS_DESTROYED;
    *ret_stream = stream;
    return CUDA_SUCCESS;
}

struct stream *stream_default(const struct stream *stream)
{
    return stream->green ? stream->green->legacy : stream->context->legacy;
}

static CUresult stream_find(CUstream handle, bool spoil, struct stream **ret_stream)
{
    struct context *context = context_current(), *green = context_current_green();

    if ((uintptr_t)handle > 2)
        return stream_named(handle, ret_stream);
    if (!context)
        return CUDA_ERROR_INVALID_CONTEXT;
    if (handle == CU_STREAM_PER_THREAD || (!handle && cuda_entry_per_thread())) {
        if (green)
            return CUDA_ERROR_INVALID_HANDLE;
        *ret_stream = stream_of_thread(context);
        return *ret_stream ? CUDA_SUCCESS : CUDA_ERROR_OUT_OF_MEMORY;
    }
    if (capture_blocks_legacy(context, spoil))
        return CUDA_ERROR_STREAM_CAPTURE_IMPLICIT;
    *ret_stream = green ? green->legacy : context->legacy;
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

void stream_admit(CUstream handle)
{
    for (;;) {
        {
            CUDA_LOCKED;
            struct stream *stream;

            if (stream_look(handle, &stream) != CUDA_SUCCESS || stream->capture ||
                sim_queue_length(&stream->queue, OUTSTANDING_MAX) <= OUTSTANDING_MAX)
                return;
        }
        stream_sleep_until(sim_clock_ns() + LOOK_AGAIN_NS);
    }
}

/* What stream_admit() let pass finds room, but for large graphs and threads that race: those wait
 * with the lock. */
void stream_append(struct stream *stream, const struct sim_work *work)
{
    while (!sim_queue_add(&stream->queue, work))
        stream_sleep_until(sim_clock_ns() + LOOK_AGAIN_NS);
}

static bool ticket_same(const struct sim_ticket *a, const struct sim_ticket *b)
{
    return a->ring == b->ring && a->generation == b->generation && a->sequence == b->sequence;
}

void stream_append_after(struct stream *stream, const struct sim_ticket *ticket)
{
    struct sim_work after = {.kind = SIM_WORK_AFTER, .after = *ticket};
    const struct sim_ticket *last = &stream->queue.last;
    bool own = ticket->ring == last->ring && ticket->generation == last->generation;

    if (!own && !sim_ticket_done(ticket, NULL))
        stream_append(stream, &after);
}

/* The legacy stream waits for all blocking streams, and they for it; `joined` is what was waited
 * for last. */
static void stream_join(struct stream *stream)
{
    struct stream *legacy = stream_default(stream);

    if (stream->flags & CU_STREAM_NON_BLOCKING)
        return;
    if (stream != legacy) {
        if (!ticket_same(&stream->joined, &legacy->queue.last)) {
            stream->joined = legacy->queue.last;
            stream_append_after(stream, &legacy->queue.last);
        }
        return;
    }
    for (struct stream *other = stream->context->streams; other; other = other->next) {
        if (other == legacy || other->green != legacy->green ||
            (other->flags & CU_STREAM_NON_BLOCKING) ||
            ticket_same(&other->joined_by, &other->queue.last))
            continue;
        other->joined_by = other->queue.last;
        stream_append_after(stream, &other->queue.last);
    }
}

struct sim_ticket stream_here(struct stream *stream)
{
    stream_join(stream);
    return stream->queue.last;
}

CUresult stream_run(struct stream *stream, const struct work *work)
{
    if (stream->capture)
        return capture_work(stream, work);
    if (stream->list)
        return CUDA_SUCCESS;
    stream_join(stream);
    return work_run(stream, work);
}

struct tickets {
    struct sim_ticket *list;
    size_t count;
};

/* What waiting for the stream waits for, or for the whole context without one. */
static CUresult tickets_collect(
    const struct context *context, const struct stream *only, struct tickets *ret_tickets)
{
    const bool legacy = only && only == stream_default(only);
    size_t count = 0;

    for (const struct stream *stream = context->streams; stream; stream = stream->next)
        count++;
    *ret_tickets = (struct tickets){calloc(count + 1, sizeof *ret_tickets->list), 0};
    if (!ret_tickets->list)
        return CUDA_ERROR_OUT_OF_MEMORY;
    for (const struct stream *stream = context->streams; stream; stream = stream->next) {
        if (!only || stream == only ||
            (legacy && stream->green == only->green && !(stream->flags & CU_STREAM_NON_BLOCKING)))
            ret_tickets->list[ret_tickets->count++] = stream->queue.last;
    }
    return CUDA_SUCCESS;
}

static void tickets_wait(struct tickets *tickets)
{
    for (size_t i = 0; i < tickets->count; i++)
        ticket_wait(&tickets->list[i]);
    free(tickets->list);
}

CUresult stream_wait(struct stream *stream)
{
    struct device *device;
    unsigned long long issued;
    struct tickets tickets;
    CUresult r;

    {
        CUDA_LOCKED;

        device = stream->context->device;
        issued = stream->host_issued;
        r = tickets_collect(stream->context, stream, &tickets);
    }
    if (r != CUDA_SUCCESS)
        return r;
    tickets_wait(&tickets);
    host_function_wait(stream, issued);
    {
        CUDA_LOCKED;

        pools_release(device);
    }
    return CUDA_SUCCESS;
}

CUresult stream_wait_context(struct context *context)
{
    struct tickets tickets;
    CUresult r;

    {
        CUDA_LOCKED;

        r = tickets_collect(context, NULL, &tickets);
    }
    if (r != CUDA_SUCCESS)
        return r;
    tickets_wait(&tickets);
    host_function_wait(NULL, 0);
    {
        CUDA_LOCKED;

        pools_release(context->device);
    }
    return CUDA_SUCCESS;
}
