/* SPDX-License-Identifier: Apache-2.0 */
#include "cluster/allocate_answer.h"

#include "cluster/device_list.h"
#include "codec/no_memory.h"

#include <errno.h>
#include <stdarg.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

/* An answer in the making. The first failure is kept, and all later acts do nothing. */
struct making {
    const struct allocate_settings *settings;
    const struct allocate_subject *subject;
    struct allocate_answer answer;
    bool failed; /* no memory */
};

__attribute__((format(printf, 2, 3))) static char *print(
    struct making *making, const char *format, ...)
{
    char *text = NULL;
    va_list arguments;
    va_start(arguments, format);
    if (making->failed || vasprintf(&text, format, arguments) < 0) {
        making->failed = true;
        text = NULL;
    }
    va_end(arguments);
    return text;
}

/* Room for one more; NULL where there is none. */
static void *grow(struct making *making, void *list, size_t count, size_t size)
{
    void *grown = making->failed ? NULL : reallocarray(list, count + 1, size);
    making->failed |= !grown;
    return grown;
}

static void add_pair(
    struct making *making, struct allocate_pair **list, size_t *count, char *name, char *value)
{
    struct allocate_pair *grown = grow(making, *list, *count, sizeof(**list));
    if (!grown) {
        free(name);
        free(value);
        return;
    }
    *list = grown;
    grown[(*count)++] = (struct allocate_pair){name, value};
}

static void add_variable(struct making *making, char *name, char *value)
{
    add_pair(making, &making->answer.variables, &making->answer.variable_count, name, value);
}

static void set_variable(struct making *making, const char *name, const char *value)
{
    add_variable(making, print(making, "%s", name), print(making, "%s", value));
}

static void add_mount(struct making *making, char *container_path, char *host_path, bool read_only)
{
    struct allocate_answer *answer = &making->answer;
    struct allocate_mount *grown =
        grow(making, answer->mounts, answer->mount_count, sizeof(*grown));
    if (!grown) {
        free(container_path);
        free(host_path);
        return;
    }
    answer->mounts = grown;
    grown[answer->mount_count++] = (struct allocate_mount){container_path, host_path, read_only};
}

static void add_node(struct making *making, const struct allocate_node *node)
{
    struct allocate_answer *answer = &making->answer;
    for (size_t i = 0; i < answer->node_count; i++)
        if (!strcmp(answer->nodes[i].container_path, node->container_path))
            return;
    char *container_path = print(making, "%s", node->container_path);
    char *host_path = print(making, "%s", node->host_path);
    char *permissions = print(making, "%s", node->permissions);
    struct allocate_node *grown = grow(making, answer->nodes, answer->node_count, sizeof(*grown));
    if (!grown) {
        free(container_path);
        free(host_path);
        free(permissions);
        return;
    }
    answer->nodes = grown;
    grown[answer->node_count++] = (struct allocate_node){container_path, host_path, permissions};
}

static const struct allocate_card *find_card(
    const struct allocate_settings *settings, const char *uuid)
{
    char physical[DEVICE_UUID_BYTES];
    if (device_id_physical(uuid, physical))
        return NULL;
    for (size_t i = 0; i < settings->card_count; i++)
        if (!strcmp(settings->cards[i].uuid, uuid) || !strcmp(settings->cards[i].uuid, physical))
            return &settings->cards[i];
    return NULL;
}

static void add_cdi(struct making *making, char *const *ids, size_t count)
{
    const struct allocate_settings *settings = making->settings;
    struct allocate_answer *answer = &making->answer;
    char **names = calloc(count + 1, sizeof(*names));
    making->failed |= !names;
    for (size_t i = 0; names && i < count; i++)
        names[i] = print(making, "%s=%s", settings->cdi_kind, ids[i]);
    if (!making->failed && settings->strategies & ALLOCATE_CDI_ANNOTATIONS) {
        char *list = device_list_join((const char *const *)names, count);
        making->failed |= !list;
        add_pair(making, &answer->annotations, &answer->annotation_count,
            print(making, "%snvidia-device-plugin_%s", settings->cdi_prefix,
                making->subject->answer_uuid),
            list);
    }
    if (names && settings->strategies & ALLOCATE_CDI_CRI) {
        answer->cdi_names = names;
        answer->cdi_name_count = count;
        return;
    }
    for (size_t i = 0; names && i < count; i++)
        free(names[i]);
    free(names);
}

