/* SPDX-License-Identifier: Apache-2.0 */
/* What the files of the device plugin service share: kubelet.c has the socket and the directory,
 * kubelet_register.c the registration, kubelet_serve.c the methods, kubelet_answer.c their answers.
 */
#ifndef VGPU_NODE_KUBELET_PARTS_H
#define VGPU_NODE_KUBELET_PARTS_H

#include "net/grpc_client.h"
#include "net/grpc_server.h"
#include "net/unix_socket.h"
#include "node/kubelet.h"

#include <limits.h>
#include <stdint.h>
#include <sys/queue.h>

struct kubelet_stream {
    LIST_ENTRY(kubelet_stream) entry;
    struct kubelet *kubelet;
    struct grpc_call *call;
    uint64_t begun_ms;
};

struct kubelet {
    struct event_base *base;
    char *kubelet_path, *directory, *path, *socket_name, *resource;
    struct kubelet_callbacks callbacks;
    void *context;

    struct grpc_server *server;
    struct unix_socket_file file; /* the own socket's */

    int inotify, watch; /* watch below 0: the directory is not watched */
    struct event *changed, *timer;
    char said[ERROR_TEXT_BYTES]; /* the last complaint: not repeated until it is over */

    uint8_t *devices; /* the packed ListAndWatchResponse */
    size_t devices_bytes;
    LIST_HEAD(, kubelet_stream) streams;
    unsigned stream_count;

    struct grpc_client *client;   /* while Register is under way */
    struct unix_socket_file peer; /* kubelet.sock as it was then */
    unsigned pause_ms;            /* after the next failure */
    uint64_t not_before_ms;       /* of the next attempt */
    uint64_t streamless_since_ms; /* registered without a stream */
    unsigned streamless_pause_ms; /* how long that is borne */

    bool pre_start_required, preferred_allocation;
    bool serving, standby;
    bool published;
    bool registered;
    bool met; /* registering_with names a file */
};

uint64_t kubelet_now_ms(void);
/* Complains once in one line. */
void kubelet_say(struct kubelet *kubelet, const char *text);
/* Looks at everything, in the loop. */
void kubelet_wake(struct kubelet *kubelet);

/* Begins Register where it is needed and due. */
void kubelet_register(struct kubelet *kubelet);
/* It has to be done again, at once. */
void kubelet_register_anew(struct kubelet *kubelet);
/* In how many ms kubelet_register has something to do; UINT_MAX: unknown. */
unsigned kubelet_register_due(const struct kubelet *kubelet);
/* A ListAndWatch has ended, after so long. */
void kubelet_register_stream_ended(struct kubelet *kubelet, uint64_t lasted_ms);

/* The server with the plugin's methods. */
struct grpc_server *kubelet_serve(struct kubelet *kubelet);
/* Sends the devices to all streams. */
void kubelet_serve_devices(struct kubelet *kubelet);

struct kubelet_call {
    struct grpc_call *grpc;
    void *request;     /* the decoded message, or NULL */
    void *parts;       /* what the callback gets of it */
    size_t containers; /* as many answers are needed */
};

#endif
