/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Virtual memory management: physical handles (each one device-memory object that lives until its
 * last reference and mapping are gone, or memory of the host), reserved ranges, mappings, and
 * sharing by descriptor.
 */
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#include "sim/cuda/cuda_sim.h"

struct vmm {
    struct object object;
    enum memory_place place;
    struct device *device; /* NULL: the host */
    struct rm_object rm;   /* of device memory */
    uint64_t bytes;
    unsigned handles; /* cuMemCreate, retain and import each give one */
    unsigned mappings;
    CUmemAllocationProp props;
    char *contents;
};

struct reservation {
    struct reservation *next;
    uint64_t address;
    uint64_t bytes;
};

static struct reservation *reservations;

char *vmm_contents(struct vmm *vmm)
{
    return contents_get(&vmm->contents, vmm->bytes);
}

struct rm_object vmm_object(const struct vmm *vmm)
{
    return vmm->rm;
}

static struct vmm *vmm_of(CUmemGenericAllocationHandle handle)
{
    return object_find((void *)(uintptr_t)handle, OBJECT_VMM);
}

static void vmm_drop(struct vmm *vmm)
{
    if (vmm->handles || vmm->mappings)
        return;
    object_remove(&vmm->object);
    if (vmm->place == PLACE_DEVICE)
        rm_memory_destroy(vmm->device, &vmm->rm);
    contents_drop(vmm->contents, vmm->bytes);
    free(vmm);
}

/* "HOST allocations are not IPC capable" (cuMemCreate). */
static CUresult vmm_check(
    const CUmemAllocationProp *prop, enum memory_place *ret_place, struct device **ret_device)
{
    if (!prop || prop->type != CU_MEM_ALLOCATION_TYPE_PINNED)
        return CUDA_ERROR_INVALID_VALUE;
    if (prop->location.type == CU_MEM_LOCATION_TYPE_HOST && prop->requestedHandleTypes)
        return CUDA_ERROR_INVALID_VALUE;
    return place_of(prop->type, &prop->location, ret_place, ret_device);
}

CUresult sim_cuMemGetAllocationGranularity(
    size_t *granularity, const CUmemAllocationProp *prop, CUmemAllocationGranularity_flags option)
{
    struct device *device;
    enum memory_place place;
    CUresult r = vmm_check(prop, &place, &device);

    (void)option;
    if (r == CUDA_SUCCESS && !granularity)
        r = CUDA_ERROR_INVALID_VALUE;
    if (r == CUDA_SUCCESS)
        *granularity = MEMORY_PAGE_BYTES;
    return r;
}

static CUresult vmm_add(struct vmm start, CUmemGenericAllocationHandle *ret)
{
    struct vmm *vmm = malloc(sizeof *vmm);

    if (!vmm) {
        if (start.place == PLACE_DEVICE)
            rm_memory_destroy(start.device, &start.rm);
        return CUDA_ERROR_OUT_OF_MEMORY;
    }
    *vmm = start;
    vmm->handles = 1;
    object_add(&vmm->object, OBJECT_VMM);
    *ret = (uintptr_t)vmm;
    return CUDA_SUCCESS;
}

CUresult sim_cuMemCreate(CUmemGenericAllocationHandle *ret, size_t bytes,
    const CUmemAllocationProp *prop, unsigned long long flags)
{
    CUDA_LOCKED;
    struct vmm vmm = {.bytes = bytes};
    CUresult r = vmm_check(prop, &vmm.place, &vmm.device);

    if (r != CUDA_SUCCESS)
        return r;
    if (!ret || !bytes || bytes % MEMORY_PAGE_BYTES || flags)
        return CUDA_ERROR_INVALID_VALUE;
    vmm.props = *prop;
    if (vmm.place == PLACE_DEVICE)
        r = rm_memory_create_unmapped(vmm.device, bytes, &vmm.rm);
    return r == CUDA_SUCCESS ? vmm_add(vmm, ret) : r;
}

CUresult sim_cuMemRelease(CUmemGenericAllocationHandle handle)
{
    CUDA_LOCKED;
    struct vmm *vmm = vmm_of(handle);

    if (!vmm || !vmm->handles)
        return CUDA_ERROR_INVALID_VALUE;
    vmm->handles--;
    vmm_drop(vmm);
    return CUDA_SUCCESS;
}

