/* SPDX-License-Identifier: Apache-2.0 */
#include "kube/patch.h"

#include <errno.h>

json_t *patch_create(void)
{
    return json_pack("{s:{}}", "metadata");
}

static int set_in(json_t *patch, const char *part, const char *key, const char *value)
{
    json_t *metadata = json_object_get(patch, "metadata");
    json_t *map = json_object_get(metadata, part);
    if (!map) {
        map = json_object();
        if (json_object_set_new(metadata, part, map))
            return -ENOMEM;
    }
    return json_object_set_new(map, key, value ? json_string(value) : json_null()) ? -ENOMEM : 0;
}

int patch_annotation(json_t *patch, const char *key, const char *value)
{
    return set_in(patch, "annotations", key, value);
}

int patch_label(json_t *patch, const char *key, const char *value)
{
    return set_in(patch, "labels", key, value);
}

int patch_uid(json_t *patch, const char *uid)
{
    json_t *metadata = json_object_get(patch, "metadata");
    return json_object_set_new(metadata, "uid", json_string(uid)) ? -ENOMEM : 0;
}

int patch_resource_version(json_t *patch, const char *version)
{
    json_t *metadata = json_object_get(patch, "metadata");
    return json_object_set_new(metadata, "resourceVersion", json_string(version)) ? -ENOMEM : 0;
}
