/* SPDX-License-Identifier: Apache-2.0 */
/* Tenants of different priority, and those who are paused: who works, from when on, and that the
 * others go on afterwards. Moments are the machine's own. */
#include "world.h"

#define SETTLE_MS 500
#define TRIES 3
#define NEVER "--shape persistent --seconds 50"
#define BURSTS                                                                                     \
    "--shape burst --burst-ms 200 --period-ms 520" /* rests in which it is heard of no more */
#define BURSTS_MAX 16

static void say(const char *what, double value)
{
    printf("# %s: %.3f\n", what, value);
    fflush(stdout);
}

static int by_size(const void *one, const void *other)
{
    double left = *(const double *)one, right = *(const double *)other;
    return left < right ? -1 : left > right;
}

static double median(double *values, unsigned count)
{
    qsort(values, count, sizeof(*values), by_size);
    return count ? values[count / 2] : 1e9;
}

/* 0 where the later one of the two was seen first. */
static double ms_between(uint64_t from_ns, uint64_t to_ns)
{
    return to_ns > from_ns ? (double)(to_ns - from_ns) / 1e6 : 0;
}

/* How long the low one went on beside the high one, in ms of its GPU time: it has half of the
 * device while both work. The median of the high one's turns to work; *ret_back: and how soon it
 * was back, from the end of the high one's work on, at best; *ret_meanwhile: what it had in
 * between. */
static double stopped_after_ms(const struct trace *trace, double *ret_back, double *ret_meanwhile)
{
    double after[BURSTS_MAX];
    unsigned count = 0;
    *ret_back = *ret_meanwhile = 1e9;
    for (uint64_t at = trace_works(trace, 1, trace_begin(trace)); at && count < BURSTS_MAX;) {
        uint64_t quiet = trace_falls_quiet(trace, 1, at, 100 * MS);
        uint64_t works = quiet ? trace_works(trace, 1, quiet) : 0;
        at = works;
        if (!works || works + 250 * MS > trace_end(trace))
            break;
        uint64_t stops = trace_falls_quiet(trace, 0, works, 100 * MS);
        uint64_t back = trace_works(trace, 0, quiet);
        uint64_t ends = trace_falls_quiet(trace, 1, works, 100 * MS);
        double meanwhile = ends ? trace_share(trace, 0, works + 60 * MS, ends) : 0;
        say("the lower's share meanwhile", meanwhile);
        *ret_meanwhile = meanwhile < *ret_meanwhile ? meanwhile : *ret_meanwhile;
        after[count] = stops ? ms_between(works, stops) : 1e9;
        say("stopped after ms", after[count++]);
        say("works on after ms", ms_between(quiet, back));
        if (back && ms_between(quiet, back) < *ret_back)
            *ret_back = ms_between(quiet, back);
    }
    return median(after, count);
}

static void check_gives_way(const struct tenant_how *low, const struct tenant_how *high)
{
    struct tenant tenants[2];
    double back, meanwhile;
    world_begin("1xh200");
    tenants[0] = tenant_start(low);
    tenant_until_busy(&tenants[0]);
    tenants[1] = tenant_start(high);
    tenant_until_busy(&tenants[1]);
    (void)world_watch(tenants, 2, SETTLE_MS);
    struct trace trace = world_watch(tenants, 2, 5000);
    CHECK(stopped_after_ms(&trace, &back, &meanwhile) <= 15);
    CHECK(back <= 150);
    CHECK(meanwhile <= 0.01);
    CHECK(trace_share_all(&trace, 0) > 0.1);
    tenant_kill(&tenants[1]);
    tenant_kill(&tenants[0]);
}

TEST("a tenant of higher priority has the GPU soon, and the lower works on afterwards")
{
    check_gives_way(&(struct tenant_how){.cores = "90", .priority = "1"},
        &(struct tenant_how){.cores = "90", .priority = "0", .load = BURSTS});
}

TEST("so it has from under a kernel that never ends")
{
    check_gives_way(&(struct tenant_how){.cores = "60", .priority = "1", .load = NEVER},
        &(struct tenant_how){.cores = "90", .priority = "0", .load = BURSTS});
}

