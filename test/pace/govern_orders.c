/* SPDX-License-Identifier: Apache-2.0 */
/* A program never stays stopped: orders that change while its channels are closed, again and again,
 * a region whose file goes or holds garbage, and what its other threads do meanwhile. */
#include "govern_load.h"
#include "../time/sleeps.h"

#include "base/atomic.h"
#include "sim/machine/machine.h"

#include <fcntl.h>
#include <pthread.h>

/* Windows of 14 ms each 700 ms, and each 280 ms. */
#define LIMIT_2 .environment = {"CUDA_DEVICE_SM_LIMIT=2"}
#define LIMIT_5 .environment = {"CUDA_DEVICE_SM_LIMIT=5"}
#define LIMIT_50 .environment = {"CUDA_DEVICE_SM_LIMIT=50"}
#define MEMORY .limit = "8GiB"

#define ATTEMPTS 6

#define RECENT_KERNEL offsetof(struct vgpu_hami, recent_kernel)

static const char *region_path(void)
{
    return getenv("CUDA_DEVICE_MEMORY_SHARED_CACHE");
}

/* ---- limits ---- */

/* How long it takes until the program runs after the limit was changed while closed, at best. */
static uint64_t reaction_ns(unsigned percent)
{
    uint64_t least = UINT64_MAX;
    for (int i = 0; i < ATTEMPTS && least > 50 * MS; i++) {
        order_limit(2);
        (void)hold_await_closed(getpid(), 200 * MS);
        uint64_t from = load_now_ns();
        order_limit(percent);
        CHECK(hold_runs(getpid()));
        uint64_t took = load_now_ns() - from;
        least = took < least ? took : least;
    }
    return least;
}

BED_TEST("a limit that is removed or raised while closed is so within 50 ms", LIMIT_2)
{
    hold_begin(FOREVER);
    CHECK(reaction_ns(0) <= 50 * MS);
    CHECK(reaction_ns(90) <= 50 * MS);
    CHECK(reaction_ns(0) <= 50 * MS);
}

BED_TEST("the container's last limit is removed by a tool while closed", LIMIT_2)
{
    hold_begin(FOREVER);
    uint64_t until = hold_await_closed(getpid(), 100 * MS);
    load_set(-1, 0);
    CHECK(hold_runs(getpid()));
    while (load_now_ns() < until)
        bed_sleep_ms(1);
    struct load_state from = load_state(0);
    bed_sleep_ms(200);
    struct load_state to = load_state(0);
    CHECK(load_permille(to.busy_ns - from.busy_ns, to.now_ns - from.now_ns) > 900);
}

static void check_held_from_now_on(unsigned percent)
{
    order_limit(percent);
    bed_sleep_ms(500);
    struct load_state from = load_state(0);
    bed_sleep_ms(3000);
    struct load_state to = load_state(0);
    load_check_at_most(&from, &to, percent);
    CHECK(load_permille(to.busy_ns - from.busy_ns, to.now_ns - from.now_ns) > 8 * (int)percent);
}

BED_TEST("a limit that comes later holds what runs already", MEMORY)
{
    hold_begin(FOREVER);
    bed_sleep_ms(300);
    check_held_from_now_on(20);
    order_limit(0);
    CHECK(hold_runs(getpid()));
    bed_sleep_ms(300);
    check_held_from_now_on(50);
}

BED_TEST("also on the legacy stream, with more behind it", MEMORY)
{
    load_begin(0);
    for (int i = 0; i < 40; i++)
        CHECK_EQ(load_launch(NULL, i ? 200 * MS : FOREVER), CUDA_SUCCESS);
    bed_sleep_ms(300);
    check_held_from_now_on(20);
}

