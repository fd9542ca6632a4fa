/* SPDX-License-Identifier: Apache-2.0 */
/* Workloads of code: modules, libraries, launches, graphs. */
#include "failing_each.h"

#include <fcntl.h>

#define SIZE EACH_BYTES

/* A kernel with 4 KiB of local memory a thread; and 4 MiB of variables, which the API ledger does
 * not see in files and fat binaries. */
#define VERSION ".version 6.4\n.target sm_70\n.address_size 64\n"
static const char table[] = VERSION ".visible .global .align 4 .b8 table[4194304];\n";
static const char ptx[] =
    VERSION ".visible .entry big(.param .u64 cell)\n{\n.local .align 4 .b8 frame[4096];\nret;\n}\n";

/* A fat binary with the text, uncompressed. */
static const void *fat_binary(void)
{
    static struct {
        uint32_t magic;
        uint16_t version, header_bytes;
        uint64_t bytes;
        uint16_t kind, entry_version;
        uint32_t entry_header_bytes;
        uint64_t entry_bytes, no_compression[5];
        uint64_t raw_bytes;
        char text[sizeof(ptx) + 8];
    } image = {.magic = 0xba55ed50,
        .version = 1,
        .header_bytes = 16,
        .kind = 1,
        .entry_version = 1,
        .entry_header_bytes = 64};
    memcpy(image.text, ptx, sizeof(ptx));
    image.entry_bytes = sizeof(image.text);
    image.bytes = 64 + image.entry_bytes;
    return &image;
}

static const char *ptx_file(void)
{
    static char path[128];
    snprintf(path, sizeof(path), "%s/code-%d.ptx", bed_directory(), (int)getpid());
    int fd = open(path, O_WRONLY | O_CREAT | O_TRUNC | O_CLOEXEC, 0600);
    bool written = fd >= 0 && write(fd, ptx, sizeof(ptx) - 1) == sizeof(ptx) - 1;
    close(fd);
    return written ? path : "no file for the test's code";
}

static void modules(void)
{
    CUmodule module;
    CUlibrary library;
    const char *path = ptx_file();
    DO(cuModuleLoadData, &module, table);
    DO(cuModuleUnload, module);
    DO(cuModuleLoadDataEx, &module, table, 0, NULL, NULL);
    DO(cuModuleUnload, module);
    DO(cuModuleLoadFatBinary, &module, fat_binary());
    DO(cuModuleUnload, module);
    DO(cuModuleLoad, &module, path);
    DO(cuModuleUnload, module);
    DO(cuLibraryLoadData, &library, table, NULL, NULL, 0, NULL, NULL, 0);
    DO(cuLibraryUnload, library);
    DO(cuLibraryLoadFromFile, &library, path, NULL, NULL, 0, NULL, NULL, 0);
    DO(cuLibraryUnload, library);
    unlink(path);
}
const struct each_work each_modules = {"modules", modules, .bare = false};

static void launches(void)
{
    CUmodule module;
    CUfunction big;
    CUdeviceptr cell = 0;
    void *params[] = {&cell};
    CUlaunchConfig config = {.gridDimX = 1,
        .gridDimY = 1,
        .gridDimZ = 1,
        .blockDimX = 32,
        .blockDimY = 1,
        .blockDimZ = 1};
    DO(cuModuleLoadData, &module, ptx);
    DO(cuModuleGetFunction, &big, module, "big");
    DO(cuLaunchKernel, big, 1, 1, 1, 32, 1, 1, 0, NULL, params, NULL);
    DO(cuLaunchKernel_ptsz, big, 1, 1, 1, 32, 1, 1, 0, NULL, params, NULL);
    DO(cuLaunchKernelEx, &config, big, params, NULL);
    DO(cuLaunchKernelEx_ptsz, &config, big, params, NULL);
    DO(cuLaunchCooperativeKernel, big, 1, 1, 1, 32, 1, 1, 0, NULL, params);
    DO(cuLaunchCooperativeKernel_ptsz, big, 1, 1, 1, 32, 1, 1, 0, NULL, params);
    DO(cuCtxSynchronize, );
    DO(cuModuleUnload, module);
}
const struct each_work each_launches = {"launches", launches, .bare = false};

