/* SPDX-License-Identifier: Apache-2.0 */
/* A container's memory goes to host memory and comes back, by the tool, on a card or on the
 * simulator, under `vgpu run --memory ... --oversubscribe`: what was written is read again, the
 * card is empty in between, and what it costs beside a plain copy to pinned memory in the same run.
 * Exit status 1 where a promise was not kept. freeze VGPU [MIB]    VGPU: the tool; MIB: of memory
 * in ranges of 2 MiB to 1 GiB (16384) */
#include "driver.h"

#include "base/clock.h"

#include <pthread.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#define MIB (1ull << 20)
#define GIB (1ull << 30)
#define PIECE (8 * MIB)
#define RANGES_MAX 4096
#define SPIN_NS 20000000000ull

static const char *tool;
static struct {
    CUdeviceptr pointer;
    uint64_t bytes;
} ranges[RANGES_MAX];
static unsigned count;

static double now_s(void)
{
    return (double)clock_now_ns() / 1e9;
}

/* ---- the tool ---- */

static char said[4096];

/* Its exit status; what it said lies in `said`. */
static int call(const char *arguments)
{
    char line[512];
    snprintf(line, sizeof(line), "env -u LD_PRELOAD %s %s --pid %d 2>&1", tool, arguments,
        (int)getpid());
    FILE *pipe = popen(line, "r");
    size_t length = pipe ? fread(said, 1, sizeof(said) - 1, pipe) : 0;
    said[length] = '\0';
    return pipe ? pclose(pipe) : -1;
}

static double timed(const char *arguments, bool *ret_worked)
{
    double from = now_s();
    *ret_worked = call(arguments) == 0;
    double took = now_s() - from;
    printf("vgpu %s, %.3f s:\n%s", arguments, took, said);
    return took;
}

/* ---- contents ---- */

static uint32_t *words, *seen; /* pinned */

static void pattern(uint64_t at, uint32_t seed)
{
    uint32_t state = (uint32_t)(at / 4096) * 2654435761u + seed;
    for (size_t i = 0; i < PIECE / 4; i++)
        words[i] = state = state * 1664525u + 1013904223u;
}

static bool each_piece(bool write)
{
    bool same = true;
    for (unsigned i = 0; i < count; i++) {
        for (uint64_t at = 0; at < ranges[i].bytes; at += PIECE) {
            uint64_t left = ranges[i].bytes - at, piece = left < PIECE ? left : PIECE;
            pattern(at, i);
            if (write) {
                DRIVER_CALL(driver.cuMemcpyHtoD_v2(ranges[i].pointer + at, words, piece));
            } else {
                DRIVER_CALL(driver.cuMemcpyDtoH_v2(seen, ranges[i].pointer + at, piece));
                same &= !memcmp(seen, words, piece);
            }
        }
    }
    return same;
}

static uint64_t allocate(uint64_t bytes)
{
    static const uint64_t sizes[] = {1024, 2, 256, 20, 64, 512, 6, 128};
    uint64_t held = 0;
    for (unsigned i = 0; held < bytes && count < RANGES_MAX; i++) {
        uint64_t size = sizes[i % 8] * MIB, left = bytes - held;
        ranges[count].bytes = size < left ? size : left;
        DRIVER_CALL(driver.cuMemAlloc_v2(&ranges[count].pointer, ranges[count].bytes));
        held += ranges[count++].bytes;
    }
    return held;
}

/* GB/s of a copy between the card and pinned memory. */
static double plain_rate(bool out)
{
    void *host;
    CUdeviceptr largest = ranges[0].pointer;
    uint64_t bytes = ranges[0].bytes < 512 * MIB ? ranges[0].bytes : 512 * MIB;
    DRIVER_CALL(driver.cuMemHostAlloc(&host, bytes, 0));
    memset(host, 1, bytes);
    double from = now_s();
    for (int i = 0; i < 8; i++) {
        if (out)
            DRIVER_CALL(driver.cuMemcpyDtoH_v2(host, largest, bytes));
        else
            DRIVER_CALL(driver.cuMemcpyHtoD_v2(largest, host, bytes));
    }
    double rate = 8.0 * (double)bytes / (now_s() - from) / 1e9;
    DRIVER_CALL(driver.cuMemFreeHost(host));
    return rate;
}

/* ---- promises ---- */

