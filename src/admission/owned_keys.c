/* SPDX-License-Identifier: Apache-2.0 */
#include "admission/owned_keys.h"

#include "kube/object.h"

#include <string.h>

/* The beginnings: what vgpu or HAMi adds under one of them later is owned, too. */
static const char *const owned[] = {
    "hami.io/bind-",
    "hami.io/vgpu-",
    "vgpu.io/grant",
    "vgpu.io/proof",
};

bool owned_keys_has(const char *key)
{
    for (size_t i = 0; i < sizeof(owned) / sizeof(owned[0]); i++)
        if (!strncmp(key, owned[i], strlen(owned[i])))
            return true;
    return false;
}

static bool is_owner(const struct admission_settings *settings, const char *user)
{
    for (size_t i = 0; user && i < settings->owner_count; i++)
        if (!strcmp(settings->owners[i], user))
            return true;
    return false;
}

/* An owned key of `map` that `other` lacks or has with another value; NULL: none. */
static const char *find_change(const json_t *map, const json_t *other)
{
    const char *key;
    json_t *value;
    json_object_foreach((json_t *)map, key, value)
    {
        const json_t *before = json_object_get(other, key);
        if (owned_keys_has(key) && (!before || !json_equal(before, value)))
            return key;
    }
    return NULL;
}

bool owned_keys_check(const struct admission_settings *settings, const json_t *object,
    const json_t *old_object, const char *user, struct verdict *verdict)
{
    static const char *const kinds[][2] = {{"annotations", "annotation"}, {"labels", "label"}};
    if (is_owner(settings, user))
        return true;
    for (size_t i = 0; i < sizeof(kinds) / sizeof(kinds[0]); i++) {
        const json_t *now = object_get(object, "metadata", kinds[i][0], NULL);
        const json_t *before = object_get(old_object, "metadata", kinds[i][0], NULL);
        const char *key = find_change(now, before);
        const char *act = !key ? "remove" : json_object_get(before, key) ? "change" : "set";
        if (!key)
            key = find_change(before, now);
        if (key)
            return verdict_set(verdict, VERDICT_DENIED,
                "the %s %s belongs to vgpu's scheduler and device plugin: user \"%s\" may not "
                "%s it",
                kinds[i][1], verdict_quote(key).text, verdict_quote(user ? user : "").text, act);
    }
    return true;
}
