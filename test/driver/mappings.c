/* SPDX-License-Identifier: Apache-2.0 */
/* The simulator's mappings: of the card and of the host, side by side under one range, with the
 * driver's granularity and its errors; and a card that is full. */
#include "program.h"

#include <fcntl.h>
#include <string.h>

#define MIB (1ull << 20)
#define PAGE (2 * MIB)

static CUmemAllocationProp property_of(CUmemLocationType type)
{
    CUmemAllocationProp property = {.type = CU_MEM_ALLOCATION_TYPE_PINNED};
    property.location.type = type;
    return property;
}

static CUmemGenericAllocationHandle make(CUmemLocationType type, uint64_t bytes)
{
    CUmemAllocationProp property = property_of(type);
    CUmemGenericAllocationHandle handle = 0;
    CHECK_EQ(driver.cuMemCreate(&handle, bytes, &property, 0), CUDA_SUCCESS);
    return handle;
}

static CUdeviceptr reserve(uint64_t bytes)
{
    CUdeviceptr address = 0;
    CHECK_EQ(driver.cuMemAddressReserve(&address, bytes, 0, 0, 0), CUDA_SUCCESS);
    return address;
}

static CUresult let(CUdeviceptr address, uint64_t bytes, CUmemLocationType type, unsigned flags)
{
    CUmemAccessDesc access = {.flags = (CUmemAccess_flags)flags};
    access.location.type = type;
    return driver.cuMemSetAccess(address, bytes, &access, 1);
}

static CUresult let_device(CUdeviceptr address, uint64_t bytes)
{
    return let(address, bytes, CU_MEM_LOCATION_TYPE_DEVICE, CU_MEM_ACCESS_FLAGS_PROT_READWRITE);
}

static void map_part(CUdeviceptr address, CUmemLocationType type, uint64_t bytes)
{
    CUmemGenericAllocationHandle handle = make(type, bytes);
    CHECK_EQ(driver.cuMemMap(address, bytes, 0, handle, 0), CUDA_SUCCESS);
    CHECK_EQ(driver.cuMemRelease(handle), CUDA_SUCCESS);
}

/* A page of the card, one of the host, one of the card. */
static CUdeviceptr striped(void)
{
    CUdeviceptr address = reserve(3 * PAGE);
    map_part(address, CU_MEM_LOCATION_TYPE_DEVICE, PAGE);
    map_part(address + PAGE, CU_MEM_LOCATION_TYPE_HOST_NUMA, PAGE);
    map_part(address + 2 * PAGE, CU_MEM_LOCATION_TYPE_DEVICE, PAGE);
    CHECK_EQ(let_device(address, 3 * PAGE), CUDA_SUCCESS);
    return address;
}

static unsigned char out[5 * MIB], in[5 * MIB];

static void pattern(unsigned seed)
{
    for (size_t i = 0; i < sizeof(out); i++)
        out[i] = (unsigned char)((i + seed) * 2654435761u >> 13);
}

TEST("copies and fills go over parts of the card and of the host")
{
    begin("");
    program_begin();
    CUdeviceptr address = striped(), plain;
    pattern(1);
    CHECK_EQ(driver.cuMemcpyHtoD_v2(address + 12345, out, sizeof(out)), CUDA_SUCCESS);
    CHECK_EQ(driver.cuMemcpyDtoH_v2(in, address + 12345, sizeof(in)), CUDA_SUCCESS);
    CHECK(!memcmp(in, out, sizeof(in)));
    CHECK_EQ(driver.cuMemAlloc_v2(&plain, sizeof(out)), CUDA_SUCCESS);
    CHECK_EQ(driver.cuMemcpyDtoD_v2(plain, address + 12345, sizeof(out)), CUDA_SUCCESS);
    memset(in, 0, sizeof(in));
    CHECK_EQ(driver.cuMemcpyDtoH_v2(in, plain, sizeof(in)), CUDA_SUCCESS);
    CHECK(!memcmp(in, out, sizeof(in)));
    CHECK_EQ(driver.cuMemsetD8_v2(address + PAGE - 3, 0x77, 7), CUDA_SUCCESS);
    CHECK_EQ(driver.cuMemcpyDtoH_v2(in, address + PAGE - 4, 9), CUDA_SUCCESS);
    CHECK(in[1] == 0x77 && in[7] == 0x77 && in[0] != 0x77);
}

