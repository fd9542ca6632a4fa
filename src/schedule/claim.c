/* SPDX-License-Identifier: Apache-2.0 */
#include "schedule/claim.h"

#include "codec/no_memory.h"
#include "cluster/pod_view.h"
#include "schedule/table.h"

#include <errno.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

struct amounts {
    int64_t memory, cores, slots;
};

/* Of one device, or of all together. */
struct moments {
    struct amounts running; /* the sidecars and containers so far */
    struct amounts own;     /* the container that is being looked at */
    struct amounts worst;   /* of the init containers so far, each beside the sidecars before it */
};

static int64_t larger(int64_t a, int64_t b)
{
    return a > b ? a : b;
}

static void add(struct amounts *to, const struct amounts *more)
{
    to->memory += more->memory;
    to->cores += more->cores;
    to->slots += more->slots;
}

static void raise_to(struct amounts *to, const struct amounts *other)
{
    to->memory = larger(to->memory, other->memory);
    to->cores = larger(to->cores, other->cores);
    to->slots = larger(to->slots, other->slots);
}

/* The container that was looked at has been read to its end. */
static void end_container(struct moments *moments, enum ask_kind kind)
{
    struct amounts beside = moments->running;
    add(&beside, &moments->own);
    if (kind == ASK_INIT)
        raise_to(&moments->worst, &beside);
    else
        moments->running = beside;
    moments->own = (struct amounts){0};
}

struct collapse {
    struct claim_share *shares;
    struct moments *moments; /* a share each */
    struct moments total;
    size_t count;
};

static struct moments *moments_of(struct collapse *collapse, const char *uuid)
{
    uint64_t hash = table_hash(uuid);
    size_t at = 0;
    while (at < collapse->count &&
           (collapse->shares[at].hash != hash || strcmp(collapse->shares[at].uuid, uuid) != 0))
        at++;
    if (at == collapse->count) {
        struct claim_share *share = &collapse->shares[collapse->count++];
        snprintf(share->uuid, sizeof(share->uuid), "%s", uuid);
        share->hash = hash;
    }
    return &collapse->moments[at];
}

static void collapse_container(
    struct collapse *collapse, const struct pod_devices_container *container, enum ask_kind kind)
{
    for (size_t i = 0; i < container->count; i++) {
        const struct pod_device *device = &container->devices[i];
        const struct amounts amounts = {device->memory_mib, device->cores_percent, 1};
        add(&moments_of(collapse, device->uuid)->own, &amounts);
        add(&collapse->total.own, &amounts);
    }
    for (size_t i = 0; i < container->count; i++)
        end_container(moments_of(collapse, container->devices[i].uuid), kind);
    end_container(&collapse->total, kind);
}

static size_t count_devices(const struct pod_devices *devices)
{
    size_t count = 0;
    for (size_t i = 0; i < devices->count; i++)
        count += devices->containers[i].count;
    return count;
}

/* `kinds` has one entry for each of the places. */
static int collapse_devices(
    const struct pod_devices *devices, const enum ask_kind *kinds, struct claim *claim)
{
    size_t most = count_devices(devices);
    struct collapse collapse = {calloc(most + 1, sizeof(*collapse.shares)),
        calloc(most + 1, sizeof(*collapse.moments)), {{0}, {0}, {0}}, 0};
    if (!collapse.shares || !collapse.moments) {
        free(collapse.shares);
        free(collapse.moments);
        return -ENOMEM;
    }
    for (size_t i = 0; i < devices->count; i++)
        if (!claim->init_done || kinds[i] != ASK_INIT)
            collapse_container(&collapse, &devices->containers[i], kinds[i]);
    for (size_t i = 0; i < collapse.count; i++) {
        struct amounts held = collapse.moments[i].running;
        raise_to(&held, &collapse.moments[i].worst);
        collapse.shares[i].memory_mib = held.memory;
        collapse.shares[i].cores_percent = held.cores;
        collapse.shares[i].slots = (int32_t)held.slots;
    }
    raise_to(&collapse.total.running, &collapse.total.worst);
    claim->quota =
        (struct quota_amount){collapse.total.running.memory, collapse.total.running.cores};
    claim->shares = collapse.shares;
    claim->count = collapse.count;
    free(collapse.moments);
    return 0;
}

static const char *text_of(const json_t *object, const char *key)
{
    const char *text = json_string_value(json_object_get(object, key));
    return text ? text : "";
}

