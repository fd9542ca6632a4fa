/* SPDX-License-Identifier: Apache-2.0 */
/* A kernel that is held, orders, and threads that are kept from running. */
#include "govern_load.h"

#include "sim/machine/machine.h"

#include <dirent.h>
#include <linux/futex.h>
#include <sys/stat.h>
#include <sys/prctl.h>
#include <sys/ptrace.h>
#include <sys/syscall.h>

#define STAND_MS 30

/* ---- what is held ---- */

CUstream hold_begin(uint64_t duration_ns)
{
    REQUIRE(sim_attach() == 0);
    load_begin(0);
    CUstream stream = load_stream();
    REQUIRE(load_launch(stream, duration_ns) == CUDA_SUCCESS);
    return stream;
}

/* Who maps a file that is still being made touches what is not there yet. */
static bool region_is_whole(void)
{
    struct stat file;
    return stat(getenv("CUDA_DEVICE_MEMORY_SHARED_CACHE"), &file) == 0 &&
           file.st_size >= (off_t)VGPU_REGION_FILE_BYTES;
}

static uint64_t window_until_ns(void)
{
    static bool whole;
    whole = whole || region_is_whole();
    const struct vgpu_region *region = whole ? bed_region() : NULL;
    return region ? __atomic_load_n(&region->window_until_ns, __ATOMIC_ACQUIRE) : 0;
}

static bool stands_for(pid_t pid, unsigned milliseconds)
{
    uint64_t before = load_busy_ns(0, pid);
    bed_sleep_ms(milliseconds);
    return load_busy_ns(0, pid) == before;
}

uint64_t hold_await_closed(pid_t pid, uint64_t least_ns)
{
    uint64_t start = load_now_ns();
    REQUIRE(sim_attach() == 0);
    while (load_now_ns() - start < PATIENCE_MS * MS) {
        uint64_t until = window_until_ns(), now = load_now_ns();
        if (until <= now + least_ns || until > now + 2 * SECOND)
            bed_sleep_ms(1);
        else if (stands_for(pid, 4) && window_until_ns() == until &&
                 until > load_now_ns() + least_ns)
            return until;
    }
    REQUIRE(!"a window that is closed was found");
    return 0;
}

bool hold_runs(pid_t pid)
{
    uint64_t before = load_busy_ns(0, pid);
    for (unsigned waited = 0; waited < PATIENCE_MS && load_busy_ns(0, pid) == before; waited++)
        bed_sleep_ms(1);
    return load_busy_ns(0, pid) != before;
}

bool hold_stands(pid_t pid)
{
    return stands_for(pid, STAND_MS);
}

bool hold_comes_to_stand(pid_t pid)
{
    for (unsigned waited = 0; waited < PATIENCE_MS; waited += STAND_MS) {
        if (stands_for(pid, STAND_MS))
            return true;
    }
    return false;
}

void hold_check_share(const struct load_state *from, const struct load_state *to, unsigned percent)
{
    uint64_t busy = to->busy_ns - from->busy_ns, passed = to->now_ns - from->now_ns;
    uint64_t most = (passed + 100 * MS) * percent / 100 + passed / 20 + 50 * MS;
    if (!CHECK(busy <= most))
        dprintf(STDOUT_FILENO, "# %llu ms of %llu ms at a limit of %u\n",
            (unsigned long long)(busy / MS), (unsigned long long)(passed / MS), percent);
}

/* ---- orders ---- */

void order_raise(void)
{
    uint32_t *epoch = &bed_region()->orders_epoch;
    __atomic_add_fetch(epoch, 1, __ATOMIC_SEQ_CST);
    syscall(SYS_futex, epoch, FUTEX_WAKE, INT32_MAX, NULL, NULL, 0);
}

void order_pause(bool paused)
{
    __atomic_store_n(&bed_region()->paused, paused, __ATOMIC_SEQ_CST);
    order_raise();
}

void order_limit(unsigned percent)
{
    __atomic_store_n(&bed_region()->devices[0].core_limit, percent, __ATOMIC_SEQ_CST);
    order_raise();
}

