/* SPDX-License-Identifier: Apache-2.0 */
/* POST /filter. No API request is on its way, unless the annotations are to be written here as HAMi
 * does it. */
#include "cluster/pod_view.h"
#include "cluster/proof.h"
#include "kube/object.h"
#include "kube/patch.h"
#include "net/log_line.h"
#include "schedule/extender.h"
#include "schedule/node_read.h"
#include "scheduler/scheduler_parts.h"

#include <errno.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <time.h>

#define EVENT_NODES_SHOWN 4

void scheduler_answer(struct http_exchange *exchange, char *body)
{
    static const char sorry[] = "no memory\n";
    if (body)
        http_exchange_answer_taking(exchange, 200, ANSWER_TYPE, body, strlen(body));
    else
        http_exchange_answer(exchange, 500, "text/plain", sorry, sizeof(sorry) - 1);
}

static void tell(struct scheduler *scheduler, const char *pod_namespace, const char *name,
    const char *uid, const char *reason, const char *message, bool is_warning, bool is_dispensable)
{
    kube_event_post(scheduler->options.events, &(struct kube_event){.kind = "Pod",
                                                   .namespace_name = pod_namespace,
                                                   .name = name,
                                                   .uid = uid,
                                                   .reason = reason,
                                                   .message = message,
                                                   .is_warning = is_warning,
                                                   .is_dispensable = is_dispensable});
}

void scheduler_tell(struct scheduler *scheduler, const char *pod_namespace, const char *name,
    const char *uid, const char *reason, const char *message, bool is_warning)
{
    tell(scheduler, pod_namespace, name, uid, reason, message, is_warning, false);
}

static int set_text(json_t *object, const char *key, const char *text)
{
    return json_object_set_new(object, key, json_string(text));
}

json_t *scheduler_annotations(const struct scheduler *scheduler, const char *uid, const char *node,
    const char *devices, bool binding)
{
    const struct scheduler_options *options = &scheduler->options;
    char proof[PROOF_TEXT_BYTES], now[32];
    json_t *object = json_object();
    snprintf(now, sizeof(now), "%lld", (long long)time(NULL));
    int result = object ? 0 : -1;
    result |= set_text(object, POD_ANNOTATION_NODE, node);
    result |= set_text(object, POD_ANNOTATION_TIME, now);
    result |= set_text(object, POD_ANNOTATION_TO_ALLOCATE, devices);
    result |= set_text(object, POD_ANNOTATION_ALLOCATED, devices);
    if (binding) {
        result |= set_text(object, POD_ANNOTATION_BIND_PHASE, POD_BIND_ALLOCATING);
        result |= set_text(object, POD_ANNOTATION_BIND_TIME, now);
    }
    if (options->proof_key) {
        result |=
            proof_make(options->proof_key, options->proof_key_bytes, uid, node, devices, proof);
        result |= result ? 0 : set_text(object, POD_ANNOTATION_PROOF, proof);
    }
    if (!result)
        return object;
    json_decref(object);
    return NULL;
}

/* ---- Events ---- */

/* Whether a candidate has the reason: a word of the devices' or, behind these, of the node's. */
static bool has_reason(const struct choice_candidate *candidate, unsigned reason)
{
    const struct reasons *reasons = &candidate->reasons;
    if (reason >= REASON_COUNT)
        return reasons->bare == (enum reason_bare)(reason - REASON_COUNT);
    return reasons->bare == REASON_BARE_NONE && reasons->counts[reason];
}

/* "2 nodes CardInsufficientMemory(a,b): too little of the card's memory is left"; returns its
 * length, 0 where no node has the reason. */
static size_t describe(const struct choice *choice, unsigned reason, char *text, size_t size)
{
    char names[512] = "";
    size_t nodes = 0, shown = 0;
    for (size_t i = 0; i < choice->count; i++)
        if (has_reason(&choice->candidates[i], reason) && nodes++ < EVENT_NODES_SHOWN)
            shown += (size_t)snprintf(names + shown, sizeof(names) - shown, "%s%.50s",
                shown ? "," : "", choice->candidates[i].name);
    if (!nodes)
        return 0;
    bool is_bare = reason >= REASON_COUNT;
    enum reason_bare bare = is_bare ? (enum reason_bare)(reason - REASON_COUNT) : REASON_BARE_NONE;
    return (size_t)snprintf(text, size, "%zu node%s %s(%s%s): %s", nodes, nodes == 1 ? "" : "s",
        is_bare ? reason_bare_word(bare) : reason_word((enum reason)reason), names,
        nodes > EVENT_NODES_SHOWN ? ",..." : "",
        is_bare ? reason_bare_explain(bare) : reason_explain((enum reason)reason));
}

