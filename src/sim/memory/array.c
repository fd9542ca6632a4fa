/* SPDX-License-Identifier: Apache-2.0 */
/* Arrays and mipmapped arrays: device memory of their own (a 64 MiB array took 64 MiB). */
#include "sim/memory/array.h"

#include <stdlib.h>

#define LEVELS_MAX 17

struct array {
    struct object object;
    CUDA_ARRAY3D_DESCRIPTOR desc;
    uint64_t element_bytes;
    uint64_t address;
    struct allocation *memory; /* NULL: a level of a mipmapped array */
};

struct mipmap {
    struct object object;
    struct allocation *memory;
    unsigned count;
    struct array levels[LEVELS_MAX];
};

static uint64_t format_bytes(CUarray_format format)
{
    switch ((int)format) {
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
        return 0;
    }
}

static uint64_t at_least_one(uint64_t value)
{
    return value ? value : 1;
}

static CUresult array_init(struct array *array, const CUDA_ARRAY3D_DESCRIPTOR *desc)
{
    array->desc = *desc;
    array->element_bytes = format_bytes(desc->Format) * desc->NumChannels;
    if (!array->element_bytes || desc->NumChannels == 3 || desc->NumChannels > 4 || !desc->Width ||
        desc->Width > 131072 || desc->Height > 131072 || desc->Depth > 16384)
        return CUDA_ERROR_INVALID_VALUE;
    return CUDA_SUCCESS;
}

static uint64_t array_bytes(const struct array *array)
{
    return array->desc.Width * array->element_bytes * at_least_one(array->desc.Height) *
           at_least_one(array->desc.Depth);
}

bool array_facts_of(CUarray handle, struct array_facts *ret_facts)
{
    const struct array *array = object_find(handle, OBJECT_ARRAY);

    if (array)
        *ret_facts = (struct array_facts){.address = array->address,
            .row_bytes = array->desc.Width * array->element_bytes,
            .height = at_least_one(array->desc.Height)};
    return array != NULL;
}

CUresult sim_cuArray3DCreate_v2(CUarray *ret, const CUDA_ARRAY3D_DESCRIPTOR *desc)
{
    CUDA_LOCKED;
    struct array *array;
    CUresult r;

    if (!ret || !desc)
        return CUDA_ERROR_INVALID_VALUE;
    array = calloc(1, sizeof *array);
    if (!array)
        return CUDA_ERROR_OUT_OF_MEMORY;
    r = array_init(array, desc);
    if (r == CUDA_SUCCESS)
        r = memory_create(context_current(), array_bytes(array), ALLOCATION_GLOBAL, &array->memory);
    if (r != CUDA_SUCCESS) {
        free(array);
        return r;
    }
    array->address = array->memory->address;
    object_add(&array->object, OBJECT_ARRAY);
    *ret = (CUarray)array;
    return CUDA_SUCCESS;
}

CUresult sim_cuArrayCreate_v2(CUarray *ret, const CUDA_ARRAY_DESCRIPTOR *desc)
{
    CUDA_ARRAY3D_DESCRIPTOR deep = {0};

    if (!desc)
        return CUDA_ERROR_INVALID_VALUE;
    deep.Width = desc->Width;
    deep.Height = desc->Height;
    deep.Format = desc->Format;
    deep.NumChannels = desc->NumChannels;
    return sim_cuArray3DCreate_v2(ret, &deep);
}

CUresult sim_cuArrayDestroy(CUarray handle)
{
    CUDA_LOCKED;
    struct array *array = object_find(handle, OBJECT_ARRAY);

    if (!array || !array->memory)
        return CUDA_ERROR_INVALID_HANDLE;
    object_remove(&array->object);
    /* The context's end may have taken the memory already. */
    if (allocation_at(array->address) == array->memory)
        memory_destroy(array->memory);
    free(array);
    return CUDA_SUCCESS;
}

CUresult sim_cuArray3DGetDescriptor_v2(CUDA_ARRAY3D_DESCRIPTOR *desc, CUarray handle)
{
    CUDA_LOCKED;
    const struct array *array = object_find(handle, OBJECT_ARRAY);

    if (!array)
        return CUDA_ERROR_INVALID_HANDLE;
    if (!desc)
        return CUDA_ERROR_INVALID_VALUE;
    *desc = array->desc;
    return CUDA_SUCCESS;
}

