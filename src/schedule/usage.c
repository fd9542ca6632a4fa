/* SPDX-License-Identifier: Apache-2.0 */
#include "schedule/usage.h"

#include "codec/no_memory.h"
#include "schedule/table.h"
#include "schedule/usage_parts.h"

#include <ctype.h>
#include <errno.h>
#include <stdlib.h>
#include <string.h>

struct usage *usage_create(void)
{
    struct usage *usage = calloc(1, sizeof(*usage));
    if (!usage)
        return NULL;
    usage->nodes = calloc(1, sizeof(*usage->nodes));
    usage->pods = calloc(1, sizeof(*usage->pods));
    usage->quotas = quotas_create();
    if (usage->nodes && usage->pods && usage->quotas)
        return usage;
    usage_destroy(usage);
    return NULL;
}

static void free_devices(struct usage_node *node)
{
    free(node->devices);
    free(node->uuids);
    free(node->types);
    free(node->pairs);
}

static void free_words(struct usage_words *words)
{
    for (size_t i = 0; i < words->count; i++)
        free(words->texts[i]);
    free(words->texts);
}

void usage_destroy(struct usage *usage)
{
    if (!usage)
        return;
    void *entry;
    for (size_t cursor = 0; usage->pods && (entry = table_next(usage->pods, &cursor));)
        usage_pod_free(entry);
    for (size_t cursor = 0; usage->nodes && (entry = table_next(usage->nodes, &cursor));) {
        struct usage_node *node = entry;
        free_devices(node);
        free(node->name);
        free(node);
    }
    if (usage->pods)
        table_finish(usage->pods);
    if (usage->nodes)
        table_finish(usage->nodes);
    free(usage->pods);
    free(usage->nodes);
    free_words(&usage->types);
    free_words(&usage->modes);
    quotas_destroy(usage->quotas);
    free(usage);
}

struct usage_node *usage_node_entry(struct usage *usage, const char *name)
{
    struct usage_node *node = table_get(usage->nodes, name);
    if (node)
        return node;
    node = calloc(1, sizeof(*node));
    if (!node)
        return NULL;
    node->name = strdup(name);
    if (node->name && !table_add(usage->nodes, node->name, node))
        return node;
    free(node->name);
    free(node);
    return NULL;
}

void usage_node_drop_if_idle(struct usage *usage, struct usage_node *node)
{
    if (node->count || node->pods)
        return;
    table_remove(usage->nodes, node->name);
    free(node->name);
    free(node);
}

const struct usage_node *usage_find_node(const struct usage *usage, const char *name)
{
    const struct usage_node *node = table_get(usage->nodes, name);
    return node && node->count ? node : NULL;
}

/* The number of a word, which is added where it is new. */
static int intern(struct usage_words *words, const char *text, bool lower, uint16_t *ret_word,
    struct error *error)
{
    char *copy = strdup(text);
    if (!copy)
        return no_memory(error, text);
    for (char *at = copy; lower && *at; at++)
        *at = (char)tolower((unsigned char)*at);
    size_t at = 0;
    while (at < words->count && strcmp(words->texts[at], copy) != 0)
        at++;
    if (at < words->count) {
        free(copy);
        *ret_word = (uint16_t)at;
        return 0;
    }
    char **grown = at < USAGE_WORDS_MAX ? reallocarray(words->texts, at + 1, sizeof(*grown)) : NULL;
    if (!grown) {
        free(copy);
        return at < USAGE_WORDS_MAX
                   ? no_memory(error, text)
                   : error_set(error, E2BIG, "\"%.60s\": more than %d different models or modes",
                         text, USAGE_WORDS_MAX);
    }
    words->texts = grown;
    words->texts[words->count++] = copy;
    *ret_word = (uint16_t)at;
    return 0;
}

static bool list_has(const char *list, const char *uuid)
{
    size_t length = strlen(uuid);
    while (list) {
        list += strspn(list, " \t\r\n");
        size_t item = strcspn(list, ", \t\r\n");
        if (item == length && !memcmp(list, uuid, length))
            return true;
        list = strchr(list, ',');
        list = list ? list + 1 : NULL;
    }
    return false;
}

static int64_t not_negative(int32_t number)
{
    return number > 0 ? number : 0;
}

