/* SPDX-License-Identifier: Apache-2.0 */
/* Every driver call fails in turn: each workload is run once for each call that reaches the
 * simulator in it (of the driver API, of NVML, of the resource manager), and that one call fails.
 * No byte is charged too much or too little then, no wrong code comes back, nothing hangs.
 * VGPU_TEST_CORES=PERCENT puts a compute limit on all of it. */
#include "failing_each.h"

#include "where.h"

#include <fcntl.h>
#include <sys/prctl.h>

#define PARALLEL 3
#define HUNG_SECONDS 20
#define MISSES_MAX 5 /* of a sweep, that are shown */

struct codes {
    unsigned each; /* how many are tried at a call */
    unsigned count;
    unsigned list[6];
};

static const struct codes cuda_codes = {2, 6,
    {CUDA_ERROR_OUT_OF_MEMORY, CUDA_ERROR_NOT_INITIALIZED, CUDA_ERROR_INVALID_VALUE,
        CUDA_ERROR_LAUNCH_FAILED, CUDA_ERROR_SYSTEM_DRIVER_MISMATCH, CUDA_ERROR_UNKNOWN}};
static const struct codes nvml_codes = {2, 4,
    {NVML_ERROR_UNINITIALIZED, NVML_ERROR_INVALID_ARGUMENT, NVML_ERROR_GPU_IS_LOST,
        NVML_ERROR_UNKNOWN}};
/* NO_MEMORY, INSUFFICIENT_RESOURCES, NOT_SUPPORTED, INVALID_CLASS, each at another call. */
static const struct codes rm_codes = {1, 4, {0x51, 0x1a, 0x56, 0x22}};

struct sweep {
    const struct each_work *work;
    enum each_api api;
    unsigned code;
    uint64_t nth; /* 0: nothing fails */
};

static unsigned flown, hits; /* of a sweep: runs, and those in which the call failed */

/* A run in flight. */
struct flight {
    struct sweep sweep;
    pid_t pid;
    int output, log; /* what it prints */
    unsigned number; /* of its machine and region */
    struct each_run *run;
};

static void path_of(char *path, size_t size, const char *kind, unsigned number)
{
    snprintf(path, size, "%s/%s-%u", bed_directory(), kind, number);
}

/* A machine and a container of the run's own, and its rule. */
static void set_environment(const struct flight *flight)
{
    static const char *const rules[EACH_APIS] = {
        "fail=cu#%llu:%u", "fail=nvml#%llu:%u", "rm-status=%2$u@#%1$llu"};
    const struct sweep *sweep = &flight->sweep;
    char path[256], rule[64] = "", text[512];
    const char *sim = getenv("VGPU_SIM");
    path_of(path, sizeof(path), "machine", flight->number);
    setenv("VGPU_SIM_MACHINE", path, 1);
    path_of(path, sizeof(path), "region", flight->number);
    setenv("CUDA_DEVICE_MEMORY_SHARED_CACHE", path, 1);
    if (getenv("VGPU_TEST_CORES"))
        setenv("CUDA_DEVICE_SM_LIMIT", getenv("VGPU_TEST_CORES"), 1);
    setenv("VGPU_TEST_PEER_SIM", sim ? sim : "", 1);
    if (sweep->nth)
        snprintf(
            rule, sizeof(rule), rules[sweep->api], (unsigned long long)sweep->nth, sweep->code);
    snprintf(text, sizeof(text), "%s%s%s", sim ? sim : "", sim && *sim ? "," : "", rule);
    setenv("VGPU_SIM", text, 1);
}

static void launch(struct flight *flight)
{
    fflush(stdout);
    memset(flight->run, 0, sizeof(*flight->run));
    flight->output = memfd_create("output", MFD_CLOEXEC);
    flight->log = memfd_create("log", MFD_CLOEXEC);
    flight->pid = fork();
    if (flight->pid != 0)
        return;
    prctl(PR_SET_PDEATHSIG, SIGKILL);
    alarm(HUNG_SECONDS);
    dup2(flight->output, STDOUT_FILENO);
    dup2(flight->log, STDERR_FILENO);
    set_environment(flight);
    const struct sweep *sweep = &flight->sweep;
    each_run(sweep->work, sweep->api, sweep->nth, sweep->nth ? sweep->code : 0, flight->run);
    _exit(0);
}

