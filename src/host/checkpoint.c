/* SPDX-License-Identifier: Apache-2.0 */
/* A process is found by what it maps: what the region says of its processes its container wrote,
 * which could name another's. */
#include "host/checkpoint.h"

#include "abi/cuda.h"
#include "base/clock.h"
#include "base/parse.h"
#include "base/process.h"
#include "base/saturating.h"
#include "config/config_process.h"
#include "host/card_room.h"
#include "host/mapped.h"
#include "host/preload.h"
#include "region/region_read.h"
#include "region/region_set.h"
#include "region/slot.h"

#include <dirent.h>
#include <dlfcn.h>
#include <errno.h>
#include <fcntl.h>
#include <link.h>
#include <sys/file.h>
#include <sys/stat.h>
#include <time.h>
#include <unistd.h>

#define LOCK_MS 10000u
/* Longest wait for another command's restore, in nanoseconds: the driver restores some 15 GiB a
 * second (H100, driver 580.159.04). */
#define RESTORES_WAIT_NS 30000000000ull
/* What a restore takes beside what is restored; it gave back as much on an H100. */
#define RESTORE_BYTES (32ull << 20)

/* ---- the driver ---- */

static struct {
    __typeof__(cuInit) *init;
    __typeof__(cuCheckpointProcessGetState) *get_state;
    __typeof__(cuCheckpointProcessLock) *lock;
    __typeof__(cuCheckpointProcessCheckpoint) *checkpoint;
    __typeof__(cuCheckpointProcessRestore) *restore;
    __typeof__(cuCheckpointProcessUnlock) *unlock;
} driver;

/* NULL, or why there are no such calls. */
static const char *load_driver(void)
{
    void *library = dlopen("libcuda.so.1", RTLD_NOW);
    if (!library)
        return "libcuda.so.1 cannot be loaded here";
    *(void **)&driver.init = dlsym(library, "cuInit");
    *(void **)&driver.get_state = dlsym(library, "cuCheckpointProcessGetState");
    *(void **)&driver.lock = dlsym(library, "cuCheckpointProcessLock");
    *(void **)&driver.checkpoint = dlsym(library, "cuCheckpointProcessCheckpoint");
    *(void **)&driver.restore = dlsym(library, "cuCheckpointProcessRestore");
    *(void **)&driver.unlock = dlsym(library, "cuCheckpointProcessUnlock");
    if (!driver.init || !driver.get_state || !driver.lock || !driver.checkpoint ||
        !driver.restore || !driver.unlock)
        return "the driver is older than 570";
    return driver.init(0) == CUDA_SUCCESS ? NULL : "the driver cannot be initialised here";
}

static CUresult refuse(struct checkpoint_outcome *outcome, const char *where, CUresult result)
{
    outcome->refused++;
    outcome->where = where;
    outcome->code = (int)result;
    return result;
}

static CUresult unlock(int pid)
{
    CUcheckpointUnlockArgs args = {0};
    return driver.unlock(pid, &args);
}

/* ---- the processes ---- */

struct search {
    struct stat file;
    bool found;
};

static bool look_at_mapping(
    unsigned pid, const struct mapping *mapping, const char *path, void *context)
{
    struct search *search = context;
    struct stat file;
    int fd = mapped_open(pid, mapping, path, O_RDONLY);
    if (fd < 0)
        return true;
    search->found = fstat(fd, &file) == 0 && file.st_dev == search->file.st_dev &&
                    file.st_ino == search->file.st_ino;
    (void)close(fd);
    return !search->found;
}

static bool maps_region(unsigned pid, const struct chosen_region *chosen)
{
    struct search search = {.found = false};
    if (fstat(chosen->region.fd, &search.file) != 0)
        return false;
    (void)!mapped_each(pid, look_at_mapping, &search);
    return search.found;
}

/* One that maps the region. Its number may be another's later. */
struct process {
    struct chosen_region *chosen;
    int pid;
    uint64_t start_time;
};

static bool find_process(struct chosen_region *chosen, int pid, struct process *ret_process)
{
    struct process_status status;
    if (process_status(pid, &status) != 0 || !maps_region((unsigned)pid, chosen))
        return false;
    *ret_process = (struct process){chosen, pid, status.start_time};
    return true;
}

static bool is_still(const struct process *process)
{
    struct process now;
    return find_process(process->chosen, process->pid, &now) &&
           now.start_time == process->start_time;
}

