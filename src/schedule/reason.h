/* SPDX-License-Identifier: Apache-2.0 */
/* Why a node does not fit, with HAMi's words: "1/8 CardInsufficientCore, 7/8
 * CardInsufficientMemory", of as many devices as were looked at, in the order of the text; or one
 * word alone. Pure. */
#ifndef VGPU_SCHEDULE_REASON_H
#define VGPU_SCHEDULE_REASON_H

#include <stddef.h>
#include <stdint.h>

#define REASON_TEXT_BYTES 640

enum reason {
    REASON_NOT_HEALTHY,
    REASON_CORDONED,
    REASON_TYPE,
    REASON_NUMA,
    REASON_UUID,
    REASON_SLOTS,
    REASON_EXCLUSIVE,
    REASON_QUOTA,
    REASON_MEMORY,
    REASON_CORES,
    REASON_CORES_FULL,
    REASON_MIG,
    REASON_TOO_FEW, /* how many were found, but more were asked for */
    REASON_COUNT,
};

/* What is wrong with the node as a whole. */
enum reason_bare {
    REASON_BARE_NONE,
    REASON_BARE_TOO_FEW_DEVICES,
    REASON_BARE_UNREGISTERED,
    REASON_BARE_COUNT,
};

struct reasons {
    enum reason_bare bare;
    uint32_t devices; /* that were looked at */
    uint32_t counts[REASON_COUNT];
};

const char *reason_word(enum reason reason);
/* "" for REASON_BARE_NONE. */
const char *reason_bare_word(enum reason_bare bare);

/* The same in plain English, for a person who reads an event. */
const char *reason_explain(enum reason reason);
const char *reason_bare_explain(enum reason_bare bare);

void reasons_format(const struct reasons *reasons, char text[REASON_TEXT_BYTES]);

#endif
