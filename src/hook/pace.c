/* SPDX-License-Identifier: Apache-2.0 */
/* What each launch passes: by estimate, or by a closer look. */
#include "hook/pace.h"

#include "base/atomic.h"
#include "base/clock.h"
#include "base/lock.h"
#include "hook/hook.h"
#include "hook/pace_gate.h"
#include "hook/pace_marks.h"
#include "limit/budget.h"

#include <errno.h>
#include <stddef.h>
#include <string.h>

#define FREE_LAUNCHES_MAX 1024
/* GPU time that goes between two closer looks: while there is plenty, and otherwise. A look costs
 * about 5 us of the launching thread. */
#define QUANTUM_PLENTY_NS 2000000ull
#define QUANTUM_NS 1000000ull
/* One launch of so many is measured by itself, whatever its estimate. */
#define SAMPLE_LAUNCHES 192

#define THREAD_STREAMS 4 /* thread-local storage is scarce where a library is loaded late */

_Thread_local int pace_free_launches __attribute__((tls_model("initial-exec")));

/* What a thread let go since its last closer look, by stream. */
struct thread_stream {
    CUstream stream;
    struct lane_record *lane; /* NULL: not in use */
    uint64_t first_ns;
    uint32_t work_ns, due_ns;
    uint32_t launches, epoch;
};

static _Thread_local struct {
    struct thread_stream streams[THREAD_STREAMS];
    uint64_t looked_ns;
    int free_step;
    int until_sample;
    uint32_t random;
} thread __attribute__((tls_model("initial-exec")));

static CUstream stream_named(CUstream stream, enum stream_zero zero)
{
    if (stream)
        return stream;
    return zero == STREAM_ZERO_PER_THREAD ? CU_STREAM_PER_THREAD : CU_STREAM_LEGACY;
}

static struct thread_stream *thread_stream(CUstream stream)
{
    uintptr_t handle = (uintptr_t)stream;
    return &thread.streams[(handle ^ handle >> 4 ^ handle >> 9) % THREAD_STREAMS];
}

/* So many that the next look comes after about GATE_LOOK_NS at the rate of the last ones. */
static void let_go(uint64_t now_ns)
{
    uint64_t passed = now_ns - thread.looked_ns;
    if (passed < GATE_LOOK_NS / 2)
        thread.free_step = 2 * thread.free_step + 1;
    else if (passed > 2 * GATE_LOOK_NS)
        thread.free_step = (int)((uint64_t)thread.free_step * GATE_LOOK_NS / passed);
    if (thread.free_step > FREE_LAUNCHES_MAX)
        thread.free_step = FREE_LAUNCHES_MAX;
    thread.looked_ns = now_ns;
    pace_free_launches = thread.free_step;
}

/* ---- launches ---- */

/* Between half and three halves of SAMPLE_LAUNCHES, so that no rhythm of the program is met. */
static int next_sample(void)
{
    thread.random = thread.random * 1664525u + 1013904223u;
    return (int)(SAMPLE_LAUNCHES / 2 + (thread.random >> 16) % SAMPLE_LAUNCHES);
}

/* Gives what the thread let go to the stream's lane, and to what is to be charged. */
static void flush(struct thread_stream *here) REQUIRES(marks_lock)
{
    if (here->lane && here->launches && here->epoch == marks_epoch) {
        lane_note(&here->lane->lane, here->launches, here->work_ns, 0, here->first_ns);
        gate_charge_later((unsigned)here->lane->device, (int64_t)here->work_ns);
    }
    here->due_ns -= here->work_ns < here->due_ns ? here->work_ns : here->due_ns;
    here->launches = 0;
    here->work_ns = 0;
}

static struct lane_record *lane_now(CUstream stream, struct thread_stream *here)
    REQUIRES(marks_lock)
{
    flush(here);
    struct lane_record *record = marks_lane(stream);
    *here = (struct thread_stream){.stream = stream, .lane = record, .epoch = marks_epoch};
    return record;
}

/* The stream as it is found before a launch that one looks at closely. */
struct found {
    struct lane_record *record;
    uint64_t marked_ns; /* when a mark was recorded, 0 where none was */
    bool busy;          /* marks are outstanding */
    uint32_t epoch;
};

/* Closes the stretch that is open on the stream. */
static struct found find_stream(CUstream stream, struct thread_stream *here)
{
    struct found found = {.busy = false};
    bool open = false;
    lock_take(&marks_lock);
    found.record = lane_now(stream, here);
    found.epoch = marks_epoch;
    if (found.record) {
        (void)marks_harvest(found.record->device);
        found.busy = found.record->lane.count > 0;
        open = found.record->lane.open.launches || found.record->lane.open.other;
    }
    lock_release(&marks_lock);
    if (open) {
        marks_record(found.record, found.epoch, (struct lane_run){.continuous = found.busy});
        found.marked_ns = clock_now_ns();
        gate_harvested(found.marked_ns);
    }
    return found;
}

/* The thread will not launch anything for a while: what it launched on other streams of the context
 * ends there, not when it comes back to them. */
static void close_others(const struct lane_record *record, uint32_t epoch)
{
    lock_take(&marks_lock);
    for (unsigned i = 0; i < THREAD_STREAMS; i++)
        flush(&thread.streams[i]);
    lock_release(&marks_lock);
    marks_close_others(record, epoch);
}

