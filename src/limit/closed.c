/* SPDX-License-Identifier: Apache-2.0 */
/* A ring of closures. */
#include "limit/closed.h"

#include <stdbool.h>
#include <stddef.h>
#include <string.h>

void closed_reset(struct closed_times *times)
{
    memset(times, 0, sizeof(*times));
}

/* The last closure, where it goes on still. */
static uint64_t *running_end(struct closed_times *times) REQUIRES(times->lock)
{
    uint64_t *end = &times->to_ns[(times->count - 1) % CLOSED_KEPT];
    return times->count && !*end ? end : NULL;
}

void closed_begin(struct closed_times *times, uint64_t at_ns)
{
    lock_take(&times->lock);
    if (!running_end(times)) {
        times->from_ns[times->count % CLOSED_KEPT] = at_ns;
        times->to_ns[times->count % CLOSED_KEPT] = 0;
        times->count++;
        store_relaxed(&times->running, true);
    }
    lock_release(&times->lock);
}

void closed_end(struct closed_times *times, uint64_t at_ns)
{
    lock_take(&times->lock);
    uint64_t *end = running_end(times);
    if (end)
        *end = at_ns ? at_ns : 1;
    store_relaxed(&times->running, false);
    lock_release(&times->lock);
}

uint64_t closed_between(struct closed_times *times, uint64_t from_ns, uint64_t to_ns)
{
    uint64_t closed = 0;
    if (!times)
        return 0;
    lock_take(&times->lock);
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
    lock_release(&times->lock);
    return closed;
}
