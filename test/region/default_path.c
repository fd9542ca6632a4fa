/* SPDX-License-Identifier: Apache-2.0 */
/* The default path, which users of one machine share: whose region a program uses there. */
#include "peers.h"

#include "base/atomic.h"
#include "base/file_lock.h"
#include "base/process.h"
#include "check.h"
#include "region/region.h"
#include "region/region_file.h"
#include "users.h"

#include <fcntl.h>
#include <sched.h>
#include <stdio.h>
#include <string.h>
#include <sys/stat.h>
#include <unistd.h>

#define USER 1001

/* As where no path was named and peers_path is the default one. */
static struct config *by_default(const char *limit)
{
    struct config *config = peers_config(limit);
    config->region_named = false;
    return config;
}

/* Root's program was here and has ended. */
static void leave_roots_region(const char *limit)
{
    peers_begin();
    if (!users_may_change())
        SKIP(USERS_NEEDED);
    REQUIRE(chmod(peers_directory, 01777) == 0);
    REQUIRE(region_attach(&peers_region, by_default(limit)) == 0);
    CHECK_STR(peers_region.path, peers_path);
    region_detach(&peers_region);
}

static void become_user(void)
{
    REQUIRE(setresgid(USER, USER, USER) == 0 && setresuid(USER, USER, USER) == 0);
}

static bool enter_container(void)
{
    return unshare(CLONE_NEWNS) == 0 && !process_is_on_the_host();
}

static void expect_own_region(void)
{
    char own[sizeof(peers_path) + 16];
    snprintf(own, sizeof(own), "%s.%u", peers_path, USER);
    CHECK_STR(peers_region.path, own);
}

static uint64_t settings_at_default(void)
{
    struct region roots;
    REQUIRE(region_open(&roots, peers_path) == 0);
    uint64_t hash = load_acquire(&roots.shared->settings_hash);
    region_detach(&roots);
    return hash;
}

TEST("a user's limits do not come into a region that root left without any, on the host")
{
    leave_roots_region(NULL);
    if (!process_is_on_the_host())
        SKIP("this is a container");
    become_user();
    REQUIRE(region_attach(&peers_region, by_default("1g")) == 0);
    expect_own_region();
    CHECK_EQ(settings_at_default(), 0);
}

TEST("nor in a container")
{
    leave_roots_region(NULL);
    if (!enter_container())
        SKIP("no mount namespace can be made here");
    become_user();
    REQUIRE(region_attach(&peers_region, by_default("1g")) == 0);
    expect_own_region();
    CHECK_EQ(settings_at_default(), 0);
}

TEST("on the host root's limits at the default path are no other user's")
{
    leave_roots_region("1g");
    if (!process_is_on_the_host())
        SKIP("this is a container");
    become_user();
    REQUIRE(region_attach(&peers_region, by_default(NULL)) == 0);
    expect_own_region();
    CHECK_EQ(load_acquire(&peers_region.shared->settings_hash), 0);
}

TEST("in a container root's limits at the default path hold users without any")
{
    leave_roots_region("1g");
    if (!enter_container())
        SKIP("no mount namespace can be made here");
    become_user();
    REQUIRE(region_attach(&peers_region, by_default(NULL)) == 0);
    CHECK_STR(peers_region.path, peers_path);
    CHECK(load_acquire(&peers_region.shared->settings_hash) != 0);
}

static void attach_by_name(void)
{
    become_user();
    REQUIRE(region_attach(&peers_region, peers_config(NULL)) == 0);
    CHECK_STR(peers_region.path, peers_path);
}

TEST("a region of root's that is named holds every user, with limits or without, on the host too")
{
    leave_roots_region(NULL);
    CHECK_EQ(peers_reap(peers_fork(attach_by_name)), 0);
    REQUIRE(region_attach(&peers_region, peers_config("1g")) == 0);
    region_detach(&peers_region);
    CHECK_EQ(peers_reap(peers_fork(attach_by_name)), 0);
}

TEST("a user's region at the default path is not another user's, whatever its limits")
{
    leave_roots_region("1g");
    REQUIRE(chown(peers_path, USER + 1, USER + 1) == 0);
    become_user();
    REQUIRE(region_attach(&peers_region, by_default(NULL)) == 0);
    expect_own_region();
}

static void attach_without_limits(void)
{
    become_user();
    CHECK_EQ(region_attach(&peers_region, by_default(NULL)), 0);
    CHECK_STR(peers_region.path, peers_path);
}

TEST("a region of root's that is just being made is waited for, and then has its limits")
{
    leave_roots_region(NULL);
    if (!enter_container())
        SKIP("no mount namespace can be made here");
    int fd = region_file_open(peers_path, false);
    REQUIRE(fd >= 0);
    REQUIRE(file_lock_take(fd, VGPU_REGION_OFFSET) == 0);
    pid_t pid = peers_fork(attach_without_limits);
    peers_sleep_ms(50);
    uint64_t hash = 1;
    off_t place = (off_t)(VGPU_REGION_OFFSET + offsetof(struct vgpu_region, settings_hash));
    REQUIRE(pwrite(fd, &hash, sizeof(hash), place) == sizeof(hash));
    file_lock_drop(fd, VGPU_REGION_OFFSET); /* the peer has the descriptor, too */
    CHECK_EQ(peers_reap(pid), 0);
}

int main(int argc, char **argv)
{
    return check_run(argc, argv);
}
