/* SPDX-License-Identifier: Apache-2.0 */
/* Launches. With the resource manager's ledger and no compute limit they are two loads and a jump.
 * The API ledger looks at what a kernel's local memory takes, the launch gate (pace/pace.h) at the
 * container's GPU time, in functions of their own so that the usual path touches no argument. */
#include "pace/capture.h"
#include "memory/context_memory.h"
#include "hook/hook.h"
#include "pace/pace.h"
#include "vmem/use.h"
#include "vmem/world.h"

/* The table `cuda` is filled by then: a module was loaded, by a hook that calls hook_enter. */
static inline bool counts_by_api(void)
{
    return __builtin_expect(memory_ledger() == MEMORY_LEDGER_API, 0);
}

/* A launch that a capture records takes nothing: the graph's launch does (hook/cuda_graph.c). */
static bool fits(
    CUfunction function, CUstream stream, enum stream_zero zero, struct context_growth *ret_growth)
{
    *ret_growth = (struct context_growth){.charged = false};
    return capture_records(stream, zero) || context_memory_fits_function(function, ret_growth);
}

/* True where the launch may go on as it is: one word says that neither the API ledger nor the world
 * stop (vmem/world.h) wants to see it. */
static inline bool is_plain(void)
{
    return pace_passes() && !__builtin_expect(load_relaxed(&memory_looks_at_launches), 0);
}

/* A launch that is not plain. */
struct launch {
    struct context_growth growth;
    struct pace_launch pace;
};

static uint64_t launch_key(CUfunction function, uint64_t blocks, uint64_t threads)
{
    return duration_key((uintptr_t)function, blocks * 4099 + threads);
}

/* Not by shifts alone, by which gcc 12 reads eight bytes where four were just written: the
 * processor waits 5 ns for those. */
static uint64_t volume(unsigned int x, unsigned int y, unsigned int z)
{
    return x + y * ((1ull << 20) + 1) + z * ((1ull << 40) + 1);
}

static inline bool begin(struct launch *launch, CUfunction function, CUstream stream,
    enum stream_zero zero, uint64_t key)
{
    HALT_GUARD();
    launch->growth.charged = false;
    launch->pace.meter = NULL;
    launch->pace.by_estimate = NULL;
    if (counts_by_api() && !fits(function, stream, zero, &launch->growth))
        return false;
    if (pace_free_launches < 0) {
        world_wait(stream, zero);
        pace_begin(&launch->pace, stream, zero, key);
    }
    return true;
}

static inline CUresult end(struct launch *launch, CUresult result)
{
    pace_end(&launch->pace, result == CUDA_SUCCESS);
    if (launch->growth.charged)
        context_memory_settle(&launch->growth, result == CUDA_SUCCESS);
    return result;
}

__attribute__((noinline)) static CUresult looked_kernel(__typeof__(cuda.cuLaunchKernel) launch,
    enum stream_zero zero, CUfunction f, unsigned int gridDimX, unsigned int gridDimY,
    unsigned int gridDimZ, unsigned int blockDimX, unsigned int blockDimY, unsigned int blockDimZ,
    unsigned int sharedMemBytes, CUstream hStream, void **kernelParams, void **extra)
{
    struct launch started;
    uint64_t key = launch_key(
        f, volume(gridDimX, gridDimY, gridDimZ), volume(blockDimX, blockDimY, blockDimZ));
    if (!begin(&started, f, hStream, zero, key))
        return CUDA_ERROR_OUT_OF_MEMORY;
    bool entered = world_enter();
    use_note_kernel(entered, f, kernelParams, extra);
    CUresult result = launch(f, gridDimX, gridDimY, gridDimZ, blockDimX, blockDimY, blockDimZ,
        sharedMemBytes, hStream, kernelParams, extra);
    return end(&started, world_left(entered, result));
}

__attribute__((noinline)) static CUresult looked_kernel_ex(__typeof__(cuda.cuLaunchKernelEx) launch,
    enum stream_zero zero, const CUlaunchConfig *config, CUfunction f, void **kernelParams,
    void **extra)
{
    struct launch started;
    uint64_t key = config
                       ? launch_key(f, volume(config->gridDimX, config->gridDimY, config->gridDimZ),
                             volume(config->blockDimX, config->blockDimY, config->blockDimZ))
                       : 0;
    if (!begin(&started, f, config ? config->hStream : NULL, zero, key))
        return CUDA_ERROR_OUT_OF_MEMORY;
    bool entered = world_enter();
    use_note_kernel(entered, f, kernelParams, extra);
    CUresult result = launch(config, f, kernelParams, extra);
    return end(&started, world_left(entered, result));
}

