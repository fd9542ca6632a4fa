/* SPDX-License-Identifier: Apache-2.0 */
/* Work for the tests of compute limits. */
#include "load.h"

#include "sim/machine/machine.h"

#include <dirent.h>
#include <dlfcn.h>
#include <sys/resource.h>
#include <sys/time.h>
#include <ucontext.h>

#define ATTEMPTS 5
/* Saved up at most: the limit's share of this; and what is admitted at once. */
#define SAVED_NS (100 * MS)
#define QUANTUM_NS (10 * MS)

static const char ptx[] = ".version 6.4\n.target sm_70\n.address_size 64\n"
                          ".visible .entry spin(.param .u64 duration_ns)\n{\nret;\n}\n";

static CUfunction spin;
/* Looked up once: a look-up takes longer than a launch. */
static __typeof__(cuLaunchKernel) *launch_kernel;

CUfunction load_kernel(void)
{
    CUmodule module;
    CUfunction kernel = NULL;
    REQUIRE(CU(cuModuleLoadData)(&module, ptx) == CUDA_SUCCESS);
    REQUIRE(CU(cuModuleGetFunction)(&kernel, module, "spin") == CUDA_SUCCESS);
    return kernel;
}

void load_begin(int ordinal)
{
    bed_context(ordinal);
    launch_kernel = CU(cuLaunchKernel);
    spin = load_kernel();
}

CUresult load_launch_of(CUfunction kernel, CUstream stream, uint64_t duration_ns)
{
    void *params[] = {&duration_ns};
    return launch_kernel(kernel, 1, 1, 1, 32, 1, 1, 0, stream, params, NULL);
}

CUresult load_launch(CUstream stream, uint64_t duration_ns)
{
    return load_launch_of(spin, stream, duration_ns);
}

CUstream load_stream(void)
{
    CUstream stream = NULL;
    REQUIRE(CU(cuStreamCreate)(&stream, CU_STREAM_NON_BLOCKING) == CUDA_SUCCESS);
    return stream;
}

CUresult load_step_plain(struct load *load, uint64_t number)
{
    (void)number;
    return load_launch(load->streams[0], load->duration_ns);
}

uint64_t load_now_ns(void)
{
    return sim_clock_ns();
}

/* Behind the step; the one that is 64 steps older is over first. */
static void bound(struct load *load)
{
    CUevent *event = &load->events[load->number % 64];
    CUstream stream =
        load->streams[load->number % 4] ? load->streams[load->number % 4] : load->streams[0];
    if (*event)
        CHECK_EQ(CU(cuEventSynchronize)(*event), CUDA_SUCCESS);
    else
        CHECK_EQ(CU(cuEventCreate)(event, CU_EVENT_DISABLE_TIMING), CUDA_SUCCESS);
    CHECK_EQ(CU(cuEventRecord)(*event, stream), CUDA_SUCCESS);
}

void load_one(struct load *load)
{
    if (!CHECK_EQ(load->step(load, load->number), CUDA_SUCCESS))
        _exit(1);
    if (!load->waits)
        bound(load);
    load->number++;
}

void load_run(struct load *load, uint64_t end_ns)
{
    while (load_now_ns() < end_ns)
        load_one(load);
}

uint64_t load_busy_ns(unsigned device, pid_t pid)
{
    struct sim_process processes[64];
    uint64_t busy = 0;
    unsigned count = sim_device_processes(device, processes, 64);
    for (unsigned i = 0; i < count && i < 64; i++)
        busy += !pid || processes[i].pid == pid ? processes[i].busy_ns : 0;
    return busy;
}

static int64_t word(const uint64_t *at)
{
    return (int64_t)__atomic_load_n(at, __ATOMIC_RELAXED);
}

struct load_state load_state(unsigned device)
{
    REQUIRE(sim_attach() == 0);
    const struct vgpu_region *region = bed_region();
    struct load_state state = {.busy_ns = load_busy_ns(device, 0)};
    state.now_ns = load_now_ns();
    if (!region)
        return state;
    const struct vgpu_compute *words = &region->compute[device];
    state.measured_ns = (uint64_t)word(&words->busy_ns);
    state.charged_ns = word(&words->charged_ns);
    state.granted_ns = word(&words->granted_ns);
    return state;
}

int load_permille(uint64_t part_ns, uint64_t whole_ns)
{
    return whole_ns ? (int)(part_ns * 1000 / whole_ns) : 0;
}

void load_check_at_most(
    const struct load_state *from, const struct load_state *to, unsigned percent)
{
    uint64_t busy = to->busy_ns - from->busy_ns, passed = to->now_ns - from->now_ns;
    uint64_t most = (passed + SAVED_NS) * percent / 100 + passed / 100 + QUANTUM_NS;
    if (!CHECK(busy <= most))
        dprintf(STDOUT_FILENO, "# %llu ms of %llu ms at a limit of %u\n",
            (unsigned long long)(busy / MS), (unsigned long long)(passed / MS), percent);
}

static bool is_near(int64_t value, int64_t busy)
{
    /* What streams do in turns is only known to lie within what they did together. */
    int64_t slack = busy / 6 + (int64_t)(2 * QUANTUM_NS);
    return value > busy - slack && value < busy + slack;
}

