/* SPDX-License-Identifier: Apache-2.0 */
/* Spot checks: a process that does what it is charged with is hardly ever distrusted, one that does
 * more is soon, and what the checks see that is no kernel ends them. */
#include "compute/spot_check.h"

#include "check.h"

#include <stdio.h>
#include <string.h>

#define MS 1000000ull
#define SECOND 1000000000ull
#define START (5000 * SECOND)

static struct spot_checks checks;
static uint64_t now_ns;
static uint32_t chance;

/* A program that is at work for so much of the time, and charged with so much. */
struct program {
    unsigned works, told, permille;
    unsigned launches; /* a second */
};

static unsigned draw(unsigned below)
{
    chance = chance * 1664525u + 1013904223u;
    return (unsigned)((uint64_t)(chance >> 8) * below >> 24);
}

static bool ask(const struct program *program)
{
    uint64_t passed = (80 + draw(41)) * MS;
    now_ns += passed;
    const struct spot_check check = {.now_ns = now_ns,
        .passed_ns = passed,
        .works = draw(1000) < program->works,
        .permille = program->permille ? program->permille : 1000,
        .told_ns = passed / 1000 * program->told,
        .launches = passed * program->launches / SECOND};
    return spot_check_note(&checks, &check);
}

static void begin(void)
{
    memset(&checks, 0, sizeof(checks));
    now_ns = START;
    chance = 7;
}

/* How long until it is distrusted, at most so long. */
static uint64_t until_distrusted(const struct program *program, uint64_t most_ns)
{
    uint64_t from = now_ns;
    while (now_ns < from + most_ns) {
        if (ask(program))
            break;
    }
    return now_ns - from;
}

/* How long it is distrusted from now on. */
static uint64_t while_distrusted(const struct program *program)
{
    uint64_t from = now_ns;
    while (ask(program)) {
    }
    return now_ns - from;
}

/* Of an hour. */
static uint64_t distrusted_ns(const struct program *program)
{
    uint64_t distrusted = 0;
    begin();
    while (now_ns < START + 3600 * SECOND) {
        uint64_t from = now_ns;
        if (ask(program))
            distrusted += now_ns - from;
    }
    return distrusted;
}

TEST("a process that does what it is charged with is distrusted for less than a hundredth of the "
     "time")
{
    for (unsigned part = 0; part <= 1000; part += 50) {
        struct program honest = {.works = part, .told = part};
        uint64_t distrusted = distrusted_ns(&honest);
        if (!CHECK(distrusted < 36 * SECOND))
            printf("# %u: %llu s\n", part, (unsigned long long)(distrusted / SECOND));
    }
}

TEST("also where each launch is on its way for some time")
{
    struct program waits = {.works = 600, .told = 440, .launches = 20000};
    CHECK(distrusted_ns(&waits) < 36 * SECOND);
}

TEST("a process that does much more than it is charged with is distrusted within a second")
{
    struct program more = {.works = 990, .told = 200};
    begin();
    CHECK(until_distrusted(&more, 60 * SECOND) < SECOND);
}

TEST("and who does a tenth of the device's time more, within half a minute")
{
    struct program more = {.works = 300, .told = 200};
    begin();
    CHECK(until_distrusted(&more, 60 * SECOND) < 30 * SECOND);
}

TEST("what was charged and not seen makes up for little of what comes")
{
    struct program less = {.works = 0, .told = 500}, more = {.works = 990, .told = 200};
    begin();
    for (int i = 0; i < 10000; i++)
        (void)ask(&less);
    CHECK(until_distrusted(&more, 60 * SECOND) < 10 * SECOND);
}

TEST("beside others only what is surely ours of the time counts")
{
    struct program beside = {.works = 990, .told = 450, .permille = 450};
    CHECK(distrusted_ns(&beside) < 36 * SECOND);
    beside.told = 200;
    begin();
    CHECK(until_distrusted(&beside, 60 * SECOND) < 5 * SECOND);
}

TEST("distrust that was right is over after a while, and lasts longer the next time")
{
    struct program more = {.works = 990, .told = 200}, measured = {.works = 200, .told = 200};
    begin();
    for (uint64_t lasts = SPOT_CHECK_DISTRUST_NS; lasts <= SPOT_CHECK_DISTRUST_MOST_NS;
         lasts *= 2) {
        (void)until_distrusted(&more, 60 * SECOND);
        uint64_t lasted = while_distrusted(&measured);
        CHECK(lasted >= lasts && lasted < lasts + SECOND);
    }
    (void)until_distrusted(&more, 60 * SECOND);
    CHECK(while_distrusted(&measured) < SPOT_CHECK_DISTRUST_MOST_NS + SECOND);
    now_ns += SPOT_CHECK_SOON_NS + SECOND;
    (void)until_distrusted(&more, 60 * SECOND);
    CHECK(while_distrusted(&measured) < SPOT_CHECK_DISTRUST_NS + SECOND);
}

TEST("one that sees the same where each launch is measured is over soon, and no other follows")
{
    struct program copies = {.works = 900, .told = 100};
    begin();
    for (uint64_t silent = SPOT_CHECK_WRONG_NS; silent <= 4 * SPOT_CHECK_WRONG_NS; silent *= 2) {
        CHECK(until_distrusted(&copies, 60 * SECOND) < 5 * SECOND);
        CHECK(while_distrusted(&copies) < SECOND);
        CHECK(until_distrusted(&copies, silent - SECOND) >= silent - SECOND);
    }
}

int main(int argc, char **argv)
{
    return check_run(argc, argv);
}
