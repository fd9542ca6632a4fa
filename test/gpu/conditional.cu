/* SPDX-License-Identifier: Apache-2.0 */
/* Conditional nodes of graphs, through the driver API and through the runtime: a while and an if node,
 * launched so often that a compute limit holds them up, with the results that a kernel's decisions give.
 * Exit status 77 where the driver has none. */
#include <cstdio>
#include <cstdlib>
#include <cuda.h>
#include <cuda_runtime.h>
#include <dlfcn.h>

#define TURNS 10
#define LAUNCHES 40
#define TURN_NS 1000000ull

__global__ void turn(unsigned *count, cudaGraphConditionalHandle again)
{
    unsigned long long begin, now;
    asm volatile("mov.u64 %0, %%globaltimer;" : "=l"(begin));
    do
        asm volatile("mov.u64 %0, %%globaltimer;" : "=l"(now));
    while (now - begin < TURN_NS);
    *count += 1;
    cudaGraphSetConditional(again, *count % TURNS != 0);
}

__global__ void choose(const unsigned *wanted, cudaGraphConditionalHandle taken)
{
    cudaGraphSetConditional(taken, *wanted);
}

__global__ void mark(unsigned *count)
{
    *count += 1;
}

static int broken;
static const char *by = "the runtime"; /* whose functions are called */

static void must(int error, const char *call)
{
    if (!error)
        return;
    printf("conditional, by %s: %s: error %d\n", by, call, error);
    exit(4);
}
#define MUST(call) must((int)(call), #call)

/* By dlsym, as a program without the runtime has them. */
static CUresult (*get_current)(CUcontext *);
static CUresult (*set_current)(CUcontext);
static CUresult (*retain_primary)(CUcontext *, CUdevice);
static CUresult (*handle_create)(CUgraphConditionalHandle *, CUgraph, CUcontext, unsigned, unsigned);
static CUresult (*add_node)(CUgraphNode *, CUgraph, const CUgraphNode *, const CUgraphEdgeData *, size_t,
                            CUgraphNodeParams *);
static CUresult (*graph_create)(CUgraph *, unsigned);
static CUresult (*instantiate)(CUgraphExec *, CUgraph, unsigned long long);
static CUresult (*launch)(CUgraphExec, CUstream);

template <typename function> static void find(function *target, void *library, const char *name)
{
    *target = (function)dlsym(library, name);
    if (!*target) {
        printf("SKIP: the driver has no %s\n", name);
        exit(77);
    }
}

/* The runtime's context. A conditional handle and its node are to name it: NULL is answered with 201 by both
 * (H200, driver 580.159.04). */
static CUcontext context;

static void open_context(void)
{
    MUST(get_current(&context));
    if (!context) {
        MUST(retain_primary(&context, 0));
        MUST(set_current(context));
    }
}

/* What makes and launches a graph with conditional nodes, by the driver and by the runtime: the same
 * functions in each, which answer 0 or an error. */
struct driver_api {
    static constexpr const char *name = "the driver";
    typedef CUgraphNodeParams params;
    static constexpr CUgraphConditionalNodeType loop_type = CU_GRAPH_COND_TYPE_WHILE, if_type = CU_GRAPH_COND_TYPE_IF;

    static int create(CUgraph *graph) { return graph_create(graph, 0); }
    static int make(CUgraphExec *exec, CUgraph graph) { return instantiate(exec, graph, 0); }
    static int run(CUgraphExec exec, cudaStream_t stream) { return launch(exec, stream); }

    static int handle(CUgraphConditionalHandle *handle, CUgraph graph, unsigned start)
    {
        return handle_create(handle, graph, context, start, CU_GRAPH_COND_ASSIGN_DEFAULT);
    }

    static int add(CUgraphNode *node, CUgraph graph, const CUgraphNode *after, params *params)
    {
        return add_node(node, graph, after, NULL, after ? 1 : 0, params);
    }

    static int describe_kernel(params *params, const void *symbol)
    {
        params->type = CU_GRAPH_NODE_TYPE_KERNEL;
        params->kernel.gridDimX = params->kernel.gridDimY = params->kernel.gridDimZ = 1;
        params->kernel.blockDimX = params->kernel.blockDimY = params->kernel.blockDimZ = 1;
        return cudaGetFuncBySymbol((cudaFunction_t *)&params->kernel.func, symbol);
    }

    static void describe_conditional(params *params)
    {
        params->type = CU_GRAPH_NODE_TYPE_CONDITIONAL;
        params->conditional.ctx = context;
    }
};

struct runtime_api {
    static constexpr const char *name = "the runtime";
    typedef cudaGraphNodeParams params;
    static constexpr cudaGraphConditionalNodeType loop_type = cudaGraphCondTypeWhile, if_type = cudaGraphCondTypeIf;

    static int create(CUgraph *graph) { return cudaGraphCreate(graph, 0); }
    static int make(CUgraphExec *exec, CUgraph graph) { return cudaGraphInstantiateWithFlags(exec, graph, 0); }
    static int run(CUgraphExec exec, cudaStream_t stream) { return cudaGraphLaunch(exec, stream); }