/* What was there before is over when a launch behind it is. */
BED_TEST("and what is launched behind it once it is over, as what it is", MEMORY)
{
    CUstream stream = hold_begin(300 * MS);
    order_limit(50);
    CHECK_EQ(load_launch(stream, 20 * MS), CUDA_SUCCESS);
    load_settle();
    struct load_state from = load_state(0);
    bed_sleep_ms(500);
    load_learn(stream, 5 * MS, 20);
    load_check_measured(&from);
}

BED_TEST("a limit that changes a thousand times is in force at the end", LIMIT_5)
{
    hold_begin(FOREVER);
    for (unsigned i = 0; i < 1000; i++) {
        order_limit(i * 7919 % 100);
        if (i % 8 == 0)
            bed_sleep_ms(1);
    }
    order_limit(20);
    CHECK(hold_runs(getpid()));
    (void)hold_await_closed(getpid(), 10 * MS);
    bed_sleep_ms(500);
    struct load_state from = load_state(0);
    bed_sleep_ms(500);
    struct load_state to = load_state(0);
    hold_check_share(&from, &to, 20);
}

/* ---- pauses ---- */

static void pause_often(void)
{
    for (unsigned i = 0; i < 1000; i++) {
        const struct timespec pause = {.tv_nsec = (long)(i * 7919 % 400) * 1000};
        order_pause(i % 2 == 0);
        nanosleep(&pause, NULL);
    }
}

/* With an order of either kind at the end. */
static void check_pause_often(void)
{
    hold_begin(FOREVER);
    for (int i = 0; i < 2; i++) {
        pause_often();
        CHECK(hold_runs(getpid()));
        pause_often();
        order_pause(true);
        CHECK(hold_comes_to_stand(getpid()));
        CHECK(hold_stands(getpid()));
        order_pause(false);
        CHECK(hold_runs(getpid()));
    }
}

BED_TEST(
    "a container that is paused and resumed a thousand times runs, or stands, as told last", MEMORY)
{
    check_pause_often();
}

BED_TEST("also one with a compute limit", .environment = {"CUDA_DEVICE_SM_LIMIT=20"})
{
    check_pause_often();
}

static struct {
    uint64_t launches;
    bool ends;
} sparse;

/* So little that it goes by estimate for long. */
static void *launch_sparsely(void *context)
{
    CHECK_EQ(CU(cuCtxSetCurrent)(context), CUDA_SUCCESS);
    CUstream stream = load_stream();
    while (!load_relaxed(&sparse.ends)) {
        CHECK_EQ(load_launch(stream, 50 * US), CUDA_SUCCESS);
        CHECK_EQ(CU(cuStreamSynchronize)(stream), CUDA_SUCCESS);
        add_relaxed(&sparse.launches, 1u);
        bed_sleep_ms(1);
    }
    return NULL;
}

BED_TEST("launches that go by estimate stop within 50 ms of a pause, where launches alone wait",
    .environment = {"CUDA_DEVICE_SM_LIMIT=50", "VGPU_GATE=launch"})
{
    pthread_t thread;
    CUcontext context;
    load_begin(0);
    CHECK_EQ(CU(cuCtxGetCurrent)(&context), CUDA_SUCCESS);
    REQUIRE(pthread_create(&thread, NULL, launch_sparsely, context) == 0);
    for (int i = 0; i < ATTEMPTS; i++) {
        bed_sleep_ms(400);
        order_pause(true);
        bed_sleep_ms(50);
        uint64_t launches = load_relaxed(&sparse.launches);
        bed_sleep_ms(200);
        CHECK_EQ(load_relaxed(&sparse.launches), launches);
        order_pause(false);
        for (int ms = 0; ms < 10000 && load_relaxed(&sparse.launches) == launches; ms++)
            bed_sleep_ms(1);
        CHECK(load_relaxed(&sparse.launches) > launches);
    }
    store_relaxed(&sparse.ends, true);
    pthread_join(thread, NULL);
}

