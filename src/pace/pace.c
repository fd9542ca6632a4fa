/* SPDX-License-Identifier: Apache-2.0 */
/* What each launch passes: admission by estimate, or a closer look. */
#include "pace/pace.h"

#include "base/atomic.h"
#include "base/clock.h"
#include "config/config_process.h"
#include "base/lock.h"
#include "container/container.h"
#include "driver/cuda.h"
#include "pace/completions.h"
#include "pace/channels.h"
#include "pace/gang.h"
#include "pace/gate.h"
#include "pace/govern.h"
#include "pace/events.h"
#include "pace/leave.h"
#include "pace/policy.h"
#include "pace/spot_check.h"
#include "pace/tenants.h"
#include "pace/thread.h"
#include "pace/unmeasured.h"
#include "compute/budget.h"
#include "pace/governor.h"
#include "pace/halt.h"
#include "pace/share.h"

#include <errno.h>
#include <stddef.h>
#include <string.h>

/* Launches that pass without a look, at most: one that is rare later must not pass long unseen. */
#define FREE_LAUNCHES_MAX 32
/* Nanoseconds after which the first launch on a stream gets a closer look: it may take longer than
 * ever before, and nothing may follow that would show it. But if the thread waits for its launches,
 * an event is recorded behind it as the wait begins, while it runs: two events before it, and a
 * wake of the governor, would cost a request of 0.1 ms a quarter of its latency. */
#define QUIET_NS 2000000ull
/* Nanoseconds within which a governor looks by itself that sees what runs on, although no launch
 * rouses it. */
#define GOVERNOR_LOOKS_NS 50000000ull
/* Nanoseconds. A launch is charged with this at most when it is admitted; what takes longer is
 * charged as it runs. No overdraft is as large as an estimate may be, nor as what a queue may
 * hold. */
#define AHEAD_MOST_NS 1000000000ull
/* Launches of which one is measured, whatever its estimate; of twice that where the thread waits
 * for each launch, so that the device idles for 20 us. */
#define SAMPLE_LAUNCHES 384
_Thread_local int pace_free_launches __attribute__((tls_model("initial-exec")));

static _Thread_local struct {
    uint64_t looked_ns;
    int free_step;
    CUstream stream; /* that the governor was told of, */
    uint64_t noted_ns;
    struct unmeasured_noted noted;
} thread __attribute__((tls_model("initial-exec")));

/* As the driver reads it in its first cuInit: launches wait for their kernels. */
static bool launches_block, environment_is_read;

/* Lets a number of launches pass that brings the next look after about POLICY_LOOK_NS at their
 * recent rate. */
static void pass_unthrottled(CUstream stream, enum stream_zero zero, uint64_t now_ns)
{
    uint64_t passed = now_ns - thread.looked_ns;
    if (passed < POLICY_LOOK_NS / 2)
        thread.free_step = 2 * thread.free_step + 1;
    else if (passed > 2 * POLICY_LOOK_NS)
        thread.free_step = (int)((uint64_t)thread.free_step * POLICY_LOOK_NS / passed);
    if (thread.free_step > FREE_LAUNCHES_MAX)
        thread.free_step = FREE_LAUNCHES_MAX;
    thread.looked_ns = now_ns;
    pace_free_launches = thread.free_step;
    govern_note_unmeasured();
    if (stream == thread.stream &&
        (now_ns - thread.noted_ns < POLICY_LOOK_NS || unmeasured_is_noted(&thread.noted)))
        return;
    thread.stream = stream;
    thread.noted_ns = now_ns;
    thread.noted = unmeasured_note(stream, zero);
}

/* ---- launches ---- */

/* The next launch that gets a closer look is chosen at random: a fixed rhythm could coincide with
 * the program's, and always measure the same kernel. Between half and three halves of
 * SAMPLE_LAUNCHES; each launch, if estimates are distrusted. */
static int next_sample(struct pace_thread *own, unsigned device)
{
    if (spot_check_distrusts(device))
        return 0;
    return (int)(SAMPLE_LAUNCHES / 2 + thread_random(own) % SAMPLE_LAUNCHES);
}

/* Between half and all of the quantum. */
static uint32_t next_due_ns(struct pace_thread *own, uint32_t quantum_ns)
{
    uint64_t half = quantum_ns / 2;
    return (uint32_t)(half + (half * thread_random(own) >> 16));
}

