/* SPDX-License-Identifier: Apache-2.0 */
/* Shapes at the edges: extents, channels, element sizes and pitches get natively and under the
 * library the same answers; what is made of them counts. */
#include "abi/cuda.h"
#include "allocate.h"
#include "bed.h"

#define LIMIT "8GiB"
#define ANSWERS "answers" /* as an argument: prints them */

struct shape {
    size_t width, height, depth;
    CUarray_format format;
    unsigned channels, flags;
};

static const struct shape shapes[] = {
    {64, 64, 0, CU_AD_FORMAT_FLOAT, 4, 0},
    {64, 0, 0, CU_AD_FORMAT_FLOAT, 4, 0},
    {64, 0, 8, CU_AD_FORMAT_FLOAT, 1, 0},
    {0, 64, 0, CU_AD_FORMAT_FLOAT, 4, 0},
    {0, 0, 0, CU_AD_FORMAT_FLOAT, 4, 0},
    {0, 0, 64, CU_AD_FORMAT_FLOAT, 4, 0},
    {64, 64, 64, CU_AD_FORMAT_FLOAT, 0, 0},
    {64, 64, 0, CU_AD_FORMAT_UNSIGNED_INT8, 0, 0},
    {64, 64, 0, CU_AD_FORMAT_UNSIGNED_INT8, 3, 0},
    {64, 64, 0, CU_AD_FORMAT_UNSIGNED_INT8, 5, 0},
    {64, 64, 0, CU_AD_FORMAT_HALF, UINT32_MAX, 0},
    {64, 64, 0, (CUarray_format)0, 4, 0},
    {64, 64, 0, (CUarray_format)0x7fff, 4, 0},
    {64, 64, 6, CU_AD_FORMAT_FLOAT, 4, CUDA_ARRAY3D_CUBEMAP},
    {64, 64, 0, CU_AD_FORMAT_FLOAT, 4, CUDA_ARRAY3D_LAYERED},
    {64, 64, 0, CU_AD_FORMAT_FLOAT, 4, UINT32_MAX},
    {200000, 64, 0, CU_AD_FORMAT_FLOAT, 1, 0},
    {64, 64, 20000, CU_AD_FORMAT_FLOAT, 1, 0},
    {1, 1, 1, CU_AD_FORMAT_UNSIGNED_INT8, 1, 0},
};

static void answer_arrays(const struct shape *s)
{
    CUDA_ARRAY_DESCRIPTOR flat = {s->width, s->height, s->format, s->channels};
    CUDA_ARRAY3D_DESCRIPTOR deep = {
        s->width, s->height, s->depth, s->format, s->channels, s->flags};
    CUarray array = NULL;
    CUmipmappedArray mipmap = NULL;
    CUresult result = CU(cuArrayCreate_v2)(&array, &flat);
    CUresult freed = result == CUDA_SUCCESS ? CU(cuArrayDestroy)(array) : CUDA_SUCCESS;
    printf("flat %d %d %d\n", (int)result, array != NULL, (int)freed);
    array = NULL;
    result = CU(cuArray3DCreate_v2)(&array, &deep);
    freed = result == CUDA_SUCCESS ? CU(cuArrayDestroy)(array) : CUDA_SUCCESS;
    printf("deep %d %d %d\n", (int)result, array != NULL, (int)freed);
    for (unsigned levels = 0; levels < 4; levels++) {
        result = CU(cuMipmappedArrayCreate)(&mipmap, &deep, levels);
        freed = result == CUDA_SUCCESS ? CU(cuMipmappedArrayDestroy)(mipmap) : CUDA_SUCCESS;
        printf("mipmap of %u %d %d\n", levels, (int)result, (int)freed);
    }
}

static void answer_pitch(size_t width, size_t height, unsigned element)
{
    CUdeviceptr pointer = 4711;
    size_t pitch = 4712;
    CUresult result = CU(cuMemAllocPitch_v2)(&pointer, &pitch, width, height, element);
    printf("pitch of %zu by %zu of %u: %d %zu %d\n", width, height, element, (int)result, pitch,
        pointer != 4711);
    if (result == CUDA_SUCCESS)
        CU(cuMemFree_v2)(pointer);
}

