/* SPDX-License-Identifier: Apache-2.0 */
/* A move: new memory is made for each part that goes. Inwards it is mapped at other addresses,
 * filled by the copy engine, and then mapped in the part's place; outwards the part's memory is
 * mapped at other addresses first. The part's memory is given back when all copies are done. */
#include "vmem/range_move.h"

#include "base/atomic.h"
#include "base/log.h"
#include "driver/cuda.h"
#include "memory/moving.h"
#include "pace/capture.h"
#include "vmem/host_pool.h"
#include "vmem/vmem_parts.h"

#include <stddef.h>
#include <string.h>

#define PEERS_MAX 63

struct piece {
    CUmemGenericAllocationHandle handle;
    uint64_t bytes;
    unsigned part; /* whose memory it is to hold */
};

struct move {
    struct range *range;
    bool to_host, only_moved;
    unsigned count; /* of pieces; all of a part follow one another */
    struct piece pieces[RANGE_PARTS_MAX];
    uint64_t bytes; /* in all */
    CUdeviceptr scratch;
    CUresult result; /* why less was moved than was to be */
};

/* ---- what is moved ---- */

static bool is_to_move(const struct move *move, const struct range_part *part)
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

/* Whole parts, as many as the bytes and the host's room allow. The budget of host memory is asked
 * with each piece, as it is the container's. */
static void plan(struct move *move, uint64_t bytes_max)
{
    uint64_t room = UINT64_MAX;
    if (move->to_host)
        room = host_pool_room();
    const struct range *range = move->range;
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
                (struct piece){.bytes = left < piece ? left : piece, .part = i};
        }
        move->bytes += part->bytes;
    }
}

/* ---- the new memory ---- */

/* Host memory is kept ready for the next move. Else asked twice, as all that undoes. */
static CUresult give_back(
    const struct move *move, bool spilled, uint64_t bytes, CUmemGenericAllocationHandle handle)
{
    int numa_node = spilled ? range_property(move->range->ordinal, true).location.id : 0;
    if (spilled && host_pool_keep(numa_node, bytes, handle))
        return CUDA_SUCCESS;
    CUresult result = cuda.cuMemRelease(handle);
    return result == CUDA_SUCCESS ? result : cuda.cuMemRelease(handle);
}

static CUresult make_piece(struct move *move, struct piece *piece)
{
    const struct range *range = move->range;
    CUmemAllocationProp property = range_property(range->ordinal, move->to_host);
    struct moving moving;
    bool ready =
        move->to_host && host_pool_take(property.location.id, piece->bytes, &piece->handle);
    if (move->to_host && !ready)
        host_pool_make_room(piece->bytes);
    if (moving_begin(&moving, (unsigned)range->device, piece->bytes, move->to_host) != 0) {
        if (ready)
            (void)give_back(move, true, piece->bytes, piece->handle);
        return CUDA_ERROR_OUT_OF_MEMORY;
    }
    moving_make(&moving);
    CUresult result =
        ready ? CUDA_SUCCESS : cuda.cuMemCreate(&piece->handle, piece->bytes, &property, 0);
    moving_made(&moving, result == CUDA_SUCCESS, piece->handle);
    if (result != CUDA_SUCCESS)
        moving_end_back(&moving);
    return result;
}

/* Gives the memory back that was moved away from (`old`), or that was made for nothing. */
static void release(const struct move *move, struct moving *moving, bool old, uint64_t bytes,
    CUmemGenericAllocationHandle handle)
{
    moving_release(moving, old, handle);
    CUresult result = give_back(move, old != move->to_host, bytes, handle);
    moving_released(moving, old, result == CUDA_SUCCESS, handle);
}

static struct moving moving_of(const struct move *move, uint64_t bytes)
{
    return (struct moving){.device = (unsigned)move->range->device,
        .bytes = bytes,
        .from = move->to_host ? ACCOUNT_MOVABLE : ACCOUNT_SPILLED,
        .to = move->to_host ? ACCOUNT_SPILLED : ACCOUNT_MOVABLE};
}

