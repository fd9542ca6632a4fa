/* SPDX-License-Identifier: Apache-2.0 */
/* The webhook: an AdmissionReview (admission.k8s.io/v1 or v1beta1) in, the answer out. Pure: no
 * clock, no I/O; may be called from any thread.
 *
 * What it does with a Pod that is created, in this order, as HAMi 2.10 (its texts and codes):
 *  1. a request that cannot be read: denied, 400;
 *  2. an owned key (below) that its author may not write: denied, 403;
 *  3. no containers: denied, 403;
 *  4. another scheduler's Pod: allowed as it is;
 *  5. each container, init containers first: a percentage outside of 0 to 100 is denied, 500;
 *     CUDA_TASK_PRIORITY from the limit "priority"; GPU_CORE_UTILIZATION_POLICY where configured;
 *     the default count of devices where only memory or cores are named; gpucores 100 where a whole
 *     device is asked for; NVIDIA_VISIBLE_DEVICES=none in a container without devices where
 *     overwriteEnv is set; the Pod's runtime class, if it has none;
 *  6. with devices: a privileged container anywhere in the Pod is denied, 403; the scheduler's name
 *     is set; a Pod that names its node is denied, 403;
 *  7. beyond the namespace's quota: denied, 403.
 * Where HAMi does otherwise:
 *  - the quota is the request's namespace's (HAMi: the Pod's, which is empty in most requests);
 *  - sidecars and init containers count by Kubernetes' own rule;
 *  - a count or memory that the scheduler could not take (above 2^31-1, say), with which HAMi's
 *    Pod is taken for one without devices and fails on the node, is denied, 403;
 *  - a variable that is there already with the same value is not added once more.
 *
 * Owned keys. The annotations and labels hami.io/vgpu-*, hami.io/bind-*, vgpu.io/proof and
 * vgpu.io/grant say which devices a Pod has. Only the scheduler and the device plugin write them:
 * creating a Pod (or a Binding, whose annotations go into the Pod) with one, and adding, changing
 * or removing one later (also through pods/status) is denied to all users who are not in
 * settings->owners. Denied, and not silently removed: a Pod that was copied with its annotations
 * would otherwise differ from what its author wrote, and a removal by "kubectl replace" would
 * release devices that are in use.
 * The webhook's selectors can exempt Pods by a label that their author sets (HAMi:
 * hami.io/webhook). So the owned keys are to be checked by a second, validating webhook without
 * such a selector, for CREATE and UPDATE of pods, pods/status and pods/binding. */
#ifndef VGPU_ADMISSION_ADMISSION_H
#define VGPU_ADMISSION_ADMISSION_H

#include "admission/admission_settings.h"
#include "admission/verdict.h"

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

/* The API server takes objects of up to 3 MiB, and an update carries two of them. */
#define ADMISSION_BODY_MAX (8 << 20)

enum admission_role {
    ADMISSION_MUTATE,
    ADMISSION_VALIDATE, /* only the owned keys; never a patch */
};

struct admission_answer {
    char *body; /* JSON, to be sent with HTTP status 200 */
    size_t bytes;
    /* What it says, for the log. */
    bool allowed;
    size_t operations; /* in the patch */
    int code;
    char message[VERDICT_MESSAGE_BYTES]; /* one line, "": none */
    char subject[384];                   /* "<namespace>/<name>" of the object, escaped */
};

/* jansson takes some allocations that fail for bad input. A daemon sets an allocator that ends the
 * process instead (json_set_alloc_funcs): then failurePolicy decides.
 *
 * `quotas` NULL: no namespace has one. Returns 0 (the body may say "denied"), or -ENOMEM and no
 * answer: HTTP status 500, with which the webhook's failurePolicy decides. The caller finishes the
 * answer. */
int admission_review(const struct admission_settings *settings,
    const struct admission_quota_view *quotas, enum admission_role role, const char *body,
    size_t bytes, struct admission_answer *ret_answer) __attribute__((warn_unused_result));

void admission_answer_finish(struct admission_answer *answer);

#endif
