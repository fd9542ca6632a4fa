/* SPDX-License-Identifier: Apache-2.0 */
/* The meter's own calls fail, once or always: launches answer what the driver does, nothing hangs,
 * and what failed once costs the limit nothing that lasts. */
#include "abi/cuda.h"
#include "bed.h"
#include "sim/machine/machine.h"

#define CORES "CUDA_DEVICE_SM_LIMIT=20"
#define PERCENT 20
#define HUNG_SECONDS 30
#define KERNEL_NS 1000000ull
/* 1 s at the limit's pace, 0.2 s without one. */
#define LAUNCHES 200

static const char *const functions[] = {"cuEventCreate", "cuEventRecord", "cuEventQuery",
    "cuEventElapsedTime", "cuEventDestroy_v2", "cuThreadExchangeStreamCaptureMode"};
#define FUNCTIONS (sizeof(functions) / sizeof(functions[0]))

static void fail(const char *function, const char *rule)
{
    char text[512];
    const char *sim = getenv("VGPU_SIM");
    snprintf(text, sizeof(text), "%s%sfail=%s:%s", sim ? sim : "", sim && *sim ? "," : "", function,
        rule);
    setenv("VGPU_SIM", text, 1);
}

static uint64_t now_ns(void)
{
    struct timespec now;
    clock_gettime(CLOCK_MONOTONIC, &now);
    return (uint64_t)now.tv_sec * 1000000000ull + (uint64_t)now.tv_nsec;
}

static CUfunction load_spin(void)
{
    static const char text[] = ".version 6.4\n.target sm_70\n.address_size 64\n"
                               ".visible .entry spin(.param .u64 duration_ns)\n{\nret;\n}\n";
    CUmodule module;
    CUfunction spin = NULL;
    CHECK_EQ(CU(cuModuleLoadData)(&module, text), CUDA_SUCCESS);
    CHECK_EQ(CU(cuModuleGetFunction)(&spin, module, "spin"), CUDA_SUCCESS);
    return spin;
}

/* Waits now and then, as programs do. How long it took. */
static uint64_t compute(unsigned launches)
{
    CUfunction spin = load_spin();
    uint64_t duration_ns = KERNEL_NS, begin_ns = now_ns();
    void *params[] = {&duration_ns};
    for (unsigned i = 0; i < launches; i++) {
        CHECK_EQ(CU(cuLaunchKernel)(spin, 1, 1, 1, 32, 1, 1, 0, NULL, params, NULL), CUDA_SUCCESS);
        if (i % 10 == 9)
            CHECK_EQ(CU(cuCtxSynchronize)(), CUDA_SUCCESS);
    }
    CHECK_EQ(CU(cuCtxSynchronize)(), CUDA_SUCCESS);
    return now_ns() - begin_ns;
}

struct failure {
    const char *function, *rule;
};

static uint64_t count_failed(const char *function)
{
    char name[80];
    snprintf(name, sizeof(name), SIM_FAILED " %s", function);
    return sim_calls(name);
}

static void failing_once(void *argument)
{
    const struct failure *failure = argument;
    alarm(HUNG_SECONDS);
    fail(failure->function, failure->rule);
    bed_context(0);
    uint64_t before = count_failed(failure->function);
    uint64_t took_ns = compute(LAUNCHES);
    uint64_t measured_ns = bed_region_slot(getpid())->usage[0].gpu_time_ns;
    CHECK_EQ(CU(cuDevicePrimaryCtxRelease_v2)(0), CUDA_SUCCESS); /* events are dropped with it */
    bool sound = CHECK(count_failed(failure->function) > before);
    /* Half of what the limit asks for, and twice what the kernels take. */
    sound &= CHECK(took_ns > LAUNCHES * KERNEL_NS * 100 / PERCENT / 2);
    sound &= CHECK(measured_ns > LAUNCHES * KERNEL_NS / 2);
    if (!sound)
        dprintf(STDOUT_FILENO, "# %s=%s: %llu ms\n", failure->function, failure->rule,
            (unsigned long long)(took_ns / 1000000));
}

BED_TEST("a call of the meter that fails once does not end the limit", .environment = {CORES})
{
    static const char *const rules[] = {"1:2", "3:700"};
    for (size_t f = 0; f < FUNCTIONS; f++) {
        for (size_t r = 0; r < 2; r++) {
            struct failure failure = {functions[f], rules[r]};
            CHECK(bed_ended_well(bed_fork(failing_once, &failure)));
        }
    }
}

static void failing_always(void *argument)
{
    const struct failure *failure = argument;
    alarm(HUNG_SECONDS);
    fail(failure->function, failure->rule);
    bed_context(0);
    compute(30);
    CHECK_EQ(CU(cuDevicePrimaryCtxRelease_v2)(0), CUDA_SUCCESS);
}

BED_TEST("a call of the meter that always fails hangs no program", .environment = {CORES})
{
    for (size_t f = 0; f < FUNCTIONS; f++) {
        struct failure failure = {functions[f], "0:719"};
        CHECK(bed_ended_well(bed_fork(failing_always, &failure)));
    }
}

int main(int argc, char **argv)
{
    return check_run(argc, argv);
}
