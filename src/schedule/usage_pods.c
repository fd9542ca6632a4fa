/* SPDX-License-Identifier: Apache-2.0 */
/* The Pods of usage.h. */
#include "schedule/usage_parts.h"

#include "schedule/table.h"

#include <errno.h>
#include <stdlib.h>
#include <string.h>

static int32_t find_device(const struct usage_node *node, const struct claim_share *share)
{
    for (size_t i = 0; i < node->count; i++)
        if (node->devices[i].hash == share->hash && !strcmp(node->uuids[i], share->uuid))
            return (int32_t)i;
    return -1;
}

static void add(struct usage_amounts *amounts, const struct claim_share *share, int64_t sign)
{
    amounts->memory += sign * share->memory_mib;
    amounts->cores += sign * share->cores_percent;
    amounts->slots += sign * share->slots;
}

void usage_pod_charge(struct usage_pod *pod)
{
    for (size_t i = 0; i < pod->count; i++) {
        struct usage_pod_share *share = &pod->shares[i];
        share->device = find_device(pod->node, &share->share);
        if (share->device < 0)
            continue;
        add(&pod->node->devices[share->device].used, &share->share, 1);
        add(&pod->node->used, &share->share, 1);
    }
}

void usage_pod_discharge(struct usage_pod *pod)
{
    for (size_t i = 0; i < pod->count; i++) {
        struct usage_pod_share *share = &pod->shares[i];
        if (share->device < 0)
            continue;
        add(&pod->node->devices[share->device].used, &share->share, -1);
        add(&pod->node->used, &share->share, -1);
        share->device = -1;
    }
}

void usage_pod_free(struct usage_pod *pod)
{
    free(pod->uid);
    free(pod->pod_namespace);
    free(pod->name);
    free(pod->devices);
    free(pod->mig);
    free(pod);
}

const struct usage_pod *usage_find_pod(const struct usage *usage, const char *uid)
{
    return table_get(usage->pods, uid);
}

static void take_out(struct usage *usage, struct usage_pod *pod)
{
    struct usage_node *node = pod->node;
    usage_pod_discharge(pod);
    pod->quota_entry->used.memory -= pod->quota.memory;
    pod->quota_entry->used.cores -= pod->quota.cores;
    quotas_release(usage->quotas, pod->quota_entry);
    if (pod->previous)
        pod->previous->next = pod->next;
    else
        node->pods = pod->next;
    if (pod->next)
        pod->next->previous = pod->previous;
    table_remove(usage->pods, pod->uid);
    usage_pod_free(pod);
    usage_node_drop_if_idle(usage, node);
}

static struct usage_pod *make_pod(const struct claim *claim)
{
    struct usage_pod *pod = calloc(1, sizeof(*pod) + claim->count * sizeof(pod->shares[0]));
    if (!pod)
        return NULL;
    pod->uid = strdup(claim->uid);
    pod->pod_namespace = strdup(claim->pod_namespace);
    pod->name = strdup(claim->name);
    pod->quota = claim->quota;
    pod->init_done = claim->init_done;
    pod->grouped = claim->grouped;
    pod->count = claim->count;
    for (size_t i = 0; i < claim->count; i++)
        pod->shares[i] = (struct usage_pod_share){claim->shares[i], -1};
    if (claim->asked)
        memcpy(pod->asked, claim->asked, sizeof(pod->asked));
    if (claim->devices)
        pod->devices = strdup(claim->devices);
    if (claim->mig)
        pod->mig = strdup(claim->mig);
    if (pod->uid && pod->pod_namespace && pod->name && (pod->devices || !claim->devices) &&
        (pod->mig || !claim->mig))
        return pod;
    usage_pod_free(pod);
    return NULL;
}

