/* SPDX-License-Identifier: Apache-2.0 */
/* Turns among tenants whose memory does not fit together: a group of tenants that speak, move and
 * die in random order, and the rules one by one. */
#include "residency/turns.h"

#include "check.h"

#define MS 1000000ull
#define S (1000 * MS)
#define START (1000 * S)
#define COUNT_MAX 8
#define PERCENT 10

/* ---- a group ---- */

struct member {
    struct turns_tenant said;
    struct turns turns;
    uint32_t wants, resident;
    bool lives, stopped, has_work, lies;
    bool works;          /* its launches pass */
    uint64_t stepped_ns; /* when it last looked */
    uint64_t asked_ns;   /* since when a launch of it waits; 0: none does */
    uint64_t idle_since_ns;
    uint64_t moved; /* pages, out and in */
    unsigned turns_had;
};

static struct {
    struct member members[COUNT_MAX];
    unsigned count;
    int holder; /* index; -1 */
    uint64_t turn_ns;
    uint64_t now_ns;
    uint32_t fixed_pages; /* of each that joins */
    uint32_t chunk;       /* pages that a tenant moves between two looks */
    uint64_t claims_most; /* what the claims may add up to: the shares, or what they did */
} group;

static uint64_t seed;

static uint64_t draw(uint64_t below)
{
    seed = seed * 6364136223846793005ull + 1442695040888963407ull;
    return (seed >> 33) % below;
}

static uint32_t claim_of(const struct member *member)
{
    return member->said.claim_pages ? member->said.claim_pages : member->said.share_pages;
}

static void join(unsigned index, uint32_t share, uint32_t wants)
{
    struct member *member = &group.members[index];
    *member = (struct member){.lives = true, .has_work = true, .wants = wants};
    member->said = (struct turns_tenant){
        .share_pages = share, .fixed_pages = group.fixed_pages, .heard_ns = group.now_ns};
    member->resident = wants < share ? wants : share;
    member->stepped_ns = group.now_ns;
    if (index >= group.count)
        group.count = index + 1;
}

static void set_up(void)
{
    memset(&group, 0, sizeof(group));
    group.holder = -1;
    group.now_ns = START;
    group.chunk = 64;
}

/* As `index` sees it: those that live, in one order for all. */
static void look(unsigned index, struct turns_view *view, int *to_member)
{
    *view = (struct turns_view){.holder = -1, .turn_ns = group.turn_ns};
    for (unsigned i = 0; i < group.count; i++) {
        if (!group.members[i].lives)
            continue;
        if ((int)i == group.holder)
            view->holder = (int)view->count;
        if (i == index)
            view->own = view->count;
        to_member[view->count] = (int)i;
        view->tenants[view->count++] = group.members[i].said;
    }
}

static uint64_t shares(void)
{
    uint64_t sum = 0;
    for (unsigned i = 0; i < group.count; i++)
        sum += group.members[i].lives ? group.members[i].said.share_pages : 0;
    return sum;
}

static uint64_t claims(void)
{
    uint64_t sum = 0;
    for (unsigned i = 0; i < group.count; i++)
        sum += group.members[i].lives ? claim_of(&group.members[i]) : 0;
    return sum;
}

/* Memory follows the ceiling: at once out of what was claimed, and in by what is claimed first. */
static void move(unsigned index, uint32_t ceiling)
{
    struct member *member = &group.members[index];
    struct turns_view view;
    int to_member[COUNT_MAX];
    if (claim_of(member) > ceiling) {
        uint32_t least = member->resident > group.chunk ? member->resident - group.chunk : 0;
        uint32_t former = member->resident;
        if (member->resident > ceiling)
            member->resident = least > ceiling ? least : ceiling;
        member->moved += former - member->resident;
        member->said.claim_pages = member->resident > ceiling ? member->resident : ceiling;
        if (!member->said.claim_pages)
            member->said.claim_pages = 1;
        return;
    }
    look(index, &view, to_member);
    member->said.claim_pages = turns_claim_room(&view);
    uint32_t most = claim_of(member) < member->wants ? claim_of(member) : member->wants;
    if (member->resident < most) {
        uint32_t in = most - member->resident < group.chunk ? most - member->resident : group.chunk;
        member->resident += in;
        member->moved += in;
    }
}

