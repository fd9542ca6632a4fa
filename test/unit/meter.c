/* SPDX-License-Identifier: Apache-2.0 */
/* What a stream's intervals cost, rule by rule, and what is learnt from them. */
#include "compute/meter.h"

#include "check.h"
#include "compute/durations.h"

#define US 1000ull
#define MS (1000 * US)
#define START (1000000 * MS)
#define KEY 0x123456789abcull

static struct stream_meter meter;
static int event[METER_EVENTS + 1];

static const struct meter_run dry, continuous = {.continuous = true};

/* A meter whose first timing event was reached at START. */
static void begin(void)
{
    struct meter_charge charge;
    meter_add_event(&meter, &event[0], START - 10 * US, &dry);
    CHECK(meter_pass(&meter, START, &charge) == &event[0]);
    CHECK_EQ(charge.busy_ns, 0);
    CHECK_EQ(charge.work_ns, 0);
}

static struct meter_charge pass(uint64_t at_ns)
{
    struct meter_charge charge = {0};
    (void)meter_pass(&meter, at_ns, &charge);
    return charge;
}

static void check_charge(struct meter_charge charge, uint64_t from, uint64_t to, uint64_t busy)
{
    CHECK_EQ(charge.from_ns - START, from);
    CHECK_EQ(charge.to_ns - START, to);
    CHECK_EQ(charge.busy_ns, busy);
}

/* ---- rules ---- */

TEST("launches on a stream that never ran dry cost what passed from end to end")
{
    begin();
    meter_note(&meter, 40, 500 * US, 0, START + 50 * US);
    meter_add_event(&meter, &event[1], START + 60 * US, &continuous);
    struct meter_charge charge = pass(START + 2 * MS);
    check_charge(charge, 0, 2 * MS, 2 * MS);
    CHECK_EQ(charge.work_ns, 500 * US);
}

TEST(
    "one launch on an idle stream costs end to end less the processor's gap and the timing events'")
{
    begin();
    meter_note(&meter, 1, 80 * US, KEY, START + 5 * US);
    meter_add_event(
        &meter, &event[1], START + 6 * US, &(struct meter_run){.measured = true, .gap_ns = 4 * US});
    struct meter_charge charge = pass(START + 104 * US);
    check_charge(charge, 0, 104 * US, 100 * US + METER_BEGIN_NS);
    CHECK_EQ(charge.work_ns, 80 * US);
    CHECK_EQ(duration_of(KEY), 100 * US + METER_BEGIN_NS);
}

TEST("a gap that is longer than what was measured costs nothing, and is learnt as next to nothing")
{
    begin();
    meter_note(&meter, 1, 0, KEY, START + 5 * US);
    meter_add_event(
        &meter, &event[1], START + 6 * US, &(struct meter_run){.measured = true, .gap_ns = 9 * MS});
    CHECK_EQ(pass(START + 100 * US).busy_ns, 0);
    CHECK(duration_of(KEY) <= 1);
}

TEST("a timing event that came late says only that its launch took no longer, and that the rest "
     "was busy")
{
    begin();
    meter_note(&meter, 1, 50 * US, KEY, START + 5 * US);
    struct meter_run run = {.measured = true, .gap_ns = 4 * US, .launched_ns = START + 5 * US};
    meter_add_event(&meter, &event[1], START + 3 * MS, &run);
    CHECK_EQ(pass(START + 3 * MS + 10 * US).busy_ns, 50 * US);
    CHECK_EQ(duration_of(KEY), 3006 * US + METER_BEGIN_NS);
    duration_learn(KEY, MS);
    uint64_t known = duration_of(KEY);
    meter_note(&meter, 1, known, KEY, START + 4 * MS);
    run = (struct meter_run){.measured = true, .gap_ns = 4 * US, .launched_ns = START + 4 * MS};
    meter_add_event(&meter, &event[1], START + 7 * MS, &run);
    (void)pass(START + 7 * MS);
    CHECK_EQ(duration_of(KEY), known);
}

