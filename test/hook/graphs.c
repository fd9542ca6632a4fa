/* SPDX-License-Identifier: Apache-2.0 */
/* Graphs that allocate: after each step the container's bytes are the card's, and a graph that does
 * not fit is refused where the memory would be taken, after which the program goes on. */
#include "allocate.h"
#include "bed.h"
#include "driver.h"

#define LIMIT "2GiB"

static const char timed_ptx[] = ".version 6.4\n.target sm_70\n.address_size 64\n"
                                ".visible .entry spin(.param .u64 duration_ns)\n{\nret;\n}\n";

/* The API ledger counts contexts and code by estimates: what comes beyond them is compared. */
static uint64_t region_begin, card_begin;

static void compare_from_here(void)
{
    region_begin = card_begin = 0;
    if (strcmp(bed_ledger(), "rm") != 0) {
        region_begin = bed_region_bytes(0);
        card_begin = bed_card_bytes(0);
    }
}

static uint64_t counted(void)
{
    return bed_region_bytes(0) - region_begin;
}

static void begin(void)
{
    bed_context(0);
    compare_from_here();
}

static CUfunction load(const char *text, const char *name)
{
    CUmodule module;
    CUfunction function;
    REQUIRE(CU(cuModuleLoadData)(&module, text) == CUDA_SUCCESS);
    REQUIRE(CU(cuModuleGetFunction)(&function, module, name) == CUDA_SUCCESS);
    compare_from_here();
    return function;
}

/* True to the byte. */
static bool exact(const char *step)
{
    bool equal = CHECK_EQ(counted(), bed_card_bytes(0) - card_begin);
    if (!equal)
        printf("# after: %s\n", step);
    return equal;
}

static CUgraph new_graph(void)
{
    CUgraph graph = NULL;
    REQUIRE(CU(cuGraphCreate)(&graph, 0) == CUDA_SUCCESS);
    return graph;
}

/* Behind `after`, unless NULL. */
static CUgraphNode add_allocation(
    CUgraph graph, CUgraphNode after, uint64_t bytes, CUdeviceptr *ret_pointer)
{
    CUgraphNode node = NULL;
    CUDA_MEM_ALLOC_NODE_PARAMS params = {
        .poolProps = {.allocType = CU_MEM_ALLOCATION_TYPE_PINNED,
            .location = {.type = CU_MEM_LOCATION_TYPE_DEVICE, .id = 0}},
        .bytesize = bytes};
    REQUIRE(
        CU(cuGraphAddMemAllocNode)(&node, graph, &after, after != NULL, &params) == CUDA_SUCCESS);
    *ret_pointer = params.dptr;
    return node;
}

static CUgraphNode add_free(CUgraph graph, CUgraphNode after, CUdeviceptr pointer)
{
    CUgraphNode node = NULL;
    REQUIRE(
        CU(cuGraphAddMemFreeNode)(&node, graph, &after, after != NULL, pointer) == CUDA_SUCCESS);
    return node;
}

static CUgraphExec instantiate(CUgraph graph, unsigned long long flags)
{
    CUgraphExec exec = NULL;
    REQUIRE(CU(cuGraphInstantiateWithFlags)(&exec, graph, flags) == CUDA_SUCCESS);
    return exec;
}

static CUgraphExec allocating(
    uint64_t bytes, unsigned long long flags, CUgraph *ret_graph, CUdeviceptr *ret_pointer)
{
    *ret_graph = new_graph();
    add_allocation(*ret_graph, NULL, bytes, ret_pointer);
    return instantiate(*ret_graph, flags);
}

static void sync_and_trim(void)
{
    CHECK_EQ(CU(cuCtxSynchronize)(), CUDA_SUCCESS);
    CHECK_EQ(CU(cuDeviceGraphMemTrim)(0), CUDA_SUCCESS);
}

