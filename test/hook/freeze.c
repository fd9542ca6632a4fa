/* SPDX-License-Identifier: Apache-2.0 */
/* Freeze and give back: movable memory goes to the host and comes back at the same addresses, with
 * what was written there, and the account is exact at each end. */
#include "abi/cuda.h"
#include "bed.h"
#include "sim/machine/machine.h"

#include <pthread.h>
#include <signal.h>
#include <stdatomic.h>
#include <string.h>
#include <sys/syscall.h>
#include <sys/wait.h>
#include <time.h>
#include <unistd.h>

#define PAGE (2 * MIB)
#define ON "CUDA_MEMORY_OVERSUBSCRIBE=true"
#define HANG_MS 60000u
#define RANGES 12

static const uint64_t sizes[RANGES] = {1, 1000, 512 * 1024, MIB, MIB + 1, 3 * MIB, 32 * MIB,
    65 * MIB, 200 * MIB, 700 * MIB, 4096, 2 * MIB};

/* ---- orders, as a tool gives them ---- */

static struct vgpu_slot *slot_of(pid_t pid)
{
    return (struct vgpu_slot *)(uintptr_t)bed_region_slot(pid);
}

static void raise_epoch(void)
{
    struct vgpu_region *region = bed_region();
    __atomic_add_fetch(&region->orders_epoch, 1, __ATOMIC_SEQ_CST);
    syscall(SYS_futex, &region->orders_epoch, 1 /* FUTEX_WAKE */, INT32_MAX, NULL, NULL, 0);
}

static uint32_t order(enum vgpu_release release)
{
    struct vgpu_region *region = bed_region();
    uint32_t word = (region->release / 4 + 1) << 2 | (uint32_t)release;
    __atomic_store_n(&region->release, word, __ATOMIC_SEQ_CST);
    raise_epoch();
    return word;
}

static enum vgpu_release_state state_of(pid_t pid, uint32_t *ret_order)
{
    const struct vgpu_slot *slot = slot_of(pid);
    uint64_t word = slot ? __atomic_load_n(&slot->release, __ATOMIC_SEQ_CST) : 0;
    *ret_order = (uint32_t)(word >> 32);
    return (enum vgpu_release_state)(uint32_t)word;
}

/* Waits until the process has made of the order what it can. */
static enum vgpu_release_state outcome(pid_t pid, uint32_t word)
{
    for (unsigned ms = 0; ms < HANG_MS; ms++) {
        uint32_t seen;
        enum vgpu_release_state state = state_of(pid, &seen);
        if (seen == word && state != VGPU_RELEASE_MOVING)
            return state;
        bed_sleep_ms(1);
    }
    return VGPU_RELEASE_MOVING;
}

static enum vgpu_release_state order_done(enum vgpu_release release)
{
    return outcome(getpid(), order(release));
}

static void set_paused(bool paused)
{
    bed_region()->paused = paused;
    raise_epoch();
}

/* Until the process has nothing moved away any more. */
static bool comes_back(pid_t pid)
{
    for (unsigned ms = 0; ms < HANG_MS; ms++) {
        uint32_t seen;
        if (state_of(pid, &seen) == VGPU_RELEASE_IDLE)
            return true;
        bed_sleep_ms(1);
    }
    return false;
}

static const struct vgpu_usage *usage(void)
{
    return &slot_of(getpid())->usage[0];
}

/* ---- memory with marks ---- */

static CUdeviceptr pointers[RANGES];

static void write_marks(CUdeviceptr pointer, uint64_t bytes, unsigned seed)
{
    for (uint64_t at = 0; at<bytes; at += bytes> MIB ? bytes / 37 + 1 : bytes) {
        unsigned char mark = (unsigned char)(seed * 31 + at * 7 + 1);
        CHECK_EQ(CU(cuMemcpyHtoD_v2)(pointer + at, &mark, 1), CUDA_SUCCESS);
    }
}

static bool has_marks(CUdeviceptr pointer, uint64_t bytes, unsigned seed)
{
    for (uint64_t at = 0; at<bytes; at += bytes> MIB ? bytes / 37 + 1 : bytes) {
        unsigned char mark = 0;
        if (CU(cuMemcpyDtoH_v2)(&mark, pointer + at, 1) != CUDA_SUCCESS ||
            mark != (unsigned char)(seed * 31 + at * 7 + 1))
            return false;
    }
    return true;
}

static void take_all(void)
{
    for (unsigned i = 0; i < RANGES; i++) {
        CHECK_EQ(CU(cuMemAlloc_v2)(&pointers[i], sizes[i]), CUDA_SUCCESS);
        write_marks(pointers[i], sizes[i], i);
    }
}

