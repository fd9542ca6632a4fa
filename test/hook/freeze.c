/* SPDX-License-Identifier: Apache-2.0 */
/* Freeze and give back: movable memory goes to the host and comes back at the same addresses, with
 * what was written there, and the account is exact at each end. */
#include "abi/cuda.h"
#include "bed.h"
#include "freeze.h"
#include "movable.h"
#include "sim/machine/machine.h"
#include "sweep.h"

#include <fcntl.h>
#include <pthread.h>
#include <signal.h>
#include <stdatomic.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>
#include <sys/syscall.h>
#include <sys/wait.h>
#include <time.h>
#include <unistd.h>

#define ON "CUDA_MEMORY_OVERSUBSCRIBE=true"
#define RANGES 12

static const uint64_t sizes[RANGES] = {1, 1000, 512 * 1024, MIB, MIB + 1, 3 * MIB, 32 * MIB,
    65 * MIB, 100 * MIB, 300 * MIB, 4096, 2 * MIB};

/* Until the process has nothing moved away any more. */
static bool comes_back(pid_t pid)
{
    for (unsigned ms = 0; ms < HANG_MS; ms++) {
        uint32_t seen;
        if (state_of(pid, &seen) == VGPU_RELEASE_IDLE)
            return true;
        bed_sleep_ms(1);
    }
    return false;
}

/* ---- memory with marks ---- */

static CUdeviceptr pointers[RANGES];

static void take_all(void)
{
    for (unsigned i = 0; i < RANGES; i++) {
        CHECK_EQ(CU(cuMemAlloc_v2)(&pointers[i], sizes[i]), CUDA_SUCCESS);
        write_marks(pointers[i], sizes[i], i);
    }
}

static void all_have_marks(void)
{
    for (unsigned i = 0; i < RANGES; i++)
        CHECK(has_marks(pointers[i], sizes[i], i));
}

static void give_all(void)
{
    for (unsigned i = 0; i < RANGES; i++)
        CHECK_EQ(CU(cuMemFree_v2)(pointers[i]), CUDA_SUCCESS);
}

/* What the account says of the card is what the simulator says. */
static void account_is_exact(void)
{
    if (!strcmp(bed_ledger(), "rm"))
        CHECK_EQ(usage()->bytes - usage()->spilled - usage()->managed, bed_card_bytes(0));
    CHECK_EQ(usage()->pending, 0);
}

/* ---- out and in ---- */

BED_TEST("memory goes to the host and comes back at the same addresses", .limit = "8GiB",
    .environment = {ON})
{
    bed_context(0);
    uint64_t base = usage()->bytes, card = bed_card_bytes(0);
    take_all();
    uint64_t full = usage()->bytes;
    CHECK_EQ(usage()->movable, full - base);
    for (int round = 0; round < 3; round++) {
        CHECK_EQ(order_done(VGPU_RELEASE_PAUSE), VGPU_RELEASE_DONE);
        CHECK_EQ(usage()->bytes, full);
        CHECK_EQ(usage()->spilled, full - base);
        CHECK_EQ(usage()->movable, 0);
        CHECK_EQ(slot_of(getpid())->released, full - base);
        CHECK_EQ(bed_card_bytes(0), card);
        account_is_exact();
        CHECK_EQ(order_done(VGPU_RELEASE_NONE), VGPU_RELEASE_IDLE);
        CHECK_EQ(usage()->spilled, 0);
        CHECK_EQ(usage()->bytes, full);
        CHECK_EQ(slot_of(getpid())->released, 0);
        account_is_exact();
        all_have_marks();
    }
    give_all();
    CHECK_EQ(usage()->bytes, base);
    CHECK_EQ(bed_card_bytes(0), card);
}

BED_TEST("what is written while it lies on the host is there when it is back", .limit = "8GiB",
    .environment = {ON})
{
    bed_context(0);
    take_all();
    uint32_t word = order(VGPU_RELEASE_PAUSE);
    CHECK_EQ(outcome(getpid(), word), VGPU_RELEASE_DONE);
    set_paused(true);
    all_have_marks();
    for (unsigned i = 0; i < RANGES; i++)
        write_marks(pointers[i], sizes[i], i + 100);
    CHECK(usage()->spilled > 0);
    set_paused(false);
    CHECK_EQ(order_done(VGPU_RELEASE_NONE), VGPU_RELEASE_IDLE);
    for (unsigned i = 0; i < RANGES; i++)
        CHECK(has_marks(pointers[i], sizes[i], i + 100));
    give_all();
}

