/* SPDX-License-Identifier: Apache-2.0 */
/* Kernels of the same name and shape of which some take much longer than the others, in rounds of
 * some launches and a wait: waits WAIT LAUNCHES SHORT_US LONG_US PERMILLE SECONDS. PERMILLE of
 * 1,000 take LONG_US, by chance. WAIT: stream, context, event (the driver waits); ask-stream,
 * ask-event (asked again and again), ask-stream-rarely (each 100 us), none (by the clock). Prints
 * how much of the time after the first third its kernels took by what they were told, alone on the
 * device, and the rounds. For docs/decisions/0012. */
#include "driver.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <time.h>
#include <unistd.h>

static CUfunction work;
static CUstream stream;
static CUevent event;

static uint64_t now_ns(void)
{
    struct timespec now;
    clock_gettime(CLOCK_MONOTONIC, &now);
    return (uint64_t)now.tv_sec * 1000000000ull + (uint64_t)now.tv_nsec;
}

static void wait_for_stream(uint64_t launched_ns)
{
    (void)launched_ns;
    DRIVER_CALL(driver.cuStreamSynchronize(stream));
}

static void wait_for_context(uint64_t launched_ns)
{
    (void)launched_ns;
    DRIVER_CALL(driver.cuCtxSynchronize());
}

static void wait_for_event(uint64_t launched_ns)
{
    (void)launched_ns;
    DRIVER_CALL(driver.cuEventRecord(event, stream));
    DRIVER_CALL(driver.cuEventSynchronize(event));
}

static void ask_stream(uint64_t launched_ns)
{
    (void)launched_ns;
    while (driver.cuStreamQuery(stream) == CUDA_ERROR_NOT_READY) {
    }
}

static void ask_stream_rarely(uint64_t launched_ns)
{
    (void)launched_ns;
    while (driver.cuStreamQuery(stream) == CUDA_ERROR_NOT_READY)
        usleep(100);
}

static void ask_event(uint64_t launched_ns)
{
    (void)launched_ns;
    DRIVER_CALL(driver.cuEventRecord(event, stream));
    while (driver.cuEventQuery(event) == CUDA_ERROR_NOT_READY) {
    }
}

static void pass_time(uint64_t launched_ns)
{
    uint64_t until = now_ns() + launched_ns;
    while (now_ns() < until) {
    }
}

static const struct {
    const char *name;
    void (*wait)(uint64_t launched_ns);
} waits[] = {{"stream", wait_for_stream}, {"context", wait_for_context}, {"event", wait_for_event},
    {"ask-stream", ask_stream}, {"ask-stream-rarely", ask_stream_rarely}, {"ask-event", ask_event},
    {"none", pass_time}};

static void begin(void)
{
    CUdevice device;
    CUcontext context;
    CUmodule module;
    DRIVER_CALL(driver.cuInit(0));
    DRIVER_CALL(driver.cuDeviceGet(&device, 0));
    DRIVER_CALL(driver.cuDevicePrimaryCtxRetain(&context, device));
    DRIVER_CALL(driver.cuCtxSetCurrent(context));
    DRIVER_CALL(driver.cuModuleLoadData(&module, driver_spin_ptx));
    DRIVER_CALL(driver.cuModuleGetFunction(&work, module, "spin"));
    DRIVER_CALL(driver.cuStreamCreate(&stream, CU_STREAM_NON_BLOCKING));
    DRIVER_CALL(driver.cuEventCreate(&event, CU_EVENT_DISABLE_TIMING));
}

/* Returns what its kernels take. */
static uint64_t launch_round(unsigned launches, uint64_t short_ns, uint64_t long_ns, int permille)
{
    uint64_t launched_ns = 0;
    for (unsigned i = 0; i < launches; i++) {
        uint64_t duration_ns = rand() % 1000 < permille ? long_ns : short_ns;
        void *params[] = {&duration_ns};
        DRIVER_CALL(driver.cuLaunchKernel(work, 132, 1, 1, 256, 1, 1, 0, stream, params, NULL));
        launched_ns += duration_ns;
    }
    return launched_ns;
}

int main(int argc, char **argv)
{
    unsigned which = 0, rounds = 0;
    while (argc > 1 && which < sizeof(waits) / sizeof(*waits) && strcmp(argv[1], waits[which].name))
        which++;
    if (argc != 7 || which == sizeof(waits) / sizeof(*waits)) {
        fprintf(stderr, "usage: waits WAIT LAUNCHES SHORT_US LONG_US PERMILLE SECONDS\n");
        return 2;
    }
    unsigned launches = (unsigned)atoi(argv[2]);
    uint64_t short_ns = (uint64_t)(atof(argv[3]) * 1e3), long_ns = (uint64_t)(atof(argv[4]) * 1e3);
    uint64_t for_ns = (uint64_t)(atof(argv[6]) * 1e9), work_ns = 0, from_ns = 0;
    if (!driver_load())
        return 77;
    begin();
    srand(7);
    for (uint64_t began_ns = now_ns(); now_ns() < began_ns + for_ns; rounds++) {
        uint64_t launched_ns = launch_round(launches, short_ns, long_ns, atoi(argv[5]));
        waits[which].wait(launched_ns);
        if (!from_ns && now_ns() > began_ns + for_ns / 3)
            from_ns = now_ns();
        else if (from_ns)
            work_ns += launched_ns;
    }
    printf("share %.3f rounds %u\n", (double)work_ns / (double)(now_ns() - from_ns), rounds);
    return 0;
}
