/* SPDX-License-Identifier: Apache-2.0 */
/* What a program sees of streams, events, contexts and captures is under a compute limit what it is
 * natively: the same program's transcripts, compared; and captures that timing events of ours must
 * not spoil. */
#include "load.h"

#include <limits.h>
#include <pthread.h>

static CUcontext context;
static CUfunction kernel;
static CUstream stream, other;

#define SAY(...) printf(__VA_ARGS__)

static void say_streams(void)
{
    unsigned long long id = 0, again = 0;
    unsigned flags = 9;
    int priority = 9;
    CUcontext owner = NULL;
    SAY("idle %d %d\n", (int)CU(cuStreamQuery)(stream), (int)CU(cuStreamQuery)(NULL));
    SAY("launched %d\n", (int)load_launch_of(load_kernel(), stream, 300 * MS));
    SAY("busy %d, other %d\n", (int)CU(cuStreamQuery)(stream), (int)CU(cuStreamQuery)(other));
    SAY("synchronised %d\n", (int)CU(cuStreamSynchronize)(stream));
    SAY("done %d %d\n", (int)CU(cuStreamQuery)(stream), (int)CU(cuStreamQuery)(NULL));
    SAY("id %d %llu\n", (int)CU(cuStreamGetId)(stream, &id), id);
    SAY("id %d %llu\n", (int)CU(cuStreamGetId)(other, &again), again - id);
    SAY("flags %d %u\n", (int)CU(cuStreamGetFlags)(stream, &flags), flags);
    SAY("priority %d %d\n", (int)CU(cuStreamGetPriority)(stream, &priority), priority);
    SAY("context %d %d\n", (int)CU(cuStreamGetCtx)(stream, &owner), owner == context);
    SAY("nothing %d %d\n", (int)CU(cuStreamQuery)((CUstream)(uintptr_t)0x1230),
        (int)CU(cuStreamSynchronize)((CUstream)(uintptr_t)0x1230));
}

static CUevent event(unsigned flags)
{
    CUevent made = NULL;
    SAY("event %d\n", (int)CU(cuEventCreate)(&made, flags));
    return made;
}

static void say_events(void)
{
    float ms = -1;
    CUevent from = event(0), to = event(0), plain = event(CU_EVENT_DISABLE_TIMING);
    SAY("fresh %d %d\n", (int)CU(cuEventQuery)(from), (int)CU(cuEventElapsedTime)(&ms, from, to));
    /* Behind 40 ms of work, so that no delay of ours or the computer's lies between the two. */
    CUfunction behind = load_kernel(), timed = load_kernel();
    SAY("launched %d\n", (int)load_launch_of(behind, stream, 40 * MS));
    SAY("recorded %d\n", (int)CU(cuEventRecord)(from, stream));
    SAY("launched %d\n", (int)load_launch_of(timed, stream, 20 * MS));
    SAY("recorded %d %d\n", (int)CU(cuEventRecord)(to, stream),
        (int)CU(cuEventRecord)(plain, stream));
    SAY("early %d %d\n", (int)CU(cuEventQuery)(to), (int)CU(cuEventElapsedTime)(&ms, from, to));
    SAY("synchronised %d\n", (int)CU(cuEventSynchronize)(to));
    SAY("done %d %d\n", (int)CU(cuEventQuery)(from), (int)CU(cuEventQuery)(plain));
    SAY("elapsed %d", (int)CU(cuEventElapsedTime)(&ms, from, to));
    SAY(" %d us\n", (int)(ms * 1000));
    SAY("without time %d\n", (int)CU(cuEventElapsedTime)(&ms, from, plain));
    SAY("destroyed %d %d\n", (int)CU(cuEventDestroy_v2)(from), (int)CU(cuEventDestroy_v2)(plain));
    SAY("gone %d %d\n", (int)CU(cuEventQuery)(from), (int)CU(cuEventRecord)(from, stream));
}

static void say_contexts(void)
{
    CUcontext current = NULL, second = NULL, popped = NULL;
    unsigned version = 0;
    SAY("current %d %d\n", (int)CU(cuCtxGetCurrent)(&current), current == context);
    SAY("created %d\n", (int)CU(cuCtxCreate_v2)(&second, 0, 0));
    SAY("current %d %d\n", (int)CU(cuCtxGetCurrent)(&current), current == second);
    SAY("launched %d\n", (int)load_launch_of(load_kernel(), NULL, MS));
    SAY("current %d %d\n", (int)CU(cuCtxGetCurrent)(&current), current == second);
    SAY("foreign stream %d\n", (int)load_launch_of(kernel, stream, MS));
    SAY("version %d %u\n", (int)CU(cuCtxGetApiVersion)(second, &version), version);
    SAY("popped %d %d\n", (int)CU(cuCtxPopCurrent_v2)(&popped), popped == second);
    SAY("current %d %d\n", (int)CU(cuCtxGetCurrent)(&current), current == context);
    SAY("destroyed %d\n", (int)CU(cuCtxDestroy_v2)(second));
    SAY("none %d\n", (int)CU(cuCtxSetCurrent)(NULL));
    SAY("launched %d\n", (int)load_launch_of(kernel, stream, MS));
    SAY("current %d\n", (int)CU(cuCtxSetCurrent)(context));
}