/* The stream as a closer look finds it before the launch. */
struct found {
    struct meter_record *record;
    uint64_t recorded_ns; /* when an event was recorded, 0: none was */
    bool busy;            /* it has work on its way */
    bool alone;           /* no other stream of its context had work recently */
    uint32_t meter_id;
};

static void find_meter(struct found *found, CUstream stream, struct thread_stream *here)
    REQUIRES(meters_lock)
{
    found->record = thread_meter(stream, here);
    found->meter_id = found->record ? found->record->id : 0;
}

/* Ends the interval that is open on the stream. */
static struct found find_stream(CUstream stream, struct thread_stream *here, uint64_t now_ns)
{
    struct found found = {.busy = false};
    bool open = false;
    LOCKED(meters_lock) {
        find_meter(&found, stream, here);
        if (found.record) {
            thread_gather(found.record);
            (void)completions_poll(found.record->device);
            found.busy = found.record->meter.count > 0;
            found.alone = !events_beside(found.record, now_ns);
            open = found.record->meter.open.launches || found.record->meter.open.other;
        }
    }
    if (open) {
        bool outstanding = found.busy;
        /* Estimated work may still run: then the stream is not idle. */
        found.busy = outstanding || events_stream_works(stream);
        events_record(found.record, found.meter_id, (struct meter_run){.continuous = outstanding});
        found.recorded_ns = clock_now_ns();
        govern_note_polled(found.recorded_ns);
    }
    return found;
}

/* A capture began elsewhere while the launch waited, and gave the meter another id. */
static void find_again(struct found *found, CUstream stream, struct thread_stream *here)
{
    LOCKED_TO_END(meters_lock);
    find_meter(found, stream, here);
    found->busy = found->record && found->record->meter.count > 0;
    found->recorded_ns = 0;
}

/* The thread will not launch for a while: what it launched on other streams of the context ends
 * there now, not when it comes back to them. */
static void close_others(const struct meter_record *record, uint32_t id)
{
    if (!thread_mine)
        return;
    LOCKED(meters_lock) {
        for (unsigned i = 0; i < THREAD_STREAMS; i++)
            thread_flush(&thread_mine->streams[i]);
    }
    events_close_others(record, id);
}

/* The limit of the meter's device, which may have become known since the policy was read: a launch
 * that passes by mistake is not measured either, however long it runs. */
static unsigned percent_of(const struct meter_record *record, uint64_t now_ns)
{
    uint32_t epoch;
    unsigned percent = record ? policy_percent((unsigned)record->device) : 0;
    if (!percent && record && policy_read(now_ns, &epoch))
        percent = policy_percent((unsigned)record->device);
    return percent;
}

static bool is_quiet(const struct thread_stream *here, uint64_t now_ns)
{
    const uint64_t awaited_ns = here->round.awaited_ns, looked_ns = here->looked_ns;
    return now_ns > (awaited_ns > looked_ns ? awaited_ns : looked_ns) + QUIET_NS;
}

/* No work of others was between the launches on the stream and the end of a wait for them, at the
 * last closer look. */
static bool is_alone(const struct thread_stream *here)
{
    return here->waits && share_active((unsigned)here->device) <= 1 &&
           policy_part((unsigned)here->device).permille >= 1000;
}

/* Whether a launch after a quiet time may go by estimate: only if the governor sees it when it runs
 * on (it cannot ask a thread's own stream), and no other tenant must hear of it at once. */
static bool is_trusted(const struct thread_stream *here)
{
    if (thread_mine->distrust.looks) {
        thread_mine->distrust.looks--;
        return false;
    }
    return here->round.awaited_ns && is_alone(here) && here->meter && !here->meter->thread &&
           governor_looks_within(GOVERNOR_LOOKS_NS) && !load_relaxed(&launches_block) &&
           !policy_has_priority();
}

/* The thread's first launch after a closer look, or after a wait. False if it needs a closer
 * look. */
static bool begin_estimates(struct thread_stream *here)
{
    uint64_t now = clock_now_ns();
    bool quiet = is_quiet(here, now);
    if (quiet && !is_trusted(here))
        return false;
    if (quiet)
        govern_note_work((unsigned)here->device, now);
    if (!here->launches)
        store_relaxed(&here->first_ns, now);
    if (here->round.awaited_ns)
        thread_round_begins(here, now, quiet);
    return true;
}

