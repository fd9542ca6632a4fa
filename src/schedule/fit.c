/* SPDX-License-Identifier: Apache-2.0 */
#include "schedule/fit.h"

#include "codec/no_memory.h"
#include "schedule/score.h"
#include "schedule/topology.h"

#include <errno.h>
#include <stdlib.h>
#include <string.h>

/* The vendor's word in device strings, and a part of all its models' names in lower case. */
#define COMMON_WORD "NVIDIA"
#define COMMON_WORD_LOWER "nvidia"
/* A device's cores, and what a container may have of them at most, in percent. */
#define WHOLE_CARD 100

static int make_room(struct fit *fit)
{
    if (fit->chosen)
        return 0;
    if (!fit->placed)
        fit->placed = calloc(ASK_DEVICES_MAX, sizeof(fit->placed[0]));
    if (!fit->running)
        fit->running = calloc(NODE_DEVICES_MAX, sizeof(fit->running[0]));
    if (!fit->beside)
        fit->beside = calloc(NODE_DEVICES_MAX, sizeof(fit->beside[0]));
    if (!fit->scores)
        fit->scores = calloc(NODE_DEVICES_MAX, sizeof(fit->scores[0]));
    if (!fit->order)
        fit->order = calloc(NODE_DEVICES_MAX, sizeof(fit->order[0]));
    if (!fit->types)
        fit->types = calloc(USAGE_WORDS_MAX, sizeof(fit->types[0]));
    if (!fit->modes)
        fit->modes = calloc(USAGE_WORDS_MAX, sizeof(fit->modes[0]));
    if (!fit->nvidia)
        fit->nvidia = calloc(USAGE_WORDS_MAX, sizeof(fit->nvidia[0]));
    if (!fit->placed || !fit->running || !fit->beside || !fit->scores || !fit->order ||
        !fit->types || !fit->modes || !fit->nvidia)
        return -ENOMEM;
    fit->chosen = calloc(NODE_DEVICES_MAX, sizeof(fit->chosen[0]));
    return fit->chosen ? 0 : -ENOMEM;
}

int fit_begin(struct fit *fit, const struct usage *usage, const struct ask *ask,
    struct quota_amount held, struct error *error)
{
    if (make_room(fit))
        return no_memory(error, "a search for devices");
    fit->ask = ask;
    fit->quota_left = quota_left(quotas_find(usage->quotas, ask->pod_namespace));
    if (fit->quota_left.memory != QUOTA_NONE)
        fit->quota_left.memory += held.memory;
    if (fit->quota_left.cores != QUOTA_NONE)
        fit->quota_left.cores += held.cores;
    for (size_t i = 0; i < usage->types.count; i++) {
        fit->nvidia[i] = strstr(usage->types.texts[i], COMMON_WORD_LOWER) != NULL;
        fit->types[i] = wish_takes_type(&ask->wish, usage->types.texts[i]);
    }
    for (size_t i = 0; i < usage->modes.count; i++)
        fit->modes[i] = wish_takes_mode(&ask->wish, usage->modes.texts[i]);
    return 0;
}

/* Below 0 where device `a` comes before `b`. */
static int compare(const struct fit *fit, const struct usage_node *node,
    const struct usage_amounts *used, uint32_t a, uint32_t b)
{
    for (const enum policy_step *step = fit->ask->wish.policy.steps; *step != POLICY_END; step++) {
        bool reversed = *step == POLICY_FULLEST || *step == POLICY_NUMA_HIGH;
        uint32_t x = reversed ? b : a, y = reversed ? a : b;
        int order = 0;
        if (*step == POLICY_FULLEST || *step == POLICY_EMPTIEST)
            order = (fit->scores[x] > fit->scores[y]) - (fit->scores[x] < fit->scores[y]);
        else if (*step == POLICY_FEWEST_USED)
            order = (used[x].slots > used[y].slots) - (used[x].slots < used[y].slots);
        else
            order = (node->devices[x].numa > node->devices[y].numa) -
                    (node->devices[x].numa < node->devices[y].numa);
        if (order)
            return order;
    }
    return 0;
}

/* Fills fit->order with the vendor's devices, the first to be tried first; equal ones stay in the
 * node's order. Returns how many. A node has few devices: insertion is the fastest way. */
static uint32_t order_devices(
    struct fit *fit, const struct usage_node *node, const struct usage_amounts *used)
{
    uint32_t count = 0;
    for (uint32_t i = 0; i < node->count; i++) {
        const struct usage_device *device = &node->devices[i];
        if (!fit->nvidia[device->type])
            continue;
        fit->scores[i] = score_amounts(&used[i], &device->total, &fit->ask->wish.weights);
        uint32_t at = count++;
        for (; at && compare(fit, node, used, fit->order[at - 1], i) > 0; at--)
            fit->order[at] = fit->order[at - 1];
        fit->order[at] = i;
    }
    return count;
}

