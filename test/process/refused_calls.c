/* SPDX-License-Identifier: Apache-2.0 */
/* System calls that a container's filter refuses: a program under limits that starts behind such a
 * filter is limited exactly and works. Each row refuses one call, or one form of it, with each of
 * the errors that filters give. docs/compatibility.md, "System calls", says the same in words. */
#define _GNU_SOURCE
#include "check.h"
#include "driver.h"
#include "scratch.h"

#include <fcntl.h>
#include <linux/filter.h>
#include <linux/futex.h>
#include <linux/seccomp.h>
#include <stdarg.h>
#include <sys/prctl.h>
#include <sys/resource.h>
#include <sys/syscall.h>

#define MIB (1ull << 20)
#define LIMIT_MIB 2048
#define GRAIN (2 * MIB) /* in which the driver takes memory */
#define OURS 300 /* descriptors of ours are not below, the program's and the simulator's are */
#define EXIT_NO_FILTER 78
#define EXIT_NO_DRIVER 79
#define RUN_SECONDS 100
#define SET_LOCK 37 /* F_OFD_SETLK */
#define GET_LOCK 36
#define WAITV 449
#define WIPE_ON_FORK 18

enum test { NONE, IS, LEAST, HAS };

struct condition {
    enum test test;
    unsigned argument, value;
};

static const struct call {
    const char *name;
    int number;
    struct condition conditions[2];
} files[] = {
    {"fallocate", SYS_fallocate, {{0}}},
    {"ftruncate", SYS_ftruncate, {{LEAST, 0, OURS}}},
    {"fstat", SYS_fstat, {{0}}},
    {"newfstatat", SYS_newfstatat, {{IS, 3, AT_SYMLINK_NOFOLLOW}}},
    {"lseek", SYS_lseek, {{LEAST, 0, OURS}}},
    {"fchmod", SYS_fchmod, {{0}}},
    {"dup3", SYS_dup3, {{0}}},
    {"getdents64", SYS_getdents64, {{0}}},
    {"linkat", SYS_linkat, {{0}}},
    {"unlinkat", SYS_unlinkat, {{0}}},
    {"open with O_TMPFILE", SYS_openat, {{HAS, 2, O_TMPFILE & ~O_DIRECTORY}}},
    {"fcntl F_OFD_SETLK", SYS_fcntl, {{LEAST, 0, OURS}, {IS, 1, SET_LOCK}}},
    {"fcntl F_OFD_GETLK", SYS_fcntl, {{LEAST, 0, OURS}, {IS, 1, GET_LOCK}}},
    {"fcntl F_DUPFD_CLOEXEC", SYS_fcntl, {{IS, 1, F_DUPFD_CLOEXEC}}},
    {"prlimit64", SYS_prlimit64, {{IS, 1, RLIMIT_FSIZE}}},
    {"getrlimit", SYS_prlimit64, {{IS, 1, RLIMIT_NOFILE}}},
#ifdef SYS_access
    {"readlink", SYS_readlink, {{0}}},
    {"access", SYS_access, {{0}}},
    {"link", SYS_link, {{0}}},
    {"unlink", SYS_unlink, {{0}}},
#else
    {"readlinkat", SYS_readlinkat, {{0}}},
    {"faccessat", SYS_faccessat, {{0}}},
#endif
};

static const struct call memory[] = {
    {"madvise MADV_RANDOM", SYS_madvise, {{IS, 2, 1}}},
    {"madvise MADV_DONTFORK", SYS_madvise, {{IS, 2, 10}}},
    {"madvise MADV_WIPEONFORK", SYS_madvise, {{IS, 2, WIPE_ON_FORK}}},
    {"madvise", SYS_madvise, {{0}}},
    {"process_vm_readv", SYS_process_vm_readv, {{0}}},
    {"process_vm_writev", SYS_process_vm_writev, {{0}}},
};

