/* SPDX-License-Identifier: Apache-2.0 */
/* The container's region: whose it is, and how it is. */
#include "doctor/checks.h"

#include "base/atomic.h"
#include "base/file_lock.h"
#include "base/guard.h"
#include "doctor/deadline.h"
#include "region/region.h"
#include "region/slot.h"

#include <errno.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>

#define NONE (-1)

static off_t slot_byte(unsigned slot)
{
    return (off_t)(VGPU_REGION_OFFSET + offsetof(struct vgpu_region, slots) +
                   slot * sizeof(struct vgpu_slot));
}

struct slots {
    unsigned used, unlocked;
    int lock_error; /* of the question after a lock; 0 where it was answered */
};

static int count_slots(const char *path, struct slots *ret_slots)
{
    struct region region;
    int error = region_open(&region, path);
    if (error)
        return error;
    *ret_slots = (struct slots){0};
    guard_enter();
    unsigned bound = mapping_slot_bound(&region);
    for (unsigned i = 0; i < bound && !region.lost; i++) {
        if (slot_word_state(load_acquire(&region.shared->slots[i].state)) != VGPU_SLOT_LIVE)
            continue;
        int held = file_lock_held(region.fd, slot_byte(i));
        ret_slots->used++;
        ret_slots->unlocked += held == 0;
        ret_slots->lock_error = held < 0 ? held : ret_slots->lock_error;
    }
    guard_leave();
    error = region.lost ? -EIO : 0;
    region_detach(&region);
    return error;
}

static void check_slots(struct checks *checks, const char *path)
{
    struct slots slots;
    int error = count_slots(path, &slots);
    if (error)
        check_add(checks, "slots", NONE, CHECK_NOTE, "vgpu doctor as the region's owner says more",
            "they cannot be looked at: %s", strerror(-error));
    else if (slots.lock_error)
        check_add(checks, "slots", NONE, CHECK_NOTE,
            "put the region on another file system, by CUDA_DEVICE_MEMORY_SHARED_CACHE",
            "%u of %u in use; its file system has no open file description locks (%s): dead "
            "processes are told by their pids alone, in one PID namespace",
            slots.used, VGPU_REGION_SLOTS, strerror(-slots.lock_error));
    else
        check_add(checks, "slots", NONE, CHECK_FINE, NULL,
            "%u of %u in use, %u of them by processes that ended (as the doctor's own) or closed "
            "their descriptors; locks work",
            slots.used, VGPU_REGION_SLOTS, slots.unlocked);
}

static void check_file(
    struct checks *checks, const struct facts *facts, const char *path, const struct stat *status)
{
    const char *writers = status->st_mode & S_IWOTH   ? "everybody"
                          : status->st_mode & S_IWGRP ? "its owner and group"
                                                      : "its owner";
    bool room = atoi(fact(facts, "region.slot")) >= 0;
    check_add(checks, "region", NONE, room ? CHECK_FINE : CHECK_PROBLEM,
        room ? NULL : "end processes of the container: 1,024 can be told apart",
        "%s, version %s%s; mode %04o, %s may write it, user %u and root may set limits%s", path,
        fact(facts, "region.version"), fact_is(facts, "yes", "region.pinned") ? ", pinned" : "",
        (unsigned)status->st_mode & 07777, writers, (unsigned)status->st_uid,
        room ? "" : "; it has no slot left");
}

void checks_of_region(struct checks *checks, const struct facts *facts)
{
    struct stat status;
    const char *path = fact(facts, "region.path");
    if (!path || !fact(facts, "region.slot"))
        return;
    if (!fact_is(facts, "yes", "region.attached")) {
        check_add(checks, "region", NONE, CHECK_PROBLEM,
            "make it writable, delete it if it is no region of this version and no program uses "
            "it, or "
            "name another by CUDA_DEVICE_MEMORY_SHARED_CACHE",
            "%s cannot be used: %s; with a memory limit each device looks full, a compute limit "
            "does not hold",
            path, fact(facts, "region.error"));
        return;
    }
    doctor_step("looking at the region %s", path);
    if (stat(path, &status) != 0) {
        check_add(checks, "region", NONE, CHECK_NOTE, "see docs/region.md",
            "%s, version %s; it is out of sight here: %s", path, fact(facts, "region.version"),
            strerror(errno));
        return;
    }
    check_file(checks, facts, path, &status);
    check_slots(checks, path);
}
