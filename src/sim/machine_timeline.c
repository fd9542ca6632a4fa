/* SPDX-License-Identifier: Apache-2.0 */
/*
 * The compute timeline of each device: one queue, first come, first served, advanced by whoever
 * looks; what has run is added to NVML's windows of 200 ms and to the slot that it ran for.
 */
#include "sim/machine.h"

#include "sim/machine_layout.h"

#include <time.h>

/* Work of another that is still to run this long is reason to look whether that other lives. */
#define WAIT_SUSPECT_NS 1000000ull

uint64_t sim_clock_ns(void)
{
    struct timespec now;
    clock_gettime(CLOCK_MONOTONIC, &now);
    return (uint64_t)now.tv_sec * 1000000000ull + (uint64_t)now.tv_nsec;
}

static struct sim_segment *segment_at(struct sim_timeline *timeline, uint32_t count)
{
    return &timeline->segments[count % SIM_SEGMENTS_MAX];
}

/* Adds [start, end) to the windows; older than the windows kept is dropped. */
static void account_windows(
    struct sim_timeline *timeline, int32_t pid, uint64_t start_ns, uint64_t end_ns)
{
    uint64_t last = (end_ns - 1) / SIM_SAMPLE_NS;
    uint64_t first = start_ns / SIM_SAMPLE_NS;
    if (last - first >= SIM_WINDOWS_MAX)
        first = last - SIM_WINDOWS_MAX + 1;
    for (uint64_t number = first; number <= last; number++) {
        struct sim_window *window = &timeline->windows[number % SIM_WINDOWS_MAX];
        if (window->number != number)
            *window = (struct sim_window){.number = number};
        uint64_t from = number * SIM_SAMPLE_NS;
        uint64_t to = from + SIM_SAMPLE_NS;
        window->busy_ns += (end_ns < to ? end_ns : to) - (start_ns > from ? start_ns : from);
        window->last_pid = pid;
    }
}

/* Accounts what ran until now and drops what is done. */
static void advance_locked(uint32_t device, uint64_t now_ns)
{
    struct sim_timeline *timeline = &sim_machine->timelines[device];
    while (timeline->first != timeline->end) {
        const struct sim_segment *segment = segment_at(timeline, timeline->first);
        uint64_t start =
            segment->start_ns > timeline->accounted_ns ? segment->start_ns : timeline->accounted_ns;
        uint64_t end = segment->end_ns < now_ns ? segment->end_ns : now_ns;
        if (end > start) {
            struct sim_slot *slot = &sim_machine->slots[segment->slot];
            account_windows(timeline, segment->pid, start, end);
            if (slot->live && slot->generation == segment->generation)
                slot->busy_ns[device] += end - start;
            timeline->accounted_ns = end;
        }
        if (segment->end_ns > now_ns)
            break;
        timeline->first++;
    }
    if (now_ns > timeline->accounted_ns)
        timeline->accounted_ns = now_ns;
}

static uint64_t add_saturating(uint64_t a, uint64_t b)
{
    return b > UINT64_MAX - a ? UINT64_MAX : a + b;
}

/* Cuts the slot's work short and lets what waited behind it move up. */
static void drop_slot(struct sim_timeline *timeline, uint32_t slot, uint64_t now_ns)
{
    uint64_t queue_end_ns = now_ns;
    for (uint32_t i = timeline->first; i != timeline->end; i++) {
        struct sim_segment *segment = segment_at(timeline, i);
        if (segment->slot == slot) {
            if (segment->start_ns > now_ns)
                segment->start_ns = now_ns;
            segment->end_ns = now_ns;
            segment->duration_ns = segment->end_ns - segment->start_ns;
            continue;
        }
        if (segment->start_ns > now_ns) {
            segment->start_ns = queue_end_ns;
            segment->end_ns = add_saturating(queue_end_ns, segment->duration_ns);
        }
        if (segment->end_ns > queue_end_ns)
            queue_end_ns = segment->end_ns;
    }
    timeline->queue_end_ns = queue_end_ns;
}

