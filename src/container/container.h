/* SPDX-License-Identifier: Apache-2.0 */
/* This process as a member of its container: configuration, region and devices, made ready at the
 * first use of CUDA or NVML and made anew in a forked child. */
#ifndef VGPU_CONTAINER_CONTAINER_H
#define VGPU_CONTAINER_CONTAINER_H

#include "base/fork.h"
#include "config/config.h"

#include <stdbool.h>
#include <stdint.h>

#define CONTAINER_DEVICE_UNKNOWN (-1) /* not limited, not counted */
#define CONTAINER_DEVICE_CLOSED (-2)  /* limited, but the limit cannot be kept: full */

/* Puts the process, or a forked child, at its start. */
void container_reset(void);

/* A layer above holds state that a forked child must forget: container_reset calls `reset`. At most
 * three layers do so, in a constructor, before the first container_enter. */
void container_on_reset(void (*reset)(void));

/* Reads the environment and attaches the region, once a process. Every entry from a door that
 * wants more than passing the call on begins here. One load when done. */
static inline void container_enter(void)
{
    fork_enter(container_reset);
}

/* Learns the order of the container's devices where a limit is counted in it. May load NVML: call
 * it without any lock and outside the driver. */
void container_prepare_devices(void);

/* The device exists; the order is learnt anew where it does not know it. As
 * container_prepare_devices. */
void container_confirm_device(const char *uuid);

const struct config *container_config(void);

/* The region's file, for tools. */
struct container_file {
    const char *path; /* where it is looked for; stays while the process does */
    int error;        /* 0: attached; else -errno of the last attempt at the start */
    bool pinned;      /* root's file, which holds whatever the environment says */
    int slot;         /* of this process; below 0: it has none */
};
void container_file(struct container_file *ret_file);

/* The region's index of the device `uuid` (of a card: of the MIG compute instance that this process
 * uses on it, driver/instance.h), entered there with its limits where it is new; below 0
 * where no region is attached or it cannot be entered (CONTAINER_DEVICE_...). Keeps errno. */
int container_device(const char *uuid);

/* What stands for a device whose identity cannot be told: closed where any limit is set, because it
 * might be meant for it. */
int container_unidentified_device(void);

/* How a memory figure is to be shown: the container's view of a device with `physical_total` and
 * `physical_free` bytes. device may be CONTAINER_DEVICE_UNKNOWN. Returns false where the device is
 * not limited and the physical figures hold. */
bool container_memory_view(int device, uint64_t physical_total, uint64_t physical_free,
    uint64_t *ret_total, uint64_t *ret_used, uint64_t *ret_free);

#endif
