/* SPDX-License-Identifier: Apache-2.0 */
/* The environment of HAMi-core and vgpu-controller, read from a made-up one. */
#include "config/config.h"

#include "base/log.h"
#include "check.h"
#include "config/config_names.h"
#include "config/config_oversubscription.h"

#define GIB (1ull << 30)

static const char *const *environment; /* name, value, ..., NULL */

static char *lookup(const char *name)
{
    for (const char *const *at = environment; *at; at += 2) {
        if (!strcmp(*at, name))
            return (char *)at[1];
    }
    return NULL;
}

#define READ(...) read_from((const char *const[]){__VA_ARGS__ __VA_OPT__(, ) NULL})

static struct config *read_from(const char *const *variables)
{
    static struct config config;
    memset(&config, 0xa5, sizeof(config));
    environment = variables;
    setenv("LIBCUDA_LOG_LEVEL", "0", 1);
    config_read(&config, lookup);
    config_oversubscription_read(&config, lookup);
    return &config;
}

static void check_value(struct config_value got, enum value_state state, uint64_t value)
{
    CHECK_EQ(got.state, state);
    if (state == VALUE_SET)
        CHECK_EQ(got.value, value);
}

static void check_memory(const struct config *config, int index, uint64_t bytes)
{
    check_value(config_memory_limit(config, index), bytes ? VALUE_SET : VALUE_UNSET, bytes);
}

TEST("an empty environment asks for nothing")
{
    struct config *config = READ();
    for (int i = -1; i <= CONFIG_DEVICES; i++) {
        check_memory(config, i, 0);
        check_value(config_core_limit(config, i), VALUE_UNSET, 0);
    }
    CHECK(!config_is_indexed(config));
    CHECK_EQ(config->ledger, LEDGER_AUTO);
    CHECK_EQ(config->core_policy, CORE_POLICY_DEFAULT);
    CHECK(!config->region_named && !config->region_too_long);
    CHECK_STR(config->region_path, CONFIG_REGION_PATH);
    CHECK(config->device_lists[0] == NULL);
}

TEST("empty variables are unset variables")
{
    struct config *config = READ("CUDA_DEVICE_MEMORY_LIMIT", "", "CUDA_DEVICE_MEMORY_LIMIT_0", "",
        "CUDA_DEVICE_SM_LIMIT", "", "CUDA_DEVICE_MEMORY_SHARED_CACHE", "", "GPU_DEVICES_UUID", "");
    check_memory(config, 0, 0);
    check_value(config_core_limit(config, 0), VALUE_UNSET, 0);
    CHECK_STR(config->region_path, CONFIG_REGION_PATH);
    CHECK(!config->region_named);
    CHECK(config->device_lists[0] == NULL);
}

TEST("the un-indexed limit stands for every device")
{
    struct config *config = READ("CUDA_DEVICE_MEMORY_LIMIT", "1g", "CUDA_DEVICE_SM_LIMIT", "30");
    for (int i = -1; i <= CONFIG_DEVICES; i++) {
        check_memory(config, i, GIB);
        check_value(config_core_limit(config, i), VALUE_SET, 30);
    }
    CHECK(!config_is_indexed(config));
}

TEST("an indexed limit wins over the un-indexed one")
{
    struct config *config = READ("CUDA_DEVICE_MEMORY_LIMIT", "1g", "CUDA_DEVICE_MEMORY_LIMIT_1",
        "2g", "CUDA_DEVICE_SM_LIMIT", "30", "CUDA_DEVICE_SM_LIMIT_1", "60");
    check_memory(config, 0, GIB);
    check_memory(config, 1, 2 * GIB);
    check_memory(config, 2, GIB);
    check_value(config_core_limit(config, 1), VALUE_SET, 60);
    CHECK(config_is_indexed(config));
}

TEST("an indexed 0 means that the device has no limit")
{
    struct config *config = READ("CUDA_DEVICE_MEMORY_LIMIT", "1g", "CUDA_DEVICE_MEMORY_LIMIT_1",
        "0", "CUDA_DEVICE_SM_LIMIT", "30", "CUDA_DEVICE_SM_LIMIT_1", "0", "CUDA_DEVICE_SM_LIMIT_2",
        "100");
    check_memory(config, 0, GIB);
    check_memory(config, 1, 0);
    check_value(config_core_limit(config, 0), VALUE_SET, 30);
    check_value(config_core_limit(config, 1), VALUE_UNSET, 0);
    check_value(config_core_limit(config, 2), VALUE_UNSET, 0);
    CHECK(config_is_indexed(config));
}

