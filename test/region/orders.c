/* SPDX-License-Identifier: Apache-2.0 */
/* What a container is told at once: limits in force, pauses, priority, the monitor's commands, the
 * window, and the sleep until one of them changes. */
#include "peers.h"

#include "base/atomic.h"
#include "base/clock.h"
#include "check.h"
#include "region/epoch.h"
#include "region/region_file.h"
#include "region/region_set.h"

#include <errno.h>
#include <fcntl.h>
#include <pthread.h>
#include <sched.h>
#include <sys/stat.h>

#define LONG_NS 40000000000ull /* a sleeper that nobody wakes fails its test after this */
#define MS 1000000ull
#define SECOND 1000000000ull
#define HAMI_SWITCH 2008900 /* offsets in HAMi's own layout */
#define HAMI_RECENT_KERNEL 2008904
#define HAMI_PRIORITY 2008908

static struct config_value percent(unsigned value)
{
    return (struct config_value){VALUE_SET, value};
}

static unsigned join(const struct config *config)
{
    REQUIRE(region_attach(&peers_region, config) == 0);
    account_start(&peers_region, 0);
    int number = account_device(PEERS_UUID, 0);
    REQUIRE(number >= 0);
    return (unsigned)number;
}

static unsigned join_with(unsigned cores, unsigned soft)
{
    struct config *config = peers_config(NULL);
    if (cores)
        config->cores_default = percent(cores);
    if (soft)
        config->soft_default = percent(soft);
    return join(config);
}

static unsigned join_with_priority(unsigned priority)
{
    struct config *config = peers_config(NULL);
    config->priority = priority;
    config->has_priority = true;
    return join(config);
}

static int32_t hami_word(off_t offset)
{
    int32_t word = 0;
    int fd = open(peers_path, O_RDONLY | O_CLOEXEC);
    REQUIRE(fd >= 0 && pread(fd, &word, sizeof(word), offset) == sizeof(word));
    close(fd);
    return word;
}

static void write_hami_word(off_t offset, int32_t word)
{
    int fd = open(peers_path, O_RDWR | O_CLOEXEC);
    REQUIRE(fd >= 0 && pwrite(fd, &word, sizeof(word), offset) == sizeof(word));
    close(fd);
}

static struct vgpu_device *device_words(unsigned device)
{
    return &peers_region.shared->devices[peers_region.devices[device].entry];
}

static struct account_control orders(void)
{
    struct account_control orders;
    (void)account_control(&orders);
    return orders;
}

static bool any(void)
{
    struct account_control orders;
    return account_control(&orders);
}

/* ---- what is in force ---- */

TEST("the environment's compute limit, soft limit and priority are in force")
{
    peers_begin();
    struct config *config = peers_config(NULL);
    config->cores_default = percent(30);
    config->soft_default = percent(60);
    config->priority = 0;
    config->has_priority = true;
    unsigned device = join(config);
    struct account_control now;
    CHECK(account_control(&now));
    CHECK_EQ(now.percent[device], 30);
    CHECK_EQ(now.soft[device], 60);
    CHECK_EQ(now.priority, 0);
    CHECK(now.has_priority && !now.paused && !now.held);
    CHECK_EQ(peers_region.shared->default_core_soft_limit, 60);
    CHECK_EQ(hami_word(HAMI_PRIORITY), 0);
}

TEST("without any limit nothing is in force, and the priority is the usual one")
{
    peers_begin();
    join(peers_config("1g"));
    struct account_control now;
    CHECK(!account_control(&now));
    CHECK_EQ(now.priority, VGPU_PRIORITY_DEFAULT);
    CHECK(!now.has_priority);
}

TEST("a soft limit that is not above a compute limit is none, and none is above the whole GPU")
{
    peers_begin();
    unsigned device = join_with(30, 60);
    struct vgpu_device *words = device_words(device);
    store_relaxed(&words->core_soft_limit, 30u);
    CHECK_EQ(orders().soft[device], 0);
    store_relaxed(&words->core_soft_limit, 4000000000u);
    CHECK_EQ(orders().soft[device], 100);
    store_relaxed(&words->core_limit, 0u);
    CHECK_EQ(orders().soft[device], 0);
    CHECK(!any());
    store_relaxed(&words->core_limit, 4000000000u);
    CHECK(!any());
}

