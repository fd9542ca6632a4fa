/* SPDX-License-Identifier: Apache-2.0 */
/* What /proc tells of processes with hostile names, ended ones, and others. */
#include "base/process.h"

#include "check.h"

#include <sys/prctl.h>

static void sleep_ms(long ms)
{
    nanosleep(&(struct timespec){.tv_sec = ms / 1000, .tv_nsec = ms % 1000 * 1000000}, NULL);
}

TEST("the calling process is known by 0 and by its pid alike")
{
    uint64_t by_zero = 0, by_pid = 0;
    bool ended = true;
    CHECK_EQ(process_stat(0, &by_zero, &ended), 0);
    CHECK(!ended);
    CHECK_EQ(process_stat((int)getpid(), &by_pid, &ended), 0);
    CHECK_EQ(by_zero, by_pid);
    CHECK(by_zero > 0);
}

TEST("a command with blanks and parentheses does not shift the start time")
{
    static const char *const names[] = {
        "a b", "a) R 1 2 3", ") Z 1 (", "((((", "))))", " ) ) )", "1 2 3 4 5 6 7 8", "", "\n) Z 0"};
    uint64_t known = 0;
    bool ended = false;
    REQUIRE(process_stat(0, &known, &ended) == 0);
    for (size_t i = 0; i < sizeof(names) / sizeof(names[0]); i++) {
        uint64_t start_time = 0;
        REQUIRE(prctl(PR_SET_NAME, names[i]) == 0);
        CHECK_EQ(process_stat((int)getpid(), &start_time, &ended), 0);
        if (!CHECK_EQ(start_time, known) || !CHECK(!ended))
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
    uint64_t start_time;
    bool ended = false;
    pid_t pid = fork();
    if (pid == 0)
        _exit(0);
    for (int i = 0; i < 500 && !ended; i++) {
        CHECK_EQ(process_stat((int)pid, &start_time, &ended), 0);
        sleep_ms(2);
    }
    CHECK(ended);
    waitpid(pid, NULL, 0);
    CHECK_EQ(process_stat((int)pid, &start_time, &ended), -ESRCH);
}

TEST("a later process has a later start time")
{
    uint64_t own = 0, other = 0;
    bool ended;
    REQUIRE(process_stat(0, &own, &ended) == 0);
    sleep_ms(30);
    pid_t pid = fork();
    if (pid == 0)
        for (;;)
            pause();
    CHECK_EQ(process_stat((int)pid, &other, &ended), 0);
    CHECK(other > own);
    CHECK(!ended);
    kill(pid, SIGKILL);
    waitpid(pid, NULL, 0);
}

TEST("a pid that nobody has is no process, and the results are untouched")
{
    uint64_t start_time = 77;
    bool ended = true;
    CHECK_EQ(process_stat(4194304 + 5, &start_time, &ended), -ESRCH);
    CHECK_EQ(start_time, 77);
    CHECK(ended);
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

int main(int argc, char **argv)
{
    return check_run(argc, argv);
}
