/* SPDX-License-Identifier: Apache-2.0 */
/* Forks, ends, stops and several processes under a compute limit, and what interrupts a thread that
 * waits at the gate. */
#include "load.h"

#include "sim/machine/machine.h"

#include <pthread.h>

#define LIMIT_50 .environment = {"CUDA_DEVICE_SM_LIMIT=50"}
#define LIMIT_20 .environment = {"CUDA_DEVICE_SM_LIMIT=20"}
/* What its kernels overdraw is paid back by waiting, not by stopping them. */
#define LIMIT_2 .environment = {"CUDA_DEVICE_SM_LIMIT=2", "VGPU_GATE=launch"}

/* ---- forks and ends ---- */

static volatile bool over;

static void *launch_until_over(void *context)
{
    CHECK_EQ(CU(cuCtxSetCurrent)(context), CUDA_SUCCESS);
    CUstream stream = load_stream();
    while (!over)
        CHECK_EQ(load_launch(stream, 50 * US), CUDA_SUCCESS);
    return NULL;
}

/* Changes what a thread launches to, without a pause. */
static void *switch_until_over(void *context)
{
    __typeof__(cuCtxSetCurrent) *set_current = CU(cuCtxSetCurrent);
    while (!over)
        CHECK_EQ(set_current(context), CUDA_SUCCESS);
    return NULL;
}

/* Threads that are at the gate most of the time, and one that is inside the library. */
static void start_launching(pthread_t threads[3])
{
    CUcontext context;
    CHECK_EQ(CU(cuCtxGetCurrent)(&context), CUDA_SUCCESS);
    for (int i = 0; i < 3; i++)
        REQUIRE(pthread_create(
                    &threads[i], NULL, i ? launch_until_over : switch_until_over, context) == 0);
}

static bool ends_in_time(pid_t pid, int *ret_status)
{
    for (int i = 0; i < 1000; i++) {
        if (waitpid(pid, ret_status, WNOHANG) == pid)
            return true;
        bed_sleep_ms(i < 100 ? 1 : 10);
    }
    kill(pid, SIGKILL);
    waitpid(pid, ret_status, 0);
    return false;
}

/* Children of a process whose threads launch, each at another moment. */
static void check_children(void (*body)(void), int count)
{
    pthread_t threads[3];
    load_begin(0);
    start_launching(threads);
    for (int i = 0; i < count; i++) {
        int status = -1;
        const struct timespec pause = {.tv_nsec = (long)(i * 7919 % 101) * 30000};
        nanosleep(&pause, NULL);
        pid_t pid = fork();
        if (pid == 0) {
            body();
            _exit(9);
        }
        if (!CHECK(ends_in_time(pid, &status)) || !CHECK_EQ(status, 0))
            break;
    }
    over = true;
    for (int i = 0; i < 3; i++)
        pthread_join(threads[i], NULL);
    CHECK_EQ(CU(cuCtxSynchronize)(), CUDA_SUCCESS);
}

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

/* The driver of a forked child answers errors; nothing may hang on what the parent's threads
 * held. */
static void use_cuda(void)
{
    CUcontext context = NULL;
    CUstream stream = NULL;
    CUevent event = NULL;
    (void)load_launch(NULL, 1 * US);
    (void)CU(cuCtxGetCurrent)(&context);
    (void)CU(cuCtxSetCurrent)(context);
    (void)CU(cuStreamCreate)(&stream, 0);
    (void)load_launch(stream, 1 * US);
    (void)CU(cuStreamWaitEvent)(stream, event, 0);
    (void)CU(cuStreamDestroy_v2)(stream);
    (void)CU(cuCtxSynchronize)();
    _exit(0);
}

static void set_context(void)
{
    (void)CU(cuCtxSetCurrent)(NULL);
    _exit(0);
}

static void destroy_stream(void)
{
    (void)CU(cuStreamDestroy_v2)((CUstream)(uintptr_t)0x1230);
    _exit(0);
}