/* Where private futexes are refused the C library itself ends the program: unit/lock.c. */
static const struct call waits[] = {
    {"futex FUTEX_WAIT", SYS_futex, {{IS, 1, FUTEX_WAIT}}},
    {"futex FUTEX_WAKE", SYS_futex, {{IS, 1, FUTEX_WAKE}}},
    {"futex FUTEX_CMP_REQUEUE_PRIVATE", SYS_futex, {{IS, 1, FUTEX_CMP_REQUEUE_PRIVATE}}},
    {"futex_waitv", WAITV, {{0}}},
    {"nanosleep", SYS_nanosleep, {{0}}},
    {"clock_nanosleep", SYS_clock_nanosleep, {{0}}},
};

static const struct call others[] = {
    {"getrandom", SYS_getrandom, {{0}}},
    {"gettid", SYS_gettid, {{0}}},
    {"kill", SYS_kill, {{0}}},
    {"prctl PR_GET_NAME", SYS_prctl, {{IS, 0, PR_GET_NAME}}},
    {"prctl PR_SET_NAME", SYS_prctl, {{IS, 0, PR_SET_NAME}}},
    {"rt_sigaction of SIGBUS", SYS_rt_sigaction, {{IS, 0, SIGBUS}}},
    {"rt_sigprocmask", SYS_rt_sigprocmask, {{0}}},
    {"rt_sigpending", SYS_rt_sigpending, {{0}}},
    {"rt_sigtimedwait", SYS_rt_sigtimedwait, {{0}}},
    {"rt_tgsigqueueinfo", SYS_rt_tgsigqueueinfo, {{0}}},
    {"clone", SYS_clone, {{0}}},
    {"clone3", SYS_clone3, {{0}}},
};

/* Without these there is no region. */
static const struct call needed[] = {
    {"openat", SYS_openat, {{HAS, 2, O_NONBLOCK | O_NOCTTY | O_NOFOLLOW | O_RDWR}}},
    {"mmap", SYS_mmap, {{IS, 3, MAP_SHARED}, {IS, 4, OURS}}},
    {"pread64", SYS_pread64, {{LEAST, 0, OURS}}},
    {"pwrite64", SYS_pwrite64, {{LEAST, 0, OURS}}},
};

/* ---- behind the filter ---- */

static struct sock_filter program[64];
static unsigned short program_length;

static void emit(unsigned short code, unsigned value, unsigned char yes, unsigned char no)
{
    program[program_length++] = (struct sock_filter){code, yes, no, value};
}

static void load_argument(unsigned argument)
{
    emit(BPF_LD | BPF_W | BPF_ABS, (unsigned)offsetof(struct seccomp_data, args) + 8 * argument, 0,
        0);
}

/* Goes on where it is met, else to the instruction that allows, which comes `left` later. */
static void emit_condition(const struct condition *condition, unsigned char left)
{
    load_argument(condition->argument);
    left = (unsigned char)(left - 2);
    if (condition->test == HAS) {
        emit(BPF_ALU | BPF_AND | BPF_K, condition->value, 0, 0);
        left--;
    }
    emit(BPF_JMP | (condition->test == LEAST ? BPF_JGE : BPF_JEQ) | BPF_K, condition->value, 0,
        left);
}

static unsigned length_of(const struct condition *condition)
{
    return condition->test == NONE ? 0 : condition->test == HAS ? 3 : 2;
}

/* False where the kernel takes no filter. */
static bool refuse(const struct call *call, int error)
{
    program_length = 0;
    unsigned first = length_of(&call->conditions[0]), second = length_of(&call->conditions[1]);
    emit(BPF_LD | BPF_W | BPF_ABS, offsetof(struct seccomp_data, nr), 0, 0);
    emit(BPF_JMP | BPF_JEQ | BPF_K, (unsigned)call->number, 0, (unsigned char)(first + second + 1));
    if (first)
        emit_condition(&call->conditions[0], (unsigned char)(first + second + 1));
    if (second)
        emit_condition(&call->conditions[1], (unsigned char)(second + 1));
    emit(BPF_RET | BPF_K, SECCOMP_RET_ERRNO | (unsigned)error, 0, 0);
    emit(BPF_RET | BPF_K, SECCOMP_RET_ALLOW, 0, 0);
    const struct sock_fprog filter = {.len = program_length, .filter = program};
    return prctl(PR_SET_NO_NEW_PRIVS, 1, 0, 0, 0) == 0 &&
           prctl(PR_SET_SECCOMP, SECCOMP_MODE_FILTER, &filter) == 0;
}

