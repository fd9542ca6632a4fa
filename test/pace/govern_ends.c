/* SPDX-License-Identifier: Apache-2.0 */
/* A program never stays stopped, and leaves the GPU to the others: it forks, goes on in another
 * program, ends in whatever way, or gives up its contexts while its channels are closed, and the
 * resource manager refuses to switch them. */
#include "govern_load.h"

#include "sim/machine/machine.h"

#include <dlfcn.h>
#include <limits.h>
#include <pthread.h>
#include <spawn.h>
#include <sys/stat.h>

/* Windows of 14 ms each 280 ms. */
#define LIMIT_5 .environment = {"CUDA_DEVICE_SM_LIMIT=5"}
#define LIMIT_20 .environment = {"CUDA_DEVICE_SM_LIMIT=20"}
#define MEMORY .limit = "8GiB"

#define WORK_ITSELF "--work" /* the program's argument: one kernel, and no test */

extern char **environ;

/* ---- children ---- */

static void leave_by_exit(void)
{
    exit(0);
}

static void leave_at_once(void)
{
    _exit(0);
}

static void leave_by_exec(void)
{
    execl("/bin/true", "true", (char *)NULL);
}

/* The driver of a forked child answers errors; nothing is to hang, or to open what is its parent's.
 */
static void use_cuda(void)
{
    CUcontext other;
    CUdeviceptr pointer;
    CUstream stream;
    (void)load_launch(NULL, MS);
    (void)CU(cuMemAlloc_v2)(&pointer, MIB);
    (void)CU(cuStreamCreate)(&stream, 0);
    (void)CU(cuCtxSynchronize)();
    (void)CU(cuCtxCreate_v2)(&other, 0, 0);
    (void)CU(cuDevicePrimaryCtxReset_v2)(0);
    exit(0);
}

/* When what its parent had closed is long overdue, for all that is known here. */
static void wait_for_gpu(void)
{
    bed_sleep_ms(200);
    (void)CU(cuCtxSynchronize)();
    (void)CU(cuStreamSynchronize)(NULL);
    exit(0);
}

static void (*const children[])(void) = {
    leave_at_once, leave_by_exit, leave_by_exec, wait_for_gpu, use_cuda};
#define CHILDREN (sizeof(children) / sizeof(children[0]))

static pid_t fork_child(void (*body)(void))
{
    pid_t pid = fork();
    if (pid == 0) {
        body();
        _exit(9);
    }
    return pid;
}

BED_TEST("children that are forked while closed end, and open nothing of their parent's", LIMIT_5)
{
    hold_begin(FOREVER);
    struct load_state from = load_state(0);
    for (size_t i = 0; i < 2 * CHILDREN; i++) {
        (void)hold_await_closed(getpid(), 60 * MS);
        CHECK(ends_well_in_time(fork_child(children[i % CHILDREN])));
    }
    CHECK(hold_runs(getpid()));
    struct load_state to = load_state(0);
    hold_check_share(&from, &to, 5);
}

BED_TEST("nor do they in a pause", MEMORY)
{
    hold_begin(FOREVER);
    order_pause(true);
    CHECK(hold_comes_to_stand(getpid()));
    uint64_t before = load_busy_ns(0, getpid());
    for (size_t i = 0; i < CHILDREN - 1; i++) /* one that uses CUDA waits, too */
        CHECK(ends_well_in_time(fork_child(children[i])));
    CHECK_EQ(load_busy_ns(0, getpid()), before);
    order_pause(false);
    CHECK(hold_runs(getpid()));
}

static pid_t spawn_vfork(void)
{
    pid_t pid = vfork();
    if (pid == 0) {
        execl("/bin/true", "true", (char *)NULL);
        _exit(9);
    }
    return pid;
}

static pid_t spawn_posix(void)
{
    pid_t pid = -1;
    char *argv[] = {"true", NULL};
    CHECK_EQ(posix_spawn(&pid, "/bin/true", NULL, NULL, argv, environ), 0);
    return pid;
}