TEST("what a handle holds is seen through each of its mappings, and stays when they go")
{
    begin("");
    program_begin();
    CUmemGenericAllocationHandle handle = make(CU_MEM_LOCATION_TYPE_HOST_NUMA, PAGE);
    CUdeviceptr first = reserve(PAGE), second = reserve(2 * PAGE);
    pattern(2);
    CHECK_EQ(driver.cuMemMap(first, PAGE, 0, handle, 0), CUDA_SUCCESS);
    CHECK_EQ(let_device(first, PAGE), CUDA_SUCCESS);
    CHECK_EQ(driver.cuMemcpyHtoD_v2(first, out, 4096), CUDA_SUCCESS);
    CHECK_EQ(driver.cuMemMap(second + PAGE, PAGE, 0, handle, 0), CUDA_SUCCESS);
    CHECK_EQ(let_device(second + PAGE, PAGE), CUDA_SUCCESS);
    CHECK_EQ(driver.cuMemUnmap(first, PAGE), CUDA_SUCCESS);
    CHECK_EQ(driver.cuMemcpyDtoH_v2(in, second + PAGE, 4096), CUDA_SUCCESS);
    CHECK(!memcmp(in, out, 4096));
    /* And other memory at the same address has nothing of it. */
    map_part(first, CU_MEM_LOCATION_TYPE_DEVICE, PAGE);
    CHECK_EQ(let_device(first, PAGE), CUDA_SUCCESS);
    CHECK_EQ(driver.cuMemcpyDtoH_v2(in, first, 4096), CUDA_SUCCESS);
    CHECK(memcmp(in, out, 4096) != 0);
}

static CUmemGenericAllocationHandle imported(int fd)
{
    CUmemGenericAllocationHandle handle = 0;
    CHECK_EQ(driver.cuMemImportFromShareableHandle(
                 &handle, (void *)(intptr_t)fd, CU_MEM_HANDLE_TYPE_POSIX_FILE_DESCRIPTOR),
        CUDA_SUCCESS);
    return handle;
}

static CUdeviceptr mapped_at_new(CUmemGenericAllocationHandle handle)
{
    CUdeviceptr address = reserve(2 * PAGE);
    CHECK_EQ(driver.cuMemMap(address, 2 * PAGE, 0, handle, 0), CUDA_SUCCESS);
    CHECK_EQ(let_device(address, 2 * PAGE), CUDA_SUCCESS);
    return address;
}

static CUmemGenericAllocationHandle make_exportable(uint64_t bytes)
{
    CUmemAllocationProp property = property_of(CU_MEM_LOCATION_TYPE_HOST_NUMA);
    CUmemGenericAllocationHandle handle = 0;
    property.requestedHandleTypes = CU_MEM_HANDLE_TYPE_POSIX_FILE_DESCRIPTOR;
    CHECK_EQ(driver.cuMemCreate(&handle, bytes, &property, 0), CUDA_SUCCESS);
    return handle;
}

static CUresult export_of(CUmemGenericAllocationHandle handle, int *ret_fd)
{
    return driver.cuMemExportToShareableHandle(
        ret_fd, handle, CU_MEM_HANDLE_TYPE_POSIX_FILE_DESCRIPTOR, 0);
}

static void check_same(CUdeviceptr address, unsigned seed)
{
    pattern(seed);
    memset(in, 0, sizeof(in));
    CHECK_EQ(driver.cuMemcpyDtoH_v2(in, address, PAGE), CUDA_SUCCESS);
    CHECK(!memcmp(in, out, PAGE));
}

static void put(CUdeviceptr address, unsigned seed)
{
    pattern(seed);
    CHECK_EQ(driver.cuMemcpyHtoD_v2(address, out, PAGE), CUDA_SUCCESS);
}

