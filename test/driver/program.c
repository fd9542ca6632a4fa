/* SPDX-License-Identifier: Apache-2.0 */
/* A program on a simulated machine that is the test's alone. */
#include "program.h"

#include "scratch.h"
#include "sim/machine/machine.h"

static const char ptx[] = ".version 6.4\n.target sm_70\n.address_size 64\n"
                          ".visible .entry spin(.param .u64 duration_ns)\n{\nret;\n}\n";

static CUfunction spin;

void begin(const char *description)
{
    setenv("VGPU_SIM", description, 1);
    setenv("VGPU_SIM_MACHINE", scratch_path("machine"), 1);
    REQUIRE(sim_attach() == 0);
}

void nap_ms(unsigned ms)
{
    struct timespec pause = {.tv_sec = ms / 1000, .tv_nsec = (long)(ms % 1000) * 1000000};
    nanosleep(&pause, NULL);
}

void program_begin(void)
{
    CUcontext context;
    CUmodule module;
    REQUIRE(driver_load());
    DRIVER_CALL(driver.cuInit(0));
    DRIVER_CALL(driver.cuDevicePrimaryCtxRetain(&context, 0));
    DRIVER_CALL(driver.cuCtxSetCurrent(context));
    DRIVER_CALL(driver.cuModuleLoadData(&module, ptx));
    DRIVER_CALL(driver.cuModuleGetFunction(&spin, module, "spin"));
}

CUstream stream_new(void)
{
    CUstream stream;
    DRIVER_CALL(driver.cuStreamCreate(&stream, CU_STREAM_NON_BLOCKING));
    return stream;
}

CUevent event_new(void)
{
    CUevent event;
    DRIVER_CALL(driver.cuEventCreate(&event, 0));
    return event;
}

void launch(CUstream stream, uint64_t duration_ns)
{
    void *params[] = {&duration_ns};
    DRIVER_CALL(driver.cuLaunchKernel(spin, 1, 1, 1, 32, 1, 1, 0, stream, params, NULL));
}

CUevent record(CUstream stream)
{
    CUevent event = event_new();
    DRIVER_CALL(driver.cuEventRecord(event, stream));
    return event;
}
