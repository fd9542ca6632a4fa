/* SPDX-License-Identifier: Apache-2.0 */
/* A process is found by what it maps: what the region says of its processes its container wrote,
 * which could name another's. */
#include "host/checkpoint.h"

#include "abi/cuda.h"
#include "base/parse.h"
#include "base/process.h"
#include "host/mapped.h"
#include "region/region_set.h"
#include "region/slot.h"

#include <dirent.h>
#include <dlfcn.h>
#include <errno.h>
#include <fcntl.h>
#include <sys/stat.h>
#include <unistd.h>

#define LOCK_MS 10000u

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

/* On failure the process runs, or is locked still. */
static CUresult take(int pid, struct checkpoint_outcome *outcome)
{
    CUcheckpointLockArgs lock = {.timeoutMs = LOCK_MS};
    CUcheckpointCheckpointArgs args = {0};
    CUresult result = driver.lock(pid, &lock);
    if (result != CUDA_SUCCESS)
        return refuse(outcome, "cuCheckpointProcessLock", result);
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
    if (state == CU_PROCESS_STATE_CHECKPOINTED) {
        result = driver.restore(pid, &args);
        if (result != CUDA_SUCCESS)
            return refuse(outcome, "cuCheckpointProcessRestore", result);
    }
    if (state != CU_PROCESS_STATE_RUNNING)
        result = unlock(pid);
    return result == CUDA_SUCCESS ? result : refuse(outcome, "cuCheckpointProcessUnlock", result);
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

/* From the state `from` to the other, where the process is in that. */
static bool mark(
    struct chosen_region *chosen, int pid, enum vgpu_release_state from, enum vgpu_release_state to)
{
    uint64_t namespace;
    int inner;
    return process_own_number(pid, &inner, &namespace) == 0 &&
           region_set_release_state(&chosen->region, inner, namespace, from, to) == 0;
}

/* The mark comes first and goes last: in between the process calls no driver, whatever it is
 * ordered. */
static void take_one(struct chosen_region *chosen, int pid, struct checkpoint_outcome *outcome)
{
    if (!mark(chosen, pid, VGPU_RELEASE_PARKED, VGPU_RELEASE_CHECKPOINTED))
        return;
    CUprocessState state = CU_PROCESS_STATE_RUNNING;
    if (take(pid, outcome) == CUDA_SUCCESS)
        outcome->done++;
    else if (driver.get_state(pid, &state) != CUDA_SUCCESS || state == CU_PROCESS_STATE_RUNNING)
        (void)mark(chosen, pid, VGPU_RELEASE_CHECKPOINTED, VGPU_RELEASE_PARKED);
}

static void restore_one(struct chosen_region *chosen, int pid, struct checkpoint_outcome *outcome)
{
    if (!mark(chosen, pid, VGPU_RELEASE_CHECKPOINTED, VGPU_RELEASE_CHECKPOINTED) ||
        restore(pid, outcome) != CUDA_SUCCESS)
        return;
    (void)mark(chosen, pid, VGPU_RELEASE_CHECKPOINTED, VGPU_RELEASE_PARKED);
    outcome->done++;
}

typedef void act_function(
    struct chosen_region *chosen, int pid, struct checkpoint_outcome *outcome);

static int each(
    struct chosen_region *chosen, act_function *act, struct checkpoint_outcome *ret_outcome)
{
    struct checkpoint_outcome outcome = {.lacks = load_driver()};
    const struct dirent *entry;
    uint64_t pid;
    DIR *processes = outcome.lacks ? NULL : opendir("/proc");
    if (!outcome.lacks && !processes)
        return -errno;
    while (processes && (entry = readdir(processes))) {
        if (parse_number(entry->d_name, INT32_MAX, &pid) == 0 && maps_region((unsigned)pid, chosen))
            act(chosen, (int)pid, &outcome);
    }
    if (processes)
        (void)closedir(processes);
    *ret_outcome = outcome;
    return 0;
}

int checkpoint_take(struct chosen_region *chosen, struct checkpoint_outcome *ret_outcome)
{
    return each(chosen, take_one, ret_outcome);
}

int checkpoint_restore(struct chosen_region *chosen, struct checkpoint_outcome *ret_outcome)
{
    return each(chosen, restore_one, ret_outcome);
}