TEST("the last device of the table has an index, the one after it has none")
{
    struct config *config = READ("CUDA_DEVICE_MEMORY_LIMIT_0", "1g", "CUDA_DEVICE_MEMORY_LIMIT_63",
        "2g", "CUDA_DEVICE_MEMORY_LIMIT_64", "3g");
    check_memory(config, 0, GIB);
    check_memory(config, 63, 2 * GIB);
    check_memory(config, 64, 0);
    check_memory(config, 1 << 30, 0);
    check_memory(config, -7, 0);
}

TEST("vgpu-controller's family is taken where HAMi-core's is not set")
{
    struct config *config = READ("CUDA_MEM_LIMIT", "1000m", "CUDA_MEM_LIMIT_1", "1.5g",
        "CUDA_CORE_LIMIT", "40", "CUDA_CORE_LIMIT_1", "70");
    check_memory(config, 0, 1000ull << 20);
    check_memory(config, 1, 1536ull << 20);
    check_value(config_core_limit(config, 0), VALUE_SET, 40);
    check_value(config_core_limit(config, 1), VALUE_SET, 70);
}

TEST("letters behind the unit are ignored in vgpu-controller's variables alone")
{
    struct config *config = READ("CUDA_MEM_LIMIT", "1000mx", "CUDA_MEM_LIMIT_1", "2gigabytes",
        "CUDA_DEVICE_MEMORY_LIMIT_2", "1000mx");
    check_memory(config, 0, 1000ull << 20);
    check_memory(config, 1, 2 * GIB);
    check_value(config_memory_limit(config, 2), VALUE_INVALID, 0);
}

TEST("HAMi-core's family wins over vgpu-controller's, form by form")
{
    struct config *config = READ("CUDA_MEM_LIMIT", "1g", "CUDA_DEVICE_MEMORY_LIMIT", "2g",
        "CUDA_MEM_LIMIT_1", "3g", "CUDA_DEVICE_MEMORY_LIMIT_1", "4g", "CUDA_MEM_LIMIT_2", "5g");
    check_memory(config, 0, 2 * GIB);
    check_memory(config, 1, 4 * GIB);
    check_memory(config, 2, 5 * GIB);
}

TEST("a limit of 0 is no limit")
{
    struct config *config = READ("CUDA_DEVICE_MEMORY_LIMIT", "0", "CUDA_DEVICE_SM_LIMIT", "0");
    check_memory(config, 0, 0);
    check_value(config_core_limit(config, 0), VALUE_UNSET, 0);
}

TEST("100 percent and above is no compute limit, 99 is one")
{
    check_value(config_core_limit(READ("CUDA_DEVICE_SM_LIMIT", "100"), 0), VALUE_UNSET, 0);
    check_value(config_core_limit(READ("CUDA_DEVICE_SM_LIMIT", "250"), 0), VALUE_UNSET, 0);
    check_value(config_core_limit(READ("CUDA_DEVICE_SM_LIMIT", "99"), 0), VALUE_SET, 99);
    check_value(config_core_limit(READ("CUDA_DEVICE_SM_LIMIT", "1"), 0), VALUE_SET, 1);
}

TEST("a limit that is not understood is invalid, not absent")
{
    static const char *const texts[] = {"-1", "lots", "1x", " ", "99999999999999999999", "1e9"};
    for (size_t i = 0; i < sizeof(texts) / sizeof(texts[0]); i++) {
        struct config *config = READ("CUDA_DEVICE_MEMORY_LIMIT", texts[i]);
        check_value(config_memory_limit(config, 0), VALUE_INVALID, 0);
        check_value(config_memory_limit(config, -1), VALUE_INVALID, 0);
    }
    check_value(config_core_limit(READ("CUDA_DEVICE_SM_LIMIT", "-5"), 0), VALUE_INVALID, 0);
    check_value(config_core_limit(READ("CUDA_DEVICE_SM_LIMIT", "50%"), 0), VALUE_INVALID, 0);
}