static bool has_ended_well(const json_t *statuses, const char *name)
{
    for (size_t i = 0; i < json_array_size(statuses); i++) {
        const json_t *status = json_array_get(statuses, i);
        const json_t *state = json_object_get(json_object_get(status, "state"), "terminated");
        const json_t *code = json_object_get(state, "exitCode");
        if (!strcmp(text_of(status, "name"), name))
            return json_is_integer(code) && json_integer_value(code) == 0;
    }
    return false;
}

static bool are_init_containers_done(const json_t *pod, const enum ask_kind *kinds, size_t count)
{
    const json_t *statuses =
        json_object_get(json_object_get(pod, "status"), "initContainerStatuses");
    for (size_t i = 0; i < count; i++)
        if (kinds[i] == ASK_INIT &&
            !has_ended_well(statuses, text_of(ask_container_at(pod, i), "name")))
            return false;
    return true;
}

/* Places that do not stand for the Pod's containers one by one. */
static void guess_kinds(const json_t *pod, const struct request_config *config,
    const struct pod_devices *devices, enum ask_kind *kinds, size_t count)
{
    enum ask_kind asking[POD_DEVICES_CONTAINERS_MAX] = {ASK_INIT};
    size_t asked = 0, used = pod_devices_used(devices);
    for (size_t i = 0; i < count; i++) {
        const json_t *resources = json_object_get(ask_container_at(pod, i), "resources");
        if (request_parse(config, resources).count)
            asking[asked++] = kinds[i];
    }
    for (size_t i = 0, at = 0; i < devices->count; i++) {
        bool counts = devices->containers[i].count > 0;
        kinds[i] = counts && asked == used ? asking[at] : ASK_APP;
        at += counts;
    }
}

static int read_devices(const json_t *pod, const char *text, const struct request_config *config,
    struct claim *claim, struct error *error)
{
    enum ask_kind kinds[POD_DEVICES_CONTAINERS_MAX];
    struct pod_devices devices;
    int result = pod_devices_decode(text, &devices, error);
    if (result)
        return result;
    int count = ask_kinds(pod, kinds, POD_DEVICES_CONTAINERS_MAX);
    if (count < 0) {
        pod_devices_finish(&devices);
        return error_set(error, EINVAL, "more than %d containers", POD_DEVICES_CONTAINERS_MAX);
    }
    claim->init_done = are_init_containers_done(pod, kinds, (size_t)count);
    if ((size_t)count != devices.count)
        guess_kinds(pod, config, &devices, kinds, (size_t)count);
    result = collapse_devices(&devices, kinds, claim);
    pod_devices_finish(&devices);
    return result ? no_memory(error, "the Pod's devices") : 0;
}

int claim_read(const json_t *pod, const struct request_config *config, struct claim *ret_claim,
    struct error *error)
{
    const json_t *metadata = json_object_get(pod, "metadata");
    const json_t *annotations = json_object_get(metadata, "annotations");
    const char *phase = text_of(json_object_get(pod, "status"), "phase");
    const char *text = json_string_value(json_object_get(annotations, POD_ANNOTATION_ALLOCATED));
    struct claim claim = {
        .uid = text_of(metadata, "uid"),
        .pod_namespace = text_of(metadata, "namespace"),
        .name = text_of(metadata, "name"),
        .node = text_of(json_object_get(pod, "spec"), "nodeName"),
    };
    claim.bound = *claim.node;
    claim.mig = json_string_value(json_object_get(annotations, CLAIM_MIG_ANNOTATION));
    if (!claim.bound)
        claim.node = text_of(annotations, POD_ANNOTATION_NODE);
    int result = 0;
    if (text && strcmp(phase, "Succeeded") != 0 && strcmp(phase, "Failed") != 0)
        result = read_devices(pod, text, config, &claim, error);
    *ret_claim = claim;
    return result;
}

int claim_make(const struct ask *ask, const char *node, const struct pod_devices *devices,
    struct claim *ret_claim)
{
    enum ask_kind kinds[POD_DEVICES_CONTAINERS_MAX];
    struct claim claim = {
        .uid = ask->uid,
        .pod_namespace = ask->pod_namespace,
        .name = ask->name,
        .node = node,
        .grouped = ask->grouped,
        .asked = ask->digest,
    };
    for (size_t i = 0; i < devices->count; i++)
        kinds[i] = i < ask->count ? ask->containers[i].kind : ASK_APP;
    int result = collapse_devices(devices, kinds, &claim);
    if (!result)
        *ret_claim = claim;
    return result;
}

void claim_finish(struct claim *claim)
{
    free(claim->shares);
    claim->shares = NULL;
    claim->count = 0;
}
