/* SPDX-License-Identifier: Apache-2.0 */
/* Answers to the kubelet. What it could not decode is refused here, by name. */
#include "net/deviceplugin.h"
#include "net/grpc_frame.h"
#include "net/message.h"
#include "node/kubelet_parts.h"

#include <errno.h>
#include <stddef.h>
#include <stdlib.h>
#include <string.h>

static void free_call(struct kubelet_call *call)
{
    message_free(call->request);
    free(call->parts);
    free(call);
}

bool kubelet_call_gone(const struct kubelet_call *call)
{
    return grpc_call_gone(call->grpc);
}

void kubelet_refuse(struct kubelet_call *call, enum grpc_status status, const char *text)
{
    grpc_call_finish(call->grpc, status, text);
    free_call(call);
}

void kubelet_answer_pre_start(struct kubelet_call *call)
{
    grpc_call_reply(call->grpc, NULL, 0);
    free_call(call);
}

static int refuse_for(struct kubelet_call *call, struct error *error)
{
    int code = error->code;
    kubelet_refuse(call, GRPC_INTERNAL, error->text);
    return -code;
}

/* Answers with the message, or with the error that was met on the way. */
static int send_answer(struct kubelet_call *call, const void *message, struct error *error)
{
    size_t bytes = 0;
    uint8_t *packed = error->code ? NULL : message_pack(message, &bytes);
    if (!error->code && !packed)
        (void)error_set(error, ENOMEM, "no memory for the answer");
    if (packed && bytes > GRPC_FRAME_MESSAGE_BYTES)
        (void)error_set(error, EMSGSIZE, "an answer of %zu bytes; the kubelet accepts at most %d",
            bytes, GRPC_FRAME_MESSAGE_BYTES);
    if (error->code) {
        free(packed);
        return refuse_for(call, error);
    }
    grpc_call_reply(call->grpc, packed, bytes);
    free(packed);
    free_call(call);
    return 0;
}

static bool count_is_right(const struct kubelet_call *call, size_t count, struct error *error)
{
    if (count == call->containers)
        return true;
    (void)error_set(error, EINVAL, "answers for %zu containers, not %zu", count, call->containers);
    return false;
}

/* Memory of one answer, freed at once. */
struct block {
    struct block *next;
    max_align_t bytes[];
};

struct answer {
    struct block *blocks;
    struct error *error; /* the first thing that was not acceptable */
};

/* Zeroed memory for `count` items of `bytes`; NULL where there is no memory, which is noted. */
static void *take(struct answer *answer, size_t count, size_t bytes)
{
    struct block *block = calloc(1, sizeof(*block) + count * bytes);
    if (!block) {
        (void)error_set(answer->error, ENOMEM, "no memory for the answer");
        return NULL;
    }
    block->next = answer->blocks;
    answer->blocks = block;
    return block->bytes;
}

static void free_blocks(struct answer *answer)
{
    while (answer->blocks) {
        struct block *next = answer->blocks->next;
        free(answer->blocks);
        answer->blocks = next;
    }
}

/* The text for a message; notes where it is not acceptable. */
static char *text_of(struct answer *answer, const char *what, const char *text)
{
    if (text && message_is_utf8(text))
        return (char *)text;
    if (!answer->error->code)
        (void)error_set(answer->error, EINVAL, "%s %s", what, text ? "is not UTF-8" : "is missing");
    return (char *)"";
}

/* A list of pointers to elements of `bytes`, each in its own memory; *ret_count is 0 without any.
 */
static void **make_list(struct answer *answer, size_t count, size_t bytes, size_t *ret_count)
{
    void **list = take(answer, count, sizeof(*list));
    char *elements = take(answer, count, bytes);
    *ret_count = 0;
    if (!list || !elements)
        return NULL;
    for (size_t i = 0; i < count; i++)
        list[i] = elements + i * bytes;
    *ret_count = count;
    return list;
}

