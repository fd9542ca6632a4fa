/* SPDX-License-Identifier: Apache-2.0 */
/* Containers that share a GPU: what each gets while all are busy, and while some are not. */
#include "world.h"

#define SETTLE_MS 700
#define WATCH_MS 1500
#define TRIES 3

static void say(const char *what, double value)
{
    printf("# %s: %.3f\n", what, value);
    fflush(stdout);
}

static double distance(double one, double other)
{
    return one > other ? one - other : other - one;
}

/* ---- all busy ---- */

struct shares {
    double of[TENANTS_MAX], sum, worst; /* the farthest from what was wanted */
};

static void start_all(struct tenant *tenants, const struct tenant_how *hows, unsigned count)
{
    for (unsigned i = 0; i < count; i++)
        tenants[i] = tenant_start(&hows[i]);
    for (unsigned i = 0; i < count; i++)
        tenant_until_busy(&tenants[i]);
    (void)world_watch(tenants, count, SETTLE_MS);
}

static struct shares measure(const struct tenant *tenants, unsigned count, const double *wanted)
{
    struct trace trace = world_watch(tenants, count, WATCH_MS);
    struct shares shares = {.sum = 0};
    for (unsigned i = 0; i < count; i++) {
        shares.of[i] = trace_share_all(&trace, i);
        shares.sum += shares.of[i];
        double off = distance(shares.of[i], wanted[i]);
        shares.worst = off > shares.worst ? off : shares.worst;
        printf("# tenant %u: %.3f of %.2f\n", i, shares.of[i], wanted[i]);
    }
    fflush(stdout);
    return shares;
}

static void check_within(
    double most, const struct tenant_how *hows, unsigned count, const double *wanted)
{
    struct tenant tenants[TENANTS_MAX];
    double best = 1;
    start_all(tenants, hows, count);
    for (unsigned i = 0; i < TRIES && best > most; i++) {
        double worst = measure(tenants, count, wanted).worst;
        best = worst < best ? worst : best;
    }
    CHECK(best <= most);
    for (unsigned i = 0; i < count; i++)
        tenant_kill(&tenants[i]);
}

static void check_near(const struct tenant_how *hows, unsigned count, const double *wanted)
{
    check_within(0.02, hows, count, wanted);
}

TEST("two busy tenants whose limits fit have what their limits say")
{
    world_begin("1xh200");
    check_near((struct tenant_how[]){{.cores = "30"}, {.cores = "60"}}, 2, (double[]){0.3, 0.6});
}

TEST("two busy tenants with kernels of other lengths have what their limits say")
{
    world_begin("1xh200");
    check_near((struct tenant_how[]){{.cores = "40", .load = "--kernel-us 500"},
                   {.cores = "50", .load = "--kernel-us 4000"}},
        2, (double[]){0.4, 0.5});
}

/* Nobody sees what they take alone: the other one is always there. */
TEST("two busy tenants have what their limits say by kernels of which each lasts many time slices")
{
    static const struct {
        const char *load;
        const char *cores[2];
        double wanted[2];
    } cases[] = {{"--kernel-us 20000", {"30", "60"}, {0.3, 0.6}},
        {"--kernel-us 5000", {"5", "85"}, {0.05, 0.85}}};
    for (unsigned i = 0; i < 2; i++) {
        world_begin("1xh200");
        check_near((struct tenant_how[]){{.cores = cases[i].cores[0], .load = cases[i].load},
                       {.cores = cases[i].cores[1], .load = cases[i].load}},
            2, cases[i].wanted);
    }
}

TEST("four busy tenants whose limits fit have what their limits say")
{
    world_begin("1xh200");
    check_near(
        (struct tenant_how[]){{.cores = "10"}, {.cores = "15"}, {.cores = "25"}, {.cores = "40"}},
        4, (double[]){0.1, 0.15, 0.25, 0.4});
}

