/* SPDX-License-Identifier: Apache-2.0 */
/* Which processes there are below us, and when each is looked at. */
#include "doctor/watch.h"

#include "base/clock.h"
#include "base/process.h"

#include <dirent.h>
#include <errno.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/inotify.h>
#include <sys/prctl.h>
#include <unistd.h>

#define MS 1000000ull
#define SHORTEST_MS 10
#define LONGEST_MS 500
#define EAGER_MS 60 /* after a process opened the driver: the loader maps it soon */
#define EAGER_STEP_MS 3
#define DEPTH 64

/* ---- what to be told of ---- */

static void watch_file(const struct watch *watch, const char *path)
{
    (void)inotify_add_watch(watch->fd, path, IN_OPEN);
}

/* Where the loader finds the driver's library. */
static void watch_directories(const struct watch *watch, const char *list)
{
    while (list && *list) {
        char path[PATH_MAX];
        int length = (int)strcspn(list, ":;");
        snprintf(path, sizeof(path), "%.*s/libcuda.so.1", length, list);
        watch_file(watch, path);
        list += length + (list[length] != '\0');
    }
}

static void watch_driver(const struct watch *watch)
{
    watch_directories(watch, getenv("LD_LIBRARY_PATH"));
    watch_directories(watch,
        "/usr/lib/x86_64-linux-gnu:/usr/lib/aarch64-linux-gnu:/usr/lib64:/usr/lib:/usr/lib/wsl/lib:"
        "/usr/local/nvidia/lib64:/usr/local/cuda/compat");
    watch_file(watch, "/dev/nvidiactl");
    watch_file(watch, "/dev/nvidia-uvm");
}

int watch_begin(struct watch *watch)
{
    *watch = (struct watch){.fd = inotify_init1(IN_CLOEXEC | IN_NONBLOCK)};
    watch->images = calloc(WATCH_IMAGES, sizeof(watch->images[0]));
    if (!watch->images)
        return -ENOMEM;
    if (watch->fd >= 0)
        watch_driver(watch);
    return prctl(PR_SET_CHILD_SUBREAPER, 1, 0, 0, 0) == 0 ? 0 : -errno;
}

void watch_end(struct watch *watch)
{
    if (watch->fd >= 0)
        close(watch->fd);
    free(watch->images);
}

/* ---- the processes ---- */

static struct watch_image *image_of(
    struct watch *watch, pid_t pid, const struct process_status *status)
{
    for (size_t i = watch->count; i-- > 0;) {
        struct watch_image *image = &watch->images[i];
        /* A process that is about to end has no stack any more. */
        if (image->pid == pid && image->start_time == status->start_time &&
            (image->stack == status->stack_start || !status->stack_start))
            return image;
    }
    if (watch->count == WATCH_IMAGES) {
        watch->missed++;
        return NULL;
    }
    struct watch_image *image = &watch->images[watch->count++];
    *image = (struct watch_image){
        .pid = pid, .start_time = status->start_time, .stack = status->stack_start};
    return image;
}

static void look_at(struct watch *watch, pid_t pid, bool all)
{
    struct process_status status;
    if (process_status(pid, &status) != 0 || status.ended)
        return;
    struct watch_image *image = image_of(watch, pid, &status);
    uint64_t now = clock_now_ns();
    if (!image || (!all && now < image->due_ns))
        return;
    watch_examine(image);
    unsigned wait_ms = SHORTEST_MS << (image->looks < 6 ? image->looks : 6);
    image->due_ns = now + (wait_ms < LONGEST_MS ? wait_ms : LONGEST_MS) * MS;
    image->looks++;
}

static void look_below(struct watch *watch, pid_t pid, bool all, unsigned depth);

/* What a thread of the process has started: a list of pids. */
static void look_at_list(struct watch *watch, const char *path, bool all, unsigned depth)
{
    int pid;
    FILE *list = fopen(path, "re");
    while (list && fscanf(list, "%d", &pid) == 1) {
        look_at(watch, pid, all);
        look_below(watch, pid, all, depth + 1);
    }
    if (list)
        fclose(list);
}

static void look_below(struct watch *watch, pid_t pid, bool all, unsigned depth)
{
    char path[64 + NAME_MAX];
    snprintf(path, sizeof(path), "/proc/%d/task", (int)pid);
    DIR *threads = depth < DEPTH ? opendir(path) : NULL;
    for (struct dirent *thread; threads && (thread = readdir(threads)) != NULL;) {
        if (thread->d_name[0] == '.')
            continue;
        snprintf(path, sizeof(path), "/proc/%d/task/%s/children", (int)pid, thread->d_name);
        look_at_list(watch, path, all, depth);
    }
    if (threads)
        closedir(threads);
}

/* Whether a process opened the driver since the last time. */
static bool take_events(const struct watch *watch)
{
    char events[4096];
    bool any = false;
    while (watch->fd >= 0 && read(watch->fd, events, sizeof(events)) > 0)
        any = true;
    return any;
}

/* Looking takes at most a twentieth of a core, a fifth while a process starts to use the driver. */
int watch_look(struct watch *watch, bool all)
{
    uint64_t began = clock_now_ns();
    if (take_events(watch))
        watch->eager_until_ns = began + EAGER_MS * MS;
    bool eager = began < watch->eager_until_ns;
    look_below(watch, getpid(), all || eager, 0);
    uint64_t took_ms = (clock_now_ns() - began) / MS;
    uint64_t wait_ms = eager ? EAGER_STEP_MS + 4 * took_ms : SHORTEST_MS + 19 * took_ms;
    return wait_ms < 10000 ? (int)wait_ms : 10000;
}

const struct watch_image *watch_find(
    const struct watch *watch, unsigned own_pid, uint64_t start_time)
{
    for (size_t i = watch->count; i-- > 0;) {
        const struct watch_image *image = &watch->images[i];
        if (image->own_pid == own_pid && image->start_time == start_time)
            return image;
    }
    return NULL;
}

bool watch_lives(const struct watch_image *image)
{
    struct process_status status;
    return process_status(image->pid, &status) == 0 && !status.ended &&
           status.start_time == image->start_time && status.stack_start == image->stack;
}
