/* SPDX-License-Identifier: Apache-2.0 */
/* Fills, and copies on the card: they are held to the limit and charged as kernels are, in each of
 * their forms; copies to and from the host, or to another card, are not. */
#include "load.h"

#include "sim/machine/machine.h"

#define LIMIT_50 .environment = {"CUDA_DEVICE_SM_LIMIT=50"}
/* The simulator keeps no contents of transfers as large as that, and takes half a millisecond. */
#define BYTES GIB
#define SMALL_BYTES 4096u

static CUstream stream;
static CUdeviceptr target, source; /* BYTES each, on the card */
static CUarray array;              /* of one dimension */

static void begin(void)
{
    CUDA_ARRAY_DESCRIPTOR line = {
        .Width = 32768, .Format = CU_AD_FORMAT_UNSIGNED_INT8, .NumChannels = 1};
    load_begin(0);
    stream = load_stream();
    REQUIRE(CU(cuMemAlloc_v2)(&target, BYTES) == CUDA_SUCCESS);
    REQUIRE(CU(cuMemAlloc_v2)(&source, BYTES) == CUDA_SUCCESS);
    REQUIRE(CU(cuArrayCreate_v2)(&array, &line) == CUDA_SUCCESS);
}

/* ---- shares ---- */

static CUresult step_fill(struct load *load, uint64_t number)
{
    return CU(cuMemsetD32Async)(target, (unsigned)number, BYTES / 4, load->streams[0]);
}

static CUresult step_copy(struct load *load, uint64_t number)
{
    (void)number;
    return CU(cuMemcpyDtoDAsync_v2)(target, source, BYTES, load->streams[0]);
}

static CUresult step_copy_unified(struct load *load, uint64_t number)
{
    (void)number;
    return CU(cuMemcpyAsync)(target, source, BYTES / 8, load->streams[0]);
}

/* By turns, so that no fill lies between two timing events with a kernel on a busy stream. */
static CUresult step_between(struct load *load, uint64_t number)
{
    CUresult result = number % 2 ? load_launch(load->streams[0], 300 * US)
                                 : CU(cuMemsetD8Async)(target, 0, BYTES, load->streams[0]);
    CHECK_EQ(CU(cuStreamSynchronize)(load->streams[0]), CUDA_SUCCESS);
    return result;
}

static void check_share(CUresult (*step)(struct load *load, uint64_t number), unsigned percent)
{
    begin();
    struct load load = {.step = step, .streams = {stream}};
    load_check_share(&load, 0, percent);
}

BED_TEST("a program that only fills memory is held to its limit", LIMIT_50)
{
    check_share(step_fill, 50);
}

BED_TEST("so is one that only copies on the card", .environment = {"CUDA_DEVICE_SM_LIMIT=20"})
{
    check_share(step_copy, 20);
}

BED_TEST("also by calls that do not tell where their sides are", LIMIT_50)
{
    check_share(step_copy_unified, 50);
}

BED_TEST("and one that fills between its kernels", LIMIT_50)
{
    check_share(step_between, 50);
}

/* ---- each form ---- */

static const CUDA_MEMCPY2D *rows(CUmemorytype type)
{
    static CUDA_MEMCPY2D copy;
    copy = (CUDA_MEMCPY2D){.srcMemoryType = type,
        .srcDevice = source,
        .dstMemoryType = type,
        .dstDevice = target,
        .WidthInBytes = 65536,
        .Height = BYTES / 65536};
    return &copy;
}

static const CUDA_MEMCPY3D *layers(void)
{
    static CUDA_MEMCPY3D copy;
    copy = (CUDA_MEMCPY3D){.srcMemoryType = CU_MEMORYTYPE_DEVICE,
        .srcDevice = source,
        .dstMemoryType = CU_MEMORYTYPE_UNIFIED,
        .dstDevice = target,
        .WidthInBytes = 65536,
        .Height = 16,
        .Depth = BYTES / MIB};
    return &copy;
}

