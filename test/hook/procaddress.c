/* SPDX-License-Identifier: Apache-2.0 */
/* cuGetProcAddress answers exactly as without us, for each name, version and flag, but that hooked
 * functions are ours. The native answers come from this program, started natively. */
#include "abi/cuda.h"
#include "bed.h"
#include "where.h"

#define ANSWERS "--answers"
#define OUTPUT_BYTES (8u << 20)

static const char *const extra_names[] = {"", "cuFoo", "cudaMalloc", "cu", "curl_easy_init",
    "nvmlInit_v2", "cuMemAlloc_v2", "cuMemAlloc_v2_ptsz", "cuGetProcAddress_v2"};
static const char *const names[] = {
#define ENTRY(symbol, name, since, kind) name,
#include "abi/cuda_versions.def"
#undef ENTRY
};
static const int versions[] = {0, 2000, 3020, 4000, 7000, 11000, 11030, 12000, 12050, 13000, 99000};

static void *const untouched = (void *)(uintptr_t)0x1234;

static void answer(const char *name, int version, cuuint64_t flags)
{
    void *one = untouched, *two = untouched;
    CUdriverProcAddressQueryResult status = 77;
    CUresult first = CU(cuGetProcAddress)(name, &one, version, flags);
    CUresult second = CU(cuGetProcAddress_v2)(name, &two, version, flags, &status);
    CUresult without = CU(cuGetProcAddress_v2)(name, &two, version, flags, NULL);
    bool given = one && one != untouched;
    printf("%s %d %llu: %d %d %d status %d %s %s %s\n", name, version, (unsigned long long)flags,
        first, second, without, (int)status, one == two ? "same" : "different",
        given ? where_name(one)
        : one ? "untouched"
              : "NULL",
        given ? where_is(one) : "-");
}

static void answers(void)
{
    for (size_t n = 0; n < WHERE_COUNT(names) + WHERE_COUNT(extra_names); n++) {
        bool listed = n < WHERE_COUNT(names);
        if (listed && n && !strcmp(names[n], names[n - 1]))
            continue;
        for (size_t v = 0; v < WHERE_COUNT(versions); v++) {
            for (cuuint64_t flags = 0; flags <= 4; flags++)
                answer(listed ? names[n] : extra_names[n - WHERE_COUNT(names)], versions[v], flags);
        }
    }
}

/* The native line with the library in which a hooked function lies for us. */
static void expect(char *line, size_t size)
{
    char *place = strrchr(line, ' ');
    if (!place || strcmp(place + 1, "libcuda.so.1") != 0)
        return;
    *place = '\0';
    char *name = strrchr(line, ' ') + 1;
    bool ours = where_is_hooked(name);
    snprintf(place, size - (size_t)(place - line), " %s", ours ? "libvgpu.so" : "libcuda.so.1");
}

static void compare(const char *sim)
{
    char *argv[] = {bed_build_path("test/hook/hook-procaddress"), ANSWERS, NULL};
    char *native = malloc(OUTPUT_BYTES), *ours = malloc(OUTPUT_BYTES);
    struct bed bed = {.sim = sim};
    int status = bed_run(&bed, argv, ours, OUTPUT_BYTES);
    CHECK_EQ(status, 0);
    bed.native = true;
    CHECK_EQ(bed_run(&bed, argv, native, OUTPUT_BYTES), 0);
    char *in_native, *in_ours;
    char *wanted = strtok_r(native, "\n", &in_native), *got = strtok_r(ours, "\n", &in_ours);
    unsigned lines = 0, bad = 0;
    for (; wanted && got; lines++) {
        char line[512];
        snprintf(line, sizeof(line), "%s", wanted);
        expect(line, sizeof(line));
        if (strcmp(line, got) != 0 && bad++ < 10)
            CHECK_STR(got, line);
        wanted = strtok_r(NULL, "\n", &in_native);
        got = strtok_r(NULL, "\n", &in_ours);
    }
    CHECK(!wanted && !got && lines > 1000);
    CHECK_EQ(bad, 0);
}

