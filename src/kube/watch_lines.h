/* SPDX-License-Identifier: Apache-2.0 */
/* The stream of a watch: JSON objects {"type", "object"}, each on a line, cut anywhere. Pure. */
#ifndef VGPU_KUBE_WATCH_LINES_H
#define VGPU_KUBE_WATCH_LINES_H

#include "net/error.h"

#include <jansson.h>
#include <stddef.h>

/* Of one line. An object has at most 1.5 MiB in etcd; as JSON it may be several times as large. */
#define WATCH_LINE_BYTES_MAX (8u << 20)

enum watch_line_type {
    WATCH_LINE_ADDED,
    WATCH_LINE_MODIFIED,
    WATCH_LINE_DELETED,
    WATCH_LINE_BOOKMARK,
    WATCH_LINE_ERROR, /* the object is a Status */
};

struct watch_lines {
    char *buffer;
    size_t bytes, room;
    size_t bytes_max; /* 0: WATCH_LINE_BYTES_MAX */
};

/* Decodes what has come, and calls `take` for each whole line; the object is borrowed. `take`
 * returns 0, or not 0 to stop. Empty lines are left out, and so are types that are not known.
 * Returns 0, what `take` returned, -EINVAL (a line is not a watch event), -EFBIG or -ENOMEM; after
 * that only watch_lines_finish is allowed. */
int watch_lines_feed(struct watch_lines *lines, const char *data, size_t bytes,
    int (*take)(void *context, enum watch_line_type type, const json_t *object), void *context,
    struct error *error) __attribute__((warn_unused_result));

/* Frees the buffer, for a new stream. */
void watch_lines_finish(struct watch_lines *lines);

#endif