/* "no available node, 3 nodes do not meet; 2 nodes CardInsufficientMemory(a,b): ...; ..." */
static void tell_failure(struct scheduler *scheduler, const struct ask *ask)
{
    const struct choice *choice = &scheduler->choice;
    char text[EVENT_MESSAGE_MAX];
    size_t length = (size_t)snprintf(text, sizeof(text), "no available node, %zu node%s not meet",
        choice->count, choice->count == 1 ? " does" : "s do");
    for (unsigned reason = 0; reason < REASON_COUNT + REASON_BARE_COUNT; reason++) {
        char part[EVENT_MESSAGE_MAX];
        if (reason == REASON_COUNT + REASON_BARE_NONE || length >= sizeof(text) ||
            !describe(choice, reason, part, sizeof(part)))
            continue;
        length += (size_t)snprintf(text + length, sizeof(text) - length, "; %s", part);
    }
    scheduler_tell(
        scheduler, ask->pod_namespace, ask->name, ask->uid, "FilteringFailed", text, true);
}

static void tell_success(struct scheduler *scheduler, const struct ask *ask)
{
    const struct choice *choice = &scheduler->choice;
    char text[EVENT_MESSAGE_MAX];
    snprintf(text, sizeof(text), "find fit node(%.253s:%.2f) of %zu node%s", choice->best->name,
        choice->best->score, choice->count, choice->count == 1 ? "" : "s");
    /* The binding's event follows. */
    tell(scheduler, ask->pod_namespace, ask->name, ask->uid, "FilteringSucceed", text, false, true);
}

/* ---- The patch of a filter as HAMi does it ---- */

struct patch {
    struct scheduler *scheduler;
    struct http_exchange *exchange;
    struct kube_call *call;
    char *uid, *body; /* the answer where it succeeds */
    uint64_t generation;
    struct patch *next, **at;
};

static void patch_free(struct patch *patch)
{
    *patch->at = patch->next;
    if (patch->next)
        patch->next->at = patch->at;
    free(patch->uid);
    free(patch->body);
    free(patch);
}

void scheduler_cancel_patches(struct scheduler *scheduler)
{
    for (struct patch *patch = scheduler->patches, *next; patch; patch = next) {
        next = patch->next;
        kube_call_cancel(patch->call);
        patch_free(patch);
    }
}

void scheduler_abandon_patches(struct scheduler *scheduler)
{
    for (struct patch *patch = scheduler->patches, *next; patch; patch = next) {
        next = patch->next;
        kube_call_cancel(patch->call);
        usage_cancel(scheduler->usage, patch->uid, patch->generation);
        scheduler_answer(patch->exchange, extender_answer_error(SCHEDULER_ABANDONED));
        patch_free(patch);
    }
}

static void on_patched(void *context, const struct kube_reply *reply)
{
    struct patch *patch = context;
    if (reply->status < 200 || reply->status > 299) {
        usage_cancel(patch->scheduler->usage, patch->uid, patch->generation);
        scheduler_answer(patch->exchange, extender_answer_error(reply->text));
    } else {
        scheduler_answer(patch->exchange, patch->body);
        patch->body = NULL;
    }
    patch_free(patch);
}

/* Takes the body. False: nothing was started. */
static bool start_patch(struct scheduler *scheduler, struct http_exchange *exchange,
    const struct ask *ask, uint64_t generation, char *body)
{
    const char *node = scheduler->choice.best->name;
    const struct usage_pod *pod = usage_find_pod(scheduler->usage, ask->uid);
    json_t *annotations = scheduler_annotations(scheduler, ask->uid, node, pod->devices, false);
    /* With the UID: a Pod that has come after it under the same name is not changed. */
    json_t *object = json_pack("{s:{s:s,s:o,s:{s:s}}}", "metadata", "uid", ask->uid, "annotations",
        annotations, "labels", POD_ANNOTATION_NODE, node);
    char *path = scheduler_pod_path(ask->pod_namespace, ask->name, "");
    struct patch *patch = calloc(1, sizeof(*patch));
    char *uid = strdup(ask->uid);
    int result = annotations && object && path && patch && uid ? 0 : -ENOMEM;
    if (!result) {
        *patch = (struct patch){.scheduler = scheduler,
            .exchange = exchange,
            .uid = uid,
            .body = body,
            .generation = generation,
            .next = scheduler->patches,
            .at = &scheduler->patches};
        if (patch->next)
            patch->next->at = &patch->next;
        scheduler->patches = patch;
        result = kube_client_start(scheduler->options.client,
            &(struct kube_request){.method = "PATCH",
                .path = path,
                .content_type = PATCH_MERGE,
                .body = object,
                .deadline_ms = BIND_MS,
                .on_done = on_patched,
                .context = patch},
            &patch->call);
        if (result)
            patch_free(patch);
    } else {
        free(patch);
        free(uid);
        free(body);
    }
    json_decref(object);
    free(path);
    return !result;
}

