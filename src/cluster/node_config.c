/* SPDX-License-Identifier: Apache-2.0 */
#include "cluster/node_config.h"

#include "base/text.h"
#include "codec/json_read.h"
#include "codec/number.h"

#include <errno.h>
#include <math.h>
#include <stdarg.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <strings.h>

#define SCALING_MAX 100
#define QUOTED_BYTES 64

enum kind {
    KIND_INT32,
    KIND_INT64,
    KIND_SCALING,
    KIND_BOOL,
    KIND_TEXT, /* any visible ASCII, up to `max` bytes */
    KIND_WORD, /* one of the space-separated `accepted` */
    KIND_LOG_LEVEL,
    KIND_FILTERS,
    KIND_IGNORED, /* another part of the system reads it */
};

enum scope {
    GLOBAL = 1, /* the nvidia block */
    NODE = 2,   /* a node's entry */
};

static const struct row {
    const char *key;
    unsigned scope;
    enum kind kind;
    size_t offset;
    int64_t min, max;
    const char *accepted;
} rows[] = {
#define AT(member) offsetof(struct node_config, member)
    {"resourceCountName", GLOBAL, KIND_TEXT, AT(request.count_name), 1, REQUEST_NAME_BYTES, NULL},
    {"resourceMemoryName", GLOBAL, KIND_TEXT, AT(request.memory_name), 1, REQUEST_NAME_BYTES, NULL},
    {"resourceMemoryPercentageName", GLOBAL, KIND_TEXT, AT(request.percentage_name), 1,
        REQUEST_NAME_BYTES, NULL},
    {"resourceCoreName", GLOBAL, KIND_TEXT, AT(request.cores_name), 1, REQUEST_NAME_BYTES, NULL},
    {"resourcePriorityName", GLOBAL, KIND_TEXT, AT(request.priority_name), 1, REQUEST_NAME_BYTES,
        NULL},
    {"defaultMemory", GLOBAL, KIND_INT32, AT(request.default_memory), 0, INT32_MAX, NULL},
    {"defaultCores", GLOBAL, KIND_INT32, AT(request.default_cores), 0, 100, NULL},
    {"defaultGPUNum", GLOBAL, KIND_INT32, AT(request.default_count), 0, INT32_MAX, NULL},
    {"memoryFactor", GLOBAL, KIND_INT32, AT(request.memory_factor), 1, INT32_MAX, NULL},
    {"deviceSplitCount", GLOBAL | NODE, KIND_INT64, AT(split_count), 1, NODE_CONFIG_SPLIT_MAX,
        NULL},
    {"deviceMemoryScaling", GLOBAL | NODE, KIND_SCALING, AT(memory_scaling), 0, 0, NULL},
    {"deviceCoreScaling", GLOBAL | NODE, KIND_SCALING, AT(cores_scaling), 0, 0, NULL},
    {"preConfiguredDeviceMemory", GLOBAL | NODE, KIND_INT64, AT(preconfigured_memory_mib), 0,
        INT32_MAX, NULL},
    {"libCudaLogLevel", GLOBAL | NODE, KIND_LOG_LEVEL, AT(log_level), 0, 4, NULL},
    {"enableNumaTopology", GLOBAL | NODE, KIND_BOOL, AT(numa_topology), 0, 0, NULL},
    {"disableCoreLimit", GLOBAL, KIND_BOOL, AT(core_limit_disabled), 0, 0, NULL},
    {"overwriteEnv", GLOBAL, KIND_BOOL, AT(overwrite_env), 0, 0, NULL},
    {"gpuCorePolicy", GLOBAL, KIND_WORD, AT(core_policy), 0, NODE_CONFIG_WORD_BYTES,
        "default force disable"},
    {"runtimeClassName", GLOBAL, KIND_TEXT, AT(runtime_class), 0,
        sizeof(((struct node_config *)NULL)->runtime_class), NULL},
    {"migProfileAllowlist", GLOBAL, KIND_IGNORED, 0, 0, 0, NULL},
    {"knownMigGeometries", GLOBAL, KIND_IGNORED, 0, 0, 0, NULL},
    {"name", NODE, KIND_IGNORED, 0, 0, 0, NULL},
    {"operatingMode", NODE, KIND_WORD, AT(mode), 0, NODE_CONFIG_WORD_BYTES, "hami-core mig mps"},
    {"migStrategy", NODE, KIND_WORD, AT(mig_strategy), 0, NODE_CONFIG_WORD_BYTES,
        "none single mixed"},
    {"filterDevices", NODE, KIND_FILTERS, 0, 0, 0, NULL},
    {"enableGetPreferredAllocation", NODE, KIND_BOOL, AT(preferred_allocation), 0, 0, NULL},
#undef AT
};

