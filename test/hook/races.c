/* SPDX-License-Identifier: Apache-2.0 */
/* Sixteen processes of eight threads each race to the last byte of one slice, watched from outside:
 * the card's figure and the region's. */
#include "allocate.h"
#include "bed.h"

#include <pthread.h>

enum { PROCESSES = 16, THREADS = 8, LIVE_MAX = 64 };

#define LIMIT "10GiB"
#define LIMIT_BYTES (10 * GIB)
#define NEAR_BYTES (64 * MIB)
#define RACE_MS 2000

/* Shared with all processes of the test. */
struct race {
    int ready; /* processes with a context */
    int begin;
    int end;    /* no more frees: fill what is left */
    int filled; /* processes that were refused the smallest step */
    int leave;
    long allocations, refusals, odd_answers;
};

static struct race *race;
static __typeof__(cuMemAlloc_v2) *alloc;
static __typeof__(cuMemFree_v2) *release;
static CUcontext context;

static int get(int *word)
{
    return __atomic_load_n(word, __ATOMIC_SEQ_CST);
}

static void wait_until(int *word, int value)
{
    while (get(word) < value)
        bed_sleep_ms(1);
}

static bool take(CUdeviceptr *pointer, size_t bytes)
{
    CUresult result = alloc(pointer, bytes);
    if (result == CUDA_SUCCESS)
        __atomic_fetch_add(&race->allocations, 1, __ATOMIC_RELAXED);
    else if (result == CUDA_ERROR_OUT_OF_MEMORY)
        __atomic_fetch_add(&race->refusals, 1, __ATOMIC_RELAXED);
    else
        __atomic_fetch_add(&race->odd_answers, 1, __ATOMIC_RELAXED);
    return result == CUDA_SUCCESS;
}

/* Every third is small. */
static size_t next_size(unsigned *seed)
{
    return rand_r(seed) % 3 == 0 ? 256 + (size_t)rand_r(seed) % 200000
                                 : (1 + (size_t)rand_r(seed) % 32) * 2 * MIB;
}

static void *run(void *argument)
{
    CUdeviceptr live[LIVE_MAX];
    unsigned count = 0, seed = (unsigned)(uintptr_t)argument;
    CU(cuCtxSetCurrent)(context);
    while (!get(&race->end)) {
        if (count < LIVE_MAX && rand_r(&seed) % 2 && take(&live[count], next_size(&seed)))
            count++;
        else if (count && release(live[--count]) != CUDA_SUCCESS)
            __atomic_fetch_add(&race->odd_answers, 1, __ATOMIC_RELAXED);
    }
    CUdeviceptr pointer;
    for (size_t step = 64 * MIB; step >= 2 * MIB; step /= 2) {
        while (take(&pointer, step))
            ;
    }
    return NULL;
}

static void compete(void *argument)
{
    pthread_t threads[THREADS];
    unsigned number = (unsigned)(uintptr_t)argument;
    alloc = CU(cuMemAlloc_v2);
    release = CU(cuMemFree_v2);
    bed_context(0);
    CU(cuCtxGetCurrent)(&context);
    __atomic_fetch_add(&race->ready, 1, __ATOMIC_SEQ_CST);
    wait_until(&race->begin, 1);
    for (unsigned i = 0; i < THREADS; i++)
        REQUIRE(pthread_create(&threads[i], NULL, run, (void *)(uintptr_t)(number * 100 + i)) == 0);
    for (unsigned i = 0; i < THREADS; i++)
        pthread_join(threads[i], NULL);
    __atomic_fetch_add(&race->filled, 1, __ATOMIC_SEQ_CST);
    wait_until(&race->leave, 1);
}

/* Reservations that a process is about to take back are no memory. */
static uint64_t settled_bytes(void)
{
    struct vgpu_region *region = bed_region();
    uint64_t bytes = 0;
    for (unsigned i = 0; region && i < region->slot_high; i++) {
        const struct vgpu_usage *usage = &region->slots[i].usage[0];
        uint64_t pending = __atomic_load_n(&usage->pending, __ATOMIC_SEQ_CST);
        uint64_t held = __atomic_load_n(&usage->bytes, __ATOMIC_SEQ_CST);
        if ((region->slots[i].state & 3) == VGPU_SLOT_LIVE)
            bytes += held > pending ? held - pending : 0;
    }
    return bytes;
}