TEST("a pause is in force without any limit")
{
    peers_begin();
    struct region tool;
    bool was = true;
    join(peers_config("1g"));
    peers_look(&tool);
    uint32_t epoch = orders().epoch;
    CHECK_EQ(region_set_paused(&tool, true, &was), 0);
    CHECK(!was && any() && orders().paused && orders().epoch != epoch);
    epoch = orders().epoch;
    CHECK_EQ(region_set_paused(&tool, false, &was), 0);
    CHECK(was && !any() && orders().epoch != epoch);
    region_detach(&tool);
}

TEST("limits, soft limits and a priority that are set while programs run are in force at once")
{
    peers_begin();
    struct region tool;
    unsigned device = join_with(30, 0);
    uint32_t epoch = orders().epoch;
    peers_look(&tool);
    struct region_change change = {
        .soft_cores = true, .soft_percent = 80, .priority = true, .priority_level = 3000000000u};
    CHECK_EQ(region_set_limits(&tool, REGION_ALL_DEVICES, &change), 0);
    region_detach(&tool);
    struct account_control now = orders();
    CHECK_EQ(now.percent[device], 30);
    CHECK_EQ(now.soft[device], 80);
    CHECK_EQ(now.priority, 3000000000u);
    CHECK(now.has_priority && now.epoch != epoch);
    CHECK_EQ(hami_word(HAMI_PRIORITY), INT32_MAX);
    int later = account_device("GPU-00000000-0000-0000-0000-000000000002", 1);
    REQUIRE(later >= 0);
    CHECK_EQ(orders().soft[later], 80);
}

/* ---- the commands of HAMi's monitor ---- */

TEST("a new region has HAMi's words at HAMi's offsets")
{
    peers_begin();
    join(peers_config(NULL));
    CHECK_EQ(hami_word(HAMI_SWITCH), 1);
    CHECK_EQ(hami_word(HAMI_RECENT_KERNEL), 2);
    CHECK_EQ(hami_word(HAMI_PRIORITY), 1);
}

TEST("the monitor's recent_kernel below 0 holds the container, also without a limit")
{
    peers_begin();
    join(peers_config(NULL));
    write_hami_word(HAMI_RECENT_KERNEL, -1);
    CHECK(any() && orders().held && !orders().paused);
    account_note_activity();
    CHECK_EQ(hami_word(HAMI_RECENT_KERNEL), -1);
    write_hami_word(HAMI_RECENT_KERNEL, 0);
    CHECK(!any());
    account_note_activity();
    CHECK_EQ(hami_word(HAMI_RECENT_KERNEL), 2);
}

static void check_switched(enum core_policy policy, bool on, bool off)
{
    peers_begin();
    struct config *config = peers_config(NULL);
    config->cores_default = percent(30);
    config->soft_default = percent(60);
    config->core_policy = policy;
    unsigned device = join(config);
    CHECK_EQ(orders().percent[device], on ? 30 : 0);
    write_hami_word(HAMI_SWITCH, 0);
    CHECK_EQ(any(), off);
    CHECK_EQ(orders().percent[device], off ? 30 : 0);
    CHECK_EQ(orders().soft[device], off ? 60 : 0);
    write_hami_word(HAMI_RECENT_KERNEL, -1);
    CHECK(any() && orders().held);
}

TEST("the monitor's utilization_switch lifts the compute limit, and no hold")
{
    check_switched(CORE_POLICY_DEFAULT, true, false);
}

TEST("a compute limit that the policy forces holds whatever the switch says")
{
    check_switched(CORE_POLICY_FORCE, true, true);
}

TEST("the policy that disables compute limits disables no hold")
{
    check_switched(CORE_POLICY_DISABLE, false, false);
}

/* ---- priority ---- */

static void live_with_priority_2(void)
{
    join_with_priority(2);
    peers_step(1);
    peers_wait(9);
}