static void add_list(struct making *making, char *const *ids, size_t count)
{
    const struct allocate_settings *settings = making->settings;
    if (settings->strategies & ALLOCATE_VOLUME_MOUNTS) {
        /* The toolkit looks there only where the variable says so. */
        set_variable(making, "NVIDIA_VISIBLE_DEVICES", ALLOCATE_VOLUME_ROOT);
        for (size_t i = 0; i < count; i++)
            add_mount(making, print(making, ALLOCATE_VOLUME_ROOT "/%s", ids[i]),
                print(making, "/dev/null"), false);
        return;
    }
    char *list = device_list_join((const char *const *)ids, count);
    making->failed |= !list;
    add_variable(making, print(making, "NVIDIA_VISIBLE_DEVICES"), list);
}

/* Where CDI alone names the devices, the CDI specification has their nodes and the rest too. */
static void add_devices(struct making *making, const struct allocate_card **cards, size_t count)
{
    const struct allocate_settings *settings = making->settings;
    char **ids = calloc(count + 1, sizeof(*ids));
    making->failed |= !ids;
    for (size_t i = 0; !making->failed && i < count; i++)
        ids[i] = settings->by_index ? print(making, "%u", (unsigned)cards[i]->index)
                                    : print(making, "%s", cards[i]->uuid);
    if (!making->failed && settings->strategies & (ALLOCATE_CDI_ANNOTATIONS | ALLOCATE_CDI_CRI))
        add_cdi(making, ids, count);
    if (!making->failed && settings->strategies & (ALLOCATE_ENVVAR | ALLOCATE_VOLUME_MOUNTS)) {
        add_list(making, ids, count);
        for (size_t i = 0; settings->pass_nodes && i < settings->node_count; i++)
            add_node(making, &settings->nodes[i]);
        for (size_t i = 0; settings->pass_nodes && i < count; i++)
            for (size_t n = 0; n < cards[i]->node_count; n++)
                add_node(making, &cards[i]->nodes[n]);
        if (settings->gdrcopy)
            set_variable(making, "NVIDIA_GDRCOPY", "enabled");
        if (settings->gds)
            set_variable(making, "NVIDIA_GDS", "enabled");
        if (settings->mofed)
            set_variable(making, "NVIDIA_MOFED", "enabled");
    }
    for (size_t i = 0; ids && i < count; i++)
        free(ids[i]);
    free(ids);
}

static int add_limits(
    struct making *making, const struct pod_device *devices, size_t count, struct error *error)
{
    const struct allocate_settings *settings = making->settings;
    for (size_t i = 0; i < count; i++) {
        int32_t memory_mib = devices[i].memory_mib;
        if (!memory_mib)
            memory_mib = find_card(settings, devices[i].uuid)->memory_mib;
        if (!memory_mib)
            return error_set(error, EINVAL, "device %s: a memory limit of 0 MiB", devices[i].uuid);
        add_variable(making, print(making, "CUDA_DEVICE_MEMORY_LIMIT_%zu", i),
            print(making, "%dm", memory_mib));
    }
    add_variable(making, print(making, "CUDA_DEVICE_SM_LIMIT"),
        print(making, "%d", devices[0].cores_percent));
    add_variable(making, print(making, "CUDA_DEVICE_MEMORY_SHARED_CACHE"),
        print(making, "%s/vgpu/%s.cache", settings->hook_path, making->subject->cache_uuid));
    /* HAMi says only that; with the ratio the containers' shares add up to the card. */
    if (settings->memory_scaling > 1) {
        set_variable(making, "CUDA_OVERSUBSCRIBE", "true");
        add_variable(making, print(making, "CUDA_MEM_RATIO"),
            print(making, "%.6f", settings->memory_scaling));
    }
    if (settings->log_level && *settings->log_level)
        set_variable(making, "LIBCUDA_LOG_LEVEL", settings->log_level);
    if (settings->core_limit_disabled)
        set_variable(making, "GPU_CORE_UTILIZATION_POLICY", "disable");
    return 0;
}

static void add_mounts(struct making *making)
{
    const struct allocate_settings *settings = making->settings;
    const char *hook = settings->hook_path;
    add_mount(making, print(making, "%s/vgpu/libvgpu.so", hook),
        settings->library_path ? print(making, "%s", settings->library_path)
                               : print(making, "%s/vgpu/libvgpu.so", hook),
        true);
    add_mount(making, print(making, "%s/vgpu", hook),
        print(making, "%s", making->subject->directory), false);
    add_mount(making, print(making, ALLOCATE_LOCK_DIRECTORY),
        print(making, ALLOCATE_LOCK_DIRECTORY), false);
    if (!making->subject->control_disabled)
        add_mount(making, print(making, "/etc/ld.so.preload"),
            print(making, "%s/vgpu/ld.so.preload", hook), true);
    if (settings->has_license) {
        add_mount(
            making, print(making, "/tmp/license"), print(making, "%s/vgpu/license", hook), true);
        add_mount(making, print(making, "/usr/bin/vgpuvalidator"),
            print(making, "%s/vgpu/vgpuvalidator", hook), true);
    }
    for (size_t i = 0; i < settings->mount_count; i++)
        add_mount(making, print(making, "%s", settings->mounts[i].container_path),
            print(making, "%s", settings->mounts[i].host_path), settings->mounts[i].read_only);
}

