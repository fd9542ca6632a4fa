/* SPDX-License-Identifier: Apache-2.0 */
/* Starting, reading, and leaving nothing behind: what a library under test forks is found by being
 * our child in the end (PR_SET_CHILD_SUBREAPER), and ends with us where we are killed
 * (PR_SET_PDEATHSIG). */
#include "bench/process.h"

#include "base/clock.h"

#include <errno.h>
#include <fcntl.h>
#include <poll.h>
#include <signal.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>
#include <sys/prctl.h>
#include <sys/resource.h>
#include <sys/wait.h>
#include <unistd.h>

#define TEXT_MOST (64u << 20)
#define PROCESSES_MOST 64
#define LOOK_NS                                                                                    \
    20000000ull /* at ends, of which no descriptor tells where a grandchild holds the pipe */
#define SOON_NS 100000u /* … of one whose stdout has just ended */
#define SWEEPS 50

static volatile sig_atomic_t stop_signal;
static pid_t live[PROCESSES_MOST];

static void note_signal(int number)
{
    if (!stop_signal)
        stop_signal = number;
}

void bench_process_begin(void)
{
    struct sigaction action = {.sa_handler = note_signal}, ignored = {.sa_handler = SIG_IGN};
    struct sigaction ordinary = {.sa_handler = SIG_DFL};
    const int stops[] = {SIGINT, SIGTERM, SIGHUP};
    sigset_t stopping;
    sigemptyset(&stopping);
    for (size_t i = 0; i < sizeof(stops) / sizeof(stops[0]); i++) {
        sigaction(stops[i], &action, NULL);
        sigaddset(&stopping, stops[i]);
    }
    sigaction(SIGPIPE, &ignored, NULL);
    sigaction(SIGCHLD, &ordinary, NULL);
    /* They come only while we wait, so that none is lost before a wait. */
    sigprocmask(SIG_BLOCK, &stopping, NULL);
    prctl(PR_SET_CHILD_SUBREAPER, 1, 0, 0, 0);
}

int bench_stopped(void)
{
    sigset_t pending;
    if (!stop_signal && sigpending(&pending) == 0) {
        const int stops[] = {SIGINT, SIGTERM, SIGHUP};
        for (size_t i = 0; i < sizeof(stops) / sizeof(stops[0]); i++) {
            if (sigismember(&pending, stops[i]))
                stop_signal = stops[i];
        }
    }
    return stop_signal;
}

static void note_live(pid_t from, pid_t to)
{
    for (size_t i = 0; i < PROCESSES_MOST; i++) {
        if (live[i] == from) {
            live[i] = to;
            return;
        }
    }
}

static bool is_live(pid_t pid)
{
    for (size_t i = 0; i < PROCESSES_MOST; i++) {
        if (live[i] == pid)
            return true;
    }
    return false;
}

/* In the child: never returns. */
static void become(char *const *arguments, char *const *environment, int in, int out, int err)
{
    struct sigaction ordinary = {.sa_handler = SIG_DFL};
    struct rlimit no_core = {0, 0};
    sigset_t none;
    sigaction(SIGPIPE, &ordinary, NULL);
    sigemptyset(&none);
    sigprocmask(SIG_SETMASK, &none, NULL);
    setsid();
    prctl(PR_SET_PDEATHSIG, SIGKILL, 0, 0, 0);
    setrlimit(RLIMIT_CORE, &no_core); /* a library that crashes is a figure, not a file */
    if (dup2(in, 0) < 0 || dup2(out, 1) < 0 || dup2(err, 2) < 0)
        _exit(127);
    execvpe(arguments[0], arguments, environment);
    dprintf(2, "cannot run \"%.256s\": %s\n", arguments[0], strerror(errno));
    _exit(127);
}

static void close_one(int *fd)
{
    if (*fd >= 0)
        close(*fd);
    *fd = -1;
}

int bench_process_start(
    struct bench_process *process, char *const *arguments, char *const *environment)
{
    int in[2] = {-1, -1}, out[2] = {-1, -1}, error = 0;
    *process = (struct bench_process){.in = -1, .out = -1, .err = -1};
    process->err = memfd_create("stderr", MFD_CLOEXEC);
    if (process->err < 0 || pipe2(in, O_CLOEXEC) != 0 || pipe2(out, O_CLOEXEC) != 0)
        error = -errno;
    process->started_ns = clock_now_ns();
    process->deadline_ns = UINT64_MAX;
    if (!error && (process->pid = fork()) < 0) {
        error = -errno;
        process->pid = 0;
    }
    if (!error && process->pid == 0)
        become(arguments, environment, in[0], out[1], process->err);
    close_one(&in[0]);
    close_one(&out[1]);
    if (error) {
        close_one(&in[1]);
        close_one(&out[0]);
        close_one(&process->err);
        return error;
    }
    process->in = in[1];
    process->out = out[0];
    fcntl(process->out, F_SETFL, O_NONBLOCK);
    fcntl(process->in, F_SETFL, O_NONBLOCK);
    note_live(0, process->pid);
    return 0;
}

