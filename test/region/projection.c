/* SPDX-License-Identifier: Apache-2.0 */
/* HAMi's part of the region: that it says what ours says, whoever is killed or writes there, and
 * what its monitor sets. What a monitor reads of programs: test/process/hami_monitor.py. */
#include "peers.h"

#include "base/atomic.h"
#include "base/clock.h"
#include "check.h"
#include "region/projection.h"
#include "region/region_set.h"

#include <fcntl.h>
#include <pthread.h>
#include <stdlib.h>
#include <string.h>

#define SECOND 1000000000ull

static struct vgpu_hami *hami(void)
{
    return &peers_region.map->hami;
}

static struct vgpu_hami_slot *own(void)
{
    return &hami()->slots[peers_region.slot];
}

static struct vgpu_device *entry(unsigned device)
{
    return &peers_region.shared->devices[peers_region.devices[device].entry];
}

static uint64_t limit_in_force(unsigned device)
{
    struct account_view view;
    account_view(device, &view);
    return view.limit_bytes;
}

static bool is_consistent(unsigned device)
{
    const struct vgpu_device *words = entry(device);
    uint64_t memory = load_relaxed(&hami()->limit[0]), cores = load_relaxed(&hami()->sm_limit[0]);
    return memory == words->memory_limit && memory == words->hami_memory_limit &&
           cores == (words->core_limit ? words->core_limit : 100) &&
           cores == words->hami_core_limit;
}

static void set(uint64_t memory_bytes, uint32_t percent)
{
    struct region tool;
    struct region_change change = {.memory = memory_bytes != 0,
        .memory_bytes = memory_bytes,
        .cores = percent != 0,
        .core_percent = percent};
    int fd = open(peers_path, O_RDWR | O_CLOEXEC);
    REQUIRE(fd >= 0 && region_set_open(&tool, fd) == 0);
    CHECK_EQ(region_set_limits(&tool, 0, &change), 0);
    region_detach(&tool);
}

/* ---- limits ---- */

TEST("the environment's limits are shown, and no compute limit is 100 percent")
{
    peers_begin();
    unsigned device = peers_join("1g");
    CHECK_EQ(hami()->device_count, 1);
    CHECK_STR(hami()->uuid[0], PEERS_UUID);
    CHECK_EQ(hami()->limit[0], 1024 * PEERS_MIB);
    CHECK_EQ(hami()->sm_limit[0], 100);
    CHECK(is_consistent(device));
}

TEST("what the monitor sets is in force at the next look, for all processes, and raises the epoch")
{
    peers_begin();
    unsigned device = peers_join("1g");
    uint32_t epoch = load_relaxed(&peers_region.shared->orders_epoch);
    store_relaxed(&hami()->limit[0], 512 * PEERS_MIB);
    store_relaxed(&hami()->sm_limit[0], (uint64_t)25);
    CHECK_EQ(account_reserve(device, 513 * PEERS_MIB, ACCOUNT_BUFFER), -ENOMEM);
    struct account_control orders;
    CHECK(account_control(&orders));
    CHECK_EQ(orders.percent[device], 25);
    CHECK_EQ(entry(device)->memory_limit, 512 * PEERS_MIB);
    CHECK(load_relaxed(&peers_region.shared->orders_epoch) != epoch);
    CHECK(is_consistent(device));
}

TEST("a limit that the monitor gives a container without any is kept against environments")
{
    peers_begin();
    unsigned device = peers_join(NULL);
    CHECK_EQ(limit_in_force(device), 0);
    store_relaxed(&hami()->limit[0], 300 * PEERS_MIB);
    CHECK_EQ(limit_in_force(device), 300 * PEERS_MIB);
    CHECK(peers_region.shared->settings_hash != 0);
    CHECK_EQ(entry(device)->settings_hash, peers_region.shared->settings_hash);
}

