/* SPDX-License-Identifier: Apache-2.0 */
#include "admission/pod_rules.h"

#include "admission/pod_amounts.h"
#include "kube/object.h"

#include <errno.h>
#include <stdint.h>
#include <stdio.h>
#include <string.h>

#define DEFAULT_SCHEDULER "default-scheduler"
/* A resource's name as part of a path: each byte may become two. */
#define ESCAPED_NAME_BYTES (2 * REQUEST_NAME_BYTES)

struct review {
    const struct admission_settings *settings;
    json_t *pod, *spec;
    struct json_patch *patch;
    struct verdict *verdict;
    bool has_devices;
};

/* One container, and where it is. */
struct place {
    const char *list; /* "initContainers" or "containers" */
    size_t at;
    json_t *container;
    const char *name;
};

static const char *text_or_empty(const json_t *value)
{
    const char *text = json_string_value(value);
    return text ? text : "";
}

static json_t *member(const json_t *object, const char *key)
{
    json_t *value = json_object_get(object, key);
    return json_is_null(value) ? NULL : value;
}

/* A member that is absent, null or of the type that the API has for it. */
static bool has_type(const json_t *object, const char *key, json_type type)
{
    const json_t *value = member(object, key);
    return !value || json_typeof(value) == type;
}

static bool is_privileged(const json_t *container)
{
    return json_is_true(object_get(container, "securityContext", "privileged", NULL));
}

static bool check_shape(struct review *review, const struct place *place)
{
    const json_t *container = place->container;
    const json_t *resources = member(container, "resources");
    if (json_is_object(container) && has_type(container, "name", JSON_STRING) &&
        has_type(container, "env", JSON_ARRAY) && has_type(container, "resources", JSON_OBJECT) &&
        has_type(resources, "limits", JSON_OBJECT) && has_type(resources, "requests", JSON_OBJECT))
        return true;
    return verdict_set(review->verdict, VERDICT_UNREADABLE,
        "spec.%s[%zu] is not a container: name, env, resources, limits or requests is of another "
        "type",
        place->list, place->at);
}

/* Reads the limit, or (where `part` is NULL) the limit and else the request. Sets *ret_there.
 * Returns false and a verdict where it is not a quantity. */
static bool read_amount(struct review *review, const struct place *place, const char *part,
    const char *resource, bool *ret_there, struct quantity *ret_amount)
{
    int error = object_resource(place->container, part ? part : "limits", resource, ret_amount);
    if (error == -ENOENT && !part)
        error = object_resource(place->container, "requests", resource, ret_amount);
    *ret_there = !error;
    if (!error || error == -ENOENT)
        return true;
    return verdict_set(review->verdict, VERDICT_UNREADABLE,
        "%s of container %s is not a quantity: " QUANTITY_ACCEPTED " is accepted", resource,
        verdict_quote(place->name).text);
}

static bool check_percentage(struct review *review, const struct place *place)
{
    const char *name = review->settings->config->request.percentage_name;
    struct quantity amount;
    bool there;
    int64_t percent;
    if (!read_amount(review, place, NULL, name, &there, &amount))
        return false;
    if (!there)
        return true;
    if (quantity_value(&amount, &percent))
        percent = amount.nano < 0 ? INT64_MIN : INT64_MAX;
    if (percent >= 0 && percent <= 100)
        return true;
    return verdict_set(review->verdict, VERDICT_FAILED,
        "invalid %s value %lld in container %s: must be an integer between 0 and 100", name,
        (long long)percent, verdict_quote(place->name).text);
}

/* A whole number from 0 to `max`. */
static bool check_amount(
    struct review *review, const struct place *place, const char *name, int64_t max)
{
    struct quantity amount;
    bool there;
    int64_t value;
    if (!read_amount(review, place, NULL, name, &there, &amount))
        return false;
    if (!there || (quantity_is_integer(&amount) && !quantity_value(&amount, &value) && value >= 0 &&
                      value <= max))
        return true;
    return verdict_set(review->verdict, VERDICT_DENIED,
        "%s of container %s is out of range: a whole number from 0 to %lld is accepted", name,
        verdict_quote(place->name).text, (long long)max);
}

/* Whether the last variable of the name has the value: it is the one that counts. */
static bool has_variable(const json_t *variables, const char *name, const char *value)
{
    for (size_t i = json_array_size(variables); i-- > 0;) {
        const json_t *variable = json_array_get(variables, i);
        if (!strcmp(text_or_empty(json_object_get(variable, "name")), name))
            return !strcmp(text_or_empty(json_object_get(variable, "value")), value);
    }
    return false;
}

