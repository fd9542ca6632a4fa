/* SPDX-License-Identifier: Apache-2.0 */
/* Lists of copies: their size, and whether they are on one card. */
#include "hook/card.h"
#include "hook/hook.h"
#include "vmem/world.h"

#include <stddef.h>

static struct pace_launch *begin_slow(struct pace_launch *copies, bool on_card, uint64_t bytes,
    size_t count, CUstream stream, enum stream_zero zero)
{
    if (on_card)
        return card_begin_slow(copies, CARD_COPY_LIST, bytes, count, stream, zero);
    pace_note_other(stream, zero);
    return NULL;
}

__attribute__((noinline)) static struct pace_launch *asked(struct pace_launch *copies,
    const CUdeviceptr *to, const CUdeviceptr *from, const size_t *sizes, size_t count,
    CUstream stream, enum stream_zero zero)
{
    uint64_t bytes = 0;
    bool on_card = true;
    if (!to || !from || !sizes || !card_asks(stream, zero))
        return NULL;
    for (size_t i = 0; i < count && on_card; i++) {
        on_card = card_is_same(card_of(to[i]), card_of(from[i]));
        bytes += sizes[i];
    }
    return begin_slow(copies, on_card, bytes, count, stream, zero);
}

static inline struct pace_launch *begin(struct pace_launch *copies, const CUdeviceptr *to,
    const CUdeviceptr *from, const size_t *sizes, size_t count, CUstream stream,
    enum stream_zero zero)
{
    return pace_passes() ? NULL : asked(copies, to, from, sizes, count, stream, zero);
}

static int card_of_operand(const CUmemcpy3DOperand *operand)
{
    bool is_pointer = operand->type == CU_MEMCPY_OPERAND_TYPE_POINTER;
    return is_pointer ? card_of(operand->op.ptr.ptr) : CARD_ANY;
}

__attribute__((noinline)) static struct pace_launch *asked_shaped(struct pace_launch *copies,
    const CUDA_MEMCPY3D_BATCH_OP *list, size_t count, CUstream stream, enum stream_zero zero)
{
    uint64_t bytes = 0;
    bool on_card = true;
    if (!list || !card_asks(stream, zero))
        return NULL;
    for (size_t i = 0; i < count && on_card; i++) {
        const CUextent3D *extent = &list[i].extent;
        on_card = card_is_same(card_of_operand(&list[i].dst), card_of_operand(&list[i].src));
        bytes += extent->width * extent->height * extent->depth;
    }
    return begin_slow(copies, on_card, bytes, count, stream, zero);
}

static inline struct pace_launch *begin_shaped(struct pace_launch *copies,
    const CUDA_MEMCPY3D_BATCH_OP *list, size_t count, CUstream stream, enum stream_zero zero)
{
    return pace_passes() ? NULL : asked_shaped(copies, list, count, stream, zero);
}

/* An endpoint is elsewhere on the fabric. */
static int card_of_fabric(const CUfabricCpyOperand *operand)
{
    bool is_pointer = operand->type == CU_FABRIC_COPY_OPERAND_TYPE_POINTER;
    return is_pointer ? card_of(operand->op.ptr.ptr) : CARD_NONE;
}

__attribute__((noinline)) static struct pace_launch *asked_fabric(struct pace_launch *copies,
    const CUDA_FABRIC_COPY_BATCH_OP *list, size_t count, CUstream stream, enum stream_zero zero)
{
    uint64_t bytes = 0;
    bool on_card = true;
    if (!list || !card_asks(stream, zero))
        return NULL;
    for (size_t i = 0; i < count && on_card; i++) {
        on_card = card_is_same(card_of_fabric(&list[i].dst), card_of_fabric(&list[i].src));
        bytes += list[i].size;
    }
    return begin_slow(copies, on_card, bytes, count, stream, zero);
}

static inline struct pace_launch *begin_fabric(struct pace_launch *copies,
    const CUDA_FABRIC_COPY_BATCH_OP *list, size_t count, CUstream stream, enum stream_zero zero)
{
    return pace_passes() ? NULL : asked_fabric(copies, list, count, stream, zero);
}

/* What is unpacked is on the card, by its engine or by its processors: by its size it is known. */
__attribute__((noinline)) static struct pace_launch *asked_decompression(struct pace_launch *work,
    const CUmemDecompressParams *list, size_t count, CUstream stream, enum stream_zero zero)
{
    uint64_t bytes = 0;
    for (size_t i = 0; list && i < count; i++)
        bytes += list[i].dstNumBytes;
    return card_begin_slow(work, CARD_DECOMPRESSION, bytes, count, stream, zero);
}

static inline struct pace_launch *begin_decompression(struct pace_launch *work,
    const CUmemDecompressParams *list, size_t count, CUstream stream, enum stream_zero zero)
{
    return pace_passes() ? NULL : asked_decompression(work, list, count, stream, zero);
}

#define TWINS "hook/cuda_copy_list.def"
#include "hook/twins.h"