static bool takes_part(const struct member *member)
{
    return member->lives && turns_takes_part(&member->said);
}

/* Of two that work, one has not looked since the other was given the turn. */
static void check_works_alone(unsigned index)
{
    for (unsigned i = 0; i < group.count; i++) {
        const struct member *other = &group.members[i];
        if (i != index && takes_part(other) && other->works && !other->lies &&
            group.holder == (int)index && other->stepped_ns > group.turn_ns)
            CHECK_EQ(i, index);
    }
}

static void act(unsigned index, const struct turns_order *order, const struct turns_view *view,
    const int *to_member)
{
    int seen = view->holder < 0 ? -1 : to_member[view->holder];
    bool is_member = group.holder >= 0 && group.holder < COUNT_MAX;
    int current = is_member && group.members[group.holder].lives ? group.holder : -1;
    if (order->act == TURNS_KEEP || current != seen || group.turn_ns != view->turn_ns)
        return;
    group.holder = order->act == TURNS_TAKE ? (int)index
                   : order->to < 0          ? -1
                                            : to_member[order->to];
    group.turn_ns = group.now_ns;
    if (group.holder >= 0)
        group.members[group.holder].turns_had++;
}

static void lie(struct member *member)
{
    member->said = (struct turns_tenant){.share_pages = (uint32_t)draw(1ull << 32),
        .wanted_pages = (uint32_t)draw(1ull << 32),
        .claim_pages = (uint32_t)draw(1ull << 32),
        .fixed_pages = (uint32_t)draw(1ull << 32),
        .waits = draw(2),
        .heard_ns = draw(2) ? group.now_ns : draw(UINT32_MAX) * draw(UINT32_MAX)};
    if (draw(4) == 0) {
        group.holder = (int)draw(COUNT_MAX + 2) - 1;
        group.turn_ns = draw(2) ? group.now_ns : draw(UINT32_MAX) * draw(UINT32_MAX);
    }
}

/* One look of a tenant. `late`: others look between its look and its act. */
static void step_tenant(unsigned index, void (*late)(unsigned index))
{
    struct member *member = &group.members[index];
    struct turns_view view;
    int to_member[COUNT_MAX];
    if (!member->lives || member->stopped)
        return;
    if (member->lies) {
        lie(member);
        return;
    }
    member->said.wanted_pages = member->wants;
    member->said.heard_ns = group.now_ns;
    look(index, &view, to_member);
    uint64_t idle_ns = member->has_work ? 0 : group.now_ns - member->idle_since_ns + 1;
    struct turns_self self = {.idle_ns = idle_ns, .resident_pages = member->resident};
    self.is_full = member->resident >= member->wants || member->resident >= claim_of(member);
    struct turns_order order = turns_step(&member->turns, &view, &self, PERCENT, group.now_ns);
    member->works = order.works && (order.act != TURNS_PASS || !turns_takes_part(&member->said));
    member->said.waits = order.waits;
    member->stepped_ns = group.now_ns;
    if (late)
        late(index);
    act(index, &order, &view, to_member);
    move(index, order.ceiling_pages);
    if (!member->has_work || member->works)
        member->asked_ns = 0;
    else if (!member->asked_ns)
        member->asked_ns = group.now_ns;
}

/* Everybody looks each 10 ms. */
static void run_for(uint64_t ns)
{
    for (uint64_t end = group.now_ns + ns; group.now_ns < end; group.now_ns += 10 * MS) {
        for (unsigned i = 0; i < group.count; i++)
            step_tenant(i, NULL);
    }
}

static struct member *of(unsigned index)
{
    return &group.members[index];
}

