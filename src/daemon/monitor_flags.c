/* SPDX-License-Identifier: Apache-2.0 */
#include "daemon/monitor_flags.h"

#include "base/text.h"
#include "cluster/duration.h"
#include "cluster/number.h"

#include <errno.h>
#include <stddef.h>
#include <stdlib.h>
#include <string.h>

#define SECOND_NS 1000000000
#define MS_NS 1000000

enum kind {
    KIND_TEXT,
    KIND_PATH, /* absolute, or "" where the default is */
    KIND_BOOL,
    KIND_SECONDS, /* uint64_t: a duration of 1 s and above */
    KIND_NS,      /* uint64_t: one of 100 ms and above */
    KIND_QUIET,   /* HAMi's; not read */
};

#define AT(member)                                                                                 \
    offsetof(struct monitor_flags, member), sizeof(((struct monitor_flags *)NULL)->member)

/* Names, variables and defaults are HAMi's where it has them. */
static const struct flag {
    const char *name, *variable;
    enum kind kind;
    size_t offset, size;
    const char *value, *help;
} flags[] = {
    {"node-name", "NODE_NAME", KIND_TEXT, AT(node_name), "", "name of the Node object; needed"},
    {"hook-path", "HOOK_PATH", KIND_PATH, AT(hook_path), "/usr/local/vgpu",
        "directory that has the directories containers and grants"},
    {"metrics-bind-address", NULL, KIND_TEXT, AT(metrics_address), ":9394",
        "address and port of /metrics and /healthz"},
    {"legacy-metrics", NULL, KIND_BOOL, AT(legacy_metrics), "false",
        "also the metrics by the names that HAMi had before 2.8"},
    {"resync-interval", "HAMI_RESYNC_INTERVAL", KIND_SECONDS, AT(resync_s), "5m",
        "age from which directories of Pods that are gone are removed"},
    {"feedback-interval", NULL, KIND_NS, AT(feedback_ns), "5s",
        "time between two rounds of the priority feedback"},
    {"nvidia-driver-root", "NVIDIA_DRIVER_ROOT", KIND_PATH, AT(driver_root), "/",
        "root of the NVIDIA driver on the host"},
    {"driver-root-ctr-path", "DRIVER_ROOT_CTR_PATH", KIND_PATH, AT(driver_root_inside),
        "/driver-root", "where that root is mounted for the monitor; tried first"},
    {"verbose", NULL, KIND_BOOL, AT(verbose), "false", "more log lines"},
    {"v", NULL, KIND_QUIET, 0, 0, "", "see --verbose"},
};
#define COUNT (sizeof(flags) / sizeof(flags[0]))

static bool take_text(const struct flag *flag, const char *value, char *to)
{
    size_t length = strlen(value);
    if (length >= flag->size || (flag->kind == KIND_PATH && length && *value != '/'))
        return false;
    for (const char *at = value; *at; at++)
        if ((unsigned char)*at <= ' ' || *at == 0x7f)
            return false;
    memcpy(to, value, length + 1);
    return true;
}

static bool take_duration(const char *value, int64_t unit_ns, int64_t least_ns, uint64_t *to)
{
    int64_t ns;
    if (duration_parse(value, &ns) || ns < least_ns)
        return false;
    *to = (uint64_t)(ns / unit_ns);
    return true;
}

static bool take(const struct flag *flag, const char *value, char *to)
{
    switch (flag->kind) {
    case KIND_TEXT:
    case KIND_PATH:
        return take_text(flag, value, to);
    case KIND_BOOL:
        return !number_parse_bool(value, strlen(value), (bool *)to);
    case KIND_SECONDS:
        return take_duration(value, SECOND_NS, SECOND_NS, (uint64_t *)(void *)to);
    case KIND_NS:
        return take_duration(value, 1, 100 * (int64_t)MS_NS, (uint64_t *)(void *)to);
    default:
        return true;
    }
}

