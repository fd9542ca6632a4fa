/* SPDX-License-Identifier: Apache-2.0 */
/* What cuMemAlloc's memory and a mapping of cuMemCreate's answer, beside each other, and what each
 * costs: to be read. Judges only what the library relies on (src/vmem), and says "NOT OK" and
 * ends with status 1 where the driver does otherwise. */
#include "driver.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <time.h>

#define MIB (1ull << 20)
#define PAGE (2 * MIB)

static int broken;

static double now_us(void)
{
    struct timespec now;
    clock_gettime(CLOCK_MONOTONIC, &now);
    return (double)now.tv_sec * 1e6 + (double)now.tv_nsec / 1e3;
}

static void rely(const char *what, bool holds)
{
    printf("%s - %s\n", holds ? "ok" : "NOT OK", what);
    broken += !holds;
}

static CUmemAllocationProp place(CUmemLocationType type, bool capable)
{
    CUmemAllocationProp property = {.type = CU_MEM_ALLOCATION_TYPE_PINNED};
    property.location.type = type;
    property.allocFlags.gpuDirectRDMACapable = capable;
    return property;
}

static bool rdma;

static CUmemAllocationProp on_device(void)
{
    return place(CU_MEM_LOCATION_TYPE_DEVICE, rdma);
}

static CUmemAllocationProp on_host(void)
{
    return place(CU_MEM_LOCATION_TYPE_HOST_NUMA, false);
}

/* A range of parts, each made with its property; all readable and writable for device 0. */
struct range {
    CUdeviceptr address;
    uint64_t bytes;
};

static CUresult add_part(CUdeviceptr at, uint64_t bytes, const CUmemAllocationProp *property)
{
    CUmemGenericAllocationHandle handle;
    CUresult result = driver.cuMemCreate(&handle, bytes, property, 0);
    if (result != CUDA_SUCCESS)
        return result;
    result = driver.cuMemMap(at, bytes, 0, handle, 0);
    (void)driver.cuMemRelease(handle);
    return result;
}

static CUresult set_access(CUdeviceptr at, uint64_t bytes)
{
    CUmemAccessDesc access = {.flags = CU_MEM_ACCESS_FLAGS_PROT_READWRITE};
    access.location.type = CU_MEM_LOCATION_TYPE_DEVICE;
    return driver.cuMemSetAccess(at, bytes, &access, 1);
}

static struct range range_make(uint64_t device_bytes, uint64_t host_bytes)
{
    struct range range = {.bytes = device_bytes + host_bytes};
    CUmemAllocationProp device = on_device(), host = on_host();
    DRIVER_CALL(driver.cuMemAddressReserve(&range.address, range.bytes, 0, 0, 0));
    if (device_bytes)
        DRIVER_CALL(add_part(range.address, device_bytes, &device));
    if (host_bytes)
        DRIVER_CALL(add_part(range.address + device_bytes, host_bytes, &host));
    DRIVER_CALL(set_access(range.address, range.bytes));
    return range;
}

static void range_drop(const struct range *range)
{
    DRIVER_CALL(driver.cuMemUnmap(range->address, range->bytes));
    DRIVER_CALL(driver.cuMemAddressFree(range->address, range->bytes));
}

