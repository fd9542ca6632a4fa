/* SPDX-License-Identifier: Apache-2.0 */
/* The memory policy as the API's hooks see it. With the resource-manager ledger it refuses early
 * and counts managed memory; the bytes themselves are charged below the API. With the API ledger
 * (VGPU_LEDGER=api, or chosen when the first context shows that the driver's allocations do not
 * pass our ioctl) it reserves, records and gives back every allocation itself. */
#ifndef VGPU_MEMORY_MEMORY_H
#define VGPU_MEMORY_MEMORY_H

#include "base/atomic.h"
#include "account/account.h"
#include "rm/rm_ledger.h"

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

enum memory_ledger { MEMORY_LEDGER_UNDECIDED, MEMORY_LEDGER_RM, MEMORY_LEDGER_API };

/* What a handle is a handle of; the values of different kinds may coincide. */
enum memory_handle {
    MEMORY_POINTER,
    MEMORY_ARRAY,
    MEMORY_MIPMAP,
    MEMORY_VMM,
    MEMORY_MODULE,
    MEMORY_LIBRARY,
    MEMORY_CONTEXT,
    MEMORY_PRIMARY, /* a device's primary context, by ordinal */
    MEMORY_POOL,
    MEMORY_GRAPH_POOL,    /* a device's graph memory, by ordinal */
    MEMORY_GRAPH_MANAGED, /* managed memory of an executable graph, by graph and ordinal */
    MEMORY_CONTEXT_LIMIT, /* what a limit of a context takes, by context and limit */
};

/* An allocation on its way through the driver. */
struct memory_request {
    int device; /* the region's index; CONTAINER_DEVICE_UNKNOWN: nothing is done */
    uint64_t bytes;
    enum account_kind kind;
    bool reserved; /* charged here, to be settled by memory_end */
    bool shares_block;
    uint64_t context; /* current when it was begun, if it is counted here */
    uint64_t born;    /* later ones have higher numbers */
    enum account_kind former_kind;
};

/* The calling thread's current context, 0 where there is none; returns 0, or -errno where it is not
 * told. Set by the layer that may call the driver. */
extern int (*memory_current_context)(uint64_t *ret_context);

/* What is asked for from now on is not of a context that is about to end: another may have its
 * handle as soon as the driver has ended it. */
uint64_t memory_context_ends(void);

/* The context is gone: gives back all that is recorded as its own, but for what was asked for after
 * memory_context_ends returned `born`. */
void memory_context_gone(uint64_t context, uint64_t born);

extern enum memory_ledger memory_ledger_in_use; /* written by this module alone */

/* One load: launches ask. */
static inline enum memory_ledger memory_ledger(void)
{
    return load_relaxed(&memory_ledger_in_use);
}

/* Launches are to be looked at closely: the API ledger counts what they take, or oversubscription
 * is asked for. One word, for the way of each launch. */
extern bool memory_looks_at_launches;

/* Settles which ledger counts, and says so in the log. Before a context is made (`made` false) it
 * can only be seen that the driver does not pass the door at all. */
void memory_choose_ledger(bool made);

/* Before the driver is asked. Returns 0, or -ENOMEM: answer out of memory without asking (no
 * memory_end then); -EDQUOT likewise, of movable or spilled memory that has no room in that place
 * (account/account.h). Until memory_end the thread's device memory counts as `kind`. `bytes` is
 * what the driver will take at least; requests below 2 MiB may be served from memory that the
 * driver holds and pass. About 0.1 us where the process's own bytes decide. */
int memory_begin(struct memory_request *request, int device, uint64_t bytes, enum account_kind kind)
    __attribute__((warn_unused_result));

/* The driver has answered; `made` true: `handle` now stands for the memory. */
void memory_end(
    struct memory_request *request, bool made, enum memory_handle type, uint64_t handle);

/* What a handle stands for, taken out before the driver frees it: the handle may be given out
 * again at once. Of a handle with several holders only one is taken. */
struct memory_record {
    int device; /* CONTAINER_DEVICE_UNKNOWN: nothing is recorded, or other holders are left */
    uint64_t bytes;
    enum account_kind kind;
    unsigned references;    /* 0: nothing is recorded */
    bool shares_block;      /* with other small allocations */
    bool exported;          /* a descriptor or another process may hold it when it is freed */
    bool importable;        /* another process may */
    bool imported;          /* memory of another handle's, without bytes of its own */
    struct rm_export_fd to; /* it was last exported to */
    uint64_t owner;         /* the context that it goes with; 0: it outlives contexts */
    uint64_t born;          /* of what has an owner */
};
struct memory_record memory_take_slow(enum memory_handle type, uint64_t handle);

extern size_t memory_record_count; /* written by this module alone */

static inline struct memory_record memory_take(enum memory_handle type, uint64_t handle)
{
    if (__builtin_expect(!load_relaxed(&memory_record_count), true))
        return (struct memory_record){.device = -1};
    return memory_take_slow(type, handle);
}

/* The driver freed it (bytes back), or refused (the record back). */
void memory_taken(
    const struct memory_record *record, bool freed, enum memory_handle type, uint64_t handle);

/* What is recorded for the handle; 0: nothing. */
uint64_t memory_recorded_bytes(enum memory_handle type, uint64_t handle);

/* One more holder of a recorded handle, which memory_take takes away. */
void memory_retain(enum memory_handle type, uint64_t handle);

/* API ledger: the memory was exported, to a descriptor (rm_export_to) or (to.fd -1) by handle. */
void memory_mark_exported(enum memory_handle type, uint64_t handle, struct rm_export_fd to);

/* API ledger: the handle is one on memory that was exported, here or elsewhere. Its size cannot be
 * told: while any such handle is held, all that lingers on the device counts. */
void memory_add_import(enum memory_handle type, uint64_t handle, int device);

/* API ledger, and managed memory under both: makes what is recorded for the handle equal to
 * `bytes`, whatever the limit says, and moves it to the device. `context` as in memory_record's
 * owner. */
void memory_set(
    enum memory_handle type, uint64_t handle, int device, uint64_t bytes, enum account_kind kind);
void memory_set_owned(enum memory_handle type, uint64_t handle, int device, uint64_t bytes,
    enum account_kind kind, uint64_t context);

/* Records memory whose bytes are charged already. */
void memory_put_charged(
    enum memory_handle type, uint64_t handle, int device, uint64_t bytes, enum account_kind kind);

#endif