static int take_value(const struct flag *flag, const char *shown, const char *value,
    struct monitor_flags *to, struct error *error)
{
    static const char *const accepted[] = {[KIND_TEXT] = "a text without blanks",
        [KIND_PATH] = "an absolute path",
        [KIND_BOOL] = "true or false",
        [KIND_SECONDS] = "1s and above, " DURATION_ACCEPTED,
        [KIND_NS] = "100ms and above, " DURATION_ACCEPTED,
        [KIND_QUIET] = ""};
    char quoted[64];
    if (take(flag, value, (char *)to + flag->offset))
        return 0;
    text_escape(quoted, sizeof(quoted), value, strlen(value));
    return error_set(
        error, EINVAL, "%s is \"%s\": accepted is %s", shown, quoted, accepted[flag->kind]);
}

static const struct flag *find(const char *name, size_t length)
{
    for (size_t i = 0; i < COUNT; i++)
        if (strlen(flags[i].name) == length && !memcmp(flags[i].name, name, length))
            return &flags[i];
    return NULL;
}

static int refuse(const char *argument, const char *why, struct error *error)
{
    char quoted[64];
    text_escape(quoted, sizeof(quoted), argument, strlen(argument));
    return error_set(error, EINVAL, "%s: %s; --help shows what is accepted", quoted, why);
}

/* "--name=value", "--name value", a switch also alone; one dash as well. *at is moved behind. */
static int take_argument(struct monitor_flags *to, int argc, char *const *argv, int *at,
    enum monitor_action *ret_action, struct error *error)
{
    const char *argument = argv[(*at)++];
    const char *name = argument + (argument[0] == '-') + (argument[0] && argument[1] == '-');
    size_t length = strcspn(name, "=");
    const struct flag *flag = find(name, length);
    if (!strcmp(argument, "--help") || !strcmp(argument, "-h") || !strcmp(argument, "--version")) {
        *ret_action = argument[2] == 'v' ? MONITOR_VERSION : MONITOR_HELP;
        return 0;
    }
    if (argument[0] != '-' || !flag)
        return refuse(argument, argument[0] == '-' ? "there is no such flag" : "no flag", error);
    char shown[64];
    snprintf(shown, sizeof(shown), "--%s", flag->name);
    if (name[length])
        return take_value(flag, shown, name + length + 1, to, error);
    if (flag->kind == KIND_BOOL)
        return take_value(flag, shown, "true", to, error);
    if (*at >= argc)
        return refuse(argument, "a value is missing", error);
    return take_value(flag, shown, argv[(*at)++], to, error);
}

int monitor_flags_read(struct monitor_flags *ret_flags, int argc, char *const *argv,
    enum monitor_action *ret_action, struct error *error)
{
    int failed = 0;
    *ret_flags = (struct monitor_flags){.verbose = false};
    *ret_action = MONITOR_RUN;
    for (size_t i = 0; i < COUNT && !failed; i++) {
        const char *value = flags[i].variable ? getenv(flags[i].variable) : NULL;
        failed = take_value(&flags[i], flags[i].name, flags[i].value, ret_flags, error);
        if (!failed && value && *value)
            failed = take_value(&flags[i], flags[i].variable, value, ret_flags, error);
    }
    for (int at = 1; at < argc && !failed && *ret_action == MONITOR_RUN;)
        failed = take_argument(ret_flags, argc, argv, &at, ret_action, error);
    if (failed || *ret_action != MONITOR_RUN)
        return failed;
    if (!*ret_flags->node_name)
        return error_set(
            error, EINVAL, "--node-name or NODE_NAME is missing: the name of the Node object");
    if (!*ret_flags->hook_path)
        return error_set(error, EINVAL, "--hook-path is \"\": accepted is an absolute path");
    return 0;
}

void monitor_flags_print_help(FILE *file)
{
    fputs("usage: vgpu-monitor [FLAG]...\n\n"
          "Shows what the containers of this node do with its GPUs at /metrics, tells them whose\n"
          "turn it is by their priorities, and removes what Pods left that are gone.\n\n",
        file);
    for (size_t i = 0; i < COUNT; i++) {
        const struct flag *flag = &flags[i];
        char name[64];
        snprintf(name, sizeof(name), "--%s", flag->name);
        if (flag->kind == KIND_QUIET)
            continue;
        fprintf(file, "  %-24s %s", name, flag->help);
        if (flag->variable)
            fprintf(file, " (also %s)", flag->variable);
        fprintf(file, "%s%s%s\n", *flag->value ? " [" : "", flag->value, *flag->value ? "]" : "");
    }
    fputs("  --version\n  --help\n", file);
}
