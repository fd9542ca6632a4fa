/* SPDX-License-Identifier: Apache-2.0 */
/* Files that HAMi-core's own library left where the region is to be, made as its programs make
 * them: opened, sought to the structure's size, one byte written there, filled in through a
 * mapping. */
#include "region/hami_file.h"

#include "peers.h"

#include "base/clock.h"
#include "check.h"
#include "region/region.h"
#include "region/region_file.h"
#include "users.h"
#include "vgpu/hami.h"

#include <fcntl.h>
#include <semaphore.h>
#include <sys/stat.h>
#include <time.h>

#define NOBODY 65534
#define MAGIC 19920718
#define NONE (-1)

/* Offsets in HAMi-core's structures; NONE: there is none of it. */
static const struct version {
    const char *name;
    int size, major, minor, semaphore, late_semaphore, limits, slots, slot_bytes, status, time;
} versions[] = {
    {"before versions", 804680, NONE, NONE, 16, NONE, 1592, 1848, 784, 776, NONE},
    {"before versions, with use of the device", 1197896, NONE, NONE, 16, NONE, 1592, 1848, 1168,
        1160, NONE},
    {"1.1", 2008952, 1, 1, 24, NONE, 1600, 1856, 1960, 1928, 2008912},
    {"1.1, both semaphores in the head", 2008984, 1, 1, 24, 56, 1632, 1888, 1960, 1936, 2008944},
    {"1.2", 2008952, 1, 2, 24, 2008920, 1600, 1856, 1960, 1928, 2008912},
};

#define VERSIONS (sizeof(versions) / sizeof(versions[0]))
#define NEWEST (&versions[VERSIONS - 1])

/* How far its last program came, or what was left of it. */
enum state {
    OPENED,       /* and no more: the file is empty */
    SIZED,        /* nothing is filled in */
    INITIALISING, /* the magic number is missing yet */
    IN_PROGRESS,  /* 1 stands in its place */
    INITIALISED,  /* nobody has a slot */
    EXITED,       /* the slot has no process any more, but counts */
    KILLED,       /* the slot has its process, which is dead */
    HOLDING,      /* that one also died with the semaphore */
    BROKEN,       /* the count of slots is none */
    STATES
};

static const char *const state_names[STATES] = {"opened", "sized", "initialising", "in progress",
    "initialised", "exited", "killed", "holding the semaphore", "broken"};

static void put(char *map, int offset, int64_t value, size_t bytes)
{
    if (offset != NONE)
        memcpy(map + offset, &value, bytes);
}

static int open_as_hami(const struct version *version)
{
    mode_t mask = umask(0);
    int fd = open(peers_path, O_RDWR | O_CREAT, 0666);
    umask(mask);
    REQUIRE(fd >= 0);
    REQUIRE(!version || (lseek(fd, version->size, SEEK_SET) == version->size &&
                            write(fd, "\0", 1) == 1 && lseek(fd, 0, SEEK_SET) == 0));
    return fd;
}

static char *map_as_hami(const struct version *version)
{
    int fd = open_as_hami(version);
    char *map = mmap(NULL, (size_t)version->size, PROT_READ | PROT_WRITE, MAP_SHARED, fd, 0);
    REQUIRE(map != MAP_FAILED);
    return map;
}

static void initialise(const struct version *version, char *map, int magic, unsigned free)
{
    put(map, version->major == NONE ? NONE : 4, version->major, 4);
    put(map, version->minor == NONE ? NONE : 8, version->minor, 4);
    for (int i = 0; i < 16; i++)
        put(map, version->limits + 8 * i, 1ll << 30, 8);
    REQUIRE(sem_init((sem_t *)(map + version->semaphore), 1, free) == 0);
    if (version->late_semaphore != NONE)
        REQUIRE(sem_init((sem_t *)(map + version->late_semaphore), 1, free) == 0);
    put(map, version->slots + 1024 * version->slot_bytes + 4, 1, 4);
    put(map, version->time, time(NULL), 8);
    put(map, 0, magic, 4);
}

/* The slot of a process that holds 512 MiB. */
static void register_process(const struct version *version, char *map, int pid)
{
    char *slot = map + version->slots;
    put(slot, 0, pid, 4);
    put(slot, 8 + 16, 512ll << 20, 8);
    put(slot, 8 + 32, 512ll << 20, 8);
    put(slot, version->status, pid != 0, 4);
    put(map, version->slots + 1024 * version->slot_bytes, 1, 4);
}

static int dead_pid(void)
{
    pid_t pid = fork();
    if (!pid)
        _exit(0);
    REQUIRE(waitpid(pid, NULL, 0) == pid);
    return pid;
}

