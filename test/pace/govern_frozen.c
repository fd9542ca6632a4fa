/* SPDX-License-Identifier: Apache-2.0 */
/* A program never stays stopped: its governor does not run, it is stopped itself, a debugger
 * attaches, and its threads wait inside the driver, while its channels are closed. */
#include "govern_load.h"

#include "sim/machine/machine.h"

#include <pthread.h>
#include <sched.h>
#include <sys/stat.h>

/* Windows of 14 ms each 280 ms. */
#define LIMIT_5 .environment = {"CUDA_DEVICE_SM_LIMIT=5"}
#define LIMIT_20 .environment = {"CUDA_DEVICE_SM_LIMIT=20"}
/* A container that may be paused. */
#define MEMORY .limit = "8GiB"

#define LOW_PRIORITY .environment = {"CUDA_TASK_PRIORITY=1"}

#define OVERDUE_MS 100 /* after which whoever notices opens */

/* ---- the governor does not run ---- */

static CUcontext context;

static CUresult call_allocate(void)
{
    CUdeviceptr pointer;
    return CU(cuMemAlloc_v2)(&pointer, MIB);
}

static CUresult call_info(void)
{
    size_t free_bytes, total;
    return CU(cuMemGetInfo_v2)(&free_bytes, &total);
}

static CUresult call_module(void)
{
    return load_kernel() ? CUDA_SUCCESS : CUDA_ERROR_INVALID_IMAGE;
}

static CUresult call_launch(void)
{
    CUresult result = CUDA_SUCCESS;
    for (int i = 0; i < 100 && result == CUDA_SUCCESS; i++)
        result = load_launch(CU_STREAM_PER_THREAD, 10 * US);
    return result;
}

static CUresult call_wait(void)
{
    return CU(cuCtxSynchronize)();
}

static CUresult call_free(void)
{
    return CU(cuMemFree_v2)(0);
}

static CUresult call_copy(void)
{
    static char from[4096];
    CUdeviceptr pointer;
    CUresult result = CU(cuMemAlloc_v2)(&pointer, sizeof(from));
    return result ? result : CU(cuMemcpyHtoD_v2)(pointer, from, sizeof(from));
}

static const struct {
    const char *name;
    CUresult (*call)(void);
} calls[] = {
    {"cuMemAlloc", call_allocate}, {"cuMemGetInfo", call_info}, {"cuModuleLoadData", call_module},
    {"cuMemFree", call_free}, {"cuMemcpyHtoD", call_copy}, {"cuCtxSynchronize", call_wait},
    {"cuLaunchKernel", call_launch}, /* the last: it looks again while it waits for its turn */
};
#define CALLS (sizeof(calls) / sizeof(calls[0]))

static void *make_call(void *which)
{
    CHECK_EQ(CU(cuCtxSetCurrent)(context), CUDA_SUCCESS);
    CHECK_EQ(calls[(uintptr_t)which].call(), CUDA_SUCCESS);
    return NULL;
}

/* By another thread, which may wait for what never ends. */
static void check_opens(size_t which)
{
    pthread_t thread;
    CHECK(hold_stands(getpid()));
    REQUIRE(pthread_create(&thread, NULL, make_call, (void *)which) == 0);
    if (!CHECK(hold_runs(getpid())))
        dprintf(STDOUT_FILENO, "# after %s\n", calls[which].name);
    pthread_detach(thread);
}

static void sleep_until(uint64_t at_ns)
{
    for (uint64_t now; (now = load_now_ns()) < at_ns;)
        bed_sleep_ms((unsigned)((at_ns - now) / MS) + 1);
}

/* Frozen for longer than its window. */
static void check_window_opens(size_t which)
{
    pid_t governor = governor_thread();
    uint64_t until = hold_await_closed(getpid(), 60 * MS);
    freeze(governor);
    sleep_until(until + OVERDUE_MS * MS + 20 * MS);
    check_opens(which);
    thaw(governor);
}

