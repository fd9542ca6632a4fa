/* SPDX-License-Identifier: Apache-2.0 */
/* The words about a region's limits. */
#include "host/limits.h"

#include "base/parse.h"
#include "base/text.h"
#include "host/say.h"

#include <errno.h>
#include <inttypes.h>
#include <stdio.h>
#include <string.h>

static int refuse_value(const char *option, const char *text, const char *accepted)
{
    say_error("%s \"%.64s\" is not accepted; accepted: %s", option, text, accepted);
    return TOOL_USAGE;
}

int limits_parse_memory(const char *option, const char *text, struct region_change *change)
{
    if (parse_size(text, &change->memory_bytes) != 0)
        return refuse_value(option, text, PARSE_SIZE_ACCEPTED "; 0 is no limit");
    change->memory = true;
    return 0;
}

int limits_parse_cores(const char *option, const char *text, struct region_change *change)
{
    uint64_t percent;
    if (parse_number(text, 100, &percent) != 0)
        return refuse_value(option, text, PARSE_PERCENT_ACCEPTED "; 0 and 100 are no limit");
    change->core_percent = percent < 100 ? (uint32_t)percent : 0;
    change->cores = true;
    return 0;
}

int limits_parse_soft_cores(const char *option, const char *text, struct region_change *change)
{
    uint64_t percent;
    if (parse_number(text, 100, &percent) != 0)
        return refuse_value(option, text, PARSE_PERCENT_ACCEPTED "; 0 is no soft limit");
    change->soft_percent = (uint32_t)percent;
    change->soft_cores = true;
    return 0;
}

int limits_parse_priority(const char *option, const char *text, struct region_change *change)
{
    uint64_t priority;
    if (parse_number(text, UINT32_MAX, &priority) != 0)
        return refuse_value(option, text, PARSE_PRIORITY_ACCEPTED);
    change->priority_level = (uint32_t)priority;
    change->priority = true;
    return 0;
}

int limits_parse_device(const char *option, const char *text, int *ret_device)
{
    uint64_t device;
    if (parse_number(text, VGPU_REGION_DEVICES - 1, &device) != 0)
        return refuse_value(option, text, "a device's number from 0 to 63");
    *ret_device = (int)device;
    return 0;
}

void limits_print_size(char *buffer, size_t size, uint64_t bytes)
{
    const double mib = (double)(1u << 20);
    if (bytes >= 1u << 30)
        snprintf(buffer, size, "%.1f GiB", (double)bytes / (1024 * mib));
    else if (bytes && bytes < 1u << 20)
        snprintf(buffer, size, "%" PRIu64 " byte%s", bytes, bytes == 1 ? "" : "s");
    else
        snprintf(buffer, size, "%.0f MiB", (double)bytes / mib);
}

void limits_warn_of_little_memory(uint64_t limit_bytes)
{
    char size[32];
    if (!limit_bytes || limit_bytes >= LIMITS_CONTEXT_BYTES)
        return;
    limits_print_size(size, sizeof(size), limit_bytes);
    /* As of --memory 2, where a unit was forgotten. */
    const char *hint = limit_bytes < 1u << 20 ? "; a number without a unit is bytes, write 2GiB or "
                                                "1.5g"
                                              : "";
    say_error("a memory limit of %s is less than a CUDA context takes (about %llu MiB on an H100 "
              "or H200): programs may fail to start%s",
        size, LIMITS_CONTEXT_BYTES >> 20, hint);
}

static void print_limits(const struct vgpu_device *device)
{
    char size[32] = "no limit";
    if (device->memory_limit)
        limits_print_size(size, sizeof(size), device->memory_limit);
    printf("memory %s, ", device->memory_closed ? "closed: its limit was not understood" : size);
    if (device->core_limit)
        printf("cores %u %%", (unsigned)device->core_limit);
    else
        printf("cores no limit");
    if (device->core_limit && device->core_soft_limit > device->core_limit)
        printf(", up to %u %% while the GPU is otherwise idle", (unsigned)device->core_soft_limit);
}

static void print_device(int number, const struct region_look *look)
{
    char name[4 * sizeof(look->device.uuid)], used[32];
    text_escape(name, sizeof(name), look->device.uuid, strlen(look->device.uuid));
    limits_print_size(used, sizeof(used), look->used_bytes);
    printf("device %d, %s: ", number, name);
    print_limits(&look->device);
    printf("; %s in use\n", used);
}

void limits_print_region(const struct chosen_region *chosen)
{
    char path[PATH_MAX];
    text_escape(path, sizeof(path), chosen->path, strlen(chosen->path));
    printf("region %s (%s)\n", path, chosen->reason);
}

