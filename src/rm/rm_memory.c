/* SPDX-License-Identifier: Apache-2.0 */
/* The resource manager's allocations, frees, duplicates and exports, accounted for. */
#include "rm/rm_memory.h"

#include "abi/rm.h"
#include "base/atomic.h"
#include "base/guard.h"
#include "container/container.h"
#include "rm/rm_audit.h"
#include "rm/rm_away.h"
#include "rm/rm_call.h"
#include "rm/rm_channels.h"
#include "rm/rm_charging.h"
#include "rm/rm_export.h"
#include "rm/rm_ledger.h"
#include "rm/rm_unknown.h"

#include <errno.h>
#include <stddef.h>

static bool active;                      /* device memory passed the door */
static bool asked_gpu, any_unidentified; /* whether GPUs can be told was tried; and they cannot */
static bool any_client; /* this process has a client of its own: the cheap first question */

/* At first what the driver takes of itself: contexts, local memory, heaps. */
_Thread_local enum account_kind rm_memory_thread_kind __attribute__((tls_model("initial-exec"))) =
    ACCOUNT_CONTEXT;

_Thread_local struct rm_memory_move rm_memory_thread_move
    __attribute__((tls_model("initial-exec")));

/* True where the bytes, which are allocated (`made`) or were freed, belong to a move. */
static bool is_move(uint64_t bytes, enum account_kind kind, bool made)
{
    struct rm_memory_move *move = &rm_memory_thread_move;
    bool forth = made == move->makes;
    if (kind != ACCOUNT_MOVABLE || !bytes || bytes > (forth ? move->left : move->seen))
        return false;
    move->left = forth ? move->left - bytes : move->left + bytes;
    move->seen = forth ? move->seen + bytes : move->seen - bytes;
    return true;
}

static _Thread_local unsigned thread_refusals __attribute__((tls_model("initial-exec")));
static _Thread_local unsigned thread_over_limit __attribute__((tls_model("initial-exec")));

unsigned rm_memory_thread_refusals(void)
{
    return thread_refusals;
}

unsigned rm_memory_thread_over_limit(void)
{
    return thread_over_limit;
}

void rm_memory_reset(void)
{
    active = false;
    rm_memory_thread_move = (struct rm_memory_move){0};
    asked_gpu = any_unidentified = false;
    any_client = false;
    rm_charging_reset();
    rm_away_reset();
    rm_ledger_reset();
    rm_export_reset();
    rm_audit_reset();
    rm_unknown_reset();
    rm_channels_reset();
}

__attribute__((constructor)) static void register_reset(void)
{
    container_on_reset(rm_memory_reset);
}

bool rm_memory_may_see(void)
{
    return load_acquire(&any_client) && !load_relaxed(&any_unidentified);
}

bool rm_memory_is_active(void)
{
    return load_acquire(&active);
}

bool (*rm_memory_door_is_first)(void);

const char *rm_memory_blindness(void)
{
    if (load_acquire(&active))
        return NULL;
    if (rm_memory_door_is_first && !rm_memory_door_is_first())
        return "another library's ioctl comes before ours";
    if (!load_acquire(&any_client))
        return "the driver's calls to its kernel module do not pass ioctl here";
    return load_relaxed(&any_unidentified)
               ? "the kernel module does not tell on which GPU memory lies"
               : "the driver asks its kernel module for memory in no way that is known";
}

static void freed_visit(const struct rm_freed *memory, void *context)
{
    (void)context;
    if (!rm_charging_is_on())
        return;
    if (rm_away_is_on())
        rm_away_freed(memory->device, memory->bytes, memory->kind);
    else if (memory->exported)
        rm_export_freed(memory);
    else if (!is_move(memory->bytes, memory->kind, false))
        account_release(memory->device, memory->bytes, memory->kind);
}

/* A handle that is still known was freed where we did not see it: with its descriptor. */
static void forget_stale(uint32_t client, uint32_t object)
{
    uint32_t class_id = rm_ledger_class(client, object);
    struct rm_subtree *stale = rm_ledger_detach(client, object);
    if (!stale)
        return;
    rm_channels_drop(rm_channels_detach(client, object, class_id));
    rm_ledger_drop(stale, freed_visit, NULL);
}

static int alloc_client(const struct rm_call *call, struct rm_allocation *allocation)
{
    int result = rm_call_pass(call);
    if (result == 0 && rm_allocation_answer(allocation) == RM_OK) {
        forget_stale(allocation->object, allocation->object);
        if (rm_ledger_add_client(allocation->object) == 0)
            store_release(&any_client, true);
    }
    return result;
}

/* Once, before the first memory: with a context it would be too late to refuse one. */
static void try_gpu(const struct rm_call *call, const struct rm_allocation *subdevice)
{
    if (!exchange_acq_rel(&asked_gpu, true) &&
        !rm_device_may_be_asked(call->fd, subdevice->client, subdevice->object, call->next))
        store_relaxed(&any_unidentified, true);
}

