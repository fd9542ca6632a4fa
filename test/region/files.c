/* SPDX-License-Identifier: Apache-2.0 */
/* The region's file: what is no region, what cannot be opened, what happens to it while in use. */
#include "peers.h"

#include "base/atomic.h"
#include "base/clock.h"
#include "base/file_lock.h"
#include "check.h"
#include "region/region.h"
#include "users.h"

#include <fcntl.h>
#include <sched.h>
#include <sys/mount.h>
#include <sys/resource.h>
#include <sys/stat.h>

#define NOBODY 65534

static int attach(void)
{
    int error = region_attach(&peers_region, peers_config("1g"));
    if (error) {
        CHECK(peers_region.shared == NULL);
        CHECK_EQ(peers_region.fd, -1);
    }
    return error;
}

static void write_file(const char *path, off_t size, const char *start)
{
    int fd = open(path, O_RDWR | O_CREAT | O_TRUNC, 0666);
    REQUIRE(fd >= 0);
    REQUIRE(ftruncate(fd, size) == 0);
    REQUIRE(pwrite(fd, start, strlen(start), 0) == (ssize_t)strlen(start));
    close(fd);
}

/* FNV-1a of the file, to see whether it was touched. */
static uint64_t file_sum(const char *path)
{
    static unsigned char buffer[1 << 16];
    uint64_t sum = 14695981039346656037ull;
    int fd = open(path, O_RDONLY);
    REQUIRE(fd >= 0);
    for (ssize_t got; (got = read(fd, buffer, sizeof(buffer))) > 0;) {
        for (ssize_t i = 0; i < got; i++)
            sum = (sum ^ buffer[i]) * 1099511628211ull;
    }
    close(fd);
    return sum;
}

static void check_refused_untouched(int error)
{
    uint64_t before = file_sum(peers_path);
    CHECK_EQ(attach(), error);
    CHECK(file_sum(peers_path) == before);
}

static int descriptors_open(void)
{
    int count = 0;
    for (int fd = 0; fd < 1024; fd++)
        count += fcntl(fd, F_GETFD) >= 0;
    return count;
}

TEST("a missing file is made, with its directories, for all users")
{
    struct stat status;
    peers_begin();
    size_t length = strlen(peers_path);
    snprintf(peers_path + length, sizeof(peers_path) - length, ".d/region");
    umask(077);
    CHECK_EQ(attach(), 0);
    CHECK_EQ(umask(077), 077);
    REQUIRE(stat(peers_path, &status) == 0);
    CHECK_EQ(status.st_mode & 07777, 0666);
    CHECK_EQ(status.st_size, VGPU_REGION_FILE_BYTES);
    CHECK_EQ(fcntl(peers_region.fd, F_GETFD), FD_CLOEXEC);
    CHECK(peers_region.fd >= 300);
    region_detach(&peers_region);
    unlink(peers_path);
    peers_path[length + 2] = '\0';
    rmdir(peers_path);
}

TEST("an empty file becomes a region")
{
    peers_begin();
    write_file(peers_path, 0, "");
    CHECK_EQ(attach(), 0);
}

TEST("a file of HAMi-core's becomes a region, and what its processes left there counts no more")
{
    const int32_t magic = 19920718, running = 1;
    const uint64_t bytes = 4096;
    struct vgpu_hami_slot slot;
    peers_begin();
    write_file(peers_path, 2008952, "");
    int fd = open(peers_path, O_RDWR);
    REQUIRE(pwrite(fd, &magic, sizeof(magic), 0) == sizeof(magic));
    for (int i = 0; i < 3; i++) {
        REQUIRE(pwrite(fd, &bytes, sizeof(bytes), 1856 + i * 1960 + 40) == sizeof(bytes));
        REQUIRE(pwrite(fd, &running, sizeof(running), 1856 + i * 1960 + 1928) == sizeof(running));
    }
    CHECK_EQ(attach(), 0);
    for (int i = 0; i < 3; i++) {
        CHECK_EQ(pread(fd, &slot, sizeof(slot), 1856 + i * 1960), sizeof(slot));
        CHECK_EQ(slot.used[0].total, 0);
        CHECK_EQ(slot.status, i == 0);
    }
}

