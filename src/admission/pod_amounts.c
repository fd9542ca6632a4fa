/* SPDX-License-Identifier: Apache-2.0 */
#include "admission/pod_amounts.h"

#include "kube/object.h"

static int64_t add(int64_t a, int64_t b)
{
    int64_t sum;
    return __builtin_add_overflow(a, b, &sum) ? INT64_MAX : sum;
}

static int64_t most(int64_t a, int64_t b)
{
    return a > b ? a : b;
}

static struct pod_amounts sum(struct pod_amounts a, struct pod_amounts b)
{
    return (struct pod_amounts){
        add(a.memory_mib, b.memory_mib), add(a.cores_percent, b.cores_percent)};
}

/* Each factor is below 2^31. */
static struct pod_amounts of_container(const struct request_config *config, const json_t *container)
{
    struct request request = request_parse(config, json_object_get(container, "resources"));
    return (struct pod_amounts){(int64_t)request.memory_mib * request.count,
        (int64_t)request.cores_percent * request.count};
}

struct pod_amounts pod_amounts_of(const struct request_config *config, const json_t *pod)
{
    struct pod_amounts steady = {0}, peak = {0};
    for (size_t i = 0; i < object_container_count(pod, OBJECT_INIT_CONTAINERS); i++) {
        const json_t *container = object_container(pod, OBJECT_INIT_CONTAINERS, i);
        struct pod_amounts now = sum(steady, of_container(config, container));
        peak.memory_mib = most(peak.memory_mib, now.memory_mib);
        peak.cores_percent = most(peak.cores_percent, now.cores_percent);
        if (object_container_is_sidecar(container))
            steady = now;
    }
    for (size_t i = 0; i < object_container_count(pod, OBJECT_CONTAINERS); i++)
        steady = sum(steady, of_container(config, object_container(pod, OBJECT_CONTAINERS, i)));
    return (struct pod_amounts){
        most(peak.memory_mib, steady.memory_mib), most(peak.cores_percent, steady.cores_percent)};
}

static bool fits(int64_t wanted, bool is_limited, int64_t limit, int64_t used)
{
    return !wanted || !is_limited || add(used, wanted) <= limit;
}

bool pod_amounts_fit(const struct pod_amounts *amounts, const struct admission_quota *quota)
{
    return fits(amounts->memory_mib, quota->memory_is_limited, quota->memory_limit_mib,
               quota->memory_used_mib) &&
           fits(amounts->cores_percent, quota->cores_are_limited, quota->cores_limit,
               quota->cores_used);
}
