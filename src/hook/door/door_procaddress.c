/* SPDX-License-Identifier: Apache-2.0 */
/* cuGetProcAddress: routed by the pointer that the driver returns, so that versions and per-thread
 * twins stay the driver's choice. */
#include "hook/door/door_hold.h"
#include "hook/door/door_table.h"
#include "hook/hook.h"

#include "abi/cuda.h"
#include "base/atomic.h"
#include "base/log.h"

#include <stddef.h>
#include <string.h>

struct version {
    const char *entry; /* exported name */
    const char *name;  /* what is asked for */
    int since;
    bool per_thread;
};

#define LEGACY false
#define PTDS true
#define ENTRY(entry, name, since, kind) {#entry, name, since, kind},
static const struct version versions[] = {
#include "abi/cuda_versions.def"
};
#undef ENTRY

/* A version that is replaced, but that the driver does not have yet. */
static bool is_absent(const char *entry)
{
    void *real;
    return door_table_find(entry, &real) && !real;
}

/* The entry that a version and flags ask for: where the driver's own pointers cannot be told. */
static const char *entry_asked(const char *name, int version, cuuint64_t flags)
{
    bool per_thread = (flags & CU_GET_PROC_ADDRESS_PER_THREAD_DEFAULT_STREAM) != 0;
    const struct version *best = NULL;
    for (size_t i = 0; i < sizeof(versions) / sizeof(versions[0]); i++) {
        const struct version *row = &versions[i];
        if (strcmp(row->name, name) != 0 || row->since > version ||
            (row->per_thread && !per_thread) || is_absent(row->entry))
            continue;
        if (!best || row->per_thread > best->per_thread ||
            (row->per_thread == best->per_thread && row->since > best->since))
            best = row;
    }
    return best ? best->entry : NULL;
}

/* Whether the driver returns here the pointers that it exports (it does on 580.159.04). */
static bool pointers_are_exported(void)
{
    static int known; /* 0 not asked yet, 1 yes, 2 no */
    int answer = load_relaxed(&known);
    if (!answer) {
        void *pointer = NULL;
        CUresult result = CUDA_ERROR_NOT_FOUND;
        if (cuda_exported.cuGetProcAddress_v2)
            result = cuda.cuGetProcAddress_v2(
                "cuMemAlloc", &pointer, 3020, CU_GET_PROC_ADDRESS_LEGACY_STREAM, NULL);
        else if (cuda_exported.cuGetProcAddress)
            result = cuda.cuGetProcAddress(
                "cuMemAlloc", &pointer, 3020, CU_GET_PROC_ADDRESS_LEGACY_STREAM);
        if (result != CUDA_SUCCESS)
            return true;
        answer = pointer == (void *)cuda_exported.cuMemAlloc_v2 ? 1 : 2;
        if (answer == 2)
            log_info("cuGetProcAddress does not return the exported functions: hooks are chosen "
                     "by name and version");
        store_relaxed(&known, answer);
    }
    return answer == 1;
}

/* Whether the driver answers with a version of the function that came after our list: no hook of
 * ours has its prototype. */
static bool is_newer(const void *pointer, const char *name, int version, cuuint64_t flags)
{
    int newest = 0;
    for (size_t i = 0; i < sizeof(versions) / sizeof(versions[0]); i++)
        newest = versions[i].since > newest ? versions[i].since : newest;
    if (version <= newest)
        return false;
    void *known = NULL;
    CUresult result = cuda_exported.cuGetProcAddress_v2
                          ? cuda.cuGetProcAddress_v2(name, &known, newest, flags, NULL)
                          : cuda.cuGetProcAddress(name, &known, newest, flags);
    return result != CUDA_SUCCESS || known != pointer;
}

static void *exchange(void *pointer, const char *name, int version, cuuint64_t flags)
{
    void *hook = door_table_hook_of(pointer);
    if (hook != pointer || !name || pointers_are_exported() ||
        is_newer(pointer, name, version, flags))
        return hook;
    const char *entry = entry_asked(name, version, flags);
    void *real;
    hook = entry ? door_table_find(entry, &real) : NULL;
    return hook ? hook : pointer;
}

static void answer(void **pointer, const char *name, int version, cuuint64_t flags)
{
    void *hook = exchange(*pointer, name, version, flags);
    if (hook != *pointer)
        report_door_used(REPORT_DOOR_PROCADDRESS);
    *pointer = hook != *pointer ? hook : door_hold(hook);
}

CUresult hook_cuGetProcAddress(const char *symbol, void **pfn, int cudaVersion, cuuint64_t flags)
{
    hook_enter();
    CUresult result = cuda.cuGetProcAddress(symbol, pfn, cudaVersion, flags);
    if (result == CUDA_SUCCESS && pfn && *pfn)
        answer(pfn, symbol, cudaVersion, flags);
    return result;
}

CUresult hook_cuGetProcAddress_v2(const char *symbol, void **pfn, int cudaVersion, cuuint64_t flags,
    CUdriverProcAddressQueryResult *symbolStatus)
{
    hook_enter();
    CUresult result = cuda.cuGetProcAddress_v2(symbol, pfn, cudaVersion, flags, symbolStatus);
    if (result == CUDA_SUCCESS && pfn && *pfn)
        answer(pfn, symbol, cudaVersion, flags);
    return result;
}
