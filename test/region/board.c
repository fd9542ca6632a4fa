/* SPDX-License-Identifier: Apache-2.0 */
/* What tenants say on a board, and what of it is believed. */
#include "boards.h"

#include "base/atomic.h"
#include "base/guard.h"
#include "base/sleep.h"

#include <fcntl.h>
#include <pthread.h>
#include <sys/stat.h>

#define NOW 1000000000000ull
#define MS 1000000ull

static struct registry ours, theirs;

static void begin(void)
{
    boards_begin();
    boards_attach(&ours, 1);
    boards_attach(&theirs, 2);
}

static struct vgpu_board_slot *their_slot(void)
{
    return &theirs.shared->slots[theirs.slot];
}

static unsigned seen_at(uint64_t now_ns)
{
    return boards_look(&ours, now_ns).active;
}

TEST("the file is as documented, and says who uses it")
{
    char start[8];
    struct stat status;
    struct registry_tenant tenants[VGPU_BOARD_SLOTS];
    begin();
    int fd = open(boards_path, O_RDONLY | O_CLOEXEC);
    REQUIRE(fd >= 0 && fstat(fd, &status) == 0 && read(fd, start, 8) == 8);
    CHECK_EQ(status.st_size, 16384);
    CHECK(status.st_blocks * 512 >= 16384);
    CHECK_EQ(status.st_mode & 07777, 0666);
    CHECK(memcmp(start, "VGPUBRD1", 8) == 0);
    boards_say(&theirs, true, NOW);
    REQUIRE(registry_tenants(&ours, NOW, tenants) == 2);
    CHECK_EQ(tenants[0].said.tenant, 1);
    CHECK(tenants[0].ours && !tenants[0].active && !tenants[1].ours && tenants[1].active);
    CHECK_STR(tenants[1].name, "test");
    CHECK_EQ(tenants[1].said.core_limit, 30);
}

TEST("a tenant at work is seen by the others, with its limit, and not by itself")
{
    begin();
    CHECK_EQ(seen_at(NOW), 0);
    CHECK(boards_look(&ours, NOW).idle_ns == UINT64_MAX);
    boards_say(&theirs, true, NOW);
    struct registry_view view = boards_look(&ours, NOW + 10 * MS);
    CHECK_EQ(view.active, 1);
    CHECK_EQ(view.active_limit_sum, 30);
    CHECK_EQ(view.equal, 1);
    CHECK_EQ(view.higher, 0);
    CHECK_EQ(view.wanting, 0);
    CHECK_EQ(view.since_ns, NOW);
    CHECK_EQ(view.idle_ns, NOW + 50 * MS);
    CHECK_EQ(view.heard_ns, NOW);
    CHECK_EQ(view.silent_ns, NOW + REGISTRY_SILENT_NS);
    CHECK_EQ(boards_look(&ours, NOW - MS).heard_ns, NOW - MS);
    CHECK_EQ(boards_look(&ours, NOW + 50 * MS).heard_ns, 0);
    CHECK_EQ(boards_look(&theirs, NOW + 10 * MS).active, 0);
    boards_say(&theirs, false, NOW + MS);
    CHECK_EQ(boards_look(&ours, NOW + MS).heard_ns, 0);
}

TEST("who works in windows may be silent for longer, and the last of all who are heard of counts")
{
    struct registry_own own = {.active = true, .core_limit = 30, .windows = true};
    begin();
    registry_publish(&theirs, &own, NOW);
    CHECK_EQ(boards_look(&ours, NOW).silent_ns, NOW + REGISTRY_SILENT_WINDOWS_NS);
    own.windows = false;
    registry_publish(&theirs, &own, NOW + MS);
    CHECK_EQ(boards_look(&ours, NOW + MS).silent_ns, NOW + MS + REGISTRY_SILENT_NS);
    registry_publish(&theirs, &own, NOW + 100 * MS);
    CHECK_EQ(boards_look(&ours, NOW + 2 * MS).silent_ns, NOW + 2 * MS + REGISTRY_SILENT_NS);
    own.active = false;
    registry_publish(&theirs, &own, NOW + 100 * MS);
    CHECK_EQ(boards_look(&ours, NOW + 100 * MS).silent_ns, 0);
}