TEST("a limit that the monitor sets ends a closed device, and what can be no limit is no order")
{
    peers_begin();
    unsigned device = peers_join("much");
    set(0, 30);
    CHECK(entry(device)->memory_closed);
    store_relaxed(&hami()->limit[0], UINT64_MAX);
    store_relaxed(&hami()->sm_limit[0], UINT64_MAX);
    CHECK(account_reserve(device, PEERS_MIB, ACCOUNT_BUFFER) != 0);
    CHECK_EQ(entry(device)->core_limit, 30);
    CHECK_EQ(hami()->sm_limit[0], 30);
    CHECK(entry(device)->memory_closed && is_consistent(device));
    store_relaxed(&hami()->limit[0], 100 * PEERS_MIB);
    store_relaxed(&hami()->sm_limit[0], 100);
    CHECK_EQ(account_reserve(device, PEERS_MIB, ACCOUNT_BUFFER), 0);
    CHECK_EQ(entry(device)->core_limit, 0);
    CHECK(!entry(device)->memory_closed && is_consistent(device));
}

TEST("an emptied page lifts no limit")
{
    peers_begin();
    unsigned device = peers_join("1g");
    set(0, 30);
    memset(hami()->limit, 0, sizeof(hami()->limit));
    memset(hami()->sm_limit, 0, sizeof(hami()->sm_limit));
    CHECK_EQ(limit_in_force(device), 1024 * PEERS_MIB);
    CHECK_EQ(entry(device)->core_limit, 30);
    CHECK(is_consistent(device));
}

TEST("what is written into the entry itself is shown, and is no order of the monitor's")
{
    peers_begin();
    unsigned device = peers_join("1g");
    store_relaxed(&entry(device)->memory_limit, 700 * PEERS_MIB);
    store_relaxed(&entry(device)->core_limit, 45u);
    CHECK_EQ(limit_in_force(device), 700 * PEERS_MIB);
    CHECK_EQ(hami()->limit[0], 700 * PEERS_MIB);
    CHECK_EQ(hami()->sm_limit[0], 45);
    CHECK(is_consistent(device));
}

TEST("a limit that a tool sets is shown at once, and wins over what the monitor set before")
{
    peers_begin();
    unsigned device = peers_join("1g");
    store_relaxed(&hami()->limit[0], 100 * PEERS_MIB);
    set(2048 * PEERS_MIB, 55);
    CHECK(is_consistent(device));
    CHECK_EQ(limit_in_force(device), 2048 * PEERS_MIB);
    CHECK_EQ(hami()->sm_limit[0], 55);
}

TEST("who is killed while a limit is set leaves the old one or the new one, and no third")
{
    /* memory_limit, what is shown, and what is noted: each a step behind the one before. */
    static const uint64_t steps[][3] = {{2048, 1024, 1024}, {2048, 2048, 1024}, {2048, 2048, 2048},
        /* The same for an order: what is shown is first. */
        {1024, 2048, 1024}, {2048, 2048, 1024}};
    for (size_t i = 0; i < sizeof(steps) / sizeof(steps[0]); i++) {
        peers_begin();
        unsigned device = peers_join("1g");
        store_relaxed(&entry(device)->memory_limit, steps[i][0] * PEERS_MIB);
        store_relaxed(&hami()->limit[0], steps[i][1] * PEERS_MIB);
        store_relaxed(&entry(device)->hami_memory_limit, steps[i][2] * PEERS_MIB);
        CHECK_EQ(limit_in_force(device), 2048 * PEERS_MIB);
        CHECK(is_consistent(device));
        region_detach(&peers_region);
    }
}

static bool stop;

static void *monitor_sets(void *argument)
{
    for (uint64_t i = 0; !load_acquire(&stop); i++) {
        store_relaxed(&hami()->limit[0], (1000 + i % 100) * PEERS_MIB);
        store_relaxed(&hami()->sm_limit[0], 10 + i % 80);
    }
    return argument;
}

static void *program_looks(void *argument)
{
    const unsigned *device = argument;
    while (!load_acquire(&stop)) {
        if (account_reserve(*device, PEERS_MIB, ACCOUNT_BUFFER) == 0) {
            account_commit(*device, PEERS_MIB);
            account_release(*device, PEERS_MIB, ACCOUNT_BUFFER);
        }
    }
    return NULL;
}

