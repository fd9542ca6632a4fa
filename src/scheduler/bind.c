/* SPDX-License-Identifier: Apache-2.0 */
/* POST /bind. One request to the API server where the node's plugin is vgpu's and the filter has
 * reserved: the Binding, with all annotations. The devices are chosen again where nothing is
 * reserved for this node; HAMi's node lock is taken first where the plugin is HAMi's. */
#include "cluster/node_lock.h"
#include "cluster/pod_view.h"
#include "kube/object.h"
#include "kube/patch.h"
#include "net/log_line.h"
#include "schedule/extender.h"
#include "scheduler/scheduler_parts.h"

#include <errno.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <time.h>

struct bind {
    struct scheduler *scheduler;
    struct http_exchange *exchange;
    struct kube_call *call;
    char *pod_namespace, *pod_name, *uid, *node;
    char *devices; /* NULL: the Pod has none */
    uint64_t generation;
    int64_t until_ns;
    bool has_lock;
    /* Of the lock. */
    char *lock_value, *node_version;
    enum node_lock_holder holder;
    struct bind *next, **at;
};

static void bind_free(struct bind *bind)
{
    *bind->at = bind->next;
    if (bind->next)
        bind->next->at = bind->at;
    free(bind->pod_namespace);
    free(bind->pod_name);
    free(bind->uid);
    free(bind->node);
    free(bind->devices);
    free(bind->lock_value);
    free(bind->node_version);
    free(bind);
}

void scheduler_cancel_binds(struct scheduler *scheduler)
{
    for (struct bind *bind = scheduler->binds, *next; bind; bind = next) {
        next = bind->next;
        kube_call_cancel(bind->call);
        bind_free(bind);
    }
}

/* ---- The end ---- */

static void ignore_reply(void *context, const struct kube_reply *reply)
{
    (void)context;
    if (*reply->text)
        log_line(LOG_LINE_WARNING, "bind: a node lock may stay: %s", reply->text);
}

/* The value that was written is taken away, if nobody has changed the node since; else it expires,
 * or is taken over when its Pod is gone. */
static void release_lock(struct bind *bind)
{
    json_t *patch = patch_create();
    char *path = scheduler_node_path(bind->node);
    if (bind->has_lock && bind->node_version && patch && path &&
        !patch_annotation(patch, NODE_LOCK_ANNOTATION, NULL) &&
        !patch_resource_version(patch, bind->node_version) &&
        kube_client_start(bind->scheduler->options.client,
            &(struct kube_request){.method = "PATCH",
                .path = path,
                .content_type = PATCH_MERGE,
                .body = patch,
                .deadline_ms = BIND_MS,
                .on_done = ignore_reply},
            NULL))
        log_line(LOG_LINE_WARNING, "bind: the lock of node %s stays: no memory", bind->node);
    json_decref(patch);
    free(path);
}

static void succeed(struct bind *bind)
{
    char text[EVENT_MESSAGE_MAX];
    snprintf(text, sizeof(text), "Successfully binding node [%s] to %s/%s", bind->node,
        bind->pod_namespace, bind->pod_name);
    scheduler_tell(bind->scheduler, bind->pod_namespace, bind->pod_name, bind->uid,
        "BindingSucceed", text, false);
    bind->scheduler->binds_done++;
    if (bind->devices)
        usage_bind(
            bind->scheduler->usage, bind->uid, bind->generation, scheduler_now_ns() + SHOWN_NS);
    scheduler_answer(bind->exchange, extender_answer_bind(""));
    bind_free(bind);
}

static void fail(struct bind *bind, const char *text)
{
    log_line(LOG_LINE_WARNING, "bind: %s/%s to %s: %s", bind->pod_namespace, bind->pod_name,
        bind->node, text);
    scheduler_tell(bind->scheduler, bind->pod_namespace, bind->pod_name, bind->uid, "BindingFailed",
        text, true);
    bind->scheduler->binds_failed++;
    release_lock(bind);
    scheduler_answer(bind->exchange, extender_answer_bind(text));
    bind_free(bind);
}

