/* SPDX-License-Identifier: Apache-2.0 */
/* Log lines: their form, one write each, errno kept. */
#include "base/log.h"

#include "check.h"

#include <pthread.h>
#include <regex.h>
#include <sys/socket.h>
#include <sys/syscall.h>

#define LINE_MAX_BYTES 2048

/* stderr becomes a socket of packets: each write is read as one packet. */
static int packets_begin(void)
{
    int ends[2];
    REQUIRE(socketpair(AF_UNIX, SOCK_SEQPACKET, 0, ends) == 0);
    REQUIRE(dup2(ends[1], STDERR_FILENO) == STDERR_FILENO);
    close(ends[1]);
    return ends[0];
}

/* The next packet, or "" where there is none. */
static const char *packet_next(int fd)
{
    static char packet[LINE_MAX_BYTES];
    ssize_t got = recv(fd, packet, sizeof(packet) - 1, MSG_DONTWAIT);
    packet[got > 0 ? got : 0] = '\0';
    return packet;
}

static void check_matches(const char *text, const char *pattern)
{
    regex_t compiled;
    REQUIRE(regcomp(&compiled, pattern, REG_EXTENDED | REG_NOSUB) == 0);
    if (!CHECK(regexec(&compiled, text, 0, NULL, 0) == 0))
        printf("# \"%s\" does not match %s\n", text, pattern);
    regfree(&compiled);
}

TEST("lines begin as HAMi-core's do")
{
    setenv("LIBCUDA_LOG_LEVEL", "4", 1);
    int fd = packets_begin();
    log_warning("a %d", 1);
    check_matches(
        packet_next(fd), "^\\[HAMI-core Warn\\([0-9]+:[0-9]+:log\\.c:[0-9]+\\)\\]: a 1\n$");
    log_message("b");
    check_matches(packet_next(fd), "^\\[HAMI-core Msg\\([0-9]+:[0-9]+:log\\.c:[0-9]+\\)\\]: b\n$");
    log_info("c");
    check_matches(packet_next(fd), "^\\[HAMI-core Info\\([0-9]+:[0-9]+:log\\.c:[0-9]+\\)\\]: c\n$");
    log_debug("d");
    check_matches(
        packet_next(fd), "^\\[HAMI-core Debug\\([0-9]+:[0-9]+:log\\.c:[0-9]+\\)\\]: d\n$");
    log_error("e");
    check_matches(packet_next(fd),
        "^\\[HAMI-core ERROR \\(pid:[0-9]+ thread=[0-9]+ log\\.c:[0-9]+\\)\\]: e\n$");
    CHECK_STR(packet_next(fd), "");
}

static unsigned shown_by(const char *name, const char *level)
{
    unsetenv("LIBCUDA_LOG_LEVEL");
    unsetenv("LOGGER_LEVEL");
    if (level)
        setenv(name, level, 1);
    int fd = packets_begin();
    log_error("0");
    log_warning("1");
    log_message("2");
    log_info("3");
    log_debug("4");
    unsigned shown = 0;
    for (const char *line; *(line = packet_next(fd));)
        shown |= 1u << (line[strlen(line) - 2] - '0');
    return shown;
}

static unsigned levels_shown(const char *level)
{
    return shown_by("LIBCUDA_LOG_LEVEL", level);
}

TEST("lines begin as vgpu-controller's do where LOGGER_LEVEL is set, and LIBCUDA_LOG_LEVEL is not")
{
    setenv("LIBCUDA_LOG_LEVEL", "", 1);
    setenv("LOGGER_LEVEL", "5", 1);
    int fd = packets_begin();
    log_message("a %d", 1);
    check_matches(packet_next(fd), "^\\[vGPU INFO\\([0-9]+\\|log\\.c\\|[0-9]+\\)\\]: a 1\n$");
    log_warning("b");
    check_matches(packet_next(fd), "^\\[vGPU WARNING\\([0-9]+\\|log\\.c\\|[0-9]+\\)\\]: b\n$");
    log_error("c");
    check_matches(packet_next(fd), "^\\[vGPU ERROR\\([0-9]+\\|log\\.c\\|[0-9]+\\)\\]: c\n$");
    log_info("d");
    check_matches(packet_next(fd), "^\\[vGPU VERBOSE\\([0-9]+\\|log\\.c\\|[0-9]+\\)\\]: d\n$");
    log_debug("e");
    check_matches(packet_next(fd), "^\\[vGPU DETAIL\\([0-9]+\\|log\\.c\\|[0-9]+\\)\\]: e\n$");
}

