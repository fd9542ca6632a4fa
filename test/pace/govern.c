/* SPDX-License-Identifier: Apache-2.0 */
/* What the governor finds, stops and says, whatever else the program does meanwhile. */
#include "green.h"
#include "load.h"

#include "sim/machine/machine.h"
#include "vgpu/board.h"

#include <fcntl.h>
#include <glob.h>
#include <pthread.h>
#include <sys/wait.h>
#include <unistd.h>

#define LIMIT_50 .environment = {"CUDA_DEVICE_SM_LIMIT=50"}
#define LIMIT_30 .environment = {"CUDA_DEVICE_SM_LIMIT=30"}
#define PERSISTENT_NS (20 * SECOND)
#define WAITING_THREADS 8
#define MANY_STREAMS 400

static volatile bool over;

/* ---- what is found ---- */

static void *launch_short(void *context)
{
    CHECK_EQ(CU(cuCtxSetCurrent)(context), CUDA_SUCCESS);
    CUstream stream = load_stream();
    while (!over)
        (void)load_launch(stream, 2 * MS);
    return NULL;
}

BED_TEST(
    "a long kernel is stopped also where other threads look at what runs all the time", LIMIT_30)
{
    pthread_t threads[WAITING_THREADS];
    CUcontext context;
    load_begin(0);
    CHECK_EQ(CU(cuCtxGetCurrent)(&context), CUDA_SUCCESS);
    for (int i = 0; i < WAITING_THREADS; i++)
        REQUIRE(pthread_create(&threads[i], NULL, launch_short, context) == 0);
    bed_sleep_ms(300);
    CHECK_EQ(load_launch(load_stream(), PERSISTENT_NS), CUDA_SUCCESS);
    load_check_held(0, 30);
    END_TEST();
}

BED_TEST("a kernel that took little time before is stopped when it takes long", LIMIT_30)
{
    load_begin(0);
    CUstream stream = load_stream();
    for (int i = 0; i < 3; i++) {
        CHECK_EQ(load_launch(stream, 100 * US), CUDA_SUCCESS);
        load_settle();
    }
    CHECK_EQ(load_launch(stream, PERSISTENT_NS), CUDA_SUCCESS);
    load_check_held(0, 30);
    END_TEST();
}

/* Kernels that are admitted by estimate: their duration is known, and the stream was looked at just
 * now. */
static void launch_known(CUstream stream)
{
    for (int i = 0; i < 8; i++) {
        CHECK_EQ(load_launch(stream, 100 * US), CUDA_SUCCESS);
        load_settle();
    }
    for (int i = 0; i < 5; i++)
        CHECK_EQ(load_launch(stream, 100 * US), CUDA_SUCCESS);
}

BED_TEST("and when it was admitted by estimate, and nothing follows", LIMIT_30)
{
    load_begin(0);
    CUstream stream = load_stream();
    launch_known(stream);
    CHECK_EQ(load_launch(stream, PERSISTENT_NS), CUDA_SUCCESS);
    load_check_held(0, 30);
    END_TEST();
}

static void *launch_and_end(void *context)
{
    CHECK_EQ(CU(cuCtxSetCurrent)(context), CUDA_SUCCESS);
    CUstream stream = load_stream();
    launch_known(stream);
    CHECK_EQ(load_launch(stream, PERSISTENT_NS), CUDA_SUCCESS);
    return stream;
}

BED_TEST("and when the thread that let it by ends", LIMIT_30)
{
    pthread_t thread;
    CUcontext context;
    load_begin(0);
    CHECK_EQ(CU(cuCtxGetCurrent)(&context), CUDA_SUCCESS);
    REQUIRE(pthread_create(&thread, NULL, launch_and_end, context) == 0);
    CHECK_EQ(pthread_join(thread, NULL), 0);
    load_check_held(0, 30);
    END_TEST();
}