BED_TEST("memory that a graph leaves is the program's until it is freed outside", .limit = LIMIT)
{
    CUgraph graph;
    CUdeviceptr pointer;
    begin();
    uint64_t before = counted();
    CUgraphExec exec = allocating(100 * MIB, 0, &graph, &pointer);
    exact("instantiated");
    CHECK_EQ(counted(), before);
    for (int i = 0; i < 4; i++) {
        CHECK_EQ(CU(cuGraphLaunch)(exec, NULL), CUDA_SUCCESS);
        exact("launched");
        CHECK(counted() - before >= 100 * MIB);
        CHECK_EQ(CU(cuGraphLaunch)(exec, NULL), CUDA_ERROR_INVALID_VALUE);
        exact("launched again with its memory in use");
        CHECK_EQ(
            i % 2 ? CU(cuMemFree_v2)(pointer) : CU(cuMemFreeAsync)(pointer, NULL), CUDA_SUCCESS);
        exact("freed");
        if (i == 2)
            sync_and_trim();
        exact("trimmed");
    }
    CHECK_EQ(CU(cuGraphExecDestroy)(exec), CUDA_SUCCESS);
    CHECK_EQ(CU(cuGraphDestroy)(graph), CUDA_SUCCESS);
    sync_and_trim();
    exact("destroyed");
    CHECK_EQ(counted(), before);
}

BED_TEST("a graph that frees its memory itself is launched again in a full slice", .limit = LIMIT)
{
    CUgraph graph;
    CUdeviceptr pointer;
    begin();
    CUgraphExec exec =
        allocating(GIB, CUDA_GRAPH_INSTANTIATE_FLAG_AUTO_FREE_ON_LAUNCH, &graph, &pointer);
    for (int i = 0; i < 5; i++) {
        CHECK_EQ(CU(cuGraphLaunch)(exec, NULL), CUDA_SUCCESS);
        exact("launched");
    }
    CHECK_EQ(CU(cuMemFreeAsync)(pointer, NULL), CUDA_SUCCESS);
    sync_and_trim();
    exact("freed and trimmed");
    CHECK_EQ(CU(cuGraphLaunch)(exec, NULL), CUDA_SUCCESS);
    exact("launched after that");
}

BED_TEST("a graph needs what lives at a time, not the sum", .limit = LIMIT)
{
    CUdeviceptr pointer;
    CUgraphNode last = NULL;
    begin();
    CUgraph graph = new_graph();
    for (int i = 0; i < 8; i++) {
        last = add_allocation(graph, last, 512 * MIB, &pointer);
        last = add_free(graph, last, pointer);
    }
    CUgraphExec exec = instantiate(graph, 0);
    for (int i = 0; i < 3; i++) {
        CHECK_EQ(CU(cuGraphLaunch)(exec, NULL), CUDA_SUCCESS);
        exact("launched");
    }
    CHECK(counted() <= 2 * GIB);
}

BED_TEST(
    "a graph that does not fit is refused at its launch, and the program goes on", .limit = LIMIT)
{
    CUgraph graph, small_graph;
    CUdeviceptr pointer, small;
    begin();
    uint64_t before = counted();
    CUgraphExec exec = allocating(4 * GIB, 0, &graph, &pointer);
    for (int i = 0; i < 3; i++) {
        CHECK_EQ(CU(cuGraphLaunch)(exec, NULL), CUDA_ERROR_OUT_OF_MEMORY);
        CHECK_EQ(CU(cuGraphUpload)(exec, NULL), CUDA_ERROR_OUT_OF_MEMORY);
        exact("refused");
    }
    CHECK_EQ(counted(), before);
    CUgraphExec fits = allocating(GIB, 0, &small_graph, &small);
    CHECK_EQ(CU(cuGraphLaunch)(fits, NULL), CUDA_SUCCESS);
    exact("another that fits");
    CHECK_EQ(CU(cuGraphExecDestroy)(exec), CUDA_SUCCESS);
    CHECK_EQ(CU(cuMemFree_v2)(small), CUDA_SUCCESS);
    CHECK_EQ(CU(cuMemAlloc_v2)(&pointer, GIB), CUDA_SUCCESS);
    exact("its memory gave way");
}

