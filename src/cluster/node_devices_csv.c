/* SPDX-License-Identifier: Apache-2.0 */
/* The register annotation as HAMi up to 2.7 writes it:
 *   uuid,count,devmem,devcore,type,numa,health[,index,mode]:   each device ends in a colon. */
#include "codec/no_memory.h"
#include "cluster/node_devices.h"
#include "codec/number.h"

#include <errno.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#define WHAT "register annotation"
#define FIELDS_MAX 9
/* What a device without the two last fields is (HAMi's decoder). */
#define MODE_DEFAULT "hami-core"

struct field {
    const char *text;
    size_t length;
};

static int read_number(const char *name, const struct field *field, int64_t min, int64_t max,
    int64_t *ret_number, struct error *error)
{
    if (number_parse(field->text, field->length, min, max, ret_number))
        return error_set(error, EINVAL,
            WHAT ": %s \"%.*s\" is not a whole number from %lld to %lld", name,
            field->length < 40 ? (int)field->length : 40, field->text, (long long)min,
            (long long)max);
    return 0;
}

static int read_text(
    const char *name, const struct field *field, char *to, size_t size, struct error *error)
{
    if (field->length >= size)
        return error_set(error, EINVAL, WHAT ": %s \"%.40s...\" is longer than %zu bytes", name,
            field->text, size - 1);
    for (size_t i = 0; i < field->length; i++)
        if ((unsigned char)field->text[i] < ' ' || field->text[i] == 0x7f)
            return error_set(error, EINVAL, WHAT ": %s has a control character", name);
    memcpy(to, field->text, field->length);
    to[field->length] = '\0';
    return 0;
}

static int read_fields(
    const struct field *fields, size_t count, struct node_device *device, struct error *error)
{
    int64_t split = 0, memory = 0, cores = 0, numa = 0, index = 0;
    int result = read_text("id", &fields[0], device->id, sizeof(device->id), error);
    if (!result)
        result = read_number("count", &fields[1], INT32_MIN, INT32_MAX, &split, error);
    if (!result)
        result = read_number("memory", &fields[2], INT32_MIN, INT32_MAX, &memory, error);
    if (!result)
        result = read_number("cores", &fields[3], INT32_MIN, INT32_MAX, &cores, error);
    if (!result)
        result = read_text("type", &fields[4], device->type, sizeof(device->type), error);
    if (!result)
        result = read_number("numa", &fields[5], INT32_MIN, INT32_MAX, &numa, error);
    if (!result && number_parse_bool(fields[6].text, fields[6].length, &device->healthy))
        result = error_set(error, EINVAL, WHAT ": health \"%.*s\" is neither true nor false",
            fields[6].length < 40 ? (int)fields[6].length : 40, fields[6].text);
    if (!result && count == FIELDS_MAX)
        result = read_number("index", &fields[7], 0, UINT32_MAX, &index, error);
    if (!result && count == FIELDS_MAX)
        result = read_text("mode", &fields[8], device->mode, sizeof(device->mode), error);
    else
        memcpy(device->mode, MODE_DEFAULT, sizeof(MODE_DEFAULT));
    device->count = (int32_t)split;
    device->memory_mib = (int32_t)memory;
    device->cores_percent = (int32_t)cores;
    device->numa = (int32_t)numa;
    device->index = (uint32_t)index;
    return result;
}

static int read_device(
    const char *text, size_t length, struct node_devices *devices, struct error *error)
{
    struct field fields[FIELDS_MAX];
    size_t count = 0;
    for (const char *at = text, *end = text + length; at; count++) {
        const char *comma = memchr(at, ',', (size_t)(end - at));
        if (count < FIELDS_MAX)
            fields[count] = (struct field){at, (size_t)((comma ? comma : end) - at)};
        at = comma ? comma + 1 : NULL;
    }
    if (count != 7 && count != FIELDS_MAX)
        return error_set(error, EINVAL, WHAT ": a device of %zu fields, not of 7 or 9", count);
    struct node_device *device = node_devices_add(devices);
    if (!device)
        return error_set(error, devices->count == NODE_DEVICES_MAX ? E2BIG : ENOMEM,
            WHAT ": more than %d devices, or no memory", NODE_DEVICES_MAX);
    return read_fields(fields, count, device, error);
}

int node_devices_decode_csv(const char *text, struct node_devices *devices, struct error *error)
{
    const char *colon = strchr(text, ':');
    if (!colon)
        return error_set(error, EINVAL, WHAT ": neither a JSON list nor devices that end in \":\"");
    for (; colon; text = colon + 1, colon = strchr(text, ':')) {
        int result = colon == text ? 0 : read_device(text, (size_t)(colon - text), devices, error);
        if (result)
            return result;
    }
    return *text ? error_set(error, EINVAL, WHAT ": the last device does not end in \":\"") : 0;
}

static bool is_plain(const char *text)
{
    for (; *text; text++)
        if (*text == ',' || *text == ':' || (unsigned char)*text < ' ' || *text == 0x7f)
            return false;
    return true;
}

static int write_device(
    FILE *stream, const struct node_device *device, unsigned fields, struct error *error)
{
    if (!is_plain(device->id) || !is_plain(device->type) || !is_plain(device->mode))
        return error_set(error, EINVAL,
            WHAT
            ": device %u: \"%s\", \"%s\" or \"%s\" has a comma, a colon or a control character",
            (unsigned)device->index, device->id, device->type, device->mode);
    fprintf(stream, "%s,%d,%d,%d,%s,%d,%s", device->id, device->count, device->memory_mib,
        device->cores_percent, device->type, device->numa, device->healthy ? "true" : "false");
    if (fields == FIELDS_MAX)
        fprintf(stream, ",%u,%s", (unsigned)device->index, device->mode);
    fputc(':', stream);
    return 0;
}

int node_devices_encode_csv(
    const struct node_devices *devices, unsigned fields, char **ret_text, struct error *error)
{
    const struct node_device **order = node_devices_order(devices);
    char *text = NULL;
    size_t length;
    FILE *stream = order ? open_memstream(&text, &length) : NULL;
    int result = stream ? 0 : no_memory(error, WHAT);
    for (size_t i = 0; !result && i < devices->count; i++)
        result = write_device(stream, order[i], fields, error);
    if (stream && fclose(stream) && !result)
        result = no_memory(error, WHAT);
    free(order);
    if (result)
        free(text);
    else
        *ret_text = text;
    return result;
}
