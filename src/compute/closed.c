/* SPDX-License-Identifier: Apache-2.0 */
/* A ring of closures. */
#include "compute/closed.h"

#include "compute/budget.h"

#include <stdbool.h>
#include <stddef.h>
#include <string.h>

void closed_reset(struct closed_times *times)
{
    memset(times, 0, sizeof(*times));
}

/* The end of the last closure, if it is not over. */
static uint64_t *running_end(struct closed_times *times) REQUIRES(times->lock)
{
    uint64_t *end = &times->to_ns[(times->count - 1) % CLOSED_KEPT];
    return times->count && !*end ? end : NULL;
}

void closed_begin(struct closed_times *times, uint64_t at_ns)
{
    LOCKED_TO_END(times->lock);
    if (!running_end(times)) {
        times->from_ns[times->count % CLOSED_KEPT] = at_ns;
        times->to_ns[times->count % CLOSED_KEPT] = 0;
        times->count++;
        store_relaxed(&times->running, true);
    }
}

void closed_end(struct closed_times *times, uint64_t at_ns)
{
    LOCKED_TO_END(times->lock);
    uint64_t *end = running_end(times);
    if (end)
        *end = at_ns ? at_ns : 1;
    store_relaxed(&times->running, false);
}

uint64_t closed_between(struct closed_times *times, uint64_t from_ns, uint64_t to_ns)
{
    uint64_t closed = 0;
    if (!times)
        return 0;
    LOCKED_TO_END(times->lock);
    unsigned kept = times->count < CLOSED_KEPT ? times->count : CLOSED_KEPT;
    for (unsigned i = 1; i <= kept; i++) {
        unsigned at = (times->count - i) % CLOSED_KEPT;
        uint64_t begin = times->from_ns[at], end = times->to_ns[at] ? times->to_ns[at] : to_ns;
        if (end <= from_ns)
            break;
        begin = begin > from_ns ? begin : from_ns;
        end = end < to_ns ? end : to_ns;
        closed += end > begin ? end - begin : 0;
    }
    return closed;
}

struct span {
    uint64_t from_ns, to_ns;
};

/* The first interval inside `within` in which the gate was open. */
static struct span first_open(struct closed_times *times, struct span within)
{
    LOCKED_TO_END(times->lock);
    unsigned kept = times->count < CLOSED_KEPT ? times->count : CLOSED_KEPT;
    unsigned i = 0;
    /* Back to the first closure that was over before. */
    for (; i < kept; i++) {
        uint64_t end = times->to_ns[(times->count - i - 1) % CLOSED_KEPT];
        if (end && end <= within.from_ns)
            break;
    }
    for (; i; i--) {
        unsigned at = (times->count - i) % CLOSED_KEPT;
        uint64_t begin = times->from_ns[at], end = times->to_ns[at];
        if (begin > within.from_ns) {
            within.to_ns = begin < within.to_ns ? begin : within.to_ns;
            break;
        }
        within.from_ns = end && end < within.to_ns ? end : within.to_ns;
    }
    return within;
}

uint64_t closed_occupy(struct vgpu_compute *words, struct closed_times *times, uint64_t from_ns,
    uint64_t to_ns, uint64_t busy_ns)
{
    uint64_t closed = closed_between(times, from_ns, to_ns), left = busy_ns, taken = 0;
    if (!closed || closed >= to_ns - from_ns)
        return budget_occupy(words, from_ns, to_ns, busy_ns);
    uint64_t open = to_ns - from_ns - closed;
    for (struct span span = {from_ns, to_ns}; left && span.from_ns < to_ns;) {
        span = first_open(times, (struct span){span.from_ns, to_ns});
        uint64_t length = span.to_ns - span.from_ns;
        /* Evenly; the last part takes what rounding left. */
        uint64_t part = (uint64_t)((__uint128_t)busy_ns * length / open);
        if (span.to_ns == to_ns || part > left)
            part = left;
        taken += budget_occupy(words, span.from_ns, span.to_ns, part);
        left -= part;
        span.from_ns = span.to_ns;
    }
    return taken;
}