/* ---- the program ---- */

#define WORK "work"

/* What is free can be had to the last grain, and not more; then work. */
static int work(void)
{
    CUcontext context;
    CUmodule module;
    CUfunction kernel;
    CUdeviceptr all = 0, more = 0;
    size_t free_bytes = 0, total = 0;
    uint64_t value = 0;
    void *parameters[] = {&value};
    if (!driver_load())
        return EXIT_NO_DRIVER;
    DRIVER_CALL(driver.cuInit(0));
    CUresult made = driver.cuDevicePrimaryCtxRetain(&context, 0);
    if (made != CUDA_SUCCESS) {
        printf("context %d\n", (int)made);
        return 0;
    }
    DRIVER_CALL(driver.cuCtxSetCurrent(context));
    DRIVER_CALL(driver.cuModuleLoadData(&module, driver_ptx));
    DRIVER_CALL(driver.cuModuleGetFunction(&kernel, module, "nop"));
    DRIVER_CALL(driver.cuMemGetInfo_v2(&free_bytes, &total));
    CUresult had = driver.cuMemAlloc_v2(&all, free_bytes / GRAIN * GRAIN);
    CUresult refused = driver.cuMemAlloc_v2(&more, GRAIN);
    for (int i = 0; i < 1000; i++)
        DRIVER_CALL(driver.cuLaunchKernel(kernel, 1, 1, 1, 1, 1, 1, 0, NULL, parameters, NULL));
    DRIVER_CALL(driver.cuCtxSynchronize());
    DRIVER_CALL(driver.cuMemFree_v2(all));
    printf("total %llu most %d had %d more %d\n", (unsigned long long)(total / MIB),
        free_bytes > LIMIT_MIB / 2 * MIB, (int)had, (int)refused);
    return 0;
}

/* ---- the test ---- */

static char directory[64], build[PATH_MAX], self[PATH_MAX];

static void begin(void)
{
    REQUIRE(scratch_make(directory));
    ssize_t length = readlink("/proc/self/exe", self, sizeof(self) - 1);
    REQUIRE(length > 0);
    self[length] = '\0';
    snprintf(build, sizeof(build), "%s", self);
    for (int i = 0; i < 3; i++)
        *strrchr(build, '/') = '\0';
}

static void set(const char *name, const char *format, ...) __attribute__((format(printf, 2, 3)));
static void set(const char *name, const char *format, ...)
{
    char value[3 * PATH_MAX];
    va_list arguments;
    va_start(arguments, format);
    vsnprintf(value, sizeof(value), format, arguments);
    va_end(arguments);
    setenv(name, value, 1);
}

/* The library comes into the program at its exec, behind the filter. */
static void start(const struct call *call, int error, int out, int err)
{
    clearenv();
    set("PATH", "/usr/bin:/bin");
    set("LD_LIBRARY_PATH", "%s/src/sim", build);
    set("LD_PRELOAD", "%s/libvgpu.so:%s/src/sim/libvgpu-sim-rm.so", build, build);
    set("VGPU_SIM", "1xh200");
    set("VGPU_SIM_MACHINE", "%s/machine", directory);
    set("VGPU_BOARD_DIR", "%s", directory);
    set("CUDA_DEVICE_MEMORY_SHARED_CACHE", "%s/region", directory);
    set("CUDA_DEVICE_MEMORY_LIMIT", "%dm", LIMIT_MIB);
    set("CUDA_DEVICE_SM_LIMIT", "50");
    dup2(out, STDOUT_FILENO);
    dup2(err, STDERR_FILENO);
    if (call && !refuse(call, error))
        _exit(EXIT_NO_FILTER);
    execl(self, self, WORK, (char *)NULL);
    _exit(127);
}

