/* SPDX-License-Identifier: Apache-2.0 */
/* Which other devices reach a context's memory (cuCtxEnablePeerAccess): a mapping has to be told of
 * each, those that exist and those that come. */
#include "vmem/vmem_parts.h"

CUdevice vmem_peer_at(uint64_t context, unsigned number, uint64_t *ret_changes)
{
    LOCKED_TO_END(vmem_lock);
    *ret_changes = vmem.peer_changes;
    for (unsigned i = 0; i < vmem.peer_count; i++) {
        if (vmem.peers[i].context == context && number-- == 0)
            return vmem.peers[i].ordinal;
    }
    return -1;
}

CUresult vmem_let_peers(const struct range *range, uint64_t *ret_changes)
{
    CUresult result = CUDA_SUCCESS;
    CUdevice accessor;
    uint64_t changes;
    accessor = vmem_peer_at(range->context, 0, ret_changes);
    for (unsigned i = 1; accessor >= 0 && result == CUDA_SUCCESS; i++) {
        result = range_set_access(range, accessor, CU_MEM_ACCESS_FLAGS_PROT_READWRITE);
        accessor = vmem_peer_at(range->context, i, &changes);
    }
    return result;
}

bool vmem_peers_changed(uint64_t changes)
{
    LOCKED_TO_END(vmem_lock);
    return vmem.peer_changes != changes;
}

/* False where there is no room for it. */
static bool note(const struct vmem_peer *peer, bool access)
{
    LOCKED_TO_END(vmem_lock);
    unsigned at = 0;
    while (at < vmem.peer_count &&
           (vmem.peers[at].context != peer->context || vmem.peers[at].accessor != peer->accessor))
        at++;
    if (at == vmem.peer_count && access) {
        if (at == VMEM_PEERS_MAX)
            return false;
        vmem.peers[vmem.peer_count] = *peer;
        vmem.peers[vmem.peer_count++].born = ++vmem.last_born;
    } else if (at < vmem.peer_count && !access) {
        vmem.peers[at] = vmem.peers[--vmem.peer_count];
    }
    vmem.peer_changes++;
    return true;
}

/* Mappings know devices alone: what one context of a device gives up another may still have. */
static bool is_reached_from(uint64_t context, CUdevice ordinal)
{
    LOCKED_TO_END(vmem_lock);
    for (unsigned i = 0; i < vmem.peer_count; i++) {
        if (vmem.peers[i].context == context && vmem.peers[i].ordinal == ordinal)
            return true;
    }
    return false;
}

/* The context's first range at or above *cursor, which moves behind it. */
static struct range *next_range(uint64_t context, CUdeviceptr *cursor)
{
    LOCKED_TO_END(vmem_lock);
    struct range *range;
    while ((range = range_table_from(&vmem.table, *cursor))) {
        *cursor = range->address + range->bytes;
        if (range->context == context) {
            vmem_use_locked(range);
            return range;
        }
    }
    return NULL;
}

CUresult vmem_set_peer(uint64_t context, uint64_t accessor, CUdevice ordinal, bool access)
{
    const struct vmem_peer peer = {.context = context, .accessor = accessor, .ordinal = ordinal};
    CUmemAccess_flags flags =
        access ? CU_MEM_ACCESS_FLAGS_PROT_READWRITE : CU_MEM_ACCESS_FLAGS_PROT_NONE;
    CUresult result = CUDA_SUCCESS;
    CUdeviceptr cursor = 0;
    struct range *range;
    if (!load_relaxed(&vmem_is_asked_for))
        return CUDA_SUCCESS;
    if (!note(&peer, access))
        return CUDA_ERROR_TOO_MANY_PEERS;
    if (!access && is_reached_from(context, ordinal))
        return CUDA_SUCCESS;
    while (result == CUDA_SUCCESS && (range = next_range(context, &cursor))) {
        if (range->ordinal != ordinal)
            result = range_set_access(range, ordinal, flags);
        (void)vmem_leave(range);
    }
    return result;
}
