/* SPDX-License-Identifier: Apache-2.0 */
/* Whose slot is whose on a board, while processes come, fork and are killed. */
#include "boards.h"

#include "base/atomic.h"
#include "base/file_lock.h"
#include "base/sleep.h"
#include "region/region.h"

#include <fcntl.h>
#include <stdarg.h>
#include <sys/syscall.h>

static struct registry ours, theirs;

/* In the C library's place for base/file_lock.c: set, the kernel knows no locks of open files. */
static bool refuse_locks;

int fcntl(int fd, int command, ...)
{
    va_list arguments;
    va_start(arguments, command);
    void *argument = va_arg(arguments, void *);
    va_end(arguments);
    if (refuse_locks && command >= 36 && command <= 38) {
        errno = EINVAL;
        return -1;
    }
    return (int)syscall(SYS_fcntl, fd, command, argument);
}

static off_t byte_of(unsigned slot)
{
    return (off_t)(offsetof(struct vgpu_board, slots) + slot * sizeof(struct vgpu_board_slot));
}

/* How many tenants slots are held for, and how many slots. */
static unsigned tenants_held(unsigned *ret_slots)
{
    static struct registry_tenant tenants[VGPU_BOARD_SLOTS];
    unsigned count = registry_tenants(&ours, clock_now_ns(), tenants), different = 0;
    for (unsigned i = 0; i < count; i++) {
        bool known = false;
        for (unsigned j = 0; j < i; j++)
            known |= tenants[j].said.tenant == tenants[i].said.tenant;
        different += !known;
    }
    *ret_slots = count;
    return different;
}

static int number_of_peer;

static void come_at_once(void)
{
    int number = number_of_peer;
    peers_wait(1);
    boards_attach(&ours, (uint64_t)(number % 5 + 1));
    add_seq_cst(&peers->number[0], 1);
    while (load_acquire(&peers->step) < 2 && !check_shared->failures) {
        boards_keep(&ours);
        sleep_ns(1000000);
    }
}

TEST("processes of one container that come at the same moment share its slot")
{
    pid_t pids[20];
    unsigned slots;
    boards_begin();
    for (number_of_peer = 0; number_of_peer < 20; number_of_peer++)
        pids[number_of_peer] = peers_fork(come_at_once);
    peers_step(1);
    while (load_acquire(&peers->number[0]) < 20 && !check_shared->failures)
        sleep_ns(100000);
    boards_attach(&ours, 1);
    CHECK_EQ(tenants_held(&slots), 5);
    /* A process that waited for the claimers' lock in vain has another one until it looks. */
    for (int i = 0; slots > 5 && i < 10000; i++) {
        sleep_ns(1000000);
        CHECK_EQ(tenants_held(&slots), 5);
    }
    CHECK_EQ(slots, 5);
    peers_step(2);
    for (int i = 0; i < 20; i++)
        CHECK_EQ(peers_reap(pids[i]), 0);
    CHECK_EQ(tenants_held(&slots), 1);
}

#define RACERS 4
#define RACES 150

/* Without a sleep: so that they come within a microsecond. */
static void race(void)
{
    for (int i = 1; i <= RACES; i++) {
        add_seq_cst(&peers->number[0], 1);
        while (load_acquire(&peers->number[0]) < (int64_t)i * RACERS && !check_shared->failures)
            ;
        boards_attach(&theirs, 7);
        add_seq_cst(&peers->number[1], 1);
        while (load_acquire(&peers->number[1]) < (int64_t)i * RACERS && !check_shared->failures)
            sleep_ns(50000);
        CHECK_EQ(boards_held(&theirs), 1);
        add_seq_cst(&peers->number[2], 1);
        while (load_acquire(&peers->number[2]) < (int64_t)i * RACERS && !check_shared->failures)
            sleep_ns(50000);
        registry_detach(&theirs);
        (void)unlink(boards_path);
    }
}

TEST("of processes of one container that race for a slot no two get one each")
{
    pid_t pids[RACERS];
    boards_begin();
    for (int i = 0; i < RACERS; i++)
        pids[i] = peers_fork(race);
    for (int i = 0; i < RACERS; i++)
        CHECK_EQ(peers_reap(pids[i]), 0);
}

