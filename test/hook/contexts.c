/* SPDX-License-Identifier: Apache-2.0 */
/* Contexts that are attached to and detached from, and green ones: what they take is charged, and
 * given back when they go, not before. */
#include "allocate.h"
#include "bed.h"
#include "green.h"

#define LIMIT "20GiB"
#define SIZE (96 * MIB)

static uint64_t start(void)
{
    bed_context(0);
    return allocation_charged();
}

/* ---- attached and detached ---- */

BED_TEST("a context that is detached from gives back all that it took", .limit = LIMIT)
{
    uint64_t before = start(), handle;
    CUcontext second;
    CHECK_EQ(CU(cuCtxCreate_v2)(&second, 0, 0), CUDA_SUCCESS);
    CHECK_EQ(allocation_kinds[0].make(SIZE, &handle), CUDA_SUCCESS);
    CHECK(allocation_charged() > before + SIZE);
    CHECK_EQ(CU(cuCtxDetach)(second), CUDA_SUCCESS);
    CHECK_EQ(allocation_charged(), before);
}

BED_TEST("one that was attached to stays charged until the last detach", .limit = LIMIT)
{
    uint64_t before = start(), handle;
    CUcontext second, same;
    CHECK_EQ(CU(cuCtxCreate_v2)(&second, 0, 0), CUDA_SUCCESS);
    CHECK_EQ(allocation_kinds[0].make(SIZE, &handle), CUDA_SUCCESS);
    CHECK_EQ(CU(cuCtxAttach)(&same, 0), CUDA_SUCCESS);
    CHECK(same == second);
    uint64_t with = allocation_charged();
    CHECK_EQ(CU(cuCtxDetach)(second), CUDA_SUCCESS);
    CHECK_EQ(allocation_charged(), with);
    CHECK_EQ(allocation_kinds[0].drop(handle), CUDA_SUCCESS);
    CHECK_EQ(allocation_charged(), with - SIZE);
    CHECK_EQ(CU(cuCtxDetach)(second), CUDA_SUCCESS);
    CHECK_EQ(allocation_charged(), before);
}

static CUresult make_gl(CUcontext *context)
{
    return CU(cuGLCtxCreate_v2)(context, 0, 0);
}

static CUresult make_vdpau(CUcontext *context)
{
    return CU(cuVDPAUCtxCreate_v2)(context, 0, 0, 1, context);
}

/* 1 GiB has room for one context and some more. */
static void check_shared_with_graphics(CUresult (*make)(CUcontext *context))
{
    CUcontext first, second;
    CUdeviceptr pointer;
    CHECK_EQ(CU(cuInit)(0), CUDA_SUCCESS);
    CHECK_EQ(make(&first), CUDA_SUCCESS);
    CHECK(allocation_charged() >= 500 * MIB);
    CHECK_EQ(make(&second), CUDA_ERROR_OUT_OF_MEMORY);
    CHECK_EQ(CU(cuMemAlloc_v2)(&pointer, 600 * MIB), CUDA_ERROR_OUT_OF_MEMORY);
    CHECK_EQ(CU(cuCtxDestroy_v2)(first), CUDA_SUCCESS);
    CHECK_EQ(allocation_charged(), 0);
}

BED_TEST("a context that OpenGL shares is charged and given back", .limit = "1GiB")
{
    check_shared_with_graphics(make_gl);
}

BED_TEST("so is one that VDPAU shares", .limit = "1GiB")
{
    check_shared_with_graphics(make_vdpau);
}

BED_TEST("a detach that is refused gives nothing back", .limit = LIMIT)
{
    uint64_t before = start();
    CUcontext second, popped;
    CHECK_EQ(CU(cuCtxCreate_v2)(&second, 0, 0), CUDA_SUCCESS);
    uint64_t with = allocation_charged();
    CHECK_EQ(CU(cuCtxPopCurrent_v2)(&popped), CUDA_SUCCESS);
    CHECK_EQ(CU(cuCtxDetach)(second), CUDA_ERROR_INVALID_CONTEXT);
    CHECK_EQ(allocation_charged(), with);
    CHECK_EQ(CU(cuCtxDestroy_v2)(second), CUDA_SUCCESS);
    CHECK_EQ(allocation_charged(), before);
}