/* Gives pieces from `first` to below `end` back, which are mapped nowhere. */
static void unmake(const struct move *move, unsigned first, unsigned end)
{
    for (unsigned i = first; i < end; i++) {
        struct moving moving = moving_of(move, move->pieces[i].bytes);
        release(move, &moving, false, move->pieces[i].bytes, move->pieces[i].handle);
        moving_end_back(&moving);
    }
}

/* Leaves the first `count` pieces in the move, less those of a part that is not among them whole.
 */
static void cut(struct move *move, unsigned count)
{
    unsigned whole = count;
    while (whole && whole < move->count && move->pieces[whole - 1].part == move->pieces[whole].part)
        whole--;
    unmake(move, whole, count);
    for (unsigned i = whole; i < move->count; i++)
        move->bytes -= move->pieces[i].bytes;
    move->count = whole;
}

static void make(struct move *move)
{
    for (unsigned i = 0; i < move->count; i++) {
        CUresult result = make_piece(move, &move->pieces[i]);
        if (result != CUDA_SUCCESS) {
            move->result = result;
            cut(move, i);
        }
    }
}

/* ---- the copy ---- */

static CUresult unmap(CUdeviceptr address, uint64_t bytes)
{
    CUresult result = bytes ? cuda.cuMemUnmap(address, bytes) : CUDA_SUCCESS;
    return result == CUDA_SUCCESS ? result : cuda.cuMemUnmap(address, bytes);
}

static CUresult let(CUdeviceptr address, uint64_t bytes, const CUdevice *devices, unsigned count)
{
    CUmemAccessDesc access[PEERS_MAX + 1];
    for (unsigned i = 0; i < count; i++) {
        access[i] = (CUmemAccessDesc){.flags = CU_MEM_ACCESS_FLAGS_PROT_READWRITE};
        access[i].location.type = CU_MEM_LOCATION_TYPE_DEVICE;
        access[i].location.id = devices[i];
    }
    return cuda.cuMemSetAccess(address, bytes, access, count);
}

/* Maps the pieces from `first` to below `end` side by side; *ret_bytes: how far it came. */
static CUresult map_pieces(
    const struct move *move, unsigned first, unsigned end, CUdeviceptr address, uint64_t *ret_bytes)
{
    CUresult result = CUDA_SUCCESS;
    *ret_bytes = 0;
    for (unsigned i = first; i < end && result == CUDA_SUCCESS; i++) {
        const struct piece *piece = &move->pieces[i];
        result = cuda.cuMemMap(address + *ret_bytes, piece->bytes, 0, piece->handle, 0);
        *ret_bytes += result == CUDA_SUCCESS ? piece->bytes : 0;
    }
    return result;
}

static CUdeviceptr address_of(const struct range *range, unsigned part)
{
    CUdeviceptr address = range->address;
    for (unsigned i = 0; i < part; i++)
        address += range->parts[i].bytes;
    return address;
}

/* Has the pieces from `first` to below `end` copied, whose parts and places lie side by side. */
static CUresult copy_pieces(const struct move *move, unsigned first, unsigned end, CUdeviceptr to,
    CUdeviceptr from, CUstream stream)
{
    CUresult result = CUDA_SUCCESS;
    for (unsigned i = first; i < end && result == CUDA_SUCCESS; i++) {
        uint64_t bytes = move->pieces[i].bytes;
        result = cuda.cuMemcpyDtoDAsync_v2(to, from, bytes, stream);
        to += bytes;
        from += bytes;
    }
    return result;
}

static unsigned end_of_part(const struct move *move, unsigned first)
{
    unsigned end = first + 1;
    while (end < move->count && move->pieces[end].part == move->pieces[first].part)
        end++;
    return end;
}

