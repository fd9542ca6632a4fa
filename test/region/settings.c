/* SPDX-License-Identifier: Apache-2.0 */
/* When the environment's limits become the region's. */
#include "peers.h"

#include "base/atomic.h"
#include "check.h"
#include "region/region.h"
#include "region/region_device.h"
#include "region/region_file.h"
#include "users.h"

#include <errno.h>
#include <fcntl.h>
#include <sched.h>
#include <sys/mount.h>
#include <sys/prctl.h>
#include <sys/stat.h>

static uint64_t limit_seen(unsigned device)
{
    struct account_view view;
    account_view(device, &view);
    return view.limit_bytes;
}

static void hold_under_1g(void)
{
    unsigned device = peers_join("1g");
    CHECK_EQ(account_reserve(device, 10 * PEERS_MIB, ACCOUNT_BUFFER), 0);
    account_commit(device, 10 * PEERS_MIB);
    peers_step(1);
    peers_wait(2);
    CHECK_EQ(limit_seen(device), 1024 * PEERS_MIB);
    CHECK_EQ(account_reserve(device, 1015 * PEERS_MIB, ACCOUNT_BUFFER), -ENOMEM);
    CHECK_EQ(account_reserve(device, 1014 * PEERS_MIB, ACCOUNT_BUFFER), 0);
}

TEST("the first process's limit is the region's")
{
    peers_begin();
    unsigned device = peers_join("1g");
    CHECK_EQ(limit_seen(device), 1024 * PEERS_MIB);
    CHECK_EQ(account_reserve(device, 1025 * PEERS_MIB, ACCOUNT_BUFFER), -ENOMEM);
    CHECK_EQ(account_reserve(device, 1024 * PEERS_MIB, ACCOUNT_BUFFER), 0);
}

TEST("another limit is not taken while a process of the container holds memory")
{
    peers_begin();
    pid_t pid = peers_fork(hold_under_1g);
    peers_wait(1);
    unsigned device = peers_join("8g");
    CHECK_EQ(limit_seen(device), 1024 * PEERS_MIB);
    CHECK_EQ(account_reserve(device, 1015 * PEERS_MIB, ACCOUNT_BUFFER), -ENOMEM);
    peers_step(2);
    CHECK_EQ(peers_reap(pid), 0);
}

TEST("another limit is taken once nobody lives, from the file that was left over")
{
    peers_begin();
    pid_t pid = peers_fork(hold_under_1g);
    peers_wait(1);
    peers_kill(pid);
    unsigned device = peers_join("8g");
    CHECK_EQ(limit_seen(device), 8192 * PEERS_MIB);
    CHECK_EQ(peers_used(device), 0);
    CHECK_EQ(account_reserve(device, 8192 * PEERS_MIB, ACCOUNT_BUFFER), 0);
}

static void join_8g(void)
{
    unsigned device = peers_join("8g");
    CHECK_EQ(account_reserve(device, PEERS_MIB, ACCOUNT_BUFFER), 0);
}

TEST("the same limit again changes nothing")
{
    peers_begin();
    for (int i = 0; i < 3; i++)
        CHECK_EQ(peers_reap(peers_fork(join_8g)), 0);
    CHECK_EQ(limit_seen(peers_join("8g")), 8192 * PEERS_MIB);
}

TEST("a program without variables lifts no limit, whoever lives")
{
    peers_begin();
    pid_t pid = peers_fork(hold_under_1g);
    peers_wait(1);
    unsigned device = peers_join(NULL);
    CHECK_EQ(limit_seen(device), 1024 * PEERS_MIB);
    peers_kill(pid);
    region_detach(&peers_region);
    device = peers_join(NULL);
    CHECK_EQ(limit_seen(device), 1024 * PEERS_MIB);
    CHECK_EQ(account_reserve(device, 1025 * PEERS_MIB, ACCOUNT_BUFFER), -ENOMEM);
}

TEST("a limit of 0 lifts no limit that the container has")
{
    peers_begin();
    CHECK_EQ(peers_reap(peers_fork(join_8g)), 0);
    CHECK_EQ(limit_seen(peers_join("0")), 8192 * PEERS_MIB);
}

static void join_free(void)
{
    unsigned device = peers_join(NULL);
    CHECK_EQ(account_reserve(device, PEERS_MIB, ACCOUNT_BUFFER), 0);
    peers_step(1);
    peers_wait(2);
}