static const struct {
    CUpointer_attribute attribute;
    const char *name;
} attributes[] = {
    {CU_POINTER_ATTRIBUTE_CONTEXT, "context"},
    {CU_POINTER_ATTRIBUTE_MEMORY_TYPE, "memory type"},
    {CU_POINTER_ATTRIBUTE_DEVICE_POINTER, "device pointer"},
    {CU_POINTER_ATTRIBUTE_HOST_POINTER, "host pointer"},
    {CU_POINTER_ATTRIBUTE_P2P_TOKENS, "p2p tokens"},
    {CU_POINTER_ATTRIBUTE_SYNC_MEMOPS, "sync memops"},
    {CU_POINTER_ATTRIBUTE_BUFFER_ID, "buffer id"},
    {CU_POINTER_ATTRIBUTE_IS_MANAGED, "is managed"},
    {CU_POINTER_ATTRIBUTE_DEVICE_ORDINAL, "device ordinal"},
    {CU_POINTER_ATTRIBUTE_IS_LEGACY_CUDA_IPC_CAPABLE, "legacy IPC"},
    {CU_POINTER_ATTRIBUTE_RANGE_START_ADDR, "range start"},
    {CU_POINTER_ATTRIBUTE_RANGE_SIZE, "range size"},
    {CU_POINTER_ATTRIBUTE_MAPPED, "mapped"},
    {CU_POINTER_ATTRIBUTE_ALLOWED_HANDLE_TYPES, "handle types"},
    {CU_POINTER_ATTRIBUTE_IS_GPU_DIRECT_RDMA_CAPABLE, "RDMA capable"},
    {CU_POINTER_ATTRIBUTE_ACCESS_FLAGS, "access flags"},
    {CU_POINTER_ATTRIBUTE_MEMPOOL_HANDLE, "pool"},
    {CU_POINTER_ATTRIBUTE_MAPPING_SIZE, "mapping size"},
    {CU_POINTER_ATTRIBUTE_MAPPING_BASE_ADDR, "mapping base"},
    {CU_POINTER_ATTRIBUTE_MEMORY_BLOCK_ID, "memory block id"},
};

static void attribute_text(CUdeviceptr pointer, CUpointer_attribute attribute, char text[40])
{
    uint64_t value[4] = {0};
    CUresult result = driver.cuPointerGetAttribute(value, attribute, pointer);
    if (result == CUDA_SUCCESS)
        snprintf(text, 40, "%#llx", (unsigned long long)value[0]);
    else
        snprintf(text, 40, "error %d", (int)result);
}

static void attributes_of(const CUdeviceptr pointers[], unsigned count)
{
    printf("| %-16s | %-20s | %-20s | %-20s | %-20s | %-20s |\n", "attribute", "cuMemAlloc 4 MiB",
        "cuMemAlloc 1,000 B", "device mapping", "host mapping", "device part of both");
    for (size_t i = 0; i < sizeof(attributes) / sizeof(attributes[0]); i++) {
        printf("| %-16s |", attributes[i].name);
        for (unsigned p = 0; p < count; p++) {
            char text[40];
            attribute_text(pointers[p] + 512, attributes[i].attribute, text);
            printf(" %-20s |", text);
        }
        printf("\n");
    }
    printf("| %-16s |", "address range");
    for (unsigned p = 0; p < count; p++) {
        CUdeviceptr base = 0;
        size_t bytes = 0;
        CUresult result = driver.cuMemGetAddressRange_v2(&base, &bytes, pointers[p] + 512);
        char text[40];
        snprintf(text, sizeof(text), "+%llu, %zu (%d)", (unsigned long long)(pointers[p] - base),
            bytes, (int)result);
        printf(" %-20s |", text);
    }
    printf("\n| %-16s |", "cuIpcGetMemHandle");
    for (unsigned p = 0; p < count; p++) {
        CUipcMemHandle handle;
        printf(" %-20d |", (int)driver.cuIpcGetMemHandle(&handle, pointers[p]));
    }
    printf("\n| %-16s |", "retain handle");
    for (unsigned p = 0; p < count; p++) {
        CUmemGenericAllocationHandle handle;
        CUresult result =
            driver.cuMemRetainAllocationHandle(&handle, (void *)(uintptr_t)pointers[p]);
        if (result == CUDA_SUCCESS)
            (void)driver.cuMemRelease(handle);
        printf(" %-20d |", (int)result);
    }
    printf("\n| %-16s |", "set sync memops");
    for (unsigned p = 0; p < count; p++) {
        unsigned yes = 1;
        printf(" %-20d |",
            (int)driver.cuPointerSetAttribute(&yes, CU_POINTER_ATTRIBUTE_SYNC_MEMOPS, pointers[p]));
    }
    printf("\n");
}