/* Two, each with one and a half times its share. */
static void set_up_two(void)
{
    set_up();
    join(0, 1024, 1536);
    join(1, 1024, 1536);
    run_for(5 * S);
}

/* ---- the rules ---- */

TEST("two whose sets do not fit work by turns, each with all that it wants on the card")
{
    set_up_two();
    for (unsigned i = 0; i < 4000; i++) {
        run_for(10 * MS);
        CHECK(!(of(0)->works && of(1)->works));
        CHECK(of(0)->resident + of(1)->resident <= 2048);
        for (unsigned k = 0; k < 2; k++)
            CHECK(!of(k)->works || of(k)->resident == 1536);
    }
    CHECK(of(0)->turns_had >= 5 && of(1)->turns_had >= 5);
}

TEST("what cannot leave the card is left to each, and the holder has the rest")
{
    set_up();
    group.fixed_pages = 300;
    join(0, 1024, 2048);
    join(1, 1024, 2048);
    run_for(5 * S);
    for (unsigned i = 0; i < 2000; i++) {
        run_for(10 * MS);
        CHECK(of(0)->resident >= 300 && of(1)->resident >= 300);
        for (unsigned k = 0; k < 2; k++)
            CHECK(!of(k)->works || (of(k)->resident == 1748 && of(1 - k)->resident == 300));
    }
    CHECK(of(0)->turns_had >= 5 && of(1)->turns_had >= 5);
    /* A hand-over takes 0.23 s: nobody waited for what never comes. */
    CHECK(of(0)->turns.handover_ns < TURNS_STUCK_NS / 2);
}

TEST("a hand-over moves only what the next one lacks")
{
    set_up_two();
    run_for(20 * S);
    uint64_t moved = 0;
    for (unsigned had = of(0)->turns_had, turn = 0; turn <= 10; turn++) {
        while (of(0)->turns_had <= had + turn)
            run_for(10 * MS);
        if (!turn)
            moved = of(0)->moved;
    }
    CHECK_EQ(of(0)->moved - moved, 10 * 2 * 1024); /* out and in */
}

TEST("of the time no more than was asked for is spent on hand-overs")
{
    set_up_two();
    group.chunk = 16; /* 0.64 s for 1024 pages */
    run_for(20 * S);
    uint64_t works = 0, steps = 0;
    for (; steps < 20000; steps++) {
        run_for(10 * MS);
        works += of(0)->works || of(1)->works;
    }
    CHECK(works * 100 >= steps * (100 - PERCENT - 1));
    CHECK(
        works * 100 <= steps * (100 - PERCENT / 2)); /* and quanta are no longer than that needs */
}

TEST("the quantum follows the cost of the last hand-over, between a second and a minute")
{
    CHECK_EQ(turns_quantum_ns(500 * MS, 10), 4500 * MS);
    CHECK_EQ(turns_quantum_ns(500 * MS, 50), TURNS_QUANTUM_MIN_NS);
    CHECK_EQ(turns_quantum_ns(0, 10), TURNS_QUANTUM_MIN_NS);
    CHECK_EQ(turns_quantum_ns(10 * S, 10), TURNS_QUANTUM_MAX_NS);
    CHECK_EQ(turns_quantum_ns(UINT64_MAX, 0), TURNS_QUANTUM_MAX_NS);
    CHECK_EQ(turns_quantum_ns(5 * S, 1000), TURNS_QUANTUM_MIN_NS);
}

TEST("who fits into its share never waits, and keeps its share")
{
    set_up();
    join(0, 1024, 1536);
    join(1, 1024, 1536);
    join(2, 1024, 1024);
    join(3, 1024, 1536);
    for (unsigned i = 0; i < 10000; i++) {
        run_for(10 * MS);
        CHECK(of(2)->works);
        CHECK_EQ(claim_of(of(2)), 1024);
        CHECK_EQ(of(2)->resident, 1024);
    }
    CHECK(of(0)->turns_had && of(1)->turns_had && of(3)->turns_had);
    CHECK_EQ(of(2)->turns_had, 0);
}

