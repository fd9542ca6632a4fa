/* SPDX-License-Identifier: Apache-2.0 */
/* Saying, and hearing from others, which tenants are at work on a GPU. How a process attaches is
 * registry_attach.c's.
 */
#include "registry/registry.h"

#include "base/atomic.h"
#include "base/clock.h"
#include "base/file_lock.h"
#include "base/guard.h"
#include "base/sleep.h"
#include "base/word.h"

#include <errno.h>
#include <limits.h>
#include <linux/futex.h>
#include <stddef.h>
#include <string.h>
#include <sys/syscall.h>
#include <time.h>
#include <unistd.h>

#define WAIT_GAP_NS 500000ull
/* A tenant at work says so each 10 ms. */
#define SILENT_NS 20000000ull

/* Within a window, as all that follows. */
static struct vgpu_board *shared_of(const struct registry *registry)
{
    return load_acquire(&registry->shared);
}

static bool was_lately(uint64_t time_ns, uint64_t now_ns)
{
    if (time_ns > now_ns)
        return time_ns - now_ns <= VGPU_BOARD_FUTURE_NS;
    return time_ns && now_ns - time_ns < VGPU_BOARD_ACTIVE_NS;
}

static bool is_paused(const struct vgpu_board_slot *slot)
{
    return load_relaxed(&slot->flags) & VGPU_BOARD_PAUSED;
}

static unsigned limit_of(const struct vgpu_board_slot *slot)
{
    uint32_t percent = load_relaxed(&slot->core_limit);
    bool unlimited = load_relaxed(&slot->flags) & VGPU_BOARD_UNLIMITED;
    return unlimited || !percent || percent > 100 ? 100 : percent;
}

static void wake_all(struct vgpu_board *shared)
{
    int errno_kept = errno;
    (void)add_seq_cst(&shared->epoch, 1u);
    syscall(SYS_futex, &shared->epoch, FUTEX_WAKE, INT_MAX, NULL, NULL, 0);
    errno = errno_kept;
}

/* True where the container turned active by it. */
static bool say_active(struct registry *registry, struct vgpu_board_slot *slot, uint64_t now_ns)
{
    bool idle = !was_lately(load_relaxed(&slot->active_ns), now_ns);
    if (idle)
        store_relaxed(&slot->since_ns, now_ns);
    store_relaxed(&registry->published_ns, now_ns);
    store_release(&slot->active_ns, now_ns);
    return idle;
}

/* True where the container turned idle by it: a process that was active since has written another
 * time. */
static bool say_idle(struct registry *registry, struct vgpu_board_slot *slot)
{
    uint64_t mine = load_relaxed(&registry->published_ns);
    store_relaxed(&registry->published_ns, (uint64_t)0);
    return mine && swap_seq_cst(&slot->active_ns, mine, (uint64_t)0);
}

/* True where it is another than before. */
static bool say_word(uint32_t *word, uint32_t value)
{
    bool other = load_relaxed(word) != value;
    if (other)
        store_relaxed(word, value);
    return other;
}

static bool say(struct registry *registry, struct vgpu_board_slot *slot,
    const struct registry_own *own, uint64_t now_ns)
{
    /* Of windows those of a container's processes speak that are at work. */
    const uint32_t of_windows = VGPU_BOARD_WINDOWS | VGPU_BOARD_SPANS;
    uint32_t windows = (own->windows ? (uint32_t)VGPU_BOARD_WINDOWS : 0u) |
                       (own->divided ? (uint32_t)VGPU_BOARD_SPANS : 0u);
    if (!own->active)
        windows = load_relaxed(&slot->flags) & of_windows;
    uint32_t flags = (own->paused ? VGPU_BOARD_PAUSED : 0u) |
                     (own->core_limit ? 0u : (uint32_t)VGPU_BOARD_UNLIMITED) |
                     (own->saturating ? (uint32_t)VGPU_BOARD_HEAVY : 0u) | windows;
    bool paused = is_paused(slot), changed = false;
    (void)say_word(&slot->core_limit, own->core_limit);
    (void)say_word(&slot->core_soft_limit, own->core_soft_limit);
    if (say_word(&slot->flags, flags))
        changed |= paused != own->paused;
    changed |= say_word(&slot->priority, own->priority);
    store_relaxed(&slot->busy_ns, own->busy_ns);
    if (own->wants)
        store_relaxed(&slot->wants_ns, now_ns);
    changed |= own->active ? say_active(registry, slot, now_ns) : say_idle(registry, slot);
    return changed;
}

