/* SPDX-License-Identifier: Apache-2.0 */
/* Fills. Those that name no stream are on the thread's default stream, and the host does not wait
 * for them. The forms of CUDA 3.1 and before are left out: no address of today fits their 32 bits.
 */
#include "hook/card.h"
#include "hook/hook.h"

#include <stddef.h>

static inline struct pace_launch *begin(
    struct pace_launch *fill, size_t bytes, CUstream stream, enum stream_zero zero)
{
    return card_begin(fill, CARD_FILL, bytes, 1, stream, zero);
}

static inline struct pace_launch *begin_rows(
    struct pace_launch *fill, size_t bytes, size_t rows, CUstream stream, enum stream_zero zero)
{
    return card_begin(fill, CARD_FILL_ROWS, bytes * rows, rows, stream, zero);
}

CUresult hook_cuMemsetD8_v2(CUdeviceptr dstDevice, unsigned char uc, size_t N)
{
    struct pace_launch fill, *begun = begin(&fill, N, NULL, STREAM_ZERO_LEGACY);
    return card_end_sync(begun, cuda.cuMemsetD8_v2(dstDevice, uc, N));
}

CUresult hook_cuMemsetD8_v2_ptds(CUdeviceptr dstDevice, unsigned char uc, size_t N)
{
    struct pace_launch fill, *begun = begin(&fill, N, NULL, STREAM_ZERO_PER_THREAD);
    return card_end_sync(begun, cuda.cuMemsetD8_v2_ptds(dstDevice, uc, N));
}

CUresult hook_cuMemsetD8Async(CUdeviceptr dstDevice, unsigned char uc, size_t N, CUstream hStream)
{
    struct pace_launch fill, *begun = begin(&fill, N, hStream, STREAM_ZERO_LEGACY);
    return card_end(begun, cuda.cuMemsetD8Async(dstDevice, uc, N, hStream));
}

CUresult hook_cuMemsetD8Async_ptsz(
    CUdeviceptr dstDevice, unsigned char uc, size_t N, CUstream hStream)
{
    struct pace_launch fill, *begun = begin(&fill, N, hStream, STREAM_ZERO_PER_THREAD);
    return card_end(begun, cuda.cuMemsetD8Async_ptsz(dstDevice, uc, N, hStream));
}

CUresult hook_cuMemsetD16_v2(CUdeviceptr dstDevice, unsigned short us, size_t N)
{
    struct pace_launch fill, *begun = begin(&fill, 2 * N, NULL, STREAM_ZERO_LEGACY);
    return card_end_sync(begun, cuda.cuMemsetD16_v2(dstDevice, us, N));
}

CUresult hook_cuMemsetD16_v2_ptds(CUdeviceptr dstDevice, unsigned short us, size_t N)
{
    struct pace_launch fill, *begun = begin(&fill, 2 * N, NULL, STREAM_ZERO_PER_THREAD);
    return card_end_sync(begun, cuda.cuMemsetD16_v2_ptds(dstDevice, us, N));
}

CUresult hook_cuMemsetD16Async(CUdeviceptr dstDevice, unsigned short us, size_t N, CUstream hStream)
{
    struct pace_launch fill, *begun = begin(&fill, 2 * N, hStream, STREAM_ZERO_LEGACY);
    return card_end(begun, cuda.cuMemsetD16Async(dstDevice, us, N, hStream));
}

CUresult hook_cuMemsetD16Async_ptsz(
    CUdeviceptr dstDevice, unsigned short us, size_t N, CUstream hStream)
{
    struct pace_launch fill, *begun = begin(&fill, 2 * N, hStream, STREAM_ZERO_PER_THREAD);
    return card_end(begun, cuda.cuMemsetD16Async_ptsz(dstDevice, us, N, hStream));
}

CUresult hook_cuMemsetD32_v2(CUdeviceptr dstDevice, unsigned int ui, size_t N)
{
    struct pace_launch fill, *begun = begin(&fill, 4 * N, NULL, STREAM_ZERO_LEGACY);
    return card_end_sync(begun, cuda.cuMemsetD32_v2(dstDevice, ui, N));
}

CUresult hook_cuMemsetD32_v2_ptds(CUdeviceptr dstDevice, unsigned int ui, size_t N)
{
    struct pace_launch fill, *begun = begin(&fill, 4 * N, NULL, STREAM_ZERO_PER_THREAD);
    return card_end_sync(begun, cuda.cuMemsetD32_v2_ptds(dstDevice, ui, N));
}

CUresult hook_cuMemsetD32Async(CUdeviceptr dstDevice, unsigned int ui, size_t N, CUstream hStream)
{
    struct pace_launch fill, *begun = begin(&fill, 4 * N, hStream, STREAM_ZERO_LEGACY);
    return card_end(begun, cuda.cuMemsetD32Async(dstDevice, ui, N, hStream));
}

CUresult hook_cuMemsetD32Async_ptsz(
    CUdeviceptr dstDevice, unsigned int ui, size_t N, CUstream hStream)
{
    struct pace_launch fill, *begun = begin(&fill, 4 * N, hStream, STREAM_ZERO_PER_THREAD);
    return card_end(begun, cuda.cuMemsetD32Async_ptsz(dstDevice, ui, N, hStream));
}