__attribute__((noinline)) static CUresult looked_cooperative(
    __typeof__(cuda.cuLaunchCooperativeKernel) launch, enum stream_zero zero, CUfunction f,
    unsigned int gridDimX, unsigned int gridDimY, unsigned int gridDimZ, unsigned int blockDimX,
    unsigned int blockDimY, unsigned int blockDimZ, unsigned int sharedMemBytes, CUstream hStream,
    void **kernelParams)
{
    struct launch started;
    uint64_t key = launch_key(
        f, volume(gridDimX, gridDimY, gridDimZ), volume(blockDimX, blockDimY, blockDimZ));
    if (!begin(&started, f, hStream, zero, key))
        return CUDA_ERROR_OUT_OF_MEMORY;
    bool entered = world_enter();
    use_note_kernel(entered, f, kernelParams, NULL);
    CUresult result = launch(f, gridDimX, gridDimY, gridDimZ, blockDimX, blockDimY, blockDimZ,
        sharedMemBytes, hStream, kernelParams);
    return end(&started, world_left(entered, result));
}

/* The launches of CUDA before 4.0. */
CUresult hook_cuLaunch(CUfunction f)
{
    struct launch started;
    if (is_plain())
        return cuda.cuLaunch(f);
    if (!begin(&started, f, NULL, STREAM_ZERO_LEGACY, launch_key(f, 1, 0)))
        return CUDA_ERROR_OUT_OF_MEMORY;
    bool entered = world_enter();
    use_note_unseen(entered);
    return end(&started, world_left(entered, cuda.cuLaunch(f)));
}

CUresult hook_cuLaunchGrid(CUfunction f, int grid_width, int grid_height)
{
    struct launch started;
    uint64_t key = launch_key(f, volume((unsigned)grid_width, (unsigned)grid_height, 1), 0);
    if (is_plain())
        return cuda.cuLaunchGrid(f, grid_width, grid_height);
    if (!begin(&started, f, NULL, STREAM_ZERO_LEGACY, key))
        return CUDA_ERROR_OUT_OF_MEMORY;
    bool entered = world_enter();
    use_note_unseen(entered);
    return end(&started, world_left(entered, cuda.cuLaunchGrid(f, grid_width, grid_height)));
}

CUresult hook_cuLaunchGridAsync(CUfunction f, int grid_width, int grid_height, CUstream hStream)
{
    struct launch started;
    uint64_t key = launch_key(f, volume((unsigned)grid_width, (unsigned)grid_height, 1), 0);
    if (is_plain())
        return cuda.cuLaunchGridAsync(f, grid_width, grid_height, hStream);
    if (!begin(&started, f, hStream, STREAM_ZERO_LEGACY, key))
        return CUDA_ERROR_OUT_OF_MEMORY;
    bool entered = world_enter();
    use_note_unseen(entered);
    return end(
        &started, world_left(entered, cuda.cuLaunchGridAsync(f, grid_width, grid_height, hStream)));
}

/* Makes the context of the device's stream the current one. */
static bool enter_stream(const CUDA_LAUNCH_PARAMS *launch)
{
    CUcontext context;
    return cuda.cuStreamGetCtx(launch->hStream, &context) == CUDA_SUCCESS &&
           cuda.cuCtxPushCurrent_v2(context) == CUDA_SUCCESS;
}

static void leave_stream(bool entered)
{
    CUcontext context;
    if (entered)
        (void)cuda.cuCtxPopCurrent_v2(&context);
}

/* From the launch of device `at` on; no deeper than a machine has devices. */
static CUresult looked_multi_device(
    CUDA_LAUNCH_PARAMS *list, unsigned int count, unsigned int flags, unsigned int at)
{
    struct launch started = {.growth = {.charged = false}};
    if (!list || at >= count || at >= VGPU_REGION_DEVICES) {
        bool in_world = world_enter();
        use_note_unseen(in_world);
        return world_left(in_world, cuda.cuLaunchCooperativeKernelMultiDevice(list, count, flags));
    }
    uint64_t key = launch_key(list[at].function,
        volume(list[at].gridDimX, list[at].gridDimY, list[at].gridDimZ),
        volume(list[at].blockDimX, list[at].blockDimY, list[at].blockDimZ));
    /* Each device is paced for itself. */
    if (at)
        (void)pace_passes();
    bool entered = enter_stream(&list[at]);
    bool fit =
        !entered || begin(&started, list[at].function, list[at].hStream, STREAM_ZERO_LEGACY, key);
    leave_stream(entered);
    if (!fit)
        return CUDA_ERROR_OUT_OF_MEMORY;
    CUresult result = looked_multi_device(list, count, flags, at + 1);
    entered = enter_stream(&list[at]);
    (void)end(&started, result);
    leave_stream(entered);
    return result;
}

CUresult hook_cuLaunchCooperativeKernelMultiDevice(
    CUDA_LAUNCH_PARAMS *launchParamsList, unsigned int numDevices, unsigned int flags)
{
    if (!is_plain())
        return looked_multi_device(launchParamsList, numDevices, flags, 0);
    return cuda.cuLaunchCooperativeKernelMultiDevice(launchParamsList, numDevices, flags);
}

#define TWINS "hook/cuda_launch.def"
#include "hook/twins.h"
