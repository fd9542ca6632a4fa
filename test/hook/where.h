/* SPDX-License-Identifier: Apache-2.0 */
/* Which library a function lies in, and which of the driver's functions we replace. */
#ifndef VGPU_TEST_WHERE_H
#define VGPU_TEST_WHERE_H

#include <dlfcn.h>
#include <stdbool.h>
#include <stddef.h>
#include <string.h>

/* The file name of the object that holds the address, without its directory; "" for none. */
static inline const char *where_is(void *function)
{
    Dl_info info;
    if (!function || !dladdr(function, &info) || !info.dli_fname)
        return "";
    const char *slash = strrchr(info.dli_fname, '/');
    return slash ? slash + 1 : info.dli_fname;
}

/* The exported name that the address belongs to; "" for none. Four bytes on: the driver may hand
 * out a no-op before the label, which is that long on aarch64. */
static inline const char *where_name(void *function)
{
    Dl_info info;
    return function && dladdr((char *)function + 4, &info) && info.dli_sname ? info.dli_sname : "";
}

static const char *const where_hooked_cuda[] = {
#define CALL(name)
#define HOOK(name) #name,
#include "driver/cuda.def"
};
static const char *const where_hooked_nvml[] = {
#include "driver/nvml.def"
#undef CALL
#undef HOOK
};

static const char *const where_called_nvml[] = {
#define CALL(name) #name,
#define HOOK(name)
#include "driver/nvml.def"
#undef CALL
#undef HOOK
};

static const char *const where_cuda_entries[] = {
#define ENTRY(symbol, name, since, kind) #symbol,
#include "abi/cuda_versions.def"
#undef ENTRY
};

#define WHERE_COUNT(list) (sizeof(list) / sizeof((list)[0]))

static inline bool where_lists(const char *const *list, size_t count, const char *name)
{
    for (size_t i = 0; i < count; i++) {
        if (!strcmp(list[i], name))
            return true;
    }
    return false;
}

static inline bool where_is_hooked(const char *name)
{
    return where_lists(where_hooked_cuda, WHERE_COUNT(where_hooked_cuda), name) ||
           where_lists(where_hooked_nvml, WHERE_COUNT(where_hooked_nvml), name);
}

static inline const char *where_expected(const char *name, const char *driver)
{
    return where_is_hooked(name) ? "libvgpu.so" : driver;
}

#endif