static void rounds(uint64_t held)
{
    double gb = (double)held / 1e9;
    bool worked;
    for (int round = 0; round < 2; round++) {
        int64_t full = driver_nvml_bytes(0);
        double out = timed("pause --release", &worked);
        struct vgpu_usage usage = driver_region_usage();
        int64_t empty = driver_nvml_bytes(0);
        driver_promise("the memory is in host memory, and the sum is what it was",
            worked && usage.spilled >= held && usage.movable == 0);
        printf("the card holds %lld MiB, before %lld MiB\n", (long long)empty >> 20,
            (long long)full >> 20);
        double in = timed("resume", &worked);
        usage = driver_region_usage();
        driver_promise("it is back on the card", worked && usage.spilled == 0);
        printf(
            "| out | %.3f s | %.1f GB/s | in | %.3f s | %.1f GB/s |\n", out, gb / out, in, gb / in);
        driver_promise("what was written is read again", each_piece(false));
    }
}

/* Contexts and all, where the driver can. The card may hold 8 MiB more than before the program
 * came. */
static void checkpointed(int64_t before)
{
    CUprocessState state;
    bool worked;
    if (!driver.cuCheckpointProcessGetState ||
        driver.cuCheckpointProcessGetState(getpid(), &state) != CUDA_SUCCESS) {
        printf("SKIP: the driver has no checkpoint calls\n");
        return;
    }
    for (int round = 0; round < 2; round++) {
        double out = timed("pause --release --checkpoint", &worked);
        /* The simulator copies what it exports: on a loaded machine for longer than is waited. */
        for (int tries = 0; strstr(said, "did not answer") && tries < 5; tries++)
            out += timed("pause --release --checkpoint", &worked);
        int64_t empty = driver_nvml_bytes(0);
        driver_promise("all of it is off the card", worked &&
                                                        strstr(said, "1 process checkpointed") &&
                                                        empty <= before + (int64_t)(8 * MIB));
        printf("the card holds %lld MiB, before the program came %lld MiB\n",
            (long long)empty >> 20, (long long)before >> 20);
        double in = timed("resume", &worked);
        driver_promise("and comes back", worked && driver_region_usage().spilled == 0);
        printf("| checkpoint | %.3f s | restore | %.3f s |\n", out, in);
        driver_promise("with what was written", each_piece(false));
    }
}

static void on_demand(void)
{
    uint32_t word = 0;
    bool worked;
    (void)timed("pause --release --on-demand", &worked);
    driver_promise("released on demand", worked && driver_region_usage().spilled > 0);
    double from = now_s();
    DRIVER_CALL(driver.cuMemcpyDtoH_v2(&word, ranges[0].pointer, sizeof(word)));
    printf("the next work waited %.3f s\n", now_s() - from);
    driver_promise(
        "the next work has it back", driver_region_usage().spilled == 0 && each_piece(false));
}

static void persistent(void)
{
    CUmodule module;
    CUfunction spin;
    uint64_t duration_ns = SPIN_NS;
    void *parameters[] = {&duration_ns};
    bool worked;
    DRIVER_CALL(driver.cuModuleLoadData(&module, driver_spin_ptx));
    DRIVER_CALL(driver.cuModuleGetFunction(&spin, module, "spin"));
    DRIVER_CALL(driver.cuLaunchKernel(spin, 1, 1, 1, 1, 1, 1, 0, NULL, parameters, NULL));
    (void)timed("pause --release", &worked);
    driver_promise("a kernel that goes on is not moved under, and shown",
        worked && strstr(said, "not drained") && driver_region_usage().spilled == 0);
    (void)timed("resume", &worked);
    DRIVER_CALL(driver.cuCtxSynchronize());
    driver_promise("and afterwards all is as it was", worked && each_piece(false));
}

int main(int argc, char **argv)
{
    void *pinned;
    setvbuf(stdout, NULL, _IOLBF, 0);
    if (argc < 2 || !driver_load())
        return argc < 2 ? 2 : 0;
    tool = argv[1];
    uint64_t bytes = (argc > 2 ? strtoull(argv[2], NULL, 10) : 16384) * MIB;
    int64_t before = driver_nvml_bytes(0);
    (void)driver_enter();
    DRIVER_CALL(driver.cuMemHostAlloc(&pinned, 2 * PIECE, 0));
    words = pinned;
    seen = words + PIECE / 4;
    uint64_t held = allocate(bytes);
    printf("%llu MiB in %u ranges\n", (unsigned long long)(held / MIB), count);
    printf("plain copies to pinned memory %.1f GB/s, from it %.1f GB/s\n", plain_rate(true),
        plain_rate(false));
    (void)each_piece(true);
    rounds(held);
    checkpointed(before);
    on_demand();
    persistent();
    return driver_broken ? 1 : 0;
}
