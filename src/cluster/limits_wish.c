/* SPDX-License-Identifier: Apache-2.0 */
#include "cluster/limits_wish.h"

#include "codec/json_read.h"

#include <errno.h>
#include <string.h>

#define WHAT "annotation " LIMITS_WISH_ANNOTATION
#define CONTAINERS_MAX 512

static int read_one(const char *name, json_t *value, struct limits_wish *wish, struct error *error)
{
    const char *key;
    json_t *number;
    int64_t memory_mib = -1, cores_percent = -1;
    if (!json_is_object(value))
        return error_set(error, EINVAL, WHAT ": container \"%.64s\": not an object", name);
    json_object_foreach(value, key, number)
    {
        if (strcmp(key, "gpumem") != 0 && strcmp(key, "gpucores") != 0)
            return error_set(error, EINVAL,
                WHAT ": container \"%.64s\": \"%.32s\" is not known; gpumem and gpucores are", name,
                key);
    }
    int result = json_read_int(WHAT, value, "gpumem", 1, INT32_MAX, &memory_mib, error);
    if (!result)
        result = json_read_int(WHAT, value, "gpucores", 0, INT32_MAX, &cores_percent, error);
    wish->has_memory = memory_mib > 0;
    wish->memory_mib = (int32_t)memory_mib;
    wish->has_cores = cores_percent >= 0;
    wish->cores_percent = (int32_t)cores_percent;
    return result;
}

int limits_wish_read(
    const char *text, const char *container, struct limits_wish *ret_wish, struct error *error)
{
    struct limits_wish found = {0};
    const char *name;
    json_t *value;
    if (!text) {
        *ret_wish = found;
        return 0;
    }
    json_t *object = json_read_text(WHAT, text, error);
    int result = object ? 0 : -EINVAL;
    if (object && !json_is_object(object))
        result = error_set(error, EINVAL, WHAT ": not an object");
    if (!result && json_object_size(object) > CONTAINERS_MAX)
        result = error_set(error, E2BIG, WHAT ": more than %d containers", CONTAINERS_MAX);
    if (!result)
        json_object_foreach(object, name, value)
        {
            struct limits_wish wish = {0};
            result = read_one(name, value, &wish, error);
            if (result)
                break;
            if (!strcmp(name, container))
                found = wish;
        }
    json_decref(object);
    if (!result)
        *ret_wish = found;
    return result;
}