/* As HAMi's monitor does, but for the wake by which the program stands at once. */
static void hold_by_monitor(bool held)
{
    const int32_t word = held ? -1 : 0;
    int file = open(region_path(), O_WRONLY | O_CLOEXEC);
    CHECK_EQ(pwrite(file, &word, sizeof(word), RECENT_KERNEL), sizeof(word));
    close(file);
    if (held)
        order_raise();
}

/* Nothing wakes the program, which calls nothing. */
BED_TEST("what HAMi's monitor held goes on within 400 ms of its word", MEMORY)
{
    uint64_t least = UINT64_MAX;
    hold_begin(FOREVER);
    for (int i = 0; i < ATTEMPTS && least > 400 * MS; i++) {
        hold_by_monitor(true);
        CHECK(hold_comes_to_stand(getpid()));
        uint64_t from = load_now_ns();
        hold_by_monitor(false);
        CHECK(hold_runs(getpid()));
        uint64_t took = load_now_ns() - from;
        least = took < least ? took : least;
    }
    CHECK(least <= 400 * MS);
}

static int32_t recent_kernel(int32_t *write_word)
{
    int32_t word = 0;
    int file = open(region_path(), O_RDWR | O_CLOEXEC);
    if (write_word)
        CHECK_EQ(pwrite(file, write_word, sizeof(*write_word), RECENT_KERNEL), sizeof(word));
    CHECK_EQ(pread(file, &word, sizeof(word), RECENT_KERNEL), sizeof(word));
    close(file);
    return word;
}

BED_TEST("a launch that waits in a pause does not tell HAMi's monitor of work", MEMORY)
{
    pthread_t thread;
    CUcontext context;
    int32_t word = 1;
    load_begin(0);
    CHECK_EQ(CU(cuCtxGetCurrent)(&context), CUDA_SUCCESS);
    REQUIRE(pthread_create(&thread, NULL, launch_sparsely, context) == 0);
    bed_sleep_ms(1200);
    order_pause(true);
    bed_sleep_ms(300);
    (void)recent_kernel(&word);
    bed_sleep_ms(2500);
    CHECK_EQ(recent_kernel(NULL), 1);
    order_pause(false);
    bed_sleep_ms(2500);
    CHECK_EQ(recent_kernel(NULL), 2);
    store_relaxed(&sparse.ends, true);
    pthread_join(thread, NULL);
}

static void *launch_many(void *context)
{
    CHECK_EQ(CU(cuCtxSetCurrent)(context), CUDA_SUCCESS);
    CUstream stream = load_stream();
    for (int i = 0; i < 300; i++)
        CHECK_EQ(load_launch(stream, 200 * US), CUDA_SUCCESS);
    CHECK_EQ(CU(cuStreamSynchronize)(stream), CUDA_SUCCESS);
    return NULL;
}

BED_TEST("programs that launch meanwhile end", .environment = {"CUDA_DEVICE_SM_LIMIT=50"})
{
    CUcontext context;
    pthread_t threads[2];
    load_begin(0);
    CHECK_EQ(load_launch(NULL, MS), CUDA_SUCCESS);
    CHECK_EQ(CU(cuCtxGetCurrent)(&context), CUDA_SUCCESS);
    for (int i = 0; i < 2; i++)
        REQUIRE(pthread_create(&threads[i], NULL, launch_many, context) == 0);
    pause_often();
    for (int i = 0; i < 2; i++)
        pthread_join(threads[i], NULL);
}

/* ---- the region's file ---- */

static void delete_file(void)
{
    CHECK_EQ(unlink(region_path()), 0);
}

static void shorten_to_nothing(void)
{
    CHECK_EQ(truncate(region_path(), 0), 0);
}

static void shorten_by_half(void)
{
    CHECK_EQ(truncate(region_path(), VGPU_REGION_OFFSET + 4096), 0);
}

static void (*const losses[])(void) = {delete_file, shorten_to_nothing, shorten_by_half};
#define LOSSES (sizeof(losses) / sizeof(losses[0]))

