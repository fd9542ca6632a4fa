/* SPDX-License-Identifier: Apache-2.0 */
/* Registration with the kubelet: when it is due, and how often it is tried. */
#include "net/deviceplugin.h"
#include "net/log_line.h"
#include "net/message.h"
#include "node/kubelet_parts.h"

#include <errno.h>
#include <event2/event.h>
#include <stdio.h>
#include <stdlib.h>

/* Before it answers, the kubelet dials the plugin for up to 10 s and asks it for its options. */
#define TIMEOUT_MS 15000
#define PAUSE_MS 50
#define PAUSE_MS_MAX 10000
#define STREAMLESS_MS 10000
#define STREAMLESS_MS_MAX 300000

void kubelet_register_anew(struct kubelet *kubelet)
{
    grpc_client_destroy(kubelet->client);
    kubelet->client = NULL;
    kubelet->registered = false;
    kubelet->pause_ms = PAUSE_MS;
    kubelet->not_before_ms = 0;
    if (!kubelet->streamless_pause_ms)
        kubelet->streamless_pause_ms = STREAMLESS_MS;
}

static void put_off(struct kubelet *kubelet, const char *text)
{
    kubelet_say(kubelet, text);
    kubelet->not_before_ms = kubelet_now_ms() + kubelet->pause_ms;
    kubelet->pause_ms = kubelet->pause_ms < PAUSE_MS_MAX / 2 ? kubelet->pause_ms * 2 : PAUSE_MS_MAX;
}

static void on_end(
    void *context, enum grpc_status status, const char *text, const uint8_t *message, size_t bytes)
{
    struct kubelet *kubelet = context;
    (void)message, (void)bytes;
    char line[ERROR_TEXT_BYTES];
    if (status == GRPC_OK) {
        kubelet->registered = true;
        kubelet->pause_ms = PAUSE_MS;
        kubelet->streamless_since_ms = kubelet_now_ms();
        kubelet->said[0] = '\0';
        log_line(LOG_LINE_INFO, "kubelet: %s is registered", kubelet->resource);
    } else {
        snprintf(line, sizeof(line), "the kubelet does not register it: %s: %.150s",
            grpc_status_name(status), text);
        put_off(kubelet, line);
    }
    grpc_client_destroy(kubelet->client);
    kubelet->client = NULL;
    kubelet_wake(kubelet);
}

static int call_register(struct kubelet *kubelet, struct error *error)
{
    static const struct grpc_client_events events = {.end = on_end};
    V1beta1__DevicePluginOptions options = V1BETA1__DEVICE_PLUGIN_OPTIONS__INIT;
    V1beta1__RegisterRequest request = V1BETA1__REGISTER_REQUEST__INIT;
    size_t bytes;
    options.pre_start_required = kubelet->pre_start_required;
    options.get_preferred_allocation_available = kubelet->preferred_allocation;
    request.version = (char *)DEVICEPLUGIN_VERSION;
    request.endpoint = kubelet->socket_name;
    request.resource_name = kubelet->resource;
    request.options = &options;
    uint8_t *packed = message_pack(&request, &bytes);
    kubelet->client = grpc_client_create(kubelet->base, kubelet->kubelet_path, 0);
    int failed = !packed || !kubelet->client
                     ? error_set(error, ENOMEM, "no memory to register")
                     : grpc_client_call(kubelet->client, DEVICEPLUGIN_REGISTER, packed, bytes,
                           TIMEOUT_MS, &events, kubelet, NULL, error);
    free(packed);
    if (failed) {
        grpc_client_destroy(kubelet->client);
        kubelet->client = NULL;
    }
    return failed;
}

/* The kubelet took the registration and does not listen. */
static bool is_streamless(const struct kubelet *kubelet)
{
    return kubelet->registered && !kubelet->stream_count &&
           kubelet_now_ms() - kubelet->streamless_since_ms >= kubelet->streamless_pause_ms;
}

static void give_up_streamless(struct kubelet *kubelet)
{
    log_line(LOG_LINE_WARNING,
        "kubelet: %s: the kubelet has not listened for %u s, perhaps because another plugin "
        "has registered the same resource; registering again",
        kubelet->resource, kubelet->streamless_pause_ms / 1000);
    kubelet->streamless_pause_ms = kubelet->streamless_pause_ms < STREAMLESS_MS_MAX / 2
                                       ? kubelet->streamless_pause_ms * 2
                                       : STREAMLESS_MS_MAX;
    kubelet_register_anew(kubelet);
}

void kubelet_register(struct kubelet *kubelet)
{
    struct unix_socket_file peer;
    struct error error;
    kubelet->met = unix_socket_find(kubelet->kubelet_path, &peer);
    if (!kubelet->met) {
        kubelet_register_anew(kubelet);
        kubelet_say(kubelet, "the kubelet is not there");
        return;
    }
    if (!unix_socket_same(&peer, &kubelet->peer)) {
        kubelet->streamless_pause_ms = STREAMLESS_MS;
        kubelet_register_anew(kubelet);
    } else if (is_streamless(kubelet)) {
        give_up_streamless(kubelet);
    }
    kubelet->peer = peer;
    if (kubelet->registered || kubelet->client || kubelet_now_ms() < kubelet->not_before_ms)
        return;
    if (call_register(kubelet, &error) != 0)
        put_off(kubelet, error.text);
}

unsigned kubelet_register_due(const struct kubelet *kubelet)
{
    uint64_t now = kubelet_now_ms();
    uint64_t at = kubelet->not_before_ms;
    if (!kubelet->met || kubelet->client || (kubelet->registered && kubelet->stream_count))
        return UINT_MAX;
    if (kubelet->registered)
        at = kubelet->streamless_since_ms + kubelet->streamless_pause_ms;
    return at > now ? (unsigned)(at - now) : 0;
}

void kubelet_register_stream_ended(struct kubelet *kubelet, uint64_t lasted_ms)
{
    kubelet->streamless_since_ms = kubelet_now_ms();
    if (lasted_ms > STREAMLESS_MS_MAX)
        kubelet->streamless_pause_ms = STREAMLESS_MS;
    kubelet_wake(kubelet);
}