/* A governor that rests, and is not roused for a round that began after a quiet time, looks by
 * itself. */
static bool may_rest(const struct thread_stream *here)
{
    return here->round.quiet && governor_looks_within(GOVERNOR_LOOKS_NS) &&
           clock_now_ns() < here->round.began_ns + QUIET_NS;
}

/* Adds the launch to what the thread launched by estimate on the stream. False if it needs a closer
 * look. */
static inline bool admit_by_estimate(
    struct pace_launch *launch, struct thread_stream *here, uint64_t work_ns)
{
    if (here->work_ns + work_ns >= here->due_ns || --thread_mine->until_sample <= 0 ||
        here->news != policy_news())
        return false;
    if ((!here->launches || here->round.awaited_ns) && !begin_estimates(here))
        return false;
    bool rests = governor_sleeps();
    if (rests && !may_rest(here))
        return false;
    here->key = launch->key;
    store_relaxed(&here->work_ns, here->work_ns + (uint32_t)work_ns);
    store_release(&here->launches, here->launches + 1);
    if (rests)
        governor_stir();
    launch->by_estimate = here;
    launch->work_ns = work_ns;
    return true;
}

/* The launches on the stream matched their estimates: by the time that passed, or by each wait
 * since the last closer look. */
static bool took_as_thought(const struct thread_stream *here, uint64_t now_ns)
{
    uint64_t passed = now_ns - here->first_ns, off = here->work_ns / THREAD_TOLERANCE_PART;
    if (here->round.recorded || (here->round.awaited_ns && is_quiet(here, now_ns)))
        return !thread_mine->distrust.looks;
    return passed + off > here->work_ns && passed < here->work_ns + off;
}

/* Whether only the budget has to be asked: the thread waits for its launches on the stream, they
 * matched their estimates, one was measured not long ago, and no other container works between
 * them. */
static bool is_known_enough(const struct thread_stream *here, CUstream stream, uint64_t key,
    uint64_t work_ns, uint64_t now_ns)
{
    return here->waits && (here->launches || here->round.recorded) &&
           here->work_ns + work_ns >= here->due_ns && took_as_thought(here, now_ns) &&
           work_ns < BUDGET_QUANTUM_NS && duration_is_steady(key) &&
           here->work_ns < BUDGET_UNINSTRUMENTED_NS && thread_is_current(here, stream) &&
           here->news == policy_news() && policy_part((unsigned)here->device).permille >= 1000 &&
           !spot_check_distrusts((unsigned)here->device);
}

/* Charges what the thread launched by estimate. If half of the burst is available it goes on by
 * estimate without an event: each costs a device that is waited for 20 us. */
static bool admit_uninstrumented(
    struct pace_launch *launch, struct thread_stream *here, CUstream stream, uint64_t now_ns)
{
    uint64_t work_ns = duration_of(launch->key);
    if (!is_known_enough(here, stream, launch->key, work_ns, now_ns))
        return false;
    unsigned device = (unsigned)here->device, percent = policy_percent(device);
    LOCKED(meters_lock)
        thread_charge(here);
    int64_t balance = gate_charge_now(device);
    if (!percent || balance <= budget_burst_ns(percent) / 2)
        return false;
    here->quantum_ns = budget_quantum_ns(
        balance, percent, share_active((unsigned)here->device), true, here->quantum_ns);
    here->due_ns = here->work_ns + next_due_ns(thread_mine, here->quantum_ns);
    govern_note_work(device, now_ns);
    return admit_by_estimate(launch, here, work_ns);
}

void pace_read_environment(void)
{
    if (load_relaxed(&environment_is_read))
        return;
    store_relaxed(&launches_block, config_process_launches_block());
    store_relaxed(&environment_is_read, true);
}

/* The launch has no event before its call is over. */
static void show(struct pace_launch *launch, struct thread_stream *here)
{
    if (!load_relaxed(&launches_block) || !thread_is_current(here, launch->stream) ||
        here->launches)
        return;
    thread_show(here, launch->work_ns, launch->called_ns);
    launch->shown = here;
    govern_note_work(launch->device, launch->called_ns);
    govern_rouse();
}