TEST("a limit holds where a program without variables came first and has ended")
{
    peers_begin();
    pid_t pid = peers_fork(join_free);
    peers_wait(1);
    peers_kill(pid);
    CHECK_EQ(limit_seen(peers_join("1g")), 1024 * PEERS_MIB);
}

TEST("a limit holds where a program without variables came first and still lives")
{
    peers_begin();
    pid_t pid = peers_fork(join_free);
    peers_wait(1);
    unsigned device = peers_join("1g");
    CHECK_EQ(account_reserve(device, 1025 * PEERS_MIB, ACCOUNT_BUFFER), -ENOMEM);
    peers_step(2);
    CHECK_EQ(peers_reap(pid), 0);
}

static void join_and_charge_late(void)
{
    unsigned device = peers_join("1g");
    peers_step(1);
    peers_wait(2);
    CHECK_EQ(account_reserve(device, 9000 * PEERS_MIB, ACCOUNT_BUFFER), -ENOMEM);
    CHECK_EQ(account_check(device, 9000 * PEERS_MIB), -ENOMEM);
    peers_step(3);
}

TEST("a process that joined and has not allocated yet is never without a limit")
{
    peers_begin();
    pid_t pid = peers_fork(join_and_charge_late);
    peers_wait(1);
    /* Starts with another limit, and has not met a device yet. */
    REQUIRE(region_attach(&peers_region, peers_config("8g")) == 0);
    peers_step(2);
    CHECK_EQ(peers_reap(pid), 0);
}

TEST("a limit that is not understood closes the device for every process")
{
    peers_begin();
    unsigned device = peers_join("a lot");
    struct account_view view;
    account_view(device, &view);
    CHECK(view.closed);
    CHECK_EQ(account_reserve(device, 1, ACCOUNT_BUFFER), -ENOMEM);
    CHECK_EQ(account_check(device, 1), -ENOMEM);
}

TEST("without a limit every charge passes and is counted")
{
    peers_begin();
    unsigned device = peers_join(NULL);
    CHECK_EQ(account_reserve(device, 1ull << 45, ACCOUNT_BUFFER), 0);
    account_commit(device, 1ull << 45);
    CHECK_EQ(peers_used(device), 1ull << 45);
    CHECK_EQ(limit_seen(device), 0);
}

TEST("devices are known by UUID, and the table's end is an error")
{
    peers_begin();
    unsigned first = peers_join("1g");
    char uuid[64];
    CHECK_EQ(account_device(PEERS_UUID, 0), first);
    CHECK_EQ(region_device_known(&peers_region, "GPU-none"), -ENOENT);
    for (int i = 1; i < (int)VGPU_REGION_DEVICES; i++) {
        snprintf(uuid, sizeof(uuid), "GPU-%d", i);
        CHECK_EQ(account_device(uuid, i), i);
    }
    CHECK_EQ(account_device("GPU-65", 64), -ENOSPC);
    memset(uuid, 'x', sizeof(uuid) - 1);
    uuid[sizeof(uuid) - 1] = '\0';
    CHECK_EQ(account_device(uuid, 0), -ENAMETOOLONG);
    CHECK_EQ(account_reserve(63, 1025 * PEERS_MIB, ACCOUNT_BUFFER), -ENOMEM);
    CHECK_EQ(account_reserve(63, 1024 * PEERS_MIB, ACCOUNT_BUFFER), 0);
    CHECK_EQ(account_reserve(first, 1024 * PEERS_MIB, ACCOUNT_BUFFER), 0);
}

TEST("a device that is first met after all descriptors were closed is limited too")
{
    peers_begin();
    peers_join("1g");
    close(peers_region.fd);
    int device = account_device("GPU-2", 1);
    REQUIRE(device >= 0);
    CHECK_EQ(account_reserve((unsigned)device, 1025 * PEERS_MIB, ACCOUNT_BUFFER), -ENOMEM);
}

TEST("where the file is gone as well, a device that is new cannot be entered")
{
    peers_begin();
    peers_join("1g");
    close(peers_region.fd);
    unlink(peers_path);
    CHECK_EQ(account_device("GPU-2", 1), -EBADF);
    CHECK_EQ(region_device_known(&peers_region, PEERS_UUID), 0);
}

