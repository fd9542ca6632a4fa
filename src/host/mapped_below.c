/* SPDX-License-Identifier: Apache-2.0 */
/* The regions of the processes that a process started: a user knows the number of `vgpu run`, or of
 * a shell in it. */
#include "host/mapped.h"

#include <ctype.h>
#include <dirent.h>
#include <errno.h>
#include <fcntl.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

struct kin {
    unsigned parent, pid;
};

struct kins {
    struct kin *list; /* by parent, then pid */
    size_t count, room;
};

static int compare(const void *one, const void *other)
{
    const struct kin *a = one, *b = other;
    if (a->parent != b->parent)
        return a->parent < b->parent ? -1 : 1;
    return a->pid < b->pid ? -1 : a->pid > b->pid;
}

/* Field 4 of /proc/PID/stat; the command before it may hold blanks and parentheses. 0: gone. */
static unsigned parent_of(unsigned pid)
{
    char name[64], text[512];
    unsigned parent = 0;
    snprintf(name, sizeof(name), "/proc/%u/stat", pid);
    int fd = open(name, O_RDONLY | O_CLOEXEC);
    if (fd < 0)
        return 0;
    ssize_t got = read(fd, text, sizeof(text) - 1);
    close(fd);
    text[got > 0 ? got : 0] = '\0';
    const char *behind = strrchr(text, ')');
    return behind && sscanf(behind, ") %*c %u", &parent) == 1 ? parent : 0;
}

static int add(struct kins *kins, unsigned pid)
{
    if (kins->count == kins->room) {
        size_t room = kins->room ? 2 * kins->room : 1024;
        struct kin *list = realloc(kins->list, room * sizeof(*list));
        if (!list)
            return -ENOMEM;
        kins->list = list;
        kins->room = room;
    }
    kins->list[kins->count++] = (struct kin){parent_of(pid), pid};
    return 0;
}

static int read_kins(struct kins *kins)
{
    int error = 0;
    DIR *directory = opendir("/proc");
    if (!directory)
        return -errno;
    for (struct dirent *entry; !error && (entry = readdir(directory)) != NULL;) {
        if (isdigit((unsigned char)entry->d_name[0]))
            error = add(kins, (unsigned)strtoul(entry->d_name, NULL, 10));
    }
    closedir(directory);
    if (kins->count)
        qsort(kins->list, kins->count, sizeof(*kins->list), compare);
    return error;
}

/* The first whose parent is not less. */
static size_t first_of(const struct kins *kins, unsigned parent)
{
    size_t low = 0, high = kins->count;
    while (low < high) {
        size_t middle = low + (high - low) / 2;
        if (kins->list[middle].parent < parent)
            low = middle + 1;
        else
            high = middle;
    }
    return low;
}

struct tour {
    mapped_visit *visit;
    void *context;
    bool ended;
};

static bool visit_one(unsigned pid, const struct mapping *mapping, const char *path, void *context)
{
    struct tour *tour = context;
    tour->ended = !tour->visit(pid, mapping, path, tour->context);
    return !tour->ended;
}

/* Each has one parent, and a number is taken once: the queue holds all of them at most. What was
 * read while processes came and went could make a circle, which its end bounds. */
static void go_round(const struct kins *kins, unsigned pid, unsigned *queue, struct tour *tour)
{
    size_t end = 0, next = 0;
    for (;;) {
        for (size_t i = first_of(kins, pid);
             i < kins->count && kins->list[i].parent == pid && end < kins->count; i++)
            queue[end++] = kins->list[i].pid;
        if (tour->ended || next == end)
            return;
        pid = queue[next++];
        (void)!mapped_each(pid, visit_one, tour);
    }
}

int mapped_each_below(unsigned pid, mapped_visit *visit, void *context)
{
    struct kins kins = {0};
    struct tour tour = {.visit = visit, .context = context};
    int error = read_kins(&kins);
    unsigned *queue = error ? NULL : malloc((kins.count + 1) * sizeof(*queue));
    if (queue)
        go_round(&kins, pid, queue, &tour);
    else if (!error)
        error = -ENOMEM;
    free(queue);
    free(kins.list);
    return error;
}
