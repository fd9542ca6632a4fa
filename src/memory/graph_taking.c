/* SPDX-License-Identifier: Apache-2.0 */
/* The memory of graphs, in the account. */
#include "memory/graph_taking.h"

#include "container/device.h"
#include "pace/capture.h"
#include "rm/rm_memory.h"

#include <stddef.h>

static uint64_t managed_key(CUgraphExec handle, CUdevice ordinal)
{
    return (uintptr_t)handle ^ (uint64_t)ordinal << 48;
}

static uint64_t managed_charged(CUgraphExec handle, const struct graph_exec *exec, CUdevice ordinal)
{
    uint64_t bytes = memory_recorded_bytes(MEMORY_GRAPH_MANAGED, managed_key(handle, ordinal));
    for (unsigned i = 0; i < exec->needs.left_count; i++) {
        if (exec->needs.left[i].ordinal == ordinal)
            bytes += memory_recorded_bytes(MEMORY_POINTER, exec->needs.left[i].pointer);
    }
    return bytes;
}

static void charge_managed(CUgraphExec handle, const struct graph_exec *exec, CUdevice ordinal)
{
    int device = device_index(ordinal);
    uint64_t own = exec->needs.managed_bytes[ordinal];
    for (unsigned i = 0; i < exec->needs.left_count; i++) {
        const struct graph_left *left = &exec->needs.left[i];
        if (left->ordinal != ordinal)
            continue;
        memory_set_owned(
            MEMORY_POINTER, left->pointer, device, left->bytes, ACCOUNT_MANAGED, exec->context);
        own -= left->bytes;
    }
    memory_set_owned(MEMORY_GRAPH_MANAGED, managed_key(handle, ordinal), device, own,
        ACCOUNT_MANAGED, exec->context);
}

void graph_taking_release(CUgraphExec handle, const struct graph_exec *exec)
{
    for (CUdevice ordinal = 0; ordinal < (CUdevice)VGPU_REGION_DEVICES; ordinal++) {
        uint64_t key = managed_key(handle, ordinal), more = exec->needs.left_more_bytes[ordinal];
        if (!exec->needs.managed_bytes[ordinal])
            continue;
        struct memory_record record = memory_take(MEMORY_GRAPH_MANAGED, key);
        if (record.device >= 0 && more)
            account_add((unsigned)record.device, more, ACCOUNT_MANAGED);
        memory_taken(&record, true, MEMORY_GRAPH_MANAGED, key);
    }
}

void graph_taking_end(
    struct graph_taking *taking, CUgraphExec handle, const struct graph_exec *exec, bool taken)
{
    for (unsigned i = taking->count; i-- > 0;) {
        pools_charge_graphs(taking->ordinals[i], taking->requests[i].device, &taking->foreseen[i]);
        memory_end(&taking->requests[i], false, MEMORY_GRAPH_POOL, 0);
    }
    for (unsigned i = taking->managed_count; i-- > 0;) {
        if (taken)
            charge_managed(handle, exec, taking->managed_ordinals[i]);
        memory_end(&taking->managed[i], false, MEMORY_GRAPH_MANAGED, 0);
    }
    context_memory_settle(&taking->growth, taken);
}

static bool begin_managed(struct graph_taking *taking, CUgraphExec handle,
    const struct graph_exec *exec, CUdevice ordinal)
{
    uint64_t bytes = exec->needs.managed_bytes[ordinal];
    uint64_t charged = bytes && handle ? managed_charged(handle, exec, ordinal) : 0;
    unsigned i = taking->managed_count;
    if (bytes <= charged)
        return true;
    if (memory_begin(
            &taking->managed[i], device_index(ordinal), bytes - charged, ACCOUNT_MANAGED) != 0)
        return false;
    /* The graph's other memory is not managed. */
    rm_memory_set_kind(taking->managed[i].former_kind);
    taking->managed_ordinals[i] = ordinal;
    taking->managed_count++;
    return true;
}

bool graph_taking_begin(
    struct graph_taking *taking, CUgraphExec handle, const struct graph_exec *exec)
{
    bool fits = true;
    taking->count = taking->managed_count = 0;
    taking->growth = (struct context_growth){.charged = false};
    if (exec->needs.local_bytes > GRAPH_DEFAULT_LOCAL_BYTES)
        fits = context_memory_fits_limit(
            CU_LIMIT_STACK_SIZE, (size_t)exec->needs.local_bytes, &taking->growth);
    struct capture_relaxed former = capture_relax();
    for (CUdevice ordinal = 0; fits && ordinal < (CUdevice)VGPU_REGION_DEVICES; ordinal++)
        fits = begin_managed(taking, handle, exec, ordinal);
    for (CUdevice ordinal = 0; fits && ordinal < (CUdevice)VGPU_REGION_DEVICES; ordinal++) {
        uint64_t bytes = exec->needs.bytes[ordinal];
        if (!bytes)
            continue;
        uint64_t freed_first = exec->frees_itself && exec->launched ? bytes : 0;
        unsigned i = taking->count;
        taking->ordinals[i] = ordinal;
        taking->foreseen[i] = pools_graph_growth(ordinal, bytes, freed_first);
        fits = memory_begin(&taking->requests[i], device_index(ordinal), taking->foreseen[i].bytes,
                   ACCOUNT_BUFFER) == 0;
        taking->count += fits;
    }
    capture_restore(&former);
    if (!fits)
        graph_taking_end(taking, handle, exec, false);
    return fits;
}
