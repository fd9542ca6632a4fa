/* SPDX-License-Identifier: Apache-2.0 */
/* A container's record, its answer and its grant. */
#include "node/allocation/allocation_parts.h"

#include "base/guard.h"
#include "codec/no_memory.h"
#include "node/allocation/allocation_files.h"
#include "node/allocation/allocation_usage.h"
#include "node/inventory.h"
#include "node/settings.h"
#include "region/epoch.h"
#include "region/grant_write.h"
#include "region/region_file.h"
#include "region/region.h"
#include "region/region_set.h"

#include <errno.h>
#include <fcntl.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

/* A device of the annotation: by its UUID, or (HAMi's MIG slots) by that of its card. */
static const struct node_card *find_card(const struct allocation *allocation, const char *uuid)
{
    char physical[DEVICE_UUID_BYTES];
    const struct node_card *card = inventory_find(allocation->inventory, uuid);
    if (!card && !device_id_physical(uuid, physical))
        card = inventory_find(allocation->inventory, physical);
    return card;
}

int32_t allocation_memory_of(const struct allocation *allocation, const struct pod_device *device)
{
    const struct node_card *card = find_card(allocation, device->uuid);
    if (device->memory_mib || !card)
        return device->memory_mib;
    return card->scaled_memory_mib < INT32_MAX ? (int32_t)card->scaled_memory_mib : INT32_MAX;
}

static bool is_in_mig_mode(const struct allocation *allocation)
{
    return !strcmp(allocation->settings->config.mode, "mig");
}

static bool is_limited(
    const struct allocation *allocation, const struct pod_device *devices, size_t count)
{
    bool limited = !is_in_mig_mode(allocation);
    for (size_t i = 0; i < count; i++)
        limited = limited && !device_id_is_mig(devices[i].uuid);
    return limited;
}

static int32_t larger(int32_t a, int32_t b)
{
    return a > b ? a : b;
}

static bool is_init(const struct allocation_record *record)
{
    return record->init && !record->sidecar;
}

static bool is_init_done(
    const struct allocation *allocation, const struct allocation_record *record)
{
    const struct pods_pod *pod =
        is_init(record) && record->sure ? allocation_find_pod(allocation, record->pod_uid) : NULL;
    return pod && pod->init_done;
}

/* Of all containers that have a part of the card, the record's last. */
static int check_card(const struct allocation *allocation, const struct allocation_record *record,
    const struct node_card *card, struct error *error)
{
    const struct allocation_record *other;
    size_t room = record->device_count, count = 0;
    TAILQ_FOREACH(other, &allocation->records, entry)
    room += other->device_count;
    struct allocation_use *uses = calloc(room + 1, sizeof(*uses));
    if (!uses)
        return no_memory(error, "Allocate");
    for (other = TAILQ_FIRST(&allocation->records);; other = TAILQ_NEXT(other, entry)) {
        const struct allocation_record *from = other ? other : record;
        bool counts = !other || (other != record && !allocation_is_ended(allocation, other) &&
                                    !is_init_done(allocation, other));
        /* A container that does not start holds its place at the card, and none of its memory. */
        bool idle = from->unassigned && from->waits;
        for (size_t i = 0; counts && i < from->device_count; i++) {
            const struct allocation_device *device = &from->devices[i];
            if (find_card(allocation, device->given.uuid) == card)
                uses[count++] = (struct allocation_use){from->pod_uid, from->slot, is_init(from),
                    idle ? 0 : larger(device->memory_mib, device->given.memory_mib),
                    idle ? 0 : larger(device->cores_percent, device->given.cores_percent)};
        }
        if (!other)
            break;
    }
    struct allocation_capacity capacity = {
        card->uuid, card->scaled_memory_mib, card->cores_percent, card->replicas};
    int result = allocation_usage_check(uses, count, &capacity, error);
    free(uses);
    return result;
}

int allocation_check_room(const struct allocation *allocation,
    const struct allocation_record *record, struct error *error)
{
    int result = 0;
    for (size_t i = 0; !result && record->limited && i < record->device_count; i++) {
        const struct node_card *card = find_card(allocation, record->devices[i].given.uuid);
        if (card)
            result = check_card(allocation, record, card, error);
    }
    return result;
}

/* HAMi's name, unless it could be another container's: one that lives has a directory of that name,
 * or the choice is a guess that pod-resources may put right. */
