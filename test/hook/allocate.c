/* SPDX-License-Identifier: Apache-2.0 */
/* The kinds of device memory. */
#include "allocate.h"

#include "bed.h"

#include <dlfcn.h>

static CUresult make_linear(uint64_t bytes, uint64_t *ret_handle)
{
    CUdeviceptr pointer = 0;
    CUresult result = CU(cuMemAlloc_v2)(&pointer, bytes);
    *ret_handle = pointer;
    return result;
}

static CUresult make_pitched(uint64_t bytes, uint64_t *ret_handle)
{
    CUdeviceptr pointer = 0;
    size_t pitch;
    CUresult result = CU(cuMemAllocPitch_v2)(&pointer, &pitch, 4096, bytes / 4096, 4);
    *ret_handle = pointer;
    return result;
}

static CUresult make_managed(uint64_t bytes, uint64_t *ret_handle)
{
    CUdeviceptr pointer = 0;
    CUresult result = CU(cuMemAllocManaged)(&pointer, bytes, CU_MEM_ATTACH_GLOBAL);
    *ret_handle = pointer;
    return result;
}

static CUresult drop_linear(uint64_t handle)
{
    return CU(cuMemFree_v2)(handle);
}

static CUresult make_async(uint64_t bytes, uint64_t *ret_handle)
{
    CUdeviceptr pointer = 0;
    CUresult result = CU(cuMemAllocAsync)(&pointer, bytes, NULL);
    *ret_handle = pointer;
    return result;
}

static CUresult make_pooled(uint64_t bytes, uint64_t *ret_handle)
{
    CUdeviceptr pointer = 0;
    CUmemoryPool pool;
    CUresult result = CU(cuDeviceGetDefaultMemPool)(&pool, 0);
    if (result == CUDA_SUCCESS)
        result = CU(cuMemAllocFromPoolAsync)(&pointer, bytes, pool, NULL);
    *ret_handle = pointer;
    return result;
}

static CUresult drop_async(uint64_t handle)
{
    CUresult result = CU(cuMemFreeAsync)(handle, NULL);
    if (result == CUDA_SUCCESS)
        result = CU(cuStreamSynchronize)(NULL);
    return result;
}

static CUresult make_array(uint64_t bytes, uint64_t *ret_handle)
{
    CUarray array = NULL;
    CUDA_ARRAY_DESCRIPTOR descriptor = {
        .Width = 1024, .Height = bytes / 16 / 1024, .Format = CU_AD_FORMAT_FLOAT, .NumChannels = 4};
    CUresult result = CU(cuArrayCreate_v2)(&array, &descriptor);
    *ret_handle = (uintptr_t)array;
    return result;
}

static CUresult make_deep_array(uint64_t bytes, uint64_t *ret_handle)
{
    CUarray array = NULL;
    CUDA_ARRAY3D_DESCRIPTOR descriptor = {.Width = 256,
        .Height = 256,
        .Depth = bytes / 16 / 65536,
        .Format = CU_AD_FORMAT_FLOAT,
        .NumChannels = 4};
    CUresult result = CU(cuArray3DCreate_v2)(&array, &descriptor);
    *ret_handle = (uintptr_t)array;
    return result;
}

static CUresult drop_array(uint64_t handle)
{
    return CU(cuArrayDestroy)((CUarray)(uintptr_t)handle);
}

static CUresult make_mipmap(uint64_t bytes, uint64_t *ret_handle)
{
    CUmipmappedArray array = NULL;
    CUDA_ARRAY3D_DESCRIPTOR descriptor = {
        .Width = 1024, .Height = bytes / 16 / 1024, .Format = CU_AD_FORMAT_FLOAT, .NumChannels = 4};
    CUresult result = CU(cuMipmappedArrayCreate)(&array, &descriptor, 4);
    *ret_handle = (uintptr_t)array;
    return result;
}

static CUresult drop_mipmap(uint64_t handle)
{
    return CU(cuMipmappedArrayDestroy)((CUmipmappedArray)(uintptr_t)handle);
}

CUmemAllocationProp allocation_property(int ordinal)
{
    return (CUmemAllocationProp){.type = CU_MEM_ALLOCATION_TYPE_PINNED,
        .requestedHandleTypes = CU_MEM_HANDLE_TYPE_POSIX_FILE_DESCRIPTOR,
        .location = {.type = CU_MEM_LOCATION_TYPE_DEVICE, .id = ordinal}};
}

static CUresult make_vmm(uint64_t bytes, uint64_t *ret_handle)
{
    CUmemGenericAllocationHandle handle = 0;
    CUmemAllocationProp property = allocation_property(0);
    CUresult result = CU(cuMemCreate)(&handle, bytes, &property, 0);
    *ret_handle = handle;
    return result;
}

static CUresult drop_vmm(uint64_t handle)
{
    return CU(cuMemRelease)(handle);
}

const struct allocation_kind allocation_kinds[] = {
    {"cuMemAlloc_v2", "cuMemFree_v2", make_linear, drop_linear},
    {"cuMemAllocPitch_v2", "cuMemFree_v2", make_pitched, drop_linear},
    {"cuMemAllocManaged", "cuMemFree_v2", make_managed, drop_linear},
    {"cuMemAllocAsync", "cuMemFreeAsync", make_async, drop_async},
    {"cuMemAllocFromPoolAsync", "cuMemFreeAsync", make_pooled, drop_async},
    {"cuArrayCreate_v2", "cuArrayDestroy", make_array, drop_array},
    {"cuArray3DCreate_v2", "cuArrayDestroy", make_deep_array, drop_array},
    {"cuMipmappedArrayCreate", "cuMipmappedArrayDestroy", make_mipmap, drop_mipmap},
    {"cuMemCreate", "cuMemRelease", make_vmm, drop_vmm},
};
const unsigned allocation_kind_count = sizeof(allocation_kinds) / sizeof(allocation_kinds[0]);

bool allocation_kind_exists(const struct allocation_kind *kind)
{
    void *library = dlopen("libcuda.so.1", RTLD_NOW);
    return library && dlsym(library, kind->function);
}

uint64_t allocation_charged(void)
{
    const struct vgpu_slot *slot = bed_region_slot(getpid());
    return slot ? slot->usage[0].bytes : 0;
}
