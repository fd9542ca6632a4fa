/* SPDX-License-Identifier: Apache-2.0 */
/* Reads of PTX text what the simulator needs: entries with parameters and local memory, globals. */
#ifndef VGPU_SIM_CUDA_PTX_H
#define VGPU_SIM_CUDA_PTX_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

#define PTX_PARAMS_MAX 64

struct ptx_entry {
    char *name;
    uint32_t params;
    uint32_t offsets[PTX_PARAMS_MAX];
    uint32_t sizes[PTX_PARAMS_MAX];
    uint32_t params_bytes;
    bool has_duration; /* the first is a .u64 named …duration_ns */
    bool meets;        /* and then there are a .u64 named …meeting and a .u32 named …parties */
    bool touches;      /* or a .u64 named …touched_at and another …touched_bytes */
    bool reads;        /* or …read_at and …read_bytes */
    uint64_t local_bytes;
    uint64_t shared_bytes;
    uint32_t max_threads; /* .maxntid, 0 if not said */
};

struct ptx_global {
    char *name;
    uint64_t bytes;
};

struct ptx {
    struct ptx_entry *entries;
    size_t entry_count;
    struct ptx_global *globals;
    size_t global_count;
    uint32_t target; /* 75 of sm_75 */
};

/* 0, -EINVAL (no PTX) or -ENOMEM. On success the caller finishes it. */
int ptx_parse(const char *text, struct ptx *ret_ptx) __attribute__((warn_unused_result));
void ptx_finish(struct ptx *ptx);

#endif