static char *contents(int fd)
{
    static char text[1 << 15];
    ssize_t got = pread(fd, text, sizeof(text) - 1, 0);
    text[got > 0 ? got : 0] = '\0';
    return text;
}

/* Nobody but the checks writes to stdout. True where there was nothing. */
static bool judge_output(int fd)
{
    bool silent = true;
    for (char *line = strtok(contents(fd), "\n"); line; line = strtok(NULL, "\n")) {
        silent = false;
        dprintf(STDOUT_FILENO, "%s%s\n", line[0] == '#' ? "" : "# on stdout: ", line);
        check_note_failure();
    }
    return silent;
}

/* One line a cause: none comes twice. */
static bool judge_log(int fd)
{
    char *lines[64];
    unsigned count = 0;
    bool sound = true;
    for (char *line = strtok(contents(fd), "\n"); line && count < 64; line = strtok(NULL, "\n")) {
        char *text = strstr(line, ")]: ");
        lines[count++] = text ? text : line;
        for (unsigned i = 0; i + 1 < count; i++)
            sound &= strcmp(lines[i], lines[count - 1]) != 0;
    }
    return CHECK(sound && count <= 4);
}

static bool is_hit(const struct flight *flight)
{
    return flight->run->failed[0] != '\0';
}

/* Some calls are made by time (a look at the limit every few milliseconds; under a compute limit
 * others, some by a thread of the library's): there may be fewer than the pilot counted. */
static bool came_short(const struct flight *flight)
{
    const struct sweep *sweep = &flight->sweep;
    return getenv("VGPU_TEST_CORES") || flight->run->last[sweep->api] < sweep->nth;
}

static bool judge(struct flight *flight, int status)
{
    const struct sweep *sweep = &flight->sweep;
    bool sound = judge_output(flight->output);
    sound &= judge_log(flight->log);
    sound &= !sweep->nth || CHECK(is_hit(flight) || came_short(flight));
    sound &= CHECK(WIFEXITED(status) && WEXITSTATUS(status) == 0);
    if (WIFSIGNALED(status))
        dprintf(STDOUT_FILENO, "# killed by signal %d%s\n", WTERMSIG(status),
            WTERMSIG(status) == SIGALRM ? ": it hung" : "");
    if (!sound) {
        dprintf(STDOUT_FILENO, "# in %s, where %s#%llu was to fail with %u: %s failed\n",
            sweep->work->name, each_prefixes[sweep->api], (unsigned long long)sweep->nth,
            sweep->code, flight->run->failed);
        for (char *line = strtok(contents(flight->log), "\n"); line; line = strtok(NULL, "\n"))
            dprintf(STDOUT_FILENO, "# log: %s\n", line);
    }
    return sound;
}

static bool land(struct flight *flight, int status)
{
    char path[256];
    bool sound = judge(flight, status);
    flown++;
    hits += is_hit(flight);
    close(flight->output);
    close(flight->log);
    path_of(path, sizeof(path), "machine", flight->number);
    unlink(path);
    path_of(path, sizeof(path), "region", flight->number);
    unlink(path);
    flight->pid = 0;
    return sound;
}

static struct flight flights[PARALLEL];

static void flights_init(void)
{
    static unsigned numbers;
    struct each_run *runs = mmap(
        NULL, PARALLEL * sizeof(*runs), PROT_READ | PROT_WRITE, MAP_SHARED | MAP_ANONYMOUS, -1, 0);
    REQUIRE(runs != MAP_FAILED);
    for (unsigned i = 0; i < PARALLEL; i++)
        flights[i] = (struct flight){.number = ++numbers, .run = &runs[i]};
}