TEST("one launch behind a backlog costs end to end, and is learnt without the timing events' own "
     "time")
{
    begin();
    meter_note(&meter, 1, 80 * US, KEY, START + 5 * US);
    meter_add_event(&meter, &event[1], START + 6 * US,
        &(struct meter_run){.measured = true, .continuous = true});
    CHECK_EQ(pass(START + 100 * US).busy_ns, 100 * US);
    CHECK_EQ(duration_of(KEY), 100 * US - METER_EVENT_NS);
}

/* Timing events right behind each other: the device was so long with the second. */
static void pass_apart(uint64_t *at, uint64_t event_ns, uint64_t recorded_apart_ns)
{
    for (int i = 0; i < 2; i++) {
        meter_add_event(&meter, &event[1], *at + (uint64_t)i * recorded_apart_ns,
            &(struct meter_run){.apart = i});
        (void)pass(*at + US + (uint64_t)i * event_ns);
    }
    *at += 200 * US;
}

TEST("what an event takes is learnt from two right behind each other, and taken off")
{
    uint64_t at = START + MS;
    begin();
    pass_apart(&at, 3250, 1500);
    CHECK_EQ(meter.event_ns, 3250);
    meter_note(&meter, 1, 80 * US, KEY ^ 1ull << 45, at);
    meter_add_event(
        &meter, &event[1], at, &(struct meter_run){.measured = true, .continuous = true});
    (void)pass(meter.reached_ns + 100 * US);
    CHECK_EQ(duration_of(KEY ^ 1ull << 45), 100 * US - 3250);
}

static void measure_after_gap(uint64_t wall_ns, uint64_t gap_ns, uint64_t expected_ns)
{
    uint64_t at = meter.former_ns + gap_ns;
    durations_table[KEY % DURATIONS_ENTRIES] = 0;
    meter_note(&meter, 1, 0, KEY, at);
    meter_add_event(&meter, &event[1], at, &(struct meter_run){.measured = true, .gap_ns = gap_ns});
    (void)pass(meter.reached_ns + wall_ns);
    CHECK_EQ(duration_of(KEY), expected_ns + METER_BEGIN_NS);
}

/* Two timing events that take 3.25 us each, the second recorded 1.5 us after the first: the device
 * is done with it 5 us later. */
TEST("the device waits for a launch from when it is done with the timing events before it")
{
    uint64_t at = START + MS;
    begin();
    pass_apart(&at, 3250, 1500);
    pass_apart(&at, 3250, 1500);
    measure_after_gap(103250, 2 * US, 100 * US);
    pass_apart(&at, 3250, 1500);
    measure_after_gap(103250, 5 * US, 100 * US);
    pass_apart(&at, 3250, 1500);
    measure_after_gap(105250, 7 * US, 100 * US);
}

TEST("it is told of a timing event near the end of the call that records it")
{
    static const uint64_t calls_ns[] = {0, US, 5 * US};
    for (size_t i = 0; i < sizeof(calls_ns) / sizeof(calls_ns[0]); i++) {
        uint64_t recorded = START + (i + 1) * MS;
        begin();
        meter_add_event(
            &meter, &event[1], recorded, &(struct meter_run){.asked_ns = recorded - calls_ns[i]});
        (void)pass(recorded + 10 * US);
        uint64_t idle_ns = 8 * US - METER_EVENT_NS + calls_ns[i] / METER_TOLD_PART;
        measure_after_gap(100 * US + METER_EVENT_NS + idle_ns, 8 * US, 100 * US);
    }
}

TEST("where the processor was as slow the device may have waited for it: an event takes no longer")
{
    static const struct {
        uint64_t event_ns, recorded_apart_ns, known_ns;
    } pairs[] = {
        {5000, 4800, METER_EVENT_LEAST_NS},   /* not even that is known */
        {500000, 1500, METER_EVENT_LEAST_NS}, /* something else was between the two */
        {3200, 1000, 3200},                   /* as good as any */
        {3600, 1000, 3250},
        {3600, 2000, 3250},
        {3010, 2000, 3220},
    };
    uint64_t at = START + MS;
    begin();
    for (size_t i = 0; i < sizeof(pairs) / sizeof(pairs[0]); i++) {
        pass_apart(&at, pairs[i].event_ns, pairs[i].recorded_apart_ns);
        CHECK_EQ(meter.event_ns, pairs[i].known_ns);
        at += MS;
    }
}

