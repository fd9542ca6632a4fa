/* SPDX-License-Identifier: Apache-2.0 */
/* Whose container a region is: who says it, and what a reader makes of any file. */
#include "region/region_identity.h"

#include "peers.h"

#include "base/atomic.h"
#include "base/clock.h"
#include "base/sleep.h"
#include "check.h"
#include "region/region.h"
#include "region/region_file.h"

#include <fcntl.h>
#include <sys/stat.h>

/* The environment of the process that is to join. */
static const char *variables[8][2];

static char *look_up(const char *name)
{
    for (unsigned i = 0; i < 8 && variables[i][0]; i++) {
        if (!strcmp(name, variables[i][0]))
            return (char *)variables[i][1];
    }
    return strcmp(name, "CUDA_DEVICE_MEMORY_SHARED_CACHE") != 0 ? NULL : peers_path;
}

static void set_pod(const char *name)
{
    memset(variables, 0, sizeof(variables));
    variables[0][0] = name ? "VGPU_POD_NAME" : NULL;
    variables[0][1] = name;
}

static void join(void)
{
    static struct config config;
    config_read(&config, look_up);
    REQUIRE(region_attach(&peers_region, &config) == 0);
}

static void join_as(const char *name)
{
    set_pod(name);
    join();
}

static bool read_file(struct region_identity *ret_identity)
{
    struct vgpu_identity raw;
    const off_t offset = VGPU_REGION_OFFSET + offsetof(struct vgpu_region, identity);
    int fd = open(peers_path, O_RDONLY | O_CLOEXEC);
    REQUIRE(fd >= 0 && pread(fd, &raw, sizeof(raw), offset) == sizeof(raw));
    close(fd);
    return region_identity_read(&raw, ret_identity);
}

static const char *pod(void)
{
    static struct region_identity identity;
    return read_file(&identity) ? identity.pod_name : "(nobody said)";
}

static void join_and_wait(void)
{
    join();
    peers_step(1);
    peers_wait(2);
}

TEST("the four texts of the environment are the region's")
{
    peers_begin();
    static const char *const said[4][2] = {{"VGPU_POD_NAME", "trainer-0"},
        {"VGPU_POD_NAMESPACE", "research"}, {"VGPU_POD_UID", "5d1c"},
        {"VGPU_CONTAINER_NAME", "main"}};
    memcpy(variables, said, sizeof(said));
    join();
    struct region_identity identity;
    REQUIRE(read_file(&identity));
    CHECK_STR(identity.pod_name, "trainer-0");
    CHECK_STR(identity.pod_namespace, "research");
    CHECK_STR(identity.pod_uid, "5d1c");
    CHECK_STR(identity.container_name, "main");
}

TEST("POD_NAME stands for VGPU_POD_NAME where that is not set, or empty")
{
    peers_begin();
    variables[0][0] = "VGPU_POD_NAME", variables[0][1] = "";
    variables[1][0] = "POD_NAME", variables[1][1] = "plain";
    join();
    CHECK_STR(pod(), "plain");
}

/* On tmpfs, also below another file system, looking at a hole through a mapping fills it. */
static bool holes_last(void)
{
    char path[sizeof(peers_path) + 16];
    snprintf(path, sizeof(path), "%s.hole", peers_path);
    int fd = open(path, O_RDWR | O_CREAT | O_CLOEXEC, 0600);
    REQUIRE(fd >= 0 && ftruncate(fd, 4096) == 0);
    volatile char *map = mmap(NULL, 4096, PROT_READ | PROT_WRITE, MAP_SHARED, fd, 0);
    REQUIRE((void *)map != MAP_FAILED);
    bool last = !*map && lseek(fd, 0, SEEK_DATA) < 0;
    close(fd);
    return last;
}

TEST("without any of them nobody said, and no storage is taken for it")
{
    peers_begin();
    join_as(NULL);
    struct region_identity identity;
    CHECK(!read_file(&identity));
    int fd = open(peers_path, O_RDONLY | O_CLOEXEC);
    const off_t offset = VGPU_REGION_OFFSET + offsetof(struct vgpu_region, identity);
    CHECK(lseek(fd, offset, SEEK_DATA) < 0 || !holes_last());
    close(fd);
}

TEST("the first process that says so is heard, also beside one that did not")
{
    peers_begin();
    set_pod(NULL);
    pid_t silent = peers_fork(join_and_wait);
    peers_wait(1);
    join_as("first");
    CHECK_STR(pod(), "first");
    region_detach(&peers_region);
    join_as("second");
    CHECK_STR(pod(), "first");
    peers_step(2);
    CHECK_EQ(peers_reap(silent), 0);
}

TEST("a container that starts again under another name in the file of one that is gone has its own")
{
    peers_begin();
    join_as("former");
    region_detach(&peers_region);
    join_as(NULL);
    CHECK_STR(pod(), "former");
    region_detach(&peers_region);
    join_as("next");
    CHECK_STR(pod(), "next");
}

