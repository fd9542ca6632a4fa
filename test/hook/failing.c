/* SPDX-License-Identifier: Apache-2.0 */
/* The driver refuses a call on demand: its code is returned, no byte stays charged or is given back
 * too much, and the next call works. */
#include "allocate.h"
#include "bed.h"

#define LIMIT "40GiB"
#define SIZE (64 * MIB)

/* For a process that has not used the driver yet. */
static void fail(const char *function, const char *rule)
{
    char text[512];
    const char *sim = getenv("VGPU_SIM");
    snprintf(text, sizeof(text), "%s%sfail=%s:%s", sim ? sim : "", sim && *sim ? "," : "", function,
        rule);
    setenv("VGPU_SIM", text, 1);
}

struct act {
    const struct allocation_kind *kind;
    unsigned code;
};

static void failing_make(void *argument)
{
    const struct act *act = argument;
    char rule[32];
    uint64_t handle;
    snprintf(rule, sizeof(rule), "2:%u", act->code);
    fail(act->kind->function, rule);
    bed_context(0);
    CHECK_EQ(act->kind->make(SIZE, &handle), CUDA_SUCCESS);
    CHECK_EQ(act->kind->drop(handle), CUDA_SUCCESS);
    uint64_t before = allocation_charged();
    CUresult result = act->kind->make(SIZE, &handle);
    /* A pool may have been emptied for a second attempt, which the rule then lets pass. */
    bool again = result == CUDA_SUCCESS && act->code == CUDA_ERROR_OUT_OF_MEMORY;
    if (!again && !CHECK_EQ(result, act->code))
        dprintf(STDOUT_FILENO, "# %s\n", act->kind->function);
    if (again)
        CHECK_EQ(act->kind->drop(handle), CUDA_SUCCESS);
    if (!CHECK_EQ(allocation_charged(), before))
        dprintf(STDOUT_FILENO, "# %s answers %u\n", act->kind->function, act->code);
    CHECK_EQ(act->kind->make(SIZE, &handle), CUDA_SUCCESS);
    CHECK_EQ(act->kind->drop(handle), CUDA_SUCCESS);
    CHECK_EQ(allocation_charged(), before);
}

BED_TEST("an allocation that fails returns the driver's code and leaves no charge", .limit = LIMIT)
{
    static const unsigned codes[] = {
        CUDA_ERROR_OUT_OF_MEMORY, CUDA_ERROR_LAUNCH_FAILED, CUDA_ERROR_UNKNOWN};
    for (unsigned k = 0; k < allocation_kind_count; k++) {
        for (size_t c = 0; c < sizeof(codes) / sizeof(codes[0]); c++) {
            struct act act = {&allocation_kinds[k], codes[c]};
            CHECK(bed_ended_well(bed_fork(failing_make, &act)));
        }
    }
}

static void failing_drop(void *argument)
{
    const struct allocation_kind *kind = argument;
    uint64_t handle;
    fail(kind->release, "1:719");
    bed_context(0);
    uint64_t before = allocation_charged();
    CHECK_EQ(kind->make(SIZE, &handle), CUDA_SUCCESS);
    uint64_t with = allocation_charged();
    CHECK_EQ(kind->drop(handle), CUDA_ERROR_LAUNCH_FAILED);
    if (!CHECK_EQ(allocation_charged(), with))
        dprintf(STDOUT_FILENO, "# %s\n", kind->release);
    CHECK_EQ(kind->drop(handle), CUDA_SUCCESS);
    if (!CHECK_EQ(allocation_charged(), before))
        dprintf(STDOUT_FILENO, "# %s\n", kind->release);
}

BED_TEST("a free that fails keeps the charge", .limit = LIMIT)
{
    for (unsigned k = 0; k < allocation_kind_count; k++)
        CHECK(bed_ended_well(bed_fork(failing_drop, (void *)&allocation_kinds[k])));
}

static void failing_context(void *argument)
{
    CUcontext context = NULL;
    fail(argument, "1:719");
    CHECK_EQ(CU(cuInit)(0), CUDA_SUCCESS);
    CUresult first = CU(cuDevicePrimaryCtxRetain)(&context, 0);
    CUresult second = CU(cuCtxCreate_v2)(&context, 0, 0);
    CHECK((first == CUDA_ERROR_LAUNCH_FAILED) != (second == CUDA_ERROR_LAUNCH_FAILED));
    CHECK((first == CUDA_SUCCESS) != (second == CUDA_SUCCESS));
    uint64_t charged = allocation_charged();
    if (!CHECK(charged > 500 * MIB && charged < 540 * MIB))
        dprintf(STDOUT_FILENO, "# after %s: %llu\n", (char *)argument, (unsigned long long)charged);
}

