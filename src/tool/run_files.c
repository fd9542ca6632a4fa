/* SPDX-License-Identifier: Apache-2.0 */
/* Where the region of a `vgpu run` lies, and its simulated machine: a directory of its own under
 * /tmp where no other place is named. It is locked as long as its `vgpu run` lives. */
#include "tool/run_files.h"

#include "base/file.h"
#include "base/guard.h"
#include "host/choose.h"
#include "host/glob.h"
#include "region/region.h"
#include "region/slot.h"
#include "tool/tool.h"
#include "vgpu/board.h"

#include <errno.h>
#include <fcntl.h>
#include <limits.h>
#include <stdbool.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/file.h>
#include <sys/stat.h>
#include <time.h>
#include <unistd.h>

#define LEFT_OVER_SECONDS 60

/* Whether a process of the container whose region lies at the path lives on. */
static bool region_in_use(const char *path)
{
    struct region region;
    if (access(path, F_OK) != 0 || region_open(&region, path) != 0)
        return false;
    guard_enter();
    bool live = slot_any_live(&region);
    guard_leave();
    region_detach(&region);
    return live;
}

/* Which region the run's processes use: `where` in its directory says. */
static void write_where(const char *directory)
{
    char path[PATH_MAX];
    const char *region = getenv("CUDA_DEVICE_MEMORY_SHARED_CACHE");
    snprintf(path, sizeof(path), "%s/where", directory);
    int fd = region ? open(path, O_WRONLY | O_CREAT | O_EXCL | O_NOFOLLOW | O_CLOEXEC, 0644) : -1;
    if (fd < 0)
        return;
    (void)!file_write(fd, region, strlen(region));
    close(fd);
}

/* The directory is open to all users: what lies there under the name may be anything. */
static bool read_where(const char *directory, char *region, size_t size)
{
    char path[PATH_MAX];
    struct stat status;
    snprintf(path, sizeof(path), "%s/where", directory);
    int fd = open(path, O_RDONLY | O_NOFOLLOW | O_NONBLOCK | O_CLOEXEC);
    if (fd < 0)
        return false;
    ssize_t length =
        fstat(fd, &status) == 0 && S_ISREG(status.st_mode) && status.st_uid == geteuid()
            ? read(fd, region, size - 1)
            : -1;
    close(fd);
    region[length > 0 ? length : 0] = '\0';
    return length > 0;
}

static bool processes_left(const char *directory)
{
    char region[PATH_MAX];
    return read_where(directory, region, sizeof(region)) && region_in_use(region);
}

/* Of a machine of the run's own (tool/run_registry.c). */
static void remove_registries(const char *directory)
{
    char path[PATH_MAX];
    glob_t found;
    snprintf(path, sizeof(path), "%s/machine.boards/" VGPU_BOARD_FILE_PREFIX "*", directory);
    if (glob(path, GLOB_NOSORT, NULL, &found) == 0) {
        for (size_t i = 0; i < found.gl_pathc; i++)
            unlink(found.gl_pathv[i]);
    }
    globfree(&found);
    snprintf(path, sizeof(path), "%s/machine.boards", directory);
    rmdir(path);
}

static void remove_directory(const char *directory)
{
    static const char *const names[] = {"region", "machine", "where"};
    char path[PATH_MAX];
    for (size_t i = 0; i < sizeof(names) / sizeof(names[0]); i++) {
        snprintf(path, sizeof(path), "%s/%s", directory, names[i]);
        unlink(path);
    }
    remove_registries(directory);
    rmdir(directory);
}

/* True where the directory is this user's, its `vgpu run` is gone (it holds the lock while it
 * lives), and no process of the run lives on. A young one may just be coming to be. */
