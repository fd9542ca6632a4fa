/* SPDX-License-Identifier: Apache-2.0 */
/* One region, as a container with its devices and processes. */
#include "collect/collect.h"

#include "base/saturating.h"
#include "compute/budget.h"
#include "compute/window.h"
#include "region/region_read.h"
#include "region/slot.h"
#include "collect/collect_grant.h"
#include "collect/collect_parts.h"

#include <errno.h>
#include <stdlib.h>
#include <string.h>
#include <time.h>

#define ASKED_LATELY_NS 1000000000ull
#define LAUNCHED_LATELY_S 3

/* Of the whole container, beside what its processes hold. */
struct sums {
    uint64_t lingering[VGPU_REGION_DEVICES], imported[VGPU_REGION_DEVICES];
    bool asked[VGPU_REGION_DEVICES]; /* for GPU time, just now */
    bool gated;                      /* some process was held to a compute limit */
    uint64_t own_namespace;          /* of our own pids */
};

static struct collected_bytes bytes_of(const struct vgpu_usage *usage)
{
    return (struct collected_bytes){.bytes = usage->bytes,
        .context = usage->context,
        .module = usage->module,
        .buffer = usage->buffer,
        .managed = usage->managed,
        .unexplained = usage->unexplained,
        .spilled = usage->spilled};
}

static void add_bytes(struct collected_bytes *to, const struct collected_bytes *bytes)
{
    to->bytes = saturating_sum(to->bytes, bytes->bytes);
    to->context = saturating_sum(to->context, bytes->context);
    to->module = saturating_sum(to->module, bytes->module);
    to->buffer = saturating_sum(to->buffer, bytes->buffer);
    to->managed = saturating_sum(to->managed, bytes->managed);
    to->unexplained = saturating_sum(to->unexplained, bytes->unexplained);
    to->spilled = saturating_sum(to->spilled, bytes->spilled);
}

static void take_usage(const struct region_reading *reading, const struct vgpu_slot *slot,
    struct collected_container *container, struct collected_use *uses, struct sums *sums)
{
    for (unsigned d = 0; d < reading->device_count; d++) {
        const struct vgpu_usage *usage = &slot->usage[d];
        uses[d] = (struct collected_use){
            .device = d, .memory = bytes_of(usage), .gpu_time_ns = usage->gpu_time_ns};
        if (usage->gate <= VGPU_GATE_CHANNEL)
            uses[d].gate = (enum collected_gate)usage->gate;
        sums->gated |= uses[d].gate != COLLECT_GATE_NONE;
        add_bytes(&container->devices[d].memory, &uses[d].memory);
        sums->lingering[d] = saturating_sum(sums->lingering[d], usage->lingering);
        sums->imported[d] = saturating_sum(sums->imported[d], usage->imported);
        /* The clock may have gone on since the words of GPU time were read. */
        uint64_t since = reading->read_ns - usage->asked_ns;
        sums->asked[d] |= usage->asked_ns && (since < ASKED_LATELY_NS || (int64_t)since < 0);
    }
}

/* The name that the slot has, where the command line cannot be had. */
static char *command_of(const struct vgpu_slot *slot, bool is_ours)
{
    char *command = NULL, name[sizeof(slot->command) + 1] = "";
    memcpy(name, slot->command, sizeof(slot->command));
    if (is_ours)
        command = collect_command(slot_word_pid(slot->state), name, slot->start_time);
    return command ? command : strdup(name);
}

