/* SPDX-License-Identifier: Apache-2.0 */
/* What becomes of a Pod that is created: rules 3 to 7 of admission.h. Pure. */
#ifndef VGPU_ADMISSION_POD_RULES_H
#define VGPU_ADMISSION_POD_RULES_H

#include "admission/admission_settings.h"
#include "admission/json_patch.h"
#include "admission/verdict.h"

#include <jansson.h>
#include <stdbool.h>

/* Changes `pod` as the operations, which are added to `patch`, will change the API server's.
 * `namespace` is the request's, "" where it names none. Returns whether the Pod is allowed. */
bool pod_rules_apply(const struct admission_settings *settings,
    const struct admission_quota_view *quotas, const char *namespace, json_t *pod,
    struct json_patch *patch, struct verdict *verdict);

#endif
