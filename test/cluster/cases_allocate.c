/* SPDX-License-Identifier: Apache-2.0 */
/* Behaviour cases of Allocate and GetPreferredAllocation, with the cluster's state as plain JSON:
 * what the daemon reads and patches through the API server is done on that here. */
#include "cases.h"

#include "cluster/allocate_answer.h"
#include "cluster/allocate_candidates.h"
#include "cluster/erase.h"
#include "cluster/node_lock.h"
#include "cluster/preferred.h"
#include "cluster/proof.h"
#include "cluster/request.h"

#include <errno.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#define NODE_DEFAULT "n1"
#define CACHE_UUID "0f0e0d0c-0b0a-4908-8706-050403020100"
#define IDS_MAX 64
#define CARDS_MAX 64
#define PROOF_KEY "0123456789abcdef0123456789abcdef"

struct world {
    struct request_config config;
    const json_t *plugin;
    const char *node;
    json_t *pods; /* a copy, which is patched */
    json_t *lock; /* the annotation's value, or NULL */
    struct allocate_pod *views;
    size_t view_count;
    struct allocate_card cards[CARDS_MAX];
    size_t card_count;
    struct allocate_settings settings;
    bool prefers;
};

static void add_card(struct world *world, const char *uuid)
{
    for (size_t i = 0; i < world->card_count; i++)
        if (!strcmp(world->cards[i].uuid, uuid))
            return;
    if (world->card_count == CARDS_MAX)
        return;
    world->cards[world->card_count] = (struct allocate_card){
        .uuid = strdup(uuid), .index = (uint32_t)world->card_count, .memory_mib = 24576};
    world->card_count++;
}

/* The node's cards: those of the plugin's list, else all that the case names anywhere. */
static void find_cards(struct world *world, const json_t *requests)
{
    const json_t *listed = json_object_get(world->plugin, "cards");
    for (size_t i = 0; i < json_array_size(listed); i++)
        add_card(world, json_string_value(json_array_get(listed, i)));
    for (size_t p = 0; !listed && p < world->view_count; p++) {
        struct pod_devices devices;
        const char *text = world->views[p].view.to_allocate;
        if (!text || pod_devices_decode(text, &devices, NULL))
            continue;
        for (size_t c = 0; c < devices.count; c++)
            for (size_t d = 0; d < devices.containers[c].count; d++)
                add_card(world, devices.containers[c].devices[d].uuid);
        pod_devices_finish(&devices);
    }
    for (size_t r = 0; !listed && r < json_array_size(requests); r++) {
        const json_t *ids = json_array_get(requests, r);
        for (size_t i = 0; i < json_array_size(ids); i++) {
            char uuid[DEVICE_UUID_BYTES];
            if (!device_id_physical(json_string_value(json_array_get(ids, i)), uuid))
                add_card(world, uuid);
        }
    }
}

static bool has_file(const json_t *files, const char *path)
{
    for (size_t i = 0; i < json_array_size(files); i++)
        if (!strcmp(json_string_value(json_array_get(files, i)), path))
            return true;
    return false;
}

static void read_settings(struct behaviour_case *self, struct world *world)
{
    const json_t *plugin = world->plugin, *scaling = json_object_get(plugin, "deviceMemoryScaling");
    const char *mode = case_text(plugin, "mode"), *hook = case_text(plugin, "hook_path");
    const char *strategy = case_text(plugin, "deviceListStrategy");
    const char *kind = case_text(plugin, "cdiKind");
    char license[256];
    snprintf(license, sizeof(license), "%s/vgpu/license", hook);
    world->prefers = case_truth(plugin, "enableGetPreferredAllocation");
    world->settings = (struct allocate_settings){
        .hook_path = hook,
        .cdi_kind = kind ? kind : ALLOCATE_CDI_KIND_HAMI,
        .cdi_prefix = ALLOCATE_CDI_PREFIX,
        .mig_mode = mode && !strcmp(mode, "mig"),
        .memory_scaling = scaling ? json_number_value(scaling) : 1,
        .core_limit_disabled = case_truth(plugin, "disableCoreLimit"),
        .log_level = case_text(plugin, "libCudaLogLevel"),
        .gdrcopy = case_truth(plugin, "gdrcopyEnabled"),
        .gds = case_truth(plugin, "gdsEnabled"),
        .mofed = case_truth(plugin, "mofedEnabled"),
        .by_index = case_text(plugin, "deviceIDStrategy") &&
                    !strcmp(case_text(plugin, "deviceIDStrategy"), "index"),
        .has_license = has_file(json_object_get(self->input, "host_files"), license),
        .cards = world->cards,
        .card_count = world->card_count,
    };
    struct error error = {.text = ""};
    case_check(self,
        !allocate_strategies_parse(
            strategy ? strategy : "envvar", &world->settings.strategies, &error),
        "%s", error.text);
}