BED_TEST("and when another thread destroys the stream", LIMIT_30)
{
    pthread_t thread;
    CUcontext context;
    void *stream;
    load_begin(0);
    CHECK_EQ(CU(cuCtxGetCurrent)(&context), CUDA_SUCCESS);
    REQUIRE(pthread_create(&thread, NULL, launch_and_end, context) == 0);
    CHECK_EQ(pthread_join(thread, &stream), 0);
    CHECK_EQ(CU(cuStreamDestroy_v2)(stream), CUDA_SUCCESS);
    load_check_held(0, 30);
    END_TEST();
}

BED_TEST("and when the thread goes on in another context", LIMIT_30)
{
    CUcontext context, other;
    load_begin(0);
    CHECK_EQ(CU(cuCtxGetCurrent)(&context), CUDA_SUCCESS);
    CHECK_EQ(CU(cuCtxCreate_v2)(&other, 0, 0), CUDA_SUCCESS);
    (void)launch_and_end(context);
    CHECK_EQ(CU(cuCtxSetCurrent)(other), CUDA_SUCCESS);
    load_check_held(0, 30);
    END_TEST();
}

BED_TEST("and when the thread has to do with many other streams", LIMIT_30)
{
    CUcontext context;
    CUevent event;
    load_begin(0);
    CHECK_EQ(CU(cuEventCreate)(&event, CU_EVENT_DISABLE_TIMING), CUDA_SUCCESS);
    CHECK_EQ(CU(cuCtxGetCurrent)(&context), CUDA_SUCCESS);
    (void)launch_and_end(context);
    for (int i = 0; i < MANY_STREAMS; i++)
        CHECK_EQ(CU(cuStreamWaitEvent)(load_stream(), event, 0), CUDA_SUCCESS);
    load_check_held(0, 30);
    END_TEST();
}

BED_TEST("and when it is known to take longer than any debt is kept", LIMIT_50)
{
    load_begin(0);
    CUstream stream = load_stream();
    for (int i = 0; i < 2; i++) { /* measured, then known */
        struct load_state from = load_state(0);
        CHECK_EQ(load_launch(stream, 6 * SECOND), CUDA_SUCCESS);
        bed_sleep_ms(3000);
        struct load_state to = load_state(0);
        load_check_at_most(&from, &to, 50);
        if (i)
            break;
        CHECK_EQ(CU(cuStreamSynchronize)(stream), CUDA_SUCCESS);
        load_settle();
        bed_sleep_ms(1000);
    }
    END_TEST();
}

BED_TEST("and when 15 s of known kernels wait, where launches do not",
    .environment = {"CUDA_DEVICE_SM_LIMIT=30", "VGPU_GATE=channel"})
{
    load_begin(0);
    CUstream stream = load_stream();
    load_learn(stream, 50 * MS, 6);
    struct load_state from = load_state(0);
    for (int i = 0; i < 300; i++)
        CHECK_EQ(load_launch(stream, 50 * MS), CUDA_SUCCESS);
    bed_sleep_ms(5000);
    struct load_state to = load_state(0);
    load_check_at_most(&from, &to, 30);
    CHECK(load_permille(to.busy_ns - from.busy_ns, to.now_ns - from.now_ns) > 260);
    END_TEST();
}

BED_TEST("also on the default stream, which the governor's thread has to find", LIMIT_30)
{
    load_begin(0);
    launch_known(NULL);
    CHECK_EQ(load_launch(NULL, PERSISTENT_NS), CUDA_SUCCESS);
    load_check_held(0, 30);
    END_TEST();
}

BED_TEST("also after the governor went to sleep in between", LIMIT_30)
{
    load_begin(0);
    CUstream stream = load_stream();
    launch_known(stream);
    bed_sleep_ms(300);
    CHECK_EQ(load_launch(stream, PERSISTENT_NS), CUDA_SUCCESS);
    load_check_held(0, 30);
    END_TEST();
}

