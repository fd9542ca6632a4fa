/* SPDX-License-Identifier: Apache-2.0 */
/* The file of variables that go before the environment's. */
#include "config/override.h"

#include "check.h"
#include "scratch.h"
#include "users.h"

#include <fcntl.h>
#include <string.h>
#include <sys/stat.h>
#include <unistd.h>

static const char *path;

static void write_bytes(const void *bytes, size_t length)
{
    if (!path)
        path = strdup(scratch_path("overrideEnv"));
    int fd = open(path, O_WRONLY | O_CREAT | O_TRUNC, 0644);
    REQUIRE(fd >= 0 && write(fd, bytes, length) == (ssize_t)length);
    close(fd);
}

static bool reads(const char *text)
{
    write_bytes(text, strlen(text));
    return override_read(path);
}

static unsigned line_count(void)
{
    unsigned count = 0;
    while (override_lines()[count])
        count++;
    return count;
}

static void check_found(const char *name, const char *value)
{
    const char *found = override_find(name);
    if (CHECK(found != NULL))
        CHECK_STR(found, value);
}

TEST("without the file nothing is overridden")
{
    CHECK(override_read("/no/such/file"));
    CHECK(override_find("A") == NULL);
    CHECK_EQ(line_count(), 0);
}

TEST("a line sets a variable, the last of a name holds, and one set to nothing is set")
{
    CHECK(reads("CUDA_DEVICE_MEMORY_LIMIT_0=2048m\nA=1\nA=2\nB=\nC_1=x=y"));
    check_found("CUDA_DEVICE_MEMORY_LIMIT_0", "2048m");
    check_found("A", "2");
    check_found("B", "");
    check_found("C_1", "x=y");
    CHECK(override_find("CUDA_DEVICE_MEMORY_LIMIT") == NULL);
    CHECK(override_find("C") == NULL);
    CHECK_EQ(line_count(), 5);
    CHECK_STR(override_lines()[4], "C_1=x=y");
}

TEST("blank lines, remarks, blanks around name and value and a carriage return do not count")
{
    CHECK(reads("\n  \n# CUDA=1\n\t A \t=  b c \r\n\r\n"));
    check_found("A", "b c");
    CHECK_EQ(line_count(), 1);
}

TEST("a line that is no variable is reported, and those beside it hold")
{
    static const char *const bad[] = {
        "CUDA_DEVICE_MEMORY_LIMIT 2g", "export A=1", "=1", "1A=2", "A-B=1", "\x1b[2J=1", "much"};
    for (size_t i = 0; i < sizeof(bad) / sizeof(bad[0]); i++) {
        char text[128];
        snprintf(text, sizeof(text), "X=1\n%s\nY=2\n", bad[i]);
        CHECK(!reads(text));
        check_found("X", "1");
        check_found("Y", "2");
        CHECK_EQ(line_count(), 2);
    }
}

TEST("a byte 0 hides no rest of a line")
{
    static const char text[] = "A=1\0B\nC=3\n";
    write_bytes(text, sizeof(text) - 1);
    CHECK(!override_read(path));
    CHECK(override_find("A") == NULL);
    check_found("C", "3");
}

TEST("the file's size and its lines are bounded")
{
    static char text[OVERRIDE_BYTES + 2];
    memset(text, '#', sizeof(text));
    write_bytes(text, OVERRIDE_BYTES);
    CHECK(override_read(path));
    write_bytes(text, OVERRIDE_BYTES + 1);
    CHECK(!override_read(path));
    for (unsigned i = 0; i < OVERRIDE_LINES + 1; i++)
        memcpy(text + i * 4, "A=1\n", 4);
    write_bytes(text, OVERRIDE_LINES * 4);
    CHECK(override_read(path));
    CHECK_EQ(line_count(), OVERRIDE_LINES);
    write_bytes(text, (OVERRIDE_LINES + 1) * 4);
    CHECK(!override_read(path));
    CHECK_EQ(line_count(), OVERRIDE_LINES);
}

TEST("what was read before is forgotten")
{
    CHECK(reads("A=1\n"));
    CHECK(override_read("/no/such/file"));
    CHECK(override_find("A") == NULL);
    CHECK_EQ(line_count(), 0);
}

TEST("a file that others may write, or is no regular file, is not read")
{
    CHECK(reads("A=1\n"));
    REQUIRE(chmod(path, 0664) == 0);
    CHECK(override_read(path));
    CHECK(override_find("A") == NULL);
    REQUIRE(chmod(path, 0646) == 0);
    CHECK(override_read(path));
    CHECK(override_find("A") == NULL);
    REQUIRE(chmod(path, 0644) == 0);
    CHECK(override_read(path));
    check_found("A", "1");
    char *link = strdup(scratch_path("link"));
    REQUIRE(symlink(path, link) == 0);
    CHECK(override_read(link));
    CHECK(override_find("A") == NULL);
    char *pipe = strdup(scratch_path("pipe"));
    REQUIRE(mkfifo(pipe, 0644) == 0);
    CHECK(override_read(pipe));
    CHECK(override_read("/tmp"));
    CHECK_EQ(line_count(), 0);
}

TEST("another user's file is not read")
{
    if (!users_may_change())
        SKIP(USERS_NEEDED);
    CHECK(reads("A=1\n"));
    REQUIRE(chown(path, 65534, 65534) == 0);
    CHECK(override_read(path));
    CHECK(override_find("A") == NULL);
}

TEST("a file that may not be read is reported: it may have set a limit")
{
    if (!users_may_change())
        SKIP(USERS_NEEDED);
    CHECK(reads("A=1\n"));
    REQUIRE(chmod(path, 0600) == 0);
    REQUIRE(seteuid(65534) == 0);
    CHECK(!override_read(path));
}

TEST("errno is kept")
{
    errno = EXDEV;
    CHECK(override_read("/no/such/file"));
    CHECK_EQ(errno, EXDEV);
    CHECK(!reads("bad\n") && errno == EXDEV);
}

int main(int argc, char **argv)
{
    return check_run(argc, argv);
}