/* All copies into the scratch addresses on a stream of their own, then one wait. */
static CUresult copy_all(const struct move *move)
{
    CUstream stream;
    CUdeviceptr to = move->scratch;
    CUresult result = cuda.cuStreamCreate(&stream, CU_STREAM_NON_BLOCKING);
    if (result != CUDA_SUCCESS)
        return result;
    for (unsigned first = 0, end; first < move->count && result == CUDA_SUCCESS; first = end) {
        unsigned part = move->pieces[first].part;
        end = end_of_part(move, first);
        result = copy_pieces(move, first, end, to, address_of(move->range, part), stream);
        to += move->range->parts[part].bytes;
    }
    CUresult done = cuda.cuStreamSynchronize(stream);
    (void)cuda.cuStreamDestroy_v2(stream);
    return result == CUDA_SUCCESS ? done : result;
}

/* The pieces hold what their parts do, and are mapped nowhere. */
static CUresult copy(struct move *move)
{
    uint64_t mapped = 0;
    CUresult result = cuda.cuMemAddressReserve(&move->scratch, move->bytes, 0, 0, 0);
    if (result != CUDA_SUCCESS)
        return result;
    result = map_pieces(move, 0, move->count, move->scratch, &mapped);
    if (result == CUDA_SUCCESS)
        result = let(move->scratch, move->bytes, &move->range->ordinal, 1);
    if (result == CUDA_SUCCESS)
        result = copy_all(move);
    CUresult unmapped = unmap(move->scratch, mapped);
    /* Addresses that are not given back are lost, and nothing else. */
    if (cuda.cuMemAddressFree(move->scratch, move->bytes) != CUDA_SUCCESS)
        (void)cuda.cuMemAddressFree(move->scratch, move->bytes);
    return result == CUDA_SUCCESS ? unmapped : result;
}

/* ---- in the place of the old ---- */

/* The device of the range, and those that reach its context's memory. */
static unsigned accessors(const struct range *range, CUdevice devices[PEERS_MAX + 1])
{
    unsigned count = 0;
    uint64_t changes;
    CUdevice peer;
    devices[count++] = range->ordinal;
    for (unsigned i = 0;
         count <= PEERS_MAX && (peer = vmem_peer_at(range->context, i, &changes)) >= 0; i++) {
        unsigned known = 0; /* several contexts of a device may reach it */
        while (known < count && devices[known] != peer)
            known++;
        if (known == count)
            devices[count++] = peer;
    }
    return count;
}

/* Once more where it fails: nothing else is left to do. */
static void restore(const struct move *move, unsigned part, CUdeviceptr address)
{
    const struct range_part *old = &move->range->parts[part];
    CUdevice devices[PEERS_MAX + 1];
    unsigned count = accessors(move->range, devices);
    CUresult result = CUDA_SUCCESS;
    for (int tries = 0; tries < 2; tries++) {
        result = cuda.cuMemMap(address, old->bytes, 0, old->handle, 0);
        if (result == CUDA_SUCCESS)
            break;
    }
    for (int tries = 0; result == CUDA_SUCCESS && tries < 2; tries++) {
        if (let(address, old->bytes, devices, count) == CUDA_SUCCESS)
            return;
    }
    log_error("the driver does not map %llu MiB of device memory again that were to be moved (%d)",
        (unsigned long long)(old->bytes >> 20), (int)result);
}

/* Maps the pieces from `first` to below `end` in the place of their part. */
static CUresult exchange(const struct move *move, unsigned first, unsigned end)
{
    unsigned part = move->pieces[first].part;
    CUdeviceptr address = address_of(move->range, part);
    CUdevice devices[PEERS_MAX + 1];
    uint64_t bytes = move->range->parts[part].bytes, mapped;
    unsigned count = accessors(move->range, devices);
    CUresult result = cuda.cuMemUnmap(address, bytes);
    if (result != CUDA_SUCCESS)
        return result;
    result = map_pieces(move, first, end, address, &mapped);
    if (result == CUDA_SUCCESS)
        result = let(address, bytes, devices, count);
    if (result != CUDA_SUCCESS) {
        (void)unmap(address, mapped);
        restore(move, part, address);
    }
    return result;
}

