/* SPDX-License-Identifier: Apache-2.0 */
/* A Pod's requests as sums, for the namespace's quota. Pure. */
#ifndef VGPU_ADMISSION_POD_AMOUNTS_H
#define VGPU_ADMISSION_POD_AMOUNTS_H

#include "admission/admission_settings.h"

#include <jansson.h>
#include <stdbool.h>
#include <stdint.h>

/* Of all its devices together; INT64_MAX stands for more. */
struct pod_amounts {
    int64_t memory_mib; /* memory that is asked for as a percentage counts 0: the device that
                           will be chosen is not known yet */
    int64_t cores_percent;
};

/* The most that the Pod holds at one time, by Kubernetes' rule: the application's containers with
 * all sidecars, or an init container with the sidecars before it. */
struct pod_amounts pod_amounts_of(const struct request_config *config, const json_t *pod);

/* Whether they fit into what is left. What is not asked for is not looked at. */
bool pod_amounts_fit(const struct pod_amounts *amounts, const struct admission_quota *quota);

#endif