TEST("launches on a stream that ran dry cost the sum of what is known of them")
{
    begin();
    meter_note(&meter, 10, 300 * US, 0, START + 100 * US);
    meter_add_event(&meter, &event[1], START + 1500 * US, &dry);
    struct meter_charge charge = pass(START + 1501 * US);
    check_charge(charge, 100 * US, 1501 * US, 300 * US);
}

TEST("launches on a stream that ran dry cost no more than what passed since the first of them")
{
    begin();
    meter_note(&meter, 10, 300 * US, 0, START + 100 * US);
    meter_add_event(&meter, &event[1], START + 150 * US, &dry);
    check_charge(pass(START + 200 * US), 100 * US, 200 * US, 100 * US);
}

TEST("after its last launch a stream that ran dry ran through, whatever was thought of it")
{
    begin();
    meter_note(&meter, 3, 10 * US, 0, START + 100 * US);
    meter_add_event(&meter, &event[1], START + 150 * US, &dry);
    check_charge(pass(START + 950 * US), 100 * US, 950 * US, 800 * US);
}

TEST("of launches beside something else that takes long no more than what is known is charged")
{
    const struct meter_run runs[] = {dry, continuous, {.measured = true}};
    for (unsigned i = 0; i < 3; i++) {
        meter = (struct stream_meter){0};
        begin();
        meter_note(&meter, 2, 30 * US, KEY, START + 10 * US);
        meter.open.other = true;
        meter_add_event(&meter, &event[1], START + 20 * US, &runs[i]);
        struct meter_charge charge = pass(START + 1000 * MS);
        CHECK_EQ(charge.busy_ns, 30 * US);
        CHECK_EQ(charge.work_ns, 30 * US);
        CHECK_EQ(duration_of(KEY), 0);
    }
}

TEST("something else alone, and nothing at all, cost nothing")
{
    begin();
    meter.open.other = true;
    meter_add_event(&meter, &event[1], START + 20 * US, &continuous);
    CHECK_EQ(pass(START + 900 * MS).busy_ns, 0);
    meter_add_event(&meter, &event[2], START + 900 * MS, &continuous);
    CHECK_EQ(pass(START + 950 * MS).busy_ns, 0);
}

TEST("what came before the first timing event is not charged, only set right")
{
    meter_note(&meter, 5, 50 * US, KEY, START - MS);
    meter_add_event(&meter, &event[0], START - 10 * US, &(struct meter_run){.measured = true});
    struct meter_charge charge = pass(START);
    CHECK(charge.busy_ns <= 10 * US);
    CHECK_EQ(charge.work_ns, 50 * US);
    CHECK_EQ(duration_of(KEY), 0);
}

TEST("a timing event's time that lies before that of the last one counts as that")
{
    begin();
    meter_note(&meter, 5, 50 * US, 0, START + 5);
    meter_add_event(&meter, &event[1], START + 10, &continuous);
    check_charge(pass(START - 5 * MS), 0, 0, 0);
    meter_note(&meter, 5, 50 * US, 0, START + MS);
    meter_add_event(&meter, &event[2], START + MS, &continuous);
    check_charge(pass(START + 3 * MS), 0, 3 * MS, 3 * MS);
}

TEST("an interval counts all that was noted, from the first of it")
{
    begin();
    meter_note(&meter, 1, 10 * US, 1, START + 30 * US);
    meter_note(&meter, 2, 20 * US, 2, START + 10 * US);
    meter_note(&meter, 3, 30 * US, 3, START + 40 * US);
    CHECK_EQ(meter.open.launches, 6);
    CHECK_EQ(meter.open.key, 3);
    meter_add_event(&meter, &event[1], START + 50 * US, &dry);
    CHECK_EQ(meter.open.launches, 0);
    struct meter_charge charge = pass(START + 500 * US);
    CHECK_EQ(charge.from_ns - START, 10 * US);
    CHECK_EQ(charge.work_ns, 60 * US);
}