BED_TEST("memory that is released on demand comes back with the next work", .limit = "8GiB",
    .environment = {ON})
{
    bed_context(0);
    take_all();
    uint64_t full = usage()->bytes;
    CHECK_EQ(order_done(VGPU_RELEASE_ON_DEMAND), VGPU_RELEASE_DONE);
    CHECK(usage()->spilled > 0);
    CHECK(has_marks(pointers[6], sizes[6], 6));
    CHECK_EQ(usage()->spilled, 0);
    CHECK(comes_back(getpid()));
    all_have_marks();
    CHECK_EQ(usage()->bytes, full);
    account_is_exact();
    give_all();
}

BED_TEST("memory at the limit moves without passing it", .limit = "1GiB", .environment = {ON})
{
    CUdeviceptr pointer, more;
    bed_context(0);
    uint64_t left = GIB - usage()->bytes;
    CHECK_EQ(CU(cuMemAlloc_v2)(&pointer, left / PAGE * PAGE), CUDA_SUCCESS);
    uint64_t full = usage()->bytes;
    CHECK_EQ(CU(cuMemAlloc_v2)(&more, PAGE), CUDA_ERROR_OUT_OF_MEMORY);
    write_marks(pointer, left / PAGE * PAGE, 3);
    CHECK_EQ(order_done(VGPU_RELEASE_PAUSE), VGPU_RELEASE_DONE);
    CHECK_EQ(usage()->bytes, full);
    CHECK_EQ(CU(cuMemAlloc_v2)(&more, PAGE), CUDA_ERROR_OUT_OF_MEMORY);
    CHECK_EQ(order_done(VGPU_RELEASE_NONE), VGPU_RELEASE_IDLE);
    CHECK_EQ(usage()->bytes, full);
    CHECK(has_marks(pointer, left / PAGE * PAGE, 3));
    CHECK(bed_stderr_lines("OOM") >= 1); /* once a second */
}

/* ---- host memory that is ready ---- */

#define INFO "LIBCUDA_LOG_LEVEL=3"

BED_TEST("host memory that memory came back from is ready for the next move", .limit = "8GiB",
    .environment = {ON, INFO})
{
    bed_context(0);
    take_all();
    CHECK_EQ(order_done(VGPU_RELEASE_PAUSE), VGPU_RELEASE_DONE);
    CHECK_EQ(bed_stderr_lines("; 0 MiB of that was ready"), 1);
    CHECK_EQ(order_done(VGPU_RELEASE_NONE), VGPU_RELEASE_IDLE);
    CHECK_EQ(order_done(VGPU_RELEASE_PAUSE), VGPU_RELEASE_DONE);
    CHECK_EQ(bed_stderr_lines("; 0 MiB of that was ready"), 1);
    uint64_t mib = usage()->spilled / MIB;
    char all[64];
    snprintf(all, sizeof(all), "; %llu MiB of that was ready", (unsigned long long)mib);
    CHECK_EQ(bed_stderr_lines(all), 1);
    CHECK_EQ(order_done(VGPU_RELEASE_NONE), VGPU_RELEASE_IDLE);
    all_have_marks();
    give_all();
}

BED_TEST("what is ready counts within VGPU_HOST_POOL, and goes before anything is refused",
    .limit = "8GiB", .sim = "h200,memory=4GiB", .environment = {ON, INFO, "VGPU_HOST_POOL=2g"})
{
    CUdeviceptr first, second;
    bed_context(0);
    CHECK_EQ(CU(cuMemAlloc_v2)(&first, 2 * GIB), CUDA_SUCCESS);
    write_marks(first, 2 * GIB, 5);
    CHECK_EQ(order_done(VGPU_RELEASE_PAUSE), VGPU_RELEASE_DONE);
    CHECK_EQ(order_done(VGPU_RELEASE_NONE), VGPU_RELEASE_IDLE);
    /* On the card is room for less than 2 GiB more: the rest takes the host memory. */
    CHECK_EQ(CU(cuMemAlloc_v2)(&second, 3 * GIB), CUDA_SUCCESS);
    CHECK(usage()->spilled > GIB);
    CHECK(has_marks(first, 2 * GIB, 5));
    CHECK_EQ(order_done(VGPU_RELEASE_PAUSE), VGPU_RELEASE_NO_ROOM);
    CHECK_EQ(order_done(VGPU_RELEASE_NONE), VGPU_RELEASE_IDLE);
    CHECK_EQ(CU(cuMemFree_v2)(second), CUDA_SUCCESS);
    CHECK_EQ(order_done(VGPU_RELEASE_PAUSE), VGPU_RELEASE_DONE);
    CHECK_EQ(order_done(VGPU_RELEASE_NONE), VGPU_RELEASE_IDLE);
    CHECK(has_marks(first, 2 * GIB, 5));
}

