/* SPDX-License-Identifier: Apache-2.0 */
/* The meters (compute/meter.h) of the program's streams, by context. A meter for each stream that
 * launches under a limit; meters and events die with their context. */
#ifndef VGPU_PACE_METERS_H
#define VGPU_PACE_METERS_H

#include "abi/cuda.h"
#include "base/atomic.h"
#include "base/lock.h"
#include "compute/meter.h"

#include <stdbool.h>
#include <stdint.h>

#define SPARE_EVENTS 64

/* Launches behind which there is no timing event, as the governor found them when he asked last. */
struct meter_seen {
    uint64_t first_ns;
    uint32_t launches;
    bool works;
    uint64_t since_ns, charged_ns; /* where they work: since when, and charged up to */
};

struct pace_context;

struct meter_record {
    struct stream_meter meter;
    struct meter_record *next;
    struct pace_context *context;
    CUstream stream;
    const void *thread; /* whose per-thread stream it is */
    int device;
    uint32_t id;            /* no other meter ever has it; 0: its stream is gone */
    const void *opener;     /* the thread that launched there last */
    unsigned recording;     /* threads that record a timing event on it now */
    bool orphan;            /* its stream is gone */
    bool apart;             /* neither waits for the legacy stream nor is waited for by that */
    bool stuck;             /* nothing was reached while one waited to know durations */
    uint64_t told_ns;       /* a thread told the governor of its launches there then */
    struct meter_seen seen; /* what is open on it, and no thread tells of */
    bool unmeasured;        /* what was launched there without a limit may run still */
    uint64_t unmeasured_ns, unmeasured_to_ns; /* under one it has since then, charged up to there */
};

/* GPU time as the events of a context tell it, put onto the processor's clock: a timing event is
 * reached after it was recorded and before it is seen to be. */
struct pace_context {
    struct pace_context *next;
    CUcontext handle;
    int device;
    struct meter_record *meters;
    uint64_t polled_ns; /* its timing events were asked for last */
    CUevent base;
    uint64_t base_ns; /* when it was reached, as far as that is known */
    uint64_t late_ns; /* by so much at most timing events on idle streams seem to be reached late */
    unsigned idle_events; /* which were so many, since base_ns was set right by them */
    unsigned spare_count;
    CUevent spares[SPARE_EVENTS];
};

/* Guards meters and contexts. Of the driver's calls only those are made under it that ask for or
 * drop an event, or for contexts, a stream's flags and captures: none of them waits. */
extern struct lock meters_lock;

/* Whether a pointer to a meter that somebody kept still is to the same one; its memory stays. */
static inline bool meters_is_same(const struct meter_record *record, uint32_t id)
{
    return load_acquire(&record->id) == id;
}

/* Tells threads, and so their own default streams, apart. */
const void *meters_thread(void);

/* Whether the meter is the stream's: of per-thread default streams each thread has its own. */
static inline bool meters_is_on(const struct meter_record *record, CUstream stream)
{
    return record->stream == stream && (!record->thread || record->thread == meters_thread());
}

/* Some launch was under a limit: there may be meters. */
bool meters_are_used(void);
void meters_use(bool used);

/* The meter of the stream, a default stream's in the thread's current context; made where it is
 * new. NULL where there is no context, its device is not the container's, or there is no memory. */
struct meter_record *meters_of(CUstream stream) REQUIRES(meters_lock);

/* It is none of the default streams. */
bool meters_is_named(CUstream stream);

/* All of them, a list. */
struct pace_context *meters_contexts(void) REQUIRES(meters_lock);

/* Makes a context the thread's current one for a while. */
struct meters_entered {
    bool pushed;
};
struct meters_entered meters_enter(CUcontext handle);
void meters_leave(const struct meters_entered *entered);

/* An event of the context's that is not needed now. */
CUevent meters_spare_take(struct pace_context *context) REQUIRES(meters_lock);
void meters_spare_give(struct pace_context *context, CUevent event) REQUIRES(meters_lock);

/* Forgets a meter whose timing events are all out. */
void meters_drop(struct meter_record **link) REQUIRES(meters_lock);

/* The meter is its stream's no more: nobody finds it, what it has timing events for is seen to its
 * end. */
void meters_unlink(struct meter_record *record) REQUIRES(meters_lock);

/* Another id: what others kept of the meter is not current any more. */
void meters_renew(struct meter_record *record) REQUIRES(meters_lock);

/* Gives up the context's events. Where it has meters still, it stays for them, nobody's. */
void meters_context_drop(struct pace_context *context) REQUIRES(meters_lock);

/* In a forked child. */
void meters_reset(void);

#endif
