/* SPDX-License-Identifier: Apache-2.0 */
/* 64 tenants of one GPU over simulated minutes: their boards, time slices, budgets and windows are
 * the real ones, the GPU and the clock are not. Some come in step with the refills and the windows,
 * some die, some lie. An honest one keeps to its limit, has its fair part, and is never stopped for
 * good. */
#include "compute/budget.h"
#include "compute/slices.h"
#include "compute/window.h"
#include "registry/registry.h"

#include "check.h"
#include "scratch.h"

#define US 1000ull
#define MS 1000000ull
#define SECOND (1000 * MS)
#define TENANTS 64
#define STEP_NS (250 * US) /* the GPU's model: nothing is shorter */
#define SWITCH_NS (185 * US)
#define PLAIN_NS (2048 * US)
#define LOOK_NS (10 * MS)
#define UUID "GPU-00000000-0000-0000-0000-000000000001"

enum nature {
    BUSY,       /* short kernels without end, held by the launch gate */
    PERSISTENT, /* one kernel without end, held in windows */
    IN_STEP,    /* works for half of each period, which is that of refills and looks */
    DYING,      /* is killed each second, and begins anew */
    LYING,      /* says what it likes, and keeps to no limit of its own */
};

struct tenant {
    enum nature nature;
    unsigned percent, priority;
    uint64_t period_ns, begun_ns;
    struct registry board;
    struct slices slices;
    struct slices_part part;
    struct vgpu_compute words;
    uint64_t looks_ns, closed_until_ns, slice_ns;
    uint64_t left_ns; /* of what its gate admitted */
    bool holds, in_windows, only_lies;
    uint64_t gpu_ns, ran_ns, longest_ns; /* in all; last; the longest pause */
};

static struct tenant tenants[TENANTS];
static unsigned count;
static uint64_t now, slice_left, switch_left;
static unsigned turn;
static unsigned seed = 7;
static char directory[64];

static struct tenant *add(enum nature nature, unsigned percent, unsigned priority)
{
    struct tenant *tenant = &tenants[count++];
    *tenant = (struct tenant){.nature = nature, .percent = percent, .priority = priority};
    tenant->part = (struct slices_part){.permille = 1000, .likely = 1000};
    tenant->looks_ns = now + count * 137 * US;
    tenant->ran_ns = now;
    tenant->slice_ns = PLAIN_NS;
    REQUIRE(registry_attach(&tenant->board, directory, UUID, 1000 + count, "tenant") == 0);
    return tenant;
}

static void begin(void)
{
    now = 5000 * SECOND;
    REQUIRE(scratch_make(directory));
}

/* ---- what a tenant wants, and what it may ---- */

static bool wants(const struct tenant *tenant)
{
    if (tenant->nature == IN_STEP)
        return now % tenant->period_ns < tenant->period_ns / 2;
    return true;
}

/* A tenant that waits at the gate asks again after 20 ms, whatever it waits for. */
static int64_t opens_at(const struct tenant *tenant)
{
    int64_t soon = (int64_t)(20 * MS / 100 * tenant->percent) / 2;
    return soon < BUDGET_OPEN_NS ? soon : BUDGET_OPEN_NS;
}

static bool may_run(const struct tenant *tenant)
{
    if (!wants(tenant))
        return false;
    if (tenant->nature == LYING)
        return !tenant->only_lies;
    if (tenant->holds || now < tenant->closed_until_ns)
        return false;
    return tenant->nature == PERSISTENT || tenant->left_ns ||
           budget_balance(&tenant->words) > opens_at(tenant);
}

/* What ran is known exactly of short kernels; of one without end, by its part of the time in which
 * it could have run. */
static void charge(struct tenant *tenant, bool ran)
{
    if (tenant->nature == PERSISTENT) {
        if (may_run(tenant))
            budget_charge(&tenant->words, (int64_t)(STEP_NS * tenant->part.likely / 1000));
    } else if (ran) {
        budget_charge(&tenant->words, (int64_t)STEP_NS);
        /* A gate that opened lets so much go at once. */
        uint64_t left = tenant->left_ns ? tenant->left_ns : (uint64_t)opens_at(tenant);
        tenant->left_ns = left > STEP_NS ? left - STEP_NS : 0;
    }
}

/* ---- the governor's look ---- */

static void lie(struct tenant *tenant)
{
    struct registry_own said = {.active = !tenant->priority || rand_r(&seed) % 8,
        .wants = true,
        .saturating = rand_r(&seed) % 2,
        .core_limit = 1 + (uint32_t)rand_r(&seed) % 100,
        .priority = tenant->priority,
        .busy_ns = (uint64_t)rand_r(&seed) << (rand_r(&seed) % 40)};
    registry_publish(&tenant->board, &said, now + (uint64_t)(rand_r(&seed) % 900) * MS);
}

