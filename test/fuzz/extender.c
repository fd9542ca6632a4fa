/* SPDX-License-Identifier: Apache-2.0 */
/* kube-scheduler's requests: whatever a filter's body is, answers are well-formed, and what is
 * chosen fits on the devices. The first byte chooses the way: filter, bind. */
#include "schedule/extender.h"

#include "fuzz.h"
#include "schedule/flight.h"

#include <stdbool.h>

#define NODES 3
#define CARDS 2
#define MEMORY 10000

static void add_node(struct usage *usage, const char *name)
{
    struct node_devices devices = {NULL, 0};
    for (unsigned i = 0; i < CARDS; i++) {
        struct node_device *device = node_devices_add(&devices);
        FUZZ_CHECK(device);
        snprintf(device->id, sizeof(device->id), "GPU-%s-%u", name, i);
        snprintf(device->type, sizeof(device->type), "NVIDIA A10");
        snprintf(device->mode, sizeof(device->mode), "hami-core");
        device->index = i;
        device->numa = (int)i;
        device->count = 4;
        device->memory_mib = MEMORY;
        device->cores_percent = 100;
        device->healthy = true;
    }
    const struct usage_node_facts facts = {.devices = &devices};
    FUZZ_CHECK(!usage_set_node(usage, name, &facts, NULL));
    node_devices_finish(&devices);
}

static void check_room(const struct usage *usage)
{
    size_t count;
    const struct usage_node **nodes = usage_list_nodes(usage, &count);
    FUZZ_CHECK(nodes && count == NODES);
    for (size_t i = 0; i < count; i++)
        for (size_t k = 0; k < nodes[i]->count; k++) {
            const struct usage_device *device = &nodes[i]->devices[k];
            FUZZ_CHECK(device->used.memory >= 0 && device->used.memory <= device->total.memory);
            FUZZ_CHECK(device->used.cores >= 0 && device->used.cores <= device->total.cores);
            FUZZ_CHECK(device->used.slots >= 0 && device->used.slots <= device->total.slots);
        }
    free(nodes);
}

/* Takes the text. */
static void check_answer(char *text)
{
    json_t *answer = text ? json_loads(text, JSON_REJECT_DUPLICATES, NULL) : NULL;
    FUZZ_CHECK(json_is_object(answer) && json_is_string(json_object_get(answer, "Error")));
    json_decref(answer);
    free(text);
}

static void reserve(struct usage *usage, const struct choice *choice, const struct ask *ask)
{
    struct pod_devices devices;
    struct claim claim;
    uint64_t generation;
    FUZZ_CHECK(!fit_devices(&choice->placement, ask, choice->best->node, &devices));
    FUZZ_CHECK(devices.count == ask->count);
    char *text = pod_devices_encode(&devices);
    FUZZ_CHECK(text && !claim_make(ask, choice->best->name, &devices, &claim));
    claim.devices = text;
    FUZZ_CHECK(!usage_reserve(usage, &claim, 1, &generation));
    check_room(usage);
    struct flights *flights = flights_create();
    FUZZ_CHECK(flights && !flights_add(flights, "a", "other", text, 10));
    FUZZ_CHECK(flights_clash(flights, "b", "uid", text, 1) == 0);
    FUZZ_CHECK(flights_clash(flights, "a", "uid", text, 10) == 0);
    flights_destroy(flights);
    usage_cancel(usage, claim.uid, generation);
    claim_finish(&claim);
    free(text);
    pod_devices_finish(&devices);
}

static void choose(struct usage *usage, const struct ask *ask, const struct extender_filter *filter)
{
    struct choice choice = {0};
    struct error error;
    FUZZ_CHECK(!choice_make(&choice, usage, ask, filter->names, filter->count, true, &error));
    if (choice.best)
        reserve(usage, &choice, ask);
    check_answer(
        filter->nodes ? extender_answer_node(&choice, NULL) : extender_answer_failed(&choice));
    choice_finish(&choice);
}

static void filter(struct usage *usage, const char *body, size_t size)
{
    static const struct ask_config config = {.request = {.count_name = "nvidia.com/gpu",
                                                 .memory_name = "nvidia.com/gpumem",
                                                 .percentage_name = "nvidia.com/gpumem-percentage",
                                                 .cores_name = "nvidia.com/gpucores",
                                                 .priority_name = "nvidia.com/priority",
                                                 .memory_factor = 1,
                                                 .default_count = 1},
        .defaults = {.device_policy = "spread"}};
    struct extender_filter read;
    struct ask ask;
    struct error error = {.text = ""};
    if (extender_read_filter(body, size, &read, &error)) {
        check_answer(extender_answer_error(error.text));
        return;
    }
    if (read.pod && !ask_read(read.pod, &config, &ask, &error)) {
        if (ask.devices)
            choose(usage, &ask, &read);
        ask_finish(&ask);
    } else {
        check_answer(extender_answer_error(read.pod ? error.text : EXTENDER_NO_POD));
    }
    if (read.nodes)
        check_answer(extender_answer_all(&read));
    else
        check_answer(extender_answer_names(read.names, read.count));
    extender_finish_filter(&read);
}

static void bind(const char *body, size_t size)
{
    struct extender_bind read;
    struct error error = {.text = ""};
    if (extender_read_bind(body, size, &read, &error)) {
        FUZZ_CHECK(*error.text);
        check_answer(extender_answer_bind(error.text));
        return;
    }
    FUZZ_CHECK(*read.pod_name && *read.pod_namespace && *read.pod_uid && *read.node);
    extender_finish_bind(&read);
}

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size)
{
    static struct usage *usage;
    if (!usage) {
        usage = usage_create();
        FUZZ_CHECK(usage);
        add_node(usage, "a");
        add_node(usage, "b");
        add_node(usage, "c");
    }
    if (!size)
        return 0;
    char *body = fuzz_copy(data + 1, size - 1);
    if (data[0] & 1)
        bind(body, size - 1);
    else
        filter(usage, body, size - 1);
    free(body);
    return 0;
}
