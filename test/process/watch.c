/* SPDX-License-Identifier: Apache-2.0 */
/* watch REPORT COMMAND...: runs a command, and when each of its processes ends writes a line of
 * what it was: its state as others see it in /proc, without the addresses, pids and random names
 * that differ from run to run. Ends as the command ends; 125 where processes cannot be traced. */
#include <ctype.h>
#include <dirent.h>
#include <errno.h>
#include <fcntl.h>
#include <limits.h>
#include <signal.h>
#include <stdbool.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/ptrace.h>
#include <sys/resource.h>
#include <sys/wait.h>
#include <unistd.h>

#define PROCESSES_MAX 4096
#define LINE_MAX_BYTES 16384
#define LEFT_OUT "libvgpu" /* in the names of mapped files */

struct process {
    pid_t pid;
    unsigned threads_started;
    char *line; /* as of the last of its threads that ended */
};

static struct process processes[PROCESSES_MAX];
static int process_count;

static struct process *process_of(pid_t pid)
{
    for (int i = 0; i < process_count; i++) {
        if (processes[i].pid == pid)
            return &processes[i];
    }
    if (process_count == PROCESSES_MAX)
        exit(125);
    processes[process_count] = (struct process){.pid = pid};
    return &processes[process_count++];
}

static void append(char *line, const char *text)
{
    size_t used = strlen(line);
    snprintf(line + used, LINE_MAX_BYTES - used, "%s", text);
}

static FILE *open_proc(pid_t thread, const char *name)
{
    char path[64];
    snprintf(path, sizeof(path), "/proc/%d/%s", (int)thread, name);
    return fopen(path, "re");
}

/* The value of a field of status; empty where it is absent. */
static void status_field(pid_t thread, const char *name, char value[64])
{
    char text[256];
    FILE *status = open_proc(thread, "status");
    value[0] = '\0';
    while (status && fgets(text, sizeof(text), status)) {
        size_t length = strlen(name);
        if (!strncmp(text, name, length) && text[length] == ':')
            sscanf(text + length + 1, "%63s", value);
    }
    if (status)
        fclose(status);
}

static pid_t process_of_thread(pid_t thread)
{
    char value[64];
    status_field(thread, "Tgid", value);
    return value[0] ? (pid_t)atoi(value) : thread;
}

/* What a path is, without numbers: pipe:[N], /proc/N/fd, a file under /tmp by that alone. */
static void append_path(char *line, const char *path)
{
    char plain[PATH_MAX] = "";
    size_t used = 0;
    if (!strncmp(path, "/tmp/", 5) || strstr(path, "(deleted)"))
        path = "/tmp";
    for (; *path && used < sizeof(plain) - 1; path++) {
        if (!isdigit((unsigned char)*path) || !used || plain[used - 1] != 'N')
            plain[used++] = isdigit((unsigned char)*path) ? 'N' : *path;
    }
    append(line, plain);
}

static void append_link(char *line, pid_t thread, const char *name)
{
    char path[PATH_MAX], target[PATH_MAX];
    snprintf(path, sizeof(path), "/proc/%d/%s", (int)thread, name);
    ssize_t length = readlink(path, target, sizeof(target) - 1);
    target[length > 0 ? length : 0] = '\0';
    append_path(line, target);
}

static void append_descriptors(char *line, pid_t thread)
{
    char path[64], name[32];
    snprintf(path, sizeof(path), "/proc/%d/fd", (int)thread);
    for (int fd = 0; fd < 1024; fd++) {
        snprintf(path, sizeof(path), "/proc/%d/fd/%d", (int)thread, fd);
        char target[8];
        if (readlink(path, target, sizeof(target)) < 0)
            continue;
        snprintf(name, sizeof(name), " %d=", fd);
        append(line, name);
        snprintf(name, sizeof(name), "fd/%d", fd);
        append_link(line, thread, name);
    }
}

/* What it was started with: LD_PRELOAD is what the runs differ in, and what the loader of a
 * set-user-ID program takes away. */
static void append_environment(char *line, pid_t thread)
{
    FILE *variables = open_proc(thread, "environ");
    char *entry = NULL, text[64];
    size_t size = 0;
    uint64_t hash = 14695981039346656037ull;
    unsigned count = 0;
    while (variables && getdelim(&entry, &size, '\0', variables) > 0) {
        if (!strncmp(entry, "LD_PRELOAD=", 11))
            continue;
        count++;
        for (const char *c = entry; *c; c++)
            hash = (hash ^ (unsigned char)*c) * 1099511628211ull;
    }
    free(entry);
    if (variables)
        fclose(variables);
    snprintf(text, sizeof(text), " environment=%u:%llx", count, (unsigned long long)hash);
    append(line, text);
}

