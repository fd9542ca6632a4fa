/* SPDX-License-Identifier: Apache-2.0 */
/* Merge patches (RFC 7396) of an object's metadata. */
#ifndef VGPU_KUBE_PATCH_H
#define VGPU_KUBE_PATCH_H

#include <jansson.h>

#define PATCH_MERGE "application/merge-patch+json"

/* An empty patch; the caller releases it with json_decref. NULL: no memory. */
json_t *patch_create(void);

/* Sets an annotation or label; a `value` of NULL removes it. All return 0 or -ENOMEM (also where
 * the value is not UTF-8). */
int patch_annotation(json_t *patch, const char *key, const char *value)
    __attribute__((warn_unused_result));
int patch_label(json_t *patch, const char *key, const char *value)
    __attribute__((warn_unused_result));

/* The patch is refused (409, or 422) where another object has the name by then. */
int patch_uid(json_t *patch, const char *uid) __attribute__((warn_unused_result));

/* The patch is refused (409) where the object has another version by then. */
int patch_resource_version(json_t *patch, const char *version) __attribute__((warn_unused_result));

#endif
