/* SPDX-License-Identifier: Apache-2.0 */
#include "cluster/pod_devices.h"

#include "codec/no_memory.h"
#include "codec/number.h"

#include <errno.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

/* Of a value that a message quotes. */
#define QUOTED_MAX 40

struct piece {
    const char *text;
    size_t length;
};

/* The next part of `rest` up to `separator`, and what follows it; false where nothing is left. */
static bool next_piece(struct piece *rest, char separator, struct piece *ret_piece)
{
    if (!rest->text)
        return false;
    const char *end = memchr(rest->text, separator, rest->length);
    size_t length = end ? (size_t)(end - rest->text) : rest->length;
    *ret_piece = (struct piece){rest->text, length};
    *rest = end ? (struct piece){end + 1, rest->length - length - 1} : (struct piece){NULL, 0};
    return true;
}

static int copy_field(
    const char *name, const struct piece *field, char *to, size_t size, struct error *error)
{
    if (!field->length)
        return error_set(error, EINVAL, "device string: a device without %s", name);
    if (field->length >= size)
        return error_set(error, EINVAL, "device string: %s \"%.*s...\" is longer than %zu bytes",
            name, QUOTED_MAX, field->text, size - 1);
    for (size_t i = 0; i < field->length; i++)
        if (field->text[i] <= ' ' || field->text[i] > '~')
            return error_set(error, EINVAL, "device string: %s \"%.*s\" has a byte %#x", name,
                (int)field->length, field->text, (unsigned char)field->text[i]);
    memcpy(to, field->text, field->length);
    to[field->length] = '\0';
    return 0;
}

static int parse_field(const char *name, const struct piece *field, const char *uuid,
    int32_t *ret_number, struct error *error)
{
    int64_t number;
    if (number_parse(field->text, field->length, 0, INT32_MAX, &number))
        return error_set(error, EINVAL,
            "device string: %s \"%.*s\" of %s is not a whole number from 0 to %d", name,
            field->length < QUOTED_MAX ? (int)field->length : QUOTED_MAX, field->text, uuid,
            INT32_MAX);
    *ret_number = (int32_t)number;
    return 0;
}

static int decode_device(struct piece text, struct pod_device *device, struct error *error)
{
    struct piece fields[4];
    size_t count = 0;
    while (count < 4 && next_piece(&text, ',', &fields[count]))
        count++;
    /* The words are HAMi's: its users look for them. */
    if (count < 4)
        return error_set(error, EINVAL,
            "pod annotation format error, missing fields, do not use nodeName in task spec");
    int result = copy_field("UUID", &fields[0], device->uuid, sizeof(device->uuid), error);
    if (!result)
        result = copy_field("type", &fields[1], device->type, sizeof(device->type), error);
    if (!result)
        result = parse_field("memory", &fields[2], device->uuid, &device->memory_mib, error);
    if (!result)
        result = parse_field("cores", &fields[3], device->uuid, &device->cores_percent, error);
    return result;
}

static int decode_container(
    struct piece text, struct pod_devices_container *container, struct error *error)
{
    struct piece piece;
    while (next_piece(&text, ':', &piece)) {
        if (!memchr(piece.text, ',', piece.length))
            continue;
        if (container->count == POD_DEVICES_DEVICES_MAX)
            return error_set(error, E2BIG, "device string: more than %d devices in a container",
                POD_DEVICES_DEVICES_MAX);
        struct pod_device *devices =
            reallocarray(container->devices, container->count + 1, sizeof(container->devices[0]));
        if (!devices)
            return no_memory(error, "device string");
        container->devices = devices;
        memset(&devices[container->count], 0, sizeof(devices[0]));
        int result = decode_device(piece, &devices[container->count], error);
        if (result)
            return result;
        container->count++;
    }
    return 0;
}

static int decode_all(struct piece text, struct pod_devices *devices, struct error *error)
{
    struct piece piece;
    while (next_piece(&text, ';', &piece)) {
        if (!text.text && !piece.length)
            break;
        if (devices->count == POD_DEVICES_CONTAINERS_MAX)
            return error_set(
                error, E2BIG, "device string: more than %d containers", POD_DEVICES_CONTAINERS_MAX);
        struct pod_devices_container *containers =
            reallocarray(devices->containers, devices->count + 1, sizeof(devices->containers[0]));
        if (!containers)
            return no_memory(error, "device string");
        devices->containers = containers;
        containers[devices->count] = (struct pod_devices_container){NULL, 0};
        int result = decode_container(piece, &containers[devices->count++], error);
        if (result)
            return result;
    }
    return 0;
}

int pod_devices_decode(const char *text, struct pod_devices *ret_devices, struct error *error)
{
    struct pod_devices devices = {NULL, 0};
    size_t length = strlen(text);
    if (length > POD_DEVICES_TEXT_MAX)
        return error_set(
            error, E2BIG, "device string: %zu bytes, more than %d", length, POD_DEVICES_TEXT_MAX);
    int result = decode_all((struct piece){text, length}, &devices, error);
    if (result)
        pod_devices_finish(&devices);
    else
        *ret_devices = devices;
    return result;
}

char *pod_devices_encode(const struct pod_devices *devices)
{
    char *text = NULL;
    size_t length;
    FILE *stream = open_memstream(&text, &length);
    if (!stream)
        return NULL;
    for (size_t c = 0; c < devices->count; c++) {
        const struct pod_devices_container *container = &devices->containers[c];
        for (size_t d = 0; d < container->count; d++) {
            const struct pod_device *device = &container->devices[d];
            fprintf(stream, "%s,%s,%d,%d:", device->uuid, device->type, device->memory_mib,
                device->cores_percent);
        }
        fputc(';', stream);
    }
    bool failed = ferror(stream);
    if (fclose(stream) || failed) {
        free(text);
        return NULL;
    }
    return text;
}

void pod_devices_finish(struct pod_devices *devices)
{
    for (size_t c = 0; c < devices->count; c++)
        free(devices->containers[c].devices);
    free(devices->containers);
    *devices = (struct pod_devices){NULL, 0};
}

size_t pod_devices_used(const struct pod_devices *devices)
{
    size_t used = 0;
    for (size_t c = 0; c < devices->count; c++)
        used += devices->containers[c].count > 0;
    return used;
}

bool pod_devices_equal(const struct pod_devices_container *a, const struct pod_devices_container *b)
{
    bool equal = a->count == b->count;
    for (size_t d = 0; equal && d < a->count; d++)
        equal = !strcmp(a->devices[d].uuid, b->devices[d].uuid) &&
                !strcmp(a->devices[d].type, b->devices[d].type) &&
                a->devices[d].memory_mib == b->devices[d].memory_mib &&
                a->devices[d].cores_percent == b->devices[d].cores_percent;
    return equal;
}
