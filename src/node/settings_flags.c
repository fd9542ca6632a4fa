/* SPDX-License-Identifier: Apache-2.0 */
#include "node/settings_flags.h"

#include "base/text.h"
#include "cluster/number.h"

#include <errno.h>
#include <stdio.h>
#include <string.h>

#define SCALING_MAX 100

#define AT(member)                                                                                 \
    offsetof(struct node_settings, member), sizeof(((struct node_settings *)NULL)->member)

/* Names, variables and defaults are HAMi's where it has them (its help is not). */
const struct settings_flag settings_flags[] = {
    {"node-name", NULL, "NODE_NAME", "NodeName", SETTINGS_KIND_TEXT, AT(node_name), "", NULL,
        "name of the Node object; needed"},
    {"config-file", NULL, "CONFIG_FILE", NULL, SETTINGS_KIND_PATH, AT(config_file),
        "/device-config.yaml", NULL, "device configuration; its \"nvidia\" block is read"},
    {"node-config-file", NULL, NULL, NULL, SETTINGS_KIND_PATH, AT(node_config_file),
        "/config/config.json", NULL, "configuration by node; the entry of this node is read"},
    {"hook-path", NULL, "HOOK_PATH", NULL, SETTINGS_KIND_PATH, AT(hook_path), "/usr/local", NULL,
        "directory of the host; the node's files are below its directory vgpu"},
    {"resource-name", NULL, NULL, NULL, SETTINGS_KIND_TEXT, AT(resource_name), "nvidia.com/gpu",
        NULL, "resource as which cards are offered"},
    {"device-split-count", NULL, "DEVICE_SPLIT_COUNT", NULL, SETTINGS_KIND_COUNT,
        AT(flag_split_count), "2", NULL, "as how many devices a card is offered"},
    {"device-memory-scaling", NULL, "DEVICE_MEMORY_SCALING", NULL, SETTINGS_KIND_SCALING,
        AT(flag_memory_scaling), "1", NULL, "offered memory, in multiples of a card's"},
    {"device-cores-scaling", NULL, "DEVICE_CORES_SCALING", NULL, SETTINGS_KIND_SCALING,
        AT(flag_cores_scaling), "1", NULL, "offered cores, in multiples of a card's"},
    {"disable-core-limit", NULL, "DISABLE_CORE_LIMIT", NULL, SETTINGS_KIND_BOOL,
        AT(flag_core_limit_disabled), "false", NULL, "containers are not limited in GPU time"},
    {"mig-strategy", NULL, "MIG_STRATEGY", NULL, SETTINGS_KIND_CHOICE, AT(flag_mig_mixed), "none",
        "none mixed", "mixed: MIG devices are resources nvidia.com/mig-<profile>"},
    {"nvidia-driver-root", "driver-root", "NVIDIA_DRIVER_ROOT", NULL, SETTINGS_KIND_PATH,
        AT(driver_root), "/", NULL, "root of the NVIDIA driver on the host"},
    {"driver-root-ctr-path", "container-driver-root", "DRIVER_ROOT_CTR_PATH",
        "CONTAINER_DRIVER_ROOT", SETTINGS_KIND_PATH, AT(driver_root_inside), "/driver-root", NULL,
        "where that root is mounted for the plugin; tried first"},
    {"dev-root", "nvidia-dev-root", "NVIDIA_DEV_ROOT", NULL, SETTINGS_KIND_PATH, AT(dev_root), "",
        NULL, "root of the device nodes on the host; \"\": the driver's root"},
    {"pass-device-specs", NULL, "PASS_DEVICE_SPECS", NULL, SETTINGS_KIND_BOOL,
        AT(pass_device_specs), "false", NULL, "containers get device nodes from the kubelet"},
    {"device-list-strategy", NULL, "DEVICE_LIST_STRATEGY", NULL, SETTINGS_KIND_STRATEGIES,
        AT(list_strategies), "envvar", "envvar volume-mounts cdi-annotations cdi-cri",
        "how the container runtime is told the devices; several by commas"},
    {"device-id-strategy", NULL, "DEVICE_ID_STRATEGY", NULL, SETTINGS_KIND_CHOICE,
        AT(index_strategy), "uuid", "uuid index", "what it is told of each device"},
    {"cdi-annotation-prefix", NULL, "CDI_ANNOTATION_PREFIX", NULL, SETTINGS_KIND_TEXT,
        AT(cdi_annotation_prefix), "cdi.k8s.io/", NULL, "beginning of the CDI annotations' keys"},
    {"gdrcopy-enabled", NULL, "GDRCOPY_ENABLED", NULL, SETTINGS_KIND_BOOL, AT(gdrcopy), "false",
        NULL, "containers get NVIDIA_GDRCOPY=enabled"},
    {"gds-enabled", NULL, "GDS_ENABLED", NULL, SETTINGS_KIND_BOOL, AT(gds), "false", NULL,
        "containers get NVIDIA_GDS=enabled"},
    {"mofed-enabled", NULL, "MOFED_ENABLED", NULL, SETTINGS_KIND_BOOL, AT(mofed), "false", NULL,
        "containers get NVIDIA_MOFED=enabled"},
    {"kubelet-socket", NULL, "KUBELET_SOCKET", NULL, SETTINGS_KIND_PATH, AT(kubelet_socket),
        "/var/lib/kubelet/device-plugins/kubelet.sock", NULL,
        "the kubelet's; the plugin's sockets lie beside it"},
    {"pod-resources-socket", NULL, NULL, NULL, SETTINGS_KIND_PATH, AT(pod_resources_socket),
        "/var/lib/kubelet/pod-resources/kubelet.sock", NULL, "the kubelet's, for Pod resources"},
    {"register-format", NULL, NULL, NULL, SETTINGS_KIND_CHOICE, AT(register_csv), "json",
        "json csv", "csv: for schedulers up to HAMi 2.7, with the handshake that they expect"},
    {"enable-topology-score", NULL, "ENABLE_TOPOLOGY_SCORE", NULL, SETTINGS_KIND_BOOL,
        AT(topology_score), "false", NULL, "tell the scheduler how well cards are connected"},
    {"require-proof", NULL, NULL, NULL, SETTINGS_KIND_BOOL, AT(require_proof), "false", NULL,
        "only Pods whose assignment is proven are served"},
    {"proof-key-file", NULL, NULL, NULL, SETTINGS_KIND_PATH, AT(proof_key_file), "", NULL,
        "key of at least 16 bytes that the scheduler's proofs are made with"},
    {"disable-health-checks", NULL, "DP_DISABLE_HEALTHCHECKS", NULL, SETTINGS_KIND_TEXT,
        AT(disable_health_checks), "", NULL,
        "\"all\" or \"xids\": no Xid counts; or numbers of Xids that do not, by commas"},
    {"enable-health-checks", NULL, "DP_ENABLE_HEALTHCHECKS", NULL, SETTINGS_KIND_TEXT,
        AT(enable_health_checks), "", NULL,
        "\"all\", or numbers of Xids that count though they are ignored by default"},
    {"library-source", NULL, NULL, NULL, SETTINGS_KIND_PATH, AT(library_source),
        "/k8s-vgpu/lib/nvidia/libvgpu.so", NULL,
        "library that is put into <hook-path>/vgpu; \"\": none"},
    {"installer", NULL, NULL, NULL, SETTINGS_KIND_PATH, AT(installer), "/usr/bin/vgpu-install",
        NULL, "the program that does it"},
    {"rescan-interval", NULL, NULL, NULL, SETTINGS_KIND_COUNT, AT(rescan_interval_s), "30", NULL,
        "seconds between two looks at all cards"},
    {"verbose", NULL, NULL, NULL, SETTINGS_KIND_BOOL, AT(verbose), "false", NULL, "more log lines"},
    {"device-discovery-strategy", NULL, "DEVICE_DISCOVERY_STRATEGY", NULL, SETTINGS_KIND_ONLY, 0, 0,
        "auto", "auto nvml", "cards are found through NVML"},
    {"fail-on-init-error", NULL, "FAIL_ON_INIT_ERROR", NULL, SETTINGS_KIND_QUIET, 0, 0, "", NULL,
        "a driver that is missing is waited for"},
    {"v", NULL, NULL, NULL, SETTINGS_KIND_QUIET, 0, 0, "", NULL, "see --verbose"},
    {"nvidia-cdi-hook-path", "nvidia-ctk-path", "NVIDIA_CDI_HOOK_PATH", "NVIDIA_CTK_PATH",
        SETTINGS_KIND_UNUSED, 0, 0, "", NULL, "no CDI specification is written"},
    {"mps-root", NULL, "MPS_ROOT", NULL, SETTINGS_KIND_UNUSED, 0, 0, "", NULL,
        "MPS is not supported"},
    {"imex-channel-ids", NULL, "IMEX_CHANNEL_IDS", NULL, SETTINGS_KIND_UNUSED, 0, 0, "", NULL,
        "IMEX is not supported"},
    {"imex-required", NULL, "IMEX_REQUIRED", NULL, SETTINGS_KIND_UNUSED, 0, 0, "", NULL,
        "IMEX is not supported"},
};
const size_t settings_flag_count = sizeof(settings_flags) / sizeof(settings_flags[0]);

