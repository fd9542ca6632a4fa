/* SPDX-License-Identifier: Apache-2.0 */
/* The gate where launches wait for their container's turn, and the governor's part in it. */
#include "hook/pace_gate.h"

#include "base/atomic.h"
#include "base/clock.h"
#include "base/lock.h"
#include "hook/hook.h"
#include "hook/pace.h"
#include "hook/pace_marks.h"
#include "limit/budget.h"
#include "limit/governor.h"
#include "region/account.h"

#include <stdlib.h>
#include <string.h>
#include <unistd.h>

/* The longest sleep at the gate: limits may change meanwhile, others may give back. */
#define WAIT_MAX_NS 20000000ull
/* While work of ours is on its way: what was thought too much of it is given back. */
#define WAIT_BUSY_NS 5000000ull
#define GOVERNOR_LOOK_NS 10000000ull
/* Who asked for GPU time within this counts as working. */
#define ACTIVE_NS 50000000ull
/* Launches of unknown duration that may be on their way on a stream, and how long one waits for
 * what they turn out to take: some kernel may be waiting for the very launch that waits here. */
#define UNKNOWN_MAX 4
#define UNKNOWN_WAIT_NS 100000000ull
/* Where nothing was reached for so long, what runs may wait for a launch that waits at the gate. */
#define STALLED_NS 10000000000ull

bool pace_limited;

static struct {
    uint64_t looked_ns;
    uint64_t harvested_ns;
    unsigned char percent[VGPU_REGION_DEVICES];
    int64_t uncharged_ns[VGPU_REGION_DEVICES]; /* let go, and not taken from the budget yet */
    unsigned active[VGPU_REGION_DEVICES];      /* processes that ask for GPU time */
    /* Touched only within account_visit_compute, which one thread at a time is in. */
    struct budget_share shares[VGPU_REGION_DEVICES];
    bool over; /* the process ends */
    bool used; /* some launch was under a limit */
    int pid;   /* whose end is watched */
} gate;

/* ---- limits ---- */

static void look_again(uint64_t now_ns)
{
    struct account_orders orders;
    store_relaxed(&gate.looked_ns, now_ns);
    bool limited = account_orders(&orders) && !load_relaxed(&gate.over);
    for (unsigned d = 0; d < VGPU_REGION_DEVICES; d++) {
        store_relaxed(&gate.percent[d], orders.percent[d]);
        if (orders.percent[d])
            store_relaxed(&gate.active[d], account_asking(d, now_ns - ACTIVE_NS));
    }
    store_relaxed(&pace_limited, limited);
}

bool gate_look(uint64_t now_ns)
{
    if (now_ns - load_relaxed(&gate.looked_ns) >= GATE_LOOK_NS)
        look_again(now_ns);
    return load_relaxed(&pace_limited);
}

unsigned gate_percent(unsigned device)
{
    return load_relaxed(&gate.percent[device]);
}

/* ---- the end of the process ---- */

/* Called before the driver's own handler, which was registered when it was initialised. */
static void process_ends(void)
{
    /* A forked child that used nothing of this has its locks from its parent as they were. */
    if (load_relaxed(&gate.pid) != (int)getpid())
        return;
    store_relaxed(&gate.over, true);
    store_relaxed(&pace_limited, false);
    governor_stop();
    lock_take(&marks_lock);
    lock_release(&marks_lock);
}

static uint64_t govern(void)
{
    if (load_relaxed(&gate.over))
        return GOVERNOR_NOTHING;
    uint64_t since = clock_now_ns() - load_relaxed(&gate.harvested_ns);
    if (since < GOVERNOR_LOOK_NS)
        return 2 * GOVERNOR_LOOK_NS - since;
    lock_take(&marks_lock);
    unsigned outstanding = load_relaxed(&gate.over) ? 0 : marks_harvest_all();
    lock_release(&marks_lock);
    return outstanding ? GOVERNOR_LOOK_NS : GOVERNOR_NOTHING;
}