BED_TEST("VGPU_HOST_POOL_READY has host memory made before the first move", .limit = "8GiB",
    .environment = {ON, INFO, "VGPU_HOST_POOL_READY=512m"})
{
    CUdeviceptr pointer;
    bed_context(0);
    CHECK_EQ(CU(cuMemAlloc_v2)(&pointer, 512 * MIB), CUDA_SUCCESS);
    for (unsigned ms = 0; ms < HANG_MS && !bed_stderr_lines("512 MiB of host memory are ready");
         ms++)
        bed_sleep_ms(1);
    CHECK_EQ(order_done(VGPU_RELEASE_PAUSE), VGPU_RELEASE_DONE);
    CHECK_EQ(bed_stderr_lines("; 512 MiB of that was ready"), 1);
}

BED_TEST("a size of VGPU_HOST_POOL_READY that is none is said, and nothing is made ahead",
    .limit = "8GiB", .environment = {ON, INFO, "VGPU_HOST_POOL_READY=much"})
{
    CUdeviceptr pointer;
    bed_context(0);
    CHECK_EQ(bed_stderr_lines("VGPU_HOST_POOL_READY=\"much\" is not a size"), 1);
    CHECK_EQ(CU(cuMemAlloc_v2)(&pointer, 64 * MIB), CUDA_SUCCESS);
    CHECK_EQ(order_done(VGPU_RELEASE_PAUSE), VGPU_RELEASE_DONE);
    CHECK_EQ(bed_stderr_lines("; 0 MiB of that was ready"), 1);
}

BED_TEST("of memory that the card has no room for, what was on the card comes back",
    .limit = "8GiB", .sim = "h200,memory=2GiB", .environment = {ON})
{
    CUdeviceptr pointer[5];
    bed_context(0);
    for (unsigned i = 0; i < 5; i++) {
        CHECK_EQ(CU(cuMemAlloc_v2)(&pointer[i], 400 * MIB), CUDA_SUCCESS);
        write_marks(pointer[i], 400 * MIB, i);
    }
    uint64_t spilled = usage()->spilled, full = usage()->bytes;
    CHECK(spilled > 200 * MIB);
    CHECK_EQ(order_done(VGPU_RELEASE_PAUSE), VGPU_RELEASE_DONE);
    CHECK_EQ(usage()->spilled, 2000 * MIB);
    CHECK_EQ(order_done(VGPU_RELEASE_NONE), VGPU_RELEASE_IDLE);
    CHECK_EQ(usage()->spilled, spilled);
    CHECK_EQ(usage()->bytes, full);
    account_is_exact();
    for (unsigned i = 0; i < 5; i++)
        CHECK(has_marks(pointer[i], 400 * MIB, i));
}

BED_TEST("host memory beyond its budget is refused, and how much lacks is said", .limit = "8GiB",
    .environment = {ON, "VGPU_HOST_POOL=1000m"})
{
    CUdeviceptr pointer;
    bed_context(0);
    CHECK_EQ(CU(cuMemAlloc_v2)(&pointer, 1500 * MIB), CUDA_SUCCESS);
    CHECK_EQ(order_done(VGPU_RELEASE_PAUSE), VGPU_RELEASE_NO_ROOM);
    CHECK_EQ(slot_of(getpid())->lacking, 500 * MIB);
    CHECK_EQ(usage()->spilled, 0);
    write_marks(pointer, 1500 * MIB, 1); /* goes on */
    CHECK(has_marks(pointer, 1500 * MIB, 1));
}

/* ---- what stays ---- */

static CUfunction kernel_of(const char *name)
{
    static const char ptx[] = ".version 7.0\n.target sm_80\n.address_size 64\n"
                              ".visible .entry spin(.param .u64 duration_ns)\n{\nret;\n}\n"
                              ".visible .entry touch(.param .u64 duration_ns, "
                              ".param .u64 touched_at, .param .u64 touched_bytes)\n{\nret;\n}\n";
    CUmodule module;
    CUfunction function = NULL;
    CHECK_EQ(CU(cuModuleLoadData)(&module, ptx), CUDA_SUCCESS);
    CHECK_EQ(CU(cuModuleGetFunction)(&function, module, name), CUDA_SUCCESS);
    return function;
}

static void spin(CUfunction function, CUstream stream, uint64_t duration_ns)
{
    void *parameters[] = {&duration_ns};
    CHECK_EQ(
        CU(cuLaunchKernel)(function, 1, 1, 1, 1, 1, 1, 0, stream, parameters, NULL), CUDA_SUCCESS);
}

