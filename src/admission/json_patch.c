/* SPDX-License-Identifier: Apache-2.0 */
#include "admission/json_patch.h"

#include <stdarg.h>
#include <stdio.h>

void json_patch_init(struct json_patch *ret_patch)
{
    ret_patch->operations = json_array();
    ret_patch->failed = !ret_patch->operations;
}

void json_patch_finish(struct json_patch *patch)
{
    json_decref(patch->operations);
    patch->operations = NULL;
}

void json_patch_add(struct json_patch *patch, json_t *value, const char *path_format, ...)
{
    char path[JSON_PATCH_PATH_BYTES];
    va_list arguments;
    va_start(arguments, path_format);
    int length = vsnprintf(path, sizeof(path), path_format, arguments);
    va_end(arguments);
    bool fits = length >= 0 && (size_t)length < sizeof(path);
    if (!fits)
        json_decref(value);
    json_t *operation =
        fits ? json_pack("{s:s, s:s, s:o}", "op", "add", "path", path, "value", value) : NULL;
    if (!operation || json_array_append_new(patch->operations, operation))
        patch->failed = true;
}

size_t json_patch_size(const struct json_patch *patch)
{
    return json_array_size(patch->operations);
}

void json_patch_escape(const char *key, char *to, size_t size)
{
    size_t length = 0;
    for (; *key && length + 2 < size; key++) {
        if (*key == '~' || *key == '/') {
            to[length++] = '~';
            to[length++] = *key == '~' ? '0' : '1';
        } else {
            to[length++] = *key;
        }
    }
    to[length] = '\0';
}
