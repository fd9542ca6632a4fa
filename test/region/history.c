/* SPDX-License-Identifier: Apache-2.0 */
/* What a device's marks tell of the last second and the last minute. */
#include "peers.h"

#include "base/atomic.h"
#include "base/clock.h"
#include "check.h"
#include "region/region_history.h"

#include <string.h>

#define MS 1000000ull
#define SECOND 1000000000ull
#define START (1000 * SECOND) /* when the container first works */

static struct vgpu_region region;
static uint64_t seed = 88172645463325252ull;

static uint64_t next_random(void)
{
    seed ^= seed << 13;
    seed ^= seed >> 7;
    return seed ^= seed << 17;
}

static void work(uint64_t at_ns, uint64_t busy_ns)
{
    uint64_t former = region.compute[3].busy_ns;
    region.compute[3].busy_ns += busy_ns;
    region_history_note(&region, 3, former, at_ns);
}

/* `permille` of the time between two moments, noted each 10 ms. */
static void work_evenly(uint64_t from_ns, uint64_t to_ns, unsigned permille)
{
    for (uint64_t at = from_ns; at < to_ns; at += 10 * MS)
        work(at, 10 * MS / 1000 * permille);
}

struct share {
    bool known;
    uint64_t busy_ms, span_ms;
};

static struct share share(uint64_t now_ns, uint64_t span_ns)
{
    uint64_t busy = 0, span = 0;
    bool known = region_history_share(
        &region.history[3], region.compute[3].busy_ns, now_ns, span_ns, &busy, &span);
    return (struct share){known, (busy + MS / 2) / MS, (span + MS / 2) / MS};
}

TEST("of a device that nobody worked on nothing is known")
{
    uint64_t busy = 7, span = 7;
    CHECK(!region_history_share(&region.history[3], 0, START, SECOND, &busy, &span));
    CHECK_EQ(busy + span, 14);
}

TEST("even work is seen over a second and over a minute")
{
    work_evenly(START, START + 100 * SECOND, 300);
    struct share second = share(START + 100 * SECOND, SECOND);
    CHECK(second.known && second.span_ms == 1000);
    CHECK(second.busy_ms >= 285 && second.busy_ms <= 315);
    struct share minute = share(START + 100 * SECOND, 60 * SECOND);
    CHECK(minute.known && minute.span_ms == 60000);
    CHECK(minute.busy_ms >= 17900 && minute.busy_ms <= 18100);
}

TEST("who began a while ago is known since then")
{
    work_evenly(START, START + 10 * SECOND, 500);
    struct share minute = share(START + 10 * SECOND, 60 * SECOND);
    CHECK(minute.known);
    CHECK_EQ(minute.span_ms, 10000);
    CHECK(minute.busy_ms >= 4950 && minute.busy_ms <= 5050);
    CHECK_EQ(share(START + 30 * SECOND, 60 * SECOND).span_ms, 30000);
}

TEST("two seconds after the last work the last second is idle, and a minute later all of it")
{
    work_evenly(START, START + 30 * SECOND, 1000);
    CHECK_EQ(share(START + 32 * SECOND, SECOND).busy_ms, 0);
    struct share minute = share(START + 60 * SECOND, 60 * SECOND);
    CHECK(minute.busy_ms >= 29900 && minute.busy_ms <= 30010);
    CHECK_EQ(share(START + 95 * SECOND, 60 * SECOND).busy_ms, 0);
    CHECK_EQ(share(START + 95 * SECOND, 60 * SECOND).span_ms, 60000);
}

TEST("short work now and then is seen where it was, not between")
{
    for (int i = 0; i < 20; i++)
        work_evenly(
            START + (uint64_t)i * 10 * SECOND, START + (uint64_t)i * 10 * SECOND + 200 * MS, 1000);
    uint64_t last = START + 190 * SECOND;
    CHECK_EQ(share(last + 5 * SECOND, SECOND).busy_ms, 0);
    struct share just_now = share(last + 250 * MS, SECOND);
    CHECK(just_now.busy_ms >= 190 && just_now.busy_ms <= 200);
    CHECK_EQ(share(last + 5 * SECOND, 60 * SECOND).busy_ms, 1200);
}

