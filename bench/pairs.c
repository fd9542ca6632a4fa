/* SPDX-License-Identifier: Apache-2.0 */
/* What two events say of a kernel between them, beside what it takes in a row of its like and what
 * NVML counts for it. For docs/decisions/0013; natively, on a card that no other program uses, in
 * some 20 s. Nanoseconds, medians of 300 (warm) or 60: K         the kernel in us; how: what the
 * host did before, which decides on its caches: it turned (warm), read more than they hold (cold),
 * or slept for 5 ms (quiet5ms) row       a launch of 400 in a row, by two events around them S1 S2
 * S3  the pair around a launch on an idle stream, less the time from the first event's record to
 * the launch's return, less row; with 0, 1, 2 events recorded before the pair R Rcold   between two
 * events right behind each other: once one was recorded before, and not wv        the pair behind a
 * wait for a value that comes once all is queued, less row Then launches in turn with host work
 * that is longer than the kernel (spin: it turns; cold: it reads 256 KiB first), and NVML's busy
 * time for each of them. What a driver lacks is a `-`. */
#include "driver.h"
#include "median.h"

#include "abi/nvml.h"

#include <dlfcn.h>
#include <math.h>
#include <stdatomic.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <time.h>
#include <unistd.h>

#define SAMPLES_MAX 300
#define SAMPLES_FEW 60 /* a cold or quiet one takes 5 ms and more */
#define ROW 400
#define ROWS 9
#define BEFORE_MAX 2
#define STEPS_MAX 1000000
#define COLD_BYTES (48u << 20)
#define HOST_WORK_BYTES (256u << 10)
#define WARM_UP_NS 1000000000ull
/* NVML's samples are of 200 ms: six of them fit behind the first 0.3 s. */
#define TURNS_BEGIN_NS 300000000ull
#define TURNS_NS 1600000000ull
#define NVML_SAMPLE_US 200000
#define NVML_SAMPLES_MAX 512

/* Steps on a card, which are calibrated; nanoseconds on the simulator. */
static const char ptx[] =
    ".version 6.4\n.target sm_70\n.address_size 64\n"
    ".visible .entry work(\n"
    "    .param .u64 duration_ns, .param .u32 steps, .param .u64 sink)\n"
    "{\n"
    "    .reg .pred %p<3>;\n"
    "    .reg .b32 %r<6>;\n"
    "    .reg .b64 %rd<3>;\n"
    "    ld.param.u32 %r1, [steps];\n"
    "    ld.param.u64 %rd1, [sink];\n"
    "    cvta.to.global.u64 %rd2, %rd1;\n"
    "    mov.u32 %r2, %tid.x;\n"
    "    or.b32 %r5, %r2, 1;\n"
    "    mov.u32 %r4, %r2;\n"
    "step:\n"
    "    mad.lo.u32 %r4, %r4, %r4, %r5;\n"
    "    sub.u32 %r1, %r1, 1;\n"
    "    setp.ne.u32 %p1, %r1, 0;\n"
    "    @%p1 bra step;\n"
    "    setp.ne.u32 %p2, %r4, 305419896;\n" /* so that no step can be left out */
    "    @%p2 bra done;\n"
    "    st.global.u32 [%rd2], %r4;\n"
    "done:\n"
    "    ret;\n"
    "}\n";

struct kernel {
    uint64_t duration_ns;
    uint32_t steps;
    double row_ns;
};

enum caches { WARM, COLD, QUIET, CACHES };
static const char *const caches_names[CACHES] = {"warm", "cold", "quiet5ms"};

struct figures {
    double idle_ns[BEFORE_MAX + 1];
    double repeated_ns, repeated_cold_ns;
    double queued_ns; /* NAN where the driver has no wait for a value */
};

static CUfunction work;
static CUstream stream;
static CUdeviceptr sink;
static unsigned blocks;
static CUevent begin_event, end_event, before[BEFORE_MAX];
static _Atomic(uint32_t) *word; /* NULL where the card sees none of the host's memory */
static CUdeviceptr word_address;
static char memory[COLD_BYTES];
static volatile uint64_t memory_sum;