static void answers(void)
{
    CUdeviceptr large, small;
    struct range device = range_make(2 * PAGE, 0), host = range_make(0, 2 * PAGE),
                 both = range_make(PAGE, PAGE);
    DRIVER_CALL(driver.cuMemAlloc_v2(&large, 4 * MIB));
    DRIVER_CALL(driver.cuMemAlloc_v2(&small, 1000));
    const CUdeviceptr pointers[] = {large, small, device.address, host.address, both.address};
    attributes_of(pointers, 5);
    CUdeviceptr unknown = 0;
    uint64_t value = 0;
    printf("an unknown address: attribute %d, range %d, IPC %d\n",
        (int)driver.cuPointerGetAttribute(&value, CU_POINTER_ATTRIBUTE_MEMORY_TYPE, 0x1000),
        (int)driver.cuMemGetAddressRange_v2(&unknown, NULL, 0x1000),
        (int)driver.cuIpcGetMemHandle(&(CUipcMemHandle){{0}}, 0x1000));
    DRIVER_CALL(driver.cuMemFree_v2(large));
    DRIVER_CALL(driver.cuMemFree_v2(small));
    range_drop(&device);
    range_drop(&host);
    range_drop(&both);
}

static void small_spacing(void)
{
    CUdeviceptr one, other;
    for (unsigned bytes = 1; bytes <= 4096; bytes *= 8) {
        DRIVER_CALL(driver.cuMemAlloc_v2(&one, bytes));
        DRIVER_CALL(driver.cuMemAlloc_v2(&other, bytes));
        printf("two cuMemAlloc of %u bytes: %#llx apart, alignment %llu\n", bytes,
            (unsigned long long)(other > one ? other - one : one - other),
            (unsigned long long)((one | other) & -(one | other)));
        DRIVER_CALL(driver.cuMemFree_v2(one));
        DRIVER_CALL(driver.cuMemFree_v2(other));
    }
}

static void parts_under_one_range(void)
{
    static unsigned char out[3 * MIB], in[3 * MIB];
    struct range range = range_make(PAGE, PAGE), plain = range_make(2 * PAGE, 0);
    for (size_t i = 0; i < sizeof(out); i++)
        out[i] = (unsigned char)(i * 7 + i / 1000);
    CUdeviceptr at = range.address + 512 * 1024;
    bool same = driver.cuMemcpyHtoD_v2(at, out, sizeof(out)) == CUDA_SUCCESS &&
                driver.cuMemcpyDtoH_v2(in, at, sizeof(in)) == CUDA_SUCCESS &&
                !memcmp(in, out, sizeof(in));
    rely("a copy goes over a device-backed and a host-backed part of one range", same);
    memset(in, 0, sizeof(in));
    same = driver.cuMemcpyDtoD_v2(plain.address, at, sizeof(out)) == CUDA_SUCCESS &&
           driver.cuMemcpyDtoH_v2(in, plain.address, sizeof(in)) == CUDA_SUCCESS &&
           !memcmp(in, out, sizeof(in));
    rely("also on the card", same);
    same = driver.cuMemsetD8_v2(at, 0x5a, sizeof(out)) == CUDA_SUCCESS &&
           driver.cuMemcpyDtoH_v2(in, at, sizeof(in)) == CUDA_SUCCESS;
    for (size_t i = 0; i < sizeof(in); i++)
        same &= in[i] == 0x5a;
    rely("a fill goes over both", same);
    range_drop(&range);
    range_drop(&plain);
}