/* A round of the load: what was measured and charged is what it did, and it had its share. */
static bool had_share(const struct load_state *from, const struct load_state *to, unsigned percent)
{
    int64_t busy = (int64_t)(to->busy_ns - from->busy_ns);
    int64_t measured = (int64_t)(to->measured_ns - from->measured_ns);
    int64_t charged = to->charged_ns - from->charged_ns;
    int share = load_permille(to->busy_ns - from->busy_ns, to->now_ns - from->now_ns);
    if (is_near(measured, busy) && is_near(charged, busy) && share >= (int)percent * 8)
        return true;
    dprintf(STDOUT_FILENO, "# busy %lld us, measured %lld us, charged %lld us; %d of 1,000\n",
        (long long)(busy / 1000), (long long)(measured / 1000), (long long)(charged / 1000), share);
    return false;
}

/* A round in which a loaded computer kept the threads from running shows nothing but that. The
 * limit holds in each. */
void load_check_share(struct load *load, unsigned device, unsigned percent)
{
    bool had = false;
    load_run(load, load_now_ns() + 200 * MS);
    for (int i = 0; i < ATTEMPTS && !had; i++) {
        struct load_state from = load_state(device);
        load_run(load, load_now_ns() + 800 * MS);
        struct load_state to = load_state(device);
        load_check_at_most(&from, &to, percent);
        had = had_share(&from, &to, percent);
    }
    CHECK(had);
}

void load_run_tool(char *const argv[])
{
    int status = -1;
    pid_t pid = fork();
    if (pid == 0) {
        (void)!freopen("/dev/null", "w", stdout);
        unsetenv("LD_PRELOAD");
        execv(argv[0], argv);
        _exit(127);
    }
    waitpid(pid, &status, 0);
    REQUIRE(status == 0);
}

void load_set(int device, unsigned percent)
{
    char cores[12], number[12];
    snprintf(cores, sizeof(cores), "%u", percent);
    snprintf(number, sizeof(number), "%d", device);
    char *vgpu = bed_build_path("vgpu");
    char *argv[] = {vgpu, "set", "--cores", cores, device < 0 ? NULL : "--device", number, NULL};
    load_run_tool(argv);
    free(vgpu);
}

void load_settle(void)
{
    CHECK_EQ(CU(cuCtxSynchronize)(), CUDA_SUCCESS);
    bed_sleep_ms(120);
}

void load_learn(CUstream stream, uint64_t duration_ns, int times)
{
    for (int i = 0; i < times; i++) {
        CHECK_EQ(load_launch(stream, duration_ns), CUDA_SUCCESS);
        CHECK_EQ(CU(cuStreamSynchronize)(stream), CUDA_SUCCESS);
    }
    load_settle();
}

void load_check_measured(const struct load_state *from)
{
    load_settle();
    struct load_state to = load_state(0);
    uint64_t busy = to.busy_ns - from->busy_ns, measured = to.measured_ns - from->measured_ns;
    dprintf(STDOUT_FILENO, "# busy %llu us, measured %llu us\n", (unsigned long long)(busy / 1000),
        (unsigned long long)(measured / 1000));
    CHECK(measured > busy - busy / 10 && measured < busy + busy / 10);
}

void load_check_held(unsigned device, unsigned percent)
{
    bed_sleep_ms(200);
    struct load_state from = load_state(device);
    bed_sleep_ms(1500);
    struct load_state to = load_state(device);
    load_check_at_most(&from, &to, percent);
    CHECK(to.busy_ns > from.busy_ns);
}

static void exit_within_library(int number, siginfo_t *info, void *machine)
{
    const ucontext_t *interrupted = machine;
    Dl_info found;
    (void)number, (void)info;
#ifdef __x86_64__
    void *at = (void *)(uintptr_t)interrupted->uc_mcontext.gregs[REG_RIP];
#else
    void *at = (void *)(uintptr_t)interrupted->uc_mcontext.pc;
#endif
    if (dladdr(at, &found) && strstr(found.dli_fname, "libvgpu.so"))
        exit(5);
}

void load_exit_within_library(unsigned start_us, unsigned interval_us)
{
    const struct sigaction action = {
        .sa_sigaction = exit_within_library, .sa_flags = SA_SIGINFO | SA_RESTART};
    const struct itimerval often = {.it_value = {0, start_us}, .it_interval = {0, interval_us}};
    REQUIRE(sigaction(SIGALRM, &action, NULL) == 0 && setitimer(ITIMER_REAL, &often, NULL) == 0);
}

unsigned load_threads(void)
{
    unsigned count = 0;
    DIR *tasks = opendir("/proc/self/task");
    for (const struct dirent *entry; tasks && (entry = readdir(tasks));)
        count += entry->d_name[0] != '.';
    if (tasks)
        closedir(tasks);
    return count;
}

static uint64_t time_ns(const struct timeval *time)
{
    return (uint64_t)time->tv_sec * SECOND + (uint64_t)time->tv_usec * 1000;
}

uint64_t load_cpu_ns(void)
{
    struct rusage usage;
    getrusage(RUSAGE_SELF, &usage);
    return time_ns(&usage.ru_utime) + time_ns(&usage.ru_stime);
}