TEST("a file of HAMi-core's size with something else in it is refused and left as it is")
{
    peers_begin();
    write_file(peers_path, 2008952, "SOMEDATA");
    check_refused_untouched(-EPROTO);
}

TEST("a file that was sized but not initialised is finished")
{
    peers_begin();
    write_file(peers_path, (off_t)VGPU_REGION_FILE_BYTES, "");
    CHECK_EQ(attach(), 0);
}

TEST("somebody else's file is refused and left as it is")
{
    static const off_t sizes[] = {1, 4096, VGPU_REGION_OFFSET, 2008952 + 1,
        (off_t)VGPU_REGION_FILE_BYTES - 1, (off_t)VGPU_REGION_FILE_BYTES + 4096};
    peers_begin();
    int open_before = descriptors_open();
    for (size_t i = 0; i < sizeof(sizes) / sizeof(sizes[0]); i++) {
        write_file(peers_path, sizes[i], "#");
        check_refused_untouched(-EPROTO);
    }
    CHECK_EQ(descriptors_open(), open_before);
}

TEST("a file of the right size with another magic is refused and left as it is")
{
    peers_begin();
    write_file(peers_path, (off_t)VGPU_REGION_FILE_BYTES, "");
    int fd = open(peers_path, O_RDWR);
    REQUIRE(pwrite(fd, "OTHERMAG", 8, VGPU_REGION_OFFSET) == 8);
    close(fd);
    check_refused_untouched(-EPROTO);
}

/* A region with one word of its header changed. */
static void check_header_refused(size_t offset, uint32_t value)
{
    unlink(peers_path);
    REQUIRE(attach() == 0);
    memcpy((char *)peers_region.shared + offset, &value, sizeof(value));
    region_detach(&peers_region);
    check_refused_untouched(-EPROTO);
}

TEST("an older or newer version, another byte order or other tables are refused")
{
    peers_begin();
    check_header_refused(offsetof(struct vgpu_region, version), VGPU_REGION_VERSION - 1);
    check_header_refused(offsetof(struct vgpu_region, version), VGPU_REGION_VERSION + 1);
    check_header_refused(offsetof(struct vgpu_region, byte_order), 0x04030201);
    check_header_refused(offsetof(struct vgpu_region, size), 4096);
    check_header_refused(offsetof(struct vgpu_region, device_entries), 16);
    check_header_refused(offsetof(struct vgpu_region, slot_entries), 1u << 30);
}

TEST("a directory, a pipe and a device are refused")
{
    peers_begin();
    REQUIRE(mkdir(peers_path, 0777) == 0);
    CHECK_EQ(attach(), -EISDIR);
    rmdir(peers_path);
    REQUIRE(mkfifo(peers_path, 0666) == 0);
    CHECK_EQ(attach(), -EPROTO);
    unlink(peers_path);
    snprintf(peers_path, sizeof(peers_path), "/dev/null");
    CHECK_EQ(attach(), -EPROTO);
}

TEST("a symbolic link is not followed where the path was named either")
{
    peers_begin();
    char target[sizeof(peers_path) + 16];
    snprintf(target, sizeof(target), "%s.target", peers_path);
    REQUIRE(symlink(target, peers_path) == 0);
    CHECK_EQ(attach(), -ELOOP);
    CHECK(access(target, F_OK) != 0);
    write_file(target, 0, "");
    CHECK_EQ(attach(), -ELOOP);
}

TEST("a file with a second name is somebody's file, and refused")
{
    peers_begin();
    char other[sizeof(peers_path) + 16];
    snprintf(other, sizeof(other), "%s.other", peers_path);
    write_file(other, 0, "");
    REQUIRE(link(other, peers_path) == 0);
    check_refused_untouched(-EPROTO);
}

TEST("a limit on file sizes is an error, not a signal")
{
    peers_begin();
    REQUIRE(setrlimit(RLIMIT_FSIZE, &(struct rlimit){4096, 4096}) == 0);
    CHECK_EQ(attach(), -EFBIG);
}

