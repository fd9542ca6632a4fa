/* SPDX-License-Identifier: Apache-2.0 */
/* Programs that want more memory than they may have. */
#include "bench/worker.h"

#include <poll.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#define MIB (1u << 20)
#define LEAST_BYTES (2ul << 20) /* the driver's granularity */
#define PITCHED_WIDTH 4096
#define HANDLES_MOST 65536
#define REFUSALS 501
#define RETRY_US 200
#define RETRY_NS 10000000000ull

enum kind {
    LINEAR,
    PITCHED,
    ASYNC,
    POOL,
    MANAGED,
    ARRAY,
    ARRAY_3D,
    MIPMAPPED,
    VIRTUAL,
    GRAPH,
    LOCAL,
    KINDS
};

static const char *const kind_names[KINDS] = {"linear", "pitched", "async", "pool", "managed",
    "array", "array3d", "mipmapped", "virtual", "graph", "local"};

struct held {
    uint64_t handle;
    size_t bytes;
    CUgraph graph;
    CUdeviceptr node; /* what the graph allocates */
};

static struct held held[HANDLES_MOST];
static size_t held_count;
static uint64_t held_bytes;
static CUmemoryPool pool;
static struct load_device device;

/* 64 KiB a thread: on a large GPU that is more than a small limit in all. */
#define LOCAL_PTX(head)                                                                            \
    head "\n.address_size 64\n"                                                                    \
         ".visible .entry wants_local(.param .u64 cell)\n{\n"                                      \
         ".local .align 4 .b8 frame[65536];\n.reg .b64 %rd<6>;\n.reg .b32 %r<4>;\n"                \
         "ld.param.u64 %rd1, [cell];\ncvta.to.global.u64 %rd2, %rd1;\n"                            \
         "ld.global.u32 %r1, [%rd2];\nand.b32 %r2, %r1, 65532;\ncvt.u64.u32 %rd3, %r2;\n"          \
         "mov.u64 %rd4, frame;\nadd.u64 %rd5, %rd4, %rd3;\n"                                       \
         "st.local.u32 [%rd5], %r1;\nld.local.u32 %r3, [%rd4+4];\n"                                \
         "st.global.u32 [%rd2], %r3;\nret;\n}\n"

/* As the load generator's: old enough for every driver, and in case that one no longer takes it. */
static const char *const local_ptx[] = {
    LOCAL_PTX(".version 5.0\n.target sm_50"), LOCAL_PTX(".version 6.4\n.target sm_70")};

static enum kind kind_named(const char *name)
{
    for (int i = 0; i < KINDS; i++) {
        if (!strcmp(name, kind_names[i]))
            return (enum kind)i;
    }
    load_fail("\"%s\" is no kind of memory", name);
}

static CUmemLocation here(void)
{
    return (CUmemLocation){.type = CU_MEM_LOCATION_TYPE_DEVICE, .id = device.device};
}

static CUresult take_graph(struct held *one, size_t bytes)
{
    CUgraphNode node;
    CUgraphExec exec = NULL;
    CUDA_MEM_ALLOC_NODE_PARAMS params = {
        .poolProps = {.allocType = CU_MEM_ALLOCATION_TYPE_PINNED, .location = here()},
        .bytesize = bytes};
    WORKER_CALL(cuGraphCreate, &one->graph, 0);
    CUresult result = worker_cuda.cuGraphAddMemAllocNode(&node, one->graph, NULL, 0, &params);
    if (result == CUDA_SUCCESS)
        result = load_cuda.cuGraphInstantiateWithFlags(
            &exec, one->graph, CUDA_GRAPH_INSTANTIATE_FLAG_AUTO_FREE_ON_LAUNCH);
    if (result == CUDA_SUCCESS)
        result = load_cuda.cuGraphLaunch(exec, NULL);
    if (result == CUDA_SUCCESS)
        result = load_cuda.cuCtxSynchronize();
    one->handle = (uint64_t)(uintptr_t)exec;
    one->node = params.dptr;
    if (result != CUDA_SUCCESS) {
        if (exec)
            (void)worker_cuda.cuGraphExecDestroy(exec);
        (void)worker_cuda.cuGraphDestroy(one->graph);
    }
    return result;
}

