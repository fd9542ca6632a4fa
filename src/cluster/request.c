/* SPDX-License-Identifier: Apache-2.0 */
#include "cluster/request.h"

#include "kube/quantity.h"

#include <stdio.h>
#include <string.h>

void request_config_default(struct request_config *ret_config)
{
    *ret_config = (struct request_config){
        .count_name = "nvidia.com/gpu",
        .memory_name = "nvidia.com/gpumem",
        .percentage_name = "nvidia.com/gpumem-percentage",
        .cores_name = "nvidia.com/gpucores",
        .priority_name = "nvidia.com/priority",
        .default_count = 1,
        .memory_factor = 1,
    };
}

enum found {
    ABSENT,
    WHOLE,
    NOT_WHOLE, /* a fraction, no quantity at all, or beyond 64 bits */
};

static enum found read_quantity(const json_t *value, int64_t *ret_number)
{
    char number[32];
    struct quantity quantity;
    const char *text = json_string_value(value);
    if (json_is_integer(value)) {
        *ret_number = json_integer_value(value);
        return WHOLE;
    }
    if (json_is_real(value)) {
        snprintf(number, sizeof(number), "%.17g", json_real_value(value));
        text = number;
    }
    if (!text || quantity_parse(text, &quantity) || !quantity_is_integer(&quantity) ||
        quantity_value(&quantity, ret_number))
        return NOT_WHOLE;
    return WHOLE;
}

static enum found find(const json_t *resources, const char *name, int64_t *ret_number)
{
    const json_t *value = json_object_get(json_object_get(resources, "limits"), name);
    if (!value)
        value = json_object_get(json_object_get(resources, "requests"), name);
    return value ? read_quantity(value, ret_number) : ABSENT;
}

static int32_t clamp(int64_t number)
{
    return number > INT32_MAX ? INT32_MAX : number < 0 ? 0 : (int32_t)number;
}

struct request request_parse(const struct request_config *config, const json_t *resources)
{
    const struct request nothing = {0};
    struct request request = {.memory_percent = REQUEST_PERCENT_UNSET};
    int64_t count, memory, percent, cores;
    if (find(resources, config->count_name, &count) != WHOLE || count <= 0 || count > INT32_MAX)
        return nothing;
    request.count = (int32_t)count;
    enum found found = find(resources, config->memory_name, &memory);
    int64_t factor = config->memory_factor > 1 ? config->memory_factor : 1;
    if (found == NOT_WHOLE || (found == WHOLE && (memory < 0 || memory > INT32_MAX / factor)))
        return nothing;
    if (found == WHOLE)
        request.memory_mib = (int32_t)(memory * factor);
    if (find(resources, config->percentage_name, &percent) == WHOLE && percent > 0)
        request.memory_percent = percent < 100 ? (int32_t)percent : 100;
    if (request.memory_percent == REQUEST_PERCENT_UNSET && !request.memory_mib) {
        if (config->default_memory > 0)
            request.memory_mib = config->default_memory;
        else
            request.memory_percent = 100;
    }
    request.cores_percent =
        find(resources, config->cores_name, &cores) == WHOLE ? clamp(cores) : config->default_cores;
    return request;
}
