/* SPDX-License-Identifier: Apache-2.0 */
/* Copies of several rows and layers, and of arrays. */
#include "hook/card.h"
#include "hook/hook.h"

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

CUresult hook_cuMemcpy2D_v2(const CUDA_MEMCPY2D *pCopy)
{
    struct pace_launch copy, *begun = begin_2d(&copy, pCopy, NULL, STREAM_ZERO_LEGACY);
    return card_end_sync(begun, cuda.cuMemcpy2D_v2(pCopy));
}

CUresult hook_cuMemcpy2D_v2_ptds(const CUDA_MEMCPY2D *pCopy)
{
    struct pace_launch copy, *begun = begin_2d(&copy, pCopy, NULL, STREAM_ZERO_PER_THREAD);
    return card_end_sync(begun, cuda.cuMemcpy2D_v2_ptds(pCopy));
}

CUresult hook_cuMemcpy2DUnaligned_v2(const CUDA_MEMCPY2D *pCopy)
{
    struct pace_launch copy, *begun = begin_2d(&copy, pCopy, NULL, STREAM_ZERO_LEGACY);
    return card_end_sync(begun, cuda.cuMemcpy2DUnaligned_v2(pCopy));
}

CUresult hook_cuMemcpy2DUnaligned_v2_ptds(const CUDA_MEMCPY2D *pCopy)
{
    struct pace_launch copy, *begun = begin_2d(&copy, pCopy, NULL, STREAM_ZERO_PER_THREAD);
    return card_end_sync(begun, cuda.cuMemcpy2DUnaligned_v2_ptds(pCopy));
}

CUresult hook_cuMemcpy2DAsync_v2(const CUDA_MEMCPY2D *pCopy, CUstream hStream)
{
    struct pace_launch copy, *begun = begin_2d(&copy, pCopy, hStream, STREAM_ZERO_LEGACY);
    return card_end(begun, cuda.cuMemcpy2DAsync_v2(pCopy, hStream));
}

CUresult hook_cuMemcpy2DAsync_v2_ptsz(const CUDA_MEMCPY2D *pCopy, CUstream hStream)
{
    struct pace_launch copy, *begun = begin_2d(&copy, pCopy, hStream, STREAM_ZERO_PER_THREAD);
    return card_end(begun, cuda.cuMemcpy2DAsync_v2_ptsz(pCopy, hStream));
}

CUresult hook_cuMemcpy3D_v2(const CUDA_MEMCPY3D *pCopy)
{
    struct pace_launch copy, *begun = begin_3d(&copy, pCopy, NULL, STREAM_ZERO_LEGACY);
    return card_end_sync(begun, cuda.cuMemcpy3D_v2(pCopy));
}

CUresult hook_cuMemcpy3D_v2_ptds(const CUDA_MEMCPY3D *pCopy)
{
    struct pace_launch copy, *begun = begin_3d(&copy, pCopy, NULL, STREAM_ZERO_PER_THREAD);
    return card_end_sync(begun, cuda.cuMemcpy3D_v2_ptds(pCopy));
}

CUresult hook_cuMemcpy3DAsync_v2(const CUDA_MEMCPY3D *pCopy, CUstream hStream)
{
    struct pace_launch copy, *begun = begin_3d(&copy, pCopy, hStream, STREAM_ZERO_LEGACY);
    return card_end(begun, cuda.cuMemcpy3DAsync_v2(pCopy, hStream));
}

CUresult hook_cuMemcpy3DAsync_v2_ptsz(const CUDA_MEMCPY3D *pCopy, CUstream hStream)
{
    struct pace_launch copy, *begun = begin_3d(&copy, pCopy, hStream, STREAM_ZERO_PER_THREAD);
    return card_end(begun, cuda.cuMemcpy3DAsync_v2_ptsz(pCopy, hStream));
}

CUresult hook_cuMemcpy3DPeer(const CUDA_MEMCPY3D_PEER *pCopy)
{
    struct pace_launch copy, *begun = begin_peer(&copy, pCopy, NULL, STREAM_ZERO_LEGACY);
    return card_end_sync(begun, cuda.cuMemcpy3DPeer(pCopy));
}

CUresult hook_cuMemcpy3DPeer_ptds(const CUDA_MEMCPY3D_PEER *pCopy)
{
    struct pace_launch copy, *begun = begin_peer(&copy, pCopy, NULL, STREAM_ZERO_PER_THREAD);
    return card_end_sync(begun, cuda.cuMemcpy3DPeer_ptds(pCopy));
}

CUresult hook_cuMemcpy3DPeerAsync(const CUDA_MEMCPY3D_PEER *pCopy, CUstream hStream)
{
    struct pace_launch copy, *begun = begin_peer(&copy, pCopy, hStream, STREAM_ZERO_LEGACY);
    return card_end(begun, cuda.cuMemcpy3DPeerAsync(pCopy, hStream));
}

