/* SPDX-License-Identifier: Apache-2.0 */
/* The table of the CUDA driver's functions. */
#include "driver/cuda.h"

#include "base/atomic.h"
#include "driver/library.h"

#include <stdio.h>
#include <string.h>

static CUresult answer_not_initialized(void)
{
    return CUDA_ERROR_NOT_INITIALIZED;
}

static CUresult answer_not_supported(void)
{
    return CUDA_ERROR_NOT_SUPPORTED;
}

#define CALL(name) .name = (__typeof__(name) *)(void *)answer_not_initialized,
#define HOOK(name) CALL(name)
struct cuda_functions cuda = {
#include "driver/cuda.def"
};
#undef CALL
#undef HOOK

struct cuda_functions cuda_exported;

bool cuda_loaded;

bool cuda_load_slow(bool open)
{
    void *library = library_open("libcuda.so.1", open);
    if (!library)
        return false;
#define CALL(name)                                                                                 \
    library_take(library, #name, &cuda_loaded,                                                     \
        (struct library_slot){                                                                     \
            (void **)&cuda_exported.name, (void **)&cuda.name, (void *)answer_not_supported});
#define HOOK(name) CALL(name)
#include "driver/cuda.def"
#undef CALL
#undef HOOK
    store_release(&cuda_loaded, true);
    return true;
}

static void write_uuid(char text[48], const char *kind, const CUuuid *uuid)
{
    const unsigned char *b = (const unsigned char *)uuid->bytes;
    snprintf(text, 48, "%s-%02x%02x%02x%02x-%02x%02x-%02x%02x-%02x%02x-%02x%02x%02x%02x%02x%02x",
        kind, b[0], b[1], b[2], b[3], b[4], b[5], b[6], b[7], b[8], b[9], b[10], b[11], b[12],
        b[13], b[14], b[15]);
}

CUresult cuda_device_uuid(CUdevice device, char ret_uuid[48], char ret_card[48])
{
    CUuuid card, own;
    CUresult result = cuda.cuDeviceGetUuid(&card, device);
    if (result != CUDA_SUCCESS)
        return result;
    result = cuda.cuDeviceGetUuid_v2(&own, device);
    if (result != CUDA_SUCCESS && result != CUDA_ERROR_NOT_SUPPORTED)
        return result;
    bool is_instance = result == CUDA_SUCCESS && memcmp(&own, &card, sizeof(own)) != 0;
    write_uuid(ret_card, "GPU", &card);
    write_uuid(ret_uuid, is_instance ? "MIG" : "GPU", is_instance ? &own : &card);
    return CUDA_SUCCESS;
}
