/* SPDX-License-Identifier: Apache-2.0 */
#include "codec/json_read.h"

#include <errno.h>
#include <string.h>

static const json_t *member(const json_t *object, const char *key)
{
    const json_t *value = json_object_get(object, key);
    return json_is_null(value) ? NULL : value;
}

json_t *json_read_text(const char *what, const char *text, struct error *error)
{
    json_error_t reason;
    json_t *value = json_loads(text, 0, &reason);
    if (!value)
        error_set(error, EINVAL, "%s: not JSON: line %d, column %d: %.100s", what, reason.line,
            reason.column, reason.text);
    return value;
}

int json_read_string(const char *what, const json_t *object, const char *key, char *to, size_t size,
    struct error *error)
{
    const json_t *value = member(object, key);
    if (!value)
        return 0;
    if (!json_is_string(value))
        return error_set(error, EINVAL, "%s: %s is not a text", what, key);
    const char *text = json_string_value(value);
    size_t length = json_string_length(value);
    if (length >= size)
        return error_set(error, EINVAL, "%s: %s \"%.40s...\" is longer than %zu bytes", what, key,
            text, size - 1);
    for (size_t i = 0; i < length; i++)
        if ((unsigned char)text[i] < ' ' || text[i] == 0x7f)
            return error_set(
                error, EINVAL, "%s: %s \"%.40s\" has a control character", what, key, text);
    memcpy(to, text, length + 1);
    return 0;
}

int json_read_int(const char *what, const json_t *object, const char *key, int64_t min, int64_t max,
    int64_t *to, struct error *error)
{
    const json_t *value = member(object, key);
    if (!value)
        return 0;
    if (!json_is_integer(value) || json_integer_value(value) < min ||
        json_integer_value(value) > max)
        return error_set(error, EINVAL, "%s: %s is not a whole number from %lld to %lld", what, key,
            (long long)min, (long long)max);
    *to = json_integer_value(value);
    return 0;
}

int json_read_int32(
    const char *what, const json_t *object, const char *key, int32_t *to, struct error *error)
{
    int64_t number = *to;
    int result = json_read_int(what, object, key, INT32_MIN, INT32_MAX, &number, error);
    *to = (int32_t)number;
    return result;
}

int json_read_uint32(
    const char *what, const json_t *object, const char *key, uint32_t *to, struct error *error)
{
    int64_t number = *to;
    int result = json_read_int(what, object, key, 0, UINT32_MAX, &number, error);
    *to = (uint32_t)number;
    return result;
}

int json_read_bool(
    const char *what, const json_t *object, const char *key, bool *to, struct error *error)
{
    const json_t *value = member(object, key);
    if (!value)
        return 0;
    if (!json_is_boolean(value))
        return error_set(error, EINVAL, "%s: %s is neither true nor false", what, key);
    *to = json_is_true(value);
    return 0;
}

int json_read_array(const char *what, const json_t *object, const char *key, size_t max,
    const json_t **ret_array, struct error *error)
{
    const json_t *value = member(object, key);
    if (value && !json_is_array(value))
        return error_set(error, EINVAL, "%s: %s is not a list", what, key);
    if (value && json_array_size(value) > max)
        return error_set(error, E2BIG, "%s: %s has more than %zu items", what, key, max);
    *ret_array = value;
    return 0;
}
