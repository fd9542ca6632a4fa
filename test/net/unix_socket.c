/* SPDX-License-Identifier: Apache-2.0 */
/* Sockets at a path: claimed from the dead, never from the living. */
#include "net/unix_socket.h"

#include "check.h"
#include "scratch.h"

#include <fcntl.h>
#include <sys/socket.h>
#include <sys/stat.h>

static char path[256];
static struct unix_socket_file file;
static struct error error;

static void in_scratch(const char *name)
{
    static char directory[SCRATCH_PATH_MAX];
    if (!directory[0])
        REQUIRE(scratch_make(directory));
    snprintf(path, sizeof(path), "%s/%s", directory, name);
}

TEST("a socket is made for its owner only, and answers at once")
{
    int fd, client;
    struct stat status;
    in_scratch("a.sock");
    umask(0);
    REQUIRE(unix_socket_listen(path, &fd, &file, &error) == 0);
    REQUIRE(lstat(path, &status) == 0);
    CHECK(S_ISSOCK(status.st_mode));
    CHECK_EQ(status.st_mode & 0777, 0600);
    CHECK_EQ(unix_socket_connect(path, &client, &error), 0);
    CHECK(fcntl(fd, F_GETFL) & O_NONBLOCK);
    unix_socket_remove(path, &file);
    CHECK(!unix_socket_find(path, &file));
}

TEST("one that nobody serves is replaced")
{
    int fd;
    struct unix_socket_file old;
    in_scratch("a.sock");
    REQUIRE(unix_socket_listen(path, &fd, &old, &error) == 0);
    close(fd);
    CHECK_EQ(unix_socket_listen(path, &fd, &file, &error), 0);
    CHECK(!unix_socket_same(&old, &file));
    unix_socket_remove(path, &old);
    CHECK(unix_socket_find(path, &old)); /* another's is not removed */
}

TEST("one that a living program serves is refused in one clear line, and stays")
{
    int fd, other = -1;
    struct unix_socket_file there;
    in_scratch("a.sock");
    REQUIRE(unix_socket_listen(path, &fd, &file, &error) == 0);
    CHECK_EQ(unix_socket_listen(path, &other, &there, &error), -EADDRINUSE);
    CHECK(strstr(error.text, "another program serves") && strstr(error.text, path));
    REQUIRE(unix_socket_find(path, &there));
    CHECK(unix_socket_same(&file, &there));
    CHECK_EQ(other, -1);
}

TEST("one whose queue is full is one of the living")
{
    int fd, other, client;
    in_scratch("a.sock");
    REQUIRE(unix_socket_listen(path, &fd, &file, &error) == 0);
    listen(fd, 0);
    int failed = 0;
    for (int i = 0; i < 10 && !failed; i++)
        failed = unix_socket_connect(path, &client, &error);
    CHECK_EQ(failed, -EAGAIN);
    CHECK_EQ(unix_socket_listen(path, &other, &file, &error), -EADDRINUSE);
}

TEST("what is no socket, and a path that is too long or nowhere, is refused")
{
    int fd = -1;
    in_scratch("a.sock");
    close(open(path, O_CREAT | O_WRONLY, 0600));
    CHECK_EQ(unix_socket_listen(path, &fd, &file, &error), -EEXIST);
    in_scratch("nowhere/a.sock");
    CHECK_EQ(unix_socket_listen(path, &fd, &file, &error), -ENOENT);
    CHECK_EQ(unix_socket_connect(path, &fd, &error), -ENOENT);
    memset(path, 'x', 150);
    path[150] = '\0';
    CHECK_EQ(unix_socket_listen(path, &fd, &file, &error), -ENAMETOOLONG);
    CHECK(strstr(error.text, "107"));
    CHECK_EQ(unix_socket_connect(path, &fd, &error), -ENAMETOOLONG);
    CHECK_EQ(fd, -1);
}

TEST("of programs that start together on a dead socket one serves, and no file is left over")
{
    int fd, ends[2];
    in_scratch("a.sock");
    REQUIRE(unix_socket_listen(path, &fd, &file, &error) == 0);
    close(fd);
    REQUIRE(pipe(ends) == 0);
    for (int i = 0; i < 8; i++) {
        if (fork() == 0) {
            int failed = unix_socket_listen(path, &fd, &file, &error);
            struct unix_socket_file there;
            char word = failed == -EADDRINUSE ? 'r' : failed ? 'f' : 's';
            usleep(200000);
            /* One that was replaced between the look and the claim sees it at the path. */
            if (!failed && !(unix_socket_find(path, &there) && unix_socket_same(&there, &file)))
                word = 'l';
            if (write(ends[1], &word, 1) != 1)
                _exit(1);
            usleep(300000);
            _exit(0);
        }
    }
    unsigned serve = 0, failed = 0;
    for (int i = 0; i < 8; i++) {
        char word = 0;
        CHECK_EQ(read(ends[0], &word, 1), 1);
        serve += word == 's';
        failed += word == 'f';
    }
    CHECK_EQ(serve, 1);
    CHECK_EQ(failed, 0);
    char command[400];
    snprintf(command, sizeof(command), "test \"$(ls $(dirname %s))\" = a.sock", path);
    CHECK_EQ(system(command), 0);
}

int main(int argc, char **argv)
{
    return check_run(argc, argv);
}
