/* SPDX-License-Identifier: Apache-2.0 */
/* Time slices among tenants: parts, soft limits, and who gives way, whatever the board says. */
#include "compute/slices.h"

#include "check.h"

#define MS 1000000ull
#define START (5000000 * MS)

static struct slices slices;
static struct registry_view view;

/* Busy for so much of the time, by what was said at two moments. */
static void rate(unsigned own_permille, unsigned others_permille)
{
    uint64_t others = view.busy_ns;
    slices_rate(&slices, MS, &view, START);
    view.busy_ns = others + others_permille * MS / 10;
    slices_rate(&slices, MS + own_permille * MS / 10, &view, START + 100 * MS);
}

static void others(unsigned active, unsigned saturating, unsigned limit)
{
    view = (struct registry_view){.active = active, .saturating = saturating};
    view.active_limit_sum = active * limit;
    view.saturating_limit_sum = saturating * limit;
}

TEST("alone on the device all of it is ours, in the driver's time slices")
{
    rate(900, 0);
    struct slices_part part = slices_part(&slices, &view, 50);
    CHECK_EQ(part.permille, 1000);
    CHECK_EQ(part.likely, 1000);
    CHECK_EQ(part.others_us, 0);
    CHECK_EQ(slices_length_us(&slices, &view, 50), 0);
}

TEST("two who keep the device busy take time slices of 10 ms each")
{
    others(1, 1, 50);
    rate(400, 400);
    CHECK_EQ(slices_length_us(&slices, &view, 50), 10000);
    struct slices_part part = slices_part(&slices, &view, 50);
    /* Each round of 20 ms has two changes of 185 us. */
    CHECK_EQ(part.permille, 491);
    CHECK_EQ(part.others_us, 10000);
}

TEST("time slices are as the limits are, and neither shorter than the driver's nor longer than 16 "
     "ms")
{
    others(1, 1, 60);
    rate(400, 400);
    CHECK_EQ(slices_length_us(&slices, &view, 30), 6666);
    CHECK_EQ(slices_part(&slices, &view, 30).permille, 327);
    CHECK_EQ(slices_length_us(&slices, &view, 5), 2048);
    others(1, 1, 1);
    CHECK_EQ(slices_length_us(&slices, &view, 90), 16384);
}

TEST("a tenant that works now and then keeps the driver's time slices, and so do the others beside "
     "it")
{
    others(1, 0, 50);
    rate(900, 100);
    CHECK_EQ(slices_length_us(&slices, &view, 50), 0);
    others(1, 1, 50);
    slices = (struct slices){.saturating = false};
    rate(100, 900);
    CHECK(!slices.saturating);
    CHECK_EQ(slices_length_us(&slices, &view, 50), 0);
}

TEST("who uses up the driver's time slices beside others' long ones takes long ones, too")
{
    others(2, 2, 70);
    rate(85, 900);
    CHECK(slices.saturating);
    CHECK(slices_length_us(&slices, &view, 30) > 2048);
    slices = (struct slices){.saturating = false};
    rate(10, 900);
    CHECK(!slices.saturating);
}

TEST("what others likely leave is what they say they did not do, never less than our part")
{
    others(1, 0, 50);
    for (unsigned i = 0; i < 40; i++) {
        slices.rated_ns = 0;
        rate(400, 200);
    }
    CHECK_EQ(slices_part(&slices, &view, 50).permille, 451);
    CHECK(slices_part(&slices, &view, 50).likely - 800 < 5);
    slices.others_permille = 950;
    CHECK_EQ(slices_part(&slices, &view, 50).likely, 451);
    slices.others_permille = 4000000;
    CHECK_EQ(slices_part(&slices, &view, 50).likely, 451);
}

TEST("what many others likely leave is our part until it is known for a while what they do")
{
    for (unsigned i = 0; i < SLICES_RATES_KNOWN; i++) {
        others(SLICES_MANY + 1, 0, 10);
        struct slices_part part = slices_part(&slices, &view, 10);
        CHECK_EQ(part.likely, part.permille);
        others(SLICES_MANY, 0, 10);
        CHECK(slices_part(&slices, &view, 10).likely > 500);
        slices.rated_ns = 0;
        rate(100, 300);
    }
    others(SLICES_MANY + 1, 0, 10);
    CHECK(slices_part(&slices, &view, 10).likely > 500);
}

TEST("who comes or goes among the others, or tells of much at once, says nothing of what they do")
{
    others(1, 0, 50);
    for (unsigned i = 0; i < 40; i++) {
        slices.rated_ns = 0;
        rate(400, i % 2 ? 300 : 1000000);
    }
    unsigned likely = slices_part(&slices, &view, 50).likely;
    CHECK(likely >= 700 && likely < 705);
}