TEST("the monitor, a tool and programs that race for a limit agree in the end")
{
    peers_begin();
    unsigned device = peers_join("1g");
    pthread_t threads[3];
    for (int t = 0; t < 3; t++)
        REQUIRE(pthread_create(
                    &threads[t], NULL, t ? program_looks : monitor_sets, t ? &device : NULL) == 0);
    for (uint32_t i = 0; i < 100; i++)
        set((2000 + i) * PEERS_MIB, 10 + i % 80);
    store_release(&stop, true);
    for (int t = 0; t < 3; t++)
        pthread_join(threads[t], NULL);
    (void)limit_in_force(device);
    CHECK(is_consistent(device));
    uint64_t limit = limit_in_force(device) / PEERS_MIB;
    CHECK((limit >= 1000 && limit < 1100) || limit == 2099);
    set(3000 * PEERS_MIB, 33);
    CHECK_EQ(limit_in_force(device), 3000 * PEERS_MIB);
    CHECK(is_consistent(device));
}

TEST("of more devices than HAMi knows the first 16 are shown")
{
    peers_begin();
    REQUIRE(region_attach(&peers_region, peers_config("1g")) == 0);
    account_start(&peers_region, 0);
    for (int i = 0; i < 20; i++) {
        char uuid[48];
        snprintf(uuid, sizeof(uuid), "GPU-00000000-0000-0000-0000-0000000000%02d", i);
        int device = account_device(uuid, i);
        REQUIRE(device >= 0);
        CHECK_EQ(account_reserve((unsigned)device, PEERS_MIB, ACCOUNT_BUFFER), 0);
    }
    CHECK_EQ(hami()->device_count, 16);
    for (int i = 0; i < 16; i++)
        CHECK_EQ(own()->used[i].data, PEERS_MIB);
    CHECK_EQ(own()->monitorused[0], PEERS_MIB);
    CHECK_EQ(own()->device_util[0].decoder, 0);
    CHECK_EQ(hami()->proc_num, 1);
}

/* ---- slots ---- */

static void check_own(unsigned device)
{
    CHECK_EQ(own()->pid, getpid());
    CHECK_EQ(own()->status, VGPU_HAMI_RUNNING);
    CHECK_EQ(own()->used[0].context, account_own_bytes(device, ACCOUNT_CONTEXT));
    CHECK_EQ(own()->used[0].module, account_own_bytes(device, ACCOUNT_MODULE));
    uint64_t elsewhere =
        account_own_bytes(device, ACCOUNT_MANAGED) + account_own_bytes(device, ACCOUNT_SPILLED);
    CHECK_EQ(own()->used[0].data, account_own_bytes(device, ACCOUNT_BUFFER) +
                                      account_own_bytes(device, ACCOUNT_MOVABLE) + elsewhere);
    CHECK_EQ(own()->used[0].offset, account_own_bytes(device, ACCOUNT_UNEXPLAINED));
    CHECK_EQ(own()->used[0].total, account_own_bytes(device, ACCOUNT_KINDS));
    CHECK_EQ(own()->monitorused[0], account_own_bytes(device, ACCOUNT_KINDS) - elsewhere);
}

TEST("each kind is shown as what HAMi calls it")
{
    peers_begin();
    unsigned device = peers_join("1g");
    for (int kind = 0; kind < ACCOUNT_KINDS; kind++) {
        account_add(device, (uint64_t)(kind + 1) * PEERS_MIB, kind);
        check_own(device);
    }
    account_release(device, PEERS_MIB, ACCOUNT_MANAGED);
    check_own(device);
}

TEST("a slot that somebody wiped or overwrote is right again after the owner's next charge")
{
    peers_begin();
    unsigned device = peers_join("1g");
    account_add(device, 5 * PEERS_MIB, ACCOUNT_CONTEXT);
    projection_wipe(peers_region.map, (unsigned)peers_region.slot);
    CHECK_EQ(own()->used[0].total, 0);
    account_add(device, PEERS_MIB, ACCOUNT_BUFFER);
    check_own(device);
    memset(own(), 0xff, sizeof(*own()));
    store_relaxed(&hami()->proc_num, -1);
    account_add(device, PEERS_MIB, ACCOUNT_BUFFER);
    check_own(device);
    CHECK_EQ(hami()->proc_num, 1);
}

