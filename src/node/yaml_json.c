/* SPDX-License-Identifier: Apache-2.0 */
#include "node/yaml_json.h"

#include "codec/number.h"

#include <errno.h>
#include <string.h>
#include <yaml.h>

struct reader {
    yaml_document_t document;
    const char *what;
    struct error *error;
    unsigned nodes;
};

static json_t *fail(struct reader *reader, int code, const char *text)
{
    error_set(reader->error, code, "%s: %s", reader->what, text);
    return NULL;
}

static json_t *read_scalar(struct reader *reader, const yaml_node_t *node)
{
    const char *text = (const char *)node->data.scalar.value;
    size_t length = node->data.scalar.length;
    int64_t number;
    json_t *value = NULL;
    if (node->data.scalar.style == YAML_PLAIN_SCALAR_STYLE) {
        if (!length || !strcmp(text, "~") || !strcmp(text, "null"))
            return json_null();
        if (!strcmp(text, "true") || !strcmp(text, "false"))
            return json_boolean(*text == 't');
        if (!number_parse(text, length, INT64_MIN, INT64_MAX, &number))
            value = json_integer(number);
    }
    if (!value)
        value = json_stringn(text, length);
    return value ? value : fail(reader, EINVAL, "a text is not UTF-8");
}

static json_t *read_node(struct reader *reader, int at, unsigned depth);

static bool read_pair(
    struct reader *reader, const yaml_node_pair_t *pair, unsigned depth, json_t *object)
{
    const yaml_node_t *key = yaml_document_get_node(&reader->document, pair->key);
    if (!key || key->type != YAML_SCALAR_NODE ||
        strlen((const char *)key->data.scalar.value) != key->data.scalar.length) {
        fail(reader, EINVAL, "a key is not a text");
        return false;
    }
    json_t *value = read_node(reader, pair->value, depth + 1);
    if (!value)
        return false;
    if (json_object_set_new(object, (const char *)key->data.scalar.value, value)) {
        fail(reader, EINVAL, "a key is not UTF-8");
        return false;
    }
    return true;
}

static json_t *read_map(struct reader *reader, const yaml_node_t *node, unsigned depth)
{
    json_t *object = json_object();
    const yaml_node_pair_t *pair = node->data.mapping.pairs.start;
    for (; object && pair < node->data.mapping.pairs.top; pair++) {
        if (!read_pair(reader, pair, depth, object)) {
            json_decref(object);
            return NULL;
        }
    }
    return object ? object : fail(reader, ENOMEM, "no memory");
}

static json_t *read_list(struct reader *reader, const yaml_node_t *node, unsigned depth)
{
    json_t *list = json_array();
    const yaml_node_item_t *item = node->data.sequence.items.start;
    for (; list && item < node->data.sequence.items.top; item++) {
        json_t *value = read_node(reader, *item, depth + 1);
        if (!value || json_array_append_new(list, value)) {
            json_decref(list);
            return NULL;
        }
    }
    return list ? list : fail(reader, ENOMEM, "no memory");
}

static json_t *read_node(struct reader *reader, int at, unsigned depth)
{
    const yaml_node_t *node = yaml_document_get_node(&reader->document, at);
    /* An alias leads to its anchor's node: that may stand within itself, or be named many times. */
    if (depth > YAML_JSON_DEPTH_MAX)
        return fail(reader, E2BIG, "it is nested too deeply, or refers to itself");
    if (++reader->nodes > YAML_JSON_NODES_MAX)
        return fail(reader, E2BIG, "it has too many values");
    if (node && node->type == YAML_SCALAR_NODE)
        return read_scalar(reader, node);
    if (node && node->type == YAML_MAPPING_NODE)
        return read_map(reader, node, depth);
    if (node && node->type == YAML_SEQUENCE_NODE)
        return read_list(reader, node, depth);
    return fail(reader, EINVAL, "a value is missing");
}

json_t *yaml_json_read(const char *what, const char *text, size_t bytes, struct error *error)
{
    struct reader reader = {.what = what, .error = error};
    yaml_parser_t parser;
    json_t *value = NULL;
    if (bytes > YAML_JSON_BYTES_MAX)
        return fail(&reader, E2BIG, "it has more than 1 MiB");
    if (!yaml_parser_initialize(&parser))
        return fail(&reader, ENOMEM, "no memory");
    yaml_parser_set_input_string(&parser, (const unsigned char *)text, bytes);
    if (yaml_parser_load(&parser, &reader.document)) {
        if (yaml_document_get_root_node(&reader.document))
            value = read_node(&reader, 1, 0);
        else
            value = json_null();
        yaml_document_delete(&reader.document);
    } else {
        error_set(error, EINVAL, "%s: line %zu: not YAML: %s", what, parser.problem_mark.line + 1,
            parser.problem ? parser.problem : "no memory");
    }
    yaml_parser_delete(&parser);
    return value;
}