int allocate_answer_make(const struct allocate_settings *settings,
    const struct allocate_subject *subject, const struct pod_device *devices, size_t device_count,
    struct allocate_answer *ret_answer, struct error *error)
{
    struct making making = {.settings = settings, .subject = subject};
    const struct allocate_card **cards = calloc(device_count + 1, sizeof(void *));
    size_t card_count = 0;
    bool limited = device_count && !settings->mig_mode;
    int result = cards ? 0 : no_memory(error, "Allocate");
    for (size_t i = 0; !result && i < device_count; i++) {
        const struct allocate_card *card = find_card(settings, devices[i].uuid);
        bool seen = false;
        if (!card)
            result =
                error_set(error, ENODEV, "device %s is not a device of this node", devices[i].uuid);
        if (!card)
            break;
        for (size_t k = 0; k < card_count && !seen; k++)
            seen = cards[k] == card;
        if (!seen)
            cards[card_count++] = card;
        limited = limited && !device_id_is_mig(devices[i].uuid);
    }
    if (!result)
        add_devices(&making, cards, card_count);
    if (!result && limited)
        result = add_limits(&making, devices, device_count, error);
    if (!result && limited)
        add_mounts(&making);
    if (!result && making.failed)
        result = no_memory(error, "Allocate");
    free(cards);
    if (result)
        allocate_answer_finish(&making.answer);
    else
        *ret_answer = making.answer;
    return result;
}

static void free_pairs(struct allocate_pair *pairs, size_t count)
{
    for (size_t i = 0; i < count; i++) {
        free(pairs[i].name);
        free(pairs[i].value);
    }
    free(pairs);
}

void allocate_answer_finish(struct allocate_answer *answer)
{
    free_pairs(answer->variables, answer->variable_count);
    free_pairs(answer->annotations, answer->annotation_count);
    for (size_t i = 0; i < answer->mount_count; i++) {
        free((char *)answer->mounts[i].container_path);
        free((char *)answer->mounts[i].host_path);
    }
    free(answer->mounts);
    for (size_t i = 0; i < answer->node_count; i++) {
        free((char *)answer->nodes[i].container_path);
        free((char *)answer->nodes[i].host_path);
        free((char *)answer->nodes[i].permissions);
    }
    free(answer->nodes);
    for (size_t i = 0; i < answer->cdi_name_count; i++)
        free(answer->cdi_names[i]);
    free(answer->cdi_names);
    *answer = (struct allocate_answer){0};
}

static bool is_file_name(const char *name)
{
    return *name && !strchr(name, '/') && strcmp(name, ".") != 0 && strcmp(name, "..") != 0;
}

char *allocate_directory_format(const char *hook_path, const char *pod_uid, const char *container)
{
    char *path;
    if (!is_file_name(pod_uid) || !is_file_name(container) ||
        asprintf(&path, "%s/vgpu/containers/%s_%s", hook_path, pod_uid, container) < 0)
        return NULL;
    return path;
}

int allocate_strategies_parse(const char *text, unsigned *ret_strategies, struct error *error)
{
    static const struct {
        const char *name;
        enum allocate_strategy strategy;
    } names[] = {
        {"envvar", ALLOCATE_ENVVAR},
        {"volume-mounts", ALLOCATE_VOLUME_MOUNTS},
        {"cdi-annotations", ALLOCATE_CDI_ANNOTATIONS},
        {"cdi-cri", ALLOCATE_CDI_CRI},
    };
    unsigned strategies = 0;
    for (const char *at = text; at;) {
        size_t length = strcspn(at, ","), i = 0;
        while (i < 4 && (strlen(names[i].name) != length || memcmp(names[i].name, at, length) != 0))
            i++;
        if (i == 4)
            return error_set(error, EINVAL,
                "device list strategy \"%.60s\": envvar, volume-mounts, cdi-annotations and "
                "cdi-cri are accepted, or several with commas",
                text);
        strategies |= names[i].strategy;
        at = at[length] ? at + length + 1 : NULL;
    }
    *ret_strategies = strategies;
    return 0;
}
