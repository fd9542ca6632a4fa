/* SPDX-License-Identifier: Apache-2.0 */
#include "scheduler/bind_parts.h"

#include "kube/object.h"
#include "kube/patch.h"
#include "net/log_line.h"

#include <stdlib.h>
#include <string.h>
#include <time.h>

#define PATCH_JSON "application/json-patch+json"
#define LOCK_POINTER "/metadata/annotations/hami.io~1mutex.lock"
/* A node is written by many: how often it is read again after a conflict. */
#define CONFLICTS_MAX 4
/* A lock that was taken so long before a Pod of that name was created is that of an earlier Pod; by
 * less, clocks may differ. */
#define PREDECESSOR_S 30

/* ---- The end ---- */

static void ignore_reply(void *context, const struct kube_reply *reply)
{
    (void)context;
    /* Another value, or another Node by now. */
    bool is_gone = reply->status == 404 || reply->status == 409 || reply->status == 422;
    if (*reply->text && !is_gone)
        log_line(LOG_LINE_WARNING, "bind: a node lock may stay: %s", reply->text);
}

/* The value is taken away, if it is still there, whatever else of the node has changed. */
void bind_release_lock(struct bind *bind)
{
    if (!bind->has_lock || !bind->lock_value)
        return;
    json_t *patch = json_pack("[{s:s,s:s,s:s},{s:s,s:s}]", "op", "test", "path", LOCK_POINTER,
        "value", bind->lock_value, "op", "remove", "path", LOCK_POINTER);
    char *path = scheduler_node_path(bind->node);
    if (!patch || !path ||
        kube_client_start(bind->scheduler->options.client,
            &(struct kube_request){.method = "PATCH",
                .path = path,
                .content_type = PATCH_JSON,
                .body = patch,
                .deadline_ms = BIND_MS,
                .on_done = ignore_reply},
            NULL))
        log_line(LOG_LINE_WARNING, "bind: the lock of node %s stays: no memory", bind->node);
    json_decref(patch);
    free(path);
}

/* ---- The lock ---- */

/* Another Pod has it. kube-scheduler tries the others again, later and later; Pods of a group would
 * miss each other by that. */
static void contend(struct bind *bind, const char *text)
{
    struct error error = {.text = ""};
    if (!bind->grouped || !bind->scheduler->options.lock_retry_ns) {
        bind_fail(bind, text);
    } else if (scheduler_now_ns() < bind->lock_until_ns) {
        /* The Binding has some time left after the longest wait. */
        if (bind->until_ns < bind->lock_until_ns + LOCKED_BIND_NS)
            bind->until_ns = bind->lock_until_ns + LOCKED_BIND_NS;
        bind_wait(bind, BIND_WAITS_LOCK);
    } else {
        node_lock_error_waited(bind->node, bind->scheduler->options.lock_retry_ns, &error);
        bind_fail(bind, error.text);
    }
}

static void on_locked(void *context, const struct kube_reply *reply)
{
    struct bind *bind = context;
    struct error error = {.text = ""};
    bind->call = NULL;
    if (reply->status == 409 || reply->status == 422) {
        bind->has_lock = false;
        node_lock_error_locked(bind->node, &error);
        if (bind->lock_conflicts++ < CONFLICTS_MAX)
            bind_take_lock(bind); /* most often something else of the node has changed */
        else
            contend(bind, error.text);
    } else if (reply->status < 200 || reply->status > 299) {
        bind_fail(bind, reply->text);
    } else {
        bind_post(bind);
    }
}

/* Over the value that was read, or where there was none, by the node's version. NULL without
 * memory. */
static json_t *make_lock_patch(const struct bind *bind, const char *value)
{
    if (bind->lock_value)
        return json_pack("[{s:s,s:s,s:s},{s:s,s:s,s:s}]", "op", "test", "path", LOCK_POINTER,
            "value", bind->lock_value, "op", "replace", "path", LOCK_POINTER, "value", value);
    json_t *patch = patch_create();
    if (patch && !patch_annotation(patch, NODE_LOCK_ANNOTATION, value) &&
        !patch_resource_version(patch, bind->node_version))
        return patch;
    json_decref(patch);
    return NULL;
}

