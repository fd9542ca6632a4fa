/* SPDX-License-Identifier: Apache-2.0 */
/* churn [--threads N] [--max MIB] [--block MIB] [--seed N] [--seconds S] [--rest] [--abrupt]:
 * threads allocate and free device memory of several kinds; each refusal is a line. Obeys its
 * input: pause, go, fork N, or its end. churn --fill MIB: takes blocks until refused, says so,
 * ends. */
#include "../driver/driver.h"

#include <pthread.h>
#include <stdatomic.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/wait.h>
#include <time.h>
#include <unistd.h>

#define MIB (1024.0 * 1024.0)
#define BLOCKS_MAX 32
#define THREADS_MAX 16

struct block {
    CUdeviceptr pointer;
    size_t bytes;
    enum { PLAIN, ASYNC, VIRTUAL, KINDS } kind;
};

struct worker {
    pthread_t thread;
    unsigned seed;
    size_t held_bytes;
    int count;
    struct block blocks[BLOCKS_MAX];
};

static const char *const kind_names[KINDS] = {"cuMemAlloc", "cuMemAllocAsync", "cuMemCreate"};
static struct worker workers[THREADS_MAX];
static int thread_count = 1;
static size_t max_bytes = 1024u << 20, block_bytes = 128 << 20;
static bool rests, quiet;
static CUcontext context;
static atomic_bool pausing, ending;
static atomic_int parked;
static atomic_ulong granted, refused;

static int64_t now_ms(clockid_t clock)
{
    struct timespec now;
    clock_gettime(clock, &now);
    return (int64_t)now.tv_sec * 1000 + now.tv_nsec / 1000000;
}

static void sleep_us(long microseconds)
{
    nanosleep(&(struct timespec){microseconds / 1000000, microseconds % 1000000 * 1000}, NULL);
}

/* An error that is not a refusal ends the program: nothing else is expected here. */
static void must(CUresult result, const char *call)
{
    if (result == CUDA_SUCCESS)
        return;
    printf("error %s %s\n", call, driver_error(result));
    fflush(stdout);
    _exit(3);
}

static void virtual_give_back(CUdeviceptr pointer, size_t bytes, bool mapped)
{
    /* Unlike cuMemFree, unmapping does not wait for who still writes there. */
    if (mapped) {
        must(driver.cuCtxSynchronize(), "cuCtxSynchronize");
        must(driver.cuMemUnmap(pointer, bytes), "cuMemUnmap");
    }
    must(driver.cuMemAddressFree(pointer, bytes), "cuMemAddressFree");
}

static CUresult virtual_take(CUdeviceptr *ret_pointer, size_t bytes)
{
    CUmemAllocationProp property = {.type = CU_MEM_ALLOCATION_TYPE_PINNED,
        .location = {.type = CU_MEM_LOCATION_TYPE_DEVICE, .id = 0}};
    CUmemAccessDesc access = {
        .location = property.location, .flags = CU_MEM_ACCESS_FLAGS_PROT_READWRITE};
    CUmemGenericAllocationHandle handle;
    CUdeviceptr pointer;
    CUresult result = driver.cuMemCreate(&handle, bytes, &property, 0);
    if (result != CUDA_SUCCESS)
        return result;
    must(driver.cuMemAddressReserve(&pointer, bytes, 0, 0, 0), "cuMemAddressReserve");
    result = driver.cuMemMap(pointer, bytes, 0, handle, 0);
    bool mapped = result == CUDA_SUCCESS;
    if (mapped)
        result = driver.cuMemSetAccess(pointer, bytes, &access, 1);
    must(driver.cuMemRelease(handle), "cuMemRelease");
    if (result == CUDA_SUCCESS)
        *ret_pointer = pointer;
    else
        virtual_give_back(pointer, bytes, mapped);
    return result;
}