static struct {
    __typeof__(nvmlInit_v2) *init;
    __typeof__(nvmlDeviceGetHandleByPciBusId_v2) *by_bus;
    __typeof__(nvmlDeviceGetSamples) *samples;
    nvmlDevice_t device; /* NULL where there is no NVML */
} nvml;

static uint64_t now_ns(void)
{
    struct timespec now;
    clock_gettime(CLOCK_MONOTONIC, &now);
    return (uint64_t)now.tv_sec * 1000000000ull + (uint64_t)now.tv_nsec;
}

/* NVML's time. */
static uint64_t wall_us(void)
{
    struct timespec now;
    clock_gettime(CLOCK_REALTIME, &now);
    return (uint64_t)now.tv_sec * 1000000ull + (uint64_t)now.tv_nsec / 1000;
}

static void turn(uint64_t for_ns)
{
    uint64_t began_ns = now_ns();
    while (now_ns() - began_ns < for_ns) {
    }
}

static void read_memory(size_t bytes)
{
    uint64_t sum = 0;
    for (size_t i = 0; i < bytes; i += 64)
        sum += (unsigned char)memory[i];
    memory_sum = sum;
}

static double elapsed_ns(CUevent from, CUevent to)
{
    float ms;
    DRIVER_CALL(driver.cuEventElapsedTime(&ms, from, to));
    return (double)ms * 1e6;
}

static void record(CUevent event)
{
    DRIVER_CALL(driver.cuEventRecord(event, stream));
}

static void launch(struct kernel *kernel)
{
    void *params[] = {&kernel->duration_ns, &kernel->steps, &sink};
    DRIVER_CALL(driver.cuLaunchKernel(work, blocks, 1, 1, 256, 1, 1, 0, stream, params, NULL));
}

static void wait_for_all(void)
{
    DRIVER_CALL(driver.cuStreamSynchronize(stream));
}

static double row_ns(struct kernel *kernel, unsigned launches)
{
    record(begin_event);
    for (unsigned i = 0; i < launches; i++)
        launch(kernel);
    record(end_event);
    wait_for_all();
    return elapsed_ns(begin_event, end_event) / launches;
}

static void calibrate(struct kernel *kernel)
{
    double rows[ROWS];
    kernel->steps = 1000;
    for (unsigned i = 0; i < 3; i++) {
        double steps = (double)kernel->duration_ns / row_ns(kernel, 200) * kernel->steps;
        kernel->steps = steps > STEPS_MAX ? STEPS_MAX : (uint32_t)steps + 1;
    }
    for (unsigned i = 0; i < ROWS; i++) {
        for (unsigned k = 0; k < 50; k++) /* the row's first event has a backlog before it */
            launch(kernel);
        rows[i] = row_ns(kernel, ROW);
    }
    kernel->row_ns = median(rows, ROWS);
}

static void come_to_rest(enum caches caches)
{
    wait_for_all();
    if (caches == WARM)
        turn(20000);
    else if (caches == COLD)
        read_memory(COLD_BYTES);
    else
        nanosleep(&(struct timespec){0, 5000000}, NULL);
}

static double idle_pair_ns(struct kernel *kernel, unsigned events_before)
{
    for (unsigned i = 0; i < events_before; i++)
        record(before[i]);
    record(begin_event);
    uint64_t recorded_ns = now_ns();
    launch(kernel);
    uint64_t launched_ns = now_ns();
    record(end_event);
    wait_for_all();
    return elapsed_ns(begin_event, end_event) - (double)(launched_ns - recorded_ns) -
           kernel->row_ns;
}

/* Hangs where the launch waits for its kernel (CUDA_LAUNCH_BLOCKING, a profiler); main's alarm ends
 * that. */
static double queued_pair_ns(struct kernel *kernel)
{
    if (!word || !driver.cuStreamWaitValue32_v2)
        return NAN;
    atomic_store(word, 0);
    if (driver.cuStreamWaitValue32_v2(stream, word_address, 1, CU_STREAM_WAIT_VALUE_GEQ) !=
        CUDA_SUCCESS)
        return NAN;
    record(begin_event);
    launch(kernel);
    record(end_event);
    atomic_store(word, 1);
    wait_for_all();
    return elapsed_ns(begin_event, end_event) - kernel->row_ns;
}