BED_TEST("children that are forked at any moment end by _exit", LIMIT_50)
{
    check_children(leave_at_once, 60);
}

BED_TEST("and by exit", LIMIT_50)
{
    check_children(leave_by_exit, 100);
}

BED_TEST("and go on in another program", LIMIT_50)
{
    check_children(leave_by_exec, 40);
}

BED_TEST("and get answers from CUDA", LIMIT_50)
{
    check_children(use_cuda, 100);
}

BED_TEST("also where the first is cuCtxSetCurrent", LIMIT_50)
{
    check_children(set_context, 100);
}

BED_TEST("or cuStreamDestroy", LIMIT_50)
{
    check_children(destroy_stream, 100);
}

static void work_and_exit(void *argument)
{
    pthread_t threads[3];
    load_begin(0);
    start_launching(threads);
    for (int i = 0; i < 20; i++)
        CHECK_EQ(load_launch(NULL, MS), CUDA_SUCCESS);
    if (argument)
        exit(0);
    _exit(0);
}

BED_TEST("a process ends by exit and _exit with work on its way and threads at the gate", LIMIT_20)
{
    for (int i = 0; i < 16; i++) {
        int status = -1;
        pid_t pid = bed_fork(work_and_exit, (void *)(uintptr_t)(i % 2));
        CHECK(ends_in_time(pid, &status));
        CHECK_EQ(status, 0);
    }
}

static void init_and_work(void *argument)
{
    load_begin(0);
    struct load load = {.step = load_step_plain, .duration_ns = MS, .streams = {load_stream()}};
    (void)argument;
    struct load_state from = load_state(0);
    load_run(&load, from.now_ns + 500 * MS);
    struct load_state to = load_state(0);
    load_check_at_most(&from, &to, 20);
    CHECK(to.granted_ns > from.granted_ns);
}

BED_TEST(
    "a child that starts CUDA itself, after its parent's parent did, keeps to the limit", LIMIT_20)
{
    pid_t pid = bed_fork(init_and_work, NULL);
    CHECK(bed_ended_well(pid));
    pid = bed_fork(init_and_work, NULL);
    CHECK(bed_ended_well(pid));
}

/* ---- several processes ---- */

struct peer {
    uint64_t launches;
    int stop_after; /* launches after which it stops itself */
};

static struct peer *peers;
static pid_t pids[4];

static void peer_run(void *argument)
{
    struct peer *peer = argument;
    load_begin(0);
    struct load load = {.step = load_step_plain, .duration_ns = MS, .streams = {load_stream()}};
    for (;;) {
        load_one(&load);
        __atomic_fetch_add(&peer->launches, 1, __ATOMIC_SEQ_CST);
        if (__atomic_load_n(&peer->stop_after, __ATOMIC_SEQ_CST) == 1) {
            __atomic_store_n(&peer->stop_after, 2, __ATOMIC_SEQ_CST);
            raise(SIGSTOP);
        }
    }
}

static uint64_t launches_of(unsigned i)
{
    return __atomic_load_n(&peers[i].launches, __ATOMIC_SEQ_CST);
}

/* Each of them launches from now on, within a time that nobody needs. */
static void await_progress(unsigned count)
{
    uint64_t start = load_now_ns(), seen[4];
    for (unsigned i = 0; i < count; i++)
        seen[i] = launches_of(i);
    for (unsigned i = 0; i < count; i++) {
        while (launches_of(i) < seen[i] + 3 && load_now_ns() - start < 15 * SECOND)
            bed_sleep_ms(1);
        CHECK(launches_of(i) >= seen[i] + 3);
    }
}

