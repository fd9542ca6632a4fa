/* SPDX-License-Identifier: Apache-2.0 */
#include "cluster/allocate_candidates.h"

#include "codec/no_memory.h"
#include "cluster/node_lock.h"
#include "codec/number.h"

#include <errno.h>
#include <stdlib.h>
#include <string.h>

/* A candidate that is weighed against the best so far. */
struct weighed {
    struct allocate_choice choice;
    bool cards_match;
    int64_t bind_time;
};

void allocate_choice_finish(struct allocate_choice *choice)
{
    pod_devices_finish(&choice->left);
    free(choice->steps);
    *choice = (struct allocate_choice){0};
}

/* Its devices for this question. On failure nothing is left to finish. */
static int open_choice(const struct allocate_question *question, const struct allocate_pod *pod,
    struct allocate_choice *ret_choice, struct error *error)
{
    struct allocate_choice choice = {.pod = pod};
    const struct pod_view *view = &pod->view;
    if (!view->to_allocate) {
        (void)error_set(error, ENOENT, "Pod %s/%s has no annotation " POD_ANNOTATION_TO_ALLOCATE,
            view->pod_namespace, view->name);
        return -ENOENT;
    }
    struct error reason;
    int result = pod_devices_decode(view->to_allocate, &choice.left, &reason);
    if (result) {
        (void)error_set(
            error, -result, "Pod %s/%s: %s", view->pod_namespace, view->name, reason.text);
        return result;
    }
    choice.steps = calloc(question->request_count + 1, sizeof(*choice.steps));
    result = choice.steps ? allocate_match(view, &choice.left, question->requests,
                                question->request_count, choice.steps, error)
                          : no_memory(error, "Allocate");
    if (result)
        allocate_choice_finish(&choice);
    else
        *ret_choice = choice;
    return result;
}

static bool is_here(const struct allocate_question *question, const struct pod_view *view)
{
    return (!*view->node_name || !strcmp(view->node_name, question->node_name)) &&
           (!view->assigned_node || !strcmp(view->assigned_node, question->node_name));
}

static bool is_over(const struct pod_view *view)
{
    return !strcmp(view->phase, "Succeeded") || !strcmp(view->phase, "Failed");
}

/* What a Pod must be where no lock names it. */
static bool may_be_meant(const struct allocate_question *question, const struct allocate_pod *pod)
{
    const struct pod_view *view = &pod->view;
    return (pod->proven || !question->require_proof) && is_here(question, view) &&
           *view->node_name && view->assigned_node && !view->deleting &&
           !strcmp(view->phase, "Pending") && view->bind_time && view->bind_phase &&
           (!strcmp(view->bind_phase, POD_BIND_ALLOCATING) ||
               !strcmp(view->bind_phase, POD_BIND_SUCCESS));
}

/* Whether kubelet's IDs are replicas of the annotated cards, in any order. */
static bool is_same_cards(
    const struct pod_devices_container *devices, const struct allocate_request *request)
{
    for (size_t i = 0; i < request->count; i++) {
        char uuid[DEVICE_UUID_BYTES];
        size_t asked = 0, annotated = 0;
        if (device_id_physical(request->ids[i], uuid))
            return false;
        for (size_t k = 0; k < request->count; k++) {
            char other[DEVICE_UUID_BYTES];
            asked += !device_id_physical(request->ids[k], other) && !strcmp(other, uuid);
            annotated += k < devices->count && !strcmp(devices->devices[k].uuid, uuid);
        }
        if (asked != annotated)
            return false;
    }
    return true;
}

static bool has_same_limits(
    const struct allocate_choice *a, const struct allocate_choice *b, size_t request_count)
{
    for (size_t r = 0; r < request_count; r++) {
        const struct pod_devices_container *x = &a->left.containers[a->steps[r].slot];
        const struct pod_devices_container *y = &b->left.containers[b->steps[r].slot];
        for (size_t d = 0; d < x->count && d < y->count; d++)
            if (x->devices[d].memory_mib != y->devices[d].memory_mib ||
                x->devices[d].cores_percent != y->devices[d].cores_percent)
                return false;
    }
    return true;
}

static bool goes_before(const struct weighed *a, const struct weighed *b)
{
    if (a->choice.pod->proven != b->choice.pod->proven)
        return a->choice.pod->proven;
    if (a->cards_match != b->cards_match)
        return a->cards_match;
    if (a->bind_time != b->bind_time)
        return a->bind_time < b->bind_time;
    const struct pod_view *x = &a->choice.pod->view, *y = &b->choice.pod->view;
    int order = strcmp(x->pod_namespace, y->pod_namespace);
    return order ? order < 0 : strcmp(x->name, y->name) < 0;
}