/* The shared objects that it has mapped, each once. */
static void append_objects(char *line, pid_t thread)
{
    char text[PATH_MAX + 128], last[PATH_MAX] = "", name[PATH_MAX];
    FILE *maps = open_proc(thread, "maps");
    append(line, " objects=");
    while (maps && fgets(text, sizeof(text), maps)) {
        const char *base = strrchr(text, '/');
        if (!base || sscanf(base + 1, "%s", name) != 1 || !strstr(name, ".so") ||
            !strcmp(name, last) || strstr(name, LEFT_OUT))
            continue;
        snprintf(last, sizeof(last), "%s", name);
        append(line, name);
        append(line, ",");
    }
    if (maps)
        fclose(maps);
}

static void append_status(char *line, pid_t thread, const char *name)
{
    char value[64];
    status_field(thread, name, value);
    append(line, " ");
    append(line, name);
    append(line, "=");
    append(line, value);
}

/* Files and signal actions are the process's, whichever of its threads ends; the mask is taken from
 * the first thread. */
static void describe(pid_t thread, pid_t pid, unsigned long code)
{
    char *line = calloc(1, LINE_MAX_BYTES), text[64];
    struct process *process = process_of(pid);
    status_field(thread, "Name", text);
    append(line, process->threads_started ? "threaded" : text);
    snprintf(text, sizeof(text), " end=%#lx threads=%u", code, process->threads_started);
    append(line, text);
    append_status(line, thread, "Umask");
    append_status(line, pid, "SigBlk");
    append_status(line, thread, "SigIgn");
    append_status(line, thread, "SigCgt");
    append(line, " cwd=");
    append_link(line, thread, "cwd");
    append_descriptors(line, thread);
    append_environment(line, thread);
    append_objects(line, thread);
    free(process->line);
    process->line = line;
}

static void handle_event(pid_t thread, int event, int signal)
{
    unsigned long message = 0;
    int request = PTRACE_CONT, deliver = event ? 0 : signal;
    ptrace(PTRACE_GETEVENTMSG, thread, NULL, &message);
    switch (event) {
    case PTRACE_EVENT_EXIT:
        describe(thread, process_of_thread(thread), message);
        break;
    case PTRACE_EVENT_CLONE:
        if (process_of_thread((pid_t)message) == process_of_thread(thread))
            process_of(process_of_thread(thread))->threads_started++;
        break;
    case PTRACE_EVENT_STOP: /* a new tracee, or one that job control has stopped */
        if (signal == SIGSTOP || signal == SIGTSTP || signal == SIGTTIN || signal == SIGTTOU)
            request = PTRACE_LISTEN;
        break;
    }
    ptrace((enum __ptrace_request)request, thread, NULL, (void *)(long)deliver);
}

static int watch(pid_t first, FILE *report)
{
    int status, first_status = 0;
    pid_t thread;
    while ((thread = waitpid(-1, &status, __WALL)) > 0 || errno == EINTR) {
        if (thread > 0 && WIFSTOPPED(status))
            handle_event(thread, status >> 16, WSTOPSIG(status));
        else if (thread == first)
            first_status = status;
    }
    for (int i = 0; i < process_count; i++)
        fprintf(report, "%s\n", processes[i].line ? processes[i].line : "ended unseen");
    fclose(report);
    return first_status;
}

int main(int argc, char **argv)
{
    int gate[2];
    const long options = PTRACE_O_TRACEFORK | PTRACE_O_TRACEVFORK | PTRACE_O_TRACECLONE |
                         PTRACE_O_TRACEEXEC | PTRACE_O_TRACEEXIT | PTRACE_O_EXITKILL;
    FILE *report = argc > 2 ? fopen(argv[1], "we") : NULL;
    if (!report || pipe2(gate, O_CLOEXEC) != 0)
        return 125;
    pid_t pid = fork();
    if (pid == 0) {
        char byte;
        close(gate[1]);
        if (read(gate[0], &byte, 1) == 1)
            execvp(argv[2], argv + 2);
        _exit(127);
    }
    if (ptrace(PTRACE_SEIZE, pid, NULL, (void *)options) != 0)
        return 125;
    (void)!write(gate[1], "", 1);
    close(gate[0]);
    close(gate[1]);
    int status = watch(pid, report);
    if (WIFSIGNALED(status)) {
        const struct rlimit none = {0, 0};
        setrlimit(RLIMIT_CORE, &none);
        signal(WTERMSIG(status), SIG_DFL);
        raise(WTERMSIG(status));
    }
    return WEXITSTATUS(status);
}