TEST("what is too long is cut at a character, and what steers a terminal is an escape")
{
    peers_begin();
    static char name[400];
    memset(name, 'x', 254);
    strcpy(name + 254, "\xc3\xa9 and more"); /* two bytes, of which one would fit */
    memset(variables, 0, sizeof(variables));
    variables[0][0] = "VGPU_POD_NAME", variables[0][1] = name;
    variables[1][0] = "VGPU_CONTAINER_NAME", variables[1][1] = "a\n\033[2Jb\x9b";
    join();
    struct region_identity identity;
    REQUIRE(read_file(&identity));
    CHECK_EQ(strlen(identity.pod_name), 254);
    CHECK_STR(identity.container_name, "a\\n\\x1b[2Jb\\x9b");
}

static struct vgpu_identity *words(void)
{
    return &peers_region.shared->identity;
}

TEST("a writer that was killed half-way leaves it to the next who attaches")
{
    peers_begin();
    join_as(NULL);
    words()->state = 1;
    memcpy(words()->pod_name, "half", 4);
    CHECK_STR(pod(), "(nobody said)");
    region_detach(&peers_region);
    join_as("whole");
    CHECK_STR(pod(), "whole");
}

static void attach_for_ever(void)
{
    for (unsigned i = 0;; i++) {
        join_as(i % 2 ? "one-of-two-names" : "another-of-two-names");
        region_detach(&peers_region);
    }
}

TEST("writers killed at any instant leave no torn text and nothing unwritten")
{
    peers_begin();
    for (unsigned i = 0; i < 200; i++) {
        pid_t writer = peers_fork(attach_for_ever);
        sleep_ns(200000 + i * 7919 % 1000000);
        peers_kill(writer);
        struct stat status;
        if (stat(peers_path, &status) == 0 && status.st_size == VGPU_REGION_FILE_BYTES) {
            const char *name = pod();
            CHECK(!strcmp(name, "one-of-two-names") || !strcmp(name, "another-of-two-names") ||
                  !strcmp(name, i ? "the-last" : "(nobody said)") ||
                  !strcmp(name, "(nobody said)"));
        }
        join_as("the-last");
        CHECK_STR(pod(), "the-last");
        region_detach(&peers_region);
    }
}

TEST("a reader sees one text or the other while they change")
{
    peers_begin();
    join_as("one-of-two-names");
    region_detach(&peers_region);
    pid_t writer = peers_fork(attach_for_ever);
    struct region tool;
    peers_look(&tool);
    uint64_t start = clock_now_ns();
    unsigned read = 0;
    while (clock_now_ns() - start < 300000000) {
        struct region_identity identity;
        if (!region_identity_read(&tool.shared->identity, &identity))
            continue;
        read++;
        CHECK(!strcmp(identity.pod_name, "one-of-two-names") ||
              !strcmp(identity.pod_name, "another-of-two-names"));
    }
    CHECK(read > 0);
    peers_kill(writer);
    region_detach(&tool);
}

TEST("a hostile file's texts are terminated and escaped")
{
    struct vgpu_identity raw;
    struct region_identity identity;
    memset(&raw, 'x', sizeof(raw));
    raw.state = 2;
    raw.pod_name[0] = '\n';
    memset(raw.pod_uid, 0x1b, sizeof(raw.pod_uid));
    REQUIRE(region_identity_read(&raw, &identity));
    CHECK_EQ(strnlen(identity.pod_name, sizeof(identity.pod_name)), 255);
    CHECK(!strncmp(identity.pod_name, "\\nx", 3));
    CHECK_EQ(strlen(identity.pod_namespace), 63);
    CHECK_EQ(strlen(identity.pod_uid), 60); /* 15 escapes whole */
    raw.state = 3;
    CHECK(!region_identity_read(&raw, &identity));
}

TEST("who it is goes into a file that is made anew, also from a process that never said so")
{
    peers_begin();
    join_as(NULL);
    set_pod("said-by-another");
    pid_t other = peers_fork(join_and_wait);
    peers_wait(1);
    peers_step(2);
    CHECK_EQ(peers_reap(other), 0);
    CHECK_EQ(unlink(peers_path), 0);
    REQUIRE(region_keep(&peers_region) == 0);
    CHECK_STR(pod(), "said-by-another");
    CHECK_EQ(truncate(peers_path, 4096), 0);
    REQUIRE(region_keep(&peers_region) == 0);
    CHECK_STR(pod(), "said-by-another");
}

TEST("a file that others made in its place has its own word, or takes ours")
{
    peers_begin();
    join_as("old");
    CHECK_EQ(unlink(peers_path), 0);
    set_pod("new");
    pid_t other = peers_fork(join_and_wait);
    peers_wait(1);
    REQUIRE(region_keep(&peers_region) == 0);
    CHECK_STR(pod(), "new");
    peers_step(2);
    CHECK_EQ(peers_reap(other), 0);
}

int main(int argc, char **argv)
{
    return check_run(argc, argv);
}
