/* SPDX-License-Identifier: Apache-2.0 */
/* Allocate. They are served one after the other: what the one gets, the next cannot. */
#include "node/allocation/allocation.h"
#include "node/allocation/allocation_serving.h"

#include "codec/no_memory.h"
#include "kube/event.h"
#include "net/log_line.h"
#include "node/allocation/allocation_files.h"
#include "node/settings.h"

#include <errno.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>

/* Pods that would over-commit the node; more than a node has. */
#define EXCLUDED_MAX 512

static void forget_extras(struct serving *serving)
{
    for (size_t i = 0; i < serving->extra_count; i++)
        pods_pod_destroy(serving->extras[i]);
    free(serving->extras);
    serving->extras = NULL;
    serving->extra_count = 0;
}

static void serving_destroy(struct serving *serving)
{
    kube_call_cancel(serving->asked);
    TAILQ_REMOVE(&serving->allocation->servings, serving, entry);
    forget_extras(serving);
    free(serving->requests);
    free(serving->lock);
    free(serving->excluded);
    free(serving->over_uid);
    free(serving);
}

static void serve_next(struct allocation *allocation)
{
    struct serving *next = TAILQ_FIRST(&allocation->servings);
    if (next)
        serving_go_on(next);
}

/* -- the candidates */

static bool is_excluded(const struct serving *serving, const char *uid)
{
    for (size_t i = 0; i < serving->excluded_count; i++)
        if (!strcmp(serving->excluded[i], uid))
            return true;
    return false;
}

static void forget_excluded(struct serving *serving)
{
    serving->excluded_count = 0;
    free(serving->over_uid);
    serving->over_uid = NULL;
}

/* Takes out those that would over-commit. */
static size_t drop_excluded(
    const struct serving *serving, struct allocate_pod *candidates, size_t count)
{
    size_t left = 0;
    for (size_t i = 0; i < count; i++) {
        if (is_excluded(serving, candidates[i].view.uid))
            free((char *)candidates[i].view.to_allocate);
        else
            candidates[left++] = candidates[i];
    }
    return left;
}

static const struct pods_pod *find_pod(const struct serving *serving, const char *uid)
{
    for (size_t i = 0; i < serving->extra_count; i++)
        if (!strcmp(serving->extras[i]->view.uid, uid))
            return serving->extras[i];
    return allocation_find_pod(serving->allocation, uid);
}

/* -- the end of an Allocate */

static void keep_stray(struct serving *serving, const char *uid)
{
    struct allocation *allocation = serving->allocation;
    if (allocation_find_pod(allocation, uid))
        return;
    for (size_t i = 0; i < serving->extra_count; i++) {
        struct allocation_stray *stray = NULL;
        if (strcmp(serving->extras[i]->view.uid, uid) != 0 || !(stray = calloc(1, sizeof(*stray))))
            continue;
        stray->pod = serving->extras[i];
        serving->extras[i] = serving->extras[--serving->extra_count];
        LIST_INSERT_HEAD(&allocation->strays, stray, entry);
        return;
    }
}

static void record_failure(struct serving *serving, const struct pods_pod *pod, const char *text)
{
    struct allocation *allocation = serving->allocation;
    struct allocation_record *record = allocation_record_create();
    struct error error;
    if (record) {
        allocation_files_random_id(record->id);
        record->serial = allocation->serial;
    }
    if (!record || allocation_record_set(&record->resource, allocation->settings->resource_name) ||
        allocation_record_set(&record->pod_namespace, pod->view.pod_namespace) ||
        allocation_record_set(&record->pod_name, pod->view.name) ||
        allocation_record_set(&record->pod_uid, pod->view.uid) ||
        allocation_record_set(&record->container, "") ||
        allocation_record_set(&record->failed, text)) {
        allocation_record_destroy(record);
        return;
    }
    if (allocation_files_make(allocation->settings->hook_path, record, &error))
        log_line(LOG_LINE_ERROR, "allocation: %s", error.text);
    allocation_save(allocation, record);
    allocation_add(allocation, record);
}

