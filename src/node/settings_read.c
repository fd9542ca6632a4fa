/* SPDX-License-Identifier: Apache-2.0 */
#include "node/settings_read.h"

#include "net/file_read.h"
#include "node/settings_flags.h"
#include "node/yaml_json.h"

#include <errno.h>
#include <stdlib.h>
#include <string.h>

static bool is_given(const struct node_settings *settings, const char *name)
{
    return settings->given & flag_table_bit(&settings_flag_table, name);
}

/* <prefix>/<name>, as the kubelet wants an extended resource. */
static bool is_resource(const char *name)
{
    const char *slash = strchr(name, '/');
    return slash && slash != name && slash[1] && !strchr(slash + 1, '/');
}

static int check(const struct node_settings *settings, struct error *error)
{
    if (!*settings->node_name)
        return error_set(error, EINVAL,
            "the node's name is missing: give --node-name, or NODE_NAME in the environment");
    if (!is_resource(settings->resource_name))
        return error_set(error, EINVAL,
            "--resource-name is \"%.100s\": a name as nvidia.com/gpu is accepted",
            settings->resource_name);
    if (!*settings->hook_path || !*settings->kubelet_socket)
        return error_set(error, EINVAL, "%s is empty: an absolute path is accepted",
            *settings->hook_path ? "--kubelet-socket" : "--hook-path");
    return 0;
}

int node_settings_read(struct node_settings *ret_settings, int argc, char *const *argv,
    enum flag_action *ret_action, flag_report *report, void *context, struct error *error)
{
    enum flag_action action;
    memset(ret_settings, 0, sizeof(*ret_settings));
    node_config_default(&ret_settings->config);
    const struct flag_reader reader = {report, context, &ret_settings->given};
    int failure =
        flag_table_read(&settings_flag_table, ret_settings, argc, argv, &reader, &action, error);
    if (!failure && action == FLAG_RUN)
        failure = check(ret_settings, error);
    if (failure)
        return failure;
    if (!*ret_settings->driver_root)
        memcpy(ret_settings->driver_root, "/", 2);
    if (!*ret_settings->dev_root)
        memcpy(ret_settings->dev_root, ret_settings->driver_root, sizeof(ret_settings->dev_root));
    ret_settings->mig_mixed = ret_settings->flag_mig_mixed;
    *ret_action = action;
    return 0;
}

/* NULL in *ret_text: there is none. */
static int read_file(
    const char *path, bool named, char **ret_text, size_t *ret_bytes, struct error *error)
{
    struct file_stamp stamp;
    *ret_text = NULL;
    if (!*path)
        return 0;
    int failure = file_read(path, NODE_CONFIG_TEXT_MAX, ret_text, ret_bytes, &stamp, error);
    if (failure == -ENOENT && !named) {
        *ret_text = NULL;
        return 0;
    }
    return failure;
}

static int load_global(const struct node_settings *settings, struct node_config *config,
    node_config_report *report, void *context, struct error *error)
{
    char *text;
    size_t bytes;
    int failure =
        read_file(settings->config_file, is_given(settings, "config-file"), &text, &bytes, error);
    if (failure || !text)
        return failure;
    json_t *document = yaml_json_read(settings->config_file, text, bytes, error);
    free(text);
    if (!document)
        return -EINVAL;
    node_config_read_global(config, document, report, context);
    json_decref(document);
    return 0;
}

static int load_node(const struct node_settings *settings, struct node_config *config,
    node_config_report *report, void *context, struct error *error)
{
    char *text;
    size_t bytes;
    json_error_t problem;
    int failure = read_file(
        settings->node_config_file, is_given(settings, "node-config-file"), &text, &bytes, error);
    if (failure || !text)
        return failure;
    json_t *document = json_loadb(text, bytes, 0, &problem);
    free(text);
    if (!document)
        return error_set(error, EINVAL, "%s: line %d: %s", settings->node_config_file, problem.line,
            problem.text);
    node_config_read_node(config, document, settings->node_name, report, context);
    json_decref(document);
    return 0;
}

/* What the flags said; the node's entry goes over it. */
static void apply_flags(const struct node_settings *settings, struct node_config *config)
{
    if (is_given(settings, "device-split-count"))
        config->split_count = settings->flag_split_count;
    if (is_given(settings, "device-memory-scaling"))
        config->memory_scaling = settings->flag_memory_scaling;
    if (is_given(settings, "device-cores-scaling"))
        config->cores_scaling = settings->flag_cores_scaling;
    if (is_given(settings, "disable-core-limit"))
        config->core_limit_disabled = settings->flag_core_limit_disabled;
    if (is_given(settings, "resource-name"))
        snprintf(config->request.count_name, sizeof(config->request.count_name), "%s",
            settings->resource_name);
}

static int check_config(const struct node_config *config, struct error *error)
{
    if (strcmp(config->mode, "hami-core") != 0)
        return error_set(error, EINVAL,
            "operatingMode is \"%s\": of HAMi's modes only hami-core is supported", config->mode);
    if (!strcmp(config->mig_strategy, "single"))
        return error_set(
            error, EINVAL, "migStrategy is \"single\": one of: none mixed is accepted");
    if (!is_resource(config->request.count_name))
        return error_set(error, EINVAL,
            "resourceCountName is \"%.100s\": a name as nvidia.com/gpu is accepted",
            config->request.count_name);
    return 0;
}

int node_settings_load(
    struct node_settings *settings, node_config_report *report, void *context, struct error *error)
{
    struct node_config config;
    node_config_default(&config);
    int failure = load_global(settings, &config, report, context, error);
    if (!failure) {
        apply_flags(settings, &config);
        failure = load_node(settings, &config, report, context, error);
    }
    if (!failure)
        failure = check_config(&config, error);
    if (failure) {
        node_config_finish(&config);
        return failure == -ENOMEM ? failure : -EINVAL;
    }
    node_config_finish(&settings->config);
    settings->config = config;
    memcpy(settings->resource_name, config.request.count_name, sizeof(settings->resource_name));
    settings->mig_mixed =
        *config.mig_strategy ? !strcmp(config.mig_strategy, "mixed") : settings->flag_mig_mixed;
    return 0;
}

void node_settings_finish(struct node_settings *settings)
{
    node_config_finish(&settings->config);
}