/* Puts the pieces into the range's list, and gives the old memory back. */
static void replace(struct move *move, unsigned first, unsigned end)
{
    struct range *range = move->range;
    unsigned part = move->pieces[first].part, more = end - first - 1;
    struct range_part old = range->parts[part];
    memmove(&range->parts[part + 1 + more], &range->parts[part + 1],
        (range->part_count - part - 1) * sizeof(range->parts[0]));
    for (unsigned i = first; i < end; i++)
        range->parts[part + i - first] = (struct range_part){.handle = move->pieces[i].handle,
            .bytes = move->pieces[i].bytes,
            .spilled = move->to_host,
            .moved = move->to_host};
    range->part_count += more;
    if (move->to_host)
        range->spilled_bytes += old.bytes;
    else
        range->spilled_bytes -= old.bytes;
    for (unsigned i = end; i < move->count; i++)
        move->pieces[i].part += more;
    struct moving moving = moving_of(move, old.bytes);
    release(move, &moving, true, old.bytes, old.handle);
}

static uint64_t exchange_all(struct move *move)
{
    uint64_t moved = 0;
    for (unsigned first = 0, end; first < move->count; first = end) {
        end = end_of_part(move, first);
        CUresult result = exchange(move, first, end);
        if (result != CUDA_SUCCESS) {
            move->result = result;
            unmake(move, first, move->count);
            break;
        }
        moved += move->range->parts[move->pieces[first].part].bytes;
        replace(move, first, end);
    }
    return moved;
}

/* ---- the move ---- */

static uint64_t carry_in(struct move *move)
{
    CUresult result = copy(move);
    if (result == CUDA_SUCCESS)
        return exchange_all(move);
    move->result = result;
    unmake(move, 0, move->count);
    return 0;
}

/* ---- outwards ---- */

/* A mapping of the host's memory costs 17 ms a GiB, one of the card's nearly nothing. So the card's
 * memory goes to the scratch addresses, the host's is mapped once, in its place, and while one
 * piece is copied the next is mapped. Until all is copied, what leaves the card still holds it. */
static CUresult map_out(
    const struct move *move, unsigned first, unsigned end, CUdeviceptr scratch, CUstream stream)
{
    const struct range *range = move->range;
    const struct range_part *old = &range->parts[move->pieces[first].part];
    CUdeviceptr address = address_of(range, move->pieces[first].part), at = address;
    CUdevice devices[PEERS_MAX + 1];
    unsigned count = accessors(range, devices);
    uint64_t mapped = 0;
    bool has_scratch = false;
    CUresult result = cuda.cuMemUnmap(address, old->bytes);
    if (result != CUDA_SUCCESS)
        return result;
    result = cuda.cuMemMap(scratch, old->bytes, 0, old->handle, 0);
    has_scratch = result == CUDA_SUCCESS;
    if (has_scratch)
        result = let(scratch, old->bytes, &range->ordinal, 1);
    for (unsigned i = first; i < end && result == CUDA_SUCCESS; i++) {
        uint64_t bytes = 0;
        result = map_pieces(move, i, i + 1, at, &bytes);
        mapped += bytes;
        if (result == CUDA_SUCCESS)
            result = let(at, bytes, devices, count);
        if (result == CUDA_SUCCESS)
            result = copy_pieces(move, i, i + 1, at, scratch + (at - address), stream);
        at += bytes;
    }
    if (result == CUDA_SUCCESS)
        return result;
    (void)cuda.cuStreamSynchronize(stream);
    if (has_scratch)
        (void)unmap(scratch, old->bytes);
    (void)unmap(address, mapped);
    restore(move, move->pieces[first].part, address);
    return result;
}

/* The parts of all pieces below `end`, which are mapped out, are in their places again. */
static void map_back(const struct move *move, unsigned count)
{
    CUdeviceptr scratch = move->scratch;
    for (unsigned first = 0; first < count; first = end_of_part(move, first)) {
        unsigned part = move->pieces[first].part;
        CUdeviceptr address = address_of(move->range, part);
        uint64_t bytes = move->range->parts[part].bytes;
        (void)unmap(scratch, bytes);
        (void)unmap(address, bytes);
        restore(move, part, address);
        scratch += bytes;
    }
}