/* Instead of `old`, which may be NULL. */
static int put(struct usage *usage, struct usage_pod *old, const struct claim *claim,
    enum usage_state state, int64_t deadline_ns)
{
    struct usage_pod *pod = make_pod(claim);
    struct quota_namespace *quota = pod ? quotas_hold(usage->quotas, claim->pod_namespace) : NULL;
    struct usage_node *node = quota ? usage_node_entry(usage, claim->node) : NULL;
    if (!node || table_reserve(usage->pods)) {
        if (node)
            usage_node_drop_if_idle(usage, node);
        quotas_release(usage->quotas, quota);
        if (pod)
            usage_pod_free(pod);
        return -ENOMEM;
    }
    pod->node = node;
    pod->next = node->pods;
    if (pod->next)
        pod->next->previous = pod;
    node->pods = pod;
    if (old)
        take_out(usage, old);
    table_add_reserved(usage->pods, pod->uid, pod);
    pod->quota_entry = quota;
    quota->used.memory += pod->quota.memory;
    quota->used.cores += pod->quota.cores;
    pod->state = state;
    pod->deadline_ns = deadline_ns;
    pod->generation = ++usage->generation;
    usage_pod_charge(pod);
    return 0;
}

static bool is_pending(const struct usage_pod *pod)
{
    return pod->state == USAGE_RESERVED || pod->state == USAGE_BINDING || pod->state == USAGE_BOUND;
}

int usage_observe(struct usage *usage, const struct claim *claim, bool ended)
{
    struct usage_pod *old = table_get(usage->pods, claim->uid);
    if (old && (ended || (!claim->count && (claim->bound || !is_pending(old))))) {
        take_out(usage, old);
        return 0;
    }
    if (ended || !claim->count || !*claim->node || (old && is_pending(old) && !claim->bound))
        return 0;
    bool regrows = old && old->state == USAGE_OBSERVED && old->init_done && !claim->init_done &&
                   !strcmp(old->node->name, claim->node);
    if (!regrows)
        return put(usage, old, claim, claim->bound ? USAGE_OBSERVED : USAGE_NAMED,
            claim->bound ? 0 : claim->deadline_ns);
    old->generation = ++usage->generation;
    return 0;
}

/* What the Pod holds of the device now. */
static struct usage_amounts own_of(
    const struct usage_pod *pod, const struct usage_node *node, int32_t device)
{
    struct usage_amounts own = {0};
    for (size_t i = 0; pod && pod->node == node && i < pod->count; i++)
        if (pod->shares[i].device == device)
            add(&own, &pod->shares[i].share, 1);
    return own;
}

bool usage_has_room(const struct usage *usage, const struct claim *claim)
{
    const struct usage_node *node = usage_find_node(usage, claim->node);
    const struct usage_pod *pod = usage_find_pod(usage, claim->uid);
    const struct quota_namespace *entry = quotas_find(usage->quotas, claim->pod_namespace);
    struct quota_amount more = claim->quota;
    for (size_t i = 0; node && i < claim->count; i++) {
        const struct claim_share *share = &claim->shares[i];
        int32_t at = find_device(node, share);
        if (at < 0)
            return false;
        const struct usage_device *device = &node->devices[at];
        struct usage_amounts own = own_of(pod, node, at);
        if (device->used.memory - own.memory + share->memory_mib > device->total.memory ||
            device->used.cores - own.cores + share->cores_percent > device->total.cores ||
            device->used.slots - own.slots + share->slots > device->total.slots)
            return false;
    }
    more.memory -= pod ? pod->quota.memory : 0;
    more.cores -= pod ? pod->quota.cores : 0;
    return node && quota_fits(quota_left(entry), more);
}

void usage_remove_pod(struct usage *usage, const char *uid)
{
    struct usage_pod *pod = table_get(usage->pods, uid);
    if (pod)
        take_out(usage, pod);
}

int usage_reserve(
    struct usage *usage, const struct claim *claim, int64_t deadline_ns, uint64_t *ret_generation)
{
    struct usage_pod *old = table_get(usage->pods, claim->uid);
    if (old && old->state != USAGE_RESERVED && old->state != USAGE_NAMED)
        return -EEXIST;
    int result = put(usage, old, claim, USAGE_RESERVED, deadline_ns);
    if (!result)
        *ret_generation = usage->generation;
    return result;
}