TEST("a path through a file is refused")
{
    peers_begin();
    write_file(peers_path, 10, "#");
    strcat(peers_path, "/region");
    CHECK_EQ(attach(), -ENOTDIR);
}

static void become_nobody(void)
{
    if (geteuid() == 0 && !users_may_change())
        SKIP(USERS_NEEDED);
    if (geteuid() == 0)
        REQUIRE(setresgid(NOBODY, NOBODY, NOBODY) == 0 && setresuid(NOBODY, NOBODY, NOBODY) == 0);
}

TEST("a file that may not be written is refused")
{
    peers_begin();
    REQUIRE(attach() == 0);
    region_detach(&peers_region);
    chmod(peers_path, 0444);
    chmod(peers_directory, 0777);
    become_nobody();
    CHECK_EQ(attach(), -EACCES);
}

TEST("a directory that may not be written is refused")
{
    peers_begin();
    chmod(peers_directory, 0555);
    become_nobody();
    CHECK_EQ(attach(), -EACCES);
}

static void attach_as_nobody(void)
{
    become_nobody();
    unsigned device = peers_join("1g");
    CHECK_EQ(account_reserve(device, PEERS_MIB, ACCOUNT_BUFFER), 0);
    peers_step(1);
    peers_wait(2);
}

TEST("users of one container share its region")
{
    peers_begin();
    if (!users_may_change())
        SKIP(USERS_NEEDED);
    chmod(peers_directory, 01777);
    unsigned device = peers_join("1g");
    CHECK_EQ(account_reserve(device, PEERS_MIB, ACCOUNT_BUFFER), 0);
    pid_t pid = peers_fork(attach_as_nobody);
    peers_wait(1);
    CHECK_EQ(peers_used(device), 2 * PEERS_MIB);
    peers_step(2);
    CHECK_EQ(peers_reap(pid), 0);
}

/* The configuration where no path was named and peers_path is the default one. */
static struct config *config_default(void)
{
    struct config *config = peers_config("1g");
    config->region_named = false;
    return config;
}

static bool own_path_exists(void)
{
    char path[sizeof(peers_path) + 16];
    snprintf(path, sizeof(path), "%s.%u", peers_path, (unsigned)geteuid());
    return access(path, F_OK) == 0;
}

TEST("a symlink under the default name is not followed: the user gets a path of its own")
{
    peers_begin();
    char target[sizeof(peers_path) + 16];
    snprintf(target, sizeof(target), "%s.target", peers_path);
    write_file(target, 10, "precious");
    uint64_t before = file_sum(target);
    REQUIRE(symlink(target, peers_path) == 0);
    CHECK_EQ(region_attach(&peers_region, config_default()), 0);
    CHECK(file_sum(target) == before);
    CHECK(own_path_exists());
}

TEST("another user's file under the default name: the user gets a path of its own")
{
    peers_begin();
    if (!users_may_change())
        SKIP(USERS_NEEDED);
    write_file(peers_path, 10, "#");
    chmod(peers_path, 0600);
    chmod(peers_directory, 01777);
    become_nobody();
    CHECK_EQ(region_attach(&peers_region, config_default()), 0);
    CHECK(own_path_exists());
}

TEST("a path that is too long is an error")
{
    peers_begin();
    struct config *config = peers_config("1g");
    config->region_too_long = true;
    CHECK_EQ(region_attach(&peers_region, config), -ENAMETOOLONG);
}

/* Remounts the test's directory for this process alone; where that is not allowed, skips. */
static void mount_small(unsigned long flags, const char *options)
{
    if (unshare(CLONE_NEWNS) != 0 || mount(NULL, "/", NULL, MS_REC | MS_PRIVATE, NULL) != 0 ||
        mount("tmpfs", peers_directory, "tmpfs", flags, options) != 0)
        SKIP("mounting is not allowed here");
}

TEST("a read-only file system is an error")
{
    peers_begin();
    mount_small(MS_RDONLY, "size=1m");
    CHECK_EQ(attach(), -EROFS);
}

TEST("a full file system is an error, not a signal")
{
    peers_begin();
    mount_small(0, "size=4k");
    CHECK_EQ(attach(), -ENOSPC);
}

