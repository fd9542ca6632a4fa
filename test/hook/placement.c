/* SPDX-License-Identifier: Apache-2.0 */
/* The right memory on the card: what was spilled comes back when there is room, under a program
 * that works on. */
#include "allocate.h"
#include "bed.h"
#include "freeze.h"
#include "movable.h"
#include "sim/machine/machine.h"

#include <dirent.h>
#include <signal.h>

/* A limit of 8 GiB, of which 4 may be on the card. */
#define SHARE .limit = "8GiB", .environment = {"CUDA_MEMORY_OVERSUBSCRIBE=2"}

static uint64_t spilled(void)
{
    return __atomic_load_n(&usage()->spilled, __ATOMIC_RELAXED);
}

/* Half a minute, which no machine needs. */
static bool until_spilled(uint64_t bytes)
{
    for (unsigned i = 0; i < 3000 && spilled() != bytes; i++)
        bed_sleep_ms(10);
    return CHECK_EQ(spilled(), bytes);
}

#define MARKS 16

static void mark(CUdeviceptr pointer, uint64_t bytes, uint64_t seed)
{
    for (uint64_t i = 0; i < MARKS; i++) {
        uint64_t word = seed * 1000003 + i;
        CHECK_EQ(CU(cuMemcpyHtoD_v2)(pointer + (bytes - 8) / (MARKS - 1) / 8 * 8 * i, &word, 8),
            CUDA_SUCCESS);
    }
}

static bool is_marked(CUdeviceptr pointer, uint64_t bytes, uint64_t seed)
{
    bool same = true;
    for (uint64_t i = 0; i < MARKS; i++) {
        uint64_t word = 0;
        CHECK_EQ(CU(cuMemcpyDtoH_v2)(&word, pointer + (bytes - 8) / (MARKS - 1) / 8 * 8 * i, 8),
            CUDA_SUCCESS);
        same &= word == seed * 1000003 + i;
    }
    return same;
}

static unsigned placers(void)
{
    unsigned count = 0;
    DIR *tasks = opendir("/proc/self/task");
    struct dirent *entry;
    REQUIRE(tasks != NULL);
    while ((entry = readdir(tasks)) != NULL) {
        char path[300], name[32] = "";
        snprintf(path, sizeof(path), "/proc/self/task/%s/comm", entry->d_name);
        FILE *file = fopen(path, "r");
        if (file) {
            count += fgets(name, sizeof(name), file) && !strcmp(name, "vgpu-placer\n");
            fclose(file);
        }
    }
    closedir(tasks);
    return count;
}

BED_TEST("what was spilled comes back when the share has room, with what it held", SHARE)
{
    bed_context(0);
    uint64_t before = usage()->bytes, card = bed_card_bytes(0);
    CUdeviceptr first = take(3 * GIB), second = take(2 * GIB);
    CHECK(spilled() > GIB);
    mark(second, 2 * GIB, 7);
    give(first);
    until_spilled(0);
    CHECK(is_marked(second, 2 * GIB, 7));
    CHECK_EQ(usage()->bytes, before + 2 * GIB);
    CHECK_EQ(bed_card_bytes(0), card + 2 * GIB);
    give(second);
    CHECK_EQ(usage()->bytes, before);
    CHECK_EQ(bed_card_bytes(0), card);
}

BED_TEST("as much comes back as there is room for", SHARE)
{
    CUdeviceptr some[8], more[8];
    bed_context(0);
    for (unsigned i = 0; i < 8; i++)
        some[i] = take(512 * MIB);
    for (unsigned i = 0; i < 6; i++)
        more[i] = take(512 * MIB);
    uint64_t held = usage()->bytes, out = spilled();
    give(some[0]);
    give(some[1]);
    until_spilled(out - GIB);
    CHECK_EQ(usage()->bytes, held - GIB);
    CHECK(usage()->bytes - spilled() <= 4 * GIB);
    CHECK(more[0] && some[2]);
}

