/* SPDX-License-Identifier: Apache-2.0 */
/* node/settings_read.h and node/yaml_json.h. */
#include "node/settings_read.h"
#include "node/yaml_json.h"

#include "check.h"

#include <errno.h>

static char said[4096];

static void note(void *context, const char *line)
{
    (void)context;
    size_t length = strlen(said);
    snprintf(said + length, sizeof(said) - length, "%s\n", line);
}

static struct node_settings settings;
static struct error error;

/* The arguments end with NULL. */
static int read_flags(const char *const *arguments)
{
    static char *argv[32];
    enum flag_action action;
    int argc = 1;
    argv[0] = (char *)"vgpu-device-plugin";
    for (; arguments[argc - 1]; argc++)
        argv[argc] = (char *)arguments[argc - 1];
    setenv("NODE_NAME", "n1", 1);
    return node_settings_read(&settings, argc, argv, &action, note, NULL, &error);
}

#define FLAGS(...) read_flags((const char *const[]){__VA_ARGS__, NULL})

static void write_file(const char *path, const char *text)
{
    FILE *file = fopen(path, "we");
    REQUIRE(file != NULL);
    REQUIRE(fputs(text, file) >= 0);
    REQUIRE(fclose(file) == 0);
}

TEST("without flags and files the defaults are HAMi's")
{
    REQUIRE(FLAGS("--config-file", "", "--node-config-file=") == 0);
    REQUIRE(node_settings_load(&settings, note, NULL, &error) == 0);
    CHECK_STR(settings.resource_name, "nvidia.com/gpu");
    CHECK_EQ(settings.config.split_count, 2);
    CHECK_EQ(settings.list_strategies, SETTINGS_LIST_ENVVAR);
    CHECK_STR(settings.hook_path, "/usr/local");
    CHECK_STR(settings.dev_root, "/");
    CHECK(!settings.mig_mixed && !settings.pass_device_specs && !settings.register_csv);
    CHECK_STR(settings.kubelet_socket, "/var/lib/kubelet/device-plugins/kubelet.sock");
    CHECK_STR(said, "");
    node_settings_finish(&settings);
}

TEST("flags are written with one dash or two, with = or a blank, and switches alone")
{
    REQUIRE(
        FLAGS("-pass-device-specs", "--device-list-strategy", "envvar,cdi-cri", "-gds-enabled=0",
            "--mofed-enabled=true", "--driver-root", "/run/nvidia", "-device-split-count=7") == 0);
    CHECK(settings.pass_device_specs && settings.mofed && !settings.gds);
    CHECK_EQ(settings.list_strategies, SETTINGS_LIST_ENVVAR | SETTINGS_LIST_CDI_CRI);
    CHECK_STR(settings.driver_root, "/run/nvidia");
    CHECK_STR(settings.dev_root, "/run/nvidia");
    CHECK_EQ(settings.flag_split_count, 7);
}

TEST("a flag goes before its variable, and an empty variable is none")
{
    setenv("DEVICE_ID_STRATEGY", "index", 1);
    setenv("MIG_STRATEGY", "", 1);
    setenv("HOOK_PATH", "/from/variable", 1);
    REQUIRE(FLAGS("--hook-path", "/from/flag") == 0);
    CHECK_STR(settings.hook_path, "/from/flag");
    CHECK(settings.index_strategy);
    CHECK(!settings.mig_mixed);
}

TEST("the file goes below flags, and the node's own entry above them")
{
    char directory[] = "/tmp/vgpu-settings-XXXXXX", global[64], node[64];
    REQUIRE(mkdtemp(directory) != NULL);
    snprintf(global, sizeof(global), "%s/a.yaml", directory);
    snprintf(node, sizeof(node), "%s/b.json", directory);
    write_file(global, "nvidia:\n  deviceSplitCount: 10\n  deviceMemoryScaling: \"1.5\"\n"
                       "  deviceCoreScaling: 3\n  resourceCountName: example.com/gpu\n");
    write_file(node, "{\"nodeconfig\": [{\"name\": \"n1\", \"devicecorescaling\": 4,"
                     " \"migstrategy\": \"mixed\"}]}");
    REQUIRE(FLAGS("--config-file", global, "--node-config-file", node, "--device-split-count=6",
                "--device-cores-scaling=5") == 0);
    CHECK_EQ(node_settings_load(&settings, note, NULL, &error), 0);
    CHECK_EQ(settings.config.split_count, 6);
    CHECK_EQ(settings.config.memory_scaling * 10, 15);
    CHECK_EQ(settings.config.cores_scaling, 4);
    CHECK_STR(settings.resource_name, "example.com/gpu");
    CHECK(settings.mig_mixed);
    /* Read again without the entry: the flag's value holds again. */
    write_file(node, "{}");
    CHECK_EQ(node_settings_load(&settings, note, NULL, &error), 0);
    CHECK(!settings.mig_mixed);
    CHECK_EQ(settings.config.cores_scaling, 5);
    /* A file that cannot be read changes nothing. */
    write_file(global, "nvidia: {deviceSplitCount: ");
    CHECK_EQ(node_settings_load(&settings, note, NULL, &error), -EINVAL);
    CHECK(strstr(error.text, "not YAML") != NULL);
    CHECK_EQ(settings.config.split_count, 6);
    CHECK_STR(said, "");
    unlink(global);
    unlink(node);
    rmdir(directory);
    node_settings_finish(&settings);
}

