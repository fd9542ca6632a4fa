/* SPDX-License-Identifier: Apache-2.0 */
/* Loading an image into a context, for library.c as well. */
#ifndef VGPU_SIM_CUDA_MODULE_H
#define VGPU_SIM_CUDA_MODULE_H

#include "sim/cuda/image.h"

struct module;

struct function {
    struct object object;
    struct module *module;
    const struct ptx_entry *entry;
    int attributes[CU_FUNC_ATTRIBUTE_MAX];
};

struct module {
    struct object object;
    struct module *next;
    struct context *context;
    struct ptx ptx;
    struct function *functions; /* one per entry */
    struct allocation *memory;  /* code, then all globals; NULL once the context is gone */
    uint64_t *globals;          /* addresses */
};

/* Takes over ptx in any case. */
CUresult module_create(struct context *context, struct ptx *ptx, struct module **ret_module);
void module_destroy(struct module *module);
struct function *module_function(struct module *module, const char *name);
CUresult module_global(
    const struct module *module, const char *name, CUdeviceptr *ret_address, size_t *ret_bytes);
/* Fills the facts of an entry. */
struct kernel_facts module_entry_facts(const struct ptx_entry *entry);

#endif