BED_TEST("beside a kernel that does not end nothing moves, and work goes on", .limit = "8GiB",
    .environment = {ON})
{
    bed_context(0);
    CUfunction function = kernel_of("spin");
    take_all();
    spin(function, NULL, 7000000000ull);
    CHECK_EQ(order_done(VGPU_RELEASE_PAUSE), VGPU_RELEASE_NOT_DRAINED);
    CHECK_EQ(usage()->spilled, 0);
    CHECK_EQ(bed_stderr_lines("its work on the GPU does not end"), 1);
    spin(function, NULL, 1000);
    CHECK_EQ(CU(cuCtxSynchronize)(), CUDA_SUCCESS);
    CHECK_EQ(order_done(VGPU_RELEASE_PAUSE), VGPU_RELEASE_DONE);
    CHECK(usage()->spilled > 0);
    CHECK_EQ(order_done(VGPU_RELEASE_NONE), VGPU_RELEASE_IDLE);
    all_have_marks();
}

BED_TEST("a capture is not broken, and what is ordered waits for its end", .limit = "8GiB",
    .environment = {ON})
{
    CUstream stream;
    CUgraph graph;
    CUgraphExec exec;
    bed_context(0);
    CUfunction function = kernel_of("spin");
    take_all();
    CHECK_EQ(CU(cuStreamCreate)(&stream, CU_STREAM_NON_BLOCKING), CUDA_SUCCESS);
    CHECK_EQ(CU(cuStreamBeginCapture_v2)(stream, CU_STREAM_CAPTURE_MODE_GLOBAL), CUDA_SUCCESS);
    uint32_t word = order(VGPU_RELEASE_ON_DEMAND);
    for (unsigned i = 0; i < 20; i++) {
        spin(function, stream, 1000);
        bed_sleep_ms(5);
    }
    CHECK_EQ(usage()->spilled, 0);
    CHECK_EQ(CU(cuStreamEndCapture)(stream, &graph), CUDA_SUCCESS);
    CHECK_EQ(outcome(getpid(), word), VGPU_RELEASE_DONE);
    CHECK(usage()->spilled > 0);
    CHECK_EQ(CU(cuGraphInstantiateWithFlags)(&exec, graph, 0), CUDA_SUCCESS);
    CHECK_EQ(CU(cuGraphLaunch)(exec, stream), CUDA_SUCCESS);
    CHECK_EQ(CU(cuStreamSynchronize)(stream), CUDA_SUCCESS);
    CHECK_EQ(usage()->spilled, 0);
    all_have_marks();
}

BED_TEST("memory that was exported stays on the card", .limit = "8GiB", .environment = {ON})
{
    CUdeviceptr shared, own;
    int fd = -1;
    bed_context(0);
    uint64_t base = usage()->bytes;
    CHECK_EQ(CU(cuMemAlloc_v2)(&shared, 10 * MIB), CUDA_SUCCESS);
    CHECK_EQ(CU(cuMemAlloc_v2)(&own, 20 * MIB), CUDA_SUCCESS);
    write_marks(shared, 10 * MIB, 1);
    CHECK_EQ(CU(cuMemGetHandleForAddressRange)(
                 &fd, shared, 10 * MIB, CU_MEM_RANGE_HANDLE_TYPE_DMA_BUF_FD, 0),
        CUDA_SUCCESS);
    CHECK_EQ(order_done(VGPU_RELEASE_PAUSE), VGPU_RELEASE_DONE);
    CHECK_EQ(usage()->spilled, 20 * MIB);
    CHECK_EQ(usage()->bytes, base + 30 * MIB);
    CHECK_EQ(order_done(VGPU_RELEASE_NONE), VGPU_RELEASE_IDLE);
    CHECK(has_marks(shared, 10 * MIB, 1));
    close(fd);
}

BED_TEST("memory that a program prepares for RDMA stays where it is", .limit = "8GiB",
    .environment = {ON})
{
    CUdeviceptr reached, own;
    unsigned yes = 1;
    bed_context(0);
    CHECK_EQ(CU(cuMemAlloc_v2)(&reached, 10 * MIB), CUDA_SUCCESS);
    CHECK_EQ(CU(cuMemAlloc_v2)(&own, 20 * MIB), CUDA_SUCCESS);
    CHECK_EQ(CU(cuPointerSetAttribute)(&yes, CU_POINTER_ATTRIBUTE_SYNC_MEMOPS, reached + 5 * MIB),
        CUDA_SUCCESS);
    for (int i = 0; i < 2; i++) {
        CHECK_EQ(order_done(VGPU_RELEASE_PAUSE), VGPU_RELEASE_DONE);
        CHECK_EQ(usage()->spilled, 20 * MIB);
        CHECK_EQ(order_done(VGPU_RELEASE_NONE), VGPU_RELEASE_IDLE);
    }
    CHECK_EQ(CU(cuMemFree_v2)(reached), CUDA_SUCCESS);
    account_is_exact();
}

