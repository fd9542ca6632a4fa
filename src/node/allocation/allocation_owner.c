/* SPDX-License-Identifier: Apache-2.0 */
/* Whose devices a record's are by pod-resources' answer. */
#include "node/allocation/allocation_serving.h"

#include "node/pod_resources.h"

#include <stdlib.h>
#include <string.h>

/* pod-resources knows no UIDs. The Allocate that is being served may have asked for newer Pods than
 * the watch has told. */
static const struct pods_pod *find_name(
    const struct allocation *allocation, const char *space, const char *name)
{
    const struct pods_pod *pod = pods_find_name(allocation->pods, space, name);
    const struct serving *serving = TAILQ_FIRST(&allocation->servings);
    const struct allocation_stray *stray;
    if (pod)
        return pod;
    LIST_FOREACH(stray, &allocation->strays, entry)
    if (!strcmp(stray->pod->view.name, name) && !strcmp(stray->pod->view.pod_namespace, space))
        return stray->pod;
    for (size_t i = 0; serving && i < serving->extra_count; i++) {
        const struct pod_view *view = &serving->extras[i]->view;
        if (!strcmp(view->name, name) && !strcmp(view->pod_namespace, space))
            return serving->extras[i];
    }
    return NULL;
}

static size_t find_container(const struct pod_view *view, const char *name)
{
    size_t at = 0;
    while (at < view->container_count && strcmp(view->containers[at].name, name) != 0)
        at++;
    return at;
}

/* The container that has the place among those that ask which another has in its Pod. Init
 * containers, whose devices kubelet gives to the others afterwards, are not in its list. */
static size_t find_same_place(const struct allocation *allocation,
    const struct allocation_record *record, const struct pod_view *view)
{
    const struct pods_pod *guessed = allocation_find_pod(allocation, record->pod_uid);
    size_t place = 0, at = 0;
    size_t own = guessed ? find_container(&guessed->view, record->container) : 0;
    for (size_t i = 0; guessed && i < own; i++)
        place += guessed->view.containers[i].asked > 0;
    for (; guessed && at < view->container_count; at++)
        if (view->containers[at].asked > 0 && !place--)
            return at;
    return view->container_count;
}

/* How many of the record's IDs the container has. */
static void compare_ids(const struct allocation_record *record,
    const struct pod_resources_container *container, bool *ret_all, bool *ret_some)
{
    const char **ids = NULL;
    size_t count = 0;
    for (size_t d = 0; d < container->device_count; d++) {
        const struct pod_resources_device *device = &container->devices[d];
        const char **grown = strcmp(device->resource, record->resource) != 0
                                 ? NULL
                                 : reallocarray(ids, count + device->id_count + 1, sizeof(char *));
        if (!grown)
            continue;
        ids = grown;
        for (size_t i = 0; i < device->id_count; i++)
            ids[count++] = device->ids[i];
    }
    *ret_all = allocation_record_has_ids(record, ids, count);
    *ret_some = *ret_all || allocation_record_shares_ids(record, ids, count);
    free(ids);
}

/* Whether the container has all of the IDs for itself, so that the owner needs no other. */
static bool look_at_container(const struct allocation *allocation,
    const struct allocation_record *record, const struct pod_resources_pod *told,
    const struct pod_resources_container *container, struct allocation_owner *owner)
{
    bool all, some;
    compare_ids(record, container, &all, &some);
    if (!some)
        return false;
    const struct pods_pod *pod = find_name(allocation, told->space, told->name);
    bool own_name =
        !strcmp(told->space, record->pod_namespace) && !strcmp(told->name, record->pod_name);
    struct allocation_owner found = {
        .kind = ALLOCATION_OWNER_POD, .pod = pod, .space = told->space, .name = told->name};
    if (pod && allocation_pod_has_ended(pod))
        return false;
    if (!pod && own_name && record->gone)
        return false;
    if (pod)
        found.container = find_container(&pod->view, container->name);
    if (own_name && (!pod || strcmp(pod->view.uid, record->pod_uid) != 0))
        found.kind = ALLOCATION_OWNER_NAMESAKE;
    else if (!pod || found.container == pod->view.container_count)
        found.kind = ALLOCATION_OWNER_UNKNOWN;
    if (found.kind >= owner->kind)
        *owner = found;
    /* An init container's IDs, which the list does not have, are a later container's. */
    return found.kind == ALLOCATION_OWNER_POD && all && (!record->init || record->sidecar);
}

void allocation_find_owner(const struct allocation *allocation,
    const struct allocation_record *record, const struct pod_resources_pod *pods, size_t count,
    struct allocation_owner *ret_owner)
{
    struct allocation_owner owner = {.kind = ALLOCATION_OWNER_NOBODY};
    bool exact = false;
    for (size_t p = 0; !exact && p < count; p++)
        for (size_t c = 0; !exact && c < pods[p].container_count; c++)
            exact = look_at_container(allocation, record, &pods[p], &pods[p].containers[c], &owner);
    if (owner.kind == ALLOCATION_OWNER_POD && !exact) {
        const struct pod_view *view = &owner.pod->view;
        size_t at = !strcmp(view->uid, record->pod_uid) ? find_container(view, record->container)
                                                        : find_same_place(allocation, record, view);
        if (at < view->container_count)
            owner.container = at;
    }
    *ret_owner = owner;
}
