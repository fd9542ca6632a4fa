/* SPDX-License-Identifier: Apache-2.0 */
/* The simulated GPU runs its processes' queues in turns of 2 ms; the gate follows src/pace/pace.c.
 */
#include "policy_machine.h"

#include "compute/durations.h"

#include <string.h>

#define SLICE_NS 2000000u
#define LAUNCH_NS 3000u /* of the processor, a launch */
#define POLL_NS 20000u  /* who waits for the GPU looks so often */
/* As in src/pace/pace.c. */
#define SAMPLE_LAUNCHES 384u
#define WAIT_MAX_NS 20000000u
#define WAIT_BUSY_NS 5000000u
#define GOVERNOR_LOOK_NS 20000000u
#define ACTIVE_NS 50000000u
#define UNKNOWN_MAX 4
#define UNKNOWN_WAIT_NS 100000000u

static uint64_t machine_clock(const struct machine *machine)
{
    return machine->now_ns + (uint64_t)machine->skew_ns;
}

/* ---- the GPU ---- */

static struct queued *entry_of(struct process *process, uint64_t number)
{
    return &process->queue[number % MACHINE_QUEUE];
}

/* Timing events at the front are reached when they have cost what they cost. */
static bool has_work(struct machine *machine, struct process *process)
{
    for (; process->running < process->tail; process->running++) {
        struct queued *entry = entry_of(process, process->running);
        if (entry->left_ns)
            return true;
        if (entry->event && !entry->reached) {
            entry->reached = true;
            entry->reached_ns = machine_clock(machine);
        }
    }
    return false;
}

static struct process *next_turn(struct machine *machine)
{
    struct process *current = &machine->processes[machine->turn];
    if (machine->slice_left_ns && has_work(machine, current))
        return current;
    for (unsigned i = 1; i <= machine->count; i++) {
        unsigned turn = (machine->turn + i) % machine->count;
        if (!has_work(machine, &machine->processes[turn]))
            continue;
        machine->change_left_ns = turn == machine->turn ? 0 : machine->change_ns;
        machine->turn = turn;
        machine->slice_left_ns = SLICE_NS;
        return &machine->processes[turn];
    }
    return NULL;
}

/* Between two processes' turns nothing runs, and the device is busy. */
static void change_group(struct machine *machine, uint64_t step_ns)
{
    uint64_t step = step_ns < machine->change_left_ns ? step_ns : machine->change_left_ns;
    machine->now_ns += step;
    machine->busy_ns += step;
    machine->change_left_ns -= step;
}

static void run_gpu(struct machine *machine, uint64_t to_ns)
{
    while (machine->now_ns < to_ns) {
        struct process *process = next_turn(machine);
        if (!process) {
            machine->now_ns = to_ns;
            return;
        }
        struct queued *entry = entry_of(process, process->running);
        uint64_t step = to_ns - machine->now_ns;
        if (machine->change_left_ns) {
            change_group(machine, step);
            continue;
        }
        if (step > entry->left_ns)
            step = entry->left_ns;
        if (step > machine->slice_left_ns)
            step = machine->slice_left_ns;
        machine->now_ns += step;
        machine->slice_left_ns -= step;
        if (!entry->uncounted) {
            machine->busy_ns += step;
            process->gpu_ns += step;
        }
        entry->left_ns -= step;
        if (!entry->left_ns && !entry->event) {
            process->kernels--;
            process->done++;
        }
        (void)has_work(machine, process);
    }
}

static struct queued *enqueue(struct process *process, struct queued entry)
{
    *entry_of(process, process->tail) = entry;
    return entry_of(process, process->tail++);
}

/* ---- meter and gate ---- */

static unsigned count_active(const struct machine *machine)
{
    unsigned active = 0;
    for (unsigned i = 0; i < machine->count; i++) {
        uint64_t asked = machine->processes[i].asked_ns;
        active += asked && asked + ACTIVE_NS > machine_clock(machine);
    }
    return active;
}

static void charge(
    struct machine *machine, struct process *process, const struct meter_charge *charge)
{
    uint64_t new = budget_occupy(&machine->words, charge->from_ns, charge->to_ns, charge->busy_ns);
    budget_charge(&machine->words, (int64_t) new - (int64_t)charge->work_ns);
    const struct budget_done done = {charge->busy_ns, new, charge->work_ns};
    budget_share_settle(&process->share, &machine->words, count_active(machine), &done);
}

static unsigned poll(struct machine *machine, struct process *process)
{
    struct meter_charge due;
    process->polled_ns = machine->now_ns;
    (void)has_work(machine, process);
    while (meter_front(&process->meter)) {
        const struct queued *front = meter_front(&process->meter)->handle;
        if (!front->reached)
            break;
        uint64_t at = front->reached_ns;
        (void)meter_pass(&process->meter, at, &due);
        charge(machine, process, &due);
    }
    if (meter_run_on(&process->meter, machine_clock(machine), 1000, &due))
        charge(machine, process, &due);
    if (budget_balance(&machine->words) < machine->least_ns)
        machine->least_ns = budget_balance(&machine->words);
    return process->meter.count;
}

