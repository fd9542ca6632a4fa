/* SPDX-License-Identifier: Apache-2.0 */
/* Modules and libraries: their code and variables are device memory too. Lazily loaded code is
 * taken at the first launch and counts as the context's. */
#include "hook/hook.h"
#include "hook/image.h"

#include <stddef.h>

/* The bytes are charged below the API where that ledger counts. */
static uint64_t counted_bytes(const void *image)
{
    return memory_ledger() == MEMORY_LEDGER_API ? image_device_bytes(image) : 0;
}

CUresult hook_cuModuleLoad(CUmodule *module, const char *fname)
{
    hook_enter();
    int device;
    struct memory_request request;
    CUresult result = device_identify_current(&device);
    if (result != CUDA_SUCCESS)
        return result;
    if (memory_begin(&request, device, 0, ACCOUNT_MODULE) != 0)
        return CUDA_ERROR_OUT_OF_MEMORY;
    result = cuda.cuModuleLoad(module, fname);
    memory_end(&request, result == CUDA_SUCCESS, MEMORY_MODULE, module ? (uintptr_t)*module : 0);
    return result;
}

CUresult hook_cuModuleLoadData(CUmodule *module, const void *image)
{
    hook_enter();
    int device;
    struct memory_request request;
    CUresult result = device_identify_current(&device);
    if (result != CUDA_SUCCESS)
        return result;
    if (memory_begin(&request, device, counted_bytes(image), ACCOUNT_MODULE) != 0)
        return CUDA_ERROR_OUT_OF_MEMORY;
    result = cuda.cuModuleLoadData(module, image);
    memory_end(&request, result == CUDA_SUCCESS, MEMORY_MODULE, module ? (uintptr_t)*module : 0);
    return result;
}

CUresult hook_cuModuleLoadDataEx(CUmodule *module, const void *image, unsigned int numOptions,
    CUjit_option *options, void **optionValues)
{
    hook_enter();
    int device;
    struct memory_request request;
    CUresult result = device_identify_current(&device);
    if (result != CUDA_SUCCESS)
        return result;
    if (memory_begin(&request, device, counted_bytes(image), ACCOUNT_MODULE) != 0)
        return CUDA_ERROR_OUT_OF_MEMORY;
    result = cuda.cuModuleLoadDataEx(module, image, numOptions, options, optionValues);
    memory_end(&request, result == CUDA_SUCCESS, MEMORY_MODULE, module ? (uintptr_t)*module : 0);
    return result;
}

CUresult hook_cuModuleLoadFatBinary(CUmodule *module, const void *fatCubin)
{
    hook_enter();
    int device;
    struct memory_request request;
    CUresult result = device_identify_current(&device);
    if (result != CUDA_SUCCESS)
        return result;
    if (memory_begin(&request, device, 0, ACCOUNT_MODULE) != 0)
        return CUDA_ERROR_OUT_OF_MEMORY;
    result = cuda.cuModuleLoadFatBinary(module, fatCubin);
    memory_end(&request, result == CUDA_SUCCESS, MEMORY_MODULE, module ? (uintptr_t)*module : 0);
    return result;
}

CUresult hook_cuModuleUnload(CUmodule hmod)
{
    hook_enter();
    struct memory_record record = memory_take(MEMORY_MODULE, (uintptr_t)hmod);
    CUresult result = cuda.cuModuleUnload(hmod);
    memory_taken(&record, result == CUDA_SUCCESS, MEMORY_MODULE, (uintptr_t)hmod);
    return result;
}

/* A library needs no context: its memory is taken where a context first uses it. */
static CUresult identify_loading(int *ret_device)
{
    CUresult result = device_identify_current(ret_device);
    return result == CUDA_ERROR_INVALID_CONTEXT ? CUDA_SUCCESS : result;
}

CUresult hook_cuLibraryLoadData(CUlibrary *library, const void *code, CUjit_option *jitOptions,
    void **jitOptionsValues, unsigned int numJitOptions, CUlibraryOption *libraryOptions,
    void **libraryOptionValues, unsigned int numLibraryOptions)
{
    hook_enter();
    int device;
    struct memory_request request;
    CUresult result = identify_loading(&device);
    if (result != CUDA_SUCCESS)
        return result;
    if (memory_begin(&request, device, counted_bytes(code), ACCOUNT_MODULE) != 0)
        return CUDA_ERROR_OUT_OF_MEMORY;
    result = cuda.cuLibraryLoadData(library, code, jitOptions, jitOptionsValues, numJitOptions,
        libraryOptions, libraryOptionValues, numLibraryOptions);
    memory_end(&request, result == CUDA_SUCCESS, MEMORY_LIBRARY, library ? (uintptr_t)*library : 0);
    return result;
}

CUresult hook_cuLibraryLoadFromFile(CUlibrary *library, const char *fileName,
    CUjit_option *jitOptions, void **jitOptionsValues, unsigned int numJitOptions,
    CUlibraryOption *libraryOptions, void **libraryOptionValues, unsigned int numLibraryOptions)
{
    hook_enter();
    int device;
    struct memory_request request;
    CUresult result = identify_loading(&device);
    if (result != CUDA_SUCCESS)
        return result;
    if (memory_begin(&request, device, 0, ACCOUNT_MODULE) != 0)
        return CUDA_ERROR_OUT_OF_MEMORY;
    result = cuda.cuLibraryLoadFromFile(library, fileName, jitOptions, jitOptionsValues,
        numJitOptions, libraryOptions, libraryOptionValues, numLibraryOptions);
    memory_end(&request, result == CUDA_SUCCESS, MEMORY_LIBRARY, library ? (uintptr_t)*library : 0);
    return result;
}

CUresult hook_cuLibraryUnload(CUlibrary library)
{
    hook_enter();
    struct memory_record record = memory_take(MEMORY_LIBRARY, (uintptr_t)library);
    CUresult result = cuda.cuLibraryUnload(library);
    memory_taken(&record, result == CUDA_SUCCESS, MEMORY_LIBRARY, (uintptr_t)library);
    return result;
}
