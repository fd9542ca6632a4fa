/* SPDX-License-Identifier: Apache-2.0 */
/* Claiming, judging and reaping slots. */
#include "region/slot.h"

#include "base/atomic.h"
#include "base/file.h"
#include "base/file_lock.h"
#include "base/process.h"
#include "region/projection.h"

#include <errno.h>
#include <fcntl.h>
#include <stddef.h>
#include <string.h>
#include <unistd.h>

off_t slot_offset(unsigned slot)
{
    return (off_t)(VGPU_REGION_OFFSET + offsetof(struct vgpu_region, slots) +
                   slot * sizeof(struct vgpu_slot));
}

static uint64_t word_make(uint64_t old, int pid, enum vgpu_slot_state state)
{
    uint64_t generation = (old >> 32) + (state == VGPU_SLOT_CLAIMING);
    return generation << 32 | (uint32_t)pid << 2 | state;
}

enum verdict { ALIVE, DEAD, UNKNOWN };

/* By its pid, which only means something in this namespace. */
static enum verdict judge_process(const struct vgpu_slot *slot, uint64_t word)
{
    uint64_t namespace = load_relaxed(&slot->pid_namespace);
    struct process_status status;
    if (!namespace || namespace != process_pid_namespace())
        return UNKNOWN;
    int error = process_status(slot_word_pid(word), &status);
    if (error)
        return error == -ESRCH ? DEAD : UNKNOWN;
    uint64_t start_time = load_relaxed(&slot->start_time);
    uint64_t stack_start = load_relaxed(&slot->stack_start);
    bool same = (!start_time || start_time == status.start_time) &&
                (!stack_start || !status.stack_start || stack_start == status.stack_start);
    return same && !status.ended ? ALIVE : DEAD;
}

bool slot_is_dead(const struct vgpu_slot *slot, uint64_t word, bool unlocked)
{
    enum verdict verdict = judge_process(slot, word);
    return verdict == DEAD || (verdict == UNKNOWN && unlocked);
}

/* Another may have set the word to 0 meanwhile. */
static void take_from(uint64_t *word, uint64_t bytes)
{
    uint64_t old;
    do {
        old = load_seq_cst(word);
    } while (!swap_seq_cst(word, old, old > bytes ? old - bytes : (uint64_t)0));
}

/* Ends the dead one's claim on the slot, unless somebody else did so before. What the dead
 * exported lives on with the importers, and is added before the slot ceases to count: a process
 * that is killed in between leaves it counted twice until nobody holds an import; the other way
 * round it would not be counted at all. */
static void retire(struct region *region, struct vgpu_slot *slot, uint64_t word)
{
    uint64_t bytes[VGPU_REGION_DEVICES];
    struct vgpu_device *devices = region->shared->devices;
    if (load_acquire(&slot->state) == word)
        projection_wipe(region->map, (unsigned)(slot - region->shared->slots));
    for (unsigned d = 0; d < VGPU_REGION_DEVICES; d++) {
        bytes[d] = load_relaxed(&slot->usage[d].exported) + load_relaxed(&slot->usage[d].lingering);
        if (bytes[d])
            add_seq_cst(&devices[d].orphaned, bytes[d]);
    }
    if (swap_seq_cst(&slot->state, word, word_make(word, 0, VGPU_SLOT_FREE)))
        return;
    for (unsigned d = 0; d < VGPU_REGION_DEVICES; d++) {
        if (bytes[d])
            take_from(&devices[d].orphaned, bytes[d]);
    }
}

/* `lockable`: region->fd was seen to be ours a moment ago. */
static bool reap_if_dead(struct region *region, bool lockable, unsigned index, uint64_t word)
{
    struct vgpu_slot *slot = &region->shared->slots[index];
    if (slot_word_state(word) != VGPU_SLOT_LIVE)
        return false;
    int held = lockable ? file_lock_held(region->fd, slot_offset(index)) : -EBADF;
    if (held > 0 || !slot_is_dead(slot, word, held == 0))
        return false;
    /* Fails where somebody else reaped or claimed it meanwhile: dead either way. */
    retire(region, slot, word);
    return true;
}

