/* SPDX-License-Identifier: Apache-2.0 */
/* The directory of a user's shared machines; the simulator makes one in it for each kind of machine
 * that is asked for. Each run holds a shared lock on the directory. Only its owner can open it, so
 * that no other user can hold the lock. */
#include "tool/run_machine.h"

#include "host/child.h"
#include "host/paths.h"
#include "tool/tool.h"

#include <dirent.h>
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

#define TRIES 200 /* a process that removes machines holds the lock for less than 1 ms */
#define TRY_NS 10000000

static char directory[64];
static int directory_fd = -1;

static bool names_machine(const char *description)
{
    const char *machine = getenv("VGPU_SIM_MACHINE");
    return strstr(description, "machine=") || (machine && *machine);
}

static bool is_at_path(int fd)
{
    struct stat opened, named;
    return fstat(fd, &opened) == 0 && lstat(directory, &named) == 0 &&
           opened.st_dev == named.st_dev && opened.st_ino == named.st_ino;
}

static bool is_ours(int fd)
{
    struct stat status;
    return fstat(fd, &status) == 0 && status.st_uid == geteuid() && fchmod(fd, 0711) == 0;
}

/* Its descriptor with the lock; -EAGAIN where a process is just removing it, or another -errno. */
static int open_once(void)
{
    if (mkdir(directory, 0711) != 0 && errno != EEXIST)
        return -errno;
    int fd = open(directory, O_RDONLY | O_DIRECTORY | O_NOFOLLOW | O_CLOEXEC);
    if (fd < 0)
        return errno == ENOENT ? -EAGAIN : -errno;
    int error = !is_ours(fd)                           ? -EPERM
                : flock(fd, LOCK_SH | LOCK_NB) != 0    ? -errno
                : !is_at_path(fd) /* removed by now */ ? -EAGAIN
                                                       : 0;
    if (error)
        close(fd);
    return error ? error : fd;
}

/* Now, because the command's first process that uses the machine may be another user's. Where it
 * does not succeed, that process says why. */
static void make_machine(void)
{
    char maker[PATH_MAX];
    if (path_find("sim/vgpu-sim-check", maker, sizeof(maker)) == 0)
        (void)child_status(maker);
}

void run_machine_share(const char *description)
{
    const struct timespec pause = {0, TRY_NS};
    char named[sizeof(directory) + 1];
    if (names_machine(description))
        return;
    snprintf(directory, sizeof(directory), "/tmp/vgpu-sim-%u", (unsigned)geteuid());
    int fd = open_once();
    for (int i = 0; fd == -EAGAIN && i < TRIES; i++) {
        (void)nanosleep(&pause, NULL);
        fd = open_once();
    }
    if (fd < 0) {
        say_error("%s cannot be used: %s; this run has a simulated machine of its own", directory,
            strerror(-fd));
        return;
    }
    directory_fd = fd;
    snprintf(named, sizeof(named), "%s/", directory);
    setenv("VGPU_SIM_MACHINE", named, 1);
    make_machine();
}

/* A process that uses a machine or a registry holds locks on its file for as long. */
static bool is_in_use(int directory_of_file, const char *name)
{
    struct flock lock = {.l_type = F_WRLCK, .l_whence = SEEK_SET};
    int fd = openat(directory_of_file, name, O_RDWR | O_NOFOLLOW | O_NONBLOCK | O_CLOEXEC);
    bool used = fd >= 0 && (fcntl(fd, F_OFD_GETLK, &lock) != 0 || lock.l_type != F_UNLCK);
    if (fd >= 0)
        close(fd);
    return used;
}

static void remove_unused(int fd)
{
    int copy = fcntl(fd, F_DUPFD_CLOEXEC, 0);
    DIR *listing = copy < 0 ? NULL : fdopendir(copy);
    for (struct dirent *entry; listing && (entry = readdir(listing)) != NULL;) {
        if (strcmp(entry->d_name, ".") != 0 && strcmp(entry->d_name, "..") != 0 &&
            !is_in_use(fd, entry->d_name))
            (void)unlinkat(fd, entry->d_name, 0);
    }
    if (listing)
        closedir(listing);
}

void run_machine_leave(void)
{
    if (directory_fd < 0 || flock(directory_fd, LOCK_EX | LOCK_NB) != 0)
        return;
    int registries =
        openat(directory_fd, "boards", O_RDONLY | O_DIRECTORY | O_NOFOLLOW | O_CLOEXEC);
    if (registries >= 0) {
        remove_unused(registries);
        close(registries);
        (void)unlinkat(directory_fd, "boards", AT_REMOVEDIR);
    }
    remove_unused(directory_fd);
    (void)rmdir(directory);
    close(directory_fd);
    directory_fd = -1;
}