CUresult hook_cuMemsetD2D8_v2(
    CUdeviceptr dstDevice, size_t dstPitch, unsigned char uc, size_t Width, size_t Height)
{
    struct pace_launch fill, *begun = begin_rows(&fill, Width, Height, NULL, STREAM_ZERO_LEGACY);
    return card_end_sync(begun, cuda.cuMemsetD2D8_v2(dstDevice, dstPitch, uc, Width, Height));
}

CUresult hook_cuMemsetD2D8_v2_ptds(
    CUdeviceptr dstDevice, size_t dstPitch, unsigned char uc, size_t Width, size_t Height)
{
    struct pace_launch fill,
        *begun = begin_rows(&fill, Width, Height, NULL, STREAM_ZERO_PER_THREAD);
    return card_end_sync(begun, cuda.cuMemsetD2D8_v2_ptds(dstDevice, dstPitch, uc, Width, Height));
}

CUresult hook_cuMemsetD2D8Async(CUdeviceptr dstDevice, size_t dstPitch, unsigned char uc,
    size_t Width, size_t Height, CUstream hStream)
{
    struct pace_launch fill, *begun = begin_rows(&fill, Width, Height, hStream, STREAM_ZERO_LEGACY);
    return card_end(begun, cuda.cuMemsetD2D8Async(dstDevice, dstPitch, uc, Width, Height, hStream));
}

CUresult hook_cuMemsetD2D8Async_ptsz(CUdeviceptr dstDevice, size_t dstPitch, unsigned char uc,
    size_t Width, size_t Height, CUstream hStream)
{
    struct pace_launch fill,
        *begun = begin_rows(&fill, Width, Height, hStream, STREAM_ZERO_PER_THREAD);
    return card_end(
        begun, cuda.cuMemsetD2D8Async_ptsz(dstDevice, dstPitch, uc, Width, Height, hStream));
}

CUresult hook_cuMemsetD2D16_v2(
    CUdeviceptr dstDevice, size_t dstPitch, unsigned short us, size_t Width, size_t Height)
{
    struct pace_launch fill,
        *begun = begin_rows(&fill, 2 * Width, Height, NULL, STREAM_ZERO_LEGACY);
    return card_end_sync(begun, cuda.cuMemsetD2D16_v2(dstDevice, dstPitch, us, Width, Height));
}

CUresult hook_cuMemsetD2D16_v2_ptds(
    CUdeviceptr dstDevice, size_t dstPitch, unsigned short us, size_t Width, size_t Height)
{
    struct pace_launch fill,
        *begun = begin_rows(&fill, 2 * Width, Height, NULL, STREAM_ZERO_PER_THREAD);
    return card_end_sync(begun, cuda.cuMemsetD2D16_v2_ptds(dstDevice, dstPitch, us, Width, Height));
}

CUresult hook_cuMemsetD2D16Async(CUdeviceptr dstDevice, size_t dstPitch, unsigned short us,
    size_t Width, size_t Height, CUstream hStream)
{
    struct pace_launch fill,
        *begun = begin_rows(&fill, 2 * Width, Height, hStream, STREAM_ZERO_LEGACY);
    return card_end(
        begun, cuda.cuMemsetD2D16Async(dstDevice, dstPitch, us, Width, Height, hStream));
}

CUresult hook_cuMemsetD2D16Async_ptsz(CUdeviceptr dstDevice, size_t dstPitch, unsigned short us,
    size_t Width, size_t Height, CUstream hStream)
{
    struct pace_launch fill,
        *begun = begin_rows(&fill, 2 * Width, Height, hStream, STREAM_ZERO_PER_THREAD);
    return card_end(
        begun, cuda.cuMemsetD2D16Async_ptsz(dstDevice, dstPitch, us, Width, Height, hStream));
}

CUresult hook_cuMemsetD2D32_v2(
    CUdeviceptr dstDevice, size_t dstPitch, unsigned int ui, size_t Width, size_t Height)
{
    struct pace_launch fill,
        *begun = begin_rows(&fill, 4 * Width, Height, NULL, STREAM_ZERO_LEGACY);
    return card_end_sync(begun, cuda.cuMemsetD2D32_v2(dstDevice, dstPitch, ui, Width, Height));
}

CUresult hook_cuMemsetD2D32_v2_ptds(
    CUdeviceptr dstDevice, size_t dstPitch, unsigned int ui, size_t Width, size_t Height)
{
    struct pace_launch fill,
        *begun = begin_rows(&fill, 4 * Width, Height, NULL, STREAM_ZERO_PER_THREAD);
    return card_end_sync(begun, cuda.cuMemsetD2D32_v2_ptds(dstDevice, dstPitch, ui, Width, Height));
}

CUresult hook_cuMemsetD2D32Async(CUdeviceptr dstDevice, size_t dstPitch, unsigned int ui,
    size_t Width, size_t Height, CUstream hStream)
{
    struct pace_launch fill,
        *begun = begin_rows(&fill, 4 * Width, Height, hStream, STREAM_ZERO_LEGACY);
    return card_end(
        begun, cuda.cuMemsetD2D32Async(dstDevice, dstPitch, ui, Width, Height, hStream));
}

CUresult hook_cuMemsetD2D32Async_ptsz(CUdeviceptr dstDevice, size_t dstPitch, unsigned int ui,
    size_t Width, size_t Height, CUstream hStream)
{
    struct pace_launch fill,
        *begun = begin_rows(&fill, 4 * Width, Height, hStream, STREAM_ZERO_PER_THREAD);
    return card_end(
        begun, cuda.cuMemsetD2D32Async_ptsz(dstDevice, dstPitch, ui, Width, Height, hStream));
}