static void read_pods(struct behaviour_case *self, struct world *world)
{
    struct error error = {.text = ""};
    world->view_count = json_array_size(world->pods);
    world->views = calloc(world->view_count + 1, sizeof(*world->views));
    for (size_t i = 0; i < world->view_count; i++) {
        struct allocate_pod *pod = &world->views[i];
        case_check(self,
            !pod_view_read(json_array_get(world->pods, i), &world->config, &pod->view, &error),
            "%s", error.text);
        pod->proven =
            pod->view.allocated && proof_check(PROOF_KEY, sizeof(PROOF_KEY) - 1, pod->view.uid,
                                       world->node, pod->view.allocated, pod->view.proof);
    }
}

static void forget_pods(struct world *world)
{
    for (size_t i = 0; i < world->view_count; i++)
        pod_view_finish(&world->views[i].view);
    free(world->views);
}

/* A case names a proof by "make": it is made with the key that the plugin of the cases has. */
static void make_proofs(struct behaviour_case *self, struct world *world)
{
    for (size_t i = 0; i < json_array_size(world->pods); i++) {
        json_t *metadata = json_object_get(json_array_get(world->pods, i), "metadata");
        json_t *annotations = json_object_get(metadata, "annotations");
        const char *proof = case_text(annotations, POD_ANNOTATION_PROOF);
        char made[PROOF_TEXT_BYTES];
        if (!proof || strcmp(proof, "make"))
            continue;
        case_check(self,
            !proof_make(PROOF_KEY, sizeof(PROOF_KEY) - 1, case_text(metadata, "uid"), world->node,
                case_text(annotations, POD_ANNOTATION_ALLOCATED), made),
            "the proof");
        json_object_set_new(annotations, POD_ANNOTATION_PROOF, json_string(made));
    }
}

static const char *find_variable(const struct allocate_answer *answer, const char *name)
{
    for (size_t i = 0; i < answer->variable_count; i++)
        if (!strcmp(answer->variables[i].name, name))
            return answer->variables[i].value;
    return NULL;
}

static bool has_mount(const struct allocate_answer *answer, const json_t *wanted)
{
    for (size_t i = 0; i < answer->mount_count; i++)
        if (!strcmp(answer->mounts[i].container_path, case_text(wanted, "container_path")) &&
            !strcmp(answer->mounts[i].host_path, case_text(wanted, "host_path")) &&
            answer->mounts[i].read_only == case_truth(wanted, "ro"))
            return true;
    return false;
}

static void check_mounts(struct behaviour_case *self, const json_t *wanted, const char *key,
    const struct allocate_answer *answer)
{
    const json_t *list = json_object_get(wanted, key), *mount;
    size_t i, others = 0;
    json_array_foreach((json_t *)list, i, mount) case_check(
        self, has_mount(answer, mount), "no mount %s", case_text(mount, "container_path"));
    for (i = 0; i < answer->mount_count; i++)
        others += !strncmp(answer->mounts[i].container_path, "/etc/vgpu", 9);
    if (list && !strcmp(key, "mounts"))
        case_check(self, answer->mount_count - others == json_array_size(list),
            "%zu mounts, not %zu", answer->mount_count - others, json_array_size(list));
}

static void check_answer(
    struct behaviour_case *self, const json_t *wanted, const struct allocate_answer *answer)
{
    const char *name;
    json_t *value;
    size_t i;
    json_object_foreach(json_object_get(wanted, "envs"), name, value)
    {
        const char *got = find_variable(answer, name);
        case_check(self, got && !strcmp(got, json_string_value(value)), "%s is %s, not %s", name,
            got ? got : "(none)", json_string_value(value));
    }
    json_object_foreach(json_object_get(wanted, "envs_regex"), name, value)
        case_check_regex(self, name, json_string_value(value), find_variable(answer, name));
    json_array_foreach(json_object_get(wanted, "envs_absent"), i, value) case_check(self,
        !find_variable(answer, json_string_value(value)), "%s is there", json_string_value(value));
    check_mounts(self, wanted, "mounts", answer);
    check_mounts(self, wanted, "mounts_include", answer);
    json_t *cdi = json_object_get(wanted, "cdi_devices");
    if (cdi)
        case_check(self, json_array_size(cdi) == answer->cdi_name_count, "%zu CDI names",
            answer->cdi_name_count);
    json_array_foreach(cdi, i, value) case_check(self,
        i < answer->cdi_name_count && !strcmp(answer->cdi_names[i], json_string_value(value)),
        "CDI name %zu", i);
    json_object_foreach(json_object_get(wanted, "annotations"), name, value) case_check(self,
        answer->annotation_count == 1 && !strcmp(answer->annotations[0].name, name) &&
            !strcmp(answer->annotations[0].value, json_string_value(value)),
        "annotation %s", name);
}

