/* SPDX-License-Identifier: Apache-2.0 */
/* Several threads that launch on one stream in turn, with work of their own between, as the forward
 * and backward passes of a training do: what all of them launch by estimate is one interval of the
 * stream. */
#include "load.h"

#include "base/atomic.h"

#include <pthread.h>
#include <sched.h>
#include <stdio.h>
#include <unistd.h>

#define KERNEL_NS (12 * US)
#define HOST_NS (35 * US)
#define PART 15      /* launches of a thread in its turn */
#define WAIT_TURN 40 /* the program waits for its work once in so many turns */

static struct {
    uint32_t turn; /* its lowest bit says whose it is */
    uint64_t end_ns;
    CUcontext context;
    CUfunction kernels[2];
} work;

static void host_work(void)
{
    uint64_t until = load_now_ns() + HOST_NS;
    while (load_now_ns() < until)
        ;
}

static void *pass(void *argument)
{
    uint32_t own = (uint32_t)(uintptr_t)argument;
    CHECK_EQ(CU(cuCtxSetCurrent)(work.context), CUDA_SUCCESS);
    for (;;) {
        while ((load_acquire(&work.turn) & 1) != own)
            (void)sched_yield();
        bool over = load_now_ns() > work.end_ns;
        for (int i = 0; i < PART && !over; i++) {
            CHECK_EQ(load_launch_of(work.kernels[own], NULL, KERNEL_NS), CUDA_SUCCESS);
            host_work();
        }
        if (!over && load_acquire(&work.turn) % WAIT_TURN == 0)
            CHECK_EQ(CU(cuCtxSynchronize)(), CUDA_SUCCESS);
        store_release(&work.turn, work.turn + 1);
        if (over)
            return NULL;
    }
}

BED_TEST("what two threads launch in turn on one stream is measured as a whole",
    .environment = {"CUDA_DEVICE_SM_LIMIT=95"})
{
    pthread_t second;
    load_begin(0);
    CHECK_EQ(CU(cuCtxGetCurrent)(&work.context), CUDA_SUCCESS);
    work.kernels[0] = load_kernel();
    work.kernels[1] = load_kernel();
    struct load_state from = load_state(0);
    work.end_ns = load_now_ns() + 2 * SECOND;
    REQUIRE(pthread_create(&second, NULL, pass, (void *)1) == 0);
    (void)pass(NULL);
    CHECK_EQ(pthread_join(second, NULL), 0);
    load_settle();
    struct load_state to = load_state(0);
    int permille = load_permille(to.measured_ns - from.measured_ns, to.busy_ns - from.busy_ns);
    if (!CHECK(permille >= 960 && permille <= 1200))
        dprintf(STDOUT_FILENO, "# measured %d of 1000, busy %llu ms\n", permille,
            (unsigned long long)((to.busy_ns - from.busy_ns) / MS));
}

int main(int argc, char **argv)
{
    return check_run(argc, argv);
}
