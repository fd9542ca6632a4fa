/* SPDX-License-Identifier: Apache-2.0 */
/* What one container was given, and its durable form: `<hook_path>/vgpu/grants/<id>/
 * allocation.json`. It says whose a directory below `containers/` is, also where that has an
 * opaque name, so it is the map for the monitor and for tools too. Pure.
 *
 * {"version":1, "id":"<32 hex>", "serial":N, "resource":"nvidia.com/gpu", "ids":["<device ID>"],
 *  "namespace", "pod", "uid", "container", "slot":N, "init":bool, "sidecar":bool, "limited":bool,
 *  "devices":[{"uuid","type","memory_mib","cores","now_memory_mib","now_cores"}],
 *  "directory":"<name below containers/>", "cache":"<file name>", "priority":N (absent: none),
 *  "sure":bool, "waits":true, "unassigned":true (absent: false), "wish":"<text>",
 * "failed":"<text>", "restore":[{"namespace","pod","uid","slot"}]} */
#ifndef VGPU_NODE_ALLOCATION_RECORD_H
#define VGPU_NODE_ALLOCATION_RECORD_H

#include "cluster/pod_devices.h"
#include "net/error.h"

#include <jansson.h>
#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>
#include <sys/queue.h>

#define ALLOCATION_ID_BYTES 33
#define ALLOCATION_IDS_MAX 4096
#define ALLOCATION_RESTORES_MAX 64

struct allocation_device {
    struct pod_device given;           /* by the scheduler; memory never 0 where it is limited */
    int32_t memory_mib, cores_percent; /* what holds now */
};

/* A place in a Pod's device string that was erased by mistake, and has its devices again. */
struct allocation_restore {
    char *pod_namespace, *pod_name, *pod_uid;
    size_t slot;
};

struct allocation_record {
    TAILQ_ENTRY(allocation_record) entry;
    char id[ALLOCATION_ID_BYTES];
    uint64_t serial; /* in the order of the Allocates */
    char *resource;
    char **ids; /* kubelet's */
    size_t id_count;
    char *pod_namespace, *pod_name, *pod_uid, *container;
    size_t slot; /* in the Pod's device string */
    bool init, sidecar;
    bool limited; /* it has a region and a grant; MIG devices have none */
    struct allocation_device *devices;
    size_t device_count;
    char *directory, *cache; /* NULL where it is not limited */
    bool has_priority;
    uint32_t priority;
    bool sure;       /* pod-resources has told whose it is */
    bool waits;      /* kubelet has not been let start its container */
    bool unassigned; /* kubelet gave the devices to a container that was assigned none: it has no
                        slot, and does not start */
    char *wish;      /* the wish for other limits that was last looked at; NULL: none */
    char *failed;    /* no container: the Pod's Allocate was refused with this text */
    struct allocation_restore *restores;
    size_t restore_count;

    /* Of this run of the daemon. */
    char *unconsented; /* what is said unless the wish has a consent by then; NULL: nothing is */
    uint64_t unconsented_ns;
    char *refusal;   /* why its container does not start; NULL: it may */
    bool unlisted;   /* its Pod has ended, and pod-resources names no other */
    bool superseded; /* others have its device IDs by now */
    bool gone;       /* its Pod is gone from the API */
    bool named;      /* its file's name has been written out */
    uint64_t gone_since_ns;
    uint64_t held_since_ns; /* when a guess was first seen to have ended; 0: not yet */
};

/* NULL: no memory. */
struct allocation_record *allocation_record_create(void);
void allocation_record_destroy(struct allocation_record *record);

/* A new object; NULL: no memory, or a text is not UTF-8. */
json_t *allocation_record_encode(const struct allocation_record *record);

/* Returns 0, -EINVAL, -E2BIG or -ENOMEM. */
int allocation_record_decode(const json_t *object, struct allocation_record **ret_record,
    struct error *error) __attribute__((warn_unused_result));

/* Whether these are its device IDs, in any order. */
bool allocation_record_has_ids(
    const struct allocation_record *record, const char *const *ids, size_t count);
/* Whether one of them is. */
bool allocation_record_shares_ids(
    const struct allocation_record *record, const char *const *ids, size_t count);

/* Returns 0 or -ENOMEM. */
int allocation_record_restore(struct allocation_record *record, const char *pod_namespace,
    const char *pod_name, const char *pod_uid, size_t slot) __attribute__((warn_unused_result));
void allocation_record_unrestore(struct allocation_record *record, size_t at);

/* Puts a copy in the text's place; on -ENOMEM it stays. */
int allocation_record_set(char **text, const char *value) __attribute__((warn_unused_result));

#endif
