/* SPDX-License-Identifier: Apache-2.0 */
/* Workloads of fills, and of copies on the card that name no stream. What was written is read back
 * after each, so that no argument is lost on the way. */
#include "failing_each.h"

#define SIZE EACH_BYTES
#define BYTES 4096u
#define WORDS (BYTES / sizeof(uint32_t))
/* Above what the library takes for a small copy. */
#define LARGE_BYTES (2 * MIB)

static uint32_t received[LARGE_BYTES / sizeof(uint32_t)];

static void is_filled(CUdeviceptr device, uint32_t value)
{
    memset(received, 0xff, BYTES);
    DO(cuMemcpyDtoH_v2, received, device, BYTES);
    for (size_t i = 0; i < WORDS; i++) {
        if (!CHECK_EQ(received[i], value))
            return;
    }
}

/* A value of each size that is the same word over all. */
#define FILL(suffix, ...)                                                                          \
    do {                                                                                           \
        DO(cuMemsetD8##suffix, device, 0x21, BYTES __VA_OPT__(, ) __VA_ARGS__);                    \
        is_filled(device, 0x21212121);                                                             \
        DO(cuMemsetD16##suffix, device, 0x4321, BYTES / 2 __VA_OPT__(, ) __VA_ARGS__);             \
        is_filled(device, 0x43214321);                                                             \
        DO(cuMemsetD32##suffix, device, 0x87654321, BYTES / 4 __VA_OPT__(, ) __VA_ARGS__);         \
        is_filled(device, 0x87654321);                                                             \
        DO(cuMemsetD2D8##suffix, device, 64, 0x22, 64, BYTES / 64 __VA_OPT__(, ) __VA_ARGS__);     \
        is_filled(device, 0x22222222);                                                             \
        DO(cuMemsetD2D16##suffix, device, 64, 0x4322, 32, BYTES / 64 __VA_OPT__(, ) __VA_ARGS__);  \
        is_filled(device, 0x43224322);                                                             \
        DO(cuMemsetD2D32##suffix, device, 64, 0x87654322, 16,                                      \
            BYTES / 64 __VA_OPT__(, ) __VA_ARGS__);                                                \
        is_filled(device, 0x87654322);                                                             \
    } while (0)

static void fills(void)
{
    CUstream stream;
    CUdeviceptr device;
    DO(cuStreamCreate, &stream, CU_STREAM_NON_BLOCKING);
    DO(cuMemAlloc_v2, &device, SIZE);
    FILL(_v2);
    FILL(_v2_ptds);
    FILL(Async, stream);
    FILL(Async_ptsz, stream);
    DO(cuMemcpyHtoD_v2, device, received, BYTES);
    DO(cuMemcpyHtoD_v2_ptds, device, received, BYTES);
    DO(cuMemcpyDtoH_v2_ptds, received, device, BYTES);
    is_filled(device, 0x87654322);
    DO(cuMemFree_v2, device);
    DO(cuStreamDestroy_v2, stream);
}
const struct each_work each_fills = {"fills", fills, .bare = false};

/* ---- Copies ---- */

static CUdeviceptr from, to;

static void send(uint32_t value)
{
    DO(cuMemsetD32_v2, from, value, WORDS);
    DO(cuMemsetD32_v2, to, 0, WORDS);
}

#define CAME(value, call)                                                                          \
    do {                                                                                           \
        send(value);                                                                               \
        call;                                                                                      \
        is_filled(to, value);                                                                      \
    } while (0)

/* BYTES in rows of 64. */
static const CUDA_MEMCPY2D *flat(void)
{
    static CUDA_MEMCPY2D copy;
    copy = (CUDA_MEMCPY2D){.srcMemoryType = CU_MEMORYTYPE_DEVICE,
        .srcDevice = from,
        .dstMemoryType = CU_MEMORYTYPE_UNIFIED,
        .dstDevice = to,
        .WidthInBytes = 64,
        .Height = BYTES / 64};
    return &copy;
}

static const CUDA_MEMCPY3D *deep(void)
{
    static CUDA_MEMCPY3D copy;
    copy = (CUDA_MEMCPY3D){.srcMemoryType = CU_MEMORYTYPE_DEVICE,
        .srcDevice = from,
        .dstMemoryType = CU_MEMORYTYPE_DEVICE,
        .dstDevice = to,
        .WidthInBytes = 64,
        .Height = BYTES / 256,
        .Depth = 4};
    return &copy;
}

static const CUDA_MEMCPY3D_PEER *between(CUcontext context)
{
    static CUDA_MEMCPY3D_PEER copy;
    copy = (CUDA_MEMCPY3D_PEER){.srcMemoryType = CU_MEMORYTYPE_DEVICE,
        .srcDevice = from,
        .srcContext = context,
        .dstMemoryType = CU_MEMORYTYPE_DEVICE,
        .dstDevice = to,
        .dstContext = context,
        .WidthInBytes = 64,
        .Height = BYTES / 256,
        .Depth = 4};
    return &copy;
}

/* In one form of the functions that name no stream, and of the one that does. */
#define COPY(suffix, suffix_async)                                                                 \
    do {                                                                                           \
        CAME(1, DO(cuMemcpy##suffix, to, from, LARGE_BYTES));                                      \
        CAME(2, DO(cuMemcpyDtoD_v2##suffix, to, from, BYTES));                                     \
        CAME(3, DO(cuMemcpyDtoD_v2##suffix, to, from, LARGE_BYTES));                               \
        CAME(4, DO(cuMemcpyDtoDAsync_v2##suffix_async, to, from, LARGE_BYTES, stream));            \
        CAME(5, DO(cuMemcpyPeer##suffix, to, context, from, context, BYTES));                      \
        CAME(6, DO(cuMemcpy2D_v2##suffix, flat()));                                                \
        CAME(7, DO(cuMemcpy2DUnaligned_v2##suffix, flat()));                                       \
        CAME(8, DO(cuMemcpy3D_v2##suffix, deep()));                                                \
        CAME(9, DO(cuMemcpy3DPeer##suffix, between(context)));                                     \
        DO(cuMemcpyDtoA_v2##suffix, array, 0, from, BYTES);                                        \
        DO(cuMemcpyAtoA_v2##suffix, array, BYTES, array, 0, BYTES);                                \
        CAME(9, DO(cuMemcpyAtoD_v2##suffix, to, array, BYTES, BYTES));                             \
    } while (0)

static void card_copies(void)
{
    CUcontext context;
    CUstream stream;
    CUarray array;
    CUDA_ARRAY_DESCRIPTOR line = {
        .Width = 2 * BYTES, .Height = 0, .Format = CU_AD_FORMAT_UNSIGNED_INT8, .NumChannels = 1};
    DO(cuCtxGetCurrent, &context);
    DO(cuStreamCreate, &stream, CU_STREAM_NON_BLOCKING);
    DO(cuMemAlloc_v2, &from, SIZE);
    DO(cuMemAlloc_v2, &to, SIZE);
    DO(cuArrayCreate_v2, &array, &line);
    COPY(, );
    COPY(_ptds, _ptsz);
    DO(cuArrayDestroy, array);
    DO(cuMemFree_v2, to);
    DO(cuMemFree_v2, from);
    DO(cuStreamDestroy_v2, stream);
}
const struct each_work each_card_copies = {"copies on the card", card_copies, .bare = false};
