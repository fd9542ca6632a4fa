/* SPDX-License-Identifier: Apache-2.0 */
/* The launch gate: what each launch passes, and where it waits. */
#include "hook/pace.h"

#include "base/atomic.h"
#include "base/clock.h"
#include "base/lock.h"
#include "hook/hook.h"
#include "hook/pace_marks.h"
#include "limit/budget.h"
#include "limit/governor.h"
#include "region/account.h"

#include <errno.h>
#include <stddef.h>
#include <stdlib.h>
#include <string.h>

/* How often one looks whether the limits were changed. */
#define LOOK_NS 5000000ull
#define FREE_LAUNCHES_MAX 1024
/* GPU time that goes between two closer looks: while there is plenty, and otherwise. A look costs
 * about 5 us of the launching thread. */
#define QUANTUM_PLENTY_NS 2000000ull
#define QUANTUM_NS 1000000ull
/* One launch of so many is measured by itself, whatever its estimate. */
#define SAMPLE_LAUNCHES 192
/* The longest sleep at the gate: limits may change meanwhile, others may give back. */
#define WAIT_MAX_NS 20000000ull
#define GOVERNOR_LOOK_NS 10000000ull
/* Who asked for GPU time within this counts as working. */
#define ACTIVE_NS 50000000ull
/* Launches of unknown duration that may be on their way on a stream, and how long one waits for
 * what they turn out to take: some kernel may be waiting for the very launch that waits here. */
/* Where nothing was reached for so long, what runs may wait for a launch that waits at the gate. */
#define STALLED_NS 10000000000ull
#define UNKNOWN_MAX 4
#define UNKNOWN_WAIT_NS 100000000ull

#define THREAD_STREAMS 4 /* thread-local storage is scarce where a library is loaded late */

_Thread_local int pace_free_launches __attribute__((tls_model("initial-exec")));
bool pace_limited;

static struct {
    uint64_t looked_ns;
    uint64_t harvested_ns;
    unsigned char percent[VGPU_REGION_DEVICES];
    int64_t uncharged_ns[VGPU_REGION_DEVICES]; /* let go, and not taken from the budget yet */
    unsigned active[VGPU_REGION_DEVICES];      /* processes that ask for GPU time */
    struct lock share_lock;
    struct budget_share shares[VGPU_REGION_DEVICES];
    bool over; /* the process ends */
    bool exit_known;
} pace;

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

/* ---- limits ---- */

static void look_again(uint64_t now_ns)
{
    unsigned char percent[VGPU_REGION_DEVICES];
    store_relaxed(&pace.looked_ns, now_ns);
    bool limited = account_core_limits(percent) && !load_relaxed(&pace.over) &&
                   container_config()->core_policy != CORE_POLICY_DISABLE;
    for (unsigned d = 0; d < VGPU_REGION_DEVICES; d++) {
        store_relaxed(&pace.percent[d], percent[d]);
        if (percent[d])
            store_relaxed(&pace.active[d], account_asking(d, now_ns - ACTIVE_NS));
    }
    store_relaxed(&pace_limited, limited);
}

static bool look(uint64_t now_ns)
{
    if (now_ns - load_relaxed(&pace.looked_ns) >= LOOK_NS)
        look_again(now_ns);
    return load_relaxed(&pace_limited);
}

static unsigned percent_of(unsigned device)
{
    return load_relaxed(&pace.percent[device]);
}

/* So many that the next look comes after about LOOK_NS at the rate of the last ones. */
static void let_go(uint64_t now_ns)
{
    uint64_t passed = now_ns - thread.looked_ns;
    if (passed < LOOK_NS / 2)
        thread.free_step = 2 * thread.free_step + 1;
    else if (passed > 2 * LOOK_NS)
        thread.free_step = (int)((uint64_t)thread.free_step * LOOK_NS / passed);
    if (thread.free_step > FREE_LAUNCHES_MAX)
        thread.free_step = FREE_LAUNCHES_MAX;
    thread.looked_ns = now_ns;
    pace_free_launches = thread.free_step;
}

