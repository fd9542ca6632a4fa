/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Descriptors of the machine: each open file description has a slot, kept in its file offset (which
 * forks and duplicates share), and holds an OFD lock on the slot's byte, which the kernel drops at
 * the last close.
 */
#ifndef _GNU_SOURCE
#define _GNU_SOURCE /* OFD locks */
#endif
#include "sim/machine/machine.h"

#include "sim/machine/machine_layout.h"
#include "sim/machine/rm_objects.h"

#include <errno.h>
#include <fcntl.h>
#include <sys/stat.h>
#include <unistd.h>

/* Far behind the file's end: lock ranges need no bytes. */
#define LOCK_FIRST ((off_t)1 << 40)
#define OFFSET_SLOT_BITS 12
#define GENERATION_MASK 0xffffffu

_Static_assert(SIM_SLOTS_MAX <= 1u << OFFSET_SLOT_BITS, "a slot fits the offset");

static struct flock slot_lock(uint32_t slot)
{
    return (struct flock){
        .l_type = F_WRLCK, .l_whence = SEEK_SET, .l_start = LOCK_FIRST + slot, .l_len = 1};
}

/* Whether some description holds the slot's byte; fd must not be the slot's own. */
static bool slot_is_held(int fd, uint32_t slot)
{
    struct flock lock = slot_lock(slot);
    return fcntl(fd, F_OFD_GETLK, &lock) != 0 || lock.l_type != F_UNLCK;
}

static void slot_free_locked(uint32_t index)
{
    struct sim_slot *slot = &sim_machine->slots[index];
    sim_timeline_drop_slot_locked(index);
    for (uint32_t client = 0; client < sim_machine->clients_end; client++) {
        if (sim_machine->clients[client].live && sim_machine->clients[client].slot == index)
            sim_client_destroy_locked(client);
    }
    for (uint32_t i = 0; i < slot->exported.max_objects; i++) {
        uint32_t memory = slot->exported.memories[i];
        slot->exported.memories[i] = SIM_NONE;
        if (memory != SIM_NONE)
            sim_memory_release_locked(memory);
    }
    slot->live = 0;
}

void sim_reap_locked(void)
{
    int saved = errno;
    int fd = sim_file_open();
    for (uint32_t i = 0; fd >= 0 && i < sim_machine->slots_end; i++) {
        if (sim_machine->slots[i].live && !slot_is_held(fd, i))
            slot_free_locked(i);
    }
    while (sim_machine->slots_end > 0 && !sim_machine->slots[sim_machine->slots_end - 1].live)
        sim_machine->slots_end--;
    if (fd >= 0)
        close(fd);
    errno = saved;
}

/* Takes a free slot for the description behind fd. */
static int slot_claim_locked(int fd)
{
    for (uint32_t i = 0; i < SIM_SLOTS_MAX; i++) {
        struct sim_slot *slot = &sim_machine->slots[i];
        if (slot->live)
            continue;
        struct flock lock = slot_lock(i);
        if (fcntl(fd, F_OFD_SETLK, &lock) != 0) {
            if (errno == EAGAIN || errno == EACCES)
                continue;
            return -errno;
        }
        uint32_t generation = (slot->generation + 1) & GENERATION_MASK;
        if (generation == 0)
            generation = 1;
        off_t offset = (off_t)generation << OFFSET_SLOT_BITS | (off_t)i;
        if (lseek(fd, offset, SEEK_SET) != offset)
            return -errno;
        *slot = (struct sim_slot){.generation = generation, .pid = getpid()};
        if (i >= sim_machine->slots_end)
            sim_machine->slots_end = i + 1;
        atomic_signal_fence(memory_order_seq_cst);
        *(volatile uint32_t *)&slot->live = 1;
        return 0;
    }
    return -EMFILE;
}

int sim_rm_open(void)
{
    int fd = sim_file_open();
    if (fd < 0)
        return fd;
    sim_lock();
    int error = slot_claim_locked(fd);
    if (error == -EMFILE) {
        sim_reap_locked();
        error = slot_claim_locked(fd);
    }
    sim_unlock();
    if (error != 0) {
        close(fd);
        return error;
    }
    return fd;
}

