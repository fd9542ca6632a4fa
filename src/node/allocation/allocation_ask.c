/* SPDX-License-Identifier: Apache-2.0 */
#include "node/allocation/allocation.h"
#include "node/allocation/allocation_serving.h"

#include "cluster/node_lock.h"
#include "kube/object.h"
#include "kube/url.h"
#include "net/log_line.h"
#include "node/settings.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>

static void add_extra(struct serving *serving, const json_t *object)
{
    struct pods_pod *pod = pods_read(&serving->allocation->settings->config.request, object);
    struct pods_pod **grown =
        pod ? reallocarray(serving->extras, serving->extra_count + 1, sizeof(struct pods_pod *))
            : NULL;
    if (!grown) {
        pods_pod_destroy(pod);
        return;
    }
    serving->extras = grown;
    grown[serving->extra_count++] = pod;
}

static void on_holder(void *context, const struct kube_reply *reply)
{
    struct serving *serving = context;
    serving->asked = NULL;
    if (reply->status == 200)
        add_extra(serving, reply->body);
    /* Whatever else it is, it is no Pod that could be served by its lock. */
    serving->holder_gone = reply->status != 200;
    if (!reply->status)
        log_line(LOG_LINE_WARNING, "allocation: the lock's Pod: %s", reply->text);
    serving_go_on(serving);
}

static void on_list(void *context, const struct kube_reply *reply)
{
    struct serving *serving = context;
    const json_t *items = object_get(reply->body, "items", NULL);
    serving->asked = NULL;
    if (reply->status == 200)
        for (size_t i = 0; i < json_array_size(items); i++)
            add_extra(serving, json_array_get(items, i));
    else
        log_line(LOG_LINE_WARNING, "allocation: the node's Pods: %s", reply->text);
    serving_go_on(serving);
}

static bool ask(struct serving *serving, const char *path,
    void (*on_done)(void *context, const struct kube_reply *reply))
{
    const struct kube_request request = {.method = "GET",
        .path = path,
        .deadline_ms = ALLOCATION_ASK_MS,
        .on_done = on_done,
        .context = serving};
    return kube_client_start(serving->allocation->client, &request, &serving->asked) == 0;
}

static void on_node(void *context, const struct kube_reply *reply)
{
    struct serving *serving = context;
    char path[320];
    serving->asked = NULL;
    if (reply->status == 200) {
        const char *lock = object_annotation(reply->body, NODE_LOCK_ANNOTATION);
        serving->has_lock = true;
        serving->lock = lock ? strdup(lock) : NULL;
        pods_learn_node(serving->allocation->pods, reply->body);
    }
    /* All in one answer: a node has some hundred Pods at most. */
    snprintf(path, sizeof(path), "/api/v1/pods?fieldSelector=spec.nodeName%%3D%s",
        serving->allocation->settings->node_name);
    if (!ask(serving, path, on_list))
        serving_go_on(serving);
}

bool serving_ask_holder(struct serving *serving, const char *lock)
{
    struct node_lock holder;
    char path[1200];
    serving->asked_holder = true;
    if (!lock || node_lock_decode(lock, &holder, NULL))
        return false;
    char *space = url_escape(holder.pod_namespace), *name = url_escape(holder.pod_name);
    bool good = space && name && *space && *name;
    if (good)
        snprintf(path, sizeof(path), "/api/v1/namespaces/%s/pods/%s", space, name);
    free(space);
    free(name);
    return good && ask(serving, path, on_holder);
}

bool serving_refresh(struct serving *serving)
{
    char path[320];
    serving->refreshed = true;
    serving->asked_holder = serving->holder_gone = false;
    snprintf(path, sizeof(path), "/api/v1/nodes/%s", serving->allocation->settings->node_name);
    return ask(serving, path, on_node);
}
