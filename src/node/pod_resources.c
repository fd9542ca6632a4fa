/* SPDX-License-Identifier: Apache-2.0 */
#include "node/pod_resources.h"

#include "net/deviceplugin.h"
#include "net/grpc_client.h"
#include "net/message.h"

#include <errno.h>
#include <stdlib.h>
#include <sys/queue.h>

#define ANSWER_BYTES (16 << 20) /* what Kubernetes' own clients accept */

struct question {
    LIST_ENTRY(question) entry;
    pod_resources_answer *answer;
    void *context;
    const ProtobufCMessageDescriptor *descriptor; /* of the message that is expected */
};

struct pod_resources {
    struct grpc_client *client;
    LIST_HEAD(, question) questions;
};

struct pod_resources *pod_resources_create(struct event_base *base, const char *path)
{
    struct pod_resources *resources = calloc(1, sizeof(*resources));
    if (!resources)
        return NULL;
    LIST_INIT(&resources->questions);
    resources->client = grpc_client_create(base, path ? path : PODRESOURCES_SOCKET, ANSWER_BYTES);
    if (!resources->client) {
        free(resources);
        return NULL;
    }
    return resources;
}

void pod_resources_destroy(struct pod_resources *resources)
{
    struct question *question;
    if (!resources)
        return;
    grpc_client_destroy(resources->client);
    while ((question = LIST_FIRST(&resources->questions))) {
        LIST_REMOVE(question, entry);
        free(question);
    }
    free(resources);
}

/* How many containers and device lists the Pods have together. */
static void count_parts(
    V1__PodResources *const *pods, size_t count, size_t *ret_containers, size_t *ret_devices)
{
    *ret_containers = *ret_devices = 0;
    for (size_t i = 0; i < count; i++) {
        *ret_containers += pods[i]->n_containers;
        for (size_t j = 0; j < pods[i]->n_containers; j++)
            *ret_devices += pods[i]->containers[j]->n_devices;
    }
}

static void fill_pod(const V1__PodResources *from, struct pod_resources_pod *to,
    struct pod_resources_container **containers, struct pod_resources_device **devices)
{
    *to = (struct pod_resources_pod){from->namespace_, from->name, *containers, from->n_containers};
    for (size_t i = 0; i < from->n_containers; i++) {
        const V1__ContainerResources *container = from->containers[i];
        *(*containers)++ =
            (struct pod_resources_container){container->name, *devices, container->n_devices};
        for (size_t j = 0; j < container->n_devices; j++)
            *(*devices)++ = (struct pod_resources_device){container->devices[j]->resource_name,
                (const char *const *)container->devices[j]->device_ids,
                container->devices[j]->n_device_ids};
    }
}

static void give(const struct question *question, V1__PodResources *const *from, size_t count)
{
    size_t container_count, device_count;
    count_parts(from, count, &container_count, &device_count);
    struct pod_resources_pod *pods = calloc(count + 1, sizeof(*pods));
    struct pod_resources_container *containers = calloc(container_count + 1, sizeof(*containers));
    struct pod_resources_device *devices = calloc(device_count + 1, sizeof(*devices));
    if (pods && containers && devices) {
        struct pod_resources_container *next_container = containers;
        struct pod_resources_device *next_device = devices;
        for (size_t i = 0; i < count; i++)
            fill_pod(from[i], &pods[i], &next_container, &next_device);
        question->answer(question->context, GRPC_OK, "", pods, count);
    } else {
        question->answer(
            question->context, GRPC_RESOURCE_EXHAUSTED, "no memory for the Pods", NULL, 0);
    }
    free(pods);
    free(containers);
    free(devices);
}

static void on_end(
    void *context, enum grpc_status status, const char *text, const uint8_t *bytes, size_t size)
{
    struct question *question = context;
    LIST_REMOVE(question, entry);
    void *message = status == GRPC_OK
                        ? message_unpack(question->descriptor, bytes, size, MESSAGE_HEAP_BYTES)
                        : NULL;
    if (message && question->descriptor == &v1__list_pod_resources_response__descriptor) {
        const V1__ListPodResourcesResponse *list = message;
        give(question, list->pod_resources, list->n_pod_resources);
    } else if (message) {
        V1__PodResources *pod = ((V1__GetPodResourcesResponse *)message)->pod_resources;
        if (pod)
            give(question, &pod, 1);
        else
            question->answer(
                question->context, GRPC_NOT_FOUND, "the kubelet has no such Pod", NULL, 0);
    } else if (status == GRPC_OK) {
        question->answer(
            question->context, GRPC_INTERNAL, "the kubelet's answer cannot be decoded", NULL, 0);
    } else {
        question->answer(question->context, status, text, NULL, 0);
    }
    message_free(message);
    free(question);
}

static int ask(struct pod_resources *resources, const char *method, const void *request,
    const ProtobufCMessageDescriptor *descriptor, unsigned timeout_ms, pod_resources_answer *answer,
    void *context, struct error *error)
{
    static const struct grpc_client_events events = {.end = on_end};
    struct question *question = calloc(1, sizeof(*question));
    size_t bytes = 0;
    uint8_t *packed = message_pack(request, &bytes);
    if (!question || !packed) {
        free(question);
        free(packed);
        return error_set(error, ENOMEM, "no memory to ask for Pods' resources");
    }
    *question = (struct question){.answer = answer, .context = context, .descriptor = descriptor};
    int failed = grpc_client_call(
        resources->client, method, packed, bytes, timeout_ms, &events, question, NULL, error);
    free(packed);
    if (failed) {
        free(question);
        return failed;
    }
    LIST_INSERT_HEAD(&resources->questions, question, entry);
    return 0;
}

int pod_resources_list(struct pod_resources *resources, unsigned timeout_ms,
    pod_resources_answer *answer, void *context, struct error *error)
{
    V1__ListPodResourcesRequest request = V1__LIST_POD_RESOURCES_REQUEST__INIT;
    return ask(resources, PODRESOURCES_LIST, &request, &v1__list_pod_resources_response__descriptor,
        timeout_ms, answer, context, error);
}

int pod_resources_get(struct pod_resources *resources, const char *space, const char *name,
    unsigned timeout_ms, pod_resources_answer *answer, void *context, struct error *error)
{
    V1__GetPodResourcesRequest request = V1__GET_POD_RESOURCES_REQUEST__INIT;
    request.pod_name = (char *)name;
    request.pod_namespace = (char *)space;
    return ask(resources, PODRESOURCES_GET, &request, &v1__get_pod_resources_response__descriptor,
        timeout_ms, answer, context, error);
}
