/* SPDX-License-Identifier: Apache-2.0 */
/* The words about a region's limits. */
#include "tool/limits.h"

#include "base/parse.h"
#include "base/text.h"
#include "tool/tool.h"

#include <errno.h>
#include <inttypes.h>
#include <stdio.h>
#include <string.h>

static int refuse_value(const char *option, const char *text, const char *accepted)
{
    tool_error("%s \"%.64s\" is not accepted; accepted: %s", option, text, accepted);
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

int limits_parse_device(const char *option, const char *text, int *ret_device)
{
    uint64_t device;
    if (parse_number(text, VGPU_REGION_DEVICES - 1, &device) != 0)
        return refuse_value(option, text, "a device's number from 0 to 63");
    *ret_device = (int)device;
    return 0;
}

static void print_size(char *buffer, size_t size, uint64_t bytes)
{
    const double mib = (double)(1u << 20);
    if (bytes >= 1u << 30)
        snprintf(buffer, size, "%.1f GiB", (double)bytes / (1024 * mib));
    else
        snprintf(buffer, size, "%.0f MiB", (double)bytes / mib);
}

static void print_limits(const struct vgpu_device *device)
{
    char size[32] = "no limit";
    if (device->memory_limit)
        print_size(size, sizeof(size), device->memory_limit);
    printf("memory %s, ", device->memory_closed ? "closed: its limit was not understood" : size);
    if (device->core_limit)
        printf("cores %u %%", (unsigned)device->core_limit);
    else
        printf("cores no limit");
}

static void print_device(int number, const struct region_look *look)
{
    char name[4 * sizeof(look->device.uuid)], used[32];
    text_escape(name, sizeof(name), look->device.uuid, strlen(look->device.uuid));
    print_size(used, sizeof(used), look->used_bytes);
    printf("device %d, %s: ", number, name);
    print_limits(&look->device);
    printf("; %s in use\n", used);
}

static void print_region(const struct chosen_region *chosen)
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
    print_size(used, sizeof(used), look->used_bytes);
    print_size(limit, sizeof(limit), look->device.memory_limit);
    if (!strcmp(used, limit)) {
        snprintf(used, sizeof(used), "%" PRIu64 " bytes", look->used_bytes);
        snprintf(limit, sizeof(limit), "%" PRIu64, look->device.memory_limit);
    }
    tool_error("device %d: %s in use, over the new limit of %s: further allocations will be "
               "refused",
        number, used, limit);
}

static int refuse(const struct chosen_region *chosen, int device, int count, int error)
{
    if (error == -ENODEV)
        tool_error("device %d: the programs of this container have met %d device%s so far", device,
            count, count == 1 ? "" : "s");
    else
        tool_error("cannot change the region %.256s: %s", chosen->path,
            error == -EPERM       ? "only its file's owner and root may"
            : error == -EIO       ? "its file was shortened meanwhile"
            : error == -ETIMEDOUT ? "another process has held its lock for 2 s"
                                  : strerror(-error));
    return TOOL_FAILED;
}

/* One device, or all and what holds for those that come. */
static int show(struct chosen_region *chosen, int device, int count, bool warn)
{
    struct region_look look;
    int first = device == REGION_ALL_DEVICES ? 0 : device;
    int end = device == REGION_ALL_DEVICES ? count : device + 1;
    print_region(chosen);
    for (int i = first; i < end; i++) {
        int error = region_set_look(&chosen->region, i, &look);
        if (error)
            return refuse(chosen, i, count, error);
        print_device(i, &look);
        fflush(stdout);
        if (warn)
            warn_of_excess(i, &look);
    }
    if (device != REGION_ALL_DEVICES)
        return 0;
    int error = region_set_look(&chosen->region, REGION_ALL_DEVICES, &look);
    if (error)
        return refuse(chosen, 0, count, error);
    printf("%s: ", count ? "other devices" : "all devices");
    print_limits(&look.device);
    putchar('\n');
    return 0;
}

int limits_change(struct chosen_region *chosen, int device, const struct region_change *change)
{
    int count = region_set_device_count(&chosen->region);
    int error = count < 0 ? count : region_set_limits(&chosen->region, device, change);
    if (error)
        return refuse(chosen, device, count, error);
    return show(chosen, device, count, change->memory);
}

int limits_print(struct chosen_region *chosen)
{
    int count = region_set_device_count(&chosen->region);
    if (count < 0)
        return refuse(chosen, REGION_ALL_DEVICES, 0, count);
    return show(chosen, REGION_ALL_DEVICES, count, false);
}