TEST("of what the others leave to long time slices, what goes to the changes is nobody's")
{
    others(1, 1, 70);
    rate(300, 400);
    CHECK_EQ(slices_length_us(&slices, &view, 30), 6000);
    slices.others_permille = 600;
    CHECK_EQ(slices_part(&slices, &view, 30).likely, 1000 - 600 - 18);
    others(3, 3, 20);
    slices.others_permille = 500;
    CHECK_EQ(slices_part(&slices, &view, 20).likely, 1000 - 500 - 37);
}

TEST("where the others took nothing, nothing went to changes, however many they say they are")
{
    others(118, 118, 100);
    rate(300, 300);
    slices.rates = SLICES_RATES_KNOWN;
    slices.others_permille = 0;
    CHECK_EQ(slices_part(&slices, &view, 30).likely, 1000);
    slices.others_permille = 100;
    CHECK(slices_part(&slices, &view, 30).likely >= 1000 - 100 - 18);
}

TEST("whose windows are in other slots does not share ours")
{
    others(2, 2, 30);
    view.divided = (struct registry_divided){.count = 1,
        .saturating = 1,
        .limit_sum = 30,
        .saturating_limit_sum = 30,
        .least_limit = 30};
    rate(300, 300);
    CHECK_EQ(slices_part(&slices, &view, 30).permille, (1000 - 27) * 30 / 90);
    slices.divided = true;
    CHECK_EQ(slices_part(&slices, &view, 30).permille, (1000 - 18) * 30 / 60);
    others(1, 1, 60);
    view.divided = (struct registry_divided){.count = 1,
        .saturating = 1,
        .limit_sum = 60,
        .saturating_limit_sum = 60,
        .least_limit = 60};
    CHECK_EQ(slices_part(&slices, &view, 30).permille, 1000);
    CHECK_EQ(slices_part(&slices, &view, 30).likely, 1000);
}

TEST("whatever the board says, parts and time slices are within bounds")
{
    unsigned seed = 1;
    for (unsigned i = 0; i < 100000; i++) {
        unsigned active = (unsigned)rand_r(&seed) % (VGPU_BOARD_SLOTS + 1);
        others(active, active ? (unsigned)rand_r(&seed) % (active + 1) : 0,
            1 + (unsigned)rand_r(&seed) % 100);
        view.busy_ns = (uint64_t)rand_r(&seed) << 40 | (uint64_t)rand_r(&seed);
        unsigned percent = (unsigned)rand_r(&seed) % 102;
        slices_rate(&slices, (uint64_t)rand_r(&seed) << 20, &view, START + i * 60 * MS);
        struct slices_part part = slices_part(&slices, &view, percent);
        uint64_t slice = slices_length_us(&slices, &view, percent);
        bool bounded = part.permille <= part.likely && part.likely <= 1000 &&
                       part.others_us <= 400000 && (!slice || (slice >= 2048 && slice <= 16384));
        if (!CHECK(bounded))
            break;
    }
}

static bool are_whole(uint32_t blurred, uint32_t known, uint64_t at_ms)
{
    const struct slices_cut cut = {blurred, known};
    return slices_are_extended(&slices, &view, &cut, START + at_ms * MS);
}

TEST("time slices are extended for a moment where kernels are cut of which nobody knows what they "
     "take alone")
{
    others(1, 0, 50);
    CHECK(!are_whole(0, 0, 0));
    CHECK(are_whole(1, 0, 10));
    CHECK(are_whole(1, 0, 500)); /* the next one takes its time */
    CHECK(are_whole(5, 2, 900));
    CHECK(!are_whole(5, 2, 1010));
    CHECK(!are_whole(9, 0, 4000));
    CHECK(are_whole(10, 0, 4020));
    CHECK(!are_whole(10, 3, 4100)); /* all are known */
    CHECK(!are_whole(10, 9, 9000));
}

TEST("and for so many of them at most, and not when nobody else works")
{
    others(1, 0, 50);
    CHECK(are_whole(1, 0, 0));
    CHECK(are_whole(16, 0, 100));
    CHECK(!are_whole(17, 0, 110));
    others(0, 0, 50);
    CHECK(!are_whole(40, 0, 5000));
    others(1, 0, 50);
    CHECK(!are_whole(40, 0, 5010)); /* that was before the other came */
    CHECK(are_whole(41, 0, 5020));
    others(0, 0, 50);
    CHECK(!are_whole(42, 0, 5030));
}

