/* SPDX-License-Identifier: Apache-2.0 */
#include "admission/admission.h"

#include "admission/json_patch.h"
#include "admission/owned_keys.h"
#include "admission/pod_rules.h"
#include "base/text.h"
#include "codec/json_bound.h"
#include "kube/base64.h"
#include "kube/object.h"

#include <errno.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#define VERSION_1 "admission.k8s.io/v1"
#define VERSION_1_BETA "admission.k8s.io/v1beta1"

/* What is read of a review. Texts are borrowed from it. */
struct review_request {
    const char *version; /* of the answer */
    const char *uid;
    const char *operation;
    const char *subresource; /* "": of the object itself */
    const char *kind;
    const char *namespace;
    const char *user;   /* NULL: unknown */
    json_t *object;     /* an object, unless the operation has none */
    json_t *old_object; /* NULL: none */
};

static const char *or_else(const char *text, const char *other)
{
    return text ? text : other;
}

static bool unreadable(struct verdict *verdict, const char *why)
{
    return verdict_set(verdict, VERDICT_UNREADABLE, "%s", why);
}

/* A list of labels with a number in it, say, would be read as if it were empty. */
static bool has_texts(const json_t *object, const char *member)
{
    const json_t *map = object_get(object, "metadata", member, NULL);
    const char *key;
    json_t *value;
    if (map && !json_is_null(map) && !json_is_object(map))
        return false;
    json_object_foreach((json_t *)map, key, value) if (!json_is_string(value)) return false;
    return true;
}

static bool is_object(const json_t *value)
{
    return json_is_object(value) && has_texts(value, "annotations") && has_texts(value, "labels");
}

/* What can be read is in *request even where it returns false. */
static bool read_request(
    const json_t *review, struct review_request *request, struct verdict *verdict)
{
    const char *version = object_string(review, "apiVersion", NULL);
    json_t *found = object_get(review, "request", NULL);
    json_t *old_object = object_get(found, "oldObject", NULL);
    *request = (struct review_request){
        .version = version && !strcmp(version, VERSION_1_BETA) ? version : VERSION_1,
        .uid = or_else(object_string(found, "uid", NULL), ""),
        .operation = or_else(object_string(found, "operation", NULL), "CREATE"),
        .subresource = or_else(object_string(found, "subResource", NULL), ""),
        .namespace = or_else(object_string(found, "namespace", NULL), ""),
        .user = object_string(found, "userInfo", "username", NULL),
        .object = object_get(found, "object", NULL),
        .old_object = json_is_null(old_object) ? NULL : old_object,
    };
    request->kind = or_else(object_string(found, "kind", "kind", NULL),
        or_else(object_string(request->object, "kind", NULL), "Pod"));
    if (version && strcmp(version, VERSION_1) != 0 && strcmp(version, VERSION_1_BETA) != 0)
        return unreadable(verdict, "apiVersion is accepted as " VERSION_1 " or " VERSION_1_BETA);
    if (!json_is_object(found) || !*request->uid)
        return unreadable(verdict, "not an AdmissionReview: it has no request with a uid");
    return true;
}

static bool check_object(const struct review_request *request, struct verdict *verdict)
{
    const char *kind = object_string(request->object, "kind", NULL);
    if (!is_object(request->object))
        return unreadable(verdict, "the object, its annotations or its labels cannot be read");
    if (request->old_object && !is_object(request->old_object))
        return unreadable(verdict, "the old object, its annotations or its labels cannot be read");
    if (kind && strcmp(kind, request->kind) != 0)
        return unreadable(verdict, "the object is not of the request's kind");
    return true;
}

static bool judge(const struct admission_settings *settings,
    const struct admission_quota_view *quotas, enum admission_role role,
    const struct review_request *request, struct json_patch *patch, struct verdict *verdict)
{
    bool is_create = !strcmp(request->operation, "CREATE");
    bool is_pod = !strcmp(request->kind, "Pod");
    /* What deletes or connects carries no metadata that anything believes. */
    if (!is_create && strcmp(request->operation, "UPDATE") != 0)
        return true;
    /* The same goes for objects of subresources, an Eviction say, except for a Binding. */
    if (!is_pod && strcmp(request->kind, "Binding") != 0)
        return *request->subresource ? true
                                     : verdict_set(verdict, VERDICT_UNREADABLE,
                                           "Pods and Bindings are accepted, not the kind %s",
                                           verdict_quote(request->kind).text);
    if (!check_object(request, verdict) ||
        !owned_keys_check(settings, request->object, is_create ? NULL : request->old_object,
            request->user, verdict))
        return false;
    if (role == ADMISSION_VALIDATE || !is_create || !is_pod || *request->subresource)
        return true;
    return pod_rules_apply(settings, quotas, request->namespace, request->object, patch, verdict);
}

