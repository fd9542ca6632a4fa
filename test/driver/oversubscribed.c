/* SPDX-License-Identifier: Apache-2.0 */
/* Memory beyond the container's share, on a card or on the simulator, under `vgpu run --memory 6GiB
 * --oversubscribe=2`: what is written is read again, in allocations of 1 byte to more than the
 * share, also by copies on the card; contexts take their memory along; all of the limit can be had.
 * Then what allocations cost, to be read beside a run without the library. Exit status 1 where a
 * promise was not kept.
 *   oversubscribed           the promises, and the costs
 *   oversubscribed --costs   the costs alone */
#include "driver.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <time.h>

#define MIB (1ull << 20)
#define GIB (1ull << 30)
#define PIECE (8 * MIB)

static double now_us(void)
{
    struct timespec now;
    clock_gettime(CLOCK_MONOTONIC, &now);
    return (double)now.tv_sec * 1e6 + (double)now.tv_nsec / 1e3;
}

/* ---- contents ---- */

static uint32_t words[PIECE / 4], seen[PIECE / 4];

static void pattern(uint64_t at, uint32_t seed)
{
    uint32_t state = (uint32_t)(at / 4096) * 2654435761u + seed;
    for (size_t i = 0; i < PIECE / 4; i++)
        words[i] = state = state * 1664525u + 1013904223u;
}

static bool each_piece(CUdeviceptr pointer, uint64_t bytes, uint32_t seed, bool write)
{
    bool same = true;
    for (uint64_t at = 0; at < bytes; at += PIECE) {
        uint64_t piece = bytes - at < PIECE ? bytes - at : PIECE;
        pattern(at, seed);
        if (write) {
            DRIVER_CALL(driver.cuMemcpyHtoD_v2(pointer + at, words, piece));
        } else {
            DRIVER_CALL(driver.cuMemcpyDtoH_v2(seen, pointer + at, piece));
            same &= !memcmp(seen, words, piece);
        }
    }
    return same;
}

/* The simulator keeps the contents of copies of 64 MiB at most. */
static void copy_on_card(CUdeviceptr to, CUdeviceptr from, uint64_t bytes)
{
    for (uint64_t at = 0; at < bytes; at += 50 * MIB) {
        uint64_t piece = bytes - at < 50 * MIB ? bytes - at : 50 * MIB;
        DRIVER_CALL(driver.cuMemcpyDtoD_v2(to + at, from + at, piece));
    }
}

static uint64_t spilled(void)
{
    return driver_region_usage().spilled;
}

static void contents(void)
{
    static const uint64_t sizes[] = {
        1, 511, 4096, 1000000, 3 * MIB + 5, 64 * MIB, 700 * MIB, 3 * GIB};
    enum { COUNT = sizeof(sizes) / sizeof(sizes[0]) };
    CUdeviceptr pointers[COUNT], copy;
    for (unsigned i = 0; i < COUNT; i++) {
        DRIVER_CALL(driver.cuMemAlloc_v2(&pointers[i], sizes[i]));
        (void)each_piece(pointers[i], sizes[i], i, true);
    }
    struct vgpu_usage usage = driver_region_usage();
    printf("held %llu MiB, of that spilled %llu MiB\n", (unsigned long long)(usage.bytes / MIB),
        (unsigned long long)(usage.spilled / MIB));
    driver_promise("the share is filled, and what is beyond it is spilled",
        usage.spilled > GIB / 2 && usage.bytes - usage.spilled <= 3 * GIB &&
            usage.bytes - usage.spilled > 3 * GIB - 16 * MIB);
    bool same = true;
    for (unsigned i = 0; i < COUNT; i++)
        same &= each_piece(pointers[i], sizes[i], i, false);
    driver_promise("what was written is read again", same);
    DRIVER_CALL(driver.cuMemAlloc_v2(&copy, 700 * MIB));
    copy_on_card(copy, pointers[6], 700 * MIB);
    driver_promise("also after a copy on the card", each_piece(copy, 700 * MIB, 6, false));
    copy_on_card(pointers[7] + 2 * GIB, pointers[7], 700 * MIB);
    copy_on_card(copy, pointers[7] + 2 * GIB, 700 * MIB);
    driver_promise("and over what backs it", each_piece(copy, 700 * MIB, 7, false));
    DRIVER_CALL(driver.cuMemFree_v2(copy));
    for (unsigned i = 0; i < COUNT; i++)
        DRIVER_CALL(driver.cuMemFree_v2(pointers[(i * 3) % COUNT]));
    driver_promise("frees give the host's memory back", spilled() == 0);
}

