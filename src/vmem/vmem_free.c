/* SPDX-License-Identifier: Apache-2.0 */
/* Frees. A free first ends the allocation, so that no call finds it any more, then waits for the
 * context's work as cuMemFree does, and only then gives the memory back. A wait breaks a capture in
 * the context and, from a relaxed thread, none in another (H200, driver 580.159.04), so meanwhile
 * frees are put off; those in stream order are, until an event behind them has come. */
#include "driver/cuda.h"
#include "memory/memory.h"
#include "pace/capture.h"
#include "vmem/vmem_parts.h"

/* Calls it in the context; captures elsewhere are not broken by it. */
static CUresult in_context(uint64_t context, CUresult (*call)(void *argument), void *argument)
{
    CUcontext wanted = (CUcontext)(uintptr_t)context, current = NULL, popped;
    struct capture_relaxed former = capture_relax();
    bool there = cuda.cuCtxGetCurrent(&current) == CUDA_SUCCESS && current == wanted;
    CUresult result = there ? CUDA_SUCCESS : cuda.cuCtxPushCurrent_v2(wanted);
    if (result == CUDA_SUCCESS) {
        result = call(argument);
        if (!there)
            (void)cuda.cuCtxPopCurrent_v2(&popped);
    }
    capture_restore(&former);
    return result;
}

static CUresult synchronise(void *argument)
{
    (void)argument;
    return cuda.cuCtxSynchronize();
}

/* All work of the context is done, or the context is no more. */
static CUresult wait_for(uint64_t context)
{
    CUresult result = in_context(context, synchronise, NULL);
    bool is_none =
        result == CUDA_ERROR_CONTEXT_IS_DESTROYED || result == CUDA_ERROR_INVALID_CONTEXT;
    return is_none ? CUDA_SUCCESS : result;
}

/* One that was not known of. */
static bool is_of_capture(CUresult result)
{
    return result >= CUDA_ERROR_STREAM_CAPTURE_UNSUPPORTED &&
           result <= CUDA_ERROR_STREAM_CAPTURE_WRONG_THREAD;
}

/* Ends the allocation that begins at the address, and uses its range. */
static bool end_allocation(CUdeviceptr address, struct vmem_ended *ret_ended)
{
    LOCKED_TO_END(vmem_lock);
    struct range *range = range_table_find(&vmem.table, address);
    if (!range)
        return false;
    uint32_t offset = (uint32_t)(address - range->address), bytes = 0;
    if (range->block)
        bytes = block_end(range->block, offset);
    if (range->block ? !bytes : range->ended || address != range->address)
        return false;
    range->ended = !range->block;
    vmem_use_locked(range);
    *ret_ended = (struct vmem_ended){.range = range, .part = {.offset = offset, .bytes = bytes}};
    return true;
}

static void revive_locked(const struct vmem_ended *ended) REQUIRES(vmem_lock)
{
    if (ended->range->block)
        block_revive(ended->range->block, ended->part);
    else
        ended->range->ended = false;
}

static bool is_used_by_others_locked(const void *of) REQUIRES(vmem_lock)
{
    const struct range *range = of;
    return range->users > 1;
}

/* Ended allocations of a range that lost its context have nothing left to give back. An allocation
 * whose range the driver does not drop lives on; a block that it does not drop is empty. */
static CUresult give_back(const struct vmem_ended *ended)
{
    struct range *range = ended->range;
    bool is_block = range->block != NULL, drops = false;
    LOCKED(vmem_lock) {
        if (!range->gone && (!is_block || block_give(range->block, ended->part))) {
            vmem_remove_locked(range);
            range->gone = drops = true;
        }
    }
    if (drops)
        vmem_wait_while_used(is_used_by_others_locked, range);
    CUresult result = vmem_leave(range);
    return is_block ? CUDA_SUCCESS : result;
}

static void revive(const struct vmem_ended *ended)
{
    LOCKED(vmem_lock)
        revive_locked(ended);
    (void)vmem_leave(ended->range);
}

/* ---- what is put off ---- */

static bool defer_locked(const struct vmem_ended *ended) REQUIRES(vmem_lock)
{
    struct vmem_ended *kept = slab_take(&vmem.ended);
    if (!kept)
        return false;
    *kept = *ended;
    kept->next = vmem.deferred;
    kept->range->deferred++;
    vmem.deferred = kept;
    vmem_count_locked();
    return true;
}

static bool defer(const struct vmem_ended *ended)
{
    LOCKED_TO_END(vmem_lock);
    return defer_locked(ended);
}

/* True where a capture is going on there, and the free is put off. */
static bool defer_behind_capture(const struct vmem_ended *ended)
{
    LOCKED_TO_END(vmem_lock);
    return vmem_captures_locked(ended->range->context) && defer_locked(ended);
}

/* Put off again, unless its context was ended meanwhile. */
static bool keep(struct vmem_ended *ended)
{
    LOCKED_TO_END(vmem_lock);
    if (ended->range->gone)
        return false;
    ended->next = vmem.deferred;
    ended->range->deferred++;
    vmem.deferred = ended;
    vmem_count_locked();
    return true;
}

/* What a look at the list is about. Events of other contexts may go at any moment. */
struct look {
    uint64_t context; /* 0: all, and events are waited for */
    bool events_only;
};

static bool is_due_locked(const struct vmem_ended *ended, const struct look *look)
    REQUIRES(vmem_lock)
{
    const struct range *range = ended->range;
    return (!look->context || look->context == range->context) && !vmem_may_go_locked(range) &&
           (ended->event || (!look->events_only && !vmem_captures_locked(range->context)));
}