/* `uid`: of the Pod whose Allocate it was; NULL: nobody's that is known. */
static void refuse(struct serving *serving, const char *uid, const char *text)
{
    struct allocation *allocation = serving->allocation;
    const struct pods_pod *pod = uid ? find_pod(serving, uid) : NULL;
    log_line(LOG_LINE_WARNING, "allocation: refused: %s", text);
    if (serving->call)
        kubelet_refuse(serving->call, GRPC_UNKNOWN, text);
    if (pod) {
        char *kept = strdup(uid);
        record_failure(serving, pod, text);
        if (kept) {
            keep_stray(serving, kept);
            allocation_write(allocation, kept);
        }
        free(kept);
    }
    serving_destroy(serving);
    serve_next(allocation);
}

/* Not a part of the answer's promise: without it the library has no lock that HAMi's tools share.
 */
static void make_lock_directory(void)
{
    if (mkdir(ALLOCATE_LOCK_DIRECTORY, 0777) == 0)
        (void)chmod(ALLOCATE_LOCK_DIRECTORY, 0777);
}

/* Answers as kubelet's types have them; texts stay the answers'. */
static int answer_kubelet(struct kubelet_call *call, const struct allocate_answer *answers,
    size_t count, struct error *error)
{
    struct kubelet_container *containers = calloc(count + 1, sizeof(*containers));
    if (!containers) {
        kubelet_refuse(call, GRPC_RESOURCE_EXHAUSTED, "no memory");
        (void)error_set(error, ENOMEM, "no memory");
        return -ENOMEM;
    }
    for (size_t i = 0; i < count; i++) {
        const struct allocate_answer *from = &answers[i];
        /* Three lists have the same members in the same order. */
        _Static_assert(sizeof(struct allocate_pair) == sizeof(struct kubelet_pair), "same members");
        _Static_assert(sizeof(struct allocate_node) == sizeof(struct kubelet_node), "same members");
        _Static_assert(
            sizeof(struct allocate_mount) == sizeof(struct kubelet_mount), "same members");
        containers[i] = (struct kubelet_container){(const struct kubelet_pair *)from->variables,
            from->variable_count, (const struct kubelet_mount *)from->mounts, from->mount_count,
            (const struct kubelet_node *)from->nodes, from->node_count,
            (const struct kubelet_pair *)from->annotations, from->annotation_count,
            {(const char *const *)from->cdi_names, from->cdi_name_count}};
    }
    int result = kubelet_answer_allocate(call, containers, count, error);
    free(containers);
    return result;
}

static void drop_made(struct allocation *allocation, struct allocation_record **made, size_t count)
{
    for (size_t i = 0; i < count; i++)
        if (made[i])
            allocation_remove(allocation, made[i]);
}

/* Files, then the record, which makes it an allocation. */
static int store(const struct allocation *allocation, const struct allocation_record *record,
    struct error *error)
{
    const char *hook_path = allocation->settings->hook_path;
    int result = allocation_files_make(hook_path, record, error);
    if (!result && record->limited)
        result = allocation_write_grant(allocation, record, error);
    return result ? result : allocation_files_save(hook_path, record, error);
}

/* HAMi's variable lifts all limits for whoever may write a Pod. */
static bool is_control_disabled(
    struct allocation *allocation, const struct pods_pod *pod, size_t container)
{
    const struct pod_view *view = &pod->view;
    const struct pod_container *is = &view->containers[container];
    char text[512];
    if (!is->control_disabled || !allocation->settings->ignore_disable_control)
        return is->control_disabled;
    snprintf(text, sizeof(text),
        "container %.253s: CUDA_DISABLE_CONTROL is ignored on this node; its limits hold",
        is->name);
    const struct kube_event event = {.kind = "Pod",
        .namespace_name = view->pod_namespace,
        .name = view->name,
        .uid = view->uid,
        .reason = "DisableControlIgnored",
        .message = text,
        .is_warning = true};
    log_line(LOG_LINE_INFO, "allocation: Pod %s/%s: %s", view->pod_namespace, view->name, text);
    if (allocation->events)
        kube_event_post(allocation->events, &event);
    return false;
}

static int make_one(struct serving *serving, const struct pods_pod *pod,
    const struct allocate_choice *choice, size_t at, struct allocation_record **ret_record,
    struct allocate_answer *ret_answer, struct error *error)
{
    struct allocation *allocation = serving->allocation;
    const struct allocate_step *step = &choice->steps[at];
    struct allocation_record *record;
    int result =
        allocation_make(allocation, pod, choice, step, &serving->requests[at], &record, error);
    if (result)
        return result;
    struct pod_device *devices = calloc(record->device_count + 1, sizeof(*devices));
    for (size_t i = 0; devices && i < record->device_count; i++)
        devices[i] = record->devices[i].given;
    result = devices ? allocation_answer(allocation, record,
                           is_control_disabled(allocation, pod, step->container), devices,
                           record->device_count, ret_answer, error)
                     : no_memory(error, "Allocate");
    free(devices);
    if (!result)
        result = store(allocation, record, error);
    if (result) {
        allocation_files_remove(allocation->settings->hook_path, record);
        allocation_record_destroy(record);
        return result;
    }
    /* Now, so that the next container of the call sees it. */
    allocation_add(allocation, record);
    *ret_record = record;
    return 0;
}