static CUresult take_local(void)
{
    CUmodule module;
    CUfunction function;
    CUdeviceptr cell = device.sink;
    void *params[] = {&cell};
    if (load_cuda.cuModuleLoadData(&module, local_ptx[0]) != CUDA_SUCCESS)
        LOAD_CALL(cuModuleLoadData, &module, local_ptx[1]);
    LOAD_CALL(cuModuleGetFunction, &function, module, "wants_local");
    CUresult result = load_cuda.cuLaunchKernel(function, 1, 1, 1, 32, 1, 1, 0, NULL, params, NULL);
    return result == CUDA_SUCCESS ? load_cuda.cuCtxSynchronize() : result;
}

static CUresult take_array(enum kind kind, struct held *one, size_t bytes)
{
    CUDA_ARRAY_DESCRIPTOR flat = {
        .Width = 4096, .Height = bytes / 16384, .Format = CU_AD_FORMAT_FLOAT, .NumChannels = 1};
    CUDA_ARRAY3D_DESCRIPTOR deep = {.Width = 256,
        .Height = 256,
        .Depth = bytes / 256 / 1024,
        .Format = CU_AD_FORMAT_FLOAT,
        .NumChannels = 1};
    /* Of two levels, the second a quarter of the first. */
    CUDA_ARRAY3D_DESCRIPTOR level = {.Width = 4096,
        .Height = bytes / (16384 + 4096),
        .Format = CU_AD_FORMAT_FLOAT,
        .NumChannels = 1};
    if (kind == ARRAY_3D)
        return worker_cuda.cuArray3DCreate_v2((CUarray *)&one->handle, &deep);
    if (kind == MIPMAPPED)
        return worker_cuda.cuMipmappedArrayCreate((CUmipmappedArray *)&one->handle, &level, 2);
    return worker_cuda.cuArrayCreate_v2((CUarray *)&one->handle, &flat);
}

static CUresult take(enum kind kind, struct held *one, size_t bytes)
{
    CUmemAllocationProp property = {.type = CU_MEM_ALLOCATION_TYPE_PINNED, .location = here()};
    CUdeviceptr pointer = 0;
    CUresult result;
    size_t pitch;
    switch (kind) {
    case LINEAR:
        result = load_cuda.cuMemAlloc_v2(&pointer, bytes);
        break;
    case PITCHED:
        result = worker_cuda.cuMemAllocPitch_v2(
            &pointer, &pitch, PITCHED_WIDTH, bytes / PITCHED_WIDTH, 4);
        break;
    case ASYNC:
    case POOL:
        result = kind == POOL ? worker_cuda.cuMemAllocFromPoolAsync(&pointer, bytes, pool, NULL)
                              : worker_cuda.cuMemAllocAsync(&pointer, bytes, NULL);
        if (result == CUDA_SUCCESS)
            result = load_cuda.cuCtxSynchronize();
        break;
    case MANAGED:
        result = worker_cuda.cuMemAllocManaged(&pointer, bytes, CU_MEM_ATTACH_GLOBAL);
        break;
    case ARRAY:
    case ARRAY_3D:
    case MIPMAPPED:
        return take_array(kind, one, bytes);
    case VIRTUAL:
        return worker_cuda.cuMemCreate(
            (CUmemGenericAllocationHandle *)&one->handle, bytes, &property, 0);
    case GRAPH:
        return take_graph(one, bytes);
    default:
        return take_local();
    }
    one->handle = pointer;
    return result;
}