/* Starts a request of this bind; fails it where that cannot be. Takes the path and the body. */
static void ask(struct bind *bind, const char *method, char *path, const char *content_type,
    json_t *body, void (*on_done)(void *context, const struct kube_reply *reply))
{
    const struct leader *leader = bind->scheduler->leader;
    int64_t left_ms = (bind->until_ns - scheduler_now_ns()) / 1000000;
    /* Nothing of this bind is under way when another scheduler may lead. */
    if (leader && leader_left_ms(leader) < left_ms)
        left_ms = leader_left_ms(leader);
    const struct kube_request request = {.method = method,
        .path = path,
        .content_type = content_type,
        .body = body,
        .deadline_ms = left_ms > 0 ? (unsigned)left_ms : 1,
        .on_done = on_done,
        .context = bind};
    int result = path && left_ms > 0
                     ? kube_client_start(bind->scheduler->options.client, &request, &bind->call)
                     : -ENOMEM;
    json_decref(body);
    free(path);
    if (result)
        fail(bind, left_ms > 0 ? "too many requests are under way" : "the time is over");
}

/* ---- The binding ---- */

static void give_up_devices(struct bind *bind)
{
    if (bind->devices)
        usage_cancel(bind->scheduler->usage, bind->uid, bind->generation);
}

/* After a conflict: the binding may be our own, whose answer was lost. */
static void on_conflict(void *context, const struct kube_reply *reply)
{
    struct bind *bind = context;
    bind->call = NULL;
    const char *allocated = object_annotation(reply->body, POD_ANNOTATION_ALLOCATED);
    bool is_ours = reply->status == 200 && !strcmp(object_uid(reply->body), bind->uid) &&
                   !strcmp(object_pod_node(reply->body), bind->node) &&
                   (!bind->devices || (allocated && !strcmp(allocated, bind->devices)));
    if (is_ours) {
        succeed(bind);
        return;
    }
    if (reply->status == 200 || reply->status == 404)
        give_up_devices(bind);
    fail(bind, "the Pod is bound already, or another one has its name");
}

static void on_bound(void *context, const struct kube_reply *reply)
{
    struct bind *bind = context;
    bind->call = NULL;
    if (reply->status >= 200 && reply->status < 300) {
        succeed(bind);
    } else if (reply->status == 409) {
        ask(bind, "GET", scheduler_pod_path(bind->pod_namespace, bind->pod_name, ""), NULL, NULL,
            on_conflict);
    } else if (reply->status >= 400 && reply->status < 500) {
        give_up_devices(bind);
        fail(bind, reply->text);
    } else {
        /* It may have been carried out: the devices are held until the Pod tells. */
        if (bind->devices)
            usage_bind(
                bind->scheduler->usage, bind->uid, bind->generation, scheduler_now_ns() + SHOWN_NS);
        bind->has_lock = false;
        fail(bind, *reply->text ? reply->text : "the API server does not answer");
    }
}

static void post_binding(struct bind *bind)
{
    json_t *metadata = json_pack("{s:s,s:s,s:s}", "name", bind->pod_name, "namespace",
        bind->pod_namespace, "uid", bind->uid);
    int result = metadata ? 0 : -1;
    if (bind->devices) {
        result |= json_object_set_new(metadata, "annotations",
            scheduler_annotations(bind->scheduler, bind->uid, bind->node, bind->devices, true));
        result |= json_object_set_new(
            metadata, "labels", json_pack("{s:s}", POD_ANNOTATION_NODE, bind->node));
    }
    json_t *body = json_pack("{s:s,s:s,s:o,s:{s:s,s:s,s:s}}", "apiVersion", "v1", "kind", "Binding",
        "metadata", metadata, "target", "apiVersion", "v1", "kind", "Node", "name", bind->node);
    if (result || !body) {
        json_decref(body);
        fail(bind, "no memory");
        return;
    }
    ask(bind, "POST", scheduler_pod_path(bind->pod_namespace, bind->pod_name, "/binding"), NULL,
        body, on_bound);
}