BED_TEST(
    "what was admitted by estimate on an idle stream costs nothing while it is asked for", LIMIT_30)
{
    load_begin(0);
    CUstream stream = load_stream();
    launch_known(stream);
    bed_sleep_ms(50);
    struct load_state from = load_state(0);
    bed_sleep_ms(300);
    struct load_state to = load_state(0);
    CHECK_EQ(to.measured_ns, from.measured_ns);
    END_TEST();
}

struct forked_work {
    CUcontext context;
    CUstream stream;
};

/* Admitted by its estimate, and then the thread looks at nothing any more. */
static void *launch_by_estimate(void *argument)
{
    struct forked_work *work = argument;
    CHECK_EQ(CU(cuCtxSetCurrent)(work->context), CUDA_SUCCESS);
    launch_known(work->stream);
    CHECK_EQ(load_launch(work->stream, 300 * MS), CUDA_SUCCESS);
    bed_sleep_ms(20);
    over = true;
    bed_sleep_ms(1000);
    return NULL;
}

BED_TEST("a capture that takes in another thread's stream, at work with what was admitted by "
         "estimate, stays whole",
    LIMIT_30)
{
    pthread_t thread;
    CUevent event;
    CUgraph graph = NULL;
    load_begin(0);
    CUstream origin = load_stream();
    struct forked_work work = {.stream = load_stream()};
    REQUIRE(CU(cuCtxGetCurrent)(&work.context) == CUDA_SUCCESS);
    REQUIRE(CU(cuEventCreate)(&event, CU_EVENT_DISABLE_TIMING) == CUDA_SUCCESS);
    REQUIRE(pthread_create(&thread, NULL, launch_by_estimate, &work) == 0);
    while (!over)
        bed_sleep_ms(1);
    REQUIRE(CU(cuStreamBeginCapture_v2)(origin, CU_STREAM_CAPTURE_MODE_RELAXED) == 0);
    CHECK_EQ(CU(cuEventRecord)(event, origin), CUDA_SUCCESS);
    CHECK_EQ(CU(cuStreamWaitEvent)(work.stream, event, 0), CUDA_SUCCESS);
    bed_sleep_ms(100);
    CHECK_EQ(CU(cuEventRecord)(event, work.stream), CUDA_SUCCESS);
    CHECK_EQ(CU(cuStreamWaitEvent)(origin, event, 0), CUDA_SUCCESS);
    CHECK_EQ(CU(cuStreamEndCapture)(origin, &graph), CUDA_SUCCESS);
    CHECK(graph != NULL);
    END_TEST();
}

BED_TEST("the first kernel on a second device is held, right after one on the first",
    .sim = "devices=2", LIMIT_30)
{
    load_begin(0);
    CHECK_EQ(load_launch(load_stream(), 3 * MS), CUDA_SUCCESS);
    load_begin(1);
    CHECK_EQ(load_launch(load_stream(), PERSISTENT_NS), CUDA_SUCCESS);
    load_check_held(1, 30);
    END_TEST();
}

/* ---- pauses ---- */

static void order(const char *command)
{
    char *vgpu = bed_build_path("vgpu");
    char *argv[] = {vgpu, (char *)command, NULL};
    load_run_tool(argv);
    free(vgpu);
}

/* Nothing of the process runs on the device. */
static void check_stands_still(unsigned device)
{
    bed_sleep_ms(150);
    uint64_t from = load_busy_ns(device, 0);
    bed_sleep_ms(300);
    uint64_t ran = load_busy_ns(device, 0) - from;
    if (!CHECK(ran < 5 * MS))
        dprintf(STDOUT_FILENO, "# ran for %llu ms\n", (unsigned long long)(ran / MS));
}

static void check_runs(unsigned device)
{
    uint64_t from = load_busy_ns(device, 0);
    bed_sleep_ms(500);
    CHECK(load_busy_ns(device, 0) - from > 50 * MS);
}