uint32_t sim_slot_of_locked(int fd)
{
    int saved = errno;
    uint32_t found = SIM_NONE;
    off_t offset = sim_file_is(fd) ? lseek(fd, 0, SEEK_CUR) : -1;
    uint32_t slot = (uint32_t)(offset & ((1 << OFFSET_SLOT_BITS) - 1));
    uint32_t generation = offset < 0 ? 0 : (uint32_t)(offset >> OFFSET_SLOT_BITS);
    if (generation != 0 && slot < SIM_SLOTS_MAX && sim_machine->slots[slot].live &&
        sim_machine->slots[slot].generation == generation)
        found = slot;
    errno = saved;
    return found;
}

bool sim_rm_is_descriptor(int fd)
{
    /* Descriptors of real devices never start a machine. */
    int saved = errno;
    struct stat status;
    bool regular = fstat(fd, &status) == 0 && S_ISREG(status.st_mode);
    errno = saved;
    return regular && sim_attach() == 0 && sim_file_is(fd);
}

static uint64_t used_locked(unsigned index)
{
    uint64_t used = sim_machine->used_bytes[index];
    for (uint32_t i = 0; i < sim_machine->clients_end; i++) {
        const struct sim_client *client = &sim_machine->clients[i];
        if (client->live && client->channel_groups[index])
            used += sim_description()->unlisted_bytes;
    }
    return used;
}

void sim_device_usage(unsigned index, struct sim_usage *ret_usage)
{
    const struct sim_model *model = &sim_machine->devices[index].model;
    uint64_t used = 0;
    sim_lock();
    sim_reap_locked();
    for (unsigned i = 0; i < sim_machine->device_count; i++) {
        if (i == index || sim_machine->devices[i].model.mig_card == index + 1)
            used += used_locked(i);
    }
    sim_unlock();
    uint64_t capacity = model->memory_bytes - model->reserved_bytes;
    used = used < capacity ? used : capacity;
    *ret_usage = (struct sim_usage){.total_bytes = model->memory_bytes,
        .reserved_bytes = model->reserved_bytes,
        .used_bytes = used,
        .free_bytes = capacity - used};
}

static struct sim_process *process_entry(
    struct sim_process *processes, unsigned *count, unsigned max, pid_t pid)
{
    unsigned known = *count < max ? *count : max;
    for (unsigned i = 0; i < known; i++) {
        if (processes[i].pid == pid)
            return &processes[i];
    }
    if ((*count)++ >= max)
        return NULL;
    processes[*count - 1] = (struct sim_process){.pid = pid};
    return &processes[*count - 1];
}

unsigned sim_device_processes(unsigned index, struct sim_process *ret_processes, unsigned max)
{
    unsigned count = 0;
    sim_lock();
    sim_reap_locked();
    (void)sim_timeline_advance_locked();
    for (uint32_t i = 0; i < sim_machine->clients_end; i++) {
        const struct sim_client *client = &sim_machine->clients[i];
        if (!client->live || client->channel_groups[index] == 0)
            continue;
        struct sim_process *process = process_entry(ret_processes, &count, max, client->pid);
        if (process == NULL)
            continue;
        process->private_bytes += client->bytes[index][SIM_PRIVATE];
        process->shared_owned_bytes += client->bytes[index][SIM_SHARED_OWNED];
        process->shared_duped_bytes += client->bytes[index][SIM_SHARED_DUPED];
    }
    for (uint32_t i = 0; i < sim_machine->slots_end; i++) {
        const struct sim_slot *slot = &sim_machine->slots[i];
        for (unsigned p = 0; slot->live && p < count && p < max; p++) {
            if (ret_processes[p].pid == slot->pid)
                ret_processes[p].busy_ns += slot->busy_ns[index];
        }
    }
    sim_unlock();
    return count;
}
