/* SPDX-License-Identifier: Apache-2.0 */
/* Between bind.c (the request, the devices, the Binding), bind_lock.c (HAMi's node lock) and
 * bind_wait.c (binds that may not go on yet). */
#ifndef VGPU_SCHEDULER_BIND_PARTS_H
#define VGPU_SCHEDULER_BIND_PARTS_H

#include "cluster/node_lock.h"
#include "scheduler/scheduler_parts.h"

enum bind_wait {
    BIND_GOES,
    BIND_WAITS_FLIGHT, /* for a Pod in flight on its node */
    BIND_WAITS_LOCK,   /* for the node's lock, as a Pod of a group */
};

struct bind {
    TAILQ_ENTRY(bind) entry;
    struct scheduler *scheduler;
    struct http_exchange *exchange;
    struct kube_call *call;
    char *pod_namespace, *pod_name, *uid, *node;
    char *devices; /* NULL: the Pod has none */
    uint64_t generation;
    int64_t until_ns;
    enum bind_wait waits;
    bool in_flight; /* it is among the scheduler's flights */
    bool is_posted; /* the Binding has been sent at least once */
    /* Of the lock. */
    bool grouped;
    bool has_lock;                   /* it may have it: to be released where nothing was bound */
    char *lock_value, *node_version; /* as the node had it last, or was asked to have it */
    unsigned lock_conflicts;
    enum node_lock_holder holder;
    uint64_t lock_seen; /* what the watch showed when it began to wait */
    int64_t lock_until_ns;
};

/* Answers and frees it. */
void bind_fail(struct bind *bind, const char *text);

/* Starts a request of this bind; fails it where that cannot be. Takes the path and the body. */
void bind_ask(struct bind *bind, const char *method, char *path, const char *content_type,
    json_t *body, void (*on_done)(void *context, const struct kube_reply *reply));

/* What comes next for a bind that has its devices: it waits, takes the lock, or is posted. */
void bind_go_on(struct bind *bind);
void bind_post(struct bind *bind);

/* bind_lock.c */
/* Takes the lock and posts; fails or waits where another Pod has it. */
void bind_take_lock(struct bind *bind);
void bind_release_lock(struct bind *bind);

/* bind_wait.c */
/* May fail it. */
void bind_wait(struct bind *bind, enum bind_wait why);
void bind_wait_end(struct bind *bind);
/* Whether a bind to its node waits that came before it. */
bool bind_has_earlier(const struct bind *bind);

#endif
