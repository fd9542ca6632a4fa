/* SPDX-License-Identifier: Apache-2.0 */
/* How much of a busy interval is new: against a reference that keeps each span for ever, and
 * against the union of the intervals. */
#include "compute/budget.h"

#include "check.h"

#define SPAN ((uint64_t)VGPU_COMPUTE_SPAN_NS)
#define RING ((uint64_t)VGPU_COMPUTE_SPANS * SPAN)
#define HALF (RING / 2)
#define BASE (RING * 1000) /* begins a turn of the ring */
#define REFERENCE_SPANS 16384u

static struct vgpu_compute words;
static uint64_t reference[REFERENCE_SPANS]; /* busy nanoseconds of the spans from BASE on */
static uint8_t microseconds[REFERENCE_SPANS * VGPU_COMPUTE_SPAN_NS / 1024];
static uint64_t seed = 88172645463325252ull;

static uint64_t random_below(uint64_t bound)
{
    seed ^= seed << 13;
    seed ^= seed >> 7;
    seed ^= seed << 17;
    return seed % bound;
}

static uint64_t occupy(uint64_t from, uint64_t to)
{
    return budget_occupy(&words, from, to, to - from);
}

/* What is new of an interval that was busy throughout. */
static uint64_t expect(uint64_t from, uint64_t to)
{
    uint64_t taken = 0;
    for (uint64_t at = from; at < to;) {
        uint64_t end = (at / SPAN + 1) * SPAN;
        uint64_t *fill = &reference[(at - BASE) / SPAN];
        uint64_t part = (end < to ? end : to) - at, room = SPAN - *fill;
        *fill += part < room ? part : room;
        taken += part < room ? part : room;
        at = end;
    }
    return taken;
}

/* Enters into the union, in steps of 1024 ns; what of it is new. */
static uint64_t unite(uint64_t from, uint64_t to)
{
    uint64_t taken = 0;
    for (uint64_t at = (from - BASE) / 1024; at < (to - BASE) / 1024; at++) {
        taken += microseconds[at] ? 0 : 1024;
        microseconds[at] = 1;
    }
    return taken;
}

TEST("what nobody entered is new as a whole")
{
    CHECK_EQ(occupy(BASE, BASE + 10 * SPAN), 10 * SPAN);
    CHECK_EQ(occupy(BASE + 20 * SPAN + 5, BASE + 20 * SPAN + 6), 1);
    CHECK_EQ(words.busy_ns, 10 * SPAN + 1);
}

TEST("what was entered is not new again: whole, within, overlapping, adjoining")
{
    CHECK_EQ(occupy(BASE, BASE + 100 * SPAN), 100 * SPAN);
    CHECK_EQ(occupy(BASE, BASE + 100 * SPAN), 0);
    CHECK_EQ(occupy(BASE + 10 * SPAN + 77, BASE + 20 * SPAN + 99), 0);
    CHECK_EQ(occupy(BASE + 90 * SPAN, BASE + 110 * SPAN), 10 * SPAN);
    CHECK_EQ(occupy(BASE + 110 * SPAN, BASE + 120 * SPAN), 10 * SPAN);
    CHECK_EQ(occupy(BASE - 5 * SPAN, BASE + 125 * SPAN), 10 * SPAN);
    CHECK_EQ(words.busy_ns, 130 * SPAN);
}

TEST("nothing busy, an empty interval and one that ends before it begins are nothing")
{
    CHECK_EQ(budget_occupy(&words, BASE, BASE + SPAN, 0), 0);
    CHECK_EQ(budget_occupy(&words, BASE, BASE, SPAN), 0);
    CHECK_EQ(budget_occupy(&words, BASE + SPAN, BASE, SPAN), 0);
    CHECK_EQ(words.busy_ns, 0);
}

TEST("busy for longer than the interval is busy for the interval")
{
    CHECK_EQ(budget_occupy(&words, BASE, BASE + 5 * SPAN, UINT64_MAX), 5 * SPAN);
    CHECK_EQ(words.busy_ns, 5 * SPAN);
}

TEST("busy for a part of the interval is that part, spread over it")
{
    CHECK_EQ(budget_occupy(&words, BASE, BASE + 100 * SPAN, 25 * SPAN), 25 * SPAN);
    for (unsigned i = 0; i < 100; i++)
        CHECK_EQ(occupy(BASE + i * SPAN, BASE + (i + 1) * SPAN), SPAN - SPAN / 4);
}