    static int handle(CUgraphConditionalHandle *handle, CUgraph graph, unsigned start)
    {
        cudaGraphConditionalHandle made = 0;
        int error = cudaGraphConditionalHandleCreate(&made, graph, start, cudaGraphCondAssignDefault);
        *handle = made;
        return error;
    }

    static int add(CUgraphNode *node, CUgraph graph, const CUgraphNode *after, params *params)
    {
#if CUDART_VERSION >= 13000
        return cudaGraphAddNode(node, graph, after, NULL, after ? 1 : 0, params);
#else
        return cudaGraphAddNode(node, graph, after, after ? 1 : 0, params);
#endif
    }

    static int describe_kernel(params *params, const void *symbol)
    {
        params->type = cudaGraphNodeTypeKernel;
        params->kernel.gridDim = params->kernel.blockDim = dim3(1, 1, 1);
        params->kernel.func = (void *)symbol;
        return 0;
    }

    static void describe_conditional(params *params) { params->type = cudaGraphNodeTypeConditional; }
};

template <typename api>
static CUgraphNode add_kernel(CUgraph graph, const CUgraphNode *after, const void *symbol, void **arguments)
{
    CUgraphNode node;
    typename api::params params = {};
    MUST(api::describe_kernel(&params, symbol));
    params.kernel.kernelParams = arguments;
    MUST(api::add(&node, graph, after, &params));
    return node;
}

/* The graph of the node's body. */
template <typename api>
static CUgraph add_conditional(CUgraph graph, const CUgraphNode *after, bool loop, CUgraphConditionalHandle handle)
{
    CUgraphNode node;
    typename api::params params = {};
    api::describe_conditional(&params);
    params.conditional.handle = handle;
    params.conditional.type = loop ? api::loop_type : api::if_type;
    params.conditional.size = 1;
    MUST(api::add(&node, graph, after, &params));
    return params.conditional.phGraph_out[0];
}

static void holds(const char *what, const unsigned *cell, unsigned wanted)
{
    unsigned value = 0;
    MUST(cudaDeviceSynchronize());
    MUST(cudaMemcpy(&value, cell, sizeof(value), cudaMemcpyDeviceToHost));
    broken += value != wanted;
    printf("%s - by %s, %s: %u of %u\n", value == wanted ? "ok" : "NOT OK", by, what, value, wanted);
    fflush(stdout);
}

static void set(unsigned *cell, unsigned value)
{
    MUST(cudaMemcpy(cell, &value, sizeof(value), cudaMemcpyHostToDevice));
    MUST(cudaDeviceSynchronize()); /* a copy from pageable memory may still be on its way */
}

template <typename api> static void run_while(cudaStream_t stream, unsigned *count)
{
    CUgraph graph;
    CUgraphExec exec;
    CUgraphConditionalHandle again;
    void *arguments[] = {&count, &again};
    by = api::name;
    MUST(api::create(&graph));
    MUST(api::handle(&again, graph, 1));
    add_kernel<api>(add_conditional<api>(graph, NULL, true, again), NULL, (const void *)turn, arguments);
    MUST(api::make(&exec, graph));
    set(count, 0);
    for (int i = 0; i < LAUNCHES; i++)
        MUST(api::run(exec, stream));
    holds("a while node turns as often as its kernel says", count, TURNS * LAUNCHES);
}

template <typename api> static void run_if(cudaStream_t stream, unsigned *count, unsigned *wanted)
{
    CUgraph graph;
    CUgraphExec exec;
    CUgraphConditionalHandle taken;
    void *choice[] = {&wanted, &taken}, *marked[] = {&count};
    by = api::name;
    MUST(api::create(&graph));
    MUST(api::handle(&taken, graph, 0));
    CUgraphNode first = add_kernel<api>(graph, NULL, (const void *)choose, choice);
    add_kernel<api>(add_conditional<api>(graph, &first, false, taken), NULL, (const void *)mark, marked);
    MUST(api::make(&exec, graph));
    set(count, 0);
    for (unsigned i = 0; i < LAUNCHES; i++) {
        set(wanted, i % 2);
        MUST(api::run(exec, stream));
        MUST(cudaStreamSynchronize(stream));
    }
    holds("an if node is taken when its kernel says so", count, LAUNCHES / 2);
}

int main()
{
    unsigned *cells;
    cudaStream_t stream;
    void *library = dlopen("libcuda.so.1", RTLD_NOW);
    if (!library)
        return 77;
    find(&handle_create, library, "cuGraphConditionalHandleCreate");
    find(&get_current, library, "cuCtxGetCurrent");
    find(&set_current, library, "cuCtxSetCurrent");
    find(&retain_primary, library, "cuDevicePrimaryCtxRetain");
    find(&add_node, library, "cuGraphAddNode_v2");
    find(&graph_create, library, "cuGraphCreate");
    find(&instantiate, library, "cuGraphInstantiateWithFlags");
    find(&launch, library, "cuGraphLaunch");
    MUST(cudaMalloc(&cells, 2 * sizeof(*cells)));
    open_context();
    MUST(cudaStreamCreateWithFlags(&stream, cudaStreamNonBlocking));
    run_while<runtime_api>(stream, cells);
    run_if<runtime_api>(stream, cells, cells + 1);
    run_while<driver_api>(stream, cells);
    run_if<driver_api>(stream, cells, cells + 1);
    return broken != 0;
}
