/* SPDX-License-Identifier: Apache-2.0 */
/* What each process holds of each device. */
#include "host/processes.h"

#include "base/text.h"
#include "region/region_read.h"
#include "region/slot.h"
#include "host/limits.h"

#include <stdio.h>
#include <string.h>

static void print_usage(const struct vgpu_slot *slot, unsigned device)
{
    const struct vgpu_usage *usage = &slot->usage[device];
    const struct {
        const char *name;
        uint64_t bytes;
    } kinds[] = {{"contexts", usage->context}, {"modules", usage->module},
        {"allocations", usage->buffer}, {"managed", usage->managed},
        {"unexplained", usage->unexplained}, {"spilled", usage->spilled}};
    char command[4 * sizeof(slot->command)], size[32];
    text_escape(
        command, sizeof(command), slot->command, strnlen(slot->command, sizeof(slot->command)));
    limits_print_size(size, sizeof(size), usage->bytes);
    printf("process %d (%s), device %u: %s in use:", slot_word_pid(slot->state), command, device,
        size);
    const char *separator = " ";
    for (size_t i = 0; i < sizeof(kinds) / sizeof(kinds[0]); i++) {
        if (!kinds[i].bytes)
            continue;
        limits_print_size(size, sizeof(size), kinds[i].bytes);
        printf("%s%s %s", separator, kinds[i].name, size);
        separator = ", ";
    }
    putchar('\n');
}

int processes_print(struct chosen_region *chosen)
{
    static struct region_reading reading;
    static struct vgpu_slot slot;
    bool locked;
    int found = region_read(chosen->region.fd, &reading);
    for (unsigned i = 0; found >= 0 && i < reading.slot_bound; i++) {
        found = region_read_slot(&reading, i, &slot, &locked);
        for (unsigned device = 0; found > 0 && device < reading.device_count; device++) {
            if (slot.usage[device].bytes)
                print_usage(&slot, device);
        }
    }
    return found < 0 ? limits_refuse(chosen, found) : 0;
}
