/* SPDX-License-Identifier: Apache-2.0 */
/* tenants-turner NUMBER MIB ROUND_US FILE: has so much device memory in pieces of 128 MiB, and
 * reads all of it in each round, which takes so long where all of it is on the card. FILE is
 * struct turners: what it did, and what it is to do. Goes on until it is killed. For the simulator.
 */
#include "driver.h"

#include "turner.h"

#include <fcntl.h>
#include <stdio.h>
#include <stdlib.h>
#include <sys/mman.h>
#include <sys/wait.h>
#include <time.h>
#include <unistd.h>

#define MIB 1048576ull
#define PIECE (128 * MIB)
#define PIECES_MAX 64

static const char ptx[] = ".version 6.4\n.target sm_70\n.address_size 64\n"
                          ".visible .entry read(.param .u64 duration_ns, .param .u64 read_at, "
                          ".param .u64 read_bytes)\n{\nret;\n}\n";

static struct turner *own;
static CUdeviceptr pieces[PIECES_MAX];
static uint64_t bytes[PIECES_MAX];
static unsigned count;
static CUfunction kernel;
static CUgraphExec graph; /* of nothing */

static uint64_t now_ns(void)
{
    struct timespec now;
    clock_gettime(CLOCK_MONOTONIC, &now);
    return (uint64_t)now.tv_sec * 1000000000u + (uint64_t)now.tv_nsec;
}

static void sleep_ms(long ms)
{
    nanosleep(&(struct timespec){.tv_nsec = ms * 1000000}, NULL);
}

static void fault(bool is_fault)
{
    if (is_fault)
        __atomic_fetch_add(&own->faults, 1, __ATOMIC_SEQ_CST);
}

static uint64_t mark_of(unsigned piece, unsigned place)
{
    return (uint64_t)getpid() << 32 | piece << 8 | place;
}

/* At the beginning, in the middle and at the end. */
static CUdeviceptr place_of(unsigned piece, unsigned place)
{
    return pieces[piece] + (bytes[piece] - 8) / 2 / 8 * 8 * place;
}

static void take(uint64_t total)
{
    for (uint64_t at = 0; at < total && count < PIECES_MAX; at += PIECE, count++) {
        bytes[count] = total - at < PIECE ? total - at : PIECE;
        DRIVER_CALL(driver.cuMemAlloc_v2(&pieces[count], bytes[count]));
        for (unsigned i = 0; i < 3; i++) {
            uint64_t mark = mark_of(count, i);
            DRIVER_CALL(driver.cuMemcpyHtoD_v2(place_of(count, i), &mark, 8));
        }
    }
}

static void launch(unsigned piece, uint64_t duration_ns)
{
    void *params[] = {&duration_ns, &pieces[piece], &bytes[piece]};
    fault(driver.cuLaunchKernel(kernel, 1, 1, 1, 32, 1, 1, 0, NULL, params, NULL) != CUDA_SUCCESS);
}

static void check(unsigned piece)
{
    for (unsigned i = 0; i < 3; i++) {
        uint64_t mark = 0;
        fault(driver.cuMemcpyDtoH_v2(&mark, place_of(piece, i), 8) != CUDA_SUCCESS ||
              mark != mark_of(piece, i));
    }
}

/* From the piece on. */
static void work(unsigned first, uint64_t round_ns)
{
    uint64_t from_ns = now_ns();
    for (unsigned i = first; i < count; i++)
        launch(i, round_ns / count);
    fault(driver.cuCtxSynchronize() != CUDA_SUCCESS);
    check(first + (unsigned)(own->rounds % (count - first)));
    uint64_t to_ns = now_ns();
    if (to_ns - from_ns > own->longest_ns)
        own->longest_ns = to_ns - from_ns;
    own->round_ns = to_ns;
    __atomic_fetch_add(&own->rounds, 1, __ATOMIC_SEQ_CST);
}

static void make_graph(void)
{
    CUgraph empty;
    DRIVER_CALL(driver.cuGraphCreate(&empty, 0));
    DRIVER_CALL(driver.cuGraphInstantiateWithFlags(&graph, empty, 0));
}

/* The driver refuses it: it is no managed memory. */
static void prefetch(void)
{
    for (unsigned i = count / 2; i < count; i++)
        (void)driver.cuMemPrefetchAsync(pieces[i], bytes[i], 0, NULL);
}

static void advise(void)
{
    for (unsigned i = count / 2; i < count; i++)
        (void)driver.cuMemAdvise(pieces[i], bytes[i], CU_MEM_ADVISE_SET_PREFERRED_LOCATION, 0);
}

static void fork_one(void)
{
    pid_t child = fork();
    if (child == 0)
        _exit(0);
    fault(child < 0 || waitpid(child, NULL, 0) != child);
}

int main(int argc, char **argv)
{
    CUcontext context;
    CUmodule module;
    int fd = argc < 5 ? -1 : open(argv[4], O_RDWR | O_CLOEXEC);
    struct turners *all =
        fd < 0 ? MAP_FAILED : mmap(NULL, sizeof(*all), PROT_READ | PROT_WRITE, MAP_SHARED, fd, 0);
    if (all == MAP_FAILED || !driver_load())
        return 2;
    own = &all->list[strtoul(argv[1], NULL, 10) % TURNERS_MAX];
    uint64_t round_ns = strtoul(argv[3], NULL, 10) * 1000;
    DRIVER_CALL(driver.cuInit(0));
    DRIVER_CALL(driver.cuDevicePrimaryCtxRetain(&context, 0));
    DRIVER_CALL(driver.cuCtxSetCurrent(context));
    DRIVER_CALL(driver.cuModuleLoadData(&module, ptx));
    DRIVER_CALL(driver.cuModuleGetFunction(&kernel, module, "read"));
    make_graph();
    take(strtoul(argv[2], NULL, 10) * MIB);
    for (;;) {
        switch (__atomic_load_n(&own->order, __ATOMIC_SEQ_CST)) {
        case TURNER_EXIT:
            return 0;
        case TURNER_HANG:
            launch(0, UINT64_MAX);
            __atomic_store_n(&own->order, TURNER_WORK, __ATOMIC_SEQ_CST);
            break;
        case TURNER_FORK:
            fork_one();
            work(0, round_ns);
            break;
        case TURNER_GRAPHS:
            fault(driver.cuGraphLaunch(graph, NULL) != CUDA_SUCCESS);
            work(count / 2, round_ns);
            break;
        case TURNER_HALF:
            work(count / 2, round_ns);
            break;
        case TURNER_PREFETCH:
            prefetch();
            __atomic_store_n(&own->order, TURNER_REST, __ATOMIC_SEQ_CST);
            break;
        case TURNER_ADVISE:
            advise();
            __atomic_store_n(&own->order, TURNER_REST, __ATOMIC_SEQ_CST);
            break;
        case TURNER_REST:
            sleep_ms(5);
            break;
        default:
            work(0, round_ns);
        }
    }
}