BED_TEST("programs that are started by vfork, posix_spawn and system while closed end", LIMIT_5)
{
    hold_begin(FOREVER);
    struct load_state from = load_state(0);
    for (int i = 0; i < 4; i++) {
        (void)hold_await_closed(getpid(), 60 * MS);
        CHECK(ends_well_in_time(i % 2 ? spawn_posix() : spawn_vfork()));
        CHECK_EQ(system("true"), 0);
    }
    CHECK(hold_runs(getpid()));
    struct load_state to = load_state(0);
    hold_check_share(&from, &to, 5);
}

/* ---- ends ---- */

static int *go;

struct worker {
    void (*end)(void);
};

/* Holds the GPU until it is told to end. */
static void hold_and_end(void *argument)
{
    const struct worker *worker = argument;
    hold_begin(FOREVER);
    while (!__atomic_load_n(go, __ATOMIC_ACQUIRE))
        bed_sleep_ms(1);
    worker->end();
}

static void go_make(void)
{
    if (!go)
        go = mmap(NULL, 4096, PROT_READ | PROT_WRITE, MAP_SHARED | MAP_ANONYMOUS, -1, 0);
    REQUIRE(go != MAP_FAILED);
    *go = 0;
}

static pid_t worker_start(struct worker *worker)
{
    go_make();
    return bed_fork(hold_and_end, worker);
}

static int one_kernel(void)
{
    load_begin(0);
    CUresult result = load_launch(NULL, MS);
    return result || CU(cuCtxSynchronize)();
}

static void run_beside(void *unused)
{
    (void)unused;
    CHECK_EQ(one_kernel(), 0);
}

/* In another container, without a limit. */
static void run_elsewhere(void *unused)
{
    char path[128];
    snprintf(path, sizeof(path), "%s/other-region", bed_directory());
    setenv("CUDA_DEVICE_MEMORY_SHARED_CACHE", path, 1);
    unsetenv("CUDA_DEVICE_SM_LIMIT");
    run_beside(unused);
}

static void check_gpu_is_free(void)
{
    CHECK(ends_well_in_time(bed_fork(run_beside, NULL)));
    CHECK(ends_well_in_time(bed_fork(run_elsewhere, NULL)));
}

static void end_by_kill(void)
{
    kill(getpid(), SIGKILL);
}

static void end_by_signal(void)
{
    kill(getpid(), SIGTERM);
}

static void end_in_new_image(void)
{
    execl("/proc/self/exe", "self", WORK_ITSELF, (char *)NULL);
}

static const struct {
    void (*end)(void);
    int status;
} ends[] = {
    {leave_by_exit, 0},
    {leave_at_once, 0},
    {leave_by_exec, 0},
    {end_in_new_image, 0},
    {end_by_kill, SIGKILL},
    {end_by_signal, SIGTERM},
};
#define ENDS (sizeof(ends) / sizeof(ends[0]))

static void check_end(size_t which)
{
    struct worker worker = {.end = ends[which].end};
    int status = -1;
    pid_t pid = worker_start(&worker);
    (void)hold_await_closed(pid, 40 * MS);
    __atomic_store_n(go, 1, __ATOMIC_RELEASE);
    CHECK(ends_in_time(pid, &status));
    CHECK_EQ(status, ends[which].status);
    check_gpu_is_free();
}

BED_TEST("a program ends in whatever way while closed, and the GPU is free afterwards", LIMIT_20)
{
    for (size_t i = 0; i < ENDS; i++)
        check_end(i);
}

static void hold_on(void *unused)
{
    (void)unused;
    hold_begin(FOREVER);
    for (;;)
        bed_sleep_ms(1000);
}

BED_TEST("another program of the container goes on, and is held as before", LIMIT_20)
{
    pid_t peer = bed_fork(hold_on, NULL);
    (void)hold_await_closed(peer, 10 * MS);
    for (size_t i = 0; i < ENDS; i++) {
        check_end(i);
        CHECK(hold_runs(peer));
        (void)hold_await_closed(peer, 10 * MS);
    }
    kill(peer, SIGKILL);
    waitpid(peer, NULL, 0);
}