static void fill_environment(struct answer *answer, const struct kubelet_container *from,
    V1beta1__ContainerAllocateResponse *to)
{
    to->envs = (V1beta1__ContainerAllocateResponse__EnvsEntry **)make_list(
        answer, from->environment_count, sizeof(**to->envs), &to->n_envs);
    for (size_t i = 0; i < to->n_envs; i++) {
        v1beta1__container_allocate_response__envs_entry__init(to->envs[i]);
        to->envs[i]->key = text_of(answer, "a variable", from->environment[i].name);
        to->envs[i]->value = text_of(answer, from->environment[i].name, from->environment[i].value);
    }
    to->annotations = (V1beta1__ContainerAllocateResponse__AnnotationsEntry **)make_list(
        answer, from->annotation_count, sizeof(**to->annotations), &to->n_annotations);
    for (size_t i = 0; i < to->n_annotations; i++) {
        v1beta1__container_allocate_response__annotations_entry__init(to->annotations[i]);
        to->annotations[i]->key = text_of(answer, "an annotation", from->annotations[i].name);
        to->annotations[i]->value =
            text_of(answer, from->annotations[i].name, from->annotations[i].value);
    }
}

static void fill_files(struct answer *answer, const struct kubelet_container *from,
    V1beta1__ContainerAllocateResponse *to)
{
    to->mounts = (V1beta1__Mount **)make_list(
        answer, from->mount_count, sizeof(**to->mounts), &to->n_mounts);
    for (size_t i = 0; i < to->n_mounts; i++) {
        v1beta1__mount__init(to->mounts[i]);
        to->mounts[i]->container_path =
            text_of(answer, "a mount's path", from->mounts[i].container_path);
        to->mounts[i]->host_path =
            text_of(answer, "a mount's host path", from->mounts[i].host_path);
        to->mounts[i]->read_only = from->mounts[i].read_only;
    }
    to->devices = (V1beta1__DeviceSpec **)make_list(
        answer, from->node_count, sizeof(**to->devices), &to->n_devices);
    for (size_t i = 0; i < to->n_devices; i++) {
        v1beta1__device_spec__init(to->devices[i]);
        to->devices[i]->container_path =
            text_of(answer, "a device's path", from->nodes[i].container_path);
        to->devices[i]->host_path =
            text_of(answer, "a device's host path", from->nodes[i].host_path);
        to->devices[i]->permissions =
            text_of(answer, "a device's permissions", from->nodes[i].permissions);
    }
    to->cdi_devices = (V1beta1__CDIDevice **)make_list(
        answer, from->cdi.count, sizeof(**to->cdi_devices), &to->n_cdi_devices);
    for (size_t i = 0; i < to->n_cdi_devices; i++) {
        v1beta1__cdidevice__init(to->cdi_devices[i]);
        to->cdi_devices[i]->name = text_of(answer, "a CDI device", from->cdi.ids[i]);
    }
}

int kubelet_answer_allocate(struct kubelet_call *call, const struct kubelet_container *containers,
    size_t count, struct error *error)
{
    struct error own = {0};
    struct answer answer = {.error = &own};
    V1beta1__AllocateResponse response = V1BETA1__ALLOCATE_RESPONSE__INIT;
    if (count_is_right(call, count, &own)) {
        response.container_responses = (V1beta1__ContainerAllocateResponse **)make_list(&answer,
            count, sizeof(**response.container_responses), &response.n_container_responses);
        for (size_t i = 0; i < response.n_container_responses; i++) {
            v1beta1__container_allocate_response__init(response.container_responses[i]);
            fill_environment(&answer, &containers[i], response.container_responses[i]);
            fill_files(&answer, &containers[i], response.container_responses[i]);
        }
    }
    int failed = send_answer(call, &response, &own);
    free_blocks(&answer);
    if (failed && error)
        *error = own;
    return failed;
}

int kubelet_answer_preferred(struct kubelet_call *call, const struct kubelet_ids *containers,
    size_t count, struct error *error)
{
    struct error own = {0};
    struct answer answer = {.error = &own};
    V1beta1__PreferredAllocationResponse response = V1BETA1__PREFERRED_ALLOCATION_RESPONSE__INIT;
    if (count_is_right(call, count, &own)) {
        response.container_responses =
            (V1beta1__ContainerPreferredAllocationResponse **)make_list(&answer, count,
                sizeof(**response.container_responses), &response.n_container_responses);
        for (size_t i = 0; i < response.n_container_responses; i++) {
            V1beta1__ContainerPreferredAllocationResponse *to = response.container_responses[i];
            v1beta1__container_preferred_allocation_response__init(to);
            to->deviceids = (char **)containers[i].ids;
            to->n_deviceids = containers[i].count;
            for (size_t j = 0; j < containers[i].count; j++)
                (void)text_of(&answer, "a device", containers[i].ids[j]);
        }
    }
    int failed = send_answer(call, &response, &own);
    free_blocks(&answer);
    if (failed && error)
        *error = own;
    return failed;
}