TEST("memory of the host that was exported is seen through each import, and stays while the "
     "descriptor is open")
{
    int fd = -1, again = -1;
    begin("");
    program_begin();
    CUmemGenericAllocationHandle handle = make_exportable(2 * PAGE), other;
    CUdeviceptr first = mapped_at_new(handle);
    put(first, 1);
    CHECK_EQ(export_of(handle, &fd), CUDA_SUCCESS);
    check_same(first, 1);
    put(first + PAGE, 2);
    other = imported(fd);
    CUdeviceptr second = mapped_at_new(other);
    check_same(second, 1);
    check_same(second + PAGE, 2);
    put(second, 3);
    check_same(first, 3);
    CHECK_EQ(export_of(other, &again), CUDA_ERROR_NOT_SUPPORTED);
    CHECK_EQ(driver.cuMemUnmap(first, 2 * PAGE), CUDA_SUCCESS);
    CHECK_EQ(driver.cuMemUnmap(second, 2 * PAGE), CUDA_SUCCESS);
    CHECK_EQ(driver.cuMemRelease(handle), CUDA_SUCCESS);
    CHECK_EQ(driver.cuMemRelease(other), CUDA_SUCCESS);
    check_same(mapped_at_new(imported(fd)), 3);
    CHECK_EQ(
        export_of(make(CU_MEM_LOCATION_TYPE_HOST_NUMA, PAGE), &again), CUDA_ERROR_INVALID_VALUE);
}

TEST("another process reads and writes memory of the host that was exported to it")
{
    int ends[2], fd = -1;
    char path[64];
    begin("");
    REQUIRE(pipe(ends) == 0);
    pid_t other = fork();
    if (other == 0) {
        REQUIRE(read(ends[0], &fd, sizeof(fd)) == sizeof(fd));
        snprintf(path, sizeof(path), "/proc/%d/fd/%d", (int)getppid(), fd);
        program_begin();
        CUdeviceptr address = mapped_at_new(imported(open(path, O_RDWR | O_CLOEXEC)));
        check_same(address, 4);
        put(address + PAGE, 5);
        _exit(0);
    }
    program_begin();
    CUmemGenericAllocationHandle handle = make_exportable(2 * PAGE);
    CUdeviceptr address = mapped_at_new(handle);
    put(address, 4);
    CHECK_EQ(export_of(handle, &fd), CUDA_SUCCESS);
    REQUIRE(write(ends[1], &fd, sizeof(fd)) == sizeof(fd));
    int status;
    CHECK(waitpid(other, &status, 0) == other && WIFEXITED(status) && WEXITSTATUS(status) == 0);
    check_same(address + PAGE, 5);
}

TEST("memory that no device was given access to, or with a hole, is not copied")
{
    begin("");
    program_begin();
    CUdeviceptr address = reserve(2 * PAGE);
    map_part(address, CU_MEM_LOCATION_TYPE_DEVICE, PAGE);
    CHECK_EQ(driver.cuMemcpyHtoD_v2(address, out, 16), CUDA_ERROR_INVALID_VALUE);
    CHECK_EQ(let_device(address, 2 * PAGE), CUDA_ERROR_INVALID_VALUE);
    CHECK_EQ(let_device(address, PAGE), CUDA_SUCCESS);
    CHECK_EQ(driver.cuMemcpyHtoD_v2(address, out, 16), CUDA_SUCCESS);
    CHECK_EQ(driver.cuMemcpyHtoD_v2(address + PAGE - 8, out, 16), CUDA_ERROR_INVALID_VALUE);
    CHECK_EQ(let(address, PAGE, CU_MEM_LOCATION_TYPE_DEVICE, CU_MEM_ACCESS_FLAGS_PROT_NONE),
        CUDA_SUCCESS);
    CHECK_EQ(driver.cuMemcpyHtoD_v2(address, out, 16), CUDA_ERROR_INVALID_VALUE);
}

