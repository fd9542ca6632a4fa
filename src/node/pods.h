/* SPDX-License-Identifier: Apache-2.0 */
/* This node as the API server has it: its Pods, and the lock among the Node's annotations. One
 * watch each, of this node alone; a Pod is kept as what the plugin reads of it (some 500 bytes and
 * its device strings). All of it belongs to the thread of the event loop. */
#ifndef VGPU_NODE_PODS_H
#define VGPU_NODE_PODS_H

#include "cluster/limits_wish.h"
#include "cluster/pod_view.h"
#include "kube/client.h"
#include "net/error.h"

#include <jansson.h>
#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>
#include <sys/queue.h>

/* Wishes for other limits of a running Pod, and the scheduler's consent to exactly that text. */
#define POD_ANNOTATION_LIMITS LIMITS_WISH_ANNOTATION
#define POD_ANNOTATION_LIMITS_PROOF LIMITS_WISH_CONSENT

/* Longer annotations are taken as absent: a Pod's author may write 256 KiB. */
#define PODS_DEVICES_BYTES_MAX 65536
#define PODS_LIMITS_BYTES_MAX 4096

struct pods;

/* What CUDA_TASK_PRIORITY of a container's environment says. */
struct pods_priority {
    bool is_set;
    uint32_t level; /* 0: high */
};

struct pods_pod {
    struct pod_view view;
    const char *limits, *limits_proof; /* NULL: absent */
    const char *version;
    bool init_done; /* all init containers have ended well, and there are some; sidecars aside */
    struct pods_priority *priorities; /* one a container of the view */
    char *texts;                      /* holds all the texts */
};

struct pods_listener {
    LIST_ENTRY(pods_listener) entry;
    /* The Pod is new or has changed, or is gone from the API (`gone`; it is freed afterwards). */
    void (*on_pod)(void *context, const struct pods_pod *pod, bool gone);
    /* The Node object, borrowed; NULL where it is gone. */
    void (*on_node)(void *context, const json_t *node);
    /* A list of all Pods of the node is complete, and after each gap again. */
    void (*on_synced)(void *context);
    void *context;
};

/* `request` (names of resources) outlives it, and is read at each Pod. The watches begin in the
 * loop. NULL: no memory. */
struct pods *pods_create(struct kube_client *client, const char *node_name,
    const struct request_config *request, struct error *error);
void pods_destroy(struct pods *pods);

/* The listener is the caller's, until the end of `pods`. A callback may be absent. */
void pods_listen(struct pods *pods, struct pods_listener *listener);

const struct pods_pod *const *pods_all(const struct pods *pods, size_t *ret_count);
const struct pods_pod *pods_find(const struct pods *pods, const char *uid);
const struct pods_pod *pods_find_name(
    const struct pods *pods, const char *pod_namespace, const char *name);

/* Whether a list has been complete since the start. */
bool pods_are_known(const struct pods *pods);

/* The value of the Node's lock; NULL: none, or the Node is not known yet. */
const char *pods_lock(const struct pods *pods);

/* An answer of the API server that has the Pod (of which the watch has told) or the Node as it is
 * now. An older state, which the watch may still be telling, does not take its place. */
void pods_learn(struct pods *pods, const json_t *pod);
void pods_learn_node(struct pods *pods, const json_t *node);

/* A Pod object that is not in the collection. NULL: no memory, or no Pod. */
struct pods_pod *pods_read(const struct request_config *request, const json_t *object);
void pods_pod_destroy(struct pods_pod *pod);

#endif