static void whole_limit(void)
{
    CUdeviceptr pointers[64];
    unsigned count = 0;
    size_t left, total;
    while (count < 64 && driver.cuMemAlloc_v2(&pointers[count], 256 * MIB) == CUDA_SUCCESS)
        count++;
    DRIVER_CALL(driver.cuMemGetInfo_v2(&left, &total));
    printf("%u x 256 MiB, free then %zu of %zu MiB\n", count, left >> 20, total >> 20);
    driver_promise("the limit is the device's size, and all of it can be had",
        total == 6 * GIB && left < 256 * MIB && count > 18);
    while (count)
        DRIVER_CALL(driver.cuMemFree_v2(pointers[--count]));
}

static void contexts(CUcontext primary)
{
    CUcontext context;
    CUdeviceptr pointer;
    uint64_t before = driver_region_usage().bytes;
    DRIVER_CALL(driver.cuCtxCreate_v2(&context, 0, 0));
    DRIVER_CALL(driver.cuMemAlloc_v2(&pointer, 3 * GIB));
    bool spills = spilled() > 0;
    DRIVER_CALL(driver.cuCtxDestroy_v2(context));
    DRIVER_CALL(driver.cuCtxSetCurrent(primary));
    driver_promise("a context takes its memory along, spilled or not",
        spills && spilled() == 0 && driver_region_usage().bytes == before);
}

/* ---- costs ---- */

static int by_value(const void *one, const void *other)
{
    double a = *(const double *)one, b = *(const double *)other;
    return (a > b) - (a < b);
}

#define ROUNDS 101

static void cost(uint64_t bytes)
{
    static double made[ROUNDS], freed[ROUNDS];
    for (int i = 0; i < ROUNDS; i++) {
        CUdeviceptr pointer;
        double from = now_us();
        DRIVER_CALL(driver.cuMemAlloc_v2(&pointer, bytes));
        double between = now_us();
        DRIVER_CALL(driver.cuMemFree_v2(pointer));
        freed[i] = now_us() - between;
        made[i] = between - from;
    }
    qsort(made, ROUNDS, sizeof(made[0]), by_value);
    qsort(freed, ROUNDS, sizeof(freed[0]), by_value);
    printf("| %10.3f MiB | %8.1f | %8.1f |\n", (double)bytes / (double)MIB, made[ROUNDS / 2],
        freed[ROUNDS / 2]);
}

static void costs(void)
{
    CUdeviceptr kept;
    DRIVER_CALL(driver.cuMemAlloc_v2(&kept, 1000)); /* a block that stays */
    printf("| size           | allocate | free     | (us, median of %d)\n", ROUNDS);
    cost(1000);
    for (uint64_t bytes = MIB; bytes <= GIB; bytes *= 4)
        cost(bytes);
    DRIVER_CALL(driver.cuMemFree_v2(kept));
}

int main(int argc, char **argv)
{
    CUcontext context;
    setvbuf(stdout, NULL, _IOLBF, 0);
    if (!driver_load())
        return 0;
    context = driver_enter();
    if (argc < 2 || strcmp(argv[1], "--costs") != 0) {
        contents();
        whole_limit();
        contexts(context);
    }
    costs();
    return driver_broken ? 1 : 0;
}
