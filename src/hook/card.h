/* SPDX-License-Identifier: Apache-2.0 */
/* Fills, and copies on one card: they keep the GPU busy as kernels do, NVML counts them, and they
 * pass the launch gate (pace/pace.h). A copy that leaves the card does not keep it busy: the meter
 * is told of the large ones. Without a limit a call costs pace_passes, and where memory lies is
 * not asked. Any thread. */
#ifndef VGPU_HOOK_CARD_H
#define VGPU_HOOK_CARD_H

#include "pace/pace.h"

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

/* Bytes. A smaller copy from or to the host takes 20 us at most: many of them between kernels do
 * not make the interval uncertain. */
#define CARD_LARGE_BYTES (1u << 20)

/* Work of one kind and about one size takes about the same time. */
enum card_work {
    CARD_FILL,
    CARD_FILL_ROWS,
    CARD_COPY,
    CARD_COPY_ROWS,
    CARD_COPY_LIST,
    CARD_DECOMPRESSION
};

/* The gate's key (compute/durations.h) of work of `bytes` in as many rows, or copies of a list:
 * both to a quarter of a power of two, and one for all that is small. */
uint64_t card_key(enum card_work kind, uint64_t bytes, uint64_t rows);

/* Where pace_passes said no. Returns `work`, which is to be ended. */
struct pace_launch *card_begin_slow(struct pace_launch *work, enum card_work kind, uint64_t bytes,
    uint64_t rows, CUstream stream, enum stream_zero zero);

/* Before work that is on the card for sure. NULL where there is nothing to end. */
static inline struct pace_launch *card_begin(struct pace_launch *work, enum card_work kind,
    uint64_t bytes, uint64_t rows, CUstream stream, enum stream_zero zero)
{
    if (pace_passes())
        return NULL;
    return card_begin_slow(work, kind, bytes, rows, stream, zero);
}

/* After the driver's call; returns `result`. */
static inline CUresult card_end(struct pace_launch *begun, CUresult result)
{
    if (__builtin_expect(begun != NULL, 0))
        pace_end(begun, result == CUDA_SUCCESS);
    return result;
}

/* After a call that names no stream: it may have waited for its work, as a fill of managed memory
 * does. */
CUresult card_end_sync_slow(struct pace_launch *begun, CUresult result);

static inline CUresult card_end_sync(struct pace_launch *begun, CUresult result)
{
    return __builtin_expect(begun != NULL, 0) ? card_end_sync_slow(begun, result) : result;
}

/* ---- copies of which one must see where their sides lie ---- */

/* Where pace_passes said no: whether there is a limit, and the stream does not capture. */
bool card_asks(CUstream stream, enum stream_zero zero);

#define CARD_NONE (-1) /* the host, or not known */
#define CARD_ANY (-2)  /* an array: on the card of the copy's other side */

/* The ordinal of the device whose memory it is, or CARD_NONE. Asks the driver. */
int card_of(CUdeviceptr pointer);

static inline bool card_is_same(int to, int from)
{
    return to != CARD_NONE && from != CARD_NONE &&
           (to == from || to == CARD_ANY || from == CARD_ANY);
}

static inline void card_note_copy(uint64_t bytes, CUstream stream, enum stream_zero zero)
{
    if (bytes >= CARD_LARGE_BYTES)
        pace_note_other(stream, zero);
    else
        pace_note_copy(stream, zero);
}

#endif