TEST("of windows that keep to slots it is seen how many there are, of what limits, and which of "
     "them come before ours")
{
    struct registry last;
    struct registry_own own = {.active = true, .core_limit = 30, .windows = true, .divided = true};
    begin();
    boards_attach(&last, 3);
    registry_publish(&ours, &own, NOW);
    own.core_limit = 20;
    own.saturating = true;
    own.busy_ns = 7;
    registry_publish(&last, &own, NOW);
    boards_say(&theirs, true, NOW);
    struct registry_divided divided = boards_look(&theirs, NOW).divided;
    CHECK_EQ(divided.count, 2);
    CHECK_EQ(divided.limit_sum, 50);
    CHECK_EQ(divided.before_limit_sum, 30);
    CHECK_EQ(divided.least_limit, 20);
    CHECK_EQ(divided.saturating, 1);
    CHECK_EQ(divided.saturating_limit_sum, 20);
    CHECK_EQ(divided.busy_ns, 7);
    CHECK_EQ(boards_look(&last, NOW).divided.before_limit_sum, 30);
    CHECK_EQ(boards_look(&ours, NOW).divided.before_limit_sum, 0);
    own.active = own.divided = false;
    registry_publish(&last, &own, NOW);
    CHECK_EQ(boards_look(&theirs, NOW).divided.count, 1);
}

TEST("how long one may be silent is said by those of a container's processes that are at work")
{
    static struct registry mate;
    struct registry_own own = {.active = true, .core_limit = 30, .windows = true};
    begin();
    boards_attach(&mate, 2);
    REQUIRE(mate.slot == theirs.slot);
    registry_publish(&theirs, &own, NOW);
    own.active = own.windows = false;
    registry_publish(&mate, &own, NOW + MS);
    CHECK_EQ(boards_look(&ours, NOW + MS).silent_ns, NOW + REGISTRY_SILENT_WINDOWS_NS);
}

TEST("who was not at work for 50 ms is idle, and so is who will have been in more than a second")
{
    begin();
    boards_say(&theirs, true, NOW);
    CHECK_EQ(seen_at(NOW + 50 * MS - 1), 1);
    CHECK_EQ(seen_at(NOW + 50 * MS), 0);
    CHECK_EQ(seen_at(NOW - 1000 * MS), 1);
    CHECK_EQ(seen_at(NOW - 1000 * MS - 1), 0);
    CHECK_EQ(boards_look(&ours, NOW - 1000 * MS).idle_ns, NOW - 950 * MS);
    CHECK_EQ(seen_at(0), 0);
    CHECK_EQ(seen_at(UINT64_MAX), 0);
    store_relaxed(&their_slot()->active_ns, UINT64_MAX);
    CHECK_EQ(seen_at(NOW), 0);
    store_relaxed(&their_slot()->active_ns, (uint64_t)0);
    CHECK_EQ(seen_at(10), 0);
}

TEST("when they turned active is when they came after a pause, and never later than now")
{
    begin();
    boards_say(&theirs, true, NOW);
    boards_say(&theirs, true, NOW + 40 * MS);
    boards_say(&theirs, true, NOW + 80 * MS);
    CHECK_EQ(boards_look(&ours, NOW + 80 * MS).since_ns, NOW);
    boards_say(&theirs, true, NOW + 131 * MS);
    CHECK_EQ(boards_look(&ours, NOW + 140 * MS).since_ns, NOW + 131 * MS);
    store_relaxed(&their_slot()->since_ns, UINT64_MAX);
    CHECK_EQ(boards_look(&ours, NOW + 140 * MS).since_ns, NOW + 140 * MS);
}

TEST("a limit that is none, or above 100, counts as 100")
{
    static const uint32_t limits[] = {0, 101, UINT32_MAX, 100};
    begin();
    boards_say(&theirs, true, NOW);
    for (size_t i = 0; i < sizeof(limits) / sizeof(limits[0]); i++) {
        store_relaxed(&their_slot()->core_limit, limits[i]);
        CHECK_EQ(boards_look(&ours, NOW).active_limit_sum, 100);
    }
    store_relaxed(&their_slot()->core_limit, 1u);
    CHECK_EQ(boards_look(&ours, NOW).active_limit_sum, 1);
    store_relaxed(&their_slot()->flags, (uint32_t)VGPU_BOARD_UNLIMITED);
    CHECK_EQ(boards_look(&ours, NOW).active_limit_sum, 100);
}

TEST("priorities are told from ours, 0 being the highest")
{
    struct registry_own own = {.active = true, .core_limit = 20, .priority = 0};
    begin();
    registry_publish(&theirs, &own, NOW);
    CHECK_EQ(boards_look(&ours, NOW).higher, 1);
    CHECK_EQ(boards_look(&ours, NOW).higher_limit_sum, 20);
    boards_say(&ours, true, NOW);
    CHECK_EQ(boards_look(&theirs, NOW).higher, 0);
    CHECK_EQ(boards_look(&theirs, NOW).equal, 0);
    registry_publish(&ours, &own, NOW);
    CHECK_EQ(boards_look(&ours, NOW).higher, 0);
    CHECK_EQ(boards_look(&ours, NOW).equal_limit_sum, 20);
}

