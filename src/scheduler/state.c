/* SPDX-License-Identifier: Apache-2.0 */
/* What the watches show. */
#include "cluster/erase.h"
#include "cluster/node_lock.h"
#include "codec/number.h"
#include "cluster/pod_view.h"
#include "cluster/proof.h"
#include "codec/rfc3339.h"
#include "kube/object.h"
#include "kube/patch.h"
#include "kube/url.h"
#include "net/log_line.h"
#include "schedule/node_read.h"
#include "schedule/raise.h"
#include "scheduler/scheduler_parts.h"

#include <errno.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <time.h>

#define TICK_S 1
#define LIST_PAGE 500
#define SECOND_NS INT64_C(1000000000)
/* By which other clocks may be ahead. */
#define SKEW_S 60

int64_t scheduler_now_ns(void)
{
    struct timespec now;
    clock_gettime(CLOCK_MONOTONIC, &now);
    return now.tv_sec * INT64_C(1000000000) + now.tv_nsec;
}

char *scheduler_pod_path(const char *pod_namespace, const char *name, const char *rest)
{
    char *space = url_escape(pod_namespace), *pod = url_escape(name), *path = NULL;
    if (space && pod && asprintf(&path, "/api/v1/namespaces/%s/pods/%s%s", space, pod, rest) < 0)
        path = NULL;
    free(space);
    free(pod);
    return path;
}

char *scheduler_node_path(const char *name)
{
    char *node = url_escape(name), *path = NULL;
    if (node && asprintf(&path, "/api/v1/nodes/%s", node) < 0)
        path = NULL;
    free(node);
    return path;
}

/* ---- Nodes ---- */

static uint64_t mix(uint64_t digest, const char *text)
{
    return digest * 1099511628211u + (text ? table_hash(text) + 1 : 0);
}

static uint64_t digest_of(const json_t *node, bool usable)
{
    uint64_t digest = usable;
    digest = mix(digest, object_annotation(node, NODE_READ_DEVICES));
    digest = mix(digest, object_annotation(node, NODE_READ_SCORES));
    return mix(digest, object_annotation(node, NODE_READ_CORDON));
}

/* The kubelet's word: without devices to give it would refuse each Pod. It takes them away when the
 * plugin ends. */
static bool is_usable(const struct scheduler *scheduler, const json_t *node)
{
    const char *name = scheduler->options.ask->request.count_name;
    const json_t *value = object_get(node, "status", "allocatable", name, NULL);
    const char *text = json_string_value(value);
    struct quantity quantity;
    if (json_is_integer(value))
        return json_integer_value(value) > 0;
    return text && !quantity_parse(text, &quantity) && quantity.nano > 0;
}

static struct scheduler_node *node_entry(struct scheduler *scheduler, const char *name)
{
    struct scheduler_node *entry = table_get(&scheduler->nodes, name);
    if (entry)
        return entry;
    entry = calloc(1, sizeof(*entry));
    char *copy = strdup(name);
    if (entry && copy) {
        entry->name = copy;
        if (!table_add(&scheduler->nodes, copy, entry))
            return entry;
    }
    free(copy);
    free(entry);
    return NULL;
}

static void forget_node(struct scheduler *scheduler, const char *name)
{
    struct scheduler_node *entry = table_remove(&scheduler->nodes, name);
    usage_remove_node(scheduler->usage, name);
    if (!entry)
        return;
    free(entry->name);
    free(entry);
}

