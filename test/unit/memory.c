/* SPDX-License-Identifier: Apache-2.0 */
/* The memory policy over a region in a temporary file, without a driver. */
#include "memory/memory.h"

#include "base/atomic.h"
#include "base/clock.h"
#include "check.h"
#include "container/container.h"
#include "scratch.h"

#include <pthread.h>

#define MIB (1ull << 20)
#define UUID "GPU-00000000-0000-0000-0000-000000000001"

static int device;

/* Becomes a process of a container with the limit ("": none). */
static void begin(const char *limit, const char *ledger)
{
    setenv("CUDA_DEVICE_MEMORY_SHARED_CACHE", scratch_path("region"), 1);
    setenv("CUDA_DEVICE_MEMORY_LIMIT", limit, 1);
    setenv("VGPU_LEDGER", ledger, 1);
    setenv("LIBCUDA_LOG_LEVEL", "0", 1);
    container_enter();
    device = container_device(UUID);
    REQUIRE(device >= 0);
}

static uint64_t own(enum account_kind kind)
{
    return account_own_bytes((unsigned)device, kind);
}

static int allocate(uint64_t bytes, enum account_kind kind, uint64_t handle)
{
    struct memory_request request;
    int error = memory_begin(&request, device, bytes, kind);
    if (!error)
        memory_end(&request, true, MEMORY_POINTER, handle);
    return error;
}

static void release(uint64_t handle)
{
    struct memory_record record = memory_take(MEMORY_POINTER, handle);
    memory_taken(&record, true, MEMORY_POINTER, handle);
}

TEST("the API ledger charges what is allocated and gives back what is freed")
{
    begin("64m", "api");
    CHECK_EQ(memory_ledger(), MEMORY_LEDGER_API);
    CHECK_EQ(allocate(8 * MIB, ACCOUNT_BUFFER, 0x1000), 0);
    CHECK_EQ(own(ACCOUNT_BUFFER), 8 * MIB);
    CHECK_EQ(allocate(57 * MIB, ACCOUNT_BUFFER, 0x2000), -ENOMEM);
    CHECK_EQ(allocate(56 * MIB, ACCOUNT_BUFFER, 0x2000), 0);
    CHECK_EQ(own(ACCOUNT_KINDS), 64 * MIB);
    release(0x1000);
    CHECK_EQ(own(ACCOUNT_KINDS), 56 * MIB);
    release(0x1000);
    release(0x7777);
    CHECK_EQ(own(ACCOUNT_KINDS), 56 * MIB);
    release(0x2000);
    CHECK_EQ(own(ACCOUNT_KINDS), 0);
}

TEST("sizes are rounded up to what the driver takes")
{
    begin("64m", "api");
    CHECK_EQ(allocate(3 * MIB, ACCOUNT_BUFFER, 0x1000), 0);
    CHECK_EQ(own(ACCOUNT_KINDS), 4 * MIB);
    CHECK_EQ(allocate(MIB, ACCOUNT_BUFFER, 0x2000), 0);
    CHECK_EQ(own(ACCOUNT_KINDS), 6 * MIB);
    CHECK_EQ(allocate(3 * MIB, ACCOUNT_MANAGED, 0x3000), 0);
    CHECK_EQ(own(ACCOUNT_MANAGED), 3 * MIB);
}

TEST("a size near 2^64 is refused, not wrapped")
{
    begin("64m", "api");
    CHECK_EQ(allocate(UINT64_MAX, ACCOUNT_BUFFER, 0x1000), -ENOMEM);
    CHECK_EQ(allocate(UINT64_MAX - MIB, ACCOUNT_BUFFER, 0x1000), -ENOMEM);
    CHECK_EQ(allocate(UINT64_MAX - 2 * MIB, ACCOUNT_BUFFER, 0x1000), -ENOMEM);
    CHECK_EQ(allocate(1ull << 63, ACCOUNT_MANAGED, 0x1000), -ENOMEM);
    CHECK_EQ(own(ACCOUNT_KINDS), 0);
}

TEST("small allocations share blocks")
{
    begin("64m", "api");
    for (uint64_t i = 0; i < 20; i++)
        CHECK_EQ(allocate(100 << 10, ACCOUNT_BUFFER, 0x1000 + i), 0);
    CHECK_EQ(own(ACCOUNT_KINDS), 2 * MIB);
    CHECK_EQ(allocate(100 << 10, ACCOUNT_BUFFER, 0x2000), 0);
    CHECK_EQ(own(ACCOUNT_KINDS), 4 * MIB);
    release(0x2000);
    CHECK_EQ(own(ACCOUNT_KINDS), 2 * MIB);
    for (uint64_t i = 0; i < 20; i++)
        release(0x1000 + i);
    CHECK_EQ(own(ACCOUNT_KINDS), 0);
}