static void record(struct machine *machine, struct process *process, struct meter_run run)
{
    if (meter_is_full(&process->meter))
        return;
    bool alone = run.measured && !run.continuous;
    uint64_t cost = has_work(machine, process) ? METER_EVENT_NS : 0;
    run.shared = count_active(machine) > 1;
    struct queued *entry =
        enqueue(process, (struct queued){.event = true, .uncounted = alone, .left_ns = cost});
    meter_add_event(&process->meter, entry, machine_clock(machine), &run);
    (void)has_work(machine, process);
}

static void flush(struct machine *machine, struct process *process)
{
    (void)machine;
    if (process->launches)
        meter_note(&process->meter, process->launches, process->work_ns, 0, process->first_ns);
    process->uncharged_ns += (int64_t)process->work_ns;
    process->launches = 0;
    process->work_ns = 0;
}

static bool admit(
    struct machine *machine, struct process *process, uint64_t coming_ns, int64_t *ret_balance)
{
    uint64_t now = machine_clock(machine);
    unsigned active = count_active(machine);
    process->asked_ns = now;
    budget_charge(&machine->words, process->uncharged_ns);
    *ret_balance = budget_refill(&machine->words, machine->percent, now);
    budget_share_refill(&process->share, &machine->words, machine->percent, active);
    budget_share_charge(&process->share, &machine->words, machine->percent, process->uncharged_ns);
    process->uncharged_ns = 0;
    if (*ret_balance < machine->least_ns)
        machine->least_ns = *ret_balance;
    if (!budget_admits(*ret_balance, machine->percent, &process->share, active, coming_ns))
        return false;
    budget_charge(&machine->words, (int64_t)coming_ns);
    budget_share_charge(&process->share, &machine->words, machine->percent, (int64_t)coming_ns);
    return true;
}

static unsigned next_sample(struct process *process)
{
    process->until_sample = process->until_sample * 7 + 31;
    return SAMPLE_LAUNCHES / 2 + process->until_sample % SAMPLE_LAUNCHES;
}

/* ---- a process ---- */

static uint64_t duration_now(const struct process *process, uint64_t *ret_key)
{
    bool second = process->load.second_ns && process->sent % 2;
    uint64_t kernel = second ? process->load.second_ns : process->load.kernel_ns;
    *ret_key = duration_key((uintptr_t)process, kernel);
    return kernel;
}

static uint64_t estimate_of(const struct process *process, uint64_t kernel_ns, uint64_t key)
{
    return process->load.estimate > 0 ? (uint64_t)((double)kernel_ns * process->load.estimate)
                                      : duration_of(key);
}

/* What comes to an idle device keeps it busy before it runs. */
static void launch(struct machine *machine, struct process *process, uint64_t kernel_ns)
{
    if (!has_work(machine, process))
        machine->busy_ns += METER_BEGIN_NS;
    (void)enqueue(process, (struct queued){.left_ns = kernel_ns});
    process->kernels++;
    process->sent++;
}

/* The launch is admitted by estimate. */
static bool admit_by_estimate(struct machine *machine, struct process *process, uint64_t work_ns)
{
    if (!work_ns || work_ns >= BUDGET_QUANTUM_NS || process->work_ns + work_ns >= process->due_ns ||
        (process->until_sample && --process->until_sample == 0))
        return false;
    if (!process->launches++)
        process->first_ns = machine_clock(machine);
    process->work_ns += work_ns;
    return true;
}

static void come_to_gate(struct machine *machine, struct process *process)
{
    flush(machine, process);
    process->at_gate = true;
    process->recorded = false;
    process->gate_ns = machine->now_ns;
    bool busy = poll(machine, process) > 0;
    if (!process->meter.open.launches)
        return;
    record(machine, process, (struct meter_run){.continuous = busy});
    process->recorded = true;
    process->recorded_ns = machine_clock(machine);
}

/* Who sleeps is woken late, one time more than another. */
static uint64_t wakes_late(struct machine *machine)
{
    machine->chance = machine->chance * 6364136223846793005u + 1442695040888963407u;
    return machine->late_ns ? (machine->chance >> 33) % machine->late_ns : 0;
}