static void watch(unsigned milliseconds, int *until, int value, uint64_t *card)
{
    struct timespec start, now;
    clock_gettime(CLOCK_MONOTONIC, &start);
    do {
        uint64_t bytes = bed_card_bytes(0);
        *card = bytes > *card ? bytes : *card;
        bed_sleep_ms(1);
        clock_gettime(CLOCK_MONOTONIC, &now);
    } while (until ? get(until) < value && now.tv_sec - start.tv_sec < 30
                   : (now.tv_sec - start.tv_sec) * 1000 + (now.tv_nsec - start.tv_nsec) / 1000000 <
                         milliseconds);
}

BED_TEST(
    "sixteen processes of eight threads never pass the limit and end close to it", .limit = LIMIT)
{
    pid_t pids[PROCESSES];
    uint64_t card = 0;
    race = mmap(NULL, sizeof(*race), PROT_READ | PROT_WRITE, MAP_SHARED | MAP_ANONYMOUS, -1, 0);
    REQUIRE(race != MAP_FAILED);
    for (uintptr_t i = 0; i < PROCESSES; i++)
        pids[i] = bed_fork(compete, (void *)(i + 1));
    wait_until(&race->ready, PROCESSES);
    __atomic_store_n(&race->begin, 1, __ATOMIC_SEQ_CST);
    watch(RACE_MS, NULL, 0, &card);
    __atomic_store_n(&race->end, 1, __ATOMIC_SEQ_CST);
    watch(0, &race->filled, PROCESSES, &card);
    CHECK_EQ(race->filled, PROCESSES);
    uint64_t end = bed_region_bytes(0);
    dprintf(STDOUT_FILENO,
        "# %ld allocations, %ld refusals; the card at most %llu of %llu MiB; in the end %llu\n",
        race->allocations, race->refusals, (unsigned long long)(card / MIB),
        (unsigned long long)(LIMIT_BYTES / MIB), (unsigned long long)(end / MIB));
    CHECK_EQ(race->odd_answers, 0);
    CHECK(race->allocations > 1000);
    CHECK(race->refusals > 100);
    CHECK(card <= LIMIT_BYTES);
    CHECK(end <= LIMIT_BYTES);
    CHECK(end >= LIMIT_BYTES - NEAR_BYTES);
    CHECK_EQ(settled_bytes(), end);
    CHECK(bed_card_bytes(0) <= LIMIT_BYTES);
    CHECK(bed_card_bytes(0) >= LIMIT_BYTES - NEAR_BYTES - PROCESSES * 2 * MIB);
    __atomic_store_n(&race->leave, 1, __ATOMIC_SEQ_CST);
    for (int i = 0; i < PROCESSES; i++)
        CHECK(bed_ended_well(pids[i]));
    CHECK_EQ(bed_card_bytes(0), 0);
}

static void take_one(void *argument)
{
    CUdeviceptr pointer;
    (void)argument;
    alloc = CU(cuMemAlloc_v2);
    bed_context(0);
    __atomic_fetch_add(&race->ready, 1, __ATOMIC_SEQ_CST);
    wait_until(&race->begin, 1);
    take(&pointer, GIB);
    __atomic_fetch_add(&race->filled, 1, __ATOMIC_SEQ_CST);
    wait_until(&race->leave, 1);
}

BED_TEST("of those who want the same last gigabyte exactly one gets it", .limit = LIMIT)
{
    pid_t pids[PROCESSES];
    race = mmap(NULL, sizeof(*race), PROT_READ | PROT_WRITE, MAP_SHARED | MAP_ANONYMOUS, -1, 0);
    REQUIRE(race != MAP_FAILED);
    for (int i = 0; i < PROCESSES; i++)
        pids[i] = bed_fork(take_one, NULL);
    wait_until(&race->ready, PROCESSES);
    __atomic_store_n(&race->begin, 1, __ATOMIC_SEQ_CST);
    wait_until(&race->filled, PROCESSES);
    CHECK_EQ(race->allocations, 1);
    CHECK_EQ(race->refusals, PROCESSES - 1);
    CHECK(bed_card_bytes(0) <= LIMIT_BYTES);
    __atomic_store_n(&race->leave, 1, __ATOMIC_SEQ_CST);
    for (int i = 0; i < PROCESSES; i++)
        CHECK(bed_ended_well(pids[i]));
}

int main(int argc, char **argv)
{
    return check_run(argc, argv);
}