TEST("an allocation that the driver refused leaves nothing charged")
{
    static const uint64_t sizes[] = {1, 100 << 10, 2 * MIB, 7 * MIB};
    begin("64m", "api");
    for (int i = 0; i < 4; i++) {
        struct memory_request request;
        CHECK_EQ(memory_begin(&request, device, sizes[i], ACCOUNT_BUFFER), 0);
        CHECK(own(ACCOUNT_KINDS) > 0);
        memory_end(&request, false, MEMORY_POINTER, 0);
        CHECK_EQ(own(ACCOUNT_KINDS), 0);
    }
}

TEST("a free that the driver refused leaves the memory charged, once")
{
    begin("64m", "api");
    CHECK_EQ(allocate(8 * MIB, ACCOUNT_BUFFER, 0x1000), 0);
    struct memory_record record = memory_take(MEMORY_POINTER, 0x1000);
    CHECK_EQ(record.bytes, 8 * MIB);
    memory_taken(&record, false, MEMORY_POINTER, 0x1000);
    CHECK_EQ(own(ACCOUNT_KINDS), 8 * MIB);
    release(0x1000);
    CHECK_EQ(own(ACCOUNT_KINDS), 0);
}

TEST("a handle with two holders is freed by the second")
{
    begin("64m", "api");
    CHECK_EQ(allocate(8 * MIB, ACCOUNT_BUFFER, 0x1000), 0);
    memory_retain(MEMORY_POINTER, 0x1000);
    release(0x1000);
    CHECK_EQ(own(ACCOUNT_KINDS), 8 * MIB);
    struct memory_record record = memory_take(MEMORY_POINTER, 0x1000);
    memory_taken(&record, false, MEMORY_POINTER, 0x1000);
    CHECK_EQ(own(ACCOUNT_KINDS), 8 * MIB);
    release(0x1000);
    CHECK_EQ(own(ACCOUNT_KINDS), 0);
}

TEST("equal values of different kinds of handles are different handles")
{
    begin("64m", "api");
    CHECK_EQ(allocate(8 * MIB, ACCOUNT_BUFFER, 5), 0);
    struct memory_record record = memory_take(MEMORY_ARRAY, 5);
    CHECK_EQ(record.device, CONTAINER_DEVICE_UNKNOWN);
    CHECK_EQ(record.references, 0);
    memory_taken(&record, true, MEMORY_ARRAY, 5);
    CHECK_EQ(own(ACCOUNT_KINDS), 8 * MIB);
}

TEST("a pointer that comes back without a free that was seen replaces its record")
{
    begin("64m", "api");
    CHECK_EQ(allocate(8 * MIB, ACCOUNT_BUFFER, 0x1000), 0);
    CHECK_EQ(allocate(4 * MIB, ACCOUNT_BUFFER, 0x1000), 0);
    CHECK_EQ(own(ACCOUNT_KINDS), 4 * MIB);
}

#define CONTEXT 0x5000

static int current(uint64_t *ret_context)
{
    *ret_context = CONTEXT;
    return 0;
}

TEST("what goes with a context is given back with it, and not what the next one of its handle has")
{
    memory_current_context = current;
    begin("64m", "api");
    CHECK_EQ(allocate(8 * MIB, ACCOUNT_BUFFER, 0x1000), 0);
    CHECK_EQ(allocate(4 * MIB, ACCOUNT_BUFFER, 0x2000), 0);
    uint64_t born = memory_context_ends();
    /* The driver has ended it, and another thread has made one, with memory at some of its
     * addresses, before the end is settled. */
    CHECK_EQ(allocate(16 * MIB, ACCOUNT_BUFFER, 0x3000), 0);
    CHECK_EQ(allocate(2 * MIB, ACCOUNT_BUFFER, 0x1000), 0);
    memory_context_gone(CONTEXT, born);
    CHECK_EQ(own(ACCOUNT_KINDS), 18 * MIB);
    memory_context_gone(CONTEXT, memory_context_ends());
    CHECK_EQ(own(ACCOUNT_KINDS), 0);
    memory_current_context = NULL;
}

TEST("a pool's size follows the driver's figure, whatever the limit says")
{
    begin("64m", "api");
    memory_set(MEMORY_POOL, 9, device, 32 * MIB, ACCOUNT_BUFFER);
    CHECK_EQ(own(ACCOUNT_KINDS), 32 * MIB);
    memory_set(MEMORY_POOL, 9, device, 96 * MIB, ACCOUNT_BUFFER);
    CHECK_EQ(own(ACCOUNT_KINDS), 96 * MIB);
    CHECK_EQ(allocate(2 * MIB, ACCOUNT_BUFFER, 0x1000), -ENOMEM);
    memory_set(MEMORY_POOL, 9, device, 0, ACCOUNT_BUFFER);
    CHECK_EQ(own(ACCOUNT_KINDS), 0);
}

