/* SPDX-License-Identifier: Apache-2.0 */
/* A switch and a counter. */
#include "rm/rm_charging.h"

#include "base/atomic.h"

static bool charging = true;
static unsigned calls; /* on their way */

void rm_charging_set(bool on)
{
    store_release(&charging, on);
}

bool rm_charging_is_on(void)
{
    return load_acquire(&charging);
}

void rm_charging_begin_call(void)
{
    add_seq_cst(&calls, 1u);
}

void rm_charging_end_call(void)
{
    sub_seq_cst(&calls, 1u);
}

bool rm_charging_has_call(void)
{
    return load_seq_cst(&calls) != 0;
}

void rm_charging_reset(void)
{
    charging = true;
    calls = 0;
}
