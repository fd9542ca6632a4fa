/* SPDX-License-Identifier: Apache-2.0 */
/* The copies of a move, and what is mapped where meanwhile. While one part is copied, the one
 * before is mapped in its place, and the next one is made ready: the driver's calls for a mapping
 * of host memory take nearly as long as the copy. */
#include "base/log.h"
#include "driver/cuda.h"
#include "vmem/range_access.h"
#include "vmem/range_move_parts.h"
#include "vmem/undo.h"

#include <stddef.h>

/* A part on its way: its pieces, and the addresses at which its memory, or the new one, is mapped
 * meanwhile. */
struct step {
    unsigned first, end;
    uint64_t bytes;
    CUdeviceptr scratch;
};

/* ---- mappings ---- */

/* Maps the pieces from `first` to below `end` side by side; *ret_bytes: how far it came. */
static CUresult map_pieces(const struct range_move *move, unsigned first, unsigned end,
    CUdeviceptr address, uint64_t *ret_bytes)
{
    CUresult result = CUDA_SUCCESS;
    *ret_bytes = 0;
    for (unsigned i = first; i < end && result == CUDA_SUCCESS; i++) {
        const struct range_move_piece *piece = &move->pieces[i];
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

static unsigned end_of_part(const struct range_move *move, unsigned first)
{
    unsigned end = first + 1;
    while (end < move->count && move->pieces[end].part == move->pieces[first].part)
        end++;
    return end;
}

/* Once more where it fails: nothing else is left to do. */
static void restore(const struct range_move *move, unsigned part, CUdeviceptr address)
{
    const struct range_part *old = &move->range->parts[part];
    struct range_access access = range_access_of(move->range);
    CUresult result = CUDA_SUCCESS;
    for (int tries = 0; tries < 2; tries++) {
        result = cuda.cuMemMap(address, old->bytes, 0, old->handle, 0);
        if (result == CUDA_SUCCESS)
            break;
    }
    for (int tries = 0; result == CUDA_SUCCESS && tries < 2; tries++) {
        if (range_access_let(&access, address, old->bytes) == CUDA_SUCCESS)
            return;
    }
    log_error("the driver does not map %llu MiB of device memory again that were to be moved (%d)",
        (unsigned long long)(old->bytes >> 20), (int)result);
}

/* Has the pieces from `first` to below `end` copied, whose parts and places lie side by side. */
static CUresult copy_pieces(const struct range_move *move, unsigned first, unsigned end,
    CUdeviceptr to, CUdeviceptr from, CUstream stream)
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

/* ---- inwards ---- */

/* The new memory is mapped at the scratch addresses, and filled. */
static CUresult start_in(struct range_move *move, const struct step *step, CUstream stream)
{
    const struct range *range = move->range;
    struct range_access own = range_access_own(range);
    uint64_t mapped;
    CUresult result = map_pieces(move, step->first, step->end, step->scratch, &mapped);
    if (result == CUDA_SUCCESS)
        result = range_access_let(&own, step->scratch, step->bytes);
    if (result == CUDA_SUCCESS)
        result = copy_pieces(move, step->first, step->end, step->scratch,
            address_of(range, move->pieces[step->first].part), stream);
    if (result != CUDA_SUCCESS) {
        (void)cuda.cuStreamSynchronize(stream);
        (void)undo_map(step->scratch, mapped);
    }
    return result;
}

/* Maps the pieces from `first` to below `end` in the place of their part. */
static CUresult exchange(const struct range_move *move, unsigned first, unsigned end)
{
    unsigned part = move->pieces[first].part;
    CUdeviceptr address = address_of(move->range, part);
    struct range_access access = range_access_of(move->range);
    uint64_t bytes = move->range->parts[part].bytes, mapped;
    CUresult result = cuda.cuMemUnmap(address, bytes);
    if (result != CUDA_SUCCESS)
        return result;
    result = map_pieces(move, first, end, address, &mapped);
    if (result == CUDA_SUCCESS)
        result = range_access_let(&access, address, bytes);
    if (result != CUDA_SUCCESS) {
        (void)undo_map(address, mapped);
        restore(move, part, address);
    }
    return result;
}

static CUresult finish_in(struct range_move *move, const struct step *step, CUresult copied)
{
    CUresult unmapped = undo_map(step->scratch, step->bytes);
    if (copied == CUDA_SUCCESS)
        copied = unmapped;
    return copied == CUDA_SUCCESS ? exchange(move, step->first, step->end) : copied;
}

/* ---- outwards ---- */

/* A mapping of the host's memory costs 17 ms a GiB, one of the card's nearly nothing. So the card's
 * memory goes to the scratch addresses, the host's is mapped once, in its place, and while one
 * piece is copied the next is mapped. Until all is copied, what leaves the card still holds it. */
static CUresult start_out(struct range_move *move, const struct step *step, CUstream stream)
{
    const struct range *range = move->range;
    unsigned part = move->pieces[step->first].part;
    CUdeviceptr address = address_of(range, part), at = address;
    struct range_access access = range_access_of(range), own = range_access_own(range);
    uint64_t mapped = 0;
    CUresult result = cuda.cuMemUnmap(address, step->bytes);
    if (result != CUDA_SUCCESS)
        return result;
    result = cuda.cuMemMap(step->scratch, step->bytes, 0, range->parts[part].handle, 0);
    bool has_scratch = result == CUDA_SUCCESS;
    if (has_scratch)
        result = range_access_let(&own, step->scratch, step->bytes);
    for (unsigned i = step->first; i < step->end && result == CUDA_SUCCESS; i++) {
        uint64_t bytes = 0;
        result = map_pieces(move, i, i + 1, at, &bytes);
        mapped += bytes;
        if (result == CUDA_SUCCESS)
            result = range_access_let(&access, at, bytes);
        if (result == CUDA_SUCCESS)
            result = copy_pieces(move, i, i + 1, at, step->scratch + (at - address), stream);
        at += bytes;
    }
    if (result == CUDA_SUCCESS)
        return result;
    (void)cuda.cuStreamSynchronize(stream);
    if (has_scratch)
        (void)undo_map(step->scratch, step->bytes);
    (void)undo_map(address, mapped);
    restore(move, part, address);
    return result;
}

static CUresult finish_out(struct range_move *move, const struct step *step, CUresult copied)
{
    unsigned part = move->pieces[step->first].part;
    CUdeviceptr address = address_of(move->range, part);
    (void)undo_map(step->scratch, step->bytes);
    if (copied != CUDA_SUCCESS) {
        (void)undo_map(address, step->bytes);
        restore(move, part, address);
    }
    return copied;
}

/* ---- the steps ---- */

static CUresult start(struct range_move *move, const struct step *step, CUstream stream)
{
    return move->to_host ? start_out(move, step, stream) : start_in(move, step, stream);
}

/* Returns how many bytes have moved. */
static uint64_t finish(struct range_move *move, const struct step *step, CUstream stream)
{
    CUresult result = cuda.cuStreamSynchronize(stream);
    result = move->to_host ? finish_out(move, step, result) : finish_in(move, step, result);
    if (result == CUDA_SUCCESS) {
        range_move_replace(move, step->first, step->end);
        return step->bytes;
    }
    move->result = result;
    range_move_unmake(move, step->first, step->end);
    return 0;
}

static struct step step_at(const struct range_move *move, unsigned first, CUdeviceptr scratch)
{
    return (struct step){.first = first,
        .end = end_of_part(move, first),
        .bytes = move->range->parts[move->pieces[first].part].bytes,
        .scratch = scratch};
}

static uint64_t carry_parts(struct range_move *move, CUdeviceptr scratch, const CUstream streams[2])
{
    struct step before = {.bytes = 0};
    uint64_t moved = 0;
    unsigned first = 0, number = 0;
    CUresult result = CUDA_SUCCESS;
    while (first < move->count && result == CUDA_SUCCESS) {
        struct step step = step_at(move, first, scratch);
        result = start(move, &step, streams[number % 2]);
        if (result != CUDA_SUCCESS)
            break;
        if (before.bytes)
            moved += finish(move, &before, streams[(number + 1) % 2]);
        before = step;
        number++;
        first = step.end;
        scratch += step.bytes;
    }
    if (before.bytes)
        moved += finish(move, &before, streams[(number + 1) % 2]);
    if (result != CUDA_SUCCESS)
        move->result = result;
    range_move_unmake(move, first, move->count);
    return moved;
}

static uint64_t with_streams(struct range_move *move, CUdeviceptr scratch)
{
    CUstream streams[2];
    uint64_t moved = 0;
    CUresult result = cuda.cuStreamCreate(&streams[0], CU_STREAM_NON_BLOCKING);
    if (result == CUDA_SUCCESS) {
        result = cuda.cuStreamCreate(&streams[1], CU_STREAM_NON_BLOCKING);
        if (result == CUDA_SUCCESS) {
            moved = carry_parts(move, scratch, streams);
            (void)cuda.cuStreamDestroy_v2(streams[1]);
        }
        (void)cuda.cuStreamDestroy_v2(streams[0]);
    }
    if (result != CUDA_SUCCESS) {
        move->result = result;
        range_move_unmake(move, 0, move->count);
    }
    return moved;
}

uint64_t range_move_carry(struct range_move *move)
{
    uint64_t bytes = move->bytes;
    CUdeviceptr scratch;
    CUresult result = cuda.cuMemAddressReserve(&scratch, bytes, 0, 0, 0);
    if (result != CUDA_SUCCESS) {
        move->result = result;
        range_move_unmake(move, 0, move->count);
        return 0;
    }
    uint64_t moved = with_streams(move, scratch);
    undo_reserve(scratch, bytes);
    return moved;
}