static bool is_left_over(const char *directory)
{
    struct stat status;
    int fd = open(directory, O_RDONLY | O_DIRECTORY | O_NOFOLLOW | O_CLOEXEC);
    bool left = fd >= 0 && fstat(fd, &status) == 0 && status.st_uid == geteuid() &&
                time(NULL) - status.st_mtime > LEFT_OVER_SECONDS &&
                flock(fd, LOCK_EX | LOCK_NB) == 0 && !processes_left(directory);
    if (fd >= 0)
        close(fd);
    return left;
}

void run_files_sweep(void)
{
    glob_t found;
    if (glob("/tmp/vgpu-run-??????", GLOB_NOSORT, NULL, &found) != 0)
        return;
    for (size_t i = 0; i < found.gl_pathc; i++) {
        if (is_left_over(found.gl_pathv[i]))
            remove_directory(found.gl_pathv[i]);
    }
    globfree(&found);
}

void run_files_remove(const char *directory)
{
    if (directory[0] && !processes_left(directory))
        remove_directory(directory);
}

static int refuse_region(const char *name, const char *reason)
{
    say_error("--region \"%.256s\" is not accepted: %s; accepted: the path of a file, or of one "
              "to be made",
        name, reason);
    return TOOL_USAGE;
}

static int refuse_missing(const char *name, const char *directory)
{
    say_error("--region \"%.256s\" is not accepted: there is no directory %.256s; make it first",
        name, directory);
    return TOOL_USAGE;
}

/* A region's name counts from where we are, not from where the command's processes will be. */
static int name_region(const char *name)
{
    char directory[PATH_MAX] = "", path[PATH_MAX];
    struct stat status;
    if (!*name)
        return refuse_region(name, "it is empty");
    if (*name != '/' && !getcwd(directory, sizeof(directory)))
        return refuse_region(name, strerror(errno));
    int length = snprintf(path, sizeof(path), "%s%s%s", directory, directory[0] ? "/" : "", name);
    if (length < 0 || (size_t)length >= sizeof(path))
        return refuse_region(name, strerror(ENAMETOOLONG));
    if (choose_lacks_directory(path, directory, sizeof(directory)))
        return refuse_missing(name, directory);
    bool there = lstat(path, &status) == 0;
    if (!there && errno != ENOENT)
        return refuse_region(name, strerror(errno));
    if (there && S_ISLNK(status.st_mode))
        return refuse_region(name, "it is a symbolic link");
    if (there && !S_ISREG(status.st_mode))
        return refuse_region(name, "it is no regular file");
    setenv("CUDA_DEVICE_MEMORY_SHARED_CACHE", path, 1);
    return 0;
}

static bool has_machine(const char *sim)
{
    const char *machine = getenv("VGPU_SIM_MACHINE");
    return strstr(sim, "machine=") || (machine && *machine);
}

int run_files_make(const char *region, const char *sim, char *directory)
{
    char path[PATH_MAX];
    bool own_machine = sim && !has_machine(sim);
    int error = region ? name_region(region) : 0;
    if (error || (region && !own_machine)) {
        directory[0] = '\0';
        return error;
    }
    if (!mkdtemp(directory)) {
        say_error("cannot make %s: %s", directory, strerror(errno));
        return TOOL_FAILED;
    }
    if (!region) {
        snprintf(path, sizeof(path), "%s/region", directory);
        setenv("CUDA_DEVICE_MEMORY_SHARED_CACHE", path, 1);
    }
    if (own_machine) {
        snprintf(path, sizeof(path), "%s/machine", directory);
        setenv("VGPU_SIM_MACHINE", path, 1);
    }
    write_where(directory);
    /* The command's processes may be other users'; what is not theirs they cannot replace. */
    if (chmod(directory, 01777) != 0) {
        say_error("cannot open %s to all users: %s", directory, strerror(errno));
        remove_directory(directory);
        return TOOL_FAILED;
    }
    /* Held until this process ends, however it does. */
    int fd = open(directory, O_RDONLY | O_DIRECTORY | O_NOFOLLOW | O_CLOEXEC);
    if (fd >= 0)
        (void)flock(fd, LOCK_EX | LOCK_NB);
    return 0;
}