BED_TEST("an upload takes the memory, and the launch no more", .limit = LIMIT)
{
    CUgraph graph;
    CUdeviceptr pointer;
    CUgraphExec exec, second;
    begin();
    CUDA_GRAPH_INSTANTIATE_PARAMS params = {.flags = CUDA_GRAPH_INSTANTIATE_FLAG_UPLOAD};
    uint64_t before = counted();
    exec = allocating(256 * MIB, 0, &graph, &pointer);
    CHECK_EQ(CU(cuGraphUpload)(exec, NULL), CUDA_SUCCESS);
    exact("uploaded");
    uint64_t uploaded = counted();
    CHECK(uploaded - before >= 256 * MIB);
    CHECK_EQ(CU(cuGraphLaunch)(exec, NULL), CUDA_SUCCESS);
    CHECK_EQ(counted(), uploaded);
    CUgraph other = new_graph();
    add_allocation(other, NULL, 256 * MIB, &pointer);
    CHECK_EQ(CU(cuGraphInstantiateWithParams)(&second, other, &params), CUDA_SUCCESS);
    exact("instantiated with an upload");
    CHECK(counted() - uploaded >= 256 * MIB);
    CUgraph large = new_graph();
    add_allocation(large, NULL, 4 * GIB, &pointer);
    CHECK_EQ(CU(cuGraphInstantiateWithParams)(&second, large, &params), CUDA_ERROR_OUT_OF_MEMORY);
    exact("refused");
}

/* 3! orders of destroying the executable graph, the graph and the memory. */
BED_TEST("graphs are destroyed in any order", .limit = LIMIT)
{
    static const char *const orders[] = {"egp", "epg", "gep", "gpe", "peg", "pge"};
    begin();
    uint64_t before = counted();
    for (unsigned i = 0; i < 6; i++) {
        CUgraph graph;
        CUdeviceptr pointer;
        CUgraphExec exec = allocating(128 * MIB, 0, &graph, &pointer);
        CHECK_EQ(CU(cuGraphLaunch)(exec, NULL), CUDA_SUCCESS);
        for (const char *what = orders[i]; *what; what++) {
            CHECK_EQ(*what == 'e'   ? CU(cuGraphExecDestroy)(exec)
                     : *what == 'g' ? CU(cuGraphDestroy)(graph)
                                    : CU(cuMemFreeAsync)(pointer, NULL),
                CUDA_SUCCESS);
            exact(orders[i]);
        }
        sync_and_trim();
        exact(orders[i]);
        CHECK_EQ(counted(), before);
    }
}

/* Allocation, kernel, free. */
static CUgraphExec working(uint64_t bytes, CUfunction function, uint64_t duration_ns)
{
    void *arguments[] = {&duration_ns};
    CUDA_KERNEL_NODE_PARAMS kernel = {.func = function,
        .gridDimX = 1,
        .gridDimY = 1,
        .gridDimZ = 1,
        .blockDimX = 1,
        .blockDimY = 1,
        .blockDimZ = 1,
        .kernelParams = arguments};
    CUdeviceptr pointer;
    CUgraphNode node;
    CUgraph graph = new_graph();
    CUgraphNode allocation = add_allocation(graph, NULL, bytes, &pointer);
    REQUIRE(CU(cuGraphAddKernelNode_v2)(&node, graph, &allocation, 1, &kernel) == CUDA_SUCCESS);
    add_free(graph, node, pointer);
    return instantiate(graph, 0);
}

BED_TEST("a graph that is destroyed in flight keeps its memory until it is done", .limit = LIMIT)
{
    begin();
    CUfunction function = load(timed_ptx, "spin");
    uint64_t before = counted();
    CUgraphExec exec = working(128 * MIB, function, 300000000);
    CHECK_EQ(CU(cuGraphLaunch)(exec, NULL), CUDA_SUCCESS);
    CHECK_EQ(CU(cuGraphExecDestroy)(exec), CUDA_SUCCESS);
    exact("destroyed in flight");
    CHECK_EQ(CU(cuDeviceGraphMemTrim)(0), CUDA_SUCCESS);
    exact("trimmed in flight");
    sync_and_trim();
    exact("done and trimmed");
    CHECK_EQ(counted(), before);
}

