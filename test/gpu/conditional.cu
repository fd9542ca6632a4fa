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

static void must(int error, const char *call)
{
    if (!error)
        return;
    printf("conditional: %s: error %d\n", call, error);
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

/* What makes a graph, its handles and its nodes. */
struct api {
    const char *name;
    CUgraph (*create)(void);
    CUgraphConditionalHandle (*handle)(CUgraph graph, unsigned start);
    CUgraphNode (*kernel)(CUgraph graph, const CUgraphNode *after, const void *symbol, void **arguments);
    /* The graph of the node's body. */
    CUgraph (*conditional)(CUgraph graph, const CUgraphNode *after, bool loop, CUgraphConditionalHandle handle);
    CUgraphExec (*make)(CUgraph graph);
    void (*run)(CUgraphExec exec, cudaStream_t stream);
};

static CUgraph driver_create(void)
{
    CUgraph graph;
    MUST(graph_create(&graph, 0));
    return graph;
}

static CUgraphConditionalHandle driver_handle(CUgraph graph, unsigned start)
{
    CUgraphConditionalHandle handle;
    MUST(handle_create(&handle, graph, context, start, CU_GRAPH_COND_ASSIGN_DEFAULT));
    return handle;
}

static CUgraphNode driver_kernel(CUgraph graph, const CUgraphNode *after, const void *symbol, void **arguments)
{
    CUgraphNode kernel;
    cudaFunction_t function;
    CUgraphNodeParams params = {};
    MUST(cudaGetFuncBySymbol(&function, symbol));
    params.type = CU_GRAPH_NODE_TYPE_KERNEL;
    params.kernel.func = (CUfunction)function;
    params.kernel.gridDimX = params.kernel.gridDimY = params.kernel.gridDimZ = 1;
    params.kernel.blockDimX = params.kernel.blockDimY = params.kernel.blockDimZ = 1;
    params.kernel.kernelParams = arguments;
    MUST(add_node(&kernel, graph, after, NULL, after ? 1 : 0, &params));
    return kernel;
}

static CUgraph driver_conditional(CUgraph graph, const CUgraphNode *after, bool loop, CUgraphConditionalHandle handle)
{
    CUgraphNode conditional;
    CUgraphNodeParams params = {};
    params.type = CU_GRAPH_NODE_TYPE_CONDITIONAL;
    params.conditional.handle = handle;
    params.conditional.type = loop ? CU_GRAPH_COND_TYPE_WHILE : CU_GRAPH_COND_TYPE_IF;
    params.conditional.size = 1;
    params.conditional.ctx = context;
    MUST(add_node(&conditional, graph, after, NULL, after ? 1 : 0, &params));
    return params.conditional.phGraph_out[0];
}

static CUgraphExec driver_make(CUgraph graph)
{
    CUgraphExec exec;
    MUST(instantiate(&exec, graph, 0));
    return exec;
}

static void driver_run(CUgraphExec exec, cudaStream_t stream)
{
    MUST(launch(exec, (CUstream)stream));
}

static const struct api driver_api = {"the driver", driver_create, driver_handle, driver_kernel, driver_conditional,
                                      driver_make, driver_run};

static CUgraph runtime_create(void)
{
    cudaGraph_t graph;
    MUST(cudaGraphCreate(&graph, 0));
    return graph;
}

static CUgraphConditionalHandle runtime_handle(CUgraph graph, unsigned start)
{
    cudaGraphConditionalHandle handle;
    MUST(cudaGraphConditionalHandleCreate(&handle, graph, start, cudaGraphCondAssignDefault));
    return handle;
}

static cudaError_t runtime_add(cudaGraphNode_t *node, CUgraph graph, const CUgraphNode *after,
                               struct cudaGraphNodeParams *params)
{
#if CUDART_VERSION >= 13000
    return cudaGraphAddNode(node, graph, after, NULL, after ? 1 : 0, params);
#else
    return cudaGraphAddNode(node, graph, after, after ? 1 : 0, params);
#endif
}

static CUgraphNode runtime_kernel(CUgraph graph, const CUgraphNode *after, const void *symbol, void **arguments)
{
    cudaGraphNode_t kernel;
    struct cudaGraphNodeParams params = {};
    params.type = cudaGraphNodeTypeKernel;
    params.kernel.func = (void *)symbol;
    params.kernel.gridDim = params.kernel.blockDim = dim3(1, 1, 1);
    params.kernel.kernelParams = arguments;
    MUST(runtime_add(&kernel, graph, after, &params));
    return kernel;
}

static CUgraph runtime_conditional(CUgraph graph, const CUgraphNode *after, bool loop, CUgraphConditionalHandle handle)
{
    cudaGraphNode_t conditional;
    struct cudaGraphNodeParams params = {};
    params.type = cudaGraphNodeTypeConditional;
    params.conditional.handle = handle;
    params.conditional.type = loop ? cudaGraphCondTypeWhile : cudaGraphCondTypeIf;
    params.conditional.size = 1;
    MUST(runtime_add(&conditional, graph, after, &params));
    return params.conditional.phGraph_out[0];
}

static CUgraphExec runtime_make(CUgraph graph)
{
    cudaGraphExec_t exec;
    MUST(cudaGraphInstantiateWithFlags(&exec, graph, 0));
    return exec;
}

static void runtime_run(CUgraphExec exec, cudaStream_t stream)
{
    MUST(cudaGraphLaunch(exec, stream));
}

static const struct api runtime_api = {"the runtime", runtime_create, runtime_handle, runtime_kernel,
                                       runtime_conditional, runtime_make, runtime_run};

static void holds(const char *what, const struct api *api, const unsigned *cell, unsigned wanted)
{
    unsigned value = 0;
    MUST(cudaDeviceSynchronize());
    MUST(cudaMemcpy(&value, cell, sizeof(value), cudaMemcpyDeviceToHost));
    broken += value != wanted;
    printf("%s - by %s, %s: %u of %u\n", value == wanted ? "ok" : "NOT OK", api->name, what, value, wanted);
    fflush(stdout);
}

static void set(unsigned *cell, unsigned value)
{
    MUST(cudaMemcpy(cell, &value, sizeof(value), cudaMemcpyHostToDevice));
    MUST(cudaDeviceSynchronize()); /* a copy from pageable memory may still be on its way */
}

static void run_while(const struct api *api, cudaStream_t stream, unsigned *count)
{
    CUgraph graph = api->create();
    CUgraphConditionalHandle again = api->handle(graph, 1);
    void *arguments[] = {&count, &again};
    api->kernel(api->conditional(graph, NULL, true, again), NULL, (const void *)turn, arguments);
    CUgraphExec exec = api->make(graph);
    set(count, 0);
    for (int i = 0; i < LAUNCHES; i++)
        api->run(exec, stream);
    holds("a while node turns as often as its kernel says", api, count, TURNS * LAUNCHES);
}

static void run_if(const struct api *api, cudaStream_t stream, unsigned *count, unsigned *wanted)
{
    CUgraph graph = api->create();
    CUgraphConditionalHandle taken = api->handle(graph, 0);
    void *choice[] = {&wanted, &taken}, *marked[] = {&count};
    CUgraphNode first = api->kernel(graph, NULL, (const void *)choose, choice);
    api->kernel(api->conditional(graph, &first, false, taken), NULL, (const void *)mark, marked);
    CUgraphExec exec = api->make(graph);
    set(count, 0);
    for (unsigned i = 0; i < LAUNCHES; i++) {
        set(wanted, i % 2);
        api->run(exec, stream);
        MUST(cudaStreamSynchronize(stream));
    }
    holds("an if node is taken when its kernel says so", api, count, LAUNCHES / 2);
}

int main()
{
    const struct api *apis[] = {&runtime_api, &driver_api};
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
    for (const struct api *api : apis) {
        run_while(api, stream, cells);
        run_if(api, stream, cells, cells + 1);
    }
    return broken != 0;
}