unsigned slot_reap_dead(struct region *region, int own, unsigned device)
{
    bool asked = false, lockable = false; /* the question costs a system call */
    unsigned reaped = 0;
    unsigned bound = mapping_slot_bound(region);
    for (unsigned i = 0; i < bound; i++) {
        struct vgpu_slot *slot = &region->shared->slots[i];
        uint64_t word = load_acquire(&slot->state);
        if ((int)i == own || slot_word_state(word) != VGPU_SLOT_LIVE)
            continue;
        const struct vgpu_usage *usage = &slot->usage[device];
        if (!load_relaxed(&usage->bytes) && !load_relaxed(&usage->lingering))
            continue;
        lockable = asked ? lockable : mapping_fd_is_ours(region);
        asked = true;
        reaped += reap_if_dead(region, lockable, i, word);
    }
    return reaped;
}

void slot_reap_all(struct region *region, int own)
{
    bool lockable = mapping_fd_is_ours(region);
    unsigned bound = mapping_slot_bound(region);
    for (unsigned i = 0; i < bound; i++) {
        uint64_t word = load_acquire(&region->shared->slots[i].state);
        if ((int)i != own)
            (void)reap_if_dead(region, lockable, i, word);
    }
}

bool slot_any_live(struct region *region)
{
    bool lockable = mapping_fd_is_ours(region);
    unsigned bound = mapping_slot_bound(region);
    for (unsigned i = 0; i < bound; i++) {
        uint64_t word = load_acquire(&region->shared->slots[i].state);
        if (slot_word_state(word) == VGPU_SLOT_LIVE && !reap_if_dead(region, lockable, i, word))
            return true;
    }
    return false;
}

/* The storage must exist before it is written through the mapping. */
static int reserve_storage(struct region *region, unsigned slot)
{
    if (!mapping_fd_is_ours(region))
        return 0;
    int error = file_reserve(region->fd, slot_offset(slot), sizeof(struct vgpu_slot));
    if (!error)
        error = file_reserve(region->fd,
            (off_t)(offsetof(struct vgpu_hami, slots) + slot * sizeof(struct vgpu_hami_slot)),
            sizeof(struct vgpu_hami_slot));
    return error == -ENOSPC || error == -EDQUOT ? error : 0;
}

static void raise_high(struct vgpu_region *shared, unsigned count)
{
    uint32_t high;
    do {
        high = load_acquire(&shared->slot_high);
    } while (high < count && !swap_seq_cst(&shared->slot_high, high, count));
}

/* Free or abandoned; `abandoned` says whether a slot may be taken whose claimer seems to be gone.
 */
static bool may_take(unsigned state, bool abandoned)
{
    return state == VGPU_SLOT_FREE || (state == VGPU_SLOT_CLAIMING && abandoned);
}

static bool take_slot(struct region *region, unsigned index, bool abandoned, uint64_t *ret_word)
{
    struct vgpu_slot *slot = &region->shared->slots[index];
    uint64_t old = load_acquire(&slot->state);
    if (!may_take(slot_word_state(old), abandoned))
        return false;
    int pid = (int)getpid();
    uint64_t claiming = word_make(old, pid, VGPU_SLOT_CLAIMING);
    if (!swap_seq_cst(&slot->state, old, claiming))
        return false;
    memset((char *)slot + sizeof(slot->state), 0, sizeof(*slot) - sizeof(slot->state));
    struct process_status status;
    if (process_status(0, &status) == 0) {
        store_relaxed(&slot->start_time, status.start_time);
        store_relaxed(&slot->stack_start, status.stack_start);
    }
    store_relaxed(&slot->pid_namespace, process_pid_namespace());
    process_command(slot->command, sizeof(slot->command));
    projection_claim(region->map, index, pid);
    uint64_t live = word_make(claiming, pid, VGPU_SLOT_LIVE);
    if (!swap_seq_cst(&slot->state, claiming, live))
        return false;
    raise_high(region->shared, index + 1);
    projection_cover(region->map);
    *ret_word = live;
    return true;
}

