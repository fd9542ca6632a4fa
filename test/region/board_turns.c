/* SPDX-License-Identifier: Apache-2.0 */
/* What a board says of memory: shares, claims and the turn. */
#include "registry/registry_turns.h"

#include "boards.h"

#include <stddef.h>

#define MS 1000000ull
#define NOW (5000000 * MS)

static struct registry ours, theirs;
static struct turns_view view;
static uint64_t turn;

static void say(
    struct registry *board, uint32_t share, uint32_t wanted, bool waits, uint64_t now_ns)
{
    const struct registry_memory own = {
        .share_pages = share, .wanted_pages = wanted, .resident_pages = 7, .waits = waits};
    registry_turns_say(board, &own, now_ns);
}

static void begin(void)
{
    boards_begin();
    boards_attach(&ours, 1);
    boards_attach(&theirs, 2);
    say(&ours, 100, 150, false, NOW);
    say(&theirs, 200, 300, true, NOW + MS);
}

TEST("tenants with a share are seen with what they say, ours among them, in the order of slots")
{
    begin();
    REQUIRE(registry_turns_look(&ours, &view, &turn));
    CHECK_EQ(view.count, 2);
    CHECK_EQ(view.own, 0);
    CHECK_EQ(view.holder, -1);
    CHECK_EQ(view.tenants[0].share_pages, 100);
    CHECK_EQ(view.tenants[1].share_pages, 200);
    CHECK_EQ(view.tenants[1].wanted_pages, 300);
    CHECK_EQ(view.tenants[1].heard_ns, NOW + MS);
    CHECK(view.tenants[1].waits && !view.tenants[0].waits);
    REQUIRE(registry_turns_look(&theirs, &view, &turn));
    CHECK_EQ(view.own, 1);
}

TEST("they are as documented")
{
    begin();
    const unsigned char *slot = (const unsigned char *)ours.shared + 256 + 128;
    uint32_t words[4];
    uint64_t times[2];
    memcpy(words, slot + 96, sizeof(words));
    memcpy(times, slot + 112, sizeof(times));
    CHECK_EQ(words[0], 200);
    CHECK_EQ(words[1], 300);
    CHECK_EQ(words[2], 0);
    CHECK_EQ(words[3], 7);
    CHECK_EQ(times[0], NOW + MS);
    CHECK_EQ(times[1], NOW + MS);
    CHECK(registry_turns_swap(&ours, 0, 1, NOW));
    memcpy(times, (const unsigned char *)ours.shared + 32, 8);
    CHECK_EQ(times[0], NOW / 1000 << 8 | 2);
}

TEST("since when one waits is when it first said so")
{
    begin();
    say(&theirs, 200, 300, true, NOW + 50 * MS);
    CHECK_EQ(ours.shared->slots[1].turn_waits_ns, NOW + MS);
    say(&theirs, 200, 300, false, NOW + 60 * MS);
    CHECK_EQ(ours.shared->slots[1].turn_waits_ns, 0);
}

TEST("who has no share, or is an older library's, is not seen, and sees nobody")
{
    struct registry third;
    begin();
    boards_attach(&third, 3);
    boards_say(&third, true, NOW);
    REQUIRE(registry_turns_look(&ours, &view, &turn));
    CHECK_EQ(view.count, 2);
    CHECK(!registry_turns_look(&third, &view, &turn));
    say(&theirs, 0, 300, false, NOW);
    REQUIRE(registry_turns_look(&ours, &view, &turn));
    CHECK_EQ(view.count, 1);
}

TEST("who is gone is not seen, and who takes its slot has claimed nothing")
{
    struct registry third;
    begin();
    registry_claim_set(&theirs, 50);
    REQUIRE(registry_turns_look(&ours, &view, &turn));
    CHECK_EQ(view.tenants[1].claim_pages, 50);
    CHECK(registry_turns_swap(&ours, turn, 1, NOW));
    registry_detach(&theirs);
    REQUIRE(registry_turns_look(&ours, &view, &turn));
    CHECK_EQ(view.count, 1);
    CHECK_EQ(view.holder, -1);
    boards_attach(&third, 3);
    CHECK_EQ(third.slot, 1);
    CHECK_EQ(registry_claim(&third), 0);
    CHECK_EQ(ours.shared->slots[1].share_pages, 0);
}

TEST("a turn is given once, whoever tries, and says to whom and when")
{
    begin();
    REQUIRE(registry_turns_look(&ours, &view, &turn));
    CHECK(registry_turns_swap(&ours, turn, 1, NOW));
    CHECK(!registry_turns_swap(&theirs, turn, 0, NOW));
    REQUIRE(registry_turns_look(&ours, &view, &turn));
    CHECK_EQ(view.holder, 1);
    CHECK_EQ(view.turn_ns, NOW);
    CHECK(registry_turns_swap(&theirs, turn, -1, NOW + MS));
    REQUIRE(registry_turns_look(&ours, &view, &turn));
    CHECK_EQ(view.holder, -1);
    CHECK_EQ(view.turn_ns, NOW + MS);
}