static void ends_of_contexts(CUcontext primary)
{
    CUcontext context;
    unsigned char byte = 7, back = 0;
    DRIVER_CALL(driver.cuCtxCreate_v2(&context, 0, 0));
    struct range range = range_make(PAGE, PAGE);
    DRIVER_CALL(driver.cuMemcpyHtoD_v2(range.address, &byte, 1));
    DRIVER_CALL(driver.cuCtxDestroy_v2(context));
    DRIVER_CALL(driver.cuCtxSetCurrent(NULL));
    CUmemLocation location = {.type = CU_MEM_LOCATION_TYPE_DEVICE};
    unsigned long long flags = 0;
    CUresult access = driver.cuMemGetAccess(&flags, &location, range.address);
    CUresult unmapped = driver.cuMemUnmap(range.address, range.bytes);
    CUresult freed = driver.cuMemAddressFree(range.address, range.bytes);
    printf("after cuCtxDestroy, without a current context: access %d (%llu), unmap %d, free %d\n",
        (int)access, flags, (int)unmapped, (int)freed);
    rely("mappings outlive the context, and can be taken away without one",
        unmapped == CUDA_SUCCESS && freed == CUDA_SUCCESS);
    DRIVER_CALL(driver.cuCtxSetCurrent(primary));
    struct range other = range_make(PAGE, PAGE);
    DRIVER_CALL(driver.cuMemcpyHtoD_v2(other.address + PAGE, &byte, 1));
    DRIVER_CALL(driver.cuDevicePrimaryCtxReset_v2(0));
    DRIVER_CALL(driver.cuDevicePrimaryCtxRetain(&primary, 0));
    DRIVER_CALL(driver.cuCtxSetCurrent(primary));
    CUresult read = driver.cuMemcpyDtoH_v2(&back, other.address + PAGE, 1);
    printf("after a reset of the primary context: read %d, value %d\n", (int)read, back);
    unmapped = driver.cuMemUnmap(other.address, other.bytes);
    freed = driver.cuMemAddressFree(other.address, other.bytes);
    rely("mappings outlive a reset, and can be taken away then",
        unmapped == CUDA_SUCCESS && freed == CUDA_SUCCESS);
}

static void errors(void)
{
    CUmemAllocationProp device = on_device(), host = on_host(), bad = device;
    CUmemGenericAllocationHandle handle;
    CUdeviceptr address;
    size_t granularity = 0, host_granularity = 0;
    (void)driver.cuMemGetAllocationGranularity(
        &granularity, &device, CU_MEM_ALLOC_GRANULARITY_MINIMUM);
    CUresult told = driver.cuMemGetAllocationGranularity(
        &host_granularity, &host, CU_MEM_ALLOC_GRANULARITY_MINIMUM);
    printf("granularity: device %zu, host %zu (%d)\n", granularity, host_granularity, (int)told);
    rely("granularity 2 MiB", granularity == PAGE && host_granularity == PAGE);
    bad.location.id = 77;
    printf("cuMemCreate: odd size %d, no size %d, no device %d, host node 77 %d\n",
        (int)driver.cuMemCreate(&handle, PAGE + 4096, &device, 0),
        (int)driver.cuMemCreate(&handle, 0, &device, 0),
        (int)driver.cuMemCreate(&handle, PAGE, &bad, 0), -1);
    bad = host;
    bad.location.id = 77;
    printf("cuMemCreate of host node 77: %d\n", (int)driver.cuMemCreate(&handle, PAGE, &bad, 0));
    DRIVER_CALL(driver.cuMemAddressReserve(&address, 2 * PAGE, 0, 0, 0));
    DRIVER_CALL(add_part(address, 2 * PAGE, &device));
    printf("unmap of a half %d, free of what is mapped %d, read without access %d\n",
        (int)driver.cuMemUnmap(address, PAGE), (int)driver.cuMemAddressFree(address, 2 * PAGE),
        (int)driver.cuMemcpyDtoH_v2(&(char){0}, address, 1));
    printf("map over what is mapped %d\n", (int)add_part(address, PAGE, &device));
    DRIVER_CALL(driver.cuMemUnmap(address, 2 * PAGE));
    DRIVER_CALL(add_part(address, PAGE, &device));
    printf("access to a range with a hole %d\n", (int)set_access(address, 2 * PAGE));
    DRIVER_CALL(driver.cuMemUnmap(address, PAGE));
    DRIVER_CALL(driver.cuMemAddressFree(address, 2 * PAGE));
    size_t card_free, card_total;
    DRIVER_CALL(driver.cuMemGetInfo_v2(&card_free, &card_total));
    printf("cuMemCreate of more than the card has: %d; cuMemAlloc: %d\n",
        (int)driver.cuMemCreate(&handle, (card_total / PAGE + 1) * PAGE, &device, 0),
        (int)driver.cuMemAlloc_v2(&address, card_total + PAGE));
    CUmemAllocationProp capable = place(CU_MEM_LOCATION_TYPE_DEVICE, true);
    CUresult made = driver.cuMemCreate(&handle, PAGE, &capable, 0);
    if (made == CUDA_SUCCESS)
        DRIVER_CALL(driver.cuMemRelease(handle));
    printf("cuMemCreate with gpuDirectRDMACapable: %d\n", (int)made);
}

