/* SPDX-License-Identifier: Apache-2.0 */
/* The thread, and its moves. */
#include "vmem/placement.h"

#include "base/atomic.h"
#include "base/clock.h"
#include "base/word.h"
#include "driver/cuda.h"
#include "driver/own_thread.h"
#include "pace/pace.h"
#include "pace/policy.h"
#include "region/account.h"
#include "residency/residency.h"
#include "vmem/freeze.h"
#include "vmem/range_move.h"
#include "vmem/vmem_parts.h"
#include "vmem/world.h"

#include <stddef.h>
#include <string.h>
#include <sys/prctl.h>

#define PAGE_BYTES ((uint64_t)BLOCK_BYTES)
#define MS 1000000ull

/* Between two looks, while calls submit work and while none does. */
#define LOOK_NS (100 * MS)
#define LOOK_IDLE_NS (1000 * MS)

/* How long calls are held back for the work that runs to end, and for the moves of one stop. */
#define STOP_NS (100 * MS)
#define MOVES_NS (50 * MS)

/* After a stop in vain: a kernel runs on, or the driver has no room. */
#define BACK_OFF_NS (1000 * MS)
#define BACK_OFF_MOST_NS (60000 * MS)

/* Of a card without a share so much is left to what the driver takes: 256 MiB or a part. */
#define RESERVE_LEAST_BYTES (256ull << 20)
#define RESERVE_PART 64

enum state { ABSENT, WORKS, ASLEEP, REFUSED };

static struct {
    uint32_t state; /* slept on */
    uint64_t entries;
    struct device {
        struct residency residency;
        uint64_t not_before_ns, back_off_ns;
    } devices[VGPU_REGION_DEVICES];
} placement;

/* ---- what could move ---- */

/* A part moves whole. */
static uint64_t spilled_within(const struct range *range, uint64_t room_bytes)
{
    uint64_t sum = 0;
    for (unsigned i = 0; i < range->part_count; i++) {
        if (range->parts[i].spilled && range->parts[i].bytes <= room_bytes)
            sum += range->parts[i].bytes;
    }
    return sum;
}

/* Uses both that come into question. */
static void pick_ranges(unsigned device, uint64_t room_bytes, struct residency_pick *ret_pick)
{
    LOCKED_TO_END(vmem_lock);
    struct range *range;
    *ret_pick = (struct residency_pick){.coldest = {.range = NULL}};
    for (CUdeviceptr at = 0; (range = range_table_from(&vmem.table, at)) != NULL;
         at = range->address + range->bytes) {
        if ((unsigned)range->device != device || load_relaxed(&range->exported))
            continue;
        struct residency_range shown = {.range = range,
            .resident_bytes = range_movable_bytes(range),
            .spilled_bytes = spilled_within(range, room_bytes ? room_bytes : UINT64_MAX),
            .use = range->use};
        residency_show(ret_pick, &shown);
    }
    if (ret_pick->coldest.range)
        vmem_use_locked(ret_pick->coldest.range);
    if (ret_pick->hottest.range)
        vmem_use_locked(ret_pick->hottest.range);
}

static void leave_ranges(const struct residency_pick *pick)
{
    if (pick->coldest.range)
        (void)vmem_leave(pick->coldest.range);
    if (pick->hottest.range)
        (void)vmem_leave(pick->hottest.range);
}

/* A context of the device that has memory. */
static uint64_t context_on(unsigned device)
{
    LOCKED_TO_END(vmem_lock);
    struct range *range;
    for (CUdeviceptr at = 0; (range = range_table_from(&vmem.table, at)) != NULL;
         at = range->address + range->bytes) {
        if ((unsigned)range->device == device)
            return range->context;
    }
    return 0;
}

static uint64_t card_room(unsigned device)
{
    CUcontext context = (CUcontext)(uintptr_t)context_on(device), popped;
    size_t left = 0, total = 0;
    if (!context || cuda.cuCtxPushCurrent_v2(context) != CUDA_SUCCESS)
        return 0;
    if (cuda.cuMemGetInfo_v2(&left, &total) != CUDA_SUCCESS)
        left = 0;
    (void)cuda.cuCtxPopCurrent_v2(&popped);
    uint64_t reserve = total / RESERVE_PART;
    reserve = reserve > RESERVE_LEAST_BYTES ? reserve : RESERVE_LEAST_BYTES;
    return left > reserve ? left - reserve : 0;
}

/* In whole pages. */
static uint64_t room_of(unsigned device)
{
    uint64_t room = account_resident_room(device, PAGE_BYTES);
    if (room == UINT64_MAX)
        room = card_room(device);
    return room / PAGE_BYTES * PAGE_BYTES;
}

/* ---- moves ---- */

