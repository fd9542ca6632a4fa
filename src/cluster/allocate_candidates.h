/* SPDX-License-Identifier: Apache-2.0 */
/* Which Pod an Allocate is for: kubelet does not tell. Pure. */
#ifndef VGPU_CLUSTER_ALLOCATE_CANDIDATES_H
#define VGPU_CLUSTER_ALLOCATE_CANDIDATES_H

#include "cluster/allocate_match.h"
#include "cluster/pod_view.h"
#include "net/error.h"

#include <stdbool.h>
#include <stddef.h>

struct allocate_pod {
    struct pod_view view;
    bool proven; /* its proof is right (proof_check) */
};

struct allocate_question {
    const char *node_name;
    const char *lock;      /* the value of the node's lock annotation; NULL: none */
    bool lock_holder_gone; /* the API server says that the Pod of the lock does not exist */
    bool require_proof;
    const struct allocate_request *requests;
    size_t request_count;
};

struct allocate_choice {
    const struct allocate_pod *pod;
    bool by_lock;
    /* Another Pod might be meant, whose limits differ: look at pod-resources afterwards. */
    bool ambiguous;
    struct pod_devices left;     /* its to-allocate annotation, before this Allocate */
    struct allocate_step *steps; /* one a request */
};

/* The Pod that the node's lock names, if it is bound here, has devices left and they are as many as
 * asked for. Else of the Pods that are bound here, Pending, not being deleted, with this node in
 * their annotation, a bind time and a bind phase of allocating or success, and with as many devices
 * left as asked for (with require_proof only proven ones): a proven one before others, then one
 * whose annotated cards are those of kubelet's IDs, then the oldest bind time, then by namespace
 * and name. Returns 0; the caller finishes the choice. -EAGAIN: the Pod of the lock is not among
 * `pods`: ask the API server, then once more. -ENOENT: no Pod waits for devices here. -EPROTO: none
 * waits for as many. -EINVAL: the annotation of the only one cannot be read. Then ret_choice->pod
 * is the Pod whose Allocate has failed by that (write bind-phase failed, release the lock), or NULL
 * where it is not known to be anybody's. */
int allocate_choose(const struct allocate_question *question, const struct allocate_pod *pods,
    size_t pod_count, struct allocate_choice *ret_choice, struct error *error)
    __attribute__((warn_unused_result));

void allocate_choice_finish(struct allocate_choice *choice);

#endif