BED_TEST("any call opens a window that is 100 ms overdue, whose governor does not run", LIMIT_5)
{
    freeze_begin();
    hold_begin(FOREVER);
    REQUIRE(CU(cuCtxGetCurrent)(&context) == CUDA_SUCCESS);
    for (size_t i = 0; i < CALLS; i++)
        check_window_opens(i);
    /* Which then holds it again. */
    (void)hold_await_closed(getpid(), 60 * MS);
}

/* The self-test makes three of these calls, the closing the fourth; an opening that is refused asks
 * three times for each channel. */
#define LOST(nth) "rm-status=0xf@0x2080110b:" #nth
#define LOST_3(a, b, c) LOST(a) "," LOST(b) "," LOST(c)
#define LOST_WHILE_OPENING                                                                         \
    LOST_3(5, 6, 7)                                                                                \
    "," LOST_3(8, 9, 10) "," LOST_3(11, 12, 13) "," LOST_3(14, 15, 16) "," LOST_3(                 \
        17, 18, 19) "," LOST_3(20, 21, 22) "," LOST_3(23, 24, 25) "," LOST_3(26, 27,               \
        28) "," LOST_3(29, 30, 31)

BED_TEST("calls open it at last where the resource manager refuses at first", LIMIT_5,
    .sim = LOST_WHILE_OPENING)
{
    freeze_begin();
    hold_begin(FOREVER);
    pid_t governor = governor_thread();
    uint64_t until = hold_await_closed(getpid(), 60 * MS);
    freeze(governor);
    sleep_until(until + OVERDUE_MS * MS + 20 * MS);
    uint64_t before = load_busy_ns(0, getpid()), start = load_now_ns();
    while (load_busy_ns(0, getpid()) == before && load_now_ns() - start < PATIENCE_MS * MS) {
        CHECK_EQ(call_info(), CUDA_SUCCESS);
        bed_sleep_ms(5);
    }
    CHECK(load_busy_ns(0, getpid()) > before);
    thaw(governor);
}

/* Frozen in the pause, which then ends. */
static void check_pause_opens(size_t which)
{
    pid_t governor = governor_thread();
    order_pause(true);
    CHECK(hold_comes_to_stand(getpid()));
    freeze(governor);
    order_pause(false);
    bed_sleep_ms(OVERDUE_MS + 20);
    check_opens(which);
    thaw(governor);
    CHECK(hold_runs(getpid()));
}

BED_TEST("any call ends a pause that is over, whose governor does not run", MEMORY)
{
    freeze_begin();
    hold_begin(FOREVER);
    REQUIRE(CU(cuCtxGetCurrent)(&context) == CUDA_SUCCESS);
    for (size_t i = 0; i < CALLS; i++)
        check_pause_opens(i);
}

BED_TEST("also one of a container with a compute limit", .environment = {"CUDA_DEVICE_SM_LIMIT=80"})
{
    freeze_begin();
    hold_begin(FOREVER);
    REQUIRE(CU(cuCtxGetCurrent)(&context) == CUDA_SUCCESS);
    for (size_t i = 0; i < CALLS; i++)
        check_pause_opens(i);
}

BED_TEST("no call ends a pause that lasts, whether the governor runs or not", MEMORY)
{
    freeze_begin();
    hold_begin(FOREVER);
    REQUIRE(CU(cuCtxGetCurrent)(&context) == CUDA_SUCCESS);
    order_pause(true);
    CHECK(hold_comes_to_stand(getpid()));
    freeze(governor_thread());
    uint64_t before = load_busy_ns(0, getpid());
    for (int i = 0; i < 3; i++) {
        bed_sleep_ms(500);
        CHECK_EQ(call_allocate(), CUDA_SUCCESS);
        CHECK_EQ(call_info(), CUDA_SUCCESS);
    }
    CHECK_EQ(load_busy_ns(0, getpid()), before);
    order_pause(false);
    bed_sleep_ms(OVERDUE_MS + 20);
    check_opens(0);
}

/* ---- somebody of higher priority works ---- */

