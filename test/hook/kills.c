/* SPDX-License-Identifier: Apache-2.0 */
/* Processes killed at random instants of all that takes and gives back memory, while others work:
 * the account stays what the living hold, and nobody hangs or is refused wrongly. */
#include "herd.h"

#include <dirent.h>

#define HANG_SECONDS 20

static unsigned seed = 20240607;
static pid_t pids[HERD_WORKERS_MAX];
static uint64_t card_high;

struct course {
    uint64_t limit_bytes;
    unsigned workers, threads;
    unsigned kills, batch; /* all stop after each batch, for the accounts */
    unsigned seconds;      /* of killing at most, where the machine is slow */
    unsigned spin_us;      /* a kill comes at most so long after the one before */
};

static const struct course *course;

enum order { LOOK = 1, FILL };

static uint64_t now_us(void)
{
    struct timespec now;
    clock_gettime(CLOCK_MONOTONIC, &now);
    return (uint64_t)now.tv_sec * 1000000 + (uint64_t)now.tv_nsec / 1000;
}

/* Busy, so that the kill comes wherever the victim is and not where it lets others run. */
static void spin(uint64_t duration_us)
{
    uint64_t start = now_us();
    while (now_us() - start < duration_us)
        ;
}

static void look_at_card(void)
{
    uint64_t bytes = bed_card_bytes(0);
    card_high = bytes > card_high ? bytes : card_high;
}

static void start_worker(unsigned number)
{
    memset(&herd->workers[number], 0, sizeof(herd->workers[number]));
    pids[number] = bed_fork(herd_work, &herd->workers[number]);
}

static void kill_worker(unsigned number)
{
    kill(pids[number], SIGKILL);
    waitpid(pids[number], NULL, 0);
}

/* For a moment; who has waited very long waits for somebody that hangs. */
static void wait_since(uint64_t start_us)
{
    REQUIRE(now_us() - start_us < HANG_SECONDS * 1000000ull);
    bed_sleep_ms(1);
}

/* Every thread comes to the pause, however long its last call waited for others. */
static void await_pause(int pause)
{
    uint64_t start = now_us();
    for (unsigned i = 0; i < course->workers; i++) {
        for (unsigned t = 0; t < course->threads; t++) {
            struct herd_thread *thread = &herd->workers[i].threads[t];
            while (herd_get(&thread->paused) != pause) {
                REQUIRE(waitpid(pids[i], NULL, WNOHANG) == 0); /* no worker ends by itself */
                wait_since(start);
            }
        }
    }
}

static void raise_pause(enum herd_pause kind)
{
    int pause = herd_get(&herd->pause) / HERD_PAUSES * HERD_PAUSES + HERD_PAUSES + (int)kind;
    herd_set(&herd->pause, pause);
    await_pause(pause);
}

/* What the simulator's own books say of the process. */
static uint64_t card_bytes_of(pid_t pid)
{
    static struct sim_process processes[4 * HERD_WORKERS_MAX];
    unsigned count = sim_device_processes(0, processes, 4 * HERD_WORKERS_MAX);
    for (unsigned i = 0; i < count; i++) {
        if (processes[i].pid == pid)
            return processes[i].private_bytes + processes[i].shared_owned_bytes;
    }
    return 0;
}

static void check_worker(unsigned number, uint64_t *elsewhere)
{
    const struct vgpu_slot *slot = bed_region_slot(pids[number]);
    uint64_t least = 0, most = 0;
    if (!CHECK(slot != NULL))
        return;
    for (unsigned t = 0; t < course->threads; t++) {
        least += herd->workers[number].threads[t].least_bytes;
        most += herd->workers[number].threads[t].most_bytes;
    }
    CHECK(slot->usage[0].bytes >= least);
    CHECK(slot->usage[0].bytes <= most);
    CHECK_EQ(slot->usage[0].pending, 0);
    if (!strcmp(bed_ledger(), "rm"))
        CHECK_EQ(slot->usage[0].bytes - slot->usage[0].managed - slot->usage[0].spilled,
            card_bytes_of(pids[number]));
    *elsewhere += slot->usage[0].managed + slot->usage[0].spilled;
}