static void peers_start(unsigned count)
{
    peers = mmap(NULL, 4096, PROT_READ | PROT_WRITE, MAP_SHARED | MAP_ANONYMOUS, -1, 0);
    REQUIRE(peers != MAP_FAILED);
    for (unsigned i = 0; i < count; i++)
        pids[i] = bed_fork(peer_run, &peers[i]);
    for (unsigned i = 0; i < count; i++) {
        while (!launches_of(i))
            bed_sleep_ms(1);
    }
}

static void peers_end(unsigned count)
{
    for (unsigned i = 0; i < count; i++) {
        kill(pids[i], SIGKILL);
        waitpid(pids[i], NULL, 0);
    }
}

static uint64_t measured_ns(void)
{
    return __atomic_load_n(&bed_region()->compute[0].busy_ns, __ATOMIC_RELAXED);
}

/* The dead are not among the machine's processes any more: what the container did is taken from the
 * region, whose figure other tests hold against the machine's. */
BED_TEST("of three processes one is killed again and again: the others go on, within the limit",
    .environment = {"CUDA_DEVICE_SM_LIMIT=40"})
{
    REQUIRE(sim_attach() == 0);
    peers_start(3);
    uint64_t from = load_now_ns(), measured = measured_ns();
    for (int i = 0; i < 25; i++) {
        const struct timespec pause = {.tv_nsec = (long)(i * 7919 % 67) * 1000000};
        nanosleep(&pause, NULL);
        kill(pids[2], SIGKILL);
        waitpid(pids[2], NULL, 0);
        if (i % 8 == 7)
            await_progress(2);
        pids[2] = bed_fork(peer_run, &peers[2]);
    }
    await_progress(3);
    uint64_t passed = load_now_ns() - from;
    measured = measured_ns() - measured;
    CHECK(measured < (passed + 100 * MS) * 40 / 100 + passed / 50 + 25ull * 5 * MS);
    CHECK(measured > passed * 20 / 100);
    peers_end(3);
}

BED_TEST("three processes have a third each of the container's share",
    .environment = {"CUDA_DEVICE_SM_LIMIT=45"})
{
    uint64_t before[3], after[3], sum = 0;
    REQUIRE(sim_attach() == 0);
    peers_start(3);
    bed_sleep_ms(300);
    struct load_state from = load_state(0);
    for (unsigned i = 0; i < 3; i++)
        before[i] = load_busy_ns(0, pids[i]);
    bed_sleep_ms(2000);
    struct load_state to = load_state(0);
    for (unsigned i = 0; i < 3; i++) {
        after[i] = load_busy_ns(0, pids[i]) - before[i];
        sum += after[i];
    }
    load_check_at_most(&from, &to, 45);
    for (unsigned i = 0; i < 3; i++) {
        if (!CHECK(after[i] > sum / 6) || !CHECK(after[i] < sum / 2))
            dprintf(STDOUT_FILENO, "# %u: %llu of %llu ms\n", i,
                (unsigned long long)(after[i] / MS), (unsigned long long)(sum / MS));
    }
    peers_end(3);
}

BED_TEST("a process that is stopped for a second keeps no other, and goes on afterwards",
    .environment = {"CUDA_DEVICE_SM_LIMIT=40"})
{
    int status;
    REQUIRE(sim_attach() == 0);
    peers_start(3);
    /* By itself, between two launches: one that the simulator's lock is taken from is another
     * matter. */
    __atomic_store_n(&peers[0].stop_after, 1, __ATOMIC_SEQ_CST);
    REQUIRE(waitpid(pids[0], &status, WUNTRACED) == pids[0] && WIFSTOPPED(status));
    uint64_t seen = launches_of(1) + launches_of(2), stopped = launches_of(0);
    uint64_t from = load_now_ns(), measured = measured_ns();
    bed_sleep_ms(1000);
    uint64_t passed = load_now_ns() - from;
    CHECK(launches_of(1) + launches_of(2) > seen + 40);
    CHECK(measured_ns() - measured > passed / 10);
    CHECK_EQ(launches_of(0), stopped);
    kill(pids[0], SIGCONT);
    await_progress(3);
    peers_end(3);
}

