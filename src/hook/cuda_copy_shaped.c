/* SPDX-License-Identifier: Apache-2.0 */
/* Copies of several rows and layers: their size, and whether they are on one card. */
#include "hook/card.h"
#include "hook/hook.h"
#include "vmem/world.h"

#include <stddef.h>

static int card_of_side(CUmemorytype type, CUdeviceptr pointer)
{
    if (type == CU_MEMORYTYPE_HOST)
        return CARD_NONE;
    return type == CU_MEMORYTYPE_ARRAY ? CARD_ANY : card_of(pointer);
}

static struct pace_launch *begin_slow(struct pace_launch *copy, bool on_card, size_t row_bytes,
    size_t rows, CUstream stream, enum stream_zero zero)
{
    if (on_card)
        return card_begin_slow(copy, CARD_COPY_ROWS, row_bytes * rows, rows, stream, zero);
    pace_note_other(stream, zero);
    return NULL;
}

__attribute__((noinline)) static struct pace_launch *asked_2d(
    struct pace_launch *copy, const CUDA_MEMCPY2D *what, CUstream stream, enum stream_zero zero)
{
    if (!what || !card_asks(stream, zero))
        return NULL;
    bool on_card = card_is_same(card_of_side(what->dstMemoryType, what->dstDevice),
        card_of_side(what->srcMemoryType, what->srcDevice));
    return begin_slow(copy, on_card, what->WidthInBytes, what->Height, stream, zero);
}

__attribute__((noinline)) static struct pace_launch *asked_3d(
    struct pace_launch *copy, const CUDA_MEMCPY3D *what, CUstream stream, enum stream_zero zero)
{
    if (!what || !card_asks(stream, zero))
        return NULL;
    bool on_card = card_is_same(card_of_side(what->dstMemoryType, what->dstDevice),
        card_of_side(what->srcMemoryType, what->srcDevice));
    return begin_slow(copy, on_card, what->WidthInBytes, what->Height * what->Depth, stream, zero);
}

/* Arrays of two contexts may be on two cards. */
__attribute__((noinline)) static struct pace_launch *asked_peer(struct pace_launch *copy,
    const CUDA_MEMCPY3D_PEER *what, CUstream stream, enum stream_zero zero)
{
    if (!what || !card_asks(stream, zero))
        return NULL;
    int to = card_of_side(what->dstMemoryType, what->dstDevice);
    int from = card_of_side(what->srcMemoryType, what->srcDevice);
    bool is_told = to != CARD_ANY && from != CARD_ANY;
    bool on_card = card_is_same(to, from) && (is_told || what->dstContext == what->srcContext);
    return begin_slow(copy, on_card, what->WidthInBytes, what->Height * what->Depth, stream, zero);
}

static inline struct pace_launch *begin_2d(
    struct pace_launch *copy, const CUDA_MEMCPY2D *what, CUstream stream, enum stream_zero zero)
{
    return pace_passes() ? NULL : asked_2d(copy, what, stream, zero);
}

static inline struct pace_launch *begin_3d(
    struct pace_launch *copy, const CUDA_MEMCPY3D *what, CUstream stream, enum stream_zero zero)
{
    return pace_passes() ? NULL : asked_3d(copy, what, stream, zero);
}

static inline struct pace_launch *begin_peer(struct pace_launch *copy,
    const CUDA_MEMCPY3D_PEER *what, CUstream stream, enum stream_zero zero)
{
    return pace_passes() ? NULL : asked_peer(copy, what, stream, zero);
}

/* Of arrays and device memory, on the thread's default stream. */
static inline struct pace_launch *begin_array(
    struct pace_launch *copy, size_t bytes, enum stream_zero zero)
{
    return card_begin(copy, CARD_COPY_ROWS, bytes, 1, NULL, zero);
}

#define TWINS "hook/cuda_copy_shaped.def"
#include "hook/twins.h"