static void take_node(struct scheduler *scheduler, const json_t *node)
{
    const char *name = object_name(node);
    struct scheduler_node *entry = node_entry(scheduler, name);
    struct error error = {.text = ""};
    bool usable = is_usable(scheduler, node);
    uint64_t digest = digest_of(node, usable);
    if (!entry) {
        log_line(LOG_LINE_ERROR, "nodes: %s: no memory", name);
        return;
    }
    const char *lock = object_annotation(node, NODE_LOCK_ANNOTATION);
    uint64_t lock_digest = mix(0, lock);
    if (entry->is_locked && entry->lock_digest != lock_digest)
        scheduler_wake(scheduler);
    entry->is_ours = object_annotation(node, KEY_PLUGIN) != NULL;
    entry->is_locked = lock != NULL;
    entry->lock_digest = lock_digest;
    if (entry->digest == digest)
        return;
    if (entry->usable && !usable)
        log_line(LOG_LINE_INFO, "nodes: %s has no %s any more", name,
            scheduler->options.ask->request.count_name);
    entry->usable = usable;
    if (!usable)
        usage_remove_node(scheduler->usage, name);
    else if (node_read(
                 scheduler->usage, name, object_get(node, "metadata", "annotations", NULL), &error))
        log_line(LOG_LINE_WARNING, "nodes: %s: %s", name, error.text);
    entry->digest = digest;
}

static void on_node(void *context, enum kube_watch_change change, const json_t *node)
{
    struct scheduler_watch *watch = context;
    if (change == KUBE_WATCH_DELETED)
        forget_node(watch->scheduler, object_name(node));
    else
        take_node(watch->scheduler, node);
}

/* ---- Pods ---- */

/* With a key, annotations of a Pod that is not bound count only where they are proven: its author
 * may write what it likes. */
static bool is_believed(
    const struct scheduler *scheduler, const json_t *pod, const struct claim *claim)
{
    const struct scheduler_options *options = &scheduler->options;
    return claim->bound || !options->proof_key ||
           proof_check(options->proof_key, options->proof_key_bytes, claim->uid, claim->node,
               object_annotation(pod, POD_ANNOTATION_ALLOCATED),
               object_annotation(pod, POD_ANNOTATION_PROOF));
}

/* When the devices of a Pod that is not bound were named, since 1970: by its annotation, or, where
 * that is none of the past, at the Pod's creation. So a change of the Pod does not renew it. */
static int64_t named_at(const json_t *pod, int64_t now)
{
    const char *said = object_annotation(pod, POD_ANNOTATION_TIME);
    const char *created = object_string(pod, "metadata", "creationTimestamp", NULL);
    int64_t at;
    if (said && !number_parse(said, strlen(said), 0, now + SKEW_S, &at))
        return at;
    if (created && !rfc3339_parse(created, strlen(created), &at) && at <= now + SKEW_S)
        return at;
    return now;
}

/* False: it has passed, and the Pod is still not bound. */
static bool set_deadline(const json_t *pod, struct claim *claim)
{
    const int64_t now = time(NULL);
    const int64_t left = named_at(pod, now) + RESERVATION_NS / SECOND_NS - now;
    claim->deadline_ns = scheduler_now_ns() + left * SECOND_NS;
    return left > 0;
}

static void ignore_reply(void *context, const struct kube_reply *reply)
{
    (void)context;
    if (*reply->text)
        log_line(LOG_LINE_WARNING, "pods: the label " POD_ANNOTATION_NODE ": %s", reply->text);
}

/* API servers that do not merge labels of a Binding: the Pod gets its label by a patch. */
static void add_label(struct scheduler *scheduler, const json_t *pod, const char *node)
{
    char *path = scheduler_pod_path(object_namespace(pod), object_name(pod), "");
    json_t *patch = patch_create();
    if (path && patch && !patch_label(patch, POD_ANNOTATION_NODE, node) &&
        !patch_uid(patch, object_uid(pod))) {
        const struct kube_request request = {.method = "PATCH",
            .path = path,
            .content_type = PATCH_MERGE,
            .body = patch,
            .deadline_ms = 60000,
            .on_done = ignore_reply};
        if (kube_client_start(scheduler->options.client, &request, NULL))
            log_line(LOG_LINE_WARNING, "pods: %s/%s: no room for a patch of its label",
                object_namespace(pod), object_name(pod));
    }
    json_decref(patch);
    free(path);
}

