/* SPDX-License-Identifier: Apache-2.0 */
/* Consent to more than a running Pod was given: where its devices and its namespace's quota have
 * room, the room is taken, and the annotation vgpu.io/grant written, which the node's plugin wants
 * to see. What was granted counts by that annotation, after a restart too. */
#include "schedule/raise.h"

#include "cluster/limits_wish.h"
#include "cluster/proof.h"
#include "kube/object.h"
#include "kube/patch.h"
#include "net/log_line.h"
#include "scheduler/scheduler_parts.h"

#include <errno.h>
#include <stdlib.h>
#include <string.h>

#define ROOM_TEXT                                                                                  \
    "its devices or its namespace's quota have too little left for " LIMITS_WISH_ANNOTATION

/* After which a wish that was refused is looked at again. */
#define AGAIN_NS (INT64_C(30) * 1000000000)

enum raise_state {
    RAISE_WAITS,   /* until the cluster has been read */
    RAISE_REFUSED, /* its Pod has been told */
    RAISE_GOES,    /* the consent is being written, or the watch has not shown it yet */
};

struct raise {
    struct scheduler *scheduler;
    struct kube_call *call;
    char *uid, *pod_namespace, *name;
    char *text; /* the wish */
    enum raise_state state;
    int64_t again_ns;
};

static struct raise *find(const struct scheduler *scheduler, const char *uid)
{
    return table_get(&scheduler->raises, uid);
}

static void raise_free(struct raise *raise)
{
    kube_call_cancel(raise->call);
    free(raise->uid);
    free(raise->pod_namespace);
    free(raise->name);
    free(raise->text);
    free(raise);
}

static void drop(struct raise *raise)
{
    table_remove(&raise->scheduler->raises, raise->uid);
    raise_free(raise);
}

void scheduler_cancel_raises(struct scheduler *scheduler)
{
    struct raise *raise;
    for (size_t cursor = 0; (raise = table_next(&scheduler->raises, &cursor));)
        raise_free(raise);
    table_finish(&scheduler->raises);
}

void scheduler_forget_raise(struct scheduler *scheduler, const char *uid)
{
    struct raise *raise = find(scheduler, uid);
    if (raise)
        drop(raise);
}

static bool has_consent(const struct scheduler *scheduler, const json_t *pod, const char *text)
{
    const struct scheduler_options *options = &scheduler->options;
    return options->proof_key &&
           proof_check(options->proof_key, options->proof_key_bytes, object_uid(pod),
               object_pod_node(pod), text, object_annotation(pod, LIMITS_WISH_CONSENT));
}

static void tell(const struct raise *raise, const char *reason, const char *text, bool is_warning)
{
    log_line(is_warning ? LOG_LINE_WARNING : LOG_LINE_INFO, "limits: %s/%s: %s",
        raise->pod_namespace, raise->name, text);
    scheduler_tell(
        raise->scheduler, raise->pod_namespace, raise->name, raise->uid, reason, text, is_warning);
}

bool scheduler_is_raised(struct scheduler *scheduler, const json_t *pod)
{
    const char *text = object_annotation(pod, LIMITS_WISH_ANNOTATION);
    struct raise *raise = find(scheduler, object_uid(pod));
    if (raise && (!text || strcmp(raise->text, text) != 0)) {
        drop(raise); /* another wish */
        raise = NULL;
    }
    if (!text)
        return false;
    if (!has_consent(scheduler, pod, text))
        return raise && raise->state == RAISE_GOES;
    if (raise && raise->state == RAISE_GOES)
        tell(raise, "LimitsGranted", "the limits of " LIMITS_WISH_ANNOTATION " are granted", false);
    if (raise)
        drop(raise);
    return true;
}

/* What the Pod is now decides. One that was refused stays known, so that it is not told again. */
static void on_asked(void *context, const struct kube_reply *reply)
{
    struct raise *raise = context;
    struct scheduler *scheduler = raise->scheduler;
    bool is_it = reply->status == 200 && !strcmp(object_uid(reply->body), raise->uid);
    raise->call = NULL;
    raise->again_ns = scheduler_now_ns() + AGAIN_NS;
    if (raise->state != RAISE_REFUSED || !is_it)
        drop(raise);
    if (is_it)
        scheduler_take_pod(scheduler, reply->body);
}

static bool ask_again(struct raise *raise)
{
    char *path = scheduler_pod_path(raise->pod_namespace, raise->name, "");
    const struct kube_request request = {
        .method = "GET", .path = path, .deadline_ms = 60000, .on_done = on_asked, .context = raise};
    bool is_asked =
        path && !kube_client_start(raise->scheduler->options.client, &request, &raise->call);
    free(path);
    return is_asked;
}

