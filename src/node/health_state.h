/* SPDX-License-Identifier: Apache-2.0 */
/* Whether a card is healthy, from what was seen of it. Pure: times are arguments.
 *
 * Two kinds of fault:
 * - NVML does not answer for the card, or the card is lost: healthy again when NVML has answered
 *   for 30 s.
 * - an Xid (an uncorrectable ECC error is Xid 48): NVML may answer well, and the card still compute
 *   nonsense. Over when the card was reset or the driver loaded anew (its energy counter began
 * again, or the boot text differs) and NVML has answered for 30 s since; or when an operator says
 * so. Xids that programs cause themselves do not count (HAMi's and NVIDIA's list). */
#ifndef VGPU_NODE_HEALTH_STATE_H
#define VGPU_NODE_HEALTH_STATE_H

#include "cluster/device_id.h"
#include "net/error.h"

#include <jansson.h>
#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

#define HEALTH_ANSWERING_MS 30000
#define HEALTH_XIDS_MAX 128
#define HEALTH_REASON_BYTES 160
#define HEALTH_BOOT_BYTES 96

/* Which Xids count: DP_DISABLE_HEALTHCHECKS and DP_ENABLE_HEALTHCHECKS. */
struct health_xids {
    bool none; /* "all" or "xids" are disabled */
    bool all;  /* "all" are enabled, but those that are named as disabled */
    uint64_t ignored[HEALTH_XIDS_MAX], counted[HEALTH_XIDS_MAX];
    size_t ignored_count, counted_count;
};

/* A word that is neither is one line to `report`, and left out. */
void health_xids_read(struct health_xids *ret_xids, const char *disabled, const char *enabled,
    void (*report)(void *context, const char *line), void *context);
bool health_xids_counts(const struct health_xids *xids, uint64_t xid);

enum health_fault {
    HEALTH_FAULT_NONE,
    HEALTH_FAULT_NVML,
    HEALTH_FAULT_XID,
};

/* All zero: healthy. */
struct health_state {
    enum health_fault fault;
    char reason[HEALTH_REASON_BYTES]; /* "Xid 79", "memory: GPU is lost" */
    int64_t since_s;                  /* since 1970: when it began */
    /* At an Xid: what tells that card or driver began anew since. */
    bool has_energy;
    uint64_t energy_mj;
    char boot[HEALTH_BOOT_BYTES];
    bool answering;
    int64_t answering_since_ms; /* monotonic */
};

/* What a look at the card showed. */
struct health_look {
    const char *problem; /* NULL or "": NVML answers */
    bool has_energy;
    uint64_t energy_mj;
    const char *boot; /* NULL: not known */
    int64_t now_s;    /* since 1970 */
    int64_t now_ms;   /* monotonic */
};

enum health_change {
    HEALTH_SAME,
    HEALTH_ILL,       /* it was healthy */
    HEALTH_WORSE,     /* another fault than before */
    HEALTH_RECOVERED, /* healthy again */
};

bool health_state_is_healthy(const struct health_state *state);

enum health_change health_state_look(struct health_state *state, const struct health_look *look);

/* An Xid that counts. `look` is what was seen last. */
enum health_change health_state_xid(
    struct health_state *state, uint64_t xid, const struct health_look *look);

/* An operator says that it is healthy: true after an Xid; where NVML does not answer that stands.
 */
enum health_change health_state_allow(struct health_state *state, const struct health_look *look);

/* Faults by Xid outlive the plugin: a JSON object, by UUID. `states` and `uuids` are parallel. The
 * caller releases it; NULL without memory. */
json_t *health_state_save(
    const struct health_state *states, const char *const *uuids, size_t count);
/* The state that was saved for a card; -ENOENT, -EINVAL where it is malformed. */
int health_state_restore(const json_t *saved, const char *uuid, struct health_state *ret_state,
    struct error *error) __attribute__((warn_unused_result));

/* Calls for each UUID of the annotation vgpu.io/healthy: a list by commas, blanks around each are
 * left out, at most 1,024 of them. */
void health_read_allowed(
    const char *list, void (*allow)(void *context, const char *uuid), void *context);

#endif