struct reading {
    struct node_config *config;
    const char *where; /* begins each line */
    node_config_report *report;
    void *context;
    unsigned problems;
};

/* A value on its way into a line. */
struct quoted {
    char text[QUOTED_BYTES];
};

static struct quoted quote(const json_t *value)
{
    struct quoted quoted = {""};
    char *text = json_is_string(value)
                     ? NULL
                     : json_dumps(value, JSON_ENCODE_ANY | JSON_COMPACT | JSON_ENSURE_ASCII);
    const char *shown = text ? text : json_string_value(value);
    if (shown)
        text_escape(quoted.text, sizeof(quoted.text), shown, strlen(shown));
    free(text);
    return quoted;
}

__attribute__((format(printf, 2, 3))) static void complain(
    struct reading *reading, const char *format, ...)
{
    char text[400], line[512];
    va_list arguments;
    va_start(arguments, format);
    vsnprintf(text, sizeof(text), format, arguments);
    va_end(arguments);
    snprintf(line, sizeof(line), "%s: %s", reading->where, text);
    reading->problems++;
    if (reading->report)
        reading->report(reading->context, line);
}

/* YAML's scalars may come as texts. */
static bool take_int(const json_t *value, int64_t min, int64_t max, int64_t *ret_number)
{
    if (json_is_string(value))
        return !number_parse(
            json_string_value(value), json_string_length(value), min, max, ret_number);
    if (!json_is_integer(value) || json_integer_value(value) < min ||
        json_integer_value(value) > max)
        return false;
    *ret_number = json_integer_value(value);
    return true;
}

/* Digits with a point; strtod would take a locale's point, and "inf". */
static bool take_scaling(const json_t *value, double *ret_number)
{
    double number = 0, scale = 1;
    bool fraction = false;
    const char *text = json_string_value(value);
    if (json_is_number(value))
        number = json_number_value(value);
    else if (!text || !*text || strlen(text) > 20)
        return false;
    for (; text && *text; text++) {
        if (*text == '.' && !fraction) {
            fraction = true;
        } else if (*text >= '0' && *text <= '9') {
            number = number * 10 + (*text - '0');
            scale *= fraction ? 10 : 1;
        } else {
            return false;
        }
    }
    number /= scale;
    if (!isfinite(number) || number <= 0 || number > SCALING_MAX)
        return false;
    *ret_number = number;
    return true;
}

static bool take_bool(const json_t *value, bool *ret_truth)
{
    if (json_is_string(value))
        return !number_parse_bool(json_string_value(value), json_string_length(value), ret_truth);
    if (!json_is_boolean(value))
        return false;
    *ret_truth = json_is_true(value);
    return true;
}

static bool take_text(const json_t *value, const struct row *row, char *to)
{
    const char *text = json_string_value(value);
    if (!text || json_string_length(value) >= (size_t)row->max || (row->min && !*text))
        return false;
    for (const char *at = text; *at; at++)
        if (*at <= ' ' || *at > '~')
            return false;
    memcpy(to, text, strlen(text) + 1);
    return true;
}

static bool take_word(const json_t *value, const struct row *row, char *to)
{
    const char *text = json_string_value(value);
    size_t length = text ? strlen(text) : 0;
    /* Empty is as if it were not there. */
    if (text && !length)
        return true;
    for (const char *at = row->accepted; length && *at;) {
        size_t word = strcspn(at, " ");
        if (word == length && !memcmp(at, text, word)) {
            memcpy(to, text, length + 1);
            return true;
        }
        at += word + (at[word] == ' ');
    }
    return false;
}

static bool take_log_level(const json_t *value, const struct row *row, char *to)
{
    int64_t level;
    if (json_is_string(value) && !json_string_length(value)) {
        *to = '\0';
        return true;
    }
    if (!take_int(value, row->min, row->max, &level))
        return false;
    snprintf(to, NODE_CONFIG_WORD_BYTES, "%d", (int)level);
    return true;
}