static int64_t memory_for(const struct request *request, const struct usage_device *device)
{
    return request->memory_mib ? request->memory_mib
                               : device->total.memory * request->memory_percent / 100;
}

static int32_t cores_for(const struct request *request)
{
    return request->cores_percent < WHOLE_CARD ? request->cores_percent : WHOLE_CARD;
}

/* What does not depend on the container. */
static enum reason check_device(const struct fit *fit, const struct usage_device *device)
{
    if (!device->healthy)
        return REASON_NOT_HEALTHY;
    if (device->cordoned)
        return REASON_CORDONED;
    if (!fit->types[device->type] || !fit->modes[device->mode])
        return REASON_TYPE;
    return REASON_COUNT;
}

/* REASON_COUNT: there is room. `quota` is what the Pod has asked for at this moment, without the
 * card. The order of the checks is HAMi's, which the reasons show. */
static enum reason check_room(const struct fit *fit, const struct usage_device *device,
    const struct usage_amounts *used, const struct request *request, struct quota_amount quota)
{
    int64_t memory = memory_for(request, device), cores = cores_for(request);
    const struct quota_amount more = {
        memory ? quota.memory + memory : 0, cores ? quota.cores + cores : 0};
    if (used->slots >= device->total.slots)
        return REASON_SLOTS;
    if (fit->ask->wish.policy.exclusive && used->slots > 0)
        return REASON_EXCLUSIVE;
    if (!quota_fits(fit->quota_left, more))
        return REASON_QUOTA;
    if (device->total.memory - used->memory < memory)
        return REASON_MEMORY;
    if (device->total.cores - used->cores < cores)
        return REASON_CORES;
    if (device->total.cores == WHOLE_CARD && cores == WHOLE_CARD && used->slots > 0)
        return REASON_EXCLUSIVE;
    if (device->total.cores && used->cores >= device->total.cores && !cores)
        return REASON_CORES_FULL;
    if (device->splits)
        return REASON_MIG;
    return REASON_COUNT;
}

/* Walks the devices in their order; the chosen ones are in fit->chosen. It ends as soon as there
 * are enough, or, for `all`, when all were seen (where they must be of one NUMA node, all of the
 * first one that has enough). */
static uint32_t walk(struct fit *fit, const struct usage_node *node,
    const struct usage_amounts *used, const struct request *request, struct quota_amount before,
    bool all)
{
    const struct wish *wish = &fit->ask->wish;
    struct quota_amount quota = before;
    uint32_t wanted = (uint32_t)request->count, chosen = 0;
    const uint32_t *numa_of = NULL;
    for (uint32_t i = 0; i < fit->reasons.devices; i++) {
        uint32_t at = fit->order[i];
        const struct usage_device *device = &node->devices[at];
        enum reason reason = check_device(fit, device);
        if (reason == REASON_COUNT && wish->numa_bind &&
            (!numa_of || node->devices[*numa_of].numa != device->numa)) {
            if (chosen >= wanted)
                break;
            fit->reasons.counts[REASON_NUMA] += chosen;
            quota = before;
            chosen = 0;
            numa_of = &fit->order[i];
        }
        if (reason == REASON_COUNT && !wish_takes_uuid(wish, node->uuids[at], device->hash))
            reason = REASON_UUID;
        /* Of all, more are collected than are taken: the quota is for those. */
        if (reason == REASON_COUNT)
            reason = check_room(fit, device, &used[at], request, all ? before : quota);
        if (reason != REASON_COUNT) {
            fit->reasons.counts[reason]++;
            continue;
        }
        fit->chosen[chosen++] = at;
        quota.memory += memory_for(request, device);
        quota.cores += cores_for(request);
        if (chosen == wanted && !all)
            break;
    }
    return chosen;
}

static bool quota_takes(const struct fit *fit, const struct usage_node *node,
    const struct request *request, struct quota_amount quota)
{
    int64_t memory = 0, cores = 0;
    for (int32_t i = 0; i < request->count; i++) {
        memory += memory_for(request, &node->devices[fit->chosen[i]]);
        cores += cores_for(request);
    }
    return quota_fits(fit->quota_left,
        (struct quota_amount){memory ? quota.memory + memory : 0, cores ? quota.cores + cores : 0});
}

/* Whether the node has devices that are split on demand, and the Pod takes them: one card may then
 * give several. */
static bool may_split(const struct fit *fit, const struct usage_node *node)
{
    for (size_t i = 0; i < node->count; i++)
        if (fit->nvidia[node->devices[i].type] && node->devices[i].splits &&
            fit->modes[node->devices[i].mode])
            return true;
    return false;
}

/* All that fit, and of them the best connected ones. False where there are too few, or where those
 * are too much for the quota: others may be less. */
static bool choose_by_topology(struct fit *fit, const struct usage_node *node,
    const struct usage_amounts *used, const struct request *request, struct quota_amount quota)
{
    uint32_t wanted = (uint32_t)request->count;
    uint32_t chosen = walk(fit, node, used, request, quota, true);
    if (chosen < wanted)
        return false;
    topology_choose(node, fit->chosen, chosen, wanted);
    return quota_takes(fit, node, request, quota);
}