static bool is_pending(const json_t *pod)
{
    const char *phase = object_string(pod, "status", "phase", NULL);
    return !phase || !strcmp(phase, "Pending");
}

/* The plugin may take it for the Pod of an Allocate (cluster/allocate_candidates.h). */
static bool is_in_flight(const json_t *pod)
{
    const char *left = object_annotation(pod, POD_ANNOTATION_TO_ALLOCATE);
    const char *phase = object_annotation(pod, POD_ANNOTATION_BIND_PHASE);
    return left && !erase_is_done(left) && phase && strcmp(phase, POD_BIND_FAILED) != 0 &&
           is_pending(pod) && !object_get(pod, "metadata", "deletionTimestamp", NULL);
}

static void follow_flight(struct scheduler *scheduler, const json_t *pod)
{
    const char *uid = object_uid(pod), *node = object_pod_node(pod);
    int64_t deadline = flights_deadline(scheduler->flights, uid);
    int64_t later = scheduler_now_ns() + scheduler->options.flight_ns;
    if (!*node)
        return; /* its binding is under way, or it has none */
    if (!is_in_flight(pod)) {
        if (flights_remove(scheduler->flights, uid))
            scheduler_wake(scheduler);
    } else if (deadline == FLIGHT_BINDING) {
        flights_set_deadline(scheduler->flights, uid, later);
    } else if (!deadline && flights_add(scheduler->flights, node, uid,
                                object_annotation(pod, POD_ANNOTATION_TO_ALLOCATE), later)) {
        log_line(LOG_LINE_ERROR, "pods: %s/%s: no memory; another Pod may be bound beside it",
            object_namespace(pod), object_name(pod));
    }
}

/* With the limits that were granted; where these cannot be read any more, with what was assigned.
 */
static void take_raised(struct scheduler *scheduler, const json_t *pod, struct claim *claim)
{
    struct claim raised;
    bool raises = false;
    if (raise_read(pod, &scheduler->options.ask->request, &raised, &raises, NULL) || !raises)
        return;
    claim_finish(claim);
    *claim = raised;
}

void scheduler_take_pod(struct scheduler *scheduler, const json_t *pod)
{
    struct claim claim;
    struct error error = {.text = ""};
    if (!*object_uid(pod))
        return;
    int result = claim_read(pod, &scheduler->options.ask->request, &claim, &error);
    if (result)
        log_line(LOG_LINE_WARNING, "pods: %s/%s: %s", object_namespace(pod), object_name(pod),
            error.text);
    if (claim.count && !is_believed(scheduler, pod, &claim)) {
        log_line(LOG_LINE_WARNING, "pods: %s/%s: its devices are not proven", claim.pod_namespace,
            claim.name);
        claim.count = 0;
    }
    if (!result && claim.bound && claim.count && scheduler_is_raised(scheduler, pod))
        take_raised(scheduler, pod, &claim);
    if (claim.count && !claim.bound && !set_deadline(pod, &claim))
        claim.count = 0;
    const struct usage_pod *known = usage_find_pod(scheduler->usage, claim.uid);
    /* The watch may be faster than the answer to the binding. */
    bool was_ours = known && (known->state == USAGE_RESERVED || known->state == USAGE_BINDING ||
                                 known->state == USAGE_BOUND);
    if (result != -ENOMEM && usage_observe(scheduler->usage, &claim, object_pod_has_ended(pod)))
        result = -ENOMEM;
    if (result == -ENOMEM)
        log_line(LOG_LINE_ERROR, "pods: %s/%s: no memory; what it holds is not known",
            claim.pod_namespace, claim.name);
    if (was_ours && claim.bound && claim.count && !object_label(pod, POD_ANNOTATION_NODE))
        add_label(scheduler, pod, claim.node);
    bool holds = claim.bound && claim.count;
    claim_finish(&claim);
    follow_flight(scheduler, pod);
    asked_take(scheduler, pod);
    if (holds)
        scheduler_look_at_wish(scheduler, pod);
}

