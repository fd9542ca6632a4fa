/* SPDX-License-Identifier: Apache-2.0 */
/* Work for the tests of compute limits, in a bed (bed.h), and how much of it was done: by the
 * simulated machine's own time, which a loaded computer does not change, and by the region. */
#ifndef VGPU_TEST_PACE_LOAD_H
#define VGPU_TEST_PACE_LOAD_H

#include "abi/cuda.h"
#include "bed.h"

#define US 1000ull
#define MS 1000000ull
#define SECOND 1000000000ull

/* The primary context of the ordinal, current, and a kernel in it that takes as long as it is told.
 */
void load_begin(int ordinal);
/* The kernel in the current context, whichever that is. */
CUfunction load_kernel(void);

CUresult load_launch(CUstream stream, uint64_t duration_ns);
CUresult load_launch_of(CUfunction kernel, CUstream stream, uint64_t duration_ns);
CUstream load_stream(void);

/* One more piece of work, at most 64 of them outstanding; `number` counts from 0. */
struct load {
    CUresult (*step)(struct load *load, uint64_t number);
    uint64_t duration_ns;
    CUstream streams[4];
    void *own;
    bool waits; /* the step does not launch ahead: no event of the load's is needed */
    CUevent events[64];
    uint64_t number;
};
/* A step. */
void load_one(struct load *load);
/* Until the machine's clock is there. */
void load_run(struct load *load, uint64_t end_ns);
/* Kernels on the one stream. */
CUresult load_step_plain(struct load *load, uint64_t number);

/* How things stand at one moment. */
struct load_state {
    uint64_t now_ns;
    uint64_t busy_ns;     /* of all processes' kernels on the card, by the machine */
    uint64_t measured_ns; /* the region's busy_ns */
    int64_t charged_ns;   /* the region's charged_ns */
    int64_t granted_ns;
};
struct load_state load_state(unsigned device);
uint64_t load_now_ns(void);
/* The GPU time of one process so far, by the machine. */
uint64_t load_busy_ns(unsigned device, pid_t pid);
/* Percent of the time between two moments, in tenths. */
int load_permille(uint64_t part_ns, uint64_t whole_ns);

/* Runs the load, for which it may need several attempts on a loaded computer, and checks that no
 * more than `percent` of the card was used by it in any, and most of that in one, and that the
 * region says so too. */
void load_check_share(struct load *load, unsigned device, unsigned percent);

/* No more than the limit, what may have been saved up before added. */
void load_check_at_most(
    const struct load_state *from, const struct load_state *to, unsigned percent);

/* `vgpu set --cores`, by a process outside of the container; device -1: all. */
void load_set(int device, unsigned percent);

/* Waits until all that was launched is done, and seen to be. */
void load_settle(void);

/* Kernels of that duration, one at a time, until it is known; settles. */
void load_learn(CUstream stream, uint64_t duration_ns, int times);

/* Settles; what ran since then was measured within a tenth. */
void load_check_measured(const struct load_state *from);

/* A kernel that is on its way takes its limit's part of the time from now on, at most. */
void load_check_held(unsigned device, unsigned percent);

/* From `start_us` on, each `interval_us`: exit(5) in a signal's handler, where that interrupts our
 * library in the midst of something. The driver's locks are its own matter. */
void load_exit_within_library(unsigned start_us, unsigned interval_us);

unsigned load_threads(void); /* of this process */
uint64_t load_cpu_ns(void);  /* of this process so far, user and system */

/* Runs a command without the library and without output; it must succeed. argv[0] is its path. */
void load_run_tool(char *const argv[]);

#endif
