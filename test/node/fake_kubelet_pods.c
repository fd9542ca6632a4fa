/* SPDX-License-Identifier: Apache-2.0 */
/* The fake kubelet's pod-resources service. */
#include "fake_kubelet.h"

#include <stdlib.h>
#include <string.h>

static const char *text_of(const json_t *object, const char *key)
{
    const char *text = json_string_value(json_object_get(object, key));
    return text ? text : "";
}

static V1__ContainerDevices *make_devices(const json_t *from)
{
    V1__ContainerDevices *devices = calloc(1, sizeof(*devices));
    v1__container_devices__init(devices);
    devices->resource_name = (char *)text_of(from, "resource");
    devices->device_ids = fake_texts(json_object_get(from, "ids"), &devices->n_device_ids);
    return devices;
}

static V1__ContainerResources *make_container(const json_t *from)
{
    const json_t *list = json_object_get(from, "devices");
    V1__ContainerResources *container = calloc(1, sizeof(*container));
    v1__container_resources__init(container);
    container->name = (char *)text_of(from, "name");
    container->n_devices = json_array_size(list);
    container->devices = calloc(container->n_devices + 1, sizeof(*container->devices));
    for (size_t i = 0; i < container->n_devices; i++)
        container->devices[i] = make_devices(json_array_get(list, i));
    return container;
}

static V1__PodResources *make_pod(const json_t *from)
{
    const json_t *list = json_object_get(from, "containers");
    V1__PodResources *pod = calloc(1, sizeof(*pod));
    v1__pod_resources__init(pod);
    pod->name = (char *)text_of(from, "name");
    pod->namespace_ = (char *)text_of(from, "namespace");
    pod->n_containers = json_array_size(list);
    pod->containers = calloc(pod->n_containers + 1, sizeof(*pod->containers));
    for (size_t i = 0; i < pod->n_containers; i++)
        pod->containers[i] = make_container(json_array_get(list, i));
    return pod;
}

/* Pods are few: what they are made of stays until the program ends. */
void fake_set_pods(struct fake *fake, json_t *command)
{
    const json_t *list = json_object_get(command, "pods");
    V1__ListPodResourcesResponse response = V1__LIST_POD_RESOURCES_RESPONSE__INIT;
    fake->pods_json = json_incref(command);
    response.n_pod_resources = json_array_size(list);
    response.pod_resources = calloc(response.n_pod_resources + 1, sizeof(*response.pod_resources));
    for (size_t i = 0; i < response.n_pod_resources; i++)
        response.pod_resources[i] = make_pod(json_array_get(list, i));
    free(fake->pods);
    fake->pods = message_pack(&response, &fake->pods_bytes);
}

static void serve_list(struct grpc_call *call, const uint8_t *bytes, size_t size, void *context)
{
    struct fake *fake = context;
    (void)bytes, (void)size;
    if (!fake->mute)
        grpc_call_reply(call, fake->pods, fake->pods_bytes);
}

static void serve_get(struct grpc_call *call, const uint8_t *bytes, size_t size, void *context)
{
    struct fake *fake = context;
    V1__GetPodResourcesRequest *request =
        message_unpack(&v1__get_pod_resources_request__descriptor, bytes, size, MESSAGE_HEAP_BYTES);
    const json_t *list = json_object_get(fake->pods_json, "pods"), *found = NULL;
    for (size_t i = 0; request && i < json_array_size(list); i++) {
        const json_t *pod = json_array_get(list, i);
        if (!strcmp(text_of(pod, "name"), request->pod_name) &&
            !strcmp(text_of(pod, "namespace"), request->pod_namespace))
            found = pod;
    }
    message_free(request);
    if (!found) {
        grpc_call_finish(call, GRPC_UNKNOWN, "pod is not found");
        return;
    }
    V1__GetPodResourcesResponse response = V1__GET_POD_RESOURCES_RESPONSE__INIT;
    size_t packed_bytes = 0;
    response.pod_resources = make_pod(found);
    uint8_t *packed = message_pack(&response, &packed_bytes);
    grpc_call_reply(call, packed, packed_bytes);
    free(packed);
}

const struct grpc_method fake_pod_resources_methods[2] = {
    {PODRESOURCES_LIST, serve_list}, {PODRESOURCES_GET, serve_get}};
