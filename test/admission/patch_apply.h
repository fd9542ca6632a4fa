/* SPDX-License-Identifier: Apache-2.0 */
/* JSON Patch as the API server applies it, written from RFC 6901 and 6902 alone. A header, because
 * the fuzz target is one file. */
#ifndef VGPU_TEST_ADMISSION_PATCH_APPLY_H
#define VGPU_TEST_ADMISSION_PATCH_APPLY_H

#include <jansson.h>
#include <stdbool.h>
#include <stdlib.h>
#include <string.h>

/* Takes the first token off the pointer; false where it has none. */
static inline bool take_token(const char **pointer, char *token, size_t size)
{
    const char *at = *pointer;
    size_t length = 0;
    if (*at++ != '/')
        return false;
    for (; *at && *at != '/' && length + 1 < size; at++) {
        if (*at == '~' && at[1] != '0' && at[1] != '1')
            return false;
        token[length++] = *at != '~' ? *at : at[1] == '0' ? '~' : '/';
        at += *at == '~';
    }
    token[length] = '\0';
    *pointer = at;
    return !*at || *at == '/';
}

/* No leading zeros, no sign. */
static inline bool take_index(const char *token, size_t *ret_index)
{
    size_t digits = strspn(token, "0123456789");
    if (!digits || token[digits] || digits > 9 || (digits > 1 && *token == '0'))
        return false;
    *ret_index = strtoul(token, NULL, 10);
    return true;
}

static inline json_t *step(const json_t *at, const char *token)
{
    size_t index;
    if (json_is_array(at))
        return take_index(token, &index) ? json_array_get(at, index) : NULL;
    return json_object_get(at, token);
}

/* The member that a JSON pointer names; NULL: none. */
static inline const json_t *pointer_find(const json_t *document, const char *pointer)
{
    char token[512];
    const json_t *at = document;
    while (at && *pointer)
        at = take_token(&pointer, token, sizeof(token)) ? step(at, token) : NULL;
    return at;
}

static inline bool change_array(json_t *array, const char *action, const char *token, json_t *value)
{
    size_t index = json_array_size(array);
    bool adds = !strcmp(action, "add");
    if (!(adds && !strcmp(token, "-")) && !take_index(token, &index))
        return false;
    if (adds)
        return !json_array_insert(array, index, value);
    if (!strcmp(action, "remove"))
        return !json_array_remove(array, index);
    return !json_array_set(array, index, value);
}

static inline bool change(json_t *document, const json_t *operation)
{
    const char *action = json_string_value(json_object_get(operation, "op"));
    const char *pointer = json_string_value(json_object_get(operation, "path"));
    json_t *value = json_object_get(operation, "value"), *at = document;
    char token[512];
    if (!action || !pointer || (strcmp(action, "remove") != 0 && !value) ||
        !strstr("add remove replace", action) || !take_token(&pointer, token, sizeof(token)))
        return false;
    while (*pointer) {
        at = step(at, token);
        if (!at || !take_token(&pointer, token, sizeof(token)))
            return false;
    }
    if (json_is_array(at))
        return change_array(at, action, token, value);
    if (!json_is_object(at) || (strcmp(action, "add") != 0 && !json_object_get(at, token)))
        return false;
    if (!strcmp(action, "remove"))
        return !json_object_del(at, token);
    return !json_object_set_new(at, token, json_deep_copy(value));
}

/* A copy of the document with the operations (add, remove, replace) applied; NULL where one cannot
 * be. The caller releases it. */
static inline json_t *patch_apply(const json_t *document, const json_t *operations)
{
    json_t *copy = json_deep_copy(document);
    size_t i;
    json_t *operation;
    json_array_foreach((json_t *)operations, i, operation)
    {
        if (change(copy, operation))
            continue;
        json_decref(copy);
        return NULL;
    }
    return copy;
}

#endif
