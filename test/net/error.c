/* SPDX-License-Identifier: Apache-2.0 */
/* Errors as values, and log lines. */
#include "net/error.h"
#include "net/log_line.h"

#include "check.h"

#include <fcntl.h>

TEST("an error is the negative code, and its text is made in the same line")
{
    struct error error = {0};
    errno = 7;
    CHECK_EQ(error_set(&error, ENOENT, "read %s: %d", "file", 3), -ENOENT);
    CHECK_EQ(error.code, ENOENT);
    CHECK_STR(error.text, "read file: 3");
    CHECK_EQ(errno, 7);
    CHECK_EQ(error_set(NULL, EIO, "nobody reads this"), -EIO);
}

TEST("context can be put before an error's own text")
{
    struct error error = {0};
    (void)error_set(&error, EIO, "short read");
    (void)error_set(&error, EIO, "region a: %s", error.text);
    CHECK_STR(error.text, "region a: short read");
}

TEST("a text of any length and content is one terminated line")
{
    struct error error = {0};
    char text[1000];
    memset(text, 'x', sizeof(text));
    text[3] = '\n';
    text[4] = '\033';
    text[sizeof(text) - 1] = '\0';
    (void)error_set(&error, EIO, "%s", text);
    CHECK_EQ(strlen(error.text), sizeof(error.text) - 1);
    CHECK(!strncmp(error.text, "xxx??x", 6));
}

static size_t logged(char *buffer, size_t bytes, enum log_line_level level, const char *text)
{
    int ends[2], kept = dup(STDERR_FILENO);
    REQUIRE(pipe2(ends, O_NONBLOCK) == 0);
    dup2(ends[1], STDERR_FILENO);
    log_line(level, "area: %s", text);
    dup2(kept, STDERR_FILENO);
    ssize_t got = read(ends[0], buffer, bytes - 1);
    close(ends[0]);
    close(ends[1]);
    close(kept);
    buffer[got > 0 ? got : 0] = '\0';
    return got > 0 ? (size_t)got : 0;
}

TEST("a log line has its level and its area, and a peer's newline does not end it")
{
    char line[4096], text[3000];
    logged(line, sizeof(line), LOG_LINE_WARNING, "a\nERROR b");
    CHECK_STR(line, "WARNING area: a?ERROR b\n");
    CHECK_EQ(logged(line, sizeof(line), LOG_LINE_DEBUG, "a"), 0);
    log_line_set_level(LOG_LINE_DEBUG);
    logged(line, sizeof(line), LOG_LINE_DEBUG, "a");
    CHECK_STR(line, "DEBUG area: a\n");
    memset(text, 'x', sizeof(text));
    text[sizeof(text) - 1] = '\0';
    size_t length = logged(line, sizeof(line), LOG_LINE_ERROR, text);
    CHECK(length > 900 && length <= 1024);
    CHECK_EQ(line[length - 1], '\n');
}

int main(int argc, char **argv)
{
    return check_run(argc, argv);
}