static void hold_10(void)
{
    unsigned device = peers_join("1g");
    account_add(device, 10 * PEERS_MIB, ACCOUNT_BUFFER);
    add_seq_cst(&peers->number[0], 1);
    peers_wait(1);
    exit(0);
}

static uint64_t data_shown(void)
{
    uint64_t sum = 0;
    for (int32_t i = 0; i < hami()->proc_num; i++)
        sum += load_relaxed(&hami()->slots[i].used[0].data);
    return sum;
}

TEST("who exits is not shown any more, and who was killed until somebody looks or comes")
{
    pid_t pids[4];
    peers_begin();
    unsigned device = peers_join("1g");
    for (int i = 0; i < 4; i++)
        pids[i] = peers_fork(hold_10);
    while (load_relaxed(&peers->number[0]) < 4)
        peers_sleep_ms(1);
    CHECK_EQ(hami()->proc_num, 5);
    CHECK_EQ(data_shown(), 40 * PEERS_MIB);
    peers_kill(pids[0]);
    peers_step(1);
    for (int i = 1; i < 4; i++)
        CHECK_EQ(peers_reap(pids[i]), 0);
    CHECK_EQ(data_shown(), 10 * PEERS_MIB);
    CHECK_EQ(peers_used(device), 0);
    CHECK_EQ(data_shown(), 0);
    pids[0] = peers_fork(hold_10);
    CHECK_EQ(peers_reap(pids[0]), 0);
    CHECK_EQ(data_shown(), 0);
    CHECK_EQ(peers_used(device), 0);
    for (int32_t i = 1; i < hami()->proc_num; i++)
        CHECK_EQ(hami()->slots[i].status, VGPU_HAMI_DEAD);
}

static void exit_at_once(void)
{
    exit(0);
}

TEST("a forked child that exits wipes nothing of its parent's")
{
    peers_begin();
    unsigned device = peers_join("1g");
    account_add(device, 10 * PEERS_MIB, ACCOUNT_BUFFER);
    CHECK_EQ(peers_reap(peers_fork(exit_at_once)), 0);
    check_own(device);
}

/* ---- GPU time ---- */

static void use(struct vgpu_compute *words, struct vgpu_usage *usage, void *argument)
{
    add_relaxed(&words->busy_ns, *(uint64_t *)argument);
    add_relaxed(&usage->gpu_time_ns, *(uint64_t *)argument);
}

TEST("the share of GPU time is that of the last second, and none when nothing was used since")
{
    peers_begin();
    unsigned device = peers_join("1g");
    uint64_t start = clock_now_ns(), former = start, used = 0;
    while (clock_now_ns() - start < 5 * SECOND / 2) {
        uint64_t now = clock_now_ns(), part = (now - former) * 3 / 10;
        REQUIRE(account_visit_compute(device, use, &part));
        former = now;
        used += part;
        peers_sleep_ms(5);
    }
    CHECK(used > 0 && own()->device_util[0].sm >= 28 && own()->device_util[0].sm <= 32);
    CHECK(account_show_work(clock_now_ns()));
    while (account_show_work(clock_now_ns()) && clock_now_ns() - start < 20 * SECOND)
        peers_sleep_ms(50);
    CHECK_EQ(own()->device_util[0].sm, 0);
}

TEST("the time of the last kernel is written each interval, and a time to come is put right")
{
    peers_begin();
    peers_join("1g");
    struct vgpu_region_map *map = peers_region.map;
    projection_kernel(map, 1000, 5);
    CHECK_EQ(hami()->last_kernel_time, 1000);
    projection_kernel(map, 1004, 5);
    CHECK_EQ(hami()->last_kernel_time, 1000);
    projection_kernel(map, 1005, 5);
    CHECK_EQ(hami()->last_kernel_time, 1005);
    projection_kernel(map, 1005, 0);
    CHECK_EQ(hami()->last_kernel_time, 1005);
    store_relaxed(&hami()->last_kernel_time, UINT64_MAX);
    projection_kernel(map, 1006, 5);
    CHECK_EQ(hami()->last_kernel_time, 1006);
}

int main(int argc, char **argv)
{
    return check_run(argc, argv);
}
