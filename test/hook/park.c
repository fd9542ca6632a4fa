/* SPDX-License-Identifier: Apache-2.0 */
/* A process that is parked for the driver's checkpoint: nothing of it calls the driver, and all
 * comes back. (process-checkpoint tests the checkpoint itself.) */
#include "bed.h"
#include "freeze.h"
#include "movable.h"
#include "sim/machine/machine.h"
#include "sweep.h"

#include <pthread.h>
#include <signal.h>
#include <stdatomic.h>
#include <stdio.h>
#include <stdlib.h>
#include <sys/mman.h>
#include <sys/wait.h>
#include <unistd.h>

#define ON "CUDA_MEMORY_OVERSUBSCRIBE=true"

/* A block of small ones, one part, and one that is moved in pieces. */
static const uint64_t sizes[] = {1000, 3 * MIB, 65 * MIB};
#define COUNT (sizeof(sizes) / sizeof(sizes[0]))
static CUdeviceptr pointers[COUNT];

static void take_all(void)
{
    for (unsigned i = 0; i < COUNT; i++) {
        pointers[i] = take(sizes[i]);
        write_marks(pointers[i], sizes[i], i);
    }
}

static void all_is_there(void)
{
    for (unsigned i = 0; i < COUNT; i++)
        CHECK(has_marks(pointers[i], sizes[i], i));
    if (!strcmp(bed_ledger(), "rm"))
        CHECK_EQ(usage()->bytes - usage()->spilled, bed_card_bytes(0));
}

static void give_all(void)
{
    for (unsigned i = 0; i < COUNT; i++)
        give(pointers[i]);
    CHECK_EQ(usage()->spilled, 0);
}

static void mark(enum vgpu_release_state state)
{
    struct vgpu_slot *slot = slot_of(getpid());
    uint64_t word = slot->release >> 32 << 32 | (uint64_t)state;
    __atomic_store_n(&slot->release, word, __ATOMIC_SEQ_CST);
}

/* ---- calls meanwhile ---- */

static CUcontext context;
static CUevent event;
static atomic_uint returned;

static void *query(void *unused)
{
    (void)CU(cuEventQuery)(event);
    atomic_fetch_add(&returned, 1);
    return unused;
}

static void *synchronise(void *unused)
{
    (void)CU(cuCtxSetCurrent)(context);
    CHECK_EQ(CU(cuCtxSynchronize)(), CUDA_SUCCESS);
    atomic_fetch_add(&returned, 1);
    return unused;
}

static void *allocate(void *unused)
{
    (void)CU(cuCtxSetCurrent)(context);
    give(take(MIB));
    atomic_fetch_add(&returned, 1);
    return unused;
}

static void *copy(void *unused)
{
    (void)CU(cuCtxSetCurrent)(context);
    CHECK(has_marks(pointers[1], sizes[1], 1));
    atomic_fetch_add(&returned, 1);
    return unused;
}

BED_TEST("while it is parked no thread calls the driver, whatever it is ordered while it is marked",
    .limit = "4GiB", .environment = {ON})
{
    static void *(*const calls[])(void *) = {query, synchronise, allocate, copy};
    pthread_t threads[4];
    bed_context(0);
    REQUIRE(CU(cuCtxGetCurrent)(&context) == CUDA_SUCCESS);
    REQUIRE(CU(cuEventCreate)(&event, 0) == CUDA_SUCCESS);
    take_all();
    CHECK_EQ(order_done(VGPU_RELEASE_CHECKPOINT), VGPU_RELEASE_PARKED);
    CHECK_EQ(usage()->spilled, usage()->bytes - usage()->context - usage()->module);
    uint64_t called = sim_calls_all("cu");
    for (unsigned i = 0; i < 4; i++)
        REQUIRE(pthread_create(&threads[i], NULL, calls[i], NULL) == 0);
    mark(VGPU_RELEASE_CHECKPOINTED);
    (void)order(VGPU_RELEASE_NONE);
    bed_sleep_ms(1500); /* the mover, the placer and the governor look once a second at least */
    CHECK_EQ(sim_calls_all("cu"), called);
    CHECK_EQ(returned, 0);
    mark(VGPU_RELEASE_PARKED);
    CHECK_EQ(order_done(VGPU_RELEASE_NONE), VGPU_RELEASE_IDLE);
    for (unsigned i = 0; i < 4; i++)
        CHECK_EQ(pthread_join(threads[i], NULL), 0);
    all_is_there();
    give_all();
}