TEST("and not again soon, the less so the more others there are")
{
    others(3 * SLICES_EXTENDED_OTHERS, 0, 1);
    CHECK(are_whole(1, 0, 0));
    CHECK(!are_whole(2, 0, 1010));
    CHECK(!are_whole(3, 0, 12900));
    CHECK(are_whole(4, 0, 13020));
}

TEST("who works in long pieces keeps long time slices in the pauses between them")
{
    others(1, 1, 50);
    rate(900, 100);
    CHECK(slices.saturating);
    for (unsigned i = 2; i < 10; i++) {
        slices_rate(&slices, MS + 90 * MS, &view, START + i * 100 * MS);
        CHECK_EQ(slices.saturating, i < 1 + SLICES_LIGHT_RATES);
    }
}

TEST("a soft limit opens when nobody else has been at work for a while, and shuts at once")
{
    others(1, 0, 50);
    CHECK(!slices_alone(&slices, &view, START));
    others(0, 0, 0);
    CHECK(!slices_alone(&slices, &view, START + 10 * MS));
    CHECK(!slices_alone(&slices, &view, START + 10 * MS + SLICES_ALONE_NS - 1));
    CHECK(slices_alone(&slices, &view, START + 10 * MS + SLICES_ALONE_NS));
    others(1, 0, 50);
    CHECK(!slices_alone(&slices, &view, START + 50 * MS));
    others(0, 0, 0);
    CHECK(!slices_alone(&slices, &view, START + 51 * MS));
}

static void heard(uint64_t at_ns)
{
    view.heard_ns = at_ns;
    view.silent_ns = at_ns + REGISTRY_SILENT_NS;
}

TEST("who is silent for too long is not at work for a soft limit, nor who died meanwhile")
{
    others(1, 0, 50);
    heard(START);
    CHECK(!slices_alone(&slices, &view, START + 10 * MS));
    CHECK_EQ(slices.alone_at_ns, START + REGISTRY_SILENT_NS);
    CHECK(!slices_alone(&slices, &view, START + REGISTRY_SILENT_NS - 1));
    CHECK(slices_alone(&slices, &view, START + REGISTRY_SILENT_NS));
    others(0, 0, 0);
    CHECK(slices_alone(&slices, &view, START + 50 * MS));
    others(1, 0, 50);
    heard(START + 51 * MS);
    CHECK(!slices_alone(&slices, &view, START + 52 * MS));
    /* Seen to be dead: what it said last was at work. */
    others(0, 0, 0);
    heard(START + 51 * MS);
    CHECK(!slices_alone(&slices, &view, START + 60 * MS));
    CHECK(slices_alone(&slices, &view, START + 51 * MS + SLICES_ALONE_NS));
}

TEST(
    "who will be heard of later than now is at work, and the moment to look again is no longer off")
{
    others(1, 0, 50);
    heard(START + 900 * MS);
    CHECK(!slices_alone(&slices, &view, START));
    CHECK_EQ(slices.alone_at_ns, START + REGISTRY_SILENT_WINDOWS_NS);
}

TEST("the lower gives way at once, and no longer than the higher works")
{
    others(2, 0, 50);
    CHECK(!slices_give_way(&slices, &view, START));
    view.higher = 1;
    CHECK(slices_give_way(&slices, &view, START + MS));
    CHECK(slices_give_way(&slices, &view, START + 900 * MS));
    view.higher = 0;
    CHECK(!slices_give_way(&slices, &view, START + 901 * MS));
    view.higher = 1;
    CHECK(slices_give_way(&slices, &view, START + 1100 * MS));
}

TEST("who gives way without end works for a 200th of the time")
{
    unsigned works = 0;
    view.higher = 126;
    for (unsigned ms = 0; ms < 402000; ms++)
        works += !slices_give_way(&slices, &view, START + ms * MS);
    CHECK(works >= 1980 && works <= 2000);
}

TEST("and at the same time, wherever and whenever somebody came")
{
    struct slices other = {.saturating = false};
    struct registry_view none = view;
    unsigned works = 0, both = 0;
    view.higher = none.higher = 1;
    for (unsigned ms = 0; ms < 402000; ms++) {
        bool gives_way = slices_give_way(&slices, &view, START + ms * MS);
        none.higher = ms >= 1000;
        bool other_gives_way = slices_give_way(&other, &none, START + ms * MS);
        works += ms >= 10000 && !gives_way;
        both += ms >= 10000 && !gives_way && !other_gives_way;
    }
    CHECK(works >= 1900);
    CHECK_EQ(both, works);
}

int main(int argc, char **argv)
{
    return check_run(argc, argv);
}