/* As far as this PID namespace tells: the claimer's own is not in the slot yet. */
static bool claimer_is_gone(uint64_t word)
{
    struct process_status status;
    int error = process_status(slot_word_pid(word), &status);
    return error ? error == -ESRCH : status.ended;
}

/* A live slot's lock is tried by nobody but its owner: peers that judge it would take it for alive.
 * Returns 1 where the slot is ours now, 0 where it is not to be had. */
static int claim_one(
    struct region *region, unsigned index, bool lockable, bool abandoned, uint64_t *ret_word)
{
    uint64_t word = load_acquire(&region->shared->slots[index].state);
    bool live = slot_word_state(word) == VGPU_SLOT_LIVE;
    if (slot_word_state(word) == VGPU_SLOT_CLAIMING)
        abandoned = abandoned || claimer_is_gone(word);
    if (live ? !reap_if_dead(region, lockable, index, word)
             : !may_take(slot_word_state(word), abandoned))
        return 0;
    int error = lockable ? file_lock_take(region->fd, slot_offset(index)) : -EINVAL;
    if (error && error != -EINVAL)
        return 0;
    int no_room = reserve_storage(region, index);
    if (!no_room && take_slot(region, index, abandoned && !error, ret_word))
        return 1;
    if (!error)
        file_lock_drop(region->fd, slot_offset(index));
    return no_room;
}

/* A slot that is being claimed by a process that seems to live is the last choice, and only under
 * its lock: should it live, without its descriptors, its zeroes would wipe out what we write there.
 */
static int claim_any(struct region *region, uint64_t *ret_word)
{
    bool lockable = mapping_fd_is_ours(region);
    for (int abandoned = 0; abandoned < 2; abandoned++) {
        for (unsigned i = 0; i < VGPU_REGION_SLOTS; i++) {
            int claimed = claim_one(region, i, lockable, abandoned, ret_word);
            if (claimed)
                return claimed < 0 ? claimed : (int)i;
        }
    }
    return -ENOSPC;
}

int slot_claim(struct region *region, uint64_t *ret_word)
{
    int errno_kept = errno;
    int slot = claim_any(region, ret_word);
    errno = errno_kept;
    return slot;
}

void slot_unlock(struct region *region, unsigned slot)
{
    if (mapping_fd_is_ours(region))
        file_lock_drop(region->fd, slot_offset(slot));
}

void slot_lock_again(struct region *region, unsigned slot)
{
    if (mapping_fd_is_ours(region))
        (void)!file_lock_take(region->fd, slot_offset(slot));
}

void slot_leave(struct region *region, unsigned slot, uint64_t word)
{
    if (load_acquire(&region->shared->slots[slot].state) == word)
        projection_wipe(region->map, slot);
    (void)swap_seq_cst(
        &region->shared->slots[slot].state, word, word_make(word, 0, VGPU_SLOT_FREE));
}

/* The lock is held for as long as the word is exchanged, so that nobody takes the slot meanwhile.
 */
int slot_free_dead(struct region *region, unsigned index, uint64_t word)
{
    struct vgpu_slot *slot = &region->shared->slots[index];
    bool lockable = mapping_fd_is_ours(region);
    if (load_acquire(&slot->state) != word)
        return -ESTALE;
    if (slot_word_state(word) == VGPU_SLOT_LIVE)
        return reap_if_dead(region, lockable, index, word) ? 0 : -EBUSY;
    if (slot_word_state(word) == VGPU_SLOT_CLAIMING && !claimer_is_gone(word))
        return -EBUSY;
    if (!lockable || file_lock_take(region->fd, slot_offset(index)) != 0)
        return -EBUSY;
    bool freed = swap_seq_cst(&slot->state, word, word_make(word, 0, VGPU_SLOT_FREE));
    file_lock_drop(region->fd, slot_offset(index));
    return freed ? 0 : -ESTALE;
}