static void say_errors(void)
{
    uint64_t duration = MS;
    void *params[] = {&duration};
    __typeof__(cuLaunchKernel) *launch = CU(cuLaunchKernel);
    SAY("no block %d\n", (int)launch(kernel, 1, 1, 1, 0, 1, 1, 0, stream, params, NULL));
    SAY("too large %d\n", (int)launch(kernel, 1, 1, 1, 2048, 1, 1, 0, stream, params, NULL));
    SAY("no kernel %d\n", (int)launch(NULL, 1, 1, 1, 1, 1, 1, 0, stream, params, NULL));
    SAY("no stream %d\n",
        (int)launch(kernel, 1, 1, 1, 1, 1, 1, 0, (CUstream)(uintptr_t)0x1230, params, NULL));
    SAY("no parameters %d\n", (int)launch(kernel, 1, 1, 1, 1, 1, 1, 0, stream, NULL, NULL));
    SAY("cooperative %d\n",
        (int)CU(cuLaunchCooperativeKernel)(kernel, 1000000, 1, 1, 1, 1, 1, 0, stream, params));
    SAY("no graph %d\n", (int)CU(cuGraphLaunch)(NULL, stream));
    SAY("no function %d\n", (int)CU(cuLaunchHostFunc)(stream, NULL, NULL));
    SAY("no event %d\n", (int)CU(cuStreamWaitEvent)(stream, NULL, 0));
    SAY("no stream to destroy %d\n", (int)CU(cuStreamDestroy_v2)((CUstream)(uintptr_t)0x1230));
    SAY("no configuration %d\n", (int)CU(cuLaunchKernelEx)(NULL, kernel, params, NULL));
}

static void say_captures(void)
{
    static const CUstreamCaptureMode modes[] = {CU_STREAM_CAPTURE_MODE_GLOBAL,
        CU_STREAM_CAPTURE_MODE_THREAD_LOCAL, CU_STREAM_CAPTURE_MODE_RELAXED};
    for (int i = 0; i < 3; i++) {
        CUgraph graph = NULL;
        CUstreamCaptureStatus status = 9;
        size_t nodes = 0;
        SAY("before %d\n", (int)load_launch_of(kernel, stream, 10 * US));
        SAY("begun %d\n", (int)CU(cuStreamBeginCapture_v2)(stream, modes[i]));
        for (int k = 0; k < 5; k++) {
            SAY("captured %d\n", (int)load_launch_of(kernel, stream, 10 * US));
            SAY("beside %d\n", (int)load_launch_of(kernel, other, 10 * US));
        }
        SAY("capturing %d", (int)CU(cuStreamIsCapturing)(stream, &status));
        SAY(" %d\n", (int)status);
        SAY("ended %d\n", (int)CU(cuStreamEndCapture)(stream, &graph));
        SAY("nodes %d", graph ? (int)CU(cuGraphGetNodes)(graph, NULL, &nodes) : -1);
        SAY(" %zu\n", nodes);
        SAY("after %d\n", (int)load_launch_of(kernel, stream, 10 * US));
    }
}

static int transcript(void)
{
    load_begin(0);
    (void)CU(cuCtxGetCurrent)(&context);
    kernel = load_kernel();
    stream = load_stream();
    other = load_stream();
    say_streams();
    bed_sleep_ms(1000); /* what was taken is given again */
    say_events();
    say_contexts();
    say_errors();
    say_captures();
    SAY("end %d\n", (int)CU(cuCtxSynchronize)());
    fflush(stdout);
    return 0;
}

static void check_transcripts(const struct bed *limited)
{
    static char native[16384], ours[16384];
    char program[PATH_MAX] = "";
    const struct bed alone = {.native = true};
    REQUIRE(readlink("/proc/self/exe", program, sizeof(program) - 1) > 0);
    char *argv[] = {program, "--transcript", NULL};
    CHECK_EQ(bed_run(&alone, argv, native, sizeof(native)), 0);
    CHECK_EQ(bed_run(limited, argv, ours, sizeof(ours)), 0);
    CHECK(strstr(native, "\nend 0\n") != NULL);
    CHECK(strstr(native, "elapsed 0 20000 us") || strstr(native, "elapsed 0 19999 us"));
    char *rest[2], *lines[2] = {strtok_r(native, "\n", &rest[0]), strtok_r(ours, "\n", &rest[1])};
    while (lines[0] && lines[1]) {
        if (!CHECK_STR(lines[1], lines[0]))
            break;
        for (int i = 0; i < 2; i++)
            lines[i] = strtok_r(NULL, "\n", &rest[i]);
    }
    CHECK(!lines[0] == !lines[1]);
}

TEST("a program's transcript under a limit of 80 % is the native one")
{
    check_transcripts(&(struct bed){.environment = {"CUDA_DEVICE_SM_LIMIT=80"}});
}

TEST("and under 50 %, where it waits at the gate")
{
    check_transcripts(&(struct bed){.environment = {"CUDA_DEVICE_SM_LIMIT=50"}});
}

