/* SPDX-License-Identifier: Apache-2.0 */
/* What of the host's memory is free, by control groups of both versions and by /proc/meminfo, as
 * files of the test's own say it. */
#include "vmem/host_memory.h"

#include "check.h"
#include "scratch.h"

#include <stdio.h>
#include <string.h>
#include <sys/stat.h>

#define MIB (1ull << 20)
#define GIB (1ull << 30)

static const char *root(void)
{
    static char path[SCRATCH_PATH_MAX + NAME_MAX];
    if (!path[0])
        snprintf(path, sizeof(path), "%s", scratch_path("root"));
    return path;
}

static void put(const char *path, const char *text)
{
    char whole[1024];
    snprintf(whole, sizeof(whole), "%s/%s", root(), path);
    for (char *at = strchr(whole + 1, '/'); at; at = strchr(at + 1, '/')) {
        *at = '\0';
        (void)mkdir(whole, 0777);
        *at = '/';
    }
    FILE *file = fopen(whole, "w");
    REQUIRE(file != NULL);
    fputs(text, file);
    fclose(file);
}

static struct host_memory look(uint64_t spilled)
{
    return host_memory_look_below(root(), spilled);
}

static void machine(const char *available)
{
    char text[256];
    snprintf(text, sizeof(text),
        "MemTotal:       67108864 kB\nMemFree:          100000 kB\nMemAvailable:   %s kB\n",
        available);
    put("proc/meminfo", text);
}

TEST("without control groups and /proc there is no bound")
{
    struct host_memory memory = look(0);
    CHECK_EQ(memory.free_bytes, UINT64_MAX);
}

TEST("a machine gives what is available, less a 32nd of all")
{
    machine("33554432");
    struct host_memory memory = look(5 * GIB);
    CHECK_EQ(memory.free_bytes, 32 * GIB - 2 * GIB);
    CHECK(strstr(memory.bound, "machine") != NULL);
    machine("1048576");
    CHECK_EQ(look(0).free_bytes, 0);
}

TEST("a group gives its limit, less what it uses and what is spilled")
{
    machine("33554432");
    put("proc/self/cgroup", "0::/a/b\n");
    put("sys/fs/cgroup/a/b/memory.max", "4294967296\n");
    put("sys/fs/cgroup/a/b/memory.current", "1073741824\n");
    struct host_memory memory = look(GIB);
    CHECK_EQ(memory.free_bytes, 2 * GIB);
    CHECK(strstr(memory.bound, "cgroup") != NULL);
    CHECK_EQ(look(4 * GIB).free_bytes, 0);
}

TEST("the tightest of a group and those above it holds")
{
    put("proc/self/cgroup", "0::/a/b\n");
    put("sys/fs/cgroup/a/b/memory.max", "max\n");
    put("sys/fs/cgroup/a/b/memory.current", "1\n");
    put("sys/fs/cgroup/a/memory.max", "104857600\n");
    put("sys/fs/cgroup/a/memory.current", "1048576\n");
    CHECK_EQ(look(0).free_bytes, 99 * MIB);
    put("sys/fs/cgroup/memory.max", "52428800\n");
    put("sys/fs/cgroup/memory.current", "52428801\n");
    CHECK_EQ(look(0).free_bytes, 0);
}

TEST("in a container whose own path is not mounted the mount's root holds")
{
    put("proc/self/cgroup", "0::/kubepods/pod1/container\n");
    put("sys/fs/cgroup/memory.max", "10485760\n");
    put("sys/fs/cgroup/memory.current", "4194304\n");
    CHECK_EQ(look(2 * MIB).free_bytes, 4 * MIB);
}

TEST("the first version's memory controller is found among others")
{
    put("proc/self/cgroup", "12:pids:/x\n5:cpu,cpuacct:/x\n4:hugetlb,memory:/box\n3:memoryless:/"
                            "no\n1:name=systemd:/x\n");
    put("sys/fs/cgroup/memory/box/memory.limit_in_bytes", "20971520\n");
    put("sys/fs/cgroup/memory/box/memory.usage_in_bytes", "10485760\n");
    put("sys/fs/cgroup/memory/memory.limit_in_bytes", "9223372036854771712\n");
    put("sys/fs/cgroup/memory/memory.usage_in_bytes", "10485760\n");
    CHECK_EQ(look(0).free_bytes, 10 * MIB);
}

TEST("what a group holds of files is free: the kernel gives it up")
{
    put("proc/self/cgroup", "0::/job\n");
    put("sys/fs/cgroup/job/memory.max", "1073741824\n");
    put("sys/fs/cgroup/job/memory.current", "1063256064\n"); /* 10 MiB less */
    put("sys/fs/cgroup/job/memory.stat",
        "anon 1\nfile 3\ninactive_anon 5\nactive_anon 7\ninactive_file 104857600\nactive_file "
        "209715200\nunevictable 0\n");
    CHECK_EQ(look(0).free_bytes, 310 * MIB);
    put("proc/self/cgroup", "4:memory:/box\n");
    put("sys/fs/cgroup/memory/box/memory.limit_in_bytes", "20971520\n");
    put("sys/fs/cgroup/memory/box/memory.usage_in_bytes", "20971520\n");
    put("sys/fs/cgroup/memory/box/memory.stat",
        "inactive_file 9\nactive_file 9\ntotal_inactive_file 1048576\ntotal_active_file 2097152\n");
    put("sys/fs/cgroup/memory/memory.limit_in_bytes", "9223372036854771712\n");
    put("sys/fs/cgroup/memory/memory.usage_in_bytes", "10485760\n");
    CHECK_EQ(look(0).free_bytes, 3 * MIB);
}

TEST("files that say nothing are no bound")
{
    put("proc/self/cgroup", "0::/a\n\n:::\n0::");
    put("sys/fs/cgroup/a/memory.max", "");
    put("sys/fs/cgroup/a/memory.current", "much\n");
    put("proc/meminfo", "MemTotal:\n");
    CHECK_EQ(look(0).free_bytes, UINT64_MAX);
}

int main(int argc, char **argv)
{
    return check_run(argc, argv);
}
