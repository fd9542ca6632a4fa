/* SPDX-License-Identifier: Apache-2.0 */
/* The processes of a container, as tests play them: a region's file of the test's own, peers that
 * attach to it, and steps by which they wait for each other. */
#ifndef VGPU_TEST_REGION_PEERS_H
#define VGPU_TEST_REGION_PEERS_H

#include "account/account.h"
#include "region/region.h"

#include <stdbool.h>
#include <stdint.h>
#include <sys/types.h>

#define PEERS_MIB (1ull << 20)
#define PEERS_UUID "GPU-00000000-0000-0000-0000-000000000001"

/* Shared by all processes of a test. */
struct peers {
    int step;
    int64_t number[8];
};
extern struct peers *peers;

/* The region's path, in a directory of the test's own that is removed with the test's process. */
extern char peers_directory[64], peers_path[128];

/* Makes the directory and the shared words; first in every test. */
void peers_begin(void);

/* The configuration that an environment with this CUDA_DEVICE_MEMORY_LIMIT gives (NULL: none). */
struct config *peers_config(const char *limit);

/* Attaches the calling process as a starting program does, and enters the device PEERS_UUID;
 * returns its index. Ends the process where that fails. */
unsigned peers_join(const char *limit);

/* The calling process's region. */
extern struct region peers_region;

/* Forks a peer that runs `body` and exits. */
pid_t peers_fork(void (*body)(void));

/* Waits until the peers have come to `step`, or ends the process with a failure after 20 s. The
 * step only grows. */
void peers_wait(int step);
void peers_step(int step);

/* Waits for the process; its wait status. */
int peers_reap(pid_t pid);
void peers_kill(pid_t pid);

void peers_sleep_ms(unsigned ms);

/* A second attachment to the file, to look at it as a tool does; closed by region_detach. */
void peers_look(struct region *region);

/* What the container uses on the device, dead processes retired. */
uint64_t peers_used(unsigned device);

/* The slot whose pid is `pid`, or -1. */
int peers_slot_of(const struct region *region, pid_t pid);

#endif
