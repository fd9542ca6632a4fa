/* SPDX-License-Identifier: Apache-2.0 */
#include "cluster/erase.h"

#include <string.h>

#define COMMON_WORD "NVIDIA"

char *erase_steps(struct pod_devices *left, const struct allocate_step *steps, size_t step_count)
{
    for (size_t i = 0; i < step_count; i++)
        left->containers[steps[i].slot].count = 0;
    return pod_devices_encode(left);
}

bool erase_is_done(const char *to_allocate)
{
    return !to_allocate || !strstr(to_allocate, COMMON_WORD);
}
