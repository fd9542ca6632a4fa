/* SPDX-License-Identifier: Apache-2.0 */
/* What spot checks ask, and what follows from it. */
#include "pace/spot_check.h"

#include "base/atomic.h"
#include "base/log.h"
#include "pace/policy.h"
#include "pace/share.h"
#include "compute/spot_check.h"
#include "vgpu/region.h"

#include <string.h>

/* Nanoseconds between two questions, more or less a fifth of it. */
#define ASK_NS 100000000ull
/* Nanoseconds after the last launch by estimate in which questions go on. */
#define ESTIMATED_NS 1000000000ull
/* Nanoseconds by which a governor may be late for a question: later, others had a part in the
 * moment. */
#define LATE_NS 4000000u
/* Nanoseconds of rest after which the questions begin anew. */
#define REST_NS 2000000000ull
/* Nanoseconds. A pause of PAUSE_NS may be a quarter longer, so that one wake serves a look and a
 * question. */
#define PAUSE_NS 15000000ull
#define PAUSE_PART 4

struct charged {
    uint64_t busy_ns, launches;
};

static struct {
    struct spot_checks checks;
    struct charged charged, at_last_look;
    bool estimated; /* something was admitted by estimate since */
} devices[VGPU_REGION_DEVICES] GUARDED_BY(meters_lock);

/* The governor's own. Moments are chosen at random, one after the other, whatever the program does:
 * a fixed rhythm could coincide with the program's. */
static struct {
    uint64_t estimated_ns; /* when something was last admitted by estimate */
    uint64_t asked_ns;     /* the last question, */
    uint64_t ask_ns;       /* and the next; 0: there is none */
    enum { ELSEWHERE, SLEEPS_UNTIL, RESTS } governor; /* until the next, as far as is known */
} looks[VGPU_REGION_DEVICES];

bool spot_check_distrusted[VGPU_REGION_DEVICES];
static bool logged;
static uint32_t chance = 1;

static uint64_t about_ns(uint64_t ns)
{
    chance = chance * 1664525u + 1013904223u;
    return ns - ns / 5 + (ns / 5 * 2 * (chance >> 16) >> 16);
}

void spot_check_charged(unsigned device, const struct meter_charge *charge)
{
    devices[device].charged.busy_ns += charge->busy_ns;
    devices[device].charged.launches += charge->launches;
    devices[device].estimated |= charge->launches && !charge->measured;
}

/* Beside other processes of the container an equal part, at least. */
static unsigned own_permille(unsigned device)
{
    unsigned active = share_active(device), part = policy_part(device).permille;
    return part / (active ? active : 1);
}

static void tell(void)
{
    if (!logged)
        log_info("kernels take longer than they were measured to, where nothing shows it: each "
                 "launch is measured for a while");
    logged = true;
}

static void change(unsigned device, bool distrusts)
{
    if (distrusts == load_relaxed(&spot_check_distrusted[device]))
        return;
    if (distrusts)
        tell();
    store_relaxed(&spot_check_distrusted[device], distrusts);
    policy_note_news();
}

bool spot_check_is_due(unsigned device, uint64_t now_ns)
{
    return looks[device].ask_ns && now_ns >= looks[device].ask_ns;
}

/* What was charged in between counts also without a question. */
static void note(unsigned device, uint64_t now_ns, bool asks, bool rests,
    spot_check_works_function *estimated_works) REQUIRES(meters_lock)
{
    const __typeof__(*looks) *look = &looks[device];
    struct charged *charged = &devices[device].charged, *former = &devices[device].at_last_look;
    uint64_t running_ns;
    bool works = events_work((int)device, now_ns, &running_ns);
    uint64_t told_ns = charged->busy_ns + running_ns;
    const struct spot_check check = {.now_ns = now_ns,
        .passed_ns = asks ? look->ask_ns - look->asked_ns : 0,
        .works = asks && !rests && (works || estimated_works((int)device)),
        .permille = own_permille(device),
        .told_ns = told_ns > former->busy_ns ? told_ns - former->busy_ns : 0,
        .launches = charged->launches - former->launches};
    change(device, spot_check_note(&devices[device].checks, &check));
    *former = (struct charged){told_ns, charged->launches};
}

/* While the governor rests, nothing works. */
void spot_check_take(unsigned device, uint64_t now_ns, spot_check_works_function *estimated_works)
{
    __typeof__(*looks) *look = &looks[device];
    bool rests = look->governor == RESTS, sleeps = look->governor == SLEEPS_UNTIL;
    if (devices[device].estimated)
        look->estimated_ns = now_ns;
    devices[device].estimated = false;
    if (!look->ask_ns || now_ns > look->ask_ns + REST_NS) {
        look->ask_ns = 0;
        note(device, now_ns, false, false, estimated_works);
    }
    for (; look->ask_ns && now_ns >= look->ask_ns; look->ask_ns += about_ns(ASK_NS)) {
        note(device, now_ns, rests || (sleeps && now_ns < look->ask_ns + LATE_NS), rests,
            estimated_works);
        look->asked_ns = look->ask_ns;
    }
}

uint64_t spot_check_plan(unsigned device, uint64_t now_ns, uint64_t pause_ns, bool calm)
{
    __typeof__(*looks) *look = &looks[device];
    uint64_t most_ns = calm && pause_ns >= PAUSE_NS ? pause_ns + pause_ns / PAUSE_PART : pause_ns;
    look->governor = ELSEWHERE;
    if (!spot_check_distrusts(device) && now_ns > look->estimated_ns + ESTIMATED_NS)
        look->ask_ns = 0;
    else if (!look->ask_ns)
        look->ask_ns = (look->asked_ns = now_ns) + about_ns(ASK_NS) - about_ns(ASK_NS / 2);
    if (!look->ask_ns || now_ns + most_ns < look->ask_ns)
        return pause_ns;
    look->governor = SLEEPS_UNTIL;
    return look->ask_ns > now_ns ? look->ask_ns - now_ns : 1;
}

void spot_check_pause(unsigned device, bool rests)
{
    looks[device].governor = rests ? RESTS : ELSEWHERE;
    if (!rests)
        looks[device].ask_ns = 0;
}

void spot_check_reset(void)
{
    memset(devices, 0, sizeof(devices));
    memset(looks, 0, sizeof(looks));
    memset(spot_check_distrusted, 0, sizeof(*spot_check_distrusted) * VGPU_REGION_DEVICES);
    logged = false;
}