static void read_back(int fd, char *text, size_t size)
{
    ssize_t length = pread(fd, text, size - 1, 0);
    text[length > 0 ? length : 0] = '\0';
    close(fd);
}

static int open_scratch(const char *name)
{
    char path[128];
    snprintf(path, sizeof(path), "%s/%s", directory, name);
    int fd = open(path, O_RDWR | O_CREAT | O_TRUNC | O_APPEND | O_CLOEXEC, 0600);
    REQUIRE(fd >= 0);
    return fd;
}

struct run {
    int status;
    char out[256], err[4096];
};

/* So that each run makes them. */
static void remove_files(void)
{
    char path[256];
    snprintf(path, sizeof(path), "%s/region", directory);
    unlink(path);
    snprintf(path, sizeof(path), "rm -f %s/vgpu-board-*", directory);
    REQUIRE(system(path) == 0);
}

static struct run run_once(const struct call *call, int error)
{
    struct run done;
    int out = open_scratch("out"), err = open_scratch("err");
    remove_files();
    pid_t pid = fork();
    REQUIRE(pid >= 0);
    if (!pid) {
        alarm(RUN_SECONDS);
        start(call, error, out, err);
    }
    REQUIRE(waitpid(pid, &done.status, 0) == pid);
    read_back(out, done.out, sizeof(done.out));
    read_back(err, done.err, sizeof(done.err));
    if (WIFEXITED(done.status) && WEXITSTATUS(done.status) == EXIT_NO_FILTER)
        SKIP("no system-call filter can be set here");
    return done;
}

/* Where two threads meet at the simulator's machine, and futexes are refused, the C library ends
 * the program as it unlocks the simulator's mutex: such a run says nothing of ours. */
#define C_LIBRARY_ENDS "The futex facility returned an unexpected error code."
#define TRIES 20

static struct run run(const struct call *call, int error)
{
    struct run done = run_once(call, error);
    for (int i = 1; i < TRIES && WIFSIGNALED(done.status) && strstr(done.err, C_LIBRARY_ENDS); i++)
        done = run_once(call, error);
    return done;
}

static int count(const char *text, const char *word)
{
    int found = 0;
    while ((text = strstr(text, word)) != NULL) {
        found++;
        text += strlen(word);
    }
    return found;
}

static const int errors[] = {EPERM, EACCES, ENOSYS};

static void check_each(const struct call *calls, size_t many, bool has_region)
{
    char limited[64];
    begin();
    snprintf(limited, sizeof(limited), "total %d most 1 had 0 more 2\n", LIMIT_MIB);
    struct run plain = run(NULL, 0);
    REQUIRE(CHECK_EQ(plain.status, 0) && CHECK_STR(plain.out, limited));
    for (size_t i = 0; i < many; i++) {
        for (size_t e = 0; e < sizeof(errors) / sizeof(errors[0]); e++) {
            struct run done = run(&calls[i], errors[e]);
            bool right = CHECK_EQ(done.status, 0);
            right &= CHECK_STR(done.out, has_region ? limited : "context 2\n");
            right &= has_region || CHECK_EQ(count(done.err, "the device is treated as full"), 1);
            if (!right)
                dprintf(STDOUT_FILENO, "# %s is refused with %s: %s\n", calls[i].name,
                    strerror(errors[e]), done.err);
        }
    }
}

#define EACH(calls) calls, sizeof(calls) / sizeof((calls)[0])

TEST("refused calls on files and locks: the program is limited and works")
{
    check_each(EACH(files), true);
}

TEST("refused calls on memory: the program is limited and works")
{
    check_each(EACH(memory), true);
}

TEST("refused ways to wait: the program is limited and works")
{
    check_each(EACH(waits), true);
}

TEST("refused calls on threads, signals and others: the program is limited and works")
{
    check_each(EACH(others), true);
}

TEST("where the region's file cannot be had at all the device is full, and one line says why")
{
    check_each(EACH(needed), false);
}

int main(int argc, char **argv)
{
    return argc == 2 && !strcmp(argv[1], WORK) ? work() : check_run(argc, argv);
}
