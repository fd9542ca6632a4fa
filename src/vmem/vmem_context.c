/* SPDX-License-Identifier: Apache-2.0 */
/* Contexts: which of them captures, and their ends. */
#include "driver/cuda.h"
#include "memory/memory.h"
#include "vmem/vmem_parts.h"
#include "vmem/world.h"

/* ---- captures ---- */

/* Its address names the thread. */
static _Thread_local char thread_identity __attribute__((tls_model("initial-exec")));

/* Each thread has a default stream of its own by the same handle. */
static struct vmem_capture key_of(CUstream stream, enum stream_zero zero)
{
    if (!stream && zero == STREAM_ZERO_PER_THREAD)
        stream = CU_STREAM_PER_THREAD;
    return (struct vmem_capture){
        .stream = stream, .thread = stream == CU_STREAM_PER_THREAD ? &thread_identity : NULL};
}

static struct vmem_capture **find_locked(const struct vmem_capture *key) REQUIRES(vmem_lock)
{
    struct vmem_capture **at = &vmem.capture_list;
    while (*at && ((*at)->stream != key->stream || (*at)->thread != key->thread))
        at = &(*at)->next;
    return at;
}

static void forget_locked(struct vmem_capture **at) REQUIRES(vmem_lock)
{
    struct vmem_capture *gone = *at;
    *at = gone->next;
    slab_give(&vmem.captures, gone);
    world_note_capture(-1);
}

/* Without room for it a free meanwhile breaks the capture, as the driver's own does. */
void vmem_capture_begins_slow(CUstream stream, enum stream_zero zero)
{
    struct vmem_capture key = key_of(stream, zero);
    CUcontext context = NULL;
    if (cuda.cuStreamGetCtx(key.stream, &context) != CUDA_SUCCESS)
        return;
    LOCKED_TO_END(vmem_lock);
    struct vmem_capture *capture = *find_locked(&key) ? NULL : slab_take(&vmem.captures);
    if (!capture)
        return;
    key.context = (uintptr_t)context;
    key.born = ++vmem.last_born;
    key.next = vmem.capture_list;
    *capture = key;
    vmem.capture_list = capture;
    world_note_capture(1);
}

void vmem_capture_ended_slow(CUstream stream, enum stream_zero zero)
{
    struct vmem_capture key = key_of(stream, zero);
    LOCKED_TO_END(vmem_lock);
    struct vmem_capture **at = find_locked(&key);
    if (*at)
        forget_locked(at);
}

/* Asked again where it is not told: a free that is put off too long costs less than a capture. */
void vmem_capture_settle_slow(CUstream stream, enum stream_zero zero)
{
    CUstreamCaptureStatus status = CU_STREAM_CAPTURE_STATUS_ACTIVE;
    struct vmem_capture key = key_of(stream, zero);
    CUresult result = cuda.cuStreamIsCapturing(key.stream, &status);
    if (result != CUDA_SUCCESS)
        result = cuda.cuStreamIsCapturing(key.stream, &status);
    if (result == CUDA_SUCCESS && status == CU_STREAM_CAPTURE_STATUS_NONE)
        vmem_capture_ended_slow(stream, zero);
}

bool vmem_captures_locked(uint64_t context) REQUIRES(vmem_lock)
{
    const struct vmem_capture *capture = vmem.capture_list;
    while (capture && capture->context != context)
        capture = capture->next;
    return capture != NULL;
}

static void forget_captures(const struct vmem_end *end)
{
    LOCKED_TO_END(vmem_lock);
    struct vmem_capture **at = &vmem.capture_list;
    while (*at) {
        if (vmem_goes_with(end, (*at)->context, (*at)->born))
            forget_locked(at);
        else
            at = &(*at)->next;
    }
}

/* ---- ends ---- */

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

static void forget_peers(const struct vmem_end *end)
{
    LOCKED_TO_END(vmem_lock);
    unsigned kept = 0;
    for (unsigned i = 0; i < vmem.peer_count; i++) {
        const struct vmem_peer *peer = &vmem.peers[i];
        if (!vmem_goes_with(end, peer->context, peer->born) &&
            !vmem_goes_with(end, peer->accessor, peer->born))
            vmem.peers[kept++] = *peer;
    }
    vmem.peer_count = kept;
}

static bool is_moved_locked(const void *of) REQUIRES(vmem_lock)
{
    const struct vmem_end *end = of;
    const struct range *range = NULL;
    while ((range = range_table_next(&vmem.table, range))) {
        if (vmem_goes_with(end, range->context, range->born) && range->users > range->deferred)
            return true;
    }
    return false;
}

void vmem_context_ends(struct vmem_end *end, uint64_t context)
{
    end->recorded = memory_context_ends();
    end->context = load_relaxed(&vmem_is_asked_for) ? context : 0;
    if (!end->context)
        return;
    LOCKED(vmem_lock) {
        end->born = vmem.last_born;
        end->next = vmem.ends;
        vmem.ends = end;
    }
    vmem_wait_while_used(is_moved_locked, end);
}

bool vmem_may_go_locked(const struct range *range) REQUIRES(vmem_lock)
{
    for (const struct vmem_end *end = vmem.ends; end; end = end->next) {
        if (vmem_goes_with(end, range->context, range->born))
            return true;
    }
    return false;
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
    struct range *range;
    CUdeviceptr cursor = 0;
    if (!end->context)
        return;
    if (gone) {
        world_remove_context(end->context);
        while ((range = take_of_context(end, &cursor)))
            vmem_drop(range);
        vmem_drop_deferred(end);
        forget_peers(end);
        forget_captures(end);
    }
    end_is_over(end);
}