/* The boards are the test's own. */
static void use_board(void)
{
    static char path[128];
    snprintf(path, sizeof(path), "%s/board", bed_directory());
    REQUIRE(mkdir(path, 0777) == 0);
    setenv("VGPU_BOARD_DIR", path, 1);
}

enum tenant_order { WAIT, WORK, STOP };

/* Programs of another container, forked before the first CUDA call. */
static struct {
    enum tenant_order *orders;
    pid_t pids[4];
} tenants;
#define TENANTS (sizeof(tenants.pids) / sizeof(tenants.pids[0]))

static enum tenant_order order_of(size_t which)
{
    return __atomic_load_n(&tenants.orders[which], __ATOMIC_ACQUIRE);
}

static void tell(size_t which, enum tenant_order order)
{
    __atomic_store_n(&tenants.orders[which], order, __ATOMIC_RELEASE);
}

/* It stops by itself, between two calls: it may have the machine's lock within one. */
static void work_when_told(void *which)
{
    char path[128];
    snprintf(path, sizeof(path), "%s/other-region", bed_directory());
    setenv("CUDA_DEVICE_MEMORY_SHARED_CACHE", path, 1);
    setenv("CUDA_TASK_PRIORITY", "0", 1);
    while (order_of((size_t)which) == WAIT)
        bed_sleep_ms(1);
    load_begin(0);
    for (;;) {
        CHECK_EQ(load_launch(NULL, 2 * MS), CUDA_SUCCESS);
        CHECK_EQ(CU(cuCtxSynchronize)(), CUDA_SUCCESS);
        if (order_of((size_t)which) == STOP)
            raise(SIGSTOP);
    }
}

static void tenants_begin(void)
{
    use_board();
    tenants.orders = mmap(NULL, 4096, PROT_READ | PROT_WRITE, MAP_SHARED | MAP_ANONYMOUS, -1, 0);
    REQUIRE(tenants.orders != MAP_FAILED);
    for (size_t i = 0; i < TENANTS; i++)
        tenants.pids[i] = bed_fork(work_when_told, (void *)i);
}

/* Then nothing of this container runs. */
static void give_way(size_t which)
{
    tell(which, WORK);
    CHECK(hold_runs(tenants.pids[which]));
    CHECK(hold_comes_to_stand(getpid()));
}

static void end(pid_t pid)
{
    kill(pid, SIGKILL);
    waitpid(pid, NULL, 0);
}

BED_TEST("any call opens what gave way, whose governor does not run", LOW_PRIORITY)
{
    static const size_t which[] = {0, CALLS - 2, CALLS - 1};
    freeze_begin();
    tenants_begin();
    hold_begin(FOREVER);
    REQUIRE(CU(cuCtxGetCurrent)(&context) == CUDA_SUCCESS);
    for (size_t i = 0; i < sizeof(which) / sizeof(which[0]); i++) {
        pid_t governor = governor_thread();
        give_way(i);
        freeze(governor);
        end(tenants.pids[i]);
        bed_sleep_ms(OVERDUE_MS + 20);
        check_opens(which[i]);
        thaw(governor);
    }
    give_way(3);
    end(tenants.pids[3]);
    CHECK(hold_runs(getpid()));
}

/* How often the governor's thread slept of itself. */
static unsigned long sleeps_so_far(void)
{
    char path[64], line[128];
    unsigned long sleeps = 0;
    snprintf(path, sizeof(path), "/proc/self/task/%d/status", (int)governor_thread());
    FILE *file = fopen(path, "re");
    REQUIRE(file);
    while (fgets(line, sizeof(line), file))
        (void)sscanf(line, "voluntary_ctxt_switches: %lu", &sleeps);
    fclose(file);
    return sleeps;
}