static void all_have_marks(void)
{
    for (unsigned i = 0; i < RANGES; i++)
        CHECK(has_marks(pointers[i], sizes[i], i));
}

static void give_all(void)
{
    for (unsigned i = 0; i < RANGES; i++)
        CHECK_EQ(CU(cuMemFree_v2)(pointers[i]), CUDA_SUCCESS);
}

/* What the account says of the card is what the simulator says. */
static void account_is_exact(void)
{
    if (!strcmp(bed_ledger(), "rm"))
        CHECK_EQ(usage()->bytes - usage()->spilled - usage()->managed, bed_card_bytes(0));
    CHECK_EQ(usage()->pending, 0);
}

/* ---- out and in ---- */

BED_TEST("memory goes to the host and comes back at the same addresses", .limit = "8GiB",
    .environment = {ON})
{
    bed_context(0);
    uint64_t base = usage()->bytes, card = bed_card_bytes(0);
    take_all();
    uint64_t full = usage()->bytes;
    CHECK_EQ(usage()->movable, full - base);
    for (int round = 0; round < 3; round++) {
        CHECK_EQ(order_done(VGPU_RELEASE_PAUSE), VGPU_RELEASE_DONE);
        CHECK_EQ(usage()->bytes, full);
        CHECK_EQ(usage()->spilled, full - base);
        CHECK_EQ(usage()->movable, 0);
        CHECK_EQ(slot_of(getpid())->released, full - base);
        CHECK_EQ(bed_card_bytes(0), card);
        account_is_exact();
        CHECK_EQ(order_done(VGPU_RELEASE_NONE), VGPU_RELEASE_IDLE);
        CHECK_EQ(usage()->spilled, 0);
        CHECK_EQ(usage()->bytes, full);
        CHECK_EQ(slot_of(getpid())->released, 0);
        account_is_exact();
        all_have_marks();
    }
    give_all();
    CHECK_EQ(usage()->bytes, base);
    CHECK_EQ(bed_card_bytes(0), card);
}

BED_TEST("what is written while it lies on the host is there when it is back", .limit = "8GiB",
    .environment = {ON})
{
    bed_context(0);
    take_all();
    uint32_t word = order(VGPU_RELEASE_PAUSE);
    CHECK_EQ(outcome(getpid(), word), VGPU_RELEASE_DONE);
    set_paused(true);
    all_have_marks();
    for (unsigned i = 0; i < RANGES; i++)
        write_marks(pointers[i], sizes[i], i + 100);
    CHECK(usage()->spilled > 0);
    set_paused(false);
    CHECK_EQ(order_done(VGPU_RELEASE_NONE), VGPU_RELEASE_IDLE);
    for (unsigned i = 0; i < RANGES; i++)
        CHECK(has_marks(pointers[i], sizes[i], i + 100));
    give_all();
}

BED_TEST("memory that is released on demand comes back with the next work", .limit = "8GiB",
    .environment = {ON})
{
    bed_context(0);
    take_all();
    uint64_t full = usage()->bytes;
    CHECK_EQ(order_done(VGPU_RELEASE_ON_DEMAND), VGPU_RELEASE_DONE);
    CHECK(usage()->spilled > 0);
    CHECK(has_marks(pointers[6], sizes[6], 6));
    CHECK_EQ(usage()->spilled, 0);
    CHECK(comes_back(getpid()));
    all_have_marks();
    CHECK_EQ(usage()->bytes, full);
    account_is_exact();
    give_all();
}

BED_TEST("memory at the limit moves without passing it", .limit = "1GiB", .environment = {ON})
{
    CUdeviceptr pointer, more;
    bed_context(0);
    uint64_t left = GIB - usage()->bytes;
    CHECK_EQ(CU(cuMemAlloc_v2)(&pointer, left / PAGE * PAGE), CUDA_SUCCESS);
    uint64_t full = usage()->bytes;
    CHECK_EQ(CU(cuMemAlloc_v2)(&more, PAGE), CUDA_ERROR_OUT_OF_MEMORY);
    write_marks(pointer, left / PAGE * PAGE, 3);
    CHECK_EQ(order_done(VGPU_RELEASE_PAUSE), VGPU_RELEASE_DONE);
    CHECK_EQ(usage()->bytes, full);
    CHECK_EQ(CU(cuMemAlloc_v2)(&more, PAGE), CUDA_ERROR_OUT_OF_MEMORY);
    CHECK_EQ(order_done(VGPU_RELEASE_NONE), VGPU_RELEASE_IDLE);
    CHECK_EQ(usage()->bytes, full);
    CHECK(has_marks(pointer, left / PAGE * PAGE, 3));
    CHECK(bed_stderr_lines("OOM") >= 1); /* once a second */
}

