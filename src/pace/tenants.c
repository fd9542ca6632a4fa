/* SPDX-License-Identifier: Apache-2.0 */
/* A registry for each device, written and read at each of the governor's looks. */
#include "pace/tenants.h"

#include "abi/rm.h"
#include "base/atomic.h"
#include "base/clock.h"
#include "base/log.h"
#include "base/word.h"
#include "compute/budget.h"
#include "compute/slices.h"
#include "container/container.h"
#include "pace/policy.h"
#include "account/account.h"
#include "registry/registry.h"
#include "rm/rm_channels.h"

#include <stddef.h>
#include <string.h>

static struct tenants_device {
    struct registry registry;
    struct slices slices;
    struct window_slot slot;    /* that the container's windows keep to */
    uint64_t slice_us;          /* of its channel groups; 0: the driver's own */
    uint32_t epoch;             /* of the registry at the last look */
    uint64_t extended_since_ns; /* since when time slices are extended, 0: they are not; for any
                                   thread */
    uint32_t extended_slice_us; /* and to what */
    struct slices_cut cut;      /* any thread's */
    bool met;
    bool looked; /* since the governor slept last */
    bool soft_is_on;
    bool awaited; /* a tenant that comes or goes there changes what the container may do */
} devices[VGPU_REGION_DEVICES];

/* Nanoseconds between two wakes by registries, at least, whatever is written there. */
#define BOARDS_GAP_NS 5000000ull
static uint64_t registry_changed_ns; /* when a registry last was another one */
static unsigned looked_bound;        /* no device at or above it was looked at since */
/* Nanoseconds. A governor that looks this often sees tenants come and go soon enough for a fair
 * share. */
#define OFTEN_NS 10000000ull

/* A thread that ends the process may look for registries meanwhile. Without a directory there is
 * none, and looking does no harm. */
static void meet_first(unsigned device)
{
    char uuid[ACCOUNT_UUID_BYTES] = "";
    const char *directory =
        account_uuid(device, uuid) ? container_config()->registry_directory : "";
    (void)!registry_attach(
        &devices[device].registry, directory, uuid, account_tenant(device), NULL);
    store_release(&devices[device].met, true);
}

/* The device's, with a registry that is kept attached. */
static struct tenants_device *attend(unsigned device, uint64_t now_ns)
{
    struct tenants_device *here = &devices[device];
    if (!here->met)
        meet_first(device);
    registry_keep(&here->registry, now_ns);
    return here;
}

/* To the longest that the resource manager takes. */
static void extend_slices(unsigned device)
{
    static const uint32_t lengths_us[] = {SLICES_EXTENDED_US, SLICES_EXTENDED_SURE_US};
    for (unsigned i = 0; i < sizeof(lengths_us) / sizeof(lengths_us[0]); i++) {
        if (rm_channels_set_timeslice(device, lengths_us[i]) <= 0)
            continue;
        store_relaxed(&devices[device].extended_slice_us, lengths_us[i]);
        store_release(&devices[device].extended_since_ns, clock_now_ns());
        break;
    }
}

static void set_slices(unsigned device, const struct registry_view *view, uint64_t now_ns)
{
    struct tenants_device *here = &devices[device];
    const struct slices_cut cut = {
        load_relaxed(&here->cut.blurred), load_relaxed(&here->cut.known)};
    bool extended = slices_are_extended(&here->slices, view, &cut, now_ns);
    uint64_t slice = extended ? SLICES_EXTENDED_US
                              : slices_length_us(&here->slices, view, policy_hard_percent(device));
    if (slice == here->slice_us)
        return;
    store_release(&here->extended_since_ns, 0u);
    here->slice_us = slice;
    if (extended)
        extend_slices(device);
    else
        (void)rm_channels_set_timeslice(device, slice);
}

uint64_t tenants_extended_since_ns(unsigned device, uint64_t *ret_slice_ns)
{
    uint64_t since = load_acquire(&devices[device].extended_since_ns);
    *ret_slice_ns = load_relaxed(&devices[device].extended_slice_us) * 1000ull;
    return since;
}

