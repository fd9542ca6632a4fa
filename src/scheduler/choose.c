/* SPDX-License-Identifier: Apache-2.0 */
/* The choice of a node for a Pod: the best by the policy, and under binpack one where the Pod need
 * not wait for others between its bind and its Allocate. */
#include "scheduler/bind_parts.h"
#include "scheduler/scheduler_parts.h"

#include <errno.h>
#include <stdlib.h>
#include <string.h>

/* ---- Nodes on whose way others are ---- */

/* Names of nodes, each the owner's, where the Pod would wait for others between its bind and its
 * Allocate. */
struct crowd {
    struct table names;
    bool failed;
};

static void crowd_add(void *context, const char *name)
{
    struct crowd *crowd = context;
    if (!table_get(&crowd->names, name))
        crowd->failed |= table_add(&crowd->names, name, (void *)(uintptr_t)name) != 0;
}

/* Whether it would wait on this node. */
static bool is_crowded(
    const struct scheduler *scheduler, const char *node, const char *uid, const char *devices)
{
    const struct bind *bind;
    if (flights_clash(scheduler->flights, node, uid, devices, scheduler_now_ns()) > 0)
        return true;
    TAILQ_FOREACH(bind, &scheduler->binds, entry)
    if (bind->devices && !strcmp(bind->node, node) && strcmp(bind->uid, uid) != 0 &&
        flight_strings_clash(bind->devices, devices) > 0)
        return true;
    return false;
}

/* By the device string that it would get; on cards of another size it may get another one, and then
 * waits. */
static void crowd_find(
    struct crowd *crowd, const struct scheduler *scheduler, const char *uid, const char *devices)
{
    const struct bind *bind;
    crowd->failed |=
        flights_each_clash(scheduler->flights, devices, scheduler_now_ns(), crowd_add, crowd) != 0;
    TAILQ_FOREACH(bind, &scheduler->binds, entry)
    if (bind->devices && strcmp(bind->uid, uid) != 0 &&
        flight_strings_clash(bind->devices, devices) > 0)
        crowd_add(crowd, bind->node);
}

static char *text_of_choice(const struct choice *choice, const struct ask *ask)
{
    struct pod_devices devices;
    if (fit_devices(&choice->placement, ask, choice->best->node, &devices))
        return NULL;
    char *text = pod_devices_encode(&devices);
    pod_devices_finish(&devices);
    return text;
}

/* Chooses again among nodes without such others; where none of those fits, the first choice stands.
 */
static int choose_beside(struct scheduler *scheduler, const struct ask *ask,
    const char *const *names, size_t count, const struct crowd *crowd, struct error *error)
{
    struct choice *choice = &scheduler->choice;
    const char **free_names = calloc(count, sizeof(*free_names));
    size_t left = 0;
    if (!free_names)
        return 0;
    for (size_t i = 0; i < count; i++)
        if (!table_get(&crowd->names, names[i]))
            free_names[left++] = names[i];
    int result = choice_make(choice, scheduler->usage, ask, free_names, left, false, error);
    free(free_names);
    if (!result && !choice->best)
        result = choice_make(choice, scheduler->usage, ask, names, count, false, error);
    return result;
}

/* Under binpack all Pods of a moment would go to one node, where those that differ wait for one
 * another (schedule/flight.h): the fullest node on which nobody is in the way is taken. */
static int keep_apart(struct scheduler *scheduler, const struct ask *ask, const char *const *names,
    size_t count, struct error *error)
{
    struct choice *choice = &scheduler->choice;
    struct crowd crowd = {.failed = false};
    if (count < 2 || ask->wish.node_policy != POLICY_NODE_BINPACK || scheduler->options.all_nodes)
        return 0;
    char *text = text_of_choice(choice, ask);
    if (!text)
        return 0; /* the caller meets it again */
    int result = 0;
    if (is_crowded(scheduler, choice->best->name, ask->uid, text)) {
        crowd_find(&crowd, scheduler, ask->uid, text);
        if (!crowd.failed)
            result = choose_beside(scheduler, ask, names, count, &crowd, error);
        table_finish(&crowd.names);
    }
    free(text);
    return result;
}

int scheduler_choose(struct scheduler *scheduler, const struct ask *ask, const char *const *names,
    size_t count, uint64_t *ret_generation, struct error *error)
{
    struct choice *choice = &scheduler->choice;
    const struct usage_pod *known = usage_find_pod(scheduler->usage, ask->uid);
    struct pod_devices devices;
    struct claim claim;
    if (known && (known->state == USAGE_BOUND || known->state == USAGE_OBSERVED))
        return error_set(error, EEXIST, "the Pod is bound to node %s already", known->node->name);
    if (known && known->state == USAGE_BINDING)
        return error_set(
            error, EBUSY, "the Pod is being bound to node %s already", known->node->name);
    int result = choice_make(
        choice, scheduler->usage, ask, names, count, scheduler->options.all_nodes, error);
    if (!result && choice->best)
        result = keep_apart(scheduler, ask, names, count, error);
    if (result || !choice->best)
        return result;
    if (fit_devices(&choice->placement, ask, choice->best->node, &devices))
        return error_set(error, ENOMEM, "no memory");
    char *text = pod_devices_encode(&devices);
    result = text ? claim_make(ask, choice->best->name, &devices, &claim) : -ENOMEM;
    if (!result) {
        claim.devices = text;
        result = usage_reserve(
            scheduler->usage, &claim, scheduler_now_ns() + RESERVATION_NS, ret_generation);
        claim_finish(&claim);
    }
    free(text);
    pod_devices_finish(&devices);
    return result ? error_set(error, -result, "the devices cannot be reserved") : 0;
}
