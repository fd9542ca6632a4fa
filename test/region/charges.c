/* SPDX-License-Identifier: Apache-2.0 */
/* Charges against peers that hold, wait for the driver, die, export or import. */
#include "account/account.h"

#include "base/atomic.h"
#include "base/clock.h"
#include "check.h"
#include "peers.h"

#define LIMIT "1000m"

static unsigned device;

static int reserve(uint64_t mib)
{
    return account_reserve(device, mib * PEERS_MIB, ACCOUNT_BUFFER);
}

static void reserve_800_and_wait(void)
{
    device = peers_join(LIMIT);
    REQUIRE(reserve(800) == 0);
    peers_step(1);
    peers_wait(2);
}

static void reserve_800_and_take_back(void)
{
    reserve_800_and_wait();
    peers_sleep_ms(30);
    account_commit(device, 800 * PEERS_MIB);
    account_release(device, 800 * PEERS_MIB, ACCOUNT_BUFFER);
    peers_wait(3);
}

static void reserve_800_and_keep(void)
{
    reserve_800_and_wait();
    peers_sleep_ms(30);
    account_commit(device, 800 * PEERS_MIB);
    peers_step(3);
    peers_wait(4);
}

TEST("the limit is reached to the last byte, and not passed by one")
{
    peers_begin();
    device = peers_join(LIMIT);
    CHECK_EQ(reserve(999), 0);
    CHECK_EQ(account_check(device, PEERS_MIB), 0);
    CHECK_EQ(account_check(device, PEERS_MIB + 1), -ENOMEM);
    CHECK_EQ(account_reserve(device, PEERS_MIB + 1, ACCOUNT_BUFFER), -ENOMEM);
    CHECK_EQ(account_reserve(device, PEERS_MIB, ACCOUNT_BUFFER), 0);
    CHECK_EQ(account_reserve(device, 1, ACCOUNT_BUFFER), -ENOMEM);
    CHECK_EQ(peers_used(device), 1000 * PEERS_MIB);
    CHECK_EQ(account_own_bytes(device, ACCOUNT_KINDS), 1000 * PEERS_MIB);
}

TEST("each refusal is counted in the device's entry, and nothing else is")
{
    peers_begin();
    device = peers_join(LIMIT);
    const struct vgpu_device *entry = &peers_region.shared->devices[0];
    CHECK_EQ(reserve(900), 0);
    CHECK_EQ(account_check(device, 100 * PEERS_MIB), 0);
    CHECK_EQ(load_relaxed(&entry->refusals), 0);
    CHECK_EQ(reserve(101), -ENOMEM);
    CHECK_EQ(account_check(device, 101 * PEERS_MIB), -ENOMEM);
    CHECK_EQ(load_relaxed(&entry->refusals), 2);
}

TEST("the time that launches waited is summed, and a clock that goes back adds nothing")
{
    peers_begin();
    device = peers_join(LIMIT);
    const struct vgpu_compute *words = &peers_region.shared->compute[0];
    account_note_hold(device, 1000, 3500);
    account_note_hold(device, 10000, 10500);
    account_note_hold(device, 10500, 10400);
    CHECK_EQ(load_relaxed(&words->waited_ns), 3000);
    CHECK_EQ(load_relaxed(&words->holds_made), 3);
}

TEST("requests near 2^64 are refused without a wrap")
{
    static const uint64_t sizes[] = {UINT64_MAX, UINT64_MAX - 1, 1ull << 63, (1ull << 63) - 1,
        UINT64_MAX - 1000 * PEERS_MIB, UINT64_MAX - 999 * PEERS_MIB};
    peers_begin();
    device = peers_join(LIMIT);
    CHECK_EQ(reserve(1), 0);
    for (size_t i = 0; i < sizeof(sizes) / sizeof(sizes[0]); i++) {
        CHECK_EQ(account_check(device, sizes[i]), -ENOMEM);
        CHECK_EQ(account_reserve(device, sizes[i], ACCOUNT_BUFFER), -ENOMEM);
    }
    CHECK_EQ(peers_used(device), PEERS_MIB);
}

TEST("no more is taken back than was charged")
{
    peers_begin();
    device = peers_join(LIMIT);
    CHECK_EQ(reserve(10), 0);
    account_commit(device, UINT64_MAX);
    account_release(device, UINT64_MAX, ACCOUNT_MODULE);
    CHECK_EQ(peers_used(device), 10 * PEERS_MIB);
    account_release(device, UINT64_MAX, ACCOUNT_BUFFER);
    account_release(device, 1, ACCOUNT_BUFFER);
    CHECK_EQ(peers_used(device), 0);
    CHECK_EQ(reserve(1000), 0);
}

