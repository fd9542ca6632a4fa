/* SPDX-License-Identifier: Apache-2.0 */
/* The library warns of the same in each process of the command, if at all: too late, and often. */
#include "tool/run_warn.h"

#include "base/parse.h"
#include "config/config.h"
#include "host/limits.h"

#include <stdbool.h>
#include <stdio.h>
#include <stdlib.h>

#define ALL REGION_ALL_DEVICES

void run_warn_of_memory(const char *list)
{
    char item[64];
    uint64_t bytes;
    while (list && parse_list_next(&list, item, sizeof(item))) {
        if (parse_size(item, &bytes) == 0)
            limits_warn_of_little_memory(bytes);
    }
}

/* What FAMILY_<device>, or for all devices FAMILY, says; false where it is not set. */
static bool find_percent(const char *family, int device, unsigned *ret_percent)
{
    char name[64];
    uint64_t percent;
    snprintf(name, sizeof(name), device == ALL ? "%s" : "%s_%d", family, device);
    const char *text = getenv(name);
    if (!text || parse_number(text, 100, &percent) != 0)
        return false;
    *ret_percent = (unsigned)percent;
    return true;
}

/* As the library takes it (config/config.c); 0: no limit. */
static unsigned core_percent(int device, bool *ret_own)
{
    static const char *const families[] = {"CUDA_DEVICE_SM_LIMIT", "CUDA_CORE_LIMIT"};
    unsigned percent = 0;
    *ret_own = device != ALL && (find_percent(families[0], device, &percent) ||
                                    find_percent(families[1], device, &percent));
    if (!*ret_own && !find_percent(families[0], ALL, &percent))
        (void)find_percent(families[1], ALL, &percent);
    return percent < 100 ? percent : 0;
}

/* The devices without limits of their own come last, in one line; where others have compute limits,
 * a soft limit without one may be meant for those. */
void run_warn_of_soft_limits(void)
{
    bool some_limited = false, own_cores;
    unsigned common = 0;
    (void)find_percent("CUDA_CORE_SOFT_LIMIT", ALL, &common);
    for (int device = 0; device < CONFIG_DEVICES; device++) {
        unsigned cores = core_percent(device, &own_cores), soft = common;
        bool own_soft = find_percent("CUDA_CORE_SOFT_LIMIT", device, &soft);
        some_limited |= own_cores && cores;
        if (own_soft || (own_cores && cores))
            limits_warn_of_vain_soft_limit(device, soft, cores);
    }
    unsigned cores = core_percent(ALL, &own_cores);
    if (cores || !some_limited)
        limits_warn_of_vain_soft_limit(ALL, common, cores);
}