static const CUDA_MEMCPY3D_PEER *peer(void)
{
    static CUDA_MEMCPY3D_PEER copy;
    copy = (CUDA_MEMCPY3D_PEER){.srcMemoryType = CU_MEMORYTYPE_DEVICE,
        .srcDevice = source,
        .dstMemoryType = CU_MEMORYTYPE_DEVICE,
        .dstDevice = target,
        .WidthInBytes = 65536,
        .Height = 16,
        .Depth = BYTES / MIB};
    return &copy;
}

static size_t sizes[1] = {BYTES}, first[1] = {0};
static CUmemcpyAttributes attributes = {.srcAccessOrder = CU_MEMCPY_SRC_ACCESS_ORDER_STREAM};

static CUDA_MEMCPY3D_BATCH_OP *operation(void)
{
    static CUDA_MEMCPY3D_BATCH_OP copy;
    copy = (CUDA_MEMCPY3D_BATCH_OP){
        .src = {.type = CU_MEMCPY_OPERAND_TYPE_POINTER, .op.ptr.ptr = source},
        .dst = {.type = CU_MEMCPY_OPERAND_TYPE_POINTER, .op.ptr.ptr = target},
        .extent = {BYTES, 1, 1},
        .srcAccessOrder = CU_MEMCPY_SRC_ACCESS_ORDER_STREAM};
    return &copy;
}

static CUDA_FABRIC_COPY_BATCH_OP *fabric(void)
{
    static CUDA_FABRIC_COPY_BATCH_OP copy;
    copy = (CUDA_FABRIC_COPY_BATCH_OP){
        .src = {.type = CU_FABRIC_COPY_OPERAND_TYPE_POINTER, .op.ptr.ptr = source},
        .dst = {.type = CU_FABRIC_COPY_OPERAND_TYPE_POINTER, .op.ptr.ptr = target},
        .size = BYTES};
    return &copy;
}

static CUmemDecompressParams *packed(void)
{
    static CUmemDecompressParams list[2];
    for (int i = 0; i < 2; i++)
        list[i] = (CUmemDecompressParams){.srcNumBytes = MIB,
            .dstNumBytes = BYTES / 2,
            .src = (void *)(uintptr_t)source,
            .dst = (void *)(uintptr_t)(target + i * (BYTES / 2)),
            .algo = CU_MEM_DECOMPRESS_ALGORITHM_LZ4};
    return list;
}

struct form {
    const char *name;
    CUresult (*call)(void);
};

#define FORM(function, ...)                                                                        \
    static CUresult call_##function(void)                                                          \
    {                                                                                              \
        return CU(function)(__VA_ARGS__);                                                          \
    }
#include "card_forms.def"
#undef FORM

#define FORM(function, ...) {#function, call_##function},
static const struct form forms[] = {
#include "card_forms.def"
};
#undef FORM
#define FORM_COUNT (sizeof(forms) / sizeof(forms[0]))

/* Some of each, by twos: what is charged is what the machine was busy for. The computer may have
 * been busy elsewhere at one of them, so that a call that waits came back late, and the last are
 * charged by and by. */
static void check_form(const struct form *form)
{
    struct load_state from = load_state(0);
    int64_t called = 0;
    for (int i = 0; i < 20; i++) {
        uint64_t before = load_now_ns();
        CHECK_EQ(form->call(), CUDA_SUCCESS);
        called += (int64_t)(load_now_ns() - before);
        if (i % 2)
            CHECK_EQ(CU(cuCtxSynchronize)(), CUDA_SUCCESS);
    }
    load_settle();
    struct load_state to = load_state(0);
    int64_t busy = (int64_t)(to.busy_ns - from.busy_ns);
    int64_t measured = (int64_t)(to.measured_ns - from.measured_ns);
    int64_t charged = to.charged_ns - from.charged_ns;
    int64_t most = busy + (called > busy ? called : busy);
    bool sound = CHECK(busy > (int64_t)(8 * MS));
    sound &= CHECK(measured > busy / 2 && measured < most);
    sound &= CHECK(charged > busy / 2 && charged < most);
    if (!sound)
        dprintf(STDOUT_FILENO, "# %s: busy %lld us, measured %lld us, charged %lld us\n",
            form->name, (long long)(busy / 1000), (long long)(measured / 1000),
            (long long)(charged / 1000));
}

