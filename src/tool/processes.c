/* SPDX-License-Identifier: Apache-2.0 */
/* Who holds what of which device. */
#include "tool/processes.h"

#include "base/text.h"
#include "region/region_set.h"
#include "tool/limits.h"

#include <errno.h>
#include <stdio.h>
#include <string.h>

static void print_usage(const struct region_process *process, unsigned device)
{
    const struct vgpu_usage *usage = &process->usage[device];
    const struct {
        const char *name;
        uint64_t bytes;
    } kinds[] = {{"contexts", usage->context}, {"modules", usage->module},
        {"allocations", usage->buffer}, {"managed", usage->managed},
        {"unexplained", usage->unexplained}};
    char command[4 * sizeof(process->command)], size[32];
    text_escape(command, sizeof(command), process->command, strlen(process->command));
    limits_print_size(size, sizeof(size), usage->bytes);
    printf("process %d (%s), device %u: %s in use:", process->pid, command, device, size);
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
    static struct region_process process;
    int devices = region_set_device_count(&chosen->region);
    int found = devices < 0 ? devices : 0;
    for (unsigned i = 0; found >= 0; i++) {
        found = region_set_process(&chosen->region, i, &process);
        for (int device = 0; found > 0 && device < devices; device++) {
            if (process.usage[device].bytes)
                print_usage(&process, (unsigned)device);
        }
    }
    return found == -ENOENT ? 0 : limits_refuse(chosen, found);
}