/* Each has one kernel a time slice, before which the device changes to it. */
TEST("four busy tenants with one kernel a time slice have what their limits say, to a point")
{
    world_begin("1xh200");
    check_within(0.01,
        (struct tenant_how[]){{.cores = "20"}, {.cores = "20"}, {.cores = "20"}, {.cores = "20"}},
        4, (double[]){0.2, 0.2, 0.2, 0.2});
}

TEST("one with known kernels of 50 ms beside a tenant of little work keeps to its limit")
{
    struct tenant tenants[2];
    world_begin("1xh200");
    start_all(tenants,
        (struct tenant_how[]){{.cores = "30", .load = "--kernel-us 50000"},
            {.cores = "20", .load = "--shape sync --kernel-us 100 --period-ms 10"}},
        2);
    (void)world_watch(tenants, 2, 2000);
    double best = 1;
    for (unsigned i = 0; i < TRIES && best > 0.33; i++) {
        struct shares shares = measure(tenants, 2, (double[]){0.3, 0.01});
        best = shares.of[0] < best ? shares.of[0] : best;
    }
    CHECK(best <= 0.33);
    for (unsigned i = 0; i < 2; i++)
        tenant_kill(&tenants[i]);
}

TEST("a kernel that never ends and a busy tenant have what their limits say")
{
    world_begin("1xh200");
    check_near((struct tenant_how[]){{.cores = "30", .load = "--shape persistent --seconds 40"},
                   {.cores = "50"}},
        2, (double[]){0.3, 0.5});
}

TEST("so have two with kernels that never end")
{
    static const char never[] = "--shape persistent --seconds 40";
    world_begin("1xh200");
    check_within(0.01,
        (struct tenant_how[]){{.cores = "30", .load = never}, {.cores = "60", .load = never}}, 2,
        (double[]){0.3, 0.6});
    world_begin("1xh200");
    check_within(0.01,
        (struct tenant_how[]){{.cores = "10", .load = never}, {.cores = "20", .load = never},
            {.cores = "25", .load = never}, {.cores = "35", .load = never}},
        4, (double[]){0.1, 0.2, 0.25, 0.35});
}

/* A closing and the opening after it (H200, driver 580.159.04), under the GPU's lock. */
#define WINDOW_NS 930000ull

static uint64_t switching_ns(const struct trace *trace, unsigned tenants)
{
    uint64_t closings = 0;
    for (unsigned i = 1; i < trace->count; i++)
        for (unsigned t = 0; t < tenants; t++)
            closings += trace->looks[i].stopped[t][0] && !trace->looks[i - 1].stopped[t][0];
    return closings * WINDOW_NS;
}

TEST("so have twelve, whose windows together keep the GPU's lock for less than a tenth of the time")
{
    enum { TWELVE = 12 };
    static const struct tenant_how how = {.cores = "8", .load = "--shape persistent --seconds 60"};
    struct tenant_how hows[TWELVE];
    struct tenant tenants[TWELVE];
    double wanted[TWELVE], best = 1;
    world_begin("1xh200");
    for (unsigned i = 0; i < TWELVE; i++) {
        hows[i] = how;
        wanted[i] = 0.08;
    }
    start_all(tenants, hows, TWELVE);
    (void)world_watch(tenants, TWELVE, 3000);
    for (unsigned i = 0; i < TRIES && best > 0.02; i++) {
        double worst = measure(tenants, TWELVE, wanted).worst;
        best = worst < best ? worst : best;
    }
    CHECK(best <= 0.02);
    struct trace trace = world_watch(tenants, TWELVE, 3000);
    uint64_t passed = trace_end(&trace) - trace_begin(&trace);
    printf(
        "# %.3f of the time to switches\n", (double)switching_ns(&trace, TWELVE) / (double)passed);
    fflush(stdout);
    CHECK(switching_ns(&trace, TWELVE) <= passed / 10);
    for (unsigned i = 0; i < TWELVE; i++)
        tenant_kill(&tenants[i]);
}

/* One watch sees ten kernels, and is off by 0.012 to either side. */
#define LONG_KERNEL_WATCHES 8

