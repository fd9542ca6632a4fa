/* SPDX-License-Identifier: Apache-2.0 */
/* Which of the container's devices a CUDA ordinal or an NVML handle means. A limit belongs to a
 * UUID, of a card or of a MIG compute instance: CUDA_VISIBLE_DEVICES and device orders change
 * ordinals only. */
#include "container/device.h"

#include "base/atomic.h"
#include "container/container.h"
#include "driver/instance.h"

#include <stddef.h>
#include <string.h>

#define ORDINALS_MAX 64

/* Without a limit nothing is in the way: the driver judges the program's own call. */
static bool any_limit(void)
{
    return container_unidentified_device() == CONTAINER_DEVICE_CLOSED;
}

CUresult device_identify(CUdevice ordinal, int *ret_device)
{
    /* The UUID of an ordinal holds for the life of the process, also in a forked child; the
     * region's index is looked up anew. */
    static char uuids[ORDINALS_MAX][48];
    static int known[ORDINALS_MAX];
    *ret_device = CONTAINER_DEVICE_UNKNOWN;
    if (ordinal < 0)
        return CUDA_SUCCESS;                /* for the driver to refuse */
    bool has_room = ordinal < ORDINALS_MAX; /* those behind are asked for each time */
    if (has_room && load_acquire(&known[ordinal])) {
        *ret_device = container_device(uuids[ordinal]);
        return CUDA_SUCCESS;
    }
    char uuid[48], card[48];
    CUresult result = cuda_device_uuid(ordinal, uuid, card);
    if (result != CUDA_SUCCESS && !any_limit())
        return CUDA_SUCCESS;
    if (result == CUDA_ERROR_INVALID_DEVICE || result == CUDA_ERROR_NOT_INITIALIZED)
        return result;
    *ret_device = CONTAINER_DEVICE_CLOSED;
    if (result != CUDA_SUCCESS)
        return result == CUDA_ERROR_NOT_SUPPORTED ? CUDA_SUCCESS : result;
    if (strcmp(uuid, card) != 0)
        instance_tie(card, uuid);
    container_confirm_device(uuid);
    for (size_t i = 0; has_room && i < sizeof(uuid); i++)
        store_relaxed(&uuids[ordinal][i], uuid[i]);
    if (has_room)
        store_release(&known[ordinal], 1);
    *ret_device = container_device(uuid);
    return CUDA_SUCCESS;
}

CUresult device_identify_current(int *ret_device)
{
    CUdevice ordinal;
    CUresult result = cuda.cuCtxGetDevice(&ordinal);
    *ret_device = CONTAINER_DEVICE_UNKNOWN;
    if (result != CUDA_SUCCESS)
        return any_limit() ? result : CUDA_SUCCESS;
    return device_identify(ordinal, ret_device);
}

int device_index(CUdevice ordinal)
{
    int device;
    (void)!device_identify(ordinal, &device);
    return device;
}

/* A handle of a card in MIG mode stands for the instance that this process uses by CUDA, else for
 * the first: the one that CUDA would give it. Where CUDA tells only cards (before 11.4), a handle
 * of an instance stands for its card. */
static void take_instance(nvmlDevice_t handle, char uuid[48])
{
    nvmlDevice_t instance, card;
    unsigned place = 0;
    if (load_acquire(&cuda_loaded) && !cuda_exported.cuDeviceGetUuid_v2) {
        if (nvml.nvmlDeviceGetDeviceHandleFromMigDeviceHandle(handle, &card) == NVML_SUCCESS)
            (void)!nvml_device_uuid(card, uuid);
        return;
    }
    if (instance_of(uuid) == uuid && nvml_next_instance(handle, &place, &instance))
        (void)!nvml_device_uuid(instance, uuid);
}

nvmlReturn_t device_identify_nvml(nvmlDevice_t handle, int *ret_device)
{
    char uuid[48] = "";
    nvmlReturn_t result = nvml_device_uuid(handle, uuid);
    *ret_device = container_unidentified_device();
    if (result == NVML_ERROR_NOT_SUPPORTED || result == NVML_ERROR_FUNCTION_NOT_FOUND)
        return NVML_SUCCESS;
    if (result != NVML_SUCCESS)
        return any_limit() ? result : NVML_SUCCESS;
    take_instance(handle, uuid);
    container_confirm_device(uuid);
    *ret_device = container_device(uuid);
    return NVML_SUCCESS;
}