BED_TEST("a primary context that was attached to lasts until the detach", .limit = LIMIT)
{
    uint64_t before = start();
    CUcontext context;
    CHECK_EQ(CU(cuCtxAttach)(&context, 0), CUDA_SUCCESS);
    CHECK_EQ(CU(cuDevicePrimaryCtxRelease_v2)(0), CUDA_SUCCESS);
    CHECK_EQ(allocation_charged(), before);
    CHECK_EQ(CU(cuCtxDetach)(context), CUDA_SUCCESS);
    CHECK_EQ(allocation_charged(), 0);
    CHECK_EQ(bed_card_bytes(0), 0);
}

BED_TEST("detaching from a primary context that was not attached to does nothing", .limit = LIMIT)
{
    uint64_t before = start();
    CUcontext context;
    CHECK_EQ(CU(cuCtxGetCurrent)(&context), CUDA_SUCCESS);
    CHECK_EQ(CU(cuCtxDetach)(context), CUDA_SUCCESS);
    CHECK_EQ(allocation_charged(), before);
    CHECK_EQ(CU(cuCtxSynchronize)(), CUDA_SUCCESS);
}

/* ---- green contexts ---- */

BED_TEST("green contexts behave as they did on a card", .native = true)
{
    CUcontext primary, context;
    CUgreenCtx of_stream = NULL;
    CUevent event;
    bed_context(0);
    CHECK_EQ(CU(cuCtxGetCurrent)(&primary), CUDA_SUCCESS);
    CUgreenCtx green = green_make();
    CUstream stream = green_stream(green);
    CHECK_EQ(CU(cuStreamGetCtx_v2)(stream, &context, &of_stream), CUDA_SUCCESS);
    CHECK(context == primary && of_stream == green);
    CHECK_EQ(CU(cuCtxFromGreenCtx)(&context, green), CUDA_SUCCESS);
    CHECK(context == (CUcontext)(void *)green);
    CHECK_EQ(CU(cuCtxDestroy_v2)(context), CUDA_ERROR_INVALID_CONTEXT);
    green_enter(green);
    CHECK_EQ(CU(cuEventCreate)(&event, 0), CUDA_SUCCESS);
    CHECK_EQ(CU(cuEventRecord)(event, NULL), CUDA_SUCCESS);
    CHECK_EQ(CU(cuEventRecord)(event, CU_STREAM_PER_THREAD), CUDA_ERROR_INVALID_HANDLE);
    green_leave();
    CHECK_EQ(CU(cuEventRecord)(event, stream), CUDA_SUCCESS);
    CHECK_EQ(CU(cuDevicePrimaryCtxReset_v2)(0), CUDA_ERROR_NOT_PERMITTED);
    CHECK_EQ(CU(cuGreenCtxDestroy)(green), CUDA_SUCCESS);
    CHECK_EQ(CU(cuStreamQuery)(stream), CUDA_ERROR_CONTEXT_IS_DESTROYED);
    CHECK_EQ(CU(cuStreamDestroy_v2)(stream), CUDA_ERROR_CONTEXT_IS_DESTROYED);
    CHECK_EQ(CU(cuEventSynchronize)(event), CUDA_SUCCESS);
    CHECK_EQ(CU(cuEventDestroy_v2)(event), CUDA_SUCCESS);
}

BED_TEST("the multiprocessors of a device are split as on a card", .native = true)
{
    CUdevResource all, parts[4], rest, none;
    CUdevResourceDesc descriptor;
    unsigned count = 4;
    CHECK_EQ(CU(cuInit)(0), CUDA_SUCCESS);
    CHECK_EQ(CU(cuDeviceGetDevResource)(0, &all, CU_DEV_RESOURCE_TYPE_SM), CUDA_SUCCESS);
    CHECK(all.sm.smCount == 132 && all.sm.minSmPartitionSize == 8);
    CHECK_EQ(CU(cuDevSmResourceSplitByCount)(parts, &count, &all, &rest, 0, 12), CUDA_SUCCESS);
    CHECK(count == 4 && parts[0].sm.smCount == 16 && rest.sm.smCount == 132 - 4 * 16);
    CHECK_EQ(CU(cuDevSmResourceSplitByCount)(NULL, &count, &all, NULL, 0, 12), CUDA_SUCCESS);
    CHECK_EQ(count, 132 / 16);
    CHECK_EQ(CU(cuDevSmResourceSplitByCount)(&none, &count, parts, NULL, 0, 8),
        CUDA_ERROR_INVALID_RESOURCE_CONFIGURATION);
    CHECK_EQ(CU(cuDevResourceGenerateDesc)(&descriptor, parts, 4), CUDA_SUCCESS);
    parts[1] = all;
    CHECK_EQ(CU(cuDevResourceGenerateDesc)(&descriptor, parts, 2),
        CUDA_ERROR_INVALID_RESOURCE_CONFIGURATION);
}

