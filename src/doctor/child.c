/* SPDX-License-Identifier: Apache-2.0 */
/* The child of vgpu doctor, as its parent has it: what it says on stdout are facts, what the
 * library says on stderr is kept as facts "log.N". */
#include "doctor/child.h"

#include "base/clock.h"
#include "base/text.h"
#include "host/preload.h"

#include <errno.h>
#include <poll.h>
#include <signal.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/prctl.h>
#include <sys/wait.h>
#include <unistd.h>

#define PATIENCE_NS 30000000000ull
#define SAID_BYTES (256 << 10)
#define LOG_LINES 64

struct child {
    pid_t pid;
    struct said {
        int fd; /* -1: at its end */
        size_t length;
        char text[SAID_BYTES];
    } facts, log;
};

static void start(
    const char *library, int device, pid_t parent, const int facts[2], const int log[2])
{
    char number[16];
    (void)prctl(PR_SET_PDEATHSIG, SIGKILL);
    if (getppid() != parent)
        _exit(127);
    snprintf(number, sizeof(number), "%d", device);
    dup2(facts[1], STDOUT_FILENO);
    dup2(log[1], STDERR_FILENO);
    /* In the one form and at the level that the check "log" knows. */
    setenv("LIBCUDA_LOG_LEVEL", "1", 1);
    unsetenv("LOGGER_LEVEL");
    if (library)
        preload_first("LD_PRELOAD", library, ':');
    execl("/proc/self/exe", "vgpu", "doctor", "--inside", number, (char *)NULL);
    _exit(127);
}

static int begin(struct child *child, const char *library, int device)
{
    int facts[2], log[2];
    if (pipe(facts) != 0)
        return -errno;
    if (pipe(log) != 0) {
        int error = -errno;
        close(facts[0]);
        close(facts[1]);
        return error;
    }
    pid_t self = getpid();
    child->pid = fork();
    int error = child->pid < 0 ? -errno : 0;
    if (child->pid == 0)
        start(library, device, self, facts, log);
    close(facts[1]);
    close(log[1]);
    child->facts.fd = facts[0];
    child->log.fd = log[0];
    return error;
}

/* What is past the room is dropped, so that the child never waits for us. */
static void take(struct said *said)
{
    char spill[4096];
    size_t room = SAID_BYTES - 1 - said->length;
    ssize_t got = room ? read(said->fd, said->text + said->length, room)
                       : read(said->fd, spill, sizeof(spill));
    if (got < 0 && errno == EINTR)
        return;
    if (got <= 0) {
        close(said->fd);
        said->fd = -1;
    } else if (room) {
        said->length += (size_t)got;
    }
}

/* Until the child has closed both; false where it takes too long. */
static bool listen_to(struct child *child)
{
    uint64_t until = clock_now_ns() + PATIENCE_NS;
    while (child->facts.fd >= 0 || child->log.fd >= 0) {
        struct pollfd polled[] = {
            {.fd = child->facts.fd, .events = POLLIN}, {.fd = child->log.fd, .events = POLLIN}};
        uint64_t now = clock_now_ns();
        if (now >= until)
            return false;
        if (poll(polled, 2, (int)((until - now) / 1000000 + 1)) <= 0)
            continue;
        if (polled[0].revents)
            take(&child->facts);
        if (polled[1].revents)
            take(&child->log);
    }
    return true;
}

static void add_log(struct facts *facts, char *text)
{
    char *rest = text;
    unsigned count = 0;
    for (char *line; (line = strsep(&rest, "\n")) != NULL && count < LOG_LINES;) {
        char name[16], clean[1024];
        if (!*line)
            continue;
        text_escape(clean, sizeof(clean), line, strlen(line));
        snprintf(name, sizeof(name), "log.%u", count++);
        facts_set(facts, name, clean);
    }
}

static void note_end(struct facts *facts, int status, bool ended)
{
    char words[64];
    if (!ended)
        snprintf(
            words, sizeof(words), "late: it was killed after %llu s", PATIENCE_NS / 1000000000);
    else if (WIFSIGNALED(status))
        snprintf(words, sizeof(words), "by signal %d", WTERMSIG(status));
    else if (WEXITSTATUS(status))
        snprintf(words, sizeof(words), "with status %d", WEXITSTATUS(status));
    else
        snprintf(words, sizeof(words), "well");
    facts_set(facts, "probe.ended", words);
}

int doctor_ask(const char *library, int device, struct facts *facts)
{
    static struct child child;
    int status = 0;
    (void)signal(SIGCHLD, SIG_DFL);
    int error = begin(&child, library, device);
    if (error)
        return error;
    bool ended = listen_to(&child);
    if (!ended)
        kill(child.pid, SIGKILL);
    while (waitpid(child.pid, &status, 0) < 0 && errno == EINTR) {
    }
    facts_add_lines(facts, child.facts.text);
    add_log(facts, child.log.text);
    note_end(facts, status, ended);
    return 0;
}
