/* SPDX-License-Identifier: Apache-2.0 */
/* A memory pool's record, for the files that hand out its memory and answer for it. */
#ifndef VGPU_SIM_MEMORY_POOL_H
#define VGPU_SIM_MEMORY_POOL_H

#include "sim/cuda/cuda_sim.h"

struct chunk;

struct pool {
    struct object object;
    struct pool *next;
    enum memory_place place;
    CUmemAllocationType type;
    CUmemLocation location;
    struct device *device; /* the location's; NULL: it is none */
    struct chunk *chunks;
    uint64_t reserved;
    uint64_t reserved_high;
    uint64_t used;
    uint64_t used_high;
    uint64_t release_threshold;
    uint64_t max_size; /* 0: no bound */
    int follow_event;
    int opportunistic;
    int internal;
    unsigned handle_types;
    bool is_default; /* of a location, or a device's for graphs: it cannot be destroyed */
    bool destroyed;  /* lives on until its last allocation is freed */
};

CUresult pool_create(
    CUmemAllocationType type, const CUmemLocation *location, struct pool **ret_pool);
/* The pool goes: where it is current for a location, that one's default becomes so. */
void pool_leave_places(const struct pool *pool);
/* The handle dies at once, the memory with the last allocation. */
void pool_destroy(struct pool *pool);
/* Gives empty chunks back until at most keep bytes are reserved; returns the bytes given back. */
uint64_t pool_trim(struct pool *pool, uint64_t keep);

#endif