/* Takes those that are due out of the list, so that each is looked at once. */
static struct vmem_ended *take_due(const struct look *look)
{
    LOCKED_TO_END(vmem_lock);
    struct vmem_ended *due = NULL;
    for (struct vmem_ended **at = &vmem.deferred; *at;) {
        struct vmem_ended *found = *at;
        if (is_due_locked(found, look)) {
            *at = found->next;
            found->range->deferred--;
            found->next = due;
            due = found;
        } else {
            at = &found->next;
        }
    }
    return due;
}

/* Events go with their contexts. */
static CUresult wait_for_ended(const struct vmem_ended *ended, bool waits)
{
    if (!ended->event)
        return wait_for(ended->range->context);
    struct capture_relaxed former = capture_relax();
    CUresult result = cuda.cuEventQuery(ended->event);
    if (result == CUDA_ERROR_NOT_READY && waits)
        result = cuda.cuEventSynchronize(ended->event);
    capture_restore(&former);
    return result;
}

static bool give_back_due(const struct look *look)
{
    bool any = false;
    struct vmem_ended *due = take_due(look), *next;
    for (; due; due = next) {
        next = due->next;
        bool is_gone = false;
        LOCKED(vmem_lock)
            is_gone = due->range->gone;
        CUresult result = is_gone ? CUDA_SUCCESS : wait_for_ended(due, !look->context);
        if ((result == CUDA_ERROR_NOT_READY || is_of_capture(result)) && keep(due))
            continue;
        if (due->event && !is_gone)
            (void)cuda.cuEventDestroy_v2(due->event);
        (void)give_back(due);
        LOCKED(vmem_lock) {
            slab_give(&vmem.ended, due);
            vmem_count_locked();
        }
        any = true;
    }
    return any;
}

void vmem_free_deferred(uint64_t context)
{
    const struct look own = {.context = context};
    if (context)
        (void)give_back_due(&own);
}

bool vmem_free_all_deferred(void)
{
    const struct look all = {.context = 0};
    return give_back_due(&all);
}

void vmem_drop_deferred(const struct vmem_end *end)
{
    struct vmem_ended *found;
    do {
        found = NULL;
        LOCKED(vmem_lock) {
            struct vmem_ended **at = &vmem.deferred;
            while (*at && !vmem_goes_with(end, (*at)->range->context, (*at)->range->born))
                at = &(*at)->next;
            found = *at;
            if (found) {
                *at = found->next;
                found->range->deferred--;
            }
        }
        if (found) {
            (void)give_back(found);
            LOCKED(vmem_lock) {
                slab_give(&vmem.ended, found);
                vmem_count_locked();
            }
        }
    } while (found);
}

void vmem_look_slow(void)
{
    struct look own = {.events_only = true};
    if (load_relaxed(&vmem.deferred) && memory_current_context &&
        memory_current_context(&own.context) == 0 && own.context)
        (void)give_back_due(&own);
}

/* ---- frees ---- */

/* What was put off waits for the context that is waited for anyway. */
static bool begin_free(CUdeviceptr dptr, struct vmem_ended *ret_ended, CUresult *ret_result)
{
    struct vmem_allocation allocation;
    CUdevice ordinal;
    uint64_t context = 0;
    bool found = vmem_find_slow(dptr, &allocation);
    if (found)
        context = allocation.context;
    else if (!memory_current_context || memory_current_context(&context) != 0)
        context = 0;
    if (load_relaxed(&vmem.deferred))
        vmem_free_deferred(context);
    if (!found)
        return false;
    *ret_result = cuda.cuCtxGetDevice(&ordinal); /* as cuMemFree, only with a current context */
    return *ret_result != CUDA_SUCCESS || end_allocation(dptr, ret_ended);
}

bool vmem_free_slow(CUdeviceptr dptr, CUresult *ret_result)
{
    struct vmem_ended ended = {0};
    if (!begin_free(dptr, &ended, ret_result))
        return false;
    if (*ret_result != CUDA_SUCCESS || defer_behind_capture(&ended))
        return true;
    *ret_result = wait_for(ended.range->context);
    if (is_of_capture(*ret_result) && defer(&ended))
        *ret_result = CUDA_SUCCESS;
    else if (*ret_result == CUDA_SUCCESS)
        *ret_result = give_back(&ended);
    else
        revive(&ended);
    return true;
}

struct mark {
    CUstream stream;
    CUevent event;
};

static CUresult record(void *argument)
{
    struct mark *mark = argument;
    CUresult result = cuda.cuEventCreate(&mark->event, CU_EVENT_DISABLE_TIMING);
    if (result != CUDA_SUCCESS)
        return result;
    result = cuda.cuEventRecord(mark->event, mark->stream);
    if (result != CUDA_SUCCESS)
        (void)cuda.cuEventDestroy_v2(mark->event);
    return result;
}

bool vmem_free_in_order_slow(
    CUdeviceptr dptr, CUstream stream, CUcontext context, CUresult *ret_result)
{
    struct vmem_ended ended = {0};
    struct mark mark = {.stream = stream};
    if (!begin_free(dptr, &ended, ret_result))
        return false;
    if (*ret_result != CUDA_SUCCESS)
        return true;
    *ret_result = in_context((uintptr_t)context, record, &mark);
    ended.event = mark.event;
    if (*ret_result != CUDA_SUCCESS)
        revive(&ended);
    else if (!defer(&ended)) {
        (void)cuda.cuEventSynchronize(mark.event);
        (void)cuda.cuEventDestroy_v2(mark.event);
        *ret_result = give_back(&ended);
    }
    return true;
}
