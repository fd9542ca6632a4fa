/* SPDX-License-Identifier: Apache-2.0 */
/* The simulated machine's kernels that meet: they go on only while all of a meeting run, keep their
 * devices busy meanwhile, and are over together. Times are the machine's own. */
#include "program.h"

#include "sim/machine/machine_layout.h"

#include "check.h"

#define MS 1000000ull

static const char ptx[] = ".version 6.4\n.target sm_70\n.address_size 64\n"
                          ".visible .entry meet(.param .u64 duration_ns, .param .u64 meeting,\n"
                          ".param .u32 parties)\n{\nret;\n}\n"
                          ".visible .entry spin(.param .u64 duration_ns)\n{\nret;\n}\n";

static struct {
    CUcontext context;
    CUstream stream;
    CUfunction meet, spin;
} sides[2];

static void sides_begin(void)
{
    begin("2xh200");
    REQUIRE(driver_load());
    DRIVER_CALL(driver.cuInit(0));
    for (int i = 0; i < 2; i++) {
        CUmodule module;
        DRIVER_CALL(driver.cuDevicePrimaryCtxRetain(&sides[i].context, i));
        DRIVER_CALL(driver.cuCtxSetCurrent(sides[i].context));
        DRIVER_CALL(driver.cuModuleLoadData(&module, ptx));
        DRIVER_CALL(driver.cuModuleGetFunction(&sides[i].meet, module, "meet"));
        DRIVER_CALL(driver.cuModuleGetFunction(&sides[i].spin, module, "spin"));
        sides[i].stream = stream_new();
    }
}

static void put(int side, CUfunction kernel, uint64_t ns, uint64_t meeting)
{
    uint32_t parties = 2;
    void *params[] = {&ns, &meeting, &parties};
    DRIVER_CALL(driver.cuCtxSetCurrent(sides[side].context));
    DRIVER_CALL(
        driver.cuLaunchKernel(kernel, 1, 1, 1, 32, 1, 1, 0, sides[side].stream, params, NULL));
}

static void meet(int side, uint64_t ns, uint64_t meeting)
{
    put(side, sides[side].meet, ns, meeting);
}

static CUevent mark(int side)
{
    DRIVER_CALL(driver.cuCtxSetCurrent(sides[side].context));
    return record(sides[side].stream);
}

static int64_t elapsed_us(CUevent from, CUevent to)
{
    float ms = 0;
    DRIVER_CALL(driver.cuEventElapsedTime(&ms, from, to));
    return (int64_t)((double)ms * 1000 + 0.5);
}

static void finish(void)
{
    for (int i = 0; i < 2; i++) {
        DRIVER_CALL(driver.cuCtxSetCurrent(sides[i].context));
        DRIVER_CALL(driver.cuCtxSynchronize());
    }
}

static uint64_t busy_ns(unsigned device)
{
    uint64_t busy = 0;
    sim_lock();
    sim_timeline_look_locked();
    for (uint32_t i = 0; i < sim_machine->timeline.groups_end; i++) {
        const struct sim_group *group = &sim_machine->timeline.groups[i];
        if (group->live && group->pid == getpid())
            busy = sim_machine->slots[group->slot].busy_ns[device];
    }
    sim_unlock();
    return busy;
}

TEST("a kernel waits on its device for the one that it meets, and keeps the device busy")
{
    sides_begin();
    put(1, sides[1].spin, 100 * MS, 0); /* what the other side's is behind */
    uint64_t before = sim_clock_ns();
    CUevent begins[2] = {mark(0), mark(1)}, ends[2];
    meet(0, 5 * MS, 7);
    uint64_t launching =
        sim_clock_ns() - before; /* a computer that is busy elsewhere takes its time */
    meet(1, 5 * MS, 7);
    for (int i = 0; i < 2; i++)
        ends[i] = mark(i);
    finish();
    CHECK_EQ(elapsed_us(begins[1], ends[1]), 5000);
    /* Launched some time after the other side's 100 ms began. */
    int64_t took = elapsed_us(begins[0], ends[0]);
    CHECK(took > 5000 && took <= 105000);
    uint64_t busy = busy_ns(0), whole = (uint64_t)took * 1000;
    CHECK(busy <= whole + MS && busy + launching + MS >= whole);
    CHECK_EQ(busy_ns(1), 105 * MS);
}

TEST("kernels of other meetings wait for each other for ever")
{
    sides_begin();
    meet(0, MS, 1);
    meet(1, MS, 2);
    nap_ms(50);
    for (int i = 0; i < 2; i++)
        CHECK_EQ(driver.cuStreamQuery(sides[i].stream), CUDA_ERROR_NOT_READY);
    CHECK(busy_ns(0) >= 40 * MS);
}

TEST("a row of meetings takes as long as its kernels, and both sides end together")
{
    sides_begin();
    put(0, sides[0].spin, 100 * MS, 0);
    put(1, sides[1].spin, 100 * MS, 0);
    CUevent begins[2] = {mark(0), mark(1)}, ends[2];
    for (uint64_t meeting = 1; meeting <= 20; meeting++) {
        meet(0, MS / 2, meeting);
        meet(1, MS / 2, meeting);
    }
    for (int i = 0; i < 2; i++)
        ends[i] = mark(i);
    finish();
    /* The later side's 100 ms ended later than the other's. */
    int64_t took[2] = {elapsed_us(begins[0], ends[0]), elapsed_us(begins[1], ends[1])};
    CHECK_EQ(took[0] < took[1] ? took[0] : took[1], 10000);
}

int main(int argc, char **argv)
{
    return check_run(argc, argv);
}
