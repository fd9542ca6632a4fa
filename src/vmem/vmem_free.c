/* SPDX-License-Identifier: Apache-2.0 */
/* Frees, and the ends of contexts. A free first ends the allocation, so that nobody finds it any
 * more, then waits for the context's work as cuMemFree does, and only then gives the memory back.
 * A wait would break a capture, so meanwhile frees are put off. */
#include "driver/cuda.h"
#include "vmem/vmem_parts.h"

/* All work of the context is done, or the context is no more. */
static CUresult wait_for(uint64_t context)
{
    CUcontext wanted = (CUcontext)(uintptr_t)context, current = NULL, popped;
    if (cuda.cuCtxGetCurrent(&current) == CUDA_SUCCESS && current == wanted)
        return cuda.cuCtxSynchronize();
    CUresult result = cuda.cuCtxPushCurrent_v2(wanted);
    if (result == CUDA_SUCCESS) {
        result = cuda.cuCtxSynchronize();
        (void)cuda.cuCtxPopCurrent_v2(&popped);
    }
    bool is_none =
        result == CUDA_ERROR_CONTEXT_IS_DESTROYED || result == CUDA_ERROR_INVALID_CONTEXT;
    return is_none ? CUDA_SUCCESS : result;
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

/* Ended allocations of a range that lost its context have nothing left to give back. An allocation
 * whose range the driver does not drop lives on; a block that it does not drop is empty. */
static CUresult give_back(const struct vmem_ended *ended)
{
    struct range *range = ended->range;
    bool is_block = range->block != NULL;
    LOCKED(vmem_lock) {
        if (!range->gone && (!is_block || block_give(range->block, ended->part))) {
            vmem_remove_locked(range);
            range->gone = true;
        }
    }
    CUresult result = vmem_leave(range);
    return is_block ? CUDA_SUCCESS : result;
}

static void revive(const struct vmem_ended *ended)
{
    LOCKED(vmem_lock)
        revive_locked(ended);
    (void)vmem_leave(ended->range);
}

/* True where a capture is going on, and the free is put off. */
static bool defer(const struct vmem_ended *ended)
{
    LOCKED_TO_END(vmem_lock);
    struct vmem_ended *kept = vmem.captures ? slab_take(&vmem.ended) : NULL;
    if (!kept)
        return false;
    *kept = *ended;
    kept->next = vmem.deferred;
    vmem.deferred = kept;
    vmem_count_locked();
    return true;
}

static bool next_deferred(struct vmem_ended *ret_ended)
{
    LOCKED_TO_END(vmem_lock);
    struct vmem_ended *first = vmem.captures ? NULL : vmem.deferred;
    if (!first)
        return false;
    *ret_ended = *first;
    vmem.deferred = first->next;
    slab_give(&vmem.ended, first);
    vmem_count_locked();
    return true;
}

void vmem_free_deferred(void)
{
    struct vmem_ended ended;
    while (next_deferred(&ended)) {
        (void)wait_for(ended.range->context);
        (void)give_back(&ended);
    }
}

bool vmem_free_slow(CUdeviceptr dptr, CUresult *ret_result)
{
    struct vmem_allocation allocation;
    struct vmem_ended ended;
    CUdevice ordinal;
    vmem_free_deferred();
    if (!vmem_find_slow(dptr, &allocation))
        return false;
    *ret_result = cuda.cuCtxGetDevice(&ordinal); /* as cuMemFree, only with a current context */
    if (*ret_result != CUDA_SUCCESS)
        return true;
    if (!end_allocation(dptr, &ended))
        return false;
    if (defer(&ended))
        return true;
    *ret_result = wait_for(ended.range->context);
    if (*ret_result == CUDA_SUCCESS)
        *ret_result = give_back(&ended);
    else
        revive(&ended);
    return true;
}

void vmem_capture_begins(void)
{
    LOCKED_TO_END(vmem_lock);
    vmem.captures++;
}

void vmem_capture_ends(void)
{
    LOCKED_TO_END(vmem_lock);
    if (vmem.captures)
        vmem.captures--;
}

/* Takes the context's next range from *cursor on out of the table, for the caller to drop; NULL:
 * none is left. */
static struct range *take_of_context(const struct vmem_end *end, CUdeviceptr *cursor)
{
    LOCKED_TO_END(vmem_lock);
    struct range *range;
    while ((range = range_table_from(&vmem.table, *cursor))) {
        *cursor = range->address + range->bytes;
        if (vmem_goes_with(end, range->context, range->born)) {
            vmem_remove_locked(range);
            return range;
        }
    }
    return NULL;
}

/* Those put off are used by their records alone. */
static bool take_deferred_of(const struct vmem_end *end, struct vmem_ended *ret_ended)
{
    LOCKED_TO_END(vmem_lock);
    for (struct vmem_ended **at = &vmem.deferred; *at; at = &(*at)->next) {
        struct vmem_ended *found = *at;
        if (vmem_goes_with(end, found->range->context, found->range->born)) {
            *ret_ended = *found;
            *at = found->next;
            slab_give(&vmem.ended, found);
            vmem_count_locked();
            return true;
        }
    }
    return false;
}

static void forget_peers(const struct vmem_end *end)
{
    LOCKED_TO_END(vmem_lock);
    unsigned kept = 0;
    for (unsigned i = 0; i < vmem.peer_count; i++) {
        if (!vmem_goes_with(end, vmem.peers[i].context, vmem.peers[i].born))
            vmem.peers[kept++] = vmem.peers[i];
    }
    vmem.peer_count = kept;
}

void vmem_context_ends(struct vmem_end *end, uint64_t context)
{
    end->context = load_relaxed(&vmem_is_asked_for) ? context : 0;
    if (!end->context)
        return;
    LOCKED_TO_END(vmem_lock);
    end->born = vmem.last_born;
    end->next = vmem.ends;
    vmem.ends = end;
}

static void end_is_over(const struct vmem_end *end)
{
    LOCKED_TO_END(vmem_lock);
    struct vmem_end **at = &vmem.ends;
    while (*at && *at != end)
        at = &(*at)->next;
    if (*at)
        *at = end->next;
}

void vmem_context_ended(struct vmem_end *end, bool gone)
{
    struct vmem_ended ended;
    struct range *range;
    CUdeviceptr cursor = 0;
    if (!end->context)
        return;
    if (gone) {
        while ((range = take_of_context(end, &cursor)))
            vmem_drop(range);
        while (take_deferred_of(end, &ended))
            (void)give_back(&ended);
        forget_peers(end);
    }
    end_is_over(end);
}