static void frees(void)
{
    CUstream stream;
    CUmodule module;
    CUfunction spin;
    CUdeviceptr plain;
    uint64_t ns = 50000000;
    void *arguments[] = {&ns};
    DRIVER_CALL(driver.cuStreamCreate(&stream, CU_STREAM_NON_BLOCKING));
    DRIVER_CALL(driver.cuModuleLoadData(&module, driver_spin_ptx));
    DRIVER_CALL(driver.cuModuleGetFunction(&spin, module, "spin"));
    DRIVER_CALL(driver.cuMemAlloc_v2(&plain, 4 * MIB));
    DRIVER_CALL(driver.cuLaunchKernel(spin, 1, 1, 1, 1, 1, 1, 0, stream, arguments, NULL));
    double from = now_us();
    DRIVER_CALL(driver.cuMemFree_v2(plain));
    printf("cuMemFree behind a kernel of 50 ms on a stream of its own: %.1f ms\n",
        (now_us() - from) / 1e3);
    DRIVER_CALL(driver.cuStreamSynchronize(stream));
    struct range range = range_make(2 * PAGE, 0);
    DRIVER_CALL(driver.cuLaunchKernel(spin, 1, 1, 1, 1, 1, 1, 0, stream, arguments, NULL));
    from = now_us();
    range_drop(&range);
    printf("cuMemUnmap and cuMemAddressFree likewise: %.1f ms\n", (now_us() - from) / 1e3);
    DRIVER_CALL(driver.cuStreamSynchronize(stream));
    DRIVER_CALL(driver.cuMemAlloc_v2(&plain, 4 * MIB));
    DRIVER_CALL(driver.cuLaunchKernel(spin, 1, 1, 1, 1, 1, 1, 0, stream, arguments, NULL));
    from = now_us();
    DRIVER_CALL(driver.cuMemFree_v2(plain));
    range = range_make(2 * PAGE, 0);
    printf("free and a new mapping behind a kernel: %.1f ms\n", (now_us() - from) / 1e3);
    range_drop(&range);
    static const CUstreamCaptureMode modes[] = {
        CU_STREAM_CAPTURE_MODE_GLOBAL, CU_STREAM_CAPTURE_MODE_RELAXED};
    for (int i = 0; i < 2; i++) {
        CUgraph graph = NULL;
        DRIVER_CALL(driver.cuMemAlloc_v2(&plain, 4 * MIB));
        range = range_make(PAGE, 0);
        DRIVER_CALL(driver.cuStreamBeginCapture_v2(stream, modes[i]));
        CUresult freed = driver.cuMemFree_v2(plain);
        CUresult synchronised = driver.cuCtxSynchronize();
        CUresult unmapped = driver.cuMemUnmap(range.address, range.bytes);
        CUresult ended = driver.cuStreamEndCapture(stream, &graph);
        printf("in a capture (%s): cuMemFree %d, cuCtxSynchronize %d, cuMemUnmap %d; its end %d\n",
            i ? "relaxed" : "global", (int)freed, (int)synchronised, (int)unmapped, (int)ended);
        if (freed != CUDA_SUCCESS)
            (void)driver.cuMemFree_v2(plain);
        if (unmapped != CUDA_SUCCESS)
            (void)driver.cuMemUnmap(range.address, range.bytes);
        (void)driver.cuMemAddressFree(range.address, range.bytes);
        if (graph)
            (void)driver.cuGraphDestroy(graph);
    }
    DRIVER_CALL(driver.cuStreamDestroy_v2(stream));
    DRIVER_CALL(driver.cuModuleUnload(module));
}