static const json_t *find_key(const json_t *object, const char *wanted)
{
    const char *key;
    json_t *value;
    json_object_foreach((json_t *)object, key, value) if (!strcasecmp(key, wanted)) return value;
    return NULL;
}

/* A list of at most NODE_CONFIG_FILTERS_MAX, NULL where there is none. */
static const json_t *find_filters(struct reading *reading, const json_t *value, const char *key)
{
    const json_t *list = find_key(value, key);
    if (!list || json_is_null(list))
        return NULL;
    if (json_is_array(list) && json_array_size(list) <= NODE_CONFIG_FILTERS_MAX)
        return list;
    complain(reading, "filterDevices.%s is %s: a list of at most %d is accepted", key,
        quote(list).text, NODE_CONFIG_FILTERS_MAX);
    return NULL;
}

static void take_filters(struct reading *reading, const json_t *value)
{
    struct node_config *config = reading->config;
    if (!json_is_object(value)) {
        complain(reading, "filterDevices is %s: an object with uuid and index is accepted",
            quote(value).text);
        return;
    }
    const json_t *uuids = find_filters(reading, value, "uuid");
    const json_t *indexes = find_filters(reading, value, "index");
    size_t uuid_count = json_array_size(uuids), index_count = json_array_size(indexes);
    /* Empty lists leave what is there (HAMi). */
    if (!uuid_count && !index_count)
        return;
    free(config->filter_uuids);
    free(config->filter_indexes);
    config->filter_uuid_count = config->filter_index_count = 0;
    config->filter_uuids = calloc(uuid_count + 1, sizeof(*config->filter_uuids));
    config->filter_indexes = calloc(index_count + 1, sizeof(*config->filter_indexes));
    if (!config->filter_uuids || !config->filter_indexes) {
        complain(reading, "filterDevices: no memory");
        return;
    }
    const struct row row = {.min = 1, .max = DEVICE_UUID_BYTES};
    for (size_t i = 0; i < uuid_count; i++) {
        const json_t *item = json_array_get(uuids, i);
        if (take_text(item, &row, config->filter_uuids[config->filter_uuid_count]))
            config->filter_uuid_count++;
        else
            complain(reading, "filterDevices.uuid has %s: UUIDs are accepted", quote(item).text);
    }
    for (size_t i = 0; i < index_count; i++) {
        const json_t *item = json_array_get(indexes, i);
        int64_t index;
        if (take_int(item, 0, UINT32_MAX, &index))
            config->filter_indexes[config->filter_index_count++] = (uint32_t)index;
        else
            complain(reading, "filterDevices.index has %s: whole numbers from 0 are accepted",
                quote(item).text);
    }
}

static void describe_accepted(const struct row *row, char *text, size_t size)
{
    switch (row->kind) {
    case KIND_INT32:
    case KIND_INT64:
    case KIND_LOG_LEVEL:
        snprintf(text, size, "a whole number from %lld to %lld", (long long)row->min,
            (long long)row->max);
        break;
    case KIND_SCALING:
        snprintf(text, size, "a number above 0, up to %d", SCALING_MAX);
        break;
    case KIND_BOOL:
        snprintf(text, size, "true or false");
        break;
    case KIND_TEXT:
        snprintf(text, size, "a text without blanks, shorter than %d bytes", (int)row->max);
        break;
    default:
        snprintf(text, size, "one of: %s", row->accepted ? row->accepted : "");
    }
}

static bool take(const json_t *value, const struct row *row, struct node_config *config)
{
    char *to = (char *)config + row->offset;
    int64_t number;
    switch (row->kind) {
    case KIND_INT32:
        if (!take_int(value, row->min, row->max, &number))
            return false;
        *(int32_t *)to = (int32_t)number;
        return true;
    case KIND_INT64:
        return take_int(value, row->min, row->max, (int64_t *)to);
    case KIND_SCALING:
        return take_scaling(value, (double *)to);
    case KIND_BOOL:
        return take_bool(value, (bool *)to);
    case KIND_TEXT:
        return take_text(value, row, to);
    case KIND_WORD:
        return take_word(value, row, to);
    case KIND_LOG_LEVEL:
        return take_log_level(value, row, to);
    default:
        return true;
    }
}

