/* SPDX-License-Identifier: Apache-2.0 */
/* allocation-driver CONFIG: the device plugin's part from Allocate on, with cards from a file
 * (JSON) instead of NVML. Ends at the end of stdin. KUBECONFIG names the API server.
 *
 * KILL_AT=<function>[:after][:<n>] ends it by SIGKILL before or after the n'th call (1) of one of
 * the functions that are wrapped below. */
#include "cluster/allocate_answer.h"
#include "kube/auth.h"
#include "kube/client.h"
#include "kube/event.h"
#include "net/file_read.h"
#include "net/log_line.h"
#include "node/allocation/allocation.h"
#include "node/allocation/allocation_files.h"
#include "node/inventory.h"
#include "node/kubelet.h"
#include "node/pod_resources.h"
#include "node/pods.h"
#include "node/settings.h"
#include "vgpu/grant.h"

#include <event2/event.h>
#include <fcntl.h>
#include <jansson.h>
#include <signal.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#define CARDS_MAX 64

static struct node_settings settings;
static struct node_card cards[CARDS_MAX];
static size_t card_count;

/* -- the inventory */

const struct node_card *inventory_cards(const struct inventory *inventory, size_t *ret_count)
{
    (void)inventory;
    *ret_count = card_count;
    return cards;
}

const struct node_card *inventory_find(const struct inventory *inventory, const char *uuid)
{
    (void)inventory;
    for (size_t i = 0; i < card_count; i++)
        if (!strcmp(cards[i].uuid, uuid))
            return &cards[i];
    return NULL;
}

const char *const *inventory_control_nodes(const struct inventory *inventory, size_t *ret_count)
{
    static const char *const nodes[] = {"/dev/nvidiactl", "/dev/nvidia-uvm"};
    (void)inventory;
    *ret_count = 2;
    return nodes;
}

/* -- the end on demand */

static void kill_at(const char *function, bool after)
{
    static unsigned calls;
    const char *wanted = getenv("KILL_AT");
    char name[64] = "", number[16] = "1", word[16] = "";
    if (!wanted)
        return;
    sscanf(wanted, "%63[^:]:%15[^:]:%15s", name, word, number);
    bool late = !strcmp(word, "after");
    if (strcmp(name, function) != 0 || late != after || ++calls < (unsigned)atoi(number))
        return;
    raise(SIGKILL);
}