static void say_granted(
    const struct allocate_choice *choice, const struct allocation_record *record)
{
    log_line(LOG_LINE_INFO, "allocation: Pod %s/%s, container %s: %s", record->pod_namespace,
        record->pod_name, record->container,
        choice->by_lock       ? "by the node's lock"
        : choice->pod->proven ? "by its proof"
        : choice->ambiguous   ? "one of several that differ"
                              : "the only one, or one of equal ones");
}

/* All of the call's containers, or none. */
static int grant_all(struct serving *serving, const struct pods_pod *pod,
    const struct allocate_choice *choice, struct error *error)
{
    struct allocation *allocation = serving->allocation;
    size_t count = serving->count;
    struct allocation_record **made = calloc(count + 1, sizeof(struct allocation_record *));
    struct allocate_answer *answers = calloc(count + 1, sizeof(*answers));
    int result = made && answers ? 0 : no_memory(error, "Allocate");
    for (size_t i = 0; !result && i < count; i++)
        result = make_one(serving, pod, choice, i, &made[i], &answers[i], error);
    if (!result) {
        make_lock_directory();
        result = answer_kubelet(serving->call, answers, count, error);
        serving->call = NULL;
    }
    if (result && made)
        drop_made(allocation, made, count);
    if (!result && count)
        say_granted(choice, made[0]);
    if (!result)
        allocation_settle(allocation);
    for (size_t i = 0; answers && i < count; i++)
        allocate_answer_finish(&answers[i]);
    free(answers);
    free(made);
    return result;
}

/* -- the flow */

static int choose(struct serving *serving, const struct allocate_pod *candidates, size_t count,
    struct allocate_choice *ret_choice, struct error *error)
{
    const struct allocation *allocation = serving->allocation;
    struct allocate_question question = {.node_name = allocation->settings->node_name,
        .lock = serving->has_lock ? serving->lock : pods_lock(allocation->pods),
        .lock_holder_gone = serving->holder_gone,
        .require_proof = allocation->settings->require_proof,
        .requests = serving->requests,
        .request_count = serving->count};
    int result = allocate_choose(&question, candidates, count, ret_choice, error);
    if (result != -EAGAIN)
        return result;
    if (serving->excluded_count == 0 && !serving->asked_holder &&
        serving_ask_holder(serving, question.lock))
        return -EINPROGRESS;
    question.lock_holder_gone = true;
    return allocate_choose(&question, candidates, count, ret_choice, error);
}

/* The Pod would over-commit the node: others are looked at before it is refused. */
static bool exclude(struct serving *serving, const char *uid, const struct error *error)
{
    if (serving->excluded_count == EXCLUDED_MAX || strlen(uid) >= sizeof(*serving->excluded))
        return false;
    char(*grown)[64] = reallocarray(serving->excluded, serving->excluded_count + 1, sizeof(*grown));
    if (!grown)
        return false;
    serving->excluded = grown;
    snprintf(grown[serving->excluded_count++], sizeof(*grown), "%s", uid);
    if (!serving->over_uid) {
        serving->over_uid = strdup(uid);
        serving->over = *error;
    }
    return true;
}

enum outcome {
    WAIT,  /* a request is under way */
    AGAIN, /* without the Pod that was chosen */
    DONE,
};

