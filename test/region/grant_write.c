/* SPDX-License-Identifier: Apache-2.0 */
/* A grant with two writers, as a node has them: the plugin, which writes limits, and the monitor,
 * which writes whether they hold. */
#include "region/grant_write.h"

#include "region/grant.h"

#include "check.h"
#include "scratch.h"

#include <errno.h>
#include <fcntl.h>
#include <stdio.h>
#include <string.h>
#include <sys/mman.h>
#include <sys/stat.h>
#include <sys/wait.h>
#include <unistd.h>

#define UUID "GPU-00000000-0000-0000-0000-000000000001"
#define ROUNDS 20000

static const char *make_directory(void)
{
    static char path[512];
    const char *above = scratch_path("grant");
    snprintf(path, sizeof(path), "%s/limits.d", above);
    REQUIRE(mkdir(above, 0755) == 0 && mkdir(path, 0755) == 0);
    return path;
}

/* All of its figures say `number`. */
static struct vgpu_grant grant_of(uint32_t number)
{
    struct vgpu_grant grant = {.device_count = 1, .priority = number, .priority_set = 1};
    memcpy(grant.devices[0].uuid, UUID, sizeof(UUID));
    grant.devices[0].memory_limit = number;
    grant.devices[0].core_limit = number;
    grant.devices[0].core_soft_limit = number;
    return grant;
}

static uint32_t lifted_in(const char *directory)
{
    struct vgpu_grant read;
    REQUIRE(grant_write_read(directory, &read) == 0);
    return read.lifted;
}

TEST("what the monitor says stays when the plugin writes, and the other way round")
{
    const char *directory = make_directory();
    struct vgpu_grant grant = grant_of(5), read;
    CHECK_EQ(grant_write_lifted(directory, true), -ENOENT);
    grant.lifted = 1;
    CHECK_EQ(grant_write(directory, &grant), 0);
    CHECK_EQ(lifted_in(directory), 1);
    CHECK_EQ(grant_write_lifted(directory, false), 0);
    CHECK_EQ(grant_write(directory, &grant), 0);
    CHECK_EQ(lifted_in(directory), 0);
    CHECK_EQ(grant_write_lifted(directory, true), 0);
    grant = grant_of(7);
    CHECK_EQ(grant_write(directory, &grant), 0);
    CHECK_EQ(grant_write_read(directory, &read), 0);
    CHECK_EQ(read.lifted, 1);
    CHECK_EQ(read.devices[0].memory_limit, 7);
    CHECK_EQ(read.sequence % 2, 0);
}

TEST("nothing is written where it says so already")
{
    const char *directory = make_directory();
    struct vgpu_grant grant = grant_of(1), before, after;
    REQUIRE(grant_write(directory, &grant) == 0);
    CHECK_EQ(grant_write_lifted(directory, true), 0);
    REQUIRE(grant_write_read(directory, &before) == 0);
    CHECK_EQ(grant_write_lifted(directory, true), 0);
    REQUIRE(grant_write_read(directory, &after) == 0);
    CHECK_EQ(after.sequence, before.sequence);
}

TEST("a file that is no grant is left as it is")
{
    const char *directory = make_directory();
    char path[600];
    struct vgpu_grant grant = grant_of(1), read;
    REQUIRE(grant_write(directory, &grant) == 0);
    snprintf(path, sizeof(path), "%s/" VGPU_GRANT_NAME, directory);
    REQUIRE(truncate(path, 100) == 0);
    CHECK_EQ(grant_write_lifted(directory, true), -EPROTO);
    struct stat status;
    CHECK(stat(path, &status) == 0 && status.st_size == 100);
    REQUIRE(truncate(path, 0) == 0 && truncate(path, sizeof(grant)) == 0);
    CHECK_EQ(grant_write_lifted(directory, true), -EPROTO);
    CHECK_EQ(grant_write_read(directory, &read), -EPROTO);
}

/* What the monitor says is still there when the plugin has written since. */
static bool says(const char *directory, bool lifted)
{
    return grant_write_lifted(directory, lifted) == 0 && lifted_in(directory) == lifted;
}

static pid_t write_beside(const char *directory, bool limits)
{
    pid_t pid = fork();
    if (pid)
        return pid;
    bool failed = false;
    for (uint32_t i = 1; i <= ROUNDS && !failed; i++) {
        struct vgpu_grant grant = grant_of(i);
        failed = limits ? grant_write(directory, &grant) != 0 : !says(directory, i % 2);
    }
    _exit(failed);
}

TEST("with both writing, a reader sees each grant whole, and nothing that was said is lost")
{
    const char *directory = make_directory();
    char path[600];
    struct vgpu_grant first = grant_of(0);
    struct grant grant = {.file = NULL};
    int status, ended = 0;
    REQUIRE(grant_write(directory, &first) == 0);
    snprintf(path, sizeof(path), "%s/" VGPU_GRANT_NAME, directory);
    write_beside(directory, true);
    write_beside(directory, false);
    int fd = open(path, O_RDONLY | O_CLOEXEC);
    void *map = mmap(NULL, sizeof(first), PROT_READ, MAP_SHARED, fd, 0);
    REQUIRE(fd >= 0 && map != MAP_FAILED);
    grant.file = map;
    while (ended < 2) {
        struct grant_limits limits = grant_limits(&grant, UUID);
        /* One that could not be read whole is closed. */
        CHECK(limits.memory_closed || (limits.memory_limit == limits.core_limit &&
                                          limits.core_limit == limits.core_soft_limit));
        if (waitpid(-1, &status, WNOHANG) > 0) {
            CHECK_EQ(status, 0);
            ended++;
        }
    }
    CHECK_EQ(grant_limits(&grant, UUID).memory_limit, ROUNDS);
    CHECK_EQ(grant_sequence(&grant) % 2, 0);
}

int main(int argc, char **argv)
{
    return check_run(argc, argv);
}
