/* SPDX-License-Identifier: Apache-2.0 */
/* Tenants whose working sets do not fit together take turns with the card's memory. On virtual
 * time: what is asserted of time is the simulated machine's. */
#include "world.h"
#include "turner.h"
#include "vgpu/region.h"

#include <fcntl.h>
#include <signal.h>
#include <stddef.h>
#include <stdio.h>
#include <stdlib.h>
#include <sys/mman.h>

#define S (1000 * MS)
#define ROUND_US 20000
#define ROUND_NS (ROUND_US * 1000ull)

static struct turners *turners;
static struct tenant tenants[TURNERS_MAX];
static char path[160];

static void begin_on(const char *machine)
{
    world_begin(machine);
    setenv("CUDA_MEMORY_OVERSUBSCRIBE", "2", 1);
    world_path("turners", path);
    int fd = open(path, O_RDWR | O_CREAT | O_CLOEXEC, 0600);
    REQUIRE(fd >= 0 && ftruncate(fd, sizeof(*turners)) == 0);
    turners = mmap(NULL, sizeof(*turners), PROT_READ | PROT_WRITE, MAP_SHARED, fd, 0);
    REQUIRE(turners != MAP_FAILED && close(fd) == 0);
}

/* A context has 2 MiB, so that a tenant's set is what it allocates. */
static void begin(void)
{
    begin_on("h200,context=2MiB");
}

static uint64_t rounds(unsigned number)
{
    return __atomic_load_n(&turners->list[number].rounds, __ATOMIC_SEQ_CST);
}

static uint64_t faults(unsigned number)
{
    return __atomic_load_n(&turners->list[number].faults, __ATOMIC_SEQ_CST);
}

static void order(unsigned number, enum turner_order order)
{
    __atomic_store_n(&turners->list[number].order, (uint32_t)order, __ATOMIC_SEQ_CST);
}

static void sleep_ms(unsigned ms)
{
    nanosleep(
        &(struct timespec){.tv_sec = ms / 1000, .tv_nsec = (long)(ms % 1000) * 1000000}, NULL);
}

static const char *cores; /* a compute limit of those that are started */
static const char *board; /* where they look for the registry */

/* A share of 2 GiB, and a set of so many MiB. */
static void start_in(unsigned number, unsigned mib, const struct tenant *joins)
{
    char load[256];
    uint64_t before = rounds(number);
    snprintf(load, sizeof(load), "%u %u %u %s", number, mib, ROUND_US, path);
    tenants[number] = tenant_start(&(struct tenant_how){.memory = "4GiB",
        .cores = cores,
        .board = board,
        .program = "tenants-turner",
        .load = load,
        .joins = joins ? joins->region : NULL});
    for (unsigned i = 0; i < 6000 && rounds(number) < before + 2; i++)
        sleep_ms(10);
    CHECK(rounds(number) >= before + 2);
}

static void start(unsigned number, unsigned mib)
{
    start_in(number, mib, NULL);
}

/* For how much of the time each had all that it wants, and worked. */
static double measure(unsigned count, unsigned ms)
{
    uint64_t before = 0, after = 0, from_ns = world_now_ns();
    for (unsigned i = 0; i < count; i++)
        before += rounds(i);
    sleep_ms(ms);
    for (unsigned i = 0; i < count; i++)
        after += rounds(i);
    return (double)(after - before) * ROUND_NS / (double)(world_now_ns() - from_ns);
}

static void end(unsigned count)
{
    for (unsigned i = 0; i < count; i++) {
        CHECK_EQ(faults(i), 0);
        kill(tenants[i].pid, SIGCONT);
        tenant_kill(&tenants[i]);
    }
}

/* The one whose rounds go on. */
static unsigned holder_of_two(void)
{
    for (unsigned i = 0; i < 200; i++) {
        uint64_t one = rounds(0), other = rounds(1);
        sleep_ms(200);
        one = rounds(0) - one;
        other = rounds(1) - other;
        if (one + other > 5 && (!one || !other))
            return one ? 0 : 1;
    }
    CHECK(false);
    return 0;
}