TEST("who is paused is not at work, and who is held back wants more for 50 ms")
{
    struct registry_own own = {.active = true, .wants = true, .core_limit = 20, .paused = true};
    begin();
    registry_publish(&theirs, &own, NOW);
    CHECK_EQ(seen_at(NOW), 0);
    own.paused = false;
    registry_publish(&theirs, &own, NOW);
    CHECK_EQ(seen_at(NOW), 1);
    CHECK_EQ(boards_look(&ours, NOW + 40 * MS).wanting, 1);
    boards_say(&theirs, true, NOW + 45 * MS);
    CHECK_EQ(boards_look(&ours, NOW + 49 * MS).wanting, 1);
    CHECK_EQ(boards_look(&ours, NOW + 50 * MS).wanting, 0);
}

static bool raised_by(const struct registry_own *own, uint64_t now_ns)
{
    uint32_t before = load_acquire(&ours.shared->epoch);
    registry_publish(&theirs, own, now_ns);
    return load_acquire(&ours.shared->epoch) != before;
}

TEST("the epoch is raised when a tenant turns active or idle, pauses, or changes its priority")
{
    struct registry_own own = {.active = true, .core_limit = 20, .priority = 1};
    begin();
    CHECK(raised_by(&own, NOW));
    CHECK(!raised_by(&own, NOW + 49 * MS));
    own.core_limit = 40;
    own.busy_ns = 5;
    own.wants = true;
    CHECK(!raised_by(&own, NOW + 50 * MS));
    CHECK(raised_by(&own, NOW + 100 * MS));
    own.priority = 0;
    CHECK(raised_by(&own, NOW + 101 * MS));
    own.paused = true;
    CHECK(raised_by(&own, NOW + 102 * MS));
    CHECK(!raised_by(&own, NOW + 103 * MS));
    own.paused = own.active = false;
    CHECK(raised_by(&own, NOW + 104 * MS));
    CHECK(!raised_by(&own, NOW + 105 * MS));
}

TEST("a container is idle when the last of its processes says so")
{
    static struct registry second;
    begin();
    boards_attach(&second, 2);
    CHECK_EQ(second.slot, theirs.slot);
    boards_say(&theirs, true, NOW);
    boards_say(&second, true, NOW + 1);
    registry_idle(&theirs);
    CHECK_EQ(seen_at(NOW + 2), 1);
    registry_idle(&second);
    CHECK_EQ(seen_at(NOW + 2), 0);
    boards_say(&theirs, true, NOW + 3);
    registry_detach(&second);
    CHECK_EQ(seen_at(NOW + 3), 1);
    CHECK_EQ(load_relaxed(&their_slot()->core_limit), 30);
    registry_detach(&theirs);
    CHECK_EQ(seen_at(NOW + 3), 0);
}

static void wake_after_a_while(void)
{
    peers_wait(1);
    peers_sleep_ms(20);
    boards_attach(&theirs, 2);
    boards_say(&theirs, true, clock_now_ns());
    peers_wait(2);
    _exit(0);
}

/* When another one was active last: a waiter that wakes late sees it as it was then. */
static uint64_t others_active_ns(void)
{
    uint64_t last_ns = 0;
    for (unsigned i = 0; i < VGPU_BOARD_SLOTS; i++) {
        uint64_t active_ns = load_acquire(&ours.shared->slots[i].active_ns);
        last_ns = (int)i != ours.slot && active_ns > last_ns ? active_ns : last_ns;
    }
    return last_ns;
}

TEST("who waits is woken by another process that turns active, and otherwise in time")
{
    boards_begin();
    pid_t pid = peers_fork(wake_after_a_while);
    boards_attach(&ours, 1);
    uint32_t epoch = boards_look(&ours, clock_now_ns()).epoch;
    uint64_t start = clock_now_ns();
    registry_wait(&ours, epoch, 5 * MS);
    CHECK(clock_now_ns() - start >= 5 * MS);
    peers_step(1);
    registry_wait(&ours, epoch, 50000 * MS);
    CHECK(load_acquire(registry_wait_word(&ours)) != epoch);
    CHECK_EQ(seen_at(others_active_ns() + 1), 1);
    peers_step(2);
    start = clock_now_ns();
    registry_wait(&ours, epoch, 50000 * MS); /* which it no longer is */
    CHECK(clock_now_ns() - start < 20000 * MS);
    CHECK_EQ(peers_reap(pid), 0);
}

static void wait_long(void)
{
    boards_attach(&ours, 1);
    uint32_t epoch = boards_look(&ours, clock_now_ns()).epoch;
    uint64_t start = clock_now_ns();
    add_seq_cst(&peers->number[0], 1);
    while (load_acquire(registry_wait_word(&ours)) == epoch)
        registry_wait(&ours, epoch, 50000 * MS);
    CHECK(clock_now_ns() - start < 40000 * MS);
}

