/* SPDX-License-Identifier: Apache-2.0 */
/* How processes end and how they make others: each end gives the memory back and keeps its status,
 * and children of every kind leave their parent's account alone. */
#include "abi/nvml.h"
#include "allocate.h"
#include "bed.h"

#include <dirent.h>
#include <dlfcn.h>
#include <pthread.h>
#include <sched.h>
#include <spawn.h>
#include <sys/resource.h>
#include <sys/stat.h>
#include <sys/syscall.h>
#include <sys/time.h>

#define LIMIT "3GiB"
#define SIZE (3 * GIB / 2) /* beside two contexts, two of them do not fit */
#define THREADS 4

extern char **environ;

static CUdeviceptr held;

static void take(void)
{
    bed_context(0);
    REQUIRE(CU(cuMemAlloc_v2)(&held, SIZE) == CUDA_SUCCESS);
}

static bool is_free(void)
{
    CUdeviceptr pointer;
    CUresult result = CU(cuMemAlloc_v2)(&pointer, SIZE);
    if (result == CUDA_SUCCESS)
        CHECK_EQ(CU(cuMemFree_v2)(pointer), CUDA_SUCCESS);
    return result == CUDA_SUCCESS;
}

/* The process ends so, and what it held can be had at once. */
static void check_end(void (*life)(void *), int wanted_status)
{
    int status = -1;
    pid_t pid = bed_fork(life, NULL);
    REQUIRE(waitpid(pid, &status, 0) == pid);
    CHECK_EQ(status, wanted_status);
    bed_context(0);
    CHECK(is_free());
    CHECK_EQ(bed_region_bytes(0), allocation_charged());
    if (!strcmp(bed_ledger(), "rm"))
        CHECK_EQ(bed_card_bytes(0), allocation_charged());
}

static void end_by_exit(void *argument)
{
    (void)argument;
    take();
    exit(3);
}

BED_TEST("exit() without freeing", .limit = LIMIT)
{
    check_end(end_by_exit, 3 << 8);
}

static void *exit_thread(void *argument)
{
    (void)argument;
    exit(4);
}

static void end_by_thread(void *argument)
{
    pthread_t thread;
    (void)argument;
    take();
    REQUIRE(pthread_create(&thread, NULL, exit_thread, NULL) == 0);
    for (;;)
        pause();
}

BED_TEST("exit() in another thread", .limit = LIMIT)
{
    check_end(end_by_thread, 4 << 8);
}

static void without_core(void)
{
    setrlimit(RLIMIT_CORE, &(struct rlimit){0, 0});
}

static void end_in_handler(int number)
{
    (void)number;
    exit(5);
}

/* Wherever in the library the thread is; never in the loader, which would wait for itself. */
static void end_by_handler_of_signal(void *argument)
{
    const struct itimerval soon = {.it_value = {0, 5000 + 337 * *(int *)argument}};
    __typeof__(&cuMemAlloc_v2) allocate = CU(cuMemAlloc_v2);
    __typeof__(&cuMemFree_v2) release = CU(cuMemFree_v2);
    CUdeviceptr pointer;
    bed_context(0);
    signal(SIGALRM, end_in_handler);
    REQUIRE(setitimer(ITIMER_REAL, &soon, NULL) == 0);
    for (;;) {
        if (allocate(&pointer, 1 << 20) == CUDA_SUCCESS)
            (void)release(pointer);
    }
}

static void check_ends_in_handlers(void)
{
    for (int i = 0; i < 60; i++) {
        int status = -1;
        pid_t pid = bed_fork(end_by_handler_of_signal, &i);
        REQUIRE(waitpid(pid, &status, 0) == pid);
        CHECK_EQ(status, 5 << 8);
    }
}

BED_TEST("exit() in a signal's handler, in the midst of calls", .limit = LIMIT)
{
    check_ends_in_handlers();
}

BED_TEST("exit() in a signal's handler, where a report is written at the end", .limit = LIMIT)
{
    char reports[PATH_MAX];
    snprintf(reports, sizeof(reports), "%s/reports", bed_directory());
    REQUIRE(mkdir(reports, 0700) == 0);
    setenv("VGPU_REPORT_DIR", reports, 1);
    check_ends_in_handlers();
}

static void end_by_abort(void *argument)
{
    (void)argument;
    without_core();
    take();
    abort();
}

BED_TEST("abort()", .limit = LIMIT)
{
    check_end(end_by_abort, SIGABRT);
}

static void end_by_fault(void *argument)
{
    (void)argument;
    without_core();
    take();
    volatile uintptr_t nowhere = 16;
    *(volatile int *)nowhere = 1;
}

BED_TEST("a segmentation fault", .limit = LIMIT)
{
    check_end(end_by_fault, SIGSEGV);
}

static int answers; /* what a handler at exit was answered, as the exit status */

static void call_at_exit(void)
{
    CUdeviceptr pointer;
    size_t free, total;
    alarm(20); /* a hang ends by SIGALRM */
    answers += CU(cuMemGetInfo_v2)(&free, &total) == CUDA_SUCCESS;
    answers += CU(cuMemAlloc_v2)(&pointer, 64 * MIB) == CUDA_SUCCESS;
    answers += CU(cuMemFree_v2)(pointer) == CUDA_SUCCESS;
    answers += CU(cuMemFree_v2)(held) == CUDA_SUCCESS;
    _exit(answers);
}

