/* SPDX-License-Identifier: Apache-2.0 */
/* state: prints what a program with CUDA finds of itself after each of its steps: its signals,
 * masks, threads, low descriptors, environment, limits and timers. It has a few settings of its
 * own. Without and with the library it prints the same (own.py). */
#define _GNU_SOURCE
#include "driver.h"

#include "abi/nvml.h"

#include <dlfcn.h>
#include <fcntl.h>
#include <locale.h>
#include <pthread.h>
#include <sched.h>
#include <signal.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/prctl.h>
#include <sys/resource.h>
#include <sys/stat.h>
#include <sys/time.h>
#include <unistd.h>

#define LOW_DESCRIPTORS 40
#define TOO_MUCH (200ull << 30)

extern char **environ;

static void on_signal(int number)
{
    (void)number;
}

static void on_fault(int number, siginfo_t *info, void *context)
{
    (void)number;
    (void)info;
    (void)context;
}

static void set_own(void)
{
    static char stack[65536];
    struct sigaction fault = {.sa_sigaction = on_fault, .sa_flags = SA_SIGINFO | SA_ONSTACK};
    sigset_t blocked;
    signal(SIGTERM, SIG_IGN);
    signal(SIGHUP, on_signal);
    sigaddset(&fault.sa_mask, SIGINT);
    sigaction(SIGBUS, &fault, NULL);
    sigaltstack(&(stack_t){.ss_sp = stack, .ss_size = sizeof(stack)}, NULL);
    sigemptyset(&blocked);
    sigaddset(&blocked, SIGURG);
    sigaddset(&blocked, SIGSEGV);
    pthread_sigmask(SIG_BLOCK, &blocked, NULL);
    umask(031);
    setitimer(ITIMER_REAL, &(struct itimerval){.it_value.tv_sec = 100000}, NULL);
    prctl(PR_SET_NAME, "of its own");
    prctl(PR_SET_PDEATHSIG, SIGWINCH);
}

static const char *action_name(const struct sigaction *action)
{
    if (action->sa_handler == SIG_DFL)
        return "default";
    if (action->sa_handler == SIG_IGN)
        return "ignored";
    return action->sa_sigaction == on_fault  ? "fault"
           : action->sa_handler == on_signal ? "own"
                                             : "another";
}

static void print_set(const char *what, const sigset_t *set)
{
    printf("  %s", what);
    for (int number = 1; number <= SIGRTMAX; number++) {
        if (sigismember(set, number) > 0)
            printf(" %d", number);
    }
    printf("\n");
}

static void print_signals(void)
{
    sigset_t set;
    stack_t stack;
    for (int number = 1; number <= SIGRTMAX; number++) {
        struct sigaction action;
        if (sigaction(number, NULL, &action) != 0 ||
            (action.sa_handler == SIG_DFL && !action.sa_flags))
            continue;
        printf(
            "  signal %d %s flags %#x\n", number, action_name(&action), (unsigned)action.sa_flags);
        print_set("within", &action.sa_mask);
    }
    pthread_sigmask(SIG_BLOCK, NULL, &set);
    print_set("blocked", &set);
    sigpending(&set);
    print_set("pending", &set);
    sigaltstack(NULL, &stack);
    printf("  stack %zu %d\n", stack.ss_size, stack.ss_flags);
}

/* Lines of the thread's status that do not change by themselves. */
static void print_status(void)
{
    static const char *const names[] = {"Name:", "Umask:", "TracerPid:", "Threads:", "SigQ:",
        "SigBlk:", "SigIgn:", "SigCgt:", "CapEff:", "NoNewPrivs:", "Seccomp:", "Cpus_allowed:"};
    char line[512];
    FILE *status = fopen("/proc/thread-self/status", "re");
    while (status && fgets(line, sizeof(line), status)) {
        for (size_t i = 0; i < sizeof(names) / sizeof(names[0]); i++) {
            if (!strncmp(line, names[i], strlen(names[i])) && strcmp(names[i], "SigQ:") != 0)
                printf("  %s", line);
        }
    }
    if (status)
        fclose(status);
}

