/* SPDX-License-Identifier: Apache-2.0 */
/* What the API server is told. Nothing is queued: what a Pod's annotations and the Node's lock are
 * to be follows from the records and from what they are, and is written while it differs. */
#include "node/allocation/allocation_parts.h"

#include "cluster/erase.h"
#include "cluster/node_lock.h"
#include "cluster/proof.h"
#include "kube/object.h"
#include "kube/patch.h"
#include "kube/url.h"
#include "net/log_line.h"
#include "node/settings.h"

#include <errno.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#define PATCH_JSON "application/json-patch+json"
#define LOCK_POINTER "/metadata/annotations/hami.io~1mutex.lock"
#define PATH_BYTES 1200

void allocation_retry(struct allocation *allocation)
{
    struct timeval wait = {ALLOCATION_RETRY_S, 0};
    if (!evtimer_pending(allocation->retry, NULL))
        (void)event_add(allocation->retry, &wait);
}

/* The API server refuses what it will not take later either: said once. */
static void say_refused(struct allocation *allocation, const struct kube_reply *reply)
{
    if (!allocation->said_refused)
        log_line(LOG_LINE_ERROR, "allocation: %s; it is tried again every %d s", reply->text,
            ALLOCATION_RETRY_S);
    allocation->said_refused = true;
    allocation_retry(allocation);
}

static bool print_path(char path[PATH_BYTES], const char *pod_namespace, const char *name)
{
    char *space = url_escape(pod_namespace), *last = url_escape(name);
    bool good = space && last;
    if (good)
        snprintf(path, PATH_BYTES, "/api/v1/namespaces/%s/pods/%s", space, last);
    free(space);
    free(last);
    return good;
}

static struct allocation_job *find_job(const struct allocation *allocation, const char *uid)
{
    struct allocation_job *job;
    LIST_FOREACH(job, &allocation->jobs, entry)
    if (!strcmp(job->uid, uid))
        return job;
    return NULL;
}

static void remove_job(struct allocation_job *job)
{
    LIST_REMOVE(job, entry);
    free(job);
}

/* One request for a Pod at a time. */
static void start_job(struct allocation *allocation, const char *uid, const char *pod_namespace,
    const char *name, const json_t *patch,
    void (*on_done)(void *context, const struct kube_reply *reply))
{
    char path[PATH_BYTES];
    size_t length = strlen(uid) + 1;
    struct allocation_job *job = calloc(1, sizeof(*job) + length);
    if (!job || !print_path(path, pod_namespace, name)) {
        free(job);
        allocation_retry(allocation);
        return;
    }
    job->allocation = allocation;
    job->asks = !patch;
    memcpy(job->uid, uid, length);
    LIST_INSERT_HEAD(&allocation->jobs, job, entry);
    const struct kube_request request = {.method = patch ? "PATCH" : "GET",
        .path = path,
        .content_type = patch ? PATCH_MERGE : NULL,
        .body = patch,
        .on_done = on_done,
        .context = job};
    if (kube_client_start(allocation->client, &request, &job->call)) {
        remove_job(job);
        allocation_retry(allocation);
    }
}

/* The Pod's records and restores, as far as they name it. */
static bool find_name(const struct allocation *allocation, const char *uid, const char **ret_space,
    const char **ret_name)
{
    const struct allocation_record *record;
    TAILQ_FOREACH(record, &allocation->records, entry)
    {
        if (!strcmp(record->pod_uid, uid)) {
            *ret_space = record->pod_namespace;
            *ret_name = record->pod_name;
            return true;
        }
        for (size_t i = 0; i < record->restore_count; i++)
            if (!strcmp(record->restores[i].pod_uid, uid)) {
                *ret_space = record->restores[i].pod_namespace;
                *ret_name = record->restores[i].pod_name;
                return true;
            }
    }
    return false;
}

static void forget_pod(struct allocation *allocation, const char *uid)
{
    const char *space, *name;
    if (!find_name(allocation, uid, &space, &name))
        return;
    /* The texts go with what has them. */
    char *kept_space = strdup(space), *kept_name = strdup(name);
    if (kept_space && kept_name)
        allocation_pod_gone(allocation, kept_space, kept_name, uid);
    else
        allocation_retry(allocation);
    free(kept_space);
    free(kept_name);
}

/* As the watch would tell it; a stray is renewed in its place. */
static void learn(struct allocation *allocation, const char *uid, const json_t *object)
{
    struct allocation_stray *stray;
    pods_learn(allocation->pods, object);
    LIST_FOREACH(stray, &allocation->strays, entry)
    {
        struct pods_pod *pod = strcmp(stray->pod->view.uid, uid) != 0
                                   ? NULL
                                   : pods_read(&allocation->settings->config.request, object);
        if (!pod)
            continue;
        pods_pod_destroy(stray->pod);
        stray->pod = pod;
    }
}

