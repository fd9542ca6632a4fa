/* SPDX-License-Identifier: Apache-2.0 */
/* A governor that the kernel's scheduler hardly ever runs: on the machine's own clock, because
 * virtual time waits for each thread that is to run. */
#include "govern_load.h"

#include <sched.h>

#define LIMIT_20 .environment = {"CUDA_DEVICE_SM_LIMIT=20"}

static void keep_busy(void *cpu)
{
    cpu_set_t one;
    CPU_ZERO(&one);
    CPU_SET((size_t)(uintptr_t)cpu, &one);
    (void)sched_setaffinity(0, sizeof(one), &one);
    uint64_t end = load_now_ns() + 30 * SECOND;
    while (load_now_ns() < end)
        continue;
}

/* The lowest there is, on a processor that others keep busy. */
static void starve(pid_t thread, int cpu)
{
    const struct sched_param none = {0};
    cpu_set_t one;
    CPU_ZERO(&one);
    CPU_SET((size_t)cpu, &one);
    REQUIRE(sched_setaffinity(thread, sizeof(one), &one) == 0);
    REQUIRE(sched_setscheduler(thread, SCHED_IDLE, &none) == 0);
}

BED_TEST("a program whose governor gets next to no processor time ends", LIMIT_20)
{
    pid_t pids[3];
    int cpu = sched_getcpu();
    for (int i = 0; i < 3; i++)
        pids[i] = bed_fork(keep_busy, (void *)(uintptr_t)cpu);
    CUstream stream = hold_begin(150 * MS);
    starve(governor_thread(), cpu);
    uint64_t start = load_now_ns();
    CHECK_EQ(CU(cuStreamSynchronize)(stream), CUDA_SUCCESS);
    CHECK(load_now_ns() - start < PATIENCE_MS * MS);
    for (int i = 0; i < 3; i++) {
        kill(pids[i], SIGKILL);
        waitpid(pids[i], NULL, 0);
    }
}

int main(int argc, char **argv)
{
    return check_run(argc, argv);
}
