/* SPDX-License-Identifier: Apache-2.0 */
/* Devices: which of the machine's the process sees (CUDA_VISIBLE_DEVICES) and what it is told. */
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <strings.h>

#include "sim/cuda/cuda_sim.h"

static struct device devices[SIM_DEVICES_MAX];
static int count;

int device_count(void)
{
    return count;
}

struct device *device_of(CUdevice ordinal)
{
    return ordinal >= 0 && ordinal < count ? &devices[ordinal] : NULL;
}

/* What CUDA gives a process of a card: its first instance where it is in MIG mode (MIG user guide,
 * "CUDA Device Enumeration"). */
static unsigned unit_of_card(unsigned card)
{
    for (unsigned i = sim_device_count(); i < sim_unit_count(); i++) {
        if (sim_device(i)->model.mig_card == card + 1)
            return i;
    }
    return card;
}

/* MIG-GPU-<the card's UUID>/<GPU instance>/<compute instance>, the form before driver 470, which
 * later ones take, too; -1 if there is no such instance. */
static int instance_of_old_name(const char *word)
{
    for (unsigned i = sim_device_count(); i < sim_unit_count(); i++) {
        char name[80];
        snprintf(name, sizeof name, "MIG-%s/%u/0", sim_device_card(sim_device(i))->uuid,
            sim_device(i)->gpu_instance);
        if (strcasecmp(name, word) == 0)
            return (int)i;
    }
    return -1;
}

/* The machine's index that a word of CUDA_VISIBLE_DEVICES names, -1 if none. */
static int visible_index(const char *word)
{
    int found = -1;
    char *end;
    long index;

    if (strncasecmp(word, "MIG-GPU-", 8) == 0)
        return instance_of_old_name(word);
    if ((strncasecmp(word, "GPU-", 4) == 0 || strncasecmp(word, "MIG-", 4) == 0) && word[4]) {
        for (unsigned i = 0; i < sim_unit_count(); i++) {
            if (strncasecmp(sim_device(i)->uuid, word, strlen(word)) != 0)
                continue;
            if (found >= 0)
                return -1; /* abbreviated too far */
            found = (int)i;
        }
        return found < 0 ? -1 : (int)unit_of_card((unsigned)found);
    }
    /* As the real driver: a number followed by anything counts as that number. */
    index = strtol(word, &end, 10);
    if (end == word || index < 0 || index >= (long)sim_device_count())
        return -1;
    return (int)unit_of_card((unsigned)index);
}

static bool device_add(unsigned index)
{
    for (int i = 0; i < count; i++) {
        if (devices[i].index == index)
            return false;
    }
    devices[count] = (struct device){.ordinal = count, .index = index, .facts = sim_device(index)};
    count++;
    return true;
}

/* CUDA enumerates one compute instance, and then no card beside it (MIG user guide, "CUDA Device
 * Enumeration"). */
static void devices_keep_one_instance(void)
{
    for (int i = 0; i < count; i++) {
        if (!devices[i].facts->model.mig_card)
            continue;
        devices[0] = devices[i];
        devices[0].ordinal = 0;
        count = 1;
    }
}

/* The list ends at the first word that names no device; a device named twice makes it empty. */
static void devices_select(void)
{
    const char *text = getenv("CUDA_VISIBLE_DEVICES");
    char copy[1024];
    char *save = NULL;

    count = 0;
    if (!text) {
        for (unsigned i = 0; i < sim_device_count() && i < SIM_DEVICES_MAX; i++)
            device_add(unit_of_card(i));
        return;
    }
    snprintf(copy, sizeof copy, "%s", text);
    for (char *word = strtok_r(copy, ",", &save); word; word = strtok_r(NULL, ",", &save)) {
        int index = visible_index(word + strspn(word, " \t"));

        if (index < 0)
            return;
        if (!device_add((unsigned)index)) {
            count = 0;
            return;
        }
    }
}

CUresult devices_restore(void)
{
    CUresult r = CUDA_SUCCESS;

    for (int i = 0; i < count && r == CUDA_SUCCESS; i++)
        r = rm_device_restore(&devices[i]);
    return r;
}

CUresult devices_init(void)
{
    devices_select();
    devices_keep_one_instance();
    if (count == 0)
        return CUDA_ERROR_NO_DEVICE;
    for (int i = 0; i < count; i++) {
        CUresult r = rm_device_open(&devices[i]);

        if (r == CUDA_SUCCESS)
            r = pools_init(&devices[i]);
        if (r != CUDA_SUCCESS)
            return r;
    }
    return CUDA_SUCCESS;
}

CUresult sim_cuDeviceGet(CUdevice *device, int ordinal)
{
    if (!device)
        return CUDA_ERROR_INVALID_VALUE;
    if (!device_of(ordinal))
        return CUDA_ERROR_INVALID_DEVICE;
    *device = ordinal;
    return CUDA_SUCCESS;
}

CUresult sim_cuDeviceGetCount(int *ret_count)
{
    if (!ret_count)
        return CUDA_ERROR_INVALID_VALUE;
    *ret_count = count;
    return CUDA_SUCCESS;
}

CUresult sim_cuDeviceGetName(char *name, int length, CUdevice ordinal)
{
    const struct device *device = device_of(ordinal);

    if (!device)
        return CUDA_ERROR_INVALID_DEVICE;
    if (!name || length <= 0)
        return CUDA_ERROR_INVALID_VALUE;
    snprintf(name, (size_t)length, "%s", device->facts->model.name);
    return CUDA_SUCCESS;
}