/* Whichever of two closed the window. */
BED_TEST("of two programs one is killed while closed, the other goes on", LIMIT_5)
{
    pid_t pids[2] = {bed_fork(hold_on, NULL), bed_fork(hold_on, NULL)};
    for (int i = 0; i < 4; i++) {
        (void)hold_await_closed(pids[i % 2], 60 * MS);
        kill(pids[i % 2], SIGKILL);
        waitpid(pids[i % 2], NULL, 0);
        CHECK(hold_runs(pids[1 - i % 2]));
        pids[i % 2] = bed_fork(hold_on, NULL);
    }
    for (int i = 0; i < 2; i++) {
        kill(pids[i], SIGKILL);
        waitpid(pids[i], NULL, 0);
    }
}

static void wait_for_end(void)
{
    int nothing;
    (void)!read(go[1], &nothing, sizeof(nothing));
    _exit(0);
}

static void fork_and_die(void)
{
    (void)fork_child(wait_for_end);
    end_by_kill();
}

/* The child has the driver's descriptors, by which the dead parent's channels live on. */
BED_TEST("a parent is killed while closed, and its child lives on: the GPU is free", LIMIT_20)
{
    int pipes[2], status;
    struct worker worker = {.end = fork_and_die};
    REQUIRE(pipe(pipes) == 0);
    pid_t pid = worker_start(&worker);
    go[1] = pipes[0];
    (void)hold_await_closed(pid, 60 * MS);
    __atomic_store_n(go, 1, __ATOMIC_RELEASE);
    CHECK(ends_in_time(pid, &status));
    CHECK_EQ(status, SIGKILL);
    check_gpu_is_free();
    close(pipes[1]);
}

BED_TEST("a program that is killed in a pause leaves the GPU to other containers", MEMORY)
{
    pid_t pid = bed_fork(hold_on, NULL);
    REQUIRE(sim_attach() == 0);
    CHECK(hold_runs(pid));
    order_pause(true);
    CHECK(hold_comes_to_stand(pid));
    CHECK(ends_well_in_time(bed_fork(run_elsewhere, NULL)));
    kill(pid, SIGKILL);
    waitpid(pid, NULL, 0);
    CHECK(ends_well_in_time(bed_fork(run_elsewhere, NULL)));
    order_pause(false);
    CHECK(ends_well_in_time(bed_fork(run_beside, NULL)));
}

static void exit_in_pause(void)
{
    exit(0);
}

BED_TEST("a program exits in a pause", MEMORY)
{
    struct worker worker = {.end = exit_in_pause};
    pid_t pid = worker_start(&worker);
    REQUIRE(sim_attach() == 0);
    CHECK(hold_runs(pid));
    order_pause(true);
    CHECK(hold_comes_to_stand(pid));
    __atomic_store_n(go, 1, __ATOMIC_RELEASE);
    CHECK(ends_well_in_time(pid));
}

static CUdeviceptr kept;

/* As the driver and a program's own objects do. */
static void give_back_at_exit(void)
{
    CUdeviceptr pointer;
    bool good = CU(cuMemFree_v2)(kept) == CUDA_SUCCESS;
    good &= CU(cuMemAlloc_v2)(&pointer, MIB) == CUDA_SUCCESS;
    good &= CU(cuDevicePrimaryCtxReset_v2)(0) == CUDA_SUCCESS;
    if (!good)
        _exit(9);
}

/* Wherever it is: it opens channels, and looks at the region and the board. */
static void end_within_library(void *argument)
{
    unsigned start_us = 60000 + 2371 * *(unsigned *)argument;
    __typeof__(&cuMemAlloc_v2) allocate = CU(cuMemAlloc_v2);
    __typeof__(&cuMemFree_v2) release = CU(cuMemFree_v2);
    __typeof__(&cuDevicePrimaryCtxReset_v2) reset_none = CU(cuDevicePrimaryCtxReset_v2);
    CUdeviceptr pointer;
    REQUIRE(atexit(give_back_at_exit) == 0); /* after ours */
    hold_begin(FOREVER);
    CHECK_EQ(allocate(&kept, MIB), CUDA_SUCCESS);
    load_exit_within_library(start_us, 797);
    for (;;) {
        if (allocate(&pointer, MIB) == CUDA_SUCCESS)
            (void)release(pointer);
        (void)reset_none(1);
    }
}

