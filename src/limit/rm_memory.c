/* SPDX-License-Identifier: Apache-2.0 */
/* The resource manager's allocations, frees, duplicates and exports, accounted for. */
#include "limit/rm_memory.h"

#include "abi/rm.h"
#include "base/atomic.h"
#include "limit/container.h"
#include "limit/rm_audit.h"
#include "limit/rm_export.h"
#include "limit/rm_ledger.h"

#include <errno.h>
#include <stddef.h>

static bool active; /* memory of class RM_CLASS_MEMORY_LOCAL passed the door */
static bool charging = true;
static unsigned
    in_flight; /* calls whose change the kernel and the ledger may see at different times */
static bool any_client; /* this process has a client of its own: the cheap first question */

/* At first what the driver takes of itself: contexts, local memory, heaps. */
_Thread_local enum account_kind rm_memory_thread_kind __attribute__((tls_model("initial-exec"))) =
    ACCOUNT_CONTEXT;

static _Thread_local unsigned thread_refusals __attribute__((tls_model("initial-exec")));

unsigned rm_memory_thread_refusals(void)
{
    return thread_refusals;
}

void rm_memory_reset(void)
{
    active = false;
    charging = true;
    any_client = false;
    in_flight = 0;
    rm_ledger_reset();
    rm_export_reset();
    rm_audit_reset();
}

bool rm_memory_in_flight(void)
{
    return load_seq_cst(&in_flight) != 0;
}

bool rm_memory_has_client(void)
{
    return load_acquire(&any_client);
}

bool rm_memory_is_active(void)
{
    return load_acquire(&active);
}

bool rm_memory_is_charging(void)
{
    return load_acquire(&charging);
}

void rm_memory_set_charging(bool on)
{
    store_release(&charging, on);
}

/* Both forms of the call begin alike; only the status lies elsewhere. */
static uint32_t *alloc_status(struct rm_alloc21 *call, unsigned long request)
{
    return RM_REQUEST_SIZE(request) == sizeof(struct rm_alloc64)
               ? &((struct rm_alloc64 *)call)->status
               : &call->status;
}

static bool is_device_memory(const struct rm_alloc21 *call)
{
    if (call->class_id != RM_CLASS_MEMORY_LOCAL || !call->params)
        return false;
    const struct rm_memory_params *params = (const void *)(uintptr_t)call->params;
    return RM_MEMORY_LOCATION(params->attr) == RM_MEMORY_LOCATION_VIDEO &&
           !(params->flags & RM_MEMORY_FLAG_VIRTUAL);
}

static uint64_t memory_bytes(const struct rm_alloc21 *call)
{
    const struct rm_memory_params *params = (const void *)(uintptr_t)call->params;
    return params->size;
}

static void freed_visit(const struct rm_freed *memory, void *context)
{
    (void)context;
    if (!load_relaxed(&charging))
        return;
    if (memory->exported)
        rm_export_freed(memory);
    else
        account_release(memory->device, memory->bytes, memory->kind);
}

/* A handle that is still known was freed where we did not see it: with its descriptor. */
static void forget_stale(uint32_t client, uint32_t object)
{
    struct rm_subtree *stale = rm_ledger_detach(client, object);
    if (stale)
        rm_ledger_drop(stale, freed_visit, NULL);
}

static int alloc_client(
    int fd, unsigned long request, struct rm_alloc21 *call, rm_ioctl_function *next)
{
    int result = next(fd, request, call);
    if (result == 0 && *alloc_status(call, request) == RM_OK) {
        forget_stale(call->object, call->object);
        if (rm_ledger_add_client(call->object) == 0)
            store_release(&any_client, true);
    }
    return result;
}

static int alloc_object(
    int fd, unsigned long request, struct rm_alloc21 *call, rm_ioctl_function *next)
{
    int result = next(fd, request, call);
    if (result == 0 && *alloc_status(call, request) == RM_OK) {
        forget_stale(call->client, call->object);
        /* Without memory for the node a free of this object is not seen; it holds no bytes. */
        (void)!rm_ledger_add(
            call->client, call->parent, call->object, call->class_id, 0, 0, ACCOUNT_BUFFER);
    }
    return result;
}

/* The kernel may have rounded the size up. */
static uint64_t settle_size(
    unsigned device, uint64_t reserved, uint64_t got, enum account_kind kind)
{
    if (got > reserved)
        account_add(device, got - reserved, kind);
    else if (got < reserved)
        account_release(device, reserved - got, kind);
    return got;
}

/* Before a refusal, what was kept for descriptors that are closed by now is given back. */
static int reserve(unsigned device, uint64_t bytes, enum account_kind kind)
{
    int error = account_reserve(device, bytes, kind);
    if (error && rm_export_sweep())
        error = account_reserve(device, bytes, kind);
    return error;
}

static int answer_no_memory(struct rm_alloc21 *call, unsigned long request)
{
    *alloc_status(call, request) = RM_ERR_NO_MEMORY;
    thread_refusals++;
    return 0;
}