TEST("another file under a descriptor's old number is neither locked nor closed")
{
    peers_begin();
    peers_join("1g");
    int other = open("/dev/null", O_RDONLY);
    REQUIRE(dup2(other, peers_region.fd) == peers_region.fd);
    int number = peers_region.fd;
    CHECK_EQ(account_device("GPU-2", 1), 1);
    CHECK(peers_region.fd != number);
    CHECK(fcntl(number, F_GETFD) >= 0);
}

#define NOBODY 65534

static void become_nobody(void)
{
    REQUIRE(setresgid(NOBODY, NOBODY, NOBODY) == 0 && setresuid(NOBODY, NOBODY, NOBODY) == 0);
}

static void join_and_leave(void)
{
    unsigned device = peers_join("1g");
    CHECK_EQ(limit_seen(device), 1024 * PEERS_MIB);
}

static void find_1g_as_nobody(void)
{
    become_nobody();
    unsigned device = peers_join("8g");
    CHECK_EQ(limit_seen(device), 1024 * PEERS_MIB);
    int second = account_device("GPU-2", 1);
    REQUIRE(second >= 0);
    CHECK_EQ(limit_seen((unsigned)second), 1024 * PEERS_MIB);
}

TEST("another user's environment does not change the limits of root's region")
{
    peers_begin();
    if (!users_may_change())
        SKIP(USERS_NEEDED);
    chmod(peers_directory, 0755);
    CHECK_EQ(peers_reap(peers_fork(join_and_leave)), 0);
    CHECK_EQ(peers_reap(peers_fork(find_1g_as_nobody)), 0);
    CHECK_EQ(limit_seen(peers_join("8g")), 8192 * PEERS_MIB);
}

/* Whose map is given is root in it, else nobody is anybody. */
static bool enter_user_namespace(const char *map)
{
    REQUIRE(setresgid(1002, 1002, 1002) == 0 && setresuid(1002, 1002, 1002) == 0);
    prctl(PR_SET_DUMPABLE, 1);
    if (unshare(CLONE_NEWUSER) != 0)
        return false;
    int fd = map ? open("/proc/self/uid_map", O_WRONLY) : -1;
    if (map)
        REQUIRE(fd >= 0 && write(fd, map, strlen(map)) == (ssize_t)strlen(map));
    return true;
}

static void find_1g_in_namespace(const char *map)
{
    if (!enter_user_namespace(map)) {
        store_release(&peers->number[0], 1);
        return;
    }
    struct stat status;
    REQUIRE(stat(peers_path, &status) == 0);
    CHECK_EQ(status.st_uid, NOBODY); /* as the kernel shows an owner that the namespace lacks */
    CHECK_EQ(limit_seen(peers_join("8g")), 1024 * PEERS_MIB);
}

static void find_1g_as_nobody_at_all(void)
{
    find_1g_in_namespace(NULL);
}

static void find_1g_as_root_of_a_namespace(void)
{
    find_1g_in_namespace("0 1002 1");
}

TEST("root's region keeps its limits also in a user namespace that does not know its owner")
{
    peers_begin();
    if (!users_may_change())
        SKIP(USERS_NEEDED);
    chmod(peers_directory, 0755);
    CHECK_EQ(peers_reap(peers_fork(join_and_leave)), 0);
    CHECK_EQ(peers_reap(peers_fork(find_1g_as_nobody_at_all)), 0);
    CHECK_EQ(peers_reap(peers_fork(find_1g_as_root_of_a_namespace)), 0);
    if (peers->number[0])
        SKIP("no user namespaces here");
}

static void take_8g_as_nobody(void)
{
    become_nobody();
    CHECK_EQ(limit_seen(peers_join("8g")), 8192 * PEERS_MIB);
}

TEST("root's region that never had a limit takes one from another user")
{
    peers_begin();
    if (!users_may_change())
        SKIP(USERS_NEEDED);
    chmod(peers_directory, 0755);
    peers_join(NULL);
    CHECK_EQ(peers_reap(peers_fork(take_8g_as_nobody)), 0);
}

static void find_pinned_as_nobody(void)
{
    find_1g_as_nobody();
    CHECK_STR(peers_region.path, REGION_PINNED_PATH);
}