BED_TEST("a context that fails is not charged", .limit = LIMIT)
{
    CHECK(bed_ended_well(bed_fork(failing_context, "cuDevicePrimaryCtxRetain")));
    CHECK(bed_ended_well(bed_fork(failing_context, "cuCtxCreate_v2")));
}

static void failing_context_end(void *argument)
{
    CUcontext context, second;
    (void)argument;
    fail("cuCtxDestroy_v2", "1:719");
    bed_context(0);
    uint64_t before = allocation_charged();
    CHECK_EQ(CU(cuCtxGetCurrent)(&context), CUDA_SUCCESS);
    CHECK_EQ(CU(cuCtxCreate_v2)(&second, 0, 0), CUDA_SUCCESS);
    uint64_t with = allocation_charged();
    CHECK_EQ(CU(cuCtxDestroy_v2)(second), CUDA_ERROR_LAUNCH_FAILED);
    CHECK_EQ(allocation_charged(), with);
    CHECK_EQ(CU(cuCtxDestroy_v2)(second), CUDA_SUCCESS);
    CHECK_EQ(allocation_charged(), before);
}

BED_TEST("a context whose end fails stays charged", .limit = LIMIT)
{
    CHECK(bed_ended_well(bed_fork(failing_context_end, NULL)));
}

static const char ptx[] =
    ".version 6.4\n.target sm_70\n.address_size 64\n"
    ".visible .entry big(.param .u64 cell)\n{\n.local .align 4 .b8 frame[16384];\nret;\n}\n";

static void failing_launch(void *argument)
{
    CUmodule module;
    CUfunction big;
    CUdeviceptr cell = 0;
    void *params[] = {&cell};
    (void)argument;
    fail("cuLaunchKernel", "1:719");
    bed_context(0);
    CHECK_EQ(CU(cuModuleLoadData)(&module, ptx), CUDA_SUCCESS);
    CHECK_EQ(CU(cuModuleGetFunction)(&big, module, "big"), CUDA_SUCCESS);
    uint64_t before = allocation_charged();
    CHECK_EQ(CU(cuLaunchKernel)(big, 1, 1, 1, 32, 1, 1, 0, NULL, params, NULL),
        CUDA_ERROR_LAUNCH_FAILED);
    CHECK_EQ(allocation_charged(), before);
    CHECK_EQ(CU(cuLaunchKernel)(big, 1, 1, 1, 32, 1, 1, 0, NULL, params, NULL), CUDA_SUCCESS);
    CHECK_EQ(CU(cuCtxSynchronize)(), CUDA_SUCCESS);
    CHECK(allocation_charged() - before > 2 * GIB);
}

BED_TEST("a launch that fails is not charged its local memory", .limit = LIMIT)
{
    CHECK(bed_ended_well(bed_fork(failing_launch, NULL)));
}

static void failing_limit(void *argument)
{
    (void)argument;
    fail("cuCtxSetLimit", "1:719");
    bed_context(0);
    uint64_t before = allocation_charged();
    CHECK_EQ(CU(cuCtxSetLimit)(CU_LIMIT_STACK_SIZE, 16384), CUDA_ERROR_LAUNCH_FAILED);
    CHECK_EQ(allocation_charged(), before);
}

BED_TEST("a stack size that fails is not charged", .limit = LIMIT)
{
    CHECK(bed_ended_well(bed_fork(failing_limit, NULL)));
}

static void failing_module(void *argument)
{
    CUmodule module;
    fail(argument, "1:719");
    bed_context(0);
    uint64_t before = allocation_charged();
    bool loads = !strcmp(argument, "cuModuleLoadData");
    CUresult result = CU(cuModuleLoadData)(&module, ptx);
    CHECK_EQ(result, loads ? CUDA_ERROR_LAUNCH_FAILED : CUDA_SUCCESS);
    if (loads)
        CHECK_EQ(CU(cuModuleLoadData)(&module, ptx), CUDA_SUCCESS);
    else
        CHECK_EQ(CU(cuModuleUnload)(module), CUDA_ERROR_LAUNCH_FAILED);
    CHECK_EQ(CU(cuModuleUnload)(module), CUDA_SUCCESS);
    CHECK_EQ(allocation_charged(), before);
}

BED_TEST("a module that fails to load or unload", .limit = LIMIT)
{
    CHECK(bed_ended_well(bed_fork(failing_module, "cuModuleLoadData")));
    CHECK(bed_ended_well(bed_fork(failing_module, "cuModuleUnload")));
}