TEST("what a peer holds is refused at once")
{
    peers_begin();
    pid_t pid = peers_fork(reserve_800_and_keep);
    peers_wait(1);
    device = peers_join(LIMIT);
    peers_step(2);
    peers_wait(3);
    uint64_t start = clock_now_ns();
    CHECK_EQ(reserve(300), -ENOMEM);
    CHECK((clock_now_ns() - start) / 1000000 < 90);
    CHECK_EQ(reserve(200), 0);
    peers_step(4);
    CHECK_EQ(peers_reap(pid), 0);
}

TEST("a peer's pending bytes delay, and what comes free is had")
{
    peers_begin();
    pid_t pid = peers_fork(reserve_800_and_take_back);
    peers_wait(1);
    device = peers_join(LIMIT);
    CHECK_EQ(account_check(device, 300 * PEERS_MIB), 0);
    peers_step(2);
    uint64_t start = clock_now_ns();
    CHECK_EQ(reserve(300), 0);
    CHECK((clock_now_ns() - start) / 1000000 >= 20);
    peers_step(3);
    CHECK_EQ(peers_reap(pid), 0);
}

TEST("a peer's pending bytes that stay are refused in the end")
{
    peers_begin();
    pid_t pid = peers_fork(reserve_800_and_keep);
    peers_wait(1);
    device = peers_join(LIMIT);
    peers_step(2);
    CHECK_EQ(reserve(300), -ENOMEM);
    CHECK_EQ(account_own_bytes(device, ACCOUNT_KINDS), 0);
    peers_step(4);
    CHECK_EQ(peers_reap(pid), 0);
}

TEST("a peer that is stopped in the driver delays for a bounded time")
{
    peers_begin();
    pid_t pid = peers_fork(reserve_800_and_wait);
    peers_wait(1);
    device = peers_join(LIMIT);
    uint64_t start = clock_now_ns();
    CHECK_EQ(reserve(300), -ENOMEM);
    uint64_t waited_ms = (clock_now_ns() - start) / 1000000;
    CHECK(waited_ms >= 90 && waited_ms < 1000);
    CHECK_EQ(reserve(200), 0);
    peers_kill(pid);
}

TEST("pending bytes of a peer that was killed in the driver are given back")
{
    peers_begin();
    pid_t pid = peers_fork(reserve_800_and_wait);
    peers_wait(1);
    device = peers_join(LIMIT);
    CHECK_EQ(reserve(100), 0);
    peers_kill(pid);
    CHECK_EQ(reserve(300), 0);
    CHECK_EQ(peers_used(device), 400 * PEERS_MIB);
}

/* A peer between two instructions of its charge: pending is raised, bytes are not yet. */
static void stop_inside_charge(void)
{
    device = peers_join(LIMIT);
    account_add(device, 1, ACCOUNT_CONTEXT);
    int slot = peers_slot_of(&peers_region, getpid());
    REQUIRE(slot >= 0);
    add_seq_cst(&peers_region.shared->slots[slot].usage[device].pending, 900 * PEERS_MIB);
    peers_step(1);
    peers_wait(2);
}

TEST("a peer that is halfway through a charge has no check refused that fits")
{
    peers_begin();
    pid_t pid = peers_fork(stop_inside_charge);
    peers_wait(1);
    device = peers_join(LIMIT);
    CHECK_EQ(account_check(device, 500 * PEERS_MIB), 0);
    CHECK_EQ(reserve(500), 0);
    peers_kill(pid);
}

TEST("what a peer freed after an export counts as far as others hold imports")
{
    peers_begin();
    device = peers_join(LIMIT);
    account_add_lingering(device, 400 * PEERS_MIB);
    CHECK_EQ(peers_used(device), 0);
    account_set_imported(device, 100 * PEERS_MIB);
    CHECK_EQ(peers_used(device), 0);
    account_add_lingering(device, 400 * PEERS_MIB);
    CHECK_EQ(peers_used(device), 100 * PEERS_MIB);
    account_set_imported(device, 700 * PEERS_MIB);
    CHECK_EQ(peers_used(device), 400 * PEERS_MIB);
    CHECK_EQ(reserve(601), -ENOMEM);
    CHECK_EQ(reserve(600), 0);
    account_set_imported(device, 0);
    CHECK_EQ(reserve(1), 0);
    account_set_imported(device, 700 * PEERS_MIB);
    CHECK_EQ(peers_used(device), 601 * PEERS_MIB);
}