/* At the gate; true where the launch went. */
static bool pass_gate(struct machine *machine, struct process *process, bool first)
{
    uint64_t key, kernel = duration_now(process, &key), work = estimate_of(process, kernel, key);
    int64_t balance;
    unsigned outstanding = first ? process->meter.count : poll(machine, process);
    uint64_t at_gate_ns = machine->now_ns - process->gate_ns;
    if (process->meter.unknown >= UNKNOWN_MAX && !work && at_gate_ns < UNKNOWN_WAIT_NS) {
        process->wakes_ns = machine->now_ns + UNKNOWN_WAIT_NS / 500;
        return false;
    }
    if (!admit(machine, process, work, &balance)) {
        uint64_t wait = budget_wait_ns(balance, machine->percent);
        wait = wait ? wait : BUDGET_SURPLUS_NS / 2;
        uint64_t most = outstanding ? WAIT_BUSY_NS : WAIT_MAX_NS;
        process->wakes_ns = machine->now_ns + (wait < most ? wait : most) + wakes_late(machine);
        return false;
    }
    process->due_ns = budget_quantum_ns(
        balance, machine->percent, count_active(machine), !outstanding, (uint32_t)process->due_ns);
    if (!outstanding && (!first || !process->recorded)) {
        record(machine, process, (struct meter_run){.continuous = false});
        process->recorded_ns = machine_clock(machine);
        (void)poll(machine, process);
    }
    launch(machine, process, kernel);
    uint64_t now = machine_clock(machine);
    meter_note(&process->meter, 1, work, process->load.estimate > 0 ? 0 : key, now);
    record(machine, process,
        (struct meter_run){.measured = true, .continuous = outstanding > 0, .gap_ns = 0});
    process->delayed_ns += at_gate_ns;
    if (at_gate_ns > process->longest_ns)
        process->longest_ns = at_gate_ns;
    process->at_gate = false;
    process->until_sample = next_sample(process);
    return true;
}

static void end_burst(struct machine *machine, struct process *process)
{
    const struct workload *load = &process->load;
    uint64_t next = process->burst_ns + load->period_ns;
    uint64_t ready = machine->now_ns + load->host_ns;
    if (load->period_ns && ready > next + load->period_ns / 100)
        process->bursts_late++;
    process->waits = false;
    process->sent = 0;
    process->wakes_ns = ready > next ? ready : next;
    process->burst_ns = process->wakes_ns;
}

static void step(struct machine *machine, struct process *process)
{
    const struct workload *load = &process->load;
    uint64_t key, kernel = duration_now(process, &key);
    if (process->at_gate) {
        if (pass_gate(machine, process, false))
            process->wakes_ns = machine->now_ns + LAUNCH_NS;
        return;
    }
    if (load->burst && process->sent >= load->burst) {
        bool over = !process->kernels || (!load->host_ns && !load->period_ns);
        if (over)
            end_burst(machine, process);
        else
            process->wakes_ns = machine->now_ns + POLL_NS;
        return;
    }
    if (process->kernels >= (load->in_flight ? load->in_flight : 1024)) {
        process->wakes_ns = machine->now_ns + POLL_NS;
        return;
    }
    process->wakes_ns = machine->now_ns + LAUNCH_NS;
    if (!budget_is_limited(machine->percent) ||
        admit_by_estimate(machine, process, estimate_of(process, kernel, key))) {
        launch(machine, process, kernel);
        return;
    }
    come_to_gate(machine, process);
    (void)pass_gate(machine, process, true);
}

static void govern(struct machine *machine, struct process *process)
{
    if (machine->now_ns - process->polled_ns >= GOVERNOR_LOOK_NS)
        (void)poll(machine, process);
    process->governs_ns = machine->now_ns + GOVERNOR_LOOK_NS;
}

/* ---- the machine ---- */

void machine_begin(struct machine *machine, unsigned percent)
{
    memset(machine, 0, sizeof(*machine));
    durations_reset();
    machine->now_ns = 5000000000000ull;
    machine->percent = percent;
}

struct process *machine_add(struct machine *machine, struct workload load)
{
    struct process *process = &machine->processes[machine->count++];
    process->load = load;
    process->wakes_ns = process->burst_ns = machine->now_ns + machine->count * 1000;
    process->governs_ns = machine->now_ns + machine->count * 1300000;
    return process;
}

void machine_run(struct machine *machine, uint64_t for_ns)
{
    uint64_t end = machine->now_ns + for_ns;
    while (machine->now_ns < end) {
        struct process *next = &machine->processes[0];
        uint64_t at = UINT64_MAX;
        bool governs = false;
        for (unsigned i = 0; i < machine->count; i++) {
            struct process *process = &machine->processes[i];
            uint64_t least =
                process->wakes_ns < process->governs_ns ? process->wakes_ns : process->governs_ns;
            if (least >= at)
                continue;
            at = least;
            next = process;
            governs = process->governs_ns < process->wakes_ns;
        }
        run_gpu(machine, at < end ? at : end);
        if (at >= end)
            return;
        if (governs)
            govern(machine, next);
        else
            step(machine, next);
    }
}

void machine_count(struct machine *machine)
{
    machine->busy_ns = 0;
    for (unsigned i = 0; i < machine->count; i++) {
        struct process *process = &machine->processes[i];
        process->gpu_ns = process->done = process->delayed_ns = process->longest_ns = 0;
        process->bursts_late = 0;
    }
}
