/* SPDX-License-Identifier: Apache-2.0 */
/* Durations as Go writes them ("5m0s", "28s", "1h30m", "1.5s"): flags, HAMI_NODELOCK_EXPIRE, and
 * the texts of lock errors. Pure. */
#ifndef VGPU_CODEC_DURATION_H
#define VGPU_CODEC_DURATION_H

#include <stdint.h>

#define DURATION_TEXT_BYTES 32
/* For messages. */
#define DURATION_ACCEPTED "a duration with units, as 300ms, 1.5s or 5m30s"

/* One or more of <decimal><h|m|s|ms|us|ns>, a sign before them; "0" needs no unit. Returns 0,
 * -EINVAL, or -ERANGE outside of int64_t nanoseconds. */
int duration_parse(const char *text, int64_t *ret_ns) __attribute__((warn_unused_result));

/* The text that Go's Duration.String makes. */
void duration_format(int64_t ns, char text[DURATION_TEXT_BYTES]);

#endif
