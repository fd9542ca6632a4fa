/* SPDX-License-Identifier: Apache-2.0 */
/* The cluster as the scheduler sees it: nodes with their devices, and what Pods hold of each. A
 * device's use is kept up with each Pod that comes, changes or goes; nothing is counted anew in a
 * filter. Pure; one owner thread. */
#ifndef VGPU_SCHEDULE_USAGE_H
#define VGPU_SCHEDULE_USAGE_H

#include "cluster/device_score.h"
#include "cluster/node_devices.h"
#include "net/error.h"
#include "schedule/claim.h"
#include "schedule/quota.h"
#include "schedule/table.h"

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

/* How many different models, and modes, are told apart. */
#define USAGE_WORDS_MAX 1024

struct usage_amounts {
    int64_t memory; /* MiB */
    int64_t cores;  /* percent of one card */
    int64_t slots;
};

struct usage_device {
    struct usage_amounts used;
    struct usage_amounts total; /* none below 0 */
    uint64_t hash;              /* table_hash of its UUID */
    uint32_t index;
    int32_t numa;
    uint16_t type, mode; /* of usage_words */
    bool healthy;
    bool cordoned;
    bool splits; /* in HAMi's dynamic MIG mode: its instances are made on demand */
};

struct usage_node {
    char *name;
    struct usage_device *devices; /* in the order of index and UUID */
    char (*uuids)[DEVICE_UUID_BYTES];
    char (*types)[NODE_DEVICES_TYPE_BYTES]; /* models as they are written */
    int32_t *pairs;                         /* count * count; NULL where none are known */
    size_t count;                           /* 0: not registered */
    struct usage_amounts used, total;       /* of all devices */
    struct usage_pod *pods;                 /* that hold devices here */
};

enum usage_state {
    USAGE_RESERVED, /* chosen by a filter; ends by itself at its deadline */
    USAGE_BINDING,  /* a reservation whose binding is under way: it ends with that alone */
    USAGE_BOUND,    /* the API server has taken the binding, the watch has not shown it yet */
    USAGE_NAMED, /* its annotations name the devices, but it is not bound (HAMi's scheduler); ends
                    by itself where its claim has a deadline */
    USAGE_OBSERVED, /* the watch has shown it bound */
};

struct usage_pod {
    char *uid, *pod_namespace, *name;
    struct usage_node *node;
    struct usage_pod *next, *previous; /* on the same node */
    struct quota_namespace *quota_entry;
    struct quota_amount quota;
    enum usage_state state;
    bool init_done, grouped;
    uint64_t generation; /* rises with each change of any Pod */
    int64_t deadline_ns; /* of a reservation, a binding, or what is named; of that 0: none */
    char *devices;       /* of a reservation or binding: its device string; may be NULL */
    unsigned char asked[ASK_DIGEST_BYTES]; /* what it was made for; else zeros */
    char *mig;                             /* as claim.h has it; may be NULL */
    size_t count;
    struct usage_pod_share {
        struct claim_share share;
        int32_t device; /* of the node; -1: it has no such device */
    } shares[];
};

struct usage_words {
    char **texts;
    size_t count;
};

struct usage {
    struct table *nodes, *pods;
    struct usage_words types; /* in lower case */
    struct usage_words modes;
    struct quotas *quotas;
    uint64_t generation;
    size_t registered; /* nodes with devices */
};

struct usage_node_facts {
    const struct node_devices *devices;
    const char *cordon;                 /* comma list of UUIDs; NULL: none */
    const struct device_scores *scores; /* NULL: none */
};

struct usage *usage_create(void); /* NULL without memory */
void usage_destroy(struct usage *usage);

/* Adds a node or replaces its devices; of devices with the same UUID the first counts. On failure
 * the node is as before: -E2BIG (more words than USAGE_WORDS_MAX), -ENOMEM. */
int usage_set_node(struct usage *usage, const char *name, const struct usage_node_facts *facts,
    struct error *error) __attribute__((warn_unused_result));
/* Its Pods stay known, for when it comes back. */
void usage_remove_node(struct usage *usage, const char *name);
/* NULL where it is not registered. */
const struct usage_node *usage_find_node(const struct usage *usage, const char *name);
/* In the order of their names; the caller frees the list. NULL without memory. */
const struct usage_node **usage_list_nodes(const struct usage *usage, size_t *ret_count);

/* What the watch shows of a Pod. A claim of nothing takes away what was observed before, but not a
 * reservation or a binding that the watch may not have seen yet, unless the Pod has `ended`, or is
 * bound: by somebody else then, as the annotations come with the binding. What
 * annotations say of a Pod that is not bound changes no reservation. Once its init containers are
 * done, a Pod's claim does not grow again. Returns 0 or -ENOMEM: all is as
 * before. */
int usage_observe(struct usage *usage, const struct claim *claim, bool ended)
    __attribute__((warn_unused_result));
/* Whether the Pod's devices and its namespace's quota have room for this claim of it instead of
 * what it holds now. */
bool usage_has_room(const struct usage *usage, const struct claim *claim);
void usage_remove_pod(struct usage *usage, const char *uid);
const struct usage_pod *usage_find_pod(const struct usage *usage, const char *uid);

/* Reserves for a Pod instead of what it has reserved before. Returns 0; -EEXIST where the Pod is
 * bound or observed, or its binding is under way; -ENOMEM. */
int usage_reserve(struct usage *usage, const struct claim *claim, int64_t deadline_ns,
    uint64_t *ret_generation) __attribute__((warn_unused_result));
/* The binding of a reservation begins, or ends without a result: then it is a reservation as
 * before. False where it is none of that generation. */
bool usage_hold(struct usage *usage, const char *uid, uint64_t generation);
void usage_let(struct usage *usage, const char *uid, uint64_t generation);
/* Takes over what may yet be bound, as bindings: states USAGE_BINDING and USAGE_BOUND. Returns 0 or
 * -ENOMEM: some are missing. */
int usage_carry(struct usage *usage, const struct usage *from, int64_t deadline_ns)
    __attribute__((warn_unused_result));
/* A reservation, or one whose binding is under way, becomes a binding; false where it is not of
 * that generation any more. Where the watch has not shown it by `deadline_ns`, usage_find_overdue
 * names it. */
bool usage_bind(struct usage *usage, const char *uid, uint64_t generation, int64_t deadline_ns);
/* The reservation or binding of that generation ends: its binding failed. */
void usage_cancel(struct usage *usage, const char *uid, uint64_t generation);
/* Ends the reservations, and what is named, whose deadline has passed; returns how many. */
size_t usage_expire(struct usage *usage, int64_t now_ns);
/* A binding that the watch should have shown long ago: the Pod may be gone, and the API server is
 * to be asked. NULL: none. */
const struct usage_pod *usage_find_overdue(const struct usage *usage, int64_t now_ns);

#endif
