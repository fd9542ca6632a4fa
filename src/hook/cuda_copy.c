/* SPDX-License-Identifier: Apache-2.0 */
/* Copies of one row, and prefetches. */
#include "hook/card.h"
#include "hook/hook.h"

#include <stddef.h>

__attribute__((noinline)) static struct pace_launch *asked(struct pace_launch *copy, CUdeviceptr to,
    CUdeviceptr from, size_t bytes, CUstream stream, enum stream_zero zero)
{
    if (!card_asks(stream, zero))
        return NULL;
    if (card_is_same(card_of(to), card_of(from)))
        return card_begin_slow(copy, CARD_COPY, bytes, 1, stream, zero);
    card_note_copy(bytes, stream, zero);
    return NULL;
}

/* Either side may be memory of the host, or of another card. */
static inline struct pace_launch *begin(struct pace_launch *copy, CUdeviceptr to, CUdeviceptr from,
    size_t bytes, CUstream stream, enum stream_zero zero)
{
    return pace_passes() ? NULL : asked(copy, to, from, bytes, stream, zero);
}

/* Both sides are said to be device memory: that it is of two cards matters in large copies. */
static inline struct pace_launch *begin_on_card(struct pace_launch *copy, CUdeviceptr to,
    CUdeviceptr from, size_t bytes, CUstream stream, enum stream_zero zero)
{
    if (bytes < CARD_LARGE_BYTES)
        return card_begin(copy, CARD_COPY, bytes, 1, stream, zero);
    return begin(copy, to, from, bytes, stream, zero);
}

CUresult hook_cuMemcpyHtoDAsync_v2(
    CUdeviceptr dstDevice, const void *srcHost, size_t ByteCount, CUstream hStream)
{
    card_note_copy(ByteCount, hStream, STREAM_ZERO_LEGACY);
    return cuda.cuMemcpyHtoDAsync_v2(dstDevice, srcHost, ByteCount, hStream);
}

CUresult hook_cuMemcpyHtoDAsync_v2_ptsz(
    CUdeviceptr dstDevice, const void *srcHost, size_t ByteCount, CUstream hStream)
{
    card_note_copy(ByteCount, hStream, STREAM_ZERO_PER_THREAD);
    return cuda.cuMemcpyHtoDAsync_v2_ptsz(dstDevice, srcHost, ByteCount, hStream);
}

CUresult hook_cuMemcpyDtoHAsync_v2(
    void *dstHost, CUdeviceptr srcDevice, size_t ByteCount, CUstream hStream)
{
    card_note_copy(ByteCount, hStream, STREAM_ZERO_LEGACY);
    return cuda.cuMemcpyDtoHAsync_v2(dstHost, srcDevice, ByteCount, hStream);
}

CUresult hook_cuMemcpyDtoHAsync_v2_ptsz(
    void *dstHost, CUdeviceptr srcDevice, size_t ByteCount, CUstream hStream)
{
    card_note_copy(ByteCount, hStream, STREAM_ZERO_PER_THREAD);
    return cuda.cuMemcpyDtoHAsync_v2_ptsz(dstHost, srcDevice, ByteCount, hStream);
}

CUresult hook_cuMemcpy(CUdeviceptr dst, CUdeviceptr src, size_t ByteCount)
{
    struct pace_launch copy, *begun = begin(&copy, dst, src, ByteCount, NULL, STREAM_ZERO_LEGACY);
    return card_end_sync(begun, cuda.cuMemcpy(dst, src, ByteCount));
}

CUresult hook_cuMemcpy_ptds(CUdeviceptr dst, CUdeviceptr src, size_t ByteCount)
{
    struct pace_launch copy,
        *begun = begin(&copy, dst, src, ByteCount, NULL, STREAM_ZERO_PER_THREAD);
    return card_end_sync(begun, cuda.cuMemcpy_ptds(dst, src, ByteCount));
}

CUresult hook_cuMemcpyAsync(CUdeviceptr dst, CUdeviceptr src, size_t ByteCount, CUstream hStream)
{
    struct pace_launch copy,
        *begun = begin(&copy, dst, src, ByteCount, hStream, STREAM_ZERO_LEGACY);
    return card_end(begun, cuda.cuMemcpyAsync(dst, src, ByteCount, hStream));
}

CUresult hook_cuMemcpyAsync_ptsz(
    CUdeviceptr dst, CUdeviceptr src, size_t ByteCount, CUstream hStream)
{
    struct pace_launch copy,
        *begun = begin(&copy, dst, src, ByteCount, hStream, STREAM_ZERO_PER_THREAD);
    return card_end(begun, cuda.cuMemcpyAsync_ptsz(dst, src, ByteCount, hStream));
}

CUresult hook_cuMemcpyDtoD_v2(CUdeviceptr dstDevice, CUdeviceptr srcDevice, size_t ByteCount)
{
    struct pace_launch copy,
        *begun = begin_on_card(&copy, dstDevice, srcDevice, ByteCount, NULL, STREAM_ZERO_LEGACY);
    return card_end_sync(begun, cuda.cuMemcpyDtoD_v2(dstDevice, srcDevice, ByteCount));
}

CUresult hook_cuMemcpyDtoD_v2_ptds(CUdeviceptr dstDevice, CUdeviceptr srcDevice, size_t ByteCount)
{
    struct pace_launch copy, *begun = begin_on_card(&copy, dstDevice, srcDevice, ByteCount, NULL,
                                 STREAM_ZERO_PER_THREAD);
    return card_end_sync(begun, cuda.cuMemcpyDtoD_v2_ptds(dstDevice, srcDevice, ByteCount));
}

