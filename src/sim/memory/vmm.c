/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Virtual memory management: physical handles (each one device-memory object that lives until its
 * last reference and mapping are gone, or memory of the host), reserved ranges, mappings, and
 * sharing by descriptor.
 */
#ifndef _GNU_SOURCE
#define _GNU_SOURCE
#endif
#include <fcntl.h>
#include <errno.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>
#include <unistd.h>

#include "sim/cuda/cuda_sim.h"
#include "sim/memory/host_file.h"

struct vmm {
    struct object object;
    enum memory_place place;
    struct device *device; /* NULL: the host */
    struct rm_object rm;   /* of device memory */
    uint64_t bytes;
    unsigned handles; /* cuMemCreate, retain and import each give one */
    unsigned mappings;
    CUmemAllocationProp props;
    char *contents; /* shared pages, which each mapping's piece of a window shows */
    int file;       /* of the host's: whose pages they are once it was exported, else -1 */
    bool imported;
};

/* What is written through one mapping is read through another of the same handle, and a copy may go
 * over several mappings that touch: the range's contents lie in one window, into which each
 * handle's are mapped at the first need. */
struct reservation {
    struct reservation *next;
    uint64_t address;
    uint64_t bytes;
    unsigned mappings;
    char *window; /* NULL: nothing in the range was read or written yet */
};

static struct reservation *reservations;
static unsigned long long host_count; /* of live memory of the host */

bool vmm_has_host(void)
{
    return host_count != 0;
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
    host_count -= vmm->place == PLACE_HOST;
    contents_drop(vmm->contents, vmm->bytes);
    if (vmm->file >= 0)
        close(vmm->file);
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
        contents_drop(start.contents, start.bytes);
        return CUDA_ERROR_OUT_OF_MEMORY;
    }
    *vmm = start;
    vmm->handles = 1;
    host_count += vmm->place == PLACE_HOST;
    object_add(&vmm->object, OBJECT_VMM);
    *ret = (uintptr_t)vmm;
    return CUDA_SUCCESS;
}

CUresult sim_cuMemCreate(CUmemGenericAllocationHandle *ret, size_t bytes,
    const CUmemAllocationProp *prop, unsigned long long flags)
{
    CUDA_LOCKED;
    struct vmm vmm = {.bytes = bytes, .file = -1};
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

struct vmm_range vmm_reserved(uint64_t address)
{
    const struct reservation *reservation = *reservation_of(address, 1);

    return reservation ? (struct vmm_range){reservation->address, reservation->bytes}
                       : (struct vmm_range){0};
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
    reservation->window = NULL;
    reservation->mappings = 0;
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

    if (!reservation || reservation->address != address || reservation->bytes != bytes ||
        reservation->mappings)
        return CUDA_ERROR_INVALID_VALUE;
    *at = reservation->next;
    contents_drop(reservation->window, bytes);
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
                           .vmm = vmm},
        NULL);
    if (r != CUDA_SUCCESS)
        return r;
    (*reservation_of(address, bytes))->mappings++;
    if (vmm->mappings++ == 0 && vmm->place == PLACE_DEVICE)
        rm_memory_map(&vmm->rm, true);
    return CUDA_SUCCESS;
}

static bool window_make(struct reservation *reservation)
{
    void *window;

    if (reservation->window)
        return true;
    window = mmap(
        NULL, reservation->bytes, PROT_NONE, MAP_PRIVATE | MAP_ANONYMOUS | MAP_NORESERVE, -1, 0);
    if (window == MAP_FAILED)
        return false;
    reservation->window = window;
    return true;
}

/* An old size of 0 makes a second mapping of the same shared pages (mremap(2)). */
static bool window_show(const struct reservation *reservation, struct allocation *mapping)
{
    struct vmm *vmm = mapping->vmm;
    char *at = reservation->window + (mapping->address - reservation->address);

    if (mapping->shown)
        return true;
    if (!vmm->contents) {
        void *pages = mmap(NULL, vmm->bytes, PROT_READ | PROT_WRITE,
            MAP_SHARED | MAP_ANONYMOUS | MAP_NORESERVE, -1, 0);

        if (pages == MAP_FAILED)
            return false;
        vmm->contents = pages;
    }
    mapping->shown =
        mremap(vmm->contents, 0, mapping->bytes, MREMAP_MAYMOVE | MREMAP_FIXED, at) == at;
    return mapping->shown;
}

static void window_hide(const struct allocation *mapping)
{
    const struct reservation *reservation = *reservation_of(mapping->address, mapping->bytes);

    if (mapping->shown && reservation)
        (void)mmap(reservation->window + (mapping->address - reservation->address), mapping->bytes,
            PROT_NONE, MAP_PRIVATE | MAP_ANONYMOUS | MAP_NORESERVE | MAP_FIXED, -1, 0);
}

/* A range with a hole, or with a part that no device was given access to, is refused; on a card a
 * kernel that touches it ends its context. */