static void on_pod(void *context, enum kube_watch_change change, const json_t *pod)
{
    struct scheduler_watch *watch = context;
    if (change == KUBE_WATCH_DELETED) {
        usage_remove_pod(watch->scheduler->usage, object_uid(pod));
        asked_forget(watch->scheduler, object_uid(pod));
        if (flights_remove(watch->scheduler->flights, object_uid(pod)))
            scheduler_wake(watch->scheduler);
        scheduler_forget_raise(watch->scheduler, object_uid(pod));
    } else
        scheduler_take_pod(watch->scheduler, pod);
}

/* ---- Quotas ---- */

static void on_quota(void *context, enum kube_watch_change change, const json_t *quota)
{
    struct scheduler_watch *watch = context;
    struct quotas *quotas = watch->scheduler->usage->quotas;
    const char *space = object_namespace(quota), *name = object_name(quota);
    struct quota_amount limit;
    struct error error = {.text = ""};
    if (change == KUBE_WATCH_DELETED)
        quotas_remove(quotas, space, name);
    else if (quota_read(quota, &watch->scheduler->options.ask->request, &limit, &error))
        log_line(LOG_LINE_WARNING, "quotas: %s/%s: %s; what was read before stays", space, name,
            error.text);
    else if (quotas_set(quotas, space, name, limit))
        log_line(LOG_LINE_ERROR, "quotas: %s/%s: no memory", space, name);
}

/* ---- Bindings that the watch does not show ---- */

static void on_overdue(void *context, const struct kube_reply *reply)
{
    struct scheduler *scheduler = context;
    char *uid = scheduler->overdue_uid;
    const struct usage_pod *pod = usage_find_pod(scheduler->usage, uid);
    scheduler->overdue = NULL;
    scheduler->overdue_uid = NULL;
    bool is_there = reply->status == 200 && !strcmp(object_uid(reply->body), uid);
    if (is_there && *object_pod_node(reply->body))
        scheduler_take_pod(scheduler, reply->body);
    else if (pod && pod->state == USAGE_BOUND &&
             (is_there || reply->status == 200 || reply->status == 404)) {
        if (flights_remove(scheduler->flights, uid))
            scheduler_wake(scheduler);
        usage_cancel(scheduler->usage, uid, pod->generation);
    }
    free(uid);
}

static void ask_overdue(struct scheduler *scheduler)
{
    const struct usage_pod *pod = usage_find_overdue(scheduler->usage, scheduler_now_ns());
    char *path = pod ? scheduler_pod_path(pod->pod_namespace, pod->name, "") : NULL;
    scheduler->overdue_uid = path ? strdup(pod->uid) : NULL;
    const struct kube_request request = {.method = "GET",
        .path = path,
        .deadline_ms = 60000,
        .on_done = on_overdue,
        .context = scheduler};
    if (!scheduler->overdue_uid ||
        kube_client_start(scheduler->options.client, &request, &scheduler->overdue)) {
        free(scheduler->overdue_uid);
        scheduler->overdue_uid = NULL;
    }
    free(path);
}

static void on_tick(evutil_socket_t number, short what, void *context)
{
    struct scheduler *scheduler = context;
    (void)number, (void)what;
    size_t ended = usage_expire(scheduler->usage, scheduler_now_ns());
    if (ended)
        log_line(LOG_LINE_INFO, "pods: %zu reservations ended without a bind", ended);
    if (!scheduler->overdue)
        ask_overdue(scheduler);
    if (scheduler->anew_failed)
        event_active(scheduler->anew, EV_TIMEOUT, 0);
    scheduler_look_at_binds(scheduler, true);
    scheduler_look_at_raises(scheduler);
    scheduler_tell_role(scheduler);
}

static void on_wakeup(evutil_socket_t number, short what, void *context)
{
    (void)number, (void)what;
    scheduler_look_at_binds(context, false);
}

void scheduler_wake(struct scheduler *scheduler)
{
    event_active(scheduler->wakeup, EV_TIMEOUT, 0);
}