TEST("an indexed limit that is not understood does not fall back to the un-indexed one")
{
    struct config *config =
        READ("CUDA_DEVICE_MEMORY_LIMIT", "1g", "CUDA_DEVICE_MEMORY_LIMIT_0", "2giga");
    check_value(config_memory_limit(config, 0), VALUE_INVALID, 0);
    check_memory(config, 1, GIB);
}

TEST("a valid indexed limit stands beside an un-indexed one that is not understood")
{
    struct config *config =
        READ("CUDA_DEVICE_MEMORY_LIMIT", "many", "CUDA_DEVICE_MEMORY_LIMIT_0", "1g");
    check_memory(config, 0, GIB);
    check_value(config_memory_limit(config, 1), VALUE_INVALID, 0);
}

TEST("the region's path is taken, and one that is too long is unusable")
{
    struct config *config = READ("CUDA_DEVICE_MEMORY_SHARED_CACHE", "/tmp/a b/region");
    CHECK(config->region_named && !config->region_too_long);
    CHECK_STR(config->region_path, "/tmp/a b/region");
    static char path[PATH_MAX + 100];
    memset(path, 'a', PATH_MAX - 1);
    config = READ("CUDA_DEVICE_MEMORY_SHARED_CACHE", path);
    CHECK(!config->region_too_long);
    CHECK_STR(config->region_path, path);
    memset(path, 'a', sizeof(path) - 1);
    config = READ("CUDA_DEVICE_MEMORY_SHARED_CACHE", path);
    CHECK(config->region_named && config->region_too_long);
    CHECK(strlen(config->region_path) < PATH_MAX);
}

TEST("the ledger is chosen by name, and an unknown name chooses auto")
{
    CHECK_EQ(READ("VGPU_LEDGER", "rm")->ledger, LEDGER_RM);
    CHECK_EQ(READ("VGPU_LEDGER", "api")->ledger, LEDGER_API);
    CHECK_EQ(READ("VGPU_LEDGER", "auto")->ledger, LEDGER_AUTO);
    CHECK_EQ(READ("VGPU_LEDGER", "RM")->ledger, LEDGER_AUTO);
}

/* What config_read writes to stderr under the variables that read_from takes. */
static int lines_said(const char *const *variables)
{
    char text[4096];
    FILE *file = tmpfile();
    int kept = dup(STDERR_FILENO), lines = 0;
    if (!CHECK(file != NULL && kept >= 0))
        return -1;
    fflush(stderr);
    dup2(fileno(file), STDERR_FILENO);
    read_from(variables);
    dup2(kept, STDERR_FILENO);
    close(kept);
    rewind(file);
    while (fgets(text, sizeof(text), file))
        lines++;
    fclose(file);
    return lines;
}

#define LINES(...) lines_said((const char *const[]){__VA_ARGS__, NULL})

TEST("the gate is chosen by name, and a name that is not known chooses auto, with one warning")
{
    static const char *const words[] = {"Launch", "channels", " channel", "1", "launch,channel"};
    setenv("LIBCUDA_LOG_LEVEL", "1", 1);
    CHECK(log_shows(LOG_WARNING) && !log_shows(LOG_INFO)); /* which holds for the process */
    CHECK_EQ(READ("VGPU_GATE", "auto")->gate, GATE_AUTO);
    CHECK_EQ(READ("VGPU_GATE", "")->gate, GATE_AUTO);
    CHECK_EQ(READ("VGPU_GATE", "launch")->gate, GATE_LAUNCH);
    CHECK_EQ(READ("VGPU_GATE", "channel")->gate, GATE_CHANNEL);
    for (size_t i = 0; i < sizeof(words) / sizeof(words[0]); i++) {
        CHECK_EQ(READ("VGPU_GATE", words[i])->gate, GATE_AUTO);
        CHECK_EQ(LINES("VGPU_GATE", words[i]), 1);
    }
    CHECK_EQ(LINES("VGPU_GATE", "channel"), 0);
}

