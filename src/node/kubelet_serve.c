/* SPDX-License-Identifier: Apache-2.0 */
/* The methods that the kubelet calls, and the list of devices that it watches. */
#include "net/deviceplugin.h"
#include "net/grpc_frame.h"
#include "net/log_line.h"
#include "net/message.h"
#include "node/kubelet_parts.h"

#include <errno.h>
#include <stdlib.h>
#include <string.h>

/* A decoded request is a call; NULL where it is malformed, which the peer is told. */
static struct kubelet_call *begin_call(struct grpc_call *grpc,
    const ProtobufCMessageDescriptor *descriptor, const uint8_t *bytes, size_t size)
{
    struct kubelet_call *call = calloc(1, sizeof(*call));
    void *request = call ? message_unpack(descriptor, bytes, size, MESSAGE_HEAP_BYTES) : NULL;
    if (!request) {
        free(call);
        log_line(LOG_LINE_WARNING, "kubelet: a call of %zu bytes is no %s", size,
            descriptor->short_name);
        grpc_call_finish(grpc, GRPC_INTERNAL, "the request cannot be decoded");
        return NULL;
    }
    call->grpc = grpc;
    call->request = request;
    return call;
}

static void refuse_absent(struct grpc_call *grpc)
{
    grpc_call_finish(grpc, GRPC_UNIMPLEMENTED, "this plugin does not offer it");
}

static void serve_allocate(struct grpc_call *grpc, const uint8_t *bytes, size_t size, void *context)
{
    struct kubelet *kubelet = context;
    if (!kubelet->callbacks.allocate) {
        refuse_absent(grpc);
        return;
    }
    struct kubelet_call *call =
        begin_call(grpc, &v1beta1__allocate_request__descriptor, bytes, size);
    if (!call)
        return;
    const V1beta1__AllocateRequest *request = call->request;
    call->containers = request->n_container_requests;
    struct kubelet_ids *ids = calloc(call->containers ? call->containers : 1, sizeof(*ids));
    call->parts = ids;
    if (!ids) {
        kubelet_refuse(call, GRPC_RESOURCE_EXHAUSTED, "no memory");
        return;
    }
    for (size_t i = 0; i < call->containers; i++)
        ids[i] =
            (struct kubelet_ids){(const char *const *)request->container_requests[i]->devices_ids,
                request->container_requests[i]->n_devices_ids};
    kubelet->callbacks.allocate(call, ids, call->containers, kubelet->context);
}

static void serve_preferred(
    struct grpc_call *grpc, const uint8_t *bytes, size_t size, void *context)
{
    struct kubelet *kubelet = context;
    if (!kubelet->callbacks.preferred) {
        refuse_absent(grpc);
        return;
    }
    struct kubelet_call *call =
        begin_call(grpc, &v1beta1__preferred_allocation_request__descriptor, bytes, size);
    if (!call)
        return;
    const V1beta1__PreferredAllocationRequest *request = call->request;
    call->containers = request->n_container_requests;
    struct kubelet_preferred *parts =
        calloc(call->containers ? call->containers : 1, sizeof(*parts));
    call->parts = parts;
    if (!parts) {
        kubelet_refuse(call, GRPC_RESOURCE_EXHAUSTED, "no memory");
        return;
    }
    for (size_t i = 0; i < call->containers; i++) {
        const V1beta1__ContainerPreferredAllocationRequest *from = request->container_requests[i];
        parts[i] =
            (struct kubelet_preferred){.available = {(const char *const *)from->available_deviceids,
                                           from->n_available_deviceids},
                .must_include = {(const char *const *)from->must_include_deviceids,
                    from->n_must_include_deviceids},
                .size = from->allocation_size};
    }
    kubelet->callbacks.preferred(call, parts, call->containers, kubelet->context);
}

static void serve_pre_start(
    struct grpc_call *grpc, const uint8_t *bytes, size_t size, void *context)
{
    struct kubelet *kubelet = context;
    if (!kubelet->callbacks.pre_start) {
        refuse_absent(grpc);
        return;
    }
    struct kubelet_call *call =
        begin_call(grpc, &v1beta1__pre_start_container_request__descriptor, bytes, size);
    if (!call)
        return;
    const V1beta1__PreStartContainerRequest *request = call->request;
    struct kubelet_ids *ids = calloc(1, sizeof(*ids));
    call->parts = ids;
    if (!ids) {
        kubelet_refuse(call, GRPC_RESOURCE_EXHAUSTED, "no memory");
        return;
    }
    *ids = (struct kubelet_ids){(const char *const *)request->devices_ids, request->n_devices_ids};
    kubelet->callbacks.pre_start(call, ids, kubelet->context);
}

static void serve_options(struct grpc_call *grpc, const uint8_t *bytes, size_t size, void *context)
{
    struct kubelet *kubelet = context;
    V1beta1__DevicePluginOptions options = V1BETA1__DEVICE_PLUGIN_OPTIONS__INIT;
    uint8_t packed[16]; /* two booleans of 2 bytes */
    (void)bytes, (void)size;
    options.pre_start_required = kubelet->pre_start_required;
    options.get_preferred_allocation_available = kubelet->preferred_allocation;
    grpc_call_reply(grpc, packed, v1beta1__device_plugin_options__pack(&options, packed));
}

static void send_devices(struct kubelet_stream *stream)
{
    const struct kubelet *kubelet = stream->kubelet;
    if (kubelet->devices &&
        grpc_call_send_newest(stream->call, kubelet->devices, kubelet->devices_bytes) == -ENOMEM)
        log_line(LOG_LINE_ERROR, "kubelet: no memory to send the devices");
}

void kubelet_serve_devices(struct kubelet *kubelet)
{
    for (struct kubelet_stream *stream = LIST_FIRST(&kubelet->streams); stream;
         stream = LIST_NEXT(stream, entry))
        send_devices(stream);
}