/* ---- what interrupts a thread at the gate ---- */

static void fill_debt(void)
{
    load_begin(0);
    CUstream stream = load_stream();
    CHECK_EQ(load_launch(stream, 60 * MS), CUDA_SUCCESS); /* three seconds' worth */
    CHECK_EQ(CU(cuStreamSynchronize)(stream), CUDA_SUCCESS);
    bed_sleep_ms(50);
}

static uint64_t handled_ns;

static void note_signal(int number)
{
    (void)number;
    errno = EXDEV;
    handled_ns = load_now_ns();
}

static struct {
    CUcontext context;
    uint64_t passed_ns;
    CUresult result;
    int errno_after;
} waiter;

static void *wait_at_gate(void *argument)
{
    (void)argument;
    CHECK_EQ(CU(cuCtxSetCurrent)(waiter.context), CUDA_SUCCESS);
    errno = EDOM;
    waiter.result = load_launch(NULL, MS);
    waiter.errno_after = errno;
    __atomic_store_n(&waiter.passed_ns, load_now_ns(), __ATOMIC_SEQ_CST);
    return NULL;
}

static pthread_t start_waiter(void)
{
    pthread_t thread;
    fill_debt();
    CHECK_EQ(CU(cuCtxGetCurrent)(&waiter.context), CUDA_SUCCESS);
    REQUIRE(pthread_create(&thread, NULL, wait_at_gate, NULL) == 0);
    bed_sleep_ms(200);
    CHECK_EQ(waiter.passed_ns, 0);
    return thread;
}

BED_TEST("a signal is handled while its thread waits at the gate, and the launch succeeds", LIMIT_2)
{
    const struct sigaction action = {.sa_handler = note_signal};
    sigaction(SIGUSR1, &action, NULL);
    pthread_t thread = start_waiter();
    for (int i = 0; i < 5; i++) {
        __atomic_store_n(&handled_ns, 0, __ATOMIC_SEQ_CST);
        pthread_kill(thread, SIGUSR1);
        bed_sleep_ms(100);
        CHECK(__atomic_load_n(&handled_ns, __ATOMIC_SEQ_CST) != 0);
        CHECK_EQ(__atomic_load_n(&waiter.passed_ns, __ATOMIC_SEQ_CST), 0);
    }
    uint64_t handled = handled_ns;
    pthread_join(thread, NULL);
    CHECK(waiter.passed_ns > handled);
    CHECK_EQ(waiter.result, CUDA_SUCCESS);
}

BED_TEST("errno is kept at the gate", LIMIT_2)
{
    pthread_t thread = start_waiter();
    pthread_join(thread, NULL);
    CHECK_EQ(waiter.errno_after, EDOM);
}

BED_TEST("errno is kept by all launches and stream calls", LIMIT_50)
{
    load_begin(0);
    for (int i = 0; i < 300; i++) {
        CUstream stream = load_stream();
        errno = EDOM;
        CHECK_EQ(load_launch(stream, (uint64_t)(i % 7) * 100 * US), CUDA_SUCCESS);
        if (!CHECK_EQ(errno, EDOM))
            break;
        CHECK_EQ(CU(cuStreamDestroy_v2)(stream), CUDA_SUCCESS);
    }
}

BED_TEST("a thread that is cancelled while it waits at the gate leaves it open for others", LIMIT_2)
{
    pthread_t thread = start_waiter();
    pthread_cancel(thread);
    pthread_join(thread, NULL);
    load_set(-1, 0);
    uint64_t start = load_now_ns();
    for (int i = 0; i < 10; i++)
        CHECK_EQ(load_launch(NULL, 10 * US), CUDA_SUCCESS);
    CUstream stream = load_stream();
    CHECK_EQ(load_launch(stream, 10 * US), CUDA_SUCCESS);
    CHECK_EQ(CU(cuCtxSynchronize)(), CUDA_SUCCESS);
    CHECK(load_now_ns() - start < 10 * SECOND);
}