void gate_watch(void)
{
    if (!load_relaxed(&gate.used)) {
        store_relaxed(&gate.pid, (int)getpid());
        store_relaxed(&gate.used, true);
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
    struct budget_share *share = &gate.shares[admission->device];
    unsigned active = load_relaxed(&gate.active[admission->device]);
    if (own)
        store_relaxed(&own->asked_ns, admission->now_ns);
    budget_charge(words, admission->gone_ns);
    budget_share_refill(share, admission->percent, active, admission->now_ns);
    budget_share_charge(share, admission->percent, admission->gone_ns);
    admission->balance_ns = budget_refill(words, admission->percent, admission->now_ns);
    admission->admitted = budget_admits(
        admission->balance_ns, admission->percent, share, active, (uint64_t)admission->coming_ns);
    if (!admission->admitted)
        return;
    budget_charge(words, admission->coming_ns);
    budget_share_charge(share, admission->percent, admission->coming_ns);
}

unsigned gate_active(int device)
{
    return load_relaxed(&gate.active[device]);
}

void gate_settle(int device, uint64_t busy_ns, uint64_t new_ns, uint64_t work_ns)
{
    budget_share_settle(&gate.shares[device], gate_active(device), busy_ns, new_ns, work_ns);
}

void gate_harvested(uint64_t now_ns)
{
    store_relaxed(&gate.harvested_ns, now_ns);
}

unsigned gate_harvest(const struct lane_record *record, unsigned *ret_on_device)
{
    lock_take(&marks_lock);
    *ret_on_device = marks_harvest(record->device);
    unsigned outstanding = record->lane.count;
    lock_release(&marks_lock);
    gate_harvested(clock_now_ns());
    return outstanding;
}

/* How long until the container may have GPU time; where it has some, until another process may
 * have left some over. */
static uint64_t wait_ns(const struct admission *admission, bool busy)
{
    const uint64_t most = busy ? WAIT_BUSY_NS : WAIT_MAX_NS;
    uint64_t wait = budget_wait_ns(admission->balance_ns, admission->percent);
    if (!wait)
        wait = BUDGET_SURPLUS_NS / 2;
    return wait < most ? wait : most;
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

/* One look at the budget; true where the launch may go. What was not charged there will be later.
 */
static bool ask(struct admission *admission)
{
    unsigned device = admission->device;
    admission->now_ns = clock_now_ns();
    admission->percent = gate_look(admission->now_ns) ? gate_percent(device) : 0;
    admission->gone_ns = exchange_acq_rel(&gate.uncharged_ns[device], (int64_t)0);
    bool asked = account_visit_compute(device, admit, admission);
    if (!asked)
        gate_charge_later(device, admission->gone_ns);
    if (asked && admission->admitted)
        return true;
    if (asked && admission->percent)
        return false;
    gate_charge_later(device, admission->coming_ns);
    return true;
}

int64_t gate_wait(const struct lane_record *record, uint32_t id, uint64_t coming_ns,
    void (*before)(const struct lane_record *, uint32_t), bool *ret_waited)
{
    unsigned device = (unsigned)record->device, outstanding = record->lane.count;
    struct admission admission = {.device = device, .coming_ns = (int64_t)coming_ns};
    struct stall stall = {.since_ns = 0};
    *ret_waited = false;
    gate_charge_later(device, (int64_t)marks_blind_ns(device, clock_now_ns()));
    while (!ask(&admission)) {
        if (!*ret_waited)
            before(record, id);
        *ret_waited = true;
        sleep_ns(wait_ns(&admission, outstanding > 0));
        (void)gate_harvest(record, &outstanding);
        /* What passed here was spent waiting. */
        (void)marks_blind_ns(device, clock_now_ns());
        if (is_stalled(&stall, outstanding)) {
            gate_charge_later(device, admission.coming_ns);
            break;
        }
    }
    return admission.balance_ns;
}

/* True where one should wait; *vain: it took too long. */
static bool too_many_unknown(struct lane_record *record, bool vain)
{
    lock_take(&marks_lock);
    bool many = record->lane.unknown >= UNKNOWN_MAX && !record->stuck;
    if (many && vain)
        record->stuck = true;
    lock_release(&marks_lock);
    return many && !vain;
}

void gate_wait_until_known(struct lane_record *record, uint64_t key)
{
    uint64_t start = clock_now_ns();
    unsigned on_device;
    while (
        !duration_of(key) && too_many_unknown(record, clock_now_ns() - start > UNKNOWN_WAIT_NS)) {
        sleep_ns(UNKNOWN_WAIT_NS / 500);
        (void)gate_harvest(record, &on_device);
    }
}

void gate_charge_later(unsigned device, int64_t gpu_ns)
{
    add_relaxed(&gate.uncharged_ns[device], gpu_ns);
}

bool gate_is_used(void)
{
    return load_relaxed(&gate.used);
}

void gate_reset(void)
{
    memset(&gate, 0, sizeof(gate));
    store_relaxed(&pace_limited, false);
    governor_reset();
}
