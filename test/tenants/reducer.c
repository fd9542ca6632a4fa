/* SPDX-License-Identifier: Apache-2.0 */
/* tenants-reducer RANK PARTIES FILE [REDUCE_US]: one rank of a program that does all-reduces over
 * so many devices, one process each (RANK "all": one thread for all of them), as a framework does
 * them: each on a stream of its own between two events, eight in a row, a fill, and a word with the
 * others on whether to go on. A kernel of it is over only when all ranks' ran at once. FILE is the
 * ranks' own: how many each has done. Goes on until it is killed. For the simulator.
 * With one of PARTIES it waits for nobody; REDUCE_US of 0: each takes another time. */
#include "driver.h"

#include "reducer.h"

#include <fcntl.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>
#include <unistd.h>

#define FILL_US 112
#define BROADCAST_US 20

static const char ptx[] =
    ".version 6.4\n.target sm_70\n.address_size 64\n"
    ".visible .entry fill(.param .u64 duration_ns)\n{\nret;\n}\n"
    ".visible .entry reduce(\n"
    ".param .u64 duration_ns, .param .u64 meeting, .param .u32 parties)\n{\nret;\n}\n"
    ".visible .entry broadcast(\n"
    ".param .u64 duration_ns, .param .u64 meeting, .param .u32 parties)\n{\nret;\n}\n";

enum kernel { FILL, REDUCE, BROADCAST, KERNELS };

static struct rank {
    CUcontext context;
    CUfunction kernels[KERNELS];
    CUstream stream, meetings; /* the program's, and that of what the ranks do together */
    CUevent before, after;
    uint64_t meeting;
} ranks[REDUCE_RANKS_MAX];

static unsigned first, end; /* of the ranks, this process's */
static uint32_t parties;

static void enter(const struct rank *rank)
{
    if (end - first > 1)
        DRIVER_CALL(driver.cuCtxSetCurrent(rank->context));
}

static void begin(struct rank *rank, int device)
{
    static const char *const names[KERNELS] = {"fill", "reduce", "broadcast"};
    CUmodule module;
    DRIVER_CALL(driver.cuDevicePrimaryCtxRetain(&rank->context, device));
    DRIVER_CALL(driver.cuCtxSetCurrent(rank->context));
    DRIVER_CALL(driver.cuModuleLoadData(&module, ptx));
    for (unsigned i = 0; i < KERNELS; i++)
        DRIVER_CALL(driver.cuModuleGetFunction(&rank->kernels[i], module, names[i]));
    DRIVER_CALL(driver.cuStreamCreate(&rank->stream, CU_STREAM_NON_BLOCKING));
    DRIVER_CALL(driver.cuStreamCreate(&rank->meetings, CU_STREAM_NON_BLOCKING));
    DRIVER_CALL(driver.cuEventCreate(&rank->before, CU_EVENT_DISABLE_TIMING));
    DRIVER_CALL(driver.cuEventCreate(&rank->after, CU_EVENT_DISABLE_TIMING));
}

/* All ranks make the same meetings in the same order. */
static void meet(enum kernel kernel, uint64_t us)
{
    uint64_t duration_ns = us * 1000;
    for (unsigned i = first; i < end; i++) {
        struct rank *rank = &ranks[i];
        void *params[] = {&duration_ns, &rank->meeting, &parties};
        rank->meeting++;
        enter(rank);
        DRIVER_CALL(driver.cuEventRecord(rank->before, rank->stream));
        DRIVER_CALL(driver.cuStreamWaitEvent(rank->meetings, rank->before, 0));
        DRIVER_CALL(driver.cuLaunchKernel(
            rank->kernels[kernel], 24, 1, 1, 512, 1, 1, 0, rank->meetings, params, NULL));
        DRIVER_CALL(driver.cuEventRecord(rank->after, rank->meetings));
        DRIVER_CALL(driver.cuStreamWaitEvent(rank->stream, rank->after, 0));
    }
}

static void fill(void)
{
    uint64_t duration_ns = FILL_US * 1000ull;
    void *params[] = {&duration_ns};
    for (unsigned i = first; i < end; i++) {
        enter(&ranks[i]);
        DRIVER_CALL(driver.cuLaunchKernel(
            ranks[i].kernels[FILL], 1024, 1, 1, 512, 1, 1, 0, ranks[i].stream, params, NULL));
    }
}

static void finish(struct reduce_counts *counts, uint64_t done)
{
    for (unsigned i = first; i < end; i++) {
        enter(&ranks[i]);
        DRIVER_CALL(driver.cuCtxSynchronize());
        __atomic_fetch_add(&counts->reduces[i], done, __ATOMIC_SEQ_CST);
    }
}

/* From 0.5 to 6 ms. */
static uint64_t varied_us(void)
{
    static uint32_t random;
    random = random * 1664525u + 1013904223u + first;
    return 500 + (random >> 16) % 5500;
}

static struct reduce_counts *counts_of(const char *path)
{
    int fd = open(path, O_RDWR);
    void *counts = fd < 0 ? MAP_FAILED
                          : mmap(NULL, sizeof(struct reduce_counts), PROT_READ | PROT_WRITE,
                                MAP_SHARED, fd, 0);
    return counts == MAP_FAILED ? NULL : counts;
}

int main(int argc, char **argv)
{
    struct reduce_counts *counts = argc < 4 ? NULL : counts_of(argv[3]);
    uint64_t reduce_us = argc > 4 ? strtoul(argv[4], NULL, 10) : REDUCE_US;
    if (!counts || !driver_load())
        return 2;
    parties = (uint32_t)strtoul(argv[2], NULL, 10);
    first = (unsigned)strtoul(argv[1], NULL, 10);
    end = strcmp(argv[1], "all") == 0 ? parties : first + 1;
    if (end > REDUCE_RANKS_MAX)
        return 2;
    DRIVER_CALL(driver.cuInit(0));
    for (unsigned i = first; i < end; i++)
        begin(&ranks[i], (int)i);
    for (;;) {
        for (unsigned i = 0; i < REDUCE_CHUNK; i++)
            meet(REDUCE, reduce_us ? reduce_us : varied_us());
        fill();
        finish(counts, REDUCE_CHUNK);
        meet(BROADCAST, BROADCAST_US);
        finish(counts, 0);
    }
}
