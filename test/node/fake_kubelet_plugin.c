/* SPDX-License-Identifier: Apache-2.0 */
/* The fake kubelet's side of a plugin: registration, and calls. */
#include "fake_kubelet.h"

#include "base/clock.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#define OPTIONS_MS 10000

void fake_tell(json_t *event)
{
    json_dumpf(event, stdout, JSON_COMPACT);
    putchar('\n');
    fflush(stdout);
    json_decref(event);
}

static struct fake_plugin *find_plugin(struct fake *fake, const char *resource)
{
    for (size_t i = 0; i < FAKE_PLUGINS; i++)
        if (fake->plugins[i].client && !strcmp(fake->plugins[i].resource, resource))
            return &fake->plugins[i];
    return NULL;
}

static void end_registration(struct fake_plugin *plugin, enum grpc_status status, const char *text)
{
    static const uint8_t empty[1];
    struct grpc_call *call = plugin->registration;
    plugin->registration = NULL;
    if (call && status == GRPC_OK)
        grpc_call_reply(call, empty, 0);
    else if (call)
        grpc_call_finish(call, status, text);
}

static void drop_plugin(struct fake_plugin *plugin)
{
    end_registration(plugin, GRPC_UNKNOWN, "the connection was dropped");
    grpc_client_destroy(plugin->client);
    json_decref(plugin->options);
    *plugin = (struct fake_plugin){.fake = plugin->fake};
}

void fake_drop_all(struct fake *fake)
{
    for (size_t i = 0; i < FAKE_PLUGINS; i++)
        if (fake->plugins[i].client)
            drop_plugin(&fake->plugins[i]);
}

static void on_devices(void *context, const uint8_t *message, size_t bytes)
{
    struct fake_plugin *plugin = context;
    json_t *devices = fake_read_devices(message, bytes);
    fake_tell(json_pack("{s:s, s:s, s:s, s:o}", "event", devices ? "devices" : "bad", "resource",
        plugin->resource, "endpoint", plugin->endpoint, "devices",
        devices ? devices : json_null()));
}

static void on_devices_end(
    void *context, enum grpc_status status, const char *text, const uint8_t *message, size_t bytes)
{
    struct fake_plugin *plugin = context;
    (void)message, (void)bytes;
    fake_tell(json_pack("{s:s, s:s, s:s, s:s, s:s}", "event", "ended", "resource", plugin->resource,
        "endpoint", plugin->endpoint, "status", grpc_status_name(status), "text", text));
    drop_plugin(plugin);
}

static void on_options(
    void *context, enum grpc_status status, const char *text, const uint8_t *message, size_t bytes)
{
    static const struct grpc_client_events events = {on_devices, on_devices_end};
    struct fake_plugin *plugin = context;
    struct error error;
    json_t *options = status == GRPC_OK ? fake_read_options(message, bytes) : NULL;
    if (!options) {
        end_registration(plugin, status ? status : GRPC_INTERNAL, text);
        drop_plugin(plugin);
        return;
    }
    plugin->options = options;
    end_registration(plugin, GRPC_OK, NULL);
    fake_tell(json_pack("{s:s, s:s, s:s, s:O}", "event", "register", "resource", plugin->resource,
        "endpoint", plugin->endpoint, "options", options));
    if (grpc_client_call(plugin->client, DEVICEPLUGIN_LIST_AND_WATCH, NULL, 0, 0, &events, plugin,
            NULL, &error) != 0)
        drop_plugin(plugin);
}

/* Connects to the plugin within Register, as the kubelet does. */
static const char *connect_plugin(
    struct fake *fake, const V1beta1__RegisterRequest *request, struct grpc_call *call)
{
    static const struct grpc_client_events events = {.end = on_options};
    static struct error error;
    char path[600];
    struct fake_plugin *plugin = find_plugin(fake, request->resource_name);
    if (plugin)
        drop_plugin(plugin);
    for (size_t i = 0; i < FAKE_PLUGINS && !plugin; i++)
        if (!fake->plugins[i].client)
            plugin = &fake->plugins[i];
    if (!plugin)
        return "too many plugins";
    plugin->fake = fake;
    snprintf(plugin->resource, sizeof(plugin->resource), "%s", request->resource_name);
    snprintf(plugin->endpoint, sizeof(plugin->endpoint), "%s", request->endpoint);
    snprintf(path, sizeof(path), "%s/%s", fake->directory, plugin->endpoint);
    plugin->client = grpc_client_create(fake->base, path, 0);
    if (grpc_client_call(plugin->client, DEVICEPLUGIN_GET_OPTIONS, NULL, 0, OPTIONS_MS, &events,
            plugin, NULL, &error) != 0) {
        drop_plugin(plugin);
        return error.text;
    }
    plugin->registration = call;
    return NULL;
}