/* Takes what is there to read; false at the end, or where it cannot be read. */
static bool take_output(struct bench_process *process)
{
    for (;;) {
        char part[16384];
        ssize_t got = read(process->out, part, sizeof(part));
        if (got < 0)
            return errno == EAGAIN || errno == EINTR;
        char *grown = got > 0 && process->length + (size_t)got < TEXT_MOST
                          ? realloc(process->text, process->length + (size_t)got + 1)
                          : NULL;
        if (!grown)
            return false;
        process->text = grown;
        memcpy(grown + process->length, part, (size_t)got);
        process->length += (size_t)got;
        grown[process->length] = '\0';
    }
}

static void look_for_end(struct bench_process *process)
{
    if (process->ended || !process->pid)
        return;
    if (waitpid(process->pid, &process->status, WNOHANG) != process->pid)
        return;
    process->ended = true;
    process->ended_ns = clock_now_ns();
    note_live(process->pid, 0);
    if (process->out >= 0)
        (void)take_output(process);
    close_one(&process->out);
}

void bench_process_kill(struct bench_process *process, int signal_number)
{
    /* Its own session: the group outlives its leader. */
    if (process->pid && kill(-process->pid, signal_number) != 0 && !process->ended)
        kill(process->pid, signal_number);
}

static void end_now(struct bench_process *process)
{
    bench_process_kill(process, SIGKILL);
    while (process->pid && !process->ended && waitpid(process->pid, &process->status, 0) < 0 &&
           errno == EINTR) {
    }
    if (process->pid && !process->ended) {
        process->ended = true;
        process->ended_ns = clock_now_ns();
        note_live(process->pid, 0);
    }
}

/* When to look for ends again. */
static uint64_t look_ns(const struct bench_process *processes, size_t count, uint64_t now_ns)
{
    for (size_t i = 0; i < count; i++) {
        const struct bench_process *process = &processes[i];
        if (!process->ended && process->closed_ns && now_ns < process->closed_ns + LOOK_NS)
            return SOON_NS;
    }
    return LOOK_NS;
}

/* Waits for output, an end or a signal, until the time at most; whether any goes on. */
static bool wait_once(struct bench_process *processes, size_t count, uint64_t until_ns)
{
    struct pollfd polled[PROCESSES_MOST];
    uint64_t now_ns = clock_now_ns();
    size_t used = 0;
    bool going = false;
    for (size_t i = 0; i < count; i++) {
        struct bench_process *process = &processes[i];
        look_for_end(process);
        if (process->pid && !process->ended && now_ns >= process->deadline_ns) {
            process->hung = true;
            end_now(process);
        }
        going |= process->pid && !process->ended;
        if (process->pid && process->out >= 0 && used < PROCESSES_MOST)
            polled[used++] = (struct pollfd){.fd = process->out, .events = POLLIN};
    }
    if (!going || now_ns >= until_ns || bench_stopped())
        return false;
    sigset_t none;
    sigemptyset(&none);
    uint64_t wait_ns = look_ns(processes, count, now_ns);
    wait_ns = until_ns - now_ns < wait_ns ? until_ns - now_ns : wait_ns;
    struct timespec wait = {0, (long)wait_ns};
    (void)ppoll(polled, used, &wait, &none);
    for (size_t i = 0; i < count; i++) {
        if (processes[i].pid && processes[i].out >= 0 && !take_output(&processes[i])) {
            close_one(&processes[i].out);
            processes[i].closed_ns = clock_now_ns();
        }
    }
    return true;
}

void bench_process_wait_until(struct bench_process *processes, size_t count, uint64_t until_ns)
{
    while (wait_once(processes, count, until_ns)) {
    }
    for (size_t i = 0; bench_stopped() && i < count; i++)
        end_now(&processes[i]);
}

void bench_process_wait(struct bench_process *processes, size_t count)
{
    bench_process_wait_until(processes, count, UINT64_MAX);
}