CUresult vmm_contents(uint64_t address, uint64_t bytes, char **ret_host)
{
    struct reservation *reservation = *reservation_of(address, bytes);
    uint64_t end = address + bytes;
    bool shown;

    *ret_host = NULL;
    if (!reservation)
        return CUDA_ERROR_INVALID_VALUE;
    shown = bytes <= CONTENTS_KEPT_BYTES && window_make(reservation);
    for (uint64_t at = address; at < end;) {
        struct allocation *mapping = allocation_find(at);

        if (!mapping || !mapping->vmm || !mapping->access)
            return CUDA_ERROR_INVALID_VALUE;
        shown = shown && window_show(reservation, mapping);
        at = mapping->address + mapping->bytes;
    }
    if (shown)
        *ret_host = reservation->window + (address - reservation->address);
    return CUDA_SUCCESS;
}

/* The window's bytes at the address, and how many are in its mapping from there on. */
static char *shown_at(uint64_t address, uint64_t *ret_bytes)
{
    struct reservation *reservation = *reservation_of(address, 1);
    struct allocation *mapping = allocation_find(address);

    if (!reservation || !mapping || !mapping->vmm || !window_make(reservation) ||
        !window_show(reservation, mapping))
        return NULL;
    *ret_bytes = mapping->address + mapping->bytes - address;
    return reservation->window + (address - reservation->address);
}

#define PAGE_BYTES 4096u
#define COPY_PAGES 4096u

/* Pages that were never written are in no memory, and hold nothing but zeros. */
static void copy_pages(char *to, const char *from, uint64_t bytes)
{
    unsigned char is_there[COPY_PAGES], was_there[COPY_PAGES];
    uint64_t pages = bytes / PAGE_BYTES;

    if (mincore((void *)(uintptr_t)from, bytes, is_there) || mincore(to, bytes, was_there)) {
        memcpy(to, from, bytes);
        return;
    }
    for (uint64_t i = 0; i < pages; i++) {
        if (is_there[i] & 1)
            memcpy(to + i * PAGE_BYTES, from + i * PAGE_BYTES, PAGE_BYTES);
        else if (was_there[i] & 1)
            memset(to + i * PAGE_BYTES, 0, PAGE_BYTES);
    }
}

static bool is_mapped(uint64_t address, uint64_t bytes)
{
    for (uint64_t at = address; at - address < bytes;) {
        const struct allocation *mapping = allocation_find(at);

        if (!mapping || !mapping->vmm)
            return false;
        at = mapping->address + mapping->bytes;
    }
    return true;
}

bool vmm_copy(uint64_t to, uint64_t from, uint64_t bytes)
{
    if (bytes < MEMORY_PAGE_BYTES || (to | from | bytes) % PAGE_BYTES || !is_mapped(to, bytes) ||
        !is_mapped(from, bytes))
        return false;
    while (bytes) {
        uint64_t source_bytes, target_bytes, step = (uint64_t)COPY_PAGES * PAGE_BYTES;
        const char *source = shown_at(from, &source_bytes);
        char *target = shown_at(to, &target_bytes);

        if (!source || !target)
            return false;
        step = source_bytes < step ? source_bytes : step;
        step = target_bytes < step ? target_bytes : step;
        step = bytes < step ? bytes : step;
        copy_pages(target, source, step);
        to += step;
        from += step;
        bytes -= step;
    }
    return true;
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
        window_hide(mapping);
        (*reservation_of(mapping->address, mapping->bytes))->mappings--;
        allocation_forget(mapping);
        if (--vmm->mappings == 0 && vmm->place == PLACE_DEVICE)
            rm_memory_map(&vmm->rm, false);
        vmm_drop(vmm);
        mapping = allocation_find(address);
    }
    return CUDA_SUCCESS;
}

/* Two bits of flags for each place: the host, then each device. 0: that is no place. */
static uint64_t access_unit(const CUmemLocation *location)
{
    if (location->type != CU_MEM_LOCATION_TYPE_DEVICE)
        return location->type == CU_MEM_LOCATION_TYPE_HOST ||
                       location->type == CU_MEM_LOCATION_TYPE_HOST_NUMA
                   ? 1
                   : 0;
    return device_of(location->id) && location->id < 31 ? (uint64_t)4 << 2 * location->id : 0;
}

static bool access_is_known(const CUmemAccessDesc *desc)
{
    unsigned flags = (unsigned)desc->flags;

    return access_unit(&desc->location) &&
           (flags == CU_MEM_ACCESS_FLAGS_PROT_NONE || flags == CU_MEM_ACCESS_FLAGS_PROT_READ ||
               flags == CU_MEM_ACCESS_FLAGS_PROT_READWRITE);
}

/* The host reaches only memory that is backed by it. */
static bool access_may(const struct allocation *mapping, const CUmemAccessDesc *desc)
{
    return mapping->place == PLACE_HOST || desc->location.type == CU_MEM_LOCATION_TYPE_DEVICE;
}

