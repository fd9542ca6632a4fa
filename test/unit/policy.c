/* SPDX-License-Identifier: Apache-2.0 */
/* The policy over a simulated minute: a GPU, processes and a clock that drive budget and meters as
 * the launch gate does, with workloads that are plain, in step with the refills, or wrong. */
#include "policy_machine.h"

#include "check.h"

#define US 1000ull
#define MS 1000000ull
#define SECOND (1000 * MS)
#define MINUTE (60 * SECOND)

static struct machine machine;
static const unsigned limits[] = {10, 20, 50, 80, 95};
#define LIMITS (sizeof(limits) / sizeof(limits[0]))

/* The share of the time in which the GPU was busy, in thousandths of a percent. */
static int64_t share_of(uint64_t busy_ns, uint64_t passed_ns)
{
    return (int64_t)(busy_ns * 1000 / (passed_ns / 100));
}

static bool check_share(const char *what, unsigned percent, uint64_t allowance_ns)
{
    int64_t share = share_of(machine.busy_ns, MINUTE), wanted = percent * 1000;
    int64_t room = wanted / 100 + share_of(allowance_ns, MINUTE);
    bool within = share <= wanted + room && share >= wanted - room;
    if (!within)
        printf("# %s at %u %%: %lld.%03lld %%\n", what, percent, (long long)share / 1000,
            (long long)share % 1000);
    fflush(stdout);
    return CHECK(within);
}

/* After a while in which durations are learnt, and what was admitted for that is paid back. */
static void run_minute(uint64_t learns_ns)
{
    machine_run(&machine, learns_ns);
    machine_count(&machine);
    machine_run(&machine, MINUTE);
}

static void check_limits(const char *what, struct workload load, uint64_t allowance_ns)
{
    for (unsigned i = 0; i < LIMITS; i++) {
        machine_begin(&machine, limits[i]);
        (void)machine_add(&machine, load);
        run_minute(allowance_ns ? MINUTE : SECOND);
        check_share(what, limits[i], allowance_ns);
    }
}

/* ---- one process ---- */

TEST("without a limit a load has the GPU and is delayed by nothing")
{
    machine_begin(&machine, 0);
    struct process *process = machine_add(&machine, (struct workload){.kernel_ns = 100 * US});
    run_minute(SECOND);
    CHECK_EQ(share_of(machine.busy_ns, MINUTE), 100000);
    CHECK_EQ(process->delayed_ns, 0);
}

TEST("kernels of 10 us are held to the limit")
{
    check_limits("10 us", (struct workload){.kernel_ns = 10 * US}, 0);
}

TEST("kernels of 100 us, 1 ms and 5 ms are held to the limit")
{
    check_limits("100 us", (struct workload){.kernel_ns = 100 * US}, 0);
    check_limits("1 ms", (struct workload){.kernel_ns = MS}, 0);
    check_limits("5 ms", (struct workload){.kernel_ns = 5 * MS}, 0);
}

TEST("kernels of 50 ms are held to the limit")
{
    check_limits("50 ms", (struct workload){.kernel_ns = 50 * MS}, 50 * MS);
}

TEST("kernels of 3 s are held to the limit, to one kernel")
{
    check_limits("3 s", (struct workload){.kernel_ns = 3 * SECOND}, 3 * SECOND);
}

TEST("thousands of launches of 2 us, which cost more to launch than to run, are held to the limit")
{
    machine_begin(&machine, 20);
    (void)machine_add(&machine, (struct workload){.kernel_ns = 2 * US});
    run_minute(SECOND);
    /* What an idle device takes to begin is a quarter of theirs, and not seen of those in a queue.
     */
    check_share("2 us", 20, MINUTE / 100 * 4);
}

TEST("short kernels between long ones are held to the limit")
{
    check_limits("5 us and 7 ms", (struct workload){.kernel_ns = 5 * US, .second_ns = 7 * MS}, 0);
}