static void on_stream_gone(struct grpc_call *call, void *argument)
{
    struct kubelet_stream *stream = argument;
    struct kubelet *kubelet = stream->kubelet;
    LIST_REMOVE(stream, entry);
    kubelet->stream_count--;
    kubelet_register_stream_ended(kubelet, kubelet_now_ms() - stream->begun_ms);
    free(stream);
    grpc_call_finish(call, GRPC_CANCELLED, NULL);
}

static void serve_list(struct grpc_call *grpc, const uint8_t *bytes, size_t size, void *context)
{
    struct kubelet *kubelet = context;
    struct kubelet_stream *stream = calloc(1, sizeof(*stream));
    (void)bytes, (void)size;
    if (!stream) {
        grpc_call_finish(grpc, GRPC_RESOURCE_EXHAUSTED, "no memory");
        return;
    }
    stream->kubelet = kubelet;
    stream->call = grpc;
    stream->begun_ms = kubelet_now_ms();
    LIST_INSERT_HEAD(&kubelet->streams, stream, entry);
    kubelet->stream_count++;
    grpc_call_on_gone(grpc, on_stream_gone, stream);
    send_devices(stream);
}

struct grpc_server *kubelet_serve(struct kubelet *kubelet)
{
    static const struct grpc_method methods[] = {{DEVICEPLUGIN_GET_OPTIONS, serve_options},
        {DEVICEPLUGIN_LIST_AND_WATCH, serve_list}, {DEVICEPLUGIN_GET_PREFERRED, serve_preferred},
        {DEVICEPLUGIN_ALLOCATE, serve_allocate}, {DEVICEPLUGIN_PRE_START, serve_pre_start}};
    return grpc_server_create(
        kubelet->base, methods, sizeof(methods) / sizeof(*methods), kubelet, NULL);
}

unsigned kubelet_streams(const struct kubelet *kubelet)
{
    return kubelet->stream_count;
}

static int by_text(const void *a, const void *b)
{
    return strcmp(*(const char *const *)a, *(const char *const *)b);
}

static int check_devices(const struct kubelet_device *devices, size_t count, struct error *error)
{
    const char **sorted = calloc(count ? count : 1, sizeof(const char *));
    int failed = 0;
    if (!sorted)
        return error_set(error, ENOMEM, "no memory for %zu devices", count);
    for (size_t i = 0; i < count && !failed; i++) {
        sorted[i] = devices[i].id;
        if (!devices[i].id || !devices[i].id[0] || !message_is_utf8(devices[i].id))
            failed = error_set(error, EINVAL, "device %zu: an ID of UTF-8 text is accepted", i);
    }
    if (!failed)
        qsort(sorted, count, sizeof(const char *), by_text);
    for (size_t i = 1; i < count && !failed; i++)
        if (!strcmp(sorted[i - 1], sorted[i]))
            failed = error_set(error, EINVAL, "device %s is there twice", sorted[i]);
    free(sorted);
    return failed;
}

struct packed_device {
    V1beta1__Device device;
    V1beta1__TopologyInfo topology;
    V1beta1__NUMANode node, *nodes[1];
};

static void fill_device(struct packed_device *to, const struct kubelet_device *from)
{
    v1beta1__device__init(&to->device);
    to->device.id = (char *)from->id;
    to->device.health = (char *)(from->healthy ? "Healthy" : "Unhealthy");
    if (from->numa_node < 0)
        return;
    v1beta1__topology_info__init(&to->topology);
    v1beta1__numanode__init(&to->node);
    to->node.id = from->numa_node;
    to->nodes[0] = &to->node;
    to->topology.nodes = to->nodes;
    to->topology.n_nodes = 1;
    to->device.topology = &to->topology;
}

static uint8_t *pack_devices(const struct kubelet_device *devices, size_t count, size_t *ret_bytes)
{
    V1beta1__ListAndWatchResponse response = V1BETA1__LIST_AND_WATCH_RESPONSE__INIT;
    struct packed_device *parts = calloc(count ? count : 1, sizeof(*parts));
    V1beta1__Device **list = calloc(count ? count : 1, sizeof(V1beta1__Device *));
    uint8_t *packed = NULL;
    if (parts && list) {
        for (size_t i = 0; i < count; i++) {
            fill_device(&parts[i], &devices[i]);
            list[i] = &parts[i].device;
        }
        response.devices = list;
        response.n_devices = count;
        packed = message_pack(&response, ret_bytes);
    }
    free(parts);
    free(list);
    return packed;
}

int kubelet_publish(struct kubelet *kubelet, const struct kubelet_device *devices, size_t count,
    struct error *error)
{
    size_t bytes = 0;
    int failed = check_devices(devices, count, error);
    if (failed)
        return failed;
    uint8_t *packed = pack_devices(devices, count, &bytes);
    if (!packed)
        return error_set(error, ENOMEM, "no memory for %zu devices", count);
    if (bytes > GRPC_FRAME_MESSAGE_BYTES) {
        free(packed);
        return error_set(error, EMSGSIZE,
            "%zu devices of %s take %zu bytes; the kubelet accepts at most %d", count,
            kubelet->resource, bytes, GRPC_FRAME_MESSAGE_BYTES);
    }
    if (kubelet->devices && bytes == kubelet->devices_bytes &&
        !memcmp(packed, kubelet->devices, bytes)) {
        free(packed);
        return 0;
    }
    free(kubelet->devices);
    kubelet->devices = packed;
    kubelet->devices_bytes = bytes;
    if (!kubelet->published)
        kubelet_wake(kubelet);
    kubelet->published = true;
    kubelet_serve_devices(kubelet);
    return 0;
}