TEST("so it has without any compute limit")
{
    check_gives_way(&(struct tenant_how){.priority = "1"},
        &(struct tenant_how){.priority = "0", .load = BURSTS});
    check_gives_way(&(struct tenant_how){.priority = "7", .load = NEVER},
        &(struct tenant_how){.priority = "3", .load = BURSTS});
}

TEST("tenants of one priority do not give way to each other, nor the higher to the lower")
{
    struct tenant tenants[3];
    world_begin("1xh200");
    tenants[0] = tenant_start(&(struct tenant_how){.cores = "40", .priority = "2"});
    tenants[1] = tenant_start(&(struct tenant_how){.cores = "40", .priority = "2"});
    for (unsigned i = 0; i < 2; i++)
        tenant_until_busy(&tenants[i]);
    (void)world_watch(tenants, 2, SETTLE_MS);
    tenants[2] = tenant_start(&(struct tenant_how){.cores = "90", .priority = "3"});
    usleep(1000000);
    struct trace trace = world_watch(tenants, 3, 1500);
    CHECK(trace_share_all(&trace, 0) > 0.3);
    CHECK(trace_share_all(&trace, 1) > 0.3);
    for (unsigned i = 0; i < 3; i++)
        tenant_kill(&tenants[i]);
}

TEST("who gives way for long works a little all the same, and no more than that")
{
    struct tenant tenants[2];
    double share = 0;
    world_begin("1xh200");
    tenants[0] = tenant_start(&(struct tenant_how){.cores = "90", .priority = "1"});
    tenant_until_busy(&tenants[0]);
    tenants[1] = tenant_start(&(struct tenant_how){.cores = "90", .priority = "0"});
    tenant_until_busy(&tenants[1]);
    (void)world_watch(tenants, 2, SETTLE_MS);
    struct trace trace = world_watch(tenants, 2, 13000); /* two such moments at least */
    share = trace_share_all(&trace, 0);
    say("the lower's share", share);
    say("the longest time without, ms", (double)trace_longest_gap_ns(&trace, 0) / 1e6);
    CHECK(share > 0.0005);
    CHECK(share < 0.05);
    CHECK(trace_share_all(&trace, 1) > 0.8);
    for (unsigned i = 0; i < 2; i++)
        tenant_kill(&tenants[i]);
}

/* ---- paused ---- */

/* Nothing of it runs between, by the machine's own time; and it works before and after. */
static void check_paused(const struct tenant_how *how)
{
    struct tenant tenant;
    world_begin("1xh200");
    tenant = tenant_start(how);
    tenant_until_busy(&tenant);
    (void)world_watch(&tenant, 1, SETTLE_MS);
    uint64_t from = tenant_busy_ns(&tenant);
    (void)world_watch(&tenant, 1, 100);
    CHECK(tenant_busy_ns(&tenant) > from);
    tenant_order(&tenant, "pause", NULL, NULL);
    (void)world_watch(&tenant, 1, 300); /* what was on its way */
    uint64_t paused = tenant_busy_ns(&tenant);
    (void)world_watch(&tenant, 1, 1500);
    CHECK_EQ(tenant_busy_ns(&tenant), paused);
    tenant_order(&tenant, "resume", NULL, NULL);
    (void)world_watch(&tenant, 1, 700);
    CHECK(tenant_busy_ns(&tenant) > paused);
    tenant_kill(&tenant);
}

static void check_pauses(const char *load)
{
    check_paused(&(struct tenant_how){.cores = "60", .load = load});
    check_paused(&(struct tenant_how){.memory = "4g", .load = load});
}

TEST("of a paused container nothing runs on the GPU, and it goes on when it is resumed")
{
    check_pauses(NULL);
    check_pauses("--kernel-us 20000");
}

TEST("so it is with a kernel that never ends, and with graphs")
{
    check_pauses(NEVER);
    check_pauses("--shape graph");
}

int main(int argc, char **argv)
{
    return check_run(argc, argv);
}
