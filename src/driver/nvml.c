/* SPDX-License-Identifier: Apache-2.0 */
/* The table of NVML's functions. */
#include "driver/nvml.h"

#include "base/atomic.h"
#include "driver/library.h"

#include <string.h>

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

nvmlReturn_t nvml_device_uuid(nvmlDevice_t device, char ret_uuid[48])
{
    char text[NVML_DEVICE_UUID_V2_BUFFER_SIZE] = "";
    nvmlReturn_t result = nvml.nvmlDeviceGetUUID(device, text, sizeof(text));
    if (result != NVML_SUCCESS)
        return result;
    const char *uuid = strncmp(text, "MIG-GPU-", 8) == 0 ? text + 4 : text;
    size_t length = strcspn(uuid, "/");
    if (length > 47)
        length = 47;
    memcpy(ret_uuid, uuid, length);
    ret_uuid[length] = '\0';
    return NVML_SUCCESS;
}

/* Places may be empty: of the instances of a card a container sees its own. */
bool nvml_next_instance(nvmlDevice_t card, unsigned *place, nvmlDevice_t *ret_instance)
{
    unsigned places = 0;
    if (nvml.nvmlDeviceGetMaxMigDeviceCount(card, &places) != NVML_SUCCESS)
        return false;
    while (*place < places) {
        if (nvml.nvmlDeviceGetMigDeviceHandleByIndex(card, (*place)++, ret_instance) ==
            NVML_SUCCESS)
            return true;
    }
    return false;
}