static int name_files(const struct allocation *allocation, const struct pods_pod *pod,
    const struct allocate_choice *choice, struct allocation_record *record)
{
    char uuid[37], *path = NULL;
    const struct allocation_record *other;
    bool opaque = !choice->by_lock && (choice->pod->proven || choice->ambiguous);
    allocation_files_random_uuid(uuid);
    path = allocate_directory_format("", pod->view.uid, record->container);
    if (!path || asprintf(&record->cache, "%s.cache", uuid) < 0) {
        free(path);
        return -ENOMEM;
    }
    const char *name = strrchr(path, '/') + 1;
    TAILQ_FOREACH(other, &allocation->records, entry)
    opaque = opaque || (other->directory && !strcmp(other->directory, name));
    record->directory = strdup(opaque ? record->id : name);
    free(path);
    return record->directory ? 0 : -ENOMEM;
}

static int copy_ids(struct allocation_record *record, const struct allocate_request *request)
{
    record->ids = calloc(request->count + 1, sizeof(char *));
    for (size_t i = 0; record->ids && i < request->count; i++) {
        record->ids[i] = strdup(request->ids[i]);
        if (!record->ids[i])
            return -ENOMEM;
        record->id_count++;
    }
    return record->ids ? 0 : -ENOMEM;
}

static int copy_devices(struct allocation *allocation, struct allocation_record *record,
    const struct pod_devices_container *from, const struct allocate_request *request,
    struct error *error)
{
    int result = 0;
    struct pod_device *devices = calloc(from->count + 1, sizeof(*devices));
    record->devices = calloc(from->count + 1, sizeof(*record->devices));
    if (!devices || !record->devices)
        result = no_memory(error, "Allocate");
    if (!result)
        memcpy(devices, from->devices, from->count * sizeof(*devices));
    if (!result && allocation->settings->config.preferred_allocation && !is_in_mig_mode(allocation))
        result = allocate_follow_kubelet(devices, request, error);
    for (size_t i = 0; !result && i < from->count; i++) {
        struct allocation_device *device = &record->devices[record->device_count++];
        if (!find_card(allocation, devices[i].uuid))
            result =
                error_set(error, ENODEV, "device %s is not a device of this node", devices[i].uuid);
        device->given = devices[i];
        device->given.memory_mib = allocation_memory_of(allocation, &devices[i]);
        device->memory_mib = device->given.memory_mib;
        device->cores_percent = device->given.cores_percent;
    }
    if (!result)
        record->limited = is_limited(allocation, devices, from->count);
    free(devices);
    return result;
}

static int fill(struct allocation *allocation, const struct pods_pod *pod,
    const struct allocate_choice *choice, const struct allocate_step *step,
    const struct allocate_request *request, struct allocation_record *record, struct error *error)
{
    const struct pod_container *container = &pod->view.containers[step->container];
    const struct pods_priority *priority = &pod->priorities[step->container];
    char *path = allocate_directory_format("", pod->view.uid, container->name);
    free(path);
    if (!path)
        return error_set(error, EINVAL, "the Pod's UID or container's name is no file's name");
    allocation_files_random_id(record->id);
    record->serial = allocation->serial;
    record->waits = true;
    record->slot = step->slot;
    record->init = container->init;
    record->sidecar = container->sidecar;
    record->has_priority = priority->is_set;
    record->priority = priority->level;
    if (allocation_record_set(&record->resource, allocation->settings->resource_name) ||
        allocation_record_set(&record->pod_namespace, pod->view.pod_namespace) ||
        allocation_record_set(&record->pod_name, pod->view.name) ||
        allocation_record_set(&record->pod_uid, pod->view.uid) ||
        allocation_record_set(&record->container, container->name) || copy_ids(record, request))
        return no_memory(error, "Allocate");
    int result =
        copy_devices(allocation, record, &choice->left.containers[step->slot], request, error);
    if (!result && record->limited && name_files(allocation, pod, choice, record))
        result = no_memory(error, "Allocate");
    return result ? result : allocation_check_room(allocation, record, error);
}

