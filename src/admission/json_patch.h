/* SPDX-License-Identifier: Apache-2.0 */
/* Operations of a JSON Patch (RFC 6902), each on one member: what it does not name stays byte for
 * byte as the API server has it. Pure. */
#ifndef VGPU_ADMISSION_JSON_PATCH_H
#define VGPU_ADMISSION_JSON_PATCH_H

#include <jansson.h>
#include <stdbool.h>
#include <stddef.h>

/* A path that is longer is a fault of the caller, and fails the patch. */
#define JSON_PATCH_PATH_BYTES 512

struct json_patch {
    json_t *operations; /* an array */
    bool failed;        /* no memory, or a path that is too long */
};

/* The caller finishes it. */
void json_patch_init(struct json_patch *ret_patch);
void json_patch_finish(struct json_patch *patch);

/* An "add", which also replaces a member that is there. Takes the reference to `value`; NULL (no
 * memory) fails the patch. */
__attribute__((format(printf, 3, 4))) void json_patch_add(
    struct json_patch *patch, json_t *value, const char *path_format, ...);

size_t json_patch_size(const struct json_patch *patch);

/* A key as part of a path ("~" is "~0", "/" is "~1"); cut where `to` is too small. */
void json_patch_escape(const char *key, char *to, size_t size);

#endif