TEST("where both levels are set LIBCUDA_LOG_LEVEL holds, in its form")
{
    setenv("LIBCUDA_LOG_LEVEL", "0", 1);
    setenv("LOGGER_LEVEL", "5", 1);
    int fd = packets_begin();
    log_debug("no");
    log_warning("no");
    log_error("yes");
    check_matches(packet_next(fd), "^\\[HAMI-core ERROR .*: yes\n$");
    CHECK_STR(packet_next(fd), "");
}

TEST("without a level errors, warnings and messages are shown")
{
    CHECK_EQ(levels_shown(NULL), 0x07);
}

TEST("level 0 shows errors alone")
{
    CHECK_EQ(levels_shown("0"), 0x01);
}

TEST("level 3 shows infos too")
{
    CHECK_EQ(levels_shown("3"), 0x0f);
}

TEST("level 4 shows everything")
{
    CHECK_EQ(levels_shown("4"), 0x1f);
}

TEST("a level that is not 0 to 4 is the default level")
{
    CHECK_EQ(levels_shown("verbose"), 0x07);
    CHECK_EQ(levels_shown("4x"), 0x07);
    CHECK_EQ(levels_shown("10"), 0x07);
    CHECK_EQ(levels_shown("-1"), 0x07);
}

TEST("vgpu-controller's level 0 shows messages alone")
{
    CHECK_EQ(shown_by("LOGGER_LEVEL", "0"), 0x04);
}

TEST("its level 1 shows errors too")
{
    CHECK_EQ(shown_by("LOGGER_LEVEL", "1"), 0x05);
}

TEST("its level 2 shows warnings too")
{
    CHECK_EQ(shown_by("LOGGER_LEVEL", "2"), 0x07);
}

TEST("its level 4 shows what is verbose, and not yet the details")
{
    CHECK_EQ(shown_by("LOGGER_LEVEL", "4"), 0x0f);
}

TEST("its level 5 shows everything")
{
    CHECK_EQ(shown_by("LOGGER_LEVEL", "5"), 0x1f);
}

TEST("a LOGGER_LEVEL that is not 0 to 5 is its default level, 3")
{
    CHECK_EQ(shown_by("LOGGER_LEVEL", "6"), 0x07);
}

TEST("a value cannot end the line, begin another or steer the terminal")
{
    int fd = packets_begin();
    log_error("X=\"%s\"", "1g\n[HAMI-core ERROR]: forged\r\x1b[2J");
    const char *line = packet_next(fd);
    CHECK(strchr(line, '\n') == line + strlen(line) - 1);
    check_matches(line, "X=\"1g\\\\n\\[HAMI-core ERROR\\]: forged\\\\r\\\\x1b\\[2J\"\n$");
    CHECK_STR(packet_next(fd), "");
}

TEST("a line that is too long is cut and is still one write that ends the line")
{
    int fd = packets_begin();
    static char text[100000];
    memset(text, 'x', sizeof(text) - 1);
    log_error("%s", text);
    const char *line = packet_next(fd);
    CHECK(strlen(line) >= 1000 && strlen(line) <= 1024);
    CHECK(line[strlen(line) - 1] == '\n' && line[strlen(line) - 2] == 'x');
    CHECK_STR(packet_next(fd), "");
}

TEST("errno is kept, also where the line cannot be written")
{
    packets_begin();
    errno = 4242;
    log_error("text");
    CHECK_EQ(errno, 4242);
    close(STDERR_FILENO);
    log_error("text");
    CHECK_EQ(errno, 4242);
}

static void *log_many(void *text)
{
    for (int i = 0; i < 200; i++)
        log_error("%s", (const char *)text);
    return NULL;
}

TEST("lines of several threads do not mix")
{
    int fd = packets_begin();
    int room = 4 << 20;
    (void)!setsockopt(STDERR_FILENO, SOL_SOCKET, SO_SNDBUF, &room, sizeof(room));
    static char texts[4][301];
    pthread_t threads[4];
    for (int i = 0; i < 4; i++) {
        memset(texts[i], 'a' + i, sizeof(texts[i]) - 1);
        REQUIRE(pthread_create(&threads[i], NULL, log_many, texts[i]) == 0);
    }
    for (int got = 0; got < 800; got++) {
        struct pollfd waited = {.fd = fd, .events = POLLIN};
        REQUIRE(poll(&waited, 1, 10000) == 1);
        const char *line = packet_next(fd);
        const char *text = strstr(line, "]: ");
        REQUIRE(text && strlen(text) == 3 + 300 + 1);
        CHECK_EQ(strspn(text + 3, (char[]){text[3], '\0'}), 300);
    }
    for (int i = 0; i < 4; i++)
        pthread_join(threads[i], NULL);
}

int main(int argc, char **argv)
{
    return check_run(argc, argv);
}