static void leave(const struct version *version, enum state state)
{
    unlink(peers_path);
    if (state == OPENED) {
        close(open_as_hami(NULL));
        return;
    }
    char *map = map_as_hami(version);
    int magic = state == INITIALISING ? 0 : state == IN_PROGRESS ? 1 : MAGIC;
    if (state > SIZED)
        initialise(version, map, magic, state != HOLDING);
    if (state >= EXITED)
        register_process(version, map, state == EXITED ? 0 : dead_pid());
    if (state == BROKEN)
        put(map, version->slots + 1024 * version->slot_bytes, -5, 4);
    munmap(map, (size_t)version->size);
}

static void *see(size_t offset, size_t bytes)
{
    static char seen[4096];
    int fd = open(peers_path, O_RDONLY | O_CLOEXEC);
    REQUIRE(fd >= 0 && pread(fd, seen, bytes, (off_t)offset) == (ssize_t)bytes);
    close(fd);
    return seen;
}

/* Of 1 GiB all is to be had, and no more. */
static bool check_limited(void)
{
    unsigned device = peers_join("1g");
    bool right = CHECK_EQ(peers_used(device), 0);
    right &= CHECK_EQ(account_reserve(device, 1025 * PEERS_MIB, ACCOUNT_BUFFER), -ENOMEM);
    right &= CHECK_EQ(account_reserve(device, 1024 * PEERS_MIB, ACCOUNT_BUFFER), 0);
    account_release(device, 1024 * PEERS_MIB, ACCOUNT_BUFFER);
    return right;
}

TEST("whatever a program of any version left, the next one is limited, neither full nor unlimited")
{
    peers_begin();
    for (size_t v = 0; v < VERSIONS; v++) {
        for (int state = 0; state < STATES; state++) {
            leave(&versions[v], (enum state)state);
            if (!check_limited())
                printf("# version %s, %s\n", versions[v].name, state_names[state]);
            region_detach(&peers_region);
        }
    }
}

TEST("a file that is just as long as the structure is taken as well")
{
    peers_begin();
    for (size_t v = 0; v < VERSIONS; v++) {
        for (int state = INITIALISING; state < STATES; state++) {
            leave(&versions[v], (enum state)state);
            REQUIRE(truncate(peers_path, versions[v].size) == 0);
            if (!check_limited())
                printf("# version %s, %s\n", versions[v].name, state_names[state]);
            region_detach(&peers_region);
        }
    }
}

TEST("a size that is not known is taken by its magic number, or where it holds nothing")
{
    static const int sizes[] = {4, 57, 4096, 1500001, VGPU_REGION_OFFSET, VGPU_REGION_OFFSET + 1};
    peers_begin();
    for (size_t i = 0; i < sizeof(sizes) / sizeof(sizes[0]); i++) {
        for (int magic = 0; magic <= MAGIC; magic += MAGIC) {
            unlink(peers_path);
            int fd = open_as_hami(NULL);
            REQUIRE(ftruncate(fd, sizes[i] - 1) == 0);
            REQUIRE(pwrite(fd, "\0", 1, sizes[i] - 1) == 1);
            REQUIRE(pwrite(fd, &magic, 4, 0) == 4);
            close(fd);
            if (!check_limited())
                printf("# %d bytes, magic number %d\n", sizes[i], magic);
            region_detach(&peers_region);
        }
    }
}

TEST("what the dead left is not seen by a monitor, and the semaphores are free")
{
    peers_begin();
    leave(NEWEST, HOLDING);
    peers_join("1g");
    struct vgpu_hami_slot *slot = see(offsetof(struct vgpu_hami, slots), sizeof(*slot));
    CHECK_EQ(slot->pid, getpid());
    CHECK_EQ(slot->used[0].total, 0);
    CHECK_EQ(*(int32_t *)see(offsetof(struct vgpu_hami, proc_num), 4), 1);
    CHECK_EQ(*(int32_t *)see(0, 4), MAGIC);
    CHECK_EQ(*(int32_t *)see(8, 4), 2);
    CHECK_EQ(sem_trywait((sem_t *)&peers_region.map->hami.lock), 0);
    CHECK_EQ(sem_trywait((sem_t *)&peers_region.map->hami.late_lock), 0);
}

static const struct version *alive;
static char *alive_map;

static void live_with_it(void)
{
    if (!users_may_change())
        (void)!chmod(peers_path, 0666);
    alive_map = map_as_hami(alive);
    initialise(alive, alive_map, MAGIC, 1);
    register_process(alive, alive_map, getpid());
    peers_step(peers->step + 1);
    pause();
}

static uint64_t file_sum(void)
{
    static unsigned char buffer[1 << 16];
    uint64_t sum = 14695981039346656037ull;
    int fd = open(peers_path, O_RDONLY);
    REQUIRE(fd >= 0);
    for (ssize_t got; (got = read(fd, buffer, sizeof(buffer))) > 0;) {
        for (ssize_t i = 0; i < got; i++)
            sum = (sum ^ buffer[i]) * 1099511628211ull;
    }
    close(fd);
    return sum;
}

static int attach(void)
{
    return region_attach(&peers_region, peers_config("1g"));
}