/* ---- learning ---- */

TEST("several launches together teach nothing")
{
    begin();
    meter_note(&meter, 2, 0, KEY, START);
    meter_add_event(&meter, &event[1], START, &continuous);
    (void)pass(START + MS);
    CHECK_EQ(duration_of(KEY), 0);
}

static void measure(uint64_t from, uint64_t busy, bool shared)
{
    meter_note(&meter, 1, 0, KEY, from);
    meter_add_event(
        &meter, &event[1], from, &(struct meter_run){.measured = true, .shared = shared});
    (void)pass(from + busy + METER_EVENT_NS - METER_BEGIN_NS);
}

TEST("beside other streams' work a duration is only learnt where it is new or shorter")
{
    begin();
    measure(START, 500 * US, true);
    CHECK_EQ(duration_of(KEY), 500 * US);
    measure(meter.reached_ns, 900 * US, true);
    CHECK_EQ(duration_of(KEY), 500 * US);
    measure(meter.reached_ns, 100 * US, true);
    CHECK(duration_of(KEY) < 500 * US);
    uint64_t known = duration_of(KEY);
    measure(meter.reached_ns, 900 * US, false);
    CHECK(duration_of(KEY) > known);
}

/* One launch by its estimate onto a stream where nothing was, whose timing event is recorded 20 us
 * later. */
static void estimate_alone(uint64_t known, uint64_t took, struct meter_run run, uint32_t launches)
{
    uint64_t from = meter.reached_ns + 10 * MS;
    meter_note(&meter, launches, launches * known, KEY, from);
    meter_add_event(&meter, &event[1], from + 20 * US, &run);
    (void)pass(from + took);
}

TEST("by a timing event behind a launch that came alone its duration is learnt: no longer than "
     "from its "
     "launch")
{
    begin();
    duration_learn_alone(KEY, 500 * US);
    estimate_alone(500 * US, 510 * US, dry, 1); /* from 490 to 510 us */
    CHECK_EQ(duration_of(KEY), 500 * US);
    for (int i = 0; i < 60; i++)
        estimate_alone(duration_of(KEY), 300 * US, dry, 1);
    CHECK(duration_of(KEY) >= 300 * US && duration_of(KEY) < 305 * US);
    for (int i = 0; i < 60; i++)
        estimate_alone(duration_of(KEY), 420 * US, dry, 1);
    CHECK(duration_of(KEY) <= 400 * US && duration_of(KEY) > 395 * US);
    CHECK(duration_is_alone(KEY));
}

TEST("of several, of what is unknown, and beside others nothing is learnt by it")
{
    const struct meter_run beside[] = {{.shared = true}, {.siblings = true}, {.part = 500}};
    begin();
    estimate_alone(500 * US, 300 * US, dry, 1);
    CHECK_EQ(duration_of(KEY), 0);
    duration_learn_alone(KEY, 500 * US);
    for (unsigned i = 0; i < sizeof(beside) / sizeof(beside[0]); i++)
        estimate_alone(500 * US, 300 * US, beside[i], 1);
    estimate_alone(500 * US, 300 * US, dry, 2);
    CHECK_EQ(duration_of(KEY), 500 * US);
}

/* ---- what runs on ---- */

/* An interval of `work` that runs for `length`, looked at each `step`: all that was charged for it,
 * with its estimate. */
