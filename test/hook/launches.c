/* SPDX-License-Identifier: Apache-2.0 */
/* Every form of launch: the local memory that a kernel needs counts before it is taken, and one
 * that does not fit is refused. */
#include "allocate.h"
#include "bed.h"
#include "driver.h"

/* Of 32 KiB a thread on an H200, beyond what a context has. */
#define LOCAL_BYTES ((32768ull - 1024) * 132 * 2048)

static uint64_t cell;
static void *arguments[] = {&cell};

static CUresult launch_kernel(CUfunction function, CUstream stream)
{
    return CU(cuLaunchKernel)(function, 1, 1, 1, 32, 1, 1, 0, stream, arguments, NULL);
}

static CUresult launch_kernel_ptsz(CUfunction function, CUstream stream)
{
    return CU(cuLaunchKernel_ptsz)(function, 1, 1, 1, 32, 1, 1, 0, stream, arguments, NULL);
}

static CUlaunchConfig config_on(CUstream stream)
{
    return (CUlaunchConfig){.gridDimX = 1,
        .gridDimY = 1,
        .gridDimZ = 1,
        .blockDimX = 32,
        .blockDimY = 1,
        .blockDimZ = 1,
        .hStream = stream};
}

static CUresult launch_kernel_ex(CUfunction function, CUstream stream)
{
    CUlaunchConfig config = config_on(stream);
    return CU(cuLaunchKernelEx)(&config, function, arguments, NULL);
}

static CUresult launch_kernel_ex_ptsz(CUfunction function, CUstream stream)
{
    CUlaunchConfig config = config_on(stream);
    return CU(cuLaunchKernelEx_ptsz)(&config, function, arguments, NULL);
}

static CUresult launch_cooperative(CUfunction function, CUstream stream)
{
    return CU(cuLaunchCooperativeKernel)(function, 1, 1, 1, 32, 1, 1, 0, stream, arguments);
}

static CUresult launch_cooperative_ptsz(CUfunction function, CUstream stream)
{
    return CU(cuLaunchCooperativeKernel_ptsz)(function, 1, 1, 1, 32, 1, 1, 0, stream, arguments);
}

static CUresult launch_multi_device(CUfunction function, CUstream stream)
{
    CUDA_LAUNCH_PARAMS params = {.function = function,
        .gridDimX = 1,
        .gridDimY = 1,
        .gridDimZ = 1,
        .blockDimX = 32,
        .blockDimY = 1,
        .blockDimZ = 1,
        .hStream = stream,
        .kernelParams = arguments};
    return CU(cuLaunchCooperativeKernelMultiDevice)(&params, 1, 0);
}

static void shape(CUfunction function)
{
    CHECK_EQ(CU(cuFuncSetBlockShape)(function, 32, 1, 1), CUDA_SUCCESS);
    CHECK_EQ(CU(cuParamSetSize)(function, sizeof(cell)), CUDA_SUCCESS);
    CHECK_EQ(CU(cuParamSetv)(function, 0, &cell, sizeof(cell)), CUDA_SUCCESS);
}

static CUresult launch_old(CUfunction function, CUstream stream)
{
    (void)stream;
    shape(function);
    return CU(cuLaunch)(function);
}

static CUresult launch_grid(CUfunction function, CUstream stream)
{
    (void)stream;
    shape(function);
    return CU(cuLaunchGrid)(function, 1, 1);
}

static CUresult launch_grid_async(CUfunction function, CUstream stream)
{
    shape(function);
    return CU(cuLaunchGridAsync)(function, 1, 1, stream);
}

static const struct form {
    const char *function;
    CUresult (*launch)(CUfunction function, CUstream stream);
} forms[] = {
    {"cuLaunchKernel", launch_kernel},
    {"cuLaunchKernel_ptsz", launch_kernel_ptsz},
    {"cuLaunchKernelEx", launch_kernel_ex},
    {"cuLaunchKernelEx_ptsz", launch_kernel_ex_ptsz},
    {"cuLaunchCooperativeKernel", launch_cooperative},
    {"cuLaunchCooperativeKernel_ptsz", launch_cooperative_ptsz},
    {"cuLaunchCooperativeKernelMultiDevice", launch_multi_device},
    {"cuLaunch", launch_old},
    {"cuLaunchGrid", launch_grid},
    {"cuLaunchGridAsync", launch_grid_async},
};
#define FORM_COUNT (sizeof(forms) / sizeof(forms[0]))

/* In a context of its own, with which the local memory goes. */
static void launch_in_context(const struct form *form, CUresult wanted)
{
    CUcontext context;
    CUstream stream;
    CUmodule module;
    CUfunction nop, big;
    CHECK_EQ(CU(cuCtxCreate_v2)(&context, 0, 0), CUDA_SUCCESS);
    CHECK_EQ(CU(cuStreamCreate)(&stream, CU_STREAM_NON_BLOCKING), CUDA_SUCCESS);
    CHECK_EQ(CU(cuModuleLoadData)(&module, driver_ptx), CUDA_SUCCESS);
    CHECK_EQ(CU(cuModuleGetFunction)(&big, module, "big"), CUDA_SUCCESS);
    CHECK_EQ(CU(cuModuleGetFunction)(&nop, module, "nop"), CUDA_SUCCESS);
    uint64_t before = allocation_charged(), card = bed_card_bytes(0);
    bool passed = CHECK_EQ(form->launch(nop, stream), CUDA_SUCCESS);
    passed &= CHECK_EQ(allocation_charged(), before);
    for (int i = 0; i < 2; i++) {
        passed &= CHECK_EQ(form->launch(big, stream), wanted);
        passed &= CHECK_EQ(allocation_charged() - before, wanted == CUDA_SUCCESS ? LOCAL_BYTES : 0);
        passed &= CHECK_EQ(bed_card_bytes(0) - card, allocation_charged() - before);
    }
    if (!passed)
        printf("# %s\n", form->function);
    CHECK_EQ(CU(cuCtxDestroy_v2)(context), CUDA_SUCCESS);
}

BED_TEST("every form of launch counts the local memory that it takes", .limit = "20GiB")
{
    bed_context(0);
    uint64_t before = allocation_charged();
    for (size_t i = 0; i < FORM_COUNT; i++)
        launch_in_context(&forms[i], CUDA_SUCCESS);
    CHECK_EQ(allocation_charged(), before);
}

BED_TEST("every form of launch is refused where its local memory does not fit", .limit = "4GiB")
{
    bed_context(0);
    uint64_t before = allocation_charged();
    for (size_t i = 0; i < FORM_COUNT; i++)
        launch_in_context(&forms[i], CUDA_ERROR_OUT_OF_MEMORY);
    CHECK_EQ(allocation_charged(), before);
}

int main(int argc, char **argv)
{
    return check_run(argc, argv);
}