BED_TEST("who has nothing to do looks seldom while somebody of higher priority works", LOW_PRIORITY)
{
    tenants_begin();
    load_begin(0);
    REQUIRE(sim_attach() == 0);
    CHECK_EQ(load_launch(NULL, 2 * MS), CUDA_SUCCESS);
    CHECK_EQ(CU(cuCtxSynchronize)(), CUDA_SUCCESS);
    bed_sleep_ms(40); /* it is seen, and lingers for 100 ms */
    tell(0, WORK);
    CHECK(hold_runs(tenants.pids[0]));
    bed_sleep_ms(500);
    unsigned long from = sleeps_so_far();
    bed_sleep_ms(2000);
    unsigned long sleeps = sleeps_so_far() - from;
    if (!CHECK(sleeps < 120))
        dprintf(STDOUT_FILENO, "# %lu sleeps\n", sleeps);
    uint64_t before = load_now_ns();
    end(tenants.pids[0]);
    CHECK_EQ(load_launch(NULL, 2 * MS), CUDA_SUCCESS);
    CHECK_EQ(CU(cuCtxSynchronize)(), CUDA_SUCCESS);
    CHECK(load_now_ns() - before < 2 * SECOND);
}

static void *launch_and_wait(void *unused)
{
    (void)unused;
    CHECK_EQ(CU(cuCtxSetCurrent)(context), CUDA_SUCCESS);
    for (int i = 0; i < 100; i++)
        CHECK_EQ(load_launch(CU_STREAM_PER_THREAD, 100 * US), CUDA_SUCCESS);
    CHECK_EQ(CU(cuStreamSynchronize)(CU_STREAM_PER_THREAD), CUDA_SUCCESS);
    return NULL;
}

/* Nothing is closed there: launches wait. */
BED_TEST("a launch that gave way goes on, whose governor does not run",
    .environment = {"CUDA_TASK_PRIORITY=1", "VGPU_GATE=launch"})
{
    pthread_t thread;
    freeze_begin();
    tenants_begin();
    hold_begin(100 * MS);
    REQUIRE(CU(cuCtxGetCurrent)(&context) == CUDA_SUCCESS);
    pid_t governor = governor_thread();
    CHECK_EQ(CU(cuCtxSynchronize)(), CUDA_SUCCESS);
    bed_sleep_ms(40); /* it is seen, and lingers for 100 ms */
    tell(0, WORK);
    CHECK(hold_runs(tenants.pids[0]));
    bed_sleep_ms(100);
    REQUIRE(pthread_create(&thread, NULL, launch_and_wait, NULL) == 0);
    CHECK(hold_comes_to_stand(getpid()));
    freeze(governor);
    end(tenants.pids[0]);
    uint64_t start = load_now_ns();
    pthread_join(thread, NULL);
    CHECK(load_now_ns() - start < PATIENCE_MS * MS);
    thaw(governor);
}

/* It has noted that launches give way, and nothing else yet. */
BED_TEST("a launch goes on, whose governor stops as it hears of somebody of higher priority",
    .environment = {"CUDA_TASK_PRIORITY=1", "VGPU_GATE=launch"})
{
    pthread_t thread;
    freeze_begin();
    tenants_begin();
    hold_begin(100 * MS);
    REQUIRE(CU(cuCtxGetCurrent)(&context) == CUDA_SUCCESS);
    CHECK_EQ(CU(cuCtxSynchronize)(), CUDA_SUCCESS);
    CHECK_EQ(load_launch(NULL, 2 * SECOND), CUDA_SUCCESS);
    pid_t governor = governor_thread();
    freeze(governor);
    tell(0, WORK);
    CHECK(hold_runs(tenants.pids[0]));
    freeze_in_a_moment(governor);
    end(tenants.pids[0]);
    uint64_t start = load_now_ns();
    REQUIRE(pthread_create(&thread, NULL, launch_and_wait, NULL) == 0);
    pthread_join(thread, NULL);
    CHECK(load_now_ns() - start < PATIENCE_MS * MS);
    thaw(governor);
}

