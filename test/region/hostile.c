/* SPDX-License-Identifier: Apache-2.0 */
/* Regions that somebody filled or shortened to harm who reads them, from outside and as a member.
 */
#include "peers.h"

#include "base/clock.h"
#include "base/guard.h"
#include "base/sleep.h"
#include "check.h"
#include "region/region.h"
#include "region/region_device.h"
#include "region/slot.h"

#include <errno.h>
#include <fcntl.h>
#include <sys/stat.h>

#define BYTES sizeof(struct vgpu_region)
#define IDENTITY_BYTES offsetof(struct vgpu_region, device_count)
#define RACE_NS 700000000ull
#define RACE_AT_MOST_NS 30000000000ull /* where the machine is so slow that nothing was met */

static unsigned char words[BYTES];

static uint64_t random_next(uint64_t *state)
{
    *state ^= *state << 13;
    *state ^= *state >> 7;
    *state ^= *state << 17;
    return *state;
}

static void fill_random(uint64_t seed)
{
    for (size_t i = 0; i < BYTES; i += 8) {
        uint64_t word = random_next(&seed);
        memcpy(words + i, &word, 8);
    }
}

static void join_and_leave(void)
{
    (void)peers_join("1g");
}

/* A region that others made, whose words behind those that say what it is become `words`. */
static void plant(void)
{
    CHECK_EQ(peers_reap(peers_fork(join_and_leave)), 0);
    int fd = open(peers_path, O_WRONLY | O_CLOEXEC);
    ssize_t length = BYTES - IDENTITY_BYTES;
    REQUIRE(fd >= 0);
    REQUIRE(pwrite(fd, words + IDENTITY_BYTES, (size_t)length,
                VGPU_REGION_OFFSET + IDENTITY_BYTES) == length);
    close(fd);
}

/* All that a monitor looks at; whatever it finds is some number. */
static uint64_t look(struct region *region)
{
    uint64_t sum = 0;
    guard_enter();
    unsigned bound = mapping_slot_bound(region);
    CHECK(bound <= VGPU_REGION_SLOTS);
    for (unsigned i = 0; i < bound; i++) {
        const struct vgpu_slot *slot = &region->shared->slots[i];
        if (slot_word_state(slot->state) != VGPU_SLOT_LIVE)
            continue;
        CHECK(slot_word_pid(slot->state) >= 0);
        sum += strnlen(slot->command, sizeof(slot->command));
        for (unsigned d = 0; d < VGPU_REGION_DEVICES; d++)
            sum += slot->usage[d].bytes;
    }
    for (unsigned d = 0; d < VGPU_REGION_DEVICES; d++) {
        (void)slot_reap_dead(region, -1, d);
        CHECK_EQ(region_device_known(region, "GPU-none"), -ENOENT);
    }
    (void)slot_any_live(region);
    guard_leave();
    return sum;
}

static bool look_from_outside(void)
{
    struct region region;
    peers_look(&region);
    (void)look(&region);
    guard_enter();
    bool live = slot_any_live(&region);
    guard_leave();
    region_detach(&region);
    return live;
}

/* Nobody lives in what was planted, so a process that comes has its own limit, and the whole of it.
 */
static void be_a_member(void)
{
    static struct account_process processes[ACCOUNT_PROCESSES_MAX];
    unsigned device = peers_join("1g");
    CHECK_EQ(account_reserve(device, 1025 * PEERS_MIB, ACCOUNT_BUFFER), -ENOMEM);
    CHECK_EQ(account_reserve(device, 1024 * PEERS_MIB, ACCOUNT_BUFFER), 0);
    CHECK_EQ(account_reserve(device, PEERS_MIB, ACCOUNT_BUFFER), -ENOMEM);
    CHECK(account_processes(device, processes) <= ACCOUNT_PROCESSES_MAX);
    account_commit(device, 1024 * PEERS_MIB);
    account_release(device, 1024 * PEERS_MIB, ACCOUNT_BUFFER);
}

TEST("a region all of whose bits are set is read from outside, and nobody lives in it")
{
    peers_begin();
    memset(words, 0xff, BYTES);
    plant();
    CHECK(!look_from_outside());
}

TEST("a region all of whose bits are set does not take a member's limit away")
{
    peers_begin();
    memset(words, 0xff, BYTES);
    plant();
    /* All slots are in a state that does not exist: who has a limit is refused, and not let
     * through. */
    unsigned device = peers_join("1g");
    CHECK_EQ(account_reserve(device, PEERS_MIB, ACCOUNT_BUFFER), -ENOMEM);
}

TEST("regions of random words are read from outside, and nobody lives in them")
{
    peers_begin();
    for (uint64_t seed = 1; seed <= 8; seed++) {
        fill_random(seed);
        plant();
        CHECK(!look_from_outside());
    }
}

TEST("regions of random words hold a member to its limit, and give it all of that")
{
    peers_begin();
    for (uint64_t seed = 11; seed <= 18; seed++) {
        fill_random(seed);
        plant();
        CHECK_EQ(peers_reap(peers_fork(be_a_member)), 0);
    }
}

TEST("a slot that claims to be a process of another kind kills and frees nobody")
{
    peers_begin();
    memset(words, 0, BYTES);
    struct vgpu_region *region = (struct vgpu_region *)(void *)words;
    region->slot_high = VGPU_REGION_SLOTS;
    const uint32_t pids[] = {0, 1, 0x3fffffff, (uint32_t)getppid(), (uint32_t)getpid()};
    for (unsigned i = 0; i < sizeof(pids) / sizeof(pids[0]); i++) {
        region->slots[i].state = (uint64_t)UINT32_MAX << 32 | pids[i] << 2 | VGPU_SLOT_LIVE;
        region->slots[i].usage[0].bytes = UINT64_MAX;
        memset(region->slots[i].command, 'x', sizeof(region->slots[i].command));
    }
    plant();
    CHECK(!look_from_outside());
    CHECK_EQ(peers_reap(peers_fork(be_a_member)), 0);
}