TEST("a file system that fills up later refuses who joins then, not by a signal")
{
    peers_begin();
    mount_small(0, "size=64k");
    unsigned device = peers_join("1g");
    char path[sizeof(peers_path) + 16];
    snprintf(path, sizeof(path), "%s.fill", peers_path);
    int fd = open(path, O_RDWR | O_CREAT, 0666);
    static char block[4096] = "x";
    while (write(fd, block, sizeof(block)) > 0)
        ;
    CHECK_EQ(account_reserve(device, PEERS_MIB, ACCOUNT_BUFFER), 0);
    peers_join("1g");
    CHECK_EQ(account_reserve(device, PEERS_MIB, ACCOUNT_BUFFER), -ENOMEM);
    unlink(path);
    close(fd);
    CHECK_EQ(account_reserve(device, PEERS_MIB, ACCOUNT_BUFFER), 0);
}

TEST("attaching waits two seconds at most for who initialises")
{
    peers_begin();
    write_file(peers_path, 0, "");
    int fd = open(peers_path, O_RDWR);
    REQUIRE(file_lock_take(fd, VGPU_REGION_OFFSET) == 0);
    uint64_t start = clock_now_ns();
    CHECK_EQ(attach(), -ETIMEDOUT);
    uint64_t waited_ms = (clock_now_ns() - start) / 1000000;
    CHECK(waited_ms >= 1900 && waited_ms < 4000);
    close(fd);
    CHECK_EQ(attach(), 0);
}

static void join_and_charge(void)
{
    unsigned device = peers_join("1g");
    CHECK_EQ(account_reserve(device, PEERS_MIB, ACCOUNT_BUFFER), 0);
    add_seq_cst(&peers->number[0], 1);
    peers_wait(1);
}

static void join_and_fill(void)
{
    unsigned device = peers_join("1g");
    CHECK_EQ(account_reserve(device, 425 * PEERS_MIB, ACCOUNT_BUFFER), -ENOMEM);
    CHECK_EQ(account_reserve(device, 424 * PEERS_MIB, ACCOUNT_BUFFER), 0);
    peers_step(1);
    peers_wait(2);
}

/* The calling process holds 600 MiB of 1 GiB: whoever comes gets the rest and no more. */
static void check_shared_again(unsigned device)
{
    CHECK_EQ(peers_used(device), 600 * PEERS_MIB);
    pid_t pid = peers_fork(join_and_fill);
    peers_wait(1);
    CHECK_EQ(peers_used(device), 1024 * PEERS_MIB);
    CHECK_EQ(account_reserve(device, 1, ACCOUNT_BUFFER), -ENOMEM);
    peers_step(2);
    CHECK_EQ(peers_reap(pid), 0);
    CHECK_EQ(account_reserve(device, 424 * PEERS_MIB, ACCOUNT_BUFFER), 0);
    account_release(device, 1024 * PEERS_MIB, ACCOUNT_BUFFER);
    CHECK_EQ(peers_used(device), 0);
}

/* A process looks for its file once in 0.25 ms at most. */
static void wait_for_a_look(void)
{
    peers_sleep_ms(1);
}

static unsigned join_and_hold(void)
{
    peers_begin();
    unsigned device = peers_join("1g");
    CHECK_EQ(account_reserve(device, 600 * PEERS_MIB, ACCOUNT_BUFFER), 0);
    account_commit(device, 600 * PEERS_MIB);
    return device;
}

TEST("a region that is deleted under a process is made again with what it holds")
{
    unsigned device = join_and_hold();
    int open_before = descriptors_open();
    unlink(peers_path);
    wait_for_a_look();
    CHECK_EQ(account_reserve(device, 425 * PEERS_MIB, ACCOUNT_BUFFER), -ENOMEM);
    check_shared_again(device);
    CHECK_EQ(descriptors_open(), open_before);
}

TEST("a region whose directory is deleted under a process is made again")
{
    unsigned device = join_and_hold();
    char moved[sizeof(peers_directory) + 8];
    snprintf(moved, sizeof(moved), "%s.gone", peers_directory);
    unlink(peers_path);
    REQUIRE(rename(peers_directory, moved) == 0);
    wait_for_a_look();
    check_shared_again(device);
    rmdir(moved);
}

