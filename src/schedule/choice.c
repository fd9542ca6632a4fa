/* SPDX-License-Identifier: Apache-2.0 */
#include "schedule/choice.h"

#include "codec/no_memory.h"
#include "schedule/score.h"

#include <errno.h>
#include <stdlib.h>
#include <string.h>

static int make_room(struct choice *choice, size_t count)
{
    if (!choice->devices)
        choice->devices = calloc(ASK_DEVICES_MAX, sizeof(choice->devices[0]));
    if (!choice->devices)
        return -ENOMEM;
    if (count <= choice->capacity)
        return 0;
    struct choice_candidate *grown =
        reallocarray(choice->candidates, count, sizeof(choice->candidates[0]));
    if (!grown)
        return -ENOMEM;
    choice->candidates = grown;
    choice->capacity = count;
    return 0;
}

/* The node's score without what the Pod itself holds there. */
static double score_without(const struct usage_node *node, const struct usage_pod *own)
{
    struct usage_amounts used = node->used;
    for (size_t i = 0; own && own->node == node && i < own->count; i++) {
        const struct usage_pod_share *share = &own->shares[i];
        if (share->device < 0)
            continue;
        used.memory -= share->share.memory_mib;
        used.cores -= share->share.cores_percent;
        used.slots -= share->share.slots;
    }
    return score_amounts(&used, &node->total, &policy_weights_default);
}

static bool is_better(
    const struct choice_candidate *a, const struct choice_candidate *b, enum policy_node policy)
{
    if (!b)
        return true;
    if (a->score != b->score)
        return policy == POLICY_NODE_SPREAD ? a->score < b->score : a->score > b->score;
    return strcmp(a->name, b->name) < 0;
}

static void try_candidate(struct choice *choice, struct choice_candidate *candidate,
    const struct usage_pod *own, bool is_best)
{
    candidate->tried = true;
    candidate->fits = fit_node(&choice->fit, candidate->node, own);
    if (!candidate->fits) {
        candidate->reasons = choice->fit.reasons;
        return;
    }
    if (!is_best)
        return;
    choice->best = candidate;
    choice->placement = fit_placed(&choice->fit);
    memcpy(choice->devices, choice->placement.devices,
        choice->placement.count * sizeof(choice->devices[0]));
    choice->placement.devices = choice->devices;
}

int choice_make(struct choice *choice, const struct usage *usage, const struct ask *ask,
    const char *const *names, size_t count, bool all, struct error *error)
{
    const struct usage_pod *own = usage_find_pod(usage, ask->uid);
    struct quota_amount held = own ? own->quota : (struct quota_amount){0, 0};
    if (make_room(choice, count))
        return no_memory(error, "the candidates of a Pod");
    int result = fit_begin(&choice->fit, usage, ask, held, error);
    if (result)
        return result;
    choice->count = count;
    choice->best = NULL;
    for (size_t i = 0; i < count; i++) {
        struct choice_candidate *candidate = &choice->candidates[i];
        candidate->name = names[i];
        candidate->node = usage_find_node(usage, names[i]);
        candidate->fits = candidate->tried = false;
        if (!candidate->node) {
            candidate->tried = true;
            candidate->reasons = (struct reasons){.bare = REASON_BARE_UNREGISTERED};
            continue;
        }
        candidate->score = score_without(candidate->node, own);
        bool is_best = is_better(candidate, choice->best, ask->wish.node_policy);
        if (all || is_best)
            try_candidate(choice, candidate, own, is_best);
    }
    return 0;
}

void choice_finish(struct choice *choice)
{
    fit_finish(&choice->fit);
    free(choice->candidates);
    free(choice->devices);
    *choice = (struct choice){0};
}
