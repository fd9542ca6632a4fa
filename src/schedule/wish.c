/* SPDX-License-Identifier: Apache-2.0 */
#include "schedule/wish.h"

#include "codec/no_memory.h"
#include "codec/number.h"
#include "schedule/table.h"

#include <ctype.h>
#include <errno.h>
#include <stdlib.h>
#include <string.h>

static const char *text_of(const json_t *annotations, const char *key)
{
    return json_string_value(json_object_get(annotations, key));
}

static void list_finish(struct wish_list *list)
{
    free(list->text);
    free(list->items);
    free(list->hashes);
    *list = (struct wish_list){0};
}

static size_t count_commas(const char *text)
{
    size_t count = 0;
    for (; *text; text++)
        count += *text == ',';
    return count;
}

static int list_read(const json_t *annotations, const char *key, bool lower, struct wish_list *list,
    struct error *error)
{
    const char *text = text_of(annotations, key);
    size_t most = text ? count_commas(text) + 1 : 0;
    if (!most)
        return 0;
    if (most > WISH_ITEMS_MAX)
        return error_set(error, EINVAL, "%s has more than %d items", key, WISH_ITEMS_MAX);
    *list = (struct wish_list){
        strdup(text), calloc(most, sizeof(*list->items)), calloc(most, sizeof(*list->hashes)), 0};
    if (!list->text || !list->items || !list->hashes)
        return no_memory(error, key);
    char *rest = list->text, *item;
    while ((item = strsep(&rest, ","))) {
        item += strspn(item, " \t\r\n");
        size_t length = strlen(item);
        while (length && strchr(" \t\r\n", item[length - 1]))
            item[--length] = '\0';
        for (char *at = item; lower && *at; at++)
            *at = (char)tolower((unsigned char)*at);
        if (!length)
            continue;
        list->hashes[list->count] = table_hash(item);
        list->items[list->count++] = item;
    }
    return 0;
}

static int read_lists(const json_t *annotations, struct wish *wish, struct error *error)
{
    int result = list_read(annotations, WISH_USE_TYPE, true, &wish->use_types, error);
    if (!result)
        result = list_read(annotations, WISH_NO_USE_TYPE, true, &wish->no_use_types, error);
    if (!result)
        result = list_read(annotations, WISH_USE_UUID, false, &wish->use_uuids, error);
    if (!result)
        result = list_read(annotations, WISH_NO_USE_UUID, false, &wish->no_use_uuids, error);
    const char *mode = text_of(annotations, WISH_MODE);
    if (!result && mode && !(wish->mode = strdup(mode)))
        result = no_memory(error, WISH_MODE);
    return result;
}

static int read_policies(const json_t *annotations, const struct wish_defaults *defaults,
    struct wish *wish, struct error *error)
{
    const char *bind = text_of(annotations, WISH_NUMA_BIND);
    const char *node = text_of(annotations, WISH_NODE_POLICY);
    const char *device = text_of(annotations, WISH_DEVICE_POLICY);
    const char *weights = text_of(annotations, WISH_WEIGHTS);
    if (bind && number_parse_bool(bind, strlen(bind), &wish->numa_bind))
        wish->numa_bind = false;
    wish->node_policy = defaults->node_policy;
    if (node && policy_parse_node(node, &wish->node_policy, NULL))
        wish->node_policy = defaults->node_policy;
    if (!device || policy_parse(device, wish->numa_bind, &wish->policy, NULL)) {
        int result = policy_parse(defaults->device_policy, wish->numa_bind, &wish->policy, error);
        if (result)
            return result;
    }
    wish->weights = policy_weights_default;
    if (weights && policy_parse_weights(weights, &wish->weights, error))
        return error_set(
            error, EINVAL, WISH_WEIGHTS ": %.200s", error ? error->text : "no weights");
    return 0;
}

int wish_read(const json_t *annotations, const struct wish_defaults *defaults,
    struct wish *ret_wish, struct error *error)
{
    struct wish wish = {0};
    int result = read_lists(annotations, &wish, error);
    if (!result)
        result = read_policies(annotations, defaults, &wish, error);
    if (result)
        wish_finish(&wish);
    else
        *ret_wish = wish;
    return result;
}

static bool list_has_part_of(const struct wish_list *list, const char *text)
{
    for (size_t i = 0; i < list->count; i++)
        if (strstr(text, list->items[i]))
            return true;
    return false;
}

static bool list_has(const struct wish_list *list, const char *text, uint64_t hash)
{
    for (size_t i = 0; i < list->count; i++)
        if (list->hashes[i] == hash && !strcmp(list->items[i], text))
            return true;
    return false;
}

bool wish_takes_type(const struct wish *wish, const char *type)
{
    return (!wish->use_types.count || list_has_part_of(&wish->use_types, type)) &&
           !list_has_part_of(&wish->no_use_types, type);
}

bool wish_takes_mode(const struct wish *wish, const char *mode)
{
    return !wish->mode || strstr(wish->mode, mode);
}

bool wish_takes_uuid(const struct wish *wish, const char *uuid, uint64_t hash)
{
    return (!wish->use_uuids.count || list_has(&wish->use_uuids, uuid, hash)) &&
           !list_has(&wish->no_use_uuids, uuid, hash);
}

void wish_finish(struct wish *wish)
{
    list_finish(&wish->use_types);
    list_finish(&wish->no_use_types);
    list_finish(&wish->use_uuids);
    list_finish(&wish->no_use_uuids);
    free(wish->mode);
    *wish = (struct wish){0};
}