static void failing_mapping(void *argument)
{
    CUmemAllocationProp property = allocation_property(0);
    CUmemGenericAllocationHandle handle;
    CUdeviceptr address;
    fail(argument, "1:719");
    bed_context(0);
    uint64_t before = allocation_charged();
    CHECK_EQ(CU(cuMemCreate)(&handle, SIZE, &property, 0), CUDA_SUCCESS);
    uint64_t with = allocation_charged();
    CHECK_EQ(CU(cuMemAddressReserve)(&address, SIZE, 0, 0, 0), CUDA_SUCCESS);
    if (!strcmp(argument, "cuMemMap"))
        CHECK_EQ(CU(cuMemMap)(address, SIZE, 0, handle, 0), CUDA_ERROR_LAUNCH_FAILED);
    CHECK_EQ(CU(cuMemMap)(address, SIZE, 0, handle, 0), CUDA_SUCCESS);
    CHECK_EQ(CU(cuMemRelease)(handle), CUDA_SUCCESS);
    CHECK_EQ(allocation_charged(), with);
    if (!strcmp(argument, "cuMemUnmap"))
        CHECK_EQ(CU(cuMemUnmap)(address, SIZE), CUDA_ERROR_LAUNCH_FAILED);
    CHECK_EQ(allocation_charged(), with);
    CHECK_EQ(CU(cuMemUnmap)(address, SIZE), CUDA_SUCCESS);
    CHECK_EQ(allocation_charged(), before);
}

BED_TEST("a mapping that fails to come or go", .limit = LIMIT)
{
    CHECK(bed_ended_well(bed_fork(failing_mapping, "cuMemMap")));
    CHECK(bed_ended_well(bed_fork(failing_mapping, "cuMemUnmap")));
}

/* What we ask on the way may fail as well. */
static void failing_question(void *argument)
{
    CUdeviceptr pointer = 0;
    size_t free, total;
    fail(argument, "0:719");
    bed_context(0);
    CHECK(CU(cuMemAlloc_v2)(&pointer, 100 * GIB) != CUDA_SUCCESS);
    CUresult result = CU(cuMemAlloc_v2)(&pointer, SIZE);
    CHECK(result == CUDA_SUCCESS || result == CUDA_ERROR_OUT_OF_MEMORY);
    CHECK_EQ(CU(cuMemGetInfo_v2)(&free, &total), CUDA_SUCCESS);
    if (!CHECK(total <= 40 * GIB))
        dprintf(STDOUT_FILENO, "# where %s fails\n", (char *)argument);
}

BED_TEST("the limit holds where a question of ours to the driver fails", .limit = LIMIT)
{
    static const char *const questions[] = {
        "cuDeviceGetAttribute", "cuDevicePrimaryCtxGetState", "cuThreadExchangeStreamCaptureMode"};
    for (size_t i = 0; i < sizeof(questions) / sizeof(questions[0]); i++)
        CHECK(bed_ended_well(bed_fork(failing_question, (void *)questions[i])));
}

static void failing_pool(void *argument)
{
    CUdeviceptr pointer;
    unsigned count = 0;
    (void)argument;
    fail("cuMemPoolGetAttribute", "0:719");
    bed_context(0);
    while (count < 1000 && CU(cuMemAllocAsync)(&pointer, GIB, NULL) == CUDA_SUCCESS)
        count++;
    CHECK_EQ(count, 39);
    CHECK(bed_card_bytes(0) <= allocation_charged());
    CHECK(allocation_charged() <= 40 * GIB);
}

BED_TEST("a pool that never tells its size is charged what is asked of it", .limit = LIMIT)
{
    CHECK(bed_ended_well(bed_fork(failing_pool, NULL)));
}

/* A graph whose memory and kernels cannot be told must not be launched unjudged. */
static void failing_graph(void *argument)
{
    CUgraph graph;
    CUgraphNode node;
    CUgraphExec exec = NULL;
    CUDA_MEM_ALLOC_NODE_PARAMS params = {
        .poolProps = {.allocType = CU_MEM_ALLOCATION_TYPE_PINNED,
            .location = {.type = CU_MEM_LOCATION_TYPE_DEVICE, .id = 0}},
        .bytesize = GIB};
    bool api = !strcmp(bed_ledger(), "api");
    fail(argument, "0:719");
    bed_context(0);
    uint64_t before = allocation_charged();
    CHECK_EQ(CU(cuGraphCreate)(&graph, 0), CUDA_SUCCESS);
    CHECK_EQ(CU(cuGraphAddMemAllocNode)(&node, graph, NULL, 0, &params), CUDA_SUCCESS);
    CHECK_EQ(CU(cuGraphInstantiateWithFlags)(&exec, graph, 0), api ? CUDA_ERROR_LAUNCH_FAILED : 0);
    CHECK_EQ(exec == NULL, api);
    CHECK_EQ(allocation_charged(), before);
}

