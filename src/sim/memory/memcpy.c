/* SPDX-License-Identifier: Apache-2.0 */
/* The calls that copy and fill: each says what it means as work for a stream. */
#include "sim/work/stream.h"

/* The host does not wait for a copy on the card ("API synchronization behavior" of the driver's
 * manual). */
static CUresult copy_enqueue(const CUDA_MEMCPY3D *copy, CUstream handle, bool wait)
{
    struct work work = {.type = CU_GRAPH_NODE_TYPE_MEMCPY, .copy = *copy};
    struct stream *stream;
    CUresult r;

    stream_admit(handle);
    {
        CUDA_LOCKED;

        r = stream_get(handle, &stream);
        if (r == CUDA_SUCCESS && wait && stream->capture) {
            capture_invalidate(stream->capture);
            r = CUDA_ERROR_STREAM_CAPTURE_UNSUPPORTED;
        }
        if (r == CUDA_SUCCESS)
            r = stream_run(stream, &work);
        wait = wait && r == CUDA_SUCCESS && copy_work(copy).kind == SIM_WORK_COPY;
    }
    return wait ? stream_wait(stream) : r;
}

/* Addresses of any kind: the driver tells device from host by the address itself. */
static CUresult copy_flat(uint64_t to, uint64_t from, size_t bytes, CUstream stream, bool wait)
{
    CUDA_MEMCPY3D copy = {.srcMemoryType = CU_MEMORYTYPE_UNIFIED,
        .srcDevice = from,
        .dstMemoryType = CU_MEMORYTYPE_UNIFIED,
        .dstDevice = to,
        .WidthInBytes = bytes,
        .Height = 1,
        .Depth = 1};

    return copy_enqueue(&copy, stream, wait);
}

/* One side is meant to be device memory, known to the driver. */
static CUresult copy_typed(
    uint64_t device, uint64_t to, uint64_t from, size_t bytes, CUstream stream, bool wait)
{
    {
        CUDA_LOCKED;

        if (bytes && !allocation_find(device))
            return CUDA_ERROR_INVALID_VALUE;
    }
    return copy_flat(to, from, bytes, stream, wait);
}

CUresult sim_cuMemcpy(CUdeviceptr to, CUdeviceptr from, size_t bytes)
{
    return copy_flat(to, from, bytes, NULL, true);
}

CUresult sim_cuMemcpyAsync(CUdeviceptr to, CUdeviceptr from, size_t bytes, CUstream stream)
{
    return copy_flat(to, from, bytes, stream, false);
}

CUresult sim_cuMemcpyHtoD_v2(CUdeviceptr to, const void *from, size_t bytes)
{
    return copy_typed(to, to, (uintptr_t)from, bytes, NULL, true);
}

CUresult sim_cuMemcpyHtoDAsync_v2(CUdeviceptr to, const void *from, size_t bytes, CUstream stream)
{
    return copy_typed(to, to, (uintptr_t)from, bytes, stream, false);
}

CUresult sim_cuMemcpyDtoH_v2(void *to, CUdeviceptr from, size_t bytes)
{
    return copy_typed(from, (uintptr_t)to, from, bytes, NULL, true);
}

CUresult sim_cuMemcpyDtoHAsync_v2(void *to, CUdeviceptr from, size_t bytes, CUstream stream)
{
    return copy_typed(from, (uintptr_t)to, from, bytes, stream, false);
}

CUresult sim_cuMemcpyDtoD_v2(CUdeviceptr to, CUdeviceptr from, size_t bytes)
{
    return copy_typed(from, to, from, bytes, NULL, false);
}

CUresult sim_cuMemcpyDtoDAsync_v2(CUdeviceptr to, CUdeviceptr from, size_t bytes, CUstream stream)
{
    return copy_typed(from, to, from, bytes, stream, false);
}

CUresult sim_cuMemcpyPeer(
    CUdeviceptr to, CUcontext to_context, CUdeviceptr from, CUcontext from_context, size_t bytes)
{
    (void)to_context;
    (void)from_context;
    return copy_flat(to, from, bytes, NULL, true);
}

CUresult sim_cuMemcpyPeerAsync(CUdeviceptr to, CUcontext to_context, CUdeviceptr from,
    CUcontext from_context, size_t bytes, CUstream stream)
{
    (void)to_context;
    (void)from_context;
    return copy_flat(to, from, bytes, stream, false);
}

static CUDA_MEMCPY3D copy_deepen(const CUDA_MEMCPY2D *flat)
{
    return (CUDA_MEMCPY3D){.srcXInBytes = flat->srcXInBytes,
        .srcY = flat->srcY,
        .srcMemoryType = flat->srcMemoryType,
        .srcHost = flat->srcHost,
        .srcDevice = flat->srcDevice,
        .srcArray = flat->srcArray,
        .srcPitch = flat->srcPitch,
        .dstXInBytes = flat->dstXInBytes,
        .dstY = flat->dstY,
        .dstMemoryType = flat->dstMemoryType,
        .dstHost = flat->dstHost,
        .dstDevice = flat->dstDevice,
        .dstArray = flat->dstArray,
        .dstPitch = flat->dstPitch,
        .WidthInBytes = flat->WidthInBytes,
        .Height = flat->Height,
        .Depth = 1};
}

