/* SPDX-License-Identifier: Apache-2.0 */
/* Whether a node's devices count, as the scheduler judges it in each round (every 15 s in HAMi),
 * from the handshake and from what kubelet offers. Pure. */
#ifndef VGPU_CLUSTER_HEALTH_JUDGEMENT_H
#define VGPU_CLUSTER_HEALTH_JUDGEMENT_H

#include <stdbool.h>
#include <stdint.h>

/* A request that is younger may still be answered. */
#define HEALTH_JUDGEMENT_ANSWER_SECONDS 60

struct health_evidence {
    const char *handshake;     /* the annotation; NULL where it is absent */
    int64_t now_local_seconds; /* the scheduler's wall clock, as in the handshake */
    int64_t allocatable;       /* status.allocatable of the count resource; 0 where absent */
    int64_t previous;          /* the same in the last round; 0 in the first */
    bool register_changed;     /* the register annotation differs from the last round's */
};

struct health_judgement {
    bool healthy; /* false: forget the devices, take the annotation away */
    bool refresh; /* read the devices again */
    bool request; /* write a new "Requesting_<now>" */
};

struct health_judgement health_judge(const struct health_evidence *evidence);

#endif
