/* SPDX-License-Identifier: Apache-2.0 */
/* A program that captures sees the same codes and gets the same graphs with the library as without:
 * every function that we replace, called while a stream captures, in each mode, by the capturing
 * thread and by another one. */
#include "bed.h"
#include "graphs_world.h"
#include "where.h"

#include <pthread.h>

#define SCENARIO "--scenario"

static const char *const mode_names[] = {"global", "thread-local", "relaxed"};

struct call {
    const struct world_step *step;
    struct world *world;
    CUresult result;
};

static void *call_elsewhere(void *argument)
{
    struct call *call = argument;
    call->result = CU(cuCtxSetCurrent)(call->world->context);
    if (call->result == CUDA_SUCCESS)
        call->result = call->step->call(call->world);
    return NULL;
}

static CUresult call_step(struct world *world, const struct world_step *step, bool elsewhere)
{
    struct call call = {.step = step, .world = world};
    pthread_t thread;
    if (!elsewhere)
        return step->call(world);
    REQUIRE(pthread_create(&thread, NULL, call_elsewhere, &call) == 0);
    pthread_join(thread, NULL);
    return call.result;
}

/* The library's own events, as the steps record none. Counted by the driver for this process. */
static unsigned long long count_events(void)
{
    unsigned long long (*count)(const char *) = bed_cuda("vgpu_sim_call_count");
    return count("cuEventRecord");
}

/* Onto the stream that captures: no timing event goes there with it. */
static CUresult launch(struct world *world)
{
    unsigned long long events = count_events();
    CUresult result =
        CU(cuLaunchKernel)(world->nop, 1, 1, 1, 32, 1, 1, 0, world->stream, world->params, NULL);
    if (result == CUDA_SUCCESS && count_events() != events)
        printf("a timing event is in the capture: ");
    return result;
}

/* Work on both streams from before the capture: under a compute limit it is being measured when the
 * capture begins. */
static void launch_before(const struct world *world)
{
    CUstream streams[] = {world->stream, world->other};
    for (int i = 0; i < 6; i++)
        REQUIRE(CU(cuLaunchKernel)(world->nop, 1, 1, 1, 32, 1, 1, 0, streams[i % 2],
                    (void **)world->params, NULL) == CUDA_SUCCESS);
}

static void tell_graph(CUgraph graph)
{
    CUgraphNode nodes[64], from[64], to[64];
    size_t count = 64, edges = 64;
    if (!graph || CU(cuGraphGetNodes)(graph, nodes, &count) != CUDA_SUCCESS ||
        CU(cuGraphGetEdges)(graph, from, to, &edges) != CUDA_SUCCESS) {
        printf(" no graph");
        return;
    }
    for (size_t i = 0; i < count; i++) {
        CUgraphNodeType type = -1;
        size_t dependencies = 0;
        CU(cuGraphNodeGetType)(nodes[i], &type);
        CU(cuGraphNodeGetDependencies)(nodes[i], NULL, &dependencies);
        printf(" %d/%zu", (int)type, dependencies);
    }
    printf(" edges %zu", edges);
}

/* Under a compute limit there are timing events. */
static bool is_measured(void)
{
    return !getenv("CUDA_DEVICE_SM_LIMIT") || count_events() > 0;
}

/* One line. In a context's stack the step may have put another context on top. In thread-local mode
 * the stream is one that the legacy stream waits for. */
static void tell_step(const struct world_step *step, CUstreamCaptureMode mode, bool elsewhere)
{
    struct world world = {.stream_flags = mode == CU_STREAM_CAPTURE_MODE_THREAD_LOCAL
                                              ? CU_STREAM_DEFAULT
                                              : CU_STREAM_NON_BLOCKING};
    CUgraph graph = NULL;
    CUstreamCaptureStatus status = -1;
    world_make(&world);
    launch_before(&world);
    CUresult begun = CU(cuStreamBeginCapture_v2)(world.stream, mode);
    CUresult before = launch(&world);
    CUresult result = call_step(&world, step, elsewhere);
    CU(cuCtxSetCurrent)(world.context);
    CU(cuStreamIsCapturing)(world.stream, &status);
    CUresult after = launch(&world);
    CUresult ended = CU(cuStreamEndCapture)(world.stream, &graph);
    CUresult outside = CU(cuLaunchKernel)(
        world.nop, 1, 1, 1, 32, 1, 1, 0, CU_STREAM_PER_THREAD, world.params, NULL);
    printf("%s %s %s: begin %d launch %d call %d capturing %d launch %d end %d outside %d:",
        mode_names[mode], elsewhere ? "other" : "own", step->function, (int)begun, (int)before,
        (int)result, (int)status, (int)after, (int)ended, (int)outside);
    tell_graph(graph);
    printf("%s\n", is_measured() ? "" : " the limit is not in force");
    fflush(stdout);
}

struct scenario {
    const struct world_step *step;
    CUstreamCaptureMode mode;
    bool elsewhere;
    int output;
};

static void tell_scenario(void *argument)
{
    const struct scenario *scenario = argument;
    dup2(scenario->output, STDOUT_FILENO);
    tell_step(scenario->step, scenario->mode, scenario->elsewhere);
}