_Static_assert(sizeof(settings_flags) / sizeof(settings_flags[0]) <= 64, "bits of given");

static bool equals(const char *name, const char *text, size_t length)
{
    return name && strlen(name) == length && !memcmp(name, text, length);
}

const struct settings_flag *settings_flag_find(const char *name, size_t length)
{
    for (size_t i = 0; i < settings_flag_count; i++)
        if (equals(settings_flags[i].name, name, length) ||
            equals(settings_flags[i].alias, name, length))
            return &settings_flags[i];
    return NULL;
}

bool settings_flag_is_switch(const struct settings_flag *flag)
{
    return flag->kind == SETTINGS_KIND_BOOL || !strcmp(flag->name, "fail-on-init-error") ||
           !strcmp(flag->name, "imex-required");
}

/* Its place among space-separated words, from 0 on; below 0: none of them. */
static int place_of(const char *words, const char *text, size_t length)
{
    int place = 0;
    for (const char *at = words; length && *at; place++) {
        size_t word = strcspn(at, " ");
        if (word == length && !memcmp(at, text, word))
            return place;
        at += word + (at[word] == ' ');
    }
    return -1;
}

static bool take_text(const char *value, size_t size, bool path, char *to)
{
    size_t length = strlen(value);
    if (length >= size || (path && length && *value != '/'))
        return false;
    for (const char *at = value; *at; at++)
        if ((unsigned char)*at <= ' ' || *at == 0x7f)
            return false;
    memcpy(to, value, length + 1);
    return true;
}