static void end_by_handler(void *argument)
{
    (void)argument;
    REQUIRE(atexit(call_at_exit) == 0); /* runs after the libraries that are loaded later */
    take();
    exit(0);
}

BED_TEST("a handler at exit that calls CUDA is served", .limit = LIMIT)
{
    check_end(end_by_handler, 4 << 8);
}

static bool calls_at_unload;

__attribute__((destructor)) static void call_at_unload(void)
{
    if (calls_at_unload)
        call_at_exit();
}

static void end_by_destructor(void *argument)
{
    (void)argument;
    calls_at_unload = true;
    take();
    exit(0);
}

BED_TEST("a destructor that calls CUDA is served", .limit = LIMIT)
{
    check_end(end_by_destructor, 4 << 8);
}

/* By a handle of its own, the program's only one. */
static void use_and_close(void)
{
    CUcontext current;
    CUdeviceptr pointer;
    void *library = dlopen("libcuda.so.1", RTLD_NOW);
    REQUIRE(library != NULL);
    __typeof__(cuInit) *init = dlsym(library, "cuInit");
    __typeof__(cuDevicePrimaryCtxRetain) *retain = dlsym(library, "cuDevicePrimaryCtxRetain");
    __typeof__(cuCtxSetCurrent) *set = dlsym(library, "cuCtxSetCurrent");
    __typeof__(cuMemAlloc_v2) *alloc = dlsym(library, "cuMemAlloc_v2");
    __typeof__(cuMemFree_v2) *release = dlsym(library, "cuMemFree_v2");
    CHECK_EQ(init(0), CUDA_SUCCESS);
    CHECK_EQ(retain(&current, 0), CUDA_SUCCESS);
    CHECK_EQ(set(current), CUDA_SUCCESS);
    CHECK_EQ(alloc(&pointer, 3 * GIB), CUDA_ERROR_OUT_OF_MEMORY);
    CHECK_EQ(alloc(&pointer, SIZE), CUDA_SUCCESS);
    CHECK_EQ(release(pointer), CUDA_SUCCESS);
    CHECK_EQ(dlclose(library), 0);
}

BED_TEST("a program that closes the driver and opens it again goes on", .limit = LIMIT)
{
    for (int i = 0; i < 8; i++)
        use_and_close();
    CHECK_EQ(bed_region()->slot_high, 1);
    CHECK(bed_card_bytes(0) <= allocation_charged());
}

static unsigned count_descriptors(void)
{
    DIR *directory = opendir("/proc/self/fd");
    unsigned count = 0;
    while (readdir(directory))
        count++;
    closedir(directory);
    return count;
}

static bool stop;
static CUcontext context;

static void *churn(void *argument)
{
    CUdeviceptr pointer;
    __typeof__(cuMemAlloc_v2) *alloc = CU(cuMemAlloc_v2);
    __typeof__(cuMemFree_v2) *release = CU(cuMemFree_v2);
    (void)argument;
    CU(cuCtxSetCurrent)(context);
    while (!__atomic_load_n(&stop, __ATOMIC_RELAXED)) {
        CHECK_EQ(alloc(&pointer, 4 * MIB), CUDA_SUCCESS);
        CHECK_EQ(release(pointer), CUDA_SUCCESS);
    }
    return NULL;
}

static char *const true_argv[] = {"true", NULL};

static pid_t leave_at_once(void)
{
    pid_t pid = fork();
    if (pid == 0)
        _exit(0);
    return pid;
}

static pid_t fork_and_exec(void)
{
    pid_t pid = fork();
    if (pid == 0) {
        execvp("true", true_argv);
        _exit(1);
    }
    return pid;
}

static pid_t vfork_and_exec(void)
{
    pid_t pid = vfork(); // NOLINT(clang-analyzer-security.insecureAPI.vfork)
    if (pid == 0) {
        execvp("true", true_argv);
        _exit(1);
    }
    return pid;
}

static pid_t spawn(void)
{
    pid_t pid = -1;
    return posix_spawnp(&pid, "true", NULL, NULL, true_argv, environ) == 0 ? pid : -1;
}

BED_TEST("children of a process whose threads allocate leave its account and descriptors alone",
    .limit = LIMIT)
{
    pid_t (*const ways[])(void) = {leave_at_once, fork_and_exec, vfork_and_exec, spawn};
    pthread_t threads[THREADS];
    take();
    CU(cuCtxGetCurrent)(&context);
    uint64_t before = allocation_charged();
    unsigned descriptors = count_descriptors();
    for (int i = 0; i < THREADS; i++)
        REQUIRE(pthread_create(&threads[i], NULL, churn, NULL) == 0);
    for (unsigned i = 0; i < 100; i++)
        CHECK(bed_ended_well(ways[i % 4]()));
    __atomic_store_n(&stop, true, __ATOMIC_RELAXED);
    for (int i = 0; i < THREADS; i++)
        pthread_join(threads[i], NULL);
    CHECK_EQ(allocation_charged(), before);
    CHECK_EQ(bed_region_bytes(0), before);
    CHECK_EQ(count_descriptors(), descriptors);
    CHECK_EQ(bed_region()->slot_high, 1);
}