static bool choose_devices(struct fit *fit, const struct usage_node *node,
    const struct usage_amounts *used, const struct request *request, struct quota_amount quota)
{
    uint32_t wanted = (uint32_t)request->count, devices = order_devices(fit, node, used);
    fit->reasons = (struct reasons){.devices = devices};
    if ((wanted > devices && !may_split(fit, node)) || wanted > POD_DEVICES_DEVICES_MAX) {
        fit->reasons.bare = REASON_BARE_TOO_FEW_DEVICES;
        return false;
    }
    if (fit->ask->wish.policy.topology && choose_by_topology(fit, node, used, request, quota))
        return true;
    fit->reasons = (struct reasons){.devices = devices};
    uint32_t chosen = walk(fit, node, used, request, quota, false);
    if (chosen < wanted)
        fit->reasons.counts[REASON_TOO_FEW] = chosen;
    return chosen == wanted;
}

/* Puts the chosen devices into the placement, and onto what is used and asked for so far. */
static void take_chosen(struct fit *fit, const struct usage_node *node, uint32_t container,
    struct usage_amounts *used, struct quota_amount *quota)
{
    const struct request *request = &fit->ask->containers[container].request;
    for (int32_t i = 0; i < request->count; i++) {
        uint32_t at = fit->chosen[i];
        int64_t memory = memory_for(request, &node->devices[at]);
        fit->placed[fit->placed_count++] =
            (struct fit_device){container, at, (int32_t)memory, cores_for(request)};
        used[at].memory += memory;
        used[at].cores += cores_for(request);
        used[at].slots++;
        quota->memory += memory;
        quota->cores += cores_for(request);
    }
}

static void begin_with_used(
    struct fit *fit, const struct usage_node *node, const struct usage_pod *own)
{
    for (size_t i = 0; i < node->count; i++)
        fit->running[i] = node->devices[i].used;
    for (size_t i = 0; own && own->node == node && i < own->count; i++) {
        const struct usage_pod_share *share = &own->shares[i];
        if (share->device < 0)
            continue;
        fit->running[share->device].memory -= share->share.memory_mib;
        fit->running[share->device].cores -= share->share.cores_percent;
        fit->running[share->device].slots -= share->share.slots;
    }
}

bool fit_node(struct fit *fit, const struct usage_node *node, const struct usage_pod *own)
{
    struct quota_amount running = {0, 0};
    begin_with_used(fit, node, own);
    fit->placed_count = 0;
    for (uint32_t i = 0; i < fit->ask->count; i++) {
        const struct ask_container *container = &fit->ask->containers[i];
        struct usage_amounts *used = fit->running;
        struct quota_amount beside = running;
        if (!container->request.count)
            continue;
        if (container->kind == ASK_INIT) {
            used = fit->beside;
            memcpy(used, fit->running, node->count * sizeof(used[0]));
        }
        if (!choose_devices(fit, node, used, &container->request, running))
            return false;
        take_chosen(fit, node, i, used, container->kind == ASK_INIT ? &beside : &running);
    }
    return true;
}

struct fit_placement fit_placed(const struct fit *fit)
{
    return (struct fit_placement){fit->placed, fit->placed_count};
}

static void set_device(
    const struct usage_node *node, const struct fit_device *from, struct pod_device *device)
{
    memcpy(device->uuid, node->uuids[from->device], sizeof(device->uuid));
    strcpy(device->type, COMMON_WORD);
    device->memory_mib = from->memory_mib;
    device->cores_percent = from->cores_percent;
}

int fit_devices(const struct fit_placement *placement, const struct ask *ask,
    const struct usage_node *node, struct pod_devices *ret_devices)
{
    struct pod_devices devices = {calloc(ask->count + 1, sizeof(*devices.containers)), ask->count};
    size_t at = 0;
    if (!devices.containers)
        return -ENOMEM;
    for (size_t i = 0; i < ask->count; i++) {
        struct pod_devices_container *container = &devices.containers[i];
        size_t from = at;
        while (at < placement->count && placement->devices[at].container == i)
            at++;
        container->devices = at > from ? calloc(at - from, sizeof(*container->devices)) : NULL;
        if (at > from && !container->devices) {
            pod_devices_finish(&devices);
            return -ENOMEM;
        }
        for (; from < at; from++)
            set_device(node, &placement->devices[from], &container->devices[container->count++]);
    }
    *ret_devices = devices;
    return 0;
}

void fit_finish(struct fit *fit)
{
    free(fit->placed);
    free(fit->running);
    free(fit->beside);
    free(fit->scores);
    free(fit->order);
    free(fit->chosen);
    free(fit->types);
    free(fit->modes);
    free(fit->nvidia);
    *fit = (struct fit){0};
}
