/* SPDX-License-Identifier: Apache-2.0 */
#include "node/monitor/priorities.h"

#include "cluster/feedback.h"
#include "net/log_line.h"
#include "region/grant_write.h"
#include "vgpu/region.h"

#include <errno.h>
#include <limits.h>
#include <stdlib.h>
#include <string.h>

_Static_assert(FEEDBACK_DEVICES_MAX == HAMI_REGION_DEVICES, "one is copied into the other");

struct turn {
    const struct container *container;
    struct hami_region_words words;
    struct vgpu_grant *grant; /* from malloc; NULL: none */
    char grant_path[PATH_MAX];
};

static void take_words(struct turn *turn, struct feedback_region *region)
{
    for (unsigned d = 0; d < turn->words.device_count; d++)
        region->uuids[d] = turn->words.uuids[d];
    region->device_count = turn->words.device_count;
    region->priority = turn->words.priority;
    region->recent_kernel = turn->words.recent_kernel;
    region->utilization_switch = turn->words.utilization_switch;
}

static void take_grant(struct turn *turn, struct feedback_region *region)
{
    struct vgpu_grant *grant = turn->grant;
    uint32_t priority = grant->priority_set ? grant->priority : VGPU_PRIORITY_DEFAULT;
    uint32_t count = grant->device_count;
    region->device_count = count < FEEDBACK_DEVICES_MAX ? count : FEEDBACK_DEVICES_MAX;
    for (unsigned d = 0; d < region->device_count; d++) {
        grant->devices[d].uuid[sizeof(grant->devices[d].uuid) - 1] = '\0';
        region->uuids[d] = grant->devices[d].uuid;
    }
    region->priority = priority < INT32_MAX ? (int32_t)priority : INT32_MAX;
    region->utilization_switch = !grant->lifted;
}

/* False where it has no part in this tick. */
static bool read_turn(struct containers *containers, const struct container *container,
    struct turn *turn, struct feedback_region *region)
{
    *turn = (struct turn){.container = container};
    *region = (struct feedback_region){.device_count = 0};
    if (container->fd < 0 || container->kind == HAMI_REGION_NONE || !container->may_write)
        return false;
    int error = hami_region_read_words(container->fd, container->kind, &turn->words);
    if (error) {
        containers_report(containers, container, "the region", error);
        return false;
    }
    take_words(turn, region);
    if (!containers_grant_path(containers, container, turn->grant_path, sizeof(turn->grant_path)))
        return true;
    turn->grant = malloc(sizeof(*turn->grant));
    error = turn->grant ? grant_write_read(turn->grant_path, turn->grant) : -ENOMEM;
    if (!error) {
        take_grant(turn, region);
        return true;
    }
    free(turn->grant);
    turn->grant = NULL;
    if (error != -ENOENT)
        containers_report(containers, container, "its grant", error);
    return error == -ENOENT;
}

static void write_turn(
    struct containers *containers, struct turn *turn, const struct feedback_region *region)
{
    const struct container *container = turn->container;
    int error = hami_region_write_recent(
        container->fd, container->kind, turn->words.recent_kernel, region->recent_kernel);
    if (!error && turn->grant) {
        bool lifted = !region->utilization_switch;
        if (lifted != (turn->grant->lifted != 0))
            error = grant_write_lifted(turn->grant_path, lifted);
    } else if (!error) {
        error = hami_region_write_switch(container->fd, container->kind,
            turn->words.utilization_switch, region->utilization_switch);
    }
    if (error)
        containers_report(containers, container, "the feedback", error);
}

void priorities_tick(struct containers *containers)
{
    size_t all = containers_count(containers), count = 0;
    struct turn *turns = malloc((all + 1) * sizeof(*turns));
    struct feedback_region *regions = malloc((all + 1) * sizeof(*regions));
    if (!turns || !regions)
        log_line(LOG_LINE_ERROR, "feedback: no memory for %zu containers", all);
    for (size_t i = 0; turns && regions && i < all; i++)
        count +=
            read_turn(containers, containers_at(containers, i), &turns[count], &regions[count]);
    if (count)
        feedback_tick(regions, count);
    for (size_t i = 0; i < count; i++) {
        write_turn(containers, &turns[i], &regions[i]);
        free(turns[i].grant);
    }
    free(turns);
    free(regions);
}
