/* SPDX-License-Identifier: Apache-2.0 */
/* What intervals cost while the channel gate was closed, and while other containers were at
 * work. */
#include "compute/meter.h"

#include "check.h"
#include "compute/durations.h"

#define US 1000ull
#define MS (1000 * US)
#define START (1000000 * MS)
#define KEY 0x123456789abcull

static struct stream_meter meter;
static struct closed_times closed;
static int event[4];

static void begin(void)
{
    struct meter_charge charge;
    meter.closed = &closed;
    meter_add_event(&meter, &event[0], START, &(struct meter_run){.gap_ns = 0});
    (void)meter_pass(&meter, START, &charge);
}

static void close_from(uint64_t from, uint64_t to)
{
    closed_begin(&closed, START + from);
    closed_end(&closed, START + to);
}

static void record(uint32_t launches, uint64_t work, uint64_t recorded, struct meter_run run)
{
    meter_note(&meter, launches, work, KEY, START);
    meter_add_event(&meter, &event[1], START + recorded, &run);
}

static uint64_t pass(uint64_t at)
{
    struct meter_charge charge;
    (void)meter_pass(&meter, START + at, &charge);
    return charge.busy_ns;
}

static const struct meter_run continuous = {.continuous = true}, dry,
                              alone_measured = {.continuous = true, .measured = true};

TEST("time in which the gate was closed is not charged, whatever kind of interval it lies in")
{
    const struct meter_run runs[] = {continuous, alone_measured, dry};
    for (unsigned i = 0; i < 3; i++) {
        begin();
        record(1, 90 * MS, 0, runs[i]);
        close_from(20 * MS, 60 * MS);
        CHECK_EQ(pass(100 * MS), runs[i].continuous ? 60 * MS : 60 * MS);
        closed_reset(&closed);
        meter = (struct stream_meter){0};
    }
}

TEST("a duration is learnt without the time in which the gate was closed")
{
    begin();
    record(1, 0, 0, alone_measured);
    close_from(20 * MS, 60 * MS);
    (void)pass(100 * MS);
    CHECK_EQ(duration_of(KEY), 60 * MS - METER_EVENT_NS);
}

TEST("what runs on is charged for the time in which the gate was open")
{
    struct meter_charge charge;
    begin();
    record(1, 0, 0, alone_measured);
    CHECK(meter_runs_for(&meter, START + 10 * MS, 10 * MS));
    CHECK(!meter_runs_for(&meter, START + 10 * MS, 11 * MS));
    CHECK(meter_run_on(&meter, START + 10 * MS, 1000, &charge));
    CHECK_EQ(charge.busy_ns, 10 * MS);
    closed_begin(&closed, START + 10 * MS);
    CHECK(!meter_run_on(&meter, START + 50 * MS, 1000, &charge));
    closed_end(&closed, START + 50 * MS);
    CHECK(!meter_run_on(&meter, START + 51 * MS, 1000, &charge));
    CHECK(meter_run_on(&meter, START + 60 * MS, 1000, &charge));
    CHECK_EQ(charge.busy_ns, 10 * MS);
    CHECK_EQ(pass(65 * MS), 5 * MS);
}

TEST("what is on its way has left what its launches were thought to take, less what ran")
{
    begin();
    CHECK_EQ(meter_left_ns(&meter, START + MS), 0);
    record(1, 500 * MS, 0, alone_measured);
    record(5, 7 * MS, 0, continuous);
    CHECK_EQ(meter_left_ns(&meter, START + 100 * MS), 407 * MS);
    close_from(100 * MS, 150 * MS);
    CHECK_EQ(meter_left_ns(&meter, START + 160 * MS), 397 * MS);
    CHECK_EQ(meter_left_ns(&meter, START + 2000 * MS), 7 * MS);
    struct meter_charge charge;
    CHECK(meter_run_on(&meter, START + 2000 * MS, 1000, &charge)); /* by the clock from now on */
    CHECK_EQ(meter_left_ns(&meter, START + 100 * MS), 7 * MS);
}

TEST("a kernel that was stopped before its time was over does not run on")
{
    begin();
    record(1, 20 * MS, 0, alone_measured);
    close_from(10 * MS, 100 * MS);
    CHECK(!meter_runs_for(&meter, START + 110 * MS, 21 * MS));
    CHECK(meter_runs_for(&meter, START + 111 * MS, 21 * MS));
}

