/* SPDX-License-Identifier: Apache-2.0 */
/* Many threads of one process in the layers below the hooks: entering, devices, the API ledger, the
 * log. What they leave is checked here; that they do not race, under the thread sanitizer. */
#include "memory/memory.h"

#include "base/atomic.h"
#include "base/log.h"
#include "check.h"
#include "scratch.h"
#include "container/container.h"

#include <fcntl.h>
#include <pthread.h>

#define MIB (1ull << 20)
#define THREADS 8
#define ROUNDS 200
#define LINES 100

static int device, devices[THREADS][4], taken, charged;

/* What a program's environment says before it enters. */
static void prepare(const char *limit)
{
    setenv("CUDA_DEVICE_MEMORY_SHARED_CACHE", scratch_path("region"), 1);
    setenv("CUDA_DEVICE_MEMORY_LIMIT", limit, 1);
    setenv("VGPU_LEDGER", "api", 1);
    setenv("LIBCUDA_LOG_LEVEL", "0", 1);
}

static const char *uuid_of(int number)
{
    static const char *const uuids[] = {"GPU-00000000-0000-0000-0000-000000000001",
        "GPU-00000000-0000-0000-0000-000000000002", "GPU-00000000-0000-0000-0000-000000000003",
        "GPU-00000000-0000-0000-0000-000000000004"};
    return uuids[number % 4];
}

static void begin(void)
{
    prepare("1000m");
    container_enter();
    device = container_device(uuid_of(0));
    REQUIRE(device >= 0);
}

static void run_threads(void *(*body)(void *))
{
    pthread_t threads[THREADS];
    for (intptr_t i = 0; i < THREADS; i++)
        REQUIRE(pthread_create(&threads[i], NULL, body, (void *)i) == 0);
    for (int i = 0; i < THREADS; i++)
        pthread_join(threads[i], NULL);
}

static void *enter_and_meet(void *number)
{
    int thread = (int)(intptr_t)number;
    container_enter();
    for (int i = 0; i < 4; i++)
        devices[thread][(thread + i) % 4] = container_device(uuid_of(thread + i));
    return NULL;
}

TEST("threads that enter at once meet the same devices under the same numbers")
{
    prepare("1000m");
    run_threads(enter_and_meet);
    for (int d = 0; d < 4; d++) {
        CHECK(devices[0][d] >= 0);
        for (int other = 0; other < d; other++)
            CHECK(devices[0][other] != devices[0][d]);
        for (int t = 1; t < THREADS; t++)
            CHECK_EQ(devices[t][d], devices[0][d]);
    }
}

static bool allocate(uint64_t bytes, enum account_kind kind, uint64_t handle)
{
    struct memory_request request;
    if (memory_begin(&request, device, bytes, kind) != 0)
        return false;
    memory_end(&request, true, MEMORY_POINTER, handle);
    return true;
}

static bool release(uint64_t handle)
{
    struct memory_record record = memory_take(MEMORY_POINTER, handle);
    bool was_there = record.references != 0;
    memory_taken(&record, true, MEMORY_POINTER, handle);
    return was_there;
}

static void *churn(void *number)
{
    uint64_t total, used, left, base = ((uint64_t)(uintptr_t)number + 1) << 32;
    for (uint64_t i = 0; i < ROUNDS; i++) {
        CHECK(allocate(100 << 10, ACCOUNT_BUFFER, base + 3 * i));
        CHECK(allocate(2 * MIB, ACCOUNT_BUFFER, base + 3 * i + 1));
        CHECK(allocate(MIB, ACCOUNT_MANAGED, base + 3 * i + 2));
        memory_set(MEMORY_POOL, base, device, (i % 5) * MIB, ACCOUNT_BUFFER);
        CHECK(container_memory_view(device, 1000 * MIB, 900 * MIB, &total, &used, &left));
        CHECK(used >= 4 * MIB && used + left <= 1000 * MIB);
        memory_retain(MEMORY_POINTER, base + 3 * i);
        release(base + 3 * i);
        for (uint64_t j = 0; j < 3; j++)
            CHECK(release(base + 3 * i + j));
    }
    memory_set(MEMORY_POOL, base, device, 0, ACCOUNT_BUFFER);
    return NULL;
}

TEST("threads that allocate and free at once leave nothing charged")
{
    begin();
    run_threads(churn);
    CHECK_EQ(account_own_bytes((unsigned)device, ACCOUNT_KINDS), 0);
}

/* All free all that all made: what one takes, no other does. */
static void *make_and_take(void *number)
{
    for (uint64_t i = 0; i < ROUNDS; i++) {
        uint64_t handle = 0x1000 + i * THREADS;
        if (allocate(64 << 10, ACCOUNT_BUFFER, handle + (uintptr_t)number))
            add_seq_cst(&charged, 1);
        for (uint64_t j = 0; j < THREADS; j++) {
            if (release(handle + j))
                add_seq_cst(&taken, 1);
        }
    }
    return NULL;
}

TEST("a handle that several threads free at once is given back once")
{
    begin();
    run_threads(make_and_take);
    for (uint64_t i = 0; i < ROUNDS * THREADS; i++)
        taken += release(0x1000 + i);
    CHECK_EQ(charged, ROUNDS * THREADS);
    CHECK_EQ(taken, charged);
    CHECK_EQ(account_own_bytes((unsigned)device, ACCOUNT_KINDS), 0);
}

static void *say(void *number)
{
    for (int i = 0; i < LINES; i++)
        log_error("thread %d says line %d to its end", (int)(intptr_t)number, i);
    return NULL;
}

TEST("lines that threads log at once stay whole")
{
    char line[512];
    int lines = 0;
    FILE *file = tmpfile();
    REQUIRE(file);
    REQUIRE(fcntl(fileno(file), F_SETFL, O_APPEND) == 0);
    int kept = dup(STDERR_FILENO);
    REQUIRE(dup2(fileno(file), STDERR_FILENO) == STDERR_FILENO);
    run_threads(say);
    REQUIRE(dup2(kept, STDERR_FILENO) == STDERR_FILENO);
    rewind(file);
    for (; fgets(line, sizeof(line), file); lines++) {
        const char *said = strstr(line, "]: thread ");
        CHECK(strstr(line, "[HAMI-core ERROR") == line);
        const char *end = strstr(line, " to its end\n");
        CHECK(said && end && end[12] == '\0');
    }
    CHECK_EQ(lines, THREADS * LINES);
}

int main(int argc, char **argv)
{
    return check_run(argc, argv);
}