CUresult sim_cuArrayGetDescriptor_v2(CUDA_ARRAY_DESCRIPTOR *desc, CUarray handle)
{
    CUDA_ARRAY3D_DESCRIPTOR deep;
    CUresult r = desc ? sim_cuArray3DGetDescriptor_v2(&deep, handle) : CUDA_ERROR_INVALID_VALUE;

    if (r == CUDA_SUCCESS)
        *desc = (CUDA_ARRAY_DESCRIPTOR){deep.Width, deep.Height, deep.Format, deep.NumChannels};
    return r;
}

CUresult sim_cuArrayGetMemoryRequirements(
    CUDA_ARRAY_MEMORY_REQUIREMENTS *requirements, CUarray handle, CUdevice device)
{
    CUDA_LOCKED;
    const struct array *array = object_find(handle, OBJECT_ARRAY);

    if (!array)
        return CUDA_ERROR_INVALID_HANDLE;
    if (!requirements || !device_of(device))
        return CUDA_ERROR_INVALID_VALUE;
    *requirements = (CUDA_ARRAY_MEMORY_REQUIREMENTS){
        .size = round_up(array_bytes(array), 65536), .alignment = 65536};
    return CUDA_SUCCESS;
}

static CUresult mipmap_init(
    struct mipmap *mipmap, const CUDA_ARRAY3D_DESCRIPTOR *desc, unsigned levels)
{
    CUDA_ARRAY3D_DESCRIPTOR level = *desc;
    uint64_t bytes = 0;
    CUresult r = CUDA_SUCCESS;

    for (unsigned i = 0; i < levels && i < LEVELS_MAX && r == CUDA_SUCCESS; i++) {
        r = array_init(&mipmap->levels[i], &level);
        mipmap->levels[i].address = bytes;
        bytes += round_up(array_bytes(&mipmap->levels[i]), 512);
        mipmap->count = i + 1;
        if (level.Width <= 1 && level.Height <= 1 && level.Depth <= 1)
            break;
        level.Width = at_least_one(level.Width / 2);
        level.Height = level.Height ? at_least_one(level.Height / 2) : 0;
        level.Depth = level.Depth ? at_least_one(level.Depth / 2) : 0;
    }
    if (r == CUDA_SUCCESS)
        r = memory_create(context_current(), bytes, ALLOCATION_GLOBAL, &mipmap->memory);
    for (unsigned i = 0; i < mipmap->count && r == CUDA_SUCCESS; i++) {
        mipmap->levels[i].address += mipmap->memory->address;
        object_add(&mipmap->levels[i].object, OBJECT_ARRAY);
    }
    return r;
}

CUresult sim_cuMipmappedArrayCreate(
    CUmipmappedArray *ret, const CUDA_ARRAY3D_DESCRIPTOR *desc, unsigned int levels)
{
    CUDA_LOCKED;
    struct mipmap *mipmap;
    CUresult r;

    if (!ret || !desc || !levels)
        return CUDA_ERROR_INVALID_VALUE;
    mipmap = calloc(1, sizeof *mipmap);
    if (!mipmap)
        return CUDA_ERROR_OUT_OF_MEMORY;
    r = mipmap_init(mipmap, desc, levels);
    if (r != CUDA_SUCCESS) {
        free(mipmap);
        return r;
    }
    object_add(&mipmap->object, OBJECT_MIPMAP);
    *ret = (CUmipmappedArray)mipmap;
    return CUDA_SUCCESS;
}

CUresult sim_cuMipmappedArrayGetLevel(CUarray *ret, CUmipmappedArray handle, unsigned int level)
{
    CUDA_LOCKED;
    struct mipmap *mipmap = object_find(handle, OBJECT_MIPMAP);

    if (!mipmap)
        return CUDA_ERROR_INVALID_HANDLE;
    if (!ret || level >= mipmap->count)
        return CUDA_ERROR_INVALID_VALUE;
    *ret = (CUarray)&mipmap->levels[level];
    return CUDA_SUCCESS;
}

CUresult sim_cuMipmappedArrayDestroy(CUmipmappedArray handle)
{
    CUDA_LOCKED;
    struct mipmap *mipmap = object_find(handle, OBJECT_MIPMAP);
    uint64_t address;

    if (!mipmap)
        return CUDA_ERROR_INVALID_HANDLE;
    address = mipmap->levels[0].address;
    for (unsigned i = 0; i < mipmap->count; i++)
        object_remove(&mipmap->levels[i].object);
    object_remove(&mipmap->object);
    if (allocation_at(address) == mipmap->memory)
        memory_destroy(mipmap->memory);
    free(mipmap);
    return CUDA_SUCCESS;
}