static void write_lock(struct bind *bind)
{
    char value[NODE_LOCK_VALUE_BYTES];
    int result = node_lock_encode(time(NULL), bind->pod_namespace, bind->pod_name, value);
    const char *type = bind->lock_value ? PATCH_JSON : PATCH_MERGE;
    json_t *patch = result ? NULL : make_lock_patch(bind, value);
    char *copy = patch ? strdup(value) : NULL;
    if (!copy) {
        json_decref(patch);
        bind_fail(bind, "the node lock cannot be written");
        return;
    }
    free(bind->lock_value);
    bind->lock_value = copy;
    bind->has_lock = true; /* perhaps, whatever the answer; what releases it compares the value */
    bind_ask(bind, "PATCH", scheduler_node_path(bind->node), type, patch, on_locked);
}

static void decide(struct bind *bind);

/* Whether the lock was taken for an earlier Pod of the same name. */
static bool is_of_predecessor(const struct bind *bind, int64_t created_s)
{
    struct node_lock lock;
    return created_s && !node_lock_decode(bind->lock_value, &lock, NULL) &&
           lock.taken_seconds < created_s - PREDECESSOR_S;
}

/* Whether the Pod of the lock may need it still: it has not ended, and is not bound to another
 * node. */
static bool needs_lock(const struct bind *bind, const json_t *pod)
{
    const char *node = object_pod_node(pod);
    return !is_of_predecessor(bind, asked_creation(pod)) && !object_pod_has_ended(pod) &&
           (!*node || !strcmp(node, bind->node));
}

static void on_holder(void *context, const struct kube_reply *reply)
{
    struct bind *bind = context;
    bind->call = NULL;
    if (reply->status != 200 && reply->status != 404) {
        bind_fail(bind, reply->text);
        return;
    }
    bind->holder = reply->status == 200 && needs_lock(bind, reply->body) ? NODE_LOCK_HOLDER_EXISTS
                                                                         : NODE_LOCK_HOLDER_GONE;
    decide(bind);
}

static void ask_holder(struct bind *bind)
{
    struct node_lock lock;
    if (node_lock_decode(bind->lock_value, &lock, NULL))
        bind_fail(bind, "the node lock cannot be read");
    else
        bind_ask(bind, "GET", scheduler_pod_path(lock.pod_namespace, lock.pod_name, ""), NULL, NULL,
            on_holder);
}

static void decide(struct bind *bind)
{
    enum node_lock_decision decision = NODE_LOCK_CONTENTION;
    struct error error = {.text = ""};
    if (node_lock_decide(bind->lock_value, bind->node, bind->pod_namespace, bind->pod_name,
            bind->holder, time(NULL), bind->scheduler->options.lock_expiry_ns, &decision, &error))
        bind_fail(bind, error.text);
    else if (decision == NODE_LOCK_CONTENTION)
        contend(bind, error.text);
    else if (decision == NODE_LOCK_ASK)
        ask_holder(bind);
    else if (decision == NODE_LOCK_TAKE ||
             is_of_predecessor(bind, asked_created(bind->scheduler, bind->uid)))
        write_lock(bind);
    else {
        bind->has_lock = true;
        bind_post(bind);
    }
}

static void on_node(void *context, const struct kube_reply *reply)
{
    struct bind *bind = context;
    bind->call = NULL;
    if (reply->status != 200) {
        bind_fail(bind, reply->text);
        return;
    }
    const char *value = object_annotation(reply->body, NODE_LOCK_ANNOTATION);
    free(bind->lock_value);
    free(bind->node_version);
    bind->lock_value = value ? strdup(value) : NULL;
    bind->node_version = strdup(object_resource_version(reply->body));
    bind->holder = NODE_LOCK_HOLDER_UNKNOWN;
    const struct scheduler_node *node = table_get(&bind->scheduler->nodes, bind->node);
    if ((value && !bind->lock_value) || !bind->node_version)
        bind_fail(bind, "no memory");
    else if (!value && node && node->is_ours)
        bind_post(bind); /* the lock of HAMi's scheduler is gone */
    else
        decide(bind);
}

void bind_take_lock(struct bind *bind)
{
    const struct scheduler_node *node = table_get(&bind->scheduler->nodes, bind->node);
    bind->lock_seen = node ? node->lock_digest : 0;
    bind_ask(bind, "GET", scheduler_node_path(bind->node), NULL, NULL, on_node);
}