TEST("and two with kernels of which each lasts longer than any time slice")
{
    const double wanted[2] = {0.3, 0.6};
    struct tenant tenants[2];
    double sums[2] = {0, 0};
    world_begin("1xh200");
    start_all(tenants,
        (struct tenant_how[]){{.cores = "30", .load = "--kernel-us 150000"},
            {.cores = "60", .load = "--kernel-us 150000"}},
        2);
    (void)world_watch(tenants, 2, 3000); /* until their kernels are known */
    for (unsigned i = 0; i < LONG_KERNEL_WATCHES; i++) {
        struct shares shares = measure(tenants, 2, wanted);
        sums[0] += shares.of[0];
        sums[1] += shares.of[1];
    }
    for (unsigned i = 0; i < 2; i++) {
        say("in the mean", sums[i] / LONG_KERNEL_WATCHES);
        CHECK(distance(sums[i] / LONG_KERNEL_WATCHES, wanted[i]) <= 0.02);
        tenant_kill(&tenants[i]);
    }
}

TEST("two busy tenants of half the GPU each lose little to each other, by long time slices")
{
    struct tenant tenants[2];
    const double wanted[2] = {0.5, 0.5};
    double least = 0, sum = 0;
    world_begin("1xh200");
    start_all(tenants, (struct tenant_how[]){{.cores = "50"}, {.cores = "50"}}, 2);
    for (unsigned i = 0; i < TRIES && (least < 0.46 || sum < 0.94); i++) {
        struct shares shares = measure(tenants, 2, wanted);
        least = shares.of[0] < shares.of[1] ? shares.of[0] : shares.of[1];
        sum = shares.sum;
    }
    say("least", least);
    say("sum", sum);
    CHECK(least >= 0.46);
    CHECK(sum >= 0.94);
    for (unsigned i = 0; i < 2; i++) {
        CHECK(tenant_slice_us(&tenants[i]) > 4096);
        tenant_kill(&tenants[i]);
    }
}

TEST("tenants whose limits do not fit share, and none has more than its limit")
{
    struct tenant tenants[3];
    world_begin("1xh200");
    start_all(tenants, (struct tenant_how[]){{.cores = "80"}, {.cores = "60"}, {.cores = "30"}}, 3);
    struct shares shares = measure(tenants, 3, (double[]){0.45, 0.33, 0.17});
    say("sum", shares.sum);
    CHECK(shares.of[0] <= 0.82 && shares.of[1] <= 0.62 && shares.of[2] <= 0.32);
    for (unsigned i = 0; i < 3; i++) {
        CHECK(shares.of[i] >= 0.12);
        tenant_kill(&tenants[i]);
    }
}

TEST("beside a busy tenant without a compute limit a limited one has its part, by their weights")
{
    struct tenant tenants[2];
    double best = 0;
    world_begin("1xh200");
    start_all(tenants, (struct tenant_how[]){{.cores = "40"}, {.memory = "2g"}}, 2);
    (void)world_watch(tenants, 2, 2000); /* the other looks once a second whether it is there */
    for (unsigned i = 0; i < TRIES && best < 0.26; i++) {
        struct shares shares = measure(tenants, 2, (double[]){0.28, 0.70});
        CHECK(shares.of[0] <= 0.42);
        best = shares.of[0] > best ? shares.of[0] : best;
    }
    CHECK(best >= 0.26); /* 40 of 140; 0.2 where each waits for the other's time */
    for (unsigned i = 0; i < 2; i++)
        tenant_kill(&tenants[i]);
}

TEST("without a board no tenant has more than its limit, and nothing hangs")
{
    struct tenant tenants[3];
    world_begin("1xh200");
    start_all(tenants,
        (struct tenant_how[]){{.cores = "30", .soft = "90", .board = "/nonexistent"},
            {.cores = "60", .board = "/nonexistent"},
            {.cores = "20",
                .priority = "5",
                .board = "/nonexistent",
                .load = "--shape persistent --seconds 40"}},
        3);
    struct shares shares = measure(tenants, 3, (double[]){0.3, 0.6, 0.2});
    CHECK(shares.of[0] <= 0.32 && shares.of[1] <= 0.62 && shares.of[2] <= 0.22);
    for (unsigned i = 0; i < 3; i++) {
        CHECK(shares.of[i] >= 0.05);
        tenant_kill(&tenants[i]);
    }
}

