/* SPDX-License-Identifier: Apache-2.0 */
/* POST /bind. One request to the API server where the node's plugin is vgpu's and the filter has
 * reserved: the Binding, with all annotations. The devices are chosen again where nothing is
 * reserved for this node, or for a Pod other than the API server has. HAMi's node lock is taken
 * first where the plugin is HAMi's; where it is vgpu's, a Pod waits until those in flight on the
 * node cannot be taken for it. */
#include "cluster/pod_view.h"
#include "kube/object.h"
#include "net/log_line.h"
#include "schedule/extender.h"
#include "scheduler/bind_parts.h"

#include <errno.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

static void bind_free(struct bind *bind)
{
    bind_wait_end(bind);
    if (bind->devices)
        usage_let(bind->scheduler->usage, bind->uid, bind->generation);
    TAILQ_REMOVE(&bind->scheduler->binds, bind, entry);
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
    for (struct bind *bind = TAILQ_FIRST(&scheduler->binds), *next; bind; bind = next) {
        next = TAILQ_NEXT(bind, entry);
        kube_call_cancel(bind->call);
        bind_free(bind);
    }
}

/* ---- The end ---- */

static void succeed(struct bind *bind)
{
    struct scheduler *scheduler = bind->scheduler;
    char text[EVENT_MESSAGE_MAX];
    snprintf(text, sizeof(text), "Successfully binding node [%s] to %s/%s", bind->node,
        bind->pod_namespace, bind->pod_name);
    scheduler_tell(
        scheduler, bind->pod_namespace, bind->pod_name, bind->uid, "BindingSucceed", text, false);
    scheduler->binds_done++;
    if (bind->devices)
        usage_bind(scheduler->usage, bind->uid, bind->generation, scheduler_now_ns() + SHOWN_NS);
    /* The watch may have been faster, and have ended the flight. */
    if (bind->in_flight && flights_deadline(scheduler->flights, bind->uid) == FLIGHT_BINDING)
        flights_set_deadline(
            scheduler->flights, bind->uid, scheduler_now_ns() + scheduler->options.flight_ns);
    scheduler_answer(bind->exchange, extender_answer_bind(""));
    bind_free(bind);
}

void bind_fail(struct bind *bind, const char *text)
{
    struct scheduler *scheduler = bind->scheduler;
    log_line(LOG_LINE_WARNING, "bind: %s/%s to %s: %s", bind->pod_namespace, bind->pod_name,
        bind->node, text);
    scheduler_tell(
        scheduler, bind->pod_namespace, bind->pod_name, bind->uid, "BindingFailed", text, true);
    scheduler->binds_failed++;
    bind_release_lock(bind);
    if (bind->in_flight && flights_deadline(scheduler->flights, bind->uid) == FLIGHT_BINDING)
        (void)flights_remove(scheduler->flights, bind->uid);
    scheduler_answer(bind->exchange, extender_answer_bind(text));
    bind_free(bind);
    scheduler_wake(scheduler);
}

/* It may have been carried out: the devices are held until the Pod tells. */
static void fail_unsure(struct bind *bind, const char *text);

void bind_ask(struct bind *bind, const char *method, char *path, const char *content_type,
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
    bind->is_posted |= !result && !strcmp(method, "POST");
    if (result)
        (bind->is_posted ? fail_unsure : bind_fail)(
            bind, left_ms > 0 ? "too many requests are under way" : "the time is over");
}

/* ---- The binding ---- */

static void give_up_devices(struct bind *bind)
{
    if (bind->devices)
        usage_cancel(bind->scheduler->usage, bind->uid, bind->generation);
}

static void fail_unsure(struct bind *bind, const char *text)
{
    struct scheduler *scheduler = bind->scheduler;
    if (bind->devices)
        usage_bind(scheduler->usage, bind->uid, bind->generation, scheduler_now_ns() + SHOWN_NS);
    if (bind->in_flight && flights_deadline(scheduler->flights, bind->uid) == FLIGHT_BINDING)
        flights_set_deadline(
            scheduler->flights, bind->uid, scheduler_now_ns() + scheduler->options.flight_ns);
    bind->has_lock = false;
    bind_fail(bind, *text ? text : "the API server does not answer");
}