/* This process may not look at the region afterwards. */
static void lose_while_closed(void *argument)
{
    struct load_state from, to;
    hold_begin(FOREVER);
    (void)hold_await_closed(getpid(), 60 * MS);
    losses[(uintptr_t)argument]();
    CHECK(hold_runs(getpid()));
    from = (struct load_state){.now_ns = load_now_ns(), .busy_ns = load_busy_ns(0, 0)};
    bed_sleep_ms(1000);
    to = (struct load_state){.now_ns = load_now_ns(), .busy_ns = load_busy_ns(0, 0)};
    hold_check_share(&from, &to, 5);
    CHECK(hold_runs(getpid()));
}

BED_TEST("the region's file is deleted or shortened while closed: the program is held as before",
    LIMIT_5)
{
    for (size_t i = 0; i < LOSSES; i++)
        CHECK(ends_well_in_time(bed_fork(lose_while_closed, (void *)(uintptr_t)i)));
}

static bool resume(void)
{
    char *vgpu = bed_build_path("vgpu");
    pid_t pid = fork();
    if (pid == 0) {
        (void)!freopen("/dev/null", "w", stdout);
        unsetenv("LD_PRELOAD");
        execl(vgpu, vgpu, "resume", (char *)NULL);
        _exit(127);
    }
    free(vgpu);
    return ends_well_in_time(pid);
}

static bool file_is_paused(void)
{
    uint32_t word = 0;
    FILE *file = fopen(region_path(), "re");
    if (!file)
        return false;
    bool read = fseek(file, VGPU_REGION_OFFSET + offsetof(struct vgpu_region, paused), 0) == 0 &&
                fread(&word, sizeof(word), 1, file) == 1;
    fclose(file);
    return read && word == 1;
}

/* Its pause is that of the file which takes its place, where anyone may end it. */
static void lose_in_pause(void *argument)
{
    hold_begin(FOREVER);
    order_pause(true);
    CHECK(hold_comes_to_stand(getpid()));
    losses[(uintptr_t)argument]();
    for (unsigned waited = 0; waited < PATIENCE_MS && !file_is_paused(); waited++)
        bed_sleep_ms(1);
    CHECK(hold_comes_to_stand(getpid()));
    CHECK(file_is_paused());
    for (unsigned waited = 0; waited < PATIENCE_MS && !resume(); waited += 100)
        bed_sleep_ms(100); /* until it is whole again */
    CHECK(hold_runs(getpid()));
}

BED_TEST("the region's file is deleted or shortened in a pause: the program is resumed in the next",
    MEMORY)
{
    for (size_t i = 0; i < LOSSES; i++) {
        CHECK(ends_well_in_time(bed_fork(lose_in_pause, (void *)(uintptr_t)i)));
        (void)unlink(region_path());
    }
}

/* ---- garbage in the region ---- */

static void write_window(uint64_t closed_ns, uint64_t until_ns)
{
    __atomic_store_n(&bed_region()->window_closed_ns, closed_ns, __ATOMIC_SEQ_CST);
    __atomic_store_n(&bed_region()->window_until_ns, until_ns, __ATOMIC_SEQ_CST);
    order_raise();
}

/* A second, and what a loaded computer adds. */
static void check_not_stopped(uint64_t until_ns)
{
    uint64_t from = load_now_ns(), closed = until_ns - from;
    write_window(from, until_ns);
    bed_sleep_ms(5); /* what is on its way takes effect */
    CHECK(hold_runs(getpid()));
    uint64_t took = load_now_ns() - from;
    if (!CHECK(took < 1500 * MS))
        dprintf(STDOUT_FILENO, "# stopped for %llu ms by %#llx ns\n",
            (unsigned long long)(took / MS), (unsigned long long)closed);
}