TEST("the policy for compute limits is chosen by HAMi's words")
{
    CHECK_EQ(READ("GPU_CORE_UTILIZATION_POLICY", "default")->core_policy, CORE_POLICY_DEFAULT);
    CHECK_EQ(READ("GPU_CORE_UTILIZATION_POLICY", "")->core_policy, CORE_POLICY_DEFAULT);
    CHECK_EQ(READ("GPU_CORE_UTILIZATION_POLICY", "force")->core_policy, CORE_POLICY_FORCE);
    CHECK_EQ(READ("GPU_CORE_UTILIZATION_POLICY", "FORCE")->core_policy, CORE_POLICY_FORCE);
    CHECK_EQ(READ("GPU_CORE_UTILIZATION_POLICY", "disable")->core_policy, CORE_POLICY_DISABLE);
    CHECK_EQ(READ("GPU_CORE_UTILIZATION_POLICY", "DISABLE")->core_policy, CORE_POLICY_DISABLE);
}

TEST("a policy that is not known is the default, with one warning")
{
    static const char *const words[] = {"Force", "disabled", "0", " force", "force,disable"};
    setenv("LIBCUDA_LOG_LEVEL", "1", 1);
    CHECK(log_shows(LOG_WARNING) && !log_shows(LOG_INFO)); /* which holds for the process */
    for (size_t i = 0; i < sizeof(words) / sizeof(words[0]); i++)
        CHECK_EQ(READ("GPU_CORE_UTILIZATION_POLICY", words[i])->core_policy, CORE_POLICY_DEFAULT);
    CHECK_EQ(LINES("GPU_CORE_UTILIZATION_POLICY", "sometimes"), 1);
    CHECK_EQ(LINES("GPU_CORE_UTILIZATION_POLICY", "force"), 0);
}

TEST("a compute limit that is not understood is said in one line each, one that is none in no line")
{
    CHECK_EQ(LINES("CUDA_DEVICE_SM_LIMIT", "50%"), 1);
    CHECK_EQ(LINES("CUDA_DEVICE_SM_LIMIT_1", "-1", "CUDA_CORE_LIMIT", "half"), 2);
    CHECK_EQ(LINES("CUDA_DEVICE_SM_LIMIT", "0", "CUDA_CORE_LIMIT_0", "100"), 0);
}

TEST("an indexed compute limit that is not understood does not fall back to the un-indexed one")
{
    struct config *config = READ("CUDA_CORE_LIMIT", "30", "CUDA_DEVICE_SM_LIMIT_0", "fifty");
    check_value(config_core_limit(config, 0), VALUE_INVALID, 0);
    check_value(config_core_limit(config, 1), VALUE_SET, 30);
}

TEST("device lists are taken in their order, without those that are one word for all or none")
{
    CHECK_STR(READ("NVIDIA_VISIBLE_DEVICES", "GPU-n")->device_lists[0], "GPU-n");
    struct config *config = READ("NVIDIA_VISIBLE_DEVICES", "GPU-n", "MANAGER_VISIBLE_DEVICES",
        "GPU-m", "GPU_DEVICES_UUID", "GPU-g");
    CHECK_STR(config->device_lists[0], "GPU-g");
    CHECK_STR(config->device_lists[1], "GPU-m");
    CHECK_STR(config->device_lists[2], "GPU-n");
    CHECK(config->device_lists[3] == NULL);
    config = READ("GPU_DEVICES_UUID", "all", "NVIDIA_VISIBLE_DEVICES", "0,1");
    CHECK_STR(config->device_lists[0], "0,1");
    CHECK(config->device_lists[1] == NULL);
    CHECK(READ("NVIDIA_VISIBLE_DEVICES", "all")->device_lists[0] == NULL);
    CHECK(READ("NVIDIA_VISIBLE_DEVICES", "none")->device_lists[0] == NULL);
    CHECK(READ("NVIDIA_VISIBLE_DEVICES", "void")->device_lists[0] == NULL);
    CHECK(READ("CUDA_VISIBLE_DEVICES", "1")->device_lists[0] == NULL);
}

/* The memory limit of a device without one of its own, by an environment of this one variable. */
static enum value_state common_by_names(const char *variable)
{
    struct config *config = READ("CUDA_DEVICE_MEMORY_LIMIT", "8g", "CUDA_MEM_LIMIT_5", "2g");
    config_names_check(config, (char *const[]){(char *)variable, NULL});
    check_value(config_memory_limit(config, 5), VALUE_SET, 2 * GIB);
    return config_memory_limit(config, 3).state;
}