static void windows(struct tenant *tenant)
{
    struct window_view view = {.balance_ns = budget_balance(&tenant->words),
        .percent = tenant->percent,
        .runs_on = tenant->nature == PERSISTENT,
        .in_windows = tenant->in_windows};
    uint64_t closed = window_close_ns(&view);
    if (!closed)
        return;
    tenant->in_windows = true;
    tenant->closed_until_ns = now + closed;
}

static void look(struct tenant *tenant)
{
    struct registry_view view;
    (void)budget_refill(&tenant->words, tenant->percent, now);
    tenant->looks_ns = now + LOOK_NS;
    if (tenant->nature == LYING) {
        lie(tenant);
        return;
    }
    struct registry_own said = {.active = !tenant->holds && wants(tenant),
        .saturating = tenant->slices.saturating,
        .core_limit = tenant->percent,
        .priority = tenant->priority,
        .busy_ns = tenant->gpu_ns};
    registry_publish(&tenant->board, &said, now);
    registry_look(&tenant->board, now, &view);
    slices_rate(&tenant->slices, tenant->gpu_ns, &view, now);
    uint64_t slice = slices_length_us(&tenant->slices, &view, tenant->percent) * US;
    tenant->slice_ns = slice ? slice : PLAIN_NS;
    tenant->part = slices_part(&tenant->slices, &view, tenant->percent);
    tenant->holds = slices_give_way(&tenant->slices, &view, now);
    if (now >= tenant->closed_until_ns)
        windows(tenant);
}

/* Killed, and begun anew: another slot of the board, none of what was known. */
static void die(struct tenant *tenant)
{
    tenant->begun_ns = now;
    registry_reset(&tenant->board);
    tenant->slices = (struct slices){.saturating = false};
    REQUIRE(registry_attach(
                &tenant->board, directory, UUID, (uint64_t)rand_r(&seed) + 100000, "tenant") == 0);
}

/* ---- the GPU ---- */

static struct tenant *next_turn(void)
{
    if (slice_left >= STEP_NS && may_run(&tenants[turn]))
        return &tenants[turn];
    for (unsigned i = 1; i <= count; i++) {
        unsigned next = (turn + i) % count;
        if (!may_run(&tenants[next]))
            continue;
        if (next != turn)
            switch_left += SWITCH_NS;
        turn = next;
        slice_left = tenants[next].nature == LYING ? 16 * MS : tenants[next].slice_ns;
        return &tenants[next];
    }
    return NULL;
}

static void note_run(struct tenant *tenant)
{
    uint64_t pause = now - tenant->ran_ns;
    tenant->gpu_ns += STEP_NS;
    tenant->longest_ns = pause > tenant->longest_ns ? pause : tenant->longest_ns;
    tenant->ran_ns = now;
}

static void run(uint64_t for_ns)
{
    for (uint64_t end = now + for_ns; now < end; now += STEP_NS) {
        struct tenant *running = NULL;
        if (switch_left >= STEP_NS)
            switch_left -= STEP_NS;
        else
            running = next_turn();
        for (unsigned i = 0; i < count; i++) {
            struct tenant *tenant = &tenants[i];
            (void)budget_refill(&tenant->words, tenant->percent, now);
            charge(tenant, tenant == running);
            if (now >= tenant->looks_ns)
                look(tenant);
            if (tenant->nature == DYING && now - tenant->begun_ns >= SECOND)
                die(tenant);
        }
        if (running) {
            slice_left -= STEP_NS < slice_left ? STEP_NS : slice_left;
            note_run(running);
        }
    }
}

static void settle(void)
{
    run(5 * SECOND);
    for (unsigned i = 0; i < count; i++) {
        tenants[i].gpu_ns = tenants[i].longest_ns = 0;
        tenants[i].slices.rated_ns = 0;
        tenants[i].ran_ns = now;
    }
}

/* ---- shares ---- */

/* Thousandths of the time. */
static int permille(const struct tenant *tenant, uint64_t of_ns)
{
    return (int)(tenant->gpu_ns / (of_ns / 1000));
}

static void check_all(uint64_t of_ns, int least_percent_of_limit, uint64_t longest_ns)
{
    for (unsigned i = 0; i < count; i++) {
        struct tenant *tenant = &tenants[i];
        int limit = (int)tenant->percent * 10, share = permille(tenant, of_ns);
        uint64_t since = now - tenant->ran_ns;
        uint64_t pause = tenant->longest_ns > since ? tenant->longest_ns : since;
        if (tenant->nature == LYING)
            continue;
        bool within = tenant->nature == PERSISTENT || share <= limit + 5;
        bool fair = share * 100 >= limit * least_percent_of_limit;
        if (!CHECK(within) || !CHECK(fair) || !CHECK(pause <= longest_ns))
            printf("# tenant %u, nature %d, %u %%: %d in 1,000, %llu ms without\n", i,
                (int)tenant->nature, tenant->percent, share, (unsigned long long)(pause / MS));
    }
    fflush(stdout);
}