/* A clock that jumped leaves the same. */
BED_TEST("a window made up by another process stops nobody for longer than a second",
    .environment = {"CUDA_DEVICE_SM_LIMIT=90"})
{
    static const uint64_t ahead[] = {1, 900 * MS, 1100 * MS, 1900 * MS, 2 * SECOND, 10 * SECOND,
        3600 * SECOND, 1ull << 62, 1ull << 63, (1ull << 63) + 1, UINT64_MAX, -SECOND, -MS};
    hold_begin(FOREVER);
    for (size_t i = 0; i < sizeof(ahead) / sizeof(ahead[0]); i++)
        check_not_stopped(load_now_ns() + ahead[i]);
    check_not_stopped(1);
    check_not_stopped(UINT64_MAX);
    check_not_stopped(UINT64_MAX - 1);
}

BED_TEST("nor one without a compute limit", MEMORY)
{
    hold_begin(FOREVER);
    check_not_stopped(load_now_ns() + 900 * MS);
    check_not_stopped(UINT64_MAX);
}

static bool over;

static void *write_garbage(void *unused)
{
    uint64_t random = 1;
    (void)unused;
    while (!__atomic_load_n(&over, __ATOMIC_ACQUIRE)) {
        random = random * 6364136223846793005ull + 1442695040888963407ull;
        write_window(random, random >> 32 & 1 ? random : load_now_ns() + (random >> 34));
        if (random >> 60 == 0)
            bed_sleep_ms(1);
    }
    return NULL;
}

BED_TEST("a program goes on after windows of all kinds, wakings and limits were made up at random",
    LIMIT_5)
{
    pthread_t thread;
    hold_begin(FOREVER);
    (void)hold_await_closed(getpid(), 10 * MS);
    REQUIRE(pthread_create(&thread, NULL, write_garbage, NULL) == 0);
    bed_sleep_ms(1500);
    __atomic_store_n(&over, true, __ATOMIC_RELEASE);
    pthread_join(thread, NULL);
    CHECK(hold_runs(getpid()));
    (void)hold_await_closed(getpid(), 10 * MS);
    CHECK(hold_runs(getpid()));
}

/* ---- other threads ---- */

static void check_memory_calls(void)
{
    CUdeviceptr pointers[8];
    for (int i = 0; i < 8; i++)
        CHECK_EQ(CU(cuMemAlloc_v2)(&pointers[i], (uint64_t)(i + 1) * MIB), CUDA_SUCCESS);
    CHECK(load_kernel() != NULL);
    for (int i = 0; i < 8; i++)
        CHECK_EQ(CU(cuMemFree_v2)(pointers[i]), CUDA_SUCCESS);
}

static void *use_memory(void *context)
{
    CHECK_EQ(CU(cuCtxSetCurrent)(context), CUDA_SUCCESS);
    check_memory_calls();
    return NULL;
}

BED_TEST("other threads allocate, free and load modules while closed", LIMIT_5)
{
    CUcontext context;
    hold_begin(FOREVER);
    REQUIRE(CU(cuCtxGetCurrent)(&context) == CUDA_SUCCESS);
    for (int i = 0; i < 4; i++) {
        pthread_t threads[4];
        (void)hold_await_closed(getpid(), 60 * MS);
        for (int k = 0; k < 4; k++)
            REQUIRE(pthread_create(&threads[k], NULL, use_memory, context) == 0);
        for (int k = 0; k < 4; k++)
            pthread_join(threads[k], NULL);
        CHECK(hold_runs(getpid()));
    }
}