static uint64_t charged_in_all(uint64_t work, uint64_t length, uint64_t step, struct meter_run run)
{
    struct meter_charge charge;
    meter = (struct stream_meter){0};
    begin();
    meter_note(&meter, 1, work, KEY, START);
    meter_add_event(&meter, &event[1], START, &run);
    uint64_t sum = work, up_to = START;
    for (uint64_t t = step; t < length; t += step) {
        if (!meter_run_on(&meter, START + t, 1000, &charge))
            continue;
        CHECK_EQ(charge.from_ns - START, up_to - START);
        CHECK_EQ(charge.to_ns - START, t);
        CHECK_EQ(charge.busy_ns, charge.to_ns - charge.from_ns);
        up_to = charge.to_ns;
        sum += charge.busy_ns - charge.work_ns;
        /* Before the end no more is charged than ran, or was thought to. */
        CHECK(sum <= (t > work ? t : work));
    }
    charge = pass(START + length);
    CHECK(charge.from_ns == up_to || up_to == START);
    CHECK_EQ(charge.to_ns - START, length);
    return sum + charge.busy_ns - charge.work_ns;
}

TEST("what is charged before the end of an interval and at its end is the whole")
{
    for (uint64_t work = 0; work <= 4000 * MS; work = work ? 4 * work : 50 * US) {
        for (uint64_t step = MS; step < 200 * MS; step *= 3) {
            CHECK_EQ(charged_in_all(work, 3000 * MS, step, continuous), 3000 * MS);
            CHECK_EQ(charged_in_all(work, 700 * US, step, continuous), 700 * US);
        }
        struct meter_run alone = {.measured = true, .gap_ns = 7 * US};
        CHECK_EQ(
            charged_in_all(work, 3000 * MS, 10 * MS, alone), 3000 * MS - 7 * US + METER_BEGIN_NS);
    }
}

TEST("what runs on is charged within some milliseconds, once it takes longer than was thought")
{
    struct meter_charge charge;
    begin();
    meter_note(&meter, 1, 5 * MS, KEY, START);
    meter_add_event(&meter, &event[1], START, &continuous);
    CHECK(!meter_run_on(&meter, START + 4 * MS, 1000, &charge));
    CHECK(!meter_run_on(&meter, START + 6 * MS, 1000, &charge));
    CHECK(meter_run_on(&meter, START + 10 * MS, 1000, &charge));
    CHECK_EQ(charge.to_ns - START, 10 * MS);
    CHECK(!meter_run_on(&meter, START + 10 * MS + 1, 1000, &charge));
    CHECK(meter_run_on(&meter, START + 20 * MS, 1000, &charge));
    check_charge(charge, 10 * MS, 20 * MS, 10 * MS);
}

TEST("what is over is charged by estimate before its timing event is there, once")
{
    struct meter_charge charge;
    begin();
    meter_note(&meter, 8, 4 * MS, 0, START + MS);
    CHECK(meter_done(&meter, START + MS, START + 10 * MS, 3 * MS, &charge));
    check_charge(charge, MS, 10 * MS, 3 * MS);
    CHECK_EQ(charge.work_ns, 0);
    CHECK(!meter_done(&meter, START + MS, START + 20 * MS, 3 * MS, &charge));
    CHECK(meter_done(&meter, START + MS, START + 20 * MS, 4 * MS, &charge));
    check_charge(charge, 10 * MS, 20 * MS, MS);
    meter_add_event(&meter, &event[1], START + 30 * MS, &dry);
    CHECK(!meter_done(&meter, START + MS, START + 31 * MS, 9 * MS, &charge));
    charge = pass(START + 30 * MS);
    CHECK_EQ(charge.busy_ns, 0);
    CHECK_EQ(charge.work_ns, 4 * MS);
}

TEST("what another thread launched by estimate beside it is charged over all of the interval, "
     "where it has room")
{
    struct meter_charge charge;
    begin();
    meter_note(&meter, 8, 4 * MS, 0, START + MS);
    CHECK(meter_done(&meter, START + MS, START + 20 * MS, 4 * MS, &charge));
    CHECK(!meter_done(&meter, START + MS, START + 20 * MS, 5 * MS, &charge));
    meter_note(&meter, 8, 5 * MS, 0, START + MS);
    meter_add_event(&meter, &event[1], START + 22 * MS, &dry);
    check_charge(pass(START + 22 * MS), MS, 22 * MS, 5 * MS);
}

