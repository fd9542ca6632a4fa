/* SPDX-License-Identifier: Apache-2.0 */
/* Behaviour cases of a node's state: lock, health, feedback, device IDs. */
#include "cases.h"

#include "cluster/device_id.h"
#include "codec/duration.h"
#include "cluster/feedback.h"
#include "cluster/health_judgement.h"
#include "cluster/node_lock.h"
#include "codec/rfc3339.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>

static enum node_lock_holder find_holder(const struct behaviour_case *self, const char *value)
{
    struct node_lock lock;
    char name[512];
    if (node_lock_decode(value, &lock, NULL))
        return NODE_LOCK_HOLDER_UNKNOWN;
    snprintf(name, sizeof(name), "%s/%s", lock.pod_namespace, lock.pod_name);
    const json_t *pods = json_object_get(self->input, "existing_pods");
    for (size_t i = 0; i < json_array_size(pods); i++)
        if (!strcmp(json_string_value(json_array_get(pods, i)), name))
            return NODE_LOCK_HOLDER_EXISTS;
    return NODE_LOCK_HOLDER_GONE;
}

void case_run_lock(struct behaviour_case *self)
{
    const char *value = case_text(self->input, "annotation");
    const char *now_text = case_text(self->input, "now"), *node = case_text(self->input, "node");
    const json_t *pod = json_object_get(self->input, "pod");
    const char *space = case_text(pod, "namespace"), *name = case_text(pod, "name");
    char written[NODE_LOCK_VALUE_BYTES];
    int64_t now = 0, expiry = 0;
    enum node_lock_decision decision = NODE_LOCK_CONTENTION;
    struct error error = {.text = ""};
    case_check(self,
        !rfc3339_parse(now_text, strlen(now_text), &now) &&
            !duration_parse(case_text(self->input, "expiry"), &expiry),
        "the case's times");
    node = node ? node : "n1";
    bool failed = node_lock_decide(
        value, node, space, name, NODE_LOCK_HOLDER_UNKNOWN, now, expiry, &decision, &error);
    if (!failed && decision == NODE_LOCK_ASK)
        failed = node_lock_decide(
            value, node, space, name, find_holder(self, value), now, expiry, &decision, &error);
    bool take = !failed && decision == NODE_LOCK_TAKE;
    bool acquired = take || (!failed && decision == NODE_LOCK_HELD);
    case_check_text(self, "result", failed ? "error" : acquired ? "acquired" : "contention");
    case_check_truth(self, "patched", take);
    case_check_contains(self, "error_contains", error.text);
    if (take) {
        case_check(self, !node_lock_encode(now, space, name, written), "cannot be written");
        case_check(self, node_lock_is_held_by(written, space, name), "is not this Pod's");
        value = written;
    }
    const json_t *pattern = case_expected(self, "annotation_after_regex");
    if (pattern)
        case_check_regex(self, "the annotation", json_string_value(pattern), value ? value : "");
}

void case_run_health(struct behaviour_case *self)
{
    const char *now = case_text(self->input, "now");
    struct health_evidence evidence = {
        .handshake = case_text(self->input, "handshake"),
        .allocatable = case_number(self->input, "allocatable"),
        .previous = case_number(self->input, "previously_reported"),
        .register_changed = case_truth(self->input, "register_changed"),
    };
    case_check(self, !rfc3339_parse_local(now, strlen(now), &evidence.now_local_seconds),
        "the case's time");
    struct health_judgement judgement = health_judge(&evidence);
    case_check_truth(self, "healthy", judgement.healthy);
    case_check_truth(self, "refresh", judgement.refresh);
    case_check_truth(self, "patched", judgement.request);
}

static void make_region(const json_t *item, struct feedback_region *region)
{
    const json_t *uuids = json_object_get(item, "uuids");
    region->device_count = json_array_size(uuids);
    for (size_t u = 0; u < region->device_count && u < FEEDBACK_DEVICES_MAX; u++)
        region->uuids[u] = json_string_value(json_array_get(uuids, u));
    region->priority = (int32_t)case_number(item, "priority");
    region->recent_kernel = (int32_t)case_number(item, "recent_kernel");
    region->utilization_switch = (int32_t)case_number(item, "utilization_switch");
}

void case_run_feedback(struct behaviour_case *self)
{
    const json_t *list = json_object_get(self->input, "regions");
    const json_t *after = case_expected(self, "after");
    size_t count = json_array_size(list);
    struct feedback_region *regions = calloc(count + 1, sizeof(*regions));
    for (size_t i = 0; i < count; i++)
        make_region(json_array_get(list, i), &regions[i]);
    feedback_tick(regions, count);
    case_check(self, json_array_size(after) == count, "the case's regions");
    for (size_t i = 0; i < count; i++) {
        const json_t *wanted = json_array_get(after, i);
        const json_t *kernel = json_object_get(wanted, "recent_kernel");
        const json_t *utilization = json_object_get(wanted, "utilization_switch");
        if (kernel)
            case_check(self, regions[i].recent_kernel == json_integer_value(kernel),
                "region %zu: recent_kernel is %d", i, regions[i].recent_kernel);
        if (utilization)
            case_check(self, regions[i].utilization_switch == json_integer_value(utilization),
                "region %zu: utilization_switch is %d", i, regions[i].utilization_switch);
    }
    free(regions);
}

void case_run_plugin_list(struct behaviour_case *self)
{
    const json_t *devices = json_object_get(self->input, "devices");
    unsigned split = (unsigned)case_number(self->input, "deviceSplitCount");
    json_t *ids = json_array();
    for (size_t i = 0; i < json_array_size(devices); i++) {
        const char *uuid = json_string_value(json_array_get(devices, i));
        for (unsigned r = 0; r < device_id_count(uuid, split); r++) {
            char id[DEVICE_ID_BYTES] = "";
            case_check(self, !device_id_format(uuid, r, id), "%s does not fit", uuid);
            json_array_append_new(ids, json_string(id));
        }
    }
    case_check(self, json_equal(ids, case_expected(self, "ids")), "the IDs differ");
    json_decref(ids);
}

void case_run_plugin_physical_id(struct behaviour_case *self)
{
    char uuid[DEVICE_UUID_BYTES] = "";
    const char *id = case_text(self->input, "id");
    case_check(self, !device_id_physical(id, uuid), "%s does not fit", id);
    case_check_text(self, "physical", uuid);
}
