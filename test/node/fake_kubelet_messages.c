/* SPDX-License-Identifier: Apache-2.0 */
/* The fake kubelet's messages to and from JSON. */
#include "fake_kubelet.h"

#include <stdlib.h>
#include <string.h>

char **fake_texts(const json_t *list, size_t *ret_count)
{
    size_t count = json_array_size(list);
    char **texts = calloc(count + 1, sizeof(*texts));
    for (size_t i = 0; i < count; i++) {
        const char *text = json_string_value(json_array_get(list, i));
        texts[i] = (char *)(text ? text : "");
    }
    *ret_count = count;
    return texts;
}

json_t *fake_json_texts(char **texts, size_t count)
{
    json_t *list = json_array();
    for (size_t i = 0; i < count; i++)
        json_array_append_new(list, json_string(texts[i]));
    return list;
}

uint8_t *fake_pack_allocate(const json_t *command, size_t *ret_bytes)
{
    const json_t *containers = json_object_get(command, "containers");
    size_t count = json_array_size(containers);
    V1beta1__AllocateRequest request = V1BETA1__ALLOCATE_REQUEST__INIT;
    V1beta1__ContainerAllocateRequest *parts = calloc(count + 1, sizeof(*parts));
    V1beta1__ContainerAllocateRequest **list = calloc(count + 1, sizeof(*list));
    for (size_t i = 0; i < count; i++) {
        v1beta1__container_allocate_request__init(&parts[i]);
        parts[i].devices_ids = fake_texts(json_array_get(containers, i), &parts[i].n_devices_ids);
        list[i] = &parts[i];
    }
    request.container_requests = list;
    request.n_container_requests = count;
    uint8_t *packed = message_pack(&request, ret_bytes);
    for (size_t i = 0; i < count; i++)
        free(parts[i].devices_ids);
    free(parts);
    free(list);
    return packed;
}

uint8_t *fake_pack_preferred(const json_t *command, size_t *ret_bytes)
{
    const json_t *containers = json_object_get(command, "containers");
    size_t count = json_array_size(containers);
    V1beta1__PreferredAllocationRequest request = V1BETA1__PREFERRED_ALLOCATION_REQUEST__INIT;
    V1beta1__ContainerPreferredAllocationRequest *parts = calloc(count + 1, sizeof(*parts));
    V1beta1__ContainerPreferredAllocationRequest **list = calloc(count + 1, sizeof(*list));
    for (size_t i = 0; i < count; i++) {
        const json_t *from = json_array_get(containers, i);
        v1beta1__container_preferred_allocation_request__init(&parts[i]);
        parts[i].available_deviceids =
            fake_texts(json_object_get(from, "available"), &parts[i].n_available_deviceids);
        parts[i].must_include_deviceids =
            fake_texts(json_object_get(from, "must_include"), &parts[i].n_must_include_deviceids);
        parts[i].allocation_size = (int32_t)json_integer_value(json_object_get(from, "size"));
        list[i] = &parts[i];
    }
    request.container_requests = list;
    request.n_container_requests = count;
    uint8_t *packed = message_pack(&request, ret_bytes);
    for (size_t i = 0; i < count; i++) {
        free(parts[i].available_deviceids);
        free(parts[i].must_include_deviceids);
    }
    free(parts);
    free(list);
    return packed;
}

uint8_t *fake_pack_pre_start(const json_t *command, size_t *ret_bytes)
{
    V1beta1__PreStartContainerRequest request = V1BETA1__PRE_START_CONTAINER_REQUEST__INIT;
    request.devices_ids = fake_texts(json_object_get(command, "devices"), &request.n_devices_ids);
    uint8_t *packed = message_pack(&request, ret_bytes);
    free(request.devices_ids);
    return packed;
}

static json_t *container_json(const V1beta1__ContainerAllocateResponse *from)
{
    json_t *envs = json_object(), *annotations = json_object();
    json_t *mounts = json_array(), *devices = json_array(), *cdi = json_array();
    for (size_t i = 0; i < from->n_envs; i++)
        json_object_set_new(envs, from->envs[i]->key, json_string(from->envs[i]->value));
    for (size_t i = 0; i < from->n_annotations; i++)
        json_object_set_new(
            annotations, from->annotations[i]->key, json_string(from->annotations[i]->value));
    for (size_t i = 0; i < from->n_mounts; i++)
        json_array_append_new(mounts,
            json_pack("{s:s, s:s, s:b}", "container_path", from->mounts[i]->container_path,
                "host_path", from->mounts[i]->host_path, "read_only", from->mounts[i]->read_only));
    for (size_t i = 0; i < from->n_devices; i++)
        json_array_append_new(
            devices, json_pack("{s:s, s:s, s:s}", "container_path",
                         from->devices[i]->container_path, "host_path", from->devices[i]->host_path,
                         "permissions", from->devices[i]->permissions));
    for (size_t i = 0; i < from->n_cdi_devices; i++)
        json_array_append_new(cdi, json_string(from->cdi_devices[i]->name));
    return json_pack("{s:o, s:o, s:o, s:o, s:o}", "envs", envs, "mounts", mounts, "devices",
        devices, "annotations", annotations, "cdi_devices", cdi);
}

json_t *fake_read_allocate(const uint8_t *bytes, size_t size)
{
    V1beta1__AllocateResponse *response =
        message_unpack(&v1beta1__allocate_response__descriptor, bytes, size, MESSAGE_HEAP_BYTES);
    if (!response)
        return NULL;
    json_t *containers = json_array();
    for (size_t i = 0; i < response->n_container_responses; i++)
        json_array_append_new(containers, container_json(response->container_responses[i]));
    message_free(response);
    return containers;
}

json_t *fake_read_preferred(const uint8_t *bytes, size_t size)
{
    V1beta1__PreferredAllocationResponse *response = message_unpack(
        &v1beta1__preferred_allocation_response__descriptor, bytes, size, MESSAGE_HEAP_BYTES);
    if (!response)
        return NULL;
    json_t *containers = json_array();
    for (size_t i = 0; i < response->n_container_responses; i++)
        json_array_append_new(
            containers, fake_json_texts(response->container_responses[i]->deviceids,
                            response->container_responses[i]->n_deviceids));
    message_free(response);
    return containers;
}

json_t *fake_read_devices(const uint8_t *bytes, size_t size)
{
    V1beta1__ListAndWatchResponse *response = message_unpack(
        &v1beta1__list_and_watch_response__descriptor, bytes, size, MESSAGE_HEAP_BYTES);
    if (!response)
        return NULL;
    json_t *devices = json_array();
    for (size_t i = 0; i < response->n_devices; i++) {
        const V1beta1__Device *from = response->devices[i];
        json_t *device = json_pack("{s:s, s:s}", "id", from->id, "health", from->health);
        if (from->topology) {
            json_t *nodes = json_array();
            for (size_t j = 0; j < from->topology->n_nodes; j++)
                json_array_append_new(nodes, json_integer(from->topology->nodes[j]->id));
            json_object_set_new(device, "numa", nodes);
        }
        json_array_append_new(devices, device);
    }
    message_free(response);
    return devices;
}

json_t *fake_read_options(const uint8_t *bytes, size_t size)
{
    V1beta1__DevicePluginOptions *options = message_unpack(
        &v1beta1__device_plugin_options__descriptor, bytes, size, MESSAGE_HEAP_BYTES);
    if (!options)
        return NULL;
    json_t *json = json_pack("{s:b, s:b}", "pre_start_required", options->pre_start_required,
        "get_preferred_allocation_available", options->get_preferred_allocation_available);
    message_free(options);
    return json;
}