static int alloc_memory(
    int fd, unsigned long request, struct rm_alloc21 *call, rm_ioctl_function *next)
{
    uint32_t device_handle = rm_ledger_device_handle(call->client, call->parent);
    int device = rm_device_index(fd, call->client, device_handle, next);
    if (device == CONTAINER_DEVICE_CLOSED)
        return answer_no_memory(call, request);
    /* Before the first memory was seen, the API ledger will count; after it, a device that cannot
     * be told is one of those that are limited. */
    if (device < 0)
        return load_acquire(&active) && container_unidentified_device() == CONTAINER_DEVICE_CLOSED
                   ? answer_no_memory(call, request)
                   : alloc_object(fd, request, call, next);
    uint64_t bytes = memory_bytes(call);
    enum account_kind kind = rm_memory_thread_kind;
    bool charge = load_acquire(&charging);
    store_release(&active, true);
    if (charge && reserve((unsigned)device, bytes, kind) != 0)
        return answer_no_memory(call, request);
    add_seq_cst(&in_flight, 1u);
    int result = next(fd, request, call);
    bool made = result == 0 && *alloc_status(call, request) == RM_OK;
    if (made) {
        uint64_t got = memory_bytes(call);
        forget_stale(call->client, call->object);
        (void)!rm_ledger_add(
            call->client, call->parent, call->object, call->class_id, got, (unsigned)device, kind);
        sub_seq_cst(&in_flight, 1u);
        if (charge) {
            account_commit((unsigned)device, bytes);
            settle_size((unsigned)device, bytes, got, kind);
            rm_audit(fd, call->client, device_handle, false, next);
        }
    } else {
        sub_seq_cst(&in_flight, 1u);
        thread_refusals += result == 0 && *alloc_status(call, request) == RM_ERR_NO_MEMORY;
        if (charge) {
            account_commit((unsigned)device, bytes);
            account_release((unsigned)device, bytes, kind);
        }
    }
    return result;
}

static int do_alloc(int fd, unsigned long request, void *argument, rm_ioctl_function *next)
{
    struct rm_alloc21 *call = argument;
    if (RM_REQUEST_SIZE(request) != sizeof(struct rm_alloc21) &&
        RM_REQUEST_SIZE(request) != sizeof(struct rm_alloc64))
        return next(fd, request, argument);
    if (call->class_id == RM_CLASS_CLIENT || call->class_id == RM_CLASS_CLIENT_0) {
        container_enter();
        return alloc_client(fd, request, call, next);
    }
    if (!load_acquire(&any_client) || !rm_ledger_knows_client(call->client))
        return next(fd, request, argument);
    return is_device_memory(call) ? alloc_memory(fd, request, call, next)
                                  : alloc_object(fd, request, call, next);
}

static int do_free(int fd, unsigned long request, void *argument, rm_ioctl_function *next)
{
    struct rm_free *call = argument;
    uint32_t client = call->client;
    uint32_t device_handle = rm_ledger_device_handle(client, call->object);
    unsigned imports = rm_ledger_imports();
    add_seq_cst(&in_flight, 1u);
    struct rm_subtree *subtree = rm_ledger_detach(client, call->object);
    int result = next(fd, request, argument);
    sub_seq_cst(&in_flight, 1u);
    if (!subtree)
        return result;
    if (result == 0 && call->status == RM_OK) {
        rm_ledger_drop(subtree, freed_visit, NULL);
        if (imports && device_handle && device_handle != call->object)
            rm_audit(fd, client, device_handle, true, next);
    } else {
        rm_ledger_attach(subtree);
    }
    return result;
}

static int do_duplicate(int fd, unsigned long request, void *argument, rm_ioctl_function *next)
{
    struct rm_dup *call = argument;
    int result = next(fd, request, argument);
    if (result != 0 || call->status != RM_OK || !rm_ledger_knows_client(call->client))
        return result;
    forget_stale(call->client, call->object);
    if (!rm_ledger_add_duplicate(
            call->client, call->parent, call->object, call->client_src, call->object_src))
        rm_export_imported(fd, call->client, call->parent, call->object, next);
    return result;
}

int rm_memory_ioctl(int fd, unsigned long request, void *argument, rm_ioctl_function *next)
{
    unsigned number = RM_REQUEST_NR(request);
    /* A forked child inherits descriptors and a copy of this state; entering clears it. */
    if (load_acquire(&any_client))
        container_enter();
    if (number == RM_NR_ALLOC && argument)
        return do_alloc(fd, request, argument, next);
    if (!load_acquire(&any_client) || !argument)
        return next(fd, request, argument);
    if (number == RM_NR_FREE && RM_REQUEST_SIZE(request) == sizeof(struct rm_free))
        return do_free(fd, request, argument, next);
    if (number == RM_NR_DUP_OBJECT && RM_REQUEST_SIZE(request) == sizeof(struct rm_dup))
        return do_duplicate(fd, request, argument, next);
    if (number == RM_NR_CONTROL && RM_REQUEST_SIZE(request) == sizeof(struct rm_control))
        return rm_export_control(fd, request, argument, next);
    if (number == RM_NR_SHARE)
        return rm_export_share(fd, request, argument, next);
    return next(fd, request, argument);
}