BED_TEST("a green context is charged and given back", .limit = LIMIT)
{
    uint64_t before = start();
    CUgreenCtx green = green_make();
    uint64_t grown = allocation_charged() - before;
    CHECK(grown >= 4 * MIB && grown <= 8 * MIB);
    CHECK_EQ(CU(cuGreenCtxDestroy)(green), CUDA_SUCCESS);
    CHECK_EQ(allocation_charged(), before);
}

BED_TEST("what is allocated in a green context stays the primary context's", .limit = LIMIT)
{
    uint64_t before = start(), handle;
    CUgreenCtx green = green_make();
    green_enter(green);
    CHECK_EQ(allocation_kinds[0].make(SIZE, &handle), CUDA_SUCCESS);
    CHECK_EQ(CU(cuCtxSetLimit)(CU_LIMIT_STACK_SIZE, 4096), CUDA_SUCCESS);
    green_leave();
    CHECK_EQ(CU(cuGreenCtxDestroy)(green), CUDA_SUCCESS);
    CHECK_EQ(allocation_charged() - before, SIZE + 132ull * 2048 * (4096 - 1024));
    CHECK(allocation_charged() >= bed_card_bytes(0));
    CHECK_EQ(CU(cuDevicePrimaryCtxRelease_v2)(0), CUDA_SUCCESS);
    CHECK_EQ(bed_card_bytes(0), 0);
    CHECK_EQ(allocation_charged(), 0);
}

BED_TEST(
    "a primary context that only a green one holds is charged, and goes with it", .limit = LIMIT)
{
    uint64_t handle;
    CUgreenCtx green = green_make();
    green_enter(green);
    CHECK_EQ(allocation_kinds[0].make(SIZE, &handle), CUDA_SUCCESS);
    CHECK(allocation_charged() > 500 * MIB + SIZE);
    CHECK(allocation_charged() >= bed_card_bytes(0));
    green_leave();
    CHECK_EQ(CU(cuGreenCtxDestroy)(green), CUDA_SUCCESS);
    CHECK_EQ(bed_card_bytes(0), 0);
    CHECK_EQ(allocation_charged(), 0);
}

BED_TEST("a green context whose primary one does not fit is refused", .limit = "400MiB")
{
    CUgreenCtx green;
    CHECK_EQ(green_create(&green), CUDA_ERROR_OUT_OF_MEMORY);
    CHECK_EQ(bed_card_bytes(0), 0);
    CHECK_EQ(allocation_charged(), 0);
}

BED_TEST("so is one that does not fit itself, and nothing is left of it", .limit = "1GiB")
{
    uint64_t before = start(), handle;
    CUgreenCtx green;
    uint64_t room = (GIB - before) / (2 * MIB) * (2 * MIB);
    CHECK_EQ(allocation_kinds[0].make(room, &handle), CUDA_SUCCESS);
    CHECK_EQ(green_create(&green), CUDA_ERROR_OUT_OF_MEMORY);
    CHECK_EQ(allocation_charged(), before + room);
    CHECK_EQ(CU(cuDevicePrimaryCtxRelease_v2)(0), CUDA_SUCCESS);
    CHECK_EQ(bed_card_bytes(0), 0);
    CHECK_EQ(allocation_charged(), 0);
}

BED_TEST("a primary context that is not reset for a green one stays charged", .limit = LIMIT)
{
    uint64_t handle;
    start();
    CHECK_EQ(allocation_kinds[0].make(SIZE, &handle), CUDA_SUCCESS);
    CUgreenCtx green = green_make();
    uint64_t with = allocation_charged();
    CHECK_EQ(CU(cuDevicePrimaryCtxReset_v2)(0), CUDA_ERROR_NOT_PERMITTED);
    CHECK_EQ(allocation_charged(), with);
    CHECK_EQ(CU(cuGreenCtxDestroy)(green), CUDA_SUCCESS);
    CHECK_EQ(CU(cuDevicePrimaryCtxReset_v2)(0), CUDA_SUCCESS);
    CHECK_EQ(bed_card_bytes(0), 0);
    CHECK_EQ(allocation_charged(), 0);
}

int main(int argc, char **argv)
{
    return check_run(argc, argv);
}