static int add_process(const struct region_reading *reading, const struct vgpu_slot *slot,
    struct collected_container *container, struct sums *sums)
{
    struct collected_process *process = &container->processes[container->process_count];
    bool is_ours = slot->pid_namespace && slot->pid_namespace == sums->own_namespace;
    int pid = slot_word_pid(slot->state);
    *process = (struct collected_process){.pid = pid,
        .host_pid = is_ours ? pid : 0,
        .command = command_of(slot, is_ours),
        .released_bytes = slot->released,
        .release_state =
            (uint32_t)slot->release <= VGPU_RELEASE_CHECKPOINTED ? (uint32_t)slot->release : 0,
        .ledger = slot->ledger <= 2 ? (unsigned)slot->ledger : 0,
        .uses = calloc(reading->device_count + 1, sizeof(*process->uses))};
    container->namespaces[container->process_count++] = slot->pid_namespace;
    if (!process->command || !process->uses)
        return -ENOMEM;
    take_usage(reading, slot, container, process->uses, sums);
    return 0;
}

static int add_processes(
    const struct region_reading *reading, struct collected_container *container, struct sums *sums)
{
    struct vgpu_slot slot;
    size_t room = reading->slot_bound + 1;
    container->processes = calloc(room, sizeof(*container->processes));
    container->namespaces = calloc(room, sizeof(*container->namespaces));
    if (!container->processes || !container->namespaces)
        return -ENOMEM;
    for (unsigned i = 0; i < reading->slot_bound; i++) {
        bool locked;
        int live = region_read_slot(reading, i, &slot, &locked);
        if (live == 1)
            live = add_process(reading, &slot, container, sums);
        if (live < 0)
            return live;
    }
    return 0;
}

/* By the words of its budget: one that is not kept waiting has saved up time. */
static bool is_at_limit(const struct region_reading *reading, unsigned device, unsigned percent)
{
    const struct region_compute_words *words = &reading->compute[device];
    int64_t balance = (int64_t)(words->granted_ns - words->charged_ns);
    uint64_t passed = reading->read_ns - words->refilled_ns;
    if (words->refilled_ns && (int64_t)passed > 0 && passed < BUDGET_BURST_NS)
        balance += (int64_t)(passed * percent / 100);
    return balance < budget_burst_ns(percent) / 4;
}

static bool is_in_window(const struct region_reading *reading)
{
    uint64_t left = reading->head.window_until_ns - reading->read_ns;
    return reading->head.window_until_ns && left && left <= WINDOW_CLOSED_MAX_NS;
}

/* Something was launched of late, and no program was held to a limit: programs with the policy
 * `disable`. */
static bool passes_limits(const struct region_reading *reading, const struct sums *sums)
{
    uint64_t now_s = (uint64_t)time(NULL), last_s = reading->hami.last_kernel_time;
    return !sums->gated && last_s <= now_s && now_s - last_s <= LAUNCHED_LATELY_S;
}

static void finish_device(const struct region_reading *reading, unsigned number,
    const struct sums *sums, const struct collected_container *container,
    struct collected_device *device)
{
    const struct vgpu_device *held = &reading->devices[number];
    uint64_t lingering = saturating_sum(sums->lingering[number], held->orphaned);
    uint64_t given_up = lingering < sums->imported[number] ? lingering : sums->imported[number];
    bool limited = held->core_limit > 0 && held->core_limit < 100;
    bool in_force = limited && !container->lifted;
    memcpy(device->uuid, held->uuid, sizeof(device->uuid));
    device->memory.bytes = saturating_sum(device->memory.bytes, given_up);
    device->physical_bytes = held->physical_bytes;
    device->memory_limit = held->memory_limit;
    device->memory_closed = held->memory_closed != 0;
    device->core_limit = limited ? held->core_limit : 0;
    device->core_soft_limit =
        limited && held->core_soft_limit > held->core_limit && held->core_soft_limit <= 100
            ? held->core_soft_limit
            : 0;
    device->busy_ns = reading->compute[number].busy_ns;
    device->waited_ns = reading->compute[number].waited_ns;
    device->refusals = held->refusals;
    device->throttled =
        in_force && (is_in_window(reading) ||
                        (sums->asked[number] && is_at_limit(reading, number, held->core_limit)));
    collect_shares(reading, number, in_force && !passes_limits(reading, sums), device);
}