/* Two sizes that would read the same are given in bytes. */
static void warn_of_excess(int number, const struct region_look *look)
{
    char used[32], limit[32];
    if (!look->device.memory_limit || look->used_bytes <= look->device.memory_limit)
        return;
    limits_print_size(used, sizeof(used), look->used_bytes);
    limits_print_size(limit, sizeof(limit), look->device.memory_limit);
    if (!strcmp(used, limit)) {
        snprintf(used, sizeof(used), "%" PRIu64 " bytes", look->used_bytes);
        snprintf(limit, sizeof(limit), "%" PRIu64, look->device.memory_limit);
    }
    say_error("device %d: %s in use, over the new limit of %s: further allocations will be "
              "refused",
        number, used, limit);
}

void limits_warn_of_vain_soft_limit(int number, unsigned soft_percent, unsigned core_percent)
{
    char name[32] = "all devices";
    if (!soft_percent || (core_percent && soft_percent > core_percent))
        return;
    if (number != REGION_ALL_DEVICES)
        snprintf(name, sizeof(name), "device %d", number);
    if (core_percent)
        say_error("%s: the soft limit of %u %% is not above the limit of %u %%: it has no effect",
            name, soft_percent, core_percent);
    else
        say_error("%s: there is no compute limit, so the soft limit of %u %% has no effect", name,
            soft_percent);
}

int limits_refuse(const struct chosen_region *chosen, int error)
{
    say_error("cannot change the region %.256s: %s", chosen->path,
        error == -EPERM       ? "only its file's owner and root may"
        : error == -EIO       ? "its file was shortened meanwhile"
        : error == -ETIMEDOUT ? "another process has held its lock for 2 s"
        : error == -EALREADY  ? "another command has worked on it for 60 s"
        : error == -ECANCELED ? "another command has ordered something else meanwhile"
        : error == -EBUSY     ? "it is released for a checkpoint, which 'vgpu resume' ends"
                              : strerror(-error));
    return TOOL_FAILED;
}

int limits_refuse_device(const struct chosen_region *chosen, int device, int count, int error)
{
    if (error != -ENODEV)
        return limits_refuse(chosen, error);
    say_error("device %d: the programs of this container have met %d device%s so far", device,
        count, count == 1 ? "" : "s");
    return TOOL_FAILED;
}

/* What the whole container is told, where it is told something. */
static int print_state(struct chosen_region *chosen)
{
    struct region_state state;
    int error = region_set_state(&chosen->region, &state);
    if (error)
        return error;
    if (state.paused)
        puts("paused: its programs wait until 'vgpu resume'");
    if (state.held)
        puts("HAMi's monitor has it wait");
    if (state.lifted)
        puts("HAMi's monitor has lifted its compute limits (utilization_switch is 0)");
    if (state.has_priority)
        printf("priority %u\n", (unsigned)state.priority);
    return 0;
}

void limits_warn(int number, const struct region_look *look, const struct region_change *change)
{
    fflush(stdout);
    if (change && change->memory)
        warn_of_excess(number, look);
    if (change && change->soft_cores)
        limits_warn_of_vain_soft_limit(
            number, look->device.core_soft_limit, look->device.core_limit);
}

/* One device, or all and what holds for those that come. */
static int show(
    struct chosen_region *chosen, int device, int count, const struct region_change *change)
{
    struct region_look look;
    int first = device == REGION_ALL_DEVICES ? 0 : device;
    int end = device == REGION_ALL_DEVICES ? count : device + 1;
    limits_print_region(chosen);
    if (print_state(chosen) != 0)
        return limits_refuse(chosen, -EIO);
    for (int i = first; i < end; i++) {
        int error = region_set_look(&chosen->region, i, &look);
        if (error)
            return limits_refuse_device(chosen, i, count, error);
        print_device(i, &look);
        limits_warn(i, &look, change);
    }
    if (device != REGION_ALL_DEVICES)
        return 0;
    int error = region_set_look(&chosen->region, REGION_ALL_DEVICES, &look);
    if (error)
        return limits_refuse_device(chosen, 0, count, error);
    printf("%s: ", count ? "other devices" : "all devices");
    print_limits(&look.device);
    putchar('\n');
    if (!count)
        limits_warn(REGION_ALL_DEVICES, &look, change);
    return 0;
}

int limits_change(struct chosen_region *chosen, int device, const struct region_change *change)
{
    int count = region_set_device_count(&chosen->region);
    int error = count < 0 ? count : region_set_limits(&chosen->region, device, change);
    if (error)
        return limits_refuse_device(chosen, device, count, error);
    int status = show(chosen, device, count, change);
    if (!status && change->memory)
        limits_warn_of_little_memory(change->memory_bytes);
    return status;
}

int limits_print(struct chosen_region *chosen)
{
    int count = region_set_device_count(&chosen->region);
    if (count < 0)
        return limits_refuse_device(chosen, REGION_ALL_DEVICES, 0, count);
    return show(chosen, REGION_ALL_DEVICES, count, NULL);
}
