/* SPDX-License-Identifier: Apache-2.0 */
/* The tests' own directories: nothing is left of them, however a test ends. */
#include "scratch.h"

#include "check.h"

#define GONE_SECONDS 20

/* In a child: a directory with files below it, told to the parent. */
static pid_t make_in_child(char ret_directory[64])
{
    int ends[2];
    REQUIRE(pipe(ends) == 0);
    pid_t pid = fork();
    if (pid == 0) {
        char below[80];
        REQUIRE(scratch_make(ret_directory));
        snprintf(below, sizeof(below), "%s/below", ret_directory);
        REQUIRE(mkdir(below, 0700) == 0);
        snprintf(below, sizeof(below), "%s/below/file", ret_directory);
        REQUIRE(close(open(below, O_CREAT | O_WRONLY, 0600)) == 0);
        REQUIRE(write(ends[1], ret_directory, 64) == 64);
        pause();
    }
    close(ends[1]);
    REQUIRE(read(ends[0], ret_directory, 64) == 64);
    REQUIRE(access(ret_directory, F_OK) == 0);
    close(ends[0]);
    return pid;
}

static bool goes(const char *directory)
{
    for (int i = 0; i < GONE_SECONDS * 100 && access(directory, F_OK) == 0; i++)
        usleep(10000);
    return access(directory, F_OK) != 0;
}

TEST("a directory goes with all that is in it when its process is killed")
{
    char directory[64];
    pid_t pid = make_in_child(directory);
    REQUIRE(kill(pid, SIGKILL) == 0);
    CHECK(goes(directory));
    *strrchr(directory, '/') = '\0';
    CHECK(goes(directory));
}

/* The test's process ends, and a child of it looks. */
TEST("it stays while a process lives that was forked since")
{
    char directory[64], end;
    int ends[2];
    REQUIRE(pipe(ends) == 0);
    pid_t pid = fork();
    if (pid == 0) {
        REQUIRE(scratch_make(directory));
        close(ends[0]);
        if (fork() != 0)
            _exit(0);
        while (getppid() == pid)
            continue;
        usleep(50000);
        CHECK(access(directory, F_OK) == 0);
        _exit(0);
    }
    close(ends[1]);
    CHECK_EQ(read(ends[0], &end, 1), 0);
    CHECK(waitpid(pid, NULL, 0) == pid);
}

TEST("who makes a directory has no child more, and nobody holds its descriptors open")
{
    char directory[64], end;
    int ends[2];
    REQUIRE(pipe(ends) == 0 && scratch_make(directory));
    close(ends[1]);
    CHECK_EQ(read(ends[0], &end, 1), 0);
    CHECK(waitpid(-1, NULL, 0) < 0 && errno == ECHILD);
}

int main(int argc, char **argv)
{
    return check_run(argc, argv);
}