/* ---- Start and end ---- */

static void on_synced(void *context)
{
    struct scheduler_watch *watch = context;
    if (!watch->synced)
        log_line(LOG_LINE_INFO, "%s: all are known", watch->what);
    watch->synced = true;
}

static void on_trouble(void *context, const char *text)
{
    struct scheduler_watch *watch = context;
    log_line(LOG_LINE_WARNING, "%s: %s", watch->what, text);
}

static void on_back(void *context)
{
    struct scheduler_watch *watch = context;
    log_line(LOG_LINE_INFO, "%s: followed again", watch->what);
}

static bool start_watches(struct scheduler *scheduler, struct error *error)
{
    static const struct {
        const char *what, *path;
        void (*on_change)(void *context, enum kube_watch_change change, const json_t *object);
    } rows[WATCH_COUNT] = {
        [WATCH_NODES] = {"nodes", "/api/v1/nodes", on_node},
        [WATCH_PODS] = {"pods", "/api/v1/pods", on_pod},
        [WATCH_QUOTAS] = {"quotas", "/api/v1/resourcequotas", on_quota},
    };
    for (size_t i = 0; i < WATCH_COUNT; i++) {
        struct scheduler_watch *watch = &scheduler->watches[i];
        const char *selector = scheduler->options.node_selector;
        *watch = (struct scheduler_watch){.scheduler = scheduler, .what = rows[i].what};
        watch->watch = kube_watch_create(scheduler->options.client,
            &(struct kube_watch_options){.path = rows[i].path,
                .label_selector = i == WATCH_NODES && *selector ? selector : NULL,
                .page_objects = LIST_PAGE,
                .on_change = rows[i].on_change,
                .on_synced = on_synced,
                .on_trouble = on_trouble,
                .on_back = on_back,
                .context = watch},
            error);
        if (!watch->watch)
            return false;
    }
    return true;
}

static void forget_nodes(struct scheduler *scheduler)
{
    struct scheduler_node *node;
    for (size_t cursor = 0; (node = table_next(&scheduler->nodes, &cursor));) {
        free(node->name);
        free(node);
    }
    table_finish(&scheduler->nodes);
}

static void stop_watches(struct scheduler *scheduler)
{
    for (size_t i = 0; i < WATCH_COUNT; i++) {
        if (scheduler->watches[i].watch)
            kube_watch_destroy(scheduler->watches[i].watch);
        scheduler->watches[i] = (struct scheduler_watch){.scheduler = scheduler};
    }
}

/* What this scheduler may yet bind is in no list: the API server may carry out late what it was
 * sent before. */
static int carry(const struct scheduler *scheduler, struct usage *usage, struct flights *flights)
{
    const int64_t now = scheduler_now_ns();
    const struct usage_pod *pod;
    /* What is still under way must not meet its number again. */
    usage->generation = scheduler->usage->generation;
    int result = usage_carry(usage, scheduler->usage, now + SHOWN_NS);
    for (size_t cursor = 0; !result && (pod = table_next(usage->pods, &cursor));)
        if (pod->devices)
            result = flights_add(flights, pod->node->name, pod->uid, pod->devices,
                now + scheduler->options.flight_ns);
    return result;
}

/* From the loop, as a watch's callback may not end it. What another scheduler has done is in the
 * lists that are asked for now. */
static void on_anew(evutil_socket_t number, short what, void *context)
{
    struct scheduler *scheduler = context;
    struct error error = {.text = ""};
    struct usage *usage = usage_create();
    struct flights *flights = flights_create();
    (void)number, (void)what;
    stop_watches(scheduler);
    scheduler->anew_failed = true;
    if (!usage || !flights || carry(scheduler, usage, flights)) {
        usage_destroy(usage);
        flights_destroy(flights);
        log_line(LOG_LINE_ERROR, "leader: no memory to read the cluster anew");
        return;
    }
    usage_destroy(scheduler->usage);
    scheduler->usage = usage;
    flights_destroy(scheduler->flights);
    scheduler->flights = flights;
    scheduler_cancel_raises(scheduler);
    forget_nodes(scheduler);
    asked_forget_all(scheduler);
    scheduler->anew_failed = !start_watches(scheduler, &error);
    if (scheduler->anew_failed)
        log_line(LOG_LINE_ERROR, "leader: %s", error.text);
}

