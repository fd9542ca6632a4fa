/* SPDX-License-Identifier: Apache-2.0 */
/* cuGetProcAddress: of all entry points with a name, the newest that both asker and driver know. */
#include <stdlib.h>
#include <string.h>
#include <limits.h>
#include <pthread.h>

#include "sim/cuda/future.h"
#include "sim/cuda/cuda_sim.h"
#include "sim/machine/exports.h"

#define CUDA_VERSION_NEWEST 13000

enum variant { LEGACY, PTDS };

struct version {
    const char *symbol;
    const char *name;
    int since;
    enum variant variant;
    struct cuda_entry *entry;
};

static struct cuda_entry mem_alloc_v3 = {.own = (void (*)(void))cuMemAlloc_v3};
static struct cuda_entry ctx_create_v5 = {.own = (void (*)(void))cuCtxCreate_v5};

static struct version versions[] = {
#define ENTRY(symbol, name, since, variant) {#symbol, name, since, variant, NULL},
#include "abi/cuda_versions.def"
#undef ENTRY
    {"cuMemAlloc_v3", "cuMemAlloc", SIM_CUDA_FUTURE, LEGACY, &mem_alloc_v3},
    {"cuCtxCreate_v5", "cuCtxCreate", SIM_CUDA_FUTURE, LEGACY, &ctx_create_v5},
};

#define VERSION_COUNT (sizeof versions / sizeof *versions)

static pthread_once_t once = PTHREAD_ONCE_INIT;
static int attach_error;

static bool starts_with(const char *text, const char *start)
{
    return strncmp(text, start, strlen(start)) == 0;
}

static bool hidden_by_description(const char *name, const struct sim_description *described)
{
    static const char *const async[] = {"cuMemAllocAsync", "cuMemFreeAsync", "cuMemAllocFromPool",
        "cuMemPool", "cuDeviceGetMemPool", "cuDeviceSetMemPool", "cuDeviceGetDefaultMemPool",
        "cuMemGetDefaultMemPool", "cuMemGetMemPool", "cuMemSetMemPool"};
    static const char *const vmm[] = {"cuMemAddress", "cuMemCreate", "cuMemRelease", "cuMemMap",
        "cuMemUnmap", "cuMemSetAccess", "cuMemGetAccess", "cuMemExportToShareable",
        "cuMemImportFromShareable", "cuMemGetAllocation", "cuMemRetainAllocation"};

    if (described->no_procaddress && starts_with(name, "cuGetProcAddress"))
        return true;
    for (size_t i = 0; described->no_async && i < sizeof async / sizeof *async; i++) {
        if (starts_with(name, async[i]))
            return true;
    }
    for (size_t i = 0; described->no_vmm && i < sizeof vmm / sizeof *vmm; i++) {
        if (starts_with(name, vmm[i]))
            return true;
    }
    return false;
}

/* What came after the version that the process describes. */
static bool is_absent(const char *symbol)
{
    for (size_t i = 0; i < VERSION_COUNT; i++) {
        if (strcmp(versions[i].symbol, symbol) == 0)
            return versions[i].since > (int)sim_description()->cuda_version;
    }
    return false;
}

__attribute__((constructor)) static void hide(void)
{
    sim_exports_hide(is_absent);
}

static void load(void)
{
    attach_error = sim_attach();
    for (size_t i = 0; i < VERSION_COUNT; i++) {
        struct version *version = &versions[i];

        if (!version->entry)
            version->entry = cuda_entry_find(version->symbol);
        if (hidden_by_description(version->symbol, sim_description()))
            version->since = INT_MAX;
        if (version->entry)
            version->entry->since = version->since;
    }
}

void cuda_description_load(void)
{
    pthread_once(&once, load);
}

int cuda_attach_error(void)
{
    return attach_error;
}

/* A program looks its functions up before cuInit tells it that there is no machine. */
static int driver_version(void)
{
    return attach_error ? CUDA_VERSION_NEWEST : (int)sim_cuda_version();
}

static void *pointer_of(const struct cuda_entry *entry)
{
    /* A no-op lies before each label: another address, the same function. */
#if defined(__x86_64__)
    size_t step = 1;
#else
    size_t step = 4;
#endif
    bool shifted = sim_description()->other_pointers && entry->body;
    return (char *)(uintptr_t)entry->own - (shifted ? step : 0);
}

/* Best match among the rows with that name and variant; *ret_known if any row has the name. */
static const struct version *version_find(
    const char *name, int asked, enum variant variant, bool *ret_known)
{
    int newest = asked < driver_version() ? asked : driver_version();
    const struct version *best = NULL;

    for (size_t i = 0; i < VERSION_COUNT; i++) {
        const struct version *version = &versions[i];

        if (version->variant != variant || strcmp(version->name, name) != 0)
            continue;
        if (version->since <= driver_version())
            *ret_known = true;
        if (version->since <= newest && (!best || version->since >= best->since))
            best = version;
    }
    return best && best->entry ? best : NULL;
}

static CUresult find(const char *name, void **ret, int asked, cuuint64_t flags,
    CUdriverProcAddressQueryResult *status)
{
    const struct version *version = NULL;
    bool known = false;

    if (!name || !ret ||
        flags > (CU_GET_PROC_ADDRESS_LEGACY_STREAM | CU_GET_PROC_ADDRESS_PER_THREAD_DEFAULT_STREAM))
        return CUDA_ERROR_INVALID_VALUE;
    if (flags & CU_GET_PROC_ADDRESS_PER_THREAD_DEFAULT_STREAM)
        version = version_find(name, asked, PTDS, &known);
    if (!version)
        version = version_find(name, asked, LEGACY, &known);
    *ret = version ? pointer_of(version->entry) : NULL;
    if (status)
        *status = version ? CU_GET_PROC_ADDRESS_SUCCESS
                  : known ? CU_GET_PROC_ADDRESS_VERSION_NOT_SUFFICIENT
                          : CU_GET_PROC_ADDRESS_SYMBOL_NOT_FOUND;
    return version ? CUDA_SUCCESS : CUDA_ERROR_NOT_FOUND;
}

CUresult sim_cuGetProcAddress_v2(const char *name, void **ret, int version, cuuint64_t flags,
    CUdriverProcAddressQueryResult *status)
{
    return find(name, ret, version, flags, status);
}

CUresult sim_cuGetProcAddress(const char *name, void **ret, int version, cuuint64_t flags)
{
    return find(name, ret, version, flags, NULL);
}

/* The tables behind this call are private to the vendor's own libraries. */
CUresult sim_cuGetExportTable(const void **table, const CUuuid *id)
{
    if (!table || !id)
        return CUDA_ERROR_INVALID_VALUE;
    *table = NULL;
    return CUDA_ERROR_NOT_FOUND;
}