#define ROUNDS 51

static int by_value(const void *one, const void *other)
{
    double a = *(const double *)one, b = *(const double *)other;
    return (a > b) - (a < b);
}

static void cost(uint64_t bytes)
{
    static double times[4][ROUNDS];
    uint64_t rounded = (bytes + PAGE - 1) / PAGE * PAGE;
    for (int i = 0; i < ROUNDS; i++) {
        CUdeviceptr plain;
        double at[5];
        at[0] = now_us();
        DRIVER_CALL(driver.cuMemAlloc_v2(&plain, bytes));
        at[1] = now_us();
        DRIVER_CALL(driver.cuMemFree_v2(plain));
        at[2] = now_us();
        struct range range = range_make(rounded, 0);
        at[3] = now_us();
        DRIVER_CALL(driver.cuCtxSynchronize());
        range_drop(&range);
        at[4] = now_us();
        for (int t = 0; t < 4; t++)
            times[t][i] = at[t + 1] - at[t];
    }
    printf("| %8.2f MiB |", (double)bytes / (double)MIB);
    for (int t = 0; t < 4; t++) {
        qsort(times[t], ROUNDS, sizeof(double), by_value);
        printf(" %8.1f |", times[t][ROUNDS / 2]);
    }
    printf("\n");
}

/* The calls of one mapping, each by itself; mappings alone, so that nothing of cuMemAlloc's is in
 * between. */
static void cost_of_calls(uint64_t bytes)
{
    static double times[7][ROUNDS];
    CUmemAllocationProp device = on_device();
    for (int i = 0; i < ROUNDS; i++) {
        CUmemGenericAllocationHandle handle;
        CUdeviceptr address;
        double at[8];
        at[0] = now_us();
        DRIVER_CALL(driver.cuMemCreate(&handle, bytes, &device, 0));
        at[1] = now_us();
        DRIVER_CALL(driver.cuMemAddressReserve(&address, bytes, 0, 0, 0));
        at[2] = now_us();
        DRIVER_CALL(driver.cuMemMap(address, bytes, 0, handle, 0));
        at[3] = now_us();
        DRIVER_CALL(set_access(address, bytes));
        at[4] = now_us();
        DRIVER_CALL(driver.cuMemUnmap(address, bytes));
        at[5] = now_us();
        DRIVER_CALL(driver.cuMemAddressFree(address, bytes));
        at[6] = now_us();
        DRIVER_CALL(driver.cuMemRelease(handle));
        at[7] = now_us();
        for (int t = 0; t < 7; t++)
            times[t][i] = at[t + 1] - at[t];
    }
    printf("| %8.2f MiB |", (double)bytes / (double)MIB);
    for (int t = 0; t < 7; t++) {
        qsort(times[t], ROUNDS, sizeof(double), by_value);
        printf(" %7.1f |", times[t][ROUNDS / 2]);
    }
    printf("\n");
}

static void costs_of_calls(void)
{
    printf("| size         | create  | reserve | map     | access  | unmap   | free    | release "
           "|%s\n",
        rdma ? " (gpuDirectRDMACapable)" : "");
    for (uint64_t bytes = PAGE; bytes <= 1024 * MIB; bytes *= 8)
        cost_of_calls(bytes);
}

