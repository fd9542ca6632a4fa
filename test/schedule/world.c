/* SPDX-License-Identifier: Apache-2.0 */
#include "world.h"

#include "schedule/choice.h"
#include "schedule/node_read.h"

#include <errno.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

static void read_config(const json_t *input, struct world *world)
{
    const json_t *config = json_object_get(input, "config");
    const char *node = json_string_value(json_object_get(config, "nodeSchedulerPolicy"));
    const char *device = json_string_value(json_object_get(config, "gpuSchedulerPolicy"));
    static const struct {
        const char *key;
        size_t offset;
    } numbers[] = {
        {"memoryFactor", offsetof(struct request_config, memory_factor)},
        {"defaultMemory", offsetof(struct request_config, default_memory)},
        {"defaultCores", offsetof(struct request_config, default_cores)},
    };
    request_config_default(&world->config.request);
    for (size_t i = 0; i < sizeof(numbers) / sizeof(numbers[0]); i++) {
        const json_t *value = json_object_get(config, numbers[i].key);
        if (json_is_integer(value))
            *(int32_t *)((char *)&world->config.request + numbers[i].offset) =
                (int32_t)json_integer_value(value);
    }
    snprintf(world->device_policy, sizeof(world->device_policy), "%s", device ? device : "spread");
    world->config.defaults.device_policy = world->device_policy;
    if (policy_parse_node(node ? node : "binpack", &world->config.defaults.node_policy, NULL))
        world->config.defaults.node_policy = POLICY_NODE_BINPACK;
}

static bool read_quotas(const json_t *input, struct world *world)
{
    const json_t *quotas = json_object_get(input, "quotas");
    for (size_t i = 0; i < json_array_size(quotas); i++) {
        const json_t *quota = json_array_get(quotas, i);
        json_t *object = json_pack("{s:{s:O}}", "spec", "hard", json_object_get(quota, "hard"));
        struct quota_amount limit;
        bool valid = object && !quota_read(object, &world->config.request, &limit, NULL) &&
                     !quotas_set(world->usage->quotas,
                         json_string_value(json_object_get(quota, "namespace")),
                         json_string_value(json_object_get(quota, "name")), limit);
        json_decref(object);
        if (!valid)
            return false;
    }
    return true;
}

static bool read_pods(const json_t *input, struct world *world)
{
    const json_t *pods = json_object_get(input, "pods");
    for (size_t i = 0; i < json_array_size(pods); i++) {
        struct claim claim;
        struct error error;
        const json_t *pod = json_array_get(pods, i);
        if (claim_read(pod, &world->config.request, &claim, &error))
            fprintf(stderr, "# a Pod is left out: %s\n", error.text);
        bool valid = !usage_observe(world->usage, &claim, false);
        claim_finish(&claim);
        if (!valid)
            return false;
    }
    return true;
}

bool world_create(const json_t *input, struct world *ret_world)
{
    struct world world = {.usage = usage_create()};
    const json_t *nodes = json_object_get(input, "nodes");
    if (!world.usage)
        return false;
    read_config(input, &world);
    for (size_t i = 0; i < json_array_size(nodes); i++) {
        const json_t *node = json_array_get(nodes, i);
        struct error error;
        if (node_read(world.usage, json_string_value(json_object_get(node, "name")),
                json_object_get(node, "annotations"), &error))
            fprintf(stderr, "# a node is left out: %s\n", error.text);
    }
    *ret_world = world;
    ret_world->config.defaults.device_policy = ret_world->device_policy;
    return read_quotas(input, ret_world) && read_pods(input, ret_world);
}

void world_destroy(struct world *world)
{
    usage_destroy(world->usage);
}

json_t *world_usage(const struct world *world)
{
    size_t count = 0;
    const struct usage_node **nodes = usage_list_nodes(world->usage, &count);
    json_t *list = json_array();
    for (size_t i = 0; i < count; i++)
        for (size_t k = 0; k < nodes[i]->count; k++) {
            const struct usage_amounts *used = &nodes[i]->devices[k].used;
            json_array_append_new(
                list, json_pack("{s:s,s:s,s:I,s:I,s:I}", "node", nodes[i]->name, "uuid",
                          nodes[i]->uuids[k], "memory", (json_int_t)used->memory, "cores",
                          (json_int_t)used->cores, "slots", (json_int_t)used->slots));
        }
    free(nodes);
    return list;
}

