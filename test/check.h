/* SPDX-License-Identifier: Apache-2.0 */
/* A test harness in one header: tests are sentences, the output is TAP.
 * Each test runs in a forked process of its own, in a process group of its own: what it breaks, and
 * the static state that it leaves, is its own. docs/testing.md tells how to write one. */
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
#include <sys/wait.h>
#include <time.h>
#include <unistd.h>

#define CHECK_TESTS_MAX 64
/* After which a test counts as hung: several times what the longest takes on a slow machine. */
#define CHECK_TEST_SECONDS 240
#define CHECK_EXIT_SKIPPED 77

struct check_test {
    const char *sentence;
    void (*body)(void);
};

/* Shared with all processes of a test, so that a check may fail in any of them. */
struct check_shared {
    int failures;
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

/* Ends the test: it cannot be done here. From the test's own process only. */
#define SKIP(reason) check_skip(reason)

static inline void check_add(const char *sentence, void (*body)(void))
{
    if (check_count == CHECK_TESTS_MAX)
        abort();
    check_tests[check_count++] = (struct check_test){sentence, body};
}

static inline void check_note_failure(void)
{
    __atomic_fetch_add(&check_shared->failures, 1, __ATOMIC_RELAXED);
}

static inline bool check_true(const char *file, int line, const char *text, bool passed)
{
    if (!passed) {
        dprintf(STDOUT_FILENO, "# %s:%d: %s is false\n", file, line, text);
        check_note_failure();
    }
    return passed;
}

static inline bool check_equal(const char *file, int line, const char *got_text,
    const char *wanted_text, long long got, long long wanted)
{
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
    _exit(CHECK_EXIT_SKIPPED);
}

/* Waits for the test's process; false where it took too long. */
static inline bool check_wait(pid_t pid, int *ret_status)
{
    const struct timespec pause = {.tv_nsec = 2000000};
    struct timespec start, now;
    clock_gettime(CLOCK_MONOTONIC, &start);
    for (;;) {
        if (waitpid(pid, ret_status, WNOHANG) == pid)
            return true;
        clock_gettime(CLOCK_MONOTONIC, &now);
        if (now.tv_sec - start.tv_sec > CHECK_TEST_SECONDS)
            return false;
        nanosleep(&pause, NULL);
    }
}

static inline bool check_run_one(int number, const struct check_test *test)
{
    memset(check_shared, 0, sizeof(*check_shared));
    pid_t pid = fork();
    if (pid == 0) {
        setpgid(0, 0);
        test->body();
        _exit(0);
    }
    setpgid(pid, pid);
    int status = 0;
    bool ended = check_wait(pid, &status);
    kill(-pid, SIGKILL);
    if (!ended)
        waitpid(pid, &status, 0);
    bool skipped = ended && WIFEXITED(status) && WEXITSTATUS(status) == CHECK_EXIT_SKIPPED &&
                   !check_shared->failures;
    bool passed = skipped || (ended && WIFEXITED(status) && WEXITSTATUS(status) == 0 &&
                                 !check_shared->failures);
    if (!ended)
        printf("# still running after %d s\n", CHECK_TEST_SECONDS);
    else if (WIFSIGNALED(status))
        printf("# killed by signal %d\n", WTERMSIG(status));
    printf("%sok %d - %s%s%s\n", passed ? "" : "not ", number, test->sentence,
        skipped ? " # SKIP " : "", skipped ? check_shared->skip_reason : "");
    fflush(stdout);
    return passed;
}

/* The lines of VGPU_TEST_ONLY, taken out of the environment; NULL where it is not set. */
static inline char *check_take_only(void)
{
    const char *lines = getenv("VGPU_TEST_ONLY");
    char *copy = lines ? strdup(lines) : NULL;
    unsetenv("VGPU_TEST_ONLY");
    return copy;
}

static inline bool check_is_line(const char *lines, const char *sentence)
{
    size_t length = strlen(sentence);
    for (const char *line = lines; line; line = strchr(line, '\n')) {
        line += *line == '\n';
        if (!strncmp(line, sentence, length) && (line[length] == '\n' || !line[length]))
            return true;
    }
    return false;
}

/* Runs the tests whose sentence contains an argument; without one, those that are lines of
 * VGPU_TEST_ONLY (scripts/test sets it); without that, all. The exit status for main. */
static inline int check_run(int argc, char **argv)
{
    check_shared = mmap(
        NULL, sizeof(*check_shared), PROT_READ | PROT_WRITE, MAP_SHARED | MAP_ANONYMOUS, -1, 0);
    if (check_shared == MAP_FAILED)
        return 1;
    int chosen = 0, failed = 0;
    char *only = check_take_only();
    for (int i = 0; i < check_count; i++) {
        bool wanted = argc < 2 && (!only || check_is_line(only, check_tests[i].sentence));
        for (int a = 1; a < argc; a++)
            wanted |= strstr(check_tests[i].sentence, argv[a]) != NULL;
        if (wanted)
            check_tests[chosen++] = check_tests[i];
    }
    free(only);
    printf("1..%d\n", chosen);
    fflush(stdout);
    for (int i = 0; i < chosen; i++)
        failed += !check_run_one(i + 1, &check_tests[i]);
    return failed != 0;
}

#endif
