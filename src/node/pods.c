/* SPDX-License-Identifier: Apache-2.0 */
#include "node/pods.h"

#include "cluster/node_lock.h"
#include "codec/number.h"
#include "kube/object.h"
#include "kube/watch.h"
#include "net/log_line.h"

#include <errno.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

struct pods {
    const struct request_config *request;
    struct kube_watch *watch, *node_watch;
    struct pods_pod **list;
    size_t count, room;
    bool known;
    char *lock, *node_version;
    LIST_HEAD(, pods_listener) listeners;
};

#define TEXTS_MAX 14

/* Where the texts of a Pod are, besides its containers' names. */
static void list_texts(struct pods_pod *pod, const char **texts[TEXTS_MAX])
{
    struct pod_view *view = &pod->view;
    const char **const all[TEXTS_MAX] = {&view->pod_namespace, &view->name, &view->uid,
        &view->node_name, &view->phase, &view->assigned_node, &view->to_allocate, &view->allocated,
        &view->bind_phase, &view->bind_time, &view->proof, &pod->limits, &pod->limits_proof,
        &pod->version};
    memcpy(texts, all, sizeof(all));
}

static void copy_text(const char **text, char **at)
{
    if (!*text)
        return;
    size_t bytes = strlen(*text) + 1;
    memcpy(*at, *text, bytes);
    *text = *at;
    *at += bytes;
}

/* Makes the texts the Pod's own, in one block. */
static bool keep_texts(struct pods_pod *pod)
{
    const char **texts[TEXTS_MAX];
    size_t bytes = 1;
    list_texts(pod, texts);
    for (size_t i = 0; i < TEXTS_MAX; i++)
        bytes += *texts[i] ? strlen(*texts[i]) + 1 : 0;
    for (size_t i = 0; i < pod->view.container_count; i++)
        bytes += strlen(pod->view.containers[i].name) + 1;
    char *at = pod->texts = malloc(bytes);
    for (size_t i = 0; at && i < TEXTS_MAX; i++)
        copy_text(texts[i], &at);
    for (size_t i = 0; at && i < pod->view.container_count; i++)
        copy_text(&pod->view.containers[i].name, &at);
    return pod->texts != NULL;
}

static const char *bounded(
    const struct pods_pod *pod, const char *name, const char *text, size_t max)
{
    if (!text || strnlen(text, max) < max)
        return text;
    log_line(LOG_LINE_WARNING, "pods: %s/%s: annotation %s has more than %zu bytes; it is not used",
        pod->view.pod_namespace, pod->view.name, name, max);
    return NULL;
}

static struct pods_priority read_priority(const json_t *container)
{
    const json_t *list = object_get(container, "env", NULL);
    struct pods_priority priority = {0};
    for (size_t i = 0; i < json_array_size(list); i++) {
        const json_t *variable = json_array_get(list, i);
        const char *name = object_string(variable, "name", NULL);
        const char *value = object_string(variable, "value", NULL);
        int64_t level;
        if (name && value && !strcmp(name, "CUDA_TASK_PRIORITY") &&
            !number_parse(value, strlen(value), 0, INT32_MAX, &level))
            priority = (struct pods_priority){true, (uint32_t)level};
    }
    return priority;
}

/* In the order of the view. */
static bool read_priorities(struct pods_pod *pod, const json_t *object)
{
    const json_t *lists[2] = {object_get(object, "spec", "initContainers", NULL),
        object_get(object, "spec", "containers", NULL)};
    size_t at = 0;
    pod->priorities = calloc(pod->view.container_count + 1, sizeof(*pod->priorities));
    for (size_t l = 0; pod->priorities && l < 2; l++)
        for (size_t i = 0; i < json_array_size(lists[l]) && at < pod->view.container_count; i++)
            pod->priorities[at++] = read_priority(json_array_get(lists[l], i));
    return pod->priorities != NULL;
}

static bool has_ended_well(const json_t *statuses, const char *name)
{
    for (size_t i = 0; i < json_array_size(statuses); i++) {
        const json_t *status = json_array_get(statuses, i);
        const json_t *code = object_get(status, "state", "terminated", "exitCode", NULL);
        const char *of = object_string(status, "name", NULL);
        if (of && !strcmp(of, name))
            return json_is_integer(code) && json_integer_value(code) == 0;
    }
    return false;
}

static bool are_init_containers_done(const struct pod_view *view, const json_t *object)
{
    const json_t *statuses = object_get(object, "status", "initContainerStatuses", NULL);
    size_t count = 0;
    for (size_t i = 0; i < view->container_count; i++) {
        const struct pod_container *container = &view->containers[i];
        if (!container->init || container->sidecar)
            continue;
        if (!has_ended_well(statuses, container->name))
            return false;
        count++;
    }
    return count > 0;
}

