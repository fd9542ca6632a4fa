/* SPDX-License-Identifier: Apache-2.0 */
/* What is not known, by what it was seen to do. */
#include "rm/rm_unknown.h"

#include "abi/rm.h"
#include "base/atomic.h"
#include "base/lock.h"
#include "base/log.h"
#include "rm/rm_audit.h"
#include "rm/rm_ledger.h"
#include "account/account.h"

#include <string.h>

#define THINGS_MAX 128
#define THING_NUMBER 0xffff0000u /* and a call's number: no class is one of these */

enum verdict { VERDICT_NONE, VERDICT_HARMLESS, VERDICT_MEMORY };

struct site {
    int fd;
    uint32_t client, device_handle; /* client 0: none */
};

static struct lock unknown_lock;
static struct {
    struct site sites[VGPU_REGION_DEVICES];
    struct {
        uint32_t key; /* 0: free */
        unsigned verdict;
    } things[THINGS_MAX];
    bool memory_seen;
} unknown GUARDED_BY(unknown_lock);

void rm_unknown_reset(void) NO_THREAD_SAFETY_ANALYSIS
{
    lock_reset(&unknown_lock);
    memset(&unknown, 0, sizeof(unknown));
}

bool rm_unknown_has_memory(void)
{
    return load_relaxed(&unknown.memory_seen);
}

void rm_unknown_note_device(unsigned device, int fd, uint32_t client, uint32_t device_handle)
{
    struct site *site = &unknown.sites[device];
    if (load_relaxed(&site->fd) == fd && load_relaxed(&site->client) == client &&
        load_relaxed(&site->device_handle) == device_handle)
        return;
    LOCKED_TO_END(unknown_lock);
    store_relaxed(&site->fd, fd);
    store_relaxed(&site->client, client);
    store_relaxed(&site->device_handle, device_handle);
}

/* Those of a CUDA program on an H200 (580.159.04), none of which holds memory that its own
 * objects do not explain. */
static bool is_harmless(uint32_t class_id)
{
    switch (class_id) {
    case RM_CLASS_MEMORY_SYSTEM:
    case RM_CLASS_MEMORY_LOCAL: /* an address range, or where its parameters say: not here */
    case RM_CLASS_DEVICE:
    case RM_CLASS_SUBDEVICE:
    case RM_CLASS_VASPACE:
    case RM_CLASS_CHANNEL_GROUP:
        return true;
    default:
        return RM_CLASS_IS_CHANNEL(class_id);
    }
}

/* NULL: the table is full. */
static unsigned *verdict_of(uint32_t key)
{
    for (unsigned i = 0; i < THINGS_MAX; i++) {
        uint32_t found = load_acquire(&unknown.things[i].key);
        if (!found && swap_seq_cst(&unknown.things[i].key, 0u, key))
            found = key;
        if (!found)
            found = load_acquire(&unknown.things[i].key);
        if (found == key)
            return &unknown.things[i].verdict;
    }
    return NULL;
}

static void judge(
    uint32_t key, int fd, uint32_t client, uint32_t device_handle, rm_ioctl_function *next)
{
    unsigned *verdict = verdict_of(key);
    unsigned known = verdict ? load_relaxed(verdict) : VERDICT_HARMLESS;
    int device = rm_device_index(fd, client, device_handle, next);
    if (device < 0)
        return;
    uint64_t before = account_own_bytes((unsigned)device, ACCOUNT_UNEXPLAINED);
    enum rm_audited done = rm_audit(fd, client, device_handle, known != VERDICT_HARMLESS, next);
    if (known != VERDICT_NONE || done == RM_AUDIT_NOT_DONE)
        return;
    bool took =
        done == RM_AUDIT_DONE && account_own_bytes((unsigned)device, ACCOUNT_UNEXPLAINED) > before;
    store_relaxed(verdict, took ? VERDICT_MEMORY : VERDICT_HARMLESS);
    if (!took)
        return;
    store_relaxed(&unknown.memory_seen, true);
    log_message("the driver takes device memory by %s %#x, which is not known: it is counted after "
                "it was taken",
        key >= THING_NUMBER ? "call" : "class", key & ~(key >= THING_NUMBER ? THING_NUMBER : 0));
}

void rm_unknown_object(
    int fd, uint32_t client, uint32_t device_handle, uint32_t class_id, rm_ioctl_function *next)
{
    if (class_id && class_id < THING_NUMBER && !is_harmless(class_id))
        judge(class_id, fd, client, device_handle, next);
}

/* The escapes of 580 lie between these. */
static bool is_number_known(unsigned number)
{
    return (number > RM_NR_ALLOC_MEMORY - 1 && number < 0x60u && number != RM_NR_ALLOC &&
               number != RM_NR_ALLOC_MEMORY && number != RM_NR_VID_HEAP_CONTROL) ||
           (number >= 0xC8u && number <= 0xDCu && number != RM_NR_XFER);
}

void rm_unknown_call(int fd, unsigned number, rm_ioctl_function *next)
{
    if (is_number_known(number))
        return;
    for (unsigned device = 0; device < VGPU_REGION_DEVICES; device++) {
        struct site site = {0};
        LOCKED(unknown_lock)
            site = unknown.sites[device];
        if (site.client && site.fd == fd)
            judge(THING_NUMBER | number, fd, site.client, site.device_handle, next);
    }
}
