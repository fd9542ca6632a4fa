/* SPDX-License-Identifier: Apache-2.0 */
/* A file system that does not answer keeps whoever asks it, for ever: so the work is a child's. */
#include "doctor/deadline.h"

#include "base/clock.h"
#include "host/say.h"

#include <stdio.h>
#include <stdbool.h>
#include <errno.h>
#include <signal.h>
#include <stdarg.h>
#include <string.h>
#include <sys/mman.h>
#include <sys/prctl.h>
#include <sys/wait.h>
#include <time.h>
#include <unistd.h>

#define STEP_BYTES 512

static char *step; /* shared with the child */

void doctor_step(const char *format, ...)
{
    va_list arguments;
    if (!step)
        return;
    va_start(arguments, format);
    vsnprintf(step, STEP_BYTES, format, arguments);
    va_end(arguments);
}

static void rest(void)
{
    struct timespec pause = {0, 5000000};
    (void)nanosleep(&pause, NULL);
}

static const int ends[] = {SIGHUP, SIGINT, SIGTERM};
static enum doctor_signals taken;

static void change_mask(int how)
{
    sigset_t set;
    sigemptyset(&set);
    for (size_t i = 0; i < sizeof(ends) / sizeof(ends[0]); i++)
        sigaddset(&set, ends[i]);
    (void)sigprocmask(how, &set, NULL);
}

void doctor_take_signals(enum doctor_signals how)
{
    taken = how;
    change_mask(how == DOCTOR_SIGNALS_END_US ? SIG_UNBLOCK : SIG_BLOCK);
}

static bool is_to_end(void)
{
    sigset_t pending;
    bool any = false;
    sigpending(&pending);
    for (size_t i = 0; i < sizeof(ends) / sizeof(ends[0]); i++)
        any |= sigismember(&pending, ends[i]) == 1;
    return taken == DOCTOR_SIGNALS_END_CHILD && any;
}

/* Its exit status, or -1 where it has none in time. */
static int wait_for(pid_t child, unsigned seconds)
{
    uint64_t until = clock_now_ns() + seconds * 1000000000ull;
    do {
        if (is_to_end())
            kill(child, SIGKILL);
        int status;
        pid_t ended = waitpid(child, &status, WNOHANG);
        if (ended == child)
            return WIFEXITED(status) ? WEXITSTATUS(status) : TOOL_FAILED;
        if (ended < 0 && errno != EINTR)
            return TOOL_FAILED;
        rest();
    } while (clock_now_ns() < until);
    return -1;
}

/* Waits until the children of a killed child have ended. They get SIGKILL when it dies, but may
 * still make files until they have ended. This process is their reaper. */
static void wait_for_orphans(unsigned seconds)
{
    uint64_t until = clock_now_ns() + seconds * 1000000000ull;
    pid_t ended;
    while (
        ((ended = waitpid(-1, NULL, WNOHANG)) >= 0 || errno == EINTR) && clock_now_ns() < until) {
        if (ended == 0)
            rest();
    }
}

int doctor_within(unsigned seconds, int (*work)(void *context), void *context)
{
    (void)prctl(PR_SET_CHILD_SUBREAPER, 1);
    step = mmap(NULL, STEP_BYTES, PROT_READ | PROT_WRITE, MAP_SHARED | MAP_ANONYMOUS, -1, 0);
    step = step == MAP_FAILED ? NULL : step;
    (void)signal(SIGCHLD, SIG_DFL);
    pid_t self = getpid(), child = fork();
    if (child < 0) {
        say_error("cannot start a process: %s", strerror(errno));
        return TOOL_FAILED;
    }
    if (child == 0) {
        (void)prctl(PR_SET_PDEATHSIG, SIGKILL);
        change_mask(SIG_UNBLOCK);
        int status = getppid() == self ? work(context) : TOOL_FAILED;
        _exit(say_end(status));
    }
    int status = wait_for(child, seconds);
    if (is_to_end())
        wait_for_orphans(1);
    if (status >= 0)
        return status;
    kill(child, SIGKILL);
    (void)wait_for(child, 1);
    wait_for_orphans(1);
    say_error("no end within %u s; it was %s", seconds, step && *step ? step : "at work");
    return TOOL_FAILED;
}