TEST("it takes no longer than the device was open to it, and what ran on pays for it")
{
    struct meter_charge charge;
    begin();
    meter_note(&meter, 8, 4 * MS, 0, START);
    CHECK(meter_done(&meter, START, START + 2 * MS, 4 * MS, &charge));
    check_charge(charge, 0, 2 * MS, 2 * MS);
    CHECK(meter_ran(&meter, START + 2 * MS, START + 12 * MS, 1000, &charge));
    CHECK(!meter_done(&meter, START, START + 20 * MS, 4 * MS, &charge));
}

TEST("what was admitted behind a wait is not known to run")
{
    struct meter_charge charge;
    begin();
    meter.open.other = true;
    meter_note(&meter, 8, 4 * MS, 0, START);
    CHECK(!meter_ran(&meter, START, START + 12 * MS, 1000, &charge));
    meter.open.other = false;
    CHECK(meter_ran(&meter, START, START + 12 * MS, 1000, &charge));
}

TEST("what may be waiting for other streams' work keeps its estimate until it is over")
{
    struct meter_charge charge;
    struct meter_run waiting = {.measured = true, .gap_ns = 0, .shared = true};
    begin();
    meter_note(&meter, 1, 5 * MS, KEY, START);
    meter_add_event(&meter, &event[1], START, &waiting);
    for (uint64_t at = 10 * MS; at < 50 * MS; at += 10 * MS) {
        CHECK(meter_run_on(&meter, START + at, 1000, &charge));
        check_charge(charge, at - 10 * MS, at, 10 * MS);
        CHECK_EQ(charge.work_ns, 0);
    }
    charge = pass(START + 50 * MS);
    CHECK_EQ(charge.from_ns - START, 40 * MS);
    CHECK_EQ(charge.work_ns, 5 * MS);
}

TEST("nothing runs on where nothing is known to run")
{
    struct meter_charge charge;
    const uint64_t late = START + 1000 * MS;
    CHECK(!meter_run_on(&meter, late, 1000, &charge));
    meter_note(&meter, 1, US, KEY, START);
    meter_add_event(&meter, &event[0], START, &continuous);
    CHECK(!meter_run_on(&meter, late, 1000, &charge)); /* when it began is not known */
    (void)pass(START);
    meter_add_event(&meter, &event[0], START, &continuous);
    CHECK(!meter_run_on(&meter, late, 1000, &charge)); /* no launch */
    (void)pass(START);
    meter_note(&meter, 1, US, KEY, START);
    meter.open.other = true;
    meter_add_event(&meter, &event[0], START, &continuous);
    CHECK(!meter_run_on(&meter, late, 1000, &charge));
}

TEST("where the stream may have run dry, what runs on is charged from its timing event on")
{
    struct meter_charge charge;
    begin();
    meter_note(&meter, 3, 30 * US, KEY, START + MS);
    meter_add_event(&meter, &event[1], START + 10 * MS, &dry);
    CHECK(!meter_run_on(&meter, START + 12 * MS, 1000, &charge));
    CHECK(meter_run_on(&meter, START + 50 * MS, 1000, &charge));
    check_charge(charge, 10 * MS, 50 * MS, 40 * MS);
    CHECK_EQ(charge.work_ns, 30 * US);
    charge = pass(START + 60 * MS);
    check_charge(charge, 50 * MS, 60 * MS, 10 * MS);
    CHECK_EQ(charge.work_ns, 0);
}

TEST("a timing event that was reached before what was charged already gives the rest back")
{
    struct meter_charge charge;
    begin();
    meter_note(&meter, 1, MS, KEY, START);
    meter_add_event(&meter, &event[1], START, &continuous);
    CHECK(meter_run_on(&meter, START + 50 * MS, 1000, &charge));
    int64_t sum = (int64_t)MS + (int64_t)charge.busy_ns - (int64_t)charge.work_ns;
    charge = pass(START + 45 * MS);
    sum += (int64_t)charge.busy_ns - (int64_t)charge.work_ns;
    CHECK(sum >= (int64_t)(45 * MS) && sum <= (int64_t)(50 * MS));
    CHECK(charge.from_ns <= charge.to_ns);
}