BED_TEST("graphs that run beside each other each take their memory", .limit = LIMIT)
{
    CUstream streams[3];
    CUgraphExec execs[3];
    begin();
    CUfunction function = load(timed_ptx, "spin");
    uint64_t before = counted();
    for (int i = 0; i < 3; i++) {
        CHECK_EQ(CU(cuStreamCreate)(&streams[i], CU_STREAM_NON_BLOCKING), CUDA_SUCCESS);
        execs[i] = working(512 * MIB, function, 300000000);
    }
    CHECK_EQ(CU(cuGraphLaunch)(execs[0], streams[0]), CUDA_SUCCESS);
    CHECK_EQ(CU(cuGraphLaunch)(execs[1], streams[1]), CUDA_SUCCESS);
    exact("two at a time");
    CHECK_EQ(counted() - before, GIB);
    CHECK_EQ(CU(cuGraphLaunch)(execs[2], streams[2]), CUDA_ERROR_OUT_OF_MEMORY);
    exact("the third is refused");
    CHECK_EQ(CU(cuCtxSynchronize)(), CUDA_SUCCESS);
    CHECK_EQ(CU(cuGraphLaunch)(execs[2], streams[2]), CUDA_SUCCESS);
    exact("until the others are done");
    CHECK_EQ(counted() - before, GIB);
}

BED_TEST("a child graph that is moved counts with its parent", .limit = LIMIT)
{
    CUdeviceptr pointer;
    CUgraphNode node;
    CUgraph clone;
    CUgraphExec second;
    begin();
    uint64_t before = counted();
    CUgraph child = new_graph(), parent = new_graph(), large = new_graph(), outer = new_graph();
    add_allocation(child, NULL, 128 * MIB, &pointer);
    CHECK_EQ(CU(cuGraphClone)(&clone, child), CUDA_ERROR_INVALID_VALUE);
    CHECK_EQ(CU(cuGraphAddChildGraphNode)(&node, parent, NULL, 0, child), CUDA_ERROR_INVALID_VALUE);
    CUgraphNodeParams params = {.type = CU_GRAPH_NODE_TYPE_GRAPH,
        .graph = {.graph = child, .ownership = CU_GRAPH_CHILD_GRAPH_OWNERSHIP_MOVE}};
    CHECK_EQ(CU(cuGraphAddNode)(&node, parent, NULL, 0, &params), CUDA_SUCCESS);
    CUgraphExec exec = instantiate(parent, 0);
    CHECK_EQ(CU(cuGraphInstantiateWithFlags)(&second, parent, 0), CUDA_ERROR_INVALID_VALUE);
    CHECK_EQ(CU(cuGraphLaunch)(exec, NULL), CUDA_SUCCESS);
    exact("launched");
    CHECK_EQ(counted() - before, 128 * MIB);
    add_allocation(large, NULL, 4 * GIB, &pointer);
    params.graph.graph = large;
    CHECK_EQ(CU(cuGraphAddNode)(&node, outer, NULL, 0, &params), CUDA_SUCCESS);
    CHECK_EQ(CU(cuGraphLaunch)(instantiate(outer, 0), NULL), CUDA_ERROR_OUT_OF_MEMORY);
    exact("refused");
}

BED_TEST("what is only recorded is not refused", .limit = LIMIT)
{
    CUstream stream;
    CUgraph graph;
    CUdeviceptr pointer;
    CUfunction big;
    uint64_t cell = 0;
    void *arguments[] = {&cell};
    size_t nodes = 0;
    begin();
    CHECK_EQ(CU(cuStreamCreate)(&stream, CU_STREAM_NON_BLOCKING), CUDA_SUCCESS);
    big = load(driver_ptx, "big");
    uint64_t before = counted();
    CHECK_EQ(CU(cuStreamBeginCapture_v2)(stream, CU_STREAM_CAPTURE_MODE_GLOBAL), CUDA_SUCCESS);
    CHECK_EQ(CU(cuMemAllocAsync)(&pointer, 4 * GIB, stream), CUDA_SUCCESS);
    CHECK_EQ(CU(cuLaunchKernel)(big, 1, 1, 1, 32, 1, 1, 0, stream, arguments, NULL), CUDA_SUCCESS);
    CHECK_EQ(CU(cuMemFreeAsync)(pointer, stream), CUDA_SUCCESS);
    CHECK_EQ(CU(cuStreamEndCapture)(stream, &graph), CUDA_SUCCESS);
    CHECK_EQ(CU(cuGraphGetNodes)(graph, NULL, &nodes), CUDA_SUCCESS);
    CHECK_EQ(nodes, 3);
    CHECK_EQ(counted(), before);
    CHECK_EQ(CU(cuGraphLaunch)(instantiate(graph, 0), stream), CUDA_ERROR_OUT_OF_MEMORY);
    exact("launched");
    CHECK_EQ(counted(), before);
}