static void set_variable(
    struct review *review, const struct place *place, const char *name, const char *value)
{
    json_t *variables = member(place->container, "env");
    if (has_variable(variables, name, value))
        return;
    json_t *variable = json_pack("{s:s, s:s}", "name", name, "value", value);
    if (variables) {
        if (json_array_append(variables, variable))
            review->patch->failed = true;
        json_patch_add(review->patch, variable, "/spec/%s/%zu/env/-", place->list, place->at);
        return;
    }
    variables = json_pack("[o]", variable);
    json_patch_add(
        review->patch, json_deep_copy(variables), "/spec/%s/%zu/env", place->list, place->at);
    if (json_object_set_new(place->container, "env", variables))
        review->patch->failed = true;
}

/* The container has limits: that is why it is called. */
static void set_limit(
    struct review *review, const struct place *place, const char *name, int32_t amount)
{
    char text[16], escaped[ESCAPED_NAME_BYTES];
    snprintf(text, sizeof(text), "%d", amount);
    json_patch_escape(name, escaped, sizeof(escaped));
    json_patch_add(review->patch, json_string(text), "/spec/%s/%zu/resources/limits/%s",
        place->list, place->at, escaped);
    json_t *limits = object_get(place->container, "resources", "limits", NULL);
    if (json_object_set_new(limits, name, json_string(text)))
        review->patch->failed = true;
}

/* Of a "priority" that is there. */
static bool apply_priority(struct review *review, const struct place *place)
{
    const char *name = review->settings->config->request.priority_name;
    struct quantity amount;
    bool there;
    int64_t priority;
    char text[24];
    if (!read_amount(review, place, "limits", name, &there, &amount))
        return false;
    if (!there)
        return true;
    if (quantity_value(&amount, &priority))
        return check_amount(review, place, name, INT64_MAX);
    snprintf(text, sizeof(text), "%lld", (long long)priority);
    set_variable(review, place, "CUDA_TASK_PRIORITY", text);
    return true;
}

/* Whole devices, whose time is not shared either: a count, no cores, and all of the memory. */
static bool is_exclusive(struct review *review, const struct place *place)
{
    const struct request_config *names = &review->settings->config->request;
    bool cores, memory, percentage;
    int64_t percent = 0;
    struct quantity amount;
    if (!read_amount(review, place, NULL, names->cores_name, &cores, &amount) ||
        !read_amount(review, place, NULL, names->memory_name, &memory, &amount) ||
        !read_amount(review, place, NULL, names->percentage_name, &percentage, &amount))
        return false;
    if (percentage && quantity_value(&amount, &percent))
        return false;
    return !cores && (percentage ? percent == 100 : !memory);
}

/* Sets *ret_found where the container has devices in the end. */
static bool apply_devices(struct review *review, const struct place *place, bool *ret_found)
{
    const struct request_config *names = &review->settings->config->request;
    const int64_t factor = names->memory_factor > 1 ? names->memory_factor : 1;
    bool count, cores, memory, percentage;
    struct quantity amount;
    if (!read_amount(review, place, "limits", names->count_name, &count, &amount) ||
        !read_amount(review, place, "limits", names->cores_name, &cores, &amount) ||
        !read_amount(review, place, "limits", names->memory_name, &memory, &amount) ||
        !read_amount(review, place, "limits", names->percentage_name, &percentage, &amount))
        return false;
    *ret_found = count || ((cores || memory || percentage) && names->default_count > 0);
    if (!*ret_found)
        return true;
    if (!check_amount(review, place, names->count_name, INT32_MAX) ||
        !check_amount(review, place, names->memory_name, INT32_MAX / factor))
        return false;
    if (!count)
        set_limit(review, place, names->count_name, names->default_count);
    if (is_exclusive(review, place))
        set_limit(review, place, names->cores_name, 100);
    return true;
}

static bool apply_container(struct review *review, const struct place *place)
{
    const struct node_config *config = review->settings->config;
    bool found = false;
    if (!check_percentage(review, place) || !apply_priority(review, place))
        return false;
    if (*config->core_policy && strcmp(config->core_policy, "default") != 0)
        set_variable(review, place, "GPU_CORE_UTILIZATION_POLICY", config->core_policy);
    if (!apply_devices(review, place, &found))
        return false;
    review->has_devices |= found;
    if (!found && config->overwrite_env)
        set_variable(review, place, "NVIDIA_VISIBLE_DEVICES", "none");
    return true;
}

