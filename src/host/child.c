/* SPDX-License-Identifier: Apache-2.0 */
/* A command as our child, with signals passed on. */
#include "host/child.h"

#include "host/say.h"

#include <errno.h>
#include <fcntl.h>
#include <poll.h>
#include <signal.h>
#include <stdbool.h>
#include <stdio.h>
#include <string.h>
#include <sys/prctl.h>
#include <sys/resource.h>
#include <sys/signalfd.h>
#include <sys/wait.h>
#include <time.h>
#include <unistd.h>

/* `failure`: to be told why the command cannot be run. */
static void start(
    char **command, const sigset_t *mask, const struct sigaction *child_action, int failure)
{
    sigaction(SIGCHLD, child_action, NULL);
    sigprocmask(SIG_SETMASK, mask, NULL);
    execvp(command[0], command);
    int error = errno;
    (void)!write(failure, &error, sizeof(error));
    say_error("cannot run \"%.256s\": %s", command[0], strerror(error));
    _exit(error == ENOENT ? TOOL_NOT_FOUND : TOOL_CANNOT_EXECUTE);
}

/* 'T' where the process is stopped; 0 where it cannot be read. */
static char state_of(pid_t pid)
{
    char path[32], text[512];
    snprintf(path, sizeof(path), "/proc/%d/stat", pid);
    int fd = open(path, O_RDONLY | O_CLOEXEC);
    ssize_t length = fd < 0 ? -1 : read(fd, text, sizeof(text) - 1);
    if (fd >= 0)
        close(fd);
    text[length < 0 ? 0 : length] = 0;
    const char *after_name = strrchr(text, ')');
    return after_name && after_name[1] ? after_name[2] : 0;
}

/* Continues `stopped` once the command is not stopped any more. */
__attribute__((noreturn)) static void wake_with(pid_t command, pid_t stopped)
{
    static const struct timespec pause = {.tv_nsec = 50000000};
    prctl(PR_SET_PDEATHSIG, SIGKILL);
    while (getppid() == stopped && state_of(command) == 'T')
        nanosleep(&pause, NULL);
    if (getppid() == stopped)
        kill(stopped, SIGCONT);
    _exit(0);
}

/* Stops us as the command is stopped, for the shell's job control. SIGCONT to us is passed on to
 * the command; SIGCONT to the command alone continues us too. */
static void stop_with(pid_t command)
{
    pid_t self = getpid(), waker = fork();
    if (waker == 0)
        wake_with(command, self);
    if (waker < 0) /* without it we might stay stopped for good */
        return;
    raise(SIGSTOP);
    kill(waker, SIGKILL);
    waitpid(waker, NULL, 0);
}

/* Takes what has ended or stopped: the child, and as a container's first process any orphan too.
 * True where the child has ended. */
static bool reap(pid_t child, struct child_end *ret_end)
{
    bool ended = false;
    int status;
    for (pid_t pid; (pid = waitpid(-1, &status, WNOHANG | WUNTRACED)) > 0;) {
        if (pid != child)
            continue;
        if (WIFSTOPPED(status)) {
            stop_with(child);
        } else {
            ret_end->status = status;
            ended = true;
        }
    }
    return ended;
}

/* Until a signal has come. */
static int wait_for_signal(
    const sigset_t *all, int signals, const struct child_watch *watch, siginfo_t *info)
{
    static const struct timespec at_once = {0, 0};
    int due_ms = 0;
    if (!watch)
        return sigwaitinfo(all, info);
    for (;;) {
        int signal = sigtimedwait(all, info, &at_once);
        if (signal > 0)
            return signal;
        struct pollfd polled[] = {
            {.fd = signals, .events = POLLIN}, {.fd = watch->fd, .events = POLLIN}};
        int ready = poll(polled, 2, due_ms);
        if (ready >= 0 && !polled[0].revents)
            due_ms = watch->look(watch->context);
    }
}

static void wait_for_end(
    pid_t child, const sigset_t *all, const struct child_watch *watch, struct child_end *ret_end)
{
    int signals = watch ? signalfd(-1, all, SFD_CLOEXEC | SFD_NONBLOCK) : -1;
    for (;;) {
        siginfo_t info;
        int signal = wait_for_signal(all, signals, watch, &info);
        if (signal == SIGCHLD) {
            if (reap(child, ret_end))
                break;
        } else if (signal > 0 && info.si_code != SI_KERNEL) {
            /* What the terminal sends, the child got too. */
            kill(child, signal);
        }
    }
    if (signals >= 0)
        close(signals);
}

int child_run_watched(char **command, const struct child_watch *watch, struct child_end *ret_end)
{
    sigset_t all;
    struct sigaction child_action, ordinary = {.sa_handler = SIG_DFL};
    int failure[2], error;
    if (pipe2(failure, O_CLOEXEC | O_NONBLOCK) != 0) {
        say_error("cannot make a pipe: %s", strerror(errno));
        return TOOL_FAILED;
    }
    /* Where it is ignored the kernel takes ended children away without a word. */
    sigaction(SIGCHLD, &ordinary, &child_action);
    sigfillset(&all);
    sigprocmask(SIG_BLOCK, &all, &ret_end->mask);
    pid_t child = fork();
    if (child == 0)
        start(command, &ret_end->mask, &child_action, failure[1]);
    close(failure[1]);
    if (child > 0) {
        wait_for_end(child, &all, watch, ret_end);
        ret_end->started = read(failure[0], &error, sizeof(error)) <= 0;
    } else {
        say_error("cannot fork: %s", strerror(errno));
        child_heed_signals(ret_end);
    }
    close(failure[0]);
    return child > 0 ? 0 : TOOL_FAILED;
}

int child_run(char **command, struct child_end *ret_end)
{
    return child_run_watched(command, NULL, ret_end);
}

void child_heed_signals(const struct child_end *end)
{
    static const struct timespec at_once = {0, 0};
    sigset_t all;
    sigfillset(&all);
    while (sigtimedwait(&all, NULL, &at_once) > 0 || errno == EINTR)
        ;
    sigprocmask(SIG_SETMASK, &end->mask, NULL);
}

int child_end_as(const struct child_end *end)
{
    if (WIFEXITED(end->status))
        return WEXITSTATUS(end->status);
    int signal_number = WTERMSIG(end->status);
    struct rlimit no_core = {0, 0};
    sigset_t own;
    setrlimit(RLIMIT_CORE, &no_core); /* the command's core is the one to look at */
    signal(signal_number, SIG_DFL);
    raise(signal_number);
    sigemptyset(&own);
    sigaddset(&own, signal_number);
    sigprocmask(SIG_UNBLOCK, &own, NULL);
    return 128 + signal_number;
}

int child_status(const char *path)
{
    int status, waited;
    struct sigaction former, ordinary = {.sa_handler = SIG_DFL};
    sigaction(SIGCHLD, &ordinary, &former);
    pid_t child = fork();
    if (child == 0) {
        execl(path, path, (char *)NULL);
        _exit(TOOL_NOT_FOUND);
    }
    do {
        waited = waitpid(child, &status, 0);
    } while (waited < 0 && errno == EINTR);
    sigaction(SIGCHLD, &former, NULL);
    return child > 0 && waited == child && WIFEXITED(status) ? WEXITSTATUS(status) : TOOL_NOT_FOUND;
}