static int print_answers(void)
{
    static const size_t extents[] = {0, 1, 3, 511, 512, 513, 4097, 100000};
    static const unsigned elements[] = {0, 1, 2, 4, 8, 16, 32, UINT32_MAX};
    CUdeviceptr pointer;
    bed_context(0);
    for (size_t i = 0; i < sizeof(shapes) / sizeof(shapes[0]); i++)
        answer_arrays(&shapes[i]);
    for (size_t w = 0; w < sizeof(extents) / sizeof(extents[0]); w++) {
        for (size_t h = 0; h < 3; h++) {
            for (size_t e = 0; e < sizeof(elements) / sizeof(elements[0]); e++)
                answer_pitch(extents[w], extents[h], elements[e]);
        }
    }
    printf("alloc of 0: %d\n", (int)CU(cuMemAlloc_v2)(&pointer, 0));
    printf("async of 0: %d\n", (int)CU(cuMemAllocAsync)(&pointer, 0, NULL));
    printf("managed of 0: %d\n", (int)CU(cuMemAllocManaged)(&pointer, 0, CU_MEM_ATTACH_GLOBAL));
    printf("flags of nobody: %d\n", (int)CU(cuMemAllocManaged)(&pointer, MIB, UINT32_MAX));
    fflush(stdout);
    return 0;
}

static void check_lines(char *native, char *ours)
{
    char *native_rest = NULL, *ours_rest = NULL;
    char *wanted = strtok_r(native, "\n", &native_rest), *got = strtok_r(ours, "\n", &ours_rest);
    int lines = 0;
    for (; wanted && got; lines++) {
        CHECK_STR(got, wanted);
        wanted = strtok_r(NULL, "\n", &native_rest);
        got = strtok_r(NULL, "\n", &ours_rest);
    }
    CHECK(!wanted && !got);
    CHECK(lines > 200);
}

/* The line that tells of the API ledger is not an answer. */
static void run_answers(bool native, const char *limit, char *output, size_t output_bytes)
{
    char *argv[] = {realpath("/proc/self/exe", NULL), ANSWERS, NULL};
    const struct bed bed = {
        .limit = limit, .native = native, .environment = {"LIBCUDA_LOG_LEVEL=0"}};
    CHECK_EQ(bed_run(&bed, argv, output, output_bytes), 0);
}

static void check_same(const char *limit)
{
    static char native[1 << 16], ours[1 << 16];
    run_answers(true, limit, native, sizeof(native));
    run_answers(false, limit, ours, sizeof(ours));
    check_lines(native, ours);
}

TEST("every odd shape, element size and pitch gets the driver's own answer")
{
    check_same(LIMIT);
}

TEST("also without a limit")
{
    check_same(NULL);
}

static uint64_t charge_of(const struct shape *s)
{
    CUDA_ARRAY3D_DESCRIPTOR deep = {
        s->width, s->height, s->depth, s->format, s->channels, s->flags};
    CUarray array;
    uint64_t before = allocation_charged();
    CHECK_EQ(CU(cuArray3DCreate_v2)(&array, &deep), CUDA_SUCCESS);
    uint64_t bytes = allocation_charged() - before;
    CHECK_EQ(CU(cuArrayDestroy)(array), CUDA_SUCCESS);
    CHECK_EQ(allocation_charged(), before);
    return bytes;
}

BED_TEST("an array of depth 0 is charged as one of two dimensions, of height 0 as of one",
    .limit = LIMIT)
{
    bed_context(0);
    uint64_t flat = charge_of(&(struct shape){4096, 4096, 0, CU_AD_FORMAT_FLOAT, 4, 0});
    CHECK(flat >= 256 * MIB && flat < 260 * MIB);
    uint64_t line = charge_of(&(struct shape){131072, 0, 0, CU_AD_FORMAT_FLOAT, 4, 0});
    CHECK(line >= 2 * MIB && line < 6 * MIB);
}

BED_TEST("an array of depth 0 that does not fit is refused", .limit = LIMIT)
{
    CUDA_ARRAY3D_DESCRIPTOR deep = {131072, 8192, 0, CU_AD_FORMAT_FLOAT, 4, 0};
    CUarray array;
    bed_context(0);
    uint64_t before = allocation_charged();
    CHECK_EQ(CU(cuArray3DCreate_v2)(&array, &deep), CUDA_ERROR_OUT_OF_MEMORY);
    CHECK_EQ(allocation_charged(), before);
    CHECK(bed_card_bytes(0) <= 8 * GIB);
}

BED_TEST("rows of one byte count as long as the driver made them", .limit = LIMIT)
{
    CUdeviceptr pointer;
    size_t pitch = 0;
    bed_context(0);
    uint64_t before = allocation_charged(), card = bed_card_bytes(0);
    CHECK_EQ(CU(cuMemAllocPitch_v2)(&pointer, &pitch, 1, 1 << 20, 4), CUDA_SUCCESS);
    CHECK(pitch >= 32);
    CHECK(allocation_charged() - before >= bed_card_bytes(0) - card);
    CHECK_EQ(CU(cuMemAllocPitch_v2)(&pointer, &pitch, 1, 64 << 20, 4), CUDA_ERROR_OUT_OF_MEMORY);
    CHECK(bed_card_bytes(0) <= 8 * GIB);
}

int main(int argc, char **argv)
{
    if (argc == 2 && !strcmp(argv[1], ANSWERS))
        return print_answers();
    return check_run(argc, argv);
}