void scheduler_abandon_binds(struct scheduler *scheduler)
{
    for (struct bind *bind = TAILQ_FIRST(&scheduler->binds), *next; bind; bind = next) {
        next = TAILQ_NEXT(bind, entry);
        kube_call_cancel(bind->call);
        bind->call = NULL;
        (bind->is_posted ? fail_unsure : bind_fail)(bind, SCHEDULER_ABANDONED);
    }
}

/* After a conflict: the binding may be our own, whose answer was lost. */
static void on_conflict(void *context, const struct kube_reply *reply)
{
    struct bind *bind = context;
    bind->call = NULL;
    if (reply->status != 200 && reply->status != 404) {
        fail_unsure(bind, reply->text);
        return;
    }
    const char *allocated = object_annotation(reply->body, POD_ANNOTATION_ALLOCATED);
    bool is_ours = reply->status == 200 && !strcmp(object_uid(reply->body), bind->uid) &&
                   !strcmp(object_pod_node(reply->body), bind->node) &&
                   (!bind->devices || (allocated && !strcmp(allocated, bind->devices)));
    if (is_ours) {
        succeed(bind);
        return;
    }
    give_up_devices(bind);
    bind_fail(bind, "the Pod is bound already, or another one has its name");
}

static void on_bound(void *context, const struct kube_reply *reply)
{
    struct bind *bind = context;
    bind->call = NULL;
    if (reply->status >= 200 && reply->status < 300) {
        succeed(bind);
    } else if (reply->status == 409) {
        bind_ask(bind, "GET", scheduler_pod_path(bind->pod_namespace, bind->pod_name, ""), NULL,
            NULL, on_conflict);
    } else if (reply->status == 404 ||
               (reply->status >= 400 && reply->status < 500 && reply->attempts < 2)) {
        give_up_devices(bind);
        bind_fail(bind, reply->text);
    } else {
        fail_unsure(bind, reply->text);
    }
}

/* What was reserved may have been given up since: for another filter, or another leader. */
static bool has_reservation(const struct bind *bind)
{
    const struct usage_pod *pod = usage_find_pod(bind->scheduler->usage, bind->uid);
    return pod && pod->state == USAGE_BINDING && pod->generation == bind->generation;
}

void bind_post(struct bind *bind)
{
    if (bind->devices && !has_reservation(bind)) {
        bind_fail(bind, "the devices that were reserved for it have been given up");
        return;
    }
    json_t *metadata = json_pack("{s:s,s:s,s:s}", "name", bind->pod_name, "namespace",
        bind->pod_namespace, "uid", bind->uid);
    int result = metadata ? 0 : -1;
    if (bind->devices) {
        result |= json_object_set_new(metadata, "annotations",
            scheduler_annotations(bind->scheduler, bind->uid, bind->node, bind->devices, true));
        result |= json_object_set_new(
            metadata, "labels", json_pack("{s:s}", POD_ANNOTATION_NODE, bind->node));
        result |= flights_add(
            bind->scheduler->flights, bind->node, bind->uid, bind->devices, FLIGHT_BINDING);
        bind->in_flight = true;
    }
    json_t *body = json_pack("{s:s,s:s,s:o,s:{s:s,s:s,s:s}}", "apiVersion", "v1", "kind", "Binding",
        "metadata", metadata, "target", "apiVersion", "v1", "kind", "Node", "name", bind->node);
    if (result || !body) {
        json_decref(body);
        bind_fail(bind, "no memory");
        return;
    }
    bind_ask(bind, "POST", scheduler_pod_path(bind->pod_namespace, bind->pod_name, "/binding"),
        NULL, body, on_bound);
}