void bench_sleep_until(uint64_t until_ns)
{
    sigset_t none;
    sigemptyset(&none);
    for (uint64_t now_ns; (now_ns = clock_now_ns()) < until_ns && !bench_stopped();) {
        uint64_t left_ns = until_ns - now_ns < LOOK_NS ? until_ns - now_ns : LOOK_NS;
        struct timespec wait = {0, (long)left_ns};
        (void)ppoll(NULL, 0, &wait, &none);
    }
}

const char *bench_process_line(struct bench_process *process, size_t *offset)
{
    bool going = true;
    for (;;) {
        const char *begin = process->text ? process->text + *offset : NULL;
        const char *end = begin ? strchr(begin, '\n') : NULL;
        if (end) {
            *offset = (size_t)(end - process->text) + 1;
            return begin;
        }
        if (!going)
            return NULL;
        going = wait_once(process, 1, UINT64_MAX);
    }
}

double bench_process_word(struct bench_process *process, size_t *offset, const char *word)
{
    const char *line;
    while ((line = bench_process_line(process, offset))) {
        if (!strncmp(line, word, strlen(word)) && line[strlen(word)] == ' ')
            return strtod(line + strlen(word), NULL);
    }
    return -1;
}

void bench_process_tell(struct bench_process *process, const char *line)
{
    if (process->pid && process->in >= 0)
        (void)!write(process->in, line, strlen(line));
}

void bench_process_end_input(struct bench_process *process)
{
    if (process->pid)
        close_one(&process->in);
}

/* Children that this program did not start, and theirs once they are orphans. */
static void sweep(void)
{
    for (int round = 0; round < SWEEPS; round++) {
        char path[64], list[4096];
        snprintf(path, sizeof(path), "/proc/self/task/%d/children", (int)getpid());
        int fd = open(path, O_RDONLY | O_CLOEXEC);
        ssize_t length = fd < 0 ? 0 : read(fd, list, sizeof(list) - 1);
        bool found = false;
        if (fd >= 0)
            close(fd);
        list[length > 0 ? length : 0] = '\0';
        char *rest = list;
        for (long pid; (pid = strtol(rest, &rest, 10)) > 0;) {
            if (is_live((pid_t)pid))
                continue;
            found = true;
            kill((pid_t)pid, SIGKILL);
            (void)waitpid((pid_t)pid, NULL, 0);
        }
        if (!found)
            return;
    }
}

void bench_process_finish(struct bench_process *process)
{
    if (!process->pid)
        return;
    end_now(process);
    close_one(&process->in);
    close_one(&process->out);
    close_one(&process->err);
    free(process->text);
    *process = (struct bench_process){.in = -1, .out = -1, .err = -1};
    sweep();
}

/* The last line on stderr that says something. */
static void last_line(const struct bench_process *process, char *line, size_t size)
{
    char text[2048];
    off_t end = lseek(process->err, 0, SEEK_END);
    off_t begin = end > (off_t)sizeof(text) - 1 ? end - (off_t)sizeof(text) + 1 : 0;
    ssize_t length = end > 0 ? pread(process->err, text, sizeof(text) - 1, begin) : 0;
    while (length > 0 && strchr("\n\r ", text[length - 1]))
        length--;
    text[length > 0 ? length : 0] = '\0';
    const char *last = strrchr(text, '\n');
    snprintf(line, size, "%.*s", (int)size - 1, last ? last + 1 : text);
}

const char *bench_process_failure(const struct bench_process *process, char *buffer, size_t size)
{
    char line[200] = "";
    if (process->pid)
        last_line(process, line, sizeof(line));
    if (process->hung && process->deadline_ns <= process->started_ns)
        snprintf(buffer, size, BENCH_TIME_USED_UP);
    else if (process->hung)
        snprintf(buffer, size, "it did not end within %.0f s%s",
            (double)(process->deadline_ns - process->started_ns) / 1e9,
            process->cut ? ", when the time of its group was used up" : "");
    else if (!process->pid)
        snprintf(buffer, size, "it could not be started");
    else if (!process->ended)
        snprintf(buffer, size, "it was not waited for");
    else if (WIFSIGNALED(process->status))
        snprintf(buffer, size, "it ended by signal %d (%s)", WTERMSIG(process->status),
            strsignal(WTERMSIG(process->status)));
    else if (WEXITSTATUS(process->status))
        snprintf(buffer, size, "it ended with status %d%s%s", WEXITSTATUS(process->status),
            line[0] ? ": " : "", line);
    else
        return NULL;
    return buffer;
}
