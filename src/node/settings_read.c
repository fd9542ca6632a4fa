/* SPDX-License-Identifier: Apache-2.0 */
#include "node/settings_read.h"

#include "base/text.h"
#include "net/file_read.h"
#include "node/settings_flags.h"
#include "node/yaml_json.h"

#include <errno.h>
#include <stdlib.h>
#include <string.h>

#define SHOWN_BYTES 64

static void note(struct node_settings *settings, const struct settings_flag *flag)
{
    settings->given |= 1ull << (flag - settings_flags);
}

static bool is_given(const struct node_settings *settings, const char *name)
{
    const struct settings_flag *flag = settings_flag_find(name, strlen(name));
    return settings->given & (1ull << (flag - settings_flags));
}

static void tell_unused(
    const struct settings_flag *flag, const char *shown, node_config_report *report, void *context)
{
    char line[256];
    if (flag->kind != SETTINGS_KIND_UNUSED || !report)
        return;
    snprintf(line, sizeof(line), "%s has no effect: %s", shown, flag->help);
    report(context, line);
}

static int take_defaults(struct node_settings *settings, struct error *error)
{
    for (size_t i = 0; i < settings_flag_count; i++) {
        const struct settings_flag *flag = &settings_flags[i];
        int failure = settings_flag_take(flag, flag->name, flag->value, settings, error);
        if (failure)
            return failure;
    }
    return 0;
}

/* An empty variable is as if it were not set: charts set them so. */
static int take_environment(
    struct node_settings *settings, node_config_report *report, void *context, struct error *error)
{
    for (size_t i = 0; i < settings_flag_count; i++) {
        const struct settings_flag *flag = &settings_flags[i];
        const char *name = flag->variable, *value = name ? getenv(name) : NULL;
        if ((!value || !*value) && flag->variable_alias) {
            name = flag->variable_alias;
            value = getenv(name);
        }
        if (!value || !*value)
            continue;
        int failure = settings_flag_take(flag, name, value, settings, error);
        if (failure)
            return failure;
        tell_unused(flag, name, report, context);
        note(settings, flag);
    }
    return 0;
}

/* -name VALUE, --name VALUE, --name=VALUE, --switch, as Go's flags are written. */
static int take_arguments(struct node_settings *settings, int argc, char *const *argv,
    enum settings_action *ret_action, node_config_report *report, void *context,
    struct error *error)
{
    for (int i = 1; i < argc; i++) {
        char word[SHOWN_BYTES], shown[SHOWN_BYTES];
        const char *name = argv[i] + (argv[i][0] == '-') + (argv[i][0] == '-' && argv[i][1] == '-');
        size_t length = strcspn(name, "=");
        text_escape(word, sizeof(word), argv[i], strlen(argv[i]));
        if (!strcmp(name, "help") || !strcmp(name, "h") || !strcmp(name, "version")) {
            *ret_action = *name == 'h' ? SETTINGS_HELP : SETTINGS_VERSION;
            return 0;
        }
        const struct settings_flag *flag =
            name == argv[i] ? NULL : settings_flag_find(name, length);
        if (!flag)
            return error_set(error, EINVAL, "%s is not a flag; see --help", word);
        snprintf(shown, sizeof(shown), "--%s", flag->name);
        const char *value = name[length] ? name + length + 1 : NULL;
        if (!value && settings_flag_is_switch(flag))
            value = "true";
        else if (!value && i + 1 < argc)
            value = argv[++i];
        else if (!value)
            return error_set(error, EINVAL, "%s needs a value", shown);
        int failure = settings_flag_take(flag, shown, value, settings, error);
        if (failure)
            return failure;
        tell_unused(flag, shown, report, context);
        note(settings, flag);
    }
    return 0;
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
    enum settings_action *ret_action, node_config_report *report, void *context,
    struct error *error)
{
    enum settings_action action = SETTINGS_RUN;
    memset(ret_settings, 0, sizeof(*ret_settings));
    node_config_default(&ret_settings->config);
    int failure = take_defaults(ret_settings, error);
    if (!failure)
        failure = take_environment(ret_settings, report, context, error);
    if (!failure)
        failure = take_arguments(ret_settings, argc, argv, &action, report, context, error);
    if (!failure && action == SETTINGS_RUN)
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

void node_settings_print_help(FILE *file)
{
    fputs("usage: vgpu-device-plugin [FLAG...]\n"
          "Offers a node's NVIDIA GPUs to the kubelet in shares that libvgpu.so holds.\n\n",
        file);
    for (size_t i = 0; i < settings_flag_count; i++) {
        const struct settings_flag *flag = &settings_flags[i];
        fprintf(file, "  --%s%s%s", flag->name, settings_flag_is_switch(flag) ? "" : " VALUE",
            *flag->value ? "" : "\n");
        if (*flag->value)
            fprintf(file, " (%s)\n", flag->value);
        fprintf(file, "        %s%s", flag->kind >= SETTINGS_KIND_UNUSED ? "no effect: " : "",
            flag->help);
        if (flag->accepted)
            fprintf(file, "; accepted: %s", flag->accepted);
        if (flag->alias)
            fprintf(file, "; also --%s", flag->alias);
        if (flag->variable)
            fprintf(file, " [%s]", flag->variable);
        fputc('\n', file);
    }
    fputs("  --version, --help\n"
          "A flag goes before its variable [in brackets], that before the configuration file, and "
          "the\n"
          "node's entry in the node configuration before all. SIGHUP reads both files again.\n"
          "Exit status: 0 after SIGTERM or SIGINT, 1 for a failure, 2 for flags that are not "
          "understood.\n",
        file);
}