void bind_go_on(struct bind *bind)
{
    const struct scheduler *scheduler = bind->scheduler;
    const struct scheduler_node *node = table_get(&scheduler->nodes, bind->node);
    if (!bind->devices) {
        bind_post(bind);
        return;
    }
    if (node && node->is_ours) {
        int clash = bind_has_earlier(bind) ? 1
                                           : flights_clash(scheduler->flights, bind->node,
                                                 bind->uid, bind->devices, scheduler_now_ns());
        if (clash < 0)
            bind_fail(bind, "no memory");
        if (clash > 0)
            bind_wait(bind, BIND_WAITS_FLIGHT);
        if (clash)
            return;
    }
    bind_wait_end(bind);
    /* HAMi's scheduler may be at work there, too. */
    if (node && node->is_ours && !node->is_locked)
        bind_post(bind);
    else
        bind_take_lock(bind);
}

/* ---- The devices ---- */

static bool take_reservation(struct bind *bind)
{
    const struct usage_pod *pod = usage_find_pod(bind->scheduler->usage, bind->uid);
    if (!pod || !asked_matches(bind->scheduler, pod) || pod->state != USAGE_RESERVED ||
        !pod->devices || strcmp(pod->node->name, bind->node) != 0)
        return false;
    bind->generation = pod->generation;
    bind->grouped = pod->grouped;
    bind->devices = strdup(pod->devices);
    return bind->devices && usage_hold(bind->scheduler->usage, bind->uid, bind->generation);
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
        bind_fail(bind, error.text);
    } else if (!scheduler->choice.best) {
        reasons_format(&scheduler->choice.candidates[0].reasons, reasons);
        snprintf(text, sizeof(text), "the Pod does not fit any more: %s", reasons);
        bind_fail(bind, text);
    } else if (!take_reservation(bind)) {
        bind_fail(bind, "no memory");
    } else {
        bind_go_on(bind);
    }
}

static void on_pod(void *context, const struct kube_reply *reply)
{
    struct bind *bind = context;
    struct ask asked;
    struct error error = {.text = ""};
    bind->call = NULL;
    if (reply->status == 200)
        asked_take(bind->scheduler, reply->body);
    if (reply->status != 200) {
        bind_fail(bind, reply->text);
    } else if (strcmp(object_uid(reply->body), bind->uid) != 0) {
        bind_fail(bind, "another Pod has its name");
    } else if (*object_pod_node(reply->body)) {
        bind_fail(bind, "the Pod is bound already");
    } else if (ask_read(reply->body, bind->scheduler->options.ask, &asked, &error)) {
        bind_fail(bind, error.text);
    } else {
        if (!asked.devices)
            bind_post(bind);
        else if (take_reservation(bind))
            bind_go_on(bind);
        else
            refit(bind, &asked);
        ask_finish(&asked);
    }
}

/* ---- The request ---- */

static struct bind *make_bind(struct scheduler *scheduler, struct http_exchange *exchange,
    const struct extender_bind *request)
{
    struct bind *bind = calloc(1, sizeof(*bind));
    const int64_t now = scheduler_now_ns();
    if (!bind)
        return NULL;
    *bind = (struct bind){.scheduler = scheduler,
        .exchange = exchange,
        .pod_namespace = strdup(request->pod_namespace),
        .pod_name = strdup(request->pod_name),
        .uid = strdup(request->pod_uid),
        .node = strdup(request->node),
        .until_ns = now + BIND_MS * INT64_C(1000000),
        .lock_until_ns = now + scheduler->options.lock_retry_ns};
    TAILQ_INSERT_TAIL(&scheduler->binds, bind, entry);
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
        bind_fail(bind, SCHEDULER_NOT_READY);
    else if (take_reservation(bind))
        bind_go_on(bind);
    else
        bind_ask(bind, "GET", scheduler_pod_path(bind->pod_namespace, bind->pod_name, ""), NULL,
            NULL, on_pod);
}
