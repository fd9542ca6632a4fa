/* SPDX-License-Identifier: Apache-2.0 */
/* Daemons: two forks, a session of its own, all descriptors closed, before CUDA and after it. */
#include "allocate.h"
#include "bed.h"

#include <fcntl.h>
#include <signal.h>
#include <sys/prctl.h>
#include <sys/stat.h>

#define LIMIT "3GiB"
#define LIMIT_BYTES (3 * GIB)
#define SIZE (3 * GIB / 2)

/* What the daemon tells, which has no descriptor left to tell by. */
struct told {
    pid_t pid, reaper;
    int refused, served; /* results */
    uint64_t charged;
    bool ready, go_on;
};

static struct told *told;

static void make_told(void)
{
    told = mmap(NULL, sizeof(*told), PROT_READ | PROT_WRITE, MAP_SHARED | MAP_ANONYMOUS, -1, 0);
    REQUIRE(told != MAP_FAILED);
    /* Orphans come to the test, which can then wait for them. */
    REQUIRE(prctl(PR_SET_CHILD_SUBREAPER, 1) == 0);
    told->reaper = getpid();
}

static bool wait_for(const bool *flag)
{
    for (int i = 0; i < 20000 && !__atomic_load_n(flag, __ATOMIC_ACQUIRE); i++)
        bed_sleep_ms(1);
    return __atomic_load_n(flag, __ATOMIC_ACQUIRE);
}

static void set(bool *flag)
{
    __atomic_store_n(flag, true, __ATOMIC_RELEASE);
}

static void close_all(void)
{
    for (int fd = 0; fd < 1024; fd++)
        close(fd);
}

/* Until whoever forked us has ended. */
static void be_orphaned(void)
{
    told->pid = getpid();
    while (getppid() != told->reaper)
        bed_sleep_ms(1);
}

/* As daemons are written; returns in the daemon only. */
static void become_daemon(void)
{
    if (fork() != 0)
        _exit(0);
    setsid();
    if (fork() != 0)
        _exit(0);
    umask(0);
    (void)!chdir("/");
    close_all();
    be_orphaned();
}

static void use_cuda(void)
{
    CUdeviceptr pointer;
    bed_context(0);
    told->refused = (int)CU(cuMemAlloc_v2)(&pointer, LIMIT_BYTES);
    told->served = (int)CU(cuMemAlloc_v2)(&pointer, SIZE);
    told->charged = allocation_charged();
    set(&told->ready);
    wait_for(&told->go_on);
    _exit(0);
}

static void daemon_that_uses_cuda(void *argument)
{
    (void)argument;
    become_daemon();
    use_cuda();
}

static void end_daemon(void)
{
    int status = -1;
    set(&told->go_on);
    CHECK_EQ(waitpid(told->pid, &status, 0), told->pid);
    CHECK(WIFEXITED(status) && WEXITSTATUS(status) == 0);
}

/* What a process that starts now can have. */
static void check_free(bool is_free)
{
    CUdeviceptr pointer;
    CUresult result = CU(cuMemAlloc_v2)(&pointer, SIZE);
    CHECK_EQ(result, is_free ? CUDA_SUCCESS : CUDA_ERROR_OUT_OF_MEMORY);
    if (result == CUDA_SUCCESS)
        CHECK_EQ(CU(cuMemFree_v2)(pointer), CUDA_SUCCESS);
}

BED_TEST(
    "a daemon that forked twice and closed all before CUDA is limited and counts", .limit = LIMIT)
{
    make_told();
    CHECK(bed_ended_well(bed_fork(daemon_that_uses_cuda, NULL)));
    REQUIRE(wait_for(&told->ready));
    CHECK_EQ(told->refused, CUDA_ERROR_OUT_OF_MEMORY);
    CHECK_EQ(told->served, CUDA_SUCCESS);
    CHECK(told->charged > SIZE);
    bed_context(0);
    check_free(false);
    end_daemon();
    check_free(true);
}

static void daemon_of_cuda(void *argument)
{
    CUdeviceptr pointer;
    (void)argument;
    bed_context(0);
    REQUIRE(CU(cuMemAlloc_v2)(&pointer, SIZE) == CUDA_SUCCESS);
    become_daemon();
    set(&told->ready);
    wait_for(&told->go_on);
    _exit(0);
}

BED_TEST(
    "a daemon that closed what its parent had by CUDA keeps none of its memory", .limit = LIMIT)
{
    make_told();
    CHECK(bed_ended_well(bed_fork(daemon_of_cuda, NULL)));
    REQUIRE(wait_for(&told->ready));
    bed_context(0);
    check_free(true);
    CHECK(bed_region_slot(told->pid) == NULL);
    CHECK_EQ(bed_region_bytes(0), allocation_charged());
    end_daemon();
}

static void daemon_that_starts_another(void *argument)
{
    CUdeviceptr pointer;
    (void)argument;
    bed_context(0);
    REQUIRE(CU(cuMemAlloc_v2)(&pointer, SIZE) == CUDA_SUCCESS);
    become_daemon();
    char *hold[] = {bed_build_path("test/driver/hold"), "1400", "0", NULL};
    char *too_much[] = {hold[0], "2600", "0", NULL};
    set(&told->ready);
    wait_for(&told->go_on);
    int status = -1;
    pid_t pid = fork();
    if (pid == 0)
        execv(too_much[0], too_much);
    waitpid(pid, &status, 0);
    told->refused = WIFEXITED(status) ? WEXITSTATUS(status) : -1;
    execv(hold[0], hold);
    _exit(127);
}

BED_TEST("a CUDA program that such a daemon starts is limited", .limit = LIMIT)
{
    make_told();
    CHECK(bed_ended_well(bed_fork(daemon_that_starts_another, NULL)));
    REQUIRE(wait_for(&told->ready));
    end_daemon();
    CHECK_EQ(told->refused, 1);
}

static void daemon_by_libc(void *argument)
{
    (void)argument;
    if (daemon(0, 0) != 0)
        _exit(1);
    be_orphaned();
    use_cuda();
}

BED_TEST("so is one that daemon() made", .limit = LIMIT)
{
    make_told();
    CHECK(bed_ended_well(bed_fork(daemon_by_libc, NULL)));
    REQUIRE(wait_for(&told->ready));
    CHECK_EQ(told->refused, CUDA_ERROR_OUT_OF_MEMORY);
    CHECK_EQ(told->served, CUDA_SUCCESS);
    CHECK(told->charged > SIZE);
    end_daemon();
}

int main(int argc, char **argv)
{
    return check_run(argc, argv);
}
