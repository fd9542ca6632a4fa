/* SPDX-License-Identifier: Apache-2.0 */
/* Marks of a device's busy time, and what they tell. */
#include "region/region_history.h"

#include "base/atomic.h"

struct mark {
    uint64_t time_ns, busy_ns;
};

static struct mark mark_read(const struct vgpu_history *history, uint64_t number)
{
    unsigned place = (unsigned)(number % VGPU_HISTORY_MARKS);
    struct mark mark = {.time_ns = load_acquire(&history->marks[place].time_ns)};
    mark.busy_ns = load_acquire(&history->marks[place].busy_ns);
    if (load_relaxed(&history->marks[place].time_ns) != mark.time_ns)
        mark.time_ns = 0;
    return mark;
}

/* A mark of a later time than now is from before the machine's last start. */
static bool is_due(struct mark newest, uint64_t now_ns)
{
    return newest.time_ns > now_ns + VGPU_HISTORY_MARK_NS ||
           now_ns >= newest.time_ns + VGPU_HISTORY_MARK_NS;
}

void region_history_note(
    struct vgpu_region *region, unsigned device, uint64_t former_ns, uint64_t now_ns)
{
    struct vgpu_history *history = &region->history[device];
    uint64_t made = load_relaxed(&history->made);
    if (made && !is_due(mark_read(history, made - 1), now_ns))
        return;
    /* The process that raises the number writes the mark. Before, the old one of a minute ago
     * goes: a process that is killed in between must not leave it as the newest. */
    unsigned place = (unsigned)(made % VGPU_HISTORY_MARKS);
    store_seq_cst(&history->marks[place].time_ns, (uint64_t)0);
    if (!swap_seq_cst(&history->made, made, made + 1))
        return;
    store_release(&history->marks[place].busy_ns, former_ns);
    store_release(&history->marks[place].time_ns, now_ns);
}

/* The marks on both sides of a moment. A mark's busy time is of before what made it, and nothing
 * was added later than VGPU_HISTORY_MARK_NS after it, or there would be another: so between two
 * marks it grew evenly, as far as one knows, for that long at most. */
struct around {
    struct mark before; /* time_ns 0: none is known */
    struct mark after;
};

static struct around marks_around(
    const struct vgpu_history *history, uint64_t at_ns, struct mark newest)
{
    struct around around = {.after = newest};
    uint64_t made = load_acquire(&history->made);
    uint64_t count = made < VGPU_HISTORY_MARKS ? made : VGPU_HISTORY_MARKS;
    for (uint64_t i = 1; i <= count; i++) {
        struct mark mark = mark_read(history, made - i);
        if (mark.time_ns > around.after.time_ns + VGPU_HISTORY_MARK_NS)
            break; /* from before the machine's last start, as all older ones */
        /* Being written, or by a process that came late with it. */
        if (!mark.time_ns || mark.time_ns > around.after.time_ns ||
            mark.busy_ns > around.after.busy_ns)
            continue;
        if (mark.time_ns <= at_ns) {
            around.before = mark;
            break;
        }
        around.after = mark;
    }
    return around;
}

static uint64_t busy_at(const struct around *around, uint64_t at_ns)
{
    uint64_t grown = around->after.busy_ns - around->before.busy_ns;
    uint64_t length = around->after.time_ns - around->before.time_ns;
    uint64_t passed = at_ns - around->before.time_ns;
    if (length > VGPU_HISTORY_MARK_NS)
        length = VGPU_HISTORY_MARK_NS;
    if (passed >= length)
        return around->after.busy_ns;
    return around->before.busy_ns + (uint64_t)((__uint128_t)grown * passed / length);
}

bool region_history_share(const struct vgpu_history *history, uint64_t busy_ns, uint64_t now_ns,
    uint64_t span_ns, uint64_t *ret_busy_ns, uint64_t *ret_span_ns)
{
    if (!load_acquire(&history->made))
        return false;
    uint64_t at = now_ns > span_ns ? now_ns - span_ns : 0;
    struct mark newest = {now_ns, busy_ns};
    struct around around = marks_around(history, at, newest);
    uint64_t former = around.after.busy_ns;
    if (around.before.time_ns)
        former = busy_at(&around, at);
    else
        at = around.after.time_ns; /* the oldest mark; now, where there is none to be believed */
    uint64_t span = now_ns - at, busy = newest.busy_ns - former;
    if (!span)
        return false;
    *ret_busy_ns = busy < span ? busy : span;
    *ret_span_ns = span;
    return true;
}