/* Waits for one to end; false where none is in flight. */
static bool land_one(unsigned *misses)
{
    int status;
    pid_t pid = waitpid(-1, &status, 0);
    for (unsigned i = 0; pid > 0 && i < PARALLEL; i++) {
        if (flights[i].pid == pid)
            *misses += !land(&flights[i], status);
    }
    return pid > 0;
}

static struct flight *free_flight(unsigned *misses)
{
    for (;;) {
        for (unsigned i = 0; i < PARALLEL; i++) {
            if (!flights[i].pid)
                return &flights[i];
        }
        land_one(misses);
    }
}

/* Without a failure; what it passes and how often it calls. */
static bool pilot(const struct each_work *work, struct each_run *ret_run)
{
    unsigned misses = 0;
    struct flight *flight = free_flight(&misses);
    flight->sweep = (struct sweep){.work = work};
    launch(flight);
    land_one(&misses);
    *ret_run = *flight->run;
    return misses == 0;
}

/* The codes take turns: `each` of them at a call. */
static void sweep_api(const struct each_work *work, const struct each_run *counted,
    enum each_api api, const struct codes *codes)
{
    unsigned misses = 0, turn = 0;
    flown = hits = 0;
    for (uint64_t nth = counted->first[api] + 1; nth <= counted->last[api]; nth++) {
        for (unsigned c = 0; c < codes->each && misses < MISSES_MAX; c++, turn++) {
            struct flight *flight = free_flight(&misses);
            flight->sweep = (struct sweep){
                .work = work, .api = api, .code = codes->list[turn % codes->count], .nth = nth};
            launch(flight);
        }
    }
    while (land_one(&misses))
        ;
    CHECK(getenv("VGPU_TEST_CORES") || hits >= flown / 2);
}

static void sweep(const struct each_work *work)
{
    struct each_run counted;
    const char *ledger = getenv("VGPU_TEST_LEDGER");
    flights_init();
    if (!pilot(work, &counted))
        return;
    CHECK(counted.last[EACH_CUDA] > counted.first[EACH_CUDA]);
    sweep_api(work, &counted, EACH_CUDA, &cuda_codes);
    sweep_api(work, &counted, EACH_NVML, &nvml_codes);
    if (!ledger || strcmp(ledger, "no-rm")) /* then the driver makes no such calls */
        sweep_api(work, &counted, EACH_RM, &rm_codes);
}

/* ---- The tests ---- */

#define SWEPT_MAX 64

static const struct each_work *swept[SWEPT_MAX];
static unsigned swept_count;

#define SWEEP(sentence, work, ...) SWEEP_AT(sentence, work, __LINE__, __VA_ARGS__)
#define SWEEP_AT(sentence, work, line, ...) SWEEP_NAMED(sentence, work, line, __VA_ARGS__)
#define SWEEP_NAMED(sentence, work, line, ...)                                                     \
    __attribute__((constructor)) static void sweep_add_##line(void)                                \
    {                                                                                              \
        if (swept_count == SWEPT_MAX)                                                              \
            abort();                                                                               \
        swept[swept_count++] = &(work);                                                            \
    }                                                                                              \
    BED_TEST("each call fails in turn: " sentence, __VA_ARGS__)                                    \
    {                                                                                              \
        sweep(&(work));                                                                            \
    }