static bool goes_on(unsigned number, unsigned ms)
{
    uint64_t before = rounds(number);
    for (unsigned i = 0; i < ms / 10 && rounds(number) < before + 3; i++)
        sleep_ms(10);
    return rounds(number) >= before + 3;
}

TEST("two whose sets are one and a half times their shares reach 0.85 of one after the other")
{
    begin();
    start(0, 3072);
    start(1, 3072);
    sleep_ms(5000);
    uint64_t first = rounds(0), second = rounds(1);
    double reached = measure(2, 40000);
    first = rounds(0) - first;
    second = rounds(1) - second;
    printf("# %.3f of one after the other, %llu and %llu rounds\n", reached,
        (unsigned long long)first, (unsigned long long)second);
    fflush(stdout);
    CHECK(reached >= 0.85);
    CHECK(first * 3 > second * 2 && second * 3 > first * 2);
    end(2);
}

TEST("what cannot leave the card keeps nobody waiting for it")
{
    begin_on("h200,context=518MiB");
    start(0, 3072);
    start(1, 3072);
    sleep_ms(5000);
    double reached = measure(2, 40000);
    printf("# %.3f of one after the other\n", reached);
    fflush(stdout);
    CHECK(reached >= 0.8); /* both contexts and a set are a little more than both shares */
    end(2);
}

TEST("who fits into its share never waits beside them")
{
    begin();
    start(2, 1536);
    start(0, 3072);
    start(1, 3072);
    sleep_ms(3000);
    turners->list[2].longest_ns = 0;
    uint64_t before = rounds(2);
    sleep_ms(20000);
    /* Three share the card's time: 2 time slices of others and its own round. */
    CHECK(turners->list[2].longest_ns < 10ull * ROUND_NS);
    CHECK(rounds(2) - before > 300);
    end(3);
}

TEST("one alone works without a wait, and with its share")
{
    begin();
    start(0, 3072);
    sleep_ms(1000);
    turners->list[0].longest_ns = 0;
    sleep_ms(10000);
    CHECK(turners->list[0].longest_ns < 300 * MS);
    end(1);
}

/* As the library measured it. */
static uint64_t measured_ns(unsigned number)
{
    uint64_t busy_ns = 0;
    int fd = open(tenants[number].region, O_RDONLY | O_CLOEXEC);
    off_t at = VGPU_REGION_OFFSET + offsetof(struct vgpu_region, compute) +
               offsetof(struct vgpu_compute, busy_ns);
    CHECK_EQ(pread(fd, &busy_ns, sizeof(busy_ns), at), sizeof(busy_ns));
    close(fd);
    return busy_ns;
}

TEST("a wait for the turn is no GPU time")
{
    begin();
    cores = "80";
    start(0, 3072);
    start(1, 3072);
    sleep_ms(5000);
    uint64_t before = measured_ns(0), from = rounds(0);
    sleep_ms(40000);
    uint64_t busy_ns = measured_ns(0) - before, worked_ns = (rounds(0) - from) * ROUND_NS;
    printf("# measured %.3f of what it worked\n", (double)busy_ns / (double)worked_ns);
    fflush(stdout);
    CHECK(worked_ns > 8 * S);
    CHECK(busy_ns > worked_ns / 10 * 9 && busy_ns < worked_ns / 10 * 11);
    end(2);
}

/* How fast the younger half of the set is read, before and after a minute of that. It has 1.5 GiB,
 * of which 1 GiB was spilled. */
static void read_half(enum turner_order how, double *ret_before, double *ret_after)
{
    begin();
    start(0, 3072);
    sleep_ms(2000);
    order(0, how);
    sleep_ms(1000);
    uint64_t from = rounds(0);
    sleep_ms(4000);
    *ret_before = (double)(rounds(0) - from) * ROUND_NS / 2 / (4.0 * S);
    sleep_ms(60000);
    from = rounds(0);
    sleep_ms(4000);
    *ret_after = (double)(rounds(0) - from) * ROUND_NS / 2 / (4.0 * S);
    printf("# %.2f of the card's speed, then %.2f\n", *ret_before, *ret_after);
    fflush(stdout);
    end(1);
}

