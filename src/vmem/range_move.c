/* SPDX-License-Identifier: Apache-2.0 */
/* What is moved, and the memory for it. */
#include "vmem/range_move.h"

#include "base/atomic.h"
#include "driver/cuda.h"
#include "memory/moving.h"
#include "pace/capture.h"
#include "vmem/host_pool.h"
#include "vmem/range_move_parts.h"
#include "vmem/undo.h"

#include <stddef.h>
#include <string.h>

/* ---- what is moved ---- */

static bool is_to_move(const struct range_move *move, const struct range_part *part)
{
    return part->spilled != move->to_host && (part->moved || !move->only_moved);
}

static uint64_t piece_bytes(const struct range *range, uint64_t bytes, unsigned parts)
{
    uint64_t piece = range_piece_bytes(range->bytes); /* parts are split once */
    bool fits = parts + (bytes - 1) / piece <= RANGE_PARTS_MAX;
    return fits && piece < bytes ? piece : bytes;
}

uint64_t range_move_piece_bytes(const struct range *range, uint64_t bytes)
{
    return piece_bytes(range, bytes, range->part_count);
}

/* How much of that the host has room for. */
static uint64_t room_on_host(const struct range_move *move, uint64_t bytes_max)
{
    uint64_t wanted = 0;
    for (unsigned i = 0; i < move->range->part_count; i++)
        wanted += is_to_move(move, &move->range->parts[i]) ? move->range->parts[i].bytes : 0;
    return host_pool_room_for(wanted < bytes_max ? wanted : bytes_max);
}

/* Whole parts, as many as the bytes and the host's room allow. The budget of host memory is asked
 * again with each piece, as it is the container's. */
static void plan(struct range_move *move, uint64_t bytes_max)
{
    const struct range *range = move->range;
    uint64_t room = move->to_host ? room_on_host(move, bytes_max) : UINT64_MAX;
    unsigned parts = range->part_count; /* as many as there will be */
    for (unsigned i = 0; i < range->part_count; i++) {
        const struct range_part *part = &range->parts[i];
        if (!is_to_move(move, part) || part->bytes > bytes_max - move->bytes)
            continue;
        if (part->bytes > room - move->bytes) {
            move->result = CUDA_ERROR_OUT_OF_MEMORY;
            continue;
        }
        uint64_t piece = move->to_host ? piece_bytes(range, part->bytes, parts) : part->bytes;
        parts += (unsigned)((part->bytes - 1) / piece);
        for (uint64_t at = 0; at < part->bytes; at += piece) {
            uint64_t left = part->bytes - at;
            move->pieces[move->count++] =
                (struct range_move_piece){.bytes = left < piece ? left : piece, .part = i};
        }
        move->bytes += part->bytes;
    }
}

/* ---- the new memory ---- */

/* Host memory is kept ready for the next move, unless it was parked: it cannot be exported again.
 */
static CUresult give_back(const struct range_move *move, const struct range_part *part)
{
    int numa_node = part->spilled ? range_property(move->range->ordinal, true).location.id : 0;
    if (part->spilled && !part->descriptor && host_pool_keep(numa_node, part->bytes, part->handle))
        return CUDA_SUCCESS;
    return range_release_part(part);
}

static struct range_part part_of(
    const struct range_move *move, const struct range_move_piece *piece)
{
    return (struct range_part){.handle = piece->handle,
        .bytes = piece->bytes,
        .spilled = move->to_host,
        .moved = move->is_away};
}

/* Between a look and the charge others may have taken the room, to have it ready. */
static bool begin(const struct range_move *move, uint64_t bytes, bool ready, struct moving *moving)
{
    unsigned device = (unsigned)move->range->device;
    bool asks = move->to_host && !ready;
    if (asks)
        (void)host_pool_make_room(bytes, false);
    return moving_begin(moving, device, bytes, move->to_host, ready) == 0 ||
           (asks && host_pool_make_room(bytes, true) &&
               moving_begin(moving, device, bytes, move->to_host, ready) == 0);
}

static CUresult make_piece(struct range_move *move, struct range_move_piece *piece)
{
    CUmemAllocationProp property = range_property(move->range->ordinal, move->to_host);
    struct moving moving;
    bool ready =
        move->to_host && host_pool_take(property.location.id, piece->bytes, &piece->handle);
    if (!begin(move, piece->bytes, ready, &moving))
        return CUDA_ERROR_OUT_OF_MEMORY;
    moving_make(&moving);
    CUresult result =
        ready ? CUDA_SUCCESS : cuda.cuMemCreate(&piece->handle, piece->bytes, &property, 0);
    moving_made(&moving, result == CUDA_SUCCESS, piece->handle);
    if (result != CUDA_SUCCESS)
        moving_end_back(&moving);
    return result;
}

