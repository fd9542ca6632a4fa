/* SPDX-License-Identifier: Apache-2.0 */
/* Arrays and mipmapped arrays. */
#include "base/saturating.h"
#include "hook/hook.h"
#include "memory/allocation.h"

#include <stddef.h>

#define CHANNELS_MAX 4 /* CUDA's own bound (cuArrayCreate) */

static uint64_t format_bytes(CUarray_format format)
{
    switch (format) {
    case CU_AD_FORMAT_UNSIGNED_INT8:
    case CU_AD_FORMAT_SIGNED_INT8:
        return 1;
    case CU_AD_FORMAT_UNSIGNED_INT16:
    case CU_AD_FORMAT_SIGNED_INT16:
    case CU_AD_FORMAT_HALF:
        return 2;
    case CU_AD_FORMAT_UNSIGNED_INT32:
    case CU_AD_FORMAT_SIGNED_INT32:
    case CU_AD_FORMAT_FLOAT:
        return 4;
    default:
        return 0; /* compressed and planar formats: not judged ahead of the driver */
    }
}

/* What the driver takes at least. A height or depth of 0 means a dimension less. */
static uint64_t array_bytes(
    size_t width, size_t height, size_t depth, CUarray_format format, unsigned int channels)
{
    if (channels > CHANNELS_MAX)
        return 0; /* for the driver to refuse */
    uint64_t bytes = saturating_product(width, format_bytes(format) * channels);
    bytes = saturating_product(bytes, height ? height : 1);
    return saturating_product(bytes, depth ? depth : 1);
}

/* Sparse and deferred arrays get their memory later, by cuMemMapArrayAsync. */
static uint64_t array3d_bytes(const CUDA_ARRAY3D_DESCRIPTOR *d)
{
    if (!d || (d->Flags & (CUDA_ARRAY3D_SPARSE | CUDA_ARRAY3D_DEFERRED_MAPPING)))
        return 0;
    return array_bytes(d->Width, d->Height, d->Depth, d->Format, d->NumChannels);
}

/* Each level has half the edges of the one before. */
static uint64_t mipmap_bytes(const CUDA_ARRAY3D_DESCRIPTOR *d, unsigned int levels)
{
    uint64_t bytes = array3d_bytes(d), level = bytes;
    unsigned shift = d && d->Depth ? 3 : d && d->Height ? 2 : 1;
    for (unsigned i = 1; i < levels && level && bytes < UINT64_MAX / 2; i++) {
        level >>= shift;
        bytes += level;
    }
    return bytes;
}

static uint64_t handle_of(const CUarray *array)
{
    return array ? (uintptr_t)*array : 0;
}

CUresult hook_cuArrayCreate_v2(CUarray *pHandle, const CUDA_ARRAY_DESCRIPTOR *pAllocateArray)
{
    hook_enter();
    const CUDA_ARRAY_DESCRIPTOR *d = pAllocateArray;
    struct allocation array = allocation_here(
        d ? array_bytes(d->Width, d->Height, 0, d->Format, d->NumChannels) : 0, ACCOUNT_BUFFER);
    while (allocation_begin(&array)) {
        array.result = cuda.cuArrayCreate_v2(pHandle, pAllocateArray);
        allocation_end(&array, MEMORY_ARRAY, handle_of(pHandle));
    }
    return array.result;
}

CUresult hook_cuArrayCreate(CUarray *pHandle, const CUDA_ARRAY_DESCRIPTOR_v1 *pAllocateArray)
{
    hook_enter();
    const CUDA_ARRAY_DESCRIPTOR_v1 *d = pAllocateArray;
    struct allocation array = allocation_here(
        d ? array_bytes(d->Width, d->Height, 0, d->Format, d->NumChannels) : 0, ACCOUNT_BUFFER);
    while (allocation_begin(&array)) {
        array.result = cuda.cuArrayCreate(pHandle, pAllocateArray);
        allocation_end(&array, MEMORY_ARRAY, handle_of(pHandle));
    }
    return array.result;
}

CUresult hook_cuArray3DCreate_v2(CUarray *pHandle, const CUDA_ARRAY3D_DESCRIPTOR *pAllocateArray)
{
    hook_enter();
    struct allocation array = allocation_here(array3d_bytes(pAllocateArray), ACCOUNT_BUFFER);
    while (allocation_begin(&array)) {
        array.result = cuda.cuArray3DCreate_v2(pHandle, pAllocateArray);
        allocation_end(&array, MEMORY_ARRAY, handle_of(pHandle));
    }
    return array.result;
}

CUresult hook_cuArray3DCreate(CUarray *pHandle, const CUDA_ARRAY3D_DESCRIPTOR_v1 *pAllocateArray)
{
    hook_enter();
    const CUDA_ARRAY3D_DESCRIPTOR_v1 *d = pAllocateArray;
    struct allocation array = allocation_here(
        d ? array_bytes(d->Width, d->Height, d->Depth, d->Format, d->NumChannels) : 0,
        ACCOUNT_BUFFER);
    while (allocation_begin(&array)) {
        array.result = cuda.cuArray3DCreate(pHandle, pAllocateArray);
        allocation_end(&array, MEMORY_ARRAY, handle_of(pHandle));
    }
    return array.result;
}

CUresult hook_cuMipmappedArrayCreate(CUmipmappedArray *pHandle,
    const CUDA_ARRAY3D_DESCRIPTOR *pMipmappedArrayDesc, unsigned int numMipmapLevels)
{
    hook_enter();
    struct allocation array =
        allocation_here(mipmap_bytes(pMipmappedArrayDesc, numMipmapLevels), ACCOUNT_BUFFER);
    while (allocation_begin(&array)) {
        array.result = cuda.cuMipmappedArrayCreate(pHandle, pMipmappedArrayDesc, numMipmapLevels);
        allocation_end(&array, MEMORY_MIPMAP, pHandle ? (uintptr_t)*pHandle : 0);
    }
    return array.result;
}

CUresult hook_cuArrayDestroy(CUarray hArray)
{
    hook_enter();
    struct memory_record record = memory_take(MEMORY_ARRAY, (uintptr_t)hArray);
    CUresult result = cuda.cuArrayDestroy(hArray);
    memory_taken(&record, result == CUDA_SUCCESS, MEMORY_ARRAY, (uintptr_t)hArray);
    return result;
}

CUresult hook_cuMipmappedArrayDestroy(CUmipmappedArray hMipmappedArray)
{
    hook_enter();
    struct memory_record record = memory_take(MEMORY_MIPMAP, (uintptr_t)hMipmappedArray);
    CUresult result = cuda.cuMipmappedArrayDestroy(hMipmappedArray);
    memory_taken(&record, result == CUDA_SUCCESS, MEMORY_MIPMAP, (uintptr_t)hMipmappedArray);
    return result;
}