static json_t *make_status(const struct verdict *verdict)
{
    json_t *status = json_pack("{s:{}, s:i}", "metadata", "code", (int)verdict->code);
    if (*verdict->message &&
        json_object_set_new(status, "message", json_string(verdict->message))) {
        json_decref(status);
        return NULL;
    }
    if (verdict->code == VERDICT_DENIED &&
        json_object_set_new(status, "reason", json_string("Forbidden"))) {
        json_decref(status);
        return NULL;
    }
    return status;
}

/* Adds the operations to the response. */
static int add_patch(json_t *response, const struct json_patch *patch)
{
    char *text = json_dumps(patch->operations, JSON_COMPACT), *encoded = NULL;
    int error = text ? base64_encode(text, strlen(text), &encoded) : -ENOMEM;
    if (!error && (json_object_set_new(response, "patchType", json_string("JSONPatch")) ||
                      json_object_set_new(response, "patch", json_string(encoded))))
        error = -ENOMEM;
    free(encoded);
    free(text);
    return error;
}

static int make_body(const struct review_request *request, const struct verdict *verdict,
    const struct json_patch *patch, struct admission_answer *answer)
{
    json_t *response = json_pack("{s:s, s:b, s:o}", "uid", request->uid, "allowed",
        verdict->code == VERDICT_ALLOWED, "status", make_status(verdict));
    if (!response || (answer->operations && add_patch(response, patch))) {
        json_decref(response);
        return -ENOMEM;
    }
    json_t *review = json_pack("{s:s, s:s, s:o}", "apiVersion", request->version, "kind",
        "AdmissionReview", "response", response);
    answer->body = review ? json_dumps(review, JSON_COMPACT) : NULL;
    json_decref(review);
    if (!answer->body)
        return -ENOMEM;
    answer->bytes = strlen(answer->body);
    return 0;
}

static int make_answer(const struct review_request *request, const struct verdict *verdict,
    const struct json_patch *patch, struct admission_answer *ret_answer)
{
    char subject[sizeof(ret_answer->subject)];
    struct admission_answer answer = {
        .allowed = verdict->code == VERDICT_ALLOWED,
        .code = (int)verdict->code,
    };
    if (answer.allowed)
        answer.operations = json_patch_size(patch);
    memcpy(answer.message, verdict->message, sizeof(answer.message));
    const char *name = object_name(request->object);
    snprintf(subject, sizeof(subject), "%s/%s", request->namespace,
        *name ? name
              : or_else(object_string(request->object, "metadata", "generateName", NULL), ""));
    text_escape(answer.subject, sizeof(answer.subject), subject, strlen(subject));
    int error = make_body(request, verdict, patch, &answer);
    if (!error)
        *ret_answer = answer;
    return error;
}

int admission_review(const struct admission_settings *settings,
    const struct admission_quota_view *quotas, enum admission_role role, const char *body,
    size_t bytes, struct admission_answer *ret_answer)
{
    struct review_request request = {.version = VERSION_1, .uid = "", .namespace = ""};
    struct verdict verdict = {.code = VERDICT_ALLOWED};
    struct json_patch patch;
    json_error_t error;
    json_t *review = NULL;
    json_patch_init(&patch);
    /* NUL bytes may be in what is none of this program's business. */
    bool is_wide = json_bound_values(body, bytes) > JSON_BOUND_VALUES_MAX;
    if (bytes <= ADMISSION_BODY_MAX && !is_wide)
        review = json_loadb(body, bytes, JSON_ALLOW_NUL, &error);
    if (bytes > ADMISSION_BODY_MAX)
        (void)verdict_set(&verdict, VERDICT_UNREADABLE,
            "the review has %zu bytes: up to %d are accepted", bytes, ADMISSION_BODY_MAX);
    else if (is_wide)
        (void)verdict_set(&verdict, VERDICT_UNREADABLE,
            "the review may have more than %d JSON values", JSON_BOUND_VALUES_MAX);
    else if (!review)
        (void)verdict_set(&verdict, VERDICT_UNREADABLE, "the review is not JSON: %s",
            verdict_quote(error.text).text);
    else if (!patch.failed && read_request(review, &request, &verdict))
        (void)judge(settings, quotas, role, &request, &patch, &verdict);
    int result = patch.failed ? -ENOMEM : make_answer(&request, &verdict, &patch, ret_answer);
    json_patch_finish(&patch);
    json_decref(review);
    return result;
}

void admission_answer_finish(struct admission_answer *answer)
{
    free(answer->body);
    answer->body = NULL;
}