static void on_patched(void *context, const struct kube_reply *reply)
{
    struct allocation_job *job = context;
    struct allocation *allocation = job->allocation;
    char *uid = strdup(job->uid);
    remove_job(job);
    if (!uid) {
        allocation_retry(allocation);
        return;
    }
    if (reply->status >= 200 && reply->status < 300) {
        allocation->said_refused = false;
        learn(allocation, uid, reply->body);
        allocation_write(allocation, uid);
    } else if (reply->status == 404) {
        forget_pod(allocation, uid);
    } else if (reply->status == 409 || reply->status == 422) {
        /* Another Pod of this name, or one that refuses: what there is, is asked for. */
        const char *space, *name;
        if (find_name(allocation, uid, &space, &name))
            log_line(LOG_LINE_WARNING, "allocation: Pod %s/%s: %s", space, name, reply->text);
        allocation_retry(allocation);
    } else {
        say_refused(allocation, reply);
    }
    free(uid);
}

static void on_asked(void *context, const struct kube_reply *reply)
{
    struct allocation_job *job = context;
    struct allocation *allocation = job->allocation;
    char *uid = strdup(job->uid);
    remove_job(job);
    if (uid && (reply->status == 404 ||
                   (reply->status == 200 && strcmp(object_uid(reply->body), uid) != 0)))
        forget_pod(allocation, uid);
    else if (reply->status != 200)
        allocation_retry(allocation);
    free(uid);
}

void allocation_ask(struct allocation *allocation, const struct allocation_record *record)
{
    if (!find_job(allocation, record->pod_uid))
        start_job(
            allocation, record->pod_uid, record->pod_namespace, record->pod_name, NULL, on_asked);
}

/* The patch that the Pod needs; NULL: none, or no memory. *ret_done: all of its containers have
 * been served, or it has failed. */
static json_t *make_patch(struct allocation *allocation, const struct pods_pod *pod, bool *ret_done)
{
    const struct pod_view *view = &pod->view;
    bool failed = allocation_find_failure(allocation, view->uid) != NULL;
    char *text = allocation_effective(allocation, pod);
    bool done = failed || (text && erase_is_done(text));
    const char *phase = failed ? POD_BIND_FAILED : done ? POD_BIND_SUCCESS : NULL;
    bool erases = text && strcmp(text, view->to_allocate) != 0;
    bool phases = phase && (!view->bind_phase || strcmp(view->bind_phase, phase) != 0);
    char *actual = allocation_actual(allocation, pod), proof[PROOF_TEXT_BYTES];
    json_t *patch = erases || phases || actual ? patch_create() : NULL;
    int result = 0;
    /* Another Pod of the same name is not meant. */
    if (patch)
        result =
            json_object_set_new(json_object_get(patch, "metadata"), "uid", json_string(view->uid));
    if (patch && !result && erases)
        result = patch_annotation(patch, POD_ANNOTATION_TO_ALLOCATE, text);
    if (patch && !result && phases)
        result = patch_annotation(patch, POD_ANNOTATION_BIND_PHASE, phase);
    if (patch && !result && actual)
        result = patch_annotation(patch, POD_ANNOTATION_ALLOCATED, actual);
    if (patch && !result && actual && allocation_prove(allocation, pod, actual, proof))
        result = patch_annotation(patch, POD_ANNOTATION_PROOF, proof);
    free(actual);
    free(text);
    *ret_done = done;
    if (result) {
        json_decref(patch);
        return NULL;
    }
    return patch;
}

/* A restore is over when the API has it. A failure stays until the Pod is gone: it is not served
 * again. */
static void settle(struct allocation *allocation, const struct pods_pod *pod)
{
    struct allocation_record *record;
    struct pod_devices left = {0};
    if (pod->view.to_allocate && !pod_devices_decode(pod->view.to_allocate, &left, NULL)) {
        TAILQ_FOREACH(record, &allocation->records, entry)
        {
            bool changed = false;
            for (size_t i = record->restore_count; i-- > 0;) {
                const struct allocation_restore *restore = &record->restores[i];
                if (strcmp(restore->pod_uid, pod->view.uid) != 0 || restore->slot >= left.count ||
                    !left.containers[restore->slot].count)
                    continue;
                allocation_record_unrestore(record, i);
                changed = true;
            }
            if (changed)
                allocation_save(allocation, record);
        }
    }
    pod_devices_finish(&left);
}

