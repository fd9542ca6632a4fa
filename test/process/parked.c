/* SPDX-License-Identifier: Apache-2.0 */
/* process-parked [MIB [managed | host | exported | rdma]]: a program that works all the time, in
 * four threads, and checks what it reads: it launches and asks for events, it allocates and frees,
 * it copies, and it calls functions that the library does not replace. It says "ready", and answers
 * each line on stdin with the number of rounds that its threads have made, or with what was wrong;
 * at "exit" it exits at once, at "long" it launches a kernel of 2 s, and at the end of stdin it
 * ends. */
#define _GNU_SOURCE
#include "driver.h"

#include <dlfcn.h>
#include <pthread.h>
#include <stdatomic.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#define MIB (1ull << 20)
#define RANGES 8

static CUcontext context;
static CUfunction spin;
static CUdeviceptr ranges[RANGES], pooled;
static uint64_t range_bytes;
#define THREADS 4

static atomic_ulong rounds[THREADS];
static atomic_bool ends;
static const char *_Atomic wrong;

static void check(bool kept, const char *what)
{
    if (!kept)
        atomic_store(&wrong, what);
}

static uint64_t mark_of(unsigned range, uint64_t at)
{
    return (range + 1) * 1000003ull + at;
}

static void write_range(unsigned range)
{
    for (uint64_t at = 0; at < range_bytes; at += MIB) {
        uint64_t mark = mark_of(range, at);
        DRIVER_CALL(driver.cuMemcpyHtoD_v2(ranges[range] + at, &mark, sizeof(mark)));
    }
}

static void check_range(unsigned range)
{
    for (uint64_t at = 0; at < range_bytes; at += MIB) {
        uint64_t mark = 0;
        DRIVER_CALL(driver.cuMemcpyDtoH_v2(&mark, ranges[range] + at, sizeof(mark)));
        check(mark == mark_of(range, at), "a range has lost what was written");
    }
}

static void *launch(void *unused)
{
    uint64_t duration_ns = 50000;
    void *parameters[] = {&duration_ns};
    CUstream stream;
    CUevent event;
    DRIVER_CALL(driver.cuCtxSetCurrent(context));
    DRIVER_CALL(driver.cuStreamCreate(&stream, CU_STREAM_NON_BLOCKING));
    DRIVER_CALL(driver.cuEventCreate(&event, CU_EVENT_DEFAULT));
    while (!atomic_load(&ends)) {
        CUresult result;
        DRIVER_CALL(driver.cuLaunchKernel(spin, 1, 1, 1, 32, 1, 1, 0, stream, parameters, NULL));
        DRIVER_CALL(driver.cuEventRecord(event, stream));
        while ((result = driver.cuEventQuery(event)) == CUDA_ERROR_NOT_READY)
            usleep(100);
        DRIVER_CALL(result);
        DRIVER_CALL(driver.cuStreamSynchronize(stream));
        DRIVER_CALL(driver.cuCtxSynchronize());
        atomic_fetch_add(&rounds[0], 1);
    }
    return unused;
}

static void *allocate(void *unused)
{
    DRIVER_CALL(driver.cuCtxSetCurrent(context));
    for (unsigned i = 0; !atomic_load(&ends); i++) {
        CUdeviceptr memory;
        uint64_t mark = i, seen = 0;
        uint64_t bytes = i % 7 == 6 ? 96 * MIB : (i % 5 + 1) * 700000ull;
        DRIVER_CALL(driver.cuMemAlloc_v2(&memory, bytes));
        DRIVER_CALL(driver.cuMemcpyHtoD_v2(memory, &mark, sizeof(mark)));
        usleep(500);
        DRIVER_CALL(driver.cuMemcpyDtoH_v2(&seen, memory, sizeof(seen)));
        check(seen == mark, "an allocation has lost what was written");
        DRIVER_CALL(driver.cuMemFree_v2(memory));
        atomic_fetch_add(&rounds[1], 1);
    }
    return unused;
}

static void *copy(void *unused)
{
    DRIVER_CALL(driver.cuCtxSetCurrent(context));
    for (unsigned i = 0; !atomic_load(&ends); i++) {
        uint64_t mark = 0;
        check_range(i % RANGES);
        DRIVER_CALL(driver.cuMemcpyDtoH_v2(&mark, pooled, sizeof(mark)));
        check(mark == mark_of(RANGES, 0), "a pool's memory has lost what was written");
        atomic_fetch_add(&rounds[2], 1);
        usleep(500);
    }
    return unused;
}

/* As programs get them that look up what they need once the driver is initialised. */
static void *asked(const char *name, int version)
{
    void *function = NULL;
    DRIVER_CALL(driver.cuGetProcAddress(name, &function, version, 0));
    return function;
}