TEST("kinds are counted apart and summed, and managed and spilled memory is not on the card")
{
    static struct account_process processes[ACCOUNT_PROCESSES_MAX];
    peers_begin();
    device = peers_join(LIMIT);
    for (int k = 0; k < ACCOUNT_KINDS; k++)
        account_add(device, ((uint64_t)k + 1) * PEERS_MIB, (enum account_kind)k);
    CHECK_EQ(account_own_bytes(device, ACCOUNT_CONTEXT), PEERS_MIB);
    CHECK_EQ(account_own_bytes(device, ACCOUNT_UNEXPLAINED), 5 * PEERS_MIB);
    CHECK_EQ(account_own_bytes(device, ACCOUNT_KINDS), 28 * PEERS_MIB);
    CHECK_EQ(account_processes(device, processes), 1);
    CHECK_EQ(processes[0].pid, getpid());
    CHECK_EQ(processes[0].device_bytes, 17 * PEERS_MIB);
}

/* ---- more memory than the card has ---- */

static int reserve_as(uint64_t mib, enum account_kind kind)
{
    int error = account_reserve(device, mib * PEERS_MIB, kind);
    if (!error)
        account_commit(device, mib * PEERS_MIB);
    return error;
}

TEST("movable memory has its place in the share, other memory goes before it, and all is limited")
{
    peers_begin();
    device = peers_join(LIMIT);
    CHECK(!account_is_oversubscribed(device));
    account_set_ratio(device, 2 * ACCOUNT_RATIO_ONE);
    CHECK(account_is_oversubscribed(device));
    CHECK_EQ(account_resident_room(device, 1), 500 * PEERS_MIB);
    CHECK_EQ(reserve_as(100, ACCOUNT_CONTEXT), 0);
    CHECK_EQ(account_resident_room(device, 1), 400 * PEERS_MIB);
    CHECK_EQ(reserve_as(401, ACCOUNT_MOVABLE), -EDQUOT);
    CHECK_EQ(reserve_as(400, ACCOUNT_MOVABLE), 0);
    CHECK_EQ(account_reserve(device, 1, ACCOUNT_MOVABLE), -EDQUOT);
    CHECK_EQ(reserve_as(300, ACCOUNT_SPILLED), 0);
    CHECK_EQ(reserve_as(100, ACCOUNT_BUFFER), 0); /* what cannot be moved may pass the share */
    CHECK_EQ(account_resident_room(device, 1), 0);
    CHECK_EQ(reserve_as(101, ACCOUNT_SPILLED), -ENOMEM);
    CHECK_EQ(reserve_as(100, ACCOUNT_SPILLED), 0);
    CHECK_EQ(peers_used(device), 1000 * PEERS_MIB);
    CHECK_EQ(account_spilled_bytes(), 400 * PEERS_MIB);
    account_release(device, 400 * PEERS_MIB, ACCOUNT_SPILLED);
    CHECK_EQ(account_spilled_bytes(), 0);
    CHECK_EQ(peers_used(device), 600 * PEERS_MIB);
}

TEST("what others lent may be on the card beyond the share, and what was lent to them may not")
{
    struct account_places places;
    peers_begin();
    device = peers_join(LIMIT);
    account_set_ratio(device, 2 * ACCOUNT_RATIO_ONE);
    CHECK_EQ(account_share(device), 500 * PEERS_MIB);
    account_set_borrowed(device, 200 * (int64_t)PEERS_MIB);
    CHECK_EQ(account_borrowed(device), 200 * (int64_t)PEERS_MIB);
    CHECK_EQ(account_share(device), 500 * PEERS_MIB);
    CHECK_EQ(account_resident_room(device, 1), 700 * PEERS_MIB);
    CHECK_EQ(reserve_as(701, ACCOUNT_MOVABLE), -EDQUOT);
    CHECK_EQ(reserve_as(300, ACCOUNT_MOVABLE), 0);
    CHECK_EQ(reserve_as(100, ACCOUNT_SPILLED), 0);
    CHECK_EQ(reserve_as(10, ACCOUNT_CONTEXT), 0);
    REQUIRE(account_places(device, &places));
    CHECK_EQ(places.resident_bytes, 310 * PEERS_MIB);
    CHECK_EQ(places.movable_bytes, 300 * PEERS_MIB);
    CHECK_EQ(places.spilled_bytes, 100 * PEERS_MIB);
    account_release(device, 10 * PEERS_MIB, ACCOUNT_CONTEXT);
    account_set_borrowed(device, -150 * (int64_t)PEERS_MIB);
    CHECK_EQ(account_resident_room(device, 1), 50 * PEERS_MIB);
    CHECK_EQ(reserve_as(51, ACCOUNT_MOVABLE), -EDQUOT);
    account_set_borrowed(device, INT64_MIN);
    CHECK_EQ(account_resident_room(device, 1), 0);
    account_set_borrowed(device, INT64_MAX);
    CHECK_EQ(
        reserve_as(601, ACCOUNT_MOVABLE), -ENOMEM); /* the limit holds, whatever stands there */
    CHECK_EQ(reserve_as(600, ACCOUNT_MOVABLE), 0);
}

