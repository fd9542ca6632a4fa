/* SPDX-License-Identifier: Apache-2.0 */
/* A walk over the environment's names. */
#include "config/config_names.h"

#include "base/log.h"
#include "base/parse.h"

#include <string.h>

/* What is behind `start` in the variable, or NULL where it does not begin with it. */
static const char *behind(const char *variable, const char *start)
{
    size_t length = strlen(start);
    return strncmp(variable, start, length) ? NULL : variable + length;
}

/* "0=…" to "63=…". */
static bool is_index(const char *text)
{
    uint64_t index = parse_digits(text);
    size_t digits = index > 9 ? 2 : 1;
    return *text >= '0' && *text <= '9' && index < CONFIG_DEVICES && text[digits] == '=';
}

/* True where the variable is one of the family that is set, and its index is none. */
static bool is_misnamed(const char *variable, const char *family)
{
    const char *index = behind(variable, family);
    const char *value = index ? strchr(index, '=') : NULL;
    return value && value[1] && !is_index(index);
}

/* The families of variables with an index, and what follows from one that is no index. */
static const struct family {
    const char *name, *consequence;
    bool of_memory;
} families[] = {
    {"CUDA_DEVICE_MEMORY_LIMIT_", "Devices without a limit of their own are treated as full", true},
    {"CUDA_MEM_LIMIT_", "Devices without a limit of their own are treated as full", true},
    {"CUDA_DEVICE_SM_LIMIT_", "It sets no compute limit", false},
    {"CUDA_CORE_LIMIT_", "It sets no compute limit", false},
    {"CUDA_CORE_SOFT_LIMIT_", "It sets no soft limit", false},
    {"CUDA_MEM_OVERSOLD_", "It asks for no more memory than the card has", false},
    {"CUDA_MEM_RATIO_", "It asks for no more memory than the card has", false},
};

static void check_index(struct config *config, const char *variable)
{
    int length = (int)strcspn(variable, "=");
    for (size_t i = 0; i < sizeof(families) / sizeof(families[0]); i++) {
        const struct family *family = &families[i];
        if (!is_misnamed(variable, family->name))
            continue;
        log_error("%.*s=\"%.64s\" is of no device; accepted: an index from 0 to %d. %s.",
            length < 64 ? length : 64, variable, variable + length + 1, CONFIG_DEVICES - 1,
            family->consequence);
        if (family->of_memory)
            config->memory_default = (struct config_value){VALUE_INVALID, 0};
    }
}

static void check_log_level(const char *variable)
{
    const char *value = behind(variable, "LIBCUDA_LOG_LEVEL=");
    if (value && *value && (*value < '0' || *value > '4' || value[1]))
        log_error("LIBCUDA_LOG_LEVEL=\"%.64s\" is not known; accepted: 0 to 4. 1 is used.", value);
    value = behind(variable, "LOGGER_LEVEL=");
    if (value && *value && (*value < '0' || *value > '5' || value[1]))
        log_error("LOGGER_LEVEL=\"%.64s\" is not known; accepted: 0 to 5. 3 is used.", value);
}

void config_names_check(struct config *config, char *const *environment)
{
    for (; environment && *environment; environment++) {
        check_index(config, *environment);
        check_log_level(*environment);
    }
}
