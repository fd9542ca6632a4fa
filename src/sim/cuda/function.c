/* SPDX-License-Identifier: Apache-2.0 */
/* What a program may ask of a function, and occupancy, which follows from block size alone. */
#include "sim/cuda/module.h"

static struct function *function_of(CUfunction handle)
{
    return object_find(handle, OBJECT_FUNCTION);
}

CUresult sim_cuFuncGetAttribute(int *value, CUfunction_attribute attribute, CUfunction handle)
{
    CUDA_LOCKED;
    const struct function *function = function_of(handle);

    if (!function)
        return CUDA_ERROR_INVALID_HANDLE;
    if (!value || (unsigned)attribute >= CU_FUNC_ATTRIBUTE_MAX)
        return CUDA_ERROR_INVALID_VALUE;
    *value = function->attributes[attribute];
    return CUDA_SUCCESS;
}

CUresult sim_cuFuncSetAttribute(CUfunction handle, CUfunction_attribute attribute, int value)
{
    CUDA_LOCKED;
    struct function *function = function_of(handle);

    if (!function)
        return CUDA_ERROR_INVALID_HANDLE;
    if ((unsigned)attribute >= CU_FUNC_ATTRIBUTE_MAX ||
        attribute < CU_FUNC_ATTRIBUTE_MAX_DYNAMIC_SHARED_SIZE_BYTES)
        return CUDA_ERROR_INVALID_VALUE;
    function->attributes[attribute] = value;
    return CUDA_SUCCESS;
}

CUresult sim_cuFuncSetCacheConfig(CUfunction handle, CUfunc_cache config)
{
    CUDA_LOCKED;

    (void)config;
    return function_of(handle) ? CUDA_SUCCESS : CUDA_ERROR_INVALID_HANDLE;
}

CUresult sim_cuFuncSetSharedMemConfig(CUfunction handle, CUsharedconfig config)
{
    CUDA_LOCKED;

    (void)config;
    return function_of(handle) ? CUDA_SUCCESS : CUDA_ERROR_INVALID_HANDLE;
}

CUresult sim_cuFuncGetModule(CUmodule *ret, CUfunction handle)
{
    CUDA_LOCKED;
    const struct function *function = function_of(handle);

    if (!function)
        return CUDA_ERROR_INVALID_HANDLE;
    if (!ret)
        return CUDA_ERROR_INVALID_VALUE;
    *ret = (CUmodule)function->module;
    return CUDA_SUCCESS;
}

CUresult sim_cuFuncGetName(const char **name, CUfunction handle)
{
    CUDA_LOCKED;
    const struct function *function = function_of(handle);

    if (!function || !name)
        return CUDA_ERROR_INVALID_VALUE;
    *name = function->entry->name;
    return CUDA_SUCCESS;
}

CUresult sim_cuFuncGetParamInfo(CUfunction handle, size_t index, size_t *offset, size_t *bytes)
{
    CUDA_LOCKED;
    const struct function *function = function_of(handle);

    if (!function || !offset || index >= function->entry->params)
        return CUDA_ERROR_INVALID_VALUE;
    *offset = function->entry->offsets[index];
    if (bytes)
        *bytes = function->entry->sizes[index];
    return CUDA_SUCCESS;
}

CUresult sim_cuFuncIsLoaded(CUfunctionLoadingState *state, CUfunction handle)
{
    CUDA_LOCKED;

    if (!state || !function_of(handle))
        return CUDA_ERROR_INVALID_VALUE;
    *state = CU_FUNCTION_LOADING_STATE_LOADED;
    return CUDA_SUCCESS;
}

CUresult sim_cuFuncLoad(CUfunction handle)
{
    CUDA_LOCKED;

    return function_of(handle) ? CUDA_SUCCESS : CUDA_ERROR_INVALID_VALUE;
}

CUresult sim_cuOccupancyMaxActiveBlocksPerMultiprocessor(
    int *blocks, CUfunction handle, int block_size, size_t shared_bytes)
{
    CUDA_LOCKED;
    const struct sim_model *model = &context_current()->device->facts->model;

    (void)handle;
    if (!blocks || block_size <= 0)
        return CUDA_ERROR_INVALID_VALUE;
    *blocks = (int)model->threads_per_multiprocessor / block_size;
    if (shared_bytes && *blocks > (int)(233472 / shared_bytes))
        *blocks = (int)(233472 / shared_bytes);
    if (*blocks > 32)
        *blocks = 32;
    return CUDA_SUCCESS;
}

CUresult sim_cuOccupancyMaxActiveBlocksPerMultiprocessorWithFlags(
    int *blocks, CUfunction function, int block_size, size_t shared_bytes, unsigned int flags)
{
    (void)flags;
    return sim_cuOccupancyMaxActiveBlocksPerMultiprocessor(
        blocks, function, block_size, shared_bytes);
}