TEST("beside other containers the learnt durations count, not the time between the timing events")
{
    struct meter_run run = {.continuous = true, .part = 500};
    begin();
    record(20, 4 * MS, 0, run);
    CHECK_EQ(pass(10 * MS), 4 * MS);
    meter = (struct stream_meter){0};
    begin();
    record(20, 40 * MS, 0, run); /* at most all of it */
    CHECK_EQ(pass(10 * MS), 10 * MS);
}

TEST("beside other containers no less counts than half of our part")
{
    begin();
    record(20, 10 * US, 0, (struct meter_run){.continuous = true, .part = 500});
    CHECK_EQ(pass(12 * MS), 3 * MS);
    meter = (struct stream_meter){0};
    begin();
    record(20, 10 * US, 0, (struct meter_run){.continuous = true, .part = 250});
    CHECK_EQ(pass(12 * MS), 1500 * US);
}

TEST("time in which others had their time slice is not ours, however long an interval took")
{
    struct meter_charge charge;
    struct meter_run run = {.continuous = true, .part = 300, .others_ns = 14 * MS};
    begin();
    record(2, MS, 0, run);
    CHECK(!meter_run_on(&meter, START + 15 * MS, 300, &charge));
    CHECK(!meter_runs_for(&meter, START + 15 * MS, MS));
    CHECK_EQ(meter_left_ns(&meter, START + 14 * MS), MS);
    CHECK_EQ(pass(15 * MS), MS);
    meter = (struct stream_meter){0};
    begin();
    record(2, MS, 0, run); /* but what is more than that counts */
    CHECK_EQ(pass(74 * MS), 9 * MS);
    meter = (struct stream_meter){0};
    begin();
    record(2, MS, 0, run);
    CHECK(meter_run_on(&meter, START + 74 * MS, 300, &charge));
    CHECK_EQ(charge.busy_ns, 74 * MS / 10 * 3);
}

TEST("beside other containers durations are learnt from what no time slice of theirs came between")
{
    struct meter_run run = {
        .continuous = true, .measured = true, .part = 500, .others_ns = 10 * MS};
    uint64_t at = 0;
    begin();
    for (unsigned i = 0; i < 200; i++) {
        record(1, 0, at, run);
        at += i % 3 ? 1 * MS : 11 * MS;
        (void)pass(at);
    }
    CHECK(duration_of(KEY) >= MS - 10 * US && duration_of(KEY) <= MS + 10 * US);
}

TEST("what nobody knows counts as our part, also as it goes")
{
    struct meter_charge charge;
    begin();
    record(1, 0, 0, (struct meter_run){.continuous = true, .measured = true, .part = 250});
    CHECK(meter_run_on(&meter, START + 40 * MS, 250, &charge));
    CHECK_EQ(charge.busy_ns, 10 * MS);
    CHECK(meter_run_on(&meter, START + 60 * MS, 500, &charge));
    CHECK_EQ(charge.busy_ns, 10 * MS);
    CHECK_EQ(pass(80 * MS), 5 * MS);
}

/* What ran for 10 ms by the governor's looks, beside others, and is open still. */
static void ran_in_part(void)
{
    struct meter_charge charge;
    begin();
    meter_note(&meter, 12, MS, KEY, START);
    CHECK(meter_ran(&meter, START + 5 * MS, START + 15 * MS, 300, &charge));
    CHECK_EQ(charge.busy_ns, 3 * MS);
}

static void mark_again(uint64_t recorded)
{
    meter_add_event(&meter, &event[1], START + recorded, &(struct meter_run){.part = 300});
}

TEST("what was charged as it went, and ended, costs nothing more, however late its timing event "
     "comes")
{
    ran_in_part();
    mark_again(10000 * MS);
    CHECK(pass(10000 * MS + 10 * US) <= 10 * US);
    meter = (struct stream_meter){0};
    ran_in_part();
    meter.open.other = true; /* a wait for something of 10 s */
    mark_again(20 * MS);
    CHECK_EQ(pass(10000 * MS), 0);
}