static json_t *find_annotations(struct world *world, const char *pod)
{
    for (size_t i = 0; i < json_array_size(world->pods); i++) {
        json_t *metadata = json_object_get(json_array_get(world->pods, i), "metadata");
        if (!strcmp(case_text(metadata, "name"), pod))
            return json_object_get(metadata, "annotations");
    }
    return NULL;
}

static void release_lock(struct world *world, const struct pod_view *pod)
{
    if (world->lock &&
        node_lock_is_held_by(json_string_value(world->lock), pod->pod_namespace, pod->name)) {
        json_decref(world->lock);
        world->lock = NULL;
    }
}

static int answer_step(struct behaviour_case *self, struct world *world,
    struct allocate_choice *choice, size_t number, const struct allocate_request *request,
    struct error *error)
{
    const struct allocate_step *step = &choice->steps[number];
    const struct pod_view *pod = &choice->pod->view;
    struct pod_devices_container *devices = &choice->left.containers[step->slot];
    struct allocate_answer answer = {0};
    struct allocate_subject subject = {
        .directory = allocate_directory_format(
            world->settings.hook_path, pod->uid, pod->containers[step->container].name),
        .control_disabled = pod->containers[step->container].control_disabled,
        .cache_uuid = CACHE_UUID,
        .answer_uuid = CACHE_UUID,
    };
    int result = subject.directory ? 0 : error_set(error, EINVAL, "a name is not a file's");
    if (!result && world->prefers && !world->settings.mig_mode)
        result = allocate_follow_kubelet(devices->devices, request, error);
    if (!result)
        result = allocate_answer_make(
            &world->settings, &subject, devices->devices, devices->count, &answer, error);
    const json_t *wanted = json_array_get(case_expected(self, "responses"), number);
    if (!result && wanted)
        check_answer(self, wanted, &answer);
    allocate_answer_finish(&answer);
    free((char *)subject.directory);
    return result;
}

/* What the daemon does in an Allocate. */
static int allocate(struct behaviour_case *self, struct world *world,
    const struct allocate_request *requests, size_t count, struct error *error)
{
    struct allocate_choice choice;
    struct allocate_question question = {
        .node_name = world->node,
        .lock = json_string_value(world->lock),
        .require_proof = case_truth(world->plugin, "requireProof"),
        .requests = requests,
        .request_count = count,
    };
    int result = allocate_choose(&question, world->views, world->view_count, &choice, error);
    if (result == -EAGAIN) {
        question.lock_holder_gone = true;
        result = allocate_choose(&question, world->views, world->view_count, &choice, error);
    }
    for (size_t i = 0; !result && i < count; i++)
        result = answer_step(self, world, &choice, i, &requests[i], error);
    if (choice.pod) {
        const struct pod_view *pod = &choice.pod->view;
        json_t *annotations = find_annotations(world, pod->name);
        char *erased = result ? NULL : erase_steps(&choice.left, choice.steps, count);
        bool done = result || erase_is_done(erased);
        const char *phase = result ? POD_BIND_FAILED : POD_BIND_SUCCESS;
        case_check_truth(self, "ambiguous", choice.ambiguous);
        case_check_truth(self, "by_lock", choice.by_lock);
        case_check_text(self, "chosen", pod->name);
        if (done)
            release_lock(world, pod);
        if (done)
            json_object_set_new(annotations, POD_ANNOTATION_BIND_PHASE, json_string(phase));
        if (erased)
            json_object_set_new(annotations, POD_ANNOTATION_TO_ALLOCATE, json_string(erased));
        free(erased);
    }
    allocate_choice_finish(&choice);
    return result;
}

