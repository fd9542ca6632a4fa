/* SPDX-License-Identifier: Apache-2.0 */
/* The threads of the test's processes, as the kernel lists them. */
#ifndef VGPU_TEST_TIME_TASKS_H
#define VGPU_TEST_TIME_TASKS_H

#include <stdbool.h>
#include <stdint.h>
#include <sys/types.h>

struct task {
    pid_t pid, tid;
    pid_t inner_tid;              /* in its own PID namespace */
    int stat, schedstat, syscall; /* open files of /proc */
    char state;                   /* 'R', 'S', ...; 0 where it has ended or was not looked at */
    uint64_t runs;                /* times that it was given a processor */
    uint64_t cpu_ns;              /* processor time */
    /* keeper.c.s */
    uint64_t counted_ns; /* 0, or the processor time up to which the clock stands or went on */
    bool is_listed;      /* needs no look */
};

/* All; tasks_find_new moves them. */
extern struct task *tasks;
extern unsigned tasks_count;

/* False where the kernel does not list what is needed. */
bool tasks_begin(void);

/* Reads state, runs, cpu_ns. False where it has ended. */
bool task_look(struct task *task);

/* Forgets the task; the last of the list takes its place. */
void task_drop(struct task *task);

/* The one with that number in its own PID namespace; NULL where none is known. */
struct task *task_of(pid_t inner_tid);

/* Whether a task was made anywhere since the last call. */
bool tasks_changed(void);

/* Looks for all descendants of this process. */
void tasks_find_new(void);

#endif
