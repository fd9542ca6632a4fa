/* SPDX-License-Identifier: Apache-2.0 */
/* This process's part in turns with the card's memory (residency/turns.h). Its container takes part
 * as one tenant: each of its processes says what all hold, and the one that sees that a turn is
 * over passes it on. On one device: of several the first on which the process has movable memory.
 *
 * For placement.c's thread, except where said otherwise. */
#ifndef VGPU_VMEM_TURN_H
#define VGPU_VMEM_TURN_H

#include <stdbool.h>
#include <stdint.h>

struct turn_plan {
    bool in_group;    /* the container is one of several that take turns */
    bool holds;       /* it has the turn: calls wait for what comes in, until it is ready */
    bool passes;      /* the turn is over: drain, turn_pass, and move out */
    bool by_idleness; /* because there was no work: not where there is after all */
    int to;
};

/* Says, looks and closes or opens the gate. `away`: the container is paused or its memory released,
 * so it wants no turn; `is_full`: nothing of this process's can come in now. False where there are
 * no turns: without a share, a registry or a slot in it; then the gate is open. */
bool turn_look(
    unsigned device, bool away, bool is_full, uint64_t now_ns, struct turn_plan *ret_plan);

/* After a stop of the world in vain: work goes on that calls do not show. */
void turn_note_work(unsigned device, uint64_t now_ns);

/* Gives the turn to the tenant that the plan names. */
void turn_pass(const struct turn_plan *plan, uint64_t now_ns);

/* Brings the claim, and what the container may have on the card, in line with what it holds and
 * whose turn it is: after each move, and before one. */
void turn_settle(unsigned device);

/* How much of the container is on the card beyond what it may have. */
uint64_t turn_over_bytes(unsigned device);

/* Sleeps for `ns`; a call that comes to the closed gate ends it. */
void turn_rest(uint64_t ns);

/* Calls wait at the gate. */
bool turn_is_awaited(void);

/* Closes the gate: calls wait before they enter the world. Until a turn_look that opens it. */
void turn_close(void);

/* The process has nothing to move any more, or ends. */
void turn_leave(void);

/* The start of a process or of a forked child. */
void turn_reset(void);

#endif