/* Digits with a point: strtod would take a locale's point, "inf" and "0x". */
static bool take_scaling(const char *value, double *to)
{
    size_t digits = strspn(value, "0123456789."), points = 0;
    for (const char *at = value; *at; at++)
        points += *at == '.';
    if (!digits || value[digits] || points > 1 || digits > 20)
        return false;
    double number = 0, scale = 1;
    bool fraction = false;
    for (const char *at = value; *at; at++) {
        if (*at == '.') {
            fraction = true;
        } else {
            number = number * 10 + (*at - '0');
            scale *= fraction ? 10 : 1;
        }
    }
    number /= scale;
    if (number <= 0 || number > SCALING_MAX)
        return false;
    *to = number;
    return true;
}

static bool take_strategies(const char *words, const char *value, unsigned *to)
{
    unsigned strategies = 0;
    for (const char *at = value; *at;) {
        size_t length = strcspn(at, ",");
        int place = place_of(words, at, length);
        if (place < 0)
            return false;
        strategies |= 1u << place;
        at += length + (at[length] == ',');
    }
    if (!strategies)
        return false;
    *to = strategies;
    return true;
}

static bool take(const struct settings_flag *flag, const char *value, char *to)
{
    bool truth;
    int place;
    switch (flag->kind) {
    case SETTINGS_KIND_TEXT:
        return take_text(value, flag->size, false, to);
    case SETTINGS_KIND_PATH:
        return take_text(value, flag->size, true, to);
    case SETTINGS_KIND_BOOL:
        if (number_parse_bool(value, strlen(value), &truth))
            return false;
        *(bool *)to = truth;
        return true;
    case SETTINGS_KIND_COUNT:
        return !number_parse(value, strlen(value), 1, NODE_CONFIG_SPLIT_MAX, (int64_t *)to);
    case SETTINGS_KIND_SCALING:
        return take_scaling(value, (double *)to);
    case SETTINGS_KIND_STRATEGIES:
        return take_strategies(flag->accepted, value, (unsigned *)to);
    case SETTINGS_KIND_CHOICE:
        place = place_of(flag->accepted, value, strlen(value));
        if (place >= 0)
            *(bool *)to = place == 1;
        return place >= 0;
    case SETTINGS_KIND_ONLY:
        return place_of(flag->accepted, value, strlen(value)) >= 0;
    default:
        return true;
    }
}

static void describe(const struct settings_flag *flag, char *text, size_t size)
{
    switch (flag->kind) {
    case SETTINGS_KIND_TEXT:
        snprintf(text, size, "a text without blanks, shorter than %zu bytes", flag->size);
        break;
    case SETTINGS_KIND_PATH:
        snprintf(text, size, "an absolute path, shorter than %zu bytes", flag->size);
        break;
    case SETTINGS_KIND_BOOL:
        snprintf(text, size, "true or false");
        break;
    case SETTINGS_KIND_COUNT:
        snprintf(text, size, "a whole number from 1 to %d", NODE_CONFIG_SPLIT_MAX);
        break;
    case SETTINGS_KIND_SCALING:
        snprintf(text, size, "a number above 0, up to %d", SCALING_MAX);
        break;
    default:
        snprintf(text, size, "%s: %s",
            flag->kind == SETTINGS_KIND_STRATEGIES ? "a list by commas of" : "one of",
            flag->accepted ? flag->accepted : "");
    }
}

int settings_flag_take(const struct settings_flag *flag, const char *shown, const char *value,
    struct node_settings *settings, struct error *error)
{
    char accepted[128], quoted[64];
    if (take(flag, value, (char *)settings + flag->offset))
        return 0;
    describe(flag, accepted, sizeof(accepted));
    text_escape(quoted, sizeof(quoted), value, strlen(value));
    return error_set(error, EINVAL, "%s is \"%s\": %s is accepted", shown, quoted, accepted);
}
