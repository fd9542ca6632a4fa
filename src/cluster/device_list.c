/* SPDX-License-Identifier: Apache-2.0 */
#include "cluster/device_list.h"

#include <stdbool.h>
#include <stdlib.h>
#include <string.h>

size_t device_list_unique(const char **ids, size_t count)
{
    size_t kept = 0;
    for (size_t i = 0; i < count; i++) {
        bool seen = false;
        for (size_t k = 0; k < kept && !seen; k++)
            seen = !strcmp(ids[k], ids[i]);
        if (!seen)
            ids[kept++] = ids[i];
    }
    return kept;
}

char *device_list_join(const char *const *ids, size_t count)
{
    size_t bytes = 1;
    for (size_t i = 0; i < count; i++)
        bytes += strlen(ids[i]) + 1;
    char *list = malloc(bytes), *at = list;
    if (!list)
        return NULL;
    for (size_t i = 0; i < count; i++) {
        size_t length = strlen(ids[i]);
        if (i)
            *at++ = ',';
        memcpy(at, ids[i], length);
        at += length;
    }
    *at = '\0';
    return list;
}
