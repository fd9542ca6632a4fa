/* SPDX-License-Identifier: Apache-2.0 */
/* The header Retry-After (RFC 9110, 10.2.3): seconds, or a date. Pure. */
#ifndef VGPU_NET_RETRY_AFTER_H
#define VGPU_NET_RETRY_AFTER_H

#include <stdint.h>

/* Longer waits are cut to this: a server's slip must not stop a daemon for a day. */
#define RETRY_AFTER_SECONDS_MAX 600

/* `now_s` is the time of day in seconds since 1970, for dates ("Fri, 31 Dec 2026 23:59:59 GMT"); a
 * date that has passed is 0 s. Returns 0, or -EINVAL: neither. */
int retry_after_parse(const char *text, int64_t now_s, unsigned *ret_seconds)
    __attribute__((warn_unused_result));

#endif