SWEEP("the way in", each_starting, .limit = EACH_LIMIT)
SWEEP("contexts", each_contexts, .limit = EACH_LIMIT)
SWEEP("detached contexts", each_detached, .limit = EACH_LIMIT)
SWEEP("green contexts", each_green, .limit = EACH_LIMIT)
SWEEP("the primary context", each_primary, .limit = EACH_LIMIT)
SWEEP("linear memory", each_linear, .limit = EACH_LIMIT)
SWEEP("what a pointer points at", each_pointers, .limit = EACH_LIMIT)
SWEEP("peers", each_peers, .limit = EACH_LIMIT, .sim = "h200,devices=2")
SWEEP("arrays", each_arrays, .limit = EACH_LIMIT)
SWEEP("memory in stream order", each_async, .limit = EACH_LIMIT)
SWEEP("pools", each_pools, .limit = EACH_LIMIT)
SWEEP("pools of managed memory", each_managed_pools, .limit = EACH_LIMIT)
SWEEP("managed memory of a graph", each_managed_graph, .limit = EACH_LIMIT)
SWEEP("physical memory and its mappings", each_mapping, .limit = EACH_LIMIT)
SWEEP("exported and imported memory", each_sharing, .limit = EACH_LIMIT)
SWEEP("modules and libraries", each_modules, .limit = EACH_LIMIT)
SWEEP("launches", each_launches, .limit = EACH_LIMIT)
SWEEP("launches of old forms", each_old_launches, .limit = EACH_LIMIT)
SWEEP("graphs", each_graphs, .limit = EACH_LIMIT)
SWEEP("graphs that are changed", each_changed_graphs, .limit = EACH_LIMIT)
SWEEP("views", each_views, .limit = EACH_LIMIT, .sim = EACH_VIEWS_SIM)
SWEEP("lookups", each_lookups, .limit = EACH_LIMIT)
SWEEP("copies in stream order", each_copies, .limit = EACH_LIMIT)
SWEEP("copies of shapes and arrays", each_shaped_copies, .limit = EACH_LIMIT)
SWEEP("lists of copies", each_listed_copies, .limit = EACH_LIMIT)
SWEEP("fills", each_fills, .limit = EACH_LIMIT)
SWEEP("copies on the card", each_card_copies, .limit = EACH_LIMIT)
SWEEP("prefetches", each_prefetches, .limit = EACH_LIMIT)
SWEEP("waits and host functions", each_waits, .limit = EACH_LIMIT)
SWEEP("captures", each_captures, .limit = EACH_LIMIT)
SWEEP("current contexts", each_currents, .limit = EACH_LIMIT)
SWEEP("memory of another process", each_ipc, .limit = EACH_LIMIT)
SWEEP("functions of CUDA 13.1 and later", each_newer, .limit = EACH_LIMIT, .sim = "cuda=13050")

/* Of no use to programs of today, and not simulated: the 32-bit forms of CUDA 3.1 and before. And
 * semaphores come from other APIs (Vulkan, Direct3D), of which the simulator has none. Nor does it
 * compare a capture with a graph. */
static const char *const not_simulated[] = {"cuArray3DCreate", "cuArrayCreate", "cuMemAlloc",
    "cuMemAllocPitch", "cuMemFree", "cuStreamBeginRecaptureToGraph",
    "cuStreamBeginRecaptureToGraph_ptsz", "cuWaitExternalSemaphoresAsync",
    "cuWaitExternalSemaphoresAsync_ptsz"};

static void check_passed(
    const char *const *rows, size_t count, const char (*passed)[48], unsigned passed_count)
{
    for (size_t i = 0; i < count; i++) {
        bool found = where_lists(not_simulated, WHERE_COUNT(not_simulated), rows[i]);
        for (unsigned p = 0; p < passed_count && !found; p++)
            found = !strcmp(passed[p], rows[i]);
        if (!CHECK(found))
            dprintf(STDOUT_FILENO, "# no workload passes %s\n", rows[i]);
    }
}

BED_TEST("each function that we replace is passed by a workload", .limit = EACH_LIMIT,
    .sim = EACH_VIEWS_SIM ",cuda=13050,devices=2")
{
    static char passed[2048][48];
    unsigned count = 0;
    flights_init();
    for (unsigned w = 0; w < swept_count; w++) {
        struct each_run run;
        CHECK(pilot(swept[w], &run));
        REQUIRE(count + run.passed_count <= sizeof(passed) / sizeof(passed[0]));
        for (unsigned i = 0; i < run.passed_count; i++)
            memcpy(passed[count++], run.passed[i], sizeof(passed[0]));
    }
    check_passed(where_hooked_cuda, WHERE_COUNT(where_hooked_cuda), passed, count);
    check_passed(where_hooked_nvml, WHERE_COUNT(where_hooked_nvml), passed, count);
}

int main(int argc, char **argv)
{
    return check_run(argc, argv);
}