BED_TEST("without a share it comes back when the card has room, and leaves some of it",
    .limit = "8GiB", .sim = "h200,memory=4GiB", .environment = {"CUDA_MEMORY_OVERSUBSCRIBE=true"})
{
    bed_context(0);
    CUdeviceptr first = take(3 * GIB), second = take(2 * GIB), third = take(128 * MIB);
    CHECK(spilled() > GIB);
    mark(second, 2 * GIB, 8);
    give(first);
    until_spilled(0);
    CHECK(is_marked(second, 2 * GIB, 8));
    CUdeviceptr fourth = take(bed_card_free(0) + 64 * MIB);
    CHECK(spilled() >= 64 * MIB);
    give(third);
    bed_sleep_ms(2500);
    CHECK(spilled() >= 64 * MIB); /* 128 MiB are free: less than is left */
    CHECK(fourth);
}

BED_TEST("where there is no share, and nothing was spilled, there is no thread for it",
    .limit = "8GiB", .sim = "h200,memory=4GiB", .environment = {"CUDA_MEMORY_OVERSUBSCRIBE=true"})
{
    bed_context(0);
    CUdeviceptr first = take(GIB);
    CHECK_EQ(placers(), 0);
    CUdeviceptr second = take(3 * GIB);
    CHECK(spilled());
    for (unsigned i = 0; i < 3000 && !placers(); i++)
        bed_sleep_ms(10);
    CHECK_EQ(placers(), 1);
    CHECK(first && second);
}

BED_TEST("while a stream captures nothing moves, and afterwards it does", SHARE)
{
    CUstream stream;
    CUgraph graph;
    bed_context(0);
    CUdeviceptr first = take(3 * GIB), second = take(2 * GIB);
    CHECK_EQ(CU(cuStreamCreate)(&stream, 0), CUDA_SUCCESS);
    give(first);
    CHECK_EQ(CU(cuStreamBeginCapture_v2)(stream, CU_STREAM_CAPTURE_MODE_RELAXED), CUDA_SUCCESS);
    uint64_t out = spilled();
    bed_sleep_ms(1500);
    CHECK_EQ(spilled(), out);
    CHECK_EQ(CU(cuMemsetD8Async)(second, 1, 1000, stream), CUDA_SUCCESS);
    CHECK_EQ(CU(cuStreamEndCapture)(stream, &graph), CUDA_SUCCESS);
    CHECK(graph != NULL);
    until_spilled(0);
}

BED_TEST(
    "a program that allocates, frees, copies and fills all the time finds what it wrote", SHARE)
{
    enum { COUNT = 24 };
    CUdeviceptr pointers[COUNT] = {0};
    uint64_t sizes[COUNT] = {0}, seeds[COUNT] = {0}, seed = 1;
    bed_context(0);
    uint64_t before = usage()->bytes;
    for (uint64_t i = 1; i <= 600; i++) {
        seed = seed * 6364136223846793005ull + 1442695040888963407ull;
        unsigned at = (unsigned)(seed >> 33) % COUNT;
        if (pointers[at]) {
            CHECK(is_marked(pointers[at], sizes[at], seeds[at]));
            give(pointers[at]);
            pointers[at] = 0;
        } else {
            sizes[at] = 4096 + (seed >> 20) % (600 * MIB);
            if (CU(cuMemAlloc_v2)(&pointers[at], sizes[at]) != CUDA_SUCCESS)
                continue;
            seeds[at] = i;
            mark(pointers[at], sizes[at], i);
        }
        if (i % 10 == 0)
            bed_sleep_ms(20);
        CHECK(usage()->bytes - spilled() <= 4 * GIB + 600 * MIB); /* in both places in a move */
    }
    for (unsigned i = 0; i < COUNT; i++) {
        if (pointers[i]) {
            CHECK(is_marked(pointers[i], sizes[i], seeds[i]));
            give(pointers[i]);
        }
    }
    CHECK_EQ(usage()->bytes, before);
    CHECK_EQ(spilled(), 0);
}