/* A slot that is another's by now is left alone: registry_keep finds us another one. */
void registry_publish(struct registry *registry, const struct registry_own *own, uint64_t now_ns)
{
    store_relaxed(&registry->priority, own->priority);
    int index = load_acquire(&registry->slot);
    if (index < 0)
        return;
    guard_enter();
    struct vgpu_board *shared = shared_of(registry);
    struct vgpu_board_slot *slot = &shared->slots[index];
    if (load_relaxed(&slot->tenant) == load_relaxed(&registry->tenant) &&
        say(registry, slot, own, now_ns))
        wake_all(shared);
    guard_leave();
}

void registry_idle(struct registry *registry)
{
    int index = load_acquire(&registry->slot);
    if (index < 0)
        return;
    guard_enter();
    struct vgpu_board *shared = shared_of(registry);
    struct vgpu_board_slot *slot = &shared->slots[index];
    if (load_relaxed(&slot->tenant) == load_relaxed(&registry->tenant) && say_idle(registry, slot))
        wake_all(shared);
    guard_leave();
}

/* A slot's words, each read once: they may change at any moment. */
struct said {
    unsigned limit;
    uint32_t flags, priority;
    uint64_t active_ns, since_ns, wants_ns, busy_ns;
    bool before; /* its slot is before ours */
};

static void count_divided(struct registry_divided *divided, const struct said *said)
{
    bool saturating = said->flags & VGPU_BOARD_HEAVY;
    divided->count++;
    divided->limit_sum += said->limit;
    divided->before_limit_sum += said->before ? said->limit : 0;
    divided->saturating += saturating;
    divided->saturating_limit_sum += saturating ? said->limit : 0;
    if (!divided->least_limit || said->limit < divided->least_limit)
        divided->least_limit = said->limit;
    divided->busy_ns += said->busy_ns;
}

static void count(
    struct registry_view *view, const struct said *said, uint32_t priority, uint64_t now_ns)
{
    if (!was_lately(said->active_ns, now_ns) || said->flags & VGPU_BOARD_PAUSED)
        return;
    view->active++;
    view->active_limit_sum += said->limit;
    if (said->priority < priority) {
        view->higher++;
        view->higher_limit_sum += said->limit;
    } else if (said->priority == priority) {
        view->equal++;
        view->equal_limit_sum += said->limit;
    }
    if (said->flags & VGPU_BOARD_HEAVY) {
        view->saturating++;
        view->saturating_limit_sum += said->limit;
    }
    if (said->flags & VGPU_BOARD_SPANS)
        count_divided(&view->divided, said);
    view->wanting += was_lately(said->wants_ns, now_ns);
    uint64_t since_ns = said->since_ns > now_ns ? now_ns : said->since_ns;
    if (view->since_ns < since_ns)
        view->since_ns = since_ns;
    uint64_t idle_ns = (said->active_ns < now_ns ? said->active_ns : now_ns) + VGPU_BOARD_ACTIVE_NS;
    if (view->idle_ns > idle_ns)
        view->idle_ns = idle_ns;
}

static void count_slot(struct registry_view *view, const struct vgpu_board_slot *slot, bool before,
    uint32_t priority, uint64_t now_ns)
{
    const struct said said = {.active_ns = load_acquire(&slot->active_ns),
        .limit = limit_of(slot),
        .flags = load_relaxed(&slot->flags),
        .priority = load_relaxed(&slot->priority),
        .since_ns = load_relaxed(&slot->since_ns),
        .wants_ns = load_relaxed(&slot->wants_ns),
        .busy_ns = load_relaxed(&slot->busy_ns),
        .before = before};
    count(view, &said, priority, now_ns);
}

/* Also of one that died: it was at work until then. */
static void hear(struct registry_view *view, const struct vgpu_board_slot *slot, uint64_t now_ns)
{
    uint64_t active_ns = load_acquire(&slot->active_ns);
    if (!was_lately(active_ns, now_ns) || is_paused(slot))
        return;
    if (active_ns > now_ns)
        active_ns = now_ns;
    if (view->heard_ns < active_ns)
        view->heard_ns = active_ns;
    bool windows = load_relaxed(&slot->flags) & VGPU_BOARD_WINDOWS;
    uint64_t silent_ns = active_ns + (windows ? REGISTRY_SILENT_WINDOWS_NS : REGISTRY_SILENT_NS);
    if (view->silent_ns < silent_ns)
        view->silent_ns = silent_ns;
}

bool registry_slot_is_held(struct registry *registry, unsigned index)
{
    off_t byte =
        (off_t)(offsetof(struct vgpu_board, slots) + index * sizeof(struct vgpu_board_slot));
    return (int)index == load_relaxed(&registry->slot) || file_lock_held(registry->fd, byte) != 0;
}

/* A tenant that was killed is at work by what it said last: its lock tells. Asked only of those
 * that have not been heard of for a while. */