#define WRAP(function, parameters, arguments)                                                      \
    int __real_##function parameters;                                                              \
    int __wrap_##function parameters;                                                              \
    int __wrap_##function parameters                                                               \
    {                                                                                              \
        kill_at(#function, false);                                                                 \
        int result = __real_##function arguments;                                                  \
        kill_at(#function, true);                                                                  \
        return result;                                                                             \
    }

WRAP(allocation_files_make,
    (const char *hook_path, const struct allocation_record *record, struct error *error),
    (hook_path, record, error))
WRAP(allocation_files_save,
    (const char *hook_path, const struct allocation_record *record, struct error *error),
    (hook_path, record, error))
WRAP(grant_write, (const char *directory, const struct vgpu_grant *grant), (directory, grant))
WRAP(kubelet_answer_allocate,
    (struct kubelet_call * call, const struct kubelet_container *containers, size_t count,
        struct error *error),
    (call, containers, count, error))
WRAP(kube_client_start,
    (struct kube_client * client, const struct kube_request *request, struct kube_call **ret_call),
    (client, request, ret_call))

/* -- the configuration */

static json_t *config;

static const char *text_of(const char *key, const char *otherwise)
{
    const char *text = json_string_value(json_object_get(config, key));
    return text ? text : otherwise;
}

static double number_of(const json_t *object, const char *key, double otherwise)
{
    const json_t *value = json_object_get(object, key);
    return json_is_number(value) ? json_number_value(value) : otherwise;
}

static bool truth_of(const char *key)
{
    return json_is_true(json_object_get(config, key));
}

static void die(const char *text)
{
    fprintf(stderr, "allocation-driver: %s\n", text);
    exit(1);
}

static void read_settings(void)
{
    struct error error;
#define COPY(member, key, otherwise)                                                               \
    snprintf(settings.member, sizeof(settings.member), "%s", text_of(key, otherwise))
    node_config_default(&settings.config);
    COPY(node_name, "node", "n1");
    COPY(hook_path, "hook_path", "/usr/local");
    COPY(dev_root, "dev_root", "/");
    COPY(kubelet_socket, "kubelet", "");
    COPY(pod_resources_socket, "pod_resources", "");
    COPY(resource_name, "resource", "nvidia.com/gpu");
    COPY(cdi_annotation_prefix, "cdi_prefix", ALLOCATE_CDI_PREFIX);
    COPY(proof_key_file, "key", "");
    COPY(config.log_level, "log_level", "");
    COPY(config.core_policy, "core_policy", "");
    COPY(config.mode, "mode", "hami-core");
    if (allocate_strategies_parse(
            text_of("strategies", "envvar"), &settings.list_strategies, &error))
        die(error.text);
    settings.index_strategy = truth_of("by_index");
    settings.pass_device_specs = truth_of("pass_nodes");
    settings.gdrcopy = truth_of("gdrcopy");
    settings.gds = truth_of("gds");
    settings.mofed = truth_of("mofed");
    settings.ignore_disable_control = truth_of("ignore_disable_control");
    settings.require_proof = truth_of("require_proof");
    settings.config.core_limit_disabled = truth_of("core_limit_disabled");
    settings.config.preferred_allocation = truth_of("preferred");
    settings.config.memory_scaling = number_of(config, "memory_scaling", 1);
}

static void read_cards(void)
{
    const json_t *list = json_object_get(config, "cards"), *item;
    size_t i;
    json_array_foreach((json_t *)list, i, item)
    {
        struct node_card *card = &cards[card_count++];
        card->index = card->minor = (uint32_t)i;
        card->memory_mib = (int64_t)number_of(item, "memory_mib", 24576);
        card->scaled_memory_mib =
            (int64_t)((double)card->memory_mib * settings.config.memory_scaling);
        card->cores_percent = (int32_t)number_of(item, "cores", 100);
        card->replicas = (uint32_t)number_of(item, "replicas", 10);
        card->healthy = true;
        card->numa = -1;
        card->node_count = 1;
        snprintf(card->nodes[0], sizeof(card->nodes[0]), "/dev/nvidia%zu", i);
        snprintf(
            card->uuid, sizeof(card->uuid), "%s", json_string_value(json_object_get(item, "uuid")));
        if (card_count == CARDS_MAX)
            break;
    }
}

static void publish(struct kubelet *kubelet)
{
    static char ids[CARDS_MAX * 64][DEVICE_ID_BYTES];
    static struct kubelet_device devices[CARDS_MAX * 64];
    size_t count = 0;
    struct error error;
    for (size_t i = 0; i < card_count; i++)
        for (unsigned r = 0; r < device_id_count(cards[i].uuid, cards[i].replicas) && r < 64; r++) {
            if (device_id_format(cards[i].uuid, r, ids[count]))
                continue;
            devices[count] = (struct kubelet_device){ids[count], true, -1};
            count++;
        }
    if (kubelet_publish(kubelet, devices, count, &error))
        die(error.text);
}

static void on_input(evutil_socket_t fd, short event, void *context)
{
    char text[64];
    (void)event;
    if (read(fd, text, sizeof(text)) <= 0)
        event_base_loopbreak(context);
}

int main(int argc, char **argv)
{
    char *text = NULL;
    size_t bytes = 0;
    struct error error = {.text = "usage: allocation-driver CONFIG"};
    if (argc != 2 || file_read(argv[1], 1 << 20, &text, &bytes, NULL, &error))
        die(error.text);
    config = json_loadb(text, bytes, 0, NULL);
    if (!config)
        die("the configuration is not JSON");
    log_line_set_level(LOG_LINE_DEBUG);
    read_settings();
    read_cards();
    struct event_base *base = event_base_new();
    struct kube_auth *auth = kube_auth_create(NULL, NULL, &error);
    const struct kube_client_options client_options = {
        .attempt_ms = 5000, .backoff_first_ms = 50, .backoff_max_ms = 500};
    struct kube_client *client =
        auth ? kube_client_create(base, auth, &client_options, &error) : NULL;
    struct pods *pods =
        client ? pods_create(client, settings.node_name, &settings.config.request, &error) : NULL;
    struct kube_events *events =
        pods ? kube_events_create(client, "vgpu-device-plugin", settings.node_name, 1000, &error)
             : NULL;
    struct pod_resources *resources = pod_resources_create(base, settings.pod_resources_socket);
    const struct allocation_options options = {.base = base,
        .settings = &settings,
        .client = client,
        .pods = pods,
        .pod_resources = resources,
        .events = events,
        .hold_s = (unsigned)number_of(config, "hold_s", 0),
        .remove_after_s = (unsigned)number_of(config, "remove_after_s", 0)};
    struct allocation *allocation = events ? allocation_create(&options, &error) : NULL;
    const struct kubelet_options kubelet_options = {.kubelet_socket = settings.kubelet_socket,
        .socket_name = "nvidia-gpu.sock",
        .resource = settings.resource_name,
        .pre_start_required = true,
        .preferred_allocation = settings.config.preferred_allocation};
    const struct kubelet_callbacks callbacks = {
        allocation_allocate, allocation_preferred, allocation_pre_start};
    struct kubelet *kubelet =
        allocation ? kubelet_create(base, &kubelet_options, &callbacks, allocation, &error) : NULL;
    if (!kubelet)
        die(error.text);
    publish(kubelet);
    struct event *input = event_new(base, STDIN_FILENO, EV_READ | EV_PERSIST, on_input, base);
    event_add(input, NULL);
    event_base_dispatch(base);
    allocation_destroy(allocation);
    kubelet_destroy(kubelet);
    pod_resources_destroy(resources);
    kube_events_destroy(events);
    pods_destroy(pods);
    kube_client_destroy(client);
    kube_auth_destroy(auth);
    event_free(input);
    event_base_free(base);
    node_config_finish(&settings.config);
    json_decref(config);
    free(text);
    return 0;
}