static void weigh(const struct allocate_question *question, struct weighed *weighed)
{
    const char *time = weighed->choice.pod->view.bind_time;
    if (number_parse(time, strlen(time), 0, INT64_MAX, &weighed->bind_time))
        weighed->bind_time = INT64_MAX;
    weighed->cards_match = true;
    for (size_t r = 0; r < question->request_count; r++)
        weighed->cards_match =
            weighed->cards_match &&
            is_same_cards(&weighed->choice.left.containers[weighed->choice.steps[r].slot],
                &question->requests[r]);
}

/* Whether the Pod itself, by its spec, asks for as many as kubelet does, so that its annotation is
 * what is wrong. */
static bool asks_for(const struct pod_view *view, const struct allocate_request *request)
{
    bool asks = false;
    for (size_t i = 0; i < view->container_count; i++)
        asks |=
            view->containers[i].asked > 0 && (size_t)view->containers[i].asked == request->count;
    return asks;
}

/* Of the failures the one that says most: a number that does not match, an annotation that cannot
 * be read, nothing left. */
static int rank(int result)
{
    return result == -EPROTO ? 3 : result == -ENOENT ? 1 : 2;
}

static int choose_bound(const struct allocate_question *question, const struct allocate_pod *pods,
    size_t pod_count, struct allocate_choice *ret_choice, struct error *error)
{
    struct weighed best = {0};
    int failure = error_set(error, ENOENT, "no binding pod found on node %s", question->node_name);
    size_t waiting = 0;
    const struct allocate_pod *wrong = NULL;
    for (size_t i = 0; i < pod_count; i++) {
        struct weighed weighed = {0};
        struct error reason;
        if (!may_be_meant(question, &pods[i]))
            continue;
        int result = open_choice(question, &pods[i], &weighed.choice, &reason);
        waiting += result != -ENOENT;
        if (result && result != -ENOENT)
            wrong = &pods[i];
        if (result) {
            if (rank(result) > rank(failure))
                failure = error_set(error, -result, "%s", reason.text);
            continue;
        }
        weigh(question, &weighed);
        bool first = !best.choice.pod;
        bool differ =
            !first && (best.choice.ambiguous ||
                          !has_same_limits(&best.choice, &weighed.choice, question->request_count));
        struct weighed *loser = &weighed;
        if (first || goes_before(&weighed, &best)) {
            struct weighed kept = best;
            best = weighed;
            weighed = kept;
        }
        allocate_choice_finish(&loser->choice);
        best.choice.ambiguous = differ;
    }
    if (best.choice.pod) {
        *ret_choice = best.choice;
        return 0;
    }
    bool is_its = wrong && waiting == 1 && question->request_count &&
                  asks_for(&wrong->view, &question->requests[0]);
    *ret_choice = (struct allocate_choice){.pod = is_its ? wrong : NULL};
    return failure;
}

int allocate_choose(const struct allocate_question *question, const struct allocate_pod *pods,
    size_t pod_count, struct allocate_choice *ret_choice, struct error *error)
{
    struct node_lock lock;
    const struct allocate_pod *named = NULL;
    struct error reason;
    int result = -ENOENT;
    bool locked = question->lock && !question->lock_holder_gone &&
                  !node_lock_decode(question->lock, &lock, NULL) && *lock.pod_name;
    *ret_choice = (struct allocate_choice){0};
    for (size_t i = 0; locked && i < pod_count && !named; i++)
        if (!strcmp(pods[i].view.pod_namespace, lock.pod_namespace) &&
            !strcmp(pods[i].view.name, lock.pod_name))
            named = &pods[i];
    if (locked && !named)
        return error_set(error, EAGAIN, "Pod %s/%s, which the lock of node %s names, is not known",
            lock.pod_namespace, lock.pod_name, question->node_name);
    if (named && is_here(question, &named->view) && !is_over(&named->view)) {
        result = open_choice(question, named, ret_choice, &reason);
        if (!result) {
            ret_choice->by_lock = true;
            return 0;
        }
    }
    int other = choose_bound(question, pods, pod_count, ret_choice, error);
    /* The lock says whose it is; it is only another's where that one fits. */
    if (!other || result == -ENOENT)
        return other;
    *ret_choice = (struct allocate_choice){.pod = named};
    return error_set(error, -result, "%s", reason.text);
}