BED_TEST("peers reach memory that has moved", .limit = "8GiB", .sim = "2xh200", .environment = {ON})
{
    CUcontext first, second;
    CUdeviceptr pointer;
    CUmemLocation location = {.type = CU_MEM_LOCATION_TYPE_DEVICE, .id = 1};
    unsigned long long flags = 7;
    bed_context(1);
    CHECK_EQ(CU(cuCtxGetCurrent)(&second), CUDA_SUCCESS);
    bed_context(0);
    CHECK_EQ(CU(cuCtxGetCurrent)(&first), CUDA_SUCCESS);
    CHECK_EQ(CU(cuMemAlloc_v2)(&pointer, 100 * MIB), CUDA_SUCCESS);
    CHECK_EQ(CU(cuCtxSetCurrent)(second), CUDA_SUCCESS);
    CHECK_EQ(CU(cuCtxEnablePeerAccess)(first, 0), CUDA_SUCCESS);
    for (int i = 0; i < 2; i++) {
        CHECK_EQ(order_done(i ? VGPU_RELEASE_NONE : VGPU_RELEASE_PAUSE),
            i ? VGPU_RELEASE_IDLE : VGPU_RELEASE_DONE);
        CHECK_EQ(CU(cuMemGetAccess)(&flags, &location, pointer + 64 * MIB), CUDA_SUCCESS);
        CHECK_EQ(flags, CU_MEM_ACCESS_FLAGS_PROT_READWRITE);
    }
}

BED_TEST("memory is freed, and contexts end, while it lies on the host", .limit = "8GiB",
    .environment = {ON})
{
    CUcontext context;
    CUdeviceptr pointer;
    bed_context(0);
    uint64_t base = usage()->bytes;
    take_all();
    CHECK_EQ(CU(cuCtxCreate_v2)(&context, 0, 0), CUDA_SUCCESS);
    CHECK_EQ(CU(cuMemAlloc_v2)(&pointer, 50 * MIB), CUDA_SUCCESS);
    CHECK_EQ(order_done(VGPU_RELEASE_ON_DEMAND), VGPU_RELEASE_DONE);
    CHECK_EQ(CU(cuCtxDestroy_v2)(context), CUDA_SUCCESS);
    bed_context(0);
    give_all();
    CHECK_EQ(usage()->spilled, 0);
    CHECK_EQ(usage()->bytes, base);
    CHECK_EQ(order_done(VGPU_RELEASE_NONE), VGPU_RELEASE_IDLE);
    account_is_exact();
}

/* ---- without an order ---- */

BED_TEST("memory of a program that idles goes to the host, and comes back with its next work",
    .limit = "8GiB", .environment = {ON, "VGPU_IDLE_RELEASE=1"})
{
    bed_context(0);
    take_all();
    uint64_t full = usage()->bytes;
    for (unsigned ms = 0; ms < HANG_MS && !slot_of(getpid())->released; ms++)
        bed_sleep_ms(1);
    CHECK(usage()->spilled > 0);
    CHECK_EQ(usage()->movable, 0);
    CHECK_EQ(usage()->bytes, full);
    all_have_marks();
    CHECK_EQ(usage()->spilled, 0);
}

/* ---- threads that work meanwhile ---- */

#define WORKERS 4
#define WORKER_BYTES (6 * MIB)

static _Atomic bool enough;
static _Atomic unsigned rounds_done[WORKERS];
static CUcontext common;
static CUfunction touching;

/* Each adds to all pages of its memory by kernels, and to a word by copies. */
static void *work(void *argument)
{
    unsigned number = (unsigned)(uintptr_t)argument;
    uint64_t duration_ns = 20000, bytes = WORKER_BYTES, counted = 0;
    CUdeviceptr pages, word;
    CUstream stream;
    CHECK_EQ(CU(cuCtxSetCurrent)(common), CUDA_SUCCESS);
    CHECK_EQ(CU(cuStreamCreate)(&stream, CU_STREAM_NON_BLOCKING), CUDA_SUCCESS);
    CHECK_EQ(CU(cuMemAlloc_v2)(&pages, bytes), CUDA_SUCCESS);
    CHECK_EQ(CU(cuMemAlloc_v2)(&word, 8), CUDA_SUCCESS);
    CHECK_EQ(CU(cuMemsetD8_v2)(pages, 0, bytes), CUDA_SUCCESS);
    CHECK_EQ(CU(cuMemcpyHtoD_v2)(word, &counted, 8), CUDA_SUCCESS);
    uint64_t launches = 0;
    void *parameters[] = {&duration_ns, &pages, &bytes};
    while (!enough) {
        uint64_t seen = UINT64_MAX;
        CHECK_EQ(CU(cuLaunchKernel)(touching, 1, 1, 1, 1, 1, 1, 0, stream, parameters, NULL),
            CUDA_SUCCESS);
        launches++;
        if (!CHECK_EQ(CU(cuMemcpyDtoH_v2)(&seen, word, 8), CUDA_SUCCESS) ||
            !CHECK_EQ(seen, counted))
            break;
        counted++;
        CHECK_EQ(CU(cuMemcpyHtoD_v2)(word, &counted, 8), CUDA_SUCCESS);
        if (launches % 8 == 0)
            CHECK_EQ(CU(cuStreamSynchronize)(stream), CUDA_SUCCESS);
        rounds_done[number]++;
    }
    CHECK_EQ(CU(cuStreamSynchronize)(stream), CUDA_SUCCESS);
    for (uint64_t at = 0; at < bytes; at += 4096) {
        uint64_t seen = 0;
        CHECK_EQ(CU(cuMemcpyDtoH_v2)(&seen, pages + at, 8), CUDA_SUCCESS);
        if (!CHECK_EQ(seen, launches))
            break;
    }
    CHECK_EQ(CU(cuMemFree_v2)(word), CUDA_SUCCESS);
    CHECK_EQ(CU(cuMemFree_v2)(pages), CUDA_SUCCESS);
    return NULL;
}