TEST("random intervals within the spans kept are told apart to the nanosecond of each span")
{
    for (unsigned round = 0; round < 40; round++) {
        uint64_t window = BASE + random_below(8) * HALF / 3, taken = 0, wanted = 0;
        memset(&words, 0, sizeof(words));
        memset(reference, 0, sizeof(reference));
        for (unsigned i = 0; i < 400; i++) {
            uint64_t from = window + random_below(HALF);
            uint64_t to = from + 1 + random_below(i % 3 ? 4 * SPAN : HALF);
            uint64_t got = occupy(from, to), want = expect(from, to);
            if (!CHECK_EQ(got, want))
                return;
            taken += got;
            wanted += want;
        }
        CHECK_EQ(words.busy_ns, wanted);
        CHECK_EQ(taken, wanted);
    }
}

TEST("random intervals on a clock that goes on are their union, to a span at each end")
{
    uint64_t taken = 0, wanted = 0, now = BASE + HALF;
    unsigned count = 0;
    for (; now < BASE + (REFERENCE_SPANS - 2100) * SPAN; count++) {
        now += random_below(2 * SPAN / 1024) * 1024;
        uint64_t from = now - random_below(HALF / 2 / 1024) * 1024;
        uint64_t to = from + (1 + random_below(HALF / 2 / 1024)) * 1024;
        if (to > now)
            to = now;
        if (to <= from)
            continue;
        taken += occupy(from, to);
        wanted += unite(from, to);
    }
    CHECK(taken >= wanted);
    CHECK(taken - wanted <= 2 * SPAN * count);
    CHECK_EQ(words.busy_ns, taken);
}

TEST("processes that share the GPU in turns of 2 ms are charged the time, not its double")
{
    uint64_t taken = 0;
    const uint64_t slice = 2000000, turns = 1000;
    for (uint64_t i = 0; i + 2 < turns; i++) /* each waits for the other's turn within its own */
        taken += occupy(BASE + i * slice, BASE + (i + 2) * slice);
    CHECK_EQ(taken, (turns - 1) * slice);
}

TEST("a very long interval is entered at once, and its end is known")
{
    const uint64_t day = 86400000000000ull;
    CHECK_EQ(occupy(BASE, BASE + day), day);
    CHECK_EQ(occupy(BASE + day - HALF + SPAN, BASE + day), 0);
    CHECK_EQ(budget_occupy(&words, 0, INT64_MAX, 1), 1);
    CHECK(occupy(1, INT64_MAX) <= INT64_MAX);
}

TEST("of a long interval no more is new than its length, of its half busy no more than the half")
{
    for (unsigned i = 0; i < 2000; i++) {
        uint64_t length = 1 + random_below(20 * RING), busy = 1 + random_below(length);
        uint64_t from = BASE + random_below(50 * RING);
        CHECK(budget_occupy(&words, from, from + length, busy) <= busy);
    }
}

TEST("an interval of long ago is new as a whole")
{
    for (uint64_t ago = 1; ago < 100; ago++) {
        uint64_t now = BASE + 200 * RING;
        memset(&words, 0, sizeof(words));
        CHECK_EQ(occupy(now, now + HALF), HALF);
        CHECK_EQ(occupy(now - ago * RING, now - ago * RING + HALF), HALF);
    }
}

/* A process that was stopped, say. */
TEST("an interval of up to a second ago leaves what was entered since")
{
    for (uint64_t ago = 1; ago < 16; ago++) {
        uint64_t now = BASE + 200 * RING;
        memset(&words, 0, sizeof(words));
        CHECK_EQ(occupy(now, now + HALF), HALF);
        CHECK_EQ(occupy(now - ago * RING, now - ago * RING + HALF), HALF);
        CHECK_EQ(occupy(now, now + HALF), 0);
    }
}

TEST("after a clock that began anew the spans of before do not hold")
{
    uint64_t now = BASE + 5000 * RING;
    CHECK_EQ(occupy(now, now + HALF), HALF);
    CHECK_EQ(occupy(BASE, BASE + HALF), HALF);
    CHECK_EQ(occupy(BASE, BASE + HALF), 0);
}

TEST("spans of any value do no harm")
{
    for (unsigned round = 0; round < 200; round++) {
        for (unsigned i = 0; i < VGPU_COMPUTE_SPANS; i++)
            words.spans[i] = round % 2 ? (uint32_t)random_below(1ull << 32) : UINT32_MAX - round;
        words.busy_ns = random_below(UINT64_MAX);
        uint64_t from = random_below(INT64_MAX), length = random_below(2 * HALF);
        CHECK(occupy(from, from + length) <= length);
    }
    for (unsigned i = 0; i < VGPU_COMPUTE_SPANS; i++) /* this turn's, filled beyond their length */
        words.spans[i] = (uint32_t)(BASE / RING) << 16 | 0xffff;
    CHECK_EQ(occupy(BASE, BASE + RING / 2), 0);
}

int main(int argc, char **argv)
{
    return check_run(argc, argv);
}