TEST("a region that a newcomer made in the place of a deleted one is joined")
{
    unsigned device = join_and_hold();
    unlink(peers_path);
    pid_t pid = peers_fork(join_and_charge);
    while (load_acquire(&peers->number[0]) < 1)
        sched_yield();
    wait_for_a_look();
    CHECK_EQ(account_reserve(device, 424 * PEERS_MIB, ACCOUNT_BUFFER), -ENOMEM);
    CHECK_EQ(account_reserve(device, 423 * PEERS_MIB, ACCOUNT_BUFFER), 0);
    CHECK_EQ(peers_used(device), 1024 * PEERS_MIB);
    account_release(device, 423 * PEERS_MIB, ACCOUNT_BUFFER);
    peers_step(1);
    CHECK_EQ(peers_reap(pid), 0);
    peers->step = 0;
    check_shared_again(device);
}

/* A process of another PID namespace is there by our very number and word, and lives. */
TEST("in a file that newcomers made the slot of our number is another's")
{
    unsigned device = join_and_hold();
    unsigned slot = (unsigned)peers_region.slot;
    static char whole[VGPU_REGION_FILE_BYTES];
    char aside[sizeof(peers_path) + 8];
    snprintf(aside, sizeof(aside), "%s.aside", peers_path);
    int fd = open(peers_path, O_RDWR | O_CLOEXEC), made;
    REQUIRE(fd >= 0 && read(fd, whole, sizeof(whole)) == (ssize_t)sizeof(whole));
    REQUIRE((made = open(aside, O_RDWR | O_CREAT | O_CLOEXEC, 0666)) >= 0);
    REQUIRE(write(made, whole, sizeof(whole)) == (ssize_t)sizeof(whole));
    off_t at = VGPU_REGION_OFFSET + (off_t)offsetof(struct vgpu_region, slots) +
               (off_t)(slot * sizeof(struct vgpu_slot));
    struct flock lock = {.l_type = F_WRLCK, .l_whence = SEEK_SET, .l_start = at, .l_len = 1};
    REQUIRE(fcntl(made, F_OFD_SETLK, &lock) == 0);
    REQUIRE(rename(aside, peers_path) == 0);
    peers_sleep_ms(20); /* the path is looked at every 10 ms */
    CHECK_EQ(account_reserve(device, 425 * PEERS_MIB, ACCOUNT_BUFFER), -ENOMEM);
    CHECK_EQ(peers_used(device), 1200 * PEERS_MIB);
    close(made);
    close(fd);
}

TEST("a region that was renamed away is left for the one that newcomers made")
{
    unsigned device = join_and_hold();
    char aside[sizeof(peers_path) + 8];
    snprintf(aside, sizeof(aside), "%s.aside", peers_path);
    REQUIRE(rename(peers_path, aside) == 0);
    pid_t pid = peers_fork(join_and_charge);
    while (load_acquire(&peers->number[0]) < 1)
        sched_yield();
    peers_sleep_ms(20); /* the path is looked at every 10 ms */
    CHECK_EQ(account_reserve(device, 424 * PEERS_MIB, ACCOUNT_BUFFER), -ENOMEM);
    CHECK_EQ(account_reserve(device, 423 * PEERS_MIB, ACCOUNT_BUFFER), 0);
    peers_step(1);
    CHECK_EQ(peers_reap(pid), 0);
}

static void stay_out_of_anothers_file(void)
{
    become_nobody();
    REQUIRE(region_attach(&peers_region, config_default()) == 0);
    account_start(&peers_region, 0);
    int device = account_device(PEERS_UUID, 0);
    REQUIRE(device >= 0);
    ino_t inode = peers_region.inode;
    peers_step(1);
    peers_wait(2);
    CHECK_EQ(account_reserve((unsigned)device, PEERS_MIB, ACCOUNT_BUFFER), 0);
    CHECK_EQ(peers_region.inode, inode);
}

