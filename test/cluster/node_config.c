/* SPDX-License-Identifier: Apache-2.0 */
#include "cluster/node_config.h"

#include "check.h"

static char lines[16][512];
static unsigned line_count;

static void keep(void *context, const char *line)
{
    (void)context;
    if (line_count < 16)
        snprintf(lines[line_count++], sizeof(lines[0]), "%s", line);
}

static unsigned read_node(struct node_config *config, const char *text)
{
    line_count = 0;
    return node_config_read_node_text(config, text, "n1", keep, NULL);
}

static unsigned read_global(struct node_config *config, const char *text)
{
    json_t *document = json_loads(text, JSON_DECODE_ANY, NULL);
    REQUIRE(document != NULL);
    line_count = 0;
    unsigned problems = node_config_read_global(config, document, keep, NULL);
    json_decref(document);
    return problems;
}

TEST("the defaults are HAMi's")
{
    struct node_config config;
    node_config_default(&config);
    CHECK_EQ(config.split_count, 2);
    CHECK(config.memory_scaling == 1 && config.cores_scaling == 1);
    CHECK_STR(config.mode, "hami-core");
    CHECK_STR(config.request.count_name, "nvidia.com/gpu");
    CHECK_EQ(config.request.default_count, 1);
    CHECK_EQ(config.request.memory_factor, 1);
    CHECK_STR(config.log_level, "");
    CHECK(!config.preferred_allocation);
}

TEST("a node's entry goes over the global block, another node's does not")
{
    struct node_config config;
    node_config_default(&config);
    CHECK_EQ(read_global(&config,
                 "{\"nvidia\":{\"resourceCountName\":\"a.b/gpu\",\"deviceSplitCount\":10,"
                 "\"deviceMemoryScaling\":1.5,\"memoryFactor\":256,\"libCudaLogLevel\":\"2\","
                 "\"disableCoreLimit\":true,\"gpuCorePolicy\":\"force\"},\"hygon\":{\"x\":1}}"),
        0);
    CHECK_EQ(config.split_count, 10);
    CHECK_EQ(read_node(&config,
                 "{\"nodeconfig\":[{\"name\":\"n0\",\"devicesplitcount\":5},"
                 "{\"name\":\"n1\",\"operatingmode\":\"mig\",\"devicememoryscaling\":1.8,"
                 "\"devicesplitcount\":7,\"libcudaloglevel\":1,\"enablenumatopology\":true,"
                 "\"migstrategy\":\"mixed\",\"preconfigureddevicememory\":1024,"
                 "\"enablegetpreferredallocation\":true,\"devicecorescaling\":2}]}"),
        0);
    CHECK_EQ(config.split_count, 7);
    CHECK(config.memory_scaling == 1.8 && config.cores_scaling == 2);
    CHECK_STR(config.mode, "mig");
    CHECK_STR(config.mig_strategy, "mixed");
    CHECK_STR(config.log_level, "1");
    CHECK_STR(config.core_policy, "force");
    CHECK_STR(config.request.count_name, "a.b/gpu");
    CHECK_EQ(config.request.memory_factor, 256);
    CHECK_EQ(config.preconfigured_memory_mib, 1024);
    CHECK(config.numa_topology && config.preferred_allocation && config.core_limit_disabled);
}

TEST("YAML's texts are read as numbers and truth values")
{
    struct node_config config;
    node_config_default(&config);
    CHECK_EQ(read_global(&config, "{\"nvidia\":{\"deviceSplitCount\":\"10\","
                                  "\"deviceMemoryScaling\":\"1.25\",\"overwriteEnv\":\"true\","
                                  "\"defaultCores\":\"30\"}}"),
        0);
    CHECK_EQ(config.split_count, 10);
    CHECK(config.memory_scaling == 1.25 && config.overwrite_env);
    CHECK_EQ(config.request.default_cores, 30);
}

TEST("null and absent leave a value, and so does an empty document")
{
    struct node_config config;
    node_config_default(&config);
    CHECK_EQ(read_global(&config, "{\"nvidia\":{\"deviceSplitCount\":null}}"), 0);
    CHECK_EQ(read_global(&config, "{\"nvidia\":null}"), 0);
    CHECK_EQ(read_global(&config, "null"), 0);
    CHECK_EQ(read_node(&config, "{}"), 0);
    CHECK_EQ(read_node(&config, "{\"nodeconfig\":null}"), 0);
    CHECK_EQ(read_node(&config, "{\"nodeconfig\":[]}"), 0);
    CHECK_EQ(config.split_count, 2);
}