static void hide(struct pace_launch *launch)
{
    LOCKED_TO_END(meters_lock);
    thread_hide(launch->shown);
}

/* Records the event from which the launch is measured on an idle stream. An event's own time lies
 * between what the processor knows of it and what the device does, and is 2 us longer with cold
 * caches (H100, driver 580.159.04): two go before it, and the second shows what an event takes. */
static void record_begin(struct found *found, bool waited)
{
    if (waited || !found->recorded_ns)
        events_record(found->record, found->meter_id, (struct meter_run){.continuous = false});
    events_record(found->record, found->meter_id, (struct meter_run){.continuous = false});
    events_record(found->record, found->meter_id, (struct meter_run){.apart = true});
    found->recorded_ns = clock_now_ns();
}

static void begin_slow(
    struct pace_launch *launch, CUstream stream, enum stream_zero zero, uint64_t now_ns)
{
    CUstream named = thread_named(stream, zero);
    struct pace_thread *own = thread_own();
    uint32_t news = policy_news();
    if (!own || capture_records(stream, zero))
        return;
    struct thread_stream *here = thread_stream(own, named);
    if (admit_uninstrumented(launch, here, named, now_ns))
        return;
    bool midst = here->waits && here->launches;
    struct found found = find_stream(named, here, now_ns);
    unsigned percent = percent_of(found.record, now_ns);
    if (!percent) {
        gate_stand_by();
        gate_wait_while_held();
        pass_unthrottled(stream, zero, now_ns);
        return;
    }
    gate_watch();
    bool waited;
    unsigned on_device;
    gate_wait_until_known(found.record, launch->key);
    uint64_t known = duration_of(launch->key);
    launch->work_ns = known < AHEAD_MOST_NS ? known : AHEAD_MOST_NS;
    int64_t balance =
        gate_wait(found.record, found.meter_id, launch->work_ns, close_others, &waited);
    if (balance < -(int64_t)AHEAD_MOST_NS) { /* a long queue, if no launch waits */
        share_charge_later((unsigned)found.record->device, -(int64_t)launch->work_ns);
        launch->work_ns = 0;
    }
    if (!meters_is_same(found.record, found.meter_id) && !capture_records(stream, zero))
        find_again(&found, named, here);
    if (!found.record)
        return;
    here->looked_ns = clock_now_ns();
    if (waited)
        found.busy = gate_poll(found.record, &on_device) > 0;
    here->waits = found.alone && !found.busy;
    launch->device = (unsigned)found.record->device;
    /* This is a sample, too. */
    if (midst || spot_check_distrusts(launch->device))
        own->until_sample = 2 * next_sample(own, launch->device);
    here->quantum_ns = budget_quantum_ns(balance, percent,
        share_active((unsigned)found.record->device), here->waits, here->quantum_ns);
    here->due_ns = next_due_ns(own, here->quantum_ns);
    here->news = news;
    if (!found.busy)
        record_begin(&found, waited);
    launch->meter = found.record;
    launch->meter_id = found.meter_id;
    launch->started_ns = found.busy ? 0 : found.recorded_ns;
    launch->stream = named;
    launch->called_ns = clock_now_ns();
    if (here->round.awaited_ns || !here->round.began_ns || waited)
        thread_round_begins(here, launch->called_ns, false);
    here->round.quiet = false;
    here->round.before_ns -= (int64_t)launch->work_ns;
    show(launch, here);
}

/* The thread launched on many other streams meanwhile, or the stream may capture by now. */
static bool admit_by_estimate_again(
    struct pace_launch *launch, CUstream stream, struct thread_stream *here, uint64_t work_ns)
{
    if (capture_records(stream, STREAM_ZERO_LEGACY))
        return false;
    bool other = false;
    LOCKED(meters_lock) {
        const struct meter_record *record = thread_meter(stream, here);
        uint64_t open = record && record->meter.started && policy_percent((unsigned)record->device)
                            ? record->meter.open.work_ns
                            : BUDGET_QUANTUM_NS;
        uint32_t due = next_due_ns(thread_mine, BUDGET_QUANTUM_NS);
        here->due_ns = open < due ? due - (uint32_t)open : 0;
        here->looked_ns = record ? meter_recorded_ns(&record->meter) : 0;
        other = record && record->meter.open.other;
    }
    /* An event behind it could not tell its time from that of what it may wait for. */
    if (other && here->round.awaited_ns && is_quiet(here, clock_now_ns()))
        return false;
    return admit_by_estimate(launch, here, work_ns);
}