TEST("who lent its share and then fits works at once, and gets its share back")
{
    set_up_two();
    unsigned waiting = of(0)->works ? 1 : 0;
    CHECK(of(waiting)->resident < 1024);
    of(waiting)->wants = 900;
    run_for(20 * MS);
    CHECK(of(waiting)->works);
    run_for(S);
    CHECK_EQ(of(waiting)->resident, 900);
    CHECK_EQ(claim_of(of(waiting)), 1024);
    CHECK(of(1 - waiting)->works);
}

TEST("one that nobody takes turns with works, whatever it wants")
{
    set_up();
    join(0, 1024, 4096);
    run_for(50 * MS);
    for (unsigned i = 0; i < 1000; i++) {
        run_for(10 * MS);
        CHECK(of(0)->works);
    }
    CHECK_EQ(of(0)->resident, 1024);
}

TEST("a holder without work passes the turn on, and one that nobody waits for keeps it")
{
    set_up_two();
    unsigned holder = of(0)->works ? 0 : 1;
    of(holder)->has_work = false;
    of(holder)->idle_since_ns = group.now_ns;
    run_for(TURNS_IDLE_NS + S);
    CHECK_EQ(group.holder, 1 - holder);
    CHECK(of(1 - holder)->works);
    run_for(3 * TURNS_QUANTUM_MAX_NS);
    CHECK_EQ(group.holder, 1 - holder);
    CHECK(of(1 - holder)->works);
}

TEST("a pause shorter than what a hand-over takes does not end a turn")
{
    set_up();
    group.chunk = 4;
    join(0, 1024, 1536);
    join(1, 1024, 1536);
    run_for(30 * S);
    while (group.now_ns - group.turn_ns > 4 * S || !(of(0)->works || of(1)->works))
        run_for(10 * MS);
    unsigned holder = of(0)->works ? 0 : 1;
    of(holder)->has_work = false;
    of(holder)->idle_since_ns = group.now_ns;
    run_for(S);
    of(holder)->has_work = true;
    run_for(S);
    CHECK_EQ(group.holder, holder);
}

TEST("a holder that dies gives its turn back, and its memory")
{
    set_up_two();
    unsigned holder = of(0)->works ? 0 : 1;
    of(holder)->lives = false;
    run_for(50 * MS);
    CHECK(of(1 - holder)->works);
    run_for(S);
    CHECK_EQ(of(1 - holder)->resident, 1024); /* its share: nobody lends it more */
}

TEST("a holder that is stopped loses its turn within a second, keeps its memory, and goes on later")
{
    set_up_two();
    unsigned holder = of(0)->works ? 0 : 1, next = 1 - holder;
    of(holder)->stopped = true;
    run_for(TURNS_SILENT_NS + 200 * MS);
    CHECK_EQ(group.holder, next);
    run_for(TURNS_STUCK_NS + 200 * MS);
    CHECK(of(next)->works);
    CHECK_EQ(of(holder)->resident, 1536);
    CHECK(of(next)->resident + of(holder)->resident <= 2048);
    of(holder)->stopped = false;
    group.now_ns += 10 * MS;
    step_tenant(holder, NULL);
    CHECK(!of(holder)->works);
    run_for(S);
    CHECK_EQ(of(next)->resident, 1536);
    run_for(2 * TURNS_QUANTUM_MAX_NS);
    CHECK(of(holder)->turns_had >= 2);
}

TEST("a next one that is stopped as the turn comes to it keeps nobody")
{
    set_up();
    for (unsigned i = 0; i < 3; i++)
        join(i, 1024, 1536);
    run_for(5 * S);
    unsigned holder = (unsigned)group.holder, next = (holder + 1) % 3, after = (holder + 2) % 3;
    while (group.holder == (int)holder)
        run_for(10 * MS);
    CHECK_EQ(group.holder, next);
    of(next)->stopped = true;
    run_for(TURNS_SILENT_NS + 500 * MS);
    CHECK(group.holder == (int)after || group.holder == (int)holder);
}

