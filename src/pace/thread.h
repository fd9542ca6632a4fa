/* SPDX-License-Identifier: Apache-2.0 */
/* What each thread launches by estimate, stream by stream, between two closer looks. Only the owner
 * writes it. Others read it: the governor, so that an estimated kernel that does not end is seen
 * although its thread looks at nothing any more, and threads that look closely at a stream on which
 * several launch. */
#ifndef VGPU_PACE_THREAD_H
#define VGPU_PACE_THREAD_H

#include "pace/capture.h"
#include "pace/events.h"

#include <stdbool.h>
#include <stdint.h>

/* Streams that a thread keeps; each has a place in a group of four, by its handle. */
#define THREAD_STREAMS (1 << THREAD_STREAM_BITS)
#define THREAD_STREAM_BITS 6
#define THREAD_GROUP 4

/* Tolerance of an estimate: a quarter of it, host time included. */
#define THREAD_TOLERANCE_PART 4

/* Rounds after a quiet time that get an event after one that did not match its estimate. */
#define THREAD_EVENTS 16

/* A round: what a thread launched on a stream between two of its waits for it. The owner's own. */
struct thread_round {
    uint64_t began_ns;   /* its first launch; 0: none yet */
    uint64_t waiting_ns; /* when the wait at its end began */
    uint64_t awaited_ns; /* and ended; 0: it has not */
    int64_t before_ns; /* the stream's work_ns at its begin, less the round's measured estimates */
    uint32_t before;   /* the stream's launches at its begin */
    bool quiet;        /* it began after a quiet time, without a closer look */
    bool recorded;     /* its launches by estimate have an event behind them */
    bool dry;          /* the stream had nothing of the thread's when it began */
    bool other;        /* something else went onto the stream in it: a wait, a host function */
    bool over;         /* all of it is over: the wait was for all */
};

/* What a thread launched by estimate on a stream since its last closer look there. */
struct thread_stream {
    CUstream stream;
    struct meter_record *meter; /* NULL: not in use */
    uint64_t first_ns;
    uint64_t looked_ns; /* the last closer look */
    uint64_t key;       /* of its last launch; the owner's own */
    uint64_t shown_ns;  /* since when a call may wait for its launch; 0: none does */
    uint32_t work_ns, due_ns, quantum_ns;
    bool copied;   /* a small copy went there since the thread's last wait for it */
    bool waits;    /* the thread waits for its launches, as of the last closer look */
    uint32_t news; /* policy_news() at the last closer look */
    uint32_t launches, meter_id;
    int device;
    struct thread_noted { /* guarded by meters_lock */
        uint32_t launches, work_ns;
        uint64_t at_ns;
    } noted;                /* noted on the meter by another thread */
    uint32_t charged_ns;    /* charged already, of work_ns; guarded by meters_lock */
    struct meter_seen seen; /* the governor's own */
    struct thread_round round;
};

/* Distrust of a thread's estimates, by what its rounds took. */
struct thread_distrust {
    unsigned looks;        /* rounds that begin after a quiet time and get a closer look */
    unsigned hidden_looks; /* how many more, the next time that a wait tells nothing of its round */
    unsigned events;       /* rounds that get a timing event, of those without a closer look */
    uint64_t excess_ns,
        at_ns;             /* beyond the estimates, in rounds without a timing event; as of then */
    uint64_t tolerated_ns; /* of that, beyond EXCESS_NS */
    uint64_t events_to_ns; /* until then each round that is waited for gets a timing event */
    uint64_t longer_ns;    /* when a round last exceeded its estimate */
    uint64_t measured_ns;  /* excess in rounds with a timing event, since the meter was read */
    uint64_t meter_ns;     /* what the meter said then (stream_meter.longer_ns) */
    uint32_t meter_id;     /* 0: none was read */
};

/* A thread that launches under a limit. Not thread-local itself: static TLS is scarce in a library
 * that is loaded late. */
struct pace_thread {
    struct thread_stream streams[THREAD_STREAMS];
    CUcontext context;                /* current when the thread's last change of it was seen */
    uint64_t rounds;                  /* a bit for each of streams[] whose round may not be over */
    struct pace_thread *next, **link; /* guarded by the list's lock */
    int until_sample;
    struct thread_distrust distrust;
    bool found_over; /* the last launch that was measured was over when the call returned */
    uint32_t random;
};