static void copy_out(int fd)
{
    char text[4096];
    ssize_t got;
    lseek(fd, 0, SEEK_SET);
    while ((got = read(fd, text, sizeof(text))) > 0)
        (void)!write(STDOUT_FILENO, text, (size_t)got);
    close(fd);
}

#define AT_A_TIME 8

/* The transcript: a process for each line, so that none finds what another left. */
static int run_scenario(CUstreamCaptureMode mode)
{
    struct scenario scenarios[AT_A_TIME];
    pid_t pids[AT_A_TIME];
    static struct check_shared own; /* no test runs here */
    check_shared = &own;
    if (!freopen("/dev/null", "w", stderr))
        return 1;
    for (unsigned first = 0; first < 2 * world_step_count; first += AT_A_TIME) {
        unsigned count = 2 * world_step_count - first;
        count = count < AT_A_TIME ? count : AT_A_TIME;
        for (unsigned i = 0; i < count; i++) {
            scenarios[i] = (struct scenario){&world_steps[(first + i) / 2], mode, (first + i) % 2,
                memfd_create("line", MFD_CLOEXEC)};
            pids[i] = bed_fork(tell_scenario, &scenarios[i]);
        }
        for (unsigned i = 0; i < count; i++) {
            int status = -1;
            if (waitpid(pids[i], &status, 0) != pids[i] || status != 0)
                dprintf(scenarios[i].output, "%s: the process failed, status %#x\n",
                    scenarios[i].step->function, (unsigned)status);
            copy_out(scenarios[i].output);
        }
    }
    return 0;
}

static void transcript(
    CUstreamCaptureMode mode, bool native, const char *limit, const char *cores, char *text)
{
    char number[2] = {(char)('0' + mode), '\0'}, *program = realpath("/proc/self/exe", NULL);
    char *argv[] = {program, SCENARIO, number, NULL};
    struct bed bed = {
        .native = native, .limit = limit, .sim = "cuda=13050", .environment = {cores}};
    CHECK_EQ(bed_run(&bed, argv, text, 1 << 18), 0);
    free(program);
}

/* The first lines that differ, beside each other. */
static unsigned count_differences(char *native, char *preloaded)
{
    unsigned different = 0;
    char *native_rest, *preloaded_rest;
    char *a = strtok_r(native, "\n", &native_rest), *b = strtok_r(preloaded, "\n", &preloaded_rest);
    for (; a && b;
         a = strtok_r(NULL, "\n", &native_rest), b = strtok_r(NULL, "\n", &preloaded_rest)) {
        if (strcmp(a, b) != 0 && different++ < 10)
            printf("# native  %s\n# library %s\n", a, b);
    }
    fflush(stdout);
    return different + (a != b);
}

static unsigned count_lines(const char *text)
{
    unsigned count = 0;
    for (; *text; text++)
        count += *text == '\n';
    return count;
}

static void compare(CUstreamCaptureMode mode)
{
    static const struct {
        const char *memory, *cores;
    } limits[] = {{NULL, NULL}, {"100GiB", NULL}, {"100GiB", "CUDA_DEVICE_SM_LIMIT=50"}};
    static char native[1 << 18], again[1 << 18], limited[1 << 18];
    transcript(mode, true, NULL, NULL, native);
    CHECK_EQ(count_lines(native), 2 * world_step_count);
    CHECK(!strstr(native, "failed"));
    for (size_t i = 0; i < sizeof(limits) / sizeof(limits[0]); i++) {
        memcpy(again, native, sizeof(again));
        transcript(mode, false, limits[i].memory, limits[i].cores, limited);
        if (!CHECK_EQ(count_differences(again, limited), 0))
            printf("# with the limits %s and %s\n", limits[i].memory ? limits[i].memory : "none",
                limits[i].cores ? limits[i].cores : "none");
    }
}

TEST("a capture in global mode goes as without the library")
{
    compare(CU_STREAM_CAPTURE_MODE_GLOBAL);
}

TEST("a capture in thread-local mode goes as without the library")
{
    compare(CU_STREAM_CAPTURE_MODE_THREAD_LOCAL);
}

TEST("a capture in relaxed mode goes as without the library")
{
    compare(CU_STREAM_CAPTURE_MODE_RELAXED);
}

TEST("every function that we replace is called in a capture")
{
    /* The last two end each capture. */
    static const char *const elsewhere[] = {"cuInit", "cuGetProcAddress", "cuGetProcAddress_v2",
        "cuStreamEndCapture", "cuStreamEndCapture_ptsz"};
    for (size_t i = 0; i < WHERE_COUNT(where_hooked_cuda); i++) {
        bool called = where_lists(elsewhere, WHERE_COUNT(elsewhere), where_hooked_cuda[i]);
        for (unsigned k = 0; k < world_step_count; k++)
            called = called || !strcmp(world_steps[k].function, where_hooked_cuda[i]);
        if (!CHECK(called))
            printf("# %s\n", where_hooked_cuda[i]);
    }
}

int main(int argc, char **argv)
{
    if (argc == 3 && !strcmp(argv[1], SCENARIO))
        return run_scenario((CUstreamCaptureMode)(argv[2][0] - '0'));
    return check_run(argc, argv);
}
