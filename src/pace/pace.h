/* SPDX-License-Identifier: Apache-2.0 */
/* The way of a launch: each passes pace_begin, which admits it at once or throttles it until the
 * container has GPU time, and pace_end. Timing events on the program's own streams (pace/events.h)
 * measure what was launched.
 *
 * Without a compute limit a launch costs the inline test, and a look at the control words every few
 * milliseconds. Under a limit most launches add an estimate to a sum of their thread; about once a
 * millisecond of GPU time one gets a closer look. Never while a stream captures. Any thread.
 *
 * Words of this folder and of src/compute:
 * - tenant: a container that uses a GPU; registry: the file in which a GPU's tenants announce that
 *   they work (registry/registry.h).
 * - control word: a limit, pause or priority in the container's region; epoch: the number that a
 *   change of one raises, on which threads sleep.
 * - effective policy: what the control words and the neighbours make of it now (pace/policy.h).
 * - timing event: a driver event with time that is recorded on a program's stream; interval: what
 *   lies between two of them.
 * - stream meter: the events and intervals of one stream, and what they cost (compute/meter.h).
 * - completion: an event that the device has reached; completions are polled (pace/completions.h).
 * - estimate: the learnt duration of a kernel (compute/durations.h); distrust: what makes launches
 *   be measured although they have one (struct thread_distrust, compute/spot_check.h).
 * - admit: let a launch go, by estimate or after a closer look; throttle: make it wait
 *   (pace/gate.h).
 * - time slice: what the driver gives a channel group at a time; extended slice: one long enough to
 *   measure a kernel whole (compute/slices.h).
 * - slot: the part of a shared period in which one container in windows works alone
 *   (compute/window.h).
 * - gang: devices of a container whose kernels wait for each other (compute/gang.h). */
#ifndef VGPU_PACE_PACE_H
#define VGPU_PACE_PACE_H

#include "compute/durations.h"
#include "pace/capture.h"
#include "pace/channels.h"
#include "pace/policy.h"

#include <stdbool.h>
#include <stdint.h>

struct meter_record;
struct thread_stream;

struct pace_launch {
    struct thread_stream *by_estimate; /* it was admitted by estimate, and counted there */
    struct meter_record *meter;        /* NULL: no event is recorded behind it */
    CUstream stream;                   /* the meter's */
    uint32_t meter_id;
    unsigned device;
    uint64_t key;
    uint64_t work_ns;            /* charged for it when it was admitted */
    uint64_t started_ns;         /* on an idle stream: when its event was recorded */
    uint64_t called_ns;          /* when the driver was about to be called */
    bool awaited;                /* the driver's call waited for it */
    struct thread_stream *shown; /* shows it to the governor during the call */
};

/* Nanoseconds. A launch call that takes longer may have waited for the GPU. */
#define PACE_WAITED_NS 50000u

/* How many launches of this thread may pass before the next look; 0 under a limit. */
extern _Thread_local int pace_free_launches __attribute__((tls_model("initial-exec")));

/* True if the launch needs nothing else. */
static inline bool pace_passes(void)
{
    return __builtin_expect(--pace_free_launches >= 0, 1);
}

/* After pace_passes said no. Blocks while the container has no GPU time. `key`: duration_key. Keeps
 * errno. */
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

/* A copy goes there that takes no longer than its call: what is before the next event is not a
 * kernel alone. One load without a limit. */
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

/* The thread waited for the GPU, or asked until it was idle: a good moment to look for a new
 * limit. */
static inline void pace_note_wait(void)
{
    if (pace_free_launches > 0)
        pace_free_launches = 0;
}

/* The thread is about to wait for all that is on a stream. One load without a limit. True if the
 * end of the wait is to be reported, if it succeeds. */
bool pace_stream_wait_begins_slow(CUstream stream, enum stream_zero zero);

static inline bool pace_stream_wait_begins(CUstream stream, enum stream_zero zero)
{
    return __builtin_expect(load_relaxed(&policy_limited), 0) &&
           pace_stream_wait_begins_slow(stream, zero);
}

/* It waited, and all that was on the stream is over. */
void pace_stream_awaited(CUstream stream, enum stream_zero zero);

/* The same for a thread that only asks, and may do so again and again. True if the answer is to be
 * reported: pace_stream_awaited, or pace_stream_works. */
bool pace_stream_asked_slow(CUstream stream, enum stream_zero zero);

static inline bool pace_stream_asked(CUstream stream, enum stream_zero zero)
{
    return __builtin_expect(load_relaxed(&policy_limited), 0) &&
           pace_stream_asked_slow(stream, zero);
}

void pace_stream_works(CUstream stream, enum stream_zero zero);

/* The thread is about to wait for a context or an event, or `asks` for an event: for some or all of
 * its launches. True if the end is to be reported. */
bool pace_wait_begins_slow(bool asks);

static inline bool pace_wait_begins(bool asks)
{
    return __builtin_expect(load_relaxed(&policy_limited), 0) && pace_wait_begins_slow(asks);
}

/* All that it launched in the current context is over; the event was reached; it was not yet. */
void pace_context_awaited(void);
void pace_event_awaited(void);
void pace_works(void);

/* Before the driver's cuInit, which reads it too. */
void pace_read_environment(void);

/* A capture begins: from now on each launch asks whether it is recorded. */
void pace_capture_begins(CUstream stream, enum stream_zero zero);

/* After a call by which the thread's current context may be another one. Returns `result`. */
CUresult pace_context_changed(CUresult result);

/* Before a stream ends, and all events on it. */
void pace_stream_leaves(CUstream stream);

/* Blocks while the container is held (paused, or a tenant of higher priority works), except at the
 * end of the process. Before a context ends, for which all work of the process must run. Two loads
 * if nothing holds. */
void pace_wait_while_held(void);

/* Around a call that ends or resets a context, or something that contexts depend on: the driver
 * waits for the GPU in it, and the channels must be open. Nested calls are counted. */
void pace_context_ends(void);
void pace_context_ended(void);

/* In between: all events on the context's streams go with it. */
void pace_context_leaves(CUcontext context);

/* In a forked child. */
void pace_reset(void);

#endif