TEST("what was set to less than a block is freed without touching what shares blocks")
{
    begin("64m", "api");
    CHECK_EQ(allocate(8 * MIB, ACCOUNT_BUFFER, 0x1000), 0);
    memory_set(MEMORY_POOL, 9, device, 64 << 10, ACCOUNT_BUFFER);
    CHECK_EQ(own(ACCOUNT_KINDS), 8 * MIB + (64 << 10));
    struct memory_record record = memory_take(MEMORY_POOL, 9);
    memory_taken(&record, true, MEMORY_POOL, 9);
    CHECK_EQ(own(ACCOUNT_KINDS), 8 * MIB);
    CHECK_EQ(allocate(64 << 10, ACCOUNT_BUFFER, 0x2000), 0);
    CHECK_EQ(own(ACCOUNT_KINDS), 10 * MIB);
}

TEST("the resource manager's ledger refuses early, and charges managed memory only")
{
    begin("64m", "rm");
    CHECK_EQ(memory_ledger(), MEMORY_LEDGER_RM);
    CHECK_EQ(allocate(65 * MIB, ACCOUNT_BUFFER, 0x1000), -ENOMEM);
    CHECK_EQ(allocate(8 * MIB, ACCOUNT_BUFFER, 0x1000), 0);
    CHECK_EQ(own(ACCOUNT_KINDS), 0);
    CHECK_EQ(allocate(8 * MIB, ACCOUNT_MANAGED, 0x2000), 0);
    CHECK_EQ(own(ACCOUNT_MANAGED), 8 * MIB);
    CHECK_EQ(allocate(60 * MIB, ACCOUNT_MANAGED, 0x3000), -ENOMEM);
    CHECK_EQ(allocate(60 * MIB, ACCOUNT_BUFFER, 0x3000), -ENOMEM);
    release(0x2000);
    release(0x1000);
    CHECK_EQ(own(ACCOUNT_KINDS), 0);
}

TEST("without a limit everything passes and is counted")
{
    begin("", "api");
    CHECK_EQ(allocate(1ull << 40, ACCOUNT_BUFFER, 0x1000), 0);
    CHECK_EQ(own(ACCOUNT_KINDS), 1ull << 40);
    release(0x1000);
    CHECK_EQ(own(ACCOUNT_KINDS), 0);
}

TEST("a limit that is not understood makes the device look full")
{
    begin("lots", "api");
    CHECK_EQ(allocate(1, ACCOUNT_BUFFER, 0x1000), -ENOMEM);
    CHECK_EQ(allocate(8 * MIB, ACCOUNT_BUFFER, 0x1000), -ENOMEM);
    uint64_t total = 0, used = 0, free_bytes = 1;
    CHECK(container_memory_view(device, 1000, 900, &total, &used, &free_bytes));
    CHECK_EQ(total, 1000);
    CHECK_EQ(free_bytes, 0);
}

TEST("the view's free is never below zero and never above the card's")
{
    uint64_t total = 0, used = 0, free_bytes = 0;
    begin("64m", "api");
    CHECK(container_memory_view(device, 1024 * MIB, 10 * MIB, &total, &used, &free_bytes));
    CHECK_EQ(total, 64 * MIB);
    CHECK_EQ(free_bytes, 10 * MIB);
    account_add((unsigned)device, 100 * MIB, ACCOUNT_CONTEXT);
    CHECK(container_memory_view(device, 1024 * MIB, 900 * MIB, &total, &used, &free_bytes));
    CHECK_EQ(used, 100 * MIB);
    CHECK_EQ(free_bytes, 0);
}

#define FULL_BYTES (64 * MIB)

static int small_granted;

static void *allocate_small(void *number)
{
    uint64_t handle = 0x100000 + (uint64_t)(uintptr_t)number;
    uint64_t start = clock_now_ns();
    while (clock_now_ns() - start < 300000000) {
        if (allocate(600 << 10, ACCOUNT_BUFFER, handle) == 0) {
            add_seq_cst(&small_granted, 1);
            release(handle);
        }
    }
    return NULL;
}

TEST("small allocations that race for a full device are all refused")
{
    pthread_t threads[8];
    begin("64m", "api");
    CHECK_EQ(allocate(FULL_BYTES, ACCOUNT_BUFFER, 0x1000), 0);
    for (uintptr_t i = 0; i < 8; i++)
        REQUIRE(pthread_create(&threads[i], NULL, allocate_small, (void *)i) == 0);
    for (int i = 0; i < 8; i++)
        pthread_join(threads[i], NULL);
    CHECK_EQ(small_granted, 0);
    CHECK_EQ(own(ACCOUNT_KINDS), FULL_BYTES);
}

int main(int argc, char **argv)
{
    return check_run(argc, argv);
}