TEST("marks of before the machine's last start are not believed")
{
    work_evenly(START, START + 100 * SECOND, 900);
    work_evenly(20 * SECOND, 30 * SECOND, 100);
    struct share minute = share(30 * SECOND, 60 * SECOND);
    CHECK_EQ(minute.span_ms, 10000);
    CHECK(minute.busy_ms >= 990 && minute.busy_ms <= 1010);
    struct share second = share(30 * SECOND, SECOND);
    CHECK(second.busy_ms >= 90 && second.busy_ms <= 110);
}

TEST("a mark that a killed process left half written costs that mark alone")
{
    work_evenly(START, START + 100 * SECOND, 400);
    struct vgpu_history *history = &region.history[3];
    history->marks[(history->made - 5) % VGPU_HISTORY_MARKS].time_ns = 0;
    history->marks[history->made % VGPU_HISTORY_MARKS].time_ns = 0;
    history->made++; /* claimed, and never written */
    struct share minute = share(START + 100 * SECOND, 60 * SECOND);
    CHECK_EQ(minute.span_ms, 60000);
    CHECK(minute.busy_ms >= 23900 && minute.busy_ms <= 24100);
    uint64_t made = history->made;
    work(START + 100 * SECOND, MS);
    CHECK_EQ(history->made, made + 1);
}

TEST("whatever the file says, no more is told than the span, and nothing outside is touched")
{
    struct vgpu_history *history = &region.history[3];
    for (int round = 0; round < 20000; round++) {
        uint64_t *words = (uint64_t *)(void *)history;
        for (unsigned i = 0; i < sizeof(*history) / sizeof(*words); i++) {
            uint64_t value = next_random();
            words[i] = value % 3 ? value >> (value >> 58) : START + value % (100 * SECOND);
        }
        region.compute[3].busy_ns = next_random() >> (round % 64);
        uint64_t now = round % 2 ? START + 50 * SECOND : next_random(), span = next_random() >> 20;
        uint64_t busy = 0, known = 0;
        if (region_history_share(
                &region.history[3], region.compute[3].busy_ns, now, span, &busy, &known))
            REQUIRE(known > 0 && known <= span && busy <= known);
        region_history_note(&region, 3, next_random(), now);
    }
    memset(&region.history[3], 0, sizeof(region.history[3]));
    region.compute[3].busy_ns = 0;
    for (size_t i = 0; i < sizeof(region); i++)
        REQUIRE(((const unsigned char *)&region)[i] == 0);
}

static void add_busy(struct vgpu_compute *words, struct vgpu_usage *own, void *argument)
{
    (void)own;
    add_relaxed(&words->busy_ns, *(uint64_t *)argument);
}

TEST("what processes add to the busy time is marked, once a second")
{
    peers_begin();
    unsigned device = peers_join("1g");
    uint64_t added = 5 * MS, none = 0, busy, span;
    const struct vgpu_region *shared = peers_region.shared;
    CHECK(account_visit_compute(device, add_busy, &none));
    CHECK_EQ(load_relaxed(&shared->history[0].made), 0);
    uint64_t begin = clock_now_ns();
    for (int i = 0; i < 50; i++)
        CHECK(account_visit_compute(device, add_busy, &added));
    uint64_t made = load_relaxed(&shared->history[0].made), end = clock_now_ns();
    CHECK(made >= 1 && made <= 1 + (end - begin) / SECOND);
    REQUIRE(region_history_share(&shared->history[0], load_acquire(&shared->compute[0].busy_ns),
        end + SECOND, 60 * SECOND, &busy, &span));
    CHECK_EQ(busy, 250 * MS);
}

int main(int argc, char **argv)
{
    return check_run(argc, argv);
}
