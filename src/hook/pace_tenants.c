/* SPDX-License-Identifier: Apache-2.0 */
/* A board for each device, said and heard at each of the governor's looks. */
#include "hook/pace_tenants.h"

#include "hook/pace_rules.h"
#include "limit/container.h"
#include "limit/rm_channels.h"
#include "limit/turns.h"
#include "region/account.h"
#include "region/board.h"

#include <stddef.h>
#include <string.h>

static struct tenants_device {
    struct board board;
    bool met;
    struct turns turns;
    uint64_t turn_us; /* of our channel groups; 0: as the driver made them */
} devices[VGPU_REGION_DEVICES];

static void meet_first(unsigned device)
{
    char uuid[ACCOUNT_UUID_BYTES];
    devices[device].met = true;
    if (account_uuid(device, uuid))
        (void)!board_attach(&devices[device].board, container_config()->board_directory, uuid,
            account_tenant(device), NULL);
}

/* The device's, with a board that is looked after. */
static struct tenants_device *attend(unsigned device, uint64_t now_ns)
{
    struct tenants_device *here = &devices[device];
    if (!here->met)
        meet_first(device);
    board_keep(&here->board, now_ns);
    return here;
}

static void take_turns(unsigned device, const struct board_view *view)
{
    struct tenants_device *here = &devices[device];
    uint64_t turn = turns_slice_us(&here->turns, view, rules_hard_percent(device));
    if (turn == here->turn_us)
        return;
    (void)rm_channels_set_timeslice(device, turn);
    here->turn_us = turn;
}

static void take_in(unsigned device, const struct board_view *view, uint64_t now_ns)
{
    struct turns *turns = &devices[device].turns;
    bool alone = turns_are_alone(turns, view, now_ns);
    struct rules_neighbours neighbours = {
        .soft_is_on = board_is_attached(&devices[device].board) && alone,
        .higher_work = turns_give_way(turns, view, now_ns),
        .part = turns_part(turns, view, rules_hard_percent(device)),
    };
    rules_set_neighbours(device, &neighbours);
}

/* One without a limit counts 100. */
static bool is_beside_limited(const struct board_view *view)
{
    return view->active && view->active_limit_sum < 100 * view->active;
}

void tenants_meet(unsigned device, const struct tenants_own *own, uint64_t now_ns)
{
    struct tenants_device *here = attend(device, now_ns);
    struct board_view view;
    uint64_t busy = account_busy_ns(device);
    struct board_own said = {
        .active = own->active,
        .wants = own->wants,
        .paused = own->paused,
        .heavy = here->turns.heavy,
        .core_limit = rules_hard_percent(device),
        .core_soft_limit = rules_soft_percent(device),
        .priority = rules_priority(),
        .busy_ns = busy,
    };
    board_publish(&here->board, &said, now_ns);
    board_look(&here->board, now_ns, &view);
    turns_rate(&here->turns, busy, &view, now_ns);
    take_turns(device, &view);
    take_in(device, &view, now_ns);
    if (is_beside_limited(&view))
        rules_note_limited_beside(now_ns);
}

bool tenants_limited_work(unsigned device, uint64_t now_ns)
{
    struct tenants_device *here = attend(device, now_ns);
    struct board_view view;
    board_look(&here->board, now_ns, &view);
    return is_beside_limited(&view);
}

void tenants_leave(void)
{
    for (unsigned d = 0; d < VGPU_REGION_DEVICES; d++) {
        if (devices[d].met)
            board_idle(&devices[d].board);
    }
}

void tenants_reset(void)
{
    for (unsigned d = 0; d < VGPU_REGION_DEVICES; d++) {
        if (!devices[d].met)
            continue;
        board_reset(&devices[d].board);
        devices[d] = (struct tenants_device){.board = devices[d].board};
    }
}
