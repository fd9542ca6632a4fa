/* SPDX-License-Identifier: Apache-2.0 */
/* Keeps the signals that a write raises from the program: SIGXFSZ, where a file would pass
 * RLIMIT_FSIZE, and SIGPIPE, where nobody reads a pipe. Their default ends the process. The kernel
 * sends both to the writing thread, so that blocking them there is enough. */
#ifndef VGPU_BASE_HOLD_H
#define VGPU_BASE_HOLD_H

#include <stdbool.h>
#include <stdint.h>

struct hold {
    uint64_t mask, pending; /* as they were before */
};

/* Blocks both for the calling thread, which keeps it so for one system call. False, and nothing is
 * blocked, where the kernel refuses. Two system calls; keeps errno. */
bool hold_begin(struct hold *ret_hold) __attribute__((warn_unused_result));

/* Gives the thread its mask back. `raised`: the signal that the call raised, which is taken away
 * unless the program had one pending already; 0: none. Keeps errno. */
void hold_end(const struct hold *hold, int raised);

#endif