TEST("sizes and offsets off the 2 MiB, half a mapping and a range in use are errors")
{
    begin("");
    program_begin();
    CUmemAllocationProp device = property_of(CU_MEM_LOCATION_TYPE_DEVICE);
    CUmemAllocationProp host = property_of(CU_MEM_LOCATION_TYPE_HOST_NUMA), bad = host;
    CUmemGenericAllocationHandle handle;
    CUdeviceptr address;
    bad.location.id = 1;
    CHECK_EQ(driver.cuMemCreate(&handle, PAGE + 65536, &device, 0), CUDA_ERROR_INVALID_VALUE);
    CHECK_EQ(driver.cuMemCreate(&handle, PAGE / 2, &host, 0), CUDA_ERROR_INVALID_VALUE);
    CHECK_EQ(driver.cuMemCreate(&handle, PAGE, &bad, 0), CUDA_ERROR_INVALID_VALUE);
    CHECK_EQ(driver.cuMemAddressReserve(&address, PAGE / 2, 0, 0, 0), CUDA_ERROR_INVALID_VALUE);
    address = reserve(2 * PAGE);
    map_part(address, CU_MEM_LOCATION_TYPE_HOST_NUMA, 2 * PAGE);
    CHECK_EQ(driver.cuMemUnmap(address, PAGE), CUDA_ERROR_INVALID_VALUE);
    CHECK_EQ(driver.cuMemUnmap(address + PAGE, PAGE), CUDA_ERROR_INVALID_VALUE);
    CHECK_EQ(driver.cuMemAddressFree(address, 2 * PAGE), CUDA_ERROR_INVALID_VALUE);
    handle = make(CU_MEM_LOCATION_TYPE_DEVICE, PAGE);
    CHECK_EQ(driver.cuMemMap(address + PAGE, PAGE, 0, handle, 0), CUDA_ERROR_INVALID_VALUE);
    CHECK_EQ(driver.cuMemRelease(handle), CUDA_SUCCESS);
    CHECK_EQ(driver.cuMemUnmap(address, 2 * PAGE), CUDA_SUCCESS);
    CHECK_EQ(driver.cuMemAddressFree(address, 2 * PAGE), CUDA_SUCCESS);
    CHECK_EQ(driver.cuMemUnmap(address, 2 * PAGE), CUDA_ERROR_INVALID_VALUE);
}

TEST("the host reaches only what is backed by it, and access is told by place")
{
    begin("h200,devices=2");
    program_begin();
    CUdeviceptr address = striped();
    CUmemLocation places[] = {{.type = CU_MEM_LOCATION_TYPE_DEVICE, .id = 0},
        {.type = CU_MEM_LOCATION_TYPE_DEVICE, .id = 1},
        {.type = CU_MEM_LOCATION_TYPE_HOST_NUMA, .id = 0}};
    unsigned long long flags;
    CHECK_EQ(driver.cuMemGetAccess(&flags, &places[0], address), CUDA_SUCCESS);
    CHECK_EQ(flags, CU_MEM_ACCESS_FLAGS_PROT_READWRITE);
    CHECK_EQ(driver.cuMemGetAccess(&flags, &places[1], address), CUDA_SUCCESS);
    CHECK_EQ(flags, CU_MEM_ACCESS_FLAGS_PROT_NONE);
    CHECK_EQ(
        let(address, 3 * PAGE, CU_MEM_LOCATION_TYPE_HOST_NUMA, CU_MEM_ACCESS_FLAGS_PROT_READWRITE),
        CUDA_ERROR_INVALID_VALUE);
    CHECK_EQ(
        let(address + PAGE, PAGE, CU_MEM_LOCATION_TYPE_HOST_NUMA, CU_MEM_ACCESS_FLAGS_PROT_READ),
        CUDA_SUCCESS);
    CHECK_EQ(driver.cuMemGetAccess(&flags, &places[2], address + PAGE), CUDA_SUCCESS);
    CHECK_EQ(flags, CU_MEM_ACCESS_FLAGS_PROT_READ);
    CHECK_EQ(driver.cuMemGetAccess(&flags, &places[2], address), CUDA_SUCCESS);
    CHECK_EQ(flags, CU_MEM_ACCESS_FLAGS_PROT_NONE);
}

