/* SPDX-License-Identifier: Apache-2.0 */
/* A test harness in one header: tests are sentences, the output is TAP.
 * Each test runs in a forked process of its own, in a process group of its own: what it breaks, and
 * the static state that it leaves, is its own. A test has passed if its body made a check,
 * returned, and no check failed; whatever it started is killed then. docs/testing.md tells how to
 * write one. */
#ifndef VGPU_TEST_CHECK_H
#define VGPU_TEST_CHECK_H

#include <errno.h>
#include <poll.h>
#include <signal.h>
#include <stdbool.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>
#include <sys/prctl.h>
#include <sys/wait.h>
#include <time.h>
#include <unistd.h>

#define CHECK_TESTS_MAX 64
/* After which a test counts as hung: several times what the longest takes on a slow machine. */
#ifndef CHECK_TEST_SECONDS
#define CHECK_TEST_SECONDS 240
#endif
#define CHECK_EXIT_SKIPPED 77
/* After which processes that do not die by SIGKILL are given up: what they do in the kernel lasts.
 */
#define CHECK_KILL_SECONDS 10
/* The name of a process that removes a test's directory (scratch.h), which outlives the test. */
#define CHECK_CLEANER "test-cleaner"

struct check_test {
    const char *sentence;
    void (*body)(void);
};

/* Shared with all processes of a test, so that a check may fail in any of them. The flags are not
 * counters, because threads that check all the time would contend for them. */
struct check_shared {
    int failures;
    bool checked; /* at least one check was made */
    bool ended;   /* the body returned, in the test's own process */
    bool skipped;
    char skip_reason[256];
};

static struct check_test check_tests[CHECK_TESTS_MAX];
static int check_count;
/* One for all files of a test. */
__attribute__((weak)) struct check_shared *check_shared;