/* The stream that a handle means to an entry point. */
static inline CUstream thread_named(CUstream stream, enum stream_zero zero)
{
    if (stream)
        return stream;
    return zero == STREAM_ZERO_PER_THREAD ? CU_STREAM_PER_THREAD : CU_STREAM_LEGACY;
}

/* The calling thread's, NULL before its first launch under a limit. */
extern _Thread_local struct pace_thread *thread_mine __attribute__((tls_model("initial-exec")));

/* The same, made if there is none; NULL without memory. */
struct pace_thread *thread_own(void);

/* The place of a stream to look at first. */
static inline unsigned thread_stream_place(CUstream stream)
{
    return (unsigned)((uintptr_t)stream * 0x9e3779b97f4a7c15ull >> (64 - THREAD_STREAM_BITS));
}

/* The stream's place, or a free one, or the first of its group. */
struct thread_stream *thread_stream_in_group(struct pace_thread *own, CUstream stream);

/* The thread's place for the stream; it may hold another stream. */
static inline struct thread_stream *thread_stream(struct pace_thread *own, CUstream stream)
{
    struct thread_stream *first = &own->streams[thread_stream_place(stream)];
    return __builtin_expect(first->stream == stream, 1) ? first
                                                        : thread_stream_in_group(own, stream);
}

static inline bool thread_is_current(const struct thread_stream *here, CUstream stream)
{
    return here->stream == stream && here->meter && meters_is_same(here->meter, here->meter_id);
}

/* The thread launches on the stream for the first time after its last wait for it. */
static inline void thread_round_begins(struct thread_stream *here, uint64_t now_ns, bool quiet)
{
    here->round = (struct thread_round){.began_ns = now_ns,
        .before_ns = (int64_t)here->work_ns,
        .before = here->launches,
        .quiet = quiet,
        .dry = here->round.over};
    thread_mine->rounds |= 1ull << (here - thread_mine->streams);
}

static inline bool thread_round_goes_on(const struct thread_stream *here)
{
    return here->round.began_ns && !here->round.awaited_ns;
}

/* Moves what was admitted to the stream's meter, if that still exists, and charges it later. */
void thread_flush(struct thread_stream *here) REQUIRES(meters_lock);

/* Charges what was admitted later, except what is already charged as done; it stays the thread's to
 * move to the meter. */
void thread_charge(struct thread_stream *here) REQUIRES(meters_lock);

/* Records an event behind what the thread launched by estimate on the stream: it is measured
 * whatever comes next. `dry`: the stream was idle before that. False if there was nothing, or no
 * event is to be had. */
bool thread_record(struct thread_stream *here, CUstream stream, bool dry);

/* The last launch by estimate on the stream took `less_ns` less than its estimate: the thread saw
 * it begin and end, and it has no event. */
void thread_took_less(struct thread_stream *here, uint32_t less_ns);

/* The calling thread is about to launch a kernel with an estimate of `work_ns` in a call that may
 * wait for it: the governor sees it as if it were admitted by estimate. */
void thread_show(struct thread_stream *here, uint64_t work_ns, uint64_t now_ns);

/* The call is over. */
void thread_hide(struct thread_stream *here) REQUIRES(meters_lock);

/* Moves what all threads launched by estimate on the meter to it: that came before what comes
 * now. */
void thread_gather(struct meter_record *record) REQUIRES(meters_lock);

/* The same for the stream (a per-thread one: this thread's), and for the legacy ones. */
void thread_gather_on(CUstream stream) REQUIRES(meters_lock);

/* The same for all streams of the thread, and forgets them. */
void thread_flush_all(struct pace_thread *own);

/* Flushes, and makes `here` the stream's. Returns its meter, or NULL as meters_of does. */
struct meter_record *thread_meter(CUstream stream, struct thread_stream *here)
    REQUIRES(meters_lock);

uint32_t thread_random(struct pace_thread *own); /* 16 bits */

/* For the governor: finds the streams of the device that still work with estimated launches after
 * their estimates, and charges for what is known to have run without a pause; also where their
 * thread has ended or left the stream, and they have no event. Asks the driver, which does not
 * wait. Returns what is on its way, beyond what the meters know. */
struct events_survey thread_survey(int device, uint64_t now_ns, uint64_t long_ns)
    REQUIRES(meters_lock);

/* For the governor: whether the device has estimated work on its way, without an event and with
 * nothing else in its interval. Asks the driver. */
bool thread_estimated_works(int device) REQUIRES(meters_lock);

/* In a forked child. */
void thread_reset(void);

#endif