static void check_pause(unsigned device)
{
    order("pause");
    check_stands_still(device);
    order("resume");
    check_runs(device);
}

BED_TEST("what was launched without a limit is stopped by a pause after one was set",
    .environment = {"CUDA_DEVICE_MEMORY_LIMIT=4g"})
{
    load_begin(0);
    CHECK_EQ(load_launch(load_stream(), PERSISTENT_NS), CUDA_SUCCESS);
    REQUIRE(sim_attach() == 0);
    bed_sleep_ms(1200);
    load_set(0, 50);
    bed_sleep_ms(400);
    check_pause(0);
    END_TEST();
}

/* By which a holder of the primary context is released. */
BED_TEST("a pause goes on after a green context was made in it", LIMIT_30)
{
    load_begin(0);
    CHECK_EQ(load_launch(load_stream(), PERSISTENT_NS), CUDA_SUCCESS);
    REQUIRE(sim_attach() == 0);
    order("pause");
    check_stands_still(0);
    (void)green_make();
    check_stands_still(0);
    order("resume");
    check_runs(0);
    END_TEST();
}

static void *fail_to_make_green(void *unused)
{
    (void)unused;
    CUgreenCtx green;
    while (!over)
        CHECK(CU(cuGreenCtxCreate)(&green, green_descriptor(0), 0, 0) != CUDA_SUCCESS);
    return NULL;
}

BED_TEST("so it does while a thread fails to make one again and again", LIMIT_30)
{
    pthread_t thread;
    load_begin(0);
    CHECK_EQ(load_launch(load_stream(), PERSISTENT_NS), CUDA_SUCCESS);
    REQUIRE(sim_attach() == 0);
    order("pause");
    check_stands_still(0);
    REQUIRE(pthread_create(&thread, NULL, fail_to_make_green, NULL) == 0);
    check_stands_still(0);
    order("resume");
    check_runs(0);
    over = true;
    pthread_join(thread, NULL);
    END_TEST();
}

BED_TEST("a kernel on a device without a limit is stopped by a pause, too", .sim = "devices=2",
    .environment = {"CUDA_DEVICE_SM_LIMIT_0=30"})
{
    load_begin(1);
    CHECK_EQ(load_launch(load_stream(), PERSISTENT_NS), CUDA_SUCCESS);
    REQUIRE(sim_attach() == 0);
    bed_sleep_ms(300);
    check_pause(1);
    END_TEST();
}

BED_TEST("also where the process works on one with a limit now and then", .sim = "devices=2",
    .environment = {"CUDA_DEVICE_SM_LIMIT_0=30"})
{
    load_begin(0);
    CHECK_EQ(load_launch(load_stream(), 3 * MS), CUDA_SUCCESS);
    load_settle();
    load_begin(1);
    CHECK_EQ(load_launch(load_stream(), PERSISTENT_NS), CUDA_SUCCESS);
    REQUIRE(sim_attach() == 0);
    bed_sleep_ms(300);
    check_pause(1);
    END_TEST();
}

BED_TEST("by VGPU_GATE=launch no channel is switched, also by a pause",
    .environment = {"CUDA_DEVICE_SM_LIMIT=30", "VGPU_GATE=launch"})
{
    load_begin(0);
    CUstream stream = load_stream();
    CHECK_EQ(load_launch(stream, PERSISTENT_NS), CUDA_SUCCESS);
    REQUIRE(sim_attach() == 0);
    order("pause");
    bed_sleep_ms(150);
    check_runs(0);
    END_TEST();
}

/* ---- what is not ---- */

#define SWITCHES "RM_CONTROL 0x2080110b"

static void work_in_part(CUstream stream, uint64_t for_ns)
{
    for (uint64_t end = load_now_ns() + for_ns; load_now_ns() < end; usleep(45000)) {
        CHECK_EQ(load_launch(stream, 15 * MS), CUDA_SUCCESS);
        CHECK_EQ(CU(cuStreamSynchronize)(stream), CUDA_SUCCESS);
    }
}

