/* SPDX-License-Identifier: Apache-2.0 */
#include "node/allocation/allocation_record.h"

#include "codec/json_read.h"
#include "codec/no_memory.h"

#include <errno.h>
#include <stdlib.h>
#include <string.h>

#define WHAT "allocation.json"
#define VERSION 1
#define TEXT_BYTES 512
#define FOREIGN_BYTES 16384 /* a wish is the longest: two annotations */

struct allocation_record *allocation_record_create(void)
{
    return calloc(1, sizeof(struct allocation_record));
}

static void free_restore(struct allocation_restore *restore)
{
    free(restore->pod_namespace);
    free(restore->pod_name);
    free(restore->pod_uid);
}

void allocation_record_destroy(struct allocation_record *record)
{
    if (!record)
        return;
    for (size_t i = 0; i < record->id_count; i++)
        free(record->ids[i]);
    for (size_t i = 0; i < record->restore_count; i++)
        free_restore(&record->restores[i]);
    char *const texts[] = {record->resource, record->pod_namespace, record->pod_name,
        record->pod_uid, record->container, record->directory, record->cache, record->wish,
        record->failed, record->refusal, record->unconsented};
    for (size_t i = 0; i < sizeof(texts) / sizeof(*texts); i++)
        free(texts[i]);
    free(record->ids);
    free(record->devices);
    free(record->restores);
    free(record);
}

int allocation_record_set(char **text, const char *value)
{
    char *copy = value ? strdup(value) : NULL;
    if (value && !copy)
        return -ENOMEM;
    free(*text);
    *text = copy;
    return 0;
}

static bool is_among(const char *id, char *const *ids, size_t count)
{
    for (size_t i = 0; i < count; i++)
        if (!strcmp(ids[i], id))
            return true;
    return false;
}

bool allocation_record_has_ids(
    const struct allocation_record *record, const char *const *ids, size_t count)
{
    bool all = record->id_count == count && count > 0;
    for (size_t i = 0; all && i < count; i++)
        all = is_among(ids[i], record->ids, record->id_count);
    return all;
}

bool allocation_record_shares_ids(
    const struct allocation_record *record, const char *const *ids, size_t count)
{
    for (size_t i = 0; i < count; i++)
        if (is_among(ids[i], record->ids, record->id_count))
            return true;
    return false;
}

int allocation_record_restore(struct allocation_record *record, const char *pod_namespace,
    const char *pod_name, const char *pod_uid, size_t slot)
{
    if (record->restore_count == ALLOCATION_RESTORES_MAX)
        return -E2BIG;
    struct allocation_restore *grown =
        reallocarray(record->restores, record->restore_count + 1, sizeof(*grown));
    if (!grown)
        return -ENOMEM;
    record->restores = grown;
    struct allocation_restore *restore = &grown[record->restore_count];
    *restore =
        (struct allocation_restore){strdup(pod_namespace), strdup(pod_name), strdup(pod_uid), slot};
    if (!restore->pod_namespace || !restore->pod_name || !restore->pod_uid) {
        free_restore(restore);
        return -ENOMEM;
    }
    record->restore_count++;
    return 0;
}

void allocation_record_unrestore(struct allocation_record *record, size_t at)
{
    free_restore(&record->restores[at]);
    record->restores[at] = record->restores[--record->restore_count];
}

static json_t *encode_devices(const struct allocation_record *record)
{
    json_t *list = json_array();
    for (size_t i = 0; i < record->device_count; i++) {
        const struct allocation_device *device = &record->devices[i];
        json_array_append_new(
            list, json_pack("{s:s, s:s, s:i, s:i, s:i, s:i}", "uuid", device->given.uuid, "type",
                      device->given.type, "memory_mib", device->given.memory_mib, "cores",
                      device->given.cores_percent, "now_memory_mib", device->memory_mib,
                      "now_cores", device->cores_percent));
    }
    return list;
}

static json_t *encode_restores(const struct allocation_record *record)
{
    json_t *list = json_array();
    for (size_t i = 0; i < record->restore_count; i++) {
        const struct allocation_restore *restore = &record->restores[i];
        json_array_append_new(list,
            json_pack("{s:s, s:s, s:s, s:I}", "namespace", restore->pod_namespace, "pod",
                restore->pod_name, "uid", restore->pod_uid, "slot", (json_int_t)restore->slot));
    }
    return list;
}

