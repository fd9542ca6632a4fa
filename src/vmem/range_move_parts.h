/* SPDX-License-Identifier: Apache-2.0 */
/* What range_move.c, which plans a move and makes its memory, and range_move_carry.c, which maps
 * and copies, share. For those two alone. */
#ifndef VGPU_VMEM_RANGE_MOVE_PARTS_H
#define VGPU_VMEM_RANGE_MOVE_PARTS_H

#include "vmem/range_move.h"

struct range_move_piece {
    CUmemGenericAllocationHandle handle;
    uint64_t bytes;
    unsigned part; /* whose memory it is to hold */
};

struct range_move {
    struct range *range;
    bool to_host;
    bool is_away;    /* what goes to the host is to come back */
    bool only_moved; /* only what is to come back moves */
    unsigned count;  /* of pieces; all of a part follow one another */
    struct range_move_piece pieces[RANGE_PARTS_MAX];
    uint64_t bytes;  /* in all */
    CUresult result; /* why less was moved than was to be */
};

/* Brings the pieces in their parts' place, whose memory is given back, or gives them back; returns
 * how many bytes have moved. The context of the range is current. */
uint64_t range_move_carry(struct range_move *move);

/* Puts the pieces from `first` to below `end`, which are one part's and hold what it did, into the
 * range's list, and gives the old memory back, which is mapped nowhere. */
void range_move_replace(struct range_move *move, unsigned first, unsigned end);

/* Gives pieces from `first` to below `end` back, which are mapped nowhere. */
void range_move_unmake(const struct range_move *move, unsigned first, unsigned end);

#endif
