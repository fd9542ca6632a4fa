/* SPDX-License-Identifier: Apache-2.0 */
#include "top/order.h"

#include "host/choose.h"
#include "host/limits.h"
#include "host/living.h"
#include "host/say.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>

void top_order_begin(struct top_order *order, const struct collected_container *container)
{
    *order = (struct top_order){.file_device = container->file_device,
        .file_inode = container->file_inode,
        .device = REGION_ALL_DEVICES};
    snprintf(order->path, sizeof(order->path), "%s", container->path);
    for (unsigned i = 0; i < container->process_count && order->pid_count < TOP_ORDER_PIDS; i++) {
        if (container->processes[i].host_pid)
            order->pids[order->pid_count++] = (unsigned)container->processes[i].host_pid;
    }
}

static void take_line(const char *line, void *context)
{
    struct top_order *order = context;
    snprintf(order->message, sizeof(order->message), "%s", line);
}

/* Only the very file: another one may have its name by now. */
static bool choose(
    const struct top_order *order, const struct region_choice *choice, struct chosen_region *chosen)
{
    if (choose_region(choice, chosen) == 0 && chosen->region.device == order->file_device &&
        chosen->region.inode == order->file_inode)
        return true;
    region_detach(&chosen->region);
    return false;
}

/* By its path, or, where that leads elsewhere from here, by a process that maps it. */
static bool find(struct top_order *order, struct chosen_region *chosen)
{
    if (choose(order, &(struct region_choice){.file = order->path}, chosen))
        return true;
    char why[TOP_MESSAGE_BYTES];
    memcpy(why, order->message, sizeof(why));
    for (unsigned i = 0; i < order->pid_count; i++) {
        char pid[16];
        snprintf(pid, sizeof(pid), "%u", order->pids[i]);
        if (choose(order, &(struct region_choice){.pid = pid}, chosen))
            return true;
    }
    memcpy(order->message, why, sizeof(why));
    if (!why[0])
        say_error("another file by now: %.200s", order->path);
    return false;
}

static int give(const struct top_order *order, struct chosen_region *chosen)
{
    struct pause_outcome outcome;
    int error = living_pause(chosen, order->paused, &outcome);
    if (error)
        return limits_refuse(chosen, error);
    if (outcome.empty)
        living_refuse_empty(chosen, &outcome);
    return outcome.empty ? TOOL_FAILED : 0;
}

static int change(const struct top_order *order, struct chosen_region *chosen)
{
    struct region_look look;
    int count = region_set_device_count(&chosen->region);
    int error =
        count < 0 ? count : region_set_limits(&chosen->region, order->device, &order->change);
    if (error)
        return limits_refuse_device(chosen, order->device, count, error);
    if (order->change.memory)
        limits_warn_of_little_memory(order->change.memory_bytes);
    for (int i = 0; i < count; i++) {
        bool asked = order->device == REGION_ALL_DEVICES || order->device == i;
        if (asked && region_set_look(&chosen->region, i, &look) == 0)
            limits_warn(i, &look, &order->change);
    }
    return 0;
}

/* Lines that are no failure warn of what was done. */
void top_order_do(struct top_order *order)
{
    struct chosen_region *chosen = calloc(1, sizeof(*chosen));
    order->message[0] = '\0';
    order->failed = true;
    say_take_errors(take_line, order);
    if (!chosen)
        say_error("out of memory");
    else if (find(order, chosen)) {
        order->message[0] = '\0'; /* of a place where it was not */
        order->failed = (order->is_pause ? give : change)(order, chosen) != 0;
        region_detach(&chosen->region);
    }
    say_take_errors(NULL, NULL);
    free(chosen);
}
