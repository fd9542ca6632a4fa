/* SPDX-License-Identifier: Apache-2.0 */
/* The environment's variables, read once. */
#include "config/config.h"

#include "base/log.h"
#include "base/parse.h"
#include "base/text.h"

#include <errno.h>
#include <stddef.h>
#include <stdio.h>
#include <string.h>

static struct config_value size_value(const char *name, const char *text)
{
    struct config_value result = {VALUE_UNSET, 0};
    if (!text || !*text)
        return result;
    bool loosely = !strncmp(name, "CUDA_MEM_LIMIT", strlen("CUDA_MEM_LIMIT"));
    int error = loosely ? parse_size_loosely(text, &result.value) : parse_size(text, &result.value);
    if (error) {
        log_error(
            "%s=\"%.64s\" is %s; accepted: %s. Where it holds, the device is treated as full.",
            name, text, error == -ERANGE ? "too large" : "not a size", PARSE_SIZE_ACCEPTED);
        result.state = VALUE_INVALID;
    } else if (result.value) {
        result.state = VALUE_SET;
    }
    return result;
}

static struct config_value percent_value(const char *name, const char *text)
{
    struct config_value result = {VALUE_UNSET, 0};
    if (!text || !*text)
        return result;
    if (parse_number(text, UINT32_MAX, &result.value)) {
        log_error("%s=\"%.64s\" is not a percentage; accepted: %s. No compute limit is set.", name,
            text, PARSE_PERCENT_ACCEPTED);
        result.state = VALUE_INVALID;
    } else if (result.value > 0 && result.value < 100) {
        result.state = VALUE_SET;
    }
    return result;
}

static struct config_value soft_value(const char *name, const char *text)
{
    struct config_value result = {VALUE_UNSET, 0};
    if (parse_number(text, UINT32_MAX, &result.value)) {
        log_error("%s=\"%.64s\" is not a percentage; accepted: %s. No soft limit is set.", name,
            text, PARSE_PERCENT_ACCEPTED);
        result.state = VALUE_INVALID;
    } else if (result.value) {
        result.value = result.value < 100 ? result.value : 100;
        result.state = VALUE_SET;
    }
    return result;
}

/* `first` wins over `second`, which may be NULL; both name the same limit in different systems'
 * words. */
static void read_family(struct config_value *common, struct config_value *each,
    char *(*lookup)(const char *name), const char *first, const char *second,
    struct config_value (*parse)(const char *name, const char *text))
{
    const char *families[] = {second, first};
    for (int f = 0; f < 2; f++) {
        char name[64];
        if (!families[f])
            continue;
        const char *text = lookup(families[f]);
        if (text && *text)
            *common = parse(families[f], text);
        for (int i = 0; i < CONFIG_DEVICES; i++) {
            snprintf(name, sizeof(name), "%s_%d", families[f], i);
            text = lookup(name);
            /* An indexed 0 is a statement too: this device has no limit. */
            if (text && *text) {
                each[i] = parse(name, text);
                if (each[i].state == VALUE_UNSET)
                    each[i] = (struct config_value){VALUE_SET, 0};
            }
        }
    }
}

static void read_ledger(struct config *config, const char *text)
{
    config->ledger = LEDGER_AUTO;
    if (!text || !*text || !strcmp(text, "auto"))
        return;
    if (!strcmp(text, "rm"))
        config->ledger = LEDGER_RM;
    else if (!strcmp(text, "api"))
        config->ledger = LEDGER_API;
    else
        log_error(
            "VGPU_LEDGER=\"%.64s\" is not known; accepted: auto, rm or api. auto is used.", text);
}

static void read_gate(struct config *config, const char *text)
{
    static const char *const words[] = {"auto", "launch", "channel"};
    config->gate = GATE_AUTO;
    if (!text || !*text)
        return;
    for (unsigned i = 0; i < sizeof(words) / sizeof(words[0]); i++) {
        if (!strcmp(text, words[i])) {
            config->gate = (enum gate_choice)i;
            return;
        }
    }
    log_warning(
        "VGPU_GATE=\"%.64s\" is not known; accepted: auto, launch or channel. auto is used.", text);
}

static void read_core_policy(struct config *config, const char *text)
{
    static const struct {
        const char *word;
        enum core_policy policy;
    } known[] = {{"default", CORE_POLICY_DEFAULT}, {"force", CORE_POLICY_FORCE},
        {"FORCE", CORE_POLICY_FORCE}, {"disable", CORE_POLICY_DISABLE},
        {"DISABLE", CORE_POLICY_DISABLE}};
    config->core_policy = CORE_POLICY_DEFAULT;
    if (!text || !*text)
        return;
    for (size_t i = 0; i < sizeof(known) / sizeof(known[0]); i++) {
        if (!strcmp(text, known[i].word)) {
            config->core_policy = known[i].policy;
            return;
        }
    }
    log_warning("GPU_CORE_UTILIZATION_POLICY=\"%.64s\" is not known; accepted: default, force or "
                "disable. default is used.",
        text);
}