TEST("64 busy tenants whose limits fit have what their limits say, over a minute")
{
    begin();
    for (unsigned i = 0; i < TENANTS; i++)
        add(BUSY, 1, 1);
    settle();
    run(60 * SECOND);
    check_all(60 * SECOND, 90, SECOND);
}

TEST("of 64 tenants with limits far too large all have an equal part")
{
    begin();
    for (unsigned i = 0; i < TENANTS; i++)
        add(BUSY, 50, 1);
    settle();
    run(60 * SECOND);
    /* A 64th each, less what switches take. */
    check_all(60 * SECOND, 100 * 10 / 500, 2 * SECOND);
}

static bool is_near(const struct tenant *tenant, int wanted, int tolerance)
{
    int share = permille(tenant, 60 * SECOND);
    printf("# %d in 1,000\n", share);
    fflush(stdout);
    return share >= wanted - tolerance && share <= wanted + tolerance;
}

TEST(
    "a kernel without end beside a busy tenant has about what its limit says, and the other has it")
{
    begin();
    struct tenant *persistent = add(PERSISTENT, 30, 1), *busy = add(BUSY, 50, 1);
    settle();
    run(60 * SECOND);
    CHECK(is_near(persistent, 300, 40));
    CHECK(is_near(busy, 500, 20));
}

/* Where they keep to no slots, how much of the time that both could have run is whose is not known:
 * each takes the other's word for all of the time. */
TEST("two kernels without end have a fifth more than their limits at most, and no less")
{
    begin();
    struct tenant *one = add(PERSISTENT, 30, 1), *other = add(PERSISTENT, 50, 1);
    settle();
    run(60 * SECOND);
    CHECK(is_near(one, 330, 60));
    CHECK(is_near(other, 530, 60));
}

TEST("tenants in step with refills, looks and time slices take nothing from those who are not")
{
    static const uint64_t periods[] = {2 * MS, 10 * MS, 20 * MS, 50 * MS, 100 * MS};
    begin();
    for (unsigned i = 0; i < 8; i++)
        add(BUSY, 5, 1);
    for (unsigned i = 0; i < 20; i++)
        add(IN_STEP, 2, 1)->period_ns = periods[i % 5];
    settle();
    run(60 * SECOND);
    /* Half of the time is enough for 2 %, but not if one waits for time slices of others in it. */
    for (unsigned i = 0; i < 8; i++)
        CHECK(permille(&tenants[i], 60 * SECOND) >= 45);
    check_all(60 * SECOND, 25, SECOND);
}

TEST("tenants that die and come again each second take nothing from the others")
{
    begin();
    for (unsigned i = 0; i < 10; i++)
        add(BUSY, 5, 1);
    for (unsigned i = 0; i < 30; i++)
        add(DYING, 1, 1)->begun_ns = now + i * 33 * MS;
    settle();
    run(60 * SECOND);
    for (unsigned i = 0; i < 10; i++)
        CHECK(permille(&tenants[i], 60 * SECOND) >= 45);
    check_all(60 * SECOND, 50, SECOND);
}

TEST("beside liars on the board no tenant passes its limit, and none is stopped")
{
    begin();
    for (unsigned i = 0; i < 4; i++)
        add(BUSY, 10, 1);
    /* They lie, and do not take the GPU: that no board could prevent. */
    for (unsigned i = 0; i < 60; i++)
        add(LYING, 1, 1)->only_lies = true;
    settle();
    run(60 * SECOND);
    check_all(60 * SECOND, 95, SECOND);
}

TEST("a liar of the highest priority leaves all others a 200th of the time, for ever")
{
    begin();
    for (unsigned i = 0; i < 4; i++)
        add(BUSY, 20, 1);
    add(LYING, 1, 0);
    settle();
    run(240 * SECOND);
    for (unsigned i = 0; i < 4; i++) {
        CHECK(tenants[i].gpu_ns >= 240 * SECOND / 5000); /* most of it is the liar's */
        CHECK(tenants[i].longest_ns <= 13 * SECOND);
    }
}

TEST("the lower have what the higher leave, and the higher what they had without them")
{
    begin();
    struct tenant *high = add(IN_STEP, 90, 0);
    high->period_ns = SECOND;
    for (unsigned i = 0; i < 3; i++)
        add(BUSY, 30, 1);
    settle();
    run(60 * SECOND);
    CHECK(permille(high, 60 * SECOND) >= 420);
    for (unsigned i = 1; i < 4; i++)
        CHECK(permille(&tenants[i], 60 * SECOND) >= 120);
}

int main(int argc, char **argv)
{
    return check_run(argc, argv);
}
