/* SPDX-License-Identifier: Apache-2.0 */
/* Runs a program again and again, in each run with another of its driver calls failing, or with a
 * signal before it. */
#ifndef VGPU_TEST_SWEEP_H
#define VGPU_TEST_SWEEP_H

#include "bed.h"

#include <signal.h>
#include <stdint.h>
#include <stdio.h>
#include <sys/mman.h>
#include <sys/wait.h>

struct failing {
    const char *step;
    unsigned code, nth;             /* 0: none fails */
    uint64_t *ret_first, *ret_last; /* calls before what is tested and after it, where none fails */
};

#define SIGNAL(signal) (100000u + (signal)) /* docs/simulator.md */

/* Where no call fails: which calls there are to fail. */
static inline struct failing sweep_begin(const char *step, void (*run)(void *failing))
{
    static uint64_t *calls;
    if (!calls)
        calls = mmap(NULL, 4096, PROT_READ | PROT_WRITE, MAP_SHARED | MAP_ANONYMOUS, -1, 0);
    struct failing failing = {step, 0, 0, &calls[0], &calls[1]};
    REQUIRE(bed_ended_well(bed_fork(run, &failing)));
    CHECK(calls[1] > calls[0]);
    return failing;
}

/* Each call of the function fails once. */
static inline void sweep_failing(const char *step, void (*run)(void *failing))
{
    struct failing failing = sweep_begin(step, run);
    unsigned first = (unsigned)*failing.ret_first + 1, last = (unsigned)*failing.ret_last;
    failing.code = 999;
    for (failing.nth = first; failing.nth <= last; failing.nth++) {
        if (!CHECK(bed_ended_well(bed_fork(run, &failing))))
            printf("# %s, call %u of %u to %u\n", step, failing.nth, first, last);
    }
}

/* Lets a process go on that stopped; its end. */
static inline int sweep_end_of(pid_t pid)
{
    int status;
    while (waitpid(pid, &status, WUNTRACED) == pid && WIFSTOPPED(status))
        kill(pid, SIGCONT);
    return status;
}

/* Before some of the calls the program is killed, and in another run stopped and continued. */
static inline void sweep_signals(const char *step, void (*run)(void *failing))
{
    struct failing failing = sweep_begin(step, run);
    unsigned first = (unsigned)*failing.ret_first + 1, last = (unsigned)*failing.ret_last;
    for (failing.nth = first; failing.nth <= last; failing.nth += 1 + (failing.nth - first) / 4) {
        failing.code = SIGNAL(SIGKILL);
        int status = sweep_end_of(bed_fork(run, &failing));
        CHECK(WIFSIGNALED(status) && WTERMSIG(status) == SIGKILL);
        failing.code = SIGNAL(SIGSTOP);
        status = sweep_end_of(bed_fork(run, &failing));
        if (!CHECK(WIFEXITED(status) && WEXITSTATUS(status) == 0))
            printf("# stopped at %s, call %u\n", step, failing.nth);
    }
}

#endif