TEST("a memory limit of an index that none can be closes the devices that have no limit of their "
     "own")
{
    static const char *const variables[] = {"CUDA_DEVICE_MEMORY_LIMIT_64=1g",
        "CUDA_DEVICE_MEMORY_LIMIT_-1=1g", "CUDA_DEVICE_MEMORY_LIMIT_01=1g",
        "CUDA_DEVICE_MEMORY_LIMIT_00=1g", "CUDA_DEVICE_MEMORY_LIMIT_99999999999=1g",
        "CUDA_DEVICE_MEMORY_LIMIT_18446744073709551616=1g", "CUDA_DEVICE_MEMORY_LIMIT_=1g",
        "CUDA_DEVICE_MEMORY_LIMIT_x=1g", "CUDA_DEVICE_MEMORY_LIMIT_1 =1g",
        "CUDA_DEVICE_MEMORY_LIMIT_+1=1g", "CUDA_DEVICE_MEMORY_LIMIT_1_2=bad",
        "CUDA_MEM_LIMIT_64=1g", "CUDA_MEM_LIMIT_GPU=1g"};
    for (size_t i = 0; i < sizeof(variables) / sizeof(variables[0]); i++) {
        if (!CHECK_EQ(common_by_names(variables[i]), VALUE_INVALID))
            printf("# %s\n", variables[i]);
    }
}

TEST("other names, and names that are set to nothing, say nothing of memory")
{
    static const char *const variables[] = {"CUDA_DEVICE_MEMORY_LIMIT_0=1g",
        "CUDA_DEVICE_MEMORY_LIMIT_9=1g", "CUDA_DEVICE_MEMORY_LIMIT_10=1g",
        "CUDA_DEVICE_MEMORY_LIMIT_63=1g", "CUDA_DEVICE_MEMORY_LIMIT_64=", "CUDA_MEM_LIMIT_64",
        "CUDA_DEVICE_MEMORY_LIMITS_64=1g", "CUDA_DEVICE_SM_LIMIT_64=10", "CUDA_CORE_LIMIT_x=10", "",
        "=", "LIBCUDA_LOG_LEVEL=9"};
    for (size_t i = 0; i < sizeof(variables) / sizeof(variables[0]); i++) {
        if (!CHECK_EQ(common_by_names(variables[i]), VALUE_SET))
            printf("# %s\n", variables[i]);
    }
}

static uint64_t soft_limit(const struct config *config, int index)
{
    struct config_value value = config_core_soft_limit(config, index);
    return value.state == VALUE_SET ? value.value : 0;
}

TEST("a soft limit is taken above the compute limit of its device, and 100 is all of the GPU")
{
    struct config *config = READ("CUDA_DEVICE_SM_LIMIT", "30", "CUDA_CORE_SOFT_LIMIT", "60",
        "CUDA_CORE_SOFT_LIMIT_1", "250", "CUDA_CORE_SOFT_LIMIT_2", "0", "CUDA_CORE_LIMIT_3", "59");
    CHECK_EQ(soft_limit(config, -1), 60);
    CHECK_EQ(soft_limit(config, 0), 60);
    CHECK_EQ(soft_limit(config, 1), 100);
    CHECK_EQ(soft_limit(config, 2), 0);
    CHECK_EQ(soft_limit(config, 3), 60);
    CHECK(config_is_indexed(READ("CUDA_CORE_SOFT_LIMIT_5", "60")));
    CHECK_EQ(soft_limit(READ("CUDA_DEVICE_SM_LIMIT", "30"), 0), 0);
}

TEST("a soft limit without a compute limit, or not above it, is none")
{
    CHECK_EQ(soft_limit(READ("CUDA_CORE_SOFT_LIMIT", "60"), 0), 0);
    CHECK_EQ(soft_limit(READ("CUDA_CORE_SOFT_LIMIT", "60", "CUDA_CORE_LIMIT_0", "0"), 0), 0);
    CHECK_EQ(soft_limit(READ("CUDA_CORE_SOFT_LIMIT", "30", "CUDA_CORE_LIMIT", "30"), 0), 0);
    struct config *config =
        READ("CUDA_CORE_SOFT_LIMIT", "40", "CUDA_CORE_LIMIT", "30", "CUDA_CORE_LIMIT_2", "40");
    CHECK_EQ(soft_limit(config, 2), 0);
    CHECK_EQ(soft_limit(config, 3), 40);
    config = READ("CUDA_CORE_SOFT_LIMIT", "half", "CUDA_CORE_LIMIT", "30");
    CHECK_EQ(soft_limit(config, 0), 0);
    check_value(config_core_limit(config, 0), VALUE_SET, 30);
}