TEST("estimates 10 times too small, and too large, are set right")
{
    check_limits("too small", (struct workload){.kernel_ns = 200 * US, .estimate = 0.1}, 0);
    check_limits("too large", (struct workload){.kernel_ns = 200 * US, .estimate = 10}, 0);
    check_limits("too small", (struct workload){.kernel_ns = 20 * MS, .estimate = 0.1}, 20 * MS);
    check_limits("too large", (struct workload){.kernel_ns = 20 * MS, .estimate = 10}, 20 * MS);
}

TEST("bursts in step with the refills, the waits and the burst's length are held to the limit")
{
    static const uint64_t periods[] = {50 * US, MS, 2 * MS, 10 * MS, 20 * MS, 100 * MS, 200 * MS};
    for (unsigned i = 0; i < sizeof(periods) / sizeof(periods[0]); i++) {
        machine_begin(&machine, 50);
        /* Nine tenths of the time, were it let. */
        struct workload load = {.kernel_ns = periods[i] * 9 / 100, .burst = 10};
        load.period_ns = periods[i];
        (void)machine_add(&machine, load);
        run_minute(SECOND);
        if (!check_share("bursts", 50, 0))
            printf("# every %llu us\n", (unsigned long long)(periods[i] / 1000));
        fflush(stdout);
    }
}

TEST("launch-and-synchronise with host work is held to the limit")
{
    struct workload load = {.kernel_ns = 300 * US, .burst = 1, .host_ns = 30 * US};
    for (unsigned i = 0; i < 3; i++) {
        machine_begin(&machine, limits[i]);
        (void)machine_add(&machine, load);
        run_minute(SECOND);
        check_share("synchronise", limits[i], 0);
    }
}

static void check_free(struct workload load, unsigned percent)
{
    machine_begin(&machine, percent);
    struct process *process = machine_add(&machine, load);
    machine_run(&machine, MINUTE);
    /* But while the first launch is measured. */
    bool once = process->delayed_ns <= load.kernel_ns + MS / 2;
    if (!CHECK(once) || !CHECK(process->bursts_late == 0))
        printf("# at %u %%: %llu us of delay in all, %llu us at most, %llu bursts late\n", percent,
            (unsigned long long)process->delayed_ns / 1000,
            (unsigned long long)process->longest_ns / 1000,
            (unsigned long long)process->bursts_late);
    fflush(stdout);
}

TEST("a load below its limit is never delayed, from its first launch on")
{
    check_free((struct workload){.kernel_ns = MS, .burst = 4, .period_ns = 10 * MS}, 50);
    check_free((struct workload){.kernel_ns = 20 * US, .burst = 100, .period_ns = 5 * MS}, 50);
    check_free((struct workload){.kernel_ns = MS, .burst = 19, .period_ns = 100 * MS}, 20);
    check_free((struct workload){.kernel_ns = 100 * US, .burst = 1, .host_ns = 200 * US}, 50);
    check_free((struct workload){.kernel_ns = 100 * US, .burst = 1, .host_ns = 20 * US}, 95);
}

TEST("a load below its limit is not delayed by estimates that are too large")
{
    struct workload load = {.kernel_ns = MS, .burst = 3, .period_ns = 10 * MS, .estimate = 3};
    check_free(load, 50);
}

TEST("what is owed after a kernel of 3 s is that kernel at most, and is paid back")
{
    machine_begin(&machine, 50);
    (void)machine_add(
        &machine, (struct workload){.kernel_ns = 3 * SECOND, .burst = 1, .period_ns = MINUTE / 4});
    machine_run(&machine, 58 * SECOND);
    CHECK(machine.least_ns >= -(int64_t)(3 * SECOND + 10 * MS));
    CHECK(machine.least_ns < 0);
    CHECK(budget_refill(&machine.words, 50, machine.now_ns) > 0);
}

/* ---- clocks and limits ---- */

