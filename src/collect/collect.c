/* SPDX-License-Identifier: Apache-2.0 */
/* Looking at all containers: the files that were found or named first, then the processes that no
 * container has yet, for the regions that they map and for the pids of those that lie in a PID
 * namespace of their own. */
#include "collect/collect.h"

#include "base/process.h"
#include "region/region_read.h"
#include "collect/collect_parts.h"
#include "host/find.h"
#include "host/mapped.h"
#include "host/parallel.h"

#include <ctype.h>
#include <dirent.h>
#include <errno.h>
#include <fcntl.h>
#include <pthread.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>
#include <unistd.h>

struct work {
    const struct collect_choice *choice;
    struct collection *collection;
    pthread_mutex_t lock; /* over the collection and `error` */
    size_t room, problem_room;
    struct seen {
        dev_t device;
        ino_t inode;
    } * seen; /* files that are or were read */
    size_t seen_count, seen_room;
    uint64_t own_namespace;
    char **paths;
    bool named;       /* the paths: what is wrong with one is said */
    bool adds_mapped; /* a region that only processes lead to counts */
    unsigned *pids;
    int error; /* -ENOMEM */
};

/* Room for one more of `size` bytes in a list from malloc. Under the lock. */
static void *grow(void *list, size_t count, size_t *room, size_t size)
{
    if (count < *room)
        return list;
    size_t more = *room ? 2 * *room : 64;
    void *grown = realloc(list, more * size);
    if (grown)
        *room = more;
    return grown;
}

static void fail(struct work *work)
{
    pthread_mutex_lock(&work->lock);
    work->error = -ENOMEM;
    pthread_mutex_unlock(&work->lock);
}

static void add_problem(struct work *work, const char *path, int error)
{
    struct collection *to = work->collection;
    char *copy = path ? strdup(path) : NULL;
    pthread_mutex_lock(&work->lock);
    struct collect_problem *problems =
        grow(to->problems, to->problem_count, &work->problem_room, sizeof(*problems));
    if (problems)
        to->problems = problems;
    if (problems && (copy || !path)) {
        problems[to->problem_count++] = (struct collect_problem){copy, error};
    } else {
        free(copy);
        work->error = -ENOMEM;
    }
    pthread_mutex_unlock(&work->lock);
}

/* True for the first thread that comes with the file. */
static bool is_first(struct work *work, const struct stat *status)
{
    bool first = true;
    pthread_mutex_lock(&work->lock);
    for (size_t i = 0; i < work->seen_count && first; i++)
        first = work->seen[i].inode != status->st_ino || work->seen[i].device != status->st_dev;
    struct seen *seen =
        first ? grow(work->seen, work->seen_count, &work->seen_room, sizeof(*seen)) : NULL;
    if (seen) {
        work->seen = seen;
        seen[work->seen_count++] = (struct seen){status->st_dev, status->st_ino};
    } else if (first) {
        work->error = -ENOMEM;
    }
    pthread_mutex_unlock(&work->lock);
    return first;
}

static void add_container(struct work *work, struct collected_container *container)
{
    struct collection *to = work->collection;
    struct collected_container *containers = NULL;
    if (container->process_count || work->choice->all) {
        pthread_mutex_lock(&work->lock);
        containers = grow(to->containers, to->count, &work->room, sizeof(*containers));
        if (containers) {
            to->containers = containers;
            containers[to->count++] = *container;
        } else {
            work->error = -ENOMEM;
        }
        pthread_mutex_unlock(&work->lock);
    }
    if (!containers)
        collection_free_container(container);
}

/* A regular file that is open; closed here. 0, or why it is no region to be shown. */
static int look_at(struct work *work, int fd, const char *path)
{
    struct stat status;
    struct collected_container container;
    int error = fstat(fd, &status) == 0 ? 0 : -errno;
    char *copy = NULL;
    if (!error && is_first(work, &status)) {
        copy = strdup(path);
        error = copy ? collect_region(fd, copy, work->own_namespace, &container) : -ENOMEM;
        if (!error)
            add_container(work, &container);
        else
            free(copy);
        if (error == -ENOMEM)
            fail(work);
    }
    close(fd);
    return error;
}

/* Looked at before it is opened, because opening a device or a pipe can do things by itself. */
static int open_file(const char *path)
{
    struct stat status;
    if (lstat(path, &status) != 0)
        return -errno;
    if (S_ISLNK(status.st_mode))
        return -ELOOP;
    if (!S_ISREG(status.st_mode) || status.st_size < (off_t)VGPU_REGION_FILE_BYTES)
        return -EPROTO;
    int fd = open(path, O_RDONLY | O_CLOEXEC | O_NOFOLLOW | O_NONBLOCK | O_NOCTTY);
    return fd < 0 ? -errno : fd;
}

static void count_unreadable(struct work *work)
{
    pthread_mutex_lock(&work->lock);
    work->collection->unreadable++;
    pthread_mutex_unlock(&work->lock);
}

/* What was not named is passed over where it is no region, or goes away meanwhile. */
static void look_at_path(size_t index, void *context)
{
    struct work *work = context;
    int fd = open_file(work->paths[index]);
    int error = fd < 0 ? fd : look_at(work, fd, work->paths[index]);
    if (error && work->named)
        add_problem(work, work->paths[index], error);
    else if (error == -EACCES || error == -EPERM)
        count_unreadable(work);
}

/* ---- processes ---- */

/* The process with this number in the namespace gets the pid that it has here, and its command
 * line. */