static json_t *failures(const struct choice *choice)
{
    json_t *failed = json_object();
    for (size_t i = 0; i < choice->count; i++) {
        char text[REASON_TEXT_BYTES];
        reasons_format(&choice->candidates[i].reasons, text);
        json_object_set_new(failed, choice->candidates[i].name, json_string(text));
    }
    return json_pack("{s:n,s:o}", "node", "failed", failed);
}

static bool is_over(const struct usage_device *device)
{
    return device->used.memory > device->total.memory || device->used.cores > device->total.cores ||
           device->used.slots > device->total.slots;
}

/* Devices of the node that hold more than they have. Existing Pods may have done that. */
static size_t count_over(const struct usage_node *node)
{
    size_t count = 0;
    for (size_t i = 0; i < node->count; i++)
        count += is_over(&node->devices[i]);
    return count;
}

/* Reserves the answer, and ends the reservation. NULL where all is as it must be. */
static const char *check_reservation(struct world *world, const struct ask *ask,
    const struct choice_candidate *best, const struct pod_devices *devices)
{
    struct claim claim;
    uint64_t generation = 0;
    json_t *before = world_usage(world);
    size_t over = count_over(best->node);
    const char *fault = NULL;
    if (claim_make(ask, best->name, devices, &claim))
        fault = "no claim";
    else if (usage_reserve(world->usage, &claim, 1, &generation))
        fault = "no reservation";
    else if (count_over(best->node) > over)
        fault = "a device is over-committed";
    claim_finish(&claim);
    usage_cancel(world->usage, ask->uid, generation);
    json_t *after = world_usage(world);
    if (!fault && !json_equal(before, after))
        fault = "the end of a reservation leaves something behind";
    json_decref(before);
    json_decref(after);
    return fault;
}

static json_t *success(struct world *world, const struct ask *ask, const struct choice *choice)
{
    struct pod_devices devices;
    if (fit_devices(&choice->placement, ask, choice->best->node, &devices))
        return NULL;
    char *text = pod_devices_encode(&devices);
    json_t *fitting = json_array();
    for (size_t i = 0; i < choice->count; i++)
        if (choice->candidates[i].fits)
            json_array_append_new(fitting, json_string(choice->candidates[i].name));
    json_t *answer =
        json_pack("{s:s,s:s,s:o}", "node", choice->best->name, "devices", text, "fitting", fitting);
    const char *fault = check_reservation(world, ask, choice->best, &devices);
    if (fault)
        json_object_set_new(answer, "fault", json_string(fault));
    free(text);
    pod_devices_finish(&devices);
    return answer;
}

static json_t *choose(struct world *world, const struct ask *ask, const json_t *input)
{
    const json_t *names = json_object_get(input, "nodeNames");
    size_t count = json_array_size(names);
    const char **list = calloc(count + 1, sizeof(*list));
    struct choice all = {0}, quick = {0};
    json_t *answer = NULL;
    for (size_t i = 0; list && i < count; i++)
        list[i] = json_string_value(json_array_get(names, i));
    if (list && !choice_make(&all, world->usage, ask, list, count, true, NULL) &&
        !choice_make(&quick, world->usage, ask, list, count, false, NULL)) {
        answer = all.best ? success(world, ask, &all) : failures(&all);
        bool same = !all.best == !quick.best &&
                    (!all.best || (!strcmp(all.best->name, quick.best->name) &&
                                      all.placement.count == quick.placement.count &&
                                      !memcmp(all.devices, quick.devices,
                                          all.placement.count * sizeof(all.devices[0]))));
        if (!same)
            json_object_set_new(answer, "fault", json_string("the quick answer is another one"));
    }
    choice_finish(&all);
    choice_finish(&quick);
    free(list);
    return answer;
}

json_t *world_answer(struct world *world, const json_t *input)
{
    struct ask ask;
    struct error error;
    if (ask_read(json_object_get(input, "pod"), &world->config, &ask, &error))
        return json_pack("{s:s}", "error", error.text);
    json_t *answer =
        ask.devices ? choose(world, &ask, input) : json_pack("{s:b}", "passthrough", 1);
    ask_finish(&ask);
    return answer;
}