static void costs(void)
{
    costs_of_calls();
    rdma = true;
    costs_of_calls();
    rdma = false;
    printf(
        "| size         | cuMemAlloc | cuMemFree | mapping made | dropped | (us, median of %d)\n",
        ROUNDS);
    cost(1000);
    for (uint64_t bytes = PAGE; bytes <= 1024 * MIB; bytes *= 4)
        cost(bytes);
    cost(1024 * MIB);
    rdma = true;
    printf("with gpuDirectRDMACapable:\n");
    cost(PAGE);
    cost(1024 * MIB);
    rdma = false;
    double from = now_us();
    struct range range = range_make(0, 256 * MIB);
    printf("256 MiB of host-backed mapping: made in %.1f ms", (now_us() - from) / 1e3);
    from = now_us();
    range_drop(&range);
    printf(", dropped in %.1f ms\n", (now_us() - from) / 1e3);
}

/* memory.current of the process's cgroup; -1: not told. */
static long long charged_bytes(void)
{
    static const char *const files[] = {
        "/sys/fs/cgroup/memory.current", "/sys/fs/cgroup/memory/memory.usage_in_bytes"};
    long long bytes = -1;
    for (int i = 0; i < 2 && bytes < 0; i++) {
        FILE *file = fopen(files[i], "r");
        if (file && fscanf(file, "%lld", &bytes) != 1)
            bytes = -1;
        if (file)
            fclose(file);
    }
    return bytes;
}

static void host_charges(void)
{
    long long before = charged_bytes();
    struct range range = range_make(0, 512 * MIB);
    long long mapped = charged_bytes();
    printf("512 MiB of host-backed mapping: the cgroup's memory grew by %.1f MiB (%s)\n",
        (double)(mapped - before) / (double)MIB, before < 0 ? "not told" : "told");
    range_drop(&range);
    void *pinned;
    before = charged_bytes();
    DRIVER_CALL(driver.cuMemHostAlloc(&pinned, 512 * MIB, 0));
    mapped = charged_bytes();
    printf("cuMemHostAlloc of 512 MiB: by %.1f MiB\n", (double)(mapped - before) / (double)MIB);
    DRIVER_CALL(driver.cuMemFreeHost(pinned));
}

static void peers(CUcontext context)
{
    int count = 0, may = 0;
    DRIVER_CALL(driver.cuDeviceGetCount(&count));
    if (count < 2) {
        printf("one device: peer access is not tried\n");
        return;
    }
    CUcontext other;
    struct range before = range_make(PAGE, 0);
    DRIVER_CALL(driver.cuDeviceCanAccessPeer(&may, 1, 0));
    DRIVER_CALL(driver.cuDevicePrimaryCtxRetain(&other, 1));
    DRIVER_CALL(driver.cuCtxSetCurrent(other));
    CUresult enabled = driver.cuCtxEnablePeerAccess(context, 0);
    CUmemLocation location = {.type = CU_MEM_LOCATION_TYPE_DEVICE, .id = 1};
    unsigned long long flags = 77;
    CUresult told = driver.cuMemGetAccess(&flags, &location, before.address);
    printf("peer access (possible: %d): enabled %d, a mapping's access for it %llu (%d)\n", may,
        (int)enabled, flags, (int)told);
    DRIVER_CALL(driver.cuCtxSetCurrent(context));
    range_drop(&before);
    DRIVER_CALL(driver.cuDevicePrimaryCtxRelease_v2(1));
}

int main(void)
{
    CUcontext context;
    setvbuf(stdout, NULL, _IOLBF, 0);
    if (!driver_load())
        return 0;
    context = driver_enter();
    errors();
    answers();
    small_spacing();
    parts_under_one_range();
    frees();
    host_charges();
    costs();
    peers(context);
    ends_of_contexts(context);
    return broken ? 1 : 0;
}
