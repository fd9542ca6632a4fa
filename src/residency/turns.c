/* SPDX-License-Identifier: Apache-2.0 */
/* Which tenant is next, for how long, and what each may hold meanwhile. */
#include "residency/turns.h"

static uint64_t max_of(uint64_t one, uint64_t other)
{
    return one > other ? one : other;
}

static uint64_t min_of(uint64_t one, uint64_t other)
{
    return one < other ? one : other;
}

bool turns_takes_part(const struct turns_tenant *tenant)
{
    return tenant->share_pages && tenant->wanted_pages > tenant->share_pages;
}

static uint64_t claim_of(const struct turns_tenant *tenant)
{
    return tenant->claim_pages ? tenant->claim_pages : tenant->share_pages;
}

/* ---- memory ---- */

static uint64_t shares_of(const struct turns_view *view)
{
    uint64_t sum = 0;
    for (unsigned i = 0; i < view->count; i++)
        sum += view->tenants[i].share_pages;
    return sum;
}

/* The holder, where it is one that may be. */
static int holder_of(const struct turns_view *view)
{
    int holder = view->holder;
    bool valid =
        holder >= 0 && (unsigned)holder < view->count && turns_takes_part(&view->tenants[holder]);
    return valid ? holder : -1;
}

/* What cannot leave the card, as far as it is the tenant's own. */
static uint64_t fixed_of(const struct turns_tenant *tenant)
{
    return min_of(tenant->fixed_pages, tenant->share_pages);
}

/* What the holder leaves to the others of its group beside what is fixed of each: to all of them
 * `rest`, in proportion to `weights`, what of their shares can leave the card. */
struct left {
    uint64_t held; /* by the holder */
    uint64_t rest, weights;
};

static struct left left_by(const struct turns_view *view, unsigned holder)
{
    uint64_t others = 0, fixed = 0;
    for (unsigned i = 0; i < view->count; i++) {
        if (i != holder && turns_takes_part(&view->tenants[i])) {
            others += view->tenants[i].share_pages;
            fixed += fixed_of(&view->tenants[i]);
        }
    }
    uint64_t most = view->tenants[holder].share_pages + others - fixed;
    uint64_t held = min_of(view->tenants[holder].wanted_pages, most);
    return (struct left){.held = held, .rest = most - held, .weights = others - fixed};
}

/* Between two turns everybody keeps what it has. */
uint32_t turns_ceiling(const struct turns_view *view, unsigned index)
{
    const struct turns_tenant *tenant = &view->tenants[index];
    int holder = holder_of(view);
    if (!turns_takes_part(tenant))
        return tenant->share_pages;
    if (holder < 0)
        return (uint32_t)min_of(
            max_of(tenant->share_pages, claim_of(tenant)), tenant->wanted_pages);
    struct left left = left_by(view, (unsigned)holder);
    if (index == (unsigned)holder)
        return (uint32_t)left.held; /* no more than is wanted */
    uint64_t fixed = fixed_of(tenant), weight = tenant->share_pages - fixed;
    if (!weight || !left.weights)
        return (uint32_t)fixed;
    /* The rest is no more than the weights; the product has 64 bits. */
    uint64_t part = weight * min_of(left.rest, UINT32_MAX) / left.weights;
    return (uint32_t)(fixed + min_of(part, weight));
}

uint32_t turns_claim_room(const struct turns_view *view)
{
    uint64_t all = shares_of(view), claimed = 0;
    uint64_t own = claim_of(&view->tenants[view->own]);
    for (unsigned i = 0; i < view->count; i++) {
        if (i != view->own)
            claimed += min_of(claim_of(&view->tenants[i]), all);
    }
    uint64_t room = min_of(all - min_of(claimed, all), turns_ceiling(view, view->own));
    return (uint32_t)min_of(max_of(room, own), UINT32_MAX);
}

/* ---- the turn ---- */

uint64_t turns_quantum_ns(uint64_t handover_ns, unsigned overhead_percent)
{
    uint64_t percent = min_of(max_of(overhead_percent, 1), 90);
    uint64_t quantum = min_of(handover_ns, TURNS_QUANTUM_MAX_NS) * (100 - percent) / percent;
    return min_of(max_of(quantum, TURNS_QUANTUM_MIN_NS), TURNS_QUANTUM_MAX_NS);
}

static bool was_heard(uint64_t heard_ns, uint64_t now_ns)
{
    return heard_ns &&
           (heard_ns > now_ns ? heard_ns - now_ns : now_ns - heard_ns) < TURNS_SILENT_NS;
}

/* Waits, and lives to take it. */
static bool is_candidate(const struct turns_tenant *tenant, uint64_t now_ns)
{
    return tenant->waits && turns_takes_part(tenant) && was_heard(tenant->heard_ns, now_ns);
}

/* The next candidate after the one at `from`, in the order of the tenants, round about, without
 * `but`; -1: none. */
static int next_after(const struct turns_view *view, int from, unsigned but, uint64_t now_ns)
{
    for (unsigned i = 1; i <= view->count; i++) {
        unsigned index = ((unsigned)(from + 1) + i - 1) % view->count;
        if (index != but && is_candidate(&view->tenants[index], now_ns))
            return (int)index;
    }
    return -1;
}

static unsigned group_of(const struct turns_view *view)
{
    unsigned count = 0;
    for (unsigned i = 0; i < view->count; i++)
        count += turns_takes_part(&view->tenants[i]);
    return count;
}

