/* SPDX-License-Identifier: Apache-2.0 */
/* Whether a process is charged with what it does. Most launches are charged with what their kernel
 * took when it was measured; one that takes longer on a stream that runs dry behind it shows that
 * only to a question at that moment. So the governor asks at moments on which the program has no
 * influence, and compares what it finds with what was charged. If that is less, by more than
 * chance, each launch is measured for a while.
 *
 * A pure function of its arguments; one thread at a time. Times are nanoseconds. */
#ifndef VGPU_COMPUTE_SPOT_CHECK_H
#define VGPU_COMPUTE_SPOT_CHECK_H

#include <stdbool.h>
#include <stdint.h>

/* Distrust lasts 10 s. If it comes again within 60 s, it lasts twice as long as the last time, up
 * to 640 s. */
#define SPOT_CHECK_DISTRUST_NS 10000000000ull
#define SPOT_CHECK_DISTRUST_MOST_NS 640000000000ull
#define SPOT_CHECK_SOON_NS 60000000000ull
/* Checks that contradict launches that are measured are wrong: they stay silent for 60 s, twice as
 * long the next time, up to 64 minutes. */
#define SPOT_CHECK_WRONG_NS 60000000000ull
#define SPOT_CHECK_WRONG_MOST_NS 3840000000000ull

struct spot_checks {
    double seen_ns;     /* found at work, times the time between two questions */
    double told_ns;     /* charged meanwhile, and what each launch takes beside its kernel */
    double asked_ns;    /* what a process that always works would have been found with, */
    double squares;     /* and the squares of its parts */
    uint64_t passed_ns; /* in all */
    bool distrusts;
    uint64_t distrust_to_ns,
        distrust_ns; /* when the last distrust ends or ended, and how long it lasts */
    uint64_t silent_to_ns, silent_ns;
};

/* One question. `passed_ns`: since the former one, after which it was decided to ask; 0: nothing
 * was asked. */
struct spot_check {
    uint64_t now_ns, passed_ns;
    bool works;        /* the process had work on the device */
    unsigned permille; /* the least part of the device's time that the process has while it works */
    uint64_t told_ns;  /* charged since the former question */
    uint64_t launches; /* for this number of launches */
};

/* Returns whether each launch is to be measured from now on. */
bool spot_check_note(struct spot_checks *checks, const struct spot_check *check);

#endif
