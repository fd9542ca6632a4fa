/* SPDX-License-Identifier: Apache-2.0 */
/* The device plugin as the kubelet sees it (protocol v1beta1): a socket that is served, registered
 * with the kubelet, and kept so. All of it belongs to the thread of the event loop; nothing blocks.
 *
 * What it does by itself:
 * - kubelet.sock made anew: registered again, at once (inotify) and then with growing pauses of up
 * to 10 s while the kubelet does not answer. No kubelet: nothing but a look every 10 s.
 * - The own socket deleted, as a starting kubelet does with all files there: served and registered
 * again.
 * - The own socket belongs to another living program (two plugins on a node): the second one serves
 *   nothing, says so in one line, and takes over within 2 s when the first has gone. The first is
 * never disturbed: two that take it from each other would go on for ever.
 * - The kubelet ends ListAndWatch and does not begin another (another plugin has registered the
 * same resource at another socket): registered again after 10 s, then 20 s, up to 300 s, with a
 * warning. */
#ifndef VGPU_NODE_KUBELET_H
#define VGPU_NODE_KUBELET_H

#include <stdbool.h>
#include <stddef.h>

#include "net/error.h"
#include "net/grpc_status.h"

struct event_base;
struct kubelet;
struct kubelet_call;

struct kubelet_options {
    const char *kubelet_socket; /* NULL: /var/lib/kubelet/device-plugins/kubelet.sock */
    const char *socket_name;    /* of the plugin's, in the same directory: "nvidia-gpu.sock" */
    const char *resource;       /* "nvidia.com/gpu" */
    bool pre_start_required;    /* PreStartContainer is called before each container starts */
    bool preferred_allocation;  /* GetPreferredAllocation is called before Allocate */
};

struct kubelet_device {
    const char *id;
    bool healthy;
    int numa_node; /* below 0: not told */
};

struct kubelet_ids {
    const char *const *ids;
    size_t count;
};

struct kubelet_preferred {
    struct kubelet_ids available, must_include;
    int size; /* how many to choose, those that must be included too */
};

/* Each call is owned from here on, and is given to one of kubelet_answer_* or kubelet_refuse,
 * exactly once, now or later; until then the request stays valid. kubelet_destroy may not be called
 * from here. kubelet waits for Allocate as long as it takes and calls it for one container at a
 * time; for PreStartContainer it waits 30 s. An absent callback refuses as unimplemented. */
struct kubelet_callbacks {
    void (*allocate)(struct kubelet_call *call, const struct kubelet_ids *containers, size_t count,
        void *context);
    void (*preferred)(struct kubelet_call *call, const struct kubelet_preferred *containers,
        size_t count, void *context);
    void (*pre_start)(struct kubelet_call *call, const struct kubelet_ids *devices, void *context);
};

struct kubelet_pair {
    const char *name, *value;
};

struct kubelet_mount {
    const char *container_path, *host_path;
    bool read_only;
};

struct kubelet_node {
    const char *container_path, *host_path;
    const char *permissions; /* of r, w, m */
};

/* What a container gets. Texts are UTF-8. */
struct kubelet_container {
    const struct kubelet_pair *environment;
    size_t environment_count;
    const struct kubelet_mount *mounts;
    size_t mount_count;
    const struct kubelet_node *nodes; /* device files */
    size_t node_count;
    const struct kubelet_pair *annotations; /* of the container, for its runtime */
    size_t annotation_count;
    struct kubelet_ids cdi; /* "nvidia.com/gpu=GPU-..." */
};

enum kubelet_state {
    KUBELET_WAITING,    /* for devices, the directory or the kubelet */
    KUBELET_STANDBY,    /* another program serves the socket */
    KUBELET_REGISTERED, /* the kubelet has accepted it */
};

/* Texts of the options and callbacks are copied. NULL: an option is not acceptable, or no memory.
 * It begins with the first kubelet_publish. */
struct kubelet *kubelet_create(struct event_base *base, const struct kubelet_options *options,
    const struct kubelet_callbacks *callbacks, void *context, struct error *error);

/* Removes the socket. Calls that are not answered stay valid, and go nowhere. Accepts NULL. */
void kubelet_destroy(struct kubelet *kubelet);

/* The devices from now on, in the order in which the kubelet gets them: the caller keeps it stable.
 * Sent to each open stream where something has changed. -EINVAL: an ID that is empty, double or
 * not UTF-8, -EMSGSIZE: more than the kubelet accepts in one message (4 MiB), -ENOMEM; the former
 * devices stay then. */
__attribute__((warn_unused_result)) int kubelet_publish(struct kubelet *kubelet,
    const struct kubelet_device *devices, size_t count, struct error *error);

enum kubelet_state kubelet_state(const struct kubelet *kubelet);

/* Open ListAndWatch streams: 1 in health. */
unsigned kubelet_streams(const struct kubelet *kubelet);

/* Whether the kubelet has given the call up. */
bool kubelet_call_gone(const struct kubelet_call *call);

/* As many containers as were asked for, in their order. Where the answer is not acceptable (a text
 * that is not UTF-8, a wrong number, more than 4 MiB) the kubelet gets that error instead, and it
 * is returned: -EINVAL, -EMSGSIZE, -ENOMEM. */
int kubelet_answer_allocate(struct kubelet_call *call, const struct kubelet_container *containers,
    size_t count, struct error *error);
int kubelet_answer_preferred(struct kubelet_call *call, const struct kubelet_ids *containers,
    size_t count, struct error *error);
void kubelet_answer_pre_start(struct kubelet_call *call);

/* The kubelet fails the container with this text, which the Pod's owner sees. */
void kubelet_refuse(struct kubelet_call *call, enum grpc_status status, const char *text);

#endif