/* Until it is killed. */
static void shorten_and_fill(void)
{
    uint64_t state = 4242;
    int fd = open(peers_path, O_WRONLY | O_CLOEXEC);
    REQUIRE(fd >= 0);
    for (;;) {
        off_t size = (off_t)(random_next(&state) % VGPU_REGION_FILE_BYTES);
        (void)!ftruncate(fd, size);
        sleep_ns(random_next(&state) % 200000);
        (void)!ftruncate(fd, VGPU_REGION_FILE_BYTES);
        (void)!pwrite(fd, words, BYTES, VGPU_REGION_OFFSET);
        sleep_ns(random_next(&state) % 400000);
    }
}

TEST("a region that is shortened and filled at any instant is read from outside without harm")
{
    peers_begin();
    fill_random(77);
    plant();
    int fd = open(peers_path, O_RDONLY | O_CLOEXEC);
    REQUIRE(pread(fd, words, IDENTITY_BYTES, VGPU_REGION_OFFSET) == (ssize_t)IDENTITY_BYTES);
    close(fd);
    pid_t pid = peers_fork(shorten_and_fill);
    unsigned opened = 0, lost = 0;
    uint64_t start = clock_now_ns();
    while (clock_now_ns() - start < (lost ? RACE_NS : RACE_AT_MOST_NS)) {
        struct region region;
        if (region_open(&region, peers_path) != 0)
            continue;
        opened++;
        for (int i = 0; i < 4 && !region.lost; i++)
            (void)look(&region);
        lost += region.lost;
        region_detach(&region);
    }
    peers_kill(pid);
    dprintf(
        STDOUT_FILENO, "# opened %u times, %u of them shortened under the reader\n", opened, lost);
    CHECK(opened > 0 && lost > 0);
}

TEST("a region held at its first byte's lock keeps a reader two seconds at most")
{
    peers_begin();
    memset(words, 0, BYTES);
    plant();
    int fd = open(peers_path, O_RDWR | O_CLOEXEC);
    struct flock lock = {
        .l_type = F_WRLCK, .l_whence = SEEK_SET, .l_start = VGPU_REGION_OFFSET, .l_len = 1};
    REQUIRE(fcntl(fd, F_OFD_SETLK, &lock) == 0);
    struct region region;
    uint64_t start = clock_now_ns();
    CHECK(region_open(&region, peers_path) < 0);
    CHECK(clock_now_ns() - start < 4000000000ull);
    close(fd);
}

TEST("what lies at the path in a region's place is not opened, and keeps its bytes")
{
    static const char secret[] = "not yours";
    char victim[192], text[sizeof(secret)] = "";
    struct region region;
    peers_begin();
    snprintf(victim, sizeof(victim), "%s/victim", peers_directory);
    int fd = open(victim, O_RDWR | O_CREAT | O_EXCL | O_CLOEXEC, 0600);
    REQUIRE(write(fd, secret, sizeof(secret)) == sizeof(secret));
    REQUIRE(symlink(victim, peers_path) == 0);
    CHECK_EQ(region_open(&region, peers_path), -ELOOP);
    CHECK_EQ(region_attach(&peers_region, peers_config("1g")), -ELOOP);
    unlink(peers_path);
    REQUIRE(link(victim, peers_path) == 0);
    CHECK_EQ(region_open(&region, peers_path), -EPROTO);
    CHECK_EQ(region_attach(&peers_region, peers_config("1g")), -EPROTO);
    unlink(peers_path);
    REQUIRE(mkfifo(peers_path, 0666) == 0);
    CHECK_EQ(region_open(&region, peers_path), -EPROTO);
    CHECK_EQ(region_attach(&peers_region, peers_config("1g")), -EPROTO);
    CHECK_EQ(pread(fd, text, sizeof(text), 0), sizeof(secret));
    CHECK_STR(text, secret);
    struct stat status;
    CHECK_EQ(fstat(fd, &status), 0);
    CHECK_EQ(status.st_mode & 07777, 0600);
}

TEST("a directory on the path that is a link is not opened to all")
{
    char target[192], link_path[192];
    struct stat status;
    peers_begin();
    snprintf(target, sizeof(target), "%s/target", peers_directory);
    snprintf(link_path, sizeof(link_path), "%s/link", peers_directory);
    REQUIRE(mkdir(target, 0700) == 0 && symlink(target, link_path) == 0);
    snprintf(peers_path, sizeof(peers_path), "%.80s/link/region", peers_directory);
    CHECK_EQ(region_attach(&peers_region, peers_config("1g")), 0);
    CHECK_EQ(stat(target, &status), 0);
    CHECK_EQ(status.st_mode & 07777, 0700);
    unlink(peers_path);
}

TEST("a link that leads nowhere makes no file where it points")
{
    char target[192];
    peers_begin();
    snprintf(target, sizeof(target), "%s/target", peers_directory);
    REQUIRE(symlink(target, peers_path) == 0);
    CHECK_EQ(region_attach(&peers_region, peers_config("1g")), -ELOOP);
    CHECK(access(target, F_OK) != 0);
}

int main(int argc, char **argv)
{
    return check_run(argc, argv);
}