TEST("when the container last worked is when the last of its processes that live did")
{
    peers_begin();
    device = peers_join(LIMIT);
    CHECK_EQ(account_worked_ns(device), 0);
    account_note_worked(device, 5);
    CHECK_EQ(account_worked_ns(device), 5);
}

TEST("the budget of host memory is reached to the byte, and a ratio of one has no share")
{
    peers_begin();
    device = peers_join(LIMIT);
    account_set_ratio(device, ACCOUNT_RATIO_ONE);
    account_set_host_budget(100 * PEERS_MIB);
    CHECK_EQ(account_resident_room(device, 1), UINT64_MAX);
    CHECK_EQ(reserve_as(700, ACCOUNT_MOVABLE), 0);
    CHECK_EQ(reserve_as(99, ACCOUNT_SPILLED), 0);
    CHECK_EQ(account_reserve(device, PEERS_MIB + 1, ACCOUNT_SPILLED), -EDQUOT);
    CHECK_EQ(reserve_as(1, ACCOUNT_SPILLED), 0);
    CHECK_EQ(account_reserve(device, 1, ACCOUNT_SPILLED), -EDQUOT);
    CHECK_EQ(reserve_as(200, ACCOUNT_BUFFER), 0);
    account_set_ratio(device, 0);
    CHECK(!account_is_oversubscribed(device));
}

/* Both kinds, again and again, until their bounds refuse; what was had is counted. */
static void crowd_in(void)
{
    device = peers_join(LIMIT);
    account_set_ratio(device, 2 * ACCOUNT_RATIO_ONE);
    account_set_host_budget(200 * PEERS_MIB);
    peers_wait(1);
    int64_t taken[2] = {0};
    for (unsigned i = 0; i < 2000; i++) {
        enum account_kind kind = i % 2 ? ACCOUNT_MOVABLE : ACCOUNT_SPILLED;
        taken[i % 2] += reserve_as(1, kind) == 0;
    }
    add_seq_cst(&peers->number[0], taken[0]);
    add_seq_cst(&peers->number[1], taken[1]);
    add_seq_cst(&peers->number[2], 1);
    peers_wait(2);
}

TEST("processes that charge at once share one share and one budget, and fill both")
{
    pid_t pids[4];
    peers_begin();
    device = peers_join(LIMIT);
    account_set_ratio(device, 2 * ACCOUNT_RATIO_ONE);
    for (int i = 0; i < 4; i++)
        pids[i] = peers_fork(crowd_in);
    peers_sleep_ms(50);
    peers_step(1);
    for (int i = 0; i < 1500 && load_seq_cst(&peers->number[2]) < 4; i++)
        peers_sleep_ms(10);
    CHECK_EQ(account_spilled_bytes(), (uint64_t)load_seq_cst(&peers->number[0]) * PEERS_MIB);
    CHECK(account_spilled_bytes() <= 200 * PEERS_MIB);
    CHECK(load_seq_cst(&peers->number[1]) <= 500);
    /* A refusal counts what others are about to take back; so the last may be missed by a few. */
    CHECK(load_seq_cst(&peers->number[0]) >= 195 && load_seq_cst(&peers->number[1]) >= 495);
    peers_step(2);
    for (int i = 0; i < 4; i++)
        CHECK_EQ(peers_reap(pids[i]), 0);
    CHECK_EQ(peers_used(device), 0);
    CHECK_EQ(account_spilled_bytes(), 0);
}