BED_TEST("an order for another release takes it out of the park, and a second one keeps it there",
    .limit = "4GiB", .environment = {ON})
{
    bed_context(0);
    take_all();
    CHECK_EQ(order_done(VGPU_RELEASE_CHECKPOINT), VGPU_RELEASE_PARKED);
    CHECK_EQ(order_done(VGPU_RELEASE_CHECKPOINT), VGPU_RELEASE_PARKED);
    CHECK_EQ(order_done(VGPU_RELEASE_ON_DEMAND), VGPU_RELEASE_DONE);
    all_is_there();
    CHECK_EQ(order_done(VGPU_RELEASE_CHECKPOINT), VGPU_RELEASE_PARKED);
    CHECK_EQ(order_done(VGPU_RELEASE_PAUSE), VGPU_RELEASE_DONE);
    CHECK_EQ(order_done(VGPU_RELEASE_NONE), VGPU_RELEASE_IDLE);
    all_is_there();
    give_all();
}

BED_TEST("a forked child takes nothing away, and works", .limit = "4GiB", .environment = {ON})
{
    bed_context(0);
    take_all();
    CHECK_EQ(order_done(VGPU_RELEASE_CHECKPOINT), VGPU_RELEASE_PARKED);
    pid_t child = fork();
    if (child == 0) {
        /* A fork has no driver. */
        _exit(CU(cuCtxSynchronize)() == CUDA_ERROR_NOT_INITIALIZED ? 0 : 1);
    }
    int status;
    REQUIRE(waitpid(child, &status, 0) == child);
    CHECK_EQ(status, 0);
    CHECK_EQ(order_done(VGPU_RELEASE_NONE), VGPU_RELEASE_IDLE);
    all_is_there();
    give_all();
}

/* ---- each call fails in turn ---- */

static const char *const steps[] = {"cuMemExportToShareableHandle", "cuMemUnmap", "cuMemRelease",
    "cuMemImportFromShareableHandle", "cuMemMap", "cuMemSetAccess"};

/* One that was killed leaves its order to the container. */
static void begin_anew(void)
{
    if (bed_region())
        (void)order(VGPU_RELEASE_NONE);
}

static void park_while_failing(void *argument)
{
    const struct failing *failing = argument;
    char path[256], rule[128];
    begin_anew();
    snprintf(path, sizeof(path), "%s/machine-%s-%u", bed_directory(), failing->step, failing->nth);
    setenv("VGPU_SIM_MACHINE", path, 1);
    snprintf(rule, sizeof(rule), "fail=%s:%u:%u", failing->step, failing->nth, failing->code);
    setenv("VGPU_SIM", failing->nth ? rule : "", 1);
    bed_context(0);
    take_all();
    uint64_t full = usage()->bytes, first = sim_calls(failing->step);
    enum vgpu_release_state state = order_done(VGPU_RELEASE_CHECKPOINT);
    CHECK(
        state == VGPU_RELEASE_PARKED || state == VGPU_RELEASE_DONE || state == VGPU_RELEASE_PARTLY);
    CHECK_EQ(usage()->bytes, full);
    state = order_done(VGPU_RELEASE_NONE);
    CHECK(state == VGPU_RELEASE_IDLE || state == VGPU_RELEASE_PARTLY);
    if (!failing->nth) {
        CHECK_EQ(state, VGPU_RELEASE_IDLE);
        *failing->ret_first = first;
        *failing->ret_last = sim_calls(failing->step);
    }
    all_is_there();
    CHECK_EQ(usage()->bytes, full);
    give_all();
    unlink(path);
    exit(0);
}

BED_TEST("whichever call of a park and of its end fails, no byte is lost and the account is exact",
    .limit = "4GiB", .environment = {ON})
{
    for (unsigned i = 0; i < sizeof(steps) / sizeof(steps[0]); i++)
        sweep_failing(steps[i], park_while_failing);
}

static void take_the_limit(void *unused)
{
    (void)unused;
    bed_context(0);
    give(take(7 * GIB));
    exit(0);
}

BED_TEST("killed before any call of it it leaves nothing charged, stopped there it goes on",
    .limit = "8GiB", .environment = {ON})
{
    for (unsigned i = 0; i < sizeof(steps) / sizeof(steps[0]); i++) {
        sweep_signals(steps[i], park_while_failing);
        begin_anew();
        CHECK(bed_ended_well(bed_fork(take_the_limit, NULL)));
    }
}

int main(int argc, char **argv)
{
    return check_run(argc, argv);
}