void sim_timeline_drop_slot_locked(uint32_t slot)
{
    uint64_t now = sim_clock_ns();
    for (uint32_t device = 0; device < sim_machine->device_count; device++) {
        advance_locked(device, now);
        drop_slot(&sim_machine->timelines[device], slot, now);
    }
}

static void append_locked(struct sim_timeline *timeline, const struct sim_segment *work)
{
    if (timeline->first != timeline->end) {
        struct sim_segment *last = segment_at(timeline, timeline->end - 1);
        bool same = last->slot == work->slot && last->generation == work->generation;
        bool full = timeline->end - timeline->first == SIM_SEGMENTS_MAX;
        /* A full queue lengthens its last entry, whoever's it is: the device's busy time stays
         * right. */
        if ((same && last->end_ns == work->start_ns) || full) {
            last->end_ns = work->end_ns;
            last->duration_ns = add_saturating(last->duration_ns, work->duration_ns);
            return;
        }
    }
    *segment_at(timeline, timeline->end) = *work;
    timeline->end++;
}

uint64_t sim_work_submit(int fd, unsigned index, uint64_t not_before_ns, uint64_t duration_ns)
{
    struct sim_timeline *timeline = &sim_machine->timelines[index];
    sim_lock();
    uint64_t now = sim_clock_ns();
    uint64_t earliest = not_before_ns > now ? not_before_ns : now;
    uint32_t slot = sim_slot_of_locked(fd);
    advance_locked(index, now);
    if (timeline->queue_end_ns > now + WAIT_SUSPECT_NS && timeline->first != timeline->end &&
        segment_at(timeline, timeline->end - 1)->slot != slot)
        sim_reap_locked();

    uint64_t start = earliest > timeline->queue_end_ns ? earliest : timeline->queue_end_ns;
    uint64_t end = add_saturating(start, duration_ns);
    if (slot != SIM_NONE && duration_ns > 0) {
        struct sim_segment work = {.start_ns = start,
            .end_ns = end,
            .duration_ns = duration_ns,
            .slot = slot,
            .generation = sim_machine->slots[slot].generation,
            .pid = sim_machine->slots[slot].pid};
        append_locked(timeline, &work);
        timeline->queue_end_ns = end;
    }
    sim_unlock();
    return end;
}

static unsigned window_percent(const struct sim_window *window)
{
    return (unsigned)((window->busy_ns * 100 + SIM_SAMPLE_NS / 2) / SIM_SAMPLE_NS);
}

unsigned sim_device_utilization(unsigned index)
{
    struct sim_timeline *timeline = &sim_machine->timelines[index];
    sim_lock();
    sim_reap_locked();
    uint64_t now = sim_clock_ns();
    advance_locked(index, now);
    uint64_t number = now / SIM_SAMPLE_NS - 1;
    const struct sim_window *window = &timeline->windows[number % SIM_WINDOWS_MAX];
    unsigned percent = window->number == number ? window_percent(window) : 0;
    sim_unlock();
    return percent > 100 ? 100 : percent;
}

unsigned sim_device_samples(
    unsigned index, uint64_t since_ns, struct sim_sample ret_samples[SIM_SAMPLES_MAX])
{
    struct sim_timeline *timeline = &sim_machine->timelines[index];
    unsigned count = 0;
    sim_lock();
    sim_reap_locked();
    uint64_t now = sim_clock_ns();
    advance_locked(index, now);
    uint64_t current = now / SIM_SAMPLE_NS;
    uint64_t number = current > SIM_SAMPLES_MAX ? current - SIM_SAMPLES_MAX : 0;
    for (; number < current; number++) {
        const struct sim_window *window = &timeline->windows[number % SIM_WINDOWS_MAX];
        uint64_t end = (number + 1) * SIM_SAMPLE_NS;
        if (window->number != number || window->busy_ns == 0 || end <= since_ns)
            continue;
        unsigned percent = window_percent(window);
        ret_samples[count++] = (struct sim_sample){
            .end_ns = end, .pid = window->last_pid, .busy_percent = percent > 100 ? 100 : percent};
    }
    sim_unlock();
    return count;
}
