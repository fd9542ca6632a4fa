/* SPDX-License-Identifier: Apache-2.0 */
/* NVML's windows of 200 ms: how long a device's compute engine was busy, and the last process on
 * it. */
#include "sim/machine/machine.h"

#include "sim/machine/machine_layout.h"

/* Older than the windows kept is dropped. */
void sim_windows_add(struct sim_window *windows, int32_t pid, uint64_t start_ns, uint64_t end_ns)
{
    uint64_t last = (end_ns - 1) / SIM_SAMPLE_NS;
    uint64_t first = start_ns / SIM_SAMPLE_NS;
    if (last - first >= SIM_WINDOWS_MAX)
        first = last - SIM_WINDOWS_MAX + 1;
    for (uint64_t number = first; number <= last; number++) {
        struct sim_window *window = &windows[number % SIM_WINDOWS_MAX];
        if (window->number != number)
            *window = (struct sim_window){.number = number};
        uint64_t from = number * SIM_SAMPLE_NS;
        uint64_t to = from + SIM_SAMPLE_NS;
        window->busy_ns += (end_ns < to ? end_ns : to) - (start_ns > from ? start_ns : from);
        window->last_pid = pid;
    }
}

static unsigned window_percent(const struct sim_window *window)
{
    uint64_t percent = (window->busy_ns * 100 + SIM_SAMPLE_NS / 2) / SIM_SAMPLE_NS;
    return percent > 100 ? 100 : (unsigned)percent;
}

unsigned sim_device_utilization(unsigned index)
{
    const struct sim_window *windows = sim_machine->timeline.engines[index].windows;
    sim_lock();
    sim_reap_locked();
    uint64_t number = sim_timeline_advance_locked() / SIM_SAMPLE_NS - 1;
    const struct sim_window *window = &windows[number % SIM_WINDOWS_MAX];
    unsigned percent = window->number == number ? window_percent(window) : 0;
    sim_unlock();
    return percent;
}

unsigned sim_device_samples(unsigned index, uint64_t since_ns, bool idle_too,
    struct sim_sample ret_samples[SIM_SAMPLES_MAX])
{
    const struct sim_window *windows = sim_machine->timeline.engines[index].windows;
    unsigned count = 0;
    sim_lock();
    sim_reap_locked();
    uint64_t current = sim_timeline_advance_locked() / SIM_SAMPLE_NS;
    uint64_t number = current > SIM_SAMPLES_MAX ? current - SIM_SAMPLES_MAX : 0;
    for (; number < current; number++) {
        const struct sim_window *window = &windows[number % SIM_WINDOWS_MAX];
        uint64_t end = (number + 1) * SIM_SAMPLE_NS;
        bool busy = window->number == number && window->busy_ns > 0;
        if (end <= since_ns)
            continue;
        if (busy)
            ret_samples[count++] = (struct sim_sample){
                .end_ns = end, .pid = window->last_pid, .busy_percent = window_percent(window)};
        else if (idle_too)
            ret_samples[count++] = (struct sim_sample){.end_ns = end};
    }
    sim_unlock();
    return count;
}
