/* SPDX-License-Identifier: Apache-2.0 */
/* Descriptions of pretend machines. */
#include "sim/machine/description.h"

#include "fuzz.h"

#include <errno.h>

static void check_accepted(const struct sim_description *description)
{
    FUZZ_CHECK(description->device_count >= 1 && description->device_count <= SIM_DEVICES_MAX);
    FUZZ_CHECK(description->rule_count <= SIM_RULES_MAX);
    uint32_t devices = description->device_count + description->instance_count;
    FUZZ_CHECK(devices <= SIM_DEVICES_MAX);
    for (uint32_t i = 0; i < devices; i++) {
        const struct sim_model *model = &description->devices[i];
        FUZZ_CHECK(model->memory_bytes >= 64u << 20 && model->reserved_bytes < model->memory_bytes);
        FUZZ_CHECK(model->multiprocessors >= 1 && model->multiprocessors <= 1024);
        FUZZ_CHECK(memchr(model->name, 0, sizeof(model->name)));
    }
    for (uint32_t i = 0; i < description->rule_count; i++) {
        const struct sim_rule *rule = &description->rules[i];
        FUZZ_CHECK(memchr(rule->function, 0, sizeof(rule->function)));
        FUZZ_CHECK(!rule->has_code || rule->code != 0);
    }
    FUZZ_CHECK(memchr(description->driver_version, 0, sizeof(description->driver_version)));
    FUZZ_CHECK(memchr(description->machine_path, 0, sizeof(description->machine_path)));
}

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size)
{
    static struct sim_description description;
    char error[400];
    size_t error_bytes = size ? data[0] : 0;
    char *text = fuzz_text(data + (size > 0), size - (size > 0));
    memset(error, '#', sizeof(error));
    int result = sim_description_parse(text, &description, error, error_bytes);
    FUZZ_CHECK(result == 0 || result == -EINVAL);
    if (result == 0)
        check_accepted(&description);
    else if (error_bytes)
        FUZZ_CHECK(memchr(error, 0, error_bytes) && !memcmp(error, "VGPU_SIM", strnlen(error, 8)));
    for (size_t i = error_bytes; i < sizeof(error); i++)
        FUZZ_CHECK(error[i] == '#');
    free(text);
    return 0;
}
