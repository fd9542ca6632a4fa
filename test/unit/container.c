/* SPDX-License-Identifier: Apache-2.0 */
/* A process that joins its container. */
#include "container/container.h"

#include "base/clock.h"
#include "base/sleep.h"
#include "check.h"
#include "scratch.h"
#include "account/account.h"

#include <sys/resource.h>

#define UUID "GPU-00000000-0000-0000-0000-000000000001"
#define MIB (1ull << 20)

static char *path;

static void set_environment(const char *limit)
{
    path = scratch_path("region");
    setenv("CUDA_DEVICE_MEMORY_SHARED_CACHE", path, 1);
    setenv("LIBCUDA_LOG_LEVEL", "0", 1);
    if (limit)
        setenv("CUDA_DEVICE_MEMORY_LIMIT", limit, 1);
    else
        unsetenv("CUDA_DEVICE_MEMORY_LIMIT");
}

static void allow_descriptors(rlim_t count)
{
    struct rlimit limit;
    REQUIRE(getrlimit(RLIMIT_NOFILE, &limit) == 0);
    limit.rlim_cur = count;
    REQUIRE(setrlimit(RLIMIT_NOFILE, &limit) == 0);
}

static int wait_for_device(void)
{
    int device;
    uint64_t start = clock_now_ns();
    while ((device = container_device(UUID)) < 0 && clock_now_ns() - start < 20000000000ull)
        sleep_ns(10000000);
    return device;
}

TEST("a process that could not join for want of descriptors is full, and joins when it can")
{
    set_environment("1g");
    allow_descriptors(0);
    container_enter();
    CHECK_EQ(container_device(UUID), CONTAINER_DEVICE_CLOSED);
    CHECK_EQ(account_reserve(0, 1, ACCOUNT_BUFFER), -ENOMEM);
    account_set_ledger(1);
    allow_descriptors(512);
    int device = wait_for_device();
    REQUIRE(device >= 0);
    CHECK_EQ(account_reserve((unsigned)device, 1025 * MIB, ACCOUNT_BUFFER), -ENOMEM);
    CHECK_EQ(account_reserve((unsigned)device, 1024 * MIB, ACCOUNT_BUFFER), 0);
}

TEST("while it cannot join, it is tried once a second at most")
{
    set_environment("1g");
    allow_descriptors(0);
    container_enter();
    uint64_t start = clock_now_ns();
    allow_descriptors(512);
    unsigned before = 0;
    while (access(path, F_OK) != 0 && clock_now_ns() - start < 20000000000ull) {
        before++;
        (void)container_device(UUID);
    }
    CHECK(clock_now_ns() - start >= 900000000ull);
    CHECK(before > 1);
}

TEST("without a limit a process that could not join is in nobody's way")
{
    set_environment(NULL);
    allow_descriptors(0);
    container_enter();
    CHECK_EQ(container_device(UUID), CONTAINER_DEVICE_UNKNOWN);
    CHECK_EQ(account_reserve(0, 1024 * MIB, ACCOUNT_BUFFER), 0);
}

int main(int argc, char **argv)
{
    return check_run(argc, argv);
}