static void check_after(struct behaviour_case *self, struct world *world)
{
    const char *pod, *key;
    json_t *wanted, *value;
    json_object_foreach((json_t *)case_expected(self, "pod_annotations_after"), pod, wanted)
    {
        json_object_foreach(wanted, key, value)
        {
            const char *got = case_text(find_annotations(world, pod), key);
            case_check(self, got && !strcmp(got, json_string_value(value)), "%s of %s is %s", key,
                pod, got ? got : "(none)");
        }
    }
    json_t *first = json_array_get(world->pods, 0);
    const char *name = case_text(json_object_get(first, "metadata"), "name");
    const char *chosen = json_string_value(case_expected(self, "chosen"));
    const char *left =
        case_text(find_annotations(world, chosen ? chosen : name), POD_ANNOTATION_TO_ALLOCATE);
    left = left ? left : "";
    if (case_expected(self, "to_allocate_empty"))
        case_check(self,
            (left[strspn(left, ";:,")] == '\0') == case_truth(self->expect, "to_allocate_empty"),
            "to-allocate is \"%s\"", left);
    case_check_contains(self, "to_allocate_contains", left);
    case_check_text(self, "to_allocate", left);
    case_check_truth(self, "lock_released", !world->lock);
}

void case_run_allocate(struct behaviour_case *self)
{
    const json_t *input = self->input, *list = json_object_get(input, "kubelet_request");
    struct world world = {.plugin = json_object_get(input, "plugin")};
    struct allocate_request requests[16];
    const char *ids[16][IDS_MAX];
    size_t count = json_array_size(list) < 16 ? json_array_size(list) : 16;
    struct error error = {.text = ""};
    request_config_default(&world.config);
    world.node = case_text(world.plugin, "node_name");
    world.node = world.node ? world.node : NODE_DEFAULT;
    world.pods = json_deep_copy(json_object_get(input, "pods"));
    world.lock = json_incref(
        json_object_get(json_object_get(input, "node_annotations"), NODE_LOCK_ANNOTATION));
    make_proofs(self, &world);
    read_pods(self, &world);
    find_cards(&world, list);
    read_settings(self, &world);
    for (size_t r = 0; r < count; r++) {
        const json_t *items = json_array_get(list, r);
        requests[r] = (struct allocate_request){ids[r], json_array_size(items)};
        for (size_t i = 0; i < requests[r].count && i < IDS_MAX; i++)
            ids[r][i] = json_string_value(json_array_get(items, i));
    }
    int result = allocate(self, &world, requests, count, &error);
    bool wanted = case_expected(self, "error_contains") != NULL;
    case_check(self, wanted == (result != 0), "%s", result ? error.text : "no error");
    if (result)
        case_check_contains(self, "error_contains", error.text);
    check_after(self, &world);
    forget_pods(&world);
    for (size_t i = 0; i < world.card_count; i++)
        free((char *)world.cards[i].uuid);
    json_decref(world.pods);
    json_decref(world.lock);
}

static size_t read_ids(const json_t *list, const char **ids)
{
    size_t count = json_array_size(list) < IDS_MAX ? json_array_size(list) : IDS_MAX;
    for (size_t i = 0; i < count; i++)
        ids[i] = json_string_value(json_array_get(list, i));
    return count;
}

void case_run_plugin_preferred(struct behaviour_case *self)
{
    const char *available[IDS_MAX], *required[IDS_MAX], *chosen[IDS_MAX];
    const char *annotation = case_text(self->input, "annotation");
    size_t available_count = read_ids(json_object_get(self->input, "available"), available);
    size_t required_count = read_ids(json_object_get(self->input, "must_include"), required);
    size_t size = (size_t)case_number(self->input, "size");
    struct pod_devices devices = {0};
    const struct pod_devices_container *annotated = NULL;
    struct error error = {.text = ""};
    if (annotation)
        case_check(self, !pod_devices_decode(annotation, &devices, &error), "%s", error.text);
    for (size_t c = 0; c < devices.count && !annotated; c++)
        if (devices.containers[c].count)
            annotated = &devices.containers[c];
    bool failed = preferred_choose(
        available, available_count, required, required_count, size, annotated, chosen, &error);
    if (case_check_error(self, failed ? error.text : NULL)) {
        json_t *got = json_array();
        for (size_t i = 0; i < size; i++)
            json_array_append_new(got, json_string(chosen[i]));
        char *text = json_dumps(got, 0);
        case_check(self, json_equal(got, case_expected(self, "device_ids")), "%s", text);
        free(text);
        json_decref(got);
    }
    pod_devices_finish(&devices);
}