static void release(struct block block)
{
    if (block.kind == PLAIN)
        must(driver.cuMemFree_v2(block.pointer), "cuMemFree");
    else if (block.kind == ASYNC)
        must(driver.cuMemFreeAsync(block.pointer, NULL), "cuMemFreeAsync");
    else
        virtual_give_back(block.pointer, block.bytes, true);
}

static void take(struct worker *worker)
{
    struct block block = {.kind = (int)(rand_r(&worker->seed) % KINDS)};
    size_t mib = 1 + (size_t)rand_r(&worker->seed) % (block_bytes >> 20);
    const char *call = kind_names[block.kind];
    block.bytes = block.kind == VIRTUAL ? ((mib + 1) & ~(size_t)1) << 20 : mib << 20;
    if (worker->held_bytes + block.bytes > max_bytes / (size_t)thread_count)
        return;
    CUresult result = block.kind == PLAIN ? driver.cuMemAlloc_v2(&block.pointer, block.bytes)
                      : block.kind == ASYNC
                          ? driver.cuMemAllocAsync(&block.pointer, block.bytes, NULL)
                          : virtual_take(&block.pointer, block.bytes);
    if (result == CUDA_SUCCESS) {
        /* The driver may load its code for it only now, which takes memory too. */
        result = driver.cuMemsetD8_v2(block.pointer, (unsigned char)mib, block.bytes);
        call = "cuMemsetD8";
        if (result == CUDA_ERROR_OUT_OF_MEMORY)
            release(block);
    }
    if (result == CUDA_ERROR_OUT_OF_MEMORY) {
        atomic_fetch_add(&refused, 1);
        if (!quiet)
            printf("refused %s of %zu bytes\n", call, block.bytes);
        fflush(stdout);
        return;
    }
    must(result, call);
    atomic_fetch_add(&granted, 1);
    worker->held_bytes += block.bytes;
    worker->blocks[worker->count++] = block;
}

static void give_back(struct worker *worker, int index)
{
    struct block block = worker->blocks[index];
    worker->blocks[index] = worker->blocks[--worker->count];
    worker->held_bytes -= block.bytes;
    release(block);
}

/* With --rest nobody allocates in the first quarter of each second: who looks then sees an account
 * that stands still. */
static bool is_to_rest(void)
{
    return atomic_load(&pausing) || (rests && now_ms(CLOCK_REALTIME) % 1000 < 250);
}

static void *work(void *argument)
{
    struct worker *worker = argument;
    must(driver.cuCtxSetCurrent(context), "cuCtxSetCurrent");
    while (!atomic_load(&ending)) {
        if (is_to_rest()) {
            must(driver.cuCtxSynchronize(), "cuCtxSynchronize");
            atomic_fetch_add(&parked, 1);
            while (is_to_rest() && !atomic_load(&ending))
                sleep_us(2000);
            atomic_fetch_sub(&parked, 1);
            continue;
        }
        if (worker->count < BLOCKS_MAX && rand_r(&worker->seed) % 100 < 55)
            take(worker);
        else if (worker->count > 0)
            give_back(worker, (int)(rand_r(&worker->seed) % (unsigned)worker->count));
        sleep_us(rand_r(&worker->seed) % 1000);
    }
    while (worker->count > 0)
        give_back(worker, worker->count - 1);
    must(driver.cuCtxSynchronize(), "cuCtxSynchronize");
    return NULL;
}

static void say(const char *word)
{
    struct vgpu_usage usage = driver_region_usage();
    printf("%s pid %d granted %lu refused %lu ledger %.0f\n", word, (int)getpid(),
        atomic_load(&granted), atomic_load(&refused), (double)usage.bytes / MIB);
    fflush(stdout);
}

/* Children of a process whose threads are inside the driver: one ends, one becomes another program,
 * one lives on a while. */