CUresult sim_cuMemRetainAllocationHandle(CUmemGenericAllocationHandle *ret, void *address)
{
    CUDA_LOCKED;
    struct allocation *allocation = allocation_find((uintptr_t)address);

    if (!ret || !allocation || !allocation->vmm)
        return CUDA_ERROR_INVALID_VALUE;
    allocation->vmm->handles++;
    *ret = (uintptr_t)allocation->vmm;
    return CUDA_SUCCESS;
}

CUresult sim_cuMemGetAllocationPropertiesFromHandle(
    CUmemAllocationProp *prop, CUmemGenericAllocationHandle handle)
{
    CUDA_LOCKED;
    const struct vmm *vmm = vmm_of(handle);

    if (!prop || !vmm)
        return CUDA_ERROR_INVALID_VALUE;
    *prop = vmm->props;
    return CUDA_SUCCESS;
}

static struct reservation **reservation_of(uint64_t address, uint64_t bytes)
{
    struct reservation **at = &reservations;

    while (*at && (address < (*at)->address || address - (*at)->address >= (*at)->bytes ||
                      bytes > (*at)->bytes - (address - (*at)->address)))
        at = &(*at)->next;
    return at;
}

CUresult sim_cuMemAddressReserve(
    CUdeviceptr *ret, size_t bytes, size_t alignment, CUdeviceptr wanted, unsigned long long flags)
{
    CUDA_LOCKED;
    struct reservation *reservation;

    if (!ret || !bytes || bytes % MEMORY_PAGE_BYTES || flags || alignment & (alignment - 1))
        return CUDA_ERROR_INVALID_VALUE;
    reservation = malloc(sizeof *reservation);
    if (!reservation)
        return CUDA_ERROR_OUT_OF_MEMORY;
    reservation->bytes = bytes;
    reservation->address =
        wanted && wanted % MEMORY_PAGE_BYTES == 0 && address_take_at(wanted, bytes)
            ? wanted
            : address_take(bytes, alignment);
    if (!reservation->address) {
        free(reservation);
        return CUDA_ERROR_OUT_OF_MEMORY;
    }
    reservation->next = reservations;
    reservations = reservation;
    *ret = reservation->address;
    return CUDA_SUCCESS;
}

CUresult sim_cuMemAddressFree(CUdeviceptr address, size_t bytes)
{
    CUDA_LOCKED;
    struct reservation **at = reservation_of(address, bytes);
    struct reservation *reservation = *at;

    if (!reservation || reservation->address != address || reservation->bytes != bytes)
        return CUDA_ERROR_INVALID_VALUE;
    *at = reservation->next;
    address_release(address, bytes);
    free(reservation);
    return CUDA_SUCCESS;
}

CUresult sim_cuMemMap(CUdeviceptr address, size_t bytes, size_t offset,
    CUmemGenericAllocationHandle handle, unsigned long long flags)
{
    CUDA_LOCKED;
    struct vmm *vmm = vmm_of(handle);
    CUresult r;

    if (!vmm || !bytes || flags || offset || bytes > vmm->bytes ||
        (address | bytes) % MEMORY_PAGE_BYTES || !*reservation_of(address, bytes))
        return CUDA_ERROR_INVALID_VALUE;
    r = allocation_add((struct allocation){.address = address,
                           .bytes = bytes,
                           .kind = ALLOCATION_MAPPING,
                           .place = vmm->place,
                           .device = vmm->device ? vmm->device : device_of(0),
                           .vmm = vmm,
                           .vmm_offset = offset},
        NULL);
    if (r == CUDA_SUCCESS && vmm->mappings++ == 0 && vmm->place == PLACE_DEVICE)
        rm_memory_map(&vmm->rm, true);
    return r;
}

/* The first mapping in [address, address + bytes), NULL if none or the range has a hole. */
static struct allocation *mapping_first(uint64_t address, uint64_t bytes)
{
    uint64_t end = address + bytes;