/* Nobody else moves: exactly what is left can be had, and not a byte more. */
static void fill(void)
{
    CUdeviceptr blocks = 0, rest = 0, more;
    uint64_t left = course->limit_bytes - bed_region_bytes(0);
    uint64_t whole = left / (2 * MIB) * (2 * MIB);
    CHECK_EQ(CU(cuMemAlloc_v2)(&more, whole + (2 * MIB)), CUDA_ERROR_OUT_OF_MEMORY);
    if (whole)
        CHECK_EQ(CU(cuMemAlloc_v2)(&blocks, whole), CUDA_SUCCESS);
    if (left > whole)
        CHECK_EQ(CU(cuMemAllocManaged)(&rest, left - whole, CU_MEM_ATTACH_GLOBAL), CUDA_SUCCESS);
    CHECK_EQ(CU(cuMemAllocManaged)(&more, 1, CU_MEM_ATTACH_GLOBAL), CUDA_ERROR_OUT_OF_MEMORY);
    CHECK_EQ(bed_region_bytes(0), course->limit_bytes);
    CHECK(bed_card_bytes(0) <= course->limit_bytes);
    if (whole)
        CHECK_EQ(CU(cuMemFree_v2)(blocks), CUDA_SUCCESS);
    if (left > whole)
        CHECK_EQ(CU(cuMemFree_v2)(rest), CUDA_SUCCESS);
    CHECK_EQ(bed_region_bytes(0), course->limit_bytes - left);
}

/* A process with a context that does as it is told. */
static void witness_serve(void *argument)
{
    size_t free, total;
    (void)argument;
    bed_context(0);
    for (int seen = 0;; bed_sleep_ms(1)) {
        int order = herd_get(&herd->order);
        if (order == seen)
            continue;
        seen = order;
        CHECK_EQ(CU(cuMemGetInfo_v2)(&free, &total), CUDA_SUCCESS);
        if (order % 4 == FILL)
            fill();
        herd_set(&herd->done, order);
    }
}

static void witness_do(enum order order)
{
    int number = herd_get(&herd->order) / 4 * 4 + 4 + (int)order;
    herd_set(&herd->order, number);
    for (uint64_t start = now_us(); herd_get(&herd->done) != number;)
        wait_since(start);
}

/* All stand still: the region says of each what the card and it itself say, and of the dead
 * nothing. */
static void check_account(void)
{
    uint64_t elsewhere = 0; /* managed and spilled */
    witness_do(LOOK);       /* whoever looks retires the dead */
    for (unsigned i = 0; i < course->workers; i++)
        check_worker(i, &elsewhere);
    if (!strcmp(bed_ledger(), "rm"))
        CHECK_EQ(bed_region_bytes(0) - elsewhere, bed_card_bytes(0));
    CHECK(bed_card_bytes(0) <= bed_region_bytes(0) - elsewhere);
    CHECK(bed_region_bytes(0) <= course->limit_bytes);
    witness_do(FILL);
    look_at_card();
}

static bool survives(unsigned number, unsigned batch)
{
    return (number + batch) % 3 == 0;
}

/* One worker in three lives through the batch and has to come on; the others are killed. */
static unsigned kill_batch(unsigned batch)
{
    unsigned killed = 0;
    long refusals = herd_count(&herd->refusals);
    uint64_t progress[HERD_WORKERS_MAX];
    for (unsigned i = 0; i < course->workers; i++)
        progress[i] = herd_progress(&herd->workers[i].threads[0]);
    while (killed < course->batch) {
        unsigned number = (unsigned)rand_r(&seed) % course->workers;
        spin((uint64_t)rand_r(&seed) % course->spin_us);
        look_at_card();
        if (survives(number, batch))
            continue;
        kill_worker(number);
        start_worker(number);
        killed++;
    }
    uint64_t start = now_us();
    for (unsigned i = 0; i < course->workers; i++) {
        while (survives(i, batch) && herd_progress(&herd->workers[i].threads[0]) == progress[i])
            wait_since(start);
    }
    while (herd->quota_bytes == UINT64_MAX && herd_count(&herd->refusals) == refusals)
        wait_since(start);
    raise_pause(HERD_PAUSE);
    return killed;
}