TEST("each bad value is one line with name, value and what is accepted, and changes nothing")
{
    static const struct {
        const char *member, *line;
    } bad[] = {
        {"\"devicesplitcount\":0", "deviceSplitCount is 0: a whole number from 1 to 1024"},
        {"\"devicesplitcount\":1025", "deviceSplitCount is 1025"},
        {"\"devicesplitcount\":2.5", "deviceSplitCount is 2.5"},
        {"\"devicesplitcount\":\"many\"", "deviceSplitCount is many"},
        {"\"devicesplitcount\":[1]", "deviceSplitCount is [1]"},
        {"\"devicememoryscaling\":0", "deviceMemoryScaling is 0: a number above 0, up to 100"},
        {"\"devicememoryscaling\":-1", "deviceMemoryScaling is -1"},
        {"\"devicememoryscaling\":\"1e3\"", "deviceMemoryScaling is 1e3"},
        {"\"devicememoryscaling\":\"1.2.3\"", "deviceMemoryScaling is 1.2.3"},
        {"\"devicememoryscaling\":\"\"", "deviceMemoryScaling is :"},
        {"\"devicememoryscaling\":101", "deviceMemoryScaling is 101"},
        {"\"operatingmode\":\"hami\"", "operatingMode is hami: one of: hami-core mig mps"},
        {"\"operatingmode\":\"hami-core mig\"", "operatingMode is hami-core mig"},
        {"\"operatingmode\":1", "operatingMode is 1"},
        {"\"migstrategy\":\"all\"", "migStrategy is all: one of: none single mixed"},
        {"\"libcudaloglevel\":5", "libCudaLogLevel is 5: a whole number from 0 to 4"},
        {"\"enablenumatopology\":\"yes\"", "enableNumaTopology is yes: true or false"},
        {"\"enablenumatopology\":1", "enableNumaTopology is 1"},
        {"\"preconfigureddevicememory\":-1", "preConfiguredDeviceMemory is -1"},
        {"\"filterdevices\":[]", "filterDevices is []: an object"},
        {"\"filterdevices\":{\"uuid\":\"x\"}", "filterDevices.uuid is x: a list"},
        {"\"filterdevices\":{\"index\":[-1]}", "filterDevices.index has -1"},
        {"\"filterdevices\":{\"uuid\":[\"a b\"]}", "filterDevices.uuid has a b"},
        {"\"devicespiltcount\":3", "devicespiltcount is not a known key"},
        {"\"x\\n\\u001b[0m\":3", "x\\n\\x1b[0m is not a known key"},
    };
    for (size_t i = 0; i < sizeof(bad) / sizeof(bad[0]); i++) {
        struct node_config config, untouched;
        char text[256];
        node_config_default(&config);
        node_config_default(&untouched);
        snprintf(text, sizeof(text), "{\"nodeconfig\":[{\"name\":\"n1\",%s}]}", bad[i].member);
        CHECK_EQ(read_node(&config, text), 1);
        CHECK_EQ(line_count, 1);
        if (!CHECK(strstr(lines[0], bad[i].line) != NULL))
            printf("# %s, not %s\n", lines[0], bad[i].line);
        CHECK(!strncmp(lines[0], "config.json, node n1: ", 22) && !strchr(lines[0], '\n'));
        CHECK(!config.filter_uuid_count && !config.filter_index_count);
        node_config_finish(&config);
        CHECK(!memcmp(&config, &untouched, sizeof(config)));
    }
}

TEST("several bad values are a line each, and the good ones count")
{
    struct node_config config;
    node_config_default(&config);
    CHECK_EQ(read_global(&config,
                 "{\"nvidia\":{\"defaultMemory\":-1,\"defaultCores\":101,\"memoryFactor\":0,"
                 "\"resourceCountName\":\"\",\"resourceCoreName\":\"a b\",\"defaultGPUNum\":2}}"),
        5);
    CHECK_EQ(config.request.default_count, 2);
    CHECK_STR(config.request.count_name, "nvidia.com/gpu");
    CHECK_STR(config.request.cores_name, "nvidia.com/gpucores");
    CHECK_EQ(config.request.memory_factor, 1);
}

TEST("a document that is none is one line")
{
    static const char *const documents[] = {"", "{", "[]", "{\"nodeconfig\":{}}",
        "{\"nodeconfig\":[1]}", "{\"nodeconfig\":[{\"name\":1}]}", "{\"nodeconfig\":\"x\"}"};
    for (size_t i = 0; i < sizeof(documents) / sizeof(documents[0]); i++) {
        struct node_config config;
        node_config_default(&config);
        CHECK_EQ(read_node(&config, documents[i]), 1);
        CHECK_EQ(line_count, 1);
    }
    struct node_config config;
    node_config_default(&config);
    CHECK_EQ(read_global(&config, "[]"), 1);
    CHECK_EQ(read_global(&config, "{\"nvidia\":[]}"), 1);
}

TEST("filtered devices are known by UUID and by index")
{
    struct node_config config;
    node_config_default(&config);
    CHECK_EQ(read_node(&config, "{\"nodeconfig\":[{\"name\":\"n1\",\"filterdevices\":"
                                "{\"uuid\":[\"GPU-a\"],\"index\":[3]}}]}"),
        0);
    CHECK(node_config_filters(&config, "GPU-a", 0));
    CHECK(node_config_filters(&config, "GPU-b", 3));
    CHECK(!node_config_filters(&config, "GPU-b", 0));
    /* Empty lists leave it. */
    CHECK_EQ(read_node(&config, "{\"nodeconfig\":[{\"name\":\"n1\",\"filterdevices\":"
                                "{\"uuid\":[],\"index\":[]}}]}"),
        0);
    CHECK(node_config_filters(&config, "GPU-a", 0));
    node_config_finish(&config);
}

int main(int argc, char **argv)
{
    return check_run(argc, argv);
}