static void come_and_stay(void)
{
    uint64_t tenant = (uint64_t)number_of_peer + 100;
    int error = boards_try(&theirs, tenant);
    CHECK_EQ(error, 0);
    CHECK_EQ(registry_is_attached(&theirs), number_of_peer < (int)VGPU_BOARD_SLOTS);
    boards_say(&theirs, true, clock_now_ns());
    add_seq_cst(&peers->number[0], 1);
    for (;;)
        pause();
}

static void crowd_come(pid_t *pids, int count)
{
    for (int i = 0; i < count; i++) {
        number_of_peer = i;
        pids[i] = peers_fork(come_and_stay);
        while (load_acquire(&peers->number[0]) <= i && !check_shared->failures)
            sleep_ns(50000);
    }
}

TEST("126 tenants have slots, the next has none until one is killed, and killed ones leave theirs")
{
    static pid_t pids[VGPU_BOARD_SLOTS];
    boards_begin();
    crowd_come(pids, VGPU_BOARD_SLOTS);
    boards_attach(&ours, 1);
    CHECK(!registry_is_attached(&ours));
    CHECK_EQ(boards_held(&ours), VGPU_BOARD_SLOTS);
    /* As if they all had spoken a moment ago. */
    for (unsigned i = 0; i < VGPU_BOARD_SLOTS; i++)
        store_relaxed(&ours.shared->slots[i].active_ns, 1000000000ull);
    CHECK_EQ(boards_look(&ours, 1000000000ull).active, VGPU_BOARD_SLOTS);
    boards_keep(&ours);
    CHECK(!registry_is_attached(&ours));
    peers_kill(pids[77]);
    boards_keep(&ours);
    CHECK(registry_is_attached(&ours));
    CHECK_EQ(ours.slot, 77);
    for (int i = 0; i < (int)VGPU_BOARD_SLOTS; i++) {
        if (i != 77)
            peers_kill(pids[i]);
    }
    CHECK_EQ(boards_held(&ours), 1);
    boards_attach(&theirs, 2);
    CHECK_EQ(theirs.slot, 0);
}

static void use_in_child(void)
{
    registry_reset(&theirs);
    boards_attach(&theirs, 2);
    CHECK_EQ(peers->number[1], theirs.slot);
    boards_say(&theirs, true, clock_now_ns());
    peers_step(1);
    peers_wait(2);
}

TEST("a forked child that works on the GPU shares its parent's slot, and leaves it in place")
{
    boards_begin();
    boards_attach(&ours, 1);
    boards_attach(&theirs, 2);
    peers->number[1] = theirs.slot;
    pid_t pid = peers_fork(use_in_child);
    peers_wait(1);
    CHECK_EQ(boards_held(&ours), 2);
    peers_step(2);
    CHECK_EQ(peers_reap(pid), 0);
    CHECK_EQ(boards_held(&ours), 2);
    CHECK(boards_meet(&ours, &theirs));
}

static void work_and_die(void)
{
    boards_attach(&theirs, 2);
    boards_say(&theirs, true, (uint64_t)peers->number[0]);
    kill(getpid(), SIGKILL);
}

TEST("a process that was killed at work is not at work any more, once it has not been heard of for "
     "20 ms")
{
    const uint64_t now = clock_now_ns();
    boards_begin();
    boards_attach(&ours, 1);
    peers->number[0] = (long)now;
    peers_reap(peers_fork(work_and_die));
    CHECK_EQ(boards_look(&ours, now + 19000000).active, 1);
    CHECK_EQ(boards_look(&ours, now + 20000000).active, 0);
    CHECK_EQ(boards_look(&ours, now + 20000000).heard_ns, now);
}

TEST("who lives and says nothing is at work for 50 ms")
{
    const uint64_t now = clock_now_ns();
    boards_begin();
    boards_attach(&ours, 1);
    boards_attach(&theirs, 2);
    boards_say(&theirs, true, now);
    CHECK_EQ(boards_look(&ours, now + VGPU_BOARD_ACTIVE_NS - 1).active, 1);
    CHECK_EQ(boards_look(&ours, now + VGPU_BOARD_ACTIVE_NS).active, 0);
}

