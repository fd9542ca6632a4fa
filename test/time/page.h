/* SPDX-License-Identifier: Apache-2.0 */
/* The page that the processes of a test on virtual time share with their keeper (keeper.c).
 *
 * Virtual time stands still while a thread of the test runs. When none runs, the keeper sets the
 * clock to the earliest deadline of the page's sleepers and wakes that one sleeper. */
#ifndef VGPU_TEST_TIME_PAGE_H
#define VGPU_TEST_TIME_PAGE_H

#include <stdint.h>

#define VTIME_VARIABLE "VGPU_TEST_TIME"        /* names the page's file */
#define VTIME_LIBRARY "VGPU_TEST_TIME_LIBRARY" /* names the library that is preloaded */
#define VTIME_MAGIC 0x656d697476757067u
#define VTIME_SLOTS 4096u

/* Virtual cost of one look at the clock, ns: what a call around it takes on a processor. */
#define VTIME_READ_NS 400u
/* By which a sleeper wakes late: the kernel's usual timer slack, 50 us, and what a processor takes
 * to switch to it. */
#define VTIME_LATE_NS 53000u
/* Looks at the clock after which a thread that has not slept meanwhile lets the others go first; so
 * it does at once where a deadline has passed. */
#define VTIME_READS_MAX 200u
/* For which a thread lets the others go first that calls sched_yield. */
#define VTIME_YIELD_NS 50000u

enum vtime_state {
    VTIME_FREE,
    VTIME_RUNS,
    VTIME_SLEEPS, /* until the deadline; a signal apart, only the keeper wakes it */
    VTIME_WAITS,  /* for words as well, or only (deadline UINT64_MAX), by which others wake it */
    VTIME_WOKEN,  /* by the keeper, and has not run yet */
    VTIME_ALARM,  /* no thread, but SIGALRM for the process `tid` */
};

/* Of one thread. */
struct vtime_slot {
    uint32_t state; /* the futex on which the thread sleeps */
    int32_t tid;    /* in the thread's PID namespace, as the process's */
    int32_t pid;
    uint64_t until_ns;
    uint64_t order;  /* of equal deadlines the one with the lower number is first */
    uint32_t sleeps; /* counts sleeps and waits that have a deadline */
};

/* Counts of wakes: a process's number modulo this names its count. */
#define VTIME_GROUPS 512u

struct vtime_page {
    uint64_t magic;
    uint64_t now_ns;       /* CLOCK_MONOTONIC */
    int64_t realtime_ns;   /* CLOCK_REALTIME less CLOCK_MONOTONIC */
    uint64_t next_ns;      /* the earliest deadline; may be one that is over */
    uint64_t order;        /* the last one given */
    uint32_t events;       /* counts changes of slots; the futex on which the keeper sleeps */
    uint32_t keeper_waits; /* for a change of events */
    uint32_t signals;      /* counts signals that were sent */
    uint32_t wakes_shared; /* counts wakes by words that processes share */
    uint32_t wakes[VTIME_GROUPS]; /* and by words of one process */
    uint32_t slots_end;           /* above all slots that were ever in use */
    struct vtime_slot slots[VTIME_SLOTS];
};

#endif