static void spill_and_take_back(void)
{
    device = peers_join(LIMIT);
    account_set_ratio(device, ACCOUNT_RATIO_ONE);
    REQUIRE(account_reserve(device, 200 * PEERS_MIB, ACCOUNT_SPILLED) == 0);
    peers_step(1);
    peers_wait(2);
    peers_sleep_ms(30);
    account_commit(device, 200 * PEERS_MIB);
    account_release(device, 200 * PEERS_MIB, ACCOUNT_SPILLED);
    peers_wait(3);
}

TEST("what a peer is about to take back of the host's budget is waited for")
{
    peers_begin();
    device = peers_join(LIMIT);
    account_set_ratio(device, ACCOUNT_RATIO_ONE);
    account_set_host_budget(300 * PEERS_MIB);
    pid_t pid = peers_fork(spill_and_take_back);
    peers_wait(1);
    CHECK_EQ(account_reserve(device, 301 * PEERS_MIB, ACCOUNT_SPILLED), -EDQUOT);
    peers_step(2);
    /* On a loaded machine the peer may take longer than is waited. */
    int error = -EDQUOT;
    for (unsigned i = 0; error && i < 50; i++)
        error = reserve_as(300, ACCOUNT_SPILLED);
    CHECK_EQ(error, 0);
    peers_step(3);
    CHECK_EQ(peers_reap(pid), 0);
}

static void spill_and_die(void)
{
    device = peers_join(LIMIT);
    account_set_ratio(device, 2 * ACCOUNT_RATIO_ONE);
    REQUIRE(reserve_as(500, ACCOUNT_MOVABLE) == 0);
    REQUIRE(reserve_as(300, ACCOUNT_SPILLED) == 0);
    peers_step(1);
    peers_wait(99);
}

TEST("what a killed process had on the card and on the host is free again")
{
    peers_begin();
    device = peers_join(LIMIT);
    account_set_ratio(device, 2 * ACCOUNT_RATIO_ONE);
    account_set_host_budget(300 * PEERS_MIB);
    pid_t pid = peers_fork(spill_and_die);
    peers_wait(1);
    CHECK_EQ(reserve_as(1, ACCOUNT_MOVABLE), -EDQUOT);
    CHECK_EQ(reserve_as(1, ACCOUNT_SPILLED), -EDQUOT);
    peers_kill(pid);
    CHECK_EQ(account_spilled_bytes(), 0); /* asked before any charge looks */
    CHECK_EQ(account_resident_room(device, 1), 500 * PEERS_MIB);
    CHECK_EQ(reserve_as(500, ACCOUNT_MOVABLE), 0);
    CHECK_EQ(reserve_as(300, ACCOUNT_SPILLED), 0);
}

static void keep_ready_and_die(void)
{
    device = peers_join(LIMIT);
    account_set_host_budget(300 * PEERS_MIB);
    REQUIRE(account_add_ready(200 * PEERS_MIB) == 0);
    peers_step(1);
    peers_wait(99);
}

TEST("what is spilled and what all processes keep ready share the host's budget, to the byte")
{
    peers_begin();
    device = peers_join(LIMIT);
    account_set_ratio(device, ACCOUNT_RATIO_ONE);
    account_set_host_budget(300 * PEERS_MIB);
    pid_t pid = peers_fork(keep_ready_and_die);
    peers_wait(1);
    CHECK_EQ(account_host().ready_bytes, 200 * PEERS_MIB);
    CHECK_EQ(account_add_ready(100 * PEERS_MIB + 1), -EDQUOT);
    CHECK_EQ(account_add_ready(40 * PEERS_MIB), 0);
    CHECK_EQ(account_reserve(device, 60 * PEERS_MIB + 1, ACCOUNT_SPILLED), -EDQUOT);
    CHECK_EQ(reserve_as(60, ACCOUNT_SPILLED), 0);
    CHECK_EQ(account_add_ready(1), -EDQUOT);
    account_remove_ready(40 * PEERS_MIB);
    CHECK_EQ(account_host().ready_bytes, 200 * PEERS_MIB);
    CHECK_EQ(account_host().spilled_bytes, 60 * PEERS_MIB);
    peers_kill(pid);
    CHECK_EQ(account_host().ready_bytes, 0);
    CHECK_EQ(account_add_ready(240 * PEERS_MIB), 0);
}

