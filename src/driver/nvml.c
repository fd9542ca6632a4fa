/* SPDX-License-Identifier: Apache-2.0 */
/* The table of NVML's functions. */
#include "driver/nvml.h"

#include "base/atomic.h"
#include "driver/library.h"

static nvmlReturn_t answer_not_initialized(void)
{
    return NVML_ERROR_UNINITIALIZED;
}

static nvmlReturn_t answer_not_found(void)
{
    return NVML_ERROR_FUNCTION_NOT_FOUND;
}

#define CALL(name) .name = (__typeof__(name) *)(void *)answer_not_initialized,
#define HOOK(name) CALL(name)
struct nvml_functions nvml = {
#include "driver/nvml.def"
};
#undef CALL
#undef HOOK

struct nvml_functions nvml_exported;

bool nvml_load(bool open)
{
    static bool loaded;
    if (__builtin_expect(load_acquire(&loaded), true))
        return true;
    void *library = library_open("libnvidia-ml.so.1", open);
    if (!library)
        return false;
#define CALL(name)                                                                                 \
    library_take(library, #name, &loaded,                                                          \
        (struct library_slot){                                                                     \
            (void **)&nvml_exported.name, (void **)&nvml.name, (void *)answer_not_found});
#define HOOK(name) CALL(name)
#include "driver/nvml.def"
#undef CALL
#undef HOOK
    store_release(&loaded, true);
    return true;
}
