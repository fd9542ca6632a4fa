/* SPDX-License-Identifier: Apache-2.0 */
#include "node/monitor/pod_names.h"

#include "base/clock.h"
#include "codec/json_read.h"
#include "kube/object.h"
#include "kube/watch.h"
#include "net/log_line.h"

#include <errno.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#define SELECTOR_BYTES 512

struct pod_names {
    struct kube_watch *watch;
    char *node_name;
    struct pod_names_pod **pods; /* by UID */
    size_t count, room;
    bool synced, troubled;
    bool incomplete;   /* there was no memory for one */
    uint64_t since_ns; /* of pod_names_known_ns */
};

static void destroy_pod(struct pod_names_pod *pod)
{
    if (!pod)
        return;
    for (size_t i = 0; i < pod->container_count; i++)
        free(pod->containers[i]);
    free(pod->containers);
    free(pod->migs);
    free(pod->uid);
    free(pod->namespace_name);
    free(pod->name);
    free(pod);
}

/* ---- reading a Pod ---- */

static bool take_container(struct pod_names_pod *pod, const json_t *container)
{
    const char *name = object_string(container, "name", NULL);
    pod->containers[pod->container_count] = strdup(name ? name : "");
    return pod->containers[pod->container_count++];
}

static bool take_containers(struct pod_names_pod *pod, const json_t *object)
{
    static const enum object_container_kind kinds[] = {OBJECT_INIT_CONTAINERS, OBJECT_CONTAINERS};
    size_t all =
        object_container_count(object, kinds[0]) + object_container_count(object, kinds[1]);
    pod->containers = calloc(all + 1, sizeof(*pod->containers));
    for (size_t k = 0; pod->containers && k < sizeof(kinds) / sizeof(kinds[0]); k++)
        for (size_t i = 0; i < object_container_count(object, kinds[k]); i++)
            if (!take_container(pod, object_container(object, kinds[k], i)))
                return false;
    return pod->containers;
}

/* One that has no instance yet is none: 1. */
static int take_mig(struct pod_names_pod *pod, const json_t *item, struct error *error)
{
    static const char what[] = POD_NAMES_MIG_ANNOTATION;
    struct pod_names_mig *mig = &pod->migs[pod->mig_count];
    int64_t container = -1, device = 0, gpu = -1, compute = -1;
    *mig = (struct pod_names_mig){.container = NULL};
    if (json_read_int(what, item, "containerIndex", 0, INT32_MAX, &container, error) ||
        json_read_int(what, item, "deviceIndex", 0, INT32_MAX, &device, error) ||
        json_read_int(what, item, "gpuInstanceID", 0, INT32_MAX, &gpu, error) ||
        json_read_int(what, item, "computeInstanceID", 0, INT32_MAX, &compute, error) ||
        json_read_string(what, item, "gpuUUID", mig->gpu_uuid, sizeof(mig->gpu_uuid), error) ||
        json_read_string(what, item, "migUUID", mig->mig_uuid, sizeof(mig->mig_uuid), error) ||
        json_read_string(what, item, "profile", mig->profile, sizeof(mig->profile), error))
        return -EINVAL;
    if (container < 0 || (size_t)container >= pod->container_count)
        return error_set(error, EINVAL, "%s: containerIndex %lld: the Pod has %zu containers", what,
            (long long)container, pod->container_count);
    mig->container = pod->containers[container];
    mig->device_index = (uint64_t)device;
    mig->gpu_instance = (uint64_t)gpu;
    mig->compute_instance = (uint64_t)compute;
    return !*mig->mig_uuid || gpu < 0 || compute < 0;
}

/* An annotation that is not understood is one line, and the Pod has no MIG devices. */
static void take_migs(struct pod_names_pod *pod, const json_t *object)
{
    const char *text = object_annotation(object, POD_NAMES_MIG_ANNOTATION);
    struct error error = {.code = 0};
    if (!text)
        return;
    json_t *list = json_loads(text, 0, NULL);
    size_t count = json_array_size(list);
    int result = json_is_array(list) && count <= POD_NAMES_MIG_MAX
                     ? 0
                     : error_set(&error, EINVAL, "%s is not a list of at most %d devices",
                           POD_NAMES_MIG_ANNOTATION, POD_NAMES_MIG_MAX);
    pod->migs = result ? NULL : calloc(count + 1, sizeof(*pod->migs));
    for (size_t i = 0; pod->migs && result >= 0 && i < count; i++) {
        result = take_mig(pod, json_array_get(list, i), &error);
        pod->mig_count += result == 0;
    }
    if (result < 0) {
        pod->mig_count = 0;
        log_line(LOG_LINE_WARNING, "pods: %s/%s: %s", pod->namespace_name, pod->name, error.text);
    }
    json_decref(list);
}