struct pods_pod *pods_read(const struct request_config *request, const json_t *object)
{
    struct pods_pod *pod = calloc(1, sizeof(*pod));
    struct error error = {.text = "no memory"};
    if (!pod || pod_view_read(object, request, &pod->view, &error)) {
        log_line(LOG_LINE_WARNING, "pods: %s", error.text);
        free(pod);
        return NULL;
    }
    struct pod_view *view = &pod->view;
    view->to_allocate =
        bounded(pod, POD_ANNOTATION_TO_ALLOCATE, view->to_allocate, PODS_DEVICES_BYTES_MAX);
    view->allocated =
        bounded(pod, POD_ANNOTATION_ALLOCATED, view->allocated, PODS_DEVICES_BYTES_MAX);
    view->assigned_node =
        bounded(pod, POD_ANNOTATION_NODE, view->assigned_node, PODS_LIMITS_BYTES_MAX);
    view->bind_phase =
        bounded(pod, POD_ANNOTATION_BIND_PHASE, view->bind_phase, PODS_LIMITS_BYTES_MAX);
    view->bind_time =
        bounded(pod, POD_ANNOTATION_BIND_TIME, view->bind_time, PODS_LIMITS_BYTES_MAX);
    view->proof = bounded(pod, POD_ANNOTATION_PROOF, view->proof, PODS_LIMITS_BYTES_MAX);
    pod->limits = bounded(pod, POD_ANNOTATION_LIMITS,
        object_annotation(object, POD_ANNOTATION_LIMITS), PODS_LIMITS_BYTES_MAX);
    pod->limits_proof = bounded(pod, POD_ANNOTATION_LIMITS_PROOF,
        object_annotation(object, POD_ANNOTATION_LIMITS_PROOF), PODS_LIMITS_BYTES_MAX);
    pod->version = object_resource_version(object);
    pod->init_done = are_init_containers_done(view, object);
    if (!keep_texts(pod) || !read_priorities(pod, object)) {
        pods_pod_destroy(pod);
        return NULL;
    }
    return pod;
}

void pods_pod_destroy(struct pods_pod *pod)
{
    if (!pod)
        return;
    pod_view_finish(&pod->view);
    free(pod->priorities);
    free(pod->texts);
    free(pod);
}

/* Versions of one collection are numbers that grow (Kubernetes 1.35 promises it; all servers before
 * do it). What is no number counts as newer. */
static bool is_older(const char *version, const char *than)
{
    size_t length = strlen(version), other = strlen(than);
    if (!length || !other || strspn(version, "0123456789") != length ||
        strspn(than, "0123456789") != other)
        return false;
    return length != other ? length < other : strcmp(version, than) < 0;
}

static size_t find_at(const struct pods *pods, const char *uid)
{
    size_t at = 0;
    while (at < pods->count && strcmp(pods->list[at]->view.uid, uid) != 0)
        at++;
    return at;
}

const struct pods_pod *pods_find(const struct pods *pods, const char *uid)
{
    size_t at = find_at(pods, uid);
    return at < pods->count ? pods->list[at] : NULL;
}

const struct pods_pod *pods_find_name(
    const struct pods *pods, const char *pod_namespace, const char *name)
{
    for (size_t i = 0; i < pods->count; i++)
        if (!strcmp(pods->list[i]->view.name, name) &&
            !strcmp(pods->list[i]->view.pod_namespace, pod_namespace))
            return pods->list[i];
    return NULL;
}

const struct pods_pod *const *pods_all(const struct pods *pods, size_t *ret_count)
{
    *ret_count = pods->count;
    return (const struct pods_pod *const *)pods->list;
}

bool pods_are_known(const struct pods *pods)
{
    return pods->known;
}

const char *pods_lock(const struct pods *pods)
{
    return pods->lock;
}

void pods_listen(struct pods *pods, struct pods_listener *listener)
{
    LIST_INSERT_HEAD(&pods->listeners, listener, entry);
}

static void tell_pod(struct pods *pods, const struct pods_pod *pod, bool gone)
{
    struct pods_listener *listener;
    LIST_FOREACH(listener, &pods->listeners, entry)
    if (listener->on_pod)
        listener->on_pod(listener->context, pod, gone);
}

static void remove_pod(struct pods *pods, const char *uid)
{
    size_t at = find_at(pods, uid);
    if (at == pods->count)
        return;
    struct pods_pod *pod = pods->list[at];
    pods->list[at] = pods->list[--pods->count];
    tell_pod(pods, pod, true);
    pods_pod_destroy(pod);
}