static void note_move(struct range *range, uint64_t now_ns)
{
    LOCKED_TO_END(vmem_lock);
    residency_note_move(&range->use, now_ns);
}

/* One move; false where there is none to be made, or less came of it than was to. The world is
 * stopped. */
static bool move_once(unsigned device, unsigned *moves)
{
    CUresult result = CUDA_ERROR_UNKNOWN;
    struct residency_pick pick;
    uint64_t room = room_of(device), moved = 0, from_ns = clock_now_ns();
    struct residency *residency = &placement.devices[device].residency;
    pick_ranges(device, room, &pick);
    struct residency_move move = residency_next(residency, &pick, 0, room, false, from_ns);
    if (move.range) {
        result = range_move(move.range, move.to_host, move.bytes, &moved);
        uint64_t now_ns = clock_now_ns();
        residency_spend(residency, now_ns - from_ns);
        note_move(move.range, now_ns);
    }
    leave_ranges(&pick);
    *moves += moved != 0;
    return moved && result == CUDA_SUCCESS;
}

static void back_off(struct device *device, uint64_t now_ns)
{
    uint64_t longer_ns = 2 * device->back_off_ns;
    if (!device->back_off_ns)
        longer_ns = BACK_OFF_NS;
    device->back_off_ns = longer_ns < BACK_OFF_MOST_NS ? longer_ns : BACK_OFF_MOST_NS;
    device->not_before_ns = now_ns + device->back_off_ns;
}

/* In a pause, or beside a higher priority, a copy would wait, and with it all calls. What a freeze
 * moved out is its own. */
static bool may_stop(void)
{
    return !policy_hold() && !freeze_holds();
}

/* Whether a move is to be made, by the same choice, before anybody is stopped for it. */
static bool has_move(unsigned device, uint64_t now_ns)
{
    struct residency_pick pick;
    struct residency residency = placement.devices[device].residency;
    uint64_t room = room_of(device);
    pick_ranges(device, room, &pick);
    bool has = residency_next(&residency, &pick, 0, room, false, now_ns).range != NULL;
    leave_ranges(&pick);
    return has;
}

static void attend(unsigned number, uint64_t now_ns)
{
    struct device *device = &placement.devices[number];
    if (now_ns < device->not_before_ns || !may_stop() || !has_move(number, now_ns))
        return;
    unsigned moves = 0;
    pace_context_ends(); /* channels that are closed in windows are opened */
    if (world_stop(STOP_NS) == 0) {
        while (!world_is_finished() && clock_now_ns() - now_ns < STOP_NS + MOVES_NS &&
               move_once(number, &moves)) {
        }
        world_start();
    }
    pace_context_ended();
    if (moves)
        device->back_off_ns = 0;
    else
        back_off(device, clock_now_ns());
}

/* ---- the thread ---- */

static bool has_spilled(void)
{
    bool any = false;
    for (unsigned i = 0; i < VGPU_REGION_DEVICES; i++)
        any |= account_own_bytes(i, ACCOUNT_SPILLED) != 0;
    return any;
}

/* What is spilled as it falls asleep is seen by itself, or wakes it. */
static void sleep_for_good(void)
{
    if (!swap_seq_cst(&placement.state, (uint32_t)WORKS, (uint32_t)ASLEEP))
        return;
    if (has_spilled() && swap_seq_cst(&placement.state, (uint32_t)ASLEEP, (uint32_t)WORKS))
        return;
    while (load_acquire(&placement.state) == ASLEEP)
        word_wait(&placement.state, ASLEEP);
}

static uint64_t pause_ns(void)
{
    uint64_t entries = world_entries();
    bool works = entries != placement.entries;
    placement.entries = entries;
    return works ? LOOK_NS : LOOK_IDLE_NS;
}

static void *run(void *argument)
{
    (void)argument;
    (void)prctl(PR_SET_NAME, "vgpu-placer");
    while (!world_is_finished()) {
        for (unsigned i = 0; i < VGPU_REGION_DEVICES; i++) {
            if (account_own_bytes(i, ACCOUNT_SPILLED))
                attend(i, clock_now_ns());
        }
        if (has_spilled())
            word_wait_for(&placement.state, WORKS, pause_ns());
        else
            sleep_for_good();
    }
    return NULL;
}

void placement_watch_slow(void)
{
    uint32_t state = load_acquire(&placement.state);
    if (state == ASLEEP && swap_seq_cst(&placement.state, (uint32_t)ASLEEP, (uint32_t)WORKS))
        word_wake(&placement.state);
    if (state == ABSENT && swap_seq_cst(&placement.state, (uint32_t)ABSENT, (uint32_t)WORKS) &&
        !own_thread_start(run))
        store_release(&placement.state, (uint32_t)REFUSED);
}

void placement_reset(void)
{
    memset(&placement, 0, sizeof(placement));
}