static struct figures measure(struct kernel *kernel, enum caches caches)
{
    static double pairs[SAMPLES_MAX], repeated[SAMPLES_MAX], repeated_cold[SAMPLES_MAX];
    unsigned samples = caches == WARM ? SAMPLES_MAX : SAMPLES_FEW;
    struct figures figures;
    for (unsigned events = 0; events <= BEFORE_MAX; events++) {
        for (unsigned i = 0; i < samples; i++) {
            come_to_rest(caches);
            pairs[i] = idle_pair_ns(kernel, events);
            if (events == BEFORE_MAX) {
                repeated[i] = elapsed_ns(before[1], begin_event);
                repeated_cold[i] = elapsed_ns(before[0], before[1]);
            }
        }
        figures.idle_ns[events] = median(pairs, samples);
    }
    figures.repeated_ns = median(repeated, samples);
    figures.repeated_cold_ns = median(repeated_cold, samples);
    figures.queued_ns = 0;
    for (unsigned i = 0; i < samples && !isnan(figures.queued_ns); i++) {
        come_to_rest(caches);
        figures.queued_ns = pairs[i] = queued_pair_ns(kernel);
    }
    if (!isnan(figures.queued_ns))
        figures.queued_ns = median(pairs, samples);
    return figures;
}

static void print_figure(int width, int decimals, double value)
{
    if (isnan(value))
        printf(" %*s", width, "-");
    else
        printf(" %*.*f", width, decimals, value);
}

static void print_pairs(struct kernel *kernel, enum caches caches)
{
    struct figures figures = measure(kernel, caches);
    printf("%5.0f %9s |", (double)kernel->duration_ns / 1e3, caches_names[caches]);
    print_figure(8, 0, kernel->row_ns);
    printf(" |");
    for (unsigned i = 0; i <= BEFORE_MAX; i++)
        print_figure(8, 0, figures.idle_ns[i]);
    printf(" |");
    print_figure(8, 0, figures.repeated_ns);
    print_figure(8, 0, figures.repeated_cold_ns);
    print_figure(8, 0, figures.queued_ns);
    printf("\n");
    fflush(stdout);
}

/* The mean of NVML's samples that end after that; NAN where there are none. */
static double utilization_percent(uint64_t since_us)
{
    static nvmlSample_t samples[NVML_SAMPLES_MAX];
    unsigned count = NVML_SAMPLES_MAX;
    nvmlValueType_t type;
    if (!nvml.device ||
        nvml.samples(nvml.device, NVML_GPU_UTILIZATION_SAMPLES, since_us, &type, &count, samples) !=
            NVML_SUCCESS ||
        type != NVML_VALUE_TYPE_UNSIGNED_INT)
        return NAN;
    double sum = 0;
    for (unsigned i = 0; i < count; i++)
        sum += samples[i].sampleValue.uiVal;
    return count ? sum / count : NAN;
}

static void print_turns(struct kernel *kernel, enum caches caches)
{
    uint64_t began_ns = now_ns(), from_ns = 0, from_us = 0, launches = 0;
    while (now_ns() - began_ns < TURNS_NS) {
        if (!from_ns && now_ns() - began_ns > TURNS_BEGIN_NS) {
            from_us = wall_us();
            from_ns = now_ns();
            launches = 0;
        }
        launch(kernel);
        launches++;
        if (caches == COLD)
            read_memory(HOST_WORK_BYTES);
        turn(kernel->duration_ns + 5000);
    }
    double rate = (double)launches / ((double)(now_ns() - from_ns) / 1e9);
    double percent = utilization_percent(from_us + NVML_SAMPLE_US); /* whole ones only */
    wait_for_all();
    printf("%5.0f %9s %8.0f |", (double)kernel->duration_ns / 1e3, caches == COLD ? "cold" : "spin",
        rate);
    print_figure(9, 1, percent);
    print_figure(10, 2, percent / 100 * 1e6 / rate);
    printf("\n");
    fflush(stdout);
}

