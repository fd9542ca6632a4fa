/* SPDX-License-Identifier: Apache-2.0 */
/* Lists of groups and their channels. */
#include "rm/rm_channel_list.h"

void rm_channel_list_finish(struct rm_channel_list *list)
{
    slab_finish(&list->groups);
    slab_finish(&list->channels);
    list->first = NULL;
    list->round = 0;
    list->ended_count = 0;
}

struct rm_group *rm_channel_list_add_group(
    struct rm_channel_list *list, const struct rm_route *route, uint32_t handle)
{
    struct rm_group *group = slab_take(&list->groups);
    if (!group)
        return NULL;
    group->route = *route;
    group->handle = handle;
    group->next = list->first;
    list->first = group;
    return group;
}

struct rm_channel *rm_channel_list_add_channel(
    struct rm_channel_list *list, struct rm_group *group, uint32_t handle)
{
    struct rm_channel *channel = slab_take(&list->channels);
    if (!channel)
        return NULL;
    channel->handle = handle;
    channel->next = group->channels;
    group->channels = channel;
    return channel;
}

static struct rm_channel **channel_link(struct rm_group *group, uint32_t handle)
{
    struct rm_channel **link = &group->channels;
    while (*link && (*link)->handle != handle)
        link = &(*link)->next;
    return link;
}

struct rm_group *rm_channel_list_find(
    const struct rm_channel_list *list, uint32_t client, uint32_t handle)
{
    struct rm_group *group = list->first;
    while (group && (group->route.client != client ||
                        (group->handle != handle && !*channel_link(group, handle))))
        group = group->next;
    return group;
}

/* Whether the group is the object or below it. */
static bool is_within(const struct rm_group *group, uint32_t client, uint32_t object)
{
    return group->route.client == client &&
           (group->handle == object || group->device_handle == object || client == object);
}

static struct rm_group *take_channel(
    struct rm_channel_list *list, struct rm_group *group, uint32_t handle)
{
    struct rm_channel **link = channel_link(group, handle), *channel = *link;
    struct rm_group *part = slab_take(&list->groups);
    *link = channel->next;
    channel->next = NULL;
    if (!part) {
        slab_give(&list->channels, channel);
        return NULL;
    }
    part->route = group->route;
    part->handle = group->handle;
    part->channels = channel;
    part->is_part = true;
    return part;
}

struct rm_group *rm_channel_list_take(
    struct rm_channel_list *list, uint32_t client, uint32_t object)
{
    struct rm_group *taken = NULL;
    struct rm_group **link = &list->first;
    while (*link) {
        struct rm_group *group = *link;
        if (is_within(group, client, object)) {
            *link = group->next;
            group->next = taken;
            group->with_client = client == object;
            taken = group;
        } else {
            link = &group->next;
        }
    }
    if (taken)
        return taken;
    struct rm_group *group = rm_channel_list_find(list, client, object);
    return group ? take_channel(list, group, object) : NULL;
}

static void forget_channels(struct rm_channel_list *list, struct rm_group *group, bool all)
{
    struct rm_channel **link = &group->channels;
    while (*link) {
        struct rm_channel *channel = *link;
        if (all || channel->gone) {
            *link = channel->next;
            slab_give(&list->channels, channel);
        } else {
            link = &channel->next;
        }
    }
}

static void forget_group(struct rm_channel_list *list, struct rm_group *group)
{
    forget_channels(list, group, true);
    slab_give(&list->groups, group);
}

static void note_ended(struct rm_channel_list *list, const struct rm_group *group)
{
    list->ended[list->ended_count++ % RM_ENDED_MAX] =
        (struct rm_ended){.client = group->route.client, .handle = group->handle};
}

bool rm_channel_list_is_restored(
    const struct rm_channel_list *list, uint32_t client, uint32_t handle)
{
    bool restored = false;
    for (unsigned i = 0; i < list->ended_count && i < RM_ENDED_MAX; i++)
        restored |= list->ended[i].handle == handle && list->ended[i].client != client;
    for (const struct rm_group *group = list->first; group; group = group->next)
        restored = restored && group->restored;
    return restored;
}

void rm_channel_list_drop(struct rm_channel_list *list, struct rm_group *taken)
{
    while (taken) {
        struct rm_group *next = taken->next;
        if (taken->with_client)
            note_ended(list, taken);
        forget_group(list, taken);
        taken = next;
    }
}

static void put_part(struct rm_channel_list *list, struct rm_group *part)
{
    struct rm_group *group = rm_channel_list_find(list, part->route.client, part->handle);
    if (group && group->handle == part->handle && rm_route_is_same(&group->route, &part->route)) {
        *channel_link(part, 0) = group->channels; /* no handle is 0: the end */
        group->channels = part->channels;
        part->channels = NULL;
    }
    forget_group(list, part);
}

void rm_channel_list_put(struct rm_channel_list *list, struct rm_group *taken)
{
    while (taken) {
        struct rm_group *next = taken->next;
        if (taken->is_part) {
            put_part(list, taken);
        } else {
            taken->next = list->first;
            list->first = taken;
        }
        taken = next;
    }
}

void rm_channel_list_sweep(struct rm_channel_list *list)
{
    struct rm_group **link = &list->first;
    while (*link) {
        struct rm_group *group = *link;
        forget_channels(list, group, false);
        if (group->gone) {
            *link = group->next;
            forget_group(list, group);
        } else {
            link = &group->next;
        }
    }
}