static struct pod_names_pod *read_pod(const struct pod_names *names, const json_t *object)
{
    const char *label = object_label(object, POD_NAMES_NODE_LABEL);
    struct pod_names_pod *pod = calloc(1, sizeof(*pod));
    if (!pod)
        return NULL;
    pod->uid = strdup(object_uid(object));
    pod->namespace_name = strdup(object_namespace(object));
    pod->name = strdup(object_name(object));
    pod->labelled = label && !strcmp(label, names->node_name);
    if (!pod->uid || !pod->namespace_name || !pod->name || !take_containers(pod, object)) {
        destroy_pod(pod);
        return NULL;
    }
    take_migs(pod, object);
    return pod;
}

/* ---- the list ---- */

/* The place of the UID, or where it would be. */
static size_t place_of(const struct pod_names *names, const char *uid, bool *ret_there)
{
    size_t low = 0, high = names->count;
    while (low < high) {
        size_t middle = low + (high - low) / 2;
        if (strcmp(names->pods[middle]->uid, uid) < 0)
            low = middle + 1;
        else
            high = middle;
    }
    *ret_there = low < names->count && !strcmp(names->pods[low]->uid, uid);
    return low;
}

static void remove_pod(struct pod_names *names, const char *uid)
{
    bool there;
    size_t place = place_of(names, uid, &there);
    if (!there)
        return;
    destroy_pod(names->pods[place]);
    memmove(&names->pods[place], &names->pods[place + 1],
        (--names->count - place) * sizeof(struct pod_names_pod *));
}

static bool add_pod(struct pod_names *names, struct pod_names_pod *pod)
{
    bool there;
    remove_pod(names, pod->uid);
    if (names->count == names->room) {
        size_t room = names->room ? 2 * names->room : 64;
        struct pod_names_pod **pods = realloc(names->pods, room * sizeof(struct pod_names_pod *));
        if (!pods)
            return false;
        names->pods = pods;
        names->room = room;
    }
    size_t place = place_of(names, pod->uid, &there);
    memmove(&names->pods[place + 1], &names->pods[place],
        (names->count++ - place) * sizeof(struct pod_names_pod *));
    names->pods[place] = pod;
    return true;
}

/* Without memory for a Pod nothing may be taken for gone any more. */
static void on_change(void *context, enum kube_watch_change change, const json_t *object)
{
    struct pod_names *names = context;
    if (change == KUBE_WATCH_DELETED) {
        remove_pod(names, object_uid(object));
        return;
    }
    struct pod_names_pod *pod = read_pod(names, object);
    if (pod && add_pod(names, pod))
        return;
    destroy_pod(pod);
    names->incomplete = true;
    log_line(LOG_LINE_ERROR, "pods: no memory for a Pod");
}

static void on_synced(void *context)
{
    struct pod_names *names = context;
    names->synced = true;
    names->since_ns = clock_now_ns();
    log_line(LOG_LINE_DEBUG, "pods: %zu on this node", names->count);
}

static void on_trouble(void *context, const char *text)
{
    struct pod_names *names = context;
    names->troubled = true;
    log_line(LOG_LINE_WARNING, "pods: %s; no directory is removed meanwhile", text);
}

static void on_back(void *context)
{
    struct pod_names *names = context;
    names->troubled = false;
    names->since_ns = clock_now_ns();
    log_line(LOG_LINE_INFO, "pods: the node's Pods are followed again");
}

struct pod_names *pod_names_create(
    struct kube_client *client, const char *node_name, struct error *error)
{
    struct pod_names *names = calloc(1, sizeof(*names));
    char selector[SELECTOR_BYTES];
    snprintf(selector, sizeof(selector), "spec.nodeName=%s", node_name);
    const struct kube_watch_options options = {.path = "/api/v1/pods",
        .field_selector = selector,
        .page_objects = 20,
        .on_change = on_change,
        .on_synced = on_synced,
        .on_trouble = on_trouble,
        .on_back = on_back,
        .context = names};
    if (names)
        names->node_name = strdup(node_name);
    if (names && names->node_name)
        names->watch = kube_watch_create(client, &options, error);
    else
        error_set(error, ENOMEM, "no memory for the node's Pods");
    if (names && names->watch)
        return names;
    pod_names_destroy(names);
    return NULL;
}

void pod_names_destroy(struct pod_names *names)
{
    if (!names)
        return;
    kube_watch_destroy(names->watch);
    for (size_t i = 0; i < names->count; i++)
        destroy_pod(names->pods[i]);
    free(names->pods);
    free(names->node_name);
    free(names);
}

const struct pod_names_pod *pod_names_find(const struct pod_names *names, const char *uid)
{
    bool there;
    size_t place = place_of(names, uid, &there);
    return there ? names->pods[place] : NULL;
}

const char *pod_names_container(const struct pod_names_pod *pod, const char *container)
{
    for (size_t i = 0; i < pod->container_count; i++)
        if (!strcmp(pod->containers[i], container))
            return pod->containers[i];
    return NULL;
}

const struct pod_names_pod *pod_names_at(const struct pod_names *names, size_t at)
{
    return at < names->count ? names->pods[at] : NULL;
}

uint64_t pod_names_known_ns(const struct pod_names *names, uint64_t now_ns)
{
    return names->synced && !names->troubled && !names->incomplete ? now_ns - names->since_ns : 0;
}