BED_TEST("what gave way to a program that is then killed, or stopped, goes on", LOW_PRIORITY)
{
    int status;
    tenants_begin();
    hold_begin(FOREVER);
    give_way(0);
    end(tenants.pids[0]);
    CHECK(hold_runs(getpid()));
    give_way(1);
    tell(1, STOP);
    REQUIRE(waitpid(tenants.pids[1], &status, WUNTRACED) == tenants.pids[1] && WIFSTOPPED(status));
    CHECK(hold_runs(getpid()));
    kill(tenants.pids[1], SIGCONT);
}

/* ---- stopped now and then ---- */

BED_TEST("a governor that is stopped for a while at any moment holds its program again", LIMIT_20)
{
    freeze_begin();
    hold_begin(FOREVER);
    pid_t governor = governor_thread();
    for (unsigned i = 0; i < 20; i++) {
        bed_sleep_ms(i * 7919 % 53);
        freeze(governor);
        bed_sleep_ms(i * 4787 % 31);
        thaw(governor);
    }
    CHECK(hold_runs(getpid()));
    bed_sleep_ms(1000);
    struct load_state from = load_state(0);
    bed_sleep_ms(1000);
    struct load_state to = load_state(0);
    hold_check_share(&from, &to, 20);
}

/* ---- the whole program does not ---- */

static void hold_and_wait(void *duration_ns)
{
    CUstream stream = hold_begin((uint64_t)(uintptr_t)duration_ns);
    CHECK_EQ(CU(cuStreamSynchronize)(stream), CUDA_SUCCESS);
}

/* Nothing is asked of the machine while the program is stopped, which may have its lock. */
static void stop_and_continue(pid_t pid, unsigned milliseconds)
{
    int status = 0;
    kill(pid, SIGSTOP);
    REQUIRE(waitpid(pid, &status, WUNTRACED) == pid && WIFSTOPPED(status));
    bed_sleep_ms(milliseconds);
    kill(pid, SIGCONT);
}

BED_TEST("a program that is stopped and continued while closed goes on, within its limit", LIMIT_5)
{
    pid_t pid = bed_fork(hold_and_wait, (void *)(uintptr_t)(400 * MS));
    for (int i = 0; i < 3; i++) {
        (void)hold_await_closed(pid, 60 * MS);
        struct load_state from = load_state(0);
        stop_and_continue(pid, i ? 500 : 20);
        CHECK(hold_runs(pid));
        struct load_state to = load_state(0);
        hold_check_share(&from, &to, 5);
    }
    order_limit(0);
    CHECK(ends_well_in_time(pid));
}

/* What ran meanwhile is charged for, and no more than a second of it at once. */
BED_TEST("a program that is stopped while open goes on, and is held again", LIMIT_20)
{
    pid_t pid = bed_fork(hold_and_wait, (void *)(uintptr_t)(3 * SECOND));
    (void)hold_await_closed(pid, 10 * MS);
    CHECK(hold_runs(pid));
    stop_and_continue(pid, 300);
    (void)hold_await_closed(pid, 60 * MS);
    CHECK(hold_runs(pid));
    order_limit(0);
    CHECK(ends_well_in_time(pid));
}

BED_TEST("a paused program that is stopped and continued stands, and goes on when resumed", MEMORY)
{
    pid_t pid = bed_fork(hold_and_wait, (void *)(uintptr_t)(400 * MS));
    REQUIRE(sim_attach() == 0);
    CHECK(hold_runs(pid));
    order_pause(true);
    CHECK(hold_comes_to_stand(pid));
    stop_and_continue(pid, 100);
    CHECK(hold_stands(pid));
    kill(pid, SIGSTOP);
    bed_sleep_ms(50);
    order_pause(false);
    kill(pid, SIGCONT);
    CHECK(hold_runs(pid));
    CHECK(ends_well_in_time(pid));
}

BED_TEST("a debugger that attaches while closed, and leaves again, disturbs nothing", LIMIT_5)
{
    freeze_begin();
    hold_begin(FOREVER);
    struct load_state from = load_state(0);
    for (unsigned i = 0; i < 3; i++) {
        (void)hold_await_closed(getpid(), 60 * MS);
        freeze_all(i * 200);
        CHECK(hold_runs(getpid()));
    }
    struct load_state to = load_state(0);
    hold_check_share(&from, &to, 5);
}