BED_TEST("contexts and streams that are made while closed are closed, and open with the others",
    .environment = {"CUDA_DEVICE_SM_LIMIT=5", "VGPU_GATE=channel"})
{
    CUcontext primary, context;
    hold_begin(FOREVER);
    struct load_state from = load_state(0);
    REQUIRE(CU(cuCtxGetCurrent)(&primary) == CUDA_SUCCESS);
    for (int i = 0; i < 3; i++) {
        uint64_t until = hold_await_closed(getpid(), 100 * MS);
        CHECK_EQ(load_launch(load_stream(), MS), CUDA_SUCCESS);
        REQUIRE(CU(cuCtxCreate_v2)(&context, 0, 0) == CUDA_SUCCESS);
        CHECK_EQ(load_launch_of(load_kernel(), load_stream(), MS), CUDA_SUCCESS);
        uint64_t before = load_busy_ns(0, getpid());
        bed_sleep_ms(20);
        uint64_t ran = load_busy_ns(0, getpid()) - before;
        if (load_now_ns() < until)
            CHECK_EQ(ran, 0);
        CHECK_EQ(CU(cuCtxSynchronize)(), CUDA_SUCCESS);
        CHECK_EQ(CU(cuCtxSetCurrent)(primary), CUDA_SUCCESS);
    }
    struct load_state to = load_state(0);
    hold_check_share(&from, &to, 5);
}

BED_TEST("so are those that are made in a pause", MEMORY)
{
    CUcontext context;
    hold_begin(FOREVER);
    order_pause(true);
    CHECK(hold_comes_to_stand(getpid()));
    uint64_t before = load_busy_ns(0, getpid());
    REQUIRE(CU(cuCtxCreate_v2)(&context, 0, 0) == CUDA_SUCCESS);
    (void)load_stream();
    check_memory_calls();
    CHECK_EQ(load_busy_ns(0, getpid()), before);
    order_pause(false);
    CHECK_EQ(load_launch_of(load_kernel(), load_stream(), MS), CUDA_SUCCESS);
    CHECK_EQ(CU(cuCtxSynchronize)(), CUDA_SUCCESS);
    CHECK(hold_runs(getpid()));
}

/* ---- what watching costs ---- */

/* How often the thread has slept so far. */
static unsigned sleeps_of(pid_t thread)
{
    if (vtime_sleeps_of)
        return vtime_sleeps_of(thread);
    char path[64], line[128];
    unsigned sleeps = 0;
    snprintf(path, sizeof(path), "/proc/self/task/%d/status", thread);
    FILE *file = fopen(path, "re");
    REQUIRE(file != NULL);
    while (fgets(line, sizeof(line), file))
        (void)sscanf(line, "voluntary_ctxt_switches: %u", &sleeps);
    fclose(file);
    return sleeps;
}

/* Not for what runs for 10 ms and more: that is looked after more often. */
static void check_looks_each_20_ms(void)
{
    load_begin(0);
    struct load load = {.step = load_step_plain, .duration_ns = MS, .streams[0] = load_stream()};
    load_run(&load, load_now_ns() + SECOND / 2);
    pid_t governor = governor_thread();
    uint64_t from = load_now_ns();
    unsigned before = sleeps_of(governor);
    load_run(&load, from + SECOND);
    unsigned sleeps = sleeps_of(governor) - before;
    uint64_t passed = load_now_ns() - from;
    CHECK(sleeps > 0);
    CHECK(sleeps * 15 * MS < passed);
}

BED_TEST("beside short kernels the governor looks each 20 ms", LIMIT_50)
{
    check_looks_each_20_ms();
}

/* What they asked for last was under way then, and is over since. */
BED_TEST("also where their launches wait for longer than they run",
    .environment = {"CUDA_DEVICE_SM_LIMIT=20"})
{
    check_looks_each_20_ms();
}

/* HAMi's monitor is to see a share of 0 by then. */
BED_TEST("in the second after its work the governor hardly wakes", LIMIT_50)
{
    load_begin(0);
    struct load load = {.step = load_step_plain, .duration_ns = MS, .streams[0] = load_stream()};
    load_run(&load, load_now_ns() + 3 * SECOND / 2);
    load_settle();
    bed_sleep_ms(100);
    unsigned before = sleeps_of(governor_thread());
    bed_sleep_ms(900);
    CHECK(sleeps_of(governor_thread()) - before <= 6);
}

int main(int argc, char **argv)
{
    return check_run(argc, argv);
}