/* Takes the Pod's ownership. */
static void put_pod(struct pods *pods, struct pods_pod *pod)
{
    size_t at = find_at(pods, pod->view.uid);
    if (at < pods->count) {
        if (is_older(pod->version, pods->list[at]->version)) {
            pods_pod_destroy(pod);
            return;
        }
        pods_pod_destroy(pods->list[at]);
        pods->list[at] = pod;
    } else {
        if (pods->count == pods->room) {
            size_t room = pods->room ? 2 * pods->room : 32;
            struct pods_pod **grown = reallocarray(pods->list, room, sizeof(struct pods_pod *));
            if (!grown) {
                log_line(LOG_LINE_ERROR, "pods: no memory for Pod %s/%s", pod->view.pod_namespace,
                    pod->view.name);
                pods_pod_destroy(pod);
                return;
            }
            pods->list = grown;
            pods->room = room;
        }
        pods->list[pods->count++] = pod;
    }
    tell_pod(pods, pod, false);
}

static void on_change(void *context, enum kube_watch_change change, const json_t *object)
{
    struct pods *pods = context;
    if (change == KUBE_WATCH_DELETED) {
        remove_pod(pods, object_uid(object));
        return;
    }
    struct pods_pod *pod = pods_read(pods->request, object);
    if (pod)
        put_pod(pods, pod);
}

void pods_learn(struct pods *pods, const json_t *object)
{
    const char *uid = object_uid(object);
    if (!*uid || !pods_find(pods, uid))
        return;
    struct pods_pod *pod = pods_read(pods->request, object);
    if (pod)
        put_pod(pods, pod);
}

static void on_synced(void *context)
{
    struct pods *pods = context;
    struct pods_listener *listener;
    pods->known = true;
    LIST_FOREACH(listener, &pods->listeners, entry)
    if (listener->on_synced)
        listener->on_synced(listener->context);
}

static void on_trouble(void *context, const char *text)
{
    (void)context;
    log_line(LOG_LINE_WARNING, "pods: %s", text);
}

static void on_back(void *context)
{
    (void)context;
    log_line(LOG_LINE_INFO, "pods: the API server answers again");
}

static void put_node(struct pods *pods, const json_t *node)
{
    const char *version = node ? object_resource_version(node) : "";
    if (node && pods->node_version && is_older(version, pods->node_version))
        return;
    const char *lock = node ? object_annotation(node, NODE_LOCK_ANNOTATION) : NULL;
    char *kept = lock ? strndup(lock, NODE_LOCK_VALUE_BYTES) : NULL,
         *kept_version = strdup(version);
    free(pods->lock);
    free(pods->node_version);
    pods->lock = kept;
    pods->node_version = kept_version;
    struct pods_listener *listener;
    LIST_FOREACH(listener, &pods->listeners, entry)
    if (listener->on_node)
        listener->on_node(listener->context, node);
}

void pods_learn_node(struct pods *pods, const json_t *node)
{
    if (json_is_object(node))
        put_node(pods, node);
}

static void on_node_change(void *context, enum kube_watch_change change, const json_t *object)
{
    struct pods *pods = context;
    if (change == KUBE_WATCH_DELETED) {
        free(pods->node_version); /* one that is made anew may have any version */
        pods->node_version = NULL;
    }
    put_node(pods, change == KUBE_WATCH_DELETED ? NULL : object);
}

static void on_node_trouble(void *context, const char *text)
{
    (void)context;
    log_line(LOG_LINE_WARNING, "pods: the Node: %s", text);
}

struct pods *pods_create(struct kube_client *client, const char *node_name,
    const struct request_config *request, struct error *error)
{
    char selector[300], node_selector[300];
    struct pods *pods = calloc(1, sizeof(*pods));
    if (!pods) {
        error_set(error, ENOMEM, "pods: no memory");
        return NULL;
    }
    pods->request = request;
    LIST_INIT(&pods->listeners);
    snprintf(selector, sizeof(selector), "spec.nodeName=%s", node_name);
    snprintf(node_selector, sizeof(node_selector), "metadata.name=%s", node_name);
    struct kube_watch_options options = {.path = "/api/v1/pods",
        .field_selector = selector,
        .on_change = on_change,
        .on_synced = on_synced,
        .on_trouble = on_trouble,
        .on_back = on_back,
        .context = pods};
    pods->watch = kube_watch_create(client, &options, error);
    options = (struct kube_watch_options){.path = "/api/v1/nodes",
        .field_selector = node_selector,
        .on_change = on_node_change,
        .on_trouble = on_node_trouble,
        .context = pods};
    pods->node_watch = pods->watch ? kube_watch_create(client, &options, error) : NULL;
    if (!pods->node_watch) {
        pods_destroy(pods);
        return NULL;
    }
    return pods;
}

void pods_destroy(struct pods *pods)
{
    if (!pods)
        return;
    if (pods->watch)
        kube_watch_destroy(pods->watch);
    if (pods->node_watch)
        kube_watch_destroy(pods->node_watch);
    for (size_t i = 0; i < pods->count; i++)
        pods_pod_destroy(pods->list[i]);
    free(pods->list);
    free(pods->lock);
    free(pods->node_version);
    free(pods);
}
