/* SPDX-License-Identifier: Apache-2.0 */
#include "vmem/range_access.h"

#include "driver/cuda.h"
#include "vmem/vmem_parts.h"

CUresult range_access_let(const struct range_access *access, CUdeviceptr address, uint64_t bytes)
{
    CUmemAccessDesc let[RANGE_ACCESSORS_MAX];
    for (unsigned i = 0; i < access->count; i++) {
        let[i] = (CUmemAccessDesc){.flags = CU_MEM_ACCESS_FLAGS_PROT_READWRITE};
        let[i].location.type = CU_MEM_LOCATION_TYPE_DEVICE;
        let[i].location.id = access->devices[i];
    }
    return cuda.cuMemSetAccess(address, bytes, let, access->count);
}

struct range_access range_access_own(const struct range *range)
{
    return (struct range_access){.devices = {range->ordinal}, .count = 1};
}

struct range_access range_access_of(const struct range *range)
{
    struct range_access access = range_access_own(range);
    uint64_t changes;
    CUdevice peer;
    for (unsigned i = 0; access.count < RANGE_ACCESSORS_MAX &&
                         (peer = vmem_peer_at(range->context, i, &changes)) >= 0;
         i++) {
        unsigned known = 0; /* several contexts of a device may reach it */
        while (known < access.count && access.devices[known] != peer)
            known++;
        if (known == access.count)
            access.devices[access.count++] = peer;
    }
    return access;
}
