/* SPDX-License-Identifier: Apache-2.0 */
#include "rm/rm_away.h"

#include "base/atomic.h"

#include <string.h>

static struct {
    bool on;
    uint64_t bytes[VGPU_REGION_DEVICES];
} away;

void rm_away_reset(void)
{
    memset(&away, 0, sizeof(away));
}

void rm_away_begin(void)
{
    store_release(&away.on, true);
}

bool rm_away_is_on(void)
{
    return load_acquire(&away.on);
}

void rm_away_freed(unsigned device, uint64_t bytes, enum account_kind kind)
{
    (void)add_seq_cst(&away.bytes[device], bytes);
    account_move_back(device, bytes, kind, ACCOUNT_SPILLED);
}

/* As much as is away. */
static uint64_t take(unsigned device, uint64_t bytes)
{
    uint64_t left = load_seq_cst(&away.bytes[device]), taken;
    do
        taken = bytes < left ? bytes : left;
    while (!__atomic_compare_exchange_n(
        &away.bytes[device], &left, left - taken, false, __ATOMIC_SEQ_CST, __ATOMIC_SEQ_CST));
    return taken;
}

/* The driver also makes memory for the checkpoint itself. */
void rm_away_came_back(unsigned device, uint64_t bytes, enum account_kind kind)
{
    uint64_t back = take(device, bytes);
    if (back)
        account_move_back(device, back, ACCOUNT_SPILLED, kind);
    if (bytes > back)
        account_add(device, bytes - back, kind);
}

void rm_away_end(void)
{
    store_release(&away.on, false);
    for (unsigned device = 0; device < VGPU_REGION_DEVICES; device++) {
        uint64_t left = take(device, UINT64_MAX);
        if (left)
            account_release(device, left, ACCOUNT_SPILLED);
    }
}