/* Asks what the driver answers of a mapping, while that is another. */
static void *ask(void *argument)
{
    CUdeviceptr pointer = *(CUdeviceptr *)argument;
    CHECK_EQ(CU(cuCtxSetCurrent)(common), CUDA_SUCCESS);
    for (bool goes_on = true; goes_on && !enough;) {
        unsigned alone = 0, listed = 0, type = 0;
        CUpointer_attribute attributes[] = {
            CU_POINTER_ATTRIBUTE_SYNC_MEMOPS, CU_POINTER_ATTRIBUTE_MEMORY_TYPE};
        void *data[] = {&listed, &type};
        goes_on =
            CHECK_EQ(CU(cuPointerGetAttribute)(&alone, attributes[0], pointer), CUDA_SUCCESS) &&
            CHECK_EQ(CU(cuPointerGetAttributes)(2, attributes, data, pointer), CUDA_SUCCESS) &&
            CHECK_EQ(type, CU_MEMORYTYPE_DEVICE);
    }
    return NULL;
}

static unsigned all_rounds(void)
{
    unsigned sum = 0;
    for (unsigned i = 0; i < WORKERS; i++)
        sum += rounds_done[i];
    return sum;
}

BED_TEST("threads that launch and copy lose nothing while memory moves at random moments",
    .limit = "8GiB", .environment = {ON})
{
    pthread_t threads[WORKERS], asks;
    unsigned seed = 20261127, moves = 0;
    bed_context(0);
    CHECK_EQ(CU(cuCtxGetCurrent)(&common), CUDA_SUCCESS);
    uint64_t base = usage()->bytes;
    touching = kernel_of("touch");
    uint64_t module = usage()->bytes - base;
    for (uintptr_t i = 0; i < WORKERS; i++)
        REQUIRE(pthread_create(&threads[i], NULL, work, (void *)i) == 0);
    CUdeviceptr asked = take(300 * MIB);
    REQUIRE(pthread_create(&asks, NULL, ask, &asked) == 0);
    while (all_rounds() < 100)
        bed_sleep_ms(1);
    for (unsigned round = 0; round < 40; round++) {
        seed = seed * 1103515245u + 12345u;
        bool waits = seed >> 16 & 1;
        unsigned before = all_rounds();
        enum vgpu_release_state state =
            order_done(waits ? VGPU_RELEASE_PAUSE : VGPU_RELEASE_ON_DEMAND);
        /* On demand it may be back already. */
        state = !waits && state == VGPU_RELEASE_IDLE ? VGPU_RELEASE_DONE : state;
        moves += state == VGPU_RELEASE_DONE;
        CHECK(state == VGPU_RELEASE_DONE || state == VGPU_RELEASE_NOT_DRAINED);
        bed_sleep_ms(seed >> 20 & 7);
        if (waits)
            CHECK_EQ(order_done(VGPU_RELEASE_NONE), VGPU_RELEASE_IDLE);
        while (all_rounds() < before + 20)
            bed_sleep_ms(1);
    }
    enough = true;
    for (unsigned i = 0; i < WORKERS; i++)
        pthread_join(threads[i], NULL);
    pthread_join(asks, NULL);
    give(asked);
    CHECK(moves > 30);
    CHECK(comes_back(getpid()));
    CHECK_EQ(usage()->spilled, 0);
    CHECK_EQ(usage()->bytes, base + module);
    account_is_exact();
}

/* ---- ends ---- */

static void look_at_inherited(void *argument)
{
    (void)argument;
    CHECK(CU(cuMemFree_v2)(pointers[6]) != CUDA_SUCCESS);
    CHECK(CU(cuMemcpyHtoD_v2)(pointers[6], &argument, 8) != CUDA_SUCCESS);
    exit(0);
}