TEST("what is ready turns into what is spilled where the budget is used up")
{
    peers_begin();
    device = peers_join(LIMIT);
    account_set_ratio(device, ACCOUNT_RATIO_ONE);
    account_set_host_budget(300 * PEERS_MIB);
    REQUIRE(reserve_as(400, ACCOUNT_MOVABLE) == 0);
    REQUIRE(account_add_ready(300 * PEERS_MIB) == 0);
    CHECK_EQ(account_move(device, 1, ACCOUNT_MOVABLE, ACCOUNT_SPILLED), -EDQUOT);
    account_move_ready(device, 100 * PEERS_MIB);
    CHECK_EQ(account_host().ready_bytes, 200 * PEERS_MIB);
    CHECK_EQ(account_host().spilled_bytes, 100 * PEERS_MIB);
    CHECK_EQ(peers_used(device), 400 * PEERS_MIB);
}

TEST("nothing is kept ready while somebody asks for it, and what was made up is not heeded")
{
    peers_begin();
    device = peers_join(LIMIT);
    REQUIRE(account_add_ready(PEERS_MIB) == 0);
    CHECK(!account_ready_is_asked());
    int error = 0; /* a second may pass on a loaded machine */
    for (unsigned i = 0; !error && i < 50; i++) {
        (void)account_ask_ready();
        error = account_add_ready(PEERS_MIB);
    }
    CHECK_EQ(error, -EDQUOT);
    store_seq_cst(&peers_region.shared->ready_asked_ns, UINT64_MAX);
    CHECK(!account_ready_is_asked());
    CHECK_EQ(account_add_ready(PEERS_MIB), 0);
    store_seq_cst(&peers_region.shared->ready_asked_ns, (uint64_t)1);
    CHECK(!account_ready_is_asked());
}

static void take_a_part_and_die(void)
{
    device = peers_join(LIMIT);
    account_set_ratio(device, 2 * ACCOUNT_RATIO_ONE);
    REQUIRE(reserve_as(400, ACCOUNT_MOVABLE) == 0);
    peers_step(1);
    peers_wait(99);
}

TEST("a killed process's part of the share is had by who wants more than is left beside it")
{
    peers_begin();
    device = peers_join(LIMIT);
    account_set_ratio(device, 2 * ACCOUNT_RATIO_ONE);
    pid_t pid = peers_fork(take_a_part_and_die);
    peers_wait(1);
    CHECK_EQ(account_resident_room(device, 200 * PEERS_MIB), 100 * PEERS_MIB);
    peers_kill(pid);
    CHECK_EQ(account_resident_room(device, 200 * PEERS_MIB), 500 * PEERS_MIB);
}

TEST("a limit that is lowered below what is held refuses, and hides no byte")
{
    peers_begin();
    device = peers_join(LIMIT);
    CHECK_EQ(reserve(800), 0);
    store_relaxed(&peers_region.shared->devices[device].memory_limit, 500 * PEERS_MIB);
    CHECK_EQ(reserve(1), -ENOMEM);
    CHECK_EQ(account_check(device, 0), -ENOMEM);
    CHECK_EQ(peers_used(device), 800 * PEERS_MIB);
    account_release(device, 400 * PEERS_MIB, ACCOUNT_BUFFER);
    CHECK_EQ(reserve(100), 0);
}

TEST("without a region charges answer as they were told to")
{
    struct account_view view;
    account_start(NULL, -ENOMEM);
    CHECK_EQ(account_reserve(0, 1, ACCOUNT_BUFFER), -ENOMEM);
    CHECK_EQ(account_check(0, 1), -ENOMEM);
    account_view(0, &view);
    CHECK(view.closed);
    account_start(NULL, 0);
    CHECK_EQ(account_reserve(0, 1ull << 50, ACCOUNT_BUFFER), 0);
    CHECK_EQ(account_check(0, 1), 0);
    account_view(0, &view);
    CHECK(!view.closed && !view.limit_bytes);
}

static void reserve_900(void)
{
    device = peers_join(LIMIT);
    REQUIRE(reserve(900) == 0);
    account_commit(device, 900 * PEERS_MIB);
    peers_step(1);
    peers_wait(2);
}

TEST("charging keeps the program's errno, also where a dead peer is looked at")
{
    peers_begin();
    pid_t pid = peers_fork(reserve_900);
    peers_wait(1);
    device = peers_join(LIMIT);
    errno = 4242;
    CHECK_EQ(reserve(10), 0);
    CHECK_EQ(errno, 4242);
    peers_kill(pid);
    errno = 4242;
    CHECK_EQ(reserve(900), 0);
    CHECK_EQ(errno, 4242);
    errno = 4242;
    CHECK_EQ(reserve(900), -ENOMEM);
    CHECK_EQ(errno, 4242);
}

int main(int argc, char **argv)
{
    return check_run(argc, argv);
}
