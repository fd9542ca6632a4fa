/* SPDX-License-Identifier: Apache-2.0 */
/* The device string of a Pod, in hami.io/vgpu-devices-to-allocate and -allocated:
 *   pod := ctr*    ctr := dev* ";"    dev := UUID "," TYPE "," MEM_MIB "," CORES ":"
 * Init containers come first, then the others; a container without devices is ";" alone.
 * TYPE is the vendor's common word (NVIDIA), not the model. Pure. */
#ifndef VGPU_CLUSTER_POD_DEVICES_H
#define VGPU_CLUSTER_POD_DEVICES_H

#include "cluster/device_id.h"
#include "net/error.h"

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

/* The API server's bound for all annotations of an object. */
#define POD_DEVICES_TEXT_MAX 262144
#define POD_DEVICES_CONTAINERS_MAX 512
/* In one container. */
#define POD_DEVICES_DEVICES_MAX 512
#define POD_DEVICES_TYPE_BYTES 32

struct pod_device {
    char uuid[DEVICE_UUID_BYTES];
    char type[POD_DEVICES_TYPE_BYTES];
    int32_t memory_mib;    /* 0 and above */
    int32_t cores_percent; /* 0 and above; 0: no limit */
};

struct pod_devices_container {
    struct pod_device *devices; /* NULL where it has none */
    size_t count;
};

struct pod_devices {
    struct pod_devices_container *containers;
    size_t count;
};

/* Decodes as HAMi does: what is between two colons and has no comma is ignored; fewer than four
 * fields are an error, more are ignored; UUID and type are visible ASCII. Nothing after the last
 * ";" is no container. Returns 0, -EINVAL, -E2BIG above the bounds, -ENOMEM. The caller finishes
 * it. */
int pod_devices_decode(const char *text, struct pod_devices *ret_devices, struct error *error)
    __attribute__((warn_unused_result));

/* The caller frees the text. NULL without memory. */
char *pod_devices_encode(const struct pod_devices *devices);

/* Does nothing to a zeroed one. */
void pod_devices_finish(struct pod_devices *devices);

/* How many containers have devices. */
size_t pod_devices_used(const struct pod_devices *devices);

/* The same devices with the same limits, in the same order. */
bool pod_devices_equal(
    const struct pod_devices_container *a, const struct pod_devices_container *b);

#endif