/* TEST("a size with a fraction is taken") { ... } */
#define TEST(sentence) CHECK_TEST_AT(sentence, __LINE__)
#define CHECK_TEST_AT(sentence, line) CHECK_TEST_NAMED(sentence, line)
#define CHECK_TEST_NAMED(sentence, line)                                                           \
    static void check_body_##line(void);                                                           \
    __attribute__((constructor)) static void check_add_##line(void)                                \
    {                                                                                              \
        check_add(sentence, check_body_##line);                                                    \
    }                                                                                              \
    static void check_body_##line(void)

/* A check that fails is printed with its place, fails its test, and lets the test go on. All of
 * them answer whether they passed. */
#define CHECK(condition) check_true(__FILE__, __LINE__, #condition, (condition))
#define CHECK_EQ(got, wanted)                                                                      \
    check_equal(__FILE__, __LINE__, #got, #wanted, (long long)(got), (long long)(wanted))
#define CHECK_STR(got, wanted) check_string(__FILE__, __LINE__, #got, (got), (wanted))

/* As CHECK, but ends the calling process where it fails: what follows makes no sense then. */
#define REQUIRE(condition)                                                                         \
    do {                                                                                           \
        if (!CHECK(condition))                                                                     \
            _exit(1);                                                                              \
    } while (0)

/* For a body whose only check is that the process gets here, alive and in time. */
#define CHECK_SURVIVED() check_note()

/* Ends the test as a return from its body does, where other threads still use what lies on the
 * stack. From the test's own process only. */
#define END_TEST() check_finish()

/* Ends the test: it cannot be done here. From the test's own process only. */
#define SKIP(reason) check_skip(reason)

static inline void check_add(const char *sentence, void (*body)(void))
{
    if (check_count == CHECK_TESTS_MAX)
        abort();
    check_tests[check_count++] = (struct check_test){sentence, body};
}

/* Outside of a test (a program that a test executes again in another role) nothing is counted. */
static inline void check_note(void)
{
    if (check_shared && !__atomic_load_n(&check_shared->checked, __ATOMIC_RELAXED))
        __atomic_store_n(&check_shared->checked, true, __ATOMIC_RELAXED);
}

static inline void check_note_failure(void)
{
    if (!check_shared)
        _exit(1);
    __atomic_fetch_add(&check_shared->failures, 1, __ATOMIC_RELAXED);
}

static inline bool check_true(const char *file, int line, const char *text, bool passed)
{
    check_note();
    if (!passed) {
        dprintf(STDOUT_FILENO, "# %s:%d: %s is false\n", file, line, text);
        check_note_failure();
    }
    return passed;
}

static inline bool check_equal(const char *file, int line, const char *got_text,
    const char *wanted_text, long long got, long long wanted)
{
    check_note();
    if (got != wanted) {
        dprintf(STDOUT_FILENO, "# %s:%d: %s is %lld (%#llx), not %s = %lld (%#llx)\n", file, line,
            got_text, got, (unsigned long long)got, wanted_text, wanted,
            (unsigned long long)wanted);
        check_note_failure();
    }
    return got == wanted;
}

static inline bool check_string(
    const char *file, int line, const char *text, const char *got, const char *wanted)
{
    bool same = got && wanted ? !strcmp(got, wanted) : got == wanted;
    check_note();
    if (!same) {
        dprintf(STDOUT_FILENO, "# %s:%d: %s is \"%s\", not \"%s\"\n", file, line, text,
            got ? got : "(null)", wanted ? wanted : "(null)");
        check_note_failure();
    }
    return same;
}

__attribute__((noreturn)) static inline void check_skip(const char *reason)
{
    snprintf(check_shared->skip_reason, sizeof(check_shared->skip_reason), "%s", reason);
    check_shared->skipped = true;
    _exit(CHECK_EXIT_SKIPPED);
}

__attribute__((noreturn)) static inline void check_finish(void)
{
    check_shared->ended = true;
    _exit(0);
}

/* Waits for the test's process; false where it took too long. Orphans of the test are children of
 * this process, and are reaped meanwhile, as init would do it. */
static inline bool check_wait(pid_t pid, int *ret_status)
{
    const struct timespec pause = {.tv_nsec = 2000000};
    struct timespec start, now;
    clock_gettime(CLOCK_MONOTONIC, &start);
    for (;;) {
        int status;
        pid_t ended = waitpid(-1, &status, WNOHANG);
        if (ended == pid) {
            *ret_status = status;
            return true;
        }
        clock_gettime(CLOCK_MONOTONIC, &now);
        if (now.tv_sec - start.tv_sec > CHECK_TEST_SECONDS)
            return false;
        if (ended <= 0)
            nanosleep(&pause, NULL);
    }
}

static inline bool check_is_cleaner(pid_t pid)
{
    char path[64], name[32] = "";
    snprintf(path, sizeof(path), "/proc/%d/comm", (int)pid);
    FILE *file = fopen(path, "re");
    bool read = file && fgets(name, sizeof(name), file);
    if (file)
        fclose(file);
    return read && !strncmp(name, CHECK_CLEANER, strlen(CHECK_CLEANER));
}

/* Kills this process's children, and reaps those that are dead. How many there were: when none are
 * left, none of their descendants is. -1 where /proc does not list them: not each kernel does. */
static inline int check_kill_children(void)
{
    char path[64];
    int found = 0, pid;
    /* The number is one of our own PID namespace; a /proc of another has no such file. */
    snprintf(path, sizeof(path), "/proc/self/task/%d/children", (int)getpid());
    FILE *children = fopen(path, "re");
    if (!children)
        return -1;
    while (fscanf(children, "%d", &pid) == 1) {
        pid_t reaped = waitpid(pid, NULL, WNOHANG);
        if (reaped == 0 && check_is_cleaner(pid))
            continue;
        if (reaped == 0)
            kill(pid, SIGKILL);
        found += reaped >= 0;
    }
    fclose(children);
    return found;
}

/* Also those in sessions of their own, whose parents have ended: they are children of this process
 * then. */
static inline void check_kill_rest(void)
{
    const struct timespec pause = {.tv_nsec = 1000000};
    struct timespec start, now;
    clock_gettime(CLOCK_MONOTONIC, &start);
    while (check_kill_children() > 0) {
        clock_gettime(CLOCK_MONOTONIC, &now);
        if (now.tv_sec - start.tv_sec > CHECK_KILL_SECONDS) {
            printf("# processes of the test do not die\n");
            return;
        }
        nanosleep(&pause, NULL);
    }
}

/* Prints why it did not pass; false then. */
static inline bool check_judge(bool in_time, int status)
{
    bool ended_well = in_time && WIFEXITED(status) && WEXITSTATUS(status) == 0;
    if (!in_time)
        printf("# still running after %d s\n", CHECK_TEST_SECONDS);
    else if (WIFSIGNALED(status))
        printf("# killed by signal %d\n", WTERMSIG(status));
    else if (!check_shared->failures && !check_shared->ended)
        printf("# the process ended with status %d before its body did\n", WEXITSTATUS(status));
    else if (!check_shared->failures && !check_shared->checked)
        printf("# nothing was checked\n");
    return ended_well && check_shared->ended && check_shared->checked && !check_shared->failures;
}

static inline void check_run_body(const struct check_test *test)
{
    pid_t own = getpid();
    setpgid(0, 0);
    test->body();
    if (getpid() != own) /* a child that it forked returned as well */
        _exit(0);
    check_finish();
}

static inline bool check_run_one(int number, const struct check_test *test)
{
    memset(check_shared, 0, sizeof(*check_shared));
    pid_t pid = fork();
    if (pid == 0)
        check_run_body(test);
    setpgid(pid, pid);
    int status = 0;
    bool in_time = check_wait(pid, &status);
    kill(-pid, SIGKILL);
    if (!in_time)
        waitpid(pid, &status, 0);
    check_kill_rest();
    bool skipped = in_time && WIFEXITED(status) && WEXITSTATUS(status) == CHECK_EXIT_SKIPPED &&
                   check_shared->skipped && !check_shared->failures;
    bool passed = skipped || check_judge(in_time, status);
    printf("%sok %d - %s%s%s\n", passed ? "" : "not ", number, test->sentence,
        skipped ? " # SKIP " : "", skipped ? check_shared->skip_reason : "");
    fflush(stdout);
    return passed;
}

/* Runs the tests whose sentence contains an argument; without one, all. The exit status for main.
 */
static inline int check_run(int argc, char **argv)
{
    check_shared = mmap(
        NULL, sizeof(*check_shared), PROT_READ | PROT_WRITE, MAP_SHARED | MAP_ANONYMOUS, -1, 0);
    if (check_shared == MAP_FAILED)
        return 1;
    prctl(PR_SET_CHILD_SUBREAPER, 1);
    int chosen = 0, failed = 0;
    for (int i = 0; i < check_count; i++) {
        bool wanted = argc < 2;
        for (int a = 1; a < argc; a++)
            wanted |= strstr(check_tests[i].sentence, argv[a]) != NULL;
        if (wanted)
            check_tests[chosen++] = check_tests[i];
    }
    printf("1..%d\n", chosen);
    fflush(stdout);
    for (int i = 0; i < chosen; i++)
        failed += !check_run_one(i + 1, &check_tests[i]);
    return failed != 0;
}

#endif
