/* SPDX-License-Identifier: Apache-2.0 */
#include "schedule/quota.h"

#include "kube/quantity.h"
#include "schedule/table.h"

#include <errno.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

struct quotas {
    struct table namespaces;
};

struct quotas *quotas_create(void)
{
    return calloc(1, sizeof(struct quotas));
}

static void free_object(struct quota_object *object)
{
    free(object->name);
    free(object);
}

static void free_entry(struct quota_namespace *entry)
{
    while (entry->objects) {
        struct quota_object *object = entry->objects;
        entry->objects = object->next;
        free_object(object);
    }
    free(entry->name);
    free(entry);
}

void quotas_destroy(struct quotas *quotas)
{
    if (!quotas)
        return;
    struct quota_namespace *entry;
    for (size_t cursor = 0; (entry = table_next(&quotas->namespaces, &cursor));)
        free_entry(entry);
    table_finish(&quotas->namespaces);
    free(quotas);
}

static int read_limit(const json_t *hard, const char *resource, int32_t factor, int64_t *ret_limit,
    struct error *error)
{
    char key[REQUEST_NAME_BYTES + 16], number[32];
    snprintf(key, sizeof(key), "limits.%s", resource);
    const json_t *value = json_object_get(hard, key);
    const char *text = json_string_value(value);
    struct quantity quantity;
    int64_t limit;
    if (!*resource || !value || json_is_null(value))
        return 0;
    if (json_is_integer(value)) {
        snprintf(number, sizeof(number), "%lld", (long long)json_integer_value(value));
        text = number;
    }
    if (!text || quantity_parse(text, &quantity) || quantity.nano < 0)
        return error_set(error, EINVAL, "%s is no quantity from 0 on", key);
    if (quantity_value(&quantity, &limit) || limit > QUOTA_NONE / factor)
        return 0;
    *ret_limit = limit * factor;
    return 0;
}

int quota_read(const json_t *object, const struct request_config *config,
    struct quota_amount *ret_limit, struct error *error)
{
    struct quota_amount limit = {QUOTA_NONE, QUOTA_NONE};
    const json_t *hard = json_object_get(json_object_get(object, "spec"), "hard");
    int32_t factor = config->memory_factor > 1 ? config->memory_factor : 1;
    int result = read_limit(hard, config->memory_name, factor, &limit.memory, error);
    if (!result)
        result = read_limit(hard, config->cores_name, 1, &limit.cores, error);
    if (!result)
        *ret_limit = limit;
    return result;
}

static void find_strictest(struct quota_namespace *entry)
{
    entry->limit = (struct quota_amount){QUOTA_NONE, QUOTA_NONE};
    for (const struct quota_object *object = entry->objects; object; object = object->next) {
        if (object->limit.memory < entry->limit.memory)
            entry->limit.memory = object->limit.memory;
        if (object->limit.cores < entry->limit.cores)
            entry->limit.cores = object->limit.cores;
    }
}

static void drop_if_idle(struct quotas *quotas, struct quota_namespace *entry)
{
    if (entry->holders || entry->objects)
        return;
    table_remove(&quotas->namespaces, entry->name);
    free_entry(entry);
}

struct quota_namespace *quotas_hold(struct quotas *quotas, const char *namespace_name)
{
    struct quota_namespace *entry = table_get(&quotas->namespaces, namespace_name);
    if (!entry) {
        entry = calloc(1, sizeof(*entry));
        if (!entry)
            return NULL;
        find_strictest(entry);
        entry->name = strdup(namespace_name);
        if (!entry->name || table_add(&quotas->namespaces, entry->name, entry)) {
            free_entry(entry);
            return NULL;
        }
    }
    entry->holders++;
    return entry;
}

void quotas_release(struct quotas *quotas, struct quota_namespace *entry)
{
    if (!entry)
        return;
    entry->holders--;
    drop_if_idle(quotas, entry);
}

static void remove_object(struct quota_namespace *entry, const char *name)
{
    for (struct quota_object **at = &entry->objects; *at; at = &(*at)->next) {
        struct quota_object *object = *at;
        if (strcmp(object->name, name) != 0)
            continue;
        *at = object->next;
        free_object(object);
        break;
    }
    find_strictest(entry);
}

int quotas_set(
    struct quotas *quotas, const char *namespace_name, const char *name, struct quota_amount limit)
{
    if (limit.memory == QUOTA_NONE && limit.cores == QUOTA_NONE) {
        quotas_remove(quotas, namespace_name, name);
        return 0;
    }
    struct quota_namespace *entry = quotas_hold(quotas, namespace_name);
    struct quota_object *object = calloc(1, sizeof(*object));
    char *copy = strdup(name);
    if (!entry || !object || !copy) {
        free(copy);
        free(object);
        quotas_release(quotas, entry);
        return -ENOMEM;
    }
    remove_object(entry, name);
    *object = (struct quota_object){copy, limit, entry->objects};
    entry->objects = object;
    find_strictest(entry);
    quotas_release(quotas, entry);
    return 0;
}

void quotas_remove(struct quotas *quotas, const char *namespace_name, const char *name)
{
    struct quota_namespace *entry = table_get(&quotas->namespaces, namespace_name);
    if (!entry)
        return;
    remove_object(entry, name);
    drop_if_idle(quotas, entry);
}

const struct quota_namespace *quotas_find(const struct quotas *quotas, const char *namespace_name)
{
    return table_get(&quotas->namespaces, namespace_name);
}

struct quota_amount quota_left(const struct quota_namespace *entry)
{
    struct quota_amount left = {QUOTA_NONE, QUOTA_NONE};
    if (entry && entry->limit.memory != QUOTA_NONE)
        left.memory = entry->limit.memory - entry->used.memory;
    if (entry && entry->limit.cores != QUOTA_NONE)
        left.cores = entry->limit.cores - entry->used.cores;
    return left;
}

bool quota_fits(struct quota_amount left, struct quota_amount more)
{
    return (!more.memory || more.memory <= left.memory) &&
           (!more.cores || more.cores <= left.cores);
}

static int compare_names(const void *a, const void *b)
{
    const struct quota_namespace *const *x = a, *const *y = b;
    return strcmp((*x)->name, (*y)->name);
}

const struct quota_namespace **quotas_list(const struct quotas *quotas, size_t *ret_count)
{
    const struct quota_namespace **list =
        calloc(quotas->namespaces.count + 1, sizeof(struct quota_namespace *));
    if (!list)
        return NULL;
    size_t count = 0;
    const struct quota_namespace *entry;
    for (size_t cursor = 0; (entry = table_next(&quotas->namespaces, &cursor));)
        list[count++] = entry;
    qsort(list, count, sizeof(struct quota_namespace *), compare_names);
    *ret_count = count;
    return list;
}
