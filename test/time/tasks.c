/* SPDX-License-Identifier: Apache-2.0 */
/* Threads by /proc: descendants of this process, their states and counts. */
#include "tasks.h"

#include <dirent.h>
#include <fcntl.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

struct task *tasks;
unsigned tasks_count;
static unsigned tasks_room;
static int loadavg = -1;
static char last_made[32];

static ssize_t read_at_start(int fd, char *ret_text, size_t bytes)
{
    ssize_t length = pread(fd, ret_text, bytes - 1, 0);
    ret_text[length > 0 ? length : 0] = '\0';
    return length;
}

bool tasks_begin(void)
{
    char path[64];
    snprintf(path, sizeof(path), "/proc/self/task/%d/children", (int)getpid());
    loadavg = open("/proc/loadavg", O_RDONLY | O_CLOEXEC);
    return loadavg >= 0 && access(path, R_OK) == 0 && access("/proc/self/schedstat", R_OK) == 0 &&
           access("/proc/self/syscall", R_OK) == 0;
}

/* A thread can be in a state of sleep and still run, as it does in wait4 until it has looked at all
 * children: the kernel then says "running" where it would say in which call the thread is blocked.
 * Of one that another processor has been asked to wake, the kernel still names the call, while its
 * state is "running" already (TASK_WAKING, Linux 6.18): only both together tell that it sleeps. */
static bool is_blocked(const struct task *task)
{
    char text[64];
    return read_at_start(task->syscall, text, sizeof(text)) > 0 && strncmp(text, "running", 7) != 0;
}

static char read_state(const struct task *task)
{
    char text[512];
    if (read_at_start(task->stat, text, sizeof(text)) <= 0)
        return 0;
    const char *name_end = strrchr(text, ')');
    return name_end ? name_end[2] : 0;
}

bool task_look(struct task *task)
{
    char text[128];
    unsigned long long cpu = 0, waited = 0, runs = 0;
    bool lives = read_at_start(task->schedstat, text, sizeof(text)) > 0 &&
                 sscanf(text, "%llu %llu %llu", &cpu, &waited, &runs) == 3;
    bool blocked = lives && is_blocked(task);
    task->state = lives ? read_state(task) : 0;
    if (task->state == 'S' && !blocked)
        task->state = 'R';
    task->runs = runs;
    task->cpu_ns = cpu;
    return task->state && task->state != 'Z';
}

void task_drop(struct task *task)
{
    close(task->stat);
    close(task->schedstat);
    close(task->syscall);
    *task = tasks[--tasks_count];
}

struct task *task_of(pid_t inner_tid)
{
    for (unsigned i = 0; i < tasks_count; i++) {
        if (tasks[i].inner_tid == inner_tid)
            return &tasks[i];
    }
    return NULL;
}

/* The kernel tells the number that it gave last, whatever the namespace. */
bool tasks_changed(void)
{
    char text[128];
    (void)read_at_start(loadavg, text, sizeof(text));
    const char *number = strrchr(text, ' ');
    if (!number || !strncmp(number, last_made, sizeof(last_made) - 1))
        return false;
    snprintf(last_made, sizeof(last_made), "%s", number);
    return true;
}

/* The last number of NSpid. */
static pid_t read_inner_tid(pid_t pid, pid_t tid)
{
    char path[64], line[256];
    pid_t inner = tid;
    snprintf(path, sizeof(path), "/proc/%d/task/%d/status", (int)pid, (int)tid);
    FILE *file = fopen(path, "re");
    while (file && fgets(line, sizeof(line), file)) {
        if (!strncmp(line, "NSpid:", 6))
            inner = (pid_t)atoi(strrchr(line, '\t'));
    }
    if (file)
        fclose(file);
    return inner;
}

static int open_of(pid_t pid, pid_t tid, const char *name)
{
    char path[64];
    snprintf(path, sizeof(path), "/proc/%d/task/%d/%s", (int)pid, (int)tid, name);
    return open(path, O_RDONLY | O_CLOEXEC);
}

static void add(pid_t pid, pid_t tid)
{
    for (unsigned i = 0; i < tasks_count; i++) {
        if (tasks[i].tid == tid && tasks[i].pid == pid)
            return;
    }
    if (tasks_count == tasks_room) {
        tasks_room = 2 * tasks_room + 64;
        tasks = realloc(tasks, tasks_room * sizeof(*tasks));
        if (!tasks)
            abort();
    }
    struct task *task = &tasks[tasks_count];
    *task = (struct task){.pid = pid,
        .tid = tid,
        .inner_tid = read_inner_tid(pid, tid),
        .stat = open_of(pid, tid, "stat"),
        .schedstat = open_of(pid, tid, "schedstat"),
        .syscall = open_of(pid, tid, "syscall")};
    if (task->stat >= 0 && task->schedstat >= 0 && task->syscall >= 0 && read_state(task) != 'Z') {
        tasks_count++;
        return;
    }
    close(task->stat);
    close(task->schedstat);
    close(task->syscall);
}

static void add_process(pid_t pid, bool is_own);

static void add_children(pid_t pid, pid_t tid)
{
    char path[64];
    int child;
    snprintf(path, sizeof(path), "/proc/%d/task/%d/children", (int)pid, (int)tid);
    FILE *file = fopen(path, "re");
    while (file && fscanf(file, "%d", &child) == 1)
        add_process(child, false);
    if (file)
        fclose(file);
}

static void add_process(pid_t pid, bool is_own)
{
    char path[64];
    snprintf(path, sizeof(path), "/proc/%d/task", (int)pid);
    DIR *directory = opendir(path);
    for (const struct dirent *entry; directory && (entry = readdir(directory));) {
        pid_t tid = (pid_t)atoi(entry->d_name);
        if (tid > 0 && !is_own)
            add(pid, tid);
        if (tid > 0)
            add_children(pid, tid);
    }
    if (directory)
        closedir(directory);
}

void tasks_find_new(void)
{
    add_process(getpid(), true);
}
