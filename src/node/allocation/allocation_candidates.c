/* SPDX-License-Identifier: Apache-2.0 */
/* The node's Pods as candidates, with what they have got already taken out of their annotations. */
#include "node/allocation/allocation_parts.h"

#include <stdlib.h>
#include <string.h>

void allocation_candidates_free(struct allocate_pod *candidates, size_t count)
{
    for (size_t i = 0; candidates && i < count; i++)
        free((char *)candidates[i].view.to_allocate);
    free(candidates);
}

static void add_candidate(struct allocation *allocation, const struct pods_pod *pod,
    struct allocate_pod *candidates, size_t *count)
{
    if (allocation_find_failure(allocation, pod->view.uid))
        return;
    struct allocate_pod *candidate = &candidates[(*count)++];
    candidate->view = pod->view;
    candidate->view.to_allocate = allocation_effective(allocation, pod);
    /* One that cannot be read stays, so that its Pod is told. */
    if (!candidate->view.to_allocate && pod->view.to_allocate)
        candidate->view.to_allocate = strdup(pod->view.to_allocate);
    candidate->proven =
        !strcmp(pod->view.phase, "Pending") &&
        allocation_is_proven(allocation, pod->view.uid, pod->view.allocated, pod->view.proof);
}

static bool is_among(struct pods_pod *const *list, size_t count, const char *uid)
{
    for (size_t i = 0; i < count; i++)
        if (!strcmp(list[i]->view.uid, uid))
            return true;
    return false;
}

struct allocate_pod *allocation_candidates(struct allocation *allocation,
    struct pods_pod *const *extras, size_t extra_count, size_t *ret_count)
{
    size_t known, count = 0;
    const struct pods_pod *const *all = pods_all(allocation->pods, &known);
    const struct allocation_stray *stray;
    size_t strays = 0;
    LIST_FOREACH(stray, &allocation->strays, entry)
    strays++;
    struct allocate_pod *candidates = calloc(known + extra_count + strays + 1, sizeof(*candidates));
    for (size_t i = 0; candidates && i < known; i++)
        if (!is_among(extras, extra_count, all[i]->view.uid))
            add_candidate(allocation, all[i], candidates, &count);
    for (size_t i = 0; candidates && i < extra_count; i++)
        add_candidate(allocation, extras[i], candidates, &count);
    LIST_FOREACH(stray, &allocation->strays, entry)
    if (candidates && !is_among(extras, extra_count, stray->pod->view.uid))
        add_candidate(allocation, stray->pod, candidates, &count);
    *ret_count = count;
    return candidates;
}
