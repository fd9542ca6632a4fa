/* SPDX-License-Identifier: Apache-2.0 */
/* Host memory that is kept ready, by several processes of a container: VGPU_HOST_POOL bounds it
 * beside what is spilled, and it is given back before anything is refused for the lack of it. */
#include "abi/cuda.h"
#include "bed.h"
#include "freeze.h"
#include "movable.h"

#include <dlfcn.h>
#include <signal.h>
#include <stdio.h>
#include <string.h>
#include <sys/mman.h>
#include <sys/wait.h>
#include <unistd.h>

#define ON "CUDA_MEMORY_OVERSUBSCRIBE=true"
#define POOL "VGPU_HOST_POOL=1g"
#define READY "VGPU_HOST_POOL_READY=1g"
/* A card on which the siblings leave some 2 GiB. */
#define SMALL_CARD .limit = "16GiB", .sim = "h200,memory=4GiB"
#define SIBLINGS 3

/* Pieces are of 32 MiB or more: this much of a bound may stay unused. */
#define SLACK (64 * MIB)

static uint64_t ready_of(pid_t pid)
{
    const struct vgpu_slot *slot = slot_of(pid);
    return slot ? __atomic_load_n(&slot->ready, __ATOMIC_SEQ_CST) : 0;
}

/* What VGPU_HOST_POOL bounds, of the processes that have a slot. What is ready turns into what is
 * spilled, which is raised first: in this order neither is missed. */
static uint64_t on_host(const pid_t *pids, unsigned count)
{
    uint64_t bytes = 0;
    for (unsigned i = 0; i < count; i++)
        bytes += ready_of(pids[i]);
    for (unsigned i = 0; i < count; i++) {
        const struct vgpu_slot *slot = slot_of(pids[i]);
        bytes += slot ? __atomic_load_n(&slot->usage[0].spilled, __ATOMIC_SEQ_CST) : 0;
    }
    return bytes;
}

/* ---- siblings ---- */

/* Shared with the siblings. */
static volatile struct {
    unsigned started; /* have their memory, and so there is a region */
    unsigned frees;   /* those below this number are to give their first allocation back */
    unsigned freed;
} * siblings;

struct sibling {
    unsigned number;
    uint64_t first, second; /* bytes that it allocates */
};

static void hold(void *argument)
{
    const struct sibling *sibling = argument;
    bed_context(0);
    CUdeviceptr first = take(sibling->first);
    if (sibling->second)
        (void)take(sibling->second);
    __atomic_add_fetch(&siblings->started, 1, __ATOMIC_SEQ_CST);
    while (siblings->frees <= sibling->number)
        usleep(1000);
    give(first);
    siblings->freed++;
    for (;;)
        pause();
}

static pid_t start(unsigned number, uint64_t first, uint64_t second)
{
    static struct sibling wishes[SIBLINGS];
    if (!siblings)
        siblings = mmap(NULL, 4096, PROT_READ | PROT_WRITE, MAP_SHARED | MAP_ANONYMOUS, -1, 0);
    wishes[number] = (struct sibling){number, first, second};
    return bed_fork(hold, &wishes[number]);
}

static void wait_for_one(void)
{
    for (unsigned ms = 0; ms < HANG_MS && !siblings->started; ms++)
        bed_sleep_ms(1);
    REQUIRE(bed_region() != NULL);
}

static bool comes_to(pid_t pid, uint64_t bytes)
{
    for (unsigned ms = 0; ms < HANG_MS; ms++) {
        if (ready_of(pid) == bytes)
            return true;
        bed_sleep_ms(1);
    }
    return false;
}

static void kill_and_wait(pid_t pid)
{
    int status;
    kill(pid, SIGKILL);
    REQUIRE(waitpid(pid, &status, 0) == pid);
}

/* All but a little of what the card has left: what comes next lies on the host. */
static void fill_card(void)
{
    bed_context(0);
    (void)take((bed_card_free(0) - 64 * MIB) / PAGE * PAGE);
    CHECK_EQ(usage()->spilled, 0);
}

/* On a loaded machine siblings may take longer than they are waited for: it is tried again. */
static CUresult take_patiently(uint64_t bytes)
{
    CUdeviceptr pointer;
    CUresult result = CUDA_ERROR_OUT_OF_MEMORY;
    for (unsigned ms = 0; ms < HANG_MS && result == CUDA_ERROR_OUT_OF_MEMORY; ms += 100) {
        result = CU(cuMemAlloc_v2)(&pointer, bytes);
        if (result != CUDA_SUCCESS)
            bed_sleep_ms(100);
    }
    return result;
}

/* ---- one bound ---- */

BED_TEST("what three processes have ready is within VGPU_HOST_POOL, and fills it", .limit = "16GiB",
    .environment = {ON, POOL, READY})
{
    pid_t pids[SIBLINGS];
    uint64_t most = 0, now = 0;
    for (unsigned i = 0; i < SIBLINGS; i++)
        pids[i] = start(i, GIB, 0);
    wait_for_one();
    for (unsigned ms = 0; ms < HANG_MS && now < GIB - SLACK; ms++) {
        bed_sleep_ms(1);
        now = on_host(pids, SIBLINGS);
        most = now > most ? now : most;
    }
    CHECK(now >= GIB - SLACK);
    for (unsigned ms = 0; ms < 2500; ms++) {
        bed_sleep_ms(1);
        now = on_host(pids, SIBLINGS);
        most = now > most ? now : most;
    }
    /* One that adds and looks, and takes it back, may be seen in between: a piece each. */
    CHECK(most <= GIB + SIBLINGS * SLACK);
    CHECK(now <= GIB);
    for (unsigned i = 0; i < SIBLINGS; i++)
        kill_and_wait(pids[i]);
}