TEST("the interval after one that ran on begins anew")
{
    struct meter_charge charge;
    CHECK_EQ(charged_in_all(MS, 100 * MS, 10 * MS, continuous), 100 * MS);
    meter_note(&meter, 4, 2 * MS, KEY, START + 100 * MS);
    meter_add_event(&meter, &event[2], START + 100 * MS, &continuous);
    CHECK(!meter_run_on(&meter, START + 103 * MS, 1000, &charge));
    charge = pass(START + 105 * MS);
    check_charge(charge, 100 * MS, 105 * MS, 5 * MS);
    CHECK_EQ(charge.work_ns, 2 * MS);
}

/* ---- the ring ---- */

TEST("timing events come out in their order, through many rounds of a ring that is full")
{
    unsigned in = 0, out = 0;
    struct meter_charge charge;
    CHECK(meter_front(&meter) == NULL);
    for (unsigned round = 0; round < 5; round++) {
        while (!meter_is_full(&meter))
            meter_add_event(&meter, &event[in++ % METER_EVENTS], START, &dry);
        CHECK_EQ(meter.count, METER_EVENTS);
        for (unsigned i = 0; i < 100; i++, out++) {
            CHECK(meter_front(&meter)->handle == &event[out % METER_EVENTS]);
            CHECK(meter_pass(&meter, START + out, &charge) == &event[out % METER_EVENTS]);
        }
        CHECK(!meter_is_full(&meter));
    }
    while (meter.count)
        CHECK(meter_forget(&meter) == &event[out++ % METER_EVENTS]);
    CHECK_EQ(in, out);
}

TEST("launches that nobody knows the duration of are counted until their timing event is out")
{
    struct meter_charge charge;
    for (unsigned i = 0; i < 6; i++) {
        meter_note(&meter, 1, i % 2 ? 5 : 0, KEY, START);
        meter_add_event(&meter, &event[i], START, &continuous);
    }
    meter_add_event(&meter, &event[6], START, &continuous);
    CHECK_EQ(meter.unknown, 3);
    (void)pass(START + 1);
    CHECK_EQ(meter.unknown, 2);
    (void)meter_run_on(&meter, START + 100 * MS, 1000, &charge);
    (void)pass(START + 110 * MS);
    (void)meter_run_on(&meter, START + 200 * MS, 1000, &charge); /* of one that is not known */
    CHECK_EQ(meter.unknown, 2);
    while (meter.count)
        (void)meter_forget(&meter);
    CHECK_EQ(meter.unknown, 0);
}

TEST("a timing event that is forgotten takes what was charged before its end with it")
{
    struct meter_charge charge;
    begin();
    for (unsigned i = 1; i < 3; i++) {
        meter_note(&meter, 1, MS, KEY, START);
        meter_add_event(&meter, &event[i], START, &continuous);
    }
    CHECK(meter_run_on(&meter, START + 50 * MS, 1000, &charge));
    CHECK(meter_forget(&meter) == &event[1]);
    CHECK_EQ(meter.count, 1);
    CHECK(meter_front(&meter)->handle == &event[2]);
    check_charge(pass(START + 60 * MS), 0, 60 * MS, 60 * MS);
}

/* ---- sums are set right ---- */

/* One interval of 20 launches that begins where the last one was over. */
static struct meter_charge interval(
    uint64_t from, uint64_t wall, uint64_t work, struct meter_run run)
{
    meter_note(&meter, 20, work, 0, from);
    meter_add_event(&meter, &event[1], from + 1, &run);
    return pass(from + wall);
}

/* What an interval with something else in it is charged for launches that are thought to take 1
 * ms. */
static uint64_t charged_for_ms(uint64_t from)
{
    meter.open.other = true;
    return interval(from, 10 * MS, MS, dry).busy_ns;
}

static void check_near(uint64_t value, uint64_t expected)
{
    CHECK(value + US > expected && value < expected + US);
}

