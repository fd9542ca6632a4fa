/* SPDX-License-Identifier: Apache-2.0 */
/* The table of learnt durations: two places for each key. */
#include "compute/durations.h"

#include <stdbool.h>
#include <string.h>

/* A new measurement weighs one by the number of all, and one by this at least: a mean follows a
 * kernel that changes within some tens of launches. */
#define LEARNING_SHARE 8

/* A kernel that takes this many times its mean does other work under the same key: each launch is
 * measured again until there is an estimate. */
#define FAR_OFF 4

/* A measurement that is off by more than this part of the mean leaves the count at UNSTEADY: two
 * more must agree before duration_is_steady says so. */
#define STEADY_PART 16
#define UNSTEADY (DURATION_SETTLED + 1)

/* Times in a row that a kernel must exceed its mean before that is
 * believed: others' time slices would have to be met by chance in each of 8 launches. */
#define EXCEEDED_TIMES 8

/* Measurements in an extended time slice, of which the least counts: one of four in a
 * row began in a time slice of its own container. */
#define EXTENDED_TIMES 4

uint64_t durations_table[DURATIONS_ENTRIES];

/* The least of a kernel's last measurements of one kind. Another kernel may take the row. */
struct row {
    uint64_t key, least_ns;
    unsigned times;
};
/* Kernels followed at once, by their keys. */
#define ROWS 64

static struct row exceeded[ROWS];   /* that exceeded the mean */
static struct row extended[ROWS];   /* in an extended time slice */
static struct row distrusted[ROWS]; /* longer beside others than alone */

static uint64_t *entry_for(uint64_t key)
{
    uint64_t *first = &durations_table[key % DURATIONS_ENTRIES];
    uint64_t *second = &durations_table[(key ^ 1) % DURATIONS_ENTRIES];
    uint64_t in_first = load_relaxed(first), in_second = load_relaxed(second);
    if (in_first && (in_first ^ key) >> DURATION_BITS == 0)
        return first;
    if (in_second && (in_second ^ key) >> DURATION_BITS == 0)
        return second;
    if (!in_first || in_second)
        return first;
    return second;
}

static uint64_t bounded(uint64_t ns)
{
    return ns < 1 ? 1 : ns > DURATION_MAX_NS ? DURATION_MAX_NS : ns;
}

static unsigned seen_of(uint64_t entry)
{
    return entry >> DURATION_MEAN_BITS & (LEARNING_SHARE - 1);
}

static void enter(uint64_t key, unsigned seen, uint64_t mean_ns, uint64_t alone)
{
    if (seen > LEARNING_SHARE - 1)
        seen = LEARNING_SHARE - 1;
    store_relaxed(entry_for(key), key >> DURATION_BITS << DURATION_BITS | (alone & DURATION_ALONE) |
                                      (uint64_t)seen << DURATION_MEAN_BITS | bounded(mean_ns));
}

static void forget(struct row *rows, uint64_t key)
{
    if (rows[key % ROWS].key == key)
        rows[key % ROWS].times = 0;
}

/* The kernel's row, with one more measurement in it. */
static struct row *note(struct row *rows, uint64_t key, uint64_t took_ns)
{
    struct row *here = &rows[key % ROWS];
    if (here->key != key || !here->times)
        *here = (struct row){.key = key, .least_ns = took_ns};
    if (took_ns < here->least_ns)
        here->least_ns = took_ns;
    here->times++;
    return here;
}

/* How many measurements count with one more. */
static unsigned counted(unsigned seen, uint64_t mean_ns, uint64_t measured_ns)
{
    uint64_t off = measured_ns > mean_ns ? measured_ns - mean_ns : mean_ns - measured_ns;
    if (seen >= DURATION_SETTLED && measured_ns / FAR_OFF > mean_ns)
        return 0;
    return seen >= UNSTEADY && off > mean_ns / STEADY_PART ? UNSTEADY : seen + 1;
}

static void learn(uint64_t key, uint64_t measured_ns, uint64_t alone)
{
    uint64_t entry = duration_entry(key), mean = entry & DURATION_MAX_NS;
    unsigned seen = seen_of(entry);
    measured_ns = bounded(measured_ns);
    unsigned count = counted(seen, mean, measured_ns);
    if (mean)
        mean = (uint64_t)((int64_t)mean + ((int64_t)measured_ns - (int64_t)mean) / (seen + 1));
    else
        mean = measured_ns;
    enter(key, count, mean, entry | alone);
    forget(exceeded, key);
}

void duration_learn(uint64_t key, uint64_t measured_ns)
{
    learn(key, measured_ns, 0);
}

void duration_learn_alone(uint64_t key, uint64_t measured_ns)
{
    learn(key, measured_ns, DURATION_ALONE);
}

/* The same for a measurement that does not show whether the duration is steady. */
static unsigned counted_unsteady(uint64_t entry)
{
    unsigned seen = seen_of(entry);
    return seen < UNSTEADY ? seen + 1 : UNSTEADY;
}

void duration_confirm(uint64_t key)
{
    uint64_t entry = duration_entry(key);
    if (entry && seen_of(entry) < UNSTEADY)
        enter(key, seen_of(entry) + 1, entry & DURATION_MAX_NS, entry);
}

void duration_shorten(uint64_t key, uint64_t most_ns)
{
    uint64_t entry = duration_entry(key);
    if ((entry & DURATION_MAX_NS) > most_ns)
        enter(key, counted_unsteady(entry), most_ns, entry);
    forget(exceeded, key);
}

void duration_exceeded(uint64_t key, uint64_t took_ns)
{
    struct row *here = note(exceeded, key, took_ns);
    uint64_t mean = duration_of(key);
    if (here->times >= EXCEEDED_TIMES) {
        here->times = 0;
        enter(key, UNSTEADY, here->least_ns, 0);
    } else if (here->least_ns / FAR_OFF > mean) {
        enter(key, 0, mean, 0);
    }
}

void duration_distrust(uint64_t key, bool longer)
{
    uint64_t entry = duration_entry(key);
    if (!longer) {
        forget(distrusted, key);
    } else if (note(distrusted, key, UINT64_MAX)->times >= EXCEEDED_TIMES) {
        forget(distrusted, key);
        enter(key, seen_of(entry), entry & DURATION_MAX_NS, 0);
    }
}

void duration_learn_extended(uint64_t key, uint64_t took_ns)
{
    struct row *here = note(extended, key, took_ns);
    duration_shorten(key, took_ns);
    if (here->times < EXTENDED_TIMES)
        return;
    here->times = 0;
    enter(key, DURATION_SETTLED, here->least_ns, DURATION_ALONE);
    forget(exceeded, key);
}

void durations_reset(void)
{
    memset(durations_table, 0, sizeof(durations_table));
    memset(exceeded, 0, sizeof(exceeded));
    memset(extended, 0, sizeof(extended));
    memset(distrusted, 0, sizeof(distrusted));
}
