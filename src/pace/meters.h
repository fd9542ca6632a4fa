/* SPDX-License-Identifier: Apache-2.0 */
/* The meters (compute/meter.h) of the program's streams, by context: one for each stream that
 * launches under a limit. Meters and events end with their context. */
#ifndef VGPU_PACE_METERS_H
#define VGPU_PACE_METERS_H

#include "abi/cuda.h"
#include "base/atomic.h"
#include "base/lock.h"
#include "compute/meter.h"

#include <stdbool.h>
#include <stdint.h>

/* Events that a context keeps for reuse: creating one costs more than recording it. */
#define SPARE_EVENTS 64

/* Launches without a timing event behind them, as the governor last found them. */
struct meter_seen {
    uint64_t first_ns;
    uint32_t launches;
    bool works;
    uint64_t since_ns, charged_ns; /* if they work: since when, and charged up to when */
};

struct pace_context;

struct meter_record {
    struct stream_meter meter;
    struct meter_record *next;
    struct pace_context *context;
    CUstream stream;
    const void *thread; /* that owns it, if it is a per-thread stream */
    int device;
    uint32_t id;            /* no other meter ever has it; 0: its stream is gone */
    const void *opener;     /* the thread that last launched there */
    unsigned recording;     /* threads that are recording a timing event on it */
    bool orphan;            /* its stream is gone */
    bool apart;             /* it does not wait for the legacy stream, nor that for it */
    bool stuck;             /* no event was reached while a thread waited to learn durations */
    uint64_t told_ns;       /* when a thread's launches there were last surveyed */
    struct meter_seen seen; /* what is open on it, and in no thread's sum */
    bool unmeasured;        /* what was launched there without a limit may still run */
    uint64_t unmeasured_ns, unmeasured_to_ns; /* under a limit since then, charged up to then */
};

/* A context, and its events' time on the processor's clock: an event is reached after it was
 * recorded, and before it is seen. */
struct pace_context {
    struct pace_context *next;
    CUcontext handle;
    int device;
    struct meter_record *meters;
    uint64_t polled_ns; /* when its completions were last polled */
    CUevent base;
    uint64_t base_ns;     /* when it was reached, as far as is known */
    uint64_t late_ns;     /* by which events on idle streams seem late, at most */
    unsigned idle_events; /* number of these since base_ns was corrected */
    unsigned spare_count;
    CUevent spares[SPARE_EVENTS];
};

/* Guards meters and contexts. Under it only driver calls are made that query or destroy an event,
 * or ask for contexts, a stream's flags and captures: none of them waits. */
extern struct lock meters_lock;

/* Whether a kept pointer to a meter still means the same one; its memory stays. */
static inline bool meters_is_same(const struct meter_record *record, uint32_t id)
{
    return load_acquire(&record->id) == id;
}

/* Tells threads apart, and with them their own default streams. */
const void *meters_thread(void);

/* Whether the meter is the stream's; each thread has its own per-thread default stream. */
static inline bool meters_is_on(const struct meter_record *record, CUstream stream)
{
    return record->stream == stream && (!record->thread || record->thread == meters_thread());
}

/* Some launch was under a limit: there may be meters. */
bool meters_are_used(void);
void meters_use(bool used);

/* The stream's meter, of a default stream in the thread's current context; made if it is new. NULL
 * without a context, on a device that is not the container's, or without memory. */
struct meter_record *meters_of(CUstream stream) REQUIRES(meters_lock);

/* Whether it is none of the default streams. */
bool meters_is_named(CUstream stream);

/* All contexts, a list. */
struct pace_context *meters_contexts(void) REQUIRES(meters_lock);

/* Makes a context the thread's current one for a while. */
struct meters_entered {
    bool pushed;
};
struct meters_entered meters_enter(CUcontext handle);
void meters_leave(const struct meters_entered *entered);

/* Events of the context that are not in use; NULL: there is none. */
CUevent meters_spare_take(struct pace_context *context) REQUIRES(meters_lock);
void meters_spare_give(struct pace_context *context, CUevent event) REQUIRES(meters_lock);

/* Frees a meter that has no event outstanding. */
void meters_drop(struct meter_record **link) REQUIRES(meters_lock);

/* The meter is no longer its stream's: it cannot be found, and its outstanding events are polled to
 * the end. */
void meters_unlink(struct meter_record *record) REQUIRES(meters_lock);

/* Gives the meter another id: kept pointers to it are no longer current. */
void meters_renew(struct meter_record *record) REQUIRES(meters_lock);

/* Destroys the context's events. If it still has meters, it stays for them without a handle. */
void meters_context_drop(struct pace_context *context) REQUIRES(meters_lock);

/* In a forked child. */
void meters_reset(void);

#endif