TEST("each name, version and flag is answered with the driver's choice, hooked")
{
    compare(NULL);
}

TEST("also where the driver returns other pointers than it exports")
{
    compare("other-pointers");
}

TEST("also by an older driver")
{
    compare("driver=535.54.03,cuda=12020");
}

BED_TEST("asked for cuGetProcAddress itself, it gives the hook")
{
    void *function = NULL;
    CHECK_EQ(CU(cuGetProcAddress_v2)("cuGetProcAddress", &function, 12000, 0, NULL), 0);
    CHECK_STR(where_name(function), "cuGetProcAddress_v2");
    CHECK_STR(where_is(function), "libvgpu.so");
    CHECK_EQ(CU(cuGetProcAddress_v2)("cuGetProcAddress", &function, 11030, 0, NULL), 0);
    CHECK_STR(where_name(function), "cuGetProcAddress");
}

BED_TEST("missing arguments get the driver's error")
{
    void *function = NULL;
    CUdriverProcAddressQueryResult status;
    CHECK_EQ(CU(cuGetProcAddress_v2)(NULL, &function, 12000, 0, &status), CUDA_ERROR_INVALID_VALUE);
    CHECK_EQ(CU(cuGetProcAddress_v2)("cuInit", NULL, 12000, 0, &status), CUDA_ERROR_INVALID_VALUE);
    CHECK_EQ(CU(cuGetProcAddress)(NULL, &function, 12000, 0), CUDA_ERROR_INVALID_VALUE);
    CHECK_EQ(CU(cuGetProcAddress)("cuInit", NULL, 12000, 0), CUDA_ERROR_INVALID_VALUE);
}

/* The way of the CUDA runtime: one dlsym, then pointers alone. */
static void runtime_like(void)
{
    __typeof__(cuGetProcAddress_v2) *get = CU(cuGetProcAddress_v2);
    __typeof__(cuMemAllocAsync) *async = NULL;
    __typeof__(cuMemAlloc_v2) *alloc = NULL;
    CUdeviceptr pointer;
    bed_context(0);
    REQUIRE(get("cuMemAllocAsync", (void **)&async, 13000,
                CU_GET_PROC_ADDRESS_PER_THREAD_DEFAULT_STREAM, NULL) == CUDA_SUCCESS);
    REQUIRE(get("cuMemAlloc", (void **)&alloc, 13000, 0, NULL) == CUDA_SUCCESS);
    CHECK_EQ(alloc(&pointer, GIB), CUDA_ERROR_OUT_OF_MEMORY);
    CHECK_EQ(async(&pointer, GIB, NULL), CUDA_ERROR_OUT_OF_MEMORY);
    CHECK_EQ(alloc(&pointer, 64 * MIB), CUDA_SUCCESS);
    CHECK_EQ(async(&pointer, 64 * MIB, NULL), CUDA_SUCCESS);
}

BED_TEST("a program with pointers alone is limited", .limit = "1GiB")
{
    runtime_like();
}

BED_TEST("a program with pointers alone is limited where they are other ones", .limit = "1GiB",
    .sim = "other-pointers")
{
    runtime_like();
    void *function;
    CHECK_EQ(CU(cuGetProcAddress_v2)("cuMemAlloc", &function, 13000, 0, NULL), 0);
    CHECK_STR(where_is(function), "libvgpu.so");
}

BED_TEST(
    "a driver without cuGetProcAddress has none with us", .sim = "no-procaddress", .limit = "1GiB")
{
    void *function = untouched;
    CUdeviceptr pointer;
    CHECK(CU(cuGetProcAddress_v2)("cuInit", &function, 12000, 0, NULL) != CUDA_SUCCESS);
    bed_context(0);
    CHECK_EQ(CU(cuMemAlloc_v2)(&pointer, GIB), CUDA_ERROR_OUT_OF_MEMORY);
}

int main(int argc, char **argv)
{
    if (argc > 1 && !strcmp(argv[1], ANSWERS))
        return answers(), 0;
    return check_run(argc, argv);
}