CUresult sim_cuMemSetAccess(
    CUdeviceptr address, size_t bytes, const CUmemAccessDesc *descs, size_t count)
{
    CUDA_LOCKED;

    if (!descs || !count || !mapping_first(address, bytes))
        return CUDA_ERROR_INVALID_VALUE;
    for (size_t i = 0; i < count; i++) {
        if (!access_is_known(&descs[i]))
            return CUDA_ERROR_INVALID_VALUE;
        for (uint64_t at = address; at < address + bytes; at += allocation_find(at)->bytes) {
            if (!access_may(allocation_find(at), &descs[i]))
                return CUDA_ERROR_INVALID_VALUE;
        }
    }
    for (size_t i = 0; i < count; i++) {
        uint64_t unit = access_unit(&descs[i].location);

        for (uint64_t at = address; at < address + bytes;) {
            struct allocation *mapping = allocation_find(at);

            mapping->access = (mapping->access & ~(3 * unit)) | (unsigned)descs[i].flags * unit;
            at += mapping->bytes;
        }
    }
    return CUDA_SUCCESS;
}

CUresult sim_cuMemGetAccess(
    unsigned long long *flags, const CUmemLocation *location, CUdeviceptr address)
{
    CUDA_LOCKED;
    const struct allocation *mapping = allocation_find(address);
    uint64_t unit = location ? access_unit(location) : 0;

    if (!flags || !unit || !mapping || !mapping->vmm)
        return CUDA_ERROR_INVALID_VALUE;
    *flags = mapping->access / unit & 3;
    return CUDA_SUCCESS;
}

static bool is_of(const struct allocation *allocation, const void *vmm)
{
    return allocation->vmm == vmm;
}

/* The pages become a file's; what shows them shows that one's. */
static bool vmm_move_to_file(struct vmm *vmm)
{
    int file = host_file_create(vmm->bytes, &vmm->props);
    char *pages = file < 0 ? NULL : host_file_map(file, vmm->bytes);
    struct allocation **mappings;
    size_t count;

    if (!pages) {
        if (file >= 0)
            close(file);
        return false;
    }
    for (uint64_t at = 0, step; vmm->contents && at < vmm->bytes; at += step) {
        step = (uint64_t)COPY_PAGES * PAGE_BYTES;
        step = vmm->bytes - at < step ? vmm->bytes - at : step;
        copy_pages(pages + at, vmm->contents + at, step);
    }
    contents_drop(vmm->contents, vmm->bytes);
    vmm->contents = pages;
    vmm->file = file;
    mappings = allocation_collect(is_of, vmm, &count);
    for (size_t i = 0; i < count; i++) {
        const struct reservation *reservation = *reservation_of(mappings[i]->address, 1);

        if (!mappings[i]->shown || !reservation)
            continue;
        mappings[i]->shown = false;
        (void)window_show(reservation, mappings[i]);
    }
    free(mappings);
    return true;
}

/* What was imported is not exported again (seen on an H100, driver 580.159.04; the error is
 * assumed). */
static CUresult vmm_export_host(struct vmm *vmm, int *ret_fd)
{
    int fd;

    if (vmm->imported)
        return CUDA_ERROR_NOT_SUPPORTED;
    if (vmm->file < 0 && !vmm_move_to_file(vmm))
        return CUDA_ERROR_OUT_OF_MEMORY;
    fd = fcntl(vmm->file, F_DUPFD_CLOEXEC, 0);
    if (fd < 0)
        return CUDA_ERROR_OPERATING_SYSTEM;
    *ret_fd = fd;
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
        return vmm_export_host(vmm, ret);
    return rm_memory_export(vmm->device, &vmm->rm, ret);
}

static CUresult vmm_import_host(struct vmm vmm, int fd, CUmemGenericAllocationHandle *ret)
{
    vmm.place = PLACE_HOST;
    vmm.imported = true;
    vmm.contents = host_file_map(fd, vmm.bytes);
    return vmm.contents ? vmm_add(vmm, ret) : CUDA_ERROR_OUT_OF_MEMORY;
}

CUresult sim_cuMemImportFromShareableHandle(
    CUmemGenericAllocationHandle *ret, void *os_handle, CUmemAllocationHandleType type)
{
    CUDA_LOCKED;
    struct vmm vmm = {.props = {.type = CU_MEM_ALLOCATION_TYPE_PINNED}, .file = -1};
    unsigned index;
    int errno_kept = errno;
    CUresult r;

    if (!ret)
        return CUDA_ERROR_INVALID_VALUE;
    if (type != CU_MEM_HANDLE_TYPE_POSIX_FILE_DESCRIPTOR)
        return CUDA_ERROR_NOT_SUPPORTED;
    if (host_file_read((int)(intptr_t)os_handle, &vmm.bytes, &vmm.props))
        return vmm_import_host(vmm, (int)(intptr_t)os_handle, ret);
    errno = errno_kept; /* a descriptor of the resource manager's has no such */
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
