/* SPDX-License-Identifier: Apache-2.0 */
/* The thread, and its moves. */
#include "vmem/placement.h"

#include "base/atomic.h"
#include "base/clock.h"
#include "base/log.h"
#include "base/word.h"
#include "driver/cuda.h"
#include "driver/own_thread.h"
#include "pace/halt.h"
#include "pace/pace.h"
#include "pace/policy.h"
#include "account/account.h"
#include "residency/residency.h"
#include "vmem/freeze.h"
#include "vmem/range_move.h"
#include "vmem/turn.h"
#include "vmem/use.h"
#include "vmem/vmem_parts.h"
#include "vmem/world.h"

#include <errno.h>
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

/* In a group that takes turns: between two looks, also while calls wait; how long a holder's work
 * has to end, also where it seems to be idle; and how long it moves before it speaks again. */
#define LOOK_TURNS_NS (20 * MS)
#define LOOK_AWAITED_NS (5 * MS)
#define PASS_STOP_NS (500 * MS)
#define IDLE_STOP_NS (20 * MS)
#define AWAITED_NS (300 * MS)

/* For how long calls note what they use, and how often. */
#define ASK_NS (50 * MS)
#define ASK_EACH_NS (500 * MS)

/* Bytes at a time of a move that another tenant or a launch waits for. */
#define PIECE_BYTES (256ull << 20)

/* After a stop in vain: a kernel runs on, or the driver has no room. */
#define BACK_OFF_NS (1000 * MS)
#define BACK_OFF_MOST_NS (60000 * MS)
#define BACK_OFF_AWAITED_NS (200 * MS)

/* Without a share this is left free on the card for what the driver takes: 256 MiB, or 1/64 of the
 * card where that is more. */
#define RESERVE_LEAST_BYTES (256ull << 20)
#define RESERVE_PART 64

enum state { ABSENT, WORKS, ASLEEP, REFUSED };

