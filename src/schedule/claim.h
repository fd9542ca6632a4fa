/* SPDX-License-Identifier: Apache-2.0 */
/* What a Pod holds of each device, by Kubernetes' own rule: containers and sidecars run together,
 * an init container runs beside the sidecars before it and ends before the next container starts.
 * A device's memory, cores and slots are each held as much as is needed at the worst moment. Pure.
 */
#ifndef VGPU_SCHEDULE_CLAIM_H
#define VGPU_SCHEDULE_CLAIM_H

#include "cluster/pod_devices.h"
#include "cluster/request.h"
#include "net/error.h"
#include "schedule/ask.h"
#include "schedule/quota.h"

#include <jansson.h>
#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

/* Where HAMi keeps the instances of cards in its dynamic MIG mode; shown in metrics. */
#define CLAIM_MIG_ANNOTATION "hami.io/vgpu-mig-allocations"

struct claim_share {
    char uuid[DEVICE_UUID_BYTES];
    uint64_t hash; /* table_hash(uuid) */
    int64_t memory_mib, cores_percent;
    int32_t slots;
};

struct claim {
    /* Of the Pod's JSON or of the ask. */
    const char *uid, *pod_namespace, *name;
    const char *node;
    struct claim_share *shares; /* a device each */
    size_t count;               /* 0: it holds nothing */
    struct quota_amount quota;  /* by the same rule, of all devices together */
    bool init_done;             /* all init containers have ended well: they are not counted */
    int64_t deadline_ns;        /* as the caller sets it: until when it counts unbound; 0: always */
    bool bound;                 /* the API server has taken its binding to the node */
    bool grouped;               /* as ask.h has it; of a reservation */
    const char *mig;            /* hami.io/vgpu-mig-allocations, of a Pod's JSON; NULL: none */
    const unsigned char *asked; /* an ask's digest, to be kept with a reservation; may be NULL */
    const char *devices;        /* the device string, to be kept with a reservation; may be NULL */
};

/* Reads a Pod. It holds nothing after its end (phase Succeeded or Failed) or without the annotation
 * hami.io/vgpu-devices-allocated; a terminating Pod still holds. Its node is the one where it is
 * bound to, else that of the annotation. A device string of another number of containers than the
 * Pod's is taken as HAMi 2.10 writes it, which leaves out empty places: the i-th place with devices
 * is the i-th container that asks; where that does not fit either, all containers are summed.
 * Returns 0; -EINVAL: the annotation is no device string (the Pod's texts are set nevertheless);
 * -ENOMEM. The caller finishes it. */
int claim_read(const json_t *pod, const struct request_config *config, struct claim *ret_claim,
    struct error *error) __attribute__((warn_unused_result));

/* The claim of a Pod with these devices, one place for each of the ask's containers. Returns 0 or
 * -ENOMEM. The ask and `node` must outlive it. */
int claim_make(const struct ask *ask, const char *node, const struct pod_devices *devices,
    struct claim *ret_claim) __attribute__((warn_unused_result));

void claim_finish(struct claim *claim);

#endif
