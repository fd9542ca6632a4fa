/* SPDX-License-Identifier: Apache-2.0 */
/* A board for each device, said and heard at each of the governor's looks. */
#include "hook/pace_tenants.h"

#include "hook/pace_rules.h"
#include "limit/container.h"
#include "limit/rm_channels.h"
#include "region/account.h"
#include "region/board.h"

#include <stddef.h>
#include <string.h>

/* Soft limits open when nobody else has been at work for so long. */
#define ALONE_NS 50000000ull

/* Who keeps the device busy for more than a quarter of the time shares it in long turns: switches
 * cost 8 % of it with the driver's turns of 2 ms, 2 % with 10 ms (H200, driver 580.159.04). */
#define HEAVY_PERMILLE 250
#define RATE_NS 100000000ull
#define ROUND_US 20000u /* a turn of each */
#define TURN_MIN_US 2048u
#define TURN_MAX_US 16384u

static struct tenants_device {
    struct board board;
    bool met;
    bool heavy;
    uint64_t alone_since_ns; /* 0: others are at work */
    uint64_t rated_ns, rated_busy_ns;
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

static void rate(struct tenants_device *here, uint64_t busy_ns, uint64_t now_ns)
{
    if (now_ns - here->rated_ns < RATE_NS)
        return;
    uint64_t passed = now_ns - here->rated_ns, busy = busy_ns - here->rated_busy_ns;
    here->heavy = here->rated_ns && busy < passed * 2 && busy > passed / 1000 * HEAVY_PERMILLE;
    here->rated_ns = now_ns;
    here->rated_busy_ns = busy_ns;
}

static unsigned weight_of(unsigned percent)
{
    return percent && percent < 100 ? percent : 100;
}

/* Long turns only among those who use them up: who works now and then would wait for them. */
static void take_turns(unsigned device, const struct board_view *view)
{
    struct tenants_device *here = &devices[device];
    uint64_t turn = 0;
    if (here->heavy && view->heavy) {
        unsigned own = weight_of(rules_hard_percent(device));
        turn = (uint64_t)ROUND_US * own / (own + view->heavy_limit_sum);
        turn = turn < TURN_MIN_US ? TURN_MIN_US : turn > TURN_MAX_US ? TURN_MAX_US : turn;
    }
    if (turn == here->turn_us)
        return;
    (void)rm_channels_set_timeslice(device, turn);
    here->turn_us = turn;
}

static unsigned part_of(unsigned device, const struct board_view *view)
{
    const struct tenants_device *here = &devices[device];
    if (!view->active)
        return 1000;
    if (!here->turn_us || view->heavy < view->active)
        return 1000 / (1 + view->active);
    unsigned own = weight_of(rules_hard_percent(device));
    return 1000 * own / (own + view->heavy_limit_sum);
}

static void take_in(unsigned device, const struct board_view *view, uint64_t now_ns)
{
    struct tenants_device *here = &devices[device];
    if (view->active)
        here->alone_since_ns = 0;
    else if (!here->alone_since_ns)
        here->alone_since_ns = now_ns;
    struct rules_neighbours neighbours = {
        .soft_is_on = board_is_attached(&here->board) && here->alone_since_ns &&
                      now_ns - here->alone_since_ns >= ALONE_NS,
        .higher_work = view->higher > 0,
        .part = part_of(device, view),
    };
    rules_set_neighbours(device, &neighbours);
}

void tenants_meet(unsigned device, const struct tenants_own *own, uint64_t now_ns)
{
    struct tenants_device *here = &devices[device];
    struct board_view view;
    if (!here->met)
        meet_first(device);
    board_keep(&here->board, now_ns);
    uint64_t busy = account_busy_ns(device);
    rate(here, busy, now_ns);
    struct board_own said = {
        .active = own->active,
        .wants = own->wants,
        .paused = own->paused,
        .heavy = here->heavy,
        .core_limit = rules_hard_percent(device),
        .core_soft_limit = rules_soft_percent(device),
        .priority = rules_priority(),
        .busy_ns = busy,
    };
    board_publish(&here->board, &said, now_ns);
    board_look(&here->board, now_ns, &view);
    take_turns(device, &view);
    take_in(device, &view, now_ns);
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