/* ---- host memory that is ready ---- */

#define INFO "LIBCUDA_LOG_LEVEL=3"

BED_TEST("host memory that memory came back from is ready for the next move", .limit = "8GiB",
    .environment = {ON, INFO})
{
    bed_context(0);
    take_all();
    CHECK_EQ(order_done(VGPU_RELEASE_PAUSE), VGPU_RELEASE_DONE);
    CHECK_EQ(bed_stderr_lines("; 0 MiB of that was ready"), 1);
    CHECK_EQ(order_done(VGPU_RELEASE_NONE), VGPU_RELEASE_IDLE);
    CHECK_EQ(order_done(VGPU_RELEASE_PAUSE), VGPU_RELEASE_DONE);
    CHECK_EQ(bed_stderr_lines("; 0 MiB of that was ready"), 1);
    uint64_t mib = usage()->spilled / MIB;
    char all[64];
    snprintf(all, sizeof(all), "; %llu MiB of that was ready", (unsigned long long)mib);
    CHECK_EQ(bed_stderr_lines(all), 1);
    CHECK_EQ(order_done(VGPU_RELEASE_NONE), VGPU_RELEASE_IDLE);
    all_have_marks();
    give_all();
}

BED_TEST("what is ready counts within VGPU_HOST_POOL, and goes before anything is refused",
    .limit = "8GiB", .sim = "h200,memory=4GiB", .environment = {ON, INFO, "VGPU_HOST_POOL=2g"})
{
    CUdeviceptr first, second;
    bed_context(0);
    CHECK_EQ(CU(cuMemAlloc_v2)(&first, 2 * GIB), CUDA_SUCCESS);
    write_marks(first, 2 * GIB, 5);
    CHECK_EQ(order_done(VGPU_RELEASE_PAUSE), VGPU_RELEASE_DONE);
    CHECK_EQ(order_done(VGPU_RELEASE_NONE), VGPU_RELEASE_IDLE);
    /* On the card is room for less than 2 GiB more: the rest takes the host memory. */
    CHECK_EQ(CU(cuMemAlloc_v2)(&second, 3 * GIB), CUDA_SUCCESS);
    CHECK(usage()->spilled > GIB);
    CHECK(has_marks(first, 2 * GIB, 5));
    CHECK_EQ(order_done(VGPU_RELEASE_PAUSE), VGPU_RELEASE_NO_ROOM);
    CHECK_EQ(order_done(VGPU_RELEASE_NONE), VGPU_RELEASE_IDLE);
    CHECK_EQ(CU(cuMemFree_v2)(second), CUDA_SUCCESS);
    CHECK_EQ(order_done(VGPU_RELEASE_PAUSE), VGPU_RELEASE_DONE);
    CHECK_EQ(order_done(VGPU_RELEASE_NONE), VGPU_RELEASE_IDLE);
    CHECK(has_marks(first, 2 * GIB, 5));
}

BED_TEST("VGPU_HOST_POOL_READY has host memory made before the first move", .limit = "8GiB",
    .environment = {ON, INFO, "VGPU_HOST_POOL_READY=512m"})
{
    CUdeviceptr pointer;
    bed_context(0);
    CHECK_EQ(CU(cuMemAlloc_v2)(&pointer, 512 * MIB), CUDA_SUCCESS);
    for (unsigned ms = 0; ms < HANG_MS && !bed_stderr_lines("512 MiB of host memory are ready");
         ms++)
        bed_sleep_ms(1);
    CHECK_EQ(order_done(VGPU_RELEASE_PAUSE), VGPU_RELEASE_DONE);
    CHECK_EQ(bed_stderr_lines("; 512 MiB of that was ready"), 1);
}

BED_TEST("a size of VGPU_HOST_POOL_READY that is none is said, and nothing is made ahead",
    .limit = "8GiB", .environment = {ON, INFO, "VGPU_HOST_POOL_READY=much"})
{
    CUdeviceptr pointer;
    bed_context(0);
    CHECK_EQ(bed_stderr_lines("VGPU_HOST_POOL_READY=\"much\" is not a size"), 1);
    CHECK_EQ(CU(cuMemAlloc_v2)(&pointer, 64 * MIB), CUDA_SUCCESS);
    CHECK_EQ(order_done(VGPU_RELEASE_PAUSE), VGPU_RELEASE_DONE);
    CHECK_EQ(bed_stderr_lines("; 0 MiB of that was ready"), 1);
}

int main(int argc, char **argv)
{
    return check_run(argc, argv);
}
