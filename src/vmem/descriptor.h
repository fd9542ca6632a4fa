/* SPDX-License-Identifier: Apache-2.0 */
/* Descriptors of this process's host memory (vmem/park.h). They have numbers that no program uses:
 * above its limit of open files, which is raised for a moment, as far as the hard limit allows.
 * They are closed on exec, and in a forked child that calls CUDA. Any thread; room is made by one
 * at a time. */
#ifndef VGPU_VMEM_DESCRIPTOR_H
#define VGPU_VMEM_DESCRIPTOR_H

#include <stdbool.h>
#include <sys/resource.h>

#define DESCRIPTORS_MAX 8192

struct descriptor_room {
    struct rlimit former;
    bool raised;
};

/* Around calls that make descriptors: there is room for them, where the hard limit has some. */
void descriptor_make_room(struct descriptor_room *room);
void descriptor_end_room(const struct descriptor_room *room);

/* Takes a descriptor over, and returns the number that it has from now on; 0: there is no room, and
 * it is closed. */
int descriptor_keep(int fd, const struct descriptor_room *room);

void descriptor_close(int fd);

/* The start of a process or of a forked child. */
void descriptor_reset(void);

#endif
