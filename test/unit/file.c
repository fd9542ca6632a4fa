/* SPDX-License-Identifier: Apache-2.0 */
/* What makes files longer, on each kind of file system: an error, never a signal. */
#include "base/file.h"

#include "base/hold.h"
#include "base/log.h"
#include "check.h"
#include "scratch.h"

#include <fcntl.h>
#include <sched.h>
#include <sys/mount.h>
#include <sys/resource.h>
#include <sys/stat.h>

#define BYTES 16384
#define LIMIT 4096

static char directory[64];

static void stay(void)
{
}

static void mount_tmpfs(void)
{
    if (unshare(CLONE_NEWNS) != 0 || mount(NULL, "/", NULL, MS_REC | MS_PRIVATE, NULL) != 0 ||
        mount("tmpfs", directory, "tmpfs", 0, "size=1m") != 0)
        SKIP("mounting is not allowed here");
}

/* Its upper files lie on tmpfs, as a container's do on the host's disk. */
static void mount_overlay(void)
{
    static const char *const below[] = {"lower", "upper", "work", "all"};
    char path[4][96], options[512];
    mount_tmpfs();
    for (int i = 0; i < 4; i++) {
        snprintf(path[i], sizeof(path[i]), "%s/%s", directory, below[i]);
        REQUIRE(mkdir(path[i], 0777) == 0);
    }
    snprintf(
        options, sizeof(options), "lowerdir=%s,upperdir=%s,workdir=%s", path[0], path[1], path[2]);
    if (mount("overlay", path[3], "overlay", 0, options) != 0)
        SKIP("no overlay can be mounted here");
    strcat(directory, "/all");
}

static int make_file(void)
{
    char path[128];
    snprintf(path, sizeof(path), "%s/file", directory);
    int fd = open(path, O_RDWR | O_CREAT | O_TRUNC | O_CLOEXEC, 0600);
    REQUIRE(fd >= 0);
    return fd;
}

static void limit_files(rlim_t bytes)
{
    REQUIRE(setrlimit(RLIMIT_FSIZE, &(struct rlimit){bytes, RLIM_INFINITY}) == 0);
}

static void check_growth(void (*prepare)(void))
{
    static const char data[64] = "data";
    struct stat status;
    REQUIRE(scratch_make(directory));
    prepare();
    int fd = make_file();
    limit_files(LIMIT);
    int reserved = file_reserve(fd, BYTES, BYTES);
    CHECK(reserved == 0 || reserved == -EFBIG); /* not every file system asks for the limit */
    CHECK_EQ(file_lengthen(fd, BYTES), -EFBIG);
    CHECK_EQ(file_write_at(fd, data, sizeof(data), BYTES), -EFBIG);
    CHECK(file_status(fd, &status) == 0 && status.st_size == 0);
    REQUIRE(lseek(fd, LIMIT, SEEK_SET) == LIMIT);
    CHECK_EQ(file_write(fd, data, sizeof(data)), -EFBIG);
    limit_files(RLIM_INFINITY);
    CHECK_EQ(file_lengthen(fd, BYTES), 0);
    CHECK_EQ(file_reserve(fd, 0, BYTES), 0);
    CHECK_EQ(file_write_at(fd, data, sizeof(data), BYTES - 64), sizeof(data));
    CHECK(!file_is_blank(fd, BYTES));
    limit_files(LIMIT);
    CHECK_EQ(file_reserve(fd, 0, BYTES), 0);
    CHECK_EQ(file_blank(fd, BYTES), 0);
    CHECK(file_is_blank(fd, BYTES));
    CHECK(file_status(fd, &status) == 0 && status.st_size == BYTES);
}

TEST("past the limit on file sizes there is an error and no signal")
{
    check_growth(stay);
}

TEST("nor on tmpfs")
{
    check_growth(mount_tmpfs);
}

TEST("nor on a file system that lies over another")
{
    check_growth(mount_overlay);
}

TEST("a full file system is an error")
{
    static char data[BYTES] = "data";
    REQUIRE(scratch_make(directory));
    mount_tmpfs();
    int fd = make_file();
    CHECK_EQ(file_lengthen(fd, 4 << 20), 0);
    CHECK_EQ(file_reserve(fd, 0, 4 << 20), -ENOSPC);
    ssize_t written = 1;
    for (off_t at = 0; written > 0 && at < 2 << 20; at += BYTES)
        written = file_write_at(fd, data, sizeof(data), at);
    CHECK_EQ(written, -ENOSPC);
}

TEST("the program's mask, and a signal that it keeps pending, stay as they are")
{
    sigset_t set, now;
    REQUIRE(scratch_make(directory));
    int fd = make_file();
    limit_files(LIMIT);
    CHECK_EQ(file_lengthen(fd, BYTES), -EFBIG);
    REQUIRE(sigprocmask(SIG_SETMASK, NULL, &now) == 0 && sigpending(&set) == 0);
    CHECK(
        !sigismember(&now, SIGXFSZ) && !sigismember(&now, SIGPIPE) && !sigismember(&set, SIGXFSZ));
    sigemptyset(&set);
    sigaddset(&set, SIGXFSZ);
    REQUIRE(sigprocmask(SIG_BLOCK, &set, NULL) == 0 && raise(SIGXFSZ) == 0);
    CHECK_EQ(file_lengthen(fd, BYTES), -EFBIG);
    REQUIRE(sigprocmask(SIG_SETMASK, NULL, &now) == 0 && sigpending(&set) == 0);
    CHECK(sigismember(&now, SIGXFSZ) && sigismember(&set, SIGXFSZ));
}

TEST("a log line that cannot be written ends nobody")
{
    int ends[2];
    REQUIRE(scratch_make(directory));
    int fd = make_file();
    REQUIRE(lseek(fd, LIMIT, SEEK_SET) == LIMIT && dup2(fd, STDERR_FILENO) == STDERR_FILENO);
    limit_files(LIMIT);
    log_error("past the limit on file sizes");
    limit_files(RLIM_INFINITY);
    REQUIRE(pipe(ends) == 0 && dup2(ends[1], STDERR_FILENO) == STDERR_FILENO);
    close(ends[0]);
    log_error("into a pipe that nobody reads");
}

int main(int argc, char **argv)
{
    return check_run(argc, argv);
}