static void begin_nvml(CUdevice device)
{
    char bus[32];
    void *library = dlopen("libnvidia-ml.so.1", RTLD_NOW);
    if (!library)
        return;
    nvml.init = (__typeof__(nvml.init))dlsym(library, "nvmlInit_v2");
    nvml.by_bus = (__typeof__(nvml.by_bus))dlsym(library, "nvmlDeviceGetHandleByPciBusId_v2");
    nvml.samples = (__typeof__(nvml.samples))dlsym(library, "nvmlDeviceGetSamples");
    DRIVER_CALL(driver.cuDeviceGetPCIBusId(bus, sizeof(bus), device));
    if (!nvml.init || !nvml.by_bus || !nvml.samples || nvml.init() != NVML_SUCCESS ||
        nvml.by_bus(bus, &nvml.device) != NVML_SUCCESS)
        nvml.device = NULL;
}

static void begin_word(void)
{
    void *host;
    if (driver.cuMemHostAlloc(&host, sizeof(*word), CU_MEMHOSTALLOC_DEVICEMAP) == CUDA_SUCCESS &&
        driver.cuMemHostGetDevicePointer_v2(&word_address, host, 0) == CUDA_SUCCESS)
        word = host;
}

static void begin(void)
{
    CUdevice device;
    CUcontext context;
    CUmodule module;
    char name[100];
    int multiprocessors;
    DRIVER_CALL(driver.cuInit(0));
    DRIVER_CALL(driver.cuDeviceGet(&device, 0));
    DRIVER_CALL(driver.cuDeviceGetName(name, sizeof(name), device));
    DRIVER_CALL(driver.cuDeviceGetAttribute(
        &multiprocessors, CU_DEVICE_ATTRIBUTE_MULTIPROCESSOR_COUNT, device));
    blocks = (unsigned)multiprocessors;
    DRIVER_CALL(driver.cuDevicePrimaryCtxRetain(&context, device));
    DRIVER_CALL(driver.cuCtxSetCurrent(context));
    DRIVER_CALL(driver.cuModuleLoadData(&module, ptx));
    DRIVER_CALL(driver.cuModuleGetFunction(&work, module, "work"));
    DRIVER_CALL(driver.cuStreamCreate(&stream, CU_STREAM_NON_BLOCKING));
    DRIVER_CALL(driver.cuMemAlloc_v2(&sink, 4096));
    DRIVER_CALL(driver.cuEventCreate(&begin_event, CU_EVENT_DEFAULT));
    DRIVER_CALL(driver.cuEventCreate(&end_event, CU_EVENT_DEFAULT));
    for (unsigned i = 0; i < BEFORE_MAX; i++)
        DRIVER_CALL(driver.cuEventCreate(&before[i], CU_EVENT_DEFAULT));
    memset(memory, 1, sizeof(memory)); /* else all of its pages are one page of zeros */
    begin_word();
    begin_nvml(device);
    printf("%s\n", name);
}

/* Until the card has the clock that it works at. */
static void warm_up(struct kernel *kernel)
{
    kernel->steps = 5000;
    for (uint64_t began_ns = now_ns(); now_ns() - began_ns < WARM_UP_NS; wait_for_all()) {
        for (unsigned i = 0; i < 100; i++)
            launch(kernel);
    }
}

int main(int argc, char **argv)
{
    static struct kernel kernels[] = {
        {.duration_ns = 5000}, {.duration_ns = 10000}, {.duration_ns = 20000}};
    const unsigned count = sizeof(kernels) / sizeof(*kernels);
    (void)argv;
    if (argc != 1) {
        fprintf(stderr, "usage: pairs\n");
        return 2;
    }
    if (!driver_load())
        return 77;
    alarm(120);
    begin();
    warm_up(&kernels[0]);
    printf("%5s %9s | %8s | %8s %8s %8s | %8s %8s %8s\n", "K", "how", "row", "S1", "S2", "S3", "R",
        "Rcold", "wv");
    for (unsigned i = 0; i < count; i++) {
        calibrate(&kernels[i]);
        for (enum caches caches = WARM; caches < CACHES; caches++)
            print_pairs(&kernels[i], caches);
    }
    printf("%5s %9s %8s | %9s %10s\n", "K", "host", "launch/s", "NVML %", "us/launch");
    for (unsigned i = 0; i < count; i++) {
        print_turns(&kernels[i], WARM);
        print_turns(&kernels[i], COLD);
    }
    return 0;
}