static int set_device(struct usage *usage, const struct node_device *from, const char *cordon,
    struct usage_device *device, struct error *error)
{
    *device = (struct usage_device){
        .total = {not_negative(from->memory_mib), not_negative(from->cores_percent),
            not_negative(from->count)},
        .hash = table_hash(from->id),
        .index = from->index,
        .numa = from->numa,
        .healthy = from->healthy,
        .cordoned = list_has(cordon, from->id),
        .splits = !strcmp(from->mode, "mig") && !device_id_is_mig(from->id),
    };
    int result = intern(&usage->types, from->type, true, &device->type, error);
    return result ? result : intern(&usage->modes, from->mode, false, &device->mode, error);
}

static bool is_listed(const struct usage_node *node, const char *uuid)
{
    for (size_t i = 0; i < node->count; i++)
        if (!strcmp(node->uuids[i], uuid))
            return true;
    return false;
}

static int fill_devices(struct usage *usage, const struct usage_node_facts *facts,
    struct usage_node *node, struct error *error)
{
    size_t most = facts->devices->count;
    const struct node_device **order = node_devices_order(facts->devices);
    node->devices = calloc(most + 1, sizeof(*node->devices));
    node->uuids = calloc(most + 1, sizeof(*node->uuids));
    node->types = calloc(most + 1, sizeof(*node->types));
    int result = order && node->devices && node->uuids && node->types
                     ? 0
                     : no_memory(error, "a node's devices");
    for (size_t i = 0; i < most && !result; i++) {
        if (is_listed(node, order[i]->id))
            continue;
        struct usage_device *device = &node->devices[node->count];
        result = set_device(usage, order[i], facts->cordon, device, error);
        memcpy(node->uuids[node->count], order[i]->id, sizeof(node->uuids[0]));
        memcpy(node->types[node->count++], order[i]->type, sizeof(node->types[0]));
        node->total.memory += device->total.memory;
        node->total.cores += device->total.cores;
        node->total.slots += device->total.slots;
    }
    free(order);
    return result;
}

static int fill_pairs(
    const struct device_scores *scores, struct usage_node *node, struct error *error)
{
    if (!scores || !node->count)
        return 0;
    node->pairs = calloc(node->count * node->count, sizeof(*node->pairs));
    if (!node->pairs)
        return no_memory(error, "a node's scores");
    for (size_t i = 0; i < node->count; i++)
        for (size_t k = 0; k < node->count; k++)
            if (i != k)
                node->pairs[i * node->count + k] =
                    device_scores_pair(scores, node->uuids[i], node->uuids[k]);
    return 0;
}

int usage_set_node(struct usage *usage, const char *name, const struct usage_node_facts *facts,
    struct error *error)
{
    struct usage_node fresh = {0};
    int result = fill_devices(usage, facts, &fresh, error);
    if (!result)
        result = fill_pairs(facts->scores, &fresh, error);
    struct usage_node *node = result ? NULL : usage_node_entry(usage, name);
    if (!node) {
        free_devices(&fresh);
        return result ? result : no_memory(error, "a node");
    }
    for (struct usage_pod *pod = node->pods; pod; pod = pod->next)
        usage_pod_discharge(pod);
    usage->registered += !node->count && fresh.count;
    usage->registered -= node->count && !fresh.count;
    free_devices(node);
    fresh.name = node->name;
    fresh.pods = node->pods;
    *node = fresh;
    for (struct usage_pod *pod = node->pods; pod; pod = pod->next)
        usage_pod_charge(pod);
    if (!node->count)
        free_devices(node);
    if (!node->count)
        *node = (struct usage_node){.name = node->name, .pods = node->pods};
    usage_node_drop_if_idle(usage, node);
    return 0;
}

void usage_remove_node(struct usage *usage, const char *name)
{
    struct usage_node *node = table_get(usage->nodes, name);
    if (!node)
        return;
    for (struct usage_pod *pod = node->pods; pod; pod = pod->next)
        usage_pod_discharge(pod);
    usage->registered -= node->count > 0;
    free_devices(node);
    *node = (struct usage_node){.name = node->name, .pods = node->pods};
    usage_node_drop_if_idle(usage, node);
}

static int compare_names(const void *a, const void *b)
{
    const struct usage_node *const *x = a, *const *y = b;
    return strcmp((*x)->name, (*y)->name);
}

const struct usage_node **usage_list_nodes(const struct usage *usage, size_t *ret_count)
{
    const struct usage_node **list = calloc(usage->nodes->count + 1, sizeof(struct usage_node *));
    if (!list)
        return NULL;
    size_t count = 0;
    const struct usage_node *node;
    for (size_t cursor = 0; (node = table_next(usage->nodes, &cursor));)
        if (node->count)
            list[count++] = node;
    qsort(list, count, sizeof(struct usage_node *), compare_names);
    *ret_count = count;
    return list;
}