static char stack[1 << 20] __attribute__((aligned(16)));

static int share_memory(void *argument)
{
    CUdeviceptr pointer;
    (void)argument;
    bool good = CU(cuCtxSetCurrent)(context) == CUDA_SUCCESS &&
                CU(cuMemAlloc_v2)(&pointer, 64 * MIB) == CUDA_SUCCESS &&
                CU(cuMemFree_v2)(pointer) == CUDA_SUCCESS;
    syscall(SYS_exit, good ? 0 : 1);
    return 0;
}

/* As vfork, but the parent does not use the address space meanwhile because it waits. */
BED_TEST("a child that shares the memory counts as its parent", .limit = LIMIT)
{
    take();
    CU(cuCtxGetCurrent)(&context);
    uint64_t before = allocation_charged();
    pid_t pid = clone(share_memory, stack + sizeof(stack), CLONE_VM | CLONE_VFORK | SIGCHLD, NULL);
    CHECK(bed_ended_well(pid));
    CHECK_EQ(allocation_charged(), before);
    CHECK_EQ(bed_region()->slot_high, 1);
    CHECK_EQ(CU(cuMemFree_v2)(held), CUDA_SUCCESS);
    CHECK_EQ(allocation_charged(), before - SIZE);
}

static int share_descriptors(void *argument)
{
    (void)argument;
    take();
    _exit(0);
}

/* The driver's descriptor stays open in the shared table, and with it the memory. */
BED_TEST("what a child leaves in a shared table of descriptors counts as long as the card holds it",
    .limit = LIMIT)
{
    pid_t pid = clone(share_descriptors, stack + sizeof(stack), CLONE_FILES | SIGCHLD, NULL);
    CHECK(bed_ended_well(pid));
    CHECK(bed_card_bytes(0) > SIZE);
    pid_t peer = fork();
    if (peer == 0) {
        bed_context(0);
        CHECK(!is_free());
        CHECK(bed_region_bytes(0) > SIZE + allocation_charged());
        _exit(0);
    }
    CHECK(bed_ended_well(peer));
    for (int fd = 3; fd < 1024; fd++)
        close(fd);
    CHECK_EQ(bed_card_bytes(0), 0);
    bed_context(0);
    CHECK(is_free());
}

static void use_cuda(void *argument)
{
    (void)argument;
    take();
    CHECK(allocation_charged() > SIZE);
    CHECK(bed_region_slot(getppid()) != NULL);
}

BED_TEST("a child of a process that only looked by NVML has a slot of its own", .limit = LIMIT)
{
    nvmlDevice_t device;
    nvmlMemory_t memory;
    CHECK_EQ(ML(nvmlInit_v2)(), NVML_SUCCESS);
    CHECK_EQ(ML(nvmlDeviceGetHandleByIndex_v2)(0, &device), NVML_SUCCESS);
    CHECK_EQ(ML(nvmlDeviceGetMemoryInfo)(device, &memory), NVML_SUCCESS);
    for (int i = 0; i < 3; i++)
        CHECK(bed_ended_well(bed_fork(use_cuda, NULL)));
    CHECK_EQ(ML(nvmlDeviceGetMemoryInfo)(device, &memory), NVML_SUCCESS);
    CHECK_EQ(memory.used, 0);
    CHECK_EQ(bed_region()->slot_high, 2);
}

static void *call_without_context(void *argument)
{
    CUdeviceptr pointer = 0;
    size_t free, total;
    (void)argument;
    CHECK_EQ(CU(cuMemGetInfo_v2)(&free, &total), CUDA_ERROR_INVALID_CONTEXT);
    CHECK_EQ(CU(cuMemAlloc_v2)(&pointer, MIB), CUDA_ERROR_INVALID_CONTEXT);
    CHECK_EQ(CU(cuMemAlloc_v2)(&pointer, 100 * GIB), CUDA_ERROR_INVALID_CONTEXT);
    CHECK_EQ(CU(cuMemFree_v2)(held), CUDA_ERROR_INVALID_CONTEXT);
    CHECK(CU(cuLaunchKernel)(NULL, 1, 1, 1, 1, 1, 1, 0, NULL, NULL, NULL) != CUDA_SUCCESS);
    return NULL;
}

static void check_without_context(void)
{
    pthread_t thread;
    take();
    REQUIRE(pthread_create(&thread, NULL, call_without_context, NULL) == 0);
    pthread_join(thread, NULL);
    CHECK_EQ(CU(cuMemFree_v2)(held), CUDA_SUCCESS);
}

BED_TEST("a thread without a context is answered by the driver", .native = true)
{
    check_without_context();
}

BED_TEST("and so it is under the library", .limit = LIMIT)
{
    check_without_context();
    CHECK(allocation_charged() < GIB);
}

int main(int argc, char **argv)
{
    return check_run(argc, argv);
}