/* Since when a tenant that waits may take the turn; UINT64_MAX: it may not. Times in the future are
 * not believed. */
static uint64_t free_since_ns(const struct turns_view *view, uint64_t now_ns)
{
    int holder = holder_of(view);
    uint64_t given_ns = view->turn_ns > now_ns ? 0 : view->turn_ns;
    if (holder < 0)
        return given_ns;
    uint64_t heard_ns = view->tenants[holder].heard_ns;
    uint64_t silent_ns = max_of(heard_ns > now_ns ? 0 : heard_ns, given_ns) + TURNS_SILENT_NS;
    uint64_t over_ns = given_ns + TURNS_FILL_MAX_NS + TURNS_QUANTUM_MAX_NS + TURNS_SILENT_NS;
    uint64_t since_ns = min_of(silent_ns, over_ns);
    return since_ns <= now_ns ? since_ns : UINT64_MAX;
}

/* How many candidates come before us. */
static unsigned rank(const struct turns_view *view, uint64_t now_ns)
{
    unsigned before = 0;
    for (unsigned i = 1; i <= view->count; i++) {
        unsigned index = ((unsigned)(view->holder + 1) + i - 1) % view->count;
        if (index == view->own)
            return before;
        before += is_candidate(&view->tenants[index], now_ns);
    }
    return before;
}

static bool may_take(const struct turns_view *view, uint64_t now_ns)
{
    uint64_t since_ns = free_since_ns(view, now_ns);
    return since_ns != UINT64_MAX && now_ns - since_ns >= rank(view, now_ns) * TURNS_RANK_NS;
}

/* A holder fills up to its ceiling before it works. */
static void fill(struct turns *turns, const struct turns_view *view, const struct turns_self *self,
    uint64_t now_ns)
{
    if (self->resident_pages > turns->filled_pages) {
        turns->filled_pages = self->resident_pages;
        turns->filled_ns = now_ns;
    }
    if (turns->ready)
        return;
    bool full =
        self->is_full && claim_of(&view->tenants[view->own]) >= turns_ceiling(view, view->own);
    if (!full && now_ns - turns->filled_ns < TURNS_STUCK_NS &&
        now_ns - turns->since_ns < TURNS_FILL_MAX_NS)
        return;
    turns->ready = true;
    turns->ready_ns = now_ns;
    turns->handover_ns = now_ns - turns->since_ns;
}

static void begin(struct turns *turns, const struct turns_self *self, uint64_t now_ns)
{
    if (turns->holds)
        return;
    turns->holds = true;
    turns->ready = false;
    turns->waits_ns = 0;
    turns->since_ns = turns->filled_ns = now_ns;
    turns->filled_pages = self->resident_pages;
}

static void end(struct turns *turns)
{
    turns->holds = turns->ready = false;
}

static bool is_over(const struct turns *turns, unsigned overhead_percent, uint64_t now_ns)
{
    return turns->ready &&
           now_ns - turns->ready_ns >= turns_quantum_ns(turns->handover_ns, overhead_percent);
}

static bool is_idle(const struct turns *turns, const struct turns_self *self, uint64_t now_ns)
{
    return self->idle_ns >= max_of(TURNS_IDLE_NS, turns->handover_ns / 2) &&
           now_ns - turns->since_ns >= TURNS_IDLE_NS;
}

/* True where a tenant without the turn works: no other takes turns with it, or it waited for longer
 * than any order of turns could make it. */
static bool works_without(
    struct turns *turns, const struct turns_view *view, bool waits, uint64_t now_ns)
{
    unsigned group = group_of(view);
    if (!waits || group < 2) {
        turns->waits_ns = 0;
        return group < 2;
    }
    if (!turns->waits_ns)
        turns->waits_ns = now_ns;
    uint64_t waited_ns = now_ns - turns->waits_ns, bound_ns = group * TURNS_BOUND_NS;
    if (waited_ns >= bound_ns + TURNS_QUANTUM_MIN_NS)
        turns->waits_ns = now_ns;
    return waited_ns >= bound_ns;
}

struct turns_order turns_step(struct turns *turns, const struct turns_view *view,
    const struct turns_self *self, unsigned overhead_percent, uint64_t now_ns)
{
    struct turns_order order = {
        .works = true, .to = -1, .ceiling_pages = turns_ceiling(view, view->own)};
    bool named = view->holder >= 0 && (unsigned)view->holder == view->own;
    int next = next_after(view, (int)view->own, view->own, now_ns);
    if (!turns_takes_part(&view->tenants[view->own])) {
        end(turns);
        turns->waits_ns = 0;
        order.act = named ? TURNS_PASS : TURNS_KEEP;
        order.to = next;
        return order;
    }
    if (named) {
        begin(turns, self, now_ns);
        fill(turns, view, self, now_ns);
        order.works = turns->ready || group_of(view) < 2;
        bool over = is_over(turns, overhead_percent, now_ns);
        order.by_idleness = !over && is_idle(turns, self, now_ns);
        if (next >= 0 && (over || order.by_idleness)) {
            order.act = TURNS_PASS;
            order.to = next;
        }
        return order;
    }
    end(turns);
    order.waits = !self->idle_ns;
    order.works = works_without(turns, view, order.waits, now_ns);
    if (order.waits && may_take(view, now_ns))
        order.act = TURNS_TAKE;
    return order;
}
