/* SPDX-License-Identifier: Apache-2.0 */
/* Members of a JSON object whose type and range are checked, with one message for what is wrong.
 * An absent or null member leaves the target as it is. Pure. */
#ifndef VGPU_CODEC_JSON_READ_H
#define VGPU_CODEC_JSON_READ_H

#include "net/error.h"

#include <jansson.h>
#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

/* The value of a text, or NULL and an error. Duplicate keys: the last one counts, as in Go. */
json_t *json_read_text(const char *what, const char *text, struct error *error);

/* -EINVAL where the member is of another type, does not fit, or (text) has a control character.
 * `what` begins the message. */
int json_read_string(const char *what, const json_t *object, const char *key, char *to, size_t size,
    struct error *error) __attribute__((warn_unused_result));
int json_read_int(const char *what, const json_t *object, const char *key, int64_t min, int64_t max,
    int64_t *to, struct error *error) __attribute__((warn_unused_result));
int json_read_int32(const char *what, const json_t *object, const char *key, int32_t *to,
    struct error *error) __attribute__((warn_unused_result));
int json_read_uint32(const char *what, const json_t *object, const char *key, uint32_t *to,
    struct error *error) __attribute__((warn_unused_result));
int json_read_bool(const char *what, const json_t *object, const char *key, bool *to,
    struct error *error) __attribute__((warn_unused_result));
/* NULL in *ret_array where it is absent; -E2BIG above `max` items. */
int json_read_array(const char *what, const json_t *object, const char *key, size_t max,
    const json_t **ret_array, struct error *error) __attribute__((warn_unused_result));

#endif