/* ---- ends ---- */

bool ends_in_time(pid_t pid, int *ret_status)
{
    uint64_t start = load_now_ns();
    while (load_now_ns() - start < PATIENCE_MS * MS) {
        if (waitpid(pid, ret_status, WNOHANG) == pid)
            return true;
        bed_sleep_ms(1);
    }
    kill(pid, SIGKILL);
    waitpid(pid, ret_status, 0);
    return false;
}

bool ends_well_in_time(pid_t pid)
{
    int status = -1;
    return ends_in_time(pid, &status) && WIFEXITED(status) && WEXITSTATUS(status) == 0;
}

/* ---- threads that are kept from running ---- */

#define THREADS_MAX 64

enum order { FREEZE, THAW, FREEZE_ALL, RUN_TO_SHORT_REST };

struct message {
    enum order order;
    pid_t process, thread;
    unsigned milliseconds;
};

static struct {
    int orders[2], answers[2];
} tracer;

/* Which system call the stopped thread is in; -1: none. */
#define SYS_WAITV 449 /* a wait for one of several words; older headers do not have it */

static long stopped_in(const struct message *message)
{
    char path[64], text[32] = "";
    snprintf(path, sizeof(path), "/proc/%d/task/%d/syscall", message->process, message->thread);
    FILE *file = fopen(path, "re");
    bool read = file && fgets(text, sizeof(text), file);
    if (file)
        fclose(file);
    return read ? strtol(text, NULL, 10) : SYS_futex;
}

static bool stop_thread(pid_t thread)
{
    int status;
    return ptrace(PTRACE_SEIZE, thread, NULL, NULL) == 0 &&
           ptrace(PTRACE_INTERRUPT, thread, NULL, NULL) == 0 &&
           waitpid(thread, &status, __WALL) == thread && WIFSTOPPED(status);
}

static bool let_go(pid_t thread)
{
    return ptrace(PTRACE_DETACH, thread, NULL, NULL) == 0;
}

/* A thread that holds a lock would stop all others, which is not what is asked here. */
static bool stop_where_it_waits(const struct message *message)
{
    for (int tries = 0; tries < 1000; tries++) {
        if (!stop_thread(message->thread))
            return false;
        long call = stopped_in(message);
        if (call == SYS_futex || call == SYS_WAITV)
            return true;
        (void)let_go(message->thread);
        bed_sleep_ms(1);
    }
    return false;
}

static unsigned list_threads(pid_t process, pid_t ret_threads[THREADS_MAX])
{
    char path[64];
    unsigned count = 0;
    snprintf(path, sizeof(path), "/proc/%d/task", process);
    DIR *tasks = opendir(path);
    for (const struct dirent *entry; tasks && (entry = readdir(tasks)) && count < THREADS_MAX;) {
        if (entry->d_name[0] != '.')
            ret_threads[count++] = (pid_t)atoi(entry->d_name);
    }
    if (tasks)
        closedir(tasks);
    return count;
}

static bool stop_all(const struct message *message)
{
    pid_t threads[THREADS_MAX];
    unsigned count = list_threads(message->process, threads), stopped = 0;
    while (stopped < count && stop_thread(threads[stopped]))
        stopped++;
    bed_sleep_ms(message->milliseconds);
    for (unsigned i = 0; i < stopped; i++)
        (void)let_go(threads[i]);
    return count && stopped == count;
}

/* At the entry of a system call; its number, -1: at no entry. */
static long entry_of(pid_t thread, struct __ptrace_syscall_info *ret_info)
{
    bool told = ptrace(PTRACE_GET_SYSCALL_INFO, thread, sizeof(*ret_info), ret_info) > 0;
    return told && ret_info->op == PTRACE_SYSCALL_INFO_ENTRY ? (long)ret_info->entry.nr : -1;
}