TEST("under the default path another user's file is not joined later either")
{
    peers_begin();
    if (!users_may_change())
        SKIP(USERS_NEEDED);
    chmod(peers_directory, 0777);
    pid_t pid = peers_fork(stay_out_of_anothers_file);
    peers_wait(1);
    unlink(peers_path);
    write_file(peers_path, 0, "");
    REQUIRE(chown(peers_path, 1002, 1002) == 0 && chmod(peers_path, 0666) == 0);
    peers_step(2);
    CHECK_EQ(peers_reap(pid), 0);
}

TEST("a region that is shortened under a process, to whatever size, is mended")
{
    static const off_t sizes[] = {0, 1, 4096, 2008952, VGPU_REGION_OFFSET, VGPU_REGION_OFFSET + 64,
        VGPU_REGION_OFFSET + 4096, VGPU_REGION_OFFSET + 16384, (off_t)VGPU_REGION_FILE_BYTES - 1};
    unsigned device = join_and_hold();
    for (size_t i = 0; i < sizeof(sizes) / sizeof(sizes[0]); i++) {
        REQUIRE(truncate(peers_path, sizes[i]) == 0);
        CHECK_EQ(account_reserve(device, 425 * PEERS_MIB, ACCOUNT_BUFFER), -ENOMEM);
        CHECK_EQ(peers_used(device), 600 * PEERS_MIB);
        REQUIRE(truncate(peers_path, sizes[i]) == 0);
        CHECK_EQ(peers_used(device), 600 * PEERS_MIB);
        REQUIRE(truncate(peers_path, sizes[i]) == 0);
        account_release(device, 100 * PEERS_MIB, ACCOUNT_BUFFER);
        CHECK_EQ(account_reserve(device, 100 * PEERS_MIB, ACCOUNT_BUFFER), 0);
        account_commit(device, 100 * PEERS_MIB);
    }
    check_shared_again(device);
}

TEST("a region that is emptied and sized again keeps the limit and what is held")
{
    unsigned device = join_and_hold();
    REQUIRE(truncate(peers_path, 0) == 0);
    REQUIRE(truncate(peers_path, (off_t)VGPU_REGION_FILE_BYTES) == 0);
    CHECK_EQ(account_reserve(device, 425 * PEERS_MIB, ACCOUNT_BUFFER), -ENOMEM);
    check_shared_again(device);
}

TEST("a limit that was changed while programs run outlives the file")
{
    unsigned device = join_and_hold();
    store_relaxed(&peers_region.shared->devices[device].memory_limit, 700 * PEERS_MIB);
    CHECK_EQ(account_reserve(device, 101 * PEERS_MIB, ACCOUNT_BUFFER), -ENOMEM);
    unlink(peers_path);
    wait_for_a_look();
    CHECK_EQ(account_reserve(device, 101 * PEERS_MIB, ACCOUNT_BUFFER), -ENOMEM);
    CHECK_EQ(account_reserve(device, 100 * PEERS_MIB, ACCOUNT_BUFFER), 0);
}

static void stay_under_1g(void)
{
    peers_join("1g");
    peers_step(1);
    peers_wait(2);
}

TEST("the limit for devices that nobody has met outlives the file, whoever makes it again")
{
    peers_begin();
    pid_t pid = peers_fork(stay_under_1g);
    peers_wait(1);
    unsigned device = peers_join("8g");
    unlink(peers_path);
    wait_for_a_look();
    CHECK_EQ(account_reserve(device, 1025 * PEERS_MIB, ACCOUNT_BUFFER), -ENOMEM);
    CHECK_EQ(access(peers_path, F_OK), 0);
    CHECK_EQ(peers_region.shared->default_memory_limit, 1024 * PEERS_MIB);
    store_relaxed(&peers_region.shared->default_memory_limit, 700 * PEERS_MIB);
    CHECK_EQ(account_reserve(device, PEERS_MIB, ACCOUNT_BUFFER), 0);
    unlink(peers_path);
    wait_for_a_look();
    CHECK_EQ(account_reserve(device, PEERS_MIB, ACCOUNT_BUFFER), 0);
    CHECK_EQ(peers_region.shared->default_memory_limit, 700 * PEERS_MIB);
    peers_step(2);
    CHECK_EQ(peers_reap(pid), 0);
}

