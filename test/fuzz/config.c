/* SPDX-License-Identifier: Apache-2.0 */
/* A made-up environment, one NAME=VALUE a line: whatever stands in it, a memory limit that is not
 * understood is not lost. */
#include "config/config.h"

#include "base/parse.h"
#include "config/config_names.h"
#include "fuzz.h"

#define VARIABLES_MAX 200

static char *environment[VARIABLES_MAX + 1];

static char *lookup(const char *name)
{
    size_t length = strlen(name);
    for (char **at = environment; *at; at++) {
        if (!strncmp(*at, name, length) && (*at)[length] == '=')
            return *at + length + 1;
    }
    return NULL;
}

static void split(char *text)
{
    size_t count = 0;
    for (char *line = strtok(text, "\n"); line && count < VARIABLES_MAX; line = strtok(NULL, "\n"))
        environment[count++] = line;
    environment[count] = NULL;
}

/* The first of the four that is set for a position holds. */
static void check_memory(const struct config *config, int index)
{
    static const char *const families[] = {"CUDA_DEVICE_MEMORY_LIMIT", "CUDA_MEM_LIMIT"};
    struct config_value got = config_memory_limit(config, index);
    uint64_t bytes = 0;
    const char *text = NULL;
    bool indexed = true;
    for (int i = 0; i < 2 && !(text && *text); i++) {
        char name[64];
        snprintf(name, sizeof(name), "%s_%d", families[i], index);
        text = lookup(name);
    }
    for (int i = 0; i < 2 && !(text && *text); i++) {
        text = lookup(families[i]);
        indexed = false;
    }
    bool is_set = text && *text;
    if (is_set && parse_size(text, &bytes))
        FUZZ_CHECK(got.state == VALUE_INVALID);
    else if (is_set && bytes && (indexed || got.state != VALUE_INVALID))
        FUZZ_CHECK(got.state == VALUE_SET && got.value == bytes);
    else if (is_set && indexed)
        FUZZ_CHECK(got.state == VALUE_UNSET);
}

/* A name of the family that no look-up finds closes what has no limit of its own. */
static void check_misnamed(const struct config *config)
{
    static const char family[] = "CUDA_MEM_LIMIT_";
    for (char **at = environment; *at; at++) {
        uint64_t index = 0;
        char *value = strchr(*at, '=');
        if (strncmp(*at, family, sizeof(family) - 1) || !value || !value[1])
            continue;
        char name[64], *digits = *at + sizeof(family) - 1;
        *value = '\0';
        bool known = parse_number(digits, CONFIG_DEVICES - 1, &index) == 0;
        snprintf(name, sizeof(name), "%d", (int)index);
        known = known && !strcmp(name, digits);
        *value = '=';
        FUZZ_CHECK(known || config->memory_default.state == VALUE_INVALID);
    }
}

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size)
{
    static struct config config;
    char *text = fuzz_text(data, size);
    split(text);
    config_read(&config, lookup);
    config_names_check(&config, environment);
    for (int i = 0; i < CONFIG_DEVICES; i++)
        check_memory(&config, i);
    check_misnamed(&config);
    for (int i = -1; i <= CONFIG_DEVICES; i++) {
        struct config_value cores = config_core_limit(&config, i);
        FUZZ_CHECK(cores.state != VALUE_SET || (cores.value > 0 && cores.value < 100));
    }
    (void)config_is_indexed(&config);
    FUZZ_CHECK(memchr(config.region_path, 0, sizeof(config.region_path)));
    free(text);
    return 0;
}