static void on_gain(void *context)
{
    struct scheduler *scheduler = context;
    for (size_t i = 0; i < WATCH_COUNT; i++)
        scheduler->watches[i].synced = false;
    event_active(scheduler->anew, EV_TIMEOUT, 0);
}

static void on_loss(void *context)
{
    scheduler_abandon_binds(context);
    scheduler_abandon_patches(context);
}

static bool start(struct scheduler *scheduler, struct error *error)
{
    const struct timeval tick = {.tv_sec = TICK_S};
    const struct scheduler_options *options = &scheduler->options;
    struct event_base *base = kube_client_base(options->client);
    scheduler->usage = usage_create();
    scheduler->flights = flights_create();
    scheduler->timer = event_new(base, -1, EV_PERSIST, on_tick, scheduler);
    scheduler->anew = event_new(base, -1, 0, on_anew, scheduler);
    scheduler->wakeup = event_new(base, -1, 0, on_wakeup, scheduler);
    if (!scheduler->usage || !scheduler->flights || !scheduler->timer || !scheduler->anew ||
        !scheduler->wakeup || event_add(scheduler->timer, &tick)) {
        error_set(error, ENOMEM, "no memory for the scheduler");
        return false;
    }
    if (options->lease_name) {
        scheduler->leader = leader_create(&(struct leader_options){.client = options->client,
                                              .lease_namespace = options->lease_namespace,
                                              .lease_name = options->lease_name,
                                              .identity = options->identity,
                                              .on_gain = on_gain,
                                              .on_loss = on_loss,
                                              .context = scheduler},
            error);
        if (!scheduler->leader)
            return false;
    }
    return start_watches(scheduler, error);
}

struct scheduler *scheduler_create(const struct scheduler_options *options, struct error *error)
{
    struct scheduler *scheduler = calloc(1, sizeof(*scheduler));
    if (!scheduler) {
        error_set(error, ENOMEM, "no memory for the scheduler");
        return NULL;
    }
    scheduler->options = *options;
    TAILQ_INIT(&scheduler->binds);
    if (start(scheduler, error))
        return scheduler;
    scheduler_destroy(scheduler);
    return NULL;
}

void scheduler_set_proof_key(struct scheduler *scheduler, const void *key, size_t bytes)
{
    scheduler->options.proof_key = key;
    scheduler->options.proof_key_bytes = bytes;
}

void scheduler_destroy(struct scheduler *scheduler)
{
    if (!scheduler)
        return;
    leader_destroy(scheduler->leader);
    stop_watches(scheduler);
    scheduler_cancel_binds(scheduler);
    scheduler_cancel_patches(scheduler);
    scheduler_cancel_raises(scheduler);
    kube_call_cancel(scheduler->overdue);
    kube_call_cancel(scheduler->role.call);
    free(scheduler->overdue_uid);
    forget_nodes(scheduler);
    asked_forget_all(scheduler);
    choice_finish(&scheduler->choice);
    usage_destroy(scheduler->usage);
    flights_destroy(scheduler->flights);
    if (scheduler->wakeup)
        event_free(scheduler->wakeup);
    if (scheduler->timer)
        event_free(scheduler->timer);
    if (scheduler->anew)
        event_free(scheduler->anew);
    free(scheduler);
}

bool scheduler_is_ready(const struct scheduler *scheduler)
{
    if (scheduler->leader && !leader_left_ms(scheduler->leader))
        return false;
    for (size_t i = 0; i < WATCH_COUNT; i++)
        if (!scheduler->watches[i].synced)
            return false;
    return true;
}