static void serve_register(struct grpc_call *call, const uint8_t *bytes, size_t size, void *context)
{
    struct fake *fake = context;
    V1beta1__RegisterRequest *request =
        message_unpack(&v1beta1__register_request__descriptor, bytes, size, MESSAGE_HEAP_BYTES);
    const char *refusal = NULL;
    if (!request)
        refusal = "not a RegisterRequest";
    else if (fake->refusal[0])
        refusal = fake->refusal;
    else if (strcmp(request->version, DEVICEPLUGIN_VERSION) != 0)
        refusal = "unsupported version";
    else if (!strchr(request->resource_name, '/'))
        refusal = "not an extended resource's name";
    else
        refusal = connect_plugin(fake, request, call);
    if (refusal) {
        fake_tell(json_pack("{s:s, s:s}", "event", "refused", "text", refusal));
        grpc_call_finish(call, GRPC_UNKNOWN, refusal);
    }
    message_free(request);
}

const struct grpc_method fake_registration_methods[1] = {{DEVICEPLUGIN_REGISTER, serve_register}};

/* A call of the plugin that is under way. */
struct asked {
    char what[16];
    json_t *tag;
    uint64_t asked_ns;
};

static void on_answer(
    void *context, enum grpc_status status, const char *text, const uint8_t *message, size_t bytes)
{
    struct asked *asked = context;
    json_t *event = json_pack(
        "{s:s, s:s, s:s}", "event", asked->what, "status", grpc_status_name(status), "text", text);
    json_t *containers = status != GRPC_OK                   ? NULL
                         : !strcmp(asked->what, "allocate")  ? fake_read_allocate(message, bytes)
                         : !strcmp(asked->what, "preferred") ? fake_read_preferred(message, bytes)
                                                             : NULL;
    if (containers)
        json_object_set_new(event, "containers", containers);
    if (asked->tag)
        json_object_set_new(event, "tag", asked->tag);
    json_object_set_new(
        event, "took_us", json_integer((json_int_t)((clock_now_ns() - asked->asked_ns) / 1000)));
    fake_tell(event);
    free(asked);
}

bool fake_call_plugin(struct fake *fake, const char *what, json_t *command)
{
    static const struct {
        const char *what, *method;
        uint8_t *(*pack)(const json_t *command, size_t *ret_bytes);
    } calls[] = {{"allocate", DEVICEPLUGIN_ALLOCATE, fake_pack_allocate},
        {"preferred", DEVICEPLUGIN_GET_PREFERRED, fake_pack_preferred},
        {"prestart", DEVICEPLUGIN_PRE_START, fake_pack_pre_start}};
    static const struct grpc_client_events events = {.end = on_answer};
    const char *resource = json_string_value(json_object_get(command, "resource"));
    struct fake_plugin *plugin = resource ? find_plugin(fake, resource) : NULL;
    if (plugin && !strcmp(what, "drop")) {
        drop_plugin(plugin);
        return true;
    }
    for (size_t i = 0; plugin && i < sizeof(calls) / sizeof(*calls); i++) {
        if (strcmp(calls[i].what, what) != 0)
            continue;
        size_t bytes = 0;
        struct error error;
        uint8_t *packed = calls[i].pack(command, &bytes);
        struct asked *asked = calloc(1, sizeof(*asked));
        snprintf(asked->what, sizeof(asked->what), "%s", what);
        asked->tag = json_incref(json_object_get(command, "tag"));
        asked->asked_ns = clock_now_ns();
        int failed = grpc_client_call(plugin->client, calls[i].method, packed, bytes,
            (unsigned)json_integer_value(json_object_get(command, "timeout_ms")), &events, asked,
            NULL, &error);
        if (failed)
            on_answer(asked, GRPC_UNAVAILABLE, error.text, NULL, 0);
        free(packed);
        return true;
    }
    return false;
}