static void on_granted(void *context, const struct kube_reply *reply)
{
    struct raise *raise = context;
    raise->call = NULL;
    /* It counts until the watch shows the consent. Where nobody can be asked, what it would hold
     * stays taken until the Pod's next change. */
    if ((reply->status < 200 || reply->status > 299) && !ask_again(raise))
        drop(raise);
}

static struct raise *add(
    struct scheduler *scheduler, const json_t *pod, const char *text, enum raise_state state)
{
    struct raise *raise = calloc(1, sizeof(*raise));
    if (!raise)
        return NULL;
    raise->scheduler = scheduler;
    raise->state = state;
    raise->again_ns = state == RAISE_REFUSED ? scheduler_now_ns() + AGAIN_NS : 0;
    raise->uid = strdup(object_uid(pod));
    raise->pod_namespace = strdup(object_namespace(pod));
    raise->name = strdup(object_name(pod));
    raise->text = strdup(text);
    if (raise->uid && raise->pod_namespace && raise->name && raise->text &&
        !table_add(&scheduler->raises, raise->uid, raise))
        return raise;
    raise_free(raise);
    return NULL;
}

/* The Pod is told once for each wish. */
static void refuse(
    struct scheduler *scheduler, const json_t *pod, const char *wish, const char *why)
{
    if (find(scheduler, object_uid(pod)))
        return;
    struct raise *raise = add(scheduler, pod, wish, RAISE_REFUSED);
    if (raise)
        tell(raise, "LimitsNotGranted", why, true);
}

static void grant(struct scheduler *scheduler, const json_t *pod, const char *wish)
{
    const struct scheduler_options *options = &scheduler->options;
    char proof[PROOF_TEXT_BYTES];
    /* Nothing of it is under way when another scheduler may lead. */
    int64_t left_ms = scheduler->leader ? leader_left_ms(scheduler->leader) : BIND_MS;
    if (left_ms <= 0)
        return;
    scheduler_forget_raise(scheduler, object_uid(pod));
    struct raise *raise = add(scheduler, pod, wish, RAISE_GOES);
    json_t *patch = patch_create();
    char *path = scheduler_pod_path(object_namespace(pod), object_name(pod), "");
    int result = raise && patch && path ? 0 : -ENOMEM;
    if (!result)
        result = proof_make(options->proof_key, options->proof_key_bytes, object_uid(pod),
            object_pod_node(pod), wish, proof);
    if (!result)
        result = patch_annotation(patch, LIMITS_WISH_CONSENT, proof);
    if (!result)
        result = patch_resource_version(patch, object_resource_version(pod));
    if (!result)
        result = kube_client_start(options->client,
            &(struct kube_request){.method = "PATCH",
                .path = path,
                .content_type = PATCH_MERGE,
                .body = patch,
                .deadline_ms = (unsigned)(left_ms < BIND_MS ? left_ms : BIND_MS),
                .on_done = on_granted,
                .context = raise},
            &raise->call);
    if (result)
        log_line(
            LOG_LINE_WARNING, "limits: %s/%s: no memory", object_namespace(pod), object_name(pod));
    if (result && raise)
        drop(raise);
    json_decref(patch);
    free(path);
}

static bool may_grant(const struct scheduler *scheduler, const json_t *pod)
{
    const struct scheduler_node *node = table_get(&scheduler->nodes, object_pod_node(pod));
    return node && node->is_ours && !object_pod_has_ended(pod) &&
           !object_get(pod, "metadata", "deletionTimestamp", NULL);
}

void scheduler_look_at_wish(struct scheduler *scheduler, const json_t *pod)
{
    const char *wish = object_annotation(pod, LIMITS_WISH_ANNOTATION);
    struct error error = {.text = ""};
    struct claim claim;
    bool raises = false;
    if (!wish || !scheduler->options.proof_key || scheduler_is_raised(scheduler, pod))
        return;
    if (!scheduler_is_ready(scheduler)) {
        if (!find(scheduler, object_uid(pod)))
            (void)add(scheduler, pod, wish, RAISE_WAITS);
        return;
    }
    if (!may_grant(scheduler, pod))
        return;
    int result = raise_read(pod, &scheduler->options.ask->request, &claim, &raises, &error);
    if (result) {
        refuse(scheduler, pod, wish, error.text);
        return;
    }
    if (!raises)
        return;
    if (!usage_has_room(scheduler->usage, &claim))
        refuse(scheduler, pod, wish, ROOM_TEXT);
    else if (!usage_observe(scheduler->usage, &claim, false))
        grant(scheduler, pod, wish);
    claim_finish(&claim);
}

void scheduler_look_at_raises(struct scheduler *scheduler)
{
    int64_t now = scheduler_now_ns();
    if (!scheduler_is_ready(scheduler))
        return;
    struct raise *raise;
    for (size_t cursor = 0; (raise = table_next(&scheduler->raises, &cursor));)
        if (raise->state != RAISE_GOES && !raise->call && raise->again_ns <= now)
            (void)ask_again(raise); /* else with the next tick */
}
