/* SPDX-License-Identifier: Apache-2.0 */
/* The account counts a move before it is made (account_move). What the ledger below the API sees of
 * it is therefore not charged again (rm_memory_thread_move); a record of the API ledger, and that
 * of memory on the host under either, changes its handle. */
#include "memory/moving.h"

#include "container/container.h"
#include "rm/rm_memory.h"

/* Whether memory.c has a record of memory of the kind. */
static bool is_recorded(enum account_kind kind)
{
    return kind == ACCOUNT_SPILLED || memory_ledger() == MEMORY_LEDGER_API;
}

static bool is_seen_below(enum account_kind kind)
{
    return kind == ACCOUNT_MOVABLE && memory_ledger() != MEMORY_LEDGER_API;
}

int moving_begin(struct moving *moving, unsigned device, uint64_t bytes, bool to_host, bool ready)
{
    *moving = (struct moving){.device = device,
        .bytes = bytes,
        .from = to_host ? ACCOUNT_MOVABLE : ACCOUNT_SPILLED,
        .to = to_host ? ACCOUNT_SPILLED : ACCOUNT_MOVABLE};
    if (ready)
        account_move_ready(device, bytes);
    return ready ? 0 : account_move(device, bytes, moving->from, moving->to);
}

/* What the driver takes of the card for memory of the host stays on the card. */
static void enter(struct moving *moving, enum account_kind kind, bool makes)
{
    moving->former_kind =
        rm_memory_set_kind(kind == ACCOUNT_SPILLED ? ACCOUNT_BUFFER : ACCOUNT_MOVABLE);
    rm_memory_thread_move =
        (struct rm_memory_move){.left = is_seen_below(kind) ? moving->bytes : 0, .makes = makes};
}

/* Returns what was not seen below. */
static uint64_t leave(struct moving *moving)
{
    uint64_t left = rm_memory_thread_move.left;
    rm_memory_thread_move = (struct rm_memory_move){0};
    (void)rm_memory_set_kind(moving->former_kind);
    return left;
}

void moving_make(struct moving *moving)
{
    enter(moving, moving->to, true);
}

void moving_made(struct moving *moving, bool made, uint64_t handle)
{
    uint64_t unseen = leave(moving);
    if (made && is_recorded(moving->to))
        memory_put_charged(MEMORY_VMM, handle, (int)moving->device, moving->bytes, moving->to);
    if (made && unseen) /* the driver had it: nothing below will give it back */
        account_release(moving->device, unseen, moving->to);
}

void moving_release(struct moving *moving, bool old, uint64_t handle)
{
    enum account_kind kind = old ? moving->from : moving->to;
    moving->record = memory_take(MEMORY_VMM, handle);
    enter(moving, kind, false);
}

void moving_released(struct moving *moving, bool old, bool released, uint64_t handle)
{
    enum account_kind kind = old ? moving->from : moving->to;
    uint64_t unseen = leave(moving);
    if (unseen) /* the driver keeps it, and the ledger has it still */
        account_add(moving->device, unseen, kind);
    if (released || moving->record.device == CONTAINER_DEVICE_UNKNOWN)
        return;
    /* It stays, beside what takes its place, and is charged for itself from now on. */
    account_add(moving->device, moving->record.bytes, kind);
    memory_taken(&moving->record, false, MEMORY_VMM, handle);
}

void moving_end_back(struct moving *moving)
{
    account_move_back(moving->device, moving->bytes, moving->to, moving->from);
}
