/* SPDX-License-Identifier: Apache-2.0 */
/* What spot checks find, against what was charged. */
#include "compute/spot_check.h"

/* Nanoseconds of estimated work that may not be charged yet: three calm looks of the governor. */
#define LATE_NS 60e6
/* Nanoseconds in which a launch is on its way to the device, and its end on the way back, at
 * most. */
#define LAUNCH_NS 10e3
/* Tolerance of the charge: a fiftieth of the time, and three standard deviations (by chance once in
 * 740). */
#define TOLERANCE_PART 50
#define DEVIATIONS 3
/* Nanoseconds. Half of what is kept is forgotten when more time than this was checked. */
#define KEPT_NS 60000000000ull
/* Nanoseconds charged and not found, which make up for work that is found later, at most. */
#define CREDIT_NS 1e9

static void forget(struct spot_checks *checks)
{
    checks->seen_ns = checks->told_ns = checks->squares = checks->asked_ns = 0;
    checks->passed_ns = 0;
}

static void forget_half(struct spot_checks *checks)
{
    checks->seen_ns /= 2;
    checks->told_ns /= 2;
    checks->squares /= 2;
    checks->asked_ns /= 2;
    checks->passed_ns /= 2;
}

static void add(struct spot_checks *checks, const struct spot_check *check)
{
    double own_ns = (double)check->passed_ns * check->permille / 1000;
    if (check->works)
        checks->seen_ns += own_ns;
    checks->told_ns += (double)check->told_ns + (double)check->launches * LAUNCH_NS;
    checks->squares += own_ns * own_ns;
    checks->asked_ns += own_ns;
    checks->passed_ns += check->passed_ns;
    if (checks->told_ns > checks->seen_ns + CREDIT_NS)
        checks->told_ns = checks->seen_ns + CREDIT_NS;
    if (checks->passed_ns > KEPT_NS)
        forget_half(checks);
}

static uint64_t twice(uint64_t ns, uint64_t least_ns, uint64_t most_ns)
{
    uint64_t next = 2 * ns;
    return next < least_ns ? least_ns : next > most_ns ? most_ns : next;
}

/* Answers are yes or no: a share p of yes has a variance of p (1 - p). p is kept within 0.1 and
 * 0.9, because few answers may be all the same. */
static double variance(const struct spot_checks *checks)
{
    double part = checks->asked_ns > 0 ? checks->seen_ns / checks->asked_ns : 0;
    part = part < 0.1 ? 0.1 : part > 0.9 ? 0.9 : part;
    return checks->squares * part * (1 - part);
}

static bool is_distrusted(const struct spot_checks *checks)
{
    double more =
        checks->seen_ns - checks->told_ns - LATE_NS - (double)checks->passed_ns / TOLERANCE_PART;
    return more > 0 && more * more > DEVIATIONS * DEVIATIONS * variance(checks);
}

static void begin(struct spot_checks *checks, uint64_t now_ns)
{
    bool soon = now_ns < checks->distrust_to_ns + SPOT_CHECK_SOON_NS;
    checks->distrust_ns =
        twice(soon ? checks->distrust_ns : 0, SPOT_CHECK_DISTRUST_NS, SPOT_CHECK_DISTRUST_MOST_NS);
    checks->distrust_to_ns = now_ns + checks->distrust_ns;
    checks->distrusts = true;
    forget(checks);
}

static void end(struct spot_checks *checks)
{
    checks->distrusts = false;
    forget(checks);
}

/* The checks say the same of launches that are measured: they find something else than the
 * program's kernels. */
static void fall_silent(struct spot_checks *checks, uint64_t now_ns)
{
    end(checks);
    checks->silent_ns = twice(checks->silent_ns, SPOT_CHECK_WRONG_NS, SPOT_CHECK_WRONG_MOST_NS);
    checks->silent_to_ns = now_ns + checks->silent_ns;
}

bool spot_check_note(struct spot_checks *checks, const struct spot_check *check)
{
    if (check->now_ns < checks->silent_to_ns)
        return false;
    add(checks, check);
    bool uncertain = is_distrusted(checks);
    if (uncertain && checks->distrusts)
        fall_silent(checks, check->now_ns);
    else if (uncertain)
        begin(checks, check->now_ns);
    if (checks->distrusts && check->now_ns >= checks->distrust_to_ns)
        end(checks);
    return checks->distrusts;
}