static bool is_gone(struct registry *registry, unsigned index, uint64_t now_ns)
{
    uint64_t heard_ns = load_acquire(&shared_of(registry)->slots[index].active_ns);
    return heard_ns && heard_ns < now_ns && now_ns - heard_ns >= SILENT_NS &&
           now_ns - heard_ns < VGPU_BOARD_ACTIVE_NS && !registry_slot_is_held(registry, index);
}

void registry_look(struct registry *registry, uint64_t now_ns, struct registry_view *ret_view)
{
    *ret_view = (struct registry_view){.idle_ns = UINT64_MAX};
    if (!shared_of(registry))
        return;
    guard_enter();
    const struct vgpu_board *shared = shared_of(registry);
    ret_view->epoch = load_acquire(&shared->epoch);
    uint64_t ours = load_relaxed(&registry->tenant);
    uint32_t priority = load_relaxed(&registry->priority);
    unsigned high = load_relaxed(&shared->slot_high);
    int own = load_relaxed(&registry->slot);
    for (unsigned i = 0; i < high && i < VGPU_BOARD_SLOTS; i++) {
        uint64_t tenant = load_relaxed(&shared->slots[i].tenant);
        if (!tenant || tenant == ours)
            continue;
        ret_view->busy_ns += load_relaxed(&shared->slots[i].busy_ns);
        hear(ret_view, &shared->slots[i], now_ns);
        if (!is_gone(registry, i, now_ns))
            count_slot(ret_view, &shared->slots[i], (int)i < own, priority, now_ns);
    }
    guard_leave();
}

/* Until then, by the word where there is one. A file that was shortened, and has no such word, is
 * slept on like none. */
static void sleep_until(uint32_t *word, uint32_t epoch, uint64_t until_ns)
{
    uint64_t now = clock_now_ns();
    if (now >= until_ns)
        return;
    if (!word || !word_wait_shared(word, epoch, until_ns - now))
        sleep_ns(until_ns - now);
}

void registry_wait(struct registry *registry, uint32_t epoch, uint64_t timeout_ns)
{
    int errno_kept = errno;
    uint64_t now = clock_now_ns(), until = now + timeout_ns;
    uint64_t earliest = load_relaxed(&registry->waited_ns) + WAIT_GAP_NS;
    if (earliest > now && earliest <= now + WAIT_GAP_NS)
        sleep_ns((earliest < until ? earliest : until) - now);
    sleep_until(registry_wait_word(registry), epoch, until);
    store_relaxed(&registry->waited_ns, clock_now_ns());
    errno = errno_kept;
}

uint32_t *registry_wait_word(struct registry *registry)
{
    struct vgpu_board *shared = shared_of(registry);
    return shared ? &shared->epoch : NULL;
}

void registry_wake(struct registry *registry)
{
    if (!shared_of(registry))
        return;
    guard_enter();
    wake_all(shared_of(registry));
    guard_leave();
}

static void said_read(struct vgpu_board_slot *ret_said, const struct vgpu_board_slot *slot)
{
    const uint64_t *from = &slot->tenant;
    uint64_t *to = &ret_said->tenant;
    for (size_t i = 0; i < sizeof(*slot) / sizeof(*from); i++)
        to[i] = load_relaxed(&from[i]);
}

static unsigned tenants_locked(struct registry *registry, uint64_t now_ns,
    struct registry_tenant ret_tenants[VGPU_BOARD_SLOTS]) REQUIRES(registry->lock)
{
    unsigned filled = 0;
    const struct vgpu_board *shared = shared_of(registry);
    for (unsigned i = 0; i < VGPU_BOARD_SLOTS; i++) {
        const struct vgpu_board_slot *slot = &shared->slots[i];
        if (!load_acquire(&slot->tenant) || !registry_slot_is_held(registry, i))
            continue;
        struct registry_tenant *tenant = &ret_tenants[filled++];
        memset(tenant, 0, sizeof(*tenant));
        said_read(&tenant->said, slot);
        memcpy(tenant->name, tenant->said.name, sizeof(tenant->said.name));
        tenant->active =
            was_lately(tenant->said.active_ns, now_ns) && !(tenant->said.flags & VGPU_BOARD_PAUSED);
        tenant->ours = tenant->said.tenant == registry->tenant;
        tenant->takes_turns =
            tenant->said.share_pages && tenant->said.wanted_pages > tenant->said.share_pages;
        tenant->has_turn =
            tenant->takes_turns && (load_relaxed(&shared->turn) & VGPU_BOARD_TURN_SLOT) == i + 1;
    }
    return filled;
}

unsigned registry_tenants(struct registry *registry, uint64_t now_ns,
    struct registry_tenant ret_tenants[VGPU_BOARD_SLOTS])
{
    unsigned filled = 0;
    LOCKED_TO_END(registry->lock);
    if (shared_of(registry)) {
        guard_enter();
        filled = tenants_locked(registry, now_ns, ret_tenants);
        guard_leave();
    }
    return filled;
}