static void print_descriptors(void)
{
    printf("  descriptors");
    for (int fd = 0; fd < LOW_DESCRIPTORS; fd++) {
        int flags = fcntl(fd, F_GETFL), own = fcntl(fd, F_GETFD);
        if (flags >= 0)
            printf(" %d:%#x:%d", fd, (unsigned)flags, own);
    }
    printf("\n");
}

static void print_environment(void)
{
    unsigned count = 0;
    unsigned long hash = 5381;
    for (char **entry = environ; *entry; entry++) {
        if (!strncmp(*entry, "LD_PRELOAD=", 11))
            continue;
        count++;
        for (const char *c = *entry; *c; c++)
            hash = hash * 33 + (unsigned char)*c;
    }
    printf("  environment %u %lx locale %s\n", count, hash, setlocale(LC_ALL, NULL));
}

static void print_rest(void)
{
    int death = 0;
    char directory[4096];
    struct itimerval timer;
    prctl(PR_GET_PDEATHSIG, &death);
    getitimer(ITIMER_REAL, &timer);
    printf("  directory %s death %d dumpable %d timer %d slack %d nice %d policy %d errno-free\n",
        getcwd(directory, sizeof(directory)) ? directory : "", death,
        prctl(PR_GET_DUMPABLE, 0, 0, 0, 0), timer.it_value.tv_sec > 90000,
        prctl(PR_GET_TIMERSLACK, 0, 0, 0, 0), getpriority(PRIO_PROCESS, 0), sched_getscheduler(0));
    for (int resource = 0; resource < RLIMIT_NLIMITS; resource++) {
        struct rlimit limit;
        if (getrlimit((__rlimit_resource_t)resource, &limit) == 0)
            printf("  limit %d %llx %llx\n", resource, (unsigned long long)limit.rlim_cur,
                (unsigned long long)limit.rlim_max);
    }
}

static void tell(const char *step)
{
    printf("%s\n", step);
    print_signals();
    print_status();
    print_descriptors();
    print_environment();
    print_rest();
}

static void look_by_nvml(void)
{
    void *library = dlopen("libnvidia-ml.so.1", RTLD_NOW);
    nvmlReturn_t (*init)(void) =
        library ? (nvmlReturn_t(*)(void))dlsym(library, "nvmlInit_v2") : NULL;
    if (!init || init() != NVML_SUCCESS)
        exit(1);
}

static void *in_thread(void *argument)
{
    CUdeviceptr pointer;
    DRIVER_CALL(driver.cuCtxSetCurrent(argument));
    DRIVER_CALL(driver.cuMemAlloc_v2(&pointer, 64 << 20));
    tell("in a thread");
    DRIVER_CALL(driver.cuMemFree_v2(pointer));
    return NULL;
}

static void at_end(void)
{
    tell("at exit");
}

int main(void)
{
    CUcontext context;
    CUdeviceptr pointer, large;
    pthread_t thread;
    set_own();
    tell("start");
    if (!driver_load())
        return 77;
    tell("loaded");
    look_by_nvml();
    tell("NVML");
    DRIVER_CALL(driver.cuInit(0));
    tell("cuInit");
    DRIVER_CALL(driver.cuDevicePrimaryCtxRetain(&context, 0));
    DRIVER_CALL(driver.cuCtxSetCurrent(context));
    tell("context");
    DRIVER_CALL(driver.cuMemAlloc_v2(&pointer, 64 << 20));
    tell("allocation");
    if (driver.cuMemAlloc_v2(&large, TOO_MUCH) != CUDA_ERROR_OUT_OF_MEMORY)
        return 1;
    tell("refusal");
    if (pthread_create(&thread, NULL, in_thread, context) != 0)
        return 1;
    pthread_join(thread, NULL);
    DRIVER_CALL(driver.cuMemFree_v2(pointer));
    tell("freed");
    atexit(at_end);
    return 3;
}