/* From the state `from` to the other, where the process is in that. */
static bool mark(
    const struct process *process, enum vgpu_release_state from, enum vgpu_release_state to)
{
    uint64_t namespace;
    int inner;
    return process_own_number(process->pid, &inner, &namespace) == 0 &&
           region_set_release_state(&process->chosen->region, inner, namespace, from, to) == 0;
}

/* ---- what is done to them ---- */

static CUresult lock(int pid)
{
    CUcheckpointLockArgs args = {.timeoutMs = LOCK_MS};
    return driver.lock(pid, &args);
}

/* On failure the process runs, or is locked still. Once it is locked it is looked for again:
 * its number may be another process's by then. */
static CUresult take(const struct process *process, struct checkpoint_outcome *outcome)
{
    CUcheckpointCheckpointArgs args = {0};
    int pid = process->pid;
    CUresult result = lock(pid);
    if (result != CUDA_SUCCESS)
        return refuse(outcome, "cuCheckpointProcessLock", result);
    if (!is_still(process) ||
        !mark(process, VGPU_RELEASE_CHECKPOINTED, VGPU_RELEASE_CHECKPOINTED)) {
        (void)unlock(pid);
        return refuse(outcome, "cuCheckpointProcessLock", CUDA_ERROR_INVALID_VALUE);
    }
    result = driver.checkpoint(pid, &args);
    if (result == CUDA_SUCCESS)
        return result;
    (void)unlock(pid);
    return refuse(outcome, "cuCheckpointProcessCheckpoint", result);
}

static CUresult restore(int pid, struct checkpoint_outcome *outcome)
{
    CUcheckpointRestoreArgs args = {0};
    CUprocessState state;
    CUresult result = driver.get_state(pid, &state);
    if (result != CUDA_SUCCESS)
        return refuse(outcome, "cuCheckpointProcessGetState", result);
    if (state == CU_PROCESS_STATE_FAILED)
        return refuse(outcome, "cuCheckpointProcessRestore", CUDA_ERROR_UNKNOWN);
    /* A lock that a killed command has asked for may still come about: this one is behind it. */
    if (state == CU_PROCESS_STATE_RUNNING && lock(pid) == CUDA_SUCCESS)
        state = CU_PROCESS_STATE_LOCKED;
    else if (state == CU_PROCESS_STATE_RUNNING)
        (void)driver.get_state(pid, &state);
    if (state == CU_PROCESS_STATE_CHECKPOINTED) {
        result = driver.restore(pid, &args);
        if (result != CUDA_SUCCESS)
            return refuse(outcome, "cuCheckpointProcessRestore", result);
    }
    if (state != CU_PROCESS_STATE_RUNNING)
        result = unlock(pid);
    return result == CUDA_SUCCESS ? result : refuse(outcome, "cuCheckpointProcessUnlock", result);
}

/* The mark comes first and goes last: in between the process calls no driver, whatever it is
 * ordered. */
static void take_one(const struct process *process, struct checkpoint_outcome *outcome)
{
    if (!mark(process, VGPU_RELEASE_PARKED, VGPU_RELEASE_CHECKPOINTED))
        return;
    CUprocessState state = CU_PROCESS_STATE_RUNNING;
    if (take(process, outcome) == CUDA_SUCCESS)
        outcome->done++;
    else if (driver.get_state(process->pid, &state) != CUDA_SUCCESS ||
             state == CU_PROCESS_STATE_RUNNING)
        (void)mark(process, VGPU_RELEASE_CHECKPOINTED, VGPU_RELEASE_PARKED);
}

static void restore_one(const struct process *process, struct checkpoint_outcome *outcome)
{
    if (!mark(process, VGPU_RELEASE_CHECKPOINTED, VGPU_RELEASE_CHECKPOINTED) ||
        restore(process->pid, outcome) != CUDA_SUCCESS)
        return;
    (void)mark(process, VGPU_RELEASE_CHECKPOINTED, VGPU_RELEASE_PARKED);
    outcome->done++;
}

typedef void act_function(const struct process *process, struct checkpoint_outcome *outcome);