/* Leaves those parts in the move of which all has been enqueued. */
static void map_out_all(struct move *move, CUstream stream)
{
    CUdeviceptr scratch = move->scratch;
    for (unsigned first = 0, end; first < move->count; first = end) {
        end = end_of_part(move, first);
        CUresult result = map_out(move, first, end, scratch, stream);
        if (result != CUDA_SUCCESS) {
            move->result = result;
            unmake(move, first, move->count);
            move->count = first;
        }
        scratch += move->range->parts[move->pieces[first].part].bytes;
    }
}

static uint64_t replace_all(struct move *move)
{
    CUdeviceptr scratch = move->scratch;
    uint64_t moved = 0;
    for (unsigned first = 0, end; first < move->count; first = end) {
        uint64_t bytes = move->range->parts[move->pieces[first].part].bytes;
        end = end_of_part(move, first);
        (void)unmap(scratch, bytes);
        scratch += bytes;
        moved += bytes;
        replace(move, first, end);
    }
    return moved;
}

static uint64_t map_and_copy(struct move *move)
{
    CUstream stream;
    uint64_t moved = 0;
    CUresult result = cuda.cuStreamCreate(&stream, CU_STREAM_NON_BLOCKING);
    if (result != CUDA_SUCCESS) {
        move->result = result;
        unmake(move, 0, move->count);
        return 0;
    }
    map_out_all(move, stream);
    result = cuda.cuStreamSynchronize(stream);
    if (result == CUDA_SUCCESS) {
        moved = replace_all(move);
    } else {
        move->result = result;
        map_back(move, move->count);
        unmake(move, 0, move->count);
    }
    (void)cuda.cuStreamDestroy_v2(stream);
    return moved;
}

static uint64_t carry_out(struct move *move)
{
    uint64_t bytes = move->bytes;
    CUresult result = cuda.cuMemAddressReserve(&move->scratch, bytes, 0, 0, 0);
    if (result != CUDA_SUCCESS) {
        move->result = result;
        unmake(move, 0, move->count);
        return 0;
    }
    uint64_t moved = map_and_copy(move);
    /* Addresses that are not given back are lost, and nothing else. */
    if (cuda.cuMemAddressFree(move->scratch, bytes) != CUDA_SUCCESS)
        (void)cuda.cuMemAddressFree(move->scratch, bytes);
    return moved;
}

static uint64_t carry(struct move *move)
{
    make(move);
    if (!move->count)
        return 0;
    return move->to_host ? carry_out(move) : carry_in(move);
}

static bool enter_context(const struct range *range)
{
    return cuda.cuCtxPushCurrent_v2((CUcontext)(uintptr_t)range->context) == CUDA_SUCCESS;
}

static CUresult move_parts(
    struct range *range, bool to_host, bool only_moved, uint64_t bytes_max, uint64_t *ret_moved)
{
    struct move move = {.range = range, .to_host = to_host, .only_moved = only_moved};
    CUcontext popped;
    *ret_moved = 0;
    if (load_relaxed(&range->exported))
        return CUDA_SUCCESS;
    plan(&move, bytes_max);
    if (!move.count || !enter_context(range))
        return move.result;
    struct capture_relaxed former = capture_relax();
    *ret_moved = carry(&move);
    capture_restore(&former);
    (void)cuda.cuCtxPopCurrent_v2(&popped);
    return move.result;
}

CUresult range_move(struct range *range, bool to_host, uint64_t bytes_max, uint64_t *ret_moved)
{
    return move_parts(range, to_host, false, bytes_max, ret_moved);
}

CUresult range_move_back(struct range *range, uint64_t *ret_moved)
{
    return move_parts(range, false, true, UINT64_MAX, ret_moved);
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