json_t *allocation_record_encode(const struct allocation_record *record)
{
    json_t *ids = json_array();
    for (size_t i = 0; i < record->id_count; i++)
        json_array_append_new(ids, json_string(record->ids[i]));
    json_t *object = json_pack("{s:i, s:s, s:I, s:s, s:o, s:s, s:s, s:s, s:s, s:I, s:b, s:b, s:b, "
                               "s:o, s:s*, s:s*, s:b, s:s*, s:s*, s:o}",
        "version", VERSION, "id", record->id, "serial", (json_int_t)record->serial, "resource",
        record->resource, "ids", ids, "namespace", record->pod_namespace, "pod", record->pod_name,
        "uid", record->pod_uid, "container", record->container, "slot", (json_int_t)record->slot,
        "init", record->init, "sidecar", record->sidecar, "limited", record->limited, "devices",
        encode_devices(record), "directory", record->directory, "cache", record->cache, "sure",
        record->sure, "wish", record->wish, "failed", record->failed, "restore",
        encode_restores(record));
    int result = 0;
    if (object && record->has_priority)
        result = json_object_set_new(object, "priority", json_integer(record->priority));
    if (object && !result && record->waits)
        result = json_object_set_new(object, "waits", json_true());
    if (object && !result && record->unassigned)
        result = json_object_set_new(object, "unassigned", json_true());
    if (result) {
        json_decref(object);
        return NULL;
    }
    return object;
}

/* Texts of others, which may have newlines. */
static int read_foreign_text(
    const json_t *object, const char *key, char **ret_text, struct error *error)
{
    const json_t *value = json_object_get(object, key);
    const char *text = json_string_value(value);
    if (!value || json_is_null(value))
        return 0;
    if (!text || strlen(text) >= FOREIGN_BYTES)
        return error_set(error, EINVAL, WHAT ": \"%s\" is no text, or too long", key);
    return (*ret_text = strdup(text)) ? 0 : no_memory(error, WHAT);
}

/* `needed`: absent is an error; else NULL. */
static int read_text(
    const json_t *object, const char *key, bool needed, char **ret_text, struct error *error)
{
    char text[TEXT_BYTES];
    const json_t *value = json_object_get(object, key);
    if (!value || json_is_null(value)) {
        if (!needed)
            return 0;
        (void)error_set(error, EINVAL, WHAT ": no \"%s\"", key);
        return -EINVAL;
    }
    int result = json_read_string(WHAT, object, key, text, sizeof(text), error);
    if (!result && !(*ret_text = strdup(text)))
        result = no_memory(error, WHAT);
    return result;
}

static int read_size(const json_t *object, const char *key, size_t *ret_size, struct error *error)
{
    int64_t number = 0;
    int result = json_read_int(WHAT, object, key, 0, POD_DEVICES_CONTAINERS_MAX, &number, error);
    if (!result)
        *ret_size = (size_t)number;
    return result;
}

static int read_ids(const json_t *object, struct allocation_record *record, struct error *error)
{
    const json_t *list = NULL;
    int result = json_read_array(WHAT, object, "ids", ALLOCATION_IDS_MAX, &list, error);
    size_t count = result ? 0 : json_array_size(list);
    record->ids = calloc(count + 1, sizeof(char *));
    if (!record->ids)
        return no_memory(error, WHAT);
    for (size_t i = 0; i < count; i++) {
        const char *id = json_string_value(json_array_get(list, i));
        if (!id)
            return error_set(error, EINVAL, WHAT ": a device ID that is no text");
        record->ids[i] = strdup(id);
        if (!record->ids[i])
            return no_memory(error, WHAT);
        record->id_count++;
    }
    return result;
}

static int read_device(const json_t *object, struct allocation_device *device, struct error *error)
{
    int result = json_read_string(
        WHAT, object, "uuid", device->given.uuid, sizeof(device->given.uuid), error);
    if (!result)
        result = json_read_string(
            WHAT, object, "type", device->given.type, sizeof(device->given.type), error);
    const struct {
        const char *key;
        int32_t *to;
    } numbers[] = {{"memory_mib", &device->given.memory_mib},
        {"cores", &device->given.cores_percent}, {"now_memory_mib", &device->memory_mib},
        {"now_cores", &device->cores_percent}};
    for (size_t i = 0; !result && i < 4; i++) {
        int64_t number = 0;
        result = json_read_int(WHAT, object, numbers[i].key, 0, INT32_MAX, &number, error);
        *numbers[i].to = (int32_t)number;
    }
    return result;
}

static int read_devices(const json_t *object, struct allocation_record *record, struct error *error)
{
    const json_t *list = NULL;
    int result = json_read_array(WHAT, object, "devices", POD_DEVICES_DEVICES_MAX, &list, error);
    size_t count = result ? 0 : json_array_size(list);
    record->devices = calloc(count + 1, sizeof(*record->devices));
    if (!record->devices)
        return no_memory(error, WHAT);
    for (size_t i = 0; !result && i < count; i++)
        result = read_device(json_array_get(list, i), &record->devices[i], error);
    record->device_count = count;
    return result;
}