/* Gives the memory back that was moved away from (`old`), or that was made for nothing. */
static void release(
    const struct range_move *move, struct moving *moving, bool old, const struct range_part *part)
{
    moving_release(moving, old, part->handle);
    CUresult result = give_back(move, part);
    moving_released(moving, old, result == CUDA_SUCCESS, part->handle);
}

static struct moving moving_of(const struct range_move *move, uint64_t bytes)
{
    return (struct moving){.device = (unsigned)move->range->device,
        .bytes = bytes,
        .from = move->to_host ? ACCOUNT_MOVABLE : ACCOUNT_SPILLED,
        .to = move->to_host ? ACCOUNT_SPILLED : ACCOUNT_MOVABLE};
}

void range_move_unmake(const struct range_move *move, unsigned first, unsigned end)
{
    for (unsigned i = first; i < end; i++) {
        struct moving moving = moving_of(move, move->pieces[i].bytes);
        struct range_part part = part_of(move, &move->pieces[i]);
        release(move, &moving, false, &part);
        moving_end_back(&moving);
    }
}

/* Leaves the first `count` pieces in the move, less those of a part that is not among them whole.
 */
static void cut(struct range_move *move, unsigned count)
{
    unsigned whole = count;
    while (whole && whole < move->count && move->pieces[whole - 1].part == move->pieces[whole].part)
        whole--;
    range_move_unmake(move, whole, count);
    for (unsigned i = whole; i < move->count; i++)
        move->bytes -= move->pieces[i].bytes;
    move->count = whole;
}

static void make(struct range_move *move)
{
    for (unsigned i = 0; i < move->count; i++) {
        CUresult result = make_piece(move, &move->pieces[i]);
        if (result != CUDA_SUCCESS) {
            move->result = result;
            cut(move, i);
        }
    }
}

void range_move_replace(struct range_move *move, unsigned first, unsigned end)
{
    struct range *range = move->range;
    unsigned part = move->pieces[first].part, more = end - first - 1;
    struct range_part old = range->parts[part];
    memmove(&range->parts[part + 1 + more], &range->parts[part + 1],
        (range->part_count - part - 1) * sizeof(range->parts[0]));
    for (unsigned i = first; i < end; i++)
        range->parts[part + i - first] = part_of(move, &move->pieces[i]);
    range->part_count += more;
    if (move->to_host)
        range->spilled_bytes += old.bytes;
    else
        range->spilled_bytes -= old.bytes;
    for (unsigned i = end; i < move->count; i++)
        move->pieces[i].part += more;
    struct moving moving = moving_of(move, old.bytes);
    release(move, &moving, true, &old);
}

/* ---- the move ---- */

static uint64_t move_planned(struct range_move *move)
{
    make(move);
    return move->count ? range_move_carry(move) : 0;
}

static bool enter_context(const struct range *range)
{
    return cuda.cuCtxPushCurrent_v2((CUcontext)(uintptr_t)range->context) == CUDA_SUCCESS;
}

static CUresult move_parts(struct range_move *move, uint64_t bytes_max, uint64_t *ret_moved)
{
    CUcontext popped;
    *ret_moved = 0;
    if (load_relaxed(&move->range->exported))
        return CUDA_SUCCESS;
    plan(move, bytes_max);
    if (!move->count || !enter_context(move->range))
        return move->result;
    struct capture_relaxed former = capture_relax();
    *ret_moved = move_planned(move);
    capture_restore(&former);
    (void)cuda.cuCtxPopCurrent_v2(&popped);
    return move->result;
}

CUresult range_move(struct range *range, bool to_host, uint64_t bytes_max, uint64_t *ret_moved)
{
    struct range_move move = {.range = range, .to_host = to_host};
    return move_parts(&move, bytes_max, ret_moved);
}

CUresult range_move_away(struct range *range, uint64_t *ret_moved)
{
    struct range_move move = {.range = range, .to_host = true, .is_away = true};
    return move_parts(&move, UINT64_MAX, ret_moved);
}

CUresult range_move_back(struct range *range, uint64_t *ret_moved)
{
    struct range_move move = {.range = range, .only_moved = true};
    return move_parts(&move, UINT64_MAX, ret_moved);
}

uint64_t range_movable_bytes(const struct range *range)
{
    return load_relaxed(&range->exported) ? 0 : range->bytes - range->spilled_bytes;
}

uint64_t range_moved_bytes(const struct range *range)
{
    uint64_t bytes = 0;
    for (unsigned i = 0; i < range->part_count; i++)
        bytes += range->parts[i].moved ? range->parts[i].bytes : 0;
    return bytes;
}