static int each(
    struct chosen_region *chosen, act_function *act, struct checkpoint_outcome *ret_outcome)
{
    struct checkpoint_outcome outcome = {.lacks = load_driver()};
    const struct dirent *entry;
    struct process process;
    uint64_t pid;
    DIR *processes = outcome.lacks ? NULL : opendir("/proc");
    if (!outcome.lacks && !processes)
        return -errno;
    while (processes && (entry = readdir(processes))) {
        if (parse_number(entry->d_name, INT32_MAX, &pid) == 0 &&
            find_process(chosen, (int)pid, &process))
            act(&process, &outcome);
    }
    if (processes)
        (void)closedir(processes);
    *ret_outcome = outcome;
    return 0;
}

static int is_library(struct dl_phdr_info *info, size_t size, void *context)
{
    (void)size, (void)context;
    return preload_names_library(info->dlpi_name);
}

/* NULL, or why the card cannot be asked: under the library NVML tells of the container's memory. */
static const char *card_is_hidden(void)
{
    return dl_iterate_phdr(is_library, NULL)
               ? "vgpu's library is preloaded into this command, which does not see the card's "
                 "memory then: run it without LD_PRELOAD, or outside of the container"
               : NULL;
}

/* What the processes that are checkpointed have to get of the device-th device, at most. */
static uint64_t needed_on(const struct region_reading *reading, unsigned device)
{
    uint64_t needed = 0;
    struct vgpu_slot slot;
    bool locked;
    for (unsigned i = 0; i < reading->slot_bound; i++) {
        if (region_read_slot(reading, i, &slot, &locked) <= 0 ||
            (uint32_t)slot.release != VGPU_RELEASE_CHECKPOINTED)
            continue;
        uint64_t held = slot.usage[device].bytes;
        needed = saturating_sum(needed, slot.lacking < held ? slot.lacking : held);
    }
    return needed;
}

/* Where a card does not tell what it has free, the driver judges. */
static uint64_t lacking_on_cards(const struct chosen_region *chosen)
{
    struct region_reading reading;
    uint64_t lacking = 0, free_bytes;
    if (region_read(chosen->region.fd, &reading) < 0)
        return 0;
    for (unsigned d = 0; d < reading.device_count; d++) {
        uint64_t needed = needed_on(&reading, d);
        if (needed && card_free_bytes(reading.devices[d].uuid, &free_bytes) &&
            needed + RESTORE_BYTES > free_bytes)
            lacking = saturating_sum(lacking, needed + RESTORE_BYTES - free_bytes);
    }
    return lacking;
}

/* Locks the registry directory (vgpu/board.h): two commands that restore at the same time would
 * each count on the same free memory. False where another command holds the lock for longer than
 * RESTORES_WAIT_NS. True without a lock where the directory does not exist or cannot be locked.
 * *ret_fd: to be closed, which unlocks it; -1: none. */
static bool lock_restores(int *ret_fd)
{
    const struct timespec pause = {0, 20000000};
    const char *named = config_process_lookup("VGPU_BOARD_DIR");
    uint64_t until = clock_now_ns() + RESTORES_WAIT_NS;
    *ret_fd = open(named && *named ? named : CONFIG_BOARD_DIRECTORY,
        O_RDONLY | O_DIRECTORY | O_NOFOLLOW | O_CLOEXEC);
    while (*ret_fd >= 0 && flock(*ret_fd, LOCK_EX | LOCK_NB) != 0) {
        if (errno != EWOULDBLOCK && errno != EINTR)
            return true;
        if (clock_now_ns() > until)
            return false;
        (void)nanosleep(&pause, NULL);
    }
    return true;
}

const char *checkpoint_lacks(void)
{
    return load_driver();
}

int checkpoint_take(struct chosen_region *chosen, struct checkpoint_outcome *ret_outcome)
{
    return each(chosen, take_one, ret_outcome);
}

int checkpoint_restore(struct chosen_region *chosen, struct checkpoint_outcome *ret_outcome)
{
    int fd = -1, error = 0;
    *ret_outcome = (struct checkpoint_outcome){.lacks = card_is_hidden()};
    if (!ret_outcome->lacks && !lock_restores(&fd))
        ret_outcome->lacks = "another command restores processes on this machine: try again later";
    if (!ret_outcome->lacks)
        ret_outcome->lacking_bytes = lacking_on_cards(chosen);
    if (!ret_outcome->lacks && !ret_outcome->lacking_bytes)
        error = each(chosen, restore_one, ret_outcome);
    if (fd >= 0)
        (void)close(fd);
    return error;
}