TEST("what kernels are seen to use comes onto the card in the place of what they do not")
{
    double before, after;
    read_half(TURNER_HALF, &before, &after);
    CHECK(before < 0.4);
    CHECK(after > 0.9);
}

TEST("beside graphs, which do not show what they use, nothing changes places")
{
    double before, after;
    read_half(TURNER_GRAPHS, &before, &after);
    CHECK(before < 0.4);
    CHECK(after < 0.4);
}

static void check_asked_for(enum turner_order how)
{
    begin();
    start(0, 3072);
    order(0, how);
    sleep_ms(10000);
    order(0, TURNER_HALF);
    sleep_ms(500);
    uint64_t from = rounds(0);
    sleep_ms(2000);
    CHECK((double)(rounds(0) - from) * ROUND_NS / 2 / (2.0 * S) > 0.9);
    end(1);
}

TEST("what the program prefetches comes onto the card at once")
{
    check_asked_for(TURNER_PREFETCH);
}

TEST("so does what it advises to keep there")
{
    check_asked_for(TURNER_ADVISE);
}

TEST("a set that is larger than the share and used all the time is left where it is")
{
    begin();
    start(0, 3072);
    sleep_ms(30000);
    uint64_t from = rounds(0), began_ns = world_now_ns();
    sleep_ms(60000);
    /* 20 ms, and 1 GiB over the bus. */
    uint64_t each_ns = (world_now_ns() - began_ns) / (rounds(0) - from);
    printf("# a round of %llu ms\n", (unsigned long long)(each_ns / MS));
    fflush(stdout);
    CHECK(each_ns < 70 * MS);
    end(1);
}

TEST("a holder that rests hands its turn over early")
{
    begin();
    start(0, 3072);
    start(1, 3072);
    unsigned holder = holder_of_two();
    order(holder, TURNER_REST);
    CHECK(goes_on(1 - holder, 2000));
    turners->list[1 - holder].longest_ns = 0;
    sleep_ms(10000);
    CHECK(turners->list[1 - holder].longest_ns < S); /* and keeps it while nobody waits */
    order(holder, TURNER_WORK);
    CHECK(goes_on(holder, 70000));
    end(2);
}

TEST("a holder that is killed gives its turn and its memory back")
{
    begin();
    start(0, 3072);
    start(1, 3072);
    for (unsigned i = 0; i < 6; i++) {
        unsigned holder = holder_of_two();
        sleep_ms(i * 173);
        tenant_kill(&tenants[holder]);
        CHECK(goes_on(1 - holder, 5000));
        start(holder, 3072);
    }
    end(2);
}

TEST("a holder that is stopped loses its turn, and goes on when it is let")
{
    begin();
    start(0, 3072);
    start(1, 3072);
    for (unsigned i = 0; i < 4; i++) {
        unsigned holder = holder_of_two();
        sleep_ms(i * 217);
        kill(tenants[holder].pid, SIGSTOP);
        CHECK(goes_on(1 - holder, 10000));
        kill(tenants[holder].pid, SIGCONT);
        CHECK(goes_on(holder, 75000));
    }
    end(2);
}

TEST("one that waits may be killed, stopped, fork or end, and the other goes on")
{
    begin();
    start(0, 3072);
    start(1, 3072);
    for (unsigned i = 0; i < 4; i++) {
        unsigned waits = 1 - holder_of_two();
        if (i == 0)
            kill(tenants[waits].pid, SIGSTOP);
        if (i == 1)
            order(waits, TURNER_FORK);
        if (i == 2)
            order(waits, TURNER_EXIT);
        if (i == 3)
            tenant_kill(&tenants[waits]);
        CHECK(goes_on(1 - waits, 75000));
        if (i == 0)
            kill(tenants[waits].pid, SIGCONT);
        if (i == 1)
            CHECK(goes_on(waits, 75000));
        order(waits, TURNER_WORK);
        if (i == 2)
            tenant_kill(&tenants[waits]);
        if (i >= 2)
            start(waits, 3072);
    }
    end(2);
}