TEST("a soft limit that is not above, or not understood, is said in one line")
{
    setenv("LIBCUDA_LOG_LEVEL", "1", 1);
    CHECK(log_shows(LOG_WARNING) && !log_shows(LOG_INFO));
    CHECK_EQ(LINES("CUDA_CORE_SOFT_LIMIT", "30", "CUDA_CORE_LIMIT", "30"), 1);
    CHECK_EQ(LINES("CUDA_CORE_SOFT_LIMIT", "40", "CUDA_CORE_LIMIT", "30"), 0);
    CHECK_EQ(LINES("CUDA_CORE_SOFT_LIMIT", "40", "CUDA_CORE_LIMIT", "30", "CUDA_CORE_LIMIT_0", "40",
                 "CUDA_CORE_SOFT_LIMIT_1", "10"),
        2);
    CHECK_EQ(LINES("CUDA_CORE_SOFT_LIMIT", "60%", "CUDA_CORE_LIMIT", "30"), 1);
    CHECK_EQ(LINES("CUDA_CORE_SOFT_LIMIT_3", "-1"), 1);
    CHECK_EQ(LINES("CUDA_CORE_SOFT_LIMIT", "60"), 0);
}

TEST("the priority is a whole number, 0 high, and 1 where it is not said or not understood")
{
    CHECK_EQ(READ("VGPU_LEDGER", "")->priority, 1);
    CHECK_EQ(READ("CUDA_TASK_PRIORITY", "")->priority, 1);
    CHECK_EQ(READ("CUDA_TASK_PRIORITY", "0")->priority, 0);
    CHECK_EQ(READ("CUDA_TASK_PRIORITY", "7")->priority, 7);
    setenv("LIBCUDA_LOG_LEVEL", "1", 1);
    CHECK(log_shows(LOG_WARNING) && !log_shows(LOG_INFO));
    static const char *const texts[] = {"-1", "high", "4294967296", "1.5", " "};
    for (size_t i = 0; i < sizeof(texts) / sizeof(texts[0]); i++) {
        CHECK_EQ(READ("CUDA_TASK_PRIORITY", texts[i])->priority, 1);
        CHECK_EQ(LINES("CUDA_TASK_PRIORITY", texts[i]), 1);
    }
    CHECK_EQ(LINES("CUDA_TASK_PRIORITY", "2"), 0);
}

TEST("the interval of kernel times is a whole number of seconds, and 1 where it is not understood")
{
    static const char *const texts[] = {"-1", "often", "4294967296", "1.5", " "};
    CHECK_EQ(READ("VGPU_LEDGER", "")->record_kernel_interval_s, 1);
    CHECK_EQ(READ("RECORD_KERNEL_INTERVAL", "")->record_kernel_interval_s, 1);
    CHECK_EQ(READ("RECORD_KERNEL_INTERVAL", "0")->record_kernel_interval_s, 0);
    CHECK_EQ(READ("RECORD_KERNEL_INTERVAL", "60")->record_kernel_interval_s, 60);
    setenv("LIBCUDA_LOG_LEVEL", "1", 1);
    CHECK(log_shows(LOG_WARNING) && !log_shows(LOG_INFO));
    for (size_t i = 0; i < sizeof(texts) / sizeof(texts[0]); i++) {
        CHECK_EQ(READ("RECORD_KERNEL_INTERVAL", texts[i])->record_kernel_interval_s, 1);
        CHECK_EQ(LINES("RECORD_KERNEL_INTERVAL", texts[i]), 1);
    }
    CHECK_EQ(LINES("RECORD_KERNEL_INTERVAL", "5"), 0);
}