/* Whether the wait ends within a millisecond. */
static bool is_short(pid_t thread, const struct __ptrace_syscall_info *wait)
{
    const char *time = (const char *)(uintptr_t)wait->entry.args[3];
    uint64_t seconds = (uint64_t)ptrace(PTRACE_PEEKDATA, thread, time, NULL);
    uint64_t ns = (uint64_t)ptrace(PTRACE_PEEKDATA, thread, time + sizeof(long), NULL);
    return seconds * SECOND + ns < load_now_ns() + MS;
}

/* Of a thread that is stopped in a wait, which begins again at first. */
static bool run_to_short_rest(pid_t thread)
{
    bool looked = false;
    if (ptrace(PTRACE_SETOPTIONS, thread, NULL, PTRACE_O_TRACESYSGOOD) != 0)
        return false;
    for (int stops = 0; stops < 10000; stops++) {
        struct __ptrace_syscall_info info;
        int status;
        if (ptrace(PTRACE_SYSCALL, thread, NULL, NULL) != 0 ||
            waitpid(thread, &status, __WALL) != thread || !WIFSTOPPED(status))
            return false;
        long call = entry_of(thread, &info);
        looked |= call == SYS_rt_sigaction; /* the region is touched */
        if (looked && call == SYS_WAITV && is_short(thread, &info))
            return true;
    }
    return false;
}

static bool carry_out(const struct message *message)
{
    switch (message->order) {
    case FREEZE:
        return stop_where_it_waits(message);
    case THAW:
        return let_go(message->thread);
    case RUN_TO_SHORT_REST:
        return run_to_short_rest(message->thread);
    default:
        return stop_all(message);
    }
}

static void trace(void *unused)
{
    struct message message;
    (void)unused;
    close(tracer.orders[1]);
    while (read(tracer.orders[0], &message, sizeof(message)) == sizeof(message)) {
        char done = (char)carry_out(&message);
        if (write(tracer.answers[1], &done, 1) != 1)
            break;
    }
    _exit(0);
}

static bool order_tracer(struct message message)
{
    char done = 0;
    message.process = getpid();
    REQUIRE(write(tracer.orders[1], &message, sizeof(message)) == sizeof(message));
    REQUIRE(read(tracer.answers[0], &done, 1) == 1);
    return done;
}

void freeze_begin(void)
{
    REQUIRE(pipe(tracer.orders) == 0 && pipe(tracer.answers) == 0);
    pid_t pid = bed_fork(trace, NULL);
    (void)prctl(PR_SET_PTRACER, pid);
    if (!order_tracer((struct message){.order = FREEZE_ALL}))
        SKIP("no thread can be traced");
}

pid_t thread_named(const char *name)
{
    pid_t threads[THREADS_MAX];
    unsigned count = list_threads(getpid(), threads);
    for (unsigned i = 0; i < count; i++) {
        char path[64], comm[32] = "";
        snprintf(path, sizeof(path), "/proc/self/task/%d/comm", threads[i]);
        FILE *file = fopen(path, "re");
        if (!file)
            continue;
        bool same = fgets(comm, sizeof(comm), file) && !strncmp(comm, name, strlen(name));
        fclose(file);
        if (same)
            return threads[i];
    }
    return 0;
}

pid_t governor_thread(void)
{
    pid_t thread = 0;
    for (unsigned waited = 0; !thread && waited < PATIENCE_MS; waited++) {
        bed_sleep_ms(1);
        thread = thread_named("vgpu-governor");
    }
    REQUIRE(thread != 0);
    return thread;
}

void freeze(pid_t thread)
{
    REQUIRE(order_tracer((struct message){.order = FREEZE, .thread = thread}));
}

void thaw(pid_t thread)
{
    REQUIRE(order_tracer((struct message){.order = THAW, .thread = thread}));
}

void freeze_in_a_moment(pid_t thread)
{
    if (order_tracer((struct message){.order = RUN_TO_SHORT_REST, .thread = thread}))
        return;
    thaw(thread);
    SKIP("the kernel does not tell what a thread waits for");
}

void freeze_all(unsigned milliseconds)
{
    REQUIRE(order_tracer((struct message){.order = FREEZE_ALL, .milliseconds = milliseconds}));
}