BED_TEST("a sibling's ready memory goes before an allocation is refused", SMALL_CARD,
    .environment = {ON, POOL, READY})
{
    pid_t pid = start(0, GIB, 0);
    wait_for_one();
    CHECK(comes_to(pid, GIB));
    fill_card();
    CHECK_EQ(take_patiently(GIB), CUDA_SUCCESS);
    CHECK(usage()->spilled > 512 * MIB);
    CHECK(ready_of(pid) <= GIB - usage()->spilled);
    kill_and_wait(pid);
}

BED_TEST("what a killed sibling had ready does not count, and nobody is asked for it", SMALL_CARD,
    .environment = {ON, POOL, READY})
{
    pid_t pid = start(0, GIB, 0);
    wait_for_one();
    CHECK(comes_to(pid, GIB));
    kill_and_wait(pid);
    fill_card();
    (void)take(512 * MIB);
    CHECK(usage()->spilled > 0);
    CHECK_EQ(bed_region()->ready_asked_ns, 0);
}

BED_TEST("one that is stopped gives nothing back: it is refused, and not when it goes on",
    SMALL_CARD, .environment = {ON, POOL, READY})
{
    CUdeviceptr pointer;
    pid_t pid = start(0, GIB, 0);
    wait_for_one();
    CHECK(comes_to(pid, GIB));
    kill(pid, SIGSTOP);
    fill_card();
    CHECK_EQ(CU(cuMemAlloc_v2)(&pointer, GIB), CUDA_ERROR_OUT_OF_MEMORY);
    CHECK(bed_stderr_lines("cannot be backed by host memory: VGPU_HOST_POOL leaves") >= 1);
    CHECK_EQ(ready_of(pid), GIB);
    kill(pid, SIGCONT);
    CHECK_EQ(take_patiently(GIB), CUDA_SUCCESS);
    kill_and_wait(pid);
}

/* ---- releases ---- */

BED_TEST("a sibling's ready memory goes before a release is refused", .limit = "16GiB",
    .environment = {ON, POOL, READY})
{
    pid_t pids[] = {start(0, 896 * MIB, 128 * MIB), getpid()};
    wait_for_one();
    CHECK(comes_to(pids[0], GIB));
    siblings->frees = 1;
    for (unsigned ms = 0; ms < HANG_MS && !siblings->freed; ms++)
        bed_sleep_ms(1);
    CHECK_EQ(ready_of(pids[0]), GIB);
    bed_context(0);
    CUdeviceptr pointer = take(768 * MIB);
    write_marks(pointer, 768 * MIB, 9);
    uint32_t word = order(VGPU_RELEASE_PAUSE);
    for (unsigned i = 0; i < 50 && outcome(getpid(), word) == VGPU_RELEASE_NO_ROOM; i++)
        word = order(VGPU_RELEASE_PAUSE);
    CHECK_EQ(outcome(getpid(), word), VGPU_RELEASE_DONE);
    CHECK_EQ(outcome(pids[0], word), VGPU_RELEASE_DONE);
    CHECK_EQ(usage()->spilled, 768 * MIB);
    CHECK(on_host(pids, 2) <= GIB);
    kill_and_wait(pids[0]);
    CHECK_EQ(order_done(VGPU_RELEASE_NONE), VGPU_RELEASE_IDLE);
    CHECK(has_marks(pointer, 768 * MIB, 9));
}

/* The machine has nothing left from now on. */
static void take_the_machine(void)
{
    static char path[300];
    const char **meminfo = dlsym(RTLD_DEFAULT, "test_meminfo");
    REQUIRE(meminfo != NULL);
    snprintf(path, sizeof(path), "%s/meminfo", bed_directory());
    FILE *file = fopen(path, "w");
    REQUIRE(file != NULL);
    fputs("MemTotal: 67108864 kB\nMemFree: 0 kB\nMemAvailable: 0 kB\n", file);
    fclose(file);
    __atomic_store_n(meminfo, path, __ATOMIC_SEQ_CST);
}

BED_TEST("a release into ready memory is made where the machine has no other", .limit = "8GiB",
    .before = "test/hook/libtest-meminfo.so", .environment = {ON, READY})
{
    bed_context(0);
    CUdeviceptr pointer = take(512 * MIB);
    CHECK(comes_to(getpid(), 512 * MIB));
    write_marks(pointer, 512 * MIB, 4);
    take_the_machine();
    CHECK_EQ(order_done(VGPU_RELEASE_PAUSE), VGPU_RELEASE_DONE);
    CHECK_EQ(usage()->spilled, 512 * MIB);
    CHECK_EQ(slot_of(getpid())->ready, 0);
    CHECK_EQ(order_done(VGPU_RELEASE_NONE), VGPU_RELEASE_IDLE);
    CHECK(has_marks(pointer, 512 * MIB, 4));
}

int main(int argc, char **argv)
{
    return check_run(argc, argv);
}
