/* SPDX-License-Identifier: Apache-2.0 */
/* The budget of a container on a device. */
#include "compute/budget.h"

#include "base/atomic.h"

/* Nanoseconds. Within this time of the last grant nothing is granted: most calls write nothing, and
 * at any limit 0.05 ms is less than any other time here. */
#define GRANT_STEP_NS 50000ull
/* Nanoseconds. The longest time that is granted for: 1,000 s pay back any overdraft and fill any
 * burst at 1 %, and keep the product within 64 bits. */
#define GRANT_MOST_NS 1000000000000ull
/* Nanoseconds. A thread that did not run for this long after it read the clock is late; a clock
 * that is further back began anew. */
#define LATE_MOST_NS 1000000000ull

/* Nanoseconds of the container's GPU time by which estimates are judged: ten times what opens the
 * gate. */
#define JUDGE_NS (10ull * BUDGET_OPEN_NS)

/* Rounds of the ring of buckets. A word up to this far ahead of ours is of the same clock: 64
 * rounds are 4.3 s. */
#define SPAN_AHEAD_MOST 64

/* Of a word: the busy nanoseconds of its bucket; the rest is its round. */
#define SPAN_FILL_MASK 0xffffu

int64_t budget_balance(const struct vgpu_compute *words)
{
    return (int64_t)(load_relaxed(&words->granted_ns) - load_relaxed(&words->charged_ns));
}

static int64_t bounded(int64_t value, int64_t least, int64_t most)
{
    return value < least ? least : value > most ? most : value;
}

/* Another thread or process granted since the time was read: what passed is granted already. A
 * clock that went back further began anew. */
static bool is_late(uint64_t then_ns, uint64_t now_ns)
{
    return now_ns < then_ns && then_ns - now_ns < LATE_MOST_NS;
}

static uint64_t passed_ns(uint64_t then_ns, uint64_t now_ns)
{
    uint64_t passed = then_ns && now_ns > then_ns ? now_ns - then_ns : 0;
    return passed < GRANT_MOST_NS ? passed : GRANT_MOST_NS;
}

int64_t budget_refill(struct vgpu_compute *words, unsigned percent, uint64_t now_ns)
{
    uint64_t then = load_relaxed(&words->refilled_ns);
    int64_t balance = budget_balance(words);
    if (now_ns >= then ? now_ns - then < GRANT_STEP_NS : is_late(then, now_ns))
        return balance;
    /* The thread that exchanges the time is the one that grants. */
    if (!swap_seq_cst(&words->refilled_ns, then, now_ns))
        return balance;
    /* A container that never ran has its burst saved; with a high limit, what is used up within 0.1
     * s. */
    int64_t grant = then ? (int64_t)(passed_ns(then, now_ns) * percent / 100)
                         : budget_burst_ns(percent < 50 ? percent : 100 - percent);
    int64_t target = bounded(balance, -(int64_t)BUDGET_DEBT_NS, budget_burst_ns(percent)) + grant;
    target = bounded(target, -(int64_t)BUDGET_DEBT_NS, budget_burst_ns(percent));
    (void)add_seq_cst(&words->granted_ns, (uint64_t)target - (uint64_t)balance);
    return target;
}

void budget_forfeit(struct vgpu_compute *words)
{
    int64_t balance = budget_balance(words);
    if (balance > 0)
        (void)add_seq_cst(&words->granted_ns, -(uint64_t)balance);
}

void budget_charge(struct vgpu_compute *words, int64_t gpu_ns)
{
    if (gpu_ns)
        (void)add_seq_cst(&words->charged_ns, (uint64_t)gpu_ns);
}

/* A process that is ahead goes on until it is well so, and then waits until it is behind: phases of
 * several launches, because each change between two processes costs the device 0.2 ms. */
static void alternate(struct budget_share *share)
{
    if (share->balance_ns > 0)
        share->waits = false;
    else if (share->balance_ns <= -BUDGET_AHEAD_NS)
        share->waits = true;
}

static void add_part(struct vgpu_compute *words, int64_t gpu_ns)
{
    if (gpu_ns)
        (void)add_seq_cst(&words->parts_ns, (uint64_t)gpu_ns);
}

void budget_share_charge(
    struct budget_share *share, struct vgpu_compute *words, unsigned percent, int64_t gpu_ns)
{
    const int64_t floor = -budget_burst_ns(percent);
    int64_t left = share->balance_ns - gpu_ns;
    if (share->balance_ns <= 0 && left < floor)
        left = share->balance_ns < floor ? share->balance_ns : floor;
    share->balance_ns = left;
    alternate(share);
    add_part(words, gpu_ns);
}

void budget_share_settle(struct budget_share *share, struct vgpu_compute *words, unsigned active,
    const struct budget_done *done)
{
    uint64_t least = active > 1 ? done->busy_ns / active : done->busy_ns;
    uint64_t own = done->work_ns > done->busy_ns ? done->busy_ns : done->work_ns;
    bool believed = active > 1 && share->believes && done->work_ns;
    if (done->work_ns < least && !believed)
        own = done->new_ns > least ? done->new_ns : least;
    int64_t more = (int64_t)own - (int64_t)done->work_ns;
    share->balance_ns -= more;
    add_part(words, more);
}

/* Whether what the processes say that they took adds up to what the container took, recently. */
static void judge(struct budget_share *share, const struct vgpu_compute *words, uint64_t parts_ns)
{
    uint64_t busy = load_relaxed(&words->busy_ns), passed = busy - share->judged_busy_ns;
    int64_t told = (int64_t)(parts_ns - share->judged_parts_ns);
    if (passed < JUDGE_NS)
        return;
    share->believes = told > 0 && (uint64_t)told > passed / 3 * 2;
    share->judged_busy_ns = busy;
    share->judged_parts_ns = parts_ns;
}

