/* SPDX-License-Identifier: Apache-2.0 */
/* The choice of a node for a Pod: the best by the policy, and under binpack one where the Pod need
 * not wait for others between its bind and its Allocate. */
#include "scheduler/bind_parts.h"
#include "scheduler/scheduler_parts.h"

#include <errno.h>
#include <stdlib.h>
#include <string.h>

/* ---- Nodes where a Pod would wait ---- */

/* Names of nodes, each the owner's, where the Pod would wait for others between its bind and its
 * Allocate. */
struct crowd {
    struct table names;
    bool failed; /* no memory */
};

static void crowd_add(void *context, const char *name)
{
    struct crowd *crowd = context;
    if (!table_get(&crowd->names, name))
        crowd->failed |= table_add(&crowd->names, name, (void *)(uintptr_t)name) != 0;
}

/* A bind under way, which may not be among the flights yet. */
static bool bind_clashes(const struct bind *bind, const char *uid, const char *devices)
{
    return bind->devices && strcmp(bind->uid, uid) != 0 &&
           flight_strings_clash(bind->devices, devices) > 0;
}

/* Whether the Pod would wait on this node. */
static bool is_crowded(
    const struct scheduler *scheduler, const char *node, const char *uid, const char *devices)
{
    const struct bind *bind;
    if (flights_clash(scheduler->flights, node, uid, devices, scheduler_now_ns()) > 0)
        return true;
    TAILQ_FOREACH(bind, &scheduler->binds, entry)
    if (!strcmp(bind->node, node) && bind_clashes(bind, uid, devices))
        return true;
    return false;
}

/* All such nodes, by the device string of one of them: on a node with cards of another size the Pod
 * may get another string, and wait all the same. */
static void crowd_find(
    struct crowd *crowd, const struct scheduler *scheduler, const char *uid, const char *devices)
{
    const struct bind *bind;
    crowd->failed |=
        flights_each_clash(scheduler->flights, devices, scheduler_now_ns(), crowd_add, crowd) != 0;
    TAILQ_FOREACH(bind, &scheduler->binds, entry)
    if (bind_clashes(bind, uid, devices))
        crowd_add(crowd, bind->node);
}

/* ---- The choice ---- */

/* The devices on the chosen node. */
struct chosen {
    struct pod_devices devices;
    char *text; /* as a device string */
};

static void chosen_finish(struct chosen *chosen)
{
    pod_devices_finish(&chosen->devices);
    free(chosen->text);
}

static int chosen_make(const struct choice *choice, const struct ask *ask, struct chosen *chosen)
{
    *chosen = (struct chosen){.text = NULL};
    if (fit_devices(&choice->placement, ask, choice->best->node, &chosen->devices))
        return -ENOMEM;
    chosen->text = pod_devices_encode(&chosen->devices);
    if (chosen->text)
        return 0;
    chosen_finish(chosen);
    return -ENOMEM;
}

/* Chooses again among nodes where the Pod need not wait; where none of those fits, the first choice
 * stands. */
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
 * another (schedule/flight.h): the fullest node where the Pod need not wait is taken instead. */
static int keep_apart(struct scheduler *scheduler, const struct ask *ask, const char *const *names,
    size_t count, struct chosen *chosen, struct error *error)
{
    const struct choice *choice = &scheduler->choice;
    struct crowd crowd = {.failed = false};
    if (count < 2 || ask->wish.node_policy != POLICY_NODE_BINPACK || scheduler->options.all_nodes ||
        !is_crowded(scheduler, choice->best->name, ask->uid, chosen->text))
        return 0;
    crowd_find(&crowd, scheduler, ask->uid, chosen->text);
    int result = crowd.failed ? 0 : choose_beside(scheduler, ask, names, count, &crowd, error);
    table_finish(&crowd.names);
    if (result || !choice->best)
        return result;
    chosen_finish(chosen);
    result = chosen_make(choice, ask, chosen);
    return result ? error_set(error, -result, "no memory") : 0;
}

static int reserve(struct scheduler *scheduler, const struct ask *ask, const struct chosen *chosen,
    uint64_t *ret_generation)
{
    struct claim claim;
    int result = claim_make(ask, scheduler->choice.best->name, &chosen->devices, &claim);
    if (result)
        return result;
    claim.devices = chosen->text;
    result = usage_reserve(
        scheduler->usage, &claim, scheduler_now_ns() + RESERVATION_NS, ret_generation);
    claim_finish(&claim);
    return result;
}

int scheduler_choose(struct scheduler *scheduler, const struct ask *ask, const char *const *names,
    size_t count, uint64_t *ret_generation, struct error *error)
{
    struct choice *choice = &scheduler->choice;
    const struct usage_pod *known = usage_find_pod(scheduler->usage, ask->uid);
    struct chosen chosen;
    if (known && (known->state == USAGE_BOUND || known->state == USAGE_OBSERVED))
        return error_set(error, EEXIST, "the Pod is bound to node %s already", known->node->name);
    if (known && known->state == USAGE_BINDING)
        return error_set(
            error, EBUSY, "the Pod is being bound to node %s already", known->node->name);
    int result = choice_make(
        choice, scheduler->usage, ask, names, count, scheduler->options.all_nodes, error);
    if (result || !choice->best)
        return result;
    if (chosen_make(choice, ask, &chosen))
        return error_set(error, ENOMEM, "no memory");
    result = keep_apart(scheduler, ask, names, count, &chosen, error);
    if (!result && choice->best) {
        result = reserve(scheduler, ask, &chosen, ret_generation);
        if (result)
            (void)error_set(error, -result, "the devices cannot be reserved");
    }
    chosen_finish(&chosen);
    return result;
}