/* The forms that CUDA has given up or is about to. */
static void old_launches(void)
{
    CUmodule module;
    CUfunction big;
    CUdeviceptr cell = 0;
    void *params[] = {&cell};
    CUDA_LAUNCH_PARAMS list = {.gridDimX = 1,
        .gridDimY = 1,
        .gridDimZ = 1,
        .blockDimX = 32,
        .blockDimY = 1,
        .blockDimZ = 1,
        .kernelParams = params};
    DO(cuModuleLoadData, &module, ptx);
    DO(cuModuleGetFunction, &big, module, "big");
    DO(cuFuncSetBlockShape, big, 32, 1, 1);
    DO(cuParamSetSize, big, sizeof(cell));
    DO(cuParamSetv, big, 0, &cell, sizeof(cell));
    DO(cuLaunch, big);
    DO(cuLaunchGrid, big, 1, 1);
    DO(cuLaunchGridAsync, big, 1, 1, NULL);
    list.function = big;
    DO(cuStreamCreate, &list.hStream, CU_STREAM_NON_BLOCKING);
    DO(cuLaunchCooperativeKernelMultiDevice, &list, 1, 0);
    DO(cuStreamSynchronize, list.hStream);
    DO(cuStreamDestroy_v2, list.hStream);
    DO(cuModuleUnload, module);
}
const struct each_work each_old_launches = {"old launches", old_launches, .bare = false};

static CUgraph graph_with_memory(void)
{
    CUgraph graph;
    CUgraphNode node, last;
    CUDA_MEM_ALLOC_NODE_PARAMS params = {
        .poolProps = {.allocType = CU_MEM_ALLOCATION_TYPE_PINNED,
            .location = {.type = CU_MEM_LOCATION_TYPE_DEVICE, .id = 0}},
        .bytesize = SIZE};
    DO(cuGraphCreate, &graph, 0);
    DO(cuGraphAddMemAllocNode, &node, graph, NULL, 0, &params);
    DO(cuGraphAddMemFreeNode, &last, graph, &node, 1, params.dptr);
    return graph;
}

static void graphs(void)
{
    CUgraphExec exec;
    CUDA_GRAPH_INSTANTIATE_PARAMS params = {0};
    CUgraphExecUpdateResultInfo info;
    CUgraph graph = graph_with_memory(), empty;
    DO(cuGraphInstantiate, &exec, graph, NULL, NULL, 0);
    DO(cuGraphExecDestroy, exec);
    DO(cuGraphInstantiate_v2, &exec, graph, NULL, NULL, 0);
    DO(cuGraphExecDestroy, exec);
    DO(cuGraphInstantiateWithParams, &exec, graph, &params);
    DO(cuGraphExecDestroy, exec);
    DO(cuGraphInstantiateWithParams_ptsz, &exec, graph, &params);
    DO(cuGraphUpload, exec, NULL);
    DO(cuGraphLaunch, exec, NULL);
    DO(cuGraphLaunch_ptsz, exec, NULL);
    DO(cuCtxSynchronize, );
    DO(cuGraphExecDestroy, exec);
    DO(cuGraphDestroy, graph);
    DO(cuGraphCreate, &empty, 0);
    DO(cuGraphInstantiateWithFlags, &exec, empty, 0);
    DO(cuGraphExecUpdate_v2, exec, empty, &info);
    DO(cuGraphLaunch, exec, NULL);
    DO(cuGraphExecDestroy, exec);
    DO(cuGraphDestroy, empty);
    DO(cuDeviceGraphMemTrim, 0);
}
const struct each_work each_graphs = {"graphs", graphs, .bare = false};

/* A graph whose kernel needs more local memory after a change of it. */
static void changed_graphs(void)
{
    CUmodule module;
    CUgraph graph;
    CUgraphNode node, error;
    CUgraphExec exec;
    CUgraphExecUpdateResult updated;
    CUdeviceptr cell = 0;
    void *arguments[] = {&cell};
    CUDA_KERNEL_NODE_PARAMS kernel = {.gridDimX = 1,
        .gridDimY = 1,
        .gridDimZ = 1,
        .blockDimX = 1,
        .blockDimY = 1,
        .blockDimZ = 1,
        .kernelParams = arguments};
    CUgraphNodeParams any = {.type = CU_GRAPH_NODE_TYPE_KERNEL};
    DO(cuModuleLoadData, &module, ptx);
    DO(cuModuleGetFunction, &kernel.func, module, "big");
    memcpy(&any.kernel, &kernel, sizeof(kernel));
    DO(cuGraphCreate, &graph, 0);
    DO(cuGraphAddKernelNode_v2, &node, graph, NULL, 0, &kernel);
    DO(cuGraphInstantiateWithFlags, &exec, graph, 0);
    DO(cuGraphExecUpdate, exec, graph, &error, &updated);
    DO(cuGraphExecKernelNodeSetParams, exec, node, (const CUDA_KERNEL_NODE_PARAMS_v1 *)&kernel);
    DO(cuGraphExecKernelNodeSetParams_v2, exec, node, &kernel);
    DO(cuGraphExecNodeSetParams, exec, node, &any);
    DO(cuGraphUpload_ptsz, exec, NULL);
    DO(cuGraphLaunch, exec, NULL);
    DO(cuCtxSynchronize, );
    DO(cuGraphExecDestroy, exec);
    DO(cuGraphDestroy, graph);
    DO(cuModuleUnload, module);
}
const struct each_work each_changed_graphs = {"changed graphs", changed_graphs, .bare = false};