static void name_process(struct work *work, unsigned pid, uint64_t namespace, int inner)
{
    pthread_mutex_lock(&work->lock);
    for (size_t c = 0; c < work->collection->count; c++) {
        struct collected_container *container = &work->collection->containers[c];
        for (unsigned i = 0; i < container->process_count; i++) {
            struct collected_process *process = &container->processes[i];
            if (process->host_pid || process->pid != inner || container->namespaces[i] != namespace)
                continue;
            process->host_pid = (int)pid;
            char *command = collect_command((int)pid, "", 0);
            if (command) {
                free(process->command);
                process->command = command;
            }
        }
    }
    pthread_mutex_unlock(&work->lock);
}

static bool look_at_mapped(
    unsigned pid, const struct mapping *mapping, const char *path, void *context)
{
    struct work *work = context;
    if (work->adds_mapped) {
        int fd = mapped_open(pid, mapping, path, O_RDONLY);
        int error = fd < 0 ? fd : look_at(work, fd, path);
        if (work->named && error)
            add_problem(work, path, error);
        else if (error == -EACCES || error == -EPERM)
            count_unreadable(work);
    }
    uint64_t namespace = collect_namespace(pid);
    if (namespace && namespace != work->own_namespace)
        name_process(work, pid, namespace, collect_inner_pid(pid));
    return true;
}

static void look_at_process(size_t index, void *context)
{
    struct work *work = context;
    (void)!mapped_each(work->pids[index], look_at_mapped, work);
}

static int compare_pids(const void *one, const void *other)
{
    unsigned a = *(const unsigned *)one, b = *(const unsigned *)other;
    return a < b ? -1 : a > b;
}

/* Sorted: processes that some container has, by the numbers that they have here. */
static unsigned *known_pids(const struct collection *collection, size_t *ret_count)
{
    size_t count = 0;
    for (size_t c = 0; c < collection->count; c++)
        count += collection->containers[c].process_count;
    unsigned *pids = malloc((count + 1) * sizeof(*pids));
    *ret_count = 0;
    for (size_t c = 0; c < collection->count && pids; c++) {
        const struct collected_container *container = &collection->containers[c];
        for (unsigned i = 0; i < container->process_count; i++) {
            if (container->processes[i].host_pid)
                pids[(*ret_count)++] = (unsigned)container->processes[i].host_pid;
        }
    }
    if (pids)
        qsort(pids, *ret_count, sizeof(*pids), compare_pids);
    return pids;
}

/* All processes that no container has yet. Returns their count. */
static size_t list_processes(struct work *work)
{
    size_t known_count, count = 0, room = 0;
    unsigned *known = known_pids(work->collection, &known_count);
    DIR *directory = opendir("/proc");
    for (struct dirent *entry; known && directory && (entry = readdir(directory)) != NULL;) {
        unsigned pid = (unsigned)strtoul(entry->d_name, NULL, 10);
        if (!isdigit((unsigned char)entry->d_name[0]) ||
            bsearch(&pid, known, known_count, sizeof(*known), compare_pids))
            continue;
        unsigned *pids = grow(work->pids, count, &room, sizeof(*pids));
        if (!pids)
            break;
        work->pids = pids;
        pids[count++] = pid;
    }
    if (directory)
        closedir(directory);
    free(known);
    return count;
}

static bool any_nameless(const struct collection *collection)
{
    for (size_t c = 0; c < collection->count; c++) {
        for (unsigned i = 0; i < collection->containers[c].process_count; i++) {
            if (!collection->containers[c].processes[i].host_pid)
                return true;
        }
    }
    return false;
}

static void look_at_processes(struct work *work)
{
    if (!work->adds_mapped && !any_nameless(work->collection))
        return;
    parallel_each(list_processes(work), look_at_process, work);
    free(work->pids);
    work->pids = NULL;
}

/* Of one process, whose regions alone are asked for. */
static void look_at_one(struct work *work)
{
    work->adds_mapped = work->named = true;
    size_t problems = work->collection->problem_count;
    int error = mapped_each(work->choice->pid, look_at_mapped, work);
    if (!error && !work->seen_count && work->collection->problem_count == problems)
        error = mapped_each_below(work->choice->pid, look_at_mapped, work);
    if (!error && !work->seen_count && work->collection->problem_count == problems)
        error = -ENODATA;
    if (error)
        add_problem(work, NULL, error);
    work->adds_mapped = false;
}

/* ---- all of it ---- */

static int compare_containers(const void *one, const void *other)
{
    const struct collected_container *a = one, *b = other;
    int order = strcmp(a->pod_namespace, b->pod_namespace);
    order = order ? order : strcmp(a->pod_name, b->pod_name);
    order = order ? order : strcmp(a->container_name, b->container_name);
    return order ? order : strcmp(a->path, b->path);
}

static int look(struct work *work)
{
    struct finds finds = {0};
    const struct collect_choice *choice = work->choice;
    if (choice->file_count || choice->pid) {
        work->paths = (char **)choice->files;
        work->named = true;
        parallel_each(choice->file_count, look_at_path, work);
        if (choice->pid)
            look_at_one(work);
    } else {
        if (find_regions(choice->search, &finds) != 0)
            return -ENOMEM;
        work->paths = finds.paths;
        work->adds_mapped = finds.processes;
        parallel_each(finds.count, look_at_path, work);
    }
    work->named = false;
    look_at_processes(work);
    find_free(&finds);
    return work->error;
}

int collect(const struct collect_choice *choice, struct collection *ret_collection)
{
    *ret_collection = (struct collection){0};
    struct work work = {.choice = choice,
        .collection = ret_collection,
        .lock = PTHREAD_MUTEX_INITIALIZER,
        .own_namespace = process_pid_namespace()};
    int error = look(&work);
    free(work.seen);
    if (error)
        collection_free(ret_collection);
    else if (ret_collection->count)
        qsort(ret_collection->containers, ret_collection->count,
            sizeof(*ret_collection->containers), compare_containers);
    return error;
}
