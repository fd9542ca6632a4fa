/* SPDX-License-Identifier: Apache-2.0 */
/* vgpu region: a copy of a region's file, what is wrong with it, and what can be mended. */
#ifndef VGPU_TOOL_REGION_H
#define VGPU_TOOL_REGION_H

#include "region/region.h"

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>
#include <sys/stat.h>

enum slot_life {
    SLOT_IS_FREE,
    SLOT_IS_CLAIMED,   /* being claimed */
    SLOT_IS_ABANDONED, /* its claimer is gone */
    SLOT_LIVES,
    SLOT_IS_DEAD,
};

struct region_copy {
    struct stat status;
    uint64_t read_ns; /* CLOCK_MONOTONIC */
    bool is_ours;     /* a whole region of this version; else only the head is
                         looked at, as far as it is there */
    bool is_short;    /* shorter than a region */
    enum slot_life life[VGPU_REGION_SLOTS];
    struct vgpu_region_map map;
};

/* Reads all that `fd` is open on. From malloc; NULL with *ret_error where it cannot. A file that is
 * shortened meanwhile is one that is_short. */
struct region_copy *region_copy(int fd, int *ret_error);

/* How a finding is mended. */
enum region_fix {
    FIX_NONE,    /* not from outside; `advice` says what to do */
    FIX_SLOT,    /* index: of the slot that is dead, abandoned, or in no state */
    FIX_HIGH,    /* slot_high */
    FIX_DEVICES, /* device_count */
    FIX_UUID,    /* index: of the device that HAMi's part calls otherwise */
    FIX_WORD,    /* `offset` of a 32-bit word of the region's map gets `value` */
    FIX_WIDE,    /* likewise of 64 bits */
};

struct finding {
    char where[48]; /* "slot 7", "device 0", "head" */
    char text[160]; /* what is wrong, with the value */
    enum region_fix fix;
    bool
        usual; /* no fault: processes that end leave it, and others clear it up when they need to */
    unsigned index;
    size_t offset;
    uint64_t former, value; /* replaced only while it still is `former` */
    const char *advice;     /* where nothing is mended */
    const char *outcome;    /* after region_repair: NULL mended, else why not */
};

#define FINDINGS_MAX 4096

struct findings {
    struct finding list[FINDINGS_MAX];
    size_t count;
    size_t more; /* that had no room */
};

/* What is wrong with the copy; all values are tried against what they may be. */
void region_check(const struct region_copy *copy, struct findings *ret_findings);

/* How many faults there are; after a repair, and what it could not mend. */
size_t region_faults(const struct findings *findings, bool repaired);

/* Mends what it can in the file, each word only if it still is what was found, and sets the
 * outcomes; programs may live in it meanwhile. 0, or -errno as region_set_limits. */
int region_repair(struct region *region, struct findings *findings)
    __attribute__((warn_unused_result));

/* On stdout. `findings` may be NULL. */
void region_print(const char *path, const struct region_copy *copy);
void region_print_findings(const struct findings *findings, bool repaired);
void region_print_json(const char *path, const struct region_copy *copy,
    const struct findings *findings, bool repaired);

const char *region_life_word(enum slot_life life);

#endif
