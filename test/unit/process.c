/* SPDX-License-Identifier: Apache-2.0 */
/* What /proc tells of processes with hostile names, ended ones, and others. */
#include "base/process.h"

#include "check.h"

#include <pthread.h>
#include <sched.h>
#include <sys/prctl.h>

static void sleep_ms(long ms)
{
    nanosleep(&(struct timespec){.tv_sec = ms / 1000, .tv_nsec = ms % 1000 * 1000000}, NULL);
}

TEST("the calling process is known by 0 and by its pid alike")
{
    struct process_status by_zero = {.ended = true}, by_pid = {.ended = true};
    CHECK_EQ(process_status(0, &by_zero), 0);
    CHECK(!by_zero.ended);
    CHECK_EQ(process_status((int)getpid(), &by_pid), 0);
    CHECK_EQ(by_zero.start_time, by_pid.start_time);
    CHECK_EQ(by_zero.stack_start, by_pid.stack_start);
    CHECK(by_zero.start_time > 0);
    CHECK((uintptr_t)&by_zero < by_zero.stack_start);
}

TEST("a command with blanks and parentheses does not shift the start time")
{
    static const char *const names[] = {
        "a b", "a) R 1 2 3", ") Z 1 (", "((((", "))))", " ) ) )", "1 2 3 4 5 6 7 8", "", "\n) Z 0"};
    struct process_status known, status;
    REQUIRE(process_status(0, &known) == 0);
    for (size_t i = 0; i < sizeof(names) / sizeof(names[0]); i++) {
        status = (struct process_status){0};
        REQUIRE(prctl(PR_SET_NAME, names[i]) == 0);
        CHECK_EQ(process_status((int)getpid(), &status), 0);
        if (!CHECK_EQ(status.start_time, known.start_time) ||
            !CHECK_EQ(status.stack_start, known.stack_start) || !CHECK(!status.ended))
            printf("# command \"%s\"\n", names[i]);
    }
}

TEST("a command's name is read, cut and terminated")
{
    char name[32], small[4];
    prctl(PR_SET_NAME, "a) b");
    process_command(name, sizeof(name));
    CHECK_STR(name, "a) b");
    process_command(small, sizeof(small));
    CHECK_STR(small, "a) ");
    prctl(PR_SET_NAME, "a-name-that-is-too-long");
    process_command(name, sizeof(name));
    CHECK_STR(name, "a-name-that-is-");
}

TEST("a process that has ended but was not waited for is said to have ended")
{
    struct process_status status = {.ended = false};
    pid_t pid = fork();
    if (pid == 0)
        _exit(0);
    for (int i = 0; i < 500 && !status.ended; i++) {
        CHECK_EQ(process_status((int)pid, &status), 0);
        sleep_ms(2);
    }
    CHECK(status.ended);
    waitpid(pid, NULL, 0);
    CHECK_EQ(process_status((int)pid, &status), -ESRCH);
}

static void *wait_for_close(void *pipe_end)
{
    char byte;
    return read(*(int *)pipe_end, &byte, 1) == 0 ? NULL : pipe_end;
}

/* The letter in /proc/<pid>/stat, which is the first thread's. */
static char first_thread_state(pid_t pid)
{
    char path[64], text[512] = "";
    snprintf(path, sizeof(path), "/proc/%d/stat", (int)pid);
    FILE *file = fopen(path, "r");
    const char *end = file && fgets(text, sizeof(text), file) ? strrchr(text, ')') : NULL;
    if (file)
        fclose(file);
    return end ? end[2] : '?';
}

/* So it is for a moment of each killed process with threads: the last of them takes the descriptors
 * down, and the driver's memory with them. */
TEST("a process whose first thread has ended has not, while another thread lives")
{
    struct process_status status = {.ended = true};
    int ends[2];
    REQUIRE(pipe(ends) == 0);
    pid_t pid = fork();
    if (pid == 0) {
        pthread_t thread;
        close(ends[1]);
        if (pthread_create(&thread, NULL, wait_for_close, &ends[0]) != 0)
            _exit(1);
        pthread_exit(NULL);
    }
    for (int i = 0; i < 5000 && first_thread_state(pid) != 'Z'; i++)
        sleep_ms(2);
    CHECK_EQ(first_thread_state(pid), 'Z');
    CHECK_EQ(process_status((int)pid, &status), 0);
    CHECK(!status.ended);
    close(ends[1]);
    for (int i = 0; i < 5000 && !status.ended; i++) {
        CHECK_EQ(process_status((int)pid, &status), 0);
        sleep_ms(2);
    }
    CHECK(status.ended);
    waitpid(pid, NULL, 0);
}

TEST("a later process has a later start time")
{
    struct process_status own, other = {.ended = true};
    REQUIRE(process_status(0, &own) == 0);
    sleep_ms(30);
    pid_t pid = fork();
    if (pid == 0)
        for (;;)
            pause();
    CHECK_EQ(process_status((int)pid, &other), 0);
    CHECK(other.start_time > own.start_time);
    CHECK(!other.ended);
    kill(pid, SIGKILL);
    waitpid(pid, NULL, 0);
}

TEST("a pid that nobody has is no process, and the results are untouched")
{
    struct process_status status = {.start_time = 77, .ended = true};
    errno = 5;
    CHECK_EQ(process_status(4194304 + 5, &status), -ESRCH);
    CHECK_EQ(errno, 5);
    CHECK_EQ(status.start_time, 77);
    CHECK(status.ended);
}

TEST("a process shares its PID namespace with its children")
{
    uint64_t own = process_pid_namespace();
    CHECK(own != 0);
    pid_t pid = fork();
    if (pid == 0) {
        CHECK_EQ(process_pid_namespace(), own);
        _exit(0);
    }
    waitpid(pid, NULL, 0);
}

TEST("a process of the caller's PID namespace knows itself by the number that the caller knows")
{
    int number = 0;
    uint64_t namespace = 0;
    errno = 4711;
    if (process_own_number(getpid(), &number, &namespace) != 0)
        SKIP("/proc does not tell the numbers of namespaces");
    CHECK_EQ(number, getpid());
    CHECK_EQ(namespace, process_pid_namespace());
    CHECK_EQ(errno, 4711);
}

TEST("a process of a PID namespace below knows itself by its number there")
{
    int pipes[2], number = 0;
    uint64_t namespace = 0;
    pid_t outer;
    REQUIRE(pipe(pipes) == 0);
    pid_t helper = fork();
    if (helper == 0) {
        pid_t child = unshare(CLONE_NEWPID) == 0 ? fork() : -1;
        while (child == 0)
            pause();
        if (child > 0)
            (void)!write(pipes[1], &child, sizeof(child));
        _exit(0);
    }
    close(pipes[1]);
    if (read(pipes[0], &outer, sizeof(outer)) != sizeof(outer))
        SKIP("no new PID namespace is permitted");
    CHECK_EQ(process_own_number(outer, &number, &namespace), 0);
    CHECK_EQ(number, 1);
    CHECK(namespace && namespace != process_pid_namespace());
    kill(outer, SIGKILL);
    waitpid(helper, NULL, 0);
}

int main(int argc, char **argv)
{
    return check_run(argc, argv);
}
