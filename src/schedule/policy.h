/* SPDX-License-Identifier: Apache-2.0 */
/* How devices are ordered, and which of them are preferred. A policy is one word, or several with
 * commas: binpack, spread, numa (sort keys, the first one counts most), mutex and topology-aware
 * (rules). Pure. */
#ifndef VGPU_SCHEDULE_POLICY_H
#define VGPU_SCHEDULE_POLICY_H

#include "net/error.h"

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

#define POLICY_ACCEPTED "binpack, spread, topology-aware, mutex, numa, or several with commas"
#define POLICY_NODE_ACCEPTED "binpack or spread"

/* A step of the order: what stands first is tried first. */
enum policy_step {
    POLICY_END,
    POLICY_FULLEST,     /* highest score first */
    POLICY_EMPTIEST,    /* lowest score first */
    POLICY_NUMA_HIGH,   /* highest NUMA node first */
    POLICY_NUMA_LOW,    /* lowest NUMA node first */
    POLICY_FEWEST_USED, /* fewest slots in use first */
};
#define POLICY_STEPS_MAX 4

/* Devices that are equal in all steps are in the order of their index. */
struct policy {
    enum policy_step steps[POLICY_STEPS_MAX]; /* ends with POLICY_END */
    bool exclusive;                           /* mutex: only devices that nobody uses */
    bool topology;                            /* the best connected cards, or the worst for one */
};

/* `numa_bind` groups devices by NUMA node, whatever the policy. Words that are unknown are skipped;
 * -EINVAL where none is known. */
int policy_parse(const char *text, bool numa_bind, struct policy *ret_policy, struct error *error)
    __attribute__((warn_unused_result));

enum policy_node { POLICY_NODE_BINPACK, POLICY_NODE_SPREAD };

/* Blanks around the word are allowed. Returns 0 or -EINVAL. */
int policy_parse_node(const char *text, enum policy_node *ret_policy, struct error *error)
    __attribute__((warn_unused_result));

/* What counts how much in a device's score. */
struct policy_weights {
    int32_t slot, core, memory;
};

extern const struct policy_weights policy_weights_default; /* 1 each */

/* "slot=1,core=1,memory=3": each key once, no value below 0, not all 0. Returns 0 or -EINVAL. */
int policy_parse_weights(const char *text, struct policy_weights *ret_weights, struct error *error)
    __attribute__((warn_unused_result));

#endif