TEST("what was charged as it went, and goes on behind a timing event, costs our part of that")
{
    ran_in_part();
    mark_again(16 * MS);
    CHECK_EQ(pass(56 * MS), 12 * MS);
}

TEST("what no timing event will end gives back what it was charged with twice, once")
{
    struct meter_charge charge;
    begin();
    meter_note(&meter, 5, 2 * MS, KEY, START);
    CHECK(meter_done(&meter, START, START + 50 * MS, 2 * MS, &charge));
    CHECK_EQ(charge.busy_ns, 2 * MS);
    CHECK_EQ(meter_give_up(&meter), 2 * MS);
    CHECK_EQ(meter_give_up(&meter), 0);
    record(1, MS, 60 * MS, dry);
    meter_note(&meter, 5, 2 * MS, KEY, START);
    CHECK_EQ(meter_give_up(&meter), 0); /* the one that has an event is charged yet */
    CHECK_EQ(pass(61 * MS), MS);
}

TEST("beside other containers the shortest time that a launch took is learnt, in some steps")
{
    const struct meter_run run = {.continuous = true, .measured = true, .part = 500};
    const uint64_t took[] = {8 * MS, 12 * MS, MS, MS, MS, MS, 9 * MS};
    begin();
    for (unsigned i = 0; i < 7; i++) {
        record(1, duration_of(KEY), 0, run);
        (void)pass(took[i] + meter.reached_ns - START);
    }
    CHECK(duration_of(KEY) >= MS - METER_EVENT_NS && duration_of(KEY) <= MS);
}

TEST("beside other containers a duration that is far too short is not kept")
{
    const struct meter_run run = {.continuous = true, .measured = true, .part = 300};
    uint64_t at = 0;
    begin();
    duration_learn(KEY, 500 * US);
    for (unsigned i = 0; i < 40; i++) {
        record(1, duration_of(KEY), at, run);
        at += i % 5 ? MS : 14 * MS;
        (void)pass(at);
    }
    CHECK(duration_of(KEY) >= MS - 10 * US && duration_of(KEY) <= MS + 10 * US);
}

TEST("beside other containers a queue that was admitted by a wrong estimate costs what is known by "
     "now")
{
    const struct meter_run run = {
        .continuous = true, .measured = true, .part = 500, .others_ns = 9 * MS};
    uint64_t busy = 0;
    begin();
    for (unsigned i = 0; i < DURATION_SETTLED; i++)
        duration_learn(KEY, 8 * US);
    for (unsigned i = 0; i < 100; i++)
        record(1, 8 * US, 0, run);
    for (unsigned i = 0; i < 100; i++)
        busy += pass((i + 1) * MS);
    CHECK(busy > 90 * MS && busy <= 100 * MS);
}

TEST("but one of a kernel that may meet others' time slices each time it runs is")
{
    const struct meter_run run = {.continuous = true, .measured = true, .part = 300};
    uint64_t at = 0;
    begin();
    duration_learn(KEY, 6 * MS);
    for (unsigned i = 0; i < 40; i++) {
        record(1, duration_of(KEY), at, run);
        (void)pass(at += 20 * MS);
    }
    CHECK_EQ(duration_of(KEY), 6 * MS);
}

/* The timing event before it waited for our time slice: no gap passed between the two. */
TEST("beside other containers the processor's gap on an idle stream makes no duration shorter")
{
    const struct meter_run run = {.gap_ns = 300 * US, .measured = true, .part = 300};
    uint64_t at = 0;
    begin();
    duration_learn(KEY, MS);
    for (unsigned i = 0; i < 40; i++) {
        record(1, duration_of(KEY), at, run);
        (void)pass(at += MS + 50 * US);
    }
    CHECK(duration_of(KEY) >= MS - 10 * US && duration_of(KEY) <= MS + 10 * US);
}

TEST("beside other containers what is known costs that, whatever the processor's gap before it")
{
    const struct meter_run run = {.gap_ns = 300 * US, .measured = true, .part = 300};
    begin();
    duration_learn(KEY, MS);
    record(1, MS, 0, run); /* the gap passed while the timing event before it waited */
    uint64_t at = MS + METER_EVENT_NS - METER_BEGIN_NS;
    CHECK_EQ(pass(at), MS);
    record(1, MS, at, run); /* or behind that */
    uint64_t busy = pass(2 * at + 300 * US - METER_EVENT_NS);
    CHECK(busy >= MS && busy <= MS + US);
}