TEST("where the region is gone and cannot be had again the device is full, and frees count")
{
    unsigned device = join_and_hold();
    REQUIRE(truncate(peers_path, 0) == 0);
    REQUIRE(setrlimit(RLIMIT_FSIZE, &(struct rlimit){0, RLIM_INFINITY}) == 0);
    struct account_view view;
    account_view(device, &view);
    CHECK(view.closed);
    CHECK_EQ(account_reserve(device, 1, ACCOUNT_BUFFER), -ENOMEM);
    account_release(device, 100 * PEERS_MIB, ACCOUNT_BUFFER);
    CHECK_EQ(account_own_bytes(device, ACCOUNT_KINDS), 500 * PEERS_MIB);
    REQUIRE(setrlimit(RLIMIT_FSIZE, &(struct rlimit){RLIM_INFINITY, RLIM_INFINITY}) == 0);
    peers_sleep_ms(20); /* it is tried every 10 ms */
    CHECK_EQ(account_reserve(device, 525 * PEERS_MIB, ACCOUNT_BUFFER), -ENOMEM);
    CHECK_EQ(account_reserve(device, 524 * PEERS_MIB, ACCOUNT_BUFFER), 0);
}

/* Cut short at each page, on tmpfs, which raises a signal also where storage is asked for. */
TEST("a program with a limit on file sizes lives where its region is cut short, and it may make "
     "none")
{
    peers_begin();
    mount_small(0, "size=16m");
    unsigned device = peers_join("1g");
    CHECK_EQ(account_reserve(device, 600 * PEERS_MIB, ACCOUNT_BUFFER), 0);
    for (rlim_t limit = 0; limit < VGPU_REGION_FILE_BYTES; limit += 1000000) {
        off_t size = (off_t)(limit + 4096 < VGPU_REGION_FILE_BYTES ? limit + 4096 : limit);
        REQUIRE(truncate(peers_path, size) == 0);
        REQUIRE(setrlimit(RLIMIT_FSIZE, &(struct rlimit){limit, RLIM_INFINITY}) == 0);
        CHECK_EQ(account_reserve(device, 425 * PEERS_MIB, ACCOUNT_BUFFER), -ENOMEM);
        struct region other;
        CHECK(region_attach(&other, peers_config("1g")) != 0);
        REQUIRE(setrlimit(RLIMIT_FSIZE, &(struct rlimit){RLIM_INFINITY, RLIM_INFINITY}) == 0);
        peers_sleep_ms(20); /* it is tried every 10 ms */
        CHECK_EQ(account_reserve(device, 425 * PEERS_MIB, ACCOUNT_BUFFER), -ENOMEM);
        CHECK_EQ(peers_used(device), 600 * PEERS_MIB);
    }
}

/* Allocates and frees as fast as it can, with a reckoning of its own. */
static void allocate_until_told(void)
{
    unsigned device = peers_join("1g");
    add_seq_cst(&peers->number[2], 1);
    while (load_acquire(&peers->step) < 1) {
        if (account_reserve(device, PEERS_MIB, ACCOUNT_BUFFER) == 0) {
            account_commit(device, PEERS_MIB);
            account_release(device, PEERS_MIB, ACCOUNT_BUFFER);
        }
        add_seq_cst(&peers->number[0], 1);
    }
    CHECK_EQ(account_own_bytes(device, ACCOUNT_KINDS), 0);
    CHECK_EQ(account_reserve(device, 300 * PEERS_MIB, ACCOUNT_BUFFER), 0);
    add_seq_cst(&peers->number[1], 1);
    peers_wait(2);
    CHECK_EQ(account_own_bytes(device, ACCOUNT_KINDS), 300 * PEERS_MIB);
}

static void wait_for_rounds(int64_t rounds)
{
    int64_t from = load_acquire(&peers->number[0]);
    uint64_t start = clock_now_ns();
    while (
        load_acquire(&peers->number[0]) < from + rounds && clock_now_ns() - start < 20000000000ull)
        sched_yield();
}