CUresult sim_cuDeviceGetUuid_v2(CUuuid *uuid, CUdevice ordinal)
{
    const struct device *device = device_of(ordinal);

    if (!device)
        return CUDA_ERROR_INVALID_DEVICE;
    if (!uuid)
        return CUDA_ERROR_INVALID_VALUE;
    memcpy(uuid, device->facts->uuid_bytes, sizeof *uuid);
    return CUDA_SUCCESS;
}

/* The card's, where the second version gives the instance's (CUDA driver API reference). */
CUresult sim_cuDeviceGetUuid(CUuuid *uuid, CUdevice ordinal)
{
    const struct device *device = device_of(ordinal);
    CUresult r = sim_cuDeviceGetUuid_v2(uuid, ordinal);

    if (r == CUDA_SUCCESS)
        memcpy(uuid, sim_device_card(device->facts)->uuid_bytes, sizeof *uuid);
    return r;
}

CUresult sim_cuDeviceTotalMem_v2(size_t *bytes, CUdevice ordinal)
{
    const struct device *device = device_of(ordinal);
    struct sim_usage usage;

    if (!device)
        return CUDA_ERROR_INVALID_DEVICE;
    if (!bytes)
        return CUDA_ERROR_INVALID_VALUE;
    sim_device_usage(device->index, &usage);
    *bytes = usage.total_bytes - usage.reserved_bytes;
    return CUDA_SUCCESS;
}

/* Saturates: 4294967295 of 139.8 GiB (seen on H200, driver 580.159.04). */
CUresult sim_cuDeviceTotalMem(unsigned int *bytes, CUdevice ordinal)
{
    size_t wide;
    CUresult r = bytes ? sim_cuDeviceTotalMem_v2(&wide, ordinal) : CUDA_ERROR_INVALID_VALUE;

    if (r == CUDA_SUCCESS)
        *bytes = wide > UINT32_MAX ? UINT32_MAX : (unsigned)wide;
    return r;
}

/* Either pointer may be NULL, or both (seen on H200, driver 580.159.04). */
CUresult sim_cuMemGetInfo_v2(size_t *free_bytes, size_t *total_bytes)
{
    struct sim_usage usage;

    sim_device_usage(context_current()->device->index, &usage);
    if (free_bytes)
        *free_bytes = usage.free_bytes;
    if (total_bytes)
        *total_bytes = usage.total_bytes - usage.reserved_bytes;
    return CUDA_SUCCESS;
}

/* The 32-bit form knows no context of a 64-bit process (seen on H200, driver 580.159.04, with the
 * primary context current). */
CUresult sim_cuMemGetInfo(unsigned int *free_bytes, unsigned int *total_bytes)
{
    (void)free_bytes;
    (void)total_bytes;
    return CUDA_ERROR_INVALID_CONTEXT;
}

CUresult sim_cuDeviceGetPCIBusId(char *id, int length, CUdevice ordinal)
{
    const struct device *device = device_of(ordinal);

    if (!device)
        return CUDA_ERROR_INVALID_DEVICE;
    if (!id || length <= (int)strlen(device->facts->pci_bus_id))
        return CUDA_ERROR_INVALID_VALUE;
    snprintf(id, (size_t)length, "%s", device->facts->pci_bus_id);
    return CUDA_SUCCESS;
}

CUresult sim_cuDeviceGetByPCIBusId(CUdevice *ret_ordinal, const char *id)
{
    unsigned domain = 0;
    unsigned bus;
    unsigned device;

    if (!ret_ordinal || !id)
        return CUDA_ERROR_INVALID_VALUE;
    if (sscanf(id, "%x:%x:%x", &domain, &bus, &device) != 3) {
        domain = 0;
        if (sscanf(id, "%x:%x", &bus, &device) != 2)
            return CUDA_ERROR_INVALID_VALUE;
    }
    for (int i = 0; i < count; i++) {
        const struct sim_device *facts = devices[i].facts;

        if (facts->pci_domain == domain && facts->pci_bus == bus && facts->pci_device == device) {
            *ret_ordinal = i;
            return CUDA_SUCCESS;
        }
    }
    return CUDA_ERROR_INVALID_DEVICE;
}

CUresult sim_cuDeviceComputeCapability(int *major, int *minor, CUdevice ordinal)
{
    const struct device *device = device_of(ordinal);

    if (!device)
        return CUDA_ERROR_INVALID_DEVICE;
    if (!major || !minor)
        return CUDA_ERROR_INVALID_VALUE;
    *major = (int)device->facts->model.compute_major;
    *minor = (int)device->facts->model.compute_minor;
    return CUDA_SUCCESS;
}

CUresult sim_cuDeviceCanAccessPeer(int *can, CUdevice ordinal, CUdevice peer)
{
    if (!can)
        return CUDA_ERROR_INVALID_VALUE;
    if (!device_of(ordinal) || !device_of(peer))
        return CUDA_ERROR_INVALID_DEVICE;
    *can = ordinal != peer;
    return CUDA_SUCCESS;
}

CUresult sim_cuDeviceGetP2PAttribute(
    int *value, CUdevice_P2PAttribute attribute, CUdevice ordinal, CUdevice peer)
{
    if (!value)
        return CUDA_ERROR_INVALID_VALUE;
    if (!device_of(ordinal) || !device_of(peer) || ordinal == peer)
        return CUDA_ERROR_INVALID_DEVICE;
    *value = attribute == CU_DEVICE_P2P_ATTRIBUTE_ACCESS_SUPPORTED;
    return CUDA_SUCCESS;
}

CUresult sim_cuDeviceGetExecAffinitySupport(
    int *supported, CUexecAffinityType type, CUdevice ordinal)
{
    (void)type;
    if (!supported)
        return CUDA_ERROR_INVALID_VALUE;
    if (!device_of(ordinal))
        return CUDA_ERROR_INVALID_DEVICE;
    *supported = 0;
    return CUDA_SUCCESS;
}
