/* SPDX-License-Identifier: Apache-2.0 */
/* What a running Pod holds where its wish for more (cluster/limits_wish.h) is granted. Pure. */
#ifndef VGPU_SCHEDULE_RAISE_H
#define VGPU_SCHEDULE_RAISE_H

#include "cluster/request.h"
#include "net/error.h"
#include "schedule/claim.h"

#include <jansson.h>
#include <stdbool.h>

/* Reads a bound Pod as claim_read does, each device with the wish's memory and cores where these
 * are more than what was assigned. A device without a limit of its cores has none to raise; to have
 * none is no wish that can be granted. Returns 0: *ret_raises tells whether anything is more, and
 * only then there is a claim, for the caller to finish; -EINVAL for a wish or an assignment that
 * cannot be read or granted; -ENOMEM. The Pod must outlive the claim. */
int raise_read(const json_t *pod, const struct request_config *config, struct claim *ret_claim,
    bool *ret_raises, struct error *error) __attribute__((warn_unused_result));

#endif