void budget_share_refill(
    struct budget_share *share, struct vgpu_compute *words, unsigned percent, unsigned active)
{
    const int64_t most = budget_burst_ns(percent) / 2;
    uint64_t parts = load_relaxed(&words->parts_ns);
    /* Words that were made anew count no more than can be earned at once. */
    int64_t taken = bounded(
        (int64_t)(parts - share->parts_ns), -budget_burst_ns(percent), (int64_t)GRANT_MOST_NS);
    judge(share, words, parts);
    if (share->begun)
        share->balance_ns += taken / (int64_t)(active ? active : 1);
    share->begun = true;
    share->parts_ns = parts;
    /* The process could have had more and did not take it: the others get it. */
    if (share->balance_ns > most && budget_balance(words) > 0)
        add_part(words, share->balance_ns - most);
    share->balance_ns = bounded(share->balance_ns, -(int64_t)BUDGET_DEBT_NS, most);
    alternate(share);
}

bool budget_admits(int64_t balance_ns, unsigned percent, const struct budget_share *share,
    unsigned active, uint64_t coming_ns)
{
    if (active < 2 || !share->waits)
        return balance_ns > 0;
    /* A process that asks, and has time of its own left, takes it before more than this is
     * saved. */
    const int64_t idle = budget_burst_ns(percent) / 4 * 3;
    if (coming_ns > (uint64_t)idle)
        return balance_ns > idle;
    return balance_ns > bounded((int64_t)coming_ns + BUDGET_SURPLUS_NS, 0, idle);
}

uint32_t budget_quantum_ns(
    int64_t balance_ns, unsigned percent, unsigned active, bool idle, uint32_t former_ns)
{
    if (balance_ns <= budget_burst_ns(percent) / 2)
        return BUDGET_QUANTUM_NS;
    int64_t most = balance_ns / 2 / (active ? active : 1), quantum = idle ? 2 * former_ns : 0;
    if (quantum > most)
        quantum = most;
    return (uint32_t)bounded(quantum, BUDGET_QUANTUM_PLENTY_NS, BUDGET_QUANTUM_IDLE_NS);
}

uint64_t budget_wait_ns(int64_t balance_ns, unsigned percent)
{
    return balance_ns > 0 ? 0 : budget_fill_ns(balance_ns, BUDGET_OPEN_NS, percent);
}

int64_t budget_open_streams_ns(unsigned percent)
{
    return bounded(BUDGET_OPEN_STREAMS_NS, 0, budget_burst_ns(percent) / 2);
}

uint64_t budget_fill_ns(int64_t balance_ns, int64_t wanted_ns, unsigned percent)
{
    if (balance_ns >= wanted_ns || !budget_is_limited(percent))
        return 0;
    uint64_t missing = (uint64_t)wanted_ns - (uint64_t)balance_ns;
    return missing > UINT64_MAX / 100 ? UINT64_MAX : missing * 100 / percent;
}

/* Fills the bucket up to its length; returns what went in. */
static uint64_t fill_span(struct vgpu_compute *words, uint64_t span, uint64_t busy_ns)
{
    uint32_t *word = &words->spans[span % VGPU_COMPUTE_SPANS];
    uint16_t number = (uint16_t)(span / VGPU_COMPUTE_SPANS);
    for (;;) {
        uint32_t held = load_relaxed(word);
        int16_t ahead = (int16_t)((uint16_t)(held >> 16) - number);
        /* The word serves a later bucket by now; a number far ahead is one of long ago. */
        if (ahead > 0 && ahead <= SPAN_AHEAD_MOST)
            return busy_ns;
        uint64_t fill = ahead == 0 ? held & SPAN_FILL_MASK : 0;
        uint64_t room = fill < VGPU_COMPUTE_SPAN_NS ? VGPU_COMPUTE_SPAN_NS - fill : 0;
        uint64_t taken = busy_ns < room ? busy_ns : room;
        if (!taken || swap_seq_cst(word, held, (uint32_t)number << 16 | (uint32_t)(fill + taken)))
            return taken;
    }
}

uint64_t budget_occupy(
    struct vgpu_compute *words, uint64_t from_ns, uint64_t to_ns, uint64_t busy_ns)
{
    if (to_ns <= from_ns || !busy_ns)
        return 0;
    uint64_t length = to_ns - from_ns, left = busy_ns < length ? busy_ns : length, taken = 0;
    const uint64_t kept = (VGPU_COMPUTE_SPANS - 1) * (uint64_t)VGPU_COMPUTE_SPAN_NS;
    uint64_t at = from_ns;
    if (length > kept) {
        uint64_t early = (uint64_t)((double)left * (double)(length - kept) / (double)length);
        at = to_ns - kept;
        left -= early;
        length = kept;
        taken = early;
    }
    while (at < to_ns && left) {
        uint64_t number = at / VGPU_COMPUTE_SPAN_NS, end = (number + 1) * VGPU_COMPUTE_SPAN_NS;
        if (end > to_ns)
            end = to_ns;
        /* Evenly over the time; the last part takes what rounding left. */
        uint64_t share = end == to_ns ? left : (uint64_t)((__uint128_t)left * (end - at) / length);
        length -= end - at;
        left -= share;
        taken += fill_span(words, number, share);
        at = end;
    }
    add_relaxed(&words->busy_ns, taken);
    return taken;
}
