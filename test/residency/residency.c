/* SPDX-License-Identifier: Apache-2.0 */
/* Which memory is on the card: the rules, and a device with ranges that are used at random. */
#include "residency/residency.h"

#include "check.h"

#define MS 1000000ull
#define S (1000 * MS)
#define START (1000 * S)
#define MIB 1048576ull
#define COUNT_MAX 32
#define BUS_NS_PER_MIB 20000 /* 52 GB/s */

static struct {
    struct residency_range ranges[COUNT_MAX];
    unsigned count;
    uint64_t share_bytes;
    uint64_t now_ns;
    uint64_t moved_bytes, moving_ns;
    struct residency time;
    unsigned moves;
} device;

static uint64_t seed;

static uint64_t draw(uint64_t below)
{
    seed = seed * 6364136223846793005ull + 1442695040888963407ull;
    return (seed >> 33) % below;
}

static uint64_t resident(void)
{
    uint64_t sum = 0;
    for (unsigned i = 0; i < device.count; i++)
        sum += device.ranges[i].resident_bytes;
    return sum;
}

static void set_up(uint64_t share_mib)
{
    memset(&device, 0, sizeof(device));
    device.share_bytes = share_mib * MIB;
    device.now_ns = START;
}

/* As it is placed when it is allocated: what fits is on the card. */
static unsigned add(uint64_t mib)
{
    unsigned index = device.count++;
    struct residency_range *range = &device.ranges[index];
    uint64_t room = device.share_bytes - resident();
    range->range = range;
    range->resident_bytes = mib * MIB < room ? mib * MIB : room;
    range->spilled_bytes = mib * MIB - range->resident_bytes;
    range->use.made_ns = device.now_ns += MS;
    return index;
}

static struct residency_move next(bool awaited)
{
    struct residency_pick pick = {.coldest = {.range = NULL}};
    uint64_t held = resident(), share = device.share_bytes;
    for (unsigned i = 0; i < device.count; i++)
        residency_show(&pick, &device.ranges[i]);
    return residency_next(&device.time, &pick, held > share ? held - share : 0,
        held < share ? share - held : 0, awaited, device.now_ns);
}

/* Makes the moves that are due; returns how many. */
static unsigned make_moves(bool awaited)
{
    unsigned made = 0;
    struct residency_move move;
    while ((move = next(awaited)).range && made < 1000) {
        struct residency_range *range = move.range;
        if (!CHECK(move.bytes &&
                   move.bytes <= (move.to_host ? range->resident_bytes : range->spilled_bytes)))
            break;
        range->resident_bytes += move.to_host ? -move.bytes : move.bytes;
        range->spilled_bytes += move.to_host ? move.bytes : -move.bytes;
        uint64_t took_ns = move.bytes / MIB * BUS_NS_PER_MIB;
        residency_note_move(&range->use, device.now_ns);
        residency_spend(&device.time, took_ns);
        device.now_ns += took_ns;
        device.moving_ns += took_ns;
        device.moved_bytes += move.bytes;
        made++;
    }
    device.moves += made;
    return made;
}

static void use(unsigned index)
{
    residency_note_use(&device.ranges[index].use, device.now_ns);
}

/* Uses them every 100 ms, in turn. */
static void use_for(uint64_t ns, unsigned from, unsigned to)
{
    for (uint64_t end = device.now_ns + ns; device.now_ns < end; device.now_ns += 100 * MS) {
        for (unsigned i = from; i < to; i++)
            use(i);
        (void)make_moves(false);
    }
}

TEST("what was spilled comes back when there is room, the youngest first")
{
    set_up(1000);
    unsigned first = add(1000), second = add(400), third = add(400);
    CHECK_EQ(make_moves(false), 0);
    device.ranges[first].resident_bytes = 400 * MIB; /* as if it were replaced by a smaller one */
    CHECK(make_moves(false) > 0);
    CHECK_EQ(device.ranges[third].spilled_bytes, 0);
    CHECK_EQ(device.ranges[second].spilled_bytes, 200 * MIB);
    CHECK_EQ(resident(), 1000 * MIB);
}

TEST("what is beyond the ceiling goes out, the coldest first, however little time there is")
{
    set_up(1000);
    unsigned first = add(400), second = add(600);
    device.now_ns += S;
    use(first);
    residency_spend(&device.time, 1000 * S);
    device.share_bytes = 300 * MIB;
    CHECK_EQ(make_moves(false), 2);
    CHECK_EQ(device.ranges[second].resident_bytes, 0);
    CHECK_EQ(device.ranges[first].resident_bytes, 300 * MIB);
}

TEST("without any use that was seen nothing changes places")
{
    set_up(1000);
    for (unsigned i = 0; i < 8; i++)
        add(250);
    device.now_ns += 1000 * S;
    CHECK_EQ(make_moves(true), 0);
}

