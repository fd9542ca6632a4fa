/* SPDX-License-Identifier: Apache-2.0 */
/* Modules and functions: a module's code and globals take device memory like a small request. */
#include "sim/cuda/module.h"

#include <stdlib.h>
#include <string.h>

/* What code takes is a guess: a page per entry. */
#define CODE_BYTES_PER_ENTRY 4096
#define GLOBAL_ALIGNMENT 256

static struct module *modules;

static CUresult module_memory_init(struct module *module)
{
    uint64_t bytes = (module->ptx.entry_count + 1) * CODE_BYTES_PER_ENTRY;
    CUresult r;

    module->globals = calloc(module->ptx.global_count + 1, sizeof *module->globals);
    if (!module->globals)
        return CUDA_ERROR_OUT_OF_MEMORY;
    for (size_t i = 0; i < module->ptx.global_count; i++) {
        module->globals[i] = bytes;
        bytes += round_up(module->ptx.globals[i].bytes, GLOBAL_ALIGNMENT);
    }
    r = memory_create(module->context, bytes, ALLOCATION_GLOBAL, &module->memory);
    for (size_t i = 0; i < module->ptx.global_count && r == CUDA_SUCCESS; i++)
        module->globals[i] += module->memory->address;
    return r;
}

static CUresult module_functions_init(struct module *module)
{
    module->functions = calloc(module->ptx.entry_count + 1, sizeof *module->functions);
    if (!module->functions)
        return CUDA_ERROR_OUT_OF_MEMORY;
    for (size_t i = 0; i < module->ptx.entry_count; i++) {
        struct function *function = &module->functions[i];
        const struct ptx_entry *entry = &module->ptx.entries[i];

        *function = (struct function){.module = module, .entry = entry};
        function->attributes[CU_FUNC_ATTRIBUTE_MAX_THREADS_PER_BLOCK] =
            entry->max_threads ? (int)entry->max_threads : 1024;
        function->attributes[CU_FUNC_ATTRIBUTE_SHARED_SIZE_BYTES] = (int)entry->shared_bytes;
        function->attributes[CU_FUNC_ATTRIBUTE_LOCAL_SIZE_BYTES] = (int)entry->local_bytes;
        function->attributes[CU_FUNC_ATTRIBUTE_NUM_REGS] = 32;
        function->attributes[CU_FUNC_ATTRIBUTE_PTX_VERSION] = (int)module->ptx.target;
        function->attributes[CU_FUNC_ATTRIBUTE_BINARY_VERSION] = (int)module->ptx.target;
        function->attributes[CU_FUNC_ATTRIBUTE_MAX_DYNAMIC_SHARED_SIZE_BYTES] = 49152;
        function->attributes[CU_FUNC_ATTRIBUTE_PREFERRED_SHARED_MEMORY_CARVEOUT] = -1;
        object_add(&function->object, OBJECT_FUNCTION);
    }
    return CUDA_SUCCESS;
}

static void module_free(struct module *module)
{
    free(module->functions);
    free(module->globals);
    ptx_finish(&module->ptx);
    free(module);
}

CUresult module_create(struct context *context, struct ptx *ptx, struct module **ret_module)
{
    struct module *module = calloc(1, sizeof *module);
    CUresult r;

    if (!module) {
        ptx_finish(ptx);
        return CUDA_ERROR_OUT_OF_MEMORY;
    }
    module->context = context;
    module->ptx = *ptx;
    r = module_memory_init(module);
    if (r == CUDA_SUCCESS) {
        r = module_functions_init(module);
        if (r != CUDA_SUCCESS)
            memory_destroy(module->memory);
    }
    if (r != CUDA_SUCCESS) {
        module_free(module);
        return r;
    }
    object_add(&module->object, OBJECT_MODULE);
    module->next = modules;
    modules = module;
    *ret_module = module;
    return CUDA_SUCCESS;
}

void module_destroy(struct module *module)
{
    struct module **at = &modules;

    while (*at != module)
        at = &(*at)->next;
    *at = module->next;
    for (size_t i = 0; i < module->ptx.entry_count; i++)
        object_remove(&module->functions[i].object);
    object_remove(&module->object);
    memory_destroy(module->memory);
    module_free(module);
}

void modules_context_finish(struct context *context)
{
    struct module *module = modules;

    while (module) {
        struct module *next = module->next;

        if (module->context == context)
            module_destroy(module);
        module = next;
    }
}

struct function *module_function(struct module *module, const char *name)
{
    for (size_t i = 0; i < module->ptx.entry_count; i++) {
        if (strcmp(module->ptx.entries[i].name, name) == 0)
            return &module->functions[i];
    }
    return NULL;
}