static void begin_slow(
    struct pace_launch *launch, CUstream stream, enum stream_zero zero, uint64_t now_ns)
{
    CUstream named = stream_named(stream, zero);
    struct thread_stream *here = thread_stream(named);
    if (capture_records(stream, zero))
        return;
    struct found found = find_stream(named, here);
    unsigned percent = found.record ? gate_percent((unsigned)found.record->device) : 0;
    if (!percent) {
        let_go(now_ns);
        return;
    }
    gate_watch();
    bool waited;
    gate_wait_until_known(found.record, launch->key);
    launch->work_ns = duration_of(launch->key);
    int64_t balance = gate_wait(found.record, found.epoch, launch->work_ns, close_others, &waited);
    bool plenty = balance > (int64_t)(BUDGET_BURST_NS / 200 * percent);
    here->due_ns = (uint32_t)(plenty ? QUANTUM_PLENTY_NS : QUANTUM_NS);
    if (waited)
        found.busy = gate_harvest(found.record) > 0;
    if (!found.busy && (waited || !found.marked_ns)) {
        marks_record(found.record, found.epoch, (struct lane_run){.continuous = false});
        found.marked_ns = clock_now_ns();
    }
    launch->lane = found.record;
    launch->epoch = found.epoch;
    launch->started_ns = found.busy ? 0 : found.marked_ns;
}

/* Adds the launch to what the thread let go on the stream. False where one has to look closer. */
static inline bool let_by(struct thread_stream *here, uint64_t work_ns)
{
    if (here->work_ns + work_ns >= here->due_ns || --thread.until_sample <= 0)
        return false;
    if (!here->launches)
        here->first_ns = clock_now_ns();
    here->work_ns += (uint32_t)work_ns;
    here->launches++;
    return true;
}

/* The thread launched on other streams meanwhile. */
static bool let_by_again(CUstream stream, struct thread_stream *here, uint64_t work_ns)
{
    lock_take(&marks_lock);
    const struct lane_record *record = lane_now(stream, here);
    uint64_t open = record && record->lane.started && gate_percent((unsigned)record->device)
                        ? record->lane.open.work_ns
                        : QUANTUM_NS;
    here->due_ns = open < QUANTUM_NS ? (uint32_t)(QUANTUM_NS - open) : 0;
    lock_release(&marks_lock);
    return let_by(here, work_ns);
}

static bool passes_by_estimate(CUstream stream, enum stream_zero zero, uint64_t work_ns)
{
    CUstream named = stream_named(stream, zero);
    struct thread_stream *here = thread_stream(named);
    if (!work_ns || work_ns >= QUANTUM_NS)
        return false;
    if (here->stream == named && here->lane && here->epoch == load_acquire(&marks_epoch))
        return let_by(here, work_ns);
    return let_by_again(named, here, work_ns);
}

void pace_begin(struct pace_launch *launch, CUstream stream, enum stream_zero zero, uint64_t key)
{
    pace_free_launches = 0;
    *launch = (struct pace_launch){.key = key};
    if (load_relaxed(&pace_limited) && passes_by_estimate(stream, zero, duration_of(key)))
        return;
    int errno_kept = errno;
    process_enter(container_reset);
    uint64_t now = clock_now_ns();
    if (gate_look(now))
        begin_slow(launch, stream, zero, now);
    else
        let_go(now);
    errno = errno_kept;
}

void pace_end(struct pace_launch *launch, bool launched)
{
    struct lane_record *record = launch->lane;
    if (!record)
        return;
    int errno_kept = errno;
    uint64_t now = clock_now_ns();
    uint64_t gap = launch->started_ns ? now - launch->started_ns : 0;
    lock_take(&marks_lock);
    bool same = launch->epoch == marks_epoch;
    if (same && launched)
        lane_note(&record->lane, 1, launch->work_ns, launch->key, now);
    else if (same)
        gate_charge_later((unsigned)record->device, -(int64_t)launch->work_ns);
    lock_release(&marks_lock);
    struct lane_run run = {.gap_ns = gap, .continuous = launch->started_ns == 0, .measured = true};
    if (same && launched)
        marks_record(record, launch->epoch, run);
    thread.until_sample = next_sample();
    errno = errno_kept;
}

void pace_note_other_slow(CUstream stream, enum stream_zero zero)
{
    if (capture_records(stream, zero))
        return;
    CUstream named = stream_named(stream, zero);
    struct thread_stream *here = thread_stream(named);
    lock_take(&marks_lock);
    bool known = here->stream == named && here->lane && here->epoch == marks_epoch;
    if (known)
        flush(here);
    struct lane_record *record = known ? here->lane : lane_now(named, here);
    if (record)
        record->lane.open.other = true;
    lock_release(&marks_lock);
}

void pace_context_changed(void)
{
    if (!load_relaxed(&pace_limited))
        return;
    pace_free_launches = 0;
    lock_take(&marks_lock);
    for (unsigned i = 0; i < THREAD_STREAMS; i++) {
        flush(&thread.streams[i]);
        thread.streams[i] = (struct thread_stream){.stream = NULL};
    }
    lock_release(&marks_lock);
}

void pace_stream_leaves(CUstream stream)
{
    if (gate_is_used())
        marks_stream_leaves(stream);
}

void pace_context_leaves(CUcontext context)
{
    pace_free_launches = 0;
    if (gate_is_used())
        marks_context_leaves(context);
}

void pace_reset(void)
{
    pace_free_launches = 0;
    memset(&thread, 0, sizeof(thread));
    gate_reset();
    durations_reset();
    marks_reset();
}
