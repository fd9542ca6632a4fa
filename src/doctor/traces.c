/* SPDX-License-Identifier: Apache-2.0 */
/* The files that were not there before. A program may come to use one of them at any moment: the
 * region is only removed under its lock, which a program that joins waits for, and a program that
 * finds its region or its registry removed all the same makes it anew. */
#include "doctor/traces.h"

#include "base/clock.h"
#include "base/file_lock.h"
#include "base/guard.h"
#include "config/config.h"
#include "config/config_process.h"
#include "host/choose.h"
#include "host/glob.h"
#include "region/region.h"
#include "region/region_file.h"
#include "region/slot.h"
#include "registry/registry.h"

#include <stdbool.h>
#include <stdio.h>
#include <string.h>
#include <sys/stat.h>
#include <time.h>
#include <unistd.h>

#define END_TRIES 100
#define END_TRY_NS 10000000

static bool exists(const char *path)
{
    struct stat status;
    return lstat(path, &status) == 0;
}

/* ---- the region ---- */

static void note_region(struct doctor_traces *traces)
{
    struct config config;
    choose_config(&config);
    if (region_file_path(&config, traces->region, sizeof(traces->region)) != 0 ||
        exists(traces->region)) {
        traces->region[0] = '\0';
        return;
    }
    char directory[sizeof(traces->region)];
    snprintf(directory, sizeof(directory), "%s", traces->region);
    for (char *slash = strchr(directory + 1, '/'); slash; slash = strchr(slash + 1, '/')) {
        *slash = '\0';
        if (!exists(directory)) {
            snprintf(traces->first_missing, sizeof(traces->first_missing), "%.*s", PATH_MAX - 1,
                directory);
            return;
        }
        *slash = '/';
    }
}

/* Removes a region file whose maker was killed before it was complete. */
static void remove_unmade(const char *path)
{
    int fd = region_file_open(path, false);
    if (fd < 0)
        return;
    if (file_lock_wait(fd, VGPU_REGION_OFFSET, REGION_INITIALISER_WAIT_NS) == 0 &&
        region_file_is_unmade(fd))
        (void)unlink(path);
    close(fd);
}

/* True where it is in use still. */
static bool remove_region(const char *path)
{
    static struct region region;
    struct stat status;
    if (lstat(path, &status) != 0 || status.st_uid != geteuid())
        return false;
    if (region_open(&region, path) != 0) {
        remove_unmade(path);
        return false;
    }
    int error = file_lock_wait(region.fd, VGPU_REGION_OFFSET, REGION_INITIALISER_WAIT_NS);
    guard_enter();
    bool live = slot_any_live(&region);
    guard_leave();
    if (!error && !live)
        (void)unlink(path);
    region_detach(&region);
    return live;
}

static void remove_directories(const struct doctor_traces *traces)
{
    char directory[sizeof(traces->region)];
    size_t least = strlen(traces->first_missing);
    snprintf(directory, sizeof(directory), "%s", traces->region);
    for (char *slash; least && (slash = strrchr(directory, '/')) != NULL;) {
        *slash = '\0';
        if (strlen(directory) < least || rmdir(directory) != 0)
            break;
    }
}

/* ---- the registries ---- */

static bool list_registries(const char *directory, glob_t *ret_found)
{
    char pattern[PATH_MAX + 32];
    *ret_found = (glob_t){0};
    snprintf(pattern, sizeof(pattern), "%s/" VGPU_BOARD_FILE_PREFIX "*", directory);
    return glob(pattern, 0, NULL, ret_found) == 0;
}

static const char *name_of(const char *path)
{
    return strrchr(path, '/') + 1;
}

static void note_registries(struct doctor_traces *traces)
{
    const char *named = config_process_lookup("VGPU_BOARD_DIR");
    glob_t found;
    snprintf(traces->registries, sizeof(traces->registries), "%s",
        named && *named ? named : CONFIG_BOARD_DIRECTORY);
    if (list_registries(traces->registries, &found)) {
        traces->before_count = found.gl_pathc;
        for (size_t i = 0; i < found.gl_pathc && i < DOCTOR_BOARDS; i++)
            snprintf(
                traces->before[i], sizeof(traces->before[i]), "%s", name_of(found.gl_pathv[i]));
    }
    globfree(&found);
}

static bool was_there(const struct doctor_traces *traces, const char *path)
{
    for (size_t i = 0; i < traces->before_count && i < DOCTOR_BOARDS; i++) {
        if (!strncmp(traces->before[i], name_of(path), sizeof(traces->before[i]) - 1))
            return true;
    }
    return traces->before_count > DOCTOR_BOARDS;
}

static void remove_registry(const char *directory, const char *path)
{
    static struct registry registry;
    static struct registry_tenant tenants[VGPU_BOARD_SLOTS];
    const char *uuid = name_of(path) + strlen(VGPU_BOARD_FILE_PREFIX);
    if (registry_open(&registry, directory, uuid) != 0)
        return;
    if (registry_tenants(&registry, clock_now_ns(), tenants) == 0)
        (void)unlink(path);
    registry_detach(&registry);
}

static void remove_registries(const struct doctor_traces *traces)
{
    glob_t found;
    if (list_registries(traces->registries, &found)) {
        for (size_t i = 0; i < found.gl_pathc; i++) {
            if (!was_there(traces, found.gl_pathv[i]))
                remove_registry(traces->registries, found.gl_pathv[i]);
        }
    }
    globfree(&found);
}

void doctor_traces_note(struct doctor_traces *ret_traces)
{
    note_region(ret_traces);
    note_registries(ret_traces);
}

void doctor_traces_remove(const struct doctor_traces *traces)
{
    const struct timespec pause = {0, END_TRY_NS};
    if (traces->region[0]) {
        for (int i = 0; remove_region(traces->region) && i < END_TRIES; i++)
            (void)nanosleep(&pause, NULL);
        remove_directories(traces);
    }
    remove_registries(traces);
}