CUresult hook_cuMemcpyDtoDAsync_v2(
    CUdeviceptr dstDevice, CUdeviceptr srcDevice, size_t ByteCount, CUstream hStream)
{
    struct pace_launch copy,
        *begun = begin_on_card(&copy, dstDevice, srcDevice, ByteCount, hStream, STREAM_ZERO_LEGACY);
    return card_end(begun, cuda.cuMemcpyDtoDAsync_v2(dstDevice, srcDevice, ByteCount, hStream));
}

CUresult hook_cuMemcpyDtoDAsync_v2_ptsz(
    CUdeviceptr dstDevice, CUdeviceptr srcDevice, size_t ByteCount, CUstream hStream)
{
    struct pace_launch copy, *begun = begin_on_card(&copy, dstDevice, srcDevice, ByteCount, hStream,
                                 STREAM_ZERO_PER_THREAD);
    return card_end(
        begun, cuda.cuMemcpyDtoDAsync_v2_ptsz(dstDevice, srcDevice, ByteCount, hStream));
}

CUresult hook_cuMemcpyPeer(CUdeviceptr dstDevice, CUcontext dstContext, CUdeviceptr srcDevice,
    CUcontext srcContext, size_t ByteCount)
{
    struct pace_launch copy,
        *begun = begin(&copy, dstDevice, srcDevice, ByteCount, NULL, STREAM_ZERO_LEGACY);
    return card_end_sync(
        begun, cuda.cuMemcpyPeer(dstDevice, dstContext, srcDevice, srcContext, ByteCount));
}

CUresult hook_cuMemcpyPeer_ptds(CUdeviceptr dstDevice, CUcontext dstContext, CUdeviceptr srcDevice,
    CUcontext srcContext, size_t ByteCount)
{
    struct pace_launch copy,
        *begun = begin(&copy, dstDevice, srcDevice, ByteCount, NULL, STREAM_ZERO_PER_THREAD);
    return card_end_sync(
        begun, cuda.cuMemcpyPeer_ptds(dstDevice, dstContext, srcDevice, srcContext, ByteCount));
}

CUresult hook_cuMemcpyPeerAsync(CUdeviceptr dstDevice, CUcontext dstContext, CUdeviceptr srcDevice,
    CUcontext srcContext, size_t ByteCount, CUstream hStream)
{
    struct pace_launch copy,
        *begun = begin(&copy, dstDevice, srcDevice, ByteCount, hStream, STREAM_ZERO_LEGACY);
    return card_end(begun,
        cuda.cuMemcpyPeerAsync(dstDevice, dstContext, srcDevice, srcContext, ByteCount, hStream));
}

CUresult hook_cuMemcpyPeerAsync_ptsz(CUdeviceptr dstDevice, CUcontext dstContext,
    CUdeviceptr srcDevice, CUcontext srcContext, size_t ByteCount, CUstream hStream)
{
    struct pace_launch copy,
        *begun = begin(&copy, dstDevice, srcDevice, ByteCount, hStream, STREAM_ZERO_PER_THREAD);
    return card_end(begun, cuda.cuMemcpyPeerAsync_ptsz(
                               dstDevice, dstContext, srcDevice, srcContext, ByteCount, hStream));
}

CUresult hook_cuMemcpyWithAttributesAsync(
    CUdeviceptr dst, CUdeviceptr src, size_t size, CUmemcpyAttributes *attr, CUstream hStream)
{
    struct pace_launch copy, *begun = begin(&copy, dst, src, size, hStream, STREAM_ZERO_LEGACY);
    return card_end(begun, cuda.cuMemcpyWithAttributesAsync(dst, src, size, attr, hStream));
}

CUresult hook_cuMemcpyWithAttributesAsync_ptsz(
    CUdeviceptr dst, CUdeviceptr src, size_t size, CUmemcpyAttributes *attr, CUstream hStream)
{
    struct pace_launch copy, *begun = begin(&copy, dst, src, size, hStream, STREAM_ZERO_PER_THREAD);
    return card_end(begun, cuda.cuMemcpyWithAttributesAsync_ptsz(dst, src, size, attr, hStream));
}

CUresult hook_cuMemPrefetchAsync(
    CUdeviceptr devPtr, size_t count, CUdevice dstDevice, CUstream hStream)
{
    card_note_copy(count, hStream, STREAM_ZERO_LEGACY);
    return cuda.cuMemPrefetchAsync(devPtr, count, dstDevice, hStream);
}

CUresult hook_cuMemPrefetchAsync_ptsz(
    CUdeviceptr devPtr, size_t count, CUdevice dstDevice, CUstream hStream)
{
    card_note_copy(count, hStream, STREAM_ZERO_PER_THREAD);
    return cuda.cuMemPrefetchAsync_ptsz(devPtr, count, dstDevice, hStream);
}

CUresult hook_cuMemPrefetchAsync_v2(
    CUdeviceptr devPtr, size_t count, CUmemLocation location, unsigned int flags, CUstream hStream)
{
    card_note_copy(count, hStream, STREAM_ZERO_LEGACY);
    return cuda.cuMemPrefetchAsync_v2(devPtr, count, location, flags, hStream);
}

CUresult hook_cuMemPrefetchAsync_v2_ptsz(
    CUdeviceptr devPtr, size_t count, CUmemLocation location, unsigned int flags, CUstream hStream)
{
    card_note_copy(count, hStream, STREAM_ZERO_PER_THREAD);
    return cuda.cuMemPrefetchAsync_v2_ptsz(devPtr, count, location, flags, hStream);
}