/* ---- HAMi's node lock ---- */

static void decide_lock(struct bind *bind);

static void on_locked(void *context, const struct kube_reply *reply)
{
    struct bind *bind = context;
    struct error error = {.text = ""};
    bind->call = NULL;
    if (reply->status < 200 || reply->status > 299) {
        if (reply->status == 409)
            node_lock_error_locked(bind->node, &error);
        fail(bind, reply->status == 409 ? error.text : reply->text);
        return;
    }
    free(bind->node_version);
    bind->node_version = strdup(object_resource_version(reply->body));
    bind->has_lock = true;
    post_binding(bind);
}

static void write_lock(struct bind *bind)
{
    char value[NODE_LOCK_VALUE_BYTES];
    json_t *patch = patch_create();
    if (!patch || node_lock_encode(time(NULL), bind->pod_namespace, bind->pod_name, value) ||
        patch_annotation(patch, NODE_LOCK_ANNOTATION, value) ||
        patch_resource_version(patch, bind->node_version)) {
        json_decref(patch);
        fail(bind, "the node lock cannot be written");
        return;
    }
    ask(bind, "PATCH", scheduler_node_path(bind->node), PATCH_MERGE, patch, on_locked);
}

static void on_holder(void *context, const struct kube_reply *reply)
{
    struct bind *bind = context;
    bind->call = NULL;
    if (reply->status != 200 && reply->status != 404) {
        fail(bind, reply->text);
        return;
    }
    bind->holder = reply->status == 200 ? NODE_LOCK_HOLDER_EXISTS : NODE_LOCK_HOLDER_GONE;
    decide_lock(bind);
}

static void ask_holder(struct bind *bind)
{
    struct node_lock lock;
    if (node_lock_decode(bind->lock_value, &lock, NULL))
        fail(bind, "the node lock cannot be read");
    else
        ask(bind, "GET", scheduler_pod_path(lock.pod_namespace, lock.pod_name, ""), NULL, NULL,
            on_holder);
}

static void decide_lock(struct bind *bind)
{
    enum node_lock_decision decision = NODE_LOCK_CONTENTION;
    struct error error = {.text = ""};
    if (node_lock_decide(bind->lock_value, bind->node, bind->pod_namespace, bind->pod_name,
            bind->holder, time(NULL), bind->scheduler->options.lock_expiry_ns, &decision, &error) ||
        decision == NODE_LOCK_CONTENTION) {
        fail(bind, error.text);
        return;
    }
    if (decision == NODE_LOCK_ASK)
        ask_holder(bind);
    else if (decision == NODE_LOCK_TAKE)
        write_lock(bind);
    else
        post_binding(bind);
}

static void on_node(void *context, const struct kube_reply *reply)
{
    struct bind *bind = context;
    bind->call = NULL;
    if (reply->status != 200) {
        fail(bind, reply->text);
        return;
    }
    const char *value = object_annotation(reply->body, NODE_LOCK_ANNOTATION);
    bind->lock_value = value ? strdup(value) : NULL;
    bind->node_version = strdup(object_resource_version(reply->body));
    if ((value && !bind->lock_value) || !bind->node_version)
        fail(bind, "no memory");
    else
        decide_lock(bind);
}

static void bind_devices(struct bind *bind)
{
    const struct scheduler_node *node = table_get(&bind->scheduler->nodes, bind->node);
    if (!bind->devices || (node && node->is_ours))
        post_binding(bind);
    else
        ask(bind, "GET", scheduler_node_path(bind->node), NULL, NULL, on_node);
}

/* ---- The devices ---- */