struct cancelled {
    CUcontext context;
    CUstream stream;
};

/* Ends where the library says that the driver refused its event. */
static void *launch_cancelled(void *argument)
{
    const struct cancelled *own = argument;
    CHECK_EQ(CU(cuCtxSetCurrent)(own->context), CUDA_SUCCESS);
    pthread_cancel(pthread_self());
    (void)load_launch(own->stream, 10 * US);
    pthread_testcancel();
    return NULL;
}

BED_TEST("the stream of a thread that is cancelled as it is measured goes at once", LIMIT_50,
    .sim = "fail=cuEventRecord:0:2")
{
    pthread_t thread;
    struct cancelled own;
    load_begin(0);
    REQUIRE(CU(cuCtxGetCurrent)(&own.context) == CUDA_SUCCESS);
    own.stream = load_stream();
    REQUIRE(pthread_create(&thread, NULL, launch_cancelled, &own) == 0);
    pthread_join(thread, NULL);
    alarm(20);
    CHECK_EQ(CU(cuStreamDestroy_v2)(own.stream), CUDA_SUCCESS);
    alarm(0);
}

static void exit_beside_waiter(void *argument)
{
    (void)argument;
    (void)start_waiter();
    exit(0);
}

BED_TEST("the program exits while a thread waits at the gate", LIMIT_2)
{
    int status = -1;
    uint64_t start = load_now_ns();
    pid_t pid = bed_fork(exit_beside_waiter, NULL);
    CHECK(ends_in_time(pid, &status));
    CHECK_EQ(status, 0);
    CHECK(load_now_ns() - start < 8 * SECOND);
}

static CUstream left;

static void destroy_at_exit(void)
{
    if (CU(cuStreamDestroy_v2)(left) != CUDA_SUCCESS)
        _exit(9);
}

static void end_within_library(void *argument)
{
    unsigned start_us = 20000 + 337 * *(unsigned *)argument;
    REQUIRE(atexit(destroy_at_exit) == 0); /* after ours */
    load_begin(0);
    left = load_stream();
    CHECK_EQ(load_launch(left, US), CUDA_SUCCESS);
    load_exit_within_library(start_us, 97);
    for (;;)
        CHECK_EQ(load_launch(left, 700 * US), CUDA_SUCCESS);
}

BED_TEST("exit() in a signal's handler, in the midst of launches, where a stream is destroyed at "
         "the end",
    .environment = {"CUDA_DEVICE_SM_LIMIT=99"})
{
    for (unsigned i = 0; i < 60; i++) {
        int status = -1;
        pid_t pid = bed_fork(end_within_library, &i);
        CHECK(ends_in_time(pid, &status));
        if (!CHECK_EQ(status, 5 << 8))
            break;
    }
}

/* ---- idle ---- */

BED_TEST("an idle program under a limit uses no processor time, and its governor sleeps", LIMIT_50)
{
    uint64_t least = SECOND;
    load_begin(0);
    for (int i = 0; i < 200; i++)
        CHECK_EQ(load_launch(NULL, 100 * US), CUDA_SUCCESS);
    load_settle();
    bed_sleep_ms(300);
    for (int i = 0; i < 3 && least > 2 * MS; i++) {
        uint64_t before = load_cpu_ns();
        bed_sleep_ms(1000);
        uint64_t used = load_cpu_ns() - before;
        least = used < least ? used : least;
    }
    CHECK(least < 10 * MS);
    uint64_t asked = sim_calls("cuEventQuery");
    bed_sleep_ms(300);
    CHECK_EQ(sim_calls("cuEventQuery"), asked);
    CHECK_EQ(load_launch(NULL, 100 * US), CUDA_SUCCESS);
    load_settle();
}

int main(int argc, char **argv)
{
    return check_run(argc, argv);
}