BED_TEST("each form of a fill and of a copy on the card is charged", LIMIT_50, .sim = "cuda=13050")
{
    begin();
    for (size_t i = 0; i < FORM_COUNT; i++)
        check_form(&forms[i]);
}

BED_TEST("fills that the call waits for are charged, too", LIMIT_50)
{
    unsigned yes = 1;
    begin();
    CHECK_EQ(
        CU(cuPointerSetAttribute)(&yes, CU_POINTER_ATTRIBUTE_SYNC_MEMOPS, target), CUDA_SUCCESS);
    check_form(&(struct form){"a fill that waits", call_cuMemsetD8_v2});
    check_form(&(struct form){"a fill of rows that waits", call_cuMemsetD2D32_v2_ptds});
}

static uint64_t events(void)
{
    return sim_calls("cuEventRecord");
}

/* Each is too short for its charge to be told, but some are measured. */
#define CHECK_MEASURED(function, ...)                                                              \
    do {                                                                                           \
        uint64_t before = events();                                                                \
        for (int i = 0; i < 1000; i++)                                                             \
            CHECK_EQ(CU(function)(__VA_ARGS__), CUDA_SUCCESS);                                     \
        CHECK(events() > before);                                                                  \
    } while (0)

BED_TEST("so are copies of arrays on the card", LIMIT_50)
{
    begin();
    CHECK_MEASURED(cuMemcpyAtoA_v2, array, 0, array, 16384, 16384);
    CHECK_MEASURED(cuMemcpyAtoA_v2_ptds, array, 0, array, 16384, 16384);
    CHECK_MEASURED(cuMemcpyAtoD_v2, target, array, 0, 32768);
    CHECK_MEASURED(cuMemcpyAtoD_v2_ptds, target, array, 0, 32768);
    CHECK_MEASURED(cuMemcpyDtoA_v2, array, 0, source, 32768);
    CHECK_MEASURED(cuMemcpyDtoA_v2_ptds, array, 0, source, 32768);
}

/* ---- what costs nothing ---- */

static CUdeviceptr host, elsewhere; /* BYTES each: the processor's, the other card's */

static void begin_elsewhere(void)
{
    CUcontext context, other;
    begin();
    REQUIRE(CU(cuCtxGetCurrent)(&context) == CUDA_SUCCESS);
    REQUIRE(CU(cuDevicePrimaryCtxRetain)(&other, 1) == CUDA_SUCCESS);
    REQUIRE(CU(cuCtxSetCurrent)(other) == CUDA_SUCCESS);
    REQUIRE(CU(cuMemAlloc_v2)(&elsewhere, BYTES) == CUDA_SUCCESS);
    REQUIRE(CU(cuCtxSetCurrent)(context) == CUDA_SUCCESS);
    void *memory = mmap(
        NULL, BYTES, PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS | MAP_NORESERVE, -1, 0);
    REQUIRE(memory != MAP_FAILED);
    host = (uintptr_t)memory;
}

static CUresult from_host(void)
{
    return CU(cuMemcpy)(target, host, BYTES);
}

static CUresult rows_from_host(void)
{
    CUDA_MEMCPY2D copy = *rows(CU_MEMORYTYPE_UNIFIED);
    copy.srcDevice = host;
    return CU(cuMemcpy2D_v2)(&copy);
}

static CUresult layers_to_host(void)
{
    CUDA_MEMCPY3D copy = *layers();
    copy.dstDevice = host;
    return CU(cuMemcpy3DAsync_v2)(&copy, stream);
}

