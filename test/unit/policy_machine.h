/* SPDX-License-Identifier: Apache-2.0 */
/* A simulated GPU, its clock, and processes whose launches pass a gate that does what
 * src/pace/pace.c does, with the real budget, meters and durations. Time goes on only here. */
#ifndef VGPU_TEST_POLICY_MACHINE_H
#define VGPU_TEST_POLICY_MACHINE_H

#include "compute/budget.h"
#include "compute/meter.h"

#include <stdbool.h>
#include <stdint.h>

#define MACHINE_PROCESSES 8
#define MACHINE_QUEUE 4096 /* kernels and timing events on their way, of one process */

/* What a process does, for ever: a burst of launches at once, then waits for them, then works on
 * the processor. */
struct workload {
    uint64_t kernel_ns;
    uint64_t second_ns; /* the other kind of kernel, 0: none; each has an estimate of its own */
    unsigned burst;     /* launches; 0: without end */
    uint64_t period_ns; /* a burst begins each so long, 0: at once */
    uint64_t host_ns;   /* after each burst, which is waited for; 0: nothing is waited for */
    double estimate;    /* times the true duration; 0: what is learnt */
    unsigned in_flight; /* at most so many launches on their way; 0: 1024 */
};

struct queued {
    uint64_t left_ns; /* 0: a timing event */
    uint64_t reached_ns;
    bool event, reached;
    bool uncounted; /* NVML does not count it: what the events of a launch on an idle stream add */
};

struct process {
    struct workload load;
    struct stream_meter meter;
    struct budget_share share;
    struct queued queue[MACHINE_QUEUE];
    uint64_t head, tail; /* of the queue; timing events stay until they are polled */
    uint64_t running;    /* the first entry that is not done */
    unsigned kernels;    /* on their way */
    uint64_t wakes_ns;   /* when its thread goes on */
    uint64_t governs_ns;
    uint64_t polled_ns;
    /* The thread, between two looks. */
    uint64_t work_ns, due_ns, first_ns, asked_ns;
    unsigned launches, until_sample;
    unsigned sent; /* of the burst */
    uint64_t burst_ns;
    bool waits, at_gate, recorded;
    uint64_t gate_ns; /* since when */
    uint64_t recorded_ns;
    int64_t uncharged_ns;
    /* What it got. */
    uint64_t gpu_ns, done, delayed_ns, longest_ns, bursts_late;
};

struct machine {
    struct vgpu_compute words;
    uint64_t now_ns;
    int64_t skew_ns; /* of the clock that the gate reads */
    unsigned percent, count, turn;
    uint64_t slice_left_ns;
    uint64_t late_ns, chance;           /* who sleeps at the gate is woken late by less than this */
    uint64_t change_ns, change_left_ns; /* what passes between the turns of two processes */
    uint64_t busy_ns;
    int64_t least_ns; /* the lowest balance that was seen */
    struct process processes[MACHINE_PROCESSES];
};

void machine_begin(struct machine *machine, unsigned percent);
struct process *machine_add(struct machine *machine, struct workload load);
void machine_run(struct machine *machine, uint64_t for_ns);

/* Counts anew from here on. */
void machine_count(struct machine *machine);

#endif
