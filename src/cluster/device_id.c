/* SPDX-License-Identifier: Apache-2.0 */
#include "cluster/device_id.h"

#include <errno.h>
#include <stdio.h>
#include <string.h>

/* Dashes of "GPU-" and a UUID of five groups. */
#define UUID_DASHES 5

bool device_id_is_mig(const char *id)
{
    return !strncmp(id, "MIG-", 4);
}

int device_id_format(const char *uuid, unsigned index, char id[DEVICE_ID_BYTES])
{
    if (strlen(uuid) >= DEVICE_UUID_BYTES)
        return -ENAMETOOLONG;
    if (device_id_is_mig(uuid))
        snprintf(id, DEVICE_ID_BYTES, "%s", uuid);
    else
        snprintf(id, DEVICE_ID_BYTES, "%s-%u", uuid, index);
    return 0;
}

unsigned device_id_count(const char *uuid, unsigned split_count)
{
    return device_id_is_mig(uuid) ? 1 : split_count;
}

static size_t physical_length(const char *id)
{
    const char *end = strstr(id, "::");
    if (end || (end = strchr(id, '[')))
        return (size_t)(end - id);
    size_t dashes = 0, length = strlen(id);
    for (const char *at = id; *at; at++)
        dashes += *at == '-';
    if (dashes != UUID_DASHES + 1)
        return length;
    const char *dash = strrchr(id, '-');
    bool number = dash[1] && dash[1 + strspn(dash + 1, "0123456789")] == '\0';
    return number ? (size_t)(dash - id) : length;
}

int device_id_physical(const char *id, char uuid[DEVICE_UUID_BYTES])
{
    size_t length = physical_length(id);
    if (length >= DEVICE_UUID_BYTES)
        return -ENAMETOOLONG;
    memcpy(uuid, id, length);
    uuid[length] = '\0';
    return 0;
}
