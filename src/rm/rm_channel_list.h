/* SPDX-License-Identifier: Apache-2.0 */
/* Channel groups and their channels: the record behind rm/rm_channels.h. Bookkeeping alone; the
 * owner's lock guards it. Some dozens of channels a process: lists that are walked. */
#ifndef VGPU_RM_RM_CHANNEL_LIST_H
#define VGPU_RM_RM_CHANNEL_LIST_H

#include "base/slab.h"
#include "rm/rm_route.h"

#include <stdbool.h>
#include <stdint.h>

struct rm_channel {
    struct rm_channel *next;
    uint32_t handle;
    bool closed;    /* disabled by us */
    bool gone;      /* freed where we did not see it */
    unsigned round; /* in which it had its turn */
};

struct rm_group {
    struct rm_group *next;
    struct rm_channel *channels;
    struct rm_route route;
    uint32_t handle, device_handle;
    uint32_t subdevice; /* where its channels' controls go; 0: to be looked up */
    unsigned device;    /* the region's index */
    uint64_t first_us;  /* its time slice before we changed it; 0: not asked yet */
    bool gone;
    bool is_part;     /* taken out: stands for channels of a group that stayed */
    bool with_client; /* taken out with all of its client */
    bool restored;    /* made anew by the driver from a checkpoint */
};

/* Groups that ended with their client, of which that many are remembered. */
#define RM_ENDED_MAX 32

struct rm_channel_list {
    struct slab groups, channels;
    struct rm_group *first;
    unsigned round; /* of switching: a channel has one turn in each */
    struct rm_ended {
        uint32_t client, handle;
    } ended[RM_ENDED_MAX];
    unsigned ended_count; /* in all; the last ones are kept */
};

#define RM_CHANNEL_LIST_INIT                                                                       \
    {                                                                                              \
        .groups = {.object_bytes = sizeof(struct rm_group)}, .channels = {                         \
            .object_bytes = sizeof(struct rm_channel)                                              \
        }                                                                                          \
    }

void rm_channel_list_finish(struct rm_channel_list *list);

/* Zeroed but for its route and handle; NULL where there is no memory. */
struct rm_group *rm_channel_list_add_group(
    struct rm_channel_list *list, const struct rm_route *route, uint32_t handle);
struct rm_channel *rm_channel_list_add_channel(
    struct rm_channel_list *list, struct rm_group *group, uint32_t handle);

/* The group of that handle, or the one that has the channel; NULL where there is none. */
struct rm_group *rm_channel_list_find(
    const struct rm_channel_list *list, uint32_t client, uint32_t handle);

/* Takes out what is the object or below it: groups, linked by `next`, or a part of one. NULL where
 * there is none. Without memory for the part its channels are forgotten. */
struct rm_group *rm_channel_list_take(
    struct rm_channel_list *list, uint32_t client, uint32_t object);

/* What was taken comes back; a part whose group has gone meanwhile goes, too. */
void rm_channel_list_put(struct rm_channel_list *list, struct rm_group *taken);
void rm_channel_list_drop(struct rm_channel_list *list, struct rm_group *taken);

/* Whether a group that is to be added is one that the driver restores from a checkpoint: a group of
 * that handle ended with another client of the process, and none is there but restored ones. The
 * driver first frees all clients, and makes its objects anew with a new client and the former
 * handles (seen on an H100, driver 580.159.04). So might another API that begins again, beside
 * groups that live. */
bool rm_channel_list_is_restored(
    const struct rm_channel_list *list, uint32_t client, uint32_t handle);

/* Forgets what is marked as gone. */
void rm_channel_list_sweep(struct rm_channel_list *list);

#endif
