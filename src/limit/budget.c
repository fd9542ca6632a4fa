/* SPDX-License-Identifier: Apache-2.0 */
/* The budget of a container on a device. */
#include "limit/budget.h"

#include "base/atomic.h"

/* Sooner than this after the last grant nothing is granted: most looks write nothing. */
#define GRANT_STEP_NS 50000ull
/* Nobody looked for so long: what lies before is nobody's. */
#define GRANT_MOST_NS 1000000000ull

#define SPAN_FILL_MASK 0xffffu

int64_t budget_balance(const struct vgpu_compute *words)
{
    return (int64_t)(load_relaxed(&words->granted_ns) - load_relaxed(&words->charged_ns));
}

static int64_t burst_ns(unsigned percent)
{
    return (int64_t)(BUDGET_BURST_NS / 100 * percent);
}

int64_t budget_refill(struct vgpu_compute *words, unsigned percent, uint64_t now_ns)
{
    uint64_t then = load_relaxed(&words->refilled_ns);
    int64_t balance = budget_balance(words);
    if (now_ns >= then && now_ns - then < GRANT_STEP_NS)
        return balance;
    /* Who exchanges the time is the one who grants. */
    if (!swap_seq_cst(&words->refilled_ns, then, now_ns))
        return balance;
    uint64_t passed = then && now_ns > then ? now_ns - then : 0;
    if (passed > GRANT_MOST_NS)
        passed = GRANT_MOST_NS;
    int64_t target = balance + (int64_t)(passed * percent / 100);
    /* Who is new need not wait for his first launch. */
    if (!then && !balance)
        target = burst_ns(percent) / 4;
    if (target > burst_ns(percent))
        target = burst_ns(percent);
    if (target < -BUDGET_DEBT_NS)
        target = -BUDGET_DEBT_NS;
    (void)add_seq_cst(&words->granted_ns, (uint64_t)(target - balance));
    return target;
}

void budget_charge(struct vgpu_compute *words, int64_t gpu_ns)
{
    if (gpu_ns)
        (void)add_seq_cst(&words->charged_ns, (uint64_t)gpu_ns);
}

void budget_share_refill(
    struct budget_share *share, unsigned percent, unsigned active, uint64_t now_ns)
{
    const int64_t most = burst_ns(percent) / 2;
    uint64_t then = share->refilled_ns;
    uint64_t passed = then && now_ns > then ? now_ns - then : 0;
    if (passed > GRANT_MOST_NS)
        passed = GRANT_MOST_NS;
    share->refilled_ns = now_ns;
    share->balance_ns += (int64_t)(passed * percent / 100 / (active ? active : 1));
    if (share->balance_ns > most)
        share->balance_ns = most;
    if (share->balance_ns < -most)
        share->balance_ns = -most;
}

bool budget_admits(int64_t balance_ns, const struct budget_share *share, unsigned active)
{
    if (active < 2)
        return balance_ns > 0;
    return balance_ns > (share->balance_ns > 0 ? 0 : BUDGET_SURPLUS_NS);
}

uint64_t budget_wait_ns(int64_t balance_ns, unsigned percent)
{
    if (balance_ns > 0 || !budget_is_limited(percent))
        return 0;
    uint64_t missing = (uint64_t)(BUDGET_OPEN_NS - balance_ns);
    return missing > UINT64_MAX / 100 ? UINT64_MAX : missing * 100 / percent;
}

/* Fills the span up to its length; returns what went in. */
static uint64_t fill_span(struct vgpu_compute *words, uint64_t span, uint64_t busy_ns)
{
    uint32_t *word = &words->spans[span % VGPU_COMPUTE_SPANS];
    uint16_t number = (uint16_t)(span / VGPU_COMPUTE_SPANS);
    for (;;) {
        uint32_t held = load_relaxed(word);
        int16_t ahead = (int16_t)((uint16_t)(held >> 16) - number);
        /* The word serves a later span by now; a number far ahead is one of long ago. */
        if (ahead > 0 && ahead <= 2)
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
    const uint64_t kept = VGPU_COMPUTE_SPANS / 2 * (uint64_t)VGPU_COMPUTE_SPAN_NS;
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