TEST("words of before a clock that began anew, or of one ahead, cost a second's share at most")
{
    static const int64_t jumps[] = {-3600, -1, 1, 3600};
    struct vgpu_compute words;
    for (unsigned i = 0; i < 4; i++) {
        machine_begin(&machine, 50);
        (void)machine_add(&machine, (struct workload){.kernel_ns = MS});
        machine_run(&machine, 5 * SECOND);
        words = machine.words;
        uint64_t now = machine.now_ns;
        machine_begin(&machine, 50);
        machine.words = words;
        machine.now_ns = now + (uint64_t)(jumps[i] * (int64_t)SECOND);
        (void)machine_add(&machine, (struct workload){.kernel_ns = MS});
        machine_run(&machine, MINUTE);
        check_share("after a jump", 50, SECOND / 2);
    }
}

TEST("a limit that is changed is in force within 50 ms")
{
    machine_begin(&machine, 80);
    (void)machine_add(&machine, (struct workload){.kernel_ns = 200 * US, .in_flight = 100});
    machine_run(&machine, SECOND);
    static const unsigned steps[] = {20, 70, 10, 95, 50};
    for (unsigned i = 0; i < sizeof(steps) / sizeof(steps[0]); i++) {
        machine.percent = steps[i];
        machine_run(&machine, 50 * MS);
        machine_count(&machine);
        machine_run(&machine, SECOND);
        int64_t share = share_of(machine.busy_ns, SECOND);
        if (!CHECK(share <= steps[i] * 1000 + 2000 && share >= steps[i] * 1000 - 2000))
            printf("# set to %u %%: %lld thousandths of a percent\n", steps[i], (long long)share);
        fflush(stdout);
        machine_run(&machine, SECOND);
    }
}

/* ---- several processes ---- */

static void check_parts(const char *what, unsigned percent, uint64_t allowance_ns)
{
    check_share(what, percent, allowance_ns);
    uint64_t part = MINUTE / 100 * percent / machine.count;
    for (unsigned i = 0; i < machine.count; i++) {
        uint64_t got = machine.processes[i].gpu_ns;
        if (!CHECK(got >= part / 2))
            printf("# %s at %u %%: process %u of %u has %llu of its %llu ms\n", what, percent, i,
                machine.count, (unsigned long long)(got / MS), (unsigned long long)(part / MS));
    }
    fflush(stdout);
}

TEST("two processes alike have equal parts")
{
    for (unsigned i = 0; i < LIMITS; i++) {
        machine_begin(&machine, limits[i]);
        (void)machine_add(&machine, (struct workload){.kernel_ns = 100 * US});
        (void)machine_add(&machine, (struct workload){.kernel_ns = 100 * US});
        run_minute(SECOND);
        check_parts("alike", limits[i], 0);
    }
}

static void check_pair(const char *what, struct workload one, struct workload other)
{
    for (unsigned i = 0; i < 4; i++) {
        machine_begin(&machine, limits[i]);
        (void)machine_add(&machine, one);
        (void)machine_add(&machine, other);
        run_minute(MINUTE);
        check_parts(what, limits[i], one.kernel_ns + other.kernel_ns);
    }
}

TEST("beside kernels of 5 ms those of 10 us have half of an equal part at least")
{
    check_pair("10 us, 5 ms", (struct workload){.kernel_ns = 10 * US},
        (struct workload){.kernel_ns = 5 * MS});
}

TEST("beside kernels of 50 ms those of 10 us have half of an equal part at least")
{
    check_pair("10 us, 50 ms", (struct workload){.kernel_ns = 10 * US},
        (struct workload){.kernel_ns = 50 * MS});
}

TEST("beside kernels of 500 ms those of 100 us have half of an equal part at least")
{
    check_pair("100 us, 500 ms", (struct workload){.kernel_ns = 100 * US},
        (struct workload){.kernel_ns = 500 * MS});
}

TEST("who is thought to take a tenth of what it takes does not take the others' parts")
{
    check_pair("right, too small", (struct workload){.kernel_ns = 200 * US},
        (struct workload){.kernel_ns = 200 * US, .estimate = 0.1});
}

TEST("who is thought to take ten times what it takes has half of an equal part at least")
{
    check_pair("right, too large", (struct workload){.kernel_ns = 200 * US},
        (struct workload){.kernel_ns = 200 * US, .estimate = 10});
}

