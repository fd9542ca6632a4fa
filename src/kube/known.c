/* SPDX-License-Identifier: Apache-2.0 */
#include "kube/known.h"

#include <stdint.h>
#include <stdlib.h>
#include <string.h>

/* FNV-1a. Names that collide on purpose make a lookup slow, not wrong: who may make as many objects
 * can do worse to the API server. */
static uint64_t hash_text(uint64_t hash, const char *text)
{
    for (; *text; text++)
        hash = (hash ^ (unsigned char)*text) * 0x100000001b3ull;
    return hash;
}

static size_t bucket_of(const struct known *known, const char *namespace_name, const char *name)
{
    uint64_t hash = hash_text(0xcbf29ce484222325ull, namespace_name);
    hash = hash_text((hash ^ '/') * 0x100000001b3ull, name);
    return (hash ^ hash >> 32) & (known->bucket_count - 1);
}

struct known_object *known_find(
    const struct known *known, const char *namespace_name, const char *name)
{
    struct known_object *object =
        known->bucket_count ? known->buckets[bucket_of(known, namespace_name, name)] : NULL;
    while (object &&
           (strcmp(object->name, name) != 0 || strcmp(object->namespace_name, namespace_name) != 0))
        object = object->next;
    return object;
}

static void insert(struct known *known, struct known_object *object)
{
    size_t at = bucket_of(known, object->namespace_name, object->name);
    object->next = known->buckets[at];
    known->buckets[at] = object;
}

/* Keeps at least as many buckets as objects. */
static bool grow(struct known *known)
{
    if (known->count < known->bucket_count)
        return true;
    struct known old = *known;
    size_t count = old.bucket_count ? old.bucket_count * 2 : 64;
    struct known_object **buckets = calloc(count, sizeof(struct known_object *));
    if (!buckets)
        return false;
    known->buckets = buckets;
    known->bucket_count = count;
    for (size_t i = 0; i < old.bucket_count; i++) {
        for (struct known_object *object = old.buckets[i], *next; object; object = next) {
            next = object->next;
            insert(known, object);
        }
    }
    free(old.buckets);
    return true;
}

struct known_object *known_add(
    struct known *known, const char *namespace_name, const char *name, const char *uid)
{
    size_t name_bytes = strlen(name) + 1, namespace_bytes = strlen(namespace_name) + 1;
    size_t uid_bytes = strlen(uid) + 1;
    if (!grow(known))
        return NULL;
    struct known_object *object =
        malloc(sizeof(*object) + name_bytes + namespace_bytes + uid_bytes);
    if (!object)
        return NULL;
    object->round = 0;
    object->version[0] = 0;
    object->namespace_name = object->name + name_bytes;
    object->uid = object->namespace_name + namespace_bytes;
    memcpy(object->name, name, name_bytes);
    memcpy(object->namespace_name, namespace_name, namespace_bytes);
    memcpy(object->uid, uid, uid_bytes);
    insert(known, object);
    known->count++;
    return object;
}

void known_remove(struct known *known, struct known_object *object)
{
    struct known_object **at =
        &known->buckets[bucket_of(known, object->namespace_name, object->name)];
    while (*at != object)
        at = &(*at)->next;
    *at = object->next;
    free(object);
    known->count--;
}

void known_set_version(struct known_object *object, const char *version)
{
    size_t length = strlen(version);
    if (length >= sizeof(object->version))
        length = 0;
    memcpy(object->version, version, length);
    object->version[length] = 0;
}

void known_sweep(struct known *known, unsigned round,
    void (*gone)(void *context, const struct known_object *object), void *context)
{
    for (size_t i = 0; i < known->bucket_count; i++) {
        for (struct known_object **at = &known->buckets[i]; *at;) {
            struct known_object *object = *at;
            if (object->round == round) {
                at = &object->next;
                continue;
            }
            *at = object->next;
            known->count--;
            gone(context, object);
            free(object);
        }
    }
}

void known_finish(struct known *known)
{
    for (size_t i = 0; i < known->bucket_count; i++) {
        for (struct known_object *object = known->buckets[i], *next; object; object = next) {
            next = object->next;
            free(object);
        }
    }
    free(known->buckets);
    *known = (struct known){0};
}
