/* SPDX-License-Identifier: Apache-2.0 */
#include "node/allocation/allocation_usage.h"

#include <errno.h>
#include <inttypes.h>
#include <string.h>

static int64_t larger(int64_t a, int64_t b)
{
    return a > b ? a : b;
}

static void add(struct allocation_load *to, const struct allocation_use *use)
{
    to->memory_mib += use->memory_mib;
    to->cores_percent += use->cores_percent;
    to->containers++;
}

static void raise_to(struct allocation_load *to, const struct allocation_load *other)
{
    to->memory_mib = larger(to->memory_mib, other->memory_mib);
    to->cores_percent = larger(to->cores_percent, other->cores_percent);
    to->containers = (uint32_t)larger(to->containers, other->containers);
}

/* While the init container at that place runs: the sidecars before it do, too. */
static struct allocation_load sum_beside(
    const struct allocation_use *uses, size_t count, const char *pod_uid, size_t place)
{
    struct allocation_load sum = {0};
    for (size_t i = 0; i < count; i++)
        if (!strcmp(uses[i].pod_uid, pod_uid) &&
            (uses[i].init ? uses[i].place == place : uses[i].place < place))
            add(&sum, &uses[i]);
    return sum;
}

static struct allocation_load sum_pod(
    const struct allocation_use *uses, size_t count, const char *pod_uid)
{
    struct allocation_load worst = {0}, others = {0};
    for (size_t i = 0; i < count; i++) {
        if (strcmp(uses[i].pod_uid, pod_uid) != 0)
            continue;
        if (uses[i].init) {
            struct allocation_load beside = sum_beside(uses, count, pod_uid, uses[i].place);
            raise_to(&worst, &beside);
        } else {
            add(&others, &uses[i]);
        }
    }
    raise_to(&worst, &others);
    return worst;
}

struct allocation_load allocation_usage_sum(const struct allocation_use *uses, size_t count)
{
    struct allocation_load sum = {0};
    for (size_t i = 0; i < count; i++) {
        bool counted = false;
        for (size_t k = 0; k < i && !counted; k++)
            counted = !strcmp(uses[k].pod_uid, uses[i].pod_uid);
        if (counted)
            continue;
        struct allocation_load pod = sum_pod(uses, count, uses[i].pod_uid);
        sum.memory_mib += pod.memory_mib;
        sum.cores_percent += pod.cores_percent;
        sum.containers += pod.containers;
    }
    return sum;
}

int allocation_usage_check(const struct allocation_use *uses, size_t count,
    const struct allocation_capacity *capacity, struct error *error)
{
    struct allocation_load sum = allocation_usage_sum(uses, count);
    struct allocation_load before = allocation_usage_sum(uses, count ? count - 1 : 0);
    if (capacity->memory_mib && sum.memory_mib > capacity->memory_mib)
        return error_set(error, ENOSPC,
            "device %s: %" PRId64 " MiB of memory are given away and %" PRId64
            " MiB more are asked for, of %" PRId64 " MiB",
            capacity->uuid, before.memory_mib, sum.memory_mib - before.memory_mib,
            capacity->memory_mib);
    if (sum.cores_percent > capacity->cores_percent)
        return error_set(error, ENOSPC,
            "device %s: %" PRId64 " %% of the cores are given away and %" PRId64
            " %% more are asked for, of %" PRId64 " %%",
            capacity->uuid, before.cores_percent, sum.cores_percent - before.cores_percent,
            capacity->cores_percent);
    if (sum.containers > capacity->containers)
        return error_set(error, ENOSPC, "device %s: it is for %u containers and has them",
            capacity->uuid, (unsigned)capacity->containers);
    return 0;
}