TEST("what comes behind the last timing event of a full meter is on its way for as long as it is "
     "known to "
     "take")
{
    begin();
    CHECK(!meter_is_on_way(&meter, START));
    for (unsigned i = 0; i < METER_EVENTS; i++)
        record(1, MS, 0, (struct meter_run){.continuous = true});
    CHECK(meter_is_full(&meter));
    meter_note(&meter, 44, 44 * MS, KEY, START);
    for (unsigned i = 0; i < METER_EVENTS; i++)
        (void)pass((i + 1) * MS);
    CHECK(meter_is_on_way(&meter, START + (METER_EVENTS + 43) * MS));
    CHECK(!meter_is_on_way(&meter, START + (METER_EVENTS + 44) * MS));
}

TEST(
    "beside other containers nothing is learnt by a timing event whose time is not the event's own")
{
    begin();
    duration_learn(KEY, MS);
    record(1, MS, 0, (struct meter_run){.continuous = true, .measured = true, .part = 500});
    meter_front(&meter)->before.moved = true;
    (void)pass(MS / 2);
    CHECK_EQ(duration_of(KEY), MS);
}

static struct meter_run beside(unsigned part)
{
    return (struct meter_run){
        .measured = true, .part = (uint16_t)part, .likely = 1000, .others_ns = 10 * MS};
}

TEST("what nobody knew costs our part, whatever others are thought to leave, and its duration is "
     "known then")
{
    begin();
    record(1, 0, 0, beside(20));
    CHECK_EQ(pass(1000 * MS + METER_EVENT_NS - METER_BEGIN_NS), 20 * MS);
    CHECK(duration_of(KEY) > 999 * MS);
}

TEST("of what nobody knew nothing is learnt where either of its timing events is not the event's "
     "own time")
{
    begin();
    record(1, 0, 0, beside(20));
    meter_front(&meter)->before.moved = true;
    (void)pass(5 * US);
    CHECK_EQ(duration_of(KEY), 0);
    record(1, 0, 0, beside(20));
    (void)pass(10 * US);
    CHECK_EQ(duration_of(KEY), 0);
    record(1, 0, 0, beside(20));
    (void)pass(40 * MS);
    CHECK(duration_of(KEY) > 39 * MS);
}

TEST("a thread that was kept from running before its launch makes no first duration too short")
{
    struct meter_run run = beside(20);
    run.gap_ns = 20 * MS;
    begin();
    record(1, 0, 20 * MS, run);
    (void)pass(21 * MS);
    CHECK(duration_of(KEY) >= 21 * MS - METER_EVENT_NS);
}

TEST("beside other containers a closure in it makes no duration shorter")
{
    duration_learn(KEY, 20 * MS);
    begin();
    record(1, 20 * MS, 0, beside(20));
    close_from(1 * MS, 990 * MS);
    (void)pass(1001 * MS);
    CHECK_EQ(duration_of(KEY), 20 * MS);
}

TEST("but one of which nothing is known is learnt all the same")
{
    begin();
    record(1, 0, 0, beside(20));
    close_from(1 * MS, 970 * MS);
    (void)pass(1001 * MS);
    CHECK(duration_of(KEY) > 31 * MS && duration_of(KEY) < 33 * MS);
}

TEST("beside other processes of the container a duration is learnt from what none of theirs is in")
{
    struct meter_run run = {.measured = true, .siblings = true, .gap_ns = 20 * US};
    uint64_t at = 0;
    begin();
    duration_learn_alone(KEY, 780 * US); /* the first was too short by far */
    for (unsigned i = 0; i < 30; i++) {
        record(1, 0, at, run);
        at += (i % 3 ? MS : 3 * MS) -
              METER_BEGIN_NS; /* the timing event before it waited for our time slice */
        (void)pass(at);
    }
    CHECK(duration_of(KEY) >= MS - 30 * US && duration_of(KEY) <= MS + 10 * US);
}

