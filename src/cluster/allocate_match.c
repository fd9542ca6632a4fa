/* SPDX-License-Identifier: Apache-2.0 */
#include "cluster/allocate_match.h"

#include "codec/no_memory.h"

#include <errno.h>
#include <stdlib.h>
#include <string.h>

/* The slots as the scheduler wrote them: `all`, unless it does not have those that are left. */
static const struct pod_devices *choose_slots(
    const struct pod_devices *all, const struct pod_devices *left)
{
    for (size_t i = 0; i < left->count; i++)
        if (left->containers[i].count && (i >= all->count || !all->containers[i].count))
            return left;
    return all;
}

/* Whether each slot in use lies at a container that asks for devices. */
static bool is_positional(const struct pod_view *pod, const struct pod_devices *slots)
{
    for (size_t i = 0; i < slots->count; i++)
        if (slots->containers[i].count && (i >= pod->container_count || !pod->containers[i].asked))
            return false;
    return true;
}

/* The container of a slot, or container_count. */
static size_t find_container(
    const struct pod_view *pod, const struct pod_devices *slots, size_t slot)
{
    if (is_positional(pod, slots) || pod_devices_used(slots) != pod_view_asking(pod))
        return slot < pod->container_count ? slot : pod->container_count;
    size_t rank = 0, container = 0;
    for (size_t i = 0; i < slot; i++)
        rank += slots->containers[i].count > 0;
    for (; container < pod->container_count; container++)
        if (pod->containers[container].asked && !rank--)
            break;
    return container;
}

static int match_slots(const struct pod_view *pod, const struct pod_devices *all,
    const struct pod_devices *left, const struct allocate_request *requests, size_t request_count,
    struct allocate_step *ret_steps, struct error *error)
{
    const struct pod_devices *slots = choose_slots(all, left);
    size_t slot = 0;
    for (size_t r = 0; r < request_count; r++, slot++) {
        while (slot < left->count && !left->containers[slot].count)
            slot++;
        if (slot == left->count)
            return error_set(error, ENOENT, "Pod %s/%s: no pending device allocation found",
                pod->pod_namespace, pod->name);
        if (left->containers[slot].count != requests[r].count)
            return error_set(error, EPROTO,
                "Pod %s/%s: device number not matched: kubelet asks for %zu, the annotation has "
                "%zu",
                pod->pod_namespace, pod->name, requests[r].count, left->containers[slot].count);
        size_t container = find_container(pod, slots, slot);
        if (container == pod->container_count)
            return error_set(error, EINVAL,
                "Pod %s/%s: the annotation has devices for container %zu, the Pod has %zu",
                pod->pod_namespace, pod->name, slot, pod->container_count);
        ret_steps[r] = (struct allocate_step){slot, container};
    }
    return 0;
}

int allocate_match(const struct pod_view *pod, const struct pod_devices *left,
    const struct allocate_request *requests, size_t request_count, struct allocate_step *ret_steps,
    struct error *error)
{
    struct pod_devices all = {0};
    /* One that cannot be read is as good as none. */
    if (pod->allocated && pod_devices_decode(pod->allocated, &all, NULL))
        all = (struct pod_devices){0};
    int result = match_slots(pod, &all, left, requests, request_count, ret_steps, error);
    pod_devices_finish(&all);
    return result;
}

int allocate_follow_kubelet(
    struct pod_device *devices, const struct allocate_request *request, struct error *error)
{
    size_t count = request->count;
    struct pod_device *given = calloc(count + 1, sizeof(*given));
    bool *used = calloc(count + 1, sizeof(*used)), *known = calloc(count + 1, sizeof(*known));
    int result = given && used && known ? 0 : no_memory(error, "device IDs");
    for (size_t i = 0; !result && i < count; i++) {
        if (device_id_physical(request->ids[i], given[i].uuid))
            result =
                error_set(error, EINVAL, "device ID \"%.40s...\" is too long", request->ids[i]);
        for (size_t k = 0; !result && k < count && !known[i]; k++) {
            if (used[k] || strcmp(devices[k].uuid, given[i].uuid) != 0)
                continue;
            given[i] = devices[k];
            used[k] = known[i] = true;
        }
    }
    for (size_t i = 0, k = 0; !result && i < count; i++) {
        if (known[i])
            continue;
        while (used[k])
            k++;
        used[k] = true;
        memcpy(given[i].type, devices[k].type, sizeof(given[i].type));
        given[i].memory_mib = devices[k].memory_mib;
        given[i].cores_percent = devices[k].cores_percent;
    }
    if (!result)
        memcpy(devices, given, count * sizeof(*given));
    free(given);
    free(used);
    free(known);
    return result;
}