/* 8 GiB of local memory, which the kernel of an updated graph needs at its next launch. */
BED_TEST("the local memory of a graph's kernels counts, also after an update", .limit = "20GiB")
{
    CUfunction nop, big;
    CUgraphNode node, other;
    CUgraphExecUpdateResultInfo info;
    uint64_t cell = 0;
    void *arguments[] = {&cell};
    begin();
    big = load(driver_ptx, "big");
    nop = load(driver_ptx, "nop");
    CUDA_KERNEL_NODE_PARAMS kernel = {.func = nop,
        .gridDimX = 1,
        .gridDimY = 1,
        .gridDimZ = 1,
        .blockDimX = 1,
        .blockDimY = 1,
        .blockDimZ = 1,
        .kernelParams = arguments};
    for (int way = 0; way < 2; way++) {
        CUcontext context;
        CHECK_EQ(CU(cuCtxGetCurrent)(&context), CUDA_SUCCESS);
        CUgraph graph = new_graph(), changed = new_graph();
        kernel.func = nop;
        CHECK_EQ(CU(cuGraphAddKernelNode_v2)(&node, graph, NULL, 0, &kernel), CUDA_SUCCESS);
        kernel.func = big;
        CHECK_EQ(CU(cuGraphAddKernelNode_v2)(&other, changed, NULL, 0, &kernel), CUDA_SUCCESS);
        CUgraphExec exec = instantiate(graph, 0);
        CHECK_EQ(CU(cuGraphLaunch)(exec, NULL), CUDA_SUCCESS);
        uint64_t before = counted();
        CHECK_EQ(way ? CU(cuGraphExecKernelNodeSetParams_v2)(exec, node, &kernel)
                     : CU(cuGraphExecUpdate_v2)(exec, changed, &info),
            CUDA_SUCCESS);
        CHECK_EQ(counted(), before);
        CHECK_EQ(CU(cuGraphLaunch)(exec, NULL), CUDA_SUCCESS);
        exact(way ? "node changed" : "updated");
        CHECK_EQ(counted() - before, (32768ull - 1024) * 132 * 2048);
        CHECK_EQ(CU(cuCtxSetLimit)(CU_LIMIT_STACK_SIZE, 1024), CUDA_SUCCESS);
        exact("given back");
        CHECK_EQ(counted(), before);
    }
}

/* 8 GiB of local memory again, in a node that is disabled, and in one that is changed meanwhile. */
BED_TEST("a kernel that is enabled again is held to the limit", .limit = "4GiB")
{
    CUgraphNode node;
    uint64_t cell = 0;
    void *arguments[] = {&cell};
    begin();
    CUfunction big = load(driver_ptx, "big"), nop = load(driver_ptx, "nop");
    for (int changed = 0; changed < 2; changed++) {
        CUDA_KERNEL_NODE_PARAMS kernel = {.func = changed ? nop : big,
            .gridDimX = 1,
            .gridDimY = 1,
            .gridDimZ = 1,
            .blockDimX = 1,
            .blockDimY = 1,
            .blockDimZ = 1,
            .kernelParams = arguments};
        CUgraph graph = new_graph();
        CHECK_EQ(CU(cuGraphAddKernelNode_v2)(&node, graph, NULL, 0, &kernel), CUDA_SUCCESS);
        CUgraphExec exec = instantiate(graph, 0);
        CHECK_EQ(CU(cuGraphNodeSetEnabled)(exec, node, 0), CUDA_SUCCESS);
        kernel.func = big;
        if (changed)
            CHECK_EQ(CU(cuGraphExecKernelNodeSetParams_v2)(exec, node, &kernel), CUDA_SUCCESS);
        uint64_t before = counted();
        CHECK_EQ(CU(cuGraphNodeSetEnabled)(exec, node, 1), CUDA_SUCCESS);
        CHECK_EQ(CU(cuGraphLaunch)(exec, NULL), CUDA_ERROR_OUT_OF_MEMORY);
        CHECK(bed_card_bytes(0) <= 4 * GIB);
        CHECK_EQ(counted(), before);
    }
}

