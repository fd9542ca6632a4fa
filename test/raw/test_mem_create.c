/* SPDX-License-Identifier: Apache-2.0 */
/* test_mem_create: memory without an address, as virtual memory is made of. */
#include "raw.h"

#define UNIT_BYTES (2 * RAW_MIB) /* of which the size must be a multiple */

static CUmemGenericAllocationHandle handle;

static CUresult take(uint64_t bytes)
{
    CUmemAllocationProp wanted = {.type = CU_MEM_ALLOCATION_TYPE_PINNED,
        .location = {.type = CU_MEM_LOCATION_TYPE_DEVICE, .id = 0}};
    uint64_t units = (bytes + UNIT_BYTES - 1) / UNIT_BYTES;
    return driver.cuMemCreate(&handle, units * UNIT_BYTES, &wanted, 0);
}

static void use(uint64_t bytes)
{
    CUmemAccessDesc access = {.location = {.type = CU_MEM_LOCATION_TYPE_DEVICE, .id = 0},
        .flags = CU_MEM_ACCESS_FLAGS_PROT_READWRITE};
    CUdeviceptr address;
    DRIVER_CALL(driver.cuMemAddressReserve(&address, bytes, 0, 0, 0));
    DRIVER_CALL(driver.cuMemMap(address, bytes, 0, handle, 0));
    DRIVER_CALL(driver.cuMemSetAccess(address, bytes, &access, 1));
    raw_check_contents(address, bytes);
    DRIVER_CALL(driver.cuMemUnmap(address, bytes));
    DRIVER_CALL(driver.cuMemAddressFree(address, bytes));
}

static CUresult give(void)
{
    return driver.cuMemRelease(handle);
}

int main(void)
{
    return raw_device_memory(
        &(struct raw_kind){.name = "cuMemCreate", .take = take, .use = use, .give = give});
}
