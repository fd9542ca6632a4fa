/* SPDX-License-Identifier: Apache-2.0 */
/* Of Pods with equal limits any may get the devices of an Allocate, and so the cards that the
 * scheduler meant for another. Schedulers count by the annotation, so it is made to name the cards
 * that the Pod has. */
#include "node/allocation/allocation_parts.h"

#include <stdlib.h>
#include <string.h>

/* Whether they are the same cards, in any order. */
static bool is_same(
    const struct allocation_record *record, const struct pod_devices_container *told)
{
    for (size_t i = 0; i < told->count; i++) {
        const char *uuid = told->devices[i].uuid;
        size_t here = 0, there = 0;
        for (size_t k = 0; k < told->count; k++) {
            here += !strcmp(told->devices[k].uuid, uuid);
            there += !strcmp(record->devices[k].given.uuid, uuid);
        }
        if (here != there)
            return false;
    }
    return true;
}

char *allocation_actual(const struct allocation *allocation, const struct pods_pod *pod)
{
    struct pod_devices all;
    const struct allocation_record *record;
    bool differs = false;
    if (!pod->view.allocated || pod_devices_decode(pod->view.allocated, &all, NULL))
        return NULL;
    TAILQ_FOREACH(record, &allocation->records, entry)
    {
        if (!record->sure || record->failed || record->unassigned ||
            strcmp(record->pod_uid, pod->view.uid) != 0 || record->slot >= all.count ||
            all.containers[record->slot].count != record->device_count)
            continue;
        struct pod_devices_container *told = &all.containers[record->slot];
        if (is_same(record, told))
            continue;
        for (size_t i = 0; i < told->count; i++)
            told->devices[i] = record->devices[i].given;
        differs = true;
    }
    char *text = differs ? pod_devices_encode(&all) : NULL;
    pod_devices_finish(&all);
    return text;
}
