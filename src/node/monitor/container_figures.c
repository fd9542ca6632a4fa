/* SPDX-License-Identifier: Apache-2.0 */
#include "node/monitor/container_figures.h"

#include "collect/collect.h"
#include "net/exposition.h"
#include "region/grant_write.h"

#include <errno.h>
#include <limits.h>
#include <math.h>
#include <stdlib.h>
#include <string.h>

#define ZONE "vGPU" /* HAMi's monitor has it with each of its metrics */
#define SECOND_NS 1e9

struct owner {
    const struct pod_names_pod *pod;
    const char *container;
};

static char *labels_of(const struct owner *owner)
{
    struct exposition_labels labels = {.length = 0};
    exposition_label(&labels, "namespace", owner->pod->namespace_name);
    exposition_label(&labels, "pod", owner->pod->name);
    exposition_label(&labels, "container", owner->container);
    exposition_label(&labels, "zone", ZONE);
    return labels.cut ? strdup("") : strdup(labels.text);
}

static bool take_labels(
    const struct owner *owner, unsigned number, const char *uuid, struct device_figures *device)
{
    struct exposition_labels labels = {.length = 0}, legacy = {.length = 0};
    exposition_label(&labels, "namespace", owner->pod->namespace_name);
    exposition_label(&labels, "pod", owner->pod->name);
    exposition_label(&labels, "container", owner->container);
    exposition_label_number(&labels, "vdevice_index", number);
    exposition_label(&labels, "device_uuid", uuid);
    exposition_label(&labels, "zone", ZONE);
    exposition_label(&legacy, "podnamespace", owner->pod->namespace_name);
    exposition_label(&legacy, "podname", owner->pod->name);
    exposition_label(&legacy, "ctrname", owner->container);
    exposition_label_number(&legacy, "vdeviceid", number);
    exposition_label(&legacy, "deviceuuid", uuid);
    exposition_label(&legacy, "zone", ZONE);
    device->labels = strdup(labels.text);
    device->legacy_labels = strdup(legacy.text);
    for (size_t i = 0; i < FIGURES; i++)
        device->values[i] = NAN;
    return device->labels && device->legacy_labels && !labels.cut && !legacy.cut;
}

/* HAMi's monitor takes a time to come for now. */
static double idle_s(uint64_t last_s, uint64_t now_s)
{
    return !last_s ? NAN : last_s < now_s ? (double)(now_s - last_s) : 0;
}

/* ---- a region of HAMi-core's ---- */

static int read_hami(const struct container *container, const struct owner *owner, uint64_t now_s,
    struct container_figures *figures)
{
    struct hami_region region;
    int error = hami_region_read(container->fd, container->kind, &region);
    if (error)
        return error;
    figures->devices = calloc(region.device_count + 1, sizeof(*figures->devices));
    for (unsigned d = 0; figures->devices && d < region.device_count; d++) {
        const struct hami_region_device *from = &region.devices[d];
        struct device_figures *device = &figures->devices[figures->device_count];
        if (!*from->uuid)
            continue;
        figures->device_count++;
        if (!take_labels(owner, d, from->uuid, device))
            return -ENOMEM;
        device->values[FIGURE_USED] = (double)from->total;
        device->values[FIGURE_LIMIT] = (double)from->memory_limit;
        device->values[FIGURE_UTILIZATION] = (double)from->sm_percent;
        device->values[FIGURE_IDLE_S] = idle_s(region.last_kernel_s, now_s);
        device->values[FIGURE_CONTEXT] = (double)from->context;
        device->values[FIGURE_MODULE] = (double)from->module;
        device->values[FIGURE_DATA] = (double)from->data;
    }
    return figures->devices ? 0 : -ENOMEM;
}

/* ---- one of ours ---- */

static void take_memory(const struct collected_device *from, double values[FIGURES])
{
    const struct collected_bytes *memory = &from->memory;
    uint64_t kinds =
        memory->context + memory->module + memory->buffer + memory->managed + memory->spilled;
    values[FIGURE_USED] = (double)memory->bytes;
    values[FIGURE_CONTEXT] = (double)memory->context;
    values[FIGURE_MODULE] = (double)memory->module;
    values[FIGURE_DATA] = (double)memory->buffer + (double)memory->managed;
    values[FIGURE_BUFFER] = (double)memory->buffer;
    values[FIGURE_MANAGED] = (double)memory->managed;
    values[FIGURE_SPILLED] = (double)memory->spilled;
    values[FIGURE_OTHER] = memory->bytes > kinds ? (double)(memory->bytes - kinds) : 0;
}

/* The grant's limits hold, whatever the region says. */
static void take_limits(
    const struct collected_device *from, const struct vgpu_grant *grant, double values[FIGURES])
{
    uint64_t memory = from->memory_limit;
    unsigned cores = from->core_limit, soft = from->core_soft_limit;
    for (unsigned i = 0; grant && i < grant->device_count && i < VGPU_GRANT_DEVICES; i++) {
        const struct vgpu_grant_device *device = &grant->devices[i];
        if (strncmp(device->uuid, from->uuid, sizeof(device->uuid)) != 0)
            continue;
        memory = device->memory_limit;
        cores = device->core_limit;
        soft = device->core_soft_limit;
    }
    values[FIGURE_LIMIT] = (double)memory;
    if (cores && cores < 100)
        values[FIGURE_CORE_LIMIT] = cores;
    if (cores && soft > cores && soft <= 100)
        values[FIGURE_CORE_SOFT_LIMIT] = soft;
}

