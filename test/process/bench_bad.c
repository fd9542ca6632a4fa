/* SPDX-License-Identifier: Apache-2.0 */
/* A library that behaves badly, for bench.py: BAD says how, and BAD_IN in which of vgpu-bench's
 * processes (a word of its command line; all without it). BAD_MASKS is a file to which it writes
 * what threads are pinned to. */
#include <dlfcn.h>
#include <fcntl.h>
#include <sched.h>
#include <signal.h>
#include <stdbool.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/syscall.h>
#include <time.h>
#include <unistd.h>

#define SLEEP_S 1 /* of a drowsy process: longer than a test's load is at work */
#define LATE_S 6  /* of a late one: longer than all waits of the bench for its begin */

static bool has_word(const char *word)
{
    char line[4096];
    int fd = open("/proc/self/cmdline", O_RDONLY | O_CLOEXEC);
    ssize_t length = fd < 0 ? 0 : read(fd, line, sizeof(line) - 1);
    if (fd >= 0)
        close(fd);
    line[length > 0 ? length : 0] = '\0';
    for (ssize_t at = 0; at < length; at += (ssize_t)strlen(line + at) + 1) {
        if (!strcmp(line + at, word))
            return true;
    }
    return false;
}

/* In a session of its own, as a daemon, where a group's kill does not reach it. */
static void leave_a_daemon(void)
{
    if (fork() != 0)
        return;
    setsid();
    if (fork() != 0)
        _exit(0);
    for (;;)
        pause();
}

/* Whether this process is to behave so. */
static bool is_to(const char *behave)
{
    const char *how = getenv("BAD"), *where = getenv("BAD_IN");
    return how && !strcmp(how, behave) && (!where || has_word(where));
}

/* "drowse": its short sleeps are long, so that a load ends behind its first request. */
__attribute__((visibility("default"))) int nanosleep(
    const struct timespec *wanted, struct timespec *left)
{
    static const struct timespec longer = {.tv_sec = SLEEP_S};
    return (int)syscall(SYS_nanosleep, is_to("drowse") ? &longer : wanted, left);
}

/* "surge": before it says what it was given it has 64 MiB more for a moment. */
static void surge(void)
{
    static const struct timespec moment = {.tv_nsec = 200000000};
    static unsigned calls; /* it says that it is ready first */
    unsigned long long pointer;
    int (*take)(unsigned long long *, size_t), (*give)(unsigned long long);
    void *driver = calls++ == 1 ? dlopen("libcuda.so.1", RTLD_NOW) : NULL;
    if (!driver)
        return;
    *(void **)&take = dlsym(driver, "cuMemAlloc_v2");
    *(void **)&give = dlsym(driver, "cuMemFree_v2");
    if (take(&pointer, 64u << 20) != 0)
        raise(SIGABRT);
    (void)syscall(SYS_nanosleep, &moment, NULL);
    give(pointer);
}

__attribute__((visibility("default"))) int flush_late(FILE *file) __asm__("fflush");
int flush_late(FILE *file)
{
    int (*real)(FILE *);
    *(void **)&real = dlsym(RTLD_NEXT, "fflush");
    if (is_to("surge"))
        surge();
    return real(file);
}

/* "late": it has a context, but is slow to read its calibration, and so begins late. */
__attribute__((visibility("default"))) FILE *open_late(const char *path, const char *mode) __asm__(
    "fopen");
FILE *open_late(const char *path, const char *mode)
{
    static const struct timespec late = {.tv_sec = LATE_S};
    FILE *(*real)(const char *, const char *);
    *(void **)&real = dlsym(RTLD_NEXT, "fopen");
    if (strstr(path, "/calibration") && is_to("late"))
        (void)syscall(SYS_nanosleep, &late, NULL);
    return real(path, mode);
}

/* "WORKER PID TID CPU...", of the calling thread. */
__attribute__((visibility("default"))) int sched_setaffinity(
    pid_t pid, size_t size, const cpu_set_t *mask)
{
    const char *path = getenv("BAD_MASKS");
    char line[4096];
    int length = snprintf(line, sizeof(line), "%s %d %ld", has_word("crowd") ? "crowd" : "cost",
        getpid(), pid ? (long)pid : syscall(SYS_gettid));
    for (int cpu = 0; cpu < CPU_SETSIZE && length < (int)sizeof(line) - 8; cpu++) {
        if (CPU_ISSET_S(cpu, size, mask))
            length += snprintf(line + length, sizeof(line) - (size_t)length, " %d", cpu);
    }
    line[length++] = '\n';
    int fd = path ? open(path, O_WRONLY | O_CREAT | O_APPEND | O_CLOEXEC, 0644) : -1;
    if (fd >= 0) {
        if (write(fd, line, (size_t)length) < 0)
            raise(SIGABRT);
        close(fd);
    }
    return (int)syscall(SYS_sched_setaffinity, pid, size, mask);
}

__attribute__((constructor)) static void behave(void)
{
    if (is_to("crash"))
        raise(SIGSEGV);
    if (is_to("daemon"))
        leave_a_daemon();
    while (is_to("hang"))
        pause();
}