TEST("one that came later has its share at once, whoever holds")
{
    set_up_two();
    join(2, 1024, 1536);
    for (unsigned i = 0; i < 1000; i++) {
        run_for(10 * MS);
        CHECK(claims() <= shares());
    }
    run_for(30 * S);
    CHECK(of(2)->turns_had);
}

/* ---- those that do not keep to it ---- */

/* Speaks all the time, and does nothing else. */
static void speak(unsigned index, bool waits)
{
    of(index)->said.heard_ns = group.now_ns;
    of(index)->said.waits = waits;
}

TEST("a holder that speaks and passes nothing on loses its turn after the longest quantum")
{
    set_up_two();
    unsigned holder = (unsigned)group.holder, next = 1 - holder;
    of(holder)->stopped = true; /* but speaks */
    uint64_t most_ns = TURNS_FILL_MAX_NS + TURNS_QUANTUM_MAX_NS + TURNS_SILENT_NS;
    for (uint64_t end = group.turn_ns + most_ns - 50 * MS; group.now_ns < end;) {
        speak(holder, false);
        run_for(10 * MS);
        CHECK_EQ(group.holder, holder);
    }
    for (unsigned i = 0; i < 20; i++) {
        speak(holder, false);
        run_for(10 * MS);
    }
    CHECK_EQ(group.holder, next);
}

TEST("a turn that is to be had is left to the next for a moment, and to one that only waits no "
     "longer")
{
    set_up();
    for (unsigned i = 0; i < 3; i++)
        join(i, 1024, 1536);
    run_for(5 * S);
    for (int former = group.holder; group.holder == former;)
        run_for(10 * MS);
    run_for(20 * MS);
    unsigned holder = (unsigned)group.holder, next = (holder + 1) % 3, after = (holder + 2) % 3;
    of(holder)->stopped = of(next)->stopped = true;
    uint64_t heard_ns = of(holder)->said.heard_ns;
    while (group.holder == (int)holder && group.now_ns < heard_ns + 5 * S) {
        speak(next, true);
        run_for(10 * MS);
    }
    CHECK_EQ(group.holder, after);
    CHECK(group.turn_ns >= heard_ns + TURNS_SILENT_NS + TURNS_RANK_NS);
    CHECK(group.turn_ns <= heard_ns + TURNS_SILENT_NS + TURNS_RANK_NS + 20 * MS);
}

TEST("beside one that takes every turn the others work without, now and then")
{
    uint64_t worked = 0, steps = 0, first_ns = 0;
    set_up_two();
    of(0)->lies = true;
    uint64_t from_ns = group.now_ns;
    for (; group.now_ns < from_ns + 20 * TURNS_BOUND_NS; group.now_ns += 50 * MS, steps++) {
        of(0)->said = (struct turns_tenant){
            .share_pages = 1024, .wanted_pages = 4096, .heard_ns = group.now_ns};
        group.holder = 0;
        group.turn_ns = group.now_ns;
        step_tenant(1, NULL);
        worked += of(1)->works;
        if (of(1)->works && !first_ns)
            first_ns = group.now_ns;
    }
    CHECK(first_ns && first_ns - from_ns <= 2 * TURNS_BOUND_NS + S);
    CHECK(worked >= 8 && worked < steps / 50);
}

/* ---- random orders ---- */

static void others_step(unsigned index)
{
    for (unsigned i = (unsigned)draw(3); i; i--) {
        unsigned other = (unsigned)draw(group.count);
        if (other != index)
            step_tenant(other, NULL);
    }
}

static void something_happens(unsigned index)
{
    struct member *member = &group.members[index];
    switch (draw(8)) {
    case 0:
        member->lives = false;
        member->works = false;
        break;
    case 1:
        member->stopped = true;
        member->asked_ns = 0;
        break;
    case 2:
    case 3:
        member->has_work = false;
        member->idle_since_ns = group.now_ns;
        member->asked_ns = 0;
        break;
    case 4:
        member->has_work = true;
        break;
    default:
        member->wants = (uint32_t)draw(3000);
        break;
    }
}