static void fork_and_die(void)
{
    boards_attach(&theirs, 2);
    pid_t pid = fork();
    if (pid == 0) {
        registry_reset(&theirs);
        peers_step(1);
        peers_wait(2);
    }
    peers_wait(1);
    kill(getpid(), SIGKILL);
}

TEST("a child that outlives its parent does not keep the slot, once it looked")
{
    boards_begin();
    boards_attach(&ours, 1);
    peers_reap(peers_fork(fork_and_die));
    CHECK_EQ(boards_held(&ours), 1);
    boards_attach(&theirs, 3);
    CHECK_EQ(theirs.slot, 1);
    peers_step(2);
}

#define MORTALS 6

static void live_dangerously(void)
{
    for (uint64_t i = 0;; i++) {
        struct registry_own own = {.active = i % 3 != 0, .priority = (uint32_t)(i % 2)};
        boards_attach(&theirs, (uint64_t)(getpid() % 3 + 10));
        registry_publish(&theirs, &own, clock_now_ns());
        (void)boards_look(&theirs, clock_now_ns());
        boards_keep(&theirs);
        if (i % 2)
            registry_idle(&theirs);
        registry_detach(&theirs);
        if (i % 5 == 0)
            (void)unlink(boards_path);
    }
}

TEST("processes that are killed at any moment leave a board that others use")
{
    pid_t pids[MORTALS];
    unsigned seed = 12345;
    boards_begin();
    for (int i = 0; i < MORTALS; i++)
        pids[i] = peers_fork(live_dangerously);
    for (int round = 0; round < 200; round++) {
        seed = seed * 1103515245 + 12345;
        sleep_ns(seed / 65536 % 4000000);
        peers_kill(pids[round % MORTALS]);
        pids[round % MORTALS] = peers_fork(live_dangerously);
    }
    for (int i = 0; i < MORTALS; i++)
        peers_kill(pids[i]);
    boards_attach(&ours, 1);
    CHECK(registry_is_attached(&ours));
    CHECK_EQ(boards_held(&ours), 1);
    peers_sleep_ms(51);
    CHECK_EQ(boards_look(&ours, clock_now_ns()).active, 0);
    boards_attach(&theirs, 2);
    CHECK(boards_meet(&ours, &theirs));
}

TEST("a slot that somebody wrote over is found again")
{
    boards_begin();
    boards_attach(&ours, 1);
    boards_attach(&theirs, 2);
    for (uint64_t tenant = 77; tenant < 80; tenant++) {
        store_relaxed(&ours.shared->slots[ours.slot].tenant, tenant);
        store_relaxed(&ours.shared->slot_high, 0u);
        boards_say(&ours, true, clock_now_ns());
        boards_keep(&ours);
        CHECK(registry_is_attached(&ours));
        boards_keep(&theirs);
        CHECK(boards_meet(&ours, &theirs));
        CHECK_EQ(boards_held(&ours), 2);
    }
}

TEST("a container that is there twice goes to the first of its slots")
{
    static struct registry third;
    boards_begin();
    boards_attach(&theirs, 2);
    boards_attach(&third, 3);
    boards_attach(&ours, 1);
    CHECK_EQ(ours.slot, 2);
    registry_detach(&theirs);
    store_relaxed(&ours.shared->slots[0].tenant, (uint64_t)1);
    boards_keep(&ours);
    CHECK_EQ(ours.slot, 0);
    CHECK_EQ(boards_held(&third), 2);
    CHECK(boards_meet(&ours, &third));
}

TEST("a slot that somebody wrote over is let go")
{
    static struct registry third;
    boards_begin();
    boards_attach(&theirs, 2);
    boards_attach(&ours, 1);
    boards_attach(&third, 3);
    int former = ours.slot;
    registry_detach(&theirs);
    store_relaxed(&ours.shared->slots[former].tenant, (uint64_t)77);
    boards_keep(&ours);
    CHECK(registry_is_attached(&ours) && ours.slot != former);
    CHECK_EQ(boards_held(&third), 2);
}

