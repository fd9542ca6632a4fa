/* SPDX-License-Identifier: Apache-2.0 */
/* Points in time as text: RFC 3339 (the node lock, Kubernetes' own objects), and the form without a
 * zone of the handshake annotation. The proleptic Gregorian calendar; no clock, no zone database.
 */
#ifndef VGPU_CODEC_RFC3339_H
#define VGPU_CODEC_RFC3339_H

#include <stddef.h>
#include <stdint.h>

#define RFC3339_TEXT_BYTES 40

/* "2006-01-02T15:04:05[.fraction](Z|+hh:mm|-hh:mm)", all of `length` bytes. The fraction is cut to
 * seconds, toward the past. Returns 0 and seconds since 1970, or -EINVAL. */
int rfc3339_parse(const char *text, size_t length, int64_t *ret_seconds)
    __attribute__((warn_unused_result));

/* In UTC, with "Z". Returns -ERANGE outside of the years 0 to 9999. */
int rfc3339_format(int64_t seconds, char text[RFC3339_TEXT_BYTES])
    __attribute__((warn_unused_result));

/* "2006-01-02 15:04:05", seconds since 1970 of the clock on the wall where it was written. */
int rfc3339_parse_local(const char *text, size_t length, int64_t *ret_seconds)
    __attribute__((warn_unused_result));
int rfc3339_format_local(int64_t seconds, char text[RFC3339_TEXT_BYTES])
    __attribute__((warn_unused_result));

#endif