static unsigned count_entries(const char *path)
{
    DIR *directory = opendir(path);
    unsigned count = 0;
    while (directory && readdir(directory))
        count++;
    if (directory)
        closedir(directory);
    return count;
}

static void fill_when_all_are_gone(void *argument)
{
    (void)argument;
    size_t free, total;
    bed_context(0);
    CHECK_EQ(CU(cuMemGetInfo_v2)(&free, &total), CUDA_SUCCESS);
    CHECK_EQ(bed_region_bytes(0), bed_region_slot(getpid())->usage[0].bytes);
    fill();
}

static void run(const struct course *chosen)
{
    course = chosen;
    uint64_t end_us = now_us() + course->seconds * 1000000ull;
    uint64_t room = course->limit_bytes - HERD_CONTEXT_BYTES; /* but for the witness */
    unsigned killed = 0;
    (void)bed_card_bytes(0);
    unsigned descriptors = count_entries("/proc/self/fd");
    herd_begin(course->threads);
    pid_t witness = bed_fork(witness_serve, NULL);
    witness_do(LOOK);
    for (unsigned i = 0; i < course->workers; i++)
        start_worker(i);
    for (unsigned batch = 0; batch < 2 || (killed < course->kills && now_us() < end_us); batch++) {
        /* By turns: quotas that fit, under which each refusal is wrong, and none. */
        herd->quota_bytes = batch % 2 ? UINT64_MAX : room / course->workers;
        herd_set(&herd->pause, herd_get(&herd->pause) / HERD_PAUSES * HERD_PAUSES + HERD_PAUSES);
        killed += kill_batch(batch);
        check_account();
        raise_pause(HERD_PAUSE_EMPTY);
        check_account();
    }
    dprintf(STDOUT_FILENO,
        "# %u kills, %ld grants, %ld refusals; the card at most %llu of %llu MiB\n", killed,
        herd->grants, herd->refusals, (unsigned long long)(card_high / MIB),
        (unsigned long long)(course->limit_bytes / MIB));
    CHECK(herd->grants > killed);
    CHECK(herd->refusals > 0);
    CHECK_EQ(herd->wrong_refusals, 0);
    CHECK_EQ(herd->odd_answers, 0);
    CHECK(card_high <= course->limit_bytes);
    for (unsigned i = 0; i < course->workers; i++)
        kill_worker(i);
    kill(witness, SIGKILL);
    waitpid(witness, NULL, 0);
    CHECK(bed_ended_well(bed_fork(fill_when_all_are_gone, NULL)));
    CHECK_EQ(bed_card_bytes(0), 0);
    /* Each slot was used again: only who found all in use took a new one. */
    CHECK(bed_region()->slot_high <= course->workers + 2);
    CHECK_EQ(count_entries("/proc/self/fd"), descriptors);
    CHECK_EQ(count_entries(bed_directory()), 5); /* ., .., region, machine, stderr */
}

BED_TEST("kills at random instants leave the account what the living hold", .limit = "6GiB")
{
    run(&(struct course){.limit_bytes = 6 * GIB,
        .workers = 6,
        .threads = 1,
        .kills = 1000,
        .batch = 50,
        .seconds = 14,
        .spin_us = 4000});
}

BED_TEST("so do kills of processes with three threads each", .limit = "6GiB")
{
    run(&(struct course){.limit_bytes = 6 * GIB,
        .workers = 4,
        .threads = 3,
        .kills = 300,
        .batch = 30,
        .seconds = 8,
        .spin_us = 6000});
}

BED_TEST("and kills among sixty processes", .limit = "36GiB")
{
    run(&(struct course){.limit_bytes = 36 * GIB,
        .workers = 60,
        .threads = 1,
        .kills = 200,
        .batch = 12,
        .seconds = 8,
        .spin_us = 1000});
}

int main(int argc, char **argv)
{
    return check_run(argc, argv);
}