/* ---- who is not busy ---- */

/* How long it took until `tenant` had `now_part`, of which it had `former_part` before: the time
 * that it must have spent so. */
static double lag_ms(const struct trace *trace, unsigned tenant, uint64_t from_ns, uint64_t to_ns,
    double former_part, double now_part)
{
    double share = trace_share(trace, tenant, from_ns, to_ns);
    return (double)(to_ns - from_ns) / 1e6 * (share - now_part) / (former_part - now_part);
}

TEST("a soft limit is used while nobody else works, and not beside others")
{
    struct tenant tenants[2];
    double alone = 1, beside = 1;
    world_begin("1xh200");
    tenants[0] = tenant_start(&(struct tenant_how){.cores = "30", .soft = "80"});
    tenant_until_busy(&tenants[0]);
    (void)world_watch(tenants, 1, SETTLE_MS);
    for (unsigned i = 0; i < TRIES && distance(alone, 0.8) > 0.02; i++)
        alone = measure(tenants, 1, (double[]){0.8}).of[0];
    CHECK(distance(alone, 0.8) <= 0.02);
    tenants[1] = tenant_start(&(struct tenant_how){.cores = "60"});
    tenant_until_busy(&tenants[1]);
    (void)world_watch(tenants, 2, SETTLE_MS);
    for (unsigned i = 0; i < TRIES && distance(beside, 0.3) > 0.02; i++)
        beside = measure(tenants, 2, (double[]){0.3, 0.6}).of[0];
    CHECK(distance(beside, 0.3) <= 0.02);
    tenant_kill(&tenants[0]);
    tenant_kill(&tenants[1]);
}

TEST("a soft limit stays shut beside a tenant that is held off the GPU by a small limit of its own")
{
    struct tenant tenants[2];
    double beside = 1;
    world_begin("1xh200");
    tenants[0] = tenant_start(&(struct tenant_how){.cores = "30", .soft = "80"});
    tenants[1] =
        tenant_start(&(struct tenant_how){.cores = "5", .load = "--shape persistent --seconds 40"});
    tenant_until_busy(&tenants[0]);
    tenant_until_busy(&tenants[1]);
    (void)world_watch(tenants, 2, SETTLE_MS);
    for (unsigned i = 0; i < TRIES && distance(beside, 0.3) > 0.03; i++)
        beside = measure(tenants, 2, (double[]){0.3, 0.05}).of[0];
    CHECK(distance(beside, 0.3) <= 0.03);
    tenant_kill(&tenants[0]);
    tenant_kill(&tenants[1]);
}

/* From a moment on the other does nothing: how long until the soft limit is used. */
static double freed_ms(const struct trace *trace, uint64_t from_ns)
{
    uint64_t to_ns = from_ns + 400 * MS;
    return to_ns > trace_end(trace) ? 1e9 : lag_ms(trace, 0, from_ns, to_ns, 0.3, 0.8);
}

