/* SPDX-License-Identifier: Apache-2.0 */
#include "kube/watch_lines.h"

#include "kube/object.h"

#include <errno.h>
#include <stdbool.h>
#include <stdlib.h>
#include <string.h>

/* A buffer above this is given back when its line is done. */
#define BUFFER_KEPT_BYTES 65536

typedef int take_fn(void *context, enum watch_line_type type, const json_t *object);

static bool find_type(const char *text, enum watch_line_type *ret_type)
{
    static const char *const names[] = {"ADDED", "MODIFIED", "DELETED", "BOOKMARK", "ERROR"};
    for (size_t i = 0; i < sizeof(names) / sizeof(names[0]); i++) {
        if (!strcmp(text, names[i])) {
            *ret_type = (enum watch_line_type)i;
            return true;
        }
    }
    return false;
}

static int take_line(
    const char *line, size_t bytes, take_fn *take, void *context, struct error *error)
{
    enum watch_line_type type;
    json_error_t problem;
    while (bytes && strchr(" \t\r", line[bytes - 1]) && line[bytes - 1])
        bytes--;
    if (!bytes)
        return 0;
    json_t *root = json_loadb(line, bytes, 0, &problem);
    if (!root)
        return error_set(error, EINVAL, "a watch event is not JSON: %s", problem.text);
    const char *text = object_string(root, "type", NULL);
    const json_t *object = object_get(root, "object", NULL);
    int result = 0;
    if (!text || !json_is_object(object))
        result = error_set(error, EINVAL, "a watch event has no type or no object");
    else if (find_type(text, &type))
        result = take(context, type, object);
    json_decref(root);
    return result;
}

static int keep(struct watch_lines *lines, const char *data, size_t bytes, struct error *error)
{
    size_t max = lines->bytes_max ? lines->bytes_max : WATCH_LINE_BYTES_MAX;
    if (bytes > max - lines->bytes)
        return error_set(error, EFBIG, "a watch event has more than %zu bytes", max);
    if (lines->bytes + bytes > lines->room) {
        size_t room = lines->room ? lines->room : 4096;
        while (room < lines->bytes + bytes)
            room *= 2;
        char *buffer = realloc(lines->buffer, room);
        if (!buffer)
            return error_set(error, ENOMEM, "no memory for a watch event");
        lines->buffer = buffer;
        lines->room = room;
    }
    if (bytes)
        memcpy(lines->buffer + lines->bytes, data, bytes);
    lines->bytes += bytes;
    return 0;
}

int watch_lines_feed(struct watch_lines *lines, const char *data, size_t bytes,
    int (*take)(void *context, enum watch_line_type type, const json_t *object), void *context,
    struct error *error)
{
    for (const char *end; bytes && (end = memchr(data, '\n', bytes));) {
        size_t length = (size_t)(end - data);
        int result;
        if (lines->bytes) {
            result = keep(lines, data, length, error);
            if (!result)
                result = take_line(lines->buffer, lines->bytes, take, context, error);
            lines->bytes = 0;
            if (lines->room > BUFFER_KEPT_BYTES)
                watch_lines_finish(lines);
        } else { /* whole in one piece: not copied */
            result = take_line(data, length, take, context, error);
        }
        if (result)
            return result;
        data = end + 1;
        bytes -= length + 1;
    }
    return keep(lines, data, bytes, error);
}

void watch_lines_finish(struct watch_lines *lines)
{
    free(lines->buffer);
    lines->buffer = NULL;
    lines->bytes = lines->room = 0;
}