static void something_ends(unsigned index)
{
    struct member *member = &group.members[index];
    if (!member->lives) {
        uint32_t share = 256 + (uint32_t)draw(1024);
        group.fixed_pages = (uint32_t)draw(300);
        join(index, share, (uint32_t)draw(3000));
    } else if (member->stopped) {
        member->stopped = false;
    } else if (!member->has_work) {
        member->has_work = true;
    }
}

static void check_group(unsigned stepped)
{
    uint64_t now = claims(), budget = shares();
    /* A tenant that died took a share along that others may hold: then nobody gets more. */
    uint64_t most = group.claims_most > budget ? group.claims_most : budget;
    if (!CHECK(now <= most))
        printf("# claims %llu of %llu\n", (unsigned long long)now, (unsigned long long)most);
    group.claims_most = now;
    for (unsigned i = 0; i < group.count; i++) {
        const struct member *member = &group.members[i];
        if (!member->lives || member->lies)
            continue;
        CHECK(member->resident <= claim_of(member));
        CHECK(turns_takes_part(&member->said) || member->works || i != stepped || member->stopped);
        CHECK(!member->asked_ns ||
              group.now_ns - member->asked_ns <= COUNT_MAX * TURNS_BOUND_NS + 2 * S);
    }
    if (group.members[stepped].works && takes_part(&group.members[stepped]))
        check_works_alone(stepped);
}

static void random_run(unsigned count, unsigned steps, bool liar)
{
    set_up();
    for (unsigned i = 0; i < count; i++)
        join(i, 256 + (uint32_t)draw(1024), (uint32_t)draw(3000));
    group.members[0].lies = liar;
    group.claims_most = claims();
    for (unsigned i = 0; i < steps; i++) {
        unsigned index = (unsigned)draw(count);
        group.now_ns += draw(1000) ? draw(20) * MS : draw(3000) * MS;
        group.chunk = 1 + (uint32_t)draw(200);
        step_tenant(index, others_step);
        if (liar)
            group.claims_most = UINT64_MAX;
        check_group(index);
        unsigned other = (unsigned)draw(count);
        if (draw(200) == 0 && !group.members[other].lies)
            something_happens(other);
        if (draw(100) == 0)
            something_ends(other);
        group.claims_most = group.claims_most == UINT64_MAX ? UINT64_MAX : claims();
    }
}

TEST("in any order of looks, moves, deaths, stops and changes claims stay within the shares, one "
     "works, and none waits for longer than its bound")
{
    for (seed = 1; seed <= 60;) {
        uint64_t first = seed;
        random_run(2 + (unsigned)draw(COUNT_MAX - 1), 6000, false);
        seed = first + 1;
    }
}

TEST("all get their turns, however the looks come")
{
    for (seed = 1; seed <= 20;) {
        uint64_t first = seed;
        unsigned count = 2 + (unsigned)draw(COUNT_MAX - 1);
        set_up();
        for (unsigned i = 0; i < count; i++)
            join(i, 1024, 1100 + (uint32_t)draw(1000));
        for (unsigned i = 0; i < 60000; i++) {
            group.now_ns += draw(10) * MS;
            step_tenant((unsigned)draw(count), others_step);
        }
        for (unsigned i = 0; i < count; i++) {
            CHECK(of(i)->turns_had + 3 >= of(0)->turns_had);
            CHECK(of(i)->turns_had <= of(0)->turns_had + 3);
            CHECK(of(i)->turns_had);
        }
        seed = first + 1;
    }
}

TEST("beside one that writes anything anywhere nobody waits for longer than its bound")
{
    for (seed = 1; seed <= 20;) {
        uint64_t first = seed;
        random_run(2 + (unsigned)draw(COUNT_MAX - 1), 60000, true);
        seed = first + 1;
    }
}

int main(int argc, char **argv)
{
    return check_run(argc, argv);
}