static void read_priority(struct config *config, const char *text)
{
    uint64_t priority = CONFIG_PRIORITY;
    config->has_priority = text && *text;
    if (config->has_priority && parse_number(text, UINT32_MAX, &priority)) {
        log_warning("CUDA_TASK_PRIORITY=\"%.64s\" is not known; accepted: %s. %d is used.", text,
            PARSE_PRIORITY_ACCEPTED, CONFIG_PRIORITY);
        priority = CONFIG_PRIORITY;
        config->has_priority = false;
    }
    config->priority = (uint32_t)priority;
}

/* 0 is as good as 1, which is how often is looked. */
static void read_record_kernel_interval(struct config *config, const char *text)
{
    uint64_t seconds = CONFIG_RECORD_KERNEL_INTERVAL_S;
    if (text && *text && parse_number(text, UINT32_MAX, &seconds)) {
        log_warning("RECORD_KERNEL_INTERVAL=\"%.64s\" is no number of seconds; accepted: %s. %d is "
                    "used.",
            text, PARSE_SECONDS_ACCEPTED, CONFIG_RECORD_KERNEL_INTERVAL_S);
        seconds = CONFIG_RECORD_KERNEL_INTERVAL_S;
    }
    config->record_kernel_interval_s = (uint32_t)seconds;
}

/* A relative one would be another in each of the container's working directories. */
static void read_registry_directory(struct config *config, const char *text)
{
    const char *path = text && *text ? text : CONFIG_BOARD_DIRECTORY;
    size_t length = strlen(path);
    if (*path == '/' && length < sizeof(config->registry_directory)) {
        memcpy(config->registry_directory, path, length + 1);
        return;
    }
    log_warning("VGPU_BOARD_DIR=\"%.64s\" is %s; accepted: the absolute path of a directory. The "
                "containers that share a GPU will not know of this one.",
        path, *path == '/' ? "too long" : "no absolute path");
}

static struct config_value value_at(
    const struct config_value *common, const struct config_value *each, int index)
{
    if (index >= 0 && index < CONFIG_DEVICES && each[index].state != VALUE_UNSET)
        return each[index].state == VALUE_SET && !each[index].value
                   ? (struct config_value){VALUE_UNSET, 0}
                   : each[index];
    return *common;
}

/* vgpu doctor sets it. */
static void read_report_directory(struct config *config, const char *text)
{
    size_t length = text ? strlen(text) : 0;
    if (!length)
        return;
    if (*text == '/' && length < sizeof(config->report_directory)) {
        memcpy(config->report_directory, text, length + 1);
        return;
    }
    log_warning("VGPU_REPORT_DIR=\"%.64s\" is %s; accepted: the absolute path of a directory. No "
                "report is written.",
        text, *text == '/' ? "too long" : "no absolute path");
}

/* What cannot rise above the compute limit is none. */
static bool is_vain(struct config_value soft, struct config_value cores)
{
    return soft.state == VALUE_SET && cores.state == VALUE_SET && soft.value <= cores.value;
}

/* Once for all devices that have neither of the two for themselves. */
static void check_soft_limits(const struct config *config)
{
    for (int i = -1; i < CONFIG_DEVICES; i++) {
        char index[8] = "";
        bool own = i >= 0 &&
                   (config->soft[i].state != VALUE_UNSET || config->cores[i].state != VALUE_UNSET);
        struct config_value soft = value_at(&config->soft_default, config->soft, i);
        struct config_value cores = config_core_limit(config, i);
        if (own)
            snprintf(index, sizeof(index), " %d", i);
        if ((own || i < 0) && is_vain(soft, cores))
            log_warning("CUDA_CORE_SOFT_LIMIT of %d percent is not above the compute limit of %d "
                        "percent (device%s); accepted: more than that. It is ignored.",
                (int)soft.value, (int)cores.value, i < 0 ? "s without limits of their own" : index);
    }
}

static void read_region_path(struct config *config, const char *text)
{
    config->region_named = text && *text;
    const char *path = config->region_named ? text : CONFIG_REGION_PATH;
    size_t length = strlen(path);
    config->region_too_long = length >= sizeof(config->region_path);
    if (config->region_too_long)
        length = sizeof(config->region_path) - 1; /* to be named where it is refused */
    memcpy(config->region_path, path, length);
    config->region_path[length] = '\0';
}

static bool read_text(char *ret_text, size_t size, const char *text)
{
    if (!text || !*text)
        return false;
    text_escape(ret_text, size, text, strlen(text));
    return true;
}