BED_TEST("exit() in a signal's handler, in the midst of calls while closed", LIMIT_5)
{
    char boards[PATH_MAX];
    snprintf(boards, sizeof(boards), "%s/boards", bed_directory());
    REQUIRE(mkdir(boards, 0777) == 0);
    setenv("VGPU_BOARD_DIR", boards, 1);
    for (unsigned i = 0; i < 12; i++) {
        int status = -1;
        pid_t pid = bed_fork(end_within_library, &i);
        CHECK(ends_in_time(pid, &status));
        if (!CHECK_EQ(status, 5 << 8))
            break;
    }
}

/* ---- contexts ---- */

/* The driver waits for what is on the context's streams (H200, driver 580.159.04); the simulator
 * drops it. That the channels were let go on before shows in the calls. */
#define SWITCH_CALLS "RM_CONTROL 0x2080110b"

static void check_opened_by(CUresult (*end)(void))
{
    (void)hold_await_closed(getpid(), 60 * MS);
    uint64_t switched = sim_calls(SWITCH_CALLS);
    CHECK_EQ(end(), CUDA_SUCCESS);
    CHECK(sim_calls(SWITCH_CALLS) > switched);
}

static CUcontext second;

static void make_second(void)
{
    CUcontext primary;
    REQUIRE(CU(cuCtxGetCurrent)(&primary) == CUDA_SUCCESS);
    REQUIRE(CU(cuCtxCreate_v2)(&second, 0, 0) == CUDA_SUCCESS);
    CUfunction kernel = load_kernel();
    CHECK_EQ(load_launch_of(kernel, load_stream(), 30 * MS), CUDA_SUCCESS);
    CHECK_EQ(CU(cuCtxSetCurrent)(primary), CUDA_SUCCESS);
}

static CUresult destroy_second(void)
{
    return CU(cuCtxDestroy_v2)(second);
}

BED_TEST(
    "a context is destroyed while closed, with work on its way, and the other is held as before",
    .environment = {"CUDA_DEVICE_SM_LIMIT=5", "VGPU_GATE=channel"})
{
    hold_begin(FOREVER);
    struct load_state from = load_state(0);
    for (int i = 0; i < 4; i++) {
        make_second();
        check_opened_by(destroy_second);
        CHECK(hold_runs(getpid()));
        (void)hold_await_closed(getpid(), 60 * MS);
    }
    struct load_state to = load_state(0);
    hold_check_share(&from, &to, 10);
}

static void *reset(void *unused)
{
    (void)unused;
    CHECK_EQ(CU(cuDevicePrimaryCtxReset_v2)(0), CUDA_SUCCESS);
    return NULL;
}

static CUresult reset_by_another(void)
{
    pthread_t thread;
    REQUIRE(pthread_create(&thread, NULL, reset, NULL) == 0);
    pthread_join(thread, NULL);
    return CUDA_SUCCESS;
}

static CUresult release(void)
{
    return CU(cuDevicePrimaryCtxRelease_v2)(0);
}

/* A new one is held as the former was. */
static void check_primary_goes(CUresult (*end)(void))
{
    for (int i = 0; i < 3; i++) {
        hold_begin(FOREVER);
        check_opened_by(end);
    }
    hold_begin(FOREVER);
    CHECK(hold_runs(getpid()));
    (void)hold_await_closed(getpid(), 60 * MS);
}

BED_TEST("the primary context is reset by another thread while closed", LIMIT_20)
{
    check_primary_goes(reset_by_another);
}

BED_TEST("the primary context is released while closed", LIMIT_20)
{
    check_primary_goes(release);
}

static CUcontext attached;

static CUresult detach(void)
{
    return CU(cuCtxDetach)(attached);
}

BED_TEST("the primary context is detached from by its last holder while closed", LIMIT_20)
{
    for (int i = 0; i < 3; i++) {
        hold_begin(FOREVER);
        CHECK_EQ(CU(cuCtxAttach)(&attached, 0), CUDA_SUCCESS);
        CHECK_EQ(release(), CUDA_SUCCESS);
        check_opened_by(detach);
    }
    hold_begin(FOREVER);
    CHECK(hold_runs(getpid()));
}

static bool over;

