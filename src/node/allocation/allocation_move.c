/* SPDX-License-Identifier: Apache-2.0 */
/* A record that becomes another container's. */
#include "node/allocation/allocation_parts.h"

#include "codec/no_memory.h"
#include "cluster/node_lock.h"
#include "node/settings.h"

#include <errno.h>
#include <stdlib.h>
#include <string.h>

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

/* As for an Allocate: with --require-proof the annotation alone says nothing. */
static bool may_be_believed(struct allocation *allocation, const struct pods_pod *pod)
{
    const struct pod_view *view = &pod->view;
    const char *lock = pods_lock(allocation->pods);
    return !allocation->settings->require_proof ||
           allocation_is_proven(allocation, view->uid, view->allocated, view->proof) ||
           (lock && node_lock_is_held_by(lock, view->pod_namespace, view->name));
}

/* The container's limits and its slot, by what its Pod was assigned. */
static int take_assignment(struct allocation *allocation, struct allocation_record *record,
    const struct pods_pod *pod, size_t container, struct error *error)
{
    struct pod_devices all = {0};
    size_t slot = 0;
    int result = find_slot(pod, container, &all, &slot, error);
    if (!result && !may_be_believed(allocation, pod)) {
        pod_devices_finish(&all);
        return error_set(error, EPERM, "its assignment is not proven (--require-proof)");
    }
    if (result)
        return result;
    if (record->limited)
        result = take_limits(allocation, record, &all.containers[slot], error);
    pod_devices_finish(&all);
    if (!result)
        record->slot = slot;
    return result;
}

void allocation_move_finish(struct allocation_move *move)
{
    free(move->pod_namespace);
    free(move->pod_name);
    free(move->pod_uid);
    free(move->devices);
}

int allocation_move_check(
    struct allocation *allocation, struct allocation_move *move, struct error *error)
{
    struct allocation_record *record = move->record;
    int result = record->unassigned ? 0 : allocation_check_room(allocation, record, error);
    if (!result)
        return 0;
    memcpy(record->devices, move->devices, record->device_count * sizeof(*record->devices));
    record->unassigned = true;
    return result;
}

int allocation_move(struct allocation *allocation, struct allocation_record *record,
    const struct pods_pod *pod, size_t container, struct allocation_move *ret_move,
    struct error *error)
{
    size_t bytes = record->device_count * sizeof(*record->devices);
    struct allocation_move move = {record, strdup(record->pod_namespace), strdup(record->pod_name),
        strdup(record->pod_uid), record->slot, !record->unassigned, malloc(bytes + 1)};
    int result = move.pod_namespace && move.pod_name && move.pod_uid && move.devices
                     ? take_names(record, pod, container)
                     : -ENOMEM;
    if (!result && bytes)
        memcpy(move.devices, record->devices, bytes);
    if (result) {
        allocation_move_finish(&move);
        return no_memory(error, "a record");
    }
    result = take_assignment(allocation, record, pod, container, error);
    record->unassigned = result != 0;
    record->sure = true;
    record->gone = false;
    /* The new Pod's is looked at when all have moved. */
    free(record->wish);
    record->wish = NULL;
    *ret_move = move;
    return result ? -EPERM : 0;
}