static bool each_container(
    struct review *review, bool (*act)(struct review *review, const struct place *place))
{
    static const char *const lists[] = {"initContainers", "containers"};
    for (size_t i = 0; i < sizeof(lists) / sizeof(lists[0]); i++) {
        struct place place = {.list = lists[i]};
        json_array_foreach(json_object_get(review->spec, place.list), place.at, place.container)
        {
            place.name = text_or_empty(json_object_get(place.container, "name"));
            if (!act(review, &place))
                return false;
        }
    }
    return true;
}

static bool check_privileged(struct review *review, const struct place *place)
{
    if (!is_privileged(place->container))
        return true;
    return verdict_set(review->verdict, VERDICT_DENIED, "container %s is privileged",
        verdict_quote(place->name).text);
}

/* Beyond that many, the scheduler and the plugin would not see a container's devices. */
static bool check_count(struct review *review)
{
    if (json_array_size(json_object_get(review->spec, "containers")) <= OBJECT_CONTAINERS_MAX &&
        json_array_size(json_object_get(review->spec, "initContainers")) <= OBJECT_CONTAINERS_MAX)
        return true;
    return verdict_set(review->verdict, VERDICT_DENIED,
        "pod with devices has too many containers: up to %d, and as many init containers, are "
        "accepted",
        OBJECT_CONTAINERS_MAX);
}

static void set_spec(struct review *review, const char *key, const char *value)
{
    json_patch_add(review->patch, json_string(value), "/spec/%s", key);
    if (json_object_set_new(review->spec, key, json_string(value)))
        review->patch->failed = true;
}

static bool apply_pod(struct review *review)
{
    const struct admission_settings *settings = review->settings;
    const char *scheduler = text_or_empty(json_object_get(review->spec, "schedulerName"));
    if (*settings->config->runtime_class && !member(review->spec, "runtimeClassName"))
        set_spec(review, "runtimeClassName", settings->config->runtime_class);
    if (!check_count(review) || !each_container(review, check_privileged))
        return false;
    if (!*settings->scheduler_name)
        return true;
    if (strcmp(scheduler, settings->scheduler_name) != 0)
        set_spec(review, "schedulerName", settings->scheduler_name);
    if (*text_or_empty(json_object_get(review->spec, "nodeName")))
        return verdict_set(review->verdict, VERDICT_DENIED, "pod has node assigned");
    return true;
}

static bool is_others(const struct admission_settings *settings, const char *scheduler)
{
    bool is_default = !strcmp(scheduler, DEFAULT_SCHEDULER);
    return *scheduler && !(is_default && settings->force_overwrite_default_scheduler) &&
           strcmp(scheduler, settings->scheduler_name) != 0;
}

static bool check_quota(
    struct review *review, const struct admission_quota_view *quotas, const char *namespace)
{
    struct admission_quota quota = {0};
    struct pod_amounts amounts = pod_amounts_of(&review->settings->config->request, review->pod);
    if (!quotas || !quotas->find(quotas->context, namespace, &quota) ||
        pod_amounts_fit(&amounts, &quota))
        return true;
    return verdict_set(review->verdict, VERDICT_DENIED, "exceeding resource quota");
}

bool pod_rules_apply(const struct admission_settings *settings,
    const struct admission_quota_view *quotas, const char *namespace, json_t *pod,
    struct json_patch *patch, struct verdict *verdict)
{
    struct review review = {settings, pod, member(pod, "spec"), patch, verdict, false};
    if (!has_type(pod, "spec", JSON_OBJECT) || !has_type(pod, "metadata", JSON_OBJECT) ||
        !has_type(review.spec, "containers", JSON_ARRAY) ||
        !has_type(review.spec, "initContainers", JSON_ARRAY) ||
        !has_type(review.spec, "schedulerName", JSON_STRING) ||
        !has_type(review.spec, "nodeName", JSON_STRING) ||
        !has_type(review.spec, "runtimeClassName", JSON_STRING))
        return verdict_set(verdict, VERDICT_UNREADABLE,
            "not a Pod: metadata, spec, containers, initContainers, schedulerName, nodeName or "
            "runtimeClassName is of another type");
    if (!each_container(&review, check_shape))
        return false;
    if (!json_array_size(json_object_get(review.spec, "containers")))
        return verdict_set(verdict, VERDICT_DENIED, "pod has no containers");
    if (is_others(settings, text_or_empty(json_object_get(review.spec, "schedulerName"))))
        return verdict_set(
            verdict, VERDICT_ALLOWED, "pod already has different scheduler assigned");
    if (!each_container(&review, apply_container))
        return false;
    if (review.has_devices && !apply_pod(&review))
        return false;
    return check_quota(&review, quotas, *namespace ? namespace : object_namespace(pod));
}