static bool take_device(const struct collected_container *container, unsigned number,
    const struct owner *owner, const struct vgpu_grant *grant, uint64_t now_s,
    struct device_figures *device)
{
    const struct collected_device *from = &container->devices[number];
    char uuid[HAMI_REGION_UUID_BYTES];
    size_t length = strnlen(from->uuid, sizeof(uuid) - 1);
    memcpy(uuid, from->uuid, length);
    uuid[length] = '\0';
    for (size_t i = 0; i < length; i++)
        if (uuid[i] <= ' ' || uuid[i] > '~')
            uuid[i] = '?';
    if (!take_labels(owner, number, uuid, device))
        return false;
    take_memory(from, device->values);
    take_limits(from, grant, device->values);
    device->values[FIGURE_UTILIZATION] = from->share_now > 0 ? from->share_now : 0;
    device->values[FIGURE_IDLE_S] = idle_s(container->last_kernel_s, now_s);
    device->values[FIGURE_GPU_TIME_S] = (double)from->busy_ns / SECOND_NS;
    device->values[FIGURE_WAITED_S] = (double)from->waited_ns / SECOND_NS;
    device->values[FIGURE_REFUSALS] = (double)from->refusals;
    for (unsigned p = 0; p < container->process_count; p++)
        device->gates[container->processes[p].uses[number].gate] = true;
    return true;
}

static bool take_container(const struct collected_container *container, const struct owner *owner,
    const struct vgpu_grant *grant, uint64_t now_s, struct container_figures *figures)
{
    figures->is_ours = true;
    figures->paused = container->paused;
    figures->held = container->held;
    figures->lifted = grant ? grant->lifted != 0 : container->lifted;
    figures->process_count = container->process_count;
    for (unsigned p = 0; p < container->process_count; p++)
        figures->ledgers[container->processes[p].ledger] = true;
    figures->devices = calloc(container->device_count + 1, sizeof(*figures->devices));
    for (unsigned d = 0; figures->devices && d < container->device_count; d++)
        if (!take_device(
                container, d, owner, grant, now_s, &figures->devices[figures->device_count++]))
            return false;
    return figures->devices;
}

static struct vgpu_grant *read_grant(
    const struct containers *containers, const struct container *container)
{
    char path[PATH_MAX];
    struct vgpu_grant *grant = NULL;
    if (containers_grant_path(containers, container, path, sizeof(path)))
        grant = malloc(sizeof(*grant));
    if (grant && grant_write_read(path, grant) == 0)
        return grant;
    free(grant);
    return NULL;
}

/* No process is looked for in /proc: what the slots say is enough. */
static int read_ours(const struct containers *containers, const struct container *container,
    const struct owner *owner, uint64_t now_s, struct container_figures *figures)
{
    struct collected_container collected;
    char *path = strdup("");
    int error = path ? collect_region(container->fd, path, 0, &collected) : -ENOMEM;
    if (error) {
        free(path);
        return error;
    }
    struct vgpu_grant *grant = read_grant(containers, container);
    if (!take_container(&collected, owner, grant, now_s, figures))
        error = -ENOMEM;
    free(grant);
    collection_free_container(&collected);
    return error;
}

/* ---- all of them ---- */

static bool find_owner(
    const struct container *container, const struct pod_names *names, struct owner *ret_owner)
{
    if (!container->pod_uid || !container->container_name || container->fd < 0 ||
        container->kind == HAMI_REGION_NONE)
        return false;
    ret_owner->pod = pod_names_find(names, container->pod_uid);
    if (!ret_owner->pod || (!ret_owner->pod->labelled && !container->grant))
        return false;
    ret_owner->container = pod_names_container(ret_owner->pod, container->container_name);
    return ret_owner->container;
}

static void free_one(struct container_figures *figures)
{
    for (size_t d = 0; d < figures->device_count; d++) {
        free(figures->devices[d].labels);
        free(figures->devices[d].legacy_labels);
    }
    free(figures->devices);
    free(figures->labels);
}

static int read_one(struct containers *containers, const struct container *container,
    const struct owner *owner, uint64_t now_s, struct container_figures *figures)
{
    *figures = (struct container_figures){.labels = labels_of(owner)};
    if (!figures->labels)
        return -ENOMEM;
    return container->kind == HAMI_REGION_VGPU
               ? read_ours(containers, container, owner, now_s, figures)
               : read_hami(container, owner, now_s, figures);
}

int container_figures_read(struct containers *containers, const struct pod_names *names,
    uint64_t now_s, struct node_figures *ret_figures)
{
    size_t all = containers_count(containers);
    struct node_figures figures = {.list = calloc(all + 1, sizeof(*figures.list))};
    int error = figures.list ? 0 : -ENOMEM;
    for (size_t i = 0; i < all && error != -ENOMEM; i++) {
        const struct container *container = containers_at(containers, i);
        struct owner owner;
        if (!find_owner(container, names, &owner))
            continue;
        error = read_one(containers, container, &owner, now_s, &figures.list[figures.count]);
        if (!error)
            figures.count++;
        else
            free_one(&figures.list[figures.count]);
        if (error && error != -ENOMEM)
            containers_report(containers, container, "the region", error);
    }
    *ret_figures = figures;
    if (error != -ENOMEM)
        return 0;
    container_figures_free(ret_figures);
    return -ENOMEM;
}

void container_figures_free(struct node_figures *figures)
{
    for (size_t i = 0; i < figures->count; i++)
        free_one(&figures->list[i]);
    free(figures->list);
    *figures = (struct node_figures){.list = NULL};
}