TEST("tools see who takes turns, and whose turn it is")
{
    static struct registry_tenant tenants[VGPU_BOARD_SLOTS];
    begin();
    say(&ours, 100, 100, false, NOW);
    CHECK(registry_turns_swap(&ours, 0, 1, NOW));
    REQUIRE(registry_tenants(&ours, NOW, tenants) == 2);
    CHECK(!tenants[0].takes_turns && !tenants[0].has_turn);
    CHECK(tenants[1].takes_turns && tenants[1].has_turn);
    say(&theirs, 300, 300, false, NOW);
    REQUIRE(registry_tenants(&ours, NOW, tenants) == 2);
    CHECK(!tenants[1].takes_turns && !tenants[1].has_turn);
}

TEST("a turn that is given wakes who waits on the board")
{
    begin();
    uint32_t epoch = boards_look(&ours, NOW).epoch;
    CHECK(registry_turns_swap(&theirs, 0, 0, NOW));
    CHECK(boards_look(&ours, NOW).epoch != epoch);
    epoch = boards_look(&ours, NOW).epoch;
    CHECK(!registry_turns_swap(&theirs, 0, 0, NOW));
    CHECK_EQ(boards_look(&ours, NOW).epoch, epoch);
}

TEST("claims are changed by one at a time, and the death of who changes them lets others")
{
    begin();
    CHECK(registry_claims_begin(&ours));
    CHECK(!registry_claims_begin(&theirs));
    registry_claim_set(&ours, 5);
    CHECK_EQ(registry_claim(&ours), 5);
    registry_claims_end(&ours);
    CHECK(registry_claims_begin(&theirs));
    registry_claims_end(&theirs);
    int ready[2];
    REQUIRE(pipe(ready) == 0);
    pid_t child = fork();
    if (child == 0) {
        struct registry third;
        boards_attach(&third, 3);
        if (registry_claims_begin(&third))
            (void)!write(ready[1], "", 1);
        pause();
    }
    char byte;
    CHECK_EQ(read(ready[0], &byte, 1), 1);
    CHECK(!registry_claims_begin(&ours));
    kill(child, SIGKILL);
    waitpid(child, NULL, 0);
    CHECK(registry_claims_begin(&ours));
}

TEST("without a board, and in a slot that somebody wrote over, nothing is said or seen")
{
    struct registry none;
    boards_begin();
    CHECK(registry_attach(&none, "/nowhere", BOARDS_UUID, 1, "test") != 0);
    say(&none, 1, 2, true, NOW);
    CHECK(!registry_turns_look(&none, &view, &turn));
    CHECK(!registry_turns_swap(&none, 0, 0, NOW));
    CHECK_EQ(registry_claim(&none), 0);
    CHECK(!registry_claims_begin(&none));
    begin();
    ours.shared->slots[0].tenant = 99;
    registry_claim_set(&ours, 7);
    say(&ours, 11, 12, true, NOW);
    CHECK(!registry_turns_look(&ours, &view, &turn));
    CHECK_EQ(ours.shared->slots[0].claim_pages, 0);
    CHECK_EQ(ours.shared->slots[0].share_pages, 100);
}

static uint64_t random_next(uint64_t *state)
{
    *state ^= *state << 13;
    *state ^= *state >> 7;
    *state ^= *state << 17;
    return *state;
}

TEST("a board of random bytes gives a view within bounds, and orders")
{
    uint64_t seed = 88172645463325252ull, tenant = 1;
    struct turns turns = {.holds = false};
    struct turns_self self = {.idle_ns = 0};
    begin();
    for (int round = 0; round < 300; round++) {
        uint64_t *words = (uint64_t *)ours.shared;
        for (size_t i = 32 / 8; i < sizeof(struct vgpu_board) / 8; i++)
            words[i] = random_next(&seed);
        ours.shared->slots[0].tenant = tenant;
        say(&ours, 100, 150, true, NOW);
        if (!CHECK(registry_turns_look(&ours, &view, &turn)))
            continue;
        CHECK(view.count >= 1 && view.count <= TURNS_TENANTS_MAX && view.own < view.count);
        CHECK(view.holder >= -1 && view.holder < (int)view.count);
        struct turns_order order = turns_step(&turns, &view, &self, 10, NOW + (uint64_t)round * MS);
        CHECK(order.to >= -1 && order.to < (int)view.count);
        CHECK(order.ceiling_pages <= 150);
        (void)turns_claim_room(&view);
        (void)registry_turns_swap(&ours, turn, 3, NOW);
    }
}

int main(int argc, char **argv)
{
    return check_run(argc, argv);
}