TEST("a mapping says what backs it, and is no memory for cuMemFree or a legacy handle")
{
    begin("");
    program_begin();
    CUdeviceptr address = striped(), base;
    size_t bytes;
    unsigned type;
    CUcontext context = (CUcontext)&type;
    CUipcMemHandle handle;
    for (unsigned part = 0; part < 3; part++) {
        CUdeviceptr at = address + part * PAGE + 512;
        CHECK_EQ(driver.cuPointerGetAttribute(&type, CU_POINTER_ATTRIBUTE_MEMORY_TYPE, at),
            CUDA_SUCCESS);
        CHECK_EQ(type, part == 1 ? CU_MEMORYTYPE_HOST : CU_MEMORYTYPE_DEVICE);
        CHECK_EQ(
            driver.cuPointerGetAttribute(&context, CU_POINTER_ATTRIBUTE_CONTEXT, at), CUDA_SUCCESS);
        CHECK(context == NULL);
        CHECK_EQ(driver.cuMemGetAddressRange_v2(&base, &bytes, at), CUDA_SUCCESS);
        CHECK_EQ(base, address + part * PAGE);
        CHECK_EQ(bytes, PAGE);
    }
    CHECK_EQ(driver.cuIpcGetMemHandle(&handle, address), CUDA_ERROR_INVALID_VALUE);
    CHECK_EQ(driver.cuMemFree_v2(address), CUDA_ERROR_INVALID_VALUE);
}

TEST("a card that is full refuses its own memory, and not the host's")
{
    begin("memory=1024MiB");
    program_begin();
    size_t left, total;
    CUmemAllocationProp device = property_of(CU_MEM_LOCATION_TYPE_DEVICE);
    CUmemGenericAllocationHandle handle, host;
    CHECK_EQ(driver.cuMemGetInfo_v2(&left, &total), CUDA_SUCCESS);
    uint64_t rest = left / PAGE * PAGE;
    CHECK_EQ(driver.cuMemCreate(&handle, rest + PAGE, &device, 0), CUDA_ERROR_OUT_OF_MEMORY);
    CHECK_EQ(driver.cuMemCreate(&handle, rest, &device, 0), CUDA_SUCCESS);
    CHECK_EQ(driver.cuMemCreate(&host, PAGE, &device, 0), CUDA_ERROR_OUT_OF_MEMORY);
    host = make(CU_MEM_LOCATION_TYPE_HOST_NUMA, 4096 * MIB);
    CHECK_EQ(driver.cuMemGetInfo_v2(&left, &total), CUDA_SUCCESS);
    CHECK(left < PAGE);
    CHECK_EQ(driver.cuMemRelease(host), CUDA_SUCCESS);
    CHECK_EQ(driver.cuMemRelease(handle), CUDA_SUCCESS);
}

/* So large that the simulator keeps no contents: the call itself takes no time. */
#define PART (128 * MIB)

TEST("a copy from host-backed memory crosses the bus")
{
    begin("");
    program_begin();
    CUdeviceptr address = reserve(2 * PART), plain;
    CUstream stream = stream_new();
    map_part(address, CU_MEM_LOCATION_TYPE_DEVICE, PART);
    map_part(address + PART, CU_MEM_LOCATION_TYPE_HOST_NUMA, PART);
    CHECK_EQ(let_device(address, 2 * PART), CUDA_SUCCESS);
    CHECK_EQ(driver.cuMemAlloc_v2(&plain, PART), CUDA_SUCCESS);
    float times[2];
    for (unsigned part = 0; part < 2; part++) {
        CUevent from = record(stream);
        CHECK_EQ(
            driver.cuMemcpyDtoDAsync_v2(plain, address + part * PART, PART, stream), CUDA_SUCCESS);
        CUevent to = record(stream);
        CHECK_EQ(driver.cuEventSynchronize(to), CUDA_SUCCESS);
        CHECK_EQ(driver.cuEventElapsedTime(&times[part], from, to), CUDA_SUCCESS);
    }
    CHECK(times[1] > 10 * times[0]);
}

int main(int argc, char **argv)
{
    return check_run(argc, argv);
}