TEST("whoever is killed, stopped or forks at whatever moment, the other goes on")
{
    uint64_t seed = 1;
    begin();
    start(0, 3072);
    start(1, 3072);
    for (unsigned i = 0; i < 40; i++) {
        seed = seed * 6364136223846793005ull + 1442695040888963407ull;
        unsigned number = (unsigned)(seed >> 40) % 2, how = (unsigned)(seed >> 45) % 3;
        sleep_ms((unsigned)(seed >> 33) % 1700);
        if (how == 0) {
            tenant_kill(&tenants[number]);
        } else if (how == 1) {
            kill(tenants[number].pid, SIGSTOP);
        } else {
            order(number, TURNER_FORK);
        }
        CHECK(goes_on(1 - number, 75000));
        if (how == 0)
            start(number, 3072);
        else if (how == 1)
            kill(tenants[number].pid, SIGCONT);
        else
            order(number, TURNER_WORK);
        CHECK(goes_on(number, 75000));
    }
    end(2);
}

TEST("a holder that is paused gives its turn up, and goes on when it is resumed")
{
    begin();
    start(0, 3072);
    start(1, 3072);
    unsigned holder = holder_of_two();
    tenant_order(&tenants[holder], "pause", NULL, NULL);
    CHECK(goes_on(1 - holder, 10000));
    turners->list[1 - holder].longest_ns = 0;
    sleep_ms(5000);
    CHECK(turners->list[1 - holder].longest_ns < S);
    tenant_order(&tenants[holder], "resume", NULL, NULL);
    CHECK(goes_on(holder, 75000));
    end(2);
}

TEST("a limit that is changed changes the share, and both go on")
{
    begin();
    start(0, 3072);
    start(1, 3072);
    tenant_order(&tenants[0], "set", "--memory", "7GiB"); /* 3.5 GiB on the card: it fits */
    sleep_ms(3000);
    turners->list[0].longest_ns = 0;
    sleep_ms(10000);
    CHECK(turners->list[0].longest_ns < S);
    tenant_order(&tenants[0], "set", "--memory", "4GiB");
    CHECK(goes_on(1, 75000));
    CHECK(goes_on(0, 75000));
    CHECK(goes_on(1, 75000));
    end(2);
}

TEST("without a registry nobody waits, and each has its share")
{
    begin();
    board = "/nowhere";
    start(0, 3072);
    start(1, 3072);
    sleep_ms(1000);
    turners->list[0].longest_ns = turners->list[1].longest_ns = 0;
    sleep_ms(10000);
    for (unsigned i = 0; i < 2; i++)
        CHECK(turners->list[i].longest_ns && turners->list[i].longest_ns < 500 * MS);
    end(2);
}

TEST("a kernel that never ends costs its tenant the turn, and nobody else")
{
    begin();
    setenv("VGPU_GATE", "launch", 1);
    start(0, 3072);
    start(1, 3072);
    unsigned holder = holder_of_two();
    order(holder, TURNER_HANG);
    CHECK(goes_on(1 - holder, 10000)); /* a quantum, and what a stop waits */
    CHECK(goes_on(1 - holder, 75000));
    end(2);
}

TEST("processes of one container take their turn together")
{
    begin();
    start(0, 3072);
    start(1, 1536);
    start_in(2, 1536, &tenants[1]);
    sleep_ms(3000);
    uint64_t before[3] = {rounds(0), rounds(1), rounds(2)};
    sleep_ms(30000);
    for (unsigned i = 0; i < 3; i++)
        CHECK(rounds(i) - before[i] > 100);
    end(3);
}

TEST("three of which any two do not fit all work, and none waits for longer than the others take")
{
    begin();
    for (unsigned i = 0; i < 3; i++)
        start(i, 3584);
    sleep_ms(3000);
    for (unsigned i = 0; i < 3; i++)
        turners->list[i].longest_ns = 0;
    double reached = measure(3, 40000);
    printf("# %.3f of one after the other\n", reached);
    fflush(stdout);
    CHECK(reached >= 0.8);
    for (unsigned i = 0; i < 3; i++)
        CHECK(turners->list[i].longest_ns && turners->list[i].longest_ns < 20 * S);
    end(3);
}

int main(int argc, char **argv)
{
    return check_run(argc, argv);
}