void tenants_note_cut(unsigned device, bool known)
{
    struct slices_cut *cut = &devices[device].cut;
    if (!known)
        add_relaxed(&cut->blurred, 1u);
    store_relaxed(&cut->known, known ? load_relaxed(&cut->known) + 1 : 0u);
}

static void forfeit(struct vgpu_compute *words, struct vgpu_usage *own, void *argument)
{
    (void)own, (void)argument;
    budget_forfeit(words);
}

static bool has_soft(unsigned device)
{
    return policy_soft_percent(device) > policy_hard_percent(device);
}

/* What others left was not saved for the time in which they do not leave it: it is given back at
 * once. True if the container had it until now. */
static bool give_back(unsigned device, bool soft_is_on)
{
    struct tenants_device *here = &devices[device];
    bool until_now = here->soft_is_on && !soft_is_on && has_soft(device);
    here->soft_is_on = soft_is_on;
    if (until_now)
        (void)account_visit_compute(device, forfeit, NULL);
    return until_now;
}

/* ---- neighbours that no registry tells of ---- */

/* Nanoseconds of work before the first question for other processes, and the longest interval. */
#define ASK_FIRST_NS 1000000000ull
#define ASK_LAST_NS 64000000000ull

static struct {
    uint64_t asked_ns,
        again_ns; /* when the resource manager was asked; how long after that again */
    bool said;
} unknown;

/* 0: none, or it cannot be told. */
static int find_other_process(unsigned device)
{
    static struct rm_pids pids; /* the governor's alone */
    if (!rm_channels_processes(device, &pids))
        return 0;
    for (uint32_t i = 0; i < pids.count; i++) {
        if (pids.pids[i] && !account_may_have_process((int)pids.pids[i]))
            return (int)pids.pids[i];
    }
    return 0;
}

/* Once for the process: it works under a limit beside another process, and there is no registry.
 * First after 1 s of work, then at intervals that double, up to 64 s: each question takes the GPU's
 * lock. */
static void tell_of_unknown(unsigned device, const struct tenants_own *own, uint64_t now_ns)
{
    const struct registry *registry = &devices[device].registry;
    if (unknown.said || registry_is_attached(registry) || registry->failure_said || !own->active ||
        !policy_hard_percent(device))
        return;
    if (!unknown.again_ns) {
        unknown.asked_ns = now_ns;
        unknown.again_ns = ASK_FIRST_NS;
    }
    if (now_ns - unknown.asked_ns < unknown.again_ns || rm_channels_is_closed(device))
        return;
    int pid = find_other_process(device);
    unknown.asked_ns = now_ns;
    unknown.again_ns *= unknown.again_ns < ASK_LAST_NS ? 2 : 1;
    if (!pid)
        return;
    unknown.said = true;
    log_warning("neighbours are unknown: process %d has this GPU, too, and there is no registry at "
                "%.256s by which the GPU's containers know of each other; busy ones may get less "
                "than their shares (docs/registry.md)",
        pid, container_config()->registry_directory);
}

static bool take_in(unsigned device, const struct registry_view *view, uint64_t now_ns)
{
    struct slices *slices = &devices[device].slices;
    bool alone = slices_alone(slices, view, now_ns);
    struct policy_neighbours neighbours = {
        .soft_is_on = registry_is_attached(&devices[device].registry) && alone,
        .higher_work = slices_give_way(slices, view, now_ns),
        .part = slices_part(slices, view, policy_hard_percent(device)),
    };
    policy_set_neighbours(device, &neighbours, now_ns);
    if (devices[device].epoch != view->epoch)
        registry_changed_ns = now_ns;
    devices[device].epoch = view->epoch;
    devices[device].looked = true;
    looked_bound = device < looked_bound ? looked_bound : device + 1;
    devices[device].awaited = has_soft(device) || neighbours.higher_work || policy_has_priority();
    return give_back(device, neighbours.soft_is_on);
}

/* A tenant without a limit counts 100. */
static bool is_beside_limited(const struct registry_view *view)
{
    return view->active && view->active_limit_sum < 100 * view->active;
}