static int alloc_object(const struct rm_call *call, struct rm_allocation *allocation)
{
    int result = rm_call_pass(call);
    if (result == 0 && rm_allocation_answer(allocation) == RM_OK) {
        uint32_t client = allocation->client;
        forget_stale(client, allocation->object);
        /* Without memory for the node a free of this object is not seen; it holds no bytes. */
        (void)!rm_ledger_add(client, allocation->parent, allocation->object, allocation->class_id,
            0, 0, ACCOUNT_BUFFER);
        if (allocation->class_id == RM_CLASS_SUBDEVICE)
            try_gpu(call, allocation);
        rm_channels_added(call, allocation);
        uint32_t device_handle =
            load_relaxed(&active) ? rm_ledger_device_handle(client, allocation->parent) : 0;
        if (device_handle)
            rm_unknown_object(call->fd, client, device_handle, allocation->class_id, call->next);
    }
    return result;
}

/* The kernel may have rounded the size up. */
static void settle_size(unsigned device, uint64_t reserved, uint64_t got, enum account_kind kind)
{
    if (got > reserved)
        account_add(device, got - reserved, kind);
    else if (got < reserved)
        account_release(device, reserved - got, kind);
}

/* Before a refusal, what was kept for descriptors that are closed by now is given back. */
static int reserve(unsigned device, uint64_t bytes, enum account_kind kind)
{
    int error = account_reserve(device, bytes, kind);
    if (error && rm_export_sweep())
        error = account_reserve(device, bytes, kind);
    return error;
}

static int refuse(const struct rm_allocation *allocation)
{
    thread_refusals++;
    return rm_allocation_refuse(allocation);
}

/* Where an allocation lies. */
struct place {
    unsigned device;
    uint32_t device_handle;
};

/* The kernel has been asked for `allocation`. `charged`: `reserved` bytes were charged before. */
static int settle(const struct rm_call *call, struct rm_allocation *allocation,
    const struct place *place, bool charged, uint64_t reserved, int result)
{
    enum account_kind kind = rm_memory_thread_kind;
    uint32_t status = result == 0 ? rm_allocation_answer(allocation) : RM_ERR_INVALID_ARGUMENT;
    uint64_t got = status == RM_OK ? allocation->bytes : 0;
    if (status == RM_OK) {
        forget_stale(allocation->client, allocation->object);
        (void)!rm_ledger_add(allocation->client, allocation->parent, allocation->object,
            allocation->class_id, got, place->device, kind);
    }
    rm_charging_end_call();
    thread_refusals += status == RM_ERR_NO_MEMORY;
    if (charged) {
        account_commit(place->device, reserved);
        settle_size(place->device, reserved, got, kind);
        if (status == RM_OK && rm_audit_is_due(place->device))
            rm_audit(call->fd, allocation->client, place->device_handle, false, call->next);
    }
    return result;
}

/* The driver restores what is away, or needs it for the checkpoint: no limit is asked. */
static int alloc_restored(
    const struct rm_call *call, struct rm_allocation *allocation, const struct place *place)
{
    rm_charging_begin_call();
    int result = settle(call, allocation, place, false, 0, rm_call_pass(call));
    if (result == 0 && rm_allocation_answer(allocation) == RM_OK && allocation->bytes)
        rm_away_came_back(place->device, allocation->bytes, rm_memory_thread_kind);
    return result;
}

/* Charged, asked for, settled: under one guard window, of which each step would open its own. */
static int alloc_charged(
    const struct rm_call *call, struct rm_allocation *allocation, const struct place *place)
{
    guard_enter();
    int result;
    uint64_t reserved = allocation->bytes;
    bool moves = is_move(reserved, rm_memory_thread_kind, true);
    int error = reserved && !moves ? reserve(place->device, reserved, rm_memory_thread_kind) : 0;
    if (moves) {
        rm_charging_begin_call();
        result = settle(call, allocation, place, false, 0, rm_call_pass(call));
        if (result != 0 || rm_allocation_answer(allocation) != RM_OK)
            (void)is_move(reserved, ACCOUNT_MOVABLE, false);
        else
            settle_size(place->device, reserved, allocation->bytes, ACCOUNT_MOVABLE);
    } else if (error) {
        thread_over_limit += error == -ENOMEM;
        result = refuse(allocation);
    } else {
        rm_charging_begin_call();
        result = settle(call, allocation, place, true, reserved, rm_call_pass(call));
    }
    guard_leave();
    return result;
}

