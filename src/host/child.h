/* SPDX-License-Identifier: Apache-2.0 */
/* Running a command in this program's place: signals sent to us reach it, its stops are ours, and
 * we end as it ended. */
#ifndef VGPU_HOST_CHILD_H
#define VGPU_HOST_CHILD_H

#include <signal.h>
#include <stdbool.h>

struct child_end {
    int status;    /* as waitpid gives it */
    bool started;  /* false: its program could not be run, which was said */
    sigset_t mask; /* of signals, before it ran */
};

/* A caller that looks on meanwhile. */
struct child_watch {
    int fd;                     /* its input ends a wait; -1: none */
    int (*look)(void *context); /* returns the milliseconds until the next look */
    void *context;
};

/* Starts the command and waits for its end. Returns 0, or an exit status after one line on stderr
 * where it cannot be started. Signals stay blocked: one that comes when the command has just ended
 * was for the command, and is not to keep us from cleaning up and ending as it did. */
int child_run(char **command, struct child_end *ret_end);

/* Likewise, with `watch->look` called when its time or its input has come; never after the
 * command's end. */
int child_run_watched(char **command, const struct child_watch *watch, struct child_end *ret_end);

/* From now on signals are ours again; those that came for the command are not. */
void child_heed_signals(const struct child_end *end);

/* The exit status that the command ended with; where a signal ended it, ends this process by the
 * same signal. */
int child_end_as(const struct child_end *end);

/* Runs the program at `path`, without arguments, and waits for its end. Its exit status, or
 * TOOL_NOT_FOUND where it could not be run or a signal ended it. */
int child_status(const char *path);

#endif