TEST("another environment's priority is not taken while a process lives, and is once none does")
{
    peers_begin();
    pid_t pid = peers_fork(live_with_priority_2);
    peers_wait(1);
    join_with_priority(0);
    CHECK_EQ(orders().priority, 2);
    peers_kill(pid);
    region_detach(&peers_region);
    join_with_priority(0);
    CHECK_EQ(orders().priority, 0);
    region_detach(&peers_region);
    join(peers_config(NULL));
    CHECK(orders().has_priority && !orders().priority);
}

TEST("a priority is taken while others live that nobody gave one")
{
    peers_begin();
    struct region other;
    REQUIRE(region_attach(&other, peers_config("1g")) == 0);
    join_with_priority(5);
    CHECK_EQ(orders().priority, 5);
    region_detach(&other);
}

TEST("no environment sets a priority back that was set while programs ran")
{
    peers_begin();
    struct region tool;
    join_with_priority(2);
    peers_look(&tool);
    const struct region_change change = {.priority = true, .priority_level = 7};
    CHECK_EQ(region_set_limits(&tool, REGION_ALL_DEVICES, &change), 0);
    region_detach(&tool);
    CHECK_EQ(peers_region.shared->settings_hash, 0);
    region_detach(&peers_region);
    join_with_priority(0);
    CHECK_EQ(orders().priority, 7);
}

TEST("a priority word that nobody gave means nothing")
{
    peers_begin();
    join(peers_config(NULL));
    store_relaxed(&peers_region.shared->priority, 9u);
    store_relaxed(&peers_region.shared->priority_set, 77u);
    CHECK_EQ(orders().priority, VGPU_PRIORITY_DEFAULT);
    CHECK(!orders().has_priority);
}

/* ---- a file that goes away ---- */

TEST("pauses, holds, soft limits and priorities outlive their file")
{
    peers_begin();
    struct region tool;
    bool was;
    unsigned device = join_with(30, 60);
    peers_look(&tool);
    const struct region_change change = {.priority = true, .priority_level = 7};
    CHECK_EQ(region_set_limits(&tool, REGION_ALL_DEVICES, &change), 0);
    CHECK_EQ(region_set_paused(&tool, true, &was), 0);
    region_detach(&tool);
    write_hami_word(HAMI_RECENT_KERNEL, -1);
    write_hami_word(HAMI_SWITCH, 0);
    CHECK(any());
    for (int i = 0; i < 2; i++) {
        REQUIRE(i ? truncate(peers_path, 0) == 0 : unlink(peers_path) == 0);
        struct account_control now;
        CHECK(account_control(&now));
        CHECK(now.paused && now.held);
        CHECK_EQ(now.priority, 7);
        CHECK_EQ(now.percent[device], 0);
        CHECK_EQ(device_words(device)->core_soft_limit, 60);
        CHECK_EQ(peers_region.shared->default_core_soft_limit, 60);
        CHECK_EQ(hami_word(HAMI_SWITCH), 0);
        CHECK_EQ(hami_word(HAMI_RECENT_KERNEL), -1);
        CHECK_EQ(hami_word(HAMI_PRIORITY), 7);
    }
}

TEST("what was in force last holds where the file is gone and cannot be had again")
{
    peers_begin();
    unsigned device = join_with(30, 60);
    store_relaxed(&peers_region.shared->paused, 1u);
    CHECK(orders().paused);
    REQUIRE(
        truncate(peers_path, 0) == 0 && unlink(peers_path) == 0 && mkdir(peers_path, 0700) == 0);
    for (int i = 0; i < 2; i++) {
        CHECK(orders().paused);
        CHECK_EQ(orders().percent[device], 30);
        CHECK_EQ(orders().soft[device], 60);
    }
    rmdir(peers_path);
}

/* ---- sleepers ---- */

static void sleep_on_epoch(void)
{
    join(peers_config(NULL));
    uint32_t seen = orders().epoch;
    uint64_t start = clock_now_ns();
    peers_step(1);
    epoch_wait(&peers_region.shared->orders_epoch, seen, LONG_NS);
    CHECK(clock_now_ns() - start < LONG_NS);
    CHECK(orders().epoch != seen);
}

