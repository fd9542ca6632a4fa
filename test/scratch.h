/* SPDX-License-Identifier: Apache-2.0 */
/* Directories of a test's own, that go away however its process ends: a process beside it, in a
 * session of its own, removes them. */
#ifndef VGPU_TEST_SCRATCH_H
#define VGPU_TEST_SCRATCH_H

#include <fcntl.h>
#include <ftw.h>
#include <limits.h>
#include <stdbool.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/prctl.h>
#include <sys/stat.h>
#include <sys/wait.h>
#include <unistd.h>

#define SCRATCH_DESCRIPTORS_MAX 1024
#define SCRATCH_LOOKS_MAX 60
#define SCRATCH_PATH_MAX 64
#define SCRATCH_PARENT_MAX 38 /* of TMPDIR, so that the directories' names have room */

static inline int scratch_remove_one(
    const char *path, const struct stat *status, int type, struct FTW *ftw)
{
    (void)status;
    (void)type;
    (void)ftw;
    return remove(path);
}

/* The directory with all that is in it. Not within a signal handler. */
static inline void scratch_remove(const char *directory)
{
    (void)!nftw(directory, scratch_remove_one, 8, FTW_DEPTH | FTW_PHYS | FTW_MOUNT);
}

/* Nothing of the test's is held open beside the pipe's end. */
__attribute__((noreturn)) static inline void scratch_wait_and_remove(int end, const char *directory)
{
    char gone;
    for (int fd = 0; fd < SCRATCH_DESCRIPTORS_MAX; fd++) {
        if (fd != end)
            close(fd);
    }
    (void)!read(end, &gone, 1);
    /* What is left alive may make its region's directory anew: until that is over. */
    for (int i = 0; i < SCRATCH_LOOKS_MAX && (i == 0 || access(directory, F_OK) == 0); i++) {
        scratch_remove(directory);
        sleep(1);
    }
    _exit(0);
}

/* Has the directory removed when the calling process and those that it forks have ended or are
 * another program. False where no process can be made. The caller has no child more by it. */
static inline bool scratch_remove_later(const char *directory)
{
    int ends[2], status = -1;
    if (pipe2(ends, O_CLOEXEC) != 0)
        return false;
    pid_t between = fork();
    if (between == 0) {
        prctl(PR_SET_NAME, "test-cleaner"); /* by which check.h knows the cleaner */
        pid_t cleaner = setsid() < 0 ? -1 : fork();
        if (cleaner == 0)
            scratch_wait_and_remove(ends[0], directory);
        _exit(cleaner < 0);
    }
    close(ends[0]);
    return between > 0 && waitpid(between, &status, 0) == between && status == 0;
}

/* A new directory, written to ret_directory; false where there is none. All of a process lie in one
 * that others may look into. From one thread at a time. */
static inline bool scratch_make(char ret_directory[SCRATCH_PATH_MAX])
{
    static char root[56];
    static pid_t owner;
    if (owner != getpid()) {
        const char *parent = getenv("TMPDIR");
        bool fits = parent && parent[0] == '/' && strlen(parent) <= SCRATCH_PARENT_MAX;
        snprintf(root, sizeof(root), "%s/vgpu-test-XXXXXX", fits ? parent : "/tmp");
        if (!mkdtemp(root) || chmod(root, 0711) != 0 || !scratch_remove_later(root))
            return false;
        owner = getpid();
    }
    snprintf(ret_directory, SCRATCH_PATH_MAX, "%s/XXXXXX", root);
    return mkdtemp(ret_directory) != NULL;
}

/* A file's path in a new directory; a static buffer's. Ends the process where there is none. */
static inline char *scratch_path(const char *name)
{
    static char path[SCRATCH_PATH_MAX + NAME_MAX];
    char directory[SCRATCH_PATH_MAX];
    if (!scratch_make(directory))
        abort();
    snprintf(path, sizeof(path), "%s/%s", directory, name);
    return path;
}

#endif