static bool passes_by_estimate(
    struct pace_launch *launch, CUstream stream, enum stream_zero zero, uint64_t work_ns)
{
    if (!work_ns || work_ns >= BUDGET_QUANTUM_NS || !thread_mine)
        return false;
    CUstream named = thread_named(stream, zero);
    struct thread_stream *here = thread_stream(thread_mine, named);
    if (thread_is_current(here, named))
        return admit_by_estimate(launch, here, work_ns);
    return admit_by_estimate_again(launch, named, here, work_ns);
}

void pace_begin(struct pace_launch *launch, CUstream stream, enum stream_zero zero, uint64_t key)
{
    HALT_GUARD();
    pace_free_launches = 0;
    *launch = (struct pace_launch){.key = key};
    fork_enter(container_reset);
    if (load_relaxed(&policy_limited) &&
        passes_by_estimate(launch, stream, zero, duration_settled(key)))
        return;
    int errno_kept = errno;
    uint64_t now = clock_now_ns();
    channels_look_after();
    if (policy_look(now)) {
        begin_slow(launch, stream, zero, now);
    } else {
        gate_stand_by();
        pass_unthrottled(stream, zero, now);
    }
    errno = errno_kept;
}

/* A launch that failed takes no time. */
static void take_back(const struct pace_launch *launch)
{
    struct thread_stream *here = launch->by_estimate;
    if (!here->launches || here->work_ns < launch->work_ns)
        return;
    store_relaxed(&here->launches, here->launches - 1);
    store_relaxed(&here->work_ns, here->work_ns - (uint32_t)launch->work_ns);
    here->key = 0; /* the former key is not known */
}

/* Whether the call waited for its kernel. With CUDA_LAUNCH_BLOCKING=1 all calls that can wait do;
 * else a debugger may make them, and then each time. A single call that took long may have loaded
 * its kernel, or its thread did not run. */
static bool was_awaited(const struct pace_launch *launch, uint64_t now_ns)
{
    bool took_long = now_ns > launch->called_ns + PACE_WAITED_NS,
         blocking = load_relaxed(&launches_block);
    if (launch->awaited || (took_long && blocking))
        return true;
    if (!blocking && !launch->work_ns)
        return false;
    bool over = (took_long || blocking) && !capture_records(launch->stream, STREAM_ZERO_LEGACY) &&
                !events_stream_works(launch->stream);
    bool again = thread_mine && thread_mine->found_over;
    if (thread_mine)
        thread_mine->found_over = over;
    return over && (blocking || again);
}

/* Notes the launch on its meter. False if the meter is gone. */
static bool note_launch(const struct pace_launch *launch, uint64_t now_ns)
{
    struct meter_record *record = launch->meter;
    LOCKED_TO_END(meters_lock);
    bool same = meters_is_same(record, launch->meter_id);
    if (same) {
        meter_note(&record->meter, 1, launch->work_ns, launch->key, now_ns);
        record->opener = meters_thread();
    }
    return same;
}

/* Records an event behind the launch: the driver's call returned at `now_ns`. */
static void record_launch(const struct pace_launch *launch, uint64_t now_ns)
{
    bool idle = launch->started_ns != 0;
    bool awaited = was_awaited(launch, now_ns);
    uint64_t began_ns = awaited ? launch->called_ns : now_ns;
    struct meter_run run = {.gap_ns = idle ? began_ns - launch->started_ns : 0,
        .continuous = !idle,
        .measured = true,
        .launched_ns = idle && !awaited ? now_ns : 0};
    if (note_launch(launch, now_ns))
        events_record(launch->meter, launch->meter_id, run);
}