bool usage_hold(struct usage *usage, const char *uid, uint64_t generation)
{
    struct usage_pod *pod = table_get(usage->pods, uid);
    if (!pod || pod->generation != generation || pod->state != USAGE_RESERVED)
        return false;
    pod->state = USAGE_BINDING;
    return true;
}

void usage_let(struct usage *usage, const char *uid, uint64_t generation)
{
    struct usage_pod *pod = table_get(usage->pods, uid);
    if (pod && pod->generation == generation && pod->state == USAGE_BINDING)
        pod->state = USAGE_RESERVED;
}

static int carry_pod(struct usage *usage, const struct usage_pod *pod, int64_t deadline_ns)
{
    struct claim claim = {.uid = pod->uid,
        .pod_namespace = pod->pod_namespace,
        .name = pod->name,
        .node = pod->node->name,
        .shares = calloc(pod->count + 1, sizeof(*claim.shares)),
        .count = pod->count,
        .quota = pod->quota,
        .init_done = pod->init_done,
        .grouped = pod->grouped,
        .mig = pod->mig,
        .asked = pod->asked,
        .devices = pod->devices};
    for (size_t i = 0; claim.shares && i < pod->count; i++)
        claim.shares[i] = pod->shares[i].share;
    int result = claim.shares ? put(usage, table_get(usage->pods, pod->uid), &claim, USAGE_BOUND,
                                    deadline_ns)
                              : -ENOMEM;
    claim_finish(&claim);
    return result;
}

int usage_carry(struct usage *usage, const struct usage *from, int64_t deadline_ns)
{
    const struct usage_pod *pod;
    int result = 0;
    for (size_t cursor = 0; !result && (pod = table_next(from->pods, &cursor));)
        if (pod->state == USAGE_BINDING || pod->state == USAGE_BOUND)
            result = carry_pod(usage, pod, deadline_ns);
    return result;
}

bool usage_bind(struct usage *usage, const char *uid, uint64_t generation, int64_t deadline_ns)
{
    struct usage_pod *pod = table_get(usage->pods, uid);
    if (!pod || pod->generation != generation ||
        (pod->state != USAGE_RESERVED && pod->state != USAGE_BINDING))
        return false;
    pod->state = USAGE_BOUND;
    pod->deadline_ns = deadline_ns;
    return true;
}

void usage_cancel(struct usage *usage, const char *uid, uint64_t generation)
{
    struct usage_pod *pod = table_get(usage->pods, uid);
    if (pod && pod->generation == generation && is_pending(pod))
        take_out(usage, pod);
}

static bool is_over(const struct usage_pod *pod, int64_t now_ns)
{
    bool ends = pod->state == USAGE_RESERVED || (pod->state == USAGE_NAMED && pod->deadline_ns);
    return ends && pod->deadline_ns <= now_ns;
}

size_t usage_expire(struct usage *usage, int64_t now_ns)
{
    struct usage_pod **over = calloc(usage->pods->count + 1, sizeof(struct usage_pod *)), *pod;
    size_t count = 0;
    if (!over)
        return 0;
    for (size_t cursor = 0; (pod = table_next(usage->pods, &cursor));)
        if (is_over(pod, now_ns))
            over[count++] = pod;
    for (size_t i = 0; i < count; i++)
        take_out(usage, over[i]);
    free(over);
    return count;
}

const struct usage_pod *usage_find_overdue(const struct usage *usage, int64_t now_ns)
{
    const struct usage_pod *pod;
    for (size_t cursor = 0; (pod = table_next(usage->pods, &cursor));)
        if (pod->state == USAGE_BOUND && pod->deadline_ns <= now_ns)
            return pod;
    return NULL;
}