static void give_back(enum kind kind, const struct held *one)
{
    switch (kind) {
    case ASYNC:
    case POOL:
        WORKER_CALL(cuMemFreeAsync, one->handle, NULL);
        break;
    case ARRAY:
    case ARRAY_3D:
        WORKER_CALL(cuArrayDestroy, (CUarray)(uintptr_t)one->handle);
        break;
    case MIPMAPPED:
        WORKER_CALL(cuMipmappedArrayDestroy, (CUmipmappedArray)(uintptr_t)one->handle);
        break;
    case VIRTUAL:
        WORKER_CALL(cuMemRelease, one->handle);
        break;
    case GRAPH:
        WORKER_CALL(cuMemFreeAsync, one->node, NULL);
        WORKER_CALL(cuGraphExecDestroy, (CUgraphExec)(uintptr_t)one->handle);
        WORKER_CALL(cuGraphDestroy, one->graph);
        break;
    default:
        WORKER_CALL(cuMemFree_v2, one->handle);
    }
}

/* Until it is refused, in ever smaller pieces, or has `most` bytes; whether it was refused. */
static bool take_all(enum kind kind, size_t chunk, uint64_t most)
{
    while (held_bytes < most && held_count < HANDLES_MOST) {
        struct held *one = &held[held_count];
        CUresult result = take(kind, one, chunk);
        if (kind == LOCAL)
            return result != CUDA_SUCCESS;
        if (result == CUDA_SUCCESS) {
            one->bytes = chunk;
            held_count++;
            held_bytes += chunk;
        } else if (result != CUDA_ERROR_OUT_OF_MEMORY) {
            load_check(result, kind_names[kind]);
        } else if (chunk / 2 < LEAST_BYTES) {
            return true;
        } else {
            chunk /= 2;
        }
    }
    return false;
}

static void free_all(enum kind kind)
{
    for (size_t i = 0; i < held_count; i++)
        give_back(kind, &held[i]);
    held_count = 0;
    held_bytes = 0;
    LOAD_CALL(cuCtxSynchronize);
    if (kind == GRAPH)
        WORKER_CALL(cuDeviceGraphMemTrim, device.device);
    if (kind == POOL)
        WORKER_CALL(cuMemPoolTrimTo, pool, 0);
}

static void open_device(void)
{
    worker_open();
    load_device_open(&device, 0);
}

static void say_number(const char *word, uint64_t number)
{
    printf("%s %llu\n", word, (unsigned long long)number);
    fflush(stdout);
}

static uint64_t told_bytes(void)
{
    size_t free_bytes, total;
    WORKER_CALL(cuMemGetInfo_v2, &free_bytes, &total);
    return total - free_bytes;
}

static void need(enum kind kind)
{
    CUmemPoolProps props = {.allocType = CU_MEM_ALLOCATION_TYPE_PINNED, .location = here()};
    const void *const needed[KINDS] = {(void *)1, (void *)worker_cuda.cuMemAllocPitch_v2,
        (void *)worker_cuda.cuMemAllocAsync, (void *)worker_cuda.cuMemAllocFromPoolAsync,
        (void *)worker_cuda.cuMemAllocManaged, (void *)worker_cuda.cuArrayCreate_v2,
        (void *)worker_cuda.cuArray3DCreate_v2, (void *)worker_cuda.cuMipmappedArrayCreate,
        (void *)worker_cuda.cuMemCreate, (void *)worker_cuda.cuGraphAddMemAllocNode, (void *)1};
    if (!needed[kind])
        load_fail("this driver lacks this kind of allocation");
    if (kind == POOL)
        WORKER_CALL(cuMemPoolCreate, &pool, &props);
}

/* KIND CHUNK MOST: writes "given", "refused" (1, or 0 where it has MOST), "told" (what cuMemGetInfo
 * says is used), waits for a line, frees all, and writes "again": what it was given the second
 * time. */
int worker_refuse(int argc, char **argv)
{
    if (argc < 3)
        load_fail("refuse: KIND CHUNK MOST");
    enum kind kind = kind_named(argv[0]);
    size_t chunk = strtoull(argv[1], NULL, 10), most = strtoull(argv[2], NULL, 10);
    open_device();
    need(kind);
    bool refused = take_all(kind, chunk, most);
    say_number("given", held_bytes);
    say_number("refused", refused);
    say_number("told", told_bytes());
    if (!worker_wait() || kind == LOCAL)
        return 0;
    free_all(kind);
    (void)take_all(kind, chunk, most);
    say_number("again", held_bytes);
    return 0;
}

