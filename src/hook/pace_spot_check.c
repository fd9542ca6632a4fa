/* SPDX-License-Identifier: Apache-2.0 */
/* What is asked at spot checks, and what follows from it. */
#include "hook/pace_spot_check.h"

#include "base/log.h"
#include "hook/pace_gate.h"
#include "hook/pace_rules.h"
#include "hook/pace_thread.h"
#include "limit/spot_check.h"
#include "vgpu/region.h"

#include <string.h>

/* It asks so often, a fifth more or less: a rhythm would meet the program's. */
#define ASK_NS 50000000ull
/* And so long after something was let by. */
#define ESTIMATED_NS 1000000000ull
/* A governor that was kept from running asks at a moment that others have a part in. */
#define LATE_NS 4000000u

struct charged {
    uint64_t busy_ns, launches;
};

static struct {
    struct spot_checks checks;
    struct charged charged, at_last_look;
    bool estimated; /* something was let by since then */
} devices[VGPU_REGION_DEVICES] GUARDED_BY(marks_lock);

/* The governor's own. */
static struct {
    uint64_t estimated_ns; /* when something was let by last */
    uint64_t asked_ns, ask_ns;
    bool sleeps_until; /* nothing else ends its sleep sooner, as far as is known */
} looks[VGPU_REGION_DEVICES];

bool pace_doubted[VGPU_REGION_DEVICES];
static bool logged;
static uint32_t chance = 1;

static uint64_t about_ns(uint64_t ns)
{
    chance = chance * 1664525u + 1013904223u;
    return ns - ns / 5 + (ns / 5 * 2 * (chance >> 16) >> 16);
}

void spot_check_charged(unsigned device, const struct lane_charge *charge)
{
    devices[device].charged.busy_ns += charge->busy_ns;
    devices[device].charged.launches += charge->launches;
    devices[device].estimated |= charge->launches && !charge->measured;
}

/* Beside other processes of the container, too, the least is an equal part. */
static unsigned own_permille(unsigned device)
{
    unsigned active = gate_active((int)device), part = rules_part(device).permille;
    return part / (active ? active : 1);
}

static void tell(void)
{
    if (!logged)
        log_info("kernels take longer than they were measured to, where nothing shows it: each "
                 "launch is measured for a while");
    logged = true;
}

static void change(unsigned device, bool doubts)
{
    if (doubts == load_relaxed(&pace_doubted[device]))
        return;
    if (doubts)
        tell();
    store_relaxed(&pace_doubted[device], doubts);
    rules_note_news();
}

bool spot_check_is_due(unsigned device, uint64_t now_ns)
{
    return looks[device].ask_ns && now_ns >= looks[device].ask_ns;
}

/* What is charged in between is told, also where nobody was asked. */
void spot_check_take(unsigned device, uint64_t now_ns)
{
    __typeof__(*looks) *look = &looks[device];
    struct charged *charged = &devices[device].charged, *former = &devices[device].at_last_look;
    uint64_t running_ns;
    if (devices[device].estimated)
        look->estimated_ns = now_ns;
    if (look->ask_ns && now_ns < look->ask_ns)
        return;
    bool asks = look->ask_ns && look->sleeps_until && now_ns < look->ask_ns + LATE_NS;
    bool works = marks_work((int)device, now_ns, &running_ns);
    uint64_t told_ns = charged->busy_ns + running_ns;
    const struct spot_check check = {.now_ns = now_ns,
        .passed_ns = asks ? now_ns - look->asked_ns : 0,
        .works = asks && (works || thread_let_by_works((int)device)),
        .permille = own_permille(device),
        .told_ns = told_ns > former->busy_ns ? told_ns - former->busy_ns : 0,
        .launches = charged->launches - former->launches};
    change(device, spot_check_note(&devices[device].checks, &check));
    *former = (struct charged){told_ns, charged->launches};
    devices[device].estimated = false;
    look->asked_ns = now_ns;
    look->ask_ns = 0;
}

uint64_t spot_check_plan(unsigned device, uint64_t now_ns, uint64_t pause_ns, bool closed)
{
    __typeof__(*looks) *look = &looks[device];
    bool wanted = spot_check_doubts(device) || now_ns < look->estimated_ns + ESTIMATED_NS;
    look->sleeps_until = false;
    if (!wanted || closed)
        look->ask_ns = 0;
    else if (!look->ask_ns)
        look->ask_ns = now_ns + about_ns(ASK_NS);
    if (!look->ask_ns || now_ns + pause_ns < look->ask_ns)
        return pause_ns;
    look->sleeps_until = true;
    return look->ask_ns > now_ns ? look->ask_ns - now_ns : 1;
}

void spot_check_reset(void)
{
    memset(devices, 0, sizeof(devices));
    memset(looks, 0, sizeof(looks));
    memset(pace_doubted, 0, sizeof(*pace_doubted) * VGPU_REGION_DEVICES);
    logged = false;
}
