/* SPDX-License-Identifier: Apache-2.0 */
/* What vgpu-certgen is told by flags and variables. */
#ifndef VGPU_DAEMON_CERTGEN_FLAGS_H
#define VGPU_DAEMON_CERTGEN_FLAGS_H

#include "flags/flag_table.h"

#include <stdbool.h>
#include <stdint.h>

struct certgen_flags {
    char secret_namespace[64], tls_secret[254], proof_secret[254];
    char names[8192]; /* by commas */
    char mutating_webhook[254], validating_webhook[254];
    int32_t valid_days, renew_days;
    int64_t timeout_ns;
    bool webhooks_may_be_missing;
};

extern const struct flag_table certgen_flag_table;

#endif