static void *let_go_of_none(void *unused)
{
    __typeof__(&cuDevicePrimaryCtxRelease_v2) let_go = CU(cuDevicePrimaryCtxRelease_v2);
    (void)unused;
    while (!__atomic_load_n(&over, __ATOMIC_ACQUIRE))
        CHECK_EQ(let_go(7), CUDA_ERROR_INVALID_DEVICE);
    return NULL;
}

/* Around the end of a context all is open, which is charged for as any other work. */
BED_TEST("ends of contexts without end let no container pass its limit", LIMIT_20)
{
    pthread_t threads[2];
    hold_begin(FOREVER);
    (void)hold_await_closed(getpid(), 10 * MS);
    for (int i = 0; i < 2; i++)
        REQUIRE(pthread_create(&threads[i], NULL, let_go_of_none, NULL) == 0);
    bed_sleep_ms(3000); /* the first second is had in advance */
    struct load_state from = load_state(0);
    bed_sleep_ms(5000);
    struct load_state to = load_state(0);
    __atomic_store_n(&over, true, __ATOMIC_RELEASE);
    for (int i = 0; i < 2; i++)
        pthread_join(threads[i], NULL);
    uint64_t permille = load_permille(to.busy_ns - from.busy_ns, to.now_ns - from.now_ns);
    if (!CHECK(permille < 450))
        dprintf(STDOUT_FILENO, "# %llu permille\n", (unsigned long long)permille);
    CHECK(hold_runs(getpid()));
    (void)hold_await_closed(getpid(), 10 * MS);
}

static void *destroy_stuck(void *unused)
{
    (void)unused;
    CHECK_EQ(destroy_second(), CUDA_SUCCESS);
    return NULL;
}

BED_TEST("a context whose end does not return holds up no pause", MEMORY,
    .behind = "test/hook/libtest-stuck.so")
{
    pthread_t thread;
    int *stuck = dlsym(RTLD_DEFAULT, "test_stuck_frees");
    REQUIRE(stuck != NULL);
    hold_begin(FOREVER);
    make_second();
    __atomic_store_n(stuck, 1, __ATOMIC_SEQ_CST);
    REQUIRE(pthread_create(&thread, NULL, destroy_stuck, NULL) == 0);
    while (__atomic_load_n(stuck, __ATOMIC_SEQ_CST) != 2)
        bed_sleep_ms(1);
    for (int i = 0; i < 2; i++) {
        order_pause(true);
        CHECK(hold_comes_to_stand(getpid()));
        CHECK(hold_stands(getpid()));
        order_pause(false);
        CHECK(hold_runs(getpid()));
    }
    __atomic_store_n(stuck, 0, __ATOMIC_SEQ_CST);
    pthread_join(thread, NULL);
    order_pause(true);
    CHECK(hold_comes_to_stand(getpid()));
    order_pause(false);
    CHECK(hold_runs(getpid()));
}

/* For that everything of the program would have to be let run. */
static bool has_ended;

static void *end_context(void *end)
{
    CHECK_EQ(((CUresult(*)(void))end)(), CUDA_SUCCESS);
    __atomic_store_n(&has_ended, true, __ATOMIC_RELEASE);
    return NULL;
}

static void check_waits_for_resume(CUresult (*end)(void))
{
    pthread_t thread;
    order_pause(true);
    CHECK(hold_comes_to_stand(getpid()));
    uint64_t before = load_busy_ns(0, getpid());
    __atomic_store_n(&has_ended, false, __ATOMIC_RELEASE);
    REQUIRE(pthread_create(&thread, NULL, end_context, (void *)end) == 0);
    for (int i = 0; i < 5; i++)
        CHECK(hold_stands(getpid()));
    CHECK_EQ(load_busy_ns(0, getpid()), before);
    CHECK(!__atomic_load_n(&has_ended, __ATOMIC_ACQUIRE));
    order_pause(false);
    pthread_join(thread, NULL);
}

BED_TEST("a context that is destroyed in a pause goes when the container is resumed", MEMORY)
{
    hold_begin(FOREVER);
    make_second();
    check_waits_for_resume(destroy_second);
    CHECK(hold_runs(getpid()));
}

