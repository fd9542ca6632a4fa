/* SPDX-License-Identifier: Apache-2.0 */
/* Whose devices are whose: what pod-resources tells of the records that are guesses. */
#include "node/allocation/allocation.h"
#include "node/allocation/allocation_parts.h"

#include "cluster/no_memory.h"
#include "net/log_line.h"
#include "node/pod_resources.h"
#include "node/settings.h"

#include <errno.h>
#include <stdlib.h>
#include <string.h>

#define FIRST_LOOK_S 2
#define LOOK_MAX_S 300

/* The slot of a container in the Pod's device string, and all of that. */
static int find_slot(const struct pods_pod *pod, size_t container, struct pod_devices *ret_all,
    size_t *ret_slot, struct error *error)
{
    struct pod_devices all = {0};
    const struct pod_view *view = &pod->view;
    if (!view->allocated) {
        (void)error_set(error, ENOENT, "no device was assigned");
        return -ENOENT;
    }
    int result = pod_devices_decode(view->allocated, &all, error);
    if (result)
        return result;
    size_t used = pod_devices_used(&all), count = 0;
    struct allocate_request *requests = calloc(used + 1, sizeof(*requests));
    struct allocate_step *steps = calloc(used + 1, sizeof(*steps));
    for (size_t i = 0; requests && i < all.count; i++)
        if (all.containers[i].count)
            requests[count++] = (struct allocate_request){NULL, all.containers[i].count};
    result = requests && steps ? allocate_match(view, &all, requests, count, steps, error)
                               : no_memory(error, "device string");
    bool found = false;
    for (size_t i = 0; !result && i < count && !found; i++) {
        found = steps[i].container == container;
        if (found)
            *ret_slot = steps[i].slot;
    }
    if (!result && !found) {
        (void)error_set(error, ENOENT, "no device was assigned to the container");
        result = -ENOENT;
    }
    free(requests);
    free(steps);
    if (result)
        pod_devices_finish(&all);
    else
        *ret_all = all;
    return result;
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

/* What the record's container gets by the Pod that it belongs to, on the cards that it has. */
static int take_limits(const struct allocation *allocation, struct allocation_record *record,
    const struct pod_devices_container *from, struct error *error)
{
    size_t count = record->device_count;
    if (from->count != count)
        return error_set(
            error, EPROTO, "%zu devices were assigned, %zu were given", from->count, count);
    struct pod_device *devices = calloc(count + 1, sizeof(*devices));
    const char **uuids = calloc(count + 1, sizeof(char *));
    int result = devices && uuids ? 0 : no_memory(error, "devices");
    for (size_t i = 0; !result && i < count; i++) {
        devices[i] = from->devices[i];
        uuids[i] = record->devices[i].given.uuid;
    }
    const struct allocate_request request = {uuids, count};
    if (!result)
        result = allocate_follow_kubelet(devices, &request, error);
    for (size_t i = 0; !result && i < count; i++) {
        struct allocation_device *device = &record->devices[i];
        /* The card's full name stays: kubelet's IDs do not have HAMi's MIG places. */
        device->given.memory_mib = devices[i].memory_mib;
        device->given.cores_percent = devices[i].cores_percent;
        device->given.memory_mib = allocation_memory_of(allocation, &device->given);
        device->memory_mib = device->given.memory_mib;
        device->cores_percent = device->given.cores_percent;
    }
    free(devices);
    free(uuids);
    return result;
}

static int take_names(
    struct allocation_record *record, const struct pods_pod *pod, size_t container)
{
    const struct pod_view *view = &pod->view;
    const struct pod_container *is = &view->containers[container];
    char *space = strdup(view->pod_namespace), *name = strdup(view->name), *uid = strdup(view->uid),
         *its = strdup(is->name);
    if (!space || !name || !uid || !its) {
        free(space);
        free(name);
        free(uid);
        free(its);
        return -ENOMEM;
    }
    free(record->pod_namespace);
    free(record->pod_name);
    free(record->pod_uid);
    free(record->container);
    record->pod_namespace = space;
    record->pod_name = name;
    record->pod_uid = uid;
    record->container = its;
    record->init = is->init;
    record->sidecar = is->sidecar;
    record->has_priority = pod->priorities[container].is_set;
    record->priority = pod->priorities[container].level;
    return 0;
}

/* A record that was another Pod's until now. */
struct move {
    struct allocation_record *record;
    char *pod_namespace, *pod_name, *pod_uid;
    size_t slot;
};

static int move_record(struct allocation *allocation, struct allocation_record *record,
    const struct pods_pod *pod, size_t container, struct move *ret_move, struct error *error)
{
    struct pod_devices all = {0};
    size_t slot = 0;
    int result = find_slot(pod, container, &all, &slot, error);
    if (result)
        return result;
    struct move move = {record, strdup(record->pod_namespace), strdup(record->pod_name),
        strdup(record->pod_uid), record->slot};
    if (!move.pod_namespace || !move.pod_name || !move.pod_uid)
        result = no_memory(error, "a record");
    if (!result && record->limited)
        result = take_limits(allocation, record, &all.containers[slot], error);
    if (!result && take_names(record, pod, container))
        result = no_memory(error, "a record");
    pod_devices_finish(&all);
    if (result) {
        free(move.pod_namespace);
        free(move.pod_name);
        free(move.pod_uid);
        return result;
    }
    record->slot = slot;
    /* The new Pod's is looked at when all have moved. */
    free(record->wish);
    record->wish = NULL;
    *ret_move = move;
    return 0;
}

/* pod-resources' answer about one record. Whether it is another's: *ret_container is where. */
static const struct pods_pod *find_owner(const struct allocation *allocation,
    const struct allocation_record *record, const struct pod_resources_pod *pods, size_t count,
    size_t *ret_container)
{
    const struct pods_pod *part = NULL;
    for (size_t p = 0; p < count; p++) {
        for (size_t c = 0; c < pods[p].container_count; c++) {
            const struct pod_resources_container *container = &pods[p].containers[c];
            const char **ids = NULL;
            size_t id_count = 0;
            for (size_t d = 0; d < container->device_count; d++) {
                const struct pod_resources_device *device = &container->devices[d];
                const char **grown =
                    strcmp(device->resource, record->resource) != 0
                        ? NULL
                        : reallocarray(ids, id_count + device->id_count + 1, sizeof(char *));
                if (!grown)
                    continue;
                ids = grown;
                for (size_t i = 0; i < device->id_count; i++)
                    ids[id_count++] = device->ids[i];
            }
            bool all = allocation_record_has_ids(record, ids, id_count);
            bool some = allocation_record_shares_ids(record, ids, id_count);
            free(ids);
            if (!all && !some)
                continue;
            const struct pods_pod *pod =
                pods_find_name(allocation->pods, pods[p].space, pods[p].name);
            if (!pod)
                continue;
            *ret_container = find_container(&pod->view, container->name);
            /* An init container's IDs, which the list does not have, are a later container's. */
            if (all && (!record->init || record->sidecar) &&
                *ret_container < pod->view.container_count)
                return pod;
            part = pod;
        }
    }
    if (part && !strcmp(part->view.uid, record->pod_uid))
        *ret_container = find_container(&part->view, record->container);
    else if (part)
        *ret_container = find_same_place(allocation, record, &part->view);
    return part && *ret_container < part->view.container_count ? part : NULL;
}

/* The slots that moved away from their Pods are theirs again, unless another record has them. */
static void restore(struct allocation *allocation, struct move *moves, size_t count)
{
    struct error error;
    for (size_t i = 0; i < count; i++) {
        struct allocation_record *record = moves[i].record;
        if (!allocation_find_slot(allocation, moves[i].pod_uid, moves[i].slot) &&
            pods_find(allocation->pods, moves[i].pod_uid) &&
            allocation_record_restore(
                record, moves[i].pod_namespace, moves[i].pod_name, moves[i].pod_uid, moves[i].slot))
            log_line(LOG_LINE_ERROR, "allocation: Pod %s/%s stays without devices: no memory",
                moves[i].pod_namespace, moves[i].pod_name);
        log_line(LOG_LINE_INFO,
            "allocation: the devices of Pod %s/%s are Pod %s/%s's, container %s",
            moves[i].pod_namespace, moves[i].pod_name, record->pod_namespace, record->pod_name,
            record->container);
        if (record->limited && allocation_write_grant(allocation, record, &error))
            log_line(LOG_LINE_ERROR, "allocation: %s", error.text);
        if (record->limited)
            allocation_wake(allocation, record);
    }
    for (size_t i = 0; i < count; i++)
        allocation_save(allocation, moves[i].record);
    for (size_t i = 0; i < count; i++) {
        allocation_write(allocation, moves[i].pod_uid);
        allocation_write(allocation, moves[i].record->pod_uid);
        const struct pods_pod *pod = allocation_find_pod(allocation, moves[i].record->pod_uid);
        if (pod)
            allocation_look_at_wish(allocation, pod);
        free(moves[i].pod_namespace);
        free(moves[i].pod_name);
        free(moves[i].pod_uid);
    }
}

/* All guesses at once: two that were exchanged are put right in one step. */
static void learn(
    struct allocation *allocation, const struct pod_resources_pod *pods, size_t pod_count)
{
    struct allocation_record *record;
    size_t room = 0, count = 0;
    TAILQ_FOREACH(record, &allocation->records, entry)
    room++;
    struct move *moves = calloc(room + 1, sizeof(*moves));
    TAILQ_FOREACH(record, &allocation->records, entry)
    {
        size_t container = 0;
        struct error error;
        if (!moves || record->sure || record->failed || record->gone || record->superseded)
            continue;
        const struct pods_pod *pod = find_owner(allocation, record, pods, pod_count, &container);
        if (!pod)
            continue;
        if (!strcmp(pod->view.uid, record->pod_uid) &&
            !strcmp(pod->view.containers[container].name, record->container)) {
            record->sure = true;
            allocation_save(allocation, record);
            /* Its cards may be others than the scheduler's. */
            allocation_write(allocation, record->pod_uid);
        } else if (!move_record(allocation, record, pod, container, &moves[count], &error)) {
            record->sure = true;
            count++;
        } else {
            log_line(LOG_LINE_WARNING, "allocation: Pod %s/%s: %s", pod->view.pod_namespace,
                pod->view.name, error.text);
        }
    }
    restore(allocation, moves, moves ? count : 0);
    free(moves);
}

static bool has_guesses(const struct allocation *allocation)
{
    const struct allocation_record *record;
    TAILQ_FOREACH(record, &allocation->records, entry)
    if (!record->sure && !record->failed && !record->gone && !record->superseded)
        return true;
    return false;
}

static void look_later(struct allocation *allocation)
{
    struct timeval wait = {(time_t)allocation->identify_s, 0};
    allocation->identify_s =
        allocation->identify_s < LOOK_MAX_S / 2 ? 2 * allocation->identify_s : LOOK_MAX_S;
    (void)event_add(allocation->identify, &wait);
}

static bool has_joined(const struct allocation *allocation)
{
    const struct allocation_waiter *waiter;
    LIST_FOREACH(waiter, &allocation->waiters, entry)
    if (waiter->joined)
        return true;
    return false;
}

static bool look(struct allocation *allocation);

static void on_resources(void *context, enum grpc_status status, const char *text,
    const struct pod_resources_pod *pods, size_t count)
{
    struct allocation *allocation = context;
    allocation->identifying = false;
    if (status == GRPC_OK)
        learn(allocation, pods, count);
    else
        log_line(
            LOG_LINE_WARNING, "allocation: whose devices are whose is not known yet: %s", text);
    bool again =
        status == GRPC_OK && has_joined(allocation) && has_guesses(allocation) && look(allocation);
    struct allocation_waiter *waiter = LIST_FIRST(&allocation->waiters), *next;
    for (; waiter; waiter = next) {
        next = LIST_NEXT(waiter, entry);
        if (again && waiter->joined) {
            waiter->joined = false;
            continue;
        }
        LIST_REMOVE(waiter, entry);
        kubelet_answer_pre_start(waiter->call);
        free(waiter);
    }
    if (!again && has_guesses(allocation))
        look_later(allocation);
}

static bool look(struct allocation *allocation)
{
    struct error error;
    if (allocation->identifying)
        return true;
    if (!allocation->pod_resources)
        return false;
    int result = pod_resources_list(
        allocation->pod_resources, ALLOCATION_IDENTIFY_MS, on_resources, allocation, &error);
    if (result)
        log_line(LOG_LINE_WARNING, "allocation: pod-resources: %s", error.text);
    allocation->identifying = !result;
    return !result;
}

static void on_timer(evutil_socket_t fd, short event, void *context)
{
    struct allocation *allocation = context;
    (void)fd, (void)event;
    if (has_guesses(allocation) && !look(allocation))
        look_later(allocation);
}

void allocation_pre_start(
    struct kubelet_call *call, const struct kubelet_ids *devices, void *context)
{
    struct allocation *allocation = context;
    const struct allocation_record *record;
    bool guessed = false;
    TAILQ_FOREACH(record, &allocation->records, entry)
    guessed = guessed || (!record->sure && !record->failed && !record->superseded &&
                             allocation_record_shares_ids(record, devices->ids, devices->count));
    struct allocation_waiter *waiter = guessed ? calloc(1, sizeof(*waiter)) : NULL;
    bool joined = allocation->identifying;
    if (waiter && look(allocation)) {
        waiter->call = call;
        waiter->joined = joined;
        LIST_INSERT_HEAD(&allocation->waiters, waiter, entry);
        return;
    }
    free(waiter);
    allocation->identify_s = FIRST_LOOK_S;
    if (guessed)
        look_later(allocation);
    kubelet_answer_pre_start(call);
}

void allocation_identity_start(struct allocation *allocation)
{
    allocation->identify_s = FIRST_LOOK_S;
    allocation->identify = evtimer_new(allocation->base, on_timer, allocation);
    if (allocation->identify && has_guesses(allocation))
        look_later(allocation);
}

void allocation_identity_stop(struct allocation *allocation)
{
    for (struct allocation_waiter *waiter; (waiter = LIST_FIRST(&allocation->waiters));) {
        LIST_REMOVE(waiter, entry);
        kubelet_answer_pre_start(waiter->call);
        free(waiter);
    }
    if (allocation->identify)
        event_free(allocation->identify);
}