TEST("and without a limit")
{
    check_transcripts(&(struct bed){.limit = NULL});
}

/* ---- captures and timing events ---- */

#define LIMIT_5 .environment = {"CUDA_DEVICE_SM_LIMIT=5"}

static CUstream blocking(void)
{
    CUstream made = NULL;
    CHECK_EQ(CU(cuStreamCreate)(&made, CU_STREAM_DEFAULT), CUDA_SUCCESS);
    return made;
}

/* The thread launched on `before`, begins a capture and then has to wait at the gate for a launch
 * on another stream, where what it launched before is closed by a timing event. */
static void check_capture(CUstream captured, CUstream before)
{
    CUgraph graph = NULL;
    size_t nodes = 0;
    stream = load_stream();
    kernel = load_kernel();
    for (int i = 0; i < 30; i++) {
        CHECK_EQ(load_launch_of(kernel, stream, 200 * US), CUDA_SUCCESS);
        CHECK_EQ(load_launch_of(kernel, before, 200 * US), CUDA_SUCCESS);
    }
    for (int i = 0; i < 10; i++) {
        CHECK_EQ(load_launch_of(kernel, before, 100 * US), CUDA_SUCCESS);
        REQUIRE(CU(cuStreamBeginCapture_v2)(captured, CU_STREAM_CAPTURE_MODE_RELAXED) == 0);
        CHECK_EQ(load_launch_of(kernel, captured, 100 * US), CUDA_SUCCESS);
        for (int k = 0; k < 12; k++)
            CHECK_EQ(load_launch_of(kernel, stream, 200 * US), CUDA_SUCCESS);
        CHECK_EQ(load_launch_of(kernel, captured, 100 * US), CUDA_SUCCESS);
        CHECK_EQ(CU(cuStreamEndCapture)(captured, &graph), CUDA_SUCCESS);
        if (!CHECK(graph != NULL))
            break;
        CHECK_EQ(CU(cuGraphGetNodes)(graph, NULL, &nodes), CUDA_SUCCESS);
        CHECK_EQ(nodes, 2);
        CHECK_EQ(CU(cuGraphDestroy)(graph), CUDA_SUCCESS);
    }
}

BED_TEST("a capture stays whole while its thread waits at the gate, after launches on its stream",
    LIMIT_5)
{
    load_begin(0);
    CUstream captured = load_stream();
    check_capture(captured, captured);
}

BED_TEST(
    "also after launches on the legacy stream, beside which a blocking stream captures", LIMIT_5)
{
    load_begin(0);
    check_capture(blocking(), NULL);
}

#define CAPTURES 100

static CUstream shared_stream;
static pthread_mutex_t turn = PTHREAD_MUTEX_INITIALIZER;
static bool captures_are_over;

/* Launches on the stream that the other thread captures, between two captures, and waits at the
 * gate with another one. */
static void *launch_between(void *argument)
{
    CHECK_EQ(CU(cuCtxSetCurrent)(argument), CUDA_SUCCESS);
    while (!__atomic_load_n(&captures_are_over, __ATOMIC_RELAXED)) {
        pthread_mutex_lock(&turn);
        for (int i = 0; i < 3; i++) /* the first has a timing event at once */
            CHECK_EQ(load_launch_of(kernel, shared_stream, 20 * US), CUDA_SUCCESS);
        pthread_mutex_unlock(&turn);
        for (int i = 0; i < 8; i++)
            CHECK_EQ(load_launch_of(kernel, other, 400 * US), CUDA_SUCCESS);
    }
    return NULL;
}

BED_TEST(
    "also where another thread launches on the stream in between, and waits at the gate", LIMIT_5)
{
    pthread_t thread;
    load_begin(0);
    CHECK_EQ(CU(cuCtxGetCurrent)(&context), CUDA_SUCCESS);
    shared_stream = load_stream();
    other = load_stream();
    kernel = load_kernel();
    REQUIRE(pthread_create(&thread, NULL, launch_between, context) == 0);
    for (int i = 0; i < CAPTURES; i++) {
        CUgraph graph = NULL;
        pthread_mutex_lock(&turn);
        CUresult begun = CU(cuStreamBeginCapture_v2)(shared_stream, CU_STREAM_CAPTURE_MODE_GLOBAL);
        usleep(25000);
        CUresult ended = CU(cuStreamEndCapture)(shared_stream, &graph);
        pthread_mutex_unlock(&turn);
        if (!CHECK_EQ(begun, CUDA_SUCCESS) || !CHECK_EQ(ended, CUDA_SUCCESS))
            break;
        CHECK_EQ(CU(cuGraphDestroy)(graph), CUDA_SUCCESS);
        usleep((useconds_t)(i * 7 % 400)); /* at any point of what the other does */
    }
    __atomic_store_n(&captures_are_over, true, __ATOMIC_RELAXED);
    CHECK_EQ(pthread_join(thread, NULL), 0);
}

int main(int argc, char **argv)
{
    if (argc > 1 && !strcmp(argv[1], "--transcript"))
        return transcript();
    return check_run(argc, argv);
}