static const struct row *find_row(const char *key, unsigned scope)
{
    for (size_t i = 0; i < sizeof(rows) / sizeof(rows[0]); i++)
        if (rows[i].scope & scope && !strcasecmp(rows[i].key, key))
            return &rows[i];
    return NULL;
}

static void read_block(struct reading *reading, const json_t *block, unsigned scope)
{
    const char *key;
    json_t *value;
    json_object_foreach((json_t *)block, key, value)
    {
        const struct row *row = find_row(key, scope);
        char accepted[128];
        if (!row) {
            struct quoted name = {""};
            text_escape(name.text, sizeof(name.text), key, strlen(key));
            complain(reading, "%s is not a known key", name.text);
        } else if (json_is_null(value)) {
            continue;
        } else if (row->kind == KIND_FILTERS) {
            take_filters(reading, value);
        } else if (!take(value, row, reading->config)) {
            describe_accepted(row, accepted, sizeof(accepted));
            complain(reading, "%s is %s: %s is accepted", row->key, quote(value).text, accepted);
        }
    }
}

void node_config_default(struct node_config *ret_config)
{
    *ret_config = (struct node_config){
        .split_count = 2, .memory_scaling = 1, .cores_scaling = 1, .mode = "hami-core"};
    request_config_default(&ret_config->request);
}

unsigned node_config_read_global(
    struct node_config *config, const json_t *document, node_config_report *report, void *context)
{
    struct reading reading = {config, "device-config.yaml, nvidia", report, context, 0};
    const json_t *block = json_object_get(document, "nvidia");
    if (document && !json_is_null(document) && !json_is_object(document))
        complain(&reading, "the document is %s: a map is accepted", quote(document).text);
    else if (block && !json_is_null(block) && !json_is_object(block))
        complain(&reading, "the block is %s: a map is accepted", quote(block).text);
    else
        read_block(&reading, block, GLOBAL);
    return reading.problems;
}

unsigned node_config_read_node(struct node_config *config, const json_t *document,
    const char *node_name, node_config_report *report, void *context)
{
    char where[320];
    struct reading reading = {config, where, report, context, 0};
    const json_t *list = find_key(document, "nodeconfig");
    snprintf(where, sizeof(where), "config.json");
    if (!json_is_object(document)) {
        complain(&reading, "the document is %s: an object is accepted", quote(document).text);
        return reading.problems;
    }
    if (list && !json_is_null(list) && !json_is_array(list))
        complain(&reading, "nodeconfig is %s: a list is accepted", quote(list).text);
    for (size_t i = 0; json_is_array(list) && i < json_array_size(list); i++) {
        const json_t *entry = json_array_get(list, i);
        const char *name = json_string_value(find_key(entry, "name"));
        snprintf(where, sizeof(where), "config.json, nodeconfig %zu", i);
        if (!json_is_object(entry) || !name) {
            complain(&reading, "%s: an object with a name is accepted", quote(entry).text);
            continue;
        }
        if (strcmp(name, node_name) != 0)
            continue;
        snprintf(where, sizeof(where), "config.json, node %.253s", node_name);
        read_block(&reading, entry, NODE);
    }
    return reading.problems;
}

unsigned node_config_read_node_text(struct node_config *config, const char *text,
    const char *node_name, node_config_report *report, void *context)
{
    struct error error = {.text = ""};
    struct reading reading = {config, "config.json", report, context, 0};
    if (strlen(text) > NODE_CONFIG_TEXT_MAX) {
        complain(&reading, "more than %d bytes", NODE_CONFIG_TEXT_MAX);
        return reading.problems;
    }
    json_t *document = json_read_text("config.json", text, &error);
    if (!document) {
        if (report)
            report(context, error.text);
        return 1;
    }
    unsigned problems = node_config_read_node(config, document, node_name, report, context);
    json_decref(document);
    return problems;
}

bool node_config_filters(const struct node_config *config, const char *uuid, uint32_t index)
{
    for (size_t i = 0; i < config->filter_uuid_count; i++)
        if (!strcmp(config->filter_uuids[i], uuid))
            return true;
    for (size_t i = 0; i < config->filter_index_count; i++)
        if (config->filter_indexes[i] == index)
            return true;
    return false;
}

void node_config_finish(struct node_config *config)
{
    free(config->filter_uuids);
    free(config->filter_indexes);
    config->filter_uuids = NULL;
    config->filter_indexes = NULL;
    config->filter_uuid_count = config->filter_index_count = 0;
}