static void take_state(const struct region_reading *reading, struct collected_container *container)
{
    container->file_device = reading->status.st_dev;
    container->file_inode = reading->status.st_ino;
    container->read_ns = reading->read_ns;
    container->owner = reading->status.st_uid;
    container->deleted = reading->status.st_nlink == 0;
    container->paused = reading->head.paused != 0;
    container->held = reading->hami.recent_kernel < 0;
    container->lifted = reading->hami.utilization_switch == 0;
    container->has_priority = reading->head.priority_set == VGPU_PRIORITY_ENVIRONMENT ||
                              reading->head.priority_set == VGPU_PRIORITY_LIVE;
    container->priority = container->has_priority ? reading->head.priority : VGPU_PRIORITY_DEFAULT;
    container->last_kernel_s = reading->hami.last_kernel_time;
    container->device_count = reading->device_count;
}

/* What became of an order that work waits for. */
static void take_release(
    const struct region_reading *reading, struct collected_container *container)
{
    unsigned kind = reading->head.release & 3;
    bool holds = kind == VGPU_RELEASE_PAUSE || kind == VGPU_RELEASE_CHECKPOINT;
    for (unsigned i = 0; i < container->process_count; i++) {
        unsigned state = container->processes[i].release_state;
        bool out = state == VGPU_RELEASE_DONE || state == VGPU_RELEASE_PARTLY ||
                   state == VGPU_RELEASE_PARKED || state == VGPU_RELEASE_CHECKPOINTED;
        container->released |= holds && out;
        container->checkpointed |= state == VGPU_RELEASE_CHECKPOINTED;
    }
}

static int take_identity(
    const struct region_reading *reading, struct collected_container *container)
{
    struct region_identity identity;
    int error = region_read_identity(reading, &identity);
    if (error)
        return error;
    memcpy(container->pod_name, identity.pod_name, sizeof(container->pod_name));
    memcpy(container->pod_namespace, identity.pod_namespace, sizeof(container->pod_namespace));
    memcpy(container->pod_uid, identity.pod_uid, sizeof(container->pod_uid));
    memcpy(container->container_name, identity.container_name, sizeof(container->container_name));
    return 0;
}

/* HAMi's and Volcano's directory of a container is named <pod's uid>_<container>. */
static void take_directory(struct collected_container *container)
{
    enum { UID = 36 }; /* characters of a uid */
    const char *end = strrchr(container->path, '/'), *start = end;
    while (start && start > container->path && start[-1] != '/')
        start--;
    if (container->pod_name[0] || container->container_name[0] || !end || end - start <= UID + 1 ||
        start[UID] != '_' || strspn(start, "0123456789abcdefABCDEF-") < UID ||
        end - start - UID - 1 >= (long)sizeof(container->container_name))
        return;
    memcpy(container->pod_uid, start, UID);
    container->pod_uid[UID] = '\0';
    memcpy(container->container_name, start + UID + 1, (size_t)(end - start - UID - 1));
    container->container_name[end - start - UID - 1] = '\0';
}

int collect_region(
    int fd, char *path, uint64_t own_namespace, struct collected_container *ret_container)
{
    struct region_reading reading;
    struct sums sums = {.own_namespace = own_namespace};
    struct collected_container container = {.path = path};
    int error = region_read(fd, &reading);
    if (error)
        return error;
    take_state(&reading, &container);
    container.devices = calloc(reading.device_count + 1, sizeof(*container.devices));
    error = container.devices ? take_identity(&reading, &container) : -ENOMEM;
    if (!error)
        collect_grant(path, &reading.status, &container);
    if (!error)
        error = add_processes(&reading, &container, &sums);
    for (unsigned d = 0; d < reading.device_count && !error; d++)
        finish_device(&reading, d, &sums, &container, &container.devices[d]);
    if (error) {
        container.path = NULL; /* the caller's still */
        collection_free_container(&container);
        return error;
    }
    take_release(&reading, &container);
    take_directory(&container);
    *ret_container = container;
    return 0;
}
