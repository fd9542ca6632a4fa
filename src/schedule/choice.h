/* SPDX-License-Identifier: Apache-2.0 */
/* Which node a Pod goes to: of the candidates that fit, under binpack the fullest, under spread the
 * emptiest; of equal ones that whose name comes first. Pure. */
#ifndef VGPU_SCHEDULE_CHOICE_H
#define VGPU_SCHEDULE_CHOICE_H

#include "net/error.h"
#include "schedule/ask.h"
#include "schedule/fit.h"
#include "schedule/usage.h"

#include <stdbool.h>
#include <stddef.h>

struct choice_candidate {
    const char *name; /* the caller's */
    const struct usage_node *node;
    double score; /* before the Pod is placed */
    bool fits;
    bool tried;             /* false: not needed, a better one fits */
    struct reasons reasons; /* where it was tried and does not fit */
};

/* Room for the work, and the last answer. Zeroed before the first use. */
struct choice {
    struct fit fit;
    struct choice_candidate *candidates;
    size_t count, capacity;
    const struct choice_candidate *best; /* NULL: nothing fits */
    /* Of the best one. */
    struct fit_device *devices;
    struct fit_placement placement;
};

/* Decides among the named nodes; a name that is not registered does not fit. `all`: each of them is
 * tried, not only those that could be the best. What the Pod itself holds counts as free. The ask
 * must ask for devices; it, the names and `usage` must not change while the answer is read. Returns
 * 0 or -ENOMEM. */
int choice_make(struct choice *choice, const struct usage *usage, const struct ask *ask,
    const char *const *names, size_t count, bool all, struct error *error)
    __attribute__((warn_unused_result));

void choice_finish(struct choice *choice);

#endif