TEST("all who sleep on the epoch wake, in all processes")
{
    peers_begin();
    pid_t sleeping[3];
    for (int i = 0; i < 3; i++)
        sleeping[i] = peers_fork(sleep_on_epoch);
    join(peers_config(NULL));
    peers_wait(1);
    peers_sleep_ms(100);
    /* One that came to it late sleeps on what it read after. */
    for (int i = 0; i < 50; i++) {
        account_control_wake();
        peers_sleep_ms(10);
    }
    for (int i = 0; i < 3; i++)
        CHECK_EQ(peers_reap(sleeping[i]), 0);
}

struct sleeper {
    pthread_t thread;
    uint32_t seen;
    bool awake;
};

static void *sleep_long(void *argument)
{
    struct sleeper *sleeper = argument;
    epoch_wait(&peers_region.shared->orders_epoch, sleeper->seen, LONG_NS);
    store_release(&sleeper->awake, true);
    return NULL;
}

/* It may come to sleep only after what happens: it then must see that it happened. */
static void check_woken_by(bool replace)
{
    peers_begin();
    join(peers_config(NULL));
    for (unsigned round = 0; round < 20; round++) {
        struct sleeper sleeper = {.seen = orders().epoch};
        REQUIRE(pthread_create(&sleeper.thread, NULL, sleep_long, &sleeper) == 0);
        peers_sleep_ms(round % 4);
        uint64_t start = clock_now_ns();
        REQUIRE((replace ? unlink(peers_path) : truncate(peers_path, 0)) == 0);
        (void)orders();
        while (!load_acquire(&sleeper.awake) && clock_now_ns() - start < LONG_NS)
            peers_sleep_ms(1);
        CHECK(clock_now_ns() - start < LONG_NS / 2);
        CHECK(orders().epoch != sleeper.seen);
        pthread_join(sleeper.thread, NULL);
    }
}

TEST("who sleeps on a file that another takes the place of is woken")
{
    check_woken_by(true);
}

TEST("who sleeps on a file that is shortened is woken when it is mended")
{
    check_woken_by(false);
}

TEST("who would sleep where the file was cut off does so for a moment only, and keeps errno")
{
    peers_begin();
    join(peers_config(NULL));
    uint32_t seen = orders().epoch;
    uint64_t start = clock_now_ns();
    REQUIRE(truncate(peers_path, 0) == 0);
    errno = ENOTTY;
    epoch_wait(&peers_region.shared->orders_epoch, seen, LONG_NS);
    CHECK_EQ(errno, ENOTTY);
    CHECK(clock_now_ns() - start < LONG_NS);
    CHECK(!peers_region.lost);
}

TEST("orders stand until the epoch is raised, and nobody who sleeps on it is woken to see that")
{
    peers_begin();
    account_start(NULL, 0);
    CHECK(!account_control_stands(0));
    join(peers_config(NULL));
    struct sleeper sleeper = {.seen = orders().epoch};
    REQUIRE(pthread_create(&sleeper.thread, NULL, sleep_long, &sleeper) == 0);
    peers_sleep_ms(50);
    errno = ENOTTY;
    for (int i = 0; i < 100; i++)
        CHECK(account_control_stands(sleeper.seen));
    CHECK(!load_acquire(&sleeper.awake));
    CHECK(!account_control_stands(sleeper.seen + 1));
    CHECK_EQ(errno, ENOTTY);
    account_control_wake();
    CHECK_EQ(pthread_join(sleeper.thread, NULL), 0);
    CHECK(!account_control_stands(sleeper.seen));
    CHECK(account_control_stands(orders().epoch));
}

TEST("where the file was cut off no orders stand, and the region is not touched to see that")
{
    peers_begin();
    join(peers_config(NULL));
    uint32_t seen = orders().epoch;
    REQUIRE(truncate(peers_path, 0) == 0);
    CHECK(!account_control_stands(seen));
    CHECK(!peers_region.lost);
}