void pace_end_slow(struct pace_launch *launch, bool launched)
{
    HALT_GUARD();
    if (launch->by_estimate && !launched)
        take_back(launch);
    if (!launch->meter)
        return;
    int errno_kept = errno;
    uint64_t now = clock_now_ns();
    govern_note_work(launch->device, now);
    if (launch->shown)
        hide(launch);
    if (!launched)
        share_charge_later(launch->device, -(int64_t)launch->work_ns);
    else
        record_launch(launch, now);
    gate_watch();
    govern_rouse();
    /* Whatever else was looked at: the first launch of a round must not be the only sample. */
    if (thread_mine && thread_mine->until_sample <= 0)
        thread_mine->until_sample = next_sample(thread_mine, launch->device);
    errno = errno_kept;
}

static void record_own(CUstream stream)
{
    if (thread_mine && load_relaxed(&policy_limited))
        (void)thread_record(thread_stream(thread_mine, stream), stream, false);
}

void pace_note_copy_slow(CUstream stream, enum stream_zero zero)
{
    HALT_GUARD();
    CUstream named = thread_named(stream, zero);
    struct thread_stream *here = thread_mine ? thread_stream(thread_mine, named) : NULL;
    if (here && here->stream == named)
        here->copied = true;
}

void pace_note_other_slow(CUstream stream, enum stream_zero zero)
{
    fork_enter(container_reset);
    HALT_GUARD();
    struct pace_thread *own = thread_own();
    if (!own || !load_relaxed(&policy_limited) || capture_records(stream, zero))
        return;
    CUstream named = thread_named(stream, zero);
    struct thread_stream *here = thread_stream(own, named);
    if (here->launches)
        (void)thread_record(here, named, false);
    LOCKED_TO_END(meters_lock);
    struct meter_record *record = thread_meter(named, here);
    if (record)
        events_note_other(record);
    here->round.other = true;
    /* By this the stream may become part of a capture: the next launch asks. */
    store_relaxed(&here->meter, (struct meter_record *)NULL);
}

/* ---- what else happens to streams ---- */

void pace_note_context_waits(CUcontext context, CUcontext home)
{
    if (!load_relaxed(&policy_limited))
        return;
    fork_enter(container_reset);
    events_context_waits(context);
    if (home != context)
        events_context_waits(home);
}

/* Moves what was admitted by estimate on the stream to its meter, for the last time or before it
 * gets another id. */
static void gather_on(CUstream stream)
{
    LOCKED_TO_END(meters_lock);
    thread_gather_on(stream);
}

void pace_capture_begins(CUstream stream, enum stream_zero zero)
{
    if (!meters_are_used())
        return;
    fork_enter(container_reset);
    CUstream named = thread_named(stream, zero);
    record_own(named);
    record_own(CU_STREAM_LEGACY);
    gather_on(named);
    leave_capture_begins(named);
}

/* False if the current context is the one that was last noted. */
static bool note_current(void)
{
    CUcontext current = NULL;
    bool told = cuda.cuCtxGetCurrent(&current) == CUDA_SUCCESS;
    if (told && thread_mine && thread_mine->context == current)
        return false;
    if (thread_mine)
        thread_mine->context = current;
    return true;
}

CUresult pace_context_changed(CUresult result)
{
    thread.noted.record = NULL;
    thread.noted_ns = 0;
    if (!load_relaxed(&policy_limited) && !thread_mine)
        return result;
    fork_enter(container_reset);
    if (note_current()) {
        pace_free_launches = 0;
        if (thread_mine)
            thread_flush_all(thread_mine);
    }
    return result;
}

void pace_stream_leaves(CUstream stream)
{
    if (!meters_are_used())
        return;
    fork_enter(container_reset);
    gather_on(stream);
    if (load_relaxed(&policy_limited))
        leave_close(stream);
    leave_stream(stream);
}

void pace_wait_while_held(void)
{
    fork_enter(container_reset);
    gate_wait_while_held();
}

void pace_context_ends(void)
{
    fork_enter(container_reset);
    channels_hold_open();
}

void pace_context_ended(void)
{
    channels_let_close();
}

void pace_context_leaves(CUcontext context)
{
    pace_free_launches = 0;
    fork_enter(container_reset);
    if (meters_are_used())
        leave_context(context);
}

void pace_reset(void)
{
    pace_free_launches = 0;
    memset(&thread, 0, sizeof(thread));
    thread_reset();
    gate_reset();
    share_reset();
    govern_reset();
    tenants_reset();
    policy_reset();
    gang_reset();
    durations_reset();
    events_reset();
    meters_reset();
}