BED_TEST("memory is free when its free returns, also while it is on its way", SHARE)
{
    bed_context(0);
    uint64_t before = usage()->bytes;
    for (unsigned i = 0; i < 12; i++) {
        CUdeviceptr first = take(3 * GIB), second = take(3 * GIB);
        give(first);
        for (unsigned k = 0; k < 3000 && spilled() > 2 * GIB; k++)
            bed_sleep_ms(1);
        bed_sleep_ms(i * 7);
        give(second);
        CHECK_EQ(usage()->bytes, before);
        CHECK_EQ(spilled(), 0);
    }
}

BED_TEST("memory is free when its context has ended, also while it is on its way", SHARE)
{
    bed_context(0);
    uint64_t before = usage()->bytes, card = bed_card_bytes(0);
    for (unsigned i = 0; i < 12; i++) {
        CUcontext context;
        REQUIRE(CU(cuCtxCreate_v2)(&context, 0, 0) == CUDA_SUCCESS);
        CUdeviceptr first = take(3 * GIB);
        CHECK(take(3 * GIB));
        give(first);
        for (unsigned k = 0; k < 3000 && spilled() > 2 * GIB; k++)
            bed_sleep_ms(1);
        bed_sleep_ms(i * 7);
        CHECK_EQ(CU(cuCtxDestroy_v2)(context), CUDA_SUCCESS);
        CHECK_EQ(usage()->bytes, before);
        CHECK_EQ(spilled(), 0);
        CHECK_EQ(bed_card_bytes(0), card);
    }
}

static void take_and_leave(void *argument)
{
    (void)argument;
    bed_context(0);
    for (;;) {
        CUdeviceptr first = take(3 * GIB), second = take(2 * GIB);
        give(first);
        bed_sleep_ms(150);
        give(second);
    }
}

static uint64_t copies(void)
{
    return sim_calls("cuMemcpyDtoDAsync_v2");
}

/* Until something has moved, and nothing has for a second. */
static void until_moved(void)
{
    uint64_t first = copies(), last = first;
    for (unsigned still = 0, tries = 0; tries < 300 && (last == first || still < 10); tries++) {
        bed_sleep_ms(100);
        still = copies() == last ? still + 1 : 0;
        last = copies();
    }
    CHECK(last > first);
}

BED_TEST("a release after memory has changed places brings back what it took, and no more", SHARE)
{
    bed_context(0);
    CUdeviceptr first = take(3 * GIB), second = take(3 * GIB);
    CHECK(spilled() > GIB);
    mark(first, 3 * GIB, 1);
    mark(second, 3 * GIB, 2);
    CHECK_EQ(CU(cuMemPrefetchAsync)(second, 3 * GIB, 0, NULL), CUDA_ERROR_INVALID_VALUE);
    until_moved();
    uint64_t before = spilled();
    CHECK_EQ(order_done(VGPU_RELEASE_PAUSE), VGPU_RELEASE_DONE);
    CHECK_EQ(slot_of(getpid())->released, 6 * GIB - before);
    CHECK_EQ(order_done(VGPU_RELEASE_NONE), VGPU_RELEASE_IDLE);
    CHECK_EQ(slot_of(getpid())->released, 0);
    CHECK_EQ(spilled(), before);
    CHECK(is_marked(first, 3 * GIB, 1) && is_marked(second, 3 * GIB, 2));
}

BED_TEST("a process that is killed while memory comes back leaves none of it", SHARE)
{
    for (unsigned i = 0; i < 12; i++) {
        pid_t child = bed_fork(take_and_leave, NULL);
        bed_sleep_ms(300 + i * 37);
        kill(child, SIGKILL);
        CHECK(!bed_ended_well(child));
    }
    bed_context(0);
    uint64_t card = bed_card_bytes(0);
    CUdeviceptr pointer = take(3 * GIB); /* all of the share is there again */
    CHECK_EQ(spilled(), 0);
    CHECK_EQ(bed_card_bytes(0), card + 3 * GIB);
    CHECK_EQ(bed_region_bytes(0), usage()->bytes);
    CHECK(pointer);
}

int main(int argc, char **argv)
{
    return check_run(argc, argv);
}