static bool take_reservation(struct bind *bind)
{
    const struct usage_pod *pod = usage_find_pod(bind->scheduler->usage, bind->uid);
    if (!pod || pod->state != USAGE_RESERVED || !pod->devices ||
        strcmp(pod->node->name, bind->node) != 0)
        return false;
    bind->generation = pod->generation;
    bind->devices = strdup(pod->devices);
    return bind->devices != NULL;
}

static void refit(struct bind *bind, const struct ask *ask_of_pod)
{
    struct scheduler *scheduler = bind->scheduler;
    struct error error = {.text = ""};
    char text[REASON_TEXT_BYTES + 64], reasons[REASON_TEXT_BYTES];
    const char *names[] = {bind->node};
    uint64_t generation = 0;
    scheduler->refits++;
    if (scheduler_choose(scheduler, ask_of_pod, names, 1, &generation, &error)) {
        fail(bind, error.text);
    } else if (!scheduler->choice.best) {
        reasons_format(&scheduler->choice.candidates[0].reasons, reasons);
        snprintf(text, sizeof(text), "the Pod does not fit any more: %s", reasons);
        fail(bind, text);
    } else if (!take_reservation(bind)) {
        fail(bind, "no memory");
    } else {
        bind_devices(bind);
    }
}

static void on_pod(void *context, const struct kube_reply *reply)
{
    struct bind *bind = context;
    struct ask asked;
    struct error error = {.text = ""};
    bind->call = NULL;
    if (reply->status != 200) {
        fail(bind, reply->text);
    } else if (strcmp(object_uid(reply->body), bind->uid) != 0) {
        fail(bind, "another Pod has its name");
    } else if (*object_pod_node(reply->body)) {
        fail(bind, "the Pod is bound already");
    } else if (ask_read(reply->body, bind->scheduler->options.ask, &asked, &error)) {
        fail(bind, error.text);
    } else {
        if (asked.devices)
            refit(bind, &asked);
        else
            post_binding(bind);
        ask_finish(&asked);
    }
}

/* ---- The request ---- */

static struct bind *make_bind(struct scheduler *scheduler, struct http_exchange *exchange,
    const struct extender_bind *request)
{
    struct bind *bind = calloc(1, sizeof(*bind));
    if (!bind)
        return NULL;
    *bind = (struct bind){.scheduler = scheduler,
        .exchange = exchange,
        .pod_namespace = strdup(request->pod_namespace),
        .pod_name = strdup(request->pod_name),
        .uid = strdup(request->pod_uid),
        .node = strdup(request->node),
        .until_ns = scheduler_now_ns() + BIND_MS * INT64_C(1000000),
        .next = scheduler->binds,
        .at = &scheduler->binds};
    if (bind->next)
        bind->next->at = &bind->next;
    scheduler->binds = bind;
    if (bind->pod_namespace && bind->pod_name && bind->uid && bind->node)
        return bind;
    bind_free(bind);
    return NULL;
}

void scheduler_bind(
    void *context, struct http_exchange *exchange, const struct http_server_request *request)
{
    struct scheduler *scheduler = context;
    struct extender_bind asked;
    struct error error = {.text = ""};
    if (extender_read_bind(request->body, request->body_bytes, &asked, &error)) {
        scheduler_answer(exchange, extender_answer_bind(error.text));
        return;
    }
    struct bind *bind = make_bind(scheduler, exchange, &asked);
    extender_finish_bind(&asked);
    if (!bind)
        scheduler_answer(exchange, extender_answer_bind("no memory"));
    else if (!scheduler_is_ready(scheduler))
        fail(bind, "the scheduler has not read the cluster yet");
    else if (take_reservation(bind))
        bind_devices(bind);
    else
        ask(bind, "GET", scheduler_pod_path(bind->pod_namespace, bind->pod_name, ""), NULL, NULL,
            on_pod);
}