/* A directory /etc of the test's own, and in it root's region with 1 GiB. */
static void pin(void)
{
    char named[sizeof(peers_path)];
    peers_begin();
    if (!users_may_change())
        SKIP(USERS_NEEDED);
    if (unshare(CLONE_NEWNS) != 0 || mount(NULL, "/", NULL, MS_REC | MS_PRIVATE, NULL) != 0 ||
        mount("tmpfs", "/etc", "tmpfs", 0, "size=1m") != 0)
        SKIP("mounting is not allowed here");
    strcpy(named, peers_path);
    strcpy(peers_path, REGION_PINNED_PATH);
    CHECK_EQ(peers_reap(peers_fork(join_and_leave)), 0);
    strcpy(peers_path, named);
    chmod(peers_directory, 01777);
}

TEST("root's region at the pinned path is the region, whatever path the environment names")
{
    pin();
    CHECK_EQ(peers_reap(peers_fork(find_pinned_as_nobody)), 0);
    CHECK(access(peers_path, F_OK) != 0);
}

static void find_pinned_in_namespace(void)
{
    if (!enter_user_namespace(NULL)) {
        store_release(&peers->number[0], 1);
        return;
    }
    CHECK(region_file_is_pinned());
    CHECK_EQ(limit_seen(peers_join("8g")), 1024 * PEERS_MIB);
    CHECK_STR(peers_region.path, REGION_PINNED_PATH);
}

TEST("root's region at the pinned path is found in a user namespace, too")
{
    pin();
    CHECK_EQ(peers_reap(peers_fork(find_pinned_in_namespace)), 0);
    if (peers->number[0])
        SKIP("no user namespaces here");
}

static void find_own_as_nobody(void)
{
    become_nobody();
    CHECK_EQ(limit_seen(peers_join("8g")), 8192 * PEERS_MIB);
    CHECK_STR(peers_region.path, peers_path);
}

TEST("a file at the pinned path that is not root's, or a link to root's, pins nothing")
{
    pin();
    REQUIRE(chown(REGION_PINNED_PATH, 1002, 1002) == 0);
    CHECK(!region_file_is_pinned());
    CHECK_EQ(peers_reap(peers_fork(find_own_as_nobody)), 0);
    REQUIRE(chown(REGION_PINNED_PATH, 0, 0) == 0);
    CHECK(region_file_is_pinned());
    REQUIRE(rename(REGION_PINNED_PATH, "/etc/vgpu/other") == 0);
    REQUIRE(symlink("/etc/vgpu/other", REGION_PINNED_PATH) == 0);
    CHECK(!region_file_is_pinned());
    CHECK_EQ(peers_reap(peers_fork(find_own_as_nobody)), 0);
}

static void fail_as_nobody(void)
{
    become_nobody();
    CHECK_EQ(region_attach(&peers_region, peers_config("8g")), -EACCES);
    CHECK(access(peers_path, F_OK) != 0);
}

TEST("a pinned region that a user may not write is an error, not a way to another region")
{
    pin();
    REQUIRE(chmod(REGION_PINNED_PATH, 0644) == 0);
    CHECK_EQ(peers_reap(peers_fork(fail_as_nobody)), 0);
}

static void find_closed_as_nobody(void)
{
    struct account_view view;
    become_nobody();
    account_view(peers_join("8g"), &view);
    CHECK(view.closed);
    region_detach(&peers_region);
    account_view(peers_join(NULL), &view);
    CHECK(view.closed);
}

TEST("an empty file of root's at the pinned path closes the device, whatever the environment says")
{
    peers_begin();
    if (!users_may_change())
        SKIP(USERS_NEEDED);
    if (unshare(CLONE_NEWNS) != 0 || mount(NULL, "/", NULL, MS_REC | MS_PRIVATE, NULL) != 0 ||
        mount("tmpfs", "/etc", "tmpfs", 0, "size=1m") != 0)
        SKIP("mounting is not allowed here");
    REQUIRE(mkdir("/etc/vgpu", 0755) == 0);
    int fd = open(REGION_PINNED_PATH, O_RDWR | O_CREAT, 0666);
    REQUIRE(fd >= 0 && fchmod(fd, 0666) == 0);
    close(fd);
    CHECK_EQ(peers_reap(peers_fork(find_closed_as_nobody)), 0);
}

int main(int argc, char **argv)
{
    return check_run(argc, argv);
}
