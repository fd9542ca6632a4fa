/* SPDX-License-Identifier: Apache-2.0 */
/* Whose directory may hold the registries: all users can write into it, so what counts is that none
 * of them can put another in its place. */
#include "tool/run_registry.h"

#include "config/config.h"
#include "host/glob.h"
#include "tool/tool.h"
#include "vgpu/board.h"

#include <errno.h>
#include <fcntl.h>
#include <limits.h>
#include <stdbool.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>
#include <unistd.h>

#define SHARED_MODE 01777
#define OWN_MODE 0700
#define NOWHERE "/nonexistent"
#define TRIES 3 /* another process may make or remove it between two steps */

static const char absent[] = "it does not exist";

/* Registries can be made there, or lie there already. */
static bool has_use(const char *directory)
{
    char pattern[PATH_MAX];
    glob_t found = {0};
    if (faccessat(AT_FDCWD, directory, W_OK | X_OK, AT_EACCESS) == 0)
        return true;
    snprintf(pattern, sizeof(pattern), "%s/" VGPU_BOARD_FILE_PREFIX "*", directory);
    bool any = faccessat(AT_FDCWD, directory, X_OK, AT_EACCESS) == 0 &&
               glob(pattern, GLOB_NOSORT, NULL, &found) == 0;
    globfree(&found);
    return any;
}

/* Why it is not to be used; NULL: it is. The link itself is looked at, not what it points to. */
static const char *look(const char *directory, bool own)
{
    struct stat status;
    if (lstat(directory, &status) != 0)
        return errno == ENOENT ? absent : strerror(errno);
    if (S_ISLNK(status.st_mode))
        return "it is a symbolic link";
    if (!S_ISDIR(status.st_mode))
        return "it is no directory";
    bool sticky = status.st_mode & S_ISVTX, ours = status.st_uid == geteuid();
    bool closed = !(status.st_mode & (S_IWGRP | S_IWOTH));
    if (own ? !ours : status.st_uid != 0 && !ours && !sticky)
        return "it is another user's";
    if (ours && geteuid() != 0 && !sticky && !closed)
        return "other users can replace what is in it";
    return has_use(directory) ? NULL : "it may not be written";
}

/* The mode is there from the first moment on: a process that comes meanwhile finds no other. */
static const char *make(const char *directory, mode_t mode)
{
    mode_t former = umask(0);
    int error = mkdir(directory, mode) != 0 ? errno : 0;
    umask(former);
    return error && error != EEXIST ? strerror(error) : NULL;
}

static const char *have(const char *directory, bool own)
{
    const char *reason = absent;
    for (int i = 0; reason == absent && i < TRIES; i++) {
        reason = look(directory, own);
        if (reason == absent && (reason = make(directory, own ? OWN_MODE : SHARED_MODE)) == NULL)
            reason = look(directory, own);
    }
    return reason;
}

/* The machine's file, or its directory with a slash at the end: as the simulator chooses. */
static void find_machine(const char *sim, char *ret_name, size_t size)
{
    const char *word = strstr(sim, "machine="), *variable = getenv("VGPU_SIM_MACHINE");
    if (word)
        snprintf(ret_name, size, "%.*s", (int)strcspn(word + 8, ","), word + 8);
    else
        snprintf(ret_name, size, "%s", variable ? variable : "");
}

static void choose_beside(const char *sim)
{
    char machine[PATH_MAX], directory[PATH_MAX] = "", registries[2 * PATH_MAX + 16];
    find_machine(sim, machine, sizeof(machine));
    if (machine[0] != '/' && !getcwd(directory, sizeof(directory)))
        return;
    size_t length = strlen(machine);
    bool shared = length && machine[length - 1] == '/';
    snprintf(registries, sizeof(registries), "%s%s%s%sboards", directory, directory[0] ? "/" : "",
        machine, shared ? "" : ".");
    const char *reason = have(registries, false);
    if (reason)
        say_error("%s is not used: %s; containers on this simulated GPU do not know of each other",
            registries, reason);
    setenv("VGPU_BOARD_DIR", reason ? NOWHERE : registries, 1);
}

static void choose_real(void)
{
    static const char *const places[] = {"/tmp", "/dev/shm"};
    const char *reason = have(CONFIG_BOARD_DIRECTORY, false);
    if (!reason)
        return;
    for (size_t i = 0; i < sizeof(places) / sizeof(places[0]); i++) {
        char own[64];
        snprintf(own, sizeof(own), "%s/vgpulock-%u", places[i], (unsigned)geteuid());
        if (have(own, true))
            continue;
        setenv("VGPU_BOARD_DIR", own, 1);
        say_error("%s is not used: %s; %s is used instead, so that only containers of this user "
                  "know of each other",
            CONFIG_BOARD_DIRECTORY, reason, own);
        return;
    }
    say_error("%s is not used: %s; no other directory can be made either, so that busy containers "
              "on this GPU may get less than their shares",
        CONFIG_BOARD_DIRECTORY, reason);
}

void run_registry_choose(const char *sim)
{
    const char *named = getenv("VGPU_BOARD_DIR");
    if (named && *named)
        return;
    if (sim)
        choose_beside(sim);
    else
        choose_real();
}
