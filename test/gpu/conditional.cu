/* SPDX-License-Identifier: Apache-2.0 */
/* Conditional nodes of graphs through the driver API: a while and an if node, launched so often that a
 * compute limit holds them up, with the results that a kernel's decisions give. Exit status 77 where
 * the driver has none. */
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

static CUgraphNode add_kernel(CUgraph graph, const CUgraphNode *after, const void *symbol, void **arguments)
{
    CUgraphNode node;
    cudaFunction_t function;
    CUgraphNodeParams params = {};
    MUST(cudaGetFuncBySymbol(&function, symbol));
    params.type = CU_GRAPH_NODE_TYPE_KERNEL;
    params.kernel.func = (CUfunction)function;
    params.kernel.gridDimX = params.kernel.gridDimY = params.kernel.gridDimZ = 1;
    params.kernel.blockDimX = params.kernel.blockDimY = params.kernel.blockDimZ = 1;
    params.kernel.kernelParams = arguments;
    MUST(add_node(&node, graph, after, NULL, after ? 1 : 0, &params));
    return node;
}

/* A conditional handle belongs to a context, which is to be named: NULL is answered with 201 (H200, driver
 * 580.159.04). */
static CUcontext current(void)
{
    CUcontext context = NULL;
    MUST(get_current(&context));
    return context;
}

/* The graph of the node's body. */
static CUgraph add_conditional(CUgraph graph, const CUgraphNode *after, CUgraphConditionalNodeType type,
                               CUgraphConditionalHandle handle)
{
    CUgraphNode node;
    CUgraphNodeParams params = {};
    params.type = CU_GRAPH_NODE_TYPE_CONDITIONAL;
    params.conditional.handle = handle;
    params.conditional.type = type;
    params.conditional.size = 1;
    MUST(add_node(&node, graph, after, NULL, after ? 1 : 0, &params));
    return params.conditional.phGraph_out[0];
}

static void holds(const char *what, const unsigned *cell, unsigned wanted)
{
    unsigned value = 0;
    MUST(cudaDeviceSynchronize());
    MUST(cudaMemcpy(&value, cell, sizeof(value), cudaMemcpyDeviceToHost));
    broken += value != wanted;
    printf("%s - %s: %u of %u\n", value == wanted ? "ok" : "NOT OK", what, value, wanted);
}

static void set(unsigned *cell, unsigned value)
{
    MUST(cudaMemcpy(cell, &value, sizeof(value), cudaMemcpyHostToDevice));
}

static void run_while(cudaStream_t stream, unsigned *count)
{
    CUgraph graph;
    CUgraphExec exec;
    CUgraphConditionalHandle again;
    MUST(graph_create(&graph, 0));
    MUST(handle_create(&again, graph, current(), 1, CU_GRAPH_COND_ASSIGN_DEFAULT));
    CUgraph body = add_conditional(graph, NULL, CU_GRAPH_COND_TYPE_WHILE, again);
    void *arguments[] = {&count, &again};
    add_kernel(body, NULL, (const void *)turn, arguments);
    MUST(instantiate(&exec, graph, 0));
    set(count, 0);
    for (int i = 0; i < LAUNCHES; i++)
        MUST(launch(exec, (CUstream)stream));
    holds("a while node turns as often as its kernel says", count, TURNS * LAUNCHES);
}

static void run_if(cudaStream_t stream, unsigned *count, unsigned *wanted)
{
    CUgraph graph;
    CUgraphExec exec;
    CUgraphConditionalHandle taken;
    MUST(graph_create(&graph, 0));
    MUST(handle_create(&taken, graph, current(), 0, CU_GRAPH_COND_ASSIGN_DEFAULT));
    void *choice[] = {&wanted, &taken}, *marked[] = {&count};
    CUgraphNode first = add_kernel(graph, NULL, (const void *)choose, choice);
    add_kernel(add_conditional(graph, &first, CU_GRAPH_COND_TYPE_IF, taken), NULL, (const void *)mark, marked);
    MUST(instantiate(&exec, graph, 0));
    set(count, 0);
    for (unsigned i = 0; i < LAUNCHES; i++) {
        set(wanted, i % 2);
        MUST(launch(exec, (CUstream)stream));
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
    find(&add_node, library, "cuGraphAddNode_v2");
    find(&graph_create, library, "cuGraphCreate");
    find(&instantiate, library, "cuGraphInstantiateWithFlags");
    find(&launch, library, "cuGraphLaunch");
    MUST(cudaMalloc(&cells, 2 * sizeof(*cells)));
    MUST(cudaStreamCreateWithFlags(&stream, cudaStreamNonBlocking));
    run_while(stream, cells);
    run_if(stream, cells, cells + 1);
    return broken != 0;
}
