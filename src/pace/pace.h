/* SPDX-License-Identifier: Apache-2.0 */
/* The launch gate: each launch passes pace_begin, which lets it go on at once or holds it back
 * until the container has GPU time left, and pace_end. What was launched is measured by events of
 * ours on the program's own streams (pace/events.h).
 *
 * Without a compute limit a launch costs the inline test alone, and a look at the region every few
 * milliseconds. With a limit most launches add an estimate to a sum of their thread; about once a
 * millisecond of GPU time one looks closer. Never while a stream captures. Any thread. */
#ifndef VGPU_PACE_PACE_H
#define VGPU_PACE_PACE_H

#include "pace/capture.h"
#include "pace/channels.h"
#include "pace/policy.h"
#include "compute/durations.h"

#include <stdbool.h>
#include <stdint.h>

struct meter_record;
struct thread_stream;

struct pace_launch {
    struct thread_stream *by_estimate; /* it was admitted by estimate, and counted there */
    struct meter_record *meter;        /* NULL: no timing event is to be recorded behind it */
    CUstream stream;                   /* the meter's */
    uint32_t meter_id;
    unsigned device;
    uint64_t key;
    uint64_t work_ns;            /* what was taken from the budget for it */
    uint64_t started_ns;         /* where the stream was idle: when its timing event was recorded */
    uint64_t called_ns;          /* when the driver was about to be called */
    bool awaited;                /* the driver's call waited for it */
    struct thread_stream *shown; /* the governor may see it from there during the call */
};

/* A call to launch that takes longer may have waited for the GPU. */
#define PACE_WAITED_NS 50000u

/* How many launches of this thread may pass before one looks again; 0 under a limit. */
extern _Thread_local int pace_free_launches __attribute__((tls_model("initial-exec")));

/* True where the launch is nobody's business. */
static inline bool pace_passes(void)
{
    return __builtin_expect(--pace_free_launches >= 0, 1);
}

/* Where pace_passes said no. Blocks while the container has no GPU time left. `key`: duration_key.
 * Keeps errno. */
void pace_begin(struct pace_launch *launch, CUstream stream, enum stream_zero zero, uint64_t key);

/* After the driver's call; `launched`: it succeeded. Keeps errno. */
void pace_end_slow(struct pace_launch *launch, bool launched);

static inline void pace_end(struct pace_launch *launch, bool launched)
{
    if (__builtin_expect(launch->meter || !launched, 0))
        pace_end_slow(launch, launched);
}

/* Something that may take long without keeping the GPU busy goes onto the stream: a wait, a host
 * function, a large copy. One load without a limit. */
void pace_note_other_slow(CUstream stream, enum stream_zero zero);

static inline void pace_note_other(CUstream stream, enum stream_zero zero)
{
    if (__builtin_expect(load_relaxed(&policy_limited), 0))
        pace_note_other_slow(stream, zero);
}

/* A copy goes there that takes no longer than it takes to begin it: what is behind a timing event
 * is not a kernel alone. One load without a limit. */
void pace_note_copy_slow(CUstream stream, enum stream_zero zero);

static inline void pace_note_copy(CUstream stream, enum stream_zero zero)
{
    if (__builtin_expect(load_relaxed(&policy_limited), 0))
        pace_note_copy_slow(stream, zero);
}

/* A wait goes onto all streams of the context and of its home (hook/green.h). */
void pace_note_context_waits(CUcontext context, CUcontext home);

/* The thread is about to wait for the GPU. */
static inline void pace_before_wait(void)
{
    channels_look_after();
}

/* The thread waited for the GPU, or asked until it was idle: a good moment to see whether a limit
 * was set meanwhile. */
static inline void pace_note_wait(void)
{
    if (pace_free_launches > 0)
        pace_free_launches = 0;
}

/* The thread is about to wait for all that is on a stream. One load without a limit. True where the
 * end of the wait is to be told, if it succeeds. */
bool pace_stream_wait_begins_slow(CUstream stream, enum stream_zero zero);

static inline bool pace_stream_wait_begins(CUstream stream, enum stream_zero zero)
{
    return __builtin_expect(load_relaxed(&policy_limited), 0) &&
           pace_stream_wait_begins_slow(stream, zero);
}

/* It waited, and all that was on the stream is over. */
void pace_stream_awaited(CUstream stream, enum stream_zero zero);

/* The same of a thread that only asks for it, and may do so again and again. True where the answer
 * is to be told: pace_stream_awaited, or that the stream works. */
bool pace_stream_asked_slow(CUstream stream, enum stream_zero zero);

static inline bool pace_stream_asked(CUstream stream, enum stream_zero zero)
{
    return __builtin_expect(load_relaxed(&policy_limited), 0) &&
           pace_stream_asked_slow(stream, zero);
}

void pace_stream_works(CUstream stream, enum stream_zero zero);

/* The thread is about to wait for a context or an event, or `asks` for an event: for some or all of
 * what it launched. True where the end is to be told. */
bool pace_wait_begins_slow(bool asks);

static inline bool pace_wait_begins(bool asks)
{
    return __builtin_expect(load_relaxed(&policy_limited), 0) && pace_wait_begins_slow(asks);
}

/* All is over that it launched in the current context; the event was reached; it was not yet. */
void pace_context_awaited(void);
void pace_event_awaited(void);
void pace_works(void);

/* Before the driver's cuInit, which reads it too. */
void pace_read_environment(void);

/* A capture begins: from now on each launch asks whether it is recorded. */
void pace_capture_begins(CUstream stream, enum stream_zero zero);

/* After a call by which the thread's current context may be another one. Returns `result`. */
CUresult pace_context_changed(CUresult result);

/* Before a stream goes, and all events on it. */
void pace_stream_leaves(CUstream stream);

/* Blocks while the container may not work at all: it is paused, or somebody of higher priority
 * works. Not at the end of the process. Before a context ends, for which everything of the process
 * must be let run. Two loads where nothing holds. */
void pace_wait_while_held(void);

/* Before the driver is asked to end or reset a context, or something that contexts hang on: it
 * waits for the GPU then, which must not be closed to us. Nested calls are counted. */
void pace_context_ends(void);
void pace_context_ended(void);

/* In between: all events on the context's streams go with it. */
void pace_context_leaves(CUcontext context);

/* In a forked child. */
void pace_reset(void);

#endif