static void fork_children(int count)
{
    int bad = 0;
    for (int i = 0; i < count; i++) {
        pid_t child = fork();
        if (child == 0) {
            if (i % 3 == 1)
                execl("/bin/true", "true", (char *)NULL);
            if (i % 3 == 2)
                sleep_us(50000);
            _exit(i % 3 == 1);
        }
        int status = -1;
        int64_t end = now_ms(CLOCK_MONOTONIC) + 10000;
        while (waitpid(child, &status, WNOHANG) == 0 && now_ms(CLOCK_MONOTONIC) < end)
            sleep_us(1000);
        bad += status != 0;
    }
    printf("forked %d bad %d\n", count, bad);
    fflush(stdout);
}

static void obey(void)
{
    char line[64];
    while (fgets(line, sizeof(line), stdin)) {
        if (!strncmp(line, "pause", 5)) {
            atomic_store(&pausing, true);
            while (atomic_load(&parked) < thread_count)
                sleep_us(1000);
            say("paused");
        } else if (!strncmp(line, "go", 2)) {
            atomic_store(&pausing, false);
            say("going");
        } else if (!strncmp(line, "fork ", 5)) {
            fork_children(atoi(line + 5));
        }
    }
}

static int fill(size_t bytes)
{
    CUdeviceptr pointer;
    size_t blocks = 0, free_bytes = 0, total_bytes = 0;
    CUresult result;
    while ((result = driver.cuMemAlloc_v2(&pointer, bytes)) == CUDA_SUCCESS)
        blocks++;
    must(driver.cuMemGetInfo_v2(&free_bytes, &total_bytes), "cuMemGetInfo");
    printf("filled %.0f total %.0f free %.0f ledger %.0f %s\n", (double)(blocks * bytes) / MIB,
        (double)total_bytes / MIB, (double)free_bytes / MIB,
        (double)driver_region_usage().bytes / MIB, driver_error(result));
    fflush(stdout);
    getchar();
    return result != CUDA_ERROR_OUT_OF_MEMORY;
}

int main(int argc, char **argv)
{
    double seconds = -1;
    unsigned seed = 1;
    size_t fill_bytes = 0;
    bool abrupt = false;
    for (int i = 1; i < argc; i++) {
        const char *value = i + 1 < argc ? argv[i + 1] : "0";
        if (!strcmp(argv[i], "--rest"))
            rests = true;
        else if (!strcmp(argv[i], "--quiet"))
            quiet = true;
        else if (!strcmp(argv[i], "--abrupt"))
            abrupt = true;
        else if (!strcmp(argv[i], "--threads") && ++i)
            thread_count = atoi(value);
        else if (!strcmp(argv[i], "--max") && ++i)
            max_bytes = (size_t)atoll(value) << 20;
        else if (!strcmp(argv[i], "--block") && ++i)
            block_bytes = (size_t)atoll(value) << 20;
        else if (!strcmp(argv[i], "--seed") && ++i)
            seed = (unsigned)atoi(value);
        else if (!strcmp(argv[i], "--seconds") && ++i)
            seconds = atof(value);
        else if (!strcmp(argv[i], "--fill") && ++i)
            fill_bytes = (size_t)atoll(value) << 20;
    }
    if (thread_count < 1 || thread_count > THREADS_MAX || block_bytes < 1 << 20)
        return 2;
    if (!driver_load())
        return 77;
    must(driver.cuInit(0), "cuInit");
    must(driver.cuDevicePrimaryCtxRetain(&context, 0), "cuDevicePrimaryCtxRetain");
    must(driver.cuCtxSetCurrent(context), "cuCtxSetCurrent");
    if (fill_bytes)
        return fill(fill_bytes);
    say("ready");
    for (int i = 0; i < thread_count; i++) {
        workers[i].seed = seed * 7919 + (unsigned)i;
        if (pthread_create(&workers[i].thread, NULL, work, &workers[i]) != 0)
            return 3;
    }
    if (seconds < 0)
        obey();
    else
        sleep_us((long)(seconds * 1e6));
    if (abrupt)
        _exit(0);
    atomic_store(&ending, true);
    for (int i = 0; i < thread_count; i++)
        pthread_join(workers[i].thread, NULL);
    say("ended");
    return 0;
}