/* Holds locks on the board through an open file of its own. */
static int hostile_file(void)
{
    int fd = open(boards_path, O_RDWR | O_CLOEXEC);
    REQUIRE(fd >= 0);
    return fd;
}

TEST("who holds the claimers' lock keeps nobody from a slot")
{
    boards_begin();
    boards_attach(&theirs, 2);
    REQUIRE(file_lock_take(hostile_file(), 0) == 0);
    boards_attach(&ours, 1);
    CHECK(registry_is_attached(&ours));
    CHECK(boards_meet(&ours, &theirs));
}

TEST("who holds all slots keeps others from being seen, and from nothing else")
{
    boards_begin();
    boards_attach(&theirs, 2);
    int fd = hostile_file();
    for (unsigned i = 0; i < VGPU_BOARD_SLOTS; i++) {
        if ((int)i != theirs.slot)
            REQUIRE(file_lock_take(fd, byte_of(i)) == 0);
    }
    boards_attach(&ours, 1);
    CHECK(!registry_is_attached(&ours));
    boards_say(&ours, true, clock_now_ns());
    boards_say(&theirs, true, clock_now_ns());
    CHECK_EQ(boards_look(&ours, clock_now_ns()).active, 1);
    CHECK_EQ(boards_look(&theirs, clock_now_ns()).active, 0);
    close(fd);
    boards_keep(&ours);
    CHECK(boards_meet(&ours, &theirs));
}

TEST("without locks a slot is its tenant's until it was not heard of for 10 s")
{
    static struct registry second;
    boards_begin();
    refuse_locks = true;
    boards_attach(&ours, 1);
    boards_say(&ours, true, clock_now_ns());
    boards_attach(&second, 1);
    CHECK_EQ(second.slot, ours.slot);
    boards_attach(&theirs, 2);
    CHECK(theirs.slot != ours.slot);
    CHECK(boards_meet(&ours, &theirs));
    registry_detach(&theirs);
    boards_attach(&theirs, 3);
    CHECK(registry_is_attached(&theirs));
    store_relaxed(&ours.shared->slots[ours.slot].active_ns, (uint64_t)0);
    store_relaxed(&ours.shared->slots[ours.slot].since_ns, clock_now_ns() - 11000000000ull);
    registry_detach(&theirs);
    boards_attach(&theirs, 4);
    CHECK_EQ(theirs.slot, ours.slot);
    boards_keep(&ours);
    CHECK(registry_is_attached(&ours) && theirs.slot != ours.slot);
}

static void tell_tenant(void)
{
    unsigned device = peers_join("1g");
    peers->number[1] = (int64_t)account_tenant(device);
    peers_step(1);
    peers_wait(2);
}

TEST("a container has one id on a GPU, which its region keeps, and a region that takes its place")
{
    boards_begin();
    pid_t pid = peers_fork(tell_tenant);
    peers_wait(1);
    unsigned device = peers_join("1g");
    uint64_t tenant = account_tenant(device);
    CHECK(tenant != 0);
    CHECK_EQ(tenant, peers->number[1]);
    REQUIRE(unlink(peers_path) == 0);
    peers_sleep_ms(20);
    CHECK_EQ(peers_used(device), 0);
    CHECK_EQ(access(peers_path, F_OK), 0);
    CHECK_EQ(account_tenant(device), tenant);
    struct vgpu_device *entry = &peers_region.shared->devices[0];
    CHECK_EQ(load_relaxed(&entry->tenant), tenant);
    store_relaxed(&entry->tenant, (uint64_t)0);
    CHECK_EQ(account_tenant(device), tenant);
    peers_step(2);
    CHECK_EQ(peers_reap(pid), 0);
    region_detach(&peers_region);
    REQUIRE(unlink(peers_path) == 0);
    CHECK(account_tenant(peers_join("1g")) != tenant);
    account_start(NULL, 0);
    CHECK_EQ(account_tenant(0), 0);
}

int main(int argc, char **argv)
{
    return check_run(argc, argv);
}
