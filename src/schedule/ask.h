/* SPDX-License-Identifier: Apache-2.0 */
/* What a Pod asks for: devices for each container, and how they are to be chosen. Pure. */
#ifndef VGPU_SCHEDULE_ASK_H
#define VGPU_SCHEDULE_ASK_H

#include "cluster/request.h"
#include "net/error.h"
#include "schedule/wish.h"

#include <jansson.h>
#include <stdbool.h>
#include <stddef.h>

/* Of all containers of a Pod; what is more could not be written into an annotation. */
#define ASK_DEVICES_MAX 2048
#define ASK_DIGEST_BYTES 32

enum ask_kind {
    ASK_INIT,    /* runs to its end before the next one starts */
    ASK_SIDECAR, /* an init container with restartPolicy Always: runs on beside all that follow */
    ASK_APP,
};

struct ask_container {
    enum ask_kind kind;
    struct request request;
};

struct ask {
    /* Of the Pod's JSON. */
    const char *pod_namespace, *name, *uid;
    /* As in device strings: init containers and sidecars as they are written, then the others. */
    struct ask_container *containers;
    size_t count;
    size_t devices; /* of all containers; 0: the Pod asks for none */
    bool grouped;   /* it is of a group of Pods that are started together */
    struct wish wish;
    /* SHA-256 of all that a choice goes by: whoever asks for something else has another one. Of a
     * Pod that asks for no devices: zeros. */
    unsigned char digest[ASK_DIGEST_BYTES];
};

struct ask_config {
    struct request_config request;
    struct wish_defaults defaults;
};

/* Reads a Pod, which must outlive it. Wishes are read only where it asks for devices. Returns 0;
 * -EINVAL for wishes that cannot be met (wish_read), and for too many containers or devices;
 * -ENOMEM, or -EIO: GnuTLS failed. The caller finishes it. */
int ask_read(const json_t *pod, const struct ask_config *config, struct ask *ret_ask,
    struct error *error) __attribute__((warn_unused_result));

void ask_finish(struct ask *ask);

/* The kind of each container, for claim_read and ask_read. Returns how many, or -E2BIG above
 * `max`. */
int ask_kinds(const json_t *pod, enum ask_kind *kinds, size_t max)
    __attribute__((warn_unused_result));

/* The container at a place of the device string; NULL behind the last one. */
const json_t *ask_container_at(const json_t *pod, size_t at);

#endif