TEST("a region shortened and deleted 1,000 times at any instant kills nobody and loses nothing")
{
    peers_begin();
    unsigned device = peers_join("1g");
    pid_t pids[3];
    for (int i = 0; i < 3; i++)
        pids[i] = peers_fork(allocate_until_told);
    while (load_acquire(&peers->number[2]) < 3)
        sched_yield();
    uint64_t start = clock_now_ns();
    for (int round = 0; round < 1000 && clock_now_ns() - start < 10000000000ull; round++) {
        wait_for_rounds(1 + round % 3);
        if (round % 4)
            (void)!truncate(peers_path, round % 2 ? 0 : VGPU_REGION_OFFSET + 8192);
        else
            unlink(peers_path);
    }
    peers_sleep_ms(50);
    peers_step(1);
    while (load_acquire(&peers->number[1]) < 3)
        sched_yield();
    /* Each has charged since; so have we. */
    CHECK_EQ(account_reserve(device, 125 * PEERS_MIB, ACCOUNT_BUFFER), -ENOMEM);
    CHECK_EQ(account_reserve(device, 124 * PEERS_MIB, ACCOUNT_BUFFER), 0);
    CHECK_EQ(peers_used(device), 1024 * PEERS_MIB);
    peers_step(2);
    for (int i = 0; i < 3; i++)
        CHECK_EQ(peers_reap(pids[i]), 0);
}

TEST("a running process goes on when its file is replaced by something else")
{
    peers_begin();
    unsigned device = peers_join("1g");
    CHECK_EQ(account_reserve(device, PEERS_MIB, ACCOUNT_BUFFER), 0);
    char other[sizeof(peers_path) + 16];
    snprintf(other, sizeof(other), "%s.other", peers_path);
    write_file(other, 100, "other");
    REQUIRE(rename(other, peers_path) == 0);
    CHECK_EQ(account_reserve(device, 1024 * PEERS_MIB, ACCOUNT_BUFFER), -ENOMEM);
    CHECK_EQ(account_reserve(device, 1023 * PEERS_MIB, ACCOUNT_BUFFER), 0);
    CHECK_EQ(peers_used(device), 1024 * PEERS_MIB);
}

TEST("a program with few descriptors to spend attaches all the same")
{
    peers_begin();
    REQUIRE(setrlimit(RLIMIT_NOFILE, &(struct rlimit){64, 64}) == 0);
    CHECK_EQ(attach(), 0);
    CHECK(peers_region.fd >= 0 && peers_region.fd < 64);
}

TEST("attaching and detaching a thousand times leaves no descriptor open")
{
    peers_begin();
    int before = descriptors_open();
    for (int i = 0; i < 1000; i++) {
        REQUIRE(attach() == 0);
        region_detach(&peers_region);
    }
    CHECK_EQ(descriptors_open(), before);
    region_detach(&peers_region);
}

TEST("a tool does not make the file that it looks for")
{
    struct region region;
    peers_begin();
    CHECK_EQ(region_open(&region, peers_path), -ENOENT);
    CHECK(access(peers_path, F_OK) != 0);
    REQUIRE(attach() == 0);
    CHECK_EQ(region_open(&region, peers_path), 0);
    region_detach(&region);
}

TEST("two processes that initialise at once, 200 times, share one region")
{
    peers_begin();
    for (int round = 0; round < 200; round++) {
        unlink(peers_path);
        peers->step = 0;
        peers->number[0] = 0;
        pid_t first = peers_fork(join_and_charge), second = peers_fork(join_and_charge);
        while (load_acquire(&peers->number[0]) < 2)
            sched_yield();
        struct region region;
        peers_look(&region);
        CHECK(peers_slot_of(&region, first) >= 0);
        CHECK(peers_slot_of(&region, second) >= 0);
        CHECK_EQ(region.shared->device_count, 1);
        CHECK_EQ(region.shared->devices[0].memory_limit, 1024 * PEERS_MIB);
        region_detach(&region);
        peers_step(1);
        CHECK_EQ(peers_reap(first), 0);
        CHECK_EQ(peers_reap(second), 0);
    }
}

int main(int argc, char **argv)
{
    return check_run(argc, argv);
}