void allocation_write(struct allocation *allocation, const char *uid)
{
    const struct pods_pod *pod = allocation_find_pod(allocation, uid);
    bool done;
    if (!pod || find_job(allocation, uid) || !allocation_has_pod(allocation, uid))
        return;
    json_t *patch = make_patch(allocation, pod, &done);
    if (patch) {
        start_job(
            allocation, pod->view.uid, pod->view.pod_namespace, pod->view.name, patch, on_patched);
        json_decref(patch);
        return;
    }
    settle(allocation, pod);
    if (done)
        allocation_write_lock(allocation);
}

void allocation_write_all(struct allocation *allocation)
{
    const struct allocation_record *record;
    TAILQ_FOREACH(record, &allocation->records, entry)
    {
        allocation_write(allocation, record->pod_uid);
        for (size_t i = 0; i < record->restore_count; i++)
            allocation_write(allocation, record->restores[i].pod_uid);
    }
    allocation_write_lock(allocation);
}

/* -- the lock */

/* A Pod of ours that has it and needs it no more: its annotations say all. */
static bool may_release(struct allocation *allocation, const char *lock)
{
    const struct allocation_record *record;
    const struct allocation_release *release;
    bool done;
    LIST_FOREACH(release, &allocation->releases, entry)
    if (node_lock_is_held_by(lock, release->pod_namespace, release->pod_name))
        return true;
    TAILQ_FOREACH(record, &allocation->records, entry)
    {
        const struct pods_pod *pod = allocation_find_pod(allocation, record->pod_uid);
        if (!pod || !node_lock_is_held_by(lock, record->pod_namespace, record->pod_name))
            continue;
        json_t *patch = make_patch(allocation, pod, &done);
        json_decref(patch);
        if (!patch && done)
            return true;
    }
    return false;
}

static void forget_releases(struct allocation *allocation, const char *lock)
{
    struct allocation_release *release = LIST_FIRST(&allocation->releases), *next;
    for (; release; release = next) {
        next = LIST_NEXT(release, entry);
        if (lock && node_lock_is_held_by(lock, release->pod_namespace, release->pod_name))
            continue;
        LIST_REMOVE(release, entry);
        free(release->pod_namespace);
        free(release->pod_name);
        free(release);
    }
}

static void on_node_read(void *context, const struct kube_reply *reply)
{
    struct allocation *allocation = context;
    allocation->lock_call = NULL;
    if (reply->status == 200)
        pods_learn_node(allocation->pods, reply->body);
    allocation_retry(allocation);
}

static void start_lock_call(struct allocation *allocation, const char *method, const json_t *body,
    void (*on_done)(void *context, const struct kube_reply *reply))
{
    char path[320];
    snprintf(path, sizeof(path), "/api/v1/nodes/%s", allocation->settings->node_name);
    const struct kube_request request = {.method = method,
        .path = path,
        .content_type = body ? PATCH_JSON : NULL,
        .body = body,
        .on_done = on_done,
        .context = allocation};
    if (kube_client_start(allocation->client, &request, &allocation->lock_call))
        allocation_retry(allocation);
}

static void on_released(void *context, const struct kube_reply *reply)
{
    struct allocation *allocation = context;
    allocation->lock_call = NULL;
    if (reply->status >= 200 && reply->status < 300) {
        allocation->said_refused = false;
        pods_learn_node(allocation->pods, reply->body);
    } else if (reply->status == 409 || reply->status == 422) {
        /* It is not what it was: another Pod's, or gone. */
        start_lock_call(allocation, "GET", NULL, on_node_read);
    } else if (reply->status != 404) {
        say_refused(allocation, reply);
    }
}

/* The patch holds only while the lock is this one: what another scheduler has taken over meanwhile
 * stays. */
void allocation_write_lock(struct allocation *allocation)
{
    const char *lock = pods_lock(allocation->pods);
    if (allocation->lock_call)
        return;
    if (!lock || !may_release(allocation, lock)) {
        forget_releases(allocation, lock);
        return;
    }
    json_t *patch = json_pack("[{s:s, s:s, s:s}, {s:s, s:s}]", "op", "test", "path", LOCK_POINTER,
        "value", lock, "op", "remove", "path", LOCK_POINTER);
    if (patch)
        start_lock_call(allocation, "PATCH", patch, on_released);
    else
        allocation_retry(allocation);
    json_decref(patch);
}

void allocation_write_stop(struct allocation *allocation)
{
    kube_call_cancel(allocation->lock_call);
    struct allocation_job *job = LIST_FIRST(&allocation->jobs), *next;
    for (; job; job = next) {
        next = LIST_NEXT(job, entry);
        kube_call_cancel(job->call);
        remove_job(job);
    }
    forget_releases(allocation, NULL);
}