static void read_identity(struct config_identity *identity, char *(*lookup)(const char *name))
{
    static const char *const names[] = {[CONFIG_POD_NAMESPACE] = "VGPU_POD_NAMESPACE",
        [CONFIG_POD_UID] = "VGPU_POD_UID",
        [CONFIG_CONTAINER_NAME] = "VGPU_CONTAINER_NAME"};
    char *name = identity->pod_name;
    identity->given = read_text(name, sizeof(identity->pod_name), lookup("VGPU_POD_NAME")) ||
                      read_text(name, sizeof(identity->pod_name), lookup("POD_NAME"));
    for (int i = 0; i < CONFIG_IDENTITY_TEXTS; i++)
        identity->given |=
            read_text(identity->text[i], sizeof(identity->text[i]), lookup(names[i]));
}

static void read_device_lists(struct config *config, char *(*lookup)(const char *name))
{
    static const char *const variables[CONFIG_DEVICE_LISTS] = {
        "GPU_DEVICES_UUID", "MANAGER_VISIBLE_DEVICES", "NVIDIA_VISIBLE_DEVICES"};
    size_t count = 0;
    for (size_t i = 0; i < CONFIG_DEVICE_LISTS; i++) {
        const char *text = lookup(variables[i]);
        if (text && *text && strcmp(text, "all") != 0 && strcmp(text, "void") != 0 &&
            strcmp(text, "none") != 0)
            config->device_lists[count++] = text;
    }
}

void config_read(struct config *config, char *(*lookup)(const char *name))
{
    memset(config, 0, sizeof(*config));
    read_family(&config->memory_default, config->memory, lookup, "CUDA_DEVICE_MEMORY_LIMIT",
        "CUDA_MEM_LIMIT", size_value);
    read_family(&config->cores_default, config->cores, lookup, "CUDA_DEVICE_SM_LIMIT",
        "CUDA_CORE_LIMIT", percent_value);
    read_family(
        &config->soft_default, config->soft, lookup, "CUDA_CORE_SOFT_LIMIT", NULL, soft_value);
    check_soft_limits(config);
    read_priority(config, lookup("CUDA_TASK_PRIORITY"));
    read_record_kernel_interval(config, lookup("RECORD_KERNEL_INTERVAL"));
    read_registry_directory(config, lookup("VGPU_BOARD_DIR"));
    read_report_directory(config, lookup(REPORT_DIRECTORY_VARIABLE));
    read_ledger(config, lookup("VGPU_LEDGER"));
    read_gate(config, lookup("VGPU_GATE"));
    read_core_policy(config, lookup("GPU_CORE_UTILIZATION_POLICY"));
    read_region_path(config, lookup("CUDA_DEVICE_MEMORY_SHARED_CACHE"));
    read_identity(&config->identity, lookup);
    read_device_lists(config, lookup);
}

struct config_value config_memory_limit(const struct config *config, int index)
{
    return value_at(&config->memory_default, config->memory, index);
}

struct config_value config_core_limit(const struct config *config, int index)
{
    return value_at(&config->cores_default, config->cores, index);
}

struct config_value config_core_soft_limit(const struct config *config, int index)
{
    struct config_value soft = value_at(&config->soft_default, config->soft, index);
    struct config_value cores = config_core_limit(config, index);
    if (soft.state == VALUE_SET && (cores.state != VALUE_SET || is_vain(soft, cores)))
        return (struct config_value){VALUE_UNSET, 0};
    return soft;
}

bool config_limits_memory(const struct config *config)
{
    for (int i = -1; i < CONFIG_DEVICES; i++) {
        if (config_memory_limit(config, i).state != VALUE_UNSET)
            return true;
    }
    return false;
}

bool config_has_indexed_limits(const struct config *config)
{
    for (int i = 0; i < CONFIG_DEVICES; i++) {
        if (config->memory[i].state != VALUE_UNSET || config->cores[i].state != VALUE_UNSET ||
            config->soft[i].state != VALUE_UNSET)
            return true;
    }
    return false;
}

bool config_is_indexed(const struct config *config)
{
    return config->oversubscription_is_indexed || config_has_indexed_limits(config);
}

void config_forget_limits(struct config *config)
{
    const struct config_value none = {VALUE_UNSET, 0};
    config->memory_default = config->cores_default = config->soft_default = none;
    for (int i = 0; i < CONFIG_DEVICES; i++)
        config->memory[i] = config->cores[i] = config->soft[i] = none;
    config->priority = CONFIG_PRIORITY;
    config->has_priority = false;
    config->ledger = LEDGER_AUTO;
    config->core_policy = CORE_POLICY_DEFAULT;
    config->gate = GATE_AUTO;
}