TEST("a sleep is over in time, also where there is no region")
{
    peers_begin();
    account_start(NULL, 0);
    account_control_wait(0, 2 * MS);
    account_control_wait(0, UINT64_MAX);
    join(peers_config(NULL));
    uint64_t start = clock_now_ns();
    account_control_wait(orders().epoch, 20 * MS);
    CHECK(clock_now_ns() - start >= 20 * MS);
    account_control_wait(orders().epoch + 1, UINT64_MAX);
    account_control_wait(orders().epoch, UINT64_MAX);
}

/* ---- the window ---- */

TEST("the container's window closes once, opens, and tells who sleeps")
{
    peers_begin();
    join(peers_config(NULL));
    uint64_t now = clock_now_ns();
    uint32_t epoch = orders().epoch;
    CHECK_EQ(account_window(now).until_ns, 0);
    CHECK(account_window_close(now, now + SECOND));
    CHECK_EQ(account_window(now).closed_ns, now);
    CHECK_EQ(account_window(now).until_ns, now + SECOND);
    CHECK(orders().epoch != epoch);
    epoch = orders().epoch;
    CHECK(!account_window_close(now + MS, now + SECOND / 2));
    CHECK_EQ(account_window(now).until_ns, now + SECOND);
    CHECK_EQ(orders().epoch, epoch);
    account_window_open();
    CHECK_EQ(account_window(now).until_ns, 0);
    CHECK(orders().epoch != epoch);
    epoch = orders().epoch;
    account_window_open();
    CHECK_EQ(orders().epoch, epoch);
}

TEST("a window that is over, from before a start of the machine, or made up is open")
{
    peers_begin();
    join(peers_config(NULL));
    uint64_t now = clock_now_ns();
    CHECK(account_window_close(now, now + MS));
    CHECK_EQ(account_window(now + MS).until_ns, 0);
    CHECK(account_window_close(now + MS, now + 2 * MS));
    store_relaxed(&peers_region.shared->window_until_ns, now + 3600 * SECOND);
    CHECK_EQ(account_window(now).until_ns, 0);
    CHECK(account_window_close(now, now + MS));
    store_relaxed(&peers_region.shared->window_until_ns, UINT64_MAX);
    CHECK_EQ(account_window(now).until_ns, 0);
    now = clock_now_ns();
    store_relaxed(&peers_region.shared->window_until_ns, now + 2 * ACCOUNT_WINDOW_MAX_NS);
    CHECK_EQ(account_window(now).until_ns, 0);
    store_relaxed(&peers_region.shared->window_until_ns, now + ACCOUNT_WINDOW_MAX_NS);
    CHECK_EQ(account_window(now - 10 * MS).until_ns, now + ACCOUNT_WINDOW_MAX_NS);
    CHECK(!account_window_close(now, now));
    CHECK(!account_window_close(now, now + ACCOUNT_WINDOW_MAX_NS + 1));
}

#define RACERS 4
#define ROUNDS 300

static void race_to_close(void)
{
    join(peers_config(NULL));
    for (int round = 1; round <= ROUNDS; round++) {
        peers_wait(round);
        uint64_t now = clock_now_ns();
        if (account_window_close(now, now + ACCOUNT_WINDOW_MAX_NS))
            add_seq_cst(&peers->number[0], 1);
        add_seq_cst(&peers->number[1], 1);
    }
}

TEST("of several processes that close the window at once, one does")
{
    peers_begin();
    pid_t racing[RACERS];
    for (int i = 0; i < RACERS; i++)
        racing[i] = peers_fork(race_to_close);
    join(peers_config(NULL));
    for (int round = 1; round <= ROUNDS; round++) {
        account_window_open();
        peers_step(round);
        while (load_acquire(&peers->number[1]) < (int64_t)round * RACERS)
            sched_yield();
    }
    CHECK_EQ(peers->number[0], ROUNDS);
    for (int i = 0; i < RACERS; i++)
        CHECK_EQ(peers_reap(racing[i]), 0);
}

int main(int argc, char **argv)
{
    return check_run(argc, argv);
}
