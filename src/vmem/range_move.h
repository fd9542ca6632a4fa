/* SPDX-License-Identifier: Apache-2.0 */
/* Moves parts of a range between the card and the host, at the same addresses: before and after,
 * all of the range can be reached. Each part is charged in its new place, made there, copied,
 * mapped in the old one's place and only then given back; where a step fails, the part is as it
 * was. */
#ifndef VGPU_VMEM_RANGE_MOVE_H
#define VGPU_VMEM_RANGE_MOVE_H

#include "vmem/range.h"

#include <stdbool.h>
#include <stdint.h>

/* Moves whole parts that are elsewhere, the first ones first, `bytes_max` in all at most;
 * *ret_moved: how many bytes were, whatever is returned. CUDA_ERROR_OUT_OF_MEMORY: the share, the
 * host's budget, the host or the card has no room for one of them; any other code is the driver's.
 * What was exported stays, and is no error; so does a range whose context is gone.
 *
 * The world is stopped (vmem/world.h), the caller uses the range (vmem_use_locked), no stream of
 * the process captures, and no channel gate is closed: the driver is called, and waited for as long
 * as the copy takes. One thread at a time. The thread's current context is as it was. */
CUresult range_move(struct range *range, bool to_host, uint64_t bytes_max, uint64_t *ret_moved)
    __attribute__((warn_unused_result));

/* The same of all that is on the card, outwards: what goes is to come back. */
CUresult range_move_away(struct range *range, uint64_t *ret_moved)
    __attribute__((warn_unused_result));

/* The same inwards, but only of parts that range_move_away took off the card. */
CUresult range_move_back(struct range *range, uint64_t *ret_moved)
    __attribute__((warn_unused_result));

/* The size of the pieces into which a part of `bytes` is split when it leaves the card; the last
 * piece may be smaller. */
uint64_t range_move_piece_bytes(const struct range *range, uint64_t bytes);

/* Bytes of it that are on the card and may be moved; that range_move_away took off the card. */
uint64_t range_movable_bytes(const struct range *range);
uint64_t range_moved_bytes(const struct range *range);

#endif