TEST("the boards' directory is an absolute path; another is none, with one line")
{
    static char path[PATH_MAX + 10];
    setenv("LIBCUDA_LOG_LEVEL", "1", 1);
    CHECK(log_shows(LOG_WARNING) && !log_shows(LOG_INFO));
    CHECK_STR(READ("VGPU_LEDGER", "")->registry_directory, "/tmp/vgpulock");
    CHECK_STR(
        READ("VGPU_BOARD_DIR", "/run/boards of mine")->registry_directory, "/run/boards of mine");
    CHECK_STR(READ("VGPU_BOARD_DIR", "boards")->registry_directory, "");
    memset(path, 'a', sizeof(path) - 1);
    path[0] = '/';
    CHECK_STR(READ("VGPU_BOARD_DIR", path)->registry_directory, "");
    CHECK_EQ(LINES("VGPU_BOARD_DIR", path), 1);
    CHECK_EQ(LINES("VGPU_BOARD_DIR", "./boards"), 1);
    CHECK_EQ(LINES("VGPU_BOARD_DIR", "/nowhere"), 0);
}

TEST("the reports' directory is a short absolute path; another is none, with one line")
{
    static char path[REPORT_DIRECTORY_BYTES + 1];
    setenv("LIBCUDA_LOG_LEVEL", "1", 1);
    CHECK(log_shows(LOG_WARNING) && !log_shows(LOG_INFO));
    CHECK_STR(READ("VGPU_LEDGER", "")->report_directory, "");
    CHECK_STR(READ("VGPU_REPORT_DIR", "/tmp/of mine")->report_directory, "/tmp/of mine");
    CHECK_STR(READ("VGPU_REPORT_DIR", "reports")->report_directory, "");
    CHECK_EQ(LINES("VGPU_REPORT_DIR", "reports"), 1);
    memset(path, 'a', sizeof(path) - 1);
    path[0] = '/';
    CHECK_STR(READ("VGPU_REPORT_DIR", path)->report_directory, "");
    CHECK_EQ(LINES("VGPU_REPORT_DIR", path), 1);
    path[sizeof(path) - 2] = '\0';
    CHECK_STR(READ("VGPU_REPORT_DIR", path)->report_directory, path);
}

#define ONE ((uint64_t)CONFIG_RATIO_ONE)

TEST("oversubscription is off unless a word or a ratio above 1 asks for it")
{
    static const char *const words[] = {
        "CUDA_MEMORY_OVERSUBSCRIBE", "CUDA_OVERSUBSCRIBE", "CUDA_MEM_OVERSOLD"};
    CHECK(!config_oversubscribes(READ("VGPU_LEDGER", "")));
    for (size_t i = 0; i < sizeof(words) / sizeof(words[0]); i++) {
        CHECK_EQ(config_oversubscription(READ(words[i], "true"), -1), ONE);
        CHECK_EQ(config_oversubscription(READ(words[i], "1"), 3), ONE);
        CHECK_EQ(config_oversubscription(READ(words[i], "1.5"), 0), ONE * 3 / 2);
        CHECK_EQ(config_oversubscription(READ(words[i], "off"), 0), 0);
        CHECK_EQ(config_oversubscription(READ(words[i], "0.9"), 0), 0);
        CHECK_EQ(config_oversubscription(READ(words[i], "maybe"), 0), 0);
    }
    CHECK_EQ(config_oversubscription(READ("CUDA_MEM_RATIO", "1"), 0), 0);
    CHECK_EQ(config_oversubscription(READ("CUDA_MEM_RATIO", "4096"), 0), 4096 * ONE);
    CHECK_EQ(config_oversubscription(READ("CUDA_MEM_RATIO", "4097"), 0), 0);
    CHECK_EQ(config_oversubscription(READ("CUDA_MEM_RATIO", "true"), 0), 0);
}

TEST("a device's own word goes first, and so does a ratio that is named one")
{
    struct config *config = READ("CUDA_MEM_OVERSOLD", "true", "CUDA_MEM_OVERSOLD_1", "false",
        "CUDA_MEM_RATIO_2", "3", "CUDA_MEMORY_RATIO", "1.25");
    CHECK_EQ(config_oversubscription(config, -1), ONE * 5 / 4);
    CHECK_EQ(config_oversubscription(config, 0), ONE * 5 / 4);
    CHECK_EQ(config_oversubscription(config, 1), 0);
    CHECK_EQ(config_oversubscription(config, 2), 3 * ONE);
    CHECK(config_is_indexed(config) && config_oversubscribes(config));
    config = READ("CUDA_MEMORY_OVERSUBSCRIBE", "8", "CUDA_MEM_RATIO", "2");
    CHECK_EQ(config_oversubscription(config, 5), 2 * ONE);
    CHECK(!config_is_indexed(config));
    config = READ("CUDA_MEM_RATIO_1", "2");
    CHECK_EQ(config_oversubscription(config, 0), 0);
    CHECK_EQ(config_oversubscription(config, 1), 2 * ONE);
    CHECK(config_is_indexed(config) && !config_has_indexed_limits(config));
}