TEST("what intervals that never ran dry take more or less than their sums is added to other sums")
{
    const int64_t more_us[] = {30, -40};
    for (unsigned i = 0; i < 2; i++) {
        uint64_t at = START, wall = (uint64_t)((int64_t)MS + more_us[i] * (int64_t)US);
        meter = (struct stream_meter){0};
        begin();
        for (unsigned n = 0; n < 1000; n++, at += wall)
            CHECK_EQ(interval(at, wall, MS, continuous).busy_ns, wall);
        uint64_t charged = charged_for_ms(at);
        CHECK(charged + 2 * US > wall && charged < wall + 2 * US);
    }
}

TEST("one interval that took a little longer changes sums a little")
{
    begin();
    (void)interval(START, 1200 * US, MS, continuous);
    uint64_t charged = charged_for_ms(START + 1200 * US);
    CHECK(charged > MS && charged < 1100 * US);
}

TEST("sums follow when the stream's work changes")
{
    uint64_t at = START;
    begin();
    for (unsigned n = 0; n < 1000; n++, at += 1100 * US)
        (void)interval(at, 1100 * US, MS, continuous);
    for (unsigned n = 0; n < 1000; n++, at += MS)
        (void)interval(at, MS, MS, continuous);
    check_near(charged_for_ms(at), MS);
}

TEST("only intervals of many launches that were alone and never ran dry say something on sums")
{
    uint64_t at = START;
    begin();
    for (unsigned n = 0; n < 100; n++) {
        (void)interval(at, 1200 * US, MS, dry);
        (void)interval(
            at + 2 * MS, 1200 * US, MS, (struct meter_run){.continuous = true, .shared = true});
        (void)interval(at + 4 * MS, 30 * MS, MS, continuous); /* something else was there */
        meter_note(&meter, 2, MS, 0, at + 40 * MS);
        meter_add_event(&meter, &event[1], at + 40 * MS, &continuous);
        (void)pass(at + 41200 * US);
        at += 50 * MS;
    }
    check_near(charged_for_ms(at), MS);
}

TEST("where others are at work a launch is charged from when it stood at the device's door")
{
    begin();
    meter_add_event(&meter, &event[1], START + 10 * US, &dry);
    (void)pass(START + 110 * US); /* the device turned to this process late */
    meter_note(&meter, 1, MS, KEY, START + 14 * US);
    meter_add_event(&meter, &event[2], START + 15 * US,
        &(struct meter_run){.measured = true, .shared = true, .gap_ns = 4 * US});
    struct meter_charge charge = pass(START + 1110 * US);
    check_charge(charge, 10 * US, 1110 * US, 1096 * US + METER_BEGIN_NS);
}

TEST("what is to be looked for is what may have run for long, and when it may have")
{
    const uint64_t least = 10 * MS;
    CHECK_EQ(meter_long_in_ns(&meter, START, least), UINT64_MAX);
    begin();
    meter_note(&meter, 4, 4 * MS, 0, START);
    meter_add_event(&meter, &event[1], START, &continuous);
    CHECK_EQ(meter_long_in_ns(&meter, START + 3 * MS, least), UINT64_MAX);
    /* It ought to be over. */
    CHECK_EQ(meter_long_in_ns(&meter, START + 6 * MS + 1, least), 4 * MS - 1);
    CHECK_EQ(meter_long_in_ns(&meter, START + 11 * MS, least), 0);
    (void)pass(START + 20 * MS);
    meter_note(&meter, 1, 30 * MS, KEY, START + 20 * MS);
    meter_add_event(&meter, &event[2], START + 20 * MS, &continuous);
    CHECK_EQ(meter_long_in_ns(&meter, START + 21 * MS, least), 9 * MS);
    (void)pass(START + 50 * MS);
    meter_note(&meter, 1, 0, KEY, START + 50 * MS);
    meter_add_event(&meter, &event[3], START + 50 * MS, &continuous);
    CHECK_EQ(meter_long_in_ns(&meter, START + 50 * MS, least), least);
}

int main(int argc, char **argv)
{
    return check_run(argc, argv);
}