static int read_restores(
    const json_t *object, struct allocation_record *record, struct error *error)
{
    const json_t *list = NULL;
    int result = json_read_array(WHAT, object, "restore", ALLOCATION_RESTORES_MAX, &list, error);
    for (size_t i = 0; !result && i < json_array_size(list); i++) {
        const json_t *item = json_array_get(list, i);
        struct allocation_restore restore = {0};
        result = read_text(item, "namespace", true, &restore.pod_namespace, error);
        if (!result)
            result = read_text(item, "pod", true, &restore.pod_name, error);
        if (!result)
            result = read_text(item, "uid", true, &restore.pod_uid, error);
        if (!result)
            result = read_size(item, "slot", &restore.slot, error);
        if (!result && allocation_record_restore(record, restore.pod_namespace, restore.pod_name,
                           restore.pod_uid, restore.slot))
            result = no_memory(error, WHAT);
        free_restore(&restore);
    }
    return result;
}

static int read_texts(const json_t *object, struct allocation_record *record, struct error *error)
{
    const struct {
        const char *key;
        bool needed;
        char **to;
    } texts[] = {{"resource", true, &record->resource}, {"namespace", true, &record->pod_namespace},
        {"pod", true, &record->pod_name}, {"uid", true, &record->pod_uid},
        {"container", true, &record->container}, {"directory", false, &record->directory},
        {"cache", false, &record->cache}};
    int result = 0;
    for (size_t i = 0; !result && i < sizeof(texts) / sizeof(*texts); i++)
        result = read_text(object, texts[i].key, texts[i].needed, texts[i].to, error);
    if (!result)
        result = read_foreign_text(object, "wish", &record->wish, error);
    if (!result)
        result = read_foreign_text(object, "failed", &record->failed, error);
    return result;
}

/* A name below a directory of ours: what is read back is not followed elsewhere. */
static bool is_name(const char *text)
{
    return *text && *text != '.' && !strchr(text, '/');
}

static bool is_id(const char *text)
{
    return strspn(text, "0123456789abcdef") == ALLOCATION_ID_BYTES - 1;
}

static int read_all(const json_t *object, struct allocation_record *record, struct error *error)
{
    int64_t version = 0, serial = 0, priority = -1;
    int result = json_is_object(object) ? 0 : error_set(error, EINVAL, WHAT ": not an object");
    if (!result)
        result = json_read_int(WHAT, object, "version", VERSION, VERSION, &version, error);
    if (!result && !version)
        result = error_set(error, EINVAL, WHAT ": no version");
    if (!result)
        result = json_read_int(WHAT, object, "serial", 0, INT64_MAX, &serial, error);
    if (!result)
        result = json_read_int(WHAT, object, "priority", 0, INT32_MAX, &priority, error);
    if (!result)
        result = json_read_string(WHAT, object, "id", record->id, sizeof(record->id), error);
    if (!result)
        result = read_texts(object, record, error);
    if (!result)
        result = read_size(object, "slot", &record->slot, error);
    const struct {
        const char *key;
        bool *to;
    } truths[] = {{"init", &record->init}, {"sidecar", &record->sidecar},
        {"limited", &record->limited}, {"sure", &record->sure}, {"waits", &record->waits},
        {"unassigned", &record->unassigned}};
    for (size_t i = 0; !result && i < sizeof(truths) / sizeof(*truths); i++)
        result = json_read_bool(WHAT, object, truths[i].key, truths[i].to, error);
    if (!result)
        result = read_ids(object, record, error);
    if (!result)
        result = read_devices(object, record, error);
    if (!result)
        result = read_restores(object, record, error);
    if (!result && record->limited &&
        (!record->directory || !record->cache || !is_name(record->directory) ||
            !is_name(record->cache)))
        result = error_set(error, EINVAL, WHAT ": a directory or cache that is no name");
    if (!result && !is_id(record->id))
        result = error_set(error, EINVAL, WHAT ": an \"id\" that is not 32 hexadecimal digits");
    record->serial = (uint64_t)serial;
    record->has_priority = priority >= 0;
    record->priority = priority >= 0 ? (uint32_t)priority : 0;
    return result;
}

int allocation_record_decode(
    const json_t *object, struct allocation_record **ret_record, struct error *error)
{
    struct allocation_record *record = allocation_record_create();
    int result = record ? read_all(object, record, error) : no_memory(error, WHAT);
    if (result)
        allocation_record_destroy(record);
    else
        *ret_record = record;
    return result;
}
