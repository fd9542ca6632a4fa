/* SPDX-License-Identifier: Apache-2.0 */
/* What the files of the fake kubelet share. */
#ifndef VGPU_TEST_NODE_FAKE_KUBELET_H
#define VGPU_TEST_NODE_FAKE_KUBELET_H

#include "net/deviceplugin.h"
#include "net/grpc_client.h"
#include "net/grpc_server.h"
#include "net/message.h"
#include "net/unix_socket.h"

#include <jansson.h>
#include <stdbool.h>

#define FAKE_PLUGINS 16

struct fake;

/* A plugin that has registered. */
struct fake_plugin {
    struct fake *fake;
    char resource[256], endpoint[256];
    struct grpc_client *client;     /* NULL: none */
    struct grpc_call *registration; /* that waits for the plugin's options */
    json_t *options;
};

struct fake {
    struct event_base *base;
    const char *directory, *pod_resources_path;
    struct grpc_server *registration, *pod_resources;
    struct fake_plugin plugins[FAKE_PLUGINS];
    char refusal[256];
    uint8_t *pods; /* a packed ListPodResourcesResponse */
    size_t pods_bytes;
    json_t *pods_json;
    bool mute;
};

extern const struct grpc_method fake_registration_methods[1], fake_pod_resources_methods[2];

/* Prints the event, and takes it. */
void fake_tell(json_t *event);
void fake_drop_all(struct fake *fake);
/* false: no such command, or no such plugin. */
bool fake_call_plugin(struct fake *fake, const char *what, json_t *command);
void fake_set_pods(struct fake *fake, json_t *command);

/* The list of texts, to be freed; its texts are the JSON's. */
char **fake_texts(const json_t *list, size_t *ret_count);
json_t *fake_json_texts(char **texts, size_t count);

/* Requests from commands, packed, to be freed; NULL where the command lacks something. */
uint8_t *fake_pack_allocate(const json_t *command, size_t *ret_bytes);
uint8_t *fake_pack_preferred(const json_t *command, size_t *ret_bytes);
uint8_t *fake_pack_pre_start(const json_t *command, size_t *ret_bytes);
/* Messages of the plugin as JSON; NULL where they cannot be decoded. */
json_t *fake_read_allocate(const uint8_t *bytes, size_t size);
json_t *fake_read_preferred(const uint8_t *bytes, size_t size);
json_t *fake_read_devices(const uint8_t *bytes, size_t size);
json_t *fake_read_options(const uint8_t *bytes, size_t size);

#endif