TEST("a variable that says no of a device, where none is asked for, changes nothing")
{
    CHECK(!config_is_indexed(READ("CUDA_MEM_RATIO_0", "1.00")));
    struct config *config = READ("CUDA_MEM_OVERSOLD_0", "false", "CUDA_DEVICE_MEMORY_LIMIT", "1g");
    CHECK(!config_is_indexed(config) && !config_oversubscribes(config));
    config = READ("CUDA_MEM_OVERSOLD", "false", "CUDA_MEM_RATIO", "2", "CUDA_MEM_RATIO_1", "3");
    CHECK_EQ(config_oversubscription(config, 0), 0);
    CHECK_EQ(config_oversubscription(config, 1), 3 * ONE);
}

TEST("what a grant says goes in place of all variables")
{
    struct config *config = READ("CUDA_MEM_RATIO_1", "2", "VGPU_HOST_POOL", "1g");
    config_oversubscription_set(config, 0);
    CHECK(!config_oversubscribes(config) && !config_is_indexed(config));
    CHECK_EQ(config_host_pool(config), UINT64_MAX);
    config_oversubscription_set(config, 3 * ONE / 2);
    CHECK_EQ(config_oversubscription(config, 5), 3 * ONE / 2);
    config_oversubscription_set(config, ONE - 1);
    CHECK(!config_oversubscribes(config));
}

TEST("the budget of host memory is none unless it is said, and nothing where it is not understood")
{
    CHECK_EQ(config_host_pool(READ("VGPU_LEDGER", "")), UINT64_MAX);
    CHECK_EQ(config_host_pool(READ("VGPU_HOST_POOL", "1.5g")), GIB * 3 / 2);
    CHECK_EQ(config_host_pool(READ("VGPU_HOST_POOL", "0")), 0);
    CHECK_EQ(config_host_pool(READ("VGPU_HOST_POOL", "lots")), 0);
}

TEST("idle memory is released only where a number of seconds is said")
{
    CHECK_EQ(config_idle_release_s(READ("VGPU_LEDGER", "")), 0);
    CHECK_EQ(config_idle_release_s(READ("VGPU_IDLE_RELEASE", "600")), 600);
    CHECK_EQ(config_idle_release_s(READ("VGPU_IDLE_RELEASE", "0")), 0);
    CHECK_EQ(config_idle_release_s(READ("VGPU_IDLE_RELEASE", "soon")), 0);
    CHECK_EQ(config_idle_release_s(READ("VGPU_IDLE_RELEASE", "31536001")), 0);
}

TEST("tenants that take turns spend a tenth of the time on moves, unless a percentage says else")
{
    CHECK_EQ(config_turn_overhead_percent(READ("VGPU_LEDGER", "")), 10);
    CHECK_EQ(config_turn_overhead_percent(READ("VGPU_TURN_OVERHEAD", "25")), 25);
    CHECK_EQ(config_turn_overhead_percent(READ("VGPU_TURN_OVERHEAD", "90")), 90);
    CHECK_EQ(config_turn_overhead_percent(READ("VGPU_TURN_OVERHEAD", "91")), 10);
    CHECK_EQ(config_turn_overhead_percent(READ("VGPU_TURN_OVERHEAD", "0")), 10);
    CHECK_EQ(config_turn_overhead_percent(READ("VGPU_TURN_OVERHEAD", "much")), 10);
    struct config *config = READ("VGPU_TURN_OVERHEAD", "1");
    config_oversubscription_set(config, 2 * ONE); /* by a grant */
    CHECK_EQ(config_turn_overhead_percent(config), 10);
}

int main(int argc, char **argv)
{
    return check_run(argc, argv);
}
