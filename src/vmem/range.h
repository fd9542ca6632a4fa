/* SPDX-License-Identifier: Apache-2.0 */
/* A range of device addresses and what backs it: parts of the card's memory, and where the card or
 * the container's share of it is full, of the host's, side by side in multiples of 2 MiB. To be
 * made and dropped with driver calls, so never under a lock; in between its fields are its owner's.
 */
#ifndef VGPU_VMEM_RANGE_H
#define VGPU_VMEM_RANGE_H

#include "abi/cuda.h"
#include "residency/residency.h"
#include "rm/rm_export.h"
#include "vmem/block.h"

#include <stdbool.h>
#include <stdint.h>

/* Of the card one for each power of two of pages in 64 bits of bytes, at most; of the host
 * RANGE_PIECES. */
#define RANGE_PARTS_MAX 64

/* What is on the host comes back piece by piece, as there is room: in RANGE_PIECES pieces at most,
 * each of RANGE_PIECE_LEAST_BYTES at least. */
#define RANGE_PIECES 16
#define RANGE_PIECE_LEAST_BYTES (32ull << 20)

/* The size of the pieces. */
static inline uint64_t range_piece_bytes(uint64_t bytes)
{
    uint64_t piece = (bytes / RANGE_PIECES + BLOCK_BYTES - 1) / BLOCK_BYTES * BLOCK_BYTES;
    return piece > RANGE_PIECE_LEAST_BYTES ? piece : RANGE_PIECE_LEAST_BYTES;
}

struct range_part {
    CUmemGenericAllocationHandle handle;
    uint64_t bytes;
    bool spilled;   /* backed by the host */
    bool moved;     /* by range_move_away off the card */
    bool parked;    /* mapped nowhere, and without a handle: behind the descriptor (vmem/park.h) */
    int descriptor; /* of its memory, once it was parked; 0: none */
};

struct range {
    CUdeviceptr address;
    uint64_t bytes;       /* a multiple of 2 MiB */
    uint64_t asked_bytes; /* of a range that is one allocation */
    uint64_t context;     /* which it goes with */
    uint64_t born;        /* later ones have higher numbers */
    CUdevice ordinal;
    int device; /* the region's index */
    uint64_t spilled_bytes;
    bool over_limit;             /* what was refused would have been everywhere */
    uint32_t serial;             /* no other range of the process ever had it */
    struct block *block;         /* NULL: the range is one allocation */
    struct range *next;          /* in a list of vmem.c */
    struct range *below, *above; /* range_table.c */
    unsigned users;              /* that need it without vmem.c's lock: threads and put-off frees */
    unsigned deferred;           /* of them, put-off frees */
    bool gone;                   /* the last of them drops it */
    bool ended;                  /* of one allocation: its free is on the way */
    bool exported;               /* others may hold its memory: it is not moved */
    struct residency_use use;    /* under vmem_lock, once others find it */
    unsigned part_count;
    struct range_part parts[RANGE_PARTS_MAX]; /* by their addresses */
};

/* Makes a range for `bytes` of `range`'s ordinal and device, readable and writable for the device
 * and those that range_add_access was asked for of its context. CUDA_ERROR_OUT_OF_MEMORY where
 * there is no room; the log then says what of the host's is missing. The caller has checked the
 * limit (account_check). */
CUresult range_make(struct range *range, uint64_t bytes) __attribute__((warn_unused_result));

/* Unmaps it and gives all back. Needs no current context. The driver's code where it does not
 * unmap: nothing has changed then. What it does not release, asked twice, stays charged. */
CUresult range_drop(struct range *range) __attribute__((warn_unused_result));

/* Gives a part's memory back to the driver, and its descriptor; the driver's code. Nothing is
 * recorded. */
CUresult range_release_part(const struct range_part *part);

/* Sets the device's access to all of it. */
CUresult range_set_access(const struct range *range, CUdevice ordinal, CUmemAccess_flags flags)
    __attribute__((warn_unused_result));

/* Memory of the range was exported (memory_mark_exported). */
void range_mark_exported(struct range *range, struct rm_export_fd to);

/* What to ask cuMemCreate for. */
CUmemAllocationProp range_property(CUdevice ordinal, bool spilled);

/* Whether the driver can back device addresses by the host's memory on the ordinal; asked once. */
bool range_is_supported(CUdevice ordinal);

#endif
