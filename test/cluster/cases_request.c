/* SPDX-License-Identifier: Apache-2.0 */
/* Behaviour cases of what a container asks for. */
#include "cases.h"

#include "cluster/request.h"

static void read_number(const json_t *config, const char *key, int32_t *to)
{
    const json_t *value = json_object_get(config, key);
    if (value)
        *to = (int32_t)json_integer_value(value);
}

void case_run_request(struct behaviour_case *self)
{
    const json_t *config = json_object_get(self->input, "config");
    struct request_config own;
    request_config_default(&own);
    read_number(config, "defaultMemory", &own.default_memory);
    read_number(config, "defaultCores", &own.default_cores);
    read_number(config, "defaultGPUNum", &own.default_count);
    read_number(config, "memoryFactor", &own.memory_factor);
    struct request request = request_parse(&own, json_object_get(self->input, "resources"));
    case_check_truth(self, "none", request.count == 0);
    case_check_number(self, "nums", request.count);
    case_check_number(self, "mem", request.memory_mib);
    case_check_number(self, "mem_percent", request.memory_percent);
    case_check_number(self, "cores", request.cores_percent);
}