int allocation_make(struct allocation *allocation, const struct pods_pod *pod,
    const struct allocate_choice *choice, const struct allocate_step *step,
    const struct allocate_request *request, struct allocation_record **ret_record,
    struct error *error)
{
    struct allocation_record *record = allocation_record_create();
    if (!record)
        return no_memory(error, "Allocate");
    int result = fill(allocation, pod, choice, step, request, record, error);
    if (result)
        allocation_record_destroy(record);
    else
        *ret_record = record;
    return result;
}

/* The inventory's cards as the answer wants them, with paths on the host. */
struct answer_cards {
    struct allocate_card *cards;
    size_t count;
    struct allocate_node *nodes, *control;
    size_t control_count;
    char (*paths)[SETTINGS_PATH_BYTES + INVENTORY_PATH_BYTES];
    size_t path_count;
};

static void answer_cards_finish(struct answer_cards *cards)
{
    free(cards->cards);
    free(cards->nodes);
    free(cards->control);
    free(cards->paths);
}

static struct allocate_node make_node(
    struct answer_cards *cards, const char *dev_root, const char *path)
{
    char *host = cards->paths[cards->path_count++];
    bool is_root = !strcmp(dev_root, "/");
    snprintf(host, sizeof(cards->paths[0]), "%s%s", is_root ? "" : dev_root, path);
    return (struct allocate_node){path, host, "rw"};
}

static int answer_cards_make(const struct allocation *allocation, struct answer_cards *cards)
{
    size_t control_count, node_count = 0;
    const struct node_card *list = inventory_cards(allocation->inventory, &cards->count);
    const char *const *control = inventory_control_nodes(allocation->inventory, &control_count);
    const char *root = allocation->settings->dev_root;
    cards->cards = calloc(cards->count + 1, sizeof(*cards->cards));
    cards->nodes = calloc(cards->count * INVENTORY_NODES_MAX + 1, sizeof(*cards->nodes));
    cards->control = calloc(control_count + 1, sizeof(*cards->control));
    cards->paths =
        calloc(cards->count * INVENTORY_NODES_MAX + control_count + 1, sizeof(*cards->paths));
    if (!cards->cards || !cards->nodes || !cards->control || !cards->paths)
        return -ENOMEM;
    for (size_t i = 0; i < control_count; i++)
        cards->control[cards->control_count++] = make_node(cards, root, control[i]);
    for (size_t i = 0; i < cards->count; i++) {
        const struct node_card *card = &list[i];
        int64_t memory_mib = card->scaled_memory_mib;
        cards->cards[i] = (struct allocate_card){card->uuid, card->index,
            memory_mib < INT32_MAX ? (int32_t)memory_mib : INT32_MAX, &cards->nodes[node_count],
            card->node_count};
        for (unsigned n = 0; n < card->node_count; n++)
            cards->nodes[node_count++] = make_node(cards, root, card->nodes[n]);
    }
    return 0;
}

static bool has_license(const struct node_settings *settings)
{
    char path[SETTINGS_PATH_BYTES + 32];
    snprintf(path, sizeof(path), "%s/vgpu/license", settings->hook_path);
    return access(path, F_OK) == 0;
}

int allocation_answer(const struct allocation *allocation, const struct allocation_record *record,
    bool control_disabled, const struct pod_device *devices, size_t count,
    struct allocate_answer *ret_answer, struct error *error)
{
    const struct node_settings *settings = allocation->settings;
    struct answer_cards cards = {0};
    struct allocation_paths paths = {.grant = ""};
    char cache_uuid[64], answer_uuid[37];
    const bool limited = record && record->limited;
    int result = answer_cards_make(allocation, &cards) ? no_memory(error, "Allocate") : 0;
    if (!result && limited)
        result = allocation_files_paths(settings->hook_path, record, &paths, error);
    allocation_files_random_uuid(answer_uuid);
    snprintf(cache_uuid, sizeof(cache_uuid), "%.36s", limited ? record->cache : answer_uuid);
    const struct allocate_mount mounts[2] = {
        {VGPU_GRANT_DIRECTORY, paths.limits, true}, {REGION_MOUNTED_PATH, paths.account, false}};
    const struct allocate_settings answer = {.hook_path = settings->hook_path,
        .strategies = settings->list_strategies,
        .by_index = settings->index_strategy,
        .cdi_kind = ALLOCATE_CDI_KIND_TOOLKIT,
        .cdi_prefix = settings->cdi_annotation_prefix,
        .mig_mode = is_in_mig_mode(allocation) || !record,
        .memory_scaling = settings->config.memory_scaling,
        .core_limit_disabled = settings->config.core_limit_disabled,
        .log_level = settings->config.log_level,
        .gdrcopy = settings->gdrcopy,
        .gds = settings->gds,
        .mofed = settings->mofed,
        .has_license = has_license(settings),
        .pass_nodes = settings->pass_device_specs,
        .nodes = cards.control,
        .node_count = cards.control_count,
        .mounts = mounts,
        .mount_count = limited ? 2 : 0,
        .cards = cards.cards,
        .card_count = cards.count};
    const struct allocate_subject subject = {
        paths.directory, control_disabled, cache_uuid, answer_uuid};
    if (!result)
        result = allocate_answer_make(&answer, &subject, devices, count, ret_answer, error);
    answer_cards_finish(&cards);
    return result;
}