BED_TEST("a child that is forked while memory lies on the host has none of it, and does not hang",
    .limit = "8GiB", .environment = {ON})
{
    bed_context(0);
    take_all();
    CHECK_EQ(order_done(VGPU_RELEASE_ON_DEMAND), VGPU_RELEASE_DONE);
    CHECK(bed_ended_well(bed_fork(look_at_inherited, NULL)));
    CHECK(usage()->spilled > 0);
    all_have_marks();
    CHECK_EQ(usage()->spilled, 0);
}

static void *launch_one(void *argument)
{
    CHECK_EQ(CU(cuCtxSetCurrent)(common), CUDA_SUCCESS);
    spin(argument, NULL, 1000);
    return NULL;
}

/* Another process of the container, which no dead one's bytes may hinder. */
static void take_the_limit(void *argument)
{
    CUdeviceptr pointer;
    (void)argument;
    bed_context(0);
    uint64_t left = 8 * GIB - usage()->bytes;
    CHECK_EQ(CU(cuMemAlloc_v2)(&pointer, left / PAGE * PAGE), CUDA_SUCCESS);
    CHECK_EQ(CU(cuMemFree_v2)(pointer), CUDA_SUCCESS);
    account_is_exact();
    CHECK_EQ(bed_region_bytes(0), usage()->bytes);
    exit(0);
}

/* Its thread is held back by the order, which nobody ends. */
static void exit_while_held(void *argument)
{
    pthread_t thread;
    (void)argument;
    bed_context(0);
    CHECK_EQ(CU(cuCtxGetCurrent)(&common), CUDA_SUCCESS);
    CUfunction function = kernel_of("spin");
    take_all();
    CHECK_EQ(order_done(VGPU_RELEASE_PAUSE), VGPU_RELEASE_DONE);
    REQUIRE(pthread_create(&thread, NULL, launch_one, function) == 0);
    bed_sleep_ms(50);
    exit(0);
}

BED_TEST("a process ends whose thread waits for memory to come back", .limit = "8GiB",
    .environment = {ON})
{
    CHECK(bed_ended_well(bed_fork(exit_while_held, NULL)));
    CHECK(bed_ended_well(bed_fork(take_the_limit, NULL)));
}

/* Shared with a process that holds memory. */
static volatile struct holder {
    bool is_ready, is_to_execute;
} * holder;

static void hold(void *argument)
{
    (void)argument;
    bed_context(0);
    take_all();
    holder->is_ready = true;
    while (!holder->is_to_execute)
        usleep(100);
    execl("/bin/sleep", "sleep", "100", (char *)NULL);
    _exit(127);
}

static pid_t start_holder(void)
{
    if (!holder)
        holder = mmap(NULL, 4096, PROT_READ | PROT_WRITE, MAP_SHARED | MAP_ANONYMOUS, -1, 0);
    holder->is_ready = holder->is_to_execute = false;
    pid_t pid = bed_fork(hold, NULL);
    for (unsigned ms = 0; ms < HANG_MS && !holder->is_ready; ms++)
        bed_sleep_ms(1);
    return pid;
}

static void kill_and_wait(pid_t pid)
{
    int status;
    kill(pid, SIGKILL);
    REQUIRE(waitpid(pid, &status, 0) == pid);
}

/* A process whose memory is at a random moment of its way to the host, or each third time of its
 * way back. */
static pid_t start_moving(unsigned number, unsigned *seed)
{
    pid_t pid = start_holder();
    uint32_t word = order(VGPU_RELEASE_ON_DEMAND);
    *seed = *seed * 1103515245u + 12345u;
    if (number % 3 == 2) {
        (void)outcome(pid, word);
        (void)order(VGPU_RELEASE_NONE);
    }
    usleep((*seed >> 12) % 200000);
    return pid;
}

BED_TEST("a process that is killed while its memory moves leaves nothing charged", .limit = "8GiB",
    .environment = {ON})
{
    unsigned seed = 7;
    for (unsigned i = 0; i < 12; i++) {
        pid_t pid = start_moving(i, &seed);
        kill_and_wait(pid);
        CHECK(bed_ended_well(bed_fork(take_the_limit, NULL)));
    }
}

static bool sleeps(pid_t pid)
{
    char path[64], name[16] = "";
    snprintf(path, sizeof(path), "/proc/%d/comm", (int)pid);
    int fd = open(path, O_RDONLY | O_CLOEXEC);
    if (fd >= 0 && read(fd, name, sizeof(name) - 1) < 0)
        name[0] = '\0';
    close(fd);
    return !strcmp(name, "sleep\n");
}