/* KEY BYTES: the time of a refusal of BYTES */
int worker_refusal_time(int argc, char **argv)
{
    static uint64_t samples[REFUSALS];
    CUdeviceptr pointer;
    if (argc < 2)
        load_fail("refusal-time: KEY BYTES");
    open_device();
    for (unsigned i = 0; i < REFUSALS; i++) {
        uint64_t start = worker_now_ns();
        CUresult result = load_cuda.cuMemAlloc_v2(&pointer, strtoull(argv[1], NULL, 10));
        samples[i] = worker_now_ns() - start;
        if (result == CUDA_SUCCESS)
            load_fail("an allocation beyond the limit was not refused");
        if (result != CUDA_ERROR_OUT_OF_MEMORY)
            load_check(result, "cuMemAlloc");
    }
    worker_write_median(argv[0], samples, REFUSALS, 1e3);
    return 0;
}

/* BYTES: holds them, writes "held" and waits for the end of stdin */
int worker_hold(int argc, char **argv)
{
    CUdeviceptr pointer;
    if (argc < 1)
        load_fail("hold: BYTES");
    open_device();
    LOAD_CALL(cuMemAlloc_v2, &pointer, strtoull(argv[0], NULL, 10));
    say_number("held", strtoull(argv[0], NULL, 10));
    while (worker_wait()) {
    }
    return 0;
}

/* CHUNK MOST: writes "ready", and on a line takes all it can get at once; then as hold */
int worker_race(int argc, char **argv)
{
    if (argc < 2)
        load_fail("race: CHUNK MOST");
    open_device();
    say_number("ready", 0);
    if (!worker_wait())
        return 0;
    (void)take_all(LINEAR, strtoull(argv[0], NULL, 10), strtoull(argv[1], NULL, 10));
    say_number("given", held_bytes);
    while (worker_wait()) {
    }
    return 0;
}

/* BYTES: is refused, writes "ready", and tries until it gets them; writes "back" with the time */
int worker_retry(int argc, char **argv)
{
    CUdeviceptr pointer;
    if (argc < 1)
        load_fail("retry: BYTES");
    open_device();
    uint64_t bytes = strtoull(argv[0], NULL, 10), end = worker_now_ns() + RETRY_NS;
    if (load_cuda.cuMemAlloc_v2(&pointer, bytes) == CUDA_SUCCESS)
        load_fail("an allocation beyond the limit was not refused");
    say_number("ready", 0);
    while (load_cuda.cuMemAlloc_v2(&pointer, bytes) != CUDA_SUCCESS) {
        if (worker_now_ns() > end)
            load_fail("the memory of the killed process did not come back within 10 s");
        usleep(RETRY_US);
    }
    say_number("back", worker_now_ns());
    return 0;
}

/* Whether our input has ended, or has a line. */
static bool told_to_end(void)
{
    struct pollfd input = {.fd = STDIN_FILENO, .events = POLLIN};
    return poll(&input, 1, 0) > 0;
}

/* Writes "began" with the time, allocates and frees until its input ends, and writes how often in a
 * second. */
int worker_storm(int argc, char **argv)
{
    (void)argc;
    (void)argv;
    open_device();
    uint64_t begin = worker_now_ns();
    unsigned long count = 0, total = 0;
    say_number("began", begin);
    for (; !told_to_end(); count++) {
        CUdeviceptr pointers[8];
        size_t bytes = (size_t)MIB << count % 7;
        unsigned got = 0;
        while (got < 8 && load_cuda.cuMemAlloc_v2(&pointers[got], bytes) == CUDA_SUCCESS)
            got++;
        total += got;
        while (got)
            WORKER_CALL(cuMemFree_v2, pointers[--got]);
    }
    if (!total)
        load_fail("none of its allocations was granted");
    worker_write(
        "tenants.storm.rate", (double)total / ((double)(worker_now_ns() - begin) / 1e9), total);
    return 0;
}
