/* SPDX-License-Identifier: Apache-2.0 */
/* Whether what a process is charged with is what it does: most launches are charged with what their
 * kernel took when it was measured, and one that takes longer on a stream that runs dry behind it
 * shows that to nobody who does not ask just then. So the governor asks at moments that nothing of
 * the program's has a part in, and what it finds is compared with what was charged. Where that is
 * less, by more than chance, each launch is measured for a while.
 *
 * A pure function of the figures given; one thread at a time. Times are nanoseconds. */
#ifndef VGPU_COMPUTE_SPOT_CHECK_H
#define VGPU_COMPUTE_SPOT_CHECK_H

#include <stdbool.h>
#include <stdint.h>

/* distrust lasts so long; one that comes soon after the last was over, twice as long as that. */
#define SPOT_CHECK_DISTRUST_NS 10000000000ull
#define SPOT_CHECK_DISTRUST_MOST_NS 640000000000ull
#define SPOT_CHECK_SOON_NS 60000000000ull
/* What the checks say against launches that are measured is wrong: so long they say nothing, and
 * twice as long the next time. */
#define SPOT_CHECK_WRONG_NS 60000000000ull
#define SPOT_CHECK_WRONG_MOST_NS 3840000000000ull

struct spot_checks {
    double seen_ns;     /* at work when asked, by the time between two questions */
    double told_ns;     /* charged meanwhile, and what each launch takes beside its kernel */
    double asked_ns;    /* what would have been seen by that always at work, */
    double squares;     /* and the squares of its parts */
    uint64_t passed_ns; /* all the time */
    bool distrusts;
    uint64_t distrust_to_ns,
        distrust_ns; /* when the last one is or was over, and how long it lasts */
    uint64_t silent_to_ns, silent_ns;
};

/* One question. `passed_ns`: the time since the former one, after which it had been decided to ask;
 * 0: nothing was asked. */
struct spot_check {
    uint64_t now_ns, passed_ns;
    bool works;        /* the process had work on the device */
    unsigned permille; /* the least part of the device's time that is ours while we work */
    uint64_t told_ns;  /* what was charged since the former moment */
    uint64_t launches; /* for so many */
};

/* Returns whether each launch is to be measured from now on. */
bool spot_check_note(struct spot_checks *checks, const struct spot_check *check);

#endif