BED_TEST("so does the primary context that is reset or released", LIMIT_20)
{
    hold_begin(FOREVER);
    check_waits_for_resume(reset_by_another);
    hold_begin(FOREVER);
    check_waits_for_resume(release);
    hold_begin(FOREVER);
    CHECK(hold_runs(getpid()));
}

static void destroy_at_exit(void)
{
    if (CU(cuCtxDestroy_v2)(second) != CUDA_SUCCESS)
        _exit(9);
}

/* As a library does that was there before CUDA was used. */
static void hold_and_destroy_at_exit(void *argument)
{
    REQUIRE(atexit(destroy_at_exit) == 0);
    load_begin(0);
    make_second();
    hold_and_end(argument);
}

BED_TEST("a program that destroys its context as it exits does so in a pause", MEMORY)
{
    struct worker worker = {.end = exit_in_pause};
    go_make();
    pid_t pid = bed_fork(hold_and_destroy_at_exit, &worker);
    REQUIRE(sim_attach() == 0);
    CHECK(hold_runs(pid));
    order_pause(true);
    CHECK(hold_comes_to_stand(pid));
    __atomic_store_n(go, 1, __ATOMIC_RELEASE);
    CHECK(ends_well_in_time(pid));
}

/* ---- the resource manager refuses ---- */

#define SWITCH "@0x2080110b"
#define REFUSED(nth) "rm-status=0x1f" SWITCH ":" #nth
/* What a GPU that is lost answers. */
#define LOST(nth) "rm-status=0xf" SWITCH ":" #nth
/* The self-test makes three of these calls, the first closing the fourth, its opening the fifth. */
#define CLOSING                                                                                    \
    REFUSED(4)                                                                                     \
    "," REFUSED(5) "," REFUSED(6) "," REFUSED(7) "," REFUSED(8) "," REFUSED(9)
#define OPENING                                                                                    \
    LOST(5)                                                                                        \
    "," LOST(6) "," LOST(7) "," LOST(8) "," LOST(9) "," LOST(10) "," LOST(11) "," LOST(            \
        12) "," LOST(13) "," LOST(14) "," LOST(15) "," LOST(16) "," LOST(17) "," LOST(18)

static void check_given_up(void)
{
    CUstream stream = hold_begin(120 * MS);
    uint64_t start = load_now_ns();
    CHECK_EQ(CU(cuStreamSynchronize)(stream), CUDA_SUCCESS);
    CHECK(load_now_ns() - start < PATIENCE_MS * MS);
    CHECK_EQ(bed_stderr_lines("the channel gate is given up"), 1);
    /* What the launch gate can hold is held. */
    struct load load = {.step = load_step_plain, .duration_ns = MS, .streams = {stream}};
    struct load_state from = load_state(0);
    load_run(&load, from.now_ns + 500 * MS);
    struct load_state to = load_state(0);
    hold_check_share(&from, &to, 20);
    CHECK_EQ(bed_stderr_lines("the channel gate"), 1);
}

BED_TEST("a gate that is refused to close is open, and given up once", LIMIT_20, .sim = CLOSING)
{
    check_given_up();
}

BED_TEST("a gate that is refused to open for a while opens, and is given up once", LIMIT_20,
    .sim = OPENING)
{
    check_given_up();
}

static void hold_and_exit(void *unused)
{
    (void)unused;
    hold_begin(FOREVER);
    while (bed_stderr_lines("the channel gate is given up") == 0)
        bed_sleep_ms(1);
    exit(0);
}

BED_TEST("a program whose GPU is lost while closed ends", LIMIT_20, .sim = OPENING)
{
    CHECK(ends_well_in_time(bed_fork(hold_and_exit, NULL)));
}

BED_TEST("a gate that is refused to close lets a paused program run on, and says so once", MEMORY,
    .sim = CLOSING)
{
    hold_begin(FOREVER);
    order_pause(true);
    bed_sleep_ms(300);
    CHECK(hold_runs(getpid()));
    CHECK_EQ(bed_stderr_lines("the channel gate is given up"), 1);
    order_pause(false);
    CHECK(hold_runs(getpid()));
}

int main(int argc, char **argv)
{
    if (argc > 1 && !strcmp(argv[1], WORK_ITSELF))
        return one_kernel();
    return check_run(argc, argv);
}