/* ---- The request ---- */

static void answer_choice(struct scheduler *scheduler, struct http_exchange *exchange,
    const struct ask *ask, uint64_t generation)
{
    const struct choice *choice = &scheduler->choice;
    if (!choice->best) {
        scheduler->filters_failed++;
        tell_failure(scheduler, ask);
        scheduler_answer(exchange, extender_answer_failed(choice));
        return;
    }
    tell_success(scheduler, ask);
    const char **names = calloc(choice->count + 1, sizeof(*names));
    size_t count = 0;
    for (size_t i = 0; names && i < choice->count; i++)
        if (scheduler->options.all_nodes ? choice->candidates[i].fits
                                         : &choice->candidates[i] == choice->best)
            names[count++] = choice->candidates[i].name;
    char *body = names ? extender_answer_names(names, count) : NULL;
    free(names);
    if (!body || !scheduler->options.filter_patch) {
        scheduler_answer(exchange, body);
        return;
    }
    if (start_patch(scheduler, exchange, ask, generation, body))
        return;
    usage_cancel(scheduler->usage, ask->uid, generation);
    scheduler_answer(exchange, extender_answer_error("the Pod cannot be patched: no memory"));
}

static void filter_names(struct scheduler *scheduler, struct http_exchange *exchange,
    const struct ask *ask, const struct extender_filter *filter)
{
    struct error error = {.text = ""};
    uint64_t generation = 0;
    if (!scheduler_is_ready(scheduler))
        scheduler_answer(exchange, extender_answer_error(SCHEDULER_NOT_READY));
    else if (scheduler_choose(scheduler, ask, filter->names, filter->count, &generation, &error))
        scheduler_answer(exchange, extender_answer_error(error.text));
    else
        answer_choice(scheduler, exchange, ask, generation);
}

/* Whole nodes, as an autoscaler that simulates sends them: as they are, without Pods, and nothing
 * is kept. */
static void filter_nodes(
    struct http_exchange *exchange, const struct ask *ask, const struct extender_filter *filter)
{
    struct usage *usage = usage_create();
    struct choice choice = {0};
    struct error error = {.text = ""};
    const json_t *best = NULL;
    for (size_t i = 0; usage && i < filter->count; i++)
        if (node_read(usage, filter->names[i],
                object_get(json_array_get(filter->nodes, i), "metadata", "annotations", NULL),
                &error))
            log_line(LOG_LINE_WARNING, "filter: node %s: %s", filter->names[i], error.text);
    if (!usage || choice_make(&choice, usage, ask, filter->names, filter->count, true, &error)) {
        scheduler_answer(exchange, extender_answer_error("no memory"));
    } else {
        if (choice.best)
            best = json_array_get(filter->nodes, (size_t)(choice.best - choice.candidates));
        scheduler_answer(exchange, extender_answer_node(&choice, best));
    }
    choice_finish(&choice);
    usage_destroy(usage);
}

void scheduler_filter(
    void *context, struct http_exchange *exchange, const struct http_server_request *request)
{
    struct scheduler *scheduler = context;
    struct extender_filter filter;
    struct ask ask;
    struct error error = {.text = ""};
    scheduler->filters++;
    if (extender_read_filter(request->body, request->body_bytes, &filter, &error)) {
        scheduler_answer(exchange, extender_answer_error(error.text));
        return;
    }
    if (!filter.pod) {
        scheduler_answer(exchange, extender_answer_error(EXTENDER_NO_POD));
    } else if (ask_read(filter.pod, scheduler->options.ask, &ask, &error)) {
        scheduler->filters_failed++;
        scheduler_answer(exchange, extender_answer_error(error.text));
    } else {
        if (!ask.devices && !filter.nodes)
            scheduler_answer(exchange, extender_answer_names(filter.names, filter.count));
        else if (!ask.devices)
            scheduler_answer(exchange, extender_answer_all(&filter));
        else if (filter.nodes)
            filter_nodes(exchange, &ask, &filter);
        else
            filter_names(scheduler, exchange, &ask, &filter);
        ask_finish(&ask);
    }
    extender_finish_filter(&filter);
}