TEST("all who wait are woken")
{
    pid_t pids[5];
    boards_begin();
    for (int i = 0; i < 5; i++)
        pids[i] = peers_fork(wait_long);
    while (load_acquire(&peers->number[0]) < 5 && !check_shared->failures)
        sleep_ns(100000);
    peers_sleep_ms(50);
    boards_attach(&theirs, 2);
    boards_say(&theirs, true, NOW);
    for (int i = 0; i < 5; i++)
        CHECK_EQ(peers_reap(pids[i]), 0);
}

static bool ended;

static void *wake_always(void *unused)
{
    while (!load_acquire(&ended))
        registry_wake(&theirs);
    return unused;
}

TEST("a board that wakes its sleepers all the time wakes them every half millisecond at most")
{
    pthread_t thread;
    begin();
    REQUIRE(pthread_create(&thread, NULL, wake_always, NULL) == 0);
    uint64_t start = clock_now_ns();
    for (int i = 0; i < 101; i++)
        registry_wait(&ours, boards_look(&ours, start).epoch, 1000 * MS);
    CHECK(clock_now_ns() - start >= 50 * MS);
    store_release(&ended, true);
    pthread_join(thread, NULL);
}

TEST("without a board there is nobody else, and who waits sleeps the whole time")
{
    boards_begin();
    CHECK_EQ(registry_attach(&ours, "/nowhere/at/all", BOARDS_UUID, 1, NULL), -ENOENT);
    CHECK(!registry_is_attached(&ours));
    CHECK(registry_wait_word(&ours) == NULL);
    boards_say(&ours, true, NOW);
    CHECK_EQ(seen_at(NOW), 0);
    CHECK_EQ(boards_held(&ours), 0);
    uint64_t start = clock_now_ns();
    registry_wait(&ours, 0, 10 * MS);
    CHECK(clock_now_ns() - start >= 10 * MS);
    registry_wake(&ours);
    boards_keep(&ours);
    registry_detach(&ours);
    registry_detach(&ours);
}

/* Everything that reads the board; whatever it finds is some bounded number. */
static void look_at_all(uint64_t now_ns)
{
    static struct registry_tenant tenants[VGPU_BOARD_SLOTS];
    struct registry_view view = boards_look(&ours, now_ns);
    CHECK(view.active <= VGPU_BOARD_SLOTS);
    CHECK(view.higher + view.equal <= view.active && view.wanting <= view.active);
    CHECK(view.active_limit_sum >= view.active && view.active_limit_sum <= 100 * view.active);
    CHECK(view.divided.count <= view.active && view.divided.saturating <= view.saturating);
    CHECK(view.divided.saturating <= view.divided.count &&
          view.divided.limit_sum <= view.active_limit_sum);
    CHECK(view.divided.saturating_limit_sum <= view.saturating_limit_sum);
    CHECK(view.divided.before_limit_sum <= view.divided.limit_sum);
    CHECK(view.since_ns <= now_ns);
    CHECK(view.active ? view.idle_ns <= now_ns + 50 * MS : view.idle_ns == UINT64_MAX);
    unsigned count = registry_tenants(&ours, now_ns, tenants);
    CHECK(count <= VGPU_BOARD_SLOTS);
    for (unsigned i = 0; i < count; i++)
        CHECK(strlen(tenants[i].name) <= 32);
    boards_say(&ours, true, now_ns);
    boards_keep(&ours);
    registry_wait(&ours, view.epoch, 1);
    registry_idle(&ours);
}

static uint64_t random_next(uint64_t *state)
{
    *state ^= *state << 13;
    *state ^= *state >> 7;
    *state ^= *state << 17;
    return *state;
}

TEST("a board of random bytes misleads nobody beyond the bounds of what can be said")
{
    uint64_t seed = 88172645463325252ull;
    begin();
    for (int round = 0; round < 300; round++) {
        char *bytes = (char *)ours.shared;
        size_t from = round % 2 ? offsetof(struct vgpu_board, slots) : 0;
        for (size_t i = from; i < sizeof(struct vgpu_board); i += 8) {
            uint64_t word = random_next(&seed);
            /* Mostly times that are believed. */
            if (round % 3 && i >= 256 && i % 128 >= 8 && i % 128 < 32)
                word = NOW - word % (60 * MS);
            memcpy(bytes + i, &word, 8);
        }
        look_at_all(NOW);
        look_at_all(random_next(&seed));
    }
    struct registry fresh;
    CHECK_EQ(boards_try(&fresh, 5), -EPROTO);
}

int main(int argc, char **argv)
{
    return check_run(argc, argv);
}
