/* SPDX-License-Identifier: Apache-2.0 */
/* A command as our child, with signals passed on. */
#include "tool/child.h"

#include "tool/tool.h"

#include <errno.h>
#include <signal.h>
#include <stdbool.h>
#include <string.h>
#include <sys/resource.h>
#include <sys/wait.h>
#include <unistd.h>

static void start(char **command, const sigset_t *mask, const struct sigaction *child_action)
{
    sigaction(SIGCHLD, child_action, NULL);
    sigprocmask(SIG_SETMASK, mask, NULL);
    execvp(command[0], command);
    int error = errno;
    tool_error("cannot run \"%.256s\": %s", command[0], strerror(error));
    _exit(error == ENOENT ? TOOL_NOT_FOUND : TOOL_CANNOT_EXECUTE);
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
            raise(SIGSTOP);
        } else {
            ret_end->status = status;
            ended = true;
        }
    }
    return ended;
}

int child_run(char **command, struct child_end *ret_end)
{
    sigset_t all, former;
    struct sigaction child_action, ordinary = {.sa_handler = SIG_DFL};
    /* Where it is ignored the kernel takes ended children away without a word. */
    sigaction(SIGCHLD, &ordinary, &child_action);
    sigfillset(&all);
    sigprocmask(SIG_BLOCK, &all, &former);
    pid_t child = fork();
    if (child < 0) {
        tool_error("cannot fork: %s", strerror(errno));
        return TOOL_FAILED;
    }
    if (child == 0)
        start(command, &former, &child_action);
    for (;;) {
        siginfo_t info;
        int signal = sigwaitinfo(&all, &info);
        if (signal == SIGCHLD) {
            if (reap(child, ret_end))
                break;
        } else if (signal > 0 && info.si_code != SI_KERNEL) {
            /* What the terminal sends, the child got too. */
            kill(child, signal);
        }
    }
    sigprocmask(SIG_SETMASK, &former, NULL);
    return 0;
}

int child_end_as(const struct child_end *end)
{
    if (WIFEXITED(end->status))
        return WEXITSTATUS(end->status);
    int signal_number = WTERMSIG(end->status);
    struct rlimit no_core = {0, 0};
    setrlimit(RLIMIT_CORE, &no_core); /* the command's core is the one to look at */
    signal(signal_number, SIG_DFL);
    raise(signal_number);
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