/* A quarter of the time, by kernels that windows would be for. The first is of an unknown length.
 */
BED_TEST("a container that stays below its limit is never cycled", LIMIT_50)
{
    load_begin(0);
    CUstream stream = load_stream();
    work_in_part(stream, SECOND / 2);
    uint64_t switches = sim_calls_all(SWITCHES);
    work_in_part(stream, 3 * SECOND);
    CHECK_EQ(sim_calls_all(SWITCHES) - switches, 0);
    CHECK_EQ(load_launch(stream, PERSISTENT_NS), CUDA_SUCCESS); /* which is */
    bed_sleep_ms(500);
    CHECK(sim_calls_all(SWITCHES) > switches);
    END_TEST();
}

/* ---- what is said ---- */

/* How many boards say that somebody is at work; in *ret_flags, as what. */
static unsigned active_boards(uint32_t *ret_flags)
{
    char pattern[300];
    glob_t found;
    unsigned active = 0;
    *ret_flags = 0;
    snprintf(pattern, sizeof(pattern), "%s/" VGPU_BOARD_FILE_PREFIX "*", bed_directory());
    if (glob(pattern, 0, NULL, &found) != 0)
        return 0;
    for (size_t i = 0; i < found.gl_pathc; i++) {
        struct vgpu_board board;
        int fd = open(found.gl_pathv[i], O_RDONLY | O_CLOEXEC);
        bool whole = fd >= 0 && read(fd, &board, sizeof(board)) == (ssize_t)sizeof(board);
        close(fd);
        bool works = whole && board.slots[0].tenant && board.slots[0].active_ns;
        active += works;
        *ret_flags |= works ? board.slots[0].flags : 0;
    }
    globfree(&found);
    return active;
}

BED_TEST("only the board of the device that is worked on says so", .sim = "devices=2",
    .boards = true, .environment = {"CUDA_DEVICE_SM_LIMIT=50"})
{
    load_begin(0);
    CHECK_EQ(load_launch(load_stream(), 3 * MS), CUDA_SUCCESS);
    load_settle();
    load_begin(1);
    CHECK_EQ(load_launch(load_stream(), PERSISTENT_NS), CUDA_SUCCESS);
    bed_sleep_ms(200);
    uint32_t flags;
    CHECK_EQ(active_boards(&flags), 1);
    END_TEST();
}

#define LIVES 600

/* The governor has just been made, and has attached the board or has not. */
static void end_soon(int number)
{
    load_begin(0);
    CHECK_EQ(load_launch(NULL, 10 * US), CUDA_SUCCESS);
    usleep((unsigned)(number % 50) * 10);
    exit(0);
}

BED_TEST("a program that ends as it meets its first board ends well", .boards = true,
    .environment = {"CUDA_DEVICE_SM_LIMIT=50"})
{
    for (int i = 0; i < LIVES; i++) {
        int status = -1;
        pid_t pid = fork();
        if (pid == 0)
            end_soon(i);
        REQUIRE(waitpid(pid, &status, 0) == pid);
        if (!CHECK_EQ(status, 0))
            break;
    }
}

/* It is looked at as seldom as one that goes in windows, from the first look on. */
BED_TEST("a kernel that only the channel gate can hold goes in windows by what the board says",
    .boards = true, .environment = {"CUDA_DEVICE_SM_LIMIT=90", "VGPU_GATE=channel"})
{
    uint32_t flags = 0;
    load_begin(0);
    load_settle();
    CHECK_EQ(load_launch(load_stream(), PERSISTENT_NS), CUDA_SUCCESS);
    for (int ms = 0; ms < 5000 && !active_boards(&flags); ms++)
        usleep(1000);
    CHECK(flags & VGPU_BOARD_WINDOWS);
    END_TEST();
}

int main(int argc, char **argv)
{
    return check_run(argc, argv);
}