CUresult hook_cuMemcpy3DPeerAsync_ptsz(const CUDA_MEMCPY3D_PEER *pCopy, CUstream hStream)
{
    struct pace_launch copy, *begun = begin_peer(&copy, pCopy, hStream, STREAM_ZERO_PER_THREAD);
    return card_end(begun, cuda.cuMemcpy3DPeerAsync_ptsz(pCopy, hStream));
}

CUresult hook_cuMemcpyAtoA_v2(
    CUarray dstArray, size_t dstOffset, CUarray srcArray, size_t srcOffset, size_t ByteCount)
{
    struct pace_launch copy, *begun = begin_array(&copy, ByteCount, STREAM_ZERO_LEGACY);
    return card_end_sync(
        begun, cuda.cuMemcpyAtoA_v2(dstArray, dstOffset, srcArray, srcOffset, ByteCount));
}

CUresult hook_cuMemcpyAtoA_v2_ptds(
    CUarray dstArray, size_t dstOffset, CUarray srcArray, size_t srcOffset, size_t ByteCount)
{
    struct pace_launch copy, *begun = begin_array(&copy, ByteCount, STREAM_ZERO_PER_THREAD);
    return card_end_sync(
        begun, cuda.cuMemcpyAtoA_v2_ptds(dstArray, dstOffset, srcArray, srcOffset, ByteCount));
}

CUresult hook_cuMemcpyAtoD_v2(
    CUdeviceptr dstDevice, CUarray srcArray, size_t srcOffset, size_t ByteCount)
{
    struct pace_launch copy, *begun = begin_array(&copy, ByteCount, STREAM_ZERO_LEGACY);
    return card_end_sync(begun, cuda.cuMemcpyAtoD_v2(dstDevice, srcArray, srcOffset, ByteCount));
}

CUresult hook_cuMemcpyAtoD_v2_ptds(
    CUdeviceptr dstDevice, CUarray srcArray, size_t srcOffset, size_t ByteCount)
{
    struct pace_launch copy, *begun = begin_array(&copy, ByteCount, STREAM_ZERO_PER_THREAD);
    return card_end_sync(
        begun, cuda.cuMemcpyAtoD_v2_ptds(dstDevice, srcArray, srcOffset, ByteCount));
}

CUresult hook_cuMemcpyDtoA_v2(
    CUarray dstArray, size_t dstOffset, CUdeviceptr srcDevice, size_t ByteCount)
{
    struct pace_launch copy, *begun = begin_array(&copy, ByteCount, STREAM_ZERO_LEGACY);
    return card_end_sync(begun, cuda.cuMemcpyDtoA_v2(dstArray, dstOffset, srcDevice, ByteCount));
}

CUresult hook_cuMemcpyDtoA_v2_ptds(
    CUarray dstArray, size_t dstOffset, CUdeviceptr srcDevice, size_t ByteCount)
{
    struct pace_launch copy, *begun = begin_array(&copy, ByteCount, STREAM_ZERO_PER_THREAD);
    return card_end_sync(
        begun, cuda.cuMemcpyDtoA_v2_ptds(dstArray, dstOffset, srcDevice, ByteCount));
}

CUresult hook_cuMemcpyHtoAAsync_v2(
    CUarray dstArray, size_t dstOffset, const void *srcHost, size_t ByteCount, CUstream hStream)
{
    card_note_copy(ByteCount, hStream, STREAM_ZERO_LEGACY);
    return cuda.cuMemcpyHtoAAsync_v2(dstArray, dstOffset, srcHost, ByteCount, hStream);
}

CUresult hook_cuMemcpyHtoAAsync_v2_ptsz(
    CUarray dstArray, size_t dstOffset, const void *srcHost, size_t ByteCount, CUstream hStream)
{
    card_note_copy(ByteCount, hStream, STREAM_ZERO_PER_THREAD);
    return cuda.cuMemcpyHtoAAsync_v2_ptsz(dstArray, dstOffset, srcHost, ByteCount, hStream);
}

CUresult hook_cuMemcpyAtoHAsync_v2(
    void *dstHost, CUarray srcArray, size_t srcOffset, size_t ByteCount, CUstream hStream)
{
    card_note_copy(ByteCount, hStream, STREAM_ZERO_LEGACY);
    return cuda.cuMemcpyAtoHAsync_v2(dstHost, srcArray, srcOffset, ByteCount, hStream);
}

CUresult hook_cuMemcpyAtoHAsync_v2_ptsz(
    void *dstHost, CUarray srcArray, size_t srcOffset, size_t ByteCount, CUstream hStream)
{
    card_note_copy(ByteCount, hStream, STREAM_ZERO_PER_THREAD);
    return cuda.cuMemcpyAtoHAsync_v2_ptsz(dstHost, srcArray, srcOffset, ByteCount, hStream);
}