BED_TEST("a graph that cannot be read is not instantiated", .limit = LIMIT)
{
    static const char *const questions[] = {
        "cuGraphGetNodes", "cuGraphNodeGetType", "cuGraphMemAllocNodeGetParams"};
    for (size_t i = 0; i < sizeof(questions) / sizeof(questions[0]); i++)
        CHECK(bed_ended_well(bed_fork(failing_graph, (void *)questions[i])));
}

BED_TEST("a graph that cannot be read is in nobody's way without a limit")
{
    CUgraph graph;
    CUgraphNode node;
    CUgraphExec exec;
    CUDA_MEM_ALLOC_NODE_PARAMS params = {
        .poolProps = {.allocType = CU_MEM_ALLOCATION_TYPE_PINNED,
            .location = {.type = CU_MEM_LOCATION_TYPE_DEVICE, .id = 0}},
        .bytesize = GIB};
    fail("cuGraphGetNodes", "0:719");
    bed_context(0);
    CHECK_EQ(CU(cuGraphCreate)(&graph, 0), CUDA_SUCCESS);
    CHECK_EQ(CU(cuGraphAddMemAllocNode)(&node, graph, NULL, 0, &params), CUDA_SUCCESS);
    CHECK_EQ(CU(cuGraphInstantiateWithFlags)(&exec, graph, 0), CUDA_SUCCESS);
    CHECK_EQ(CU(cuGraphLaunch)(exec, NULL), CUDA_SUCCESS);
}

static void failing_update(void *argument)
{
    CUmodule module;
    CUgraph graph;
    CUgraphExec exec;
    CUgraphNode node;
    CUgraphExecUpdateResultInfo info = {.result = CU_GRAPH_EXEC_UPDATE_SUCCESS};
    CUdeviceptr cell = 0;
    void *arguments[] = {&cell};
    CUDA_KERNEL_NODE_PARAMS kernel = {.gridDimX = 1,
        .gridDimY = 1,
        .gridDimZ = 1,
        .blockDimX = 1,
        .blockDimY = 1,
        .blockDimZ = 1,
        .kernelParams = arguments};
    CUresult refusal = strcmp(bed_ledger(), "api") ? CUDA_SUCCESS : CUDA_ERROR_LAUNCH_FAILED;
    (void)argument;
    fail("cuFuncGetAttribute", "2:719");
    bed_context(0);
    CHECK_EQ(CU(cuModuleLoadData)(&module, ptx), CUDA_SUCCESS);
    CHECK_EQ(CU(cuModuleGetFunction)(&kernel.func, module, "big"), CUDA_SUCCESS);
    CHECK_EQ(CU(cuGraphCreate)(&graph, 0), CUDA_SUCCESS);
    CHECK_EQ(CU(cuGraphAddKernelNode_v2)(&node, graph, NULL, 0, &kernel), CUDA_SUCCESS);
    CHECK_EQ(CU(cuGraphInstantiateWithFlags)(&exec, graph, 0), CUDA_SUCCESS);
    CHECK_EQ(CU(cuGraphExecUpdate_v2)(exec, graph, &info), refusal);
    CHECK_EQ(info.result, refusal ? CU_GRAPH_EXEC_UPDATE_ERROR : CU_GRAPH_EXEC_UPDATE_SUCCESS);
    CHECK_EQ(CU(cuGraphExecUpdate_v2)(exec, graph, &info), CUDA_SUCCESS);
}

BED_TEST("a graph is not updated from one that cannot be read", .limit = LIMIT)
{
    CHECK(bed_ended_well(bed_fork(failing_update, NULL)));
}

static void failing_current(void *argument)
{
    CUdeviceptr pointer;
    bool api = !strcmp(bed_ledger(), "api");
    (void)argument;
    fail("cuCtxGetDevice", "0:719");
    bed_context(0);
    bed_context(1);
    uint64_t first = bed_region_bytes(0);
    CHECK_EQ(CU(cuMemAllocAsync)(&pointer, GIB, NULL), api ? CUDA_ERROR_LAUNCH_FAILED : 0);
    CHECK_EQ(bed_region_bytes(0), first);
}

BED_TEST("a pool whose device is not told is not taken for the first one's", .limit = LIMIT,
    .sim = "2xh200")
{
    CHECK(bed_ended_well(bed_fork(failing_current, NULL)));
}

BED_TEST("where the driver does not tell a device's UUID the device is full", .limit = LIMIT)
{
    CUcontext context;
    fail("cuDeviceGetUuid", "0:719");
    CHECK_EQ(CU(cuInit)(0), CUDA_SUCCESS);
    CHECK_EQ(CU(cuDevicePrimaryCtxRetain)(&context, 0), CUDA_ERROR_OUT_OF_MEMORY);
    CHECK_EQ(bed_card_bytes(0), 0);
}

int main(int argc, char **argv)
{
    return check_run(argc, argv);
}