BED_TEST(
    "a context is destroyed with its graphs, and handles that come again are new", .limit = "4GiB")
{
    begin();
    CUcontext primary;
    CHECK_EQ(CU(cuCtxGetCurrent)(&primary), CUDA_SUCCESS);
    uint64_t before = counted();
    for (int i = 0; i < 4; i++) {
        CUcontext context;
        CUgraph graph;
        CUdeviceptr pointer;
        CHECK_EQ(CU(cuCtxCreate_v2)(&context, 0, 0), CUDA_SUCCESS);
        CUgraphExec exec = allocating(GIB, 0, &graph, &pointer);
        CHECK_EQ(CU(cuGraphLaunch)(exec, NULL), CUDA_SUCCESS);
        CHECK_EQ(CU(cuMemFreeAsync)(pointer, NULL), CUDA_SUCCESS);
        CHECK_EQ(CU(cuCtxDestroy_v2)(context), CUDA_SUCCESS);
        CHECK_EQ(CU(cuCtxSetCurrent)(primary), CUDA_SUCCESS);
        exact("context destroyed");
        sync_and_trim();
        exact("trimmed");
        CHECK_EQ(counted(), before);
        CHECK_EQ(CU(cuGraphExecDestroy)(exec), CUDA_SUCCESS);
        CUgraphExec empty = instantiate(new_graph(), 0);
        CUdeviceptr rest;
        CHECK_EQ(CU(cuMemAlloc_v2)(&rest, 3 * GIB), CUDA_SUCCESS);
        CHECK_EQ(CU(cuGraphLaunch)(empty, NULL), CUDA_SUCCESS);
        CHECK_EQ(CU(cuMemFree_v2)(rest), CUDA_SUCCESS);
    }
}

BED_TEST("a pool gives way to a graph that needs the room", .limit = LIMIT)
{
    CUgraph graph;
    CUdeviceptr pointer;
    CUmemoryPool pool;
    cuuint64_t all = UINT64_MAX;
    begin();
    CUgraphExec exec = allocating(GIB, 0, &graph, &pointer);
    CUdeviceptr held;
    REQUIRE(CU(cuDeviceGetDefaultMemPool)(&pool, 0) == CUDA_SUCCESS);
    CHECK_EQ(
        CU(cuMemPoolSetAttribute)(pool, CU_MEMPOOL_ATTR_RELEASE_THRESHOLD, &all), CUDA_SUCCESS);
    CHECK_EQ(CU(cuMemAllocAsync)(&held, GIB, NULL), CUDA_SUCCESS);
    CHECK_EQ(CU(cuMemFreeAsync)(held, NULL), CUDA_SUCCESS);
    CHECK_EQ(CU(cuCtxSynchronize)(), CUDA_SUCCESS);
    CHECK_EQ(CU(cuGraphLaunch)(exec, NULL), CUDA_SUCCESS);
    exact("launched");
    CHECK_EQ(CU(cuMemFreeAsync)(pointer, NULL), CUDA_SUCCESS);
    CHECK_EQ(CU(cuMemAllocAsync)(&held, GIB, NULL), CUDA_SUCCESS);
    exact("and back");
}

/* What runs on a card too, with its expectations: modules count by estimate under the API ledger.
 */
TEST("the program that walks through graphs finds nothing else than is expected")
{
    static char output[1 << 16];
    const char *ledger = getenv("VGPU_TEST_LEDGER");
    bool exactly = !ledger || !strcmp(ledger, "rm");
    char *argv[] = {
        bed_build_path("test/driver/graphs"), "--tolerance", exactly ? "1" : "16", NULL};
    int status = bed_run(&(struct bed){.limit = "12GiB"}, argv, output, sizeof(output));
    if (CHECK_EQ(status, 0))
        return;
    for (char *line = strtok(output, "\n"); line; line = strtok(NULL, "\n")) {
        if (!strstr(line, "| equal |"))
            printf("# %s\n", line);
    }
}

int main(int argc, char **argv)
{
    return check_run(argc, argv);
}
