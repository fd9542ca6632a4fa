/* SPDX-License-Identifier: Apache-2.0 */
#include "schedule/extender.h"

#include "codec/json_bound.h"
#include "codec/no_memory.h"

#include <errno.h>
#include <stdlib.h>
#include <string.h>
#include <strings.h>

/* The last member whose name is this one in any case; NULL where it is null, too. */
static const json_t *member(const json_t *object, const char *name)
{
    const json_t *found = NULL;
    void *at = json_object_iter((json_t *)object);
    for (; at; at = json_object_iter_next((json_t *)object, at))
        if (!strcasecmp(json_object_iter_key(at), name))
            found = json_object_iter_value(at);
    return json_is_null(found) ? NULL : found;
}

static json_t *read_object(const char *body, size_t bytes, struct error *error)
{
    json_error_t reason;
    if (json_bound_values(body, bytes) > JSON_BOUND_VALUES_MAX) {
        error_set(
            error, E2BIG, "the request may have more than %d JSON values", JSON_BOUND_VALUES_MAX);
        return NULL;
    }
    json_t *document = json_loadb(body, bytes, 0, &reason);
    if (json_is_object(document))
        return document;
    error_set(error, EINVAL, "the request is no JSON object%s%.100s", document ? "" : ": ",
        document ? "" : reason.text);
    json_decref(document);
    return NULL;
}

static const char *name_of(const json_t *item, bool is_node)
{
    const json_t *metadata = json_object_get(item, "metadata");
    return json_string_value(is_node ? json_object_get(metadata, "name") : item);
}

static int read_names(struct extender_filter *filter, const json_t *list, struct error *error)
{
    size_t count = json_array_size(list);
    if (count > EXTENDER_NODES_MAX)
        return error_set(error, E2BIG, "more than %d nodes", EXTENDER_NODES_MAX);
    filter->names = calloc(count + 1, sizeof(*filter->names));
    if (!filter->names)
        return no_memory(error, "the request's nodes");
    for (; filter->count < count; filter->count++) {
        const char *name = name_of(json_array_get(list, filter->count), filter->nodes != NULL);
        if (!name)
            return error_set(error, EINVAL, "a node of the request has no name");
        filter->names[filter->count] = name;
    }
    return 0;
}

int extender_read_filter(
    const char *body, size_t bytes, struct extender_filter *ret_filter, struct error *error)
{
    struct extender_filter filter = {.document = read_object(body, bytes, error)};
    if (!filter.document)
        return -EINVAL;
    const json_t *nodes = member(filter.document, "Nodes");
    const json_t *names = member(filter.document, "NodeNames");
    filter.pod = member(filter.document, "Pod");
    filter.nodes = json_object_get(nodes, "items");
    if (!json_is_array(filter.nodes))
        filter.nodes = NULL;
    int result = 0;
    if ((filter.pod && !json_is_object(filter.pod)) || (names && !json_is_array(names)))
        result = error_set(error, EINVAL, "Pod or NodeNames of the request has another type");
    else
        result = read_names(&filter, filter.nodes ? filter.nodes : names, error);
    if (result)
        extender_finish_filter(&filter);
    else
        *ret_filter = filter;
    return result;
}

void extender_finish_filter(struct extender_filter *filter)
{
    json_decref(filter->document);
    free(filter->names);
    *filter = (struct extender_filter){0};
}

int extender_read_bind(
    const char *body, size_t bytes, struct extender_bind *ret_bind, struct error *error)
{
    struct extender_bind bind = {.document = read_object(body, bytes, error)};
    if (!bind.document)
        return -EINVAL;
    const struct {
        const char *name, **to;
    } members[] = {{"PodName", &bind.pod_name}, {"PodNamespace", &bind.pod_namespace},
        {"PodUID", &bind.pod_uid}, {"Node", &bind.node}};
    for (size_t i = 0; i < sizeof(members) / sizeof(members[0]); i++) {
        *members[i].to = json_string_value(member(bind.document, members[i].name));
        if (*members[i].to && **members[i].to)
            continue;
        error_set(error, EINVAL, "the request has no %s", members[i].name);
        extender_finish_bind(&bind);
        return -EINVAL;
    }
    *ret_bind = bind;
    return 0;
}

void extender_finish_bind(struct extender_bind *bind)
{
    json_decref(bind->document);
    *bind = (struct extender_bind){0};
}

/* Takes the references; NULL: null. */
static char *answer(json_t *nodes, json_t *names, json_t *failed, const char *error)
{
    json_t *object = json_object();
    int result = object ? 0 : -1;
    result |= json_object_set_new(object, "Nodes", nodes ? nodes : json_null());
    result |= json_object_set_new(object, "NodeNames", names ? names : json_null());
    result |= json_object_set_new(object, "FailedNodes", failed ? failed : json_null());
    result |= json_object_set_new(object, "FailedAndUnresolvableNodes", json_null());
    result |= json_object_set_new(object, "Error", json_string(error));
    char *text = result ? NULL : json_dumps(object, JSON_COMPACT);
    json_decref(object);
    return text;
}

char *extender_answer_error(const char *text)
{
    return answer(NULL, NULL, NULL, text);
}

char *extender_answer_names(const char *const *names, size_t count)
{
    json_t *list = json_array();
    int result = list ? 0 : -1;
    for (size_t i = 0; i < count && !result; i++)
        result = json_array_append_new(list, json_string(names[i]));
    if (!result)
        return answer(NULL, list, NULL, "");
    json_decref(list);
    return NULL;
}

static json_t *failures_of(const struct choice *choice)
{
    json_t *failed = json_object();
    int result = failed ? 0 : -1;
    for (size_t i = 0; i < choice->count && !result; i++) {
        const struct choice_candidate *candidate = &choice->candidates[i];
        char text[REASON_TEXT_BYTES];
        if (!candidate->tried || candidate->fits)
            continue;
        reasons_format(&candidate->reasons, text);
        result = json_object_set_new(failed, candidate->name, json_string(text));
    }
    if (!result)
        return failed;
    json_decref(failed);
    return NULL;
}

char *extender_answer_failed(const struct choice *choice)
{
    json_t *failed = failures_of(choice);
    return failed ? answer(NULL, NULL, failed, "") : NULL;
}

char *extender_answer_node(const struct choice *choice, const json_t *node)
{
    json_t *failed = failures_of(choice), *items = json_array();
    json_t *list = json_pack("{s:{},s:o}", "metadata", "items", items);
    if (!failed || !list || (node && json_array_append(items, (json_t *)node))) {
        json_decref(failed);
        json_decref(list);
        return NULL;
    }
    return answer(list, NULL, failed, "");
}

char *extender_answer_all(const struct extender_filter *filter)
{
    json_t *list = json_pack("{s:{},s:O}", "metadata", "items", filter->nodes);
    return list ? answer(list, NULL, NULL, "") : NULL;
}

char *extender_answer_bind(const char *text)
{
    json_t *object = json_pack("{s:s}", "Error", text);
    char *body = object ? json_dumps(object, JSON_COMPACT) : NULL;
    json_decref(object);
    return body;
}
