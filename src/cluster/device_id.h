/* SPDX-License-Identifier: Apache-2.0 */
/* The device IDs that kubelet sees. A card is offered as replicas "<UUID>-<i>", i from 0 up to
 * deviceSplitCount; a MIG device once, by its own UUID. Pure. */
#ifndef VGPU_CLUSTER_DEVICE_ID_H
#define VGPU_CLUSTER_DEVICE_ID_H

#include <stdbool.h>
#include <stddef.h>

/* A UUID's bytes with its terminator: "GPU-" or "MIG-" and 36 characters, the older
 * "MIG-GPU-<uuid>/<gi>/<ci>", and HAMi's "GPU-<uuid>[<template>-<slot>]". As in HAMi's region. */
#define DEVICE_UUID_BYTES 96
/* "<UUID>-<i>". */
#define DEVICE_ID_BYTES (DEVICE_UUID_BYTES + 12)

bool device_id_is_mig(const char *id);

/* "<uuid>-<index>"; a MIG device's UUID as it is. Returns -ENAMETOOLONG where it does not fit. */
int device_id_format(const char *uuid, unsigned index, char id[DEVICE_ID_BYTES])
    __attribute__((warn_unused_result));

/* How many IDs a card is offered as. */
unsigned device_id_count(const char *uuid, unsigned split_count);

/* The card of an ID: what is before "::" (a replica of NVIDIA's own time slicing) or before "["
 * (HAMi's older MIG slots); the last "-<digits>" is left out where the ID has six dashes, a UUID
 * has five; anything else as it is. Returns -ENAMETOOLONG where it does not fit. */
int device_id_physical(const char *id, char uuid[DEVICE_UUID_BYTES])
    __attribute__((warn_unused_result));

#endif
