/* SPDX-License-Identifier: Apache-2.0 */
/* Processes that are measured: each in a session of its own, with a deadline, and none left behind.
 * One thread only. */
#ifndef VGPU_BENCH_PROCESS_H
#define VGPU_BENCH_PROCESS_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>
#include <sys/types.h>

#define BENCH_TIME_USED_UP "the time of its group was used up before it"

struct bench_process {
    pid_t pid;   /* 0: none */
    int in, out; /* pipes to its stdin and from its stdout; -1 */
    int err;     /* a file without a name, its stderr */
    char *text;  /* what it wrote to stdout, terminated; NULL before it wrote anything */
    size_t length;
    bool ended; /* and `status` is as waitpid gives it */
    bool hung;  /* its deadline passed, and it was killed */
    bool cut;   /* its deadline is the end of its group's time, which may be no fault of its own */
    int status;
    uint64_t started_ns, ended_ns; /* CLOCK_MONOTONIC; `ended_ns` when its end was seen */
    uint64_t deadline_ns;
    uint64_t closed_ns; /* when its stdout ended: it is about to end as well; 0: not yet */
};

/* Catches SIGINT, SIGTERM and SIGHUP, and takes over orphans of what is started. Once, first. */
void bench_process_begin(void);

/* The signal that asked us to stop; 0: none. All that waits returns then. */
int bench_stopped(void);

/* Starts `arguments` (the first is the program's path) with that environment and without a
 * deadline. Returns 0 or -errno; what was started is to be finished. */
int bench_process_start(struct bench_process *process, char *const *arguments,
    char *const *environment) __attribute__((warn_unused_result));

/* Reads what the processes write, until all have ended, were killed at their deadlines, or a signal
 * asked us to stop (and they were killed). */
void bench_process_wait(struct bench_process *processes, size_t count);

/* The same until the time of CLOCK_MONOTONIC at the latest. */
void bench_process_wait_until(struct bench_process *processes, size_t count, uint64_t until_ns);

/* Sleeps until the time of CLOCK_MONOTONIC, or until a signal asks us to stop. */
void bench_sleep_until(uint64_t until_ns);

/* Waits for the next whole line of its stdout behind *offset and moves *offset past it; the line
 * ends in
 * '\n' in `text`. NULL where the process ended or hung without one. */
const char *bench_process_line(struct bench_process *process, size_t *offset);

/* The number in the next line "WORD NUMBER", past which it moves *offset; negative where the
 * process ended or hung without one. */
double bench_process_word(struct bench_process *process, size_t *offset, const char *word);

/* Writes a line to its stdin; one that does not read is no failure. */
void bench_process_tell(struct bench_process *process, const char *line);

/* Its stdin ends here. */
void bench_process_end_input(struct bench_process *process);

void bench_process_kill(struct bench_process *process, int signal_number);

/* Kills it and all that it started, and frees what it holds. None is a valid one. */
void bench_process_finish(struct bench_process *process);

/* Why it gave no result: "it did not end within 30 s", "it ended by signal 11 (Segmentation
 * fault)", "it ended with status 1: <its last line on stderr>"; NULL where it ended well. */
const char *bench_process_failure(const struct bench_process *process, char *buffer, size_t size);

#endif