static CUresult copy_2d(const CUDA_MEMCPY2D *flat, CUstream stream, bool wait)
{
    CUDA_MEMCPY3D copy;

    if (!flat)
        return CUDA_ERROR_INVALID_VALUE;
    copy = copy_deepen(flat);
    return copy_enqueue(&copy, stream, wait);
}

CUresult sim_cuMemcpy2D_v2(const CUDA_MEMCPY2D *copy)
{
    return copy_2d(copy, NULL, true);
}

CUresult sim_cuMemcpy2DUnaligned_v2(const CUDA_MEMCPY2D *copy)
{
    return copy_2d(copy, NULL, true);
}

CUresult sim_cuMemcpy2DAsync_v2(const CUDA_MEMCPY2D *copy, CUstream stream)
{
    return copy_2d(copy, stream, false);
}

CUresult sim_cuMemcpy3D_v2(const CUDA_MEMCPY3D *copy)
{
    return copy ? copy_enqueue(copy, NULL, true) : CUDA_ERROR_INVALID_VALUE;
}

CUresult sim_cuMemcpy3DAsync_v2(const CUDA_MEMCPY3D *copy, CUstream stream)
{
    return copy ? copy_enqueue(copy, stream, false) : CUDA_ERROR_INVALID_VALUE;
}

/* Of memory of the host, or where the program asked for it (CU_POINTER_ATTRIBUTE_SYNC_MEMOPS). */
static bool is_waited_for(CUdeviceptr to)
{
    const struct allocation *allocation = allocation_find(to);

    return !address_is_device(to) || (allocation && allocation->sync_memops);
}

static CUresult fill(CUdeviceptr to, size_t pitch, unsigned value, unsigned element_bytes,
    size_t width, size_t height, CUstream handle, bool wait)
{
    struct work work = {.type = CU_GRAPH_NODE_TYPE_MEMSET,
        .fill = {.dst = to,
            .pitch = pitch,
            .value = value,
            .elementSize = element_bytes,
            .width = width,
            .height = height}};
    struct stream *stream;
    CUresult r;

    stream_admit(handle);
    {
        CUDA_LOCKED;

        r = stream_get(handle, &stream);
        if (r == CUDA_SUCCESS)
            r = stream_run(stream, &work);
        wait = wait && r == CUDA_SUCCESS && !stream->capture && is_waited_for(to);
    }
    return wait ? stream_wait(stream) : r;
}

CUresult sim_cuMemsetD8_v2(CUdeviceptr to, unsigned char value, size_t count)
{
    return fill(to, 0, value, 1, count, 1, NULL, true);
}

CUresult sim_cuMemsetD8Async(CUdeviceptr to, unsigned char value, size_t count, CUstream stream)
{
    return fill(to, 0, value, 1, count, 1, stream, false);
}

CUresult sim_cuMemsetD2D8_v2(
    CUdeviceptr to, size_t pitch, unsigned char value, size_t width, size_t height)
{
    return fill(to, pitch, value, 1, width, height, NULL, true);
}

CUresult sim_cuMemsetD2D8Async(
    CUdeviceptr to, size_t pitch, unsigned char value, size_t width, size_t height, CUstream stream)
{
    return fill(to, pitch, value, 1, width, height, stream, false);
}

CUresult sim_cuMemsetD16_v2(CUdeviceptr to, unsigned short value, size_t count)
{
    return fill(to, 0, value, 2, count, 1, NULL, true);
}

CUresult sim_cuMemsetD16Async(CUdeviceptr to, unsigned short value, size_t count, CUstream stream)
{
    return fill(to, 0, value, 2, count, 1, stream, false);
}

CUresult sim_cuMemsetD2D16_v2(
    CUdeviceptr to, size_t pitch, unsigned short value, size_t width, size_t height)
{
    return fill(to, pitch, value, 2, width, height, NULL, true);
}

CUresult sim_cuMemsetD2D16Async(CUdeviceptr to, size_t pitch, unsigned short value, size_t width,
    size_t height, CUstream stream)
{
    return fill(to, pitch, value, 2, width, height, stream, false);
}

CUresult sim_cuMemsetD32_v2(CUdeviceptr to, unsigned int value, size_t count)
{
    return fill(to, 0, value, 4, count, 1, NULL, true);
}

CUresult sim_cuMemsetD32Async(CUdeviceptr to, unsigned int value, size_t count, CUstream stream)
{
    return fill(to, 0, value, 4, count, 1, stream, false);
}

CUresult sim_cuMemsetD2D32_v2(
    CUdeviceptr to, size_t pitch, unsigned int value, size_t width, size_t height)
{
    return fill(to, pitch, value, 4, width, height, NULL, true);
}

CUresult sim_cuMemsetD2D32Async(
    CUdeviceptr to, size_t pitch, unsigned int value, size_t width, size_t height, CUstream stream)
{
    return fill(to, pitch, value, 4, width, height, stream, false);
}