static struct {
    uint32_t state; /* slept on */
    uint64_t entries;
    bool asks;         /* something was spilled that had no room at the last look */
    uint64_t asked_ns; /* when use was asked for last */
    struct device {
        struct residency residency;
        uint64_t not_before_ns, back_off_ns, walked_ns;
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

static void show_ranges_locked(unsigned device, uint64_t room_bytes, struct residency_pick *pick)
    REQUIRES(vmem_lock)
{
    struct range *range = NULL;
    *pick = (struct residency_pick){.coldest = {.range = NULL}};
    while ((range = range_table_next(&vmem.table, range))) {
        if ((unsigned)range->device != device || load_relaxed(&range->exported) ||
            vmem_may_go_locked(range))
            continue;
        struct residency_range shown = {.range = range,
            .resident_bytes = range_movable_bytes(range),
            .spilled_bytes = spilled_within(range, room_bytes),
            .use = range->use};
        residency_show(pick, &shown);
    }
}

/* Uses both that come into question. Room in which no part fits is none. */
static void pick_ranges(unsigned device, uint64_t *room_bytes, struct residency_pick *ret_pick)
{
    LOCKED_TO_END(vmem_lock);
    show_ranges_locked(device, *room_bytes, ret_pick);
    if (!ret_pick->hottest.range) {
        *room_bytes = 0;
        show_ranges_locked(device, UINT64_MAX, ret_pick);
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
    struct range *range = NULL;
    while ((range = range_table_next(&vmem.table, range))) {
        if ((unsigned)range->device == device && !vmem_may_go_locked(range))
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

/* A part moves whole: the least of those that could. */
static uint64_t least_part(const struct range *range, bool to_host)
{
    uint64_t least = UINT64_MAX;
    for (unsigned i = 0; i < range->part_count; i++) {
        if (range->parts[i].spilled != to_host && range->parts[i].bytes < least)
            least = range->parts[i].bytes;
    }
    return least;
}

static struct residency_move choose(struct residency *residency, const struct residency_pick *pick,
    uint64_t room, bool awaited, uint64_t over)
{
    struct residency_move move = residency_next(
        residency, pick, over < PIECE_BYTES ? over : PIECE_BYTES, room, awaited, clock_now_ns());
    bool advised = pick->hottest.use.advice != pick->coldest.use.advice;
    if (move.range && !room && !over && !advised && !use_is_seen(clock_now_ns()))
        move.range = NULL; /* what changes places is chosen by use */
    if (move.range && awaited && move.bytes > PIECE_BYTES)
        move.bytes = PIECE_BYTES; /* what came or went is said in between */
    if (move.range && move.to_host) {
        uint64_t least = least_part(move.range, true);
        move.bytes = move.bytes > least ? move.bytes : least;
    }
    return move;
}

/* One move; false where there is none to be made, or less came of it than was to. The world is
 * stopped. */
static bool move_once(unsigned device, bool awaited, unsigned *moves)
{
    CUresult result = CUDA_ERROR_UNKNOWN;
    struct residency_pick pick;
    uint64_t room = room_of(device), moved = 0, from_ns = clock_now_ns();
    struct residency *residency = &placement.devices[device].residency;
    pick_ranges(device, &room, &pick);
    struct residency_move move = choose(residency, &pick, room, awaited, turn_over_bytes(device));
    if (move.range) {
        result = range_move(move.range, move.to_host, move.bytes, &moved);
        uint64_t now_ns = clock_now_ns();
        log_debug("%llu KiB went %s in %llu us", (unsigned long long)(moved >> 10),
            move.to_host ? "to the host" : "to the card",
            (unsigned long long)((now_ns - from_ns) / 1000));
        residency_spend(residency, awaited ? 0 : now_ns - from_ns);
        note_move(move.range, now_ns);
    }
    leave_ranges(&pick);
    *moves += moved != 0;
    return moved && result == CUDA_SUCCESS;
}

/* Where others wait for what goes, a stop in vain is tried again soon. */
static void back_off(struct device *device, bool moved, bool awaited, uint64_t now_ns)
{
    uint64_t longer_ns = device->back_off_ns ? 2 * device->back_off_ns : BACK_OFF_NS;
    if (longer_ns > BACK_OFF_MOST_NS)
        longer_ns = BACK_OFF_MOST_NS;
    device->back_off_ns = moved || awaited ? 0 : longer_ns;
    device->not_before_ns =
        now_ns + (!moved && awaited ? BACK_OFF_AWAITED_NS : device->back_off_ns);
}

/* Moves until there is nothing to be moved, with a claim that follows; returns how often it did. */
static unsigned move_all(unsigned number, bool awaited, uint64_t until_ns)
{
    unsigned moves = 0;
    bool more = true;
    while (more && !world_is_finished() && clock_now_ns() < until_ns) {
        more = move_once(number, awaited, &moves);
        if (awaited)
            turn_settle(number);
    }
    return moves;
}

/* Whether a move is to be made, by the same choice, before anybody is stopped for it. Without room
 * for a piece all ranges are looked at once a second. */
static bool has_move(unsigned device, bool awaited)
{
    struct residency_pick pick;
    struct residency residency = placement.devices[device].residency;
    uint64_t now_ns = clock_now_ns(), *walked_ns = &placement.devices[device].walked_ns;
    if (!awaited && !account_own_bytes(device, ACCOUNT_SPILLED))
        return false;
    uint64_t room = room_of(device);
    if (!awaited && room < RANGE_PIECE_LEAST_BYTES && now_ns - *walked_ns < LOOK_IDLE_NS)
        return false;
    *walked_ns = now_ns;
    pick_ranges(device, &room, &pick);
    placement.asks |= !room;
    bool has = choose(&residency, &pick, room, awaited, turn_over_bytes(device)).range != NULL;
    leave_ranges(&pick);
    return has;
}

/* Stops the world where there is a move to be made. Channels that are closed in windows are opened
 * for it. */
static void stop_and_move(unsigned number, bool awaited)
{
    struct device *device = &placement.devices[number];
    unsigned moves = 0;
    if (clock_now_ns() < device->not_before_ns || !has_move(number, awaited))
        return;
    pace_context_ends();
    if (world_stop(STOP_NS) == 0) {
        moves = move_all(number, awaited, clock_now_ns() + (awaited ? AWAITED_NS : MOVES_NS));
        world_start();
    }
    pace_context_ended();
    back_off(device, moves != 0, awaited, clock_now_ns());
}

/* ---- turns ---- */

/* Nothing that is spilled can come in now. */
static bool is_full(unsigned device)
{
    struct residency_pick pick;
    if (!account_own_bytes(device, ACCOUNT_SPILLED))
        return true;
    uint64_t room = room_of(device);
    if (!room)
        return true;
    pick_ranges(device, &room, &pick);
    bool full = !room;
    leave_ranges(&pick);
    return full;
}

/* The gate is closed first, so that what runs comes to its end; then the next one has the turn, and
 * room as ours goes out. A turn that is over is over, whether work ends or not: what it keeps busy
 * stays on the card. */
static void pass(unsigned number, const struct turn_plan *plan, bool away)
{
    turn_close();
    if (away) {
        turn_pass(plan, clock_now_ns());
        return;
    }
    pace_context_ends();
    int error = world_stop(plan->by_idleness ? IDLE_STOP_NS : PASS_STOP_NS);
    if (error && plan->by_idleness)
        turn_note_work(number, clock_now_ns());
    else if (error != -EBUSY)
        turn_pass(plan, clock_now_ns());
    if (!error) {
        turn_settle(number);
        (void)move_all(number, true, clock_now_ns() + AWAITED_NS);
        world_start();
    }
    pace_context_ended();
}

/* In a pause, or beside a higher priority, a copy would wait, and with it all calls. What a freeze
 * moved out is its own. Returns when to look again. */
static uint64_t attend(unsigned number, uint64_t now_ns)
{
    struct turn_plan plan;
    bool away = policy_hold() || freeze_holds();
    bool full = is_full(number);
    bool takes_turns = turn_look(number, away, full, now_ns, &plan);
    if (plan.passes)
        pass(number, &plan, away);
    else if (takes_turns)
        turn_settle(number);
    bool awaited = turn_over_bytes(number) || (plan.in_group && plan.holds && !plan.passes);
    if (!away)
        stop_and_move(number, awaited);
    if (!plan.in_group)
        return LOOK_IDLE_NS;
    return turn_is_awaited() || (plan.holds && !full) ? LOOK_AWAITED_NS : LOOK_TURNS_NS;
}

/* ---- the thread ---- */

static bool has_memory(unsigned device)
{
    return account_own_bytes(device, ACCOUNT_SPILLED) || account_own_bytes(device, ACCOUNT_MOVABLE);
}

static bool has_any_memory(void)
{
    bool any = false;
    for (unsigned i = 0; i < VGPU_REGION_DEVICES; i++)
        any |= has_memory(i);
    return any;
}

/* What is allocated as it falls asleep is seen by itself, or wakes it. */
static void sleep_for_good(void)
{
    turn_leave();
    if (!swap_seq_cst(&placement.state, (uint32_t)WORKS, (uint32_t)ASLEEP))
        return;
    if (has_any_memory() && swap_seq_cst(&placement.state, (uint32_t)ASLEEP, (uint32_t)WORKS))
        return;
    while (load_acquire(&placement.state) == ASLEEP)
        word_wait(&placement.state, ASLEEP);
}

/* While calls submit work and something could come back, more often. */
static uint64_t pause_ns(uint64_t wanted_ns)
{
    uint64_t entries = world_entries();
    bool works = entries != placement.entries && account_spilled_bytes();
    placement.entries = entries;
    return works && LOOK_NS < wanted_ns ? LOOK_NS : wanted_ns;
}

/* What work uses is asked for a part of the time, where that matters. */
static void look_at_use(void)
{
    uint64_t now_ns = clock_now_ns();
    if (!placement.asks || now_ns - placement.asked_ns < ASK_EACH_NS)
        return;
    placement.asked_ns = now_ns;
    use_ask_for(true);
    turn_rest(ASK_NS);
    use_ask_for(false);
}

static void *run(void *argument)
{
    (void)argument;
    (void)prctl(PR_SET_NAME, "vgpu-placer");
    while (!world_is_finished()) {
        uint64_t rest_ns = LOOK_IDLE_NS;
        for (unsigned i = 0; i < VGPU_REGION_DEVICES; i++) {
            uint64_t here_ns = rest_ns;
            if (has_memory(i) && halt_try_enter()) {
                here_ns = attend(i, clock_now_ns());
                halt_leave(true);
            }
            rest_ns = here_ns < rest_ns ? here_ns : rest_ns;
        }
        placement.asks &= account_spilled_bytes() != 0;
        if (has_any_memory()) {
            turn_rest(pause_ns(rest_ns));
            look_at_use();
        } else {
            sleep_for_good();
        }
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
    turn_reset();
    memset(&placement, 0, sizeof(placement));
}
