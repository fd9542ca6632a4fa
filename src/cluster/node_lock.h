/* SPDX-License-Identifier: Apache-2.0 */
/* HAMi's lock of a node, hami.io/mutex.lock: "<RFC 3339 time>,<namespace>,<Pod>", or the bare time
 * of older writers. The scheduler takes it to bind a Pod, the plugin releases it when the Pod's
 * containers have their devices. Pure: who asks does the GET and the PATCH. */
#ifndef VGPU_CLUSTER_NODE_LOCK_H
#define VGPU_CLUSTER_NODE_LOCK_H

#include "net/error.h"

#include <stdbool.h>
#include <stdint.h>

#define NODE_LOCK_ANNOTATION "hami.io/mutex.lock"
/* Kubernetes' bounds for names of these kinds, with the terminator. */
#define NODE_LOCK_NAMESPACE_BYTES 64
#define NODE_LOCK_NAME_BYTES 254
#define NODE_LOCK_VALUE_BYTES 384

struct node_lock {
    int64_t taken_seconds; /* since 1970 */
    /* Both "" in the older form. */
    char pod_namespace[NODE_LOCK_NAMESPACE_BYTES];
    char pod_name[NODE_LOCK_NAME_BYTES];
};

int node_lock_decode(const char *value, struct node_lock *ret_lock, struct error *error)
    __attribute__((warn_unused_result));

/* Returns -EINVAL for names that are too long or have a comma, -ERANGE for the time. */
int node_lock_encode(int64_t now_seconds, const char *pod_namespace, const char *pod_name,
    char value[NODE_LOCK_VALUE_BYTES]) __attribute__((warn_unused_result));

enum node_lock_decision {
    NODE_LOCK_TAKE,       /* write the value of this Pod over what is there */
    NODE_LOCK_HELD,       /* this Pod has it: nothing to write */
    NODE_LOCK_ASK,        /* first find out whether the holder's Pod exists, and decide again */
    NODE_LOCK_CONTENTION, /* another Pod has it */
};

enum node_lock_holder {
    NODE_LOCK_HOLDER_UNKNOWN, /* not asked yet */
    NODE_LOCK_HOLDER_EXISTS,
    NODE_LOCK_HOLDER_GONE, /* the API server answered that there is no such Pod */
};

/* What a Pod that wants the lock does. A value that is older than the expiry is taken over, and so
 * is one whose holder is gone. A value that is no lock is -EINVAL: nobody knows whose it is. For
 * NODE_LOCK_CONTENTION the error has HAMi's text too: "node N has been locked within 5m0s: node
 * lock contention". `value` is NULL where the annotation is absent. */
int node_lock_decide(const char *value, const char *node, const char *pod_namespace,
    const char *pod_name, enum node_lock_holder holder, int64_t now_seconds, int64_t expiry_ns,
    enum node_lock_decision *ret_decision, struct error *error) __attribute__((warn_unused_result));

/* Whether the Pod may take the annotation away: its value ends in ",<namespace>,<name>". */
bool node_lock_is_held_by(const char *value, const char *pod_namespace, const char *pod_name);

/* HAMi's texts where the value changed between reading and writing it, and where a Pod of a group
 * waited in vain. */
int node_lock_error_locked(const char *node, struct error *error);
int node_lock_error_waited(const char *node, int64_t waited_ns, struct error *error);

#endif