static int alloc_memory(const struct rm_call *call, struct rm_allocation *allocation)
{
    uint32_t device_handle = rm_ledger_device_handle(allocation->client, allocation->parent);
    int device = rm_device_index(call->fd, allocation->client, device_handle, call->next);
    if (device == CONTAINER_DEVICE_CLOSED)
        return refuse(allocation);
    /* Before the first memory was seen, the API ledger will count; after it, a device that cannot
     * be told is one of those that are limited. */
    if (device < 0) {
        store_relaxed(&any_unidentified, true);
        return load_acquire(&active) && container_unidentified_device() == CONTAINER_DEVICE_CLOSED
                   ? refuse(allocation)
                   : alloc_object(call, allocation);
    }
    store_release(&active, true);
    struct place place = {.device = (unsigned)device, .device_handle = device_handle};
    rm_unknown_note_device(place.device, call->fd, allocation->client, device_handle);
    if (rm_charging_is_on() && rm_away_is_on())
        return alloc_restored(call, allocation, &place);
    if (rm_charging_is_on())
        return alloc_charged(call, allocation, &place);
    rm_charging_begin_call();
    return settle(call, allocation, &place, false, 0, rm_call_pass(call));
}

static int do_alloc(const struct rm_call *call, struct rm_allocation *allocation)
{
    if (allocation->class_id == RM_CLASS_CLIENT || allocation->class_id == RM_CLASS_CLIENT_0) {
        container_enter();
        return alloc_client(call, allocation);
    }
    if (!load_acquire(&any_client) || !rm_ledger_knows_client(allocation->client))
        return rm_call_pass(call);
    return allocation->bytes ? alloc_memory(call, allocation) : alloc_object(call, allocation);
}

static int do_free(const struct rm_call *call, const struct rm_release *release)
{
    uint32_t client = release->client, object = release->object;
    uint32_t device_handle = rm_ledger_device_handle(client, object);
    bool hidden = rm_ledger_imports() || rm_unknown_has_memory();
    rm_charging_begin_call();
    uint32_t class_id = rm_ledger_class(client, object);
    struct rm_subtree *subtree = rm_ledger_detach(client, object);
    struct rm_channels_detached *channels = rm_channels_detach(client, object, class_id);
    int result = rm_call_pass(call);
    bool freed = subtree && result == 0 && rm_release_answer(release) == RM_OK;
    if (freed) {
        rm_channels_drop(channels);
        rm_ledger_drop(subtree, freed_visit, NULL);
    } else if (subtree) {
        rm_ledger_attach(subtree);
        rm_channels_attach(channels);
    }
    rm_charging_end_call(); /* not before the ledger has it, too */
    if (freed && hidden && device_handle && device_handle != object)
        rm_audit(call->fd, client, device_handle, true, call->next);
    return result;
}

static int do_duplicate(const struct rm_call *call)
{
    struct rm_dup form;
    int result = rm_call_pass(call);
    if (!rm_call_answer(call, result, &form, sizeof(form)) || form.status != RM_OK ||
        !rm_ledger_knows_client(form.client))
        return result;
    forget_stale(form.client, form.object);
    if (!rm_ledger_add_duplicate(
            form.client, form.parent, form.object, form.client_src, form.object_src))
        rm_export_imported(call->fd, form.client, form.parent, form.object, call->next);
    return result;
}

static bool lets_channels_run(uint32_t command)
{
    return command == RM_CTRL_GPFIFO_SCHEDULE || RM_CTRL_IS_CHANNEL_SCHEDULE(command);
}

static int do_control(const struct rm_call *call)
{
    struct rm_control form;
    int result = rm_export_control(call);
    if (rm_channels_any_closed() && rm_call_answer(call, result, &form, sizeof(form)) &&
        form.status == RM_OK && lets_channels_run(form.cmd))
        rm_channels_scheduled(form.client, form.object);
    return result;
}

static int do_other(const struct rm_call *call)
{
    int result = rm_call_pass(call);
    if (result == 0 && load_relaxed(&active))
        rm_unknown_call(call->fd, call->number, call->next);
    return result;
}

int rm_memory_ioctl(int fd, unsigned long request, void *argument, rm_ioctl_function *next)
{
    struct rm_call call;
    struct rm_allocation allocation;
    struct rm_release release;
    /* A forked child inherits descriptors and a copy of this state; entering clears it. */
    if (load_acquire(&any_client))
        container_enter();
    if (!rm_call_open(&call, fd, request, argument, next))
        return next(fd, request, argument);
    if (rm_call_allocation(&call, &allocation))
        return do_alloc(&call, &allocation);
    if (!load_acquire(&any_client))
        return rm_call_pass(&call);
    if (rm_call_release(&call, &release))
        return do_free(&call, &release);
    switch (call.number) {
    case RM_NR_DUP_OBJECT:
        return do_duplicate(&call);
    case RM_NR_CONTROL:
        return do_control(&call);
    case RM_NR_SHARE:
        return rm_export_share(&call);
    case RM_NR_EXPORT_TO_DMABUF:
        return rm_export_dmabuf(&call);
    default:
        return do_other(&call);
    }
}
