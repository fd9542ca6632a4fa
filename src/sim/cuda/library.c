/* SPDX-License-Identifier: Apache-2.0 */
/* Libraries: images without a context; each context that uses one gets its module at first need. */
#include <stdlib.h>
#include <string.h>

#include "sim/cuda/module.h"

struct kernel {
    struct object object;
    struct library *library;
    const struct ptx_entry *entry;
};

struct instance {
    struct instance *next;
    struct module *module;
    unsigned long long context_id;
};

struct library {
    struct object object;
    struct ptx ptx;
    struct kernel *kernels;
    struct instance *instances;
};

bool library_kernel_facts(const void *handle, struct kernel_facts *ret_facts)
{
    const struct function *function = object_find(handle, OBJECT_FUNCTION);
    const struct kernel *kernel = object_find(handle, OBJECT_KERNEL);

    if (function)
        *ret_facts = module_entry_facts(function->entry);
    else if (kernel)
        *ret_facts = module_entry_facts(kernel->entry);
    return function || kernel;
}

static CUresult library_create(const void *image, struct library **ret_library)
{
    struct library *library = calloc(1, sizeof *library);
    CUresult r = CUDA_ERROR_OUT_OF_MEMORY;

    if (!library)
        return r;
    r = image_read(device_of(0), image, &library->ptx);
    if (r != CUDA_SUCCESS) {
        free(library);
        return r;
    }
    library->kernels = calloc(library->ptx.entry_count + 1, sizeof *library->kernels);
    if (!library->kernels) {
        ptx_finish(&library->ptx);
        free(library);
        return CUDA_ERROR_OUT_OF_MEMORY;
    }
    for (size_t i = 0; i < library->ptx.entry_count; i++) {
        library->kernels[i].library = library;
        library->kernels[i].entry = &library->ptx.entries[i];
        object_add(&library->kernels[i].object, OBJECT_KERNEL);
    }
    object_add(&library->object, OBJECT_LIBRARY);
    *ret_library = library;
    return CUDA_SUCCESS;
}

/* Deep copy: each module owns what it was parsed from. */
static bool ptx_copy(const struct ptx *from, struct ptx *ret)
{
    struct ptx copy = {.target = from->target};
    bool good;

    copy.entries = calloc(from->entry_count + 1, sizeof *copy.entries);
    copy.globals = calloc(from->global_count + 1, sizeof *copy.globals);
    good = copy.entries && copy.globals;
    for (size_t i = 0; good && i < from->entry_count; i++) {
        copy.entries[i] = from->entries[i];
        copy.entries[i].name = strdup(from->entries[i].name);
        good = copy.entries[i].name;
        copy.entry_count = i + 1;
    }
    for (size_t i = 0; good && i < from->global_count; i++) {
        copy.globals[i] = from->globals[i];
        copy.globals[i].name = strdup(from->globals[i].name);
        good = copy.globals[i].name;
        copy.global_count = i + 1;
    }
    if (good)
        *ret = copy;
    else
        ptx_finish(&copy);
    return good;
}

static CUresult library_module(struct library *library, struct module **ret_module)
{
    struct context *context = context_current();
    struct instance *instance = library->instances;
    struct ptx ptx;
    CUresult r;

    if (!context)
        return CUDA_ERROR_INVALID_CONTEXT;
    while (instance && instance->context_id != context->id)
        instance = instance->next;
    if (instance) {
        *ret_module = instance->module;
        return CUDA_SUCCESS;
    }
    instance = malloc(sizeof *instance);
    if (!instance || !ptx_copy(&library->ptx, &ptx)) {
        free(instance);
        return CUDA_ERROR_OUT_OF_MEMORY;
    }
    r = module_create(context, &ptx, &instance->module);
    if (r != CUDA_SUCCESS) {
        free(instance);
        return r;
    }
    instance->context_id = context->id;
    instance->next = library->instances;
    library->instances = instance;
    *ret_module = instance->module;
    return CUDA_SUCCESS;
}

CUresult sim_cuLibraryLoadData(CUlibrary *ret, const void *image, CUjit_option *jit, void **jits,
    unsigned int jit_count, CUlibraryOption *options, void **values, unsigned int option_count)
{
    CUDA_LOCKED;
    struct library *library;
    CUresult r;

    (void)jits;
    (void)values;
    if (!ret || !image || (jit_count && !jit) || (option_count && !options))
        return CUDA_ERROR_INVALID_VALUE;
    r = library_create(image, &library);
    if (r == CUDA_SUCCESS)
        *ret = (CUlibrary)library;
    return r;
}

CUresult sim_cuLibraryLoadFromFile(CUlibrary *ret, const char *path, CUjit_option *jit, void **jits,
    unsigned int jit_count, CUlibraryOption *options, void **values, unsigned int option_count)
{
    char *image;
    CUresult r = image_load(path, &image);

    if (r != CUDA_SUCCESS)
        return r;
    r = sim_cuLibraryLoadData(ret, image, jit, jits, jit_count, options, values, option_count);
    free(image);
    return r;
}

