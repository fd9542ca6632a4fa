/* SPDX-License-Identifier: Apache-2.0 */
/* What the files of the timeline share. All under the machine's lock. */
#ifndef VGPU_SIM_MACHINE_MACHINE_TIMELINE_H
#define VGPU_SIM_MACHINE_MACHINE_TIMELINE_H

#include "sim/machine/machine_layout.h"

static inline struct sim_timeline *timeline(void)
{
    return &sim_machine->timeline;
}

static inline struct sim_ring *ring_at(uint32_t index)
{
    return &timeline()->rings[index];
}

static inline struct sim_group *group_at(uint32_t index)
{
    return &timeline()->groups[index];
}

static inline struct sim_op *first_op(struct sim_ring *ring)
{
    return &ring->ops[ring->first % SIM_OPS_MAX];
}

static inline uint64_t add_saturating(uint64_t a, uint64_t b)
{
    return b > UINT64_MAX - a ? UINT64_MAX : a + b;
}

/* A kill falls between two instructions: what is written before stays before, as far as the
 * compiler goes. */
static inline void set_word(uint32_t *word, uint32_t value)
{
    atomic_signal_fence(memory_order_seq_cst);
    *(volatile uint32_t *)word = value;
    atomic_signal_fence(memory_order_seq_cst);
}

/* ---- groups (machine_ring.c) ---- */
uint64_t sim_group_slice_ns_locked(const struct sim_group *group);
/* What a group has to do has changed, or whether it may. */
void sim_group_refresh_locked(uint32_t index);

/* ---- rings (machine_ring.c) ---- */
/* Puts the ring where its first work belongs; what takes no time, and what is over, goes at once.
 */
void sim_ring_settle_locked(uint32_t index);
/* The first work is done. */
void sim_ring_pop_locked(struct sim_ring *ring);
void sim_ring_free_locked(uint32_t index);
void sim_mark_write_locked(const struct sim_op *op);

/* ---- engines and time (machine_timeline.c) ---- */
/* Takes the kernel that runs off the engine; it goes on later. */
void sim_engine_preempt_locked(struct sim_engine *engine);
/* All that happens at this very time. */
void sim_timeline_update_locked(void);

#endif
