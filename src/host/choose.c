/* SPDX-License-Identifier: Apache-2.0 */
/* A region by its file's name, by a process that maps it, or by the environment. */
#include "host/choose.h"

#include "base/parse.h"
#include "config/config_process.h"
#include "config/override.h"
#include "host/mapped.h"
#include "host/say.h"
#include "region/region_file.h"
#include "region/region_set.h"

#include <errno.h>
#include <fcntl.h>
#include <inttypes.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>

#define PID_MAX 4194304u /* the kernel's own largest */

const char *choose_explain(int error)
{
    switch (error) {
    case -EPROTO:
        return "it is not a region of this version";
    case -ELOOP:
        return "it is a symbolic link";
    case -EPERM:
        return "it is another user's";
    case -ESTALE:
        return "it was deleted; its processes make it anew when they next use the GPU";
    default:
        return strerror(-error);
    }
}

bool choose_lacks_directory(const char *path, char *ret_directory, size_t size)
{
    struct stat status;
    const char *slash = strrchr(path, '/');
    if (!slash || slash == path || (size_t)(slash - path) >= size)
        return false;
    snprintf(ret_directory, size, "%.*s", (int)(slash - path), path);
    return stat(ret_directory, &status) != 0 ? errno == ENOENT || errno == ENOTDIR
                                             : !S_ISDIR(status.st_mode);
}

static int refuse(const struct chosen_region *chosen, int error)
{
    say_error("cannot use the region %.256s (%s): %s", chosen->path, chosen->reason,
        choose_explain(error));
    return TOOL_FAILED;
}

static int open_path(struct chosen_region *chosen)
{
    int fd = region_file_open(chosen->path, false);
    int error = fd < 0 ? fd : region_set_open(&chosen->region, fd);
    return error ? refuse(chosen, error) : 0;
}

static int choose_file(const char *file, struct chosen_region *chosen)
{
    if (!*file || strlen(file) >= sizeof(chosen->path)) {
        say_error("--region \"%.256s\" is not accepted; accepted: the path of a file", file);
        return TOOL_USAGE;
    }
    snprintf(chosen->path, sizeof(chosen->path), "%s", file);
    snprintf(chosen->reason, sizeof(chosen->reason), "named by --region");
    return open_path(chosen);
}

/* Only what says where the region lies: complaints about a limit's variable are none of ours. */
static char *find_region_variable(const char *name)
{
    return strcmp(name, "CUDA_DEVICE_MEMORY_SHARED_CACHE") ? NULL : config_process_lookup(name);
}

void choose_config(struct config *ret_config)
{
    config_process_look();
    config_read(ret_config, find_region_variable);
}

static int choose_by_environment(struct chosen_region *chosen)
{
    struct config config;
    choose_config(&config);
    const char *reason = config.region_named ? "named by CUDA_DEVICE_MEMORY_SHARED_CACHE"
                                             : "the default; --region names another";
    if (override_find("CUDA_DEVICE_MEMORY_SHARED_CACHE"))
        reason = "named in " OVERRIDE_PATH;
    if (region_file_is_pinned())
        reason = "root's, which holds everywhere here";
    snprintf(chosen->reason, sizeof(chosen->reason), "%s", reason);
    snprintf(chosen->path, sizeof(chosen->path), "%s", config.region_path);
    char path[sizeof(chosen->region.path)];
    int error = region_file_path(&config, path, sizeof(path));
    if (!error && strlen(path) >= sizeof(chosen->path))
        error = -ENAMETOOLONG;
    if (error)
        return refuse(chosen, error);
    memcpy(chosen->path, path, strlen(path) + 1);
    return open_path(chosen);
}

static bool open_first(unsigned pid, const struct mapping *mapping, const char *path, void *context)
{
    struct chosen_region *chosen = context;
    snprintf(chosen->path, sizeof(chosen->path), "%.*s", PATH_MAX - 1, path);
    int fd = mapped_open(pid, mapping, path, O_RDWR);
    chosen->error = fd < 0 ? fd : region_set_open(&chosen->region, fd);
    return false;
}

/* The first region that the process maps. 0, -ENODATA where it maps none, or another -errno. */
static int open_mapped(unsigned pid, struct chosen_region *chosen)
{
    chosen->error = -ENODATA;
    int error = mapped_each(pid, open_first, chosen);
    return error ? error : chosen->error;
}

struct below {
    struct chosen_region *chosen;
    struct mapping mapping;
    unsigned pid, top;
};

/* One container's only: which of several is meant cannot be told. */
static bool open_only(unsigned pid, const struct mapping *mapping, const char *path, void *context)
{
    struct below *below = context;
    struct chosen_region *chosen = below->chosen;
    if (below->pid) {
        bool same = mapping->inode == below->mapping.inode &&
                    mapping->device_major == below->mapping.device_major &&
                    mapping->device_minor == below->mapping.device_minor;
        if (!same && !chosen->error)
            region_detach(&chosen->region);
        chosen->error = same ? chosen->error : -ENOTUNIQ;
        return same;
    }
    below->pid = pid;
    below->mapping = *mapping;
    (void)open_first(pid, mapping, path, chosen);
    snprintf(chosen->reason, sizeof(chosen->reason), "of process %u, which is below %u", pid,
        below->top);
    return true;
}

/* As open_mapped, for the processes that it started. */
static int open_below(unsigned pid, struct chosen_region *chosen)
{
    struct below below = {.chosen = chosen, .top = pid};
    int error = mapped_each_below(pid, open_only, &below);
    return error ? error : chosen->error;
}

static int refuse_several(unsigned pid)
{
    say_error("the processes that process %u started are in several containers: name one of "
              "them; 'vgpu ps --pid %u' lists them",
        pid, pid);
    return TOOL_FAILED;
}

static int choose_by_pid(const char *text, struct chosen_region *chosen)
{
    uint64_t pid;
    if (parse_number(text, PID_MAX, &pid) != 0 || !pid) {
        say_error("--pid \"%.64s\" is not accepted; accepted: a process's number", text);
        return TOOL_USAGE;
    }
    snprintf(chosen->reason, sizeof(chosen->reason), "of process %" PRIu64, pid);
    int error = open_mapped((unsigned)pid, chosen);
    if (error == -ENODATA)
        error = open_below((unsigned)pid, chosen);
    if (error == -ENOTUNIQ)
        return refuse_several((unsigned)pid);
    if (error && chosen->path[0])
        return refuse(chosen, error);
    if (error == -ENODATA)
        say_error("process %" PRIu64 " has no region, nor has any that it started: they run "
                  "without vgpu, or have not used the GPU yet",
            pid);
    else if (error == -ENOENT || error == -ESRCH)
        say_error("there is no process %" PRIu64, pid);
    else if (error)
        say_error("process %" PRIu64 " cannot be looked at: %s", pid, strerror(-error));
    return error ? TOOL_FAILED : 0;
}

int choose_region(const struct region_choice *choice, struct chosen_region *ret_chosen)
{
    *ret_chosen = (struct chosen_region){.region = {.fd = -1, .slot = -1}};
    if (choice->file && choice->pid) {
        say_error("--region and --pid exclude each other");
        return TOOL_USAGE;
    }
    if (choice->file)
        return choose_file(choice->file, ret_chosen);
    return choice->pid ? choose_by_pid(choice->pid, ret_chosen) : choose_by_environment(ret_chosen);
}