BED_TEST("a process that executes another program while its memory moves leaves nothing charged",
    .limit = "8GiB", .environment = {ON})
{
    unsigned seed = 11;
    for (unsigned i = 0; i < 12; i++) {
        pid_t pid = start_moving(i, &seed);
        holder->is_to_execute = true;
        for (unsigned ms = 0; ms < HANG_MS && !sleeps(pid); ms++)
            bed_sleep_ms(1);
        CHECK(bed_ended_well(bed_fork(take_the_limit, NULL)));
        kill_and_wait(pid);
    }
}

BED_TEST("a process that is stopped in the midst of a move goes on with it", .limit = "8GiB",
    .environment = {ON})
{
    pid_t pid = start_holder();
    uint32_t word = order(VGPU_RELEASE_ON_DEMAND);
    usleep(5000);
    kill(pid, SIGSTOP);
    bed_sleep_ms(300);
    kill(pid, SIGCONT);
    CHECK_EQ(outcome(pid, word), VGPU_RELEASE_DONE);
    kill_and_wait(pid);
}

/* ---- each call of a move fails in turn ---- */

static const char *const steps[] = {"cuMemCreate", "cuMemAddressReserve", "cuMemMap",
    "cuMemSetAccess", "cuStreamCreate", "cuMemcpyDtoDAsync_v2", "cuStreamSynchronize", "cuMemUnmap",
    "cuMemRelease", "cuMemAddressFree", "cuStreamDestroy_v2", "cuCtxPushCurrent_v2"};

/* A block of small ones, one part, and one that is moved in pieces. */
static const uint64_t few[] = {1000, 3 * MIB, 65 * MIB};
#define FEW (sizeof(few) / sizeof(few[0]))

static void few_have_marks(void)
{
    for (unsigned i = 0; i < FEW; i++)
        CHECK(has_marks(pointers[i], few[i], i));
}

/* One that was killed leaves its order and its pause to the container. */
static void begin_anew(void)
{
    if (bed_region()) {
        set_paused(false);
        (void)order(VGPU_RELEASE_NONE);
    }
}

static void move_while_failing(void *argument)
{
    const struct failing *failing = argument;
    char path[256], rule[128];
    begin_anew();
    snprintf(path, sizeof(path), "%s/machine-%s-%u", bed_directory(), failing->step, failing->nth);
    setenv("VGPU_SIM_MACHINE", path, 1);
    snprintf(rule, sizeof(rule), "fail=%s:%u:%u", failing->step, failing->nth, failing->code);
    setenv("VGPU_SIM", failing->nth ? rule : "", 1);
    bed_context(0);
    for (unsigned i = 0; i < FEW; i++) {
        CHECK_EQ(CU(cuMemAlloc_v2)(&pointers[i], few[i]), CUDA_SUCCESS);
        write_marks(pointers[i], few[i], i);
    }
    uint64_t full = usage()->bytes, first = sim_calls(failing->step);
    enum vgpu_release_state state = order_done(VGPU_RELEASE_PAUSE);
    CHECK(state == VGPU_RELEASE_DONE || state == VGPU_RELEASE_PARTLY);
    CHECK_EQ(usage()->bytes, full);
    set_paused(true);
    few_have_marks();
    account_is_exact();
    set_paused(false);
    state = order_done(VGPU_RELEASE_NONE);
    CHECK(state == VGPU_RELEASE_IDLE || state == VGPU_RELEASE_PARTLY);
    if (!failing->nth) {
        CHECK_EQ(state, VGPU_RELEASE_IDLE);
        *failing->ret_first = first;
        *failing->ret_last = sim_calls(failing->step);
    }
    few_have_marks();
    account_is_exact();
    CHECK_EQ(usage()->bytes, full);
    for (unsigned i = 0; i < FEW; i++)
        CHECK_EQ(CU(cuMemFree_v2)(pointers[i]), CUDA_SUCCESS);
    CHECK_EQ(usage()->spilled, 0);
    account_is_exact();
    unlink(path);
    exit(0);
}

BED_TEST("whichever call of a move fails, no byte is lost and the account is exact",
    .limit = "4GiB", .environment = {ON})
{
    for (unsigned i = 0; i < sizeof(steps) / sizeof(steps[0]); i++)
        sweep_failing(steps[i], move_while_failing);
}

BED_TEST("killed before any call of a move it leaves nothing charged, stopped there it goes on",
    .limit = "8GiB", .environment = {ON})
{
    for (unsigned i = 0; i < sizeof(steps) / sizeof(steps[0]); i++) {
        sweep_signals(steps[i], move_while_failing);
        begin_anew();
        CHECK(bed_ended_well(bed_fork(take_the_limit, NULL)));
    }
}

int main(int argc, char **argv)
{
    return check_run(argc, argv);
}
