/* SPDX-License-Identifier: Apache-2.0 */
/* What the files of vmem share. For vmem*.c alone. */
#ifndef VGPU_VMEM_VMEM_PARTS_H
#define VGPU_VMEM_VMEM_PARTS_H

#include "base/lock.h"
#include "base/slab.h"
#include "vmem/range_table.h"
#include "vmem/vmem.h"

/* An allocation that is ended and not given back yet: all of the range, or a part of its block. */
struct vmem_ended {
    struct range *range;
    CUevent event; /* behind which it may be given back; NULL: behind all work of the context */
    struct block_part part;
    struct vmem_ended *next;
};

struct vmem_capture {
    uint64_t context, born;
    CUstream stream;
    const void *thread; /* of CU_STREAM_PER_THREAD: whose */
    struct vmem_capture *next;
};

#define VMEM_PEERS_MAX 512

struct vmem {
    struct slab ranges, blocks, ended, captures;
    struct range_table table;    /* ranges whose memory is not being given back yet */
    struct range *block_list;    /* those that are blocks */
    struct vmem_ended *deferred; /* frees that wait for the end of captures, or in stream order */
    struct vmem_capture *capture_list;
    uint32_t last_serial;  /* of ranges */
    uint64_t last_born;    /* of all that goes with a context */
    struct vmem_end *ends; /* of contexts that may be going */
    struct vmem_peer {
        uint64_t context, accessor, born; /* contexts */
        CUdevice ordinal;                 /* of the accessor */
    } peers[VMEM_PEERS_MAX];
    unsigned peer_count;
    uint64_t peer_changes;
};

/* A leaf: no driver call is made, and no other lock taken under it. */
extern struct lock vmem_lock;
extern struct vmem vmem GUARDED_BY(vmem_lock);

/* Takes the range for use without the lock, and ends that use: where the range is gone meanwhile,
 * it is dropped here. Where the driver does not drop it, its code, and the range is in the table
 * again. */
void vmem_use_locked(struct range *range) REQUIRES(vmem_lock);
CUresult vmem_leave(struct range *range) EXCLUDES(vmem_lock);

/* Uses the range with the lowest address that is not below *cursor, which moves behind it; NULL:
 * there is none. For walks over all ranges but those whose context may be going: each is to be
 * left. */
struct range *vmem_use_next(CUdeviceptr *cursor) EXCLUDES(vmem_lock);

/* Waits until is_used_locked(of) is false, 10 s at most. A thread that moves a range (placement.c,
 * freeze.c) ends its use soon; so memory is free when the call that frees it returns. */
void vmem_wait_while_used(bool (*is_used_locked)(const void *of), const void *of)
    EXCLUDES(vmem_lock);

/* Nobody finds the range any more: drops it now, or by its last user. */
void vmem_drop(struct range *range) EXCLUDES(vmem_lock);

/* Whether it goes with the context that may be going; with any of those. Another may have the
 * handle already. */
static inline bool vmem_goes_with(const struct vmem_end *end, uint64_t context, uint64_t born)
{
    return context == end->context && born <= end->born;
}

bool vmem_may_go_locked(const struct range *range) REQUIRES(vmem_lock);

/* Takes a range out of the table, and of the list of blocks. */
void vmem_remove_locked(struct range *range) REQUIRES(vmem_lock);

/* After a change of the table or of what is put off. */
void vmem_count_locked(void) REQUIRES(vmem_lock);

/* Has others find it. */
void vmem_add_locked(struct range *range) REQUIRES(vmem_lock);

/* Gives a range that is not to be dropped, or was, back to its slab. */
void vmem_forget_locked(struct range *range) REQUIRES(vmem_lock);

/* Gives back what was put off of the context: behind events that have come, and where it captures
 * no longer, behind its work, which is waited for. _all: of all contexts, and events are waited for
 * as well; true where there was some. */
void vmem_free_deferred(uint64_t context) EXCLUDES(vmem_lock);
bool vmem_free_all_deferred(void) EXCLUDES(vmem_lock);

/* Those that go with the context: without a wait. */
void vmem_drop_deferred(const struct vmem_end *end) EXCLUDES(vmem_lock);

/* Whether a stream of the context captures, as far as is known. */
bool vmem_captures_locked(uint64_t context) REQUIRES(vmem_lock);

/* Lets the peers of its context reach the range, which nobody else knows yet; *ret_changes tells
 * whether others came since. */
CUresult vmem_let_peers(const struct range *range, uint64_t *ret_changes) EXCLUDES(vmem_lock);
/* The n-th device that reaches the context's memory; -1: there are no more. */
CUdevice vmem_peer_at(uint64_t context, unsigned number, uint64_t *ret_changes) EXCLUDES(vmem_lock);
bool vmem_peers_changed(uint64_t changes) EXCLUDES(vmem_lock);

#endif
