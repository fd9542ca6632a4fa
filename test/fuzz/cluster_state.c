/* SPDX-License-Identifier: Apache-2.0 */
/* What the scheduler's watches show: a list of Nodes, Pods and ResourceQuotas in any order and
 * form. Sums stay sums, and nothing is left of what has gone. */
#include "schedule/claim.h"
#include "schedule/flight.h"
#include "schedule/node_read.h"
#include "schedule/quota.h"
#include "schedule/raise.h"
#include "schedule/usage.h"

#include "fuzz.h"

#include <errno.h>
#include <stdbool.h>

static const struct request_config config = {.count_name = "nvidia.com/gpu",
    .memory_name = "nvidia.com/gpumem",
    .percentage_name = "nvidia.com/gpumem-percentage",
    .cores_name = "nvidia.com/gpucores",
    .priority_name = "nvidia.com/priority",
    .memory_factor = 1,
    .default_count = 1};

static const char *text_of(const json_t *object, const char *part, const char *name)
{
    const char *text = json_string_value(json_object_get(json_object_get(object, part), name));
    return text ? text : "";
}

static void check_sums(const struct usage *usage)
{
    size_t count;
    const struct usage_node **nodes = usage_list_nodes(usage, &count);
    FUZZ_CHECK(nodes);
    for (size_t i = 0; i < count; i++) {
        struct usage_amounts sum = {0};
        for (const struct usage_pod *pod = nodes[i]->pods; pod; pod = pod->next)
            for (size_t k = 0; k < pod->count; k++)
                if (pod->shares[k].device >= 0) {
                    sum.memory += pod->shares[k].share.memory_mib;
                    sum.cores += pod->shares[k].share.cores_percent;
                    sum.slots += pod->shares[k].share.slots;
                }
        FUZZ_CHECK(sum.memory == nodes[i]->used.memory && sum.cores == nodes[i]->used.cores &&
                   sum.slots == nodes[i]->used.slots);
    }
    free(nodes);
}

static void take_pod(struct usage *usage, struct flights *flights, const json_t *pod)
{
    struct claim claim;
    struct error error;
    if (!*text_of(pod, "metadata", "uid"))
        return;
    int result = claim_read(pod, &config, &claim, &error);
    FUZZ_CHECK(!result || (result == -EINVAL && !claim.count));
    const char *phase = text_of(pod, "status", "phase");
    FUZZ_CHECK(
        !usage_observe(usage, &claim, !strcmp(phase, "Succeeded") || !strcmp(phase, "Failed")));
    const char *devices = json_string_value(
        json_object_get(json_object_get(json_object_get(pod, "metadata"), "annotations"),
            "hami.io/vgpu-devices-to-allocate"));
    if (devices && *claim.node) {
        FUZZ_CHECK(flights_clash(flights, claim.node, claim.uid, devices, 0) >= 0);
        FUZZ_CHECK(!flights_add(flights, claim.node, claim.uid, devices, 1));
        FUZZ_CHECK(flights_deadline(flights, claim.uid) == 1);
    }
    claim_finish(&claim);
    bool raises;
    result = raise_read(pod, &config, &claim, &raises, &error);
    FUZZ_CHECK(!result || result == -EINVAL || result == -E2BIG);
    if (!result && raises) {
        (void)usage_has_room(usage, &claim);
        FUZZ_CHECK(!claim.count || !usage_observe(usage, &claim, false));
        claim_finish(&claim);
    }
}

static void take_quota(struct usage *usage, const json_t *quota)
{
    struct quota_amount limit;
    struct error error;
    const char *space = text_of(quota, "metadata", "namespace");
    const char *name = text_of(quota, "metadata", "name");
    if (quota_read(quota, &config, &limit, &error))
        return;
    FUZZ_CHECK(limit.memory >= 0 && limit.cores >= 0);
    FUZZ_CHECK(!quotas_set(usage->quotas, space, name, limit));
}

static void take(struct usage *usage, struct flights *flights, const json_t *object)
{
    const char *kind = json_string_value(json_object_get(object, "kind"));
    const char *name = text_of(object, "metadata", "name");
    struct error error;
    if (!kind)
        return;
    if (!strcmp(kind, "Node") && *name) {
        const json_t *metadata = json_object_get(object, "metadata");
        int result = node_read(usage, name, json_object_get(metadata, "annotations"), &error);
        FUZZ_CHECK(result == 0 || result == -EINVAL || result == -E2BIG);
    } else if (!strcmp(kind, "NodeGone")) {
        usage_remove_node(usage, name);
    } else if (!strcmp(kind, "ResourceQuota")) {
        take_quota(usage, object);
    } else {
        take_pod(usage, flights, object);
    }
}

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size)
{
    char *body = fuzz_copy(data, size);
    json_t *list = json_loadb(body, size, 0, NULL);
    struct usage *usage = usage_create();
    struct flights *flights = flights_create();
    FUZZ_CHECK(usage && flights);
    for (size_t i = 0; i < json_array_size(list); i++) {
        take(usage, flights, json_array_get(list, i));
        check_sums(usage);
    }
    for (size_t i = 0; i < json_array_size(list); i++) {
        const char *uid = text_of(json_array_get(list, i), "metadata", "uid");
        usage_remove_pod(usage, uid);
        (void)flights_remove(flights, uid);
        FUZZ_CHECK(!flights_deadline(flights, uid));
    }
    size_t count;
    const struct usage_node **nodes = usage_list_nodes(usage, &count);
    for (size_t i = 0; nodes && i < count; i++)
        FUZZ_CHECK(!nodes[i]->used.memory && !nodes[i]->used.cores && !nodes[i]->used.slots);
    free(nodes);
    flights_destroy(flights);
    usage_destroy(usage);
    json_decref(list);
    free(body);
    return 0;
}
