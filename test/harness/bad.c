/* SPDX-License-Identifier: Apache-2.0 */
/* Bodies that must not pass, and some that must, for harness.py: it runs this program and judges
 * what check.h says of each. A sentence begins with the verdict that is wanted. */
#include "check.h"
#include "scratch.h"

#include <fcntl.h>
#include <pthread.h>

TEST("pass: a check and a return")
{
    CHECK(true);
}

TEST("pass: a body whose check is that it survives")
{
    CHECK_SURVIVED();
}

TEST("pass: a body that ends the test itself")
{
    CHECK(true);
    END_TEST();
}

TEST("fail: a body that ends the test itself after a check that is false")
{
    CHECK(false);
    END_TEST();
}

TEST("pass: a check in a child")
{
    int status = -1;
    pid_t pid = fork();
    if (pid == 0) {
        CHECK_EQ(1, 1);
        _exit(0);
    }
    waitpid(pid, &status, 0);
}

TEST("skip: a reason")
{
    CHECK(true);
    SKIP("there is a reason");
}

TEST("fail: a check that is false")
{
    CHECK(false);
}

TEST("fail: nothing is checked")
{
}

TEST("fail: exit(0) after a check")
{
    CHECK(true);
    exit(0);
}

TEST("fail: _exit(0) after a check")
{
    CHECK(true);
    _exit(0);
}

static void end_process(int number)
{
    _exit(number == SIGUSR1 ? 0 : 1);
}

TEST("fail: a signal's handler ends the process with status 0")
{
    CHECK(true);
    signal(SIGUSR1, end_process);
    raise(SIGUSR1);
    usleep(1000);
}

static void *end_from_thread(void *unused)
{
    (void)unused;
    exit(0);
}

TEST("fail: another thread calls exit(0)")
{
    pthread_t thread;
    CHECK(pthread_create(&thread, NULL, end_from_thread, NULL) == 0);
    pthread_join(thread, NULL);
}

TEST("fail: the body's thread ends, not the body")
{
    CHECK(true);
    pthread_exit(NULL);
}

TEST("fail: another program takes its place and ends with status 0")
{
    CHECK(true);
    execl("/bin/true", "true", (char *)NULL);
}

TEST("fail: exit(77) without a reason")
{
    CHECK(true);
    exit(CHECK_EXIT_SKIPPED);
}

TEST("fail: a check fails before the body is skipped")
{
    CHECK_STR("a", "b");
    SKIP("there is a reason");
}

TEST("fail: a child returns from the body, and the test's own process does not")
{
    CHECK(true);
    pid_t pid = fork();
    if (pid == 0)
        return;
    waitpid(pid, NULL, 0);
    exit(0);
}

TEST("fail: a child's check is false")
{
    pid_t pid = fork();
    if (pid == 0)
        REQUIRE(false);
    waitpid(pid, NULL, 0);
    CHECK(true);
}

TEST("fail: a signal ends it")
{
    CHECK(true);
    raise(SIGKILL);
}

/* In a session of its own, its parent gone; HARNESS_STRAYS names a file for its pid. */
static void leave_stray(void)
{
    int ends[2];
    char started;
    REQUIRE(pipe(ends) == 0);
    pid_t pid = fork();
    if (pid == 0) {
        setsid();
        if (fork() != 0)
            _exit(0);
        setsid();
        int fd = open(getenv("HARNESS_STRAYS"), O_WRONLY | O_APPEND | O_CREAT, 0600);
        dprintf(fd, "%d\n", (int)getpid());
        close(fd);
        signal(SIGTERM, SIG_IGN);
        (void)!write(ends[1], "x", 1);
        for (;;)
            pause();
    }
    waitpid(pid, NULL, 0);
    CHECK_EQ(read(ends[0], &started, 1), 1);
}

TEST("pass: a process in a session of its own is left")
{
    leave_stray();
}

TEST("fail: it hangs, and left a process in a session of its own")
{
    leave_stray();
    for (;;)
        pause();
}

/* Its cleaner is no stray: the directory goes, though the process was killed. */
TEST("fail: it is killed with a directory of its own")
{
    char directory[SCRATCH_PATH_MAX];
    REQUIRE(scratch_make(directory));
    printf("# directory %s\n", directory);
    fflush(stdout);
    raise(SIGKILL);
}

int main(int argc, char **argv)
{
    return check_run(argc, argv);
}