    for (uint64_t at = address; at < end;) {
        const struct allocation *mapping = allocation_find(at);

        if (!mapping || !mapping->vmm || mapping->address != at)
            return NULL;
        at += mapping->bytes;
        if (at > end)
            return NULL;
    }
    return bytes ? allocation_find(address) : NULL;
}

CUresult sim_cuMemUnmap(CUdeviceptr address, size_t bytes)
{
    CUDA_LOCKED;
    struct allocation *mapping = mapping_first(address, bytes);
    uint64_t end = address + bytes;

    if (!mapping)
        return CUDA_ERROR_INVALID_VALUE;
    while (address < end) {
        struct vmm *vmm = mapping->vmm;

        address += mapping->bytes;
        allocation_forget(mapping);
        if (--vmm->mappings == 0 && vmm->place == PLACE_DEVICE)
            rm_memory_map(&vmm->rm, false);
        vmm_drop(vmm);
        mapping = allocation_find(address);
    }
    return CUDA_SUCCESS;
}

CUresult sim_cuMemSetAccess(
    CUdeviceptr address, size_t bytes, const CUmemAccessDesc *descs, size_t count)
{
    CUDA_LOCKED;

    if (!descs || !count || !mapping_first(address, bytes))
        return CUDA_ERROR_INVALID_VALUE;
    for (uint64_t at = address; at < address + bytes;) {
        struct allocation *mapping = allocation_find(at);

        mapping->access = (unsigned)descs[0].flags;
        at += mapping->bytes;
    }
    return CUDA_SUCCESS;
}

CUresult sim_cuMemGetAccess(
    unsigned long long *flags, const CUmemLocation *location, CUdeviceptr address)
{
    CUDA_LOCKED;
    const struct allocation *mapping = allocation_find(address);

    if (!flags || !location || !mapping || !mapping->vmm)
        return CUDA_ERROR_INVALID_VALUE;
    *flags = mapping->access;
    return CUDA_SUCCESS;
}

CUresult sim_cuMemExportToShareableHandle(void *ret, CUmemGenericAllocationHandle handle,
    CUmemAllocationHandleType type, unsigned long long flags)
{
    CUDA_LOCKED;
    struct vmm *vmm = vmm_of(handle);

    if (!ret || !vmm || flags)
        return CUDA_ERROR_INVALID_VALUE;
    if (type != CU_MEM_HANDLE_TYPE_POSIX_FILE_DESCRIPTOR)
        return CUDA_ERROR_NOT_SUPPORTED;
    if (!((unsigned)vmm->props.requestedHandleTypes & (unsigned)type))
        return CUDA_ERROR_INVALID_VALUE;
    if (vmm->place != PLACE_DEVICE)
        return CUDA_ERROR_NOT_SUPPORTED; /* the simulator does not share memory of the host */
    return rm_memory_export(vmm->device, &vmm->rm, ret);
}

CUresult sim_cuMemImportFromShareableHandle(
    CUmemGenericAllocationHandle *ret, void *os_handle, CUmemAllocationHandleType type)
{
    CUDA_LOCKED;
    struct vmm vmm = {.props = {.type = CU_MEM_ALLOCATION_TYPE_PINNED}};
    unsigned index;
    CUresult r;

    if (!ret)
        return CUDA_ERROR_INVALID_VALUE;
    if (type != CU_MEM_HANDLE_TYPE_POSIX_FILE_DESCRIPTOR)
        return CUDA_ERROR_NOT_SUPPORTED;
    r = rm_export_describe((int)(intptr_t)os_handle, &index, &vmm.bytes);
    for (int i = 0; i < device_count() && r == CUDA_SUCCESS; i++) {
        if (device_of(i)->index == index)
            vmm.device = device_of(i);
    }
    if (r == CUDA_SUCCESS)
        r = vmm.device ? rm_memory_import(vmm.device, (int)(intptr_t)os_handle, vmm.bytes, &vmm.rm)
                       : CUDA_ERROR_INVALID_DEVICE;
    if (r != CUDA_SUCCESS)
        return r;
    vmm.props.location.type = CU_MEM_LOCATION_TYPE_DEVICE;
    vmm.props.location.id = vmm.device->ordinal;
    vmm.props.requestedHandleTypes = type;
    return vmm_add(vmm, ret);
}
