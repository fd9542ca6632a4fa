/* SPDX-License-Identifier: Apache-2.0 */
/* The plugin's configuration: whatever it says, each field stays within its bounds. */
#include "cluster/node_config.h"

#include "fuzz.h"

static unsigned lines;

static void count_line(void *context, const char *line)
{
    (void)context;
    FUZZ_CHECK(*line && !strchr(line, '\n') && !strchr(line, '\x1b'));
    lines++;
}

static void check_bounds(const struct node_config *config)
{
    FUZZ_CHECK(config->split_count >= 1 && config->split_count <= NODE_CONFIG_SPLIT_MAX);
    FUZZ_CHECK(config->memory_scaling > 0 && config->memory_scaling <= 100);
    FUZZ_CHECK(config->cores_scaling > 0 && config->cores_scaling <= 100);
    FUZZ_CHECK(config->preconfigured_memory_mib >= 0);
    FUZZ_CHECK(config->request.memory_factor >= 1 && config->request.default_memory >= 0);
    FUZZ_CHECK(*config->request.count_name && strlen(config->log_level) <= 1);
    FUZZ_CHECK(!strcmp(config->mode, "hami-core") || !strcmp(config->mode, "mig") ||
               !strcmp(config->mode, "mps"));
    FUZZ_CHECK(config->filter_uuid_count <= NODE_CONFIG_FILTERS_MAX);
    FUZZ_CHECK(config->filter_index_count <= NODE_CONFIG_FILTERS_MAX);
    (void)node_config_filters(config, "GPU-a", 0);
}

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size)
{
    char *text = fuzz_text(data, size);
    struct node_config config;
    node_config_default(&config);
    lines = 0;
    FUZZ_CHECK(node_config_read_node_text(&config, text, "n1", count_line, NULL) == lines);
    check_bounds(&config);
    json_t *document = json_loads(text, JSON_DECODE_ANY, NULL);
    lines = 0;
    FUZZ_CHECK(node_config_read_global(&config, document, count_line, NULL) == lines);
    check_bounds(&config);
    json_decref(document);
    node_config_finish(&config);
    free(text);
    return 0;
}
