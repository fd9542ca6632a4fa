/* SPDX-License-Identifier: Apache-2.0 */
/* Many of something: live allocations, and processes that wait for each other by a mutex of their
 * own while they allocate. */
#include "allocate.h"
#include "bed.h"

#include <pthread.h>
#include <signal.h>

#define PAIRS 500 /* of an allocation and its free, in a measurement */
#define MEASUREMENTS 9
#define FEW 100
#define MANY 100000
/* A list that is walked has a thousand times the work; caches alone make it a few times. */
#define WORK_FACTOR 20

static CUdeviceptr live[MANY];

static double thread_seconds(void)
{
    struct timespec now;
    clock_gettime(CLOCK_THREAD_CPUTIME_ID, &now);
    return (double)now.tv_sec + (double)now.tv_nsec / 1e9;
}

/* The processor's time for pairs beside what is live; the least of a few, as others disturb. */
static double pairs_seconds(void)
{
    __typeof__(cuMemAlloc_v2) *alloc = CU(cuMemAlloc_v2);
    __typeof__(cuMemFree_v2) *release = CU(cuMemFree_v2);
    double least = 1e9;
    for (int m = 0; m < MEASUREMENTS; m++) {
        double start = thread_seconds();
        for (int i = 0; i < PAIRS; i++) {
            CUdeviceptr pointer;
            REQUIRE(alloc(&pointer, 2 * MIB) == CUDA_SUCCESS);
            REQUIRE(release(pointer) == CUDA_SUCCESS);
        }
        double seconds = thread_seconds() - start;
        least = seconds < least ? seconds : least;
    }
    return least;
}

static void fill(int from, int to)
{
    __typeof__(cuMemAlloc_v2) *alloc = CU(cuMemAlloc_v2);
    for (int i = from; i < to; i++)
        REQUIRE(alloc(&live[i], 2 * MIB) == CUDA_SUCCESS);
}

BED_TEST("a hundred thousand live allocations make a pair no slower by more than caches do",
    .limit = "250GiB", .sim = "memory=300GiB")
{
    bed_context(0);
    uint64_t before = allocation_charged();
    fill(0, FEW);
    double few = pairs_seconds();
    fill(FEW, MANY);
    CHECK_EQ(allocation_charged(), before + MANY * 2 * MIB);
    double many = pairs_seconds();
    if (!CHECK(many < WORK_FACTOR * few))
        dprintf(STDOUT_FILENO, "# %.2f us a pair, %.2f us beside %d\n", few / PAIRS * 1e6,
            many / PAIRS * 1e6, MANY);
    for (int i = MANY - 1; i >= 0; i--)
        REQUIRE(CU(cuMemFree_v2)(live[i]) == CUDA_SUCCESS);
    CHECK_EQ(allocation_charged(), before);
}

#define PROCESSES 6
#define ROUNDS 50
#define SIZE (96 * MIB)

struct shared {
    pthread_mutex_t mutex;
    int inside, most_inside, rounds, found_dead;
};

static struct shared *shared_mutex(bool robust)
{
    struct shared *shared =
        mmap(NULL, sizeof(*shared), PROT_READ | PROT_WRITE, MAP_SHARED | MAP_ANONYMOUS, -1, 0);
    pthread_mutexattr_t attributes;
    REQUIRE(shared != MAP_FAILED && pthread_mutexattr_init(&attributes) == 0);
    REQUIRE(pthread_mutexattr_setpshared(&attributes, PTHREAD_PROCESS_SHARED) == 0);
    if (robust)
        REQUIRE(pthread_mutexattr_setrobust(&attributes, PTHREAD_MUTEX_ROBUST) == 0);
    REQUIRE(pthread_mutex_init(&shared->mutex, &attributes) == 0);
    return shared;
}

static void allocate_inside(void *argument)
{
    struct shared *shared = argument;
    CUdeviceptr pointer;
    bed_context(0);
    for (int i = 0; i < ROUNDS; i++) {
        REQUIRE(pthread_mutex_lock(&shared->mutex) == 0);
        shared->inside++;
        shared->most_inside =
            shared->inside > shared->most_inside ? shared->inside : shared->most_inside;
        REQUIRE(CU(cuMemAlloc_v2)(&pointer, SIZE) == CUDA_SUCCESS);
        REQUIRE(CU(cuMemFree_v2)(pointer) == CUDA_SUCCESS);
        shared->inside--;
        shared->rounds++;
        REQUIRE(pthread_mutex_unlock(&shared->mutex) == 0);
    }
}

/* There is room for one allocation beside the contexts: the mutex is what lets all pass. */
BED_TEST("processes that allocate under a mutex which they share take turns", .limit = "3240MiB")
{
    struct shared *shared = shared_mutex(false);
    pid_t pids[PROCESSES];
    for (int i = 0; i < PROCESSES; i++)
        pids[i] = bed_fork(allocate_inside, shared);
    for (int i = 0; i < PROCESSES; i++)
        CHECK(bed_ended_well(pids[i]));
    CHECK_EQ(shared->most_inside, 1);
    CHECK_EQ(shared->rounds, PROCESSES * ROUNDS);
}

static void die_inside(void *argument)
{
    struct shared *shared = argument;
    CUdeviceptr pointer;
    bed_context(0);
    REQUIRE(pthread_mutex_lock(&shared->mutex) == 0);
    REQUIRE(CU(cuMemAlloc_v2)(&pointer, SIZE) == CUDA_SUCCESS);
    raise(SIGKILL);
}

static void take_from_dead(void *argument)
{
    struct shared *shared = argument;
    CUdeviceptr pointer;
    bed_context(0);
    REQUIRE(pthread_mutex_lock(&shared->mutex) == EOWNERDEAD);
    shared->found_dead++;
    REQUIRE(pthread_mutex_consistent(&shared->mutex) == 0);
    REQUIRE(CU(cuMemAlloc_v2)(&pointer, SIZE) == CUDA_SUCCESS);
    REQUIRE(CU(cuMemFree_v2)(pointer) == CUDA_SUCCESS);
    REQUIRE(pthread_mutex_unlock(&shared->mutex) == 0);
}

BED_TEST("a robust mutex of a process that is killed is passed on, and so is its memory",
    .limit = "700MiB")
{
    struct shared *shared = shared_mutex(true);
    int status;
    for (int i = 0; i < 5; i++) {
        pid_t pid = bed_fork(die_inside, shared);
        REQUIRE(waitpid(pid, &status, 0) == pid);
        CHECK(WIFSIGNALED(status) && WTERMSIG(status) == SIGKILL);
        CHECK(bed_ended_well(bed_fork(take_from_dead, shared)));
    }
    CHECK_EQ(shared->found_dead, 5);
}

int main(int argc, char **argv)
{
    return check_run(argc, argv);
}