/* ---- the driver's locks ---- */

/* All calls of the machine, while this process makes none. */
static void check_no_calls(uint64_t until_ns)
{
    uint64_t calls_before = sim_calls_all("cu"), asked = sim_calls("cuEventQuery");
    uint64_t controls = sim_calls_all("RM_");
    while (load_now_ns() + 20 * MS < until_ns) {
        bed_sleep_ms(5);
        order_raise(); /* the governor looks */
    }
    uint64_t made = sim_calls_all("cu") - calls_before;
    if (load_now_ns() >= until_ns)
        return; /* it may be open by now */
    CHECK_EQ(made, 0);
    CHECK_EQ(sim_calls("cuEventQuery"), asked);
    CHECK_EQ(sim_calls_all("RM_"), controls);
}

BED_TEST("while a window is closed nothing of ours calls libcuda", LIMIT_5)
{
    hold_begin(FOREVER);
    for (int i = 0; i < 4; i++)
        check_no_calls(hold_await_closed(getpid(), 100 * MS));
    CHECK(sim_calls("cuEventQuery") > 0);
}

BED_TEST("nor in a pause", .environment = {"CUDA_DEVICE_SM_LIMIT=50"})
{
    hold_begin(FOREVER);
    order_pause(true);
    CHECK(hold_comes_to_stand(getpid()));
    check_no_calls(load_now_ns() + 1500 * MS);
    order_pause(false);
    CHECK(hold_runs(getpid()));
}

#define GRAPH_NODES 1000

static CUgraphExec long_graph(CUstream stream)
{
    CUgraph graph;
    CUgraphExec exec = NULL;
    CHECK_EQ(CU(cuStreamBeginCapture_v2)(stream, CU_STREAM_CAPTURE_MODE_RELAXED), CUDA_SUCCESS);
    for (int i = 0; i < GRAPH_NODES; i++)
        CHECK_EQ(load_launch(stream, 20 * US), CUDA_SUCCESS);
    CHECK_EQ(CU(cuStreamEndCapture)(stream, &graph), CUDA_SUCCESS);
    REQUIRE(CU(cuGraphInstantiateWithFlags)(&exec, graph, 0) == CUDA_SUCCESS);
    return exec;
}

static void *launch_graphs(void *exec)
{
    CHECK_EQ(CU(cuCtxSetCurrent)(context), CUDA_SUCCESS);
    CUstream stream = load_stream();
    for (int i = 0; i < 5; i++)
        CHECK_EQ(CU(cuGraphLaunch)(exec, stream), CUDA_SUCCESS);
    CHECK_EQ(CU(cuStreamSynchronize)(stream), CUDA_SUCCESS);
    return NULL;
}

/* A queue that is full keeps its thread in the driver, with the driver's lock (docs/simulator.md).
 */
BED_TEST("a thread that waits in the driver with its lock is no hindrance to opening",
    .environment = {"CUDA_DEVICE_SM_LIMIT=30", "VGPU_GATE=channel"})
{
    pthread_t thread;
    load_begin(0);
    CUstream stream = load_stream();
    REQUIRE(CU(cuCtxGetCurrent)(&context) == CUDA_SUCCESS);
    CUgraphExec exec = long_graph(stream);
    CHECK_EQ(load_launch(stream, 60 * MS), CUDA_SUCCESS);
    REQUIRE(pthread_create(&thread, NULL, launch_graphs, exec) == 0);
    uint64_t start = load_now_ns();
    pthread_join(thread, NULL);
    CHECK(load_now_ns() - start < PATIENCE_MS * MS);
    CHECK_EQ(CU(cuStreamSynchronize)(stream), CUDA_SUCCESS);
}

int main(int argc, char **argv)
{
    return check_run(argc, argv);
}