static void *call_others(void *unused)
{
    __typeof__(cuEventCreate) *create = (__typeof__(create))asked("cuEventCreate", 2000);
    __typeof__(cuEventDestroy_v2) *destroy = (__typeof__(destroy))asked("cuEventDestroy", 4000);
    __typeof__(cuStreamCreate) *stream_create =
        (__typeof__(stream_create))asked("cuStreamCreate", 2000);
    __typeof__(cuMemHostAlloc) *host = (__typeof__(host))dlsym(RTLD_DEFAULT, "cuMemHostAlloc");
    __typeof__(cuMemFreeHost) *host_free =
        (__typeof__(host_free))dlsym(RTLD_DEFAULT, "cuMemFreeHost");
    if (!host || !host_free) {
        void *library = dlopen("libcuda.so.1", RTLD_LAZY);
        host = (__typeof__(host))dlsym(library, "cuMemHostAlloc");
        host_free = (__typeof__(host_free))dlsym(library, "cuMemFreeHost");
    }
    DRIVER_CALL(driver.cuCtxSetCurrent(context));
    while (!atomic_load(&ends)) {
        CUevent event;
        CUstream stream;
        void *memory;
        DRIVER_CALL(create(&event, CU_EVENT_DEFAULT));
        DRIVER_CALL(stream_create(&stream, CU_STREAM_NON_BLOCKING));
        DRIVER_CALL(host(&memory, 4096, 0));
        DRIVER_CALL(host_free(memory));
        DRIVER_CALL(destroy(event));
        DRIVER_CALL(driver.cuStreamDestroy_v2(stream));
        atomic_fetch_add(&rounds[3], 1);
    }
    return unused;
}

static void make_host(void)
{
    CUmemAllocationProp property = {.type = CU_MEM_ALLOCATION_TYPE_PINNED};
    CUmemGenericAllocationHandle handle;
    property.location.type = CU_MEM_LOCATION_TYPE_HOST_NUMA;
    DRIVER_CALL(driver.cuMemCreate(&handle, 2 * MIB, &property, 0));
}

/* None of it is moved from then on. */
static void export_ranges(void)
{
    for (unsigned i = 0; i < RANGES; i++) {
        int fd = -1;
        DRIVER_CALL(driver.cuMemGetHandleForAddressRange(
            &fd, ranges[i], range_bytes, CU_MEM_RANGE_HANDLE_TYPE_DMA_BUF_FD, 0));
        close(fd);
    }
}

static void prepare_for_rdma(void)
{
    unsigned yes = 1;
    DRIVER_CALL(driver.cuPointerSetAttribute(&yes, CU_POINTER_ATTRIBUTE_SYNC_MEMOPS, ranges[0]));
}

static void make(uint64_t mib, const char *more)
{
    CUmodule module;
    uint64_t mark = mark_of(RANGES, 0);
    range_bytes = mib / RANGES * MIB;
    DRIVER_CALL(driver.cuModuleLoadData(&module, driver_spin_ptx));
    DRIVER_CALL(driver.cuModuleGetFunction(&spin, module, "spin"));
    for (unsigned i = 0; i < RANGES; i++) {
        DRIVER_CALL(driver.cuMemAlloc_v2(&ranges[i], range_bytes));
        write_range(i);
    }
    DRIVER_CALL(driver.cuMemAllocAsync(&pooled, 64 * MIB, NULL));
    DRIVER_CALL(driver.cuMemcpyHtoD_v2(pooled, &mark, sizeof(mark)));
    if (strcmp(more, "host") == 0)
        make_host();
    if (strcmp(more, "exported") == 0)
        export_ranges();
    if (strcmp(more, "rdma") == 0)
        prepare_for_rdma();
    if (strcmp(more, "managed") == 0)
        DRIVER_CALL(driver.cuMemAllocManaged(&(CUdeviceptr){0}, MIB, CU_MEM_ATTACH_GLOBAL));
}

static void launch_long(void)
{
    uint64_t duration_ns = 2000000000;
    void *parameters[] = {&duration_ns};
    CUstream stream;
    DRIVER_CALL(driver.cuStreamCreate(&stream, CU_STREAM_NON_BLOCKING));
    DRIVER_CALL(driver.cuLaunchKernel(spin, 1, 1, 1, 32, 1, 1, 0, stream, parameters, NULL));
}

static void answer(void)
{
    const char *said = atomic_load(&wrong);
    if (said)
        printf("wrong: %s\n", said);
    else
        printf("%lu %lu %lu %lu\n", atomic_load(&rounds[0]), atomic_load(&rounds[1]),
            atomic_load(&rounds[2]), atomic_load(&rounds[3]));
    fflush(stdout);
}

int main(int argc, char **argv)
{
    void *(*works[])(void *) = {launch, allocate, copy, call_others};
    pthread_t threads[THREADS];
    char line[64];
    if (!driver_load())
        return 77;
    context = driver_enter();
    make(argc > 1 ? strtoul(argv[1], NULL, 10) : 256, argc > 2 ? argv[2] : "");
    for (int i = 0; i < THREADS; i++) {
        if (pthread_create(&threads[i], NULL, works[i], NULL) != 0)
            return 1;
    }
    puts("ready");
    fflush(stdout);
    while (fgets(line, sizeof(line), stdin)) {
        if (strcmp(line, "exit\n") == 0)
            exit(0);
        if (strcmp(line, "long\n") == 0)
            launch_long();
        answer();
    }
    atomic_store(&ends, true);
    for (int i = 0; i < THREADS; i++)
        pthread_join(threads[i], NULL);
    return atomic_load(&wrong) ? 1 : 0;
}