CUresult sim_cuLibraryUnload(CUlibrary handle)
{
    CUDA_LOCKED;
    struct library *library = object_find(handle, OBJECT_LIBRARY);

    if (!library)
        return CUDA_ERROR_INVALID_HANDLE;
    while (library->instances) {
        struct instance *instance = library->instances;

        library->instances = instance->next;
        if (object_find(instance->module, OBJECT_MODULE))
            module_destroy(instance->module);
        free(instance);
    }
    for (size_t i = 0; i < library->ptx.entry_count; i++)
        object_remove(&library->kernels[i].object);
    object_remove(&library->object);
    ptx_finish(&library->ptx);
    free(library->kernels);
    free(library);
    return CUDA_SUCCESS;
}

CUresult sim_cuLibraryGetKernel(CUkernel *ret, CUlibrary handle, const char *name)
{
    CUDA_LOCKED;
    struct library *library = object_find(handle, OBJECT_LIBRARY);

    if (!library)
        return CUDA_ERROR_INVALID_HANDLE;
    if (!ret || !name)
        return CUDA_ERROR_INVALID_VALUE;
    for (size_t i = 0; i < library->ptx.entry_count; i++) {
        if (strcmp(library->ptx.entries[i].name, name) == 0) {
            *ret = (CUkernel)&library->kernels[i];
            return CUDA_SUCCESS;
        }
    }
    return CUDA_ERROR_NOT_FOUND;
}

CUresult sim_cuLibraryGetKernelCount(unsigned int *count, CUlibrary handle)
{
    CUDA_LOCKED;
    const struct library *library = object_find(handle, OBJECT_LIBRARY);

    if (!library || !count)
        return CUDA_ERROR_INVALID_VALUE;
    *count = (unsigned)library->ptx.entry_count;
    return CUDA_SUCCESS;
}

CUresult sim_cuLibraryEnumerateKernels(CUkernel *kernels, unsigned int count, CUlibrary handle)
{
    CUDA_LOCKED;
    struct library *library = object_find(handle, OBJECT_LIBRARY);

    if (!library || !kernels)
        return CUDA_ERROR_INVALID_VALUE;
    for (unsigned i = 0; i < count && i < library->ptx.entry_count; i++)
        kernels[i] = (CUkernel)&library->kernels[i];
    return CUDA_SUCCESS;
}

CUresult sim_cuLibraryGetModule(CUmodule *ret, CUlibrary handle)
{
    CUDA_LOCKED;
    struct library *library = object_find(handle, OBJECT_LIBRARY);
    struct module *module;
    CUresult r;

    if (!library)
        return CUDA_ERROR_INVALID_HANDLE;
    if (!ret)
        return CUDA_ERROR_INVALID_VALUE;
    r = library_module(library, &module);
    if (r == CUDA_SUCCESS)
        *ret = (CUmodule)module;
    return r;
}

CUresult sim_cuLibraryGetGlobal(
    CUdeviceptr *address, size_t *bytes, CUlibrary handle, const char *name)
{
    CUDA_LOCKED;
    struct library *library = object_find(handle, OBJECT_LIBRARY);
    struct module *module;
    CUresult r;

    if (!library)
        return CUDA_ERROR_INVALID_HANDLE;
    if (!name)
        return CUDA_ERROR_INVALID_VALUE;
    r = library_module(library, &module);
    return r == CUDA_SUCCESS ? module_global(module, name, address, bytes) : r;
}

CUresult sim_cuKernelGetFunction(CUfunction *ret, CUkernel handle)
{
    CUDA_LOCKED;
    struct kernel *kernel = object_find(handle, OBJECT_KERNEL);
    struct module *module;
    CUresult r;

    if (!kernel)
        return CUDA_ERROR_INVALID_HANDLE;
    if (!ret)
        return CUDA_ERROR_INVALID_VALUE;
    r = library_module(kernel->library, &module);
    if (r == CUDA_SUCCESS)
        *ret = (CUfunction)module_function(module, kernel->entry->name);
    return r;
}

CUresult sim_cuKernelGetLibrary(CUlibrary *ret, CUkernel handle)
{
    CUDA_LOCKED;
    const struct kernel *kernel = object_find(handle, OBJECT_KERNEL);

    if (!kernel || !ret)
        return CUDA_ERROR_INVALID_VALUE;
    *ret = (CUlibrary)kernel->library;
    return CUDA_SUCCESS;
}

CUresult sim_cuKernelGetName(const char **name, CUkernel handle)
{
    CUDA_LOCKED;
    const struct kernel *kernel = object_find(handle, OBJECT_KERNEL);

    if (!kernel || !name)
        return CUDA_ERROR_INVALID_VALUE;
    *name = kernel->entry->name;
    return CUDA_SUCCESS;
}