static uint32_t policy_of(const struct node_config *config)
{
    if (config->core_limit_disabled || !strcmp(config->core_policy, "disable"))
        return VGPU_GRANT_POLICY_DISABLE;
    return !strcmp(config->core_policy, "force") ? VGPU_GRANT_POLICY_FORCE
                                                 : VGPU_GRANT_POLICY_DEFAULT;
}

/* By which the shares of a card's containers add up to the card. */
static uint64_t ratio_of(const struct node_config *config)
{
    return config->memory_scaling > 1 ? (uint64_t)(config->memory_scaling * (1 << 20)) : 0;
}

static void copy_name(char *to, size_t size, const char *name)
{
    snprintf(to, size, "%.*s", (int)size - 1, name);
}

int allocation_write_grant(const struct allocation *allocation,
    const struct allocation_record *record, struct error *error)
{
    struct vgpu_grant grant = {.device_count = (uint32_t)record->device_count,
        .priority = record->priority,
        .priority_set = record->has_priority,
        .policy = policy_of(&allocation->settings->config),
        .memory_ratio = ratio_of(&allocation->settings->config),
        .region_path = REGION_MOUNTED_PATH};
    struct allocation_paths paths;
    if (record->device_count > VGPU_GRANT_DEVICES)
        return error_set(error, E2BIG, "%zu devices; a container can have %u", record->device_count,
            VGPU_GRANT_DEVICES);
    copy_name(grant.pod_name, sizeof(grant.pod_name), record->pod_name);
    copy_name(grant.pod_namespace, sizeof(grant.pod_namespace), record->pod_namespace);
    copy_name(grant.pod_uid, sizeof(grant.pod_uid), record->pod_uid);
    copy_name(grant.container_name, sizeof(grant.container_name), record->container);
    for (size_t i = 0; i < record->device_count; i++) {
        const struct allocation_device *from = &record->devices[i];
        struct vgpu_grant_device *to = &grant.devices[i];
        char uuid[DEVICE_UUID_BYTES];
        if (device_id_physical(from->given.uuid, uuid) || strlen(uuid) >= sizeof(to->uuid))
            return error_set(
                error, ENAMETOOLONG, "device %.64s: its UUID is too long", from->given.uuid);
        copy_name(to->uuid, sizeof(to->uuid), uuid);
        to->memory_limit = (uint64_t)from->memory_mib << 20;
        /* The whole card is no limit, as in HAMi's library. */
        to->core_limit = from->cores_percent < 100 ? (uint32_t)from->cores_percent : 0;
    }
    int result = allocation_files_paths(allocation->settings->hook_path, record, &paths, error);
    int failure = result ? 0 : grant_write(paths.limits, &grant);
    return failure ? error_set(error, -failure, "cannot write %s/" VGPU_GRANT_NAME ": %s",
                         paths.limits, strerror(-failure))
                   : result;
}

/* No lock of the region is taken: its programs could hold it. */
void allocation_wake(const struct allocation *allocation, const struct allocation_record *record)
{
    struct allocation_paths paths;
    struct region region;
    if (allocation_files_paths(allocation->settings->hook_path, record, &paths, NULL))
        return;
    int fd = open(paths.account, O_RDWR | O_CLOEXEC | O_NOFOLLOW | O_NONBLOCK);
    /* Before its first program the region is empty, and nobody sleeps. */
    if (fd < 0 || region_set_open(&region, fd))
        return;
    guard_enter();
    epoch_raise(region.shared);
    guard_leave();
    region_detach(&region);
}