TEST("a program that lives and has it mapped keeps it, whatever its version, until it ends")
{
    peers_begin();
    for (size_t v = 0; v < VERSIONS; v++) {
        unlink(peers_path);
        alive = &versions[v];
        int step = peers->step + 1;
        pid_t pid = peers_fork(live_with_it);
        peers_wait(step);
        uint64_t before = file_sum();
        CHECK_EQ(attach(), -EBUSY);
        CHECK(file_sum() == before);
        peers_kill(pid);
        if (!check_limited())
            printf("# version %s\n", versions[v].name);
        region_detach(&peers_region);
    }
}

static void live_with_newer(void)
{
    int fd = open(peers_path, O_RDWR);
    void *map = mmap(NULL, 4096, PROT_READ | PROT_WRITE, MAP_SHARED, fd, 0);
    REQUIRE(map != MAP_FAILED);
    close(fd);
    peers_step(peers->step + 1);
    pause();
}

TEST("nor is a file of a newer version taken from a program that has it mapped")
{
    static const int head[] = {MAGIC, 1, 3};
    peers_begin();
    int fd = open_as_hami(NULL);
    REQUIRE(ftruncate(fd, 3000001) == 0);
    REQUIRE(pwrite(fd, head, sizeof(head), 0) == sizeof(head));
    close(fd);
    int step = peers->step + 1;
    pid_t pid = peers_fork(live_with_newer);
    peers_wait(step);
    uint64_t before = file_sum();
    CHECK_EQ(attach(), -EBUSY);
    CHECK(file_sum() == before);
    peers_kill(pid);
    CHECK(check_limited());
}

static void wait_for_the_end(void)
{
    peers_wait(1);
}

TEST("a number that is another process's by now, or our own, keeps nothing")
{
    peers_begin();
    pid_t pid = peers_fork(wait_for_the_end);
    for (int own = 0; own < 2; own++) {
        leave(NEWEST, INITIALISED);
        char *map = map_as_hami(NEWEST);
        register_process(NEWEST, map, own ? getpid() : pid);
        munmap(map, (size_t)NEWEST->size);
        CHECK(check_limited());
        region_detach(&peers_region);
    }
    peers_step(1);
    CHECK_EQ(peers_reap(pid), 0);
}

/* Whose mappings another user may not read. */
TEST("another user's program keeps it if it was there when HAMi-core last wrote the time")
{
    peers_begin();
    if (!users_may_change())
        SKIP("needs root to become another user");
    REQUIRE(chmod(peers_directory, 0777) == 0);
    alive = NEWEST;
    pid_t pid = peers_fork(live_with_it);
    peers_wait(1);
    REQUIRE(setresgid(NOBODY, NOBODY, NOBODY) == 0 && setresuid(NOBODY, NOBODY, NOBODY) == 0);
    CHECK_EQ(attach(), -EBUSY);
    char *map = map_as_hami(NEWEST);
    put(map, NEWEST->time, time(NULL) - 1000, 8); /* by one that lived long before */
    munmap(map, (size_t)NEWEST->size);
    CHECK_EQ(attach(), 0);
    (void)pid; /* goes with the test's process group */
}

static void initialise_slowly(void)
{
    int fd = open_as_hami(NEWEST);
    REQUIRE(lockf(fd, F_LOCK, NEWEST->size) == 0);
    peers_step(1);
    peers_wait(2);
}

TEST("one that is initialising is waited for, not disturbed")
{
    peers_begin();
    pid_t pid = peers_fork(initialise_slowly);
    peers_wait(1);
    CHECK_EQ(attach(), -ETIMEDOUT);
    CHECK_EQ(*(uint64_t *)see(0, 8), 0);
    peers_step(2);
    CHECK_EQ(peers_reap(pid), 0);
    CHECK(check_limited());
}

TEST("the byte that HAMi-core writes when it starts on a region of ours changes nothing")
{
    peers_begin();
    unsigned device = peers_join("1g");
    CHECK_EQ(account_reserve(device, 600 * PEERS_MIB, ACCOUNT_BUFFER), 0);
    uint64_t before = file_sum();
    for (size_t v = 2; v < VERSIONS; v++)
        close(open_as_hami(&versions[v]));
    CHECK(file_sum() == before);
    CHECK_EQ(account_reserve(device, 425 * PEERS_MIB, ACCOUNT_BUFFER), -ENOMEM);
    CHECK_EQ(account_reserve(device, 424 * PEERS_MIB, ACCOUNT_BUFFER), 0);
}

TEST("root's file for all is taken by a user, whose limit holds")
{
    peers_begin();
    if (!users_may_change())
        SKIP("needs root to become another user");
    leave(NEWEST, KILLED);
    REQUIRE(chmod(peers_directory, 0777) == 0);
    REQUIRE(setresgid(NOBODY, NOBODY, NOBODY) == 0 && setresuid(NOBODY, NOBODY, NOBODY) == 0);
    CHECK(check_limited());
}

int main(int argc, char **argv)
{
    return check_run(argc, argv);
}