/* ---- the end of the process ---- */

/* Called before the driver's own handler, which was registered when it was initialised. */
static void process_ends(void)
{
    store_relaxed(&pace.over, true);
    store_relaxed(&pace_limited, false);
    governor_stop();
    lock_take(&marks_lock);
    lock_release(&marks_lock);
}

static uint64_t govern(void)
{
    if (load_relaxed(&pace.over))
        return GOVERNOR_NOTHING;
    uint64_t since = clock_now_ns() - load_relaxed(&pace.harvested_ns);
    if (since < GOVERNOR_LOOK_NS)
        return 2 * GOVERNOR_LOOK_NS - since;
    lock_take(&marks_lock);
    unsigned outstanding = load_relaxed(&pace.over) ? 0 : marks_harvest_all();
    lock_release(&marks_lock);
    return outstanding ? GOVERNOR_LOOK_NS : GOVERNOR_NOTHING;
}

static void watch(void)
{
    if (!load_relaxed(&pace.exit_known)) {
        store_relaxed(&pace.exit_known, true);
        (void)!atexit(process_ends);
    }
    governor_wake(govern);
}

/* ---- the gate ---- */

struct admission {
    unsigned device, percent;
    uint64_t now_ns;
    int64_t gone_ns;   /* let go since the last look */
    int64_t coming_ns; /* of the launch that asks */
    int64_t balance_ns;
    bool admitted;
};

static void admit(struct vgpu_compute *words, struct vgpu_usage *own, void *argument)
{
    struct admission *admission = argument;
    struct budget_share *share = &pace.shares[admission->device];
    unsigned active = load_relaxed(&pace.active[admission->device]);
    if (own)
        store_relaxed(&own->asked_ns, admission->now_ns);
    budget_charge(words, admission->gone_ns);
    budget_share_refill(share, admission->percent, active, admission->now_ns);
    share->balance_ns -= admission->gone_ns;
    admission->balance_ns = budget_refill(words, admission->percent, admission->now_ns);
    admission->admitted = budget_admits(admission->balance_ns, share, active);
    if (!admission->admitted)
        return;
    budget_charge(words, admission->coming_ns);
    share->balance_ns -= admission->coming_ns;
}

static unsigned harvest(const struct lane_record *record)
{
    lock_take(&marks_lock);
    (void)marks_harvest(record->device);
    unsigned outstanding = record->lane.count;
    lock_release(&marks_lock);
    store_relaxed(&pace.harvested_ns, clock_now_ns());
    return outstanding;
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
        add_relaxed(&pace.uncharged_ns[here->lane->device], (int64_t)here->work_ns);
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
        store_relaxed(&pace.harvested_ns, found.marked_ns);
    }
    return found;
}

/* The thread will not launch anything for a while: what it launched on other streams of the context
 * ends there, not when it comes back to them. */
static void close_others(const struct lane_record *record)
{
    for (unsigned i = 0; i < THREAD_STREAMS; i++) {
        struct thread_stream *there = &thread.streams[i];
        lock_take(&marks_lock);
        bool open = there->lane && there->lane != record && there->epoch == marks_epoch &&
                    there->lane->context == record->context;
        if (open) {
            flush(there);
            open = there->lane->lane.open.launches > 0;
        }
        bool busy = open && there->lane->lane.count > 0;
        lock_release(&marks_lock);
        if (open)
            marks_record(there->lane, there->epoch, (struct lane_run){.continuous = busy});
    }
}

/* How long until the container may have GPU time; where it has some, until another process may
 * have left some over. */
static uint64_t wait_ns(const struct admission *admission)
{
    uint64_t wait = budget_wait_ns(admission->balance_ns, admission->percent);
    if (!wait)
        wait = BUDGET_SURPLUS_NS / 2;
    return wait < WAIT_MAX_NS ? wait : WAIT_MAX_NS;
}