CUresult module_global(
    const struct module *module, const char *name, CUdeviceptr *ret_address, size_t *ret_bytes)
{
    for (size_t i = 0; i < module->ptx.global_count; i++) {
        if (strcmp(module->ptx.globals[i].name, name) != 0)
            continue;
        if (ret_address)
            *ret_address = module->globals[i];
        if (ret_bytes)
            *ret_bytes = module->ptx.globals[i].bytes;
        return CUDA_SUCCESS;
    }
    return CUDA_ERROR_NOT_FOUND;
}

struct kernel_facts module_entry_facts(const struct ptx_entry *entry)
{
    return (struct kernel_facts){.has_duration = entry->has_duration,
        .meets = entry->meets && entry->params > 2,
        .touches = entry->touches && entry->params > 2,
        .reads = entry->reads && entry->params > 2,
        .local_bytes = entry->local_bytes,
        .shared_bytes = (uint32_t)entry->shared_bytes,
        .max_threads = entry->max_threads,
        .params = entry->params,
        .params_bytes = entry->params_bytes,
        .param_offsets = entry->offsets,
        .param_sizes = entry->sizes};
}

CUresult sim_cuModuleLoadData(CUmodule *ret, const void *image)
{
    CUDA_LOCKED;
    struct context *context = context_current();
    struct module *module;
    struct ptx ptx;
    CUresult r;

    if (!ret || !image)
        return CUDA_ERROR_INVALID_VALUE;
    r = image_read(context->device, image, &ptx);
    if (r == CUDA_SUCCESS)
        r = module_create(context, &ptx, &module);
    if (r == CUDA_SUCCESS)
        *ret = (CUmodule)module;
    return r;
}

CUresult sim_cuModuleLoadDataEx(
    CUmodule *ret, const void *image, unsigned int count, CUjit_option *options, void **values)
{
    if (count && (!options || !values))
        return CUDA_ERROR_INVALID_VALUE;
    return sim_cuModuleLoadData(ret, image);
}

CUresult sim_cuModuleLoadFatBinary(CUmodule *ret, const void *image)
{
    return sim_cuModuleLoadData(ret, image);
}

CUresult sim_cuModuleLoad(CUmodule *ret, const char *path)
{
    char *image;
    CUresult r = image_load(path, &image);

    if (r != CUDA_SUCCESS)
        return r;
    r = sim_cuModuleLoadData(ret, image);
    free(image);
    return r;
}

CUresult sim_cuModuleUnload(CUmodule handle)
{
    CUDA_LOCKED;
    struct module *module = object_find(handle, OBJECT_MODULE);

    if (!module)
        return CUDA_ERROR_INVALID_HANDLE;
    module_destroy(module);
    return CUDA_SUCCESS;
}

CUresult sim_cuModuleGetFunction(CUfunction *ret, CUmodule handle, const char *name)
{
    CUDA_LOCKED;
    struct module *module = object_find(handle, OBJECT_MODULE);
    struct function *function;

    if (!module)
        return CUDA_ERROR_INVALID_HANDLE;
    if (!ret || !name)
        return CUDA_ERROR_INVALID_VALUE;
    function = module_function(module, name);
    if (!function)
        return CUDA_ERROR_NOT_FOUND;
    *ret = (CUfunction)function;
    return CUDA_SUCCESS;
}

CUresult sim_cuModuleGetGlobal_v2(
    CUdeviceptr *address, size_t *bytes, CUmodule handle, const char *name)
{
    CUDA_LOCKED;
    const struct module *module = object_find(handle, OBJECT_MODULE);

    if (!module)
        return CUDA_ERROR_INVALID_HANDLE;
    return name ? module_global(module, name, address, bytes) : CUDA_ERROR_INVALID_VALUE;
}

CUresult sim_cuModuleGetFunctionCount(unsigned int *count, CUmodule handle)
{
    CUDA_LOCKED;
    const struct module *module = object_find(handle, OBJECT_MODULE);

    if (!module || !count)
        return CUDA_ERROR_INVALID_VALUE;
    *count = (unsigned)module->ptx.entry_count;
    return CUDA_SUCCESS;
}

CUresult sim_cuModuleEnumerateFunctions(CUfunction *functions, unsigned int count, CUmodule handle)
{
    CUDA_LOCKED;
    struct module *module = object_find(handle, OBJECT_MODULE);

    if (!module || !functions)
        return CUDA_ERROR_INVALID_VALUE;
    for (unsigned i = 0; i < count && i < module->ptx.entry_count; i++)
        functions[i] = (CUfunction)&module->functions[i];
    return CUDA_SUCCESS;
}

CUresult sim_cuModuleGetLoadingMode(CUmoduleLoadingMode *mode)
{
    if (!mode)
        return CUDA_ERROR_INVALID_VALUE;
    *mode = CU_MODULE_LAZY_LOADING;
    return CUDA_SUCCESS;
}