TEST("what is used on the host changes places with what is not used on the card")
{
    set_up(1000);
    for (unsigned i = 0; i < 8; i++)
        add(250);
    use_for(60 * S, 4, 8);
    for (unsigned i = 0; i < 8; i++)
        CHECK_EQ(device.ranges[i].resident_bytes, i < 4 ? 0 : 250 * MIB);
    CHECK_EQ(device.moved_bytes, 2000 * MIB);
}

TEST("what is used once does not change places")
{
    set_up(1000);
    add(1000);
    unsigned spilled = add(500);
    device.now_ns += 100 * S;
    use(spilled);
    CHECK_EQ(make_moves(true), 0);
    device.now_ns += S;
    use(spilled);
    CHECK_EQ(make_moves(true), 0);
    device.now_ns += S;
    use(spilled);
    CHECK(make_moves(true) > 0);
}

TEST("a set that is larger than the card and used all the time stays where it is")
{
    set_up(1000);
    for (unsigned i = 0; i < 6; i++)
        add(250);
    device.now_ns += 20 * S;
    use_for(200 * S, 0, 6);
    CHECK_EQ(device.moves, 0);
}

TEST("two sets that are used in turn for longer than a stay change places, and no faster")
{
    set_up(1000);
    for (unsigned i = 0; i < 8; i++)
        add(250);
    for (unsigned i = 0; i < 20; i++)
        use_for(S, i % 2 ? 0 : 4, i % 2 ? 4 : 8);
    CHECK_EQ(device.moves, 0);
    use_for(30 * S, 4, 8);
    CHECK_EQ(device.ranges[7].spilled_bytes, 0);
    use_for(30 * S, 0, 4);
    CHECK_EQ(device.ranges[0].spilled_bytes, 0);
}

TEST("uses within one launch count once")
{
    struct residency_use one = {.made_ns = START};
    for (unsigned i = 0; i < 100; i++)
        residency_note_use(&one, START + i);
    CHECK_EQ(one.uses, 1);
    residency_note_use(&one, START + RESIDENCY_USE_NS);
    CHECK_EQ(one.uses, 2);
    residency_note_move(&one, START + RESIDENCY_USE_NS);
    CHECK_EQ(one.uses, 0);
}

TEST("the program's advice goes before use")
{
    set_up(1000);
    unsigned first = add(500), second = add(500), third = add(500);
    device.now_ns += 60 * S;
    device.ranges[third].use.advice = RESIDENCY_CARD;
    device.ranges[first].use.advice = RESIDENCY_HOST;
    for (unsigned i = 0; i < 4; i++, device.now_ns += S) {
        use(first);
        use(second);
    }
    CHECK(make_moves(false) > 0);
    CHECK_EQ(device.ranges[third].spilled_bytes, 0);
    CHECK_EQ(device.ranges[first].resident_bytes, 0);
    device.share_bytes += 500 * MIB;
    CHECK_EQ(make_moves(true), 0); /* what is to be on the host stays there with room */
}

TEST("advice that changes all the time moves nothing twice within a stay")
{
    set_up(500);
    unsigned first = add(500), second = add(500);
    for (unsigned i = 0; i < 100; i++, device.now_ns += 100 * MS) {
        device.ranges[first].use.advice = i % 2 ? RESIDENCY_CARD : RESIDENCY_HOST;
        device.ranges[second].use.advice = i % 2 ? RESIDENCY_HOST : RESIDENCY_CARD;
        (void)make_moves(true);
    }
    CHECK_EQ(device.moves, 2);
}

TEST("moves for which nobody waits take their part of the time and no more")
{
    for (seed = 1; seed <= 50;) {
        uint64_t first = seed, began_ns = START;
        set_up(4000);
        for (unsigned i = 0; i < COUNT_MAX; i++)
            add(1 + draw(2000));
        for (unsigned i = 0; i < 5000; i++) {
            device.now_ns += draw(500) * MS;
            unsigned some = (unsigned)draw(COUNT_MAX), hot = (unsigned)(i / 500 * 7 % COUNT_MAX);
            use(draw(4) ? hot : some);
            (void)make_moves(false);
            CHECK(resident() <= device.share_bytes);
            /* One move is begun with a nanosecond left, and takes what it takes. */
            CHECK(device.moving_ns <= (device.now_ns - began_ns) * RESIDENCY_PERCENT / 100 +
                                          RESIDENCY_SAVED_NS + 2000ull * BUS_NS_PER_MIB);
        }
        CHECK(device.moves);
        seed = first + 1;
    }
}

TEST("with launches that wait for it memory moves without such a bound")
{
    set_up(1000);
    add(1000);
    residency_spend(&device.time, 1000 * S);
    device.share_bytes = 0;
    CHECK_EQ(make_moves(true), 1);
    device.share_bytes = 1000 * MIB;
    CHECK_EQ(make_moves(false), 0);
    CHECK_EQ(make_moves(true), 1);
    CHECK_EQ(device.ranges[0].spilled_bytes, 0);
}

int main(int argc, char **argv)
{
    return check_run(argc, argv);
}