/* Kernels may wait for each other; one that never ends by itself must not hang its program here. */
struct stall {
    uint64_t reached, since_ns;
};

static bool is_stalled(struct stall *stall, unsigned outstanding)
{
    uint64_t now = clock_now_ns(), reached = load_relaxed(&marks_reached);
    if (!outstanding || !stall->since_ns || stall->reached != reached)
        *stall = (struct stall){reached, now};
    return now - stall->since_ns > STALLED_NS;
}

/* Waits for the container's turn on the device; *ret_waited: it had to. Returns the balance. */
static int64_t wait_turn(const struct lane_record *record, uint64_t coming_ns, bool *ret_waited)
{
    unsigned device = (unsigned)record->device;
    struct admission admission = {.device = device, .coming_ns = (int64_t)coming_ns};
    struct stall stall = {.since_ns = 0};
    *ret_waited = false;
    for (;;) {
        admission.now_ns = clock_now_ns();
        admission.percent = look(admission.now_ns) ? percent_of(device) : 0;
        admission.gone_ns = exchange_acq_rel(&pace.uncharged_ns[device], (int64_t)0);
        lock_take(&pace.share_lock);
        bool asked = account_visit_compute(device, admit, &admission);
        lock_release(&pace.share_lock);
        if (!asked || admission.admitted || !admission.percent)
            return admission.balance_ns;
        if (!*ret_waited)
            close_others(record);
        *ret_waited = true;
        sleep_ns(wait_ns(&admission));
        if (is_stalled(&stall, harvest(record)))
            return admission.balance_ns;
    }
}

/* What nobody knows the duration of is not let go in numbers. */
static void wait_until_known(const struct lane_record *record, uint64_t key)
{
    uint64_t start = clock_now_ns();
    for (;;) {
        lock_take(&marks_lock);
        bool many = record->lane.unknown >= UNKNOWN_MAX;
        lock_release(&marks_lock);
        if (!many || duration_of(key) || clock_now_ns() - start > UNKNOWN_WAIT_NS)
            return;
        sleep_ns(UNKNOWN_WAIT_NS / 500);
        (void)harvest(record);
    }
}

static void begin_slow(
    struct pace_launch *launch, CUstream stream, enum stream_zero zero, uint64_t now_ns)
{
    CUstream named = stream_named(stream, zero);
    struct thread_stream *here = thread_stream(named);
    if (capture_records(stream, zero))
        return;
    struct found found = find_stream(named, here);
    unsigned percent = found.record ? percent_of((unsigned)found.record->device) : 0;
    if (!percent) {
        let_go(now_ns);
        return;
    }
    watch();
    bool waited;
    wait_until_known(found.record, launch->key);
    launch->work_ns = duration_of(launch->key);
    int64_t balance = wait_turn(found.record, launch->work_ns, &waited);
    bool plenty = balance > (int64_t)(BUDGET_BURST_NS / 200 * percent);
    here->due_ns = (uint32_t)(plenty ? QUANTUM_PLENTY_NS : QUANTUM_NS);
    if (waited)
        found.busy = harvest(found.record) > 0;
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
    uint64_t open = record && record->lane.started && percent_of((unsigned)record->device)
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
    if (look(now))
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
        add_relaxed(&pace.uncharged_ns[record->device], -(int64_t)launch->work_ns);
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
    if (load_relaxed(&pace.exit_known))
        marks_stream_leaves(stream);
}

void pace_context_leaves(CUcontext context)
{
    pace_free_launches = 0;
    if (load_relaxed(&pace.exit_known))
        marks_context_leaves(context);
}

void pace_reset(void)
{
    memset(&pace, 0, sizeof(pace));
    store_relaxed(&pace_limited, false);
    pace_free_launches = 0;
    memset(&thread, 0, sizeof(thread));
    governor_reset();
    durations_reset();
    marks_reset();
}