/* A container without a slot in the registry has no place in the order. */
static void take_slot(
    struct tenants_device *here, const struct registry_view *view, const struct registry_own *said)
{
    const struct window_others others = {.count = view->divided.count,
        .percent = view->divided.limit_sum,
        .before_percent = view->divided.before_limit_sum,
        .least_percent = view->divided.least_limit};
    here->slot = (struct window_slot){0};
    if (said->divided && registry_is_attached(&here->registry))
        here->slot = window_slot(said->core_limit, &others);
    here->slices.divided = here->slot.period_ns != 0;
}

struct window_slot tenants_slot(unsigned device)
{
    return devices[device].slot;
}

bool tenants_meet(unsigned device, const struct tenants_own *own, uint64_t now_ns)
{
    struct tenants_device *here = attend(device, now_ns);
    struct registry_view view;
    uint64_t busy = account_busy_ns(device);
    struct registry_own said = {
        .active = own->active,
        .wants = own->wants,
        .paused = own->paused,
        .saturating = here->slices.saturating,
        .windows = own->windows,
        .divided = own->divided,
        .core_limit = policy_hard_percent(device),
        .core_soft_limit = policy_soft_percent(device),
        .priority = policy_priority(),
        .busy_ns = busy,
    };
    registry_publish(&here->registry, &said, now_ns);
    registry_look(&here->registry, now_ns, &view);
    tell_of_unknown(device, own, now_ns);
    take_slot(here, &view, &said);
    slices_rate(&here->slices, busy, &view, now_ns);
    set_slices(device, &view, now_ns);
    if (is_beside_limited(&view))
        policy_note_limited_beside(now_ns);
    return take_in(device, &view, now_ns);
}

bool tenants_limited_work(unsigned device, uint64_t now_ns)
{
    struct tenants_device *here = attend(device, now_ns);
    struct registry_view view;
    registry_look(&here->registry, now_ns, &view);
    return is_beside_limited(&view);
}

/* The soft limit opens as soon as it may. */
static uint64_t until_alone(unsigned device, uint64_t now_ns, uint64_t ns)
{
    const struct tenants_device *here = &devices[device];
    uint64_t at_ns = here->slices.alone_at_ns;
    bool waits = !here->soft_is_on && has_soft(device) && at_ns > now_ns;
    return waits && at_ns - now_ns < ns ? at_ns - now_ns : ns;
}

uint64_t tenants_await(uint64_t ns, struct word_awaited words[WORD_AWAITED_MAX], unsigned *count)
{
    uint64_t now = clock_now_ns(), since = now - registry_changed_ns;
    unsigned before = *count, bound = looked_bound;
    looked_bound = 0;
    for (unsigned d = 0; d < bound; d++) {
        if (devices[d].looked)
            ns = until_alone(d, now, ns);
    }
    for (unsigned d = 0; d < bound; d++) {
        struct tenants_device *here = &devices[d];
        bool awaited = here->looked && (here->awaited || ns > OFTEN_NS);
        uint32_t *word = awaited ? registry_wait_word(&here->registry) : NULL;
        here->looked = false;
        if (word && *count < WORD_AWAITED_MAX)
            words[(*count)++] = (struct word_awaited){word, here->epoch, .shared = true};
    }
    if (*count == before || since >= BOARDS_GAP_NS)
        return ns;
    *count = before;
    return ns < BOARDS_GAP_NS - since ? ns : BOARDS_GAP_NS - since;
}

void tenants_leave(void)
{
    for (unsigned d = 0; d < VGPU_REGION_DEVICES; d++) {
        if (load_acquire(&devices[d].met))
            registry_idle(&devices[d].registry);
    }
}

void tenants_reset(void)
{
    for (unsigned d = 0; d < VGPU_REGION_DEVICES; d++) {
        if (!devices[d].met)
            continue;
        registry_reset(&devices[d].registry);
        devices[d] = (struct tenants_device){.registry = devices[d].registry};
    }
    registry_changed_ns = 0;
    looked_bound = 0;
    memset(&unknown, 0, sizeof(unknown));
}