TEST("a tenant that falls idle and works again frees its time, and has it back, both soon")
{
    struct tenant tenants[2];
    double freed = 1e9, back = 1e9;
    world_begin("1xh200");
    start_all(tenants,
        (struct tenant_how[]){{.cores = "30", .soft = "80"},
            {.cores = "60", .load = "--shape burst --burst-ms 350 --period-ms 1400"}},
        2);
    struct trace trace = world_watch(tenants, 2, 7000);
    for (uint64_t at = trace_works(&trace, 1, trace_begin(&trace)); at;) {
        uint64_t quiet = trace_falls_quiet(&trace, 1, at, 100 * MS);
        uint64_t works = quiet ? trace_works(&trace, 1, quiet) : 0;
        if (!works)
            break;
        double lag = freed_ms(&trace, quiet);
        say("freed after ms", lag);
        freed = lag < freed ? lag : freed;
        /* While both work, the device's time slices alone leave it half. */
        if (works + 200 * MS < trace_end(&trace)) {
            lag = lag_ms(&trace, 0, works, works + 200 * MS, 0.5, 0.3);
            say("given back after ms (below 0: it had less than its limit at first)", lag);
            back = lag < back ? lag : back;
        }
        at = works;
    }
    CHECK(freed <= 60);
    CHECK(back <= 60);
    tenant_kill(&tenants[0]);
    tenant_kill(&tenants[1]);
}

/* Of a kernel that never ends, whose container saved the time of its limit while it had all. */
TEST("a kernel that never ends gives back what its soft limit gave it, as soon as another works")
{
    struct tenant tenants[2];
    unsigned seen = 0, late = 0;
    world_begin("1xh200");
    start_all(tenants,
        (struct tenant_how[]){
            {.cores = "30", .soft = "100", .load = "--shape persistent --seconds 40"},
            {.cores = "60", .load = "--shape burst --burst-ms 170 --period-ms 613"}},
        2);
    struct trace trace = world_watch(tenants, 2, 5500);
    for (uint64_t at = trace_works(&trace, 1, trace_begin(&trace)); at;) {
        uint64_t quiet = trace_falls_quiet(&trace, 1, at, 100 * MS);
        at = quiet ? trace_works(&trace, 1, quiet) : 0;
        if (!at || at + 80 * MS > trace_end(&trace))
            break;
        /* While both work, the device's time slices alone leave it half. */
        double share = trace_share(&trace, 0, at, at + 60 * MS);
        say("its share over the 60 ms that follow", share);
        seen++;
        late += share > 0.33;
    }
    CHECK(seen >= 4);
    CHECK(2 * late < seen);
    tenant_kill(&tenants[0]);
    tenant_kill(&tenants[1]);
}

/* Ends the other's work in one of three ways while both are busy. */
enum end { END_KILL, END_PAUSE, END_STOP };

static double freed_by(enum end how, const char *load)
{
    struct tenant tenants[2];
    double best = 1e9;
    world_begin("1xh200");
    for (unsigned i = 0; i < TRIES && best > 50; i++) {
        start_all(tenants,
            (struct tenant_how[]){{.cores = "30", .soft = "80"}, {.cores = "60", .load = load}}, 2);
        pid_t watcher = fork();
        if (watcher == 0) {
            usleep(200000);
            if (how == END_KILL)
                kill(tenants[1].pid, SIGKILL);
            else if (how == END_STOP)
                kill(tenants[1].pid, SIGTERM);
            else
                tenant_order(&tenants[1], "pause", NULL, NULL);
            _exit(0);
        }
        struct trace trace = world_watch(tenants, 2, 1500);
        uint64_t from = trace_falls_quiet(&trace, 1, trace_begin(&trace) + 150 * MS, 200 * MS);
        double freed = from ? freed_ms(&trace, from) : 1e9;
        say("freed after ms", freed);
        best = freed < best ? freed : best;
        waitpid(watcher, NULL, 0);
        tenant_kill(&tenants[0]);
        tenant_kill(&tenants[1]);
    }
    return best;
}

TEST("a tenant that is killed frees its time soon")
{
    CHECK(freed_by(END_KILL, NULL) <= 70);
}

TEST("a tenant that is killed with a kernel that never ends frees its time soon")
{
    CHECK(freed_by(END_KILL, "--shape persistent --seconds 40") <= 70);
}

TEST("a tenant that ends frees its time soon")
{
    CHECK(freed_by(END_STOP, NULL) <= 60);
}

TEST("a tenant that is paused frees its time soon")
{
    CHECK(freed_by(END_PAUSE, NULL) <= 60);
}

int main(int argc, char **argv)
{
    return check_run(argc, argv);
}