TEST("a file that is missing is none where it is the default, else an error")
{
    REQUIRE(FLAGS("--config-file=/nowhere/at/all") == 0);
    CHECK_EQ(node_settings_load(&settings, note, NULL, &error), -EINVAL);
    CHECK(strstr(error.text, "/nowhere/at/all") != NULL);
}

TEST("what is hostile is one line, without control characters")
{
    char longest[4000];
    memset(longest, 'x', sizeof(longest) - 1);
    longest[0] = '/';
    longest[sizeof(longest) - 1] = '\0';
    CHECK_EQ(FLAGS("--hook-path", longest), -EINVAL);
    CHECK_EQ(FLAGS("--mig-strategy", "a\nb\x1b[2J"), -EINVAL);
    CHECK(!strpbrk(error.text, "\n\x1b"));
    CHECK_EQ(FLAGS("--mig-strategy", ""), -EINVAL);
    CHECK_EQ(FLAGS("--device-list-strategy", ""), -EINVAL);
    CHECK_EQ(FLAGS("--device-list-strategy", ","), -EINVAL);
    CHECK_EQ(FLAGS("--device-memory-scaling", "0"), -EINVAL);
    CHECK_EQ(FLAGS("--device-memory-scaling", "nan"), -EINVAL);
    CHECK_EQ(FLAGS("--device-memory-scaling", "1.2.3"), -EINVAL);
    CHECK_EQ(FLAGS("--device-memory-scaling", "."), -EINVAL);
    CHECK_EQ(FLAGS("--device-split-count", "1025"), -EINVAL);
    CHECK_EQ(FLAGS("--device-split-count", "+-1"), -EINVAL);
    CHECK_EQ(FLAGS("node-name"), -EINVAL);
    CHECK_EQ(FLAGS("-"), -EINVAL);
    CHECK_EQ(FLAGS("--"), -EINVAL);
    CHECK_EQ(FLAGS("--=x"), -EINVAL);
}

static char *as_json(const char *yaml)
{
    static char text[512];
    json_t *value = yaml_json_read("f", yaml, strlen(yaml), &error);
    char *dumped = value ? json_dumps(value, JSON_ENCODE_ANY | JSON_COMPACT) : NULL;
    snprintf(text, sizeof(text), "%s", dumped ? dumped : "-");
    free(dumped);
    json_decref(value);
    return text;
}

TEST("YAML becomes JSON, scalars as they are spelled")
{
    CHECK_STR(as_json(""), "null");
    CHECK_STR(as_json("# nothing\n"), "null");
    CHECK_STR(as_json("a: 1\nb: '1'\nc: 1.5\nd: true\ne: ~\nf:\n"),
        "{\"a\":1,\"b\":\"1\",\"c\":\"1.5\",\"d\":true,\"e\":null,\"f\":null}");
    CHECK_STR(as_json("[1, [2, {x: y}]]"), "[1,[2,{\"x\":\"y\"}]]");
    CHECK_STR(as_json("a: &x {b: 1}\nc: *x\n"), "{\"a\":{\"b\":1},\"c\":{\"b\":1}}");
    CHECK_STR(as_json("a: 1\na: 2\n"), "{\"a\":2}");
    CHECK_STR(as_json("{\"json\": [true, null, -5]}"), "{\"json\":[true,null,-5]}");
}

TEST("YAML that is malformed, refers to itself or grows is refused")
{
    static const char *const texts[] = {
        "a: [", "a: b: c", "&a [*a]", "? [1]\n: 2\n", "\x80", "a: \"\\xff\\0\"\nb: *none"};
    for (size_t i = 0; i < sizeof(texts) / sizeof(texts[0]); i++) {
        *error.text = '\0';
        CHECK_STR(as_json(texts[i]), "-");
        CHECK(!strncmp(error.text, "f: ", 3));
    }
    char grown[2000] = "a0: &a0 [x,x,x,x,x,x,x,x,x,x]\n";
    for (int i = 1; i < 8; i++)
        snprintf(grown + strlen(grown), 100,
            "a%d: &a%d [*a%d,*a%d,*a%d,*a%d,*a%d,*a%d,*a%d,*a%d,*a%d,*a%d]\n", i, i, i - 1, i - 1,
            i - 1, i - 1, i - 1, i - 1, i - 1, i - 1, i - 1, i - 1);
    CHECK_STR(as_json(grown), "-");
    CHECK(strstr(error.text, "too many") != NULL);
}

int main(int argc, char **argv)
{
    return check_run(argc, argv);
}