static enum outcome serve_once(struct serving *serving)
{
    struct allocation *allocation = serving->allocation;
    struct allocate_choice choice = {0};
    struct error error = {.text = "no memory"};
    size_t all, count;
    struct allocate_pod *candidates =
        allocation_candidates(allocation, serving->extras, serving->extra_count, &all);
    count = candidates ? drop_excluded(serving, candidates, all) : 0;
    int result = candidates ? choose(serving, candidates, count, &choice, &error) : -ENOMEM;
    const struct pods_pod *pod = choice.pod ? find_pod(serving, choice.pod->view.uid) : NULL;
    char *uid = pod ? strdup(pod->view.uid) : NULL;
    enum outcome outcome = DONE;
    if (result == -EINPROGRESS) {
        outcome = WAIT;
    } else if (result && result != -ENOMEM && !serving->refreshed && serving_refresh(serving)) {
        outcome = WAIT;
    } else if (result && result != -ENOMEM && !serving->asked_resources &&
               serving_ask_resources(serving)) {
        outcome = WAIT;
        forget_excluded(serving);
    } else if (!result) {
        result = grant_all(serving, pod, &choice, &error);
        if (result == -ENOSPC && serving->call && uid && exclude(serving, uid, &error))
            outcome = AGAIN;
        if (!result && uid) {
            keep_stray(serving, uid);
            pod = allocation_find_pod(allocation, uid);
            if (pod)
                allocation_look_at_wish(allocation, pod);
            allocation_write(allocation, uid);
        }
    }
    allocate_choice_finish(&choice);
    allocation_candidates_free(candidates, count);
    if (outcome == DONE && result && serving->over_uid) {
        refuse(serving, serving->over_uid, serving->over.text);
    } else if (outcome == DONE && result) {
        refuse(serving, uid, error.text);
    } else if (outcome == DONE) {
        serving_destroy(serving);
        serve_next(allocation);
    }
    free(uid);
    return outcome;
}

void serving_go_on(struct serving *serving)
{
    if (kubelet_call_gone(serving->call)) {
        struct allocation *allocation = serving->allocation;
        kubelet_refuse(serving->call, GRPC_CANCELLED, "the kubelet has given it up");
        serving_destroy(serving);
        serve_next(allocation);
        return;
    }
    while (serve_once(serving) == AGAIN)
        continue;
}

void allocation_allocate(
    struct kubelet_call *call, const struct kubelet_ids *containers, size_t count, void *context)
{
    struct allocation *allocation = context;
    struct serving *serving = calloc(1, sizeof(*serving));
    struct allocate_request *requests = calloc(count + 1, sizeof(*requests));
    if (!serving || !requests || !count) {
        free(serving);
        free(requests);
        kubelet_refuse(call, count ? GRPC_RESOURCE_EXHAUSTED : GRPC_INVALID_ARGUMENT,
            count ? "no memory" : "no containers are asked for");
        return;
    }
    for (size_t i = 0; i < count; i++)
        requests[i] = (struct allocate_request){containers[i].ids, containers[i].count};
    *serving = (struct serving){
        .allocation = allocation, .call = call, .requests = requests, .count = count};
    bool idle = TAILQ_EMPTY(&allocation->servings);
    TAILQ_INSERT_TAIL(&allocation->servings, serving, entry);
    if (idle)
        serving_go_on(serving);
}

void allocation_serve_stop(struct allocation *allocation)
{
    struct serving *serving = TAILQ_FIRST(&allocation->servings), *next;
    for (; serving; serving = next) {
        next = TAILQ_NEXT(serving, entry);
        kubelet_refuse(serving->call, GRPC_UNAVAILABLE, "the plugin ends");
        serving_destroy(serving);
    }
}

void allocation_allocate_mig(
    struct kubelet_call *call, const struct kubelet_ids *containers, size_t count, void *context)
{
    struct allocation *allocation = context;
    struct allocate_answer *answers = calloc(count + 1, sizeof(*answers));
    struct error error = {.text = "no memory"};
    int result = answers ? 0 : -ENOMEM;
    for (size_t i = 0; !result && i < count; i++) {
        struct pod_device *devices = calloc(containers[i].count + 1, sizeof(*devices));
        result = devices ? 0 : error_set(&error, ENOMEM, "no memory");
        for (size_t k = 0; !result && k < containers[i].count; k++)
            if (device_id_physical(containers[i].ids[k], devices[k].uuid))
                result = error_set(&error, EINVAL, "a device ID is too long");
        if (!result)
            result = allocation_answer(
                allocation, NULL, false, devices, containers[i].count, &answers[i], &error);
        free(devices);
    }
    if (result)
        kubelet_refuse(call, GRPC_UNKNOWN, error.text);
    else if (answer_kubelet(call, answers, count, &error))
        log_line(LOG_LINE_ERROR, "allocation: the answer: %s", error.text);
    for (size_t i = 0; answers && i < count; i++)
        allocate_answer_finish(&answers[i]);
    free(answers);
}
