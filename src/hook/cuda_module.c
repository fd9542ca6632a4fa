/* SPDX-License-Identifier: Apache-2.0 */
/* Modules and libraries: their code and variables are device memory too. Lazily loaded code is
 * taken at the first launch and counts as the context's. */
#include "hook/hook.h"
#include "hook/image.h"
#include "memory/allocation.h"

#include <stddef.h>

/* image NULL: not to be read. The bytes are charged below the API where that ledger counts. */
static void count_image(struct allocation *loading, const void *image)
{
    if (loading->result == CUDA_SUCCESS && memory_ledger() == MEMORY_LEDGER_API)
        loading->bytes = image_device_bytes(image);
}

static struct allocation module_loading(const void *image)
{
    struct allocation loading = allocation_here(0, ACCOUNT_MODULE);
    count_image(&loading, image);
    return loading;
}

/* A library needs no context: its memory is taken where a context first uses it. */
static struct allocation library_loading(const void *image)
{
    struct allocation loading = allocation_here(0, ACCOUNT_MODULE);
    if (loading.result == CUDA_ERROR_INVALID_CONTEXT)
        loading.result = CUDA_SUCCESS;
    count_image(&loading, image);
    return loading;
}

CUresult hook_cuModuleLoad(CUmodule *module, const char *fname)
{
    hook_enter();
    struct allocation loading = module_loading(NULL);
    while (allocation_begin(&loading)) {
        loading.result = cuda.cuModuleLoad(module, fname);
        allocation_end(&loading, MEMORY_MODULE, module ? (uintptr_t)*module : 0);
    }
    return loading.result;
}

CUresult hook_cuModuleLoadData(CUmodule *module, const void *image)
{
    hook_enter();
    struct allocation loading = module_loading(image);
    while (allocation_begin(&loading)) {
        loading.result = cuda.cuModuleLoadData(module, image);
        allocation_end(&loading, MEMORY_MODULE, module ? (uintptr_t)*module : 0);
    }
    return loading.result;
}

CUresult hook_cuModuleLoadDataEx(CUmodule *module, const void *image, unsigned int numOptions,
    CUjit_option *options, void **optionValues)
{
    hook_enter();
    struct allocation loading = module_loading(image);
    while (allocation_begin(&loading)) {
        loading.result = cuda.cuModuleLoadDataEx(module, image, numOptions, options, optionValues);
        allocation_end(&loading, MEMORY_MODULE, module ? (uintptr_t)*module : 0);
    }
    return loading.result;
}

CUresult hook_cuModuleLoadFatBinary(CUmodule *module, const void *fatCubin)
{
    hook_enter();
    struct allocation loading = module_loading(NULL);
    while (allocation_begin(&loading)) {
        loading.result = cuda.cuModuleLoadFatBinary(module, fatCubin);
        allocation_end(&loading, MEMORY_MODULE, module ? (uintptr_t)*module : 0);
    }
    return loading.result;
}

CUresult hook_cuModuleUnload(CUmodule hmod)
{
    hook_enter();
    struct memory_record record = memory_take(MEMORY_MODULE, (uintptr_t)hmod);
    CUresult result = cuda.cuModuleUnload(hmod);
    memory_taken(&record, result == CUDA_SUCCESS, MEMORY_MODULE, (uintptr_t)hmod);
    return result;
}

CUresult hook_cuLibraryLoadData(CUlibrary *library, const void *code, CUjit_option *jitOptions,
    void **jitOptionsValues, unsigned int numJitOptions, CUlibraryOption *libraryOptions,
    void **libraryOptionValues, unsigned int numLibraryOptions)
{
    hook_enter();
    struct allocation loading = library_loading(code);
    while (allocation_begin(&loading)) {
        loading.result = cuda.cuLibraryLoadData(library, code, jitOptions, jitOptionsValues,
            numJitOptions, libraryOptions, libraryOptionValues, numLibraryOptions);
        allocation_end(&loading, MEMORY_LIBRARY, library ? (uintptr_t)*library : 0);
    }
    return loading.result;
}

CUresult hook_cuLibraryLoadFromFile(CUlibrary *library, const char *fileName,
    CUjit_option *jitOptions, void **jitOptionsValues, unsigned int numJitOptions,
    CUlibraryOption *libraryOptions, void **libraryOptionValues, unsigned int numLibraryOptions)
{
    hook_enter();
    struct allocation loading = library_loading(NULL);
    while (allocation_begin(&loading)) {
        loading.result = cuda.cuLibraryLoadFromFile(library, fileName, jitOptions, jitOptionsValues,
            numJitOptions, libraryOptions, libraryOptionValues, numLibraryOptions);
        allocation_end(&loading, MEMORY_LIBRARY, library ? (uintptr_t)*library : 0);
    }
    return loading.result;
}

CUresult hook_cuLibraryUnload(CUlibrary library)
{
    hook_enter();
    struct memory_record record = memory_take(MEMORY_LIBRARY, (uintptr_t)library);
    CUresult result = cuda.cuLibraryUnload(library);
    memory_taken(&record, result == CUDA_SUCCESS, MEMORY_LIBRARY, (uintptr_t)library);
    return result;
}