TEST("who launches and waits has half of an equal part beside who launches ahead")
{
    check_pair("synchronise", (struct workload){.kernel_ns = MS, .burst = 1, .host_ns = 10 * US},
        (struct workload){.kernel_ns = MS});
}

TEST("eight processes with very different kernels have half of an equal part each")
{
    static const uint64_t kernels[] = {
        5 * US, 20 * US, 100 * US, 500 * US, MS, 5 * MS, 20 * MS, 60 * MS};
    for (unsigned i = 0; i < LIMITS; i++) {
        machine_begin(&machine, limits[i]);
        for (unsigned k = 0; k < 8; k++)
            (void)machine_add(&machine, (struct workload){.kernel_ns = kernels[k]});
        run_minute(MINUTE);
        check_parts("eight", limits[i], 60 * MS);
    }
}

TEST("what a process does not ask for the others have")
{
    machine_begin(&machine, 50);
    (void)machine_add(
        &machine, (struct workload){.kernel_ns = MS, .burst = 1, .period_ns = 20 * MS});
    (void)machine_add(&machine, (struct workload){.kernel_ns = 100 * US});
    run_minute(SECOND);
    check_share("one asks for a twentieth", 50, 0);
    CHECK(machine.processes[0].gpu_ns >= MINUTE / 20 * 95 / 100);
}

/* On a card changes between processes take time, and who sleeps is woken late. */
static void begin_as_on_a_card(unsigned percent)
{
    machine_begin(&machine, percent);
    machine.change_ns = 185 * US;
    machine.late_ns = 200 * US;
}

/* Of the processes from `first` on, within a tenth over each 3 s. */
static void check_alike(const char *what, unsigned first)
{
    machine_run(&machine, SECOND);
    for (unsigned round = 0; round < 4; round++) {
        uint64_t sum = 0;
        machine_count(&machine);
        machine_run(&machine, 3 * SECOND);
        for (unsigned i = first; i < machine.count; i++)
            sum += machine.processes[i].gpu_ns;
        uint64_t mean = sum / (machine.count - first);
        for (unsigned i = first; i < machine.count; i++) {
            uint64_t got = machine.processes[i].gpu_ns;
            if (!CHECK(got > mean / 10 * 9 && got < mean / 10 * 11))
                printf("# %s at %u %%: process %u of %u has %llu ms, the mean is %llu ms\n", what,
                    machine.percent, i, machine.count, (unsigned long long)(got / MS),
                    (unsigned long long)(mean / MS));
        }
    }
    fflush(stdout);
}

static void check_crowd(unsigned count, uint64_t kernel_ns)
{
    for (unsigned percent = 20; percent < 100; percent += 10) {
        begin_as_on_a_card(percent);
        for (unsigned i = 0; i < count; i++)
            (void)machine_add(&machine, (struct workload){.kernel_ns = kernel_ns, .in_flight = 64});
        check_alike("a crowd", 0);
    }
}

TEST("processes alike have equal parts within a tenth over each 3 s")
{
    check_crowd(2, 100 * US);
    check_crowd(2, MS);
    check_crowd(4, 100 * US);
    check_crowd(4, MS);
}

TEST("so have two with kernels of their own beside a third that asks for little")
{
    for (unsigned percent = 40; percent < 100; percent += 10) {
        begin_as_on_a_card(percent);
        (void)machine_add(
            &machine, (struct workload){.kernel_ns = 500 * US, .burst = 1, .period_ns = 20 * MS});
        (void)machine_add(&machine, (struct workload){.kernel_ns = MS, .in_flight = 64});
        (void)machine_add(&machine, (struct workload){.kernel_ns = 300 * US, .in_flight = 64});
        check_alike("beside little", 1);
        CHECK(machine.processes[0].gpu_ns >= 3 * SECOND / 40 * 95 / 100);
    }
}

int main(int argc, char **argv)
{
    return check_run(argc, argv);
}