TEST("but what always has one of theirs in it says nothing of a duration that is known")
{
    struct meter_run run = {.continuous = true, .measured = true, .siblings = true};
    begin();
    duration_learn_alone(KEY, 2500 * US);
    for (unsigned i = 0; i < 20; i++) {
        record(1, 0, i * 4600 * US, run);
        (void)pass((i + 1) * 4600 * US);
    }
    CHECK_EQ(duration_of(KEY), 2500 * US);
    CHECK(duration_is_alone(KEY));
}

/* Each kernel of 20 ms waits for one time slice of theirs at most, of 13 ms, and meets others of 7
 * ms in time slices that are not extended. */
static struct meter_charge pass_cut(unsigned i, uint64_t *at, bool long_slices)
{
    struct meter_charge charge;
    uint64_t from = *at;
    record(1, duration_of(KEY), from,
        (struct meter_run){.continuous = true,
            .measured = true,
            .part = 330,
            .likely = 400,
            .others_ns = 14 * MS});
    *at = from + 20 * MS + METER_EVENT_NS + (long_slices ? i % 2 * 13 * MS : 40 * MS);
    if (long_slices)
        meter_front_extended(&meter, START, 50 * MS, START + *at);
    (void)meter_pass(&meter, START + *at, &charge);
    return charge;
}

TEST("what others' time slices always cut is known once time slices were extended enough for it")
{
    uint64_t at = 0;
    begin();
    for (unsigned i = 0; i < 8; i++) {
        struct meter_charge charge = pass_cut(i, &at, false);
        CHECK(charge.cut && !charge.known);
    }
    CHECK(duration_of(KEY) > 30 * MS);
    for (unsigned i = 0; i < 4; i++)
        (void)pass_cut(i + 1, &at, true);
    CHECK_EQ(duration_of(KEY), 20 * MS);
    for (unsigned i = 0; i < 20; i++) {
        struct meter_charge charge = pass_cut(i, &at, false);
        CHECK(charge.cut && charge.known);
        CHECK_EQ(charge.busy_ns, 20 * MS);
    }
}

TEST("not by what began before they were, or took longer than one of them")
{
    uint64_t at = 0;
    begin();
    (void)pass_cut(0, &at, false);
    for (unsigned i = 0; i < 20; i++) {
        struct meter_charge charge;
        uint64_t from = at;
        record(1, 0, from, (struct meter_run){.continuous = true, .measured = true, .part = 330});
        at += i % 2 ? 20 * MS : 60 * MS;
        meter_front_extended(&meter, START + (i % 2 ? from + 1 : from), 50 * MS, START + at);
        (void)meter_pass(&meter, START + at, &charge);
        CHECK(charge.cut && !charge.known);
    }
}

TEST("what takes many time slices beside other containers costs little more than our part")
{
    begin();
    record(1, 90 * MS, 0, (struct meter_run){.continuous = true, .measured = true, .part = 500});
    CHECK_EQ(pass(100 * MS), 62500 * US);
}

TEST("but all that it was measured to take alone, or that the others left")
{
    const struct meter_run run = {.continuous = true, .measured = true, .part = 450, .likely = 990};
    const struct meter_run hostile = {.continuous = true, .measured = true, .part = 7};
    begin();
    record(1, 50 * MS, 0, run);
    CHECK(pass(52 * MS) >= 50 * MS);
    meter = (struct stream_meter){0};
    begin();
    duration_learn_alone(KEY, 50 * MS);
    record(1, 50 * MS, 0, hostile);
    CHECK(pass(52 * MS) >= 50 * MS);
    meter = (struct stream_meter){0};
    begin();
    duration_learn(KEY, 50 * MS);
    CHECK(duration_is_alone(KEY));
    for (int i = 0; i < 8; i++)
        duration_exceeded(KEY, 60 * MS);
    CHECK(!duration_is_alone(KEY));
}

TEST("beside other containers sums are not set right")
{
    begin();
    for (unsigned i = 0; i < 50; i++) {
        record(20, 10 * MS, 10 * i * MS, (struct meter_run){.continuous = true, .part = 500});
        (void)pass((i + 1) * 12 * MS);
    }
    CHECK_EQ(meter.sure_work_ns, 0);
}

int main(int argc, char **argv)
{
    return check_run(argc, argv);
}
