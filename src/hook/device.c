/* SPDX-License-Identifier: Apache-2.0 */
/* Which of the container's devices a CUDA ordinal or an NVML handle means. A limit belongs to a
 * UUID: CUDA_VISIBLE_DEVICES and device orders change ordinals only. */
#include "hook/hook.h"

#include "base/atomic.h"

#include <errno.h>
#include <stddef.h>

#define ORDINALS_MAX 64

int hook_device(CUdevice ordinal)
{
    /* The UUID of an ordinal holds for the life of the process, also in a forked child; the
     * region's index is looked up anew. */
    static char uuids[ORDINALS_MAX][48];
    static int known[ORDINALS_MAX];
    if (ordinal < 0 || ordinal >= ORDINALS_MAX)
        return CONTAINER_DEVICE_UNKNOWN;
    if (!load_acquire(&known[ordinal])) {
        char uuid[48];
        int error = cuda_device_uuid(ordinal, uuid);
        if (error)
            return error == -ENODEV ? CONTAINER_DEVICE_UNKNOWN : container_unidentified_device();
        container_confirm_device(uuid);
        for (size_t i = 0; i < sizeof(uuid); i++)
            store_relaxed(&uuids[ordinal][i], uuid[i]);
        store_release(&known[ordinal], 1);
    }
    return container_device(uuids[ordinal]);
}

int hook_current_device(void)
{
    CUdevice ordinal;
    if (cuda.cuCtxGetDevice(&ordinal) != CUDA_SUCCESS)
        return CONTAINER_DEVICE_UNKNOWN;
    return hook_device(ordinal);
}

int hook_nvml_device(nvmlDevice_t handle)
{
    char uuid[NVML_DEVICE_UUID_V2_BUFFER_SIZE] = "";
    nvmlReturn_t result = nvml.nvmlDeviceGetUUID(handle, uuid, sizeof(uuid));
    if (result == NVML_ERROR_INVALID_ARGUMENT || result == NVML_ERROR_UNINITIALIZED)
        return CONTAINER_DEVICE_UNKNOWN;
    if (result != NVML_SUCCESS)
        return container_unidentified_device();
    container_confirm_device(uuid);
    return container_device(uuid);
}