static CUresult list_with_host(void)
{
    CUdeviceptr to[] = {source, target}, from[] = {target, host};
    size_t bytes[] = {MIB, BYTES};
    return CU(cuMemcpyBatchAsync_v2)(to, from, bytes, 2, &attributes, first, 1, stream);
}

static CUresult operation_to_host(void)
{
    CUDA_MEMCPY3D_BATCH_OP copy = *operation();
    copy.dst.op.ptr.ptr = host;
    return CU(cuMemcpy3DBatchAsync_v2)(1, &copy, 0, stream);
}

static CUresult to_other_card(void)
{
    return CU(cuMemcpyDtoDAsync_v2)(elsewhere, source, BYTES, stream);
}

static CUresult from_peer(void)
{
    return CU(cuMemcpyPeerAsync)(target, NULL, elsewhere, NULL, BYTES, stream);
}

/* Between kernels, some 40 ms on the stream. */
static void check_costs_little(CUresult (*call)(void))
{
    struct load_state from = load_state(0);
    for (int i = 0; i < 10; i++) {
        CHECK_EQ(load_launch(stream, 200 * US), CUDA_SUCCESS);
        if (i == 5)
            CHECK_EQ(call(), CUDA_SUCCESS);
    }
    load_settle();
    struct load_state to = load_state(0);
    int64_t busy = (int64_t)(to.busy_ns - from.busy_ns);
    CHECK((uint64_t)busy < 2 * MS + 100 * US);
    CHECK((int64_t)(to.measured_ns - from.measured_ns) < busy + (int64_t)(5 * MS));
    CHECK(to.charged_ns - from.charged_ns < busy + (int64_t)(5 * MS));
}

BED_TEST(
    "a copy from or to the host or another card costs next to nothing, whichever call makes it",
    .environment = {"CUDA_DEVICE_SM_LIMIT=50"}, .sim = "devices=2")
{
    CUresult (*const calls[])(void) = {from_host, rows_from_host, layers_to_host, list_with_host,
        operation_to_host, to_other_card, from_peer};
    begin_elsewhere();
    for (size_t i = 0; i < sizeof(calls) / sizeof(calls[0]); i++)
        check_costs_little(calls[i]);
}

BED_TEST("small fills are charged by estimate, not each measured", LIMIT_50)
{
    begin();
    for (int i = 0; i < 20; i++) {
        CHECK_EQ(CU(cuMemsetD8Async)(target, 0, SMALL_BYTES, stream), CUDA_SUCCESS);
        CHECK_EQ(CU(cuStreamSynchronize)(stream), CUDA_SUCCESS);
    }
    uint64_t before = events();
    for (unsigned i = 0; i < 2000; i++)
        CHECK_EQ(CU(cuMemsetD8Async)(target, 0, SMALL_BYTES - i, stream), CUDA_SUCCESS);
    CHECK(events() > before);
    CHECK(events() - before < 400);
}

static uint64_t questions(void)
{
    return sim_calls("cuPointerGetAttributes") + sim_calls("cuStreamIsCapturing") + events();
}

BED_TEST("without a limit nothing is asked or recorded", .sim = "cuda=13050")
{
    begin();
    uint64_t before = questions();
    for (size_t i = 0; i < 3 * FORM_COUNT; i++)
        CHECK_EQ(forms[i / 3].call(), CUDA_SUCCESS);
    CHECK_EQ(CU(cuCtxSynchronize)(), CUDA_SUCCESS);
    CHECK_EQ(questions() - before, 0);
}

BED_TEST("a limit that is set while a program only copies holds it")
{
    begin();
    struct load load = {.step = step_copy_unified, .streams = {stream}};
    load_run(&load, load_now_ns() + 100 * MS);
    load_set(0, 30);
    load_check_share(&load, 0, 30);
}

int main(int argc, char **argv)
{
    return check_run(argc, argv);
}
