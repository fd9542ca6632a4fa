/* SPDX-License-Identifier: Apache-2.0 */
/* Counting by the time at which the end of work was seen. */
#include "load/meter.h"

#include "base/clock.h"
#include "load/stop.h"

#include <signal.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/resource.h>
#include <time.h>

#define SAMPLE_NS 100000000
/* NVML keeps samples of 200 ms (H200, driver 580.159.04), together all of the time. Its rates are
 * of 100 ms each 200 ms: of kernels in step with that they are up to ten points off. */
#define SAMPLES_MAX 256
/* NVML's first rates are of the time before. */
#define RATES_SKIPPED 3

static double cpu_seconds(void)
{
    struct rusage usage;
    getrusage(RUSAGE_SELF, &usage);
    return (double)(usage.ru_utime.tv_sec + usage.ru_stime.tv_sec) +
           (double)(usage.ru_utime.tv_usec + usage.ru_stime.tv_usec) / 1e6;
}

static uint64_t wall_us(uint64_t monotonic_ns)
{
    struct timespec now;
    clock_gettime(CLOCK_REALTIME, &now);
    uint64_t now_us = (uint64_t)now.tv_sec * 1000000 + (uint64_t)now.tv_nsec / 1000;
    return now_us - (clock_now_ns() - monotonic_ns) / 1000;
}

/* A sample covers the time since the one before it. */
static void count_sample(struct load_meter *meter, const nvmlSample_t *sample, uint64_t end_us)
{
    bool within = meter->sampled_us && meter->sampled_us >= wall_us(meter->begin_ns) &&
                  sample->timeStamp <= end_us;
    meter->sampled_us = sample->timeStamp;
    atomic_store(&meter->sampled_percent, sample->sampleValue.uiVal);
    if (!within)
        return;
    meter->sampled_sum += sample->sampleValue.uiVal;
    meter->sampled_count++;
}

/* False where the driver does not give them. */
static bool take_samples(struct load_meter *meter, nvmlDevice_t device, uint64_t end_us)
{
    static nvmlSample_t samples[SAMPLES_MAX];
    unsigned count = SAMPLES_MAX;
    nvmlValueType_t type;
    nvmlReturn_t result = load_nvml.nvmlDeviceGetSamples(
        device, NVML_GPU_UTILIZATION_SAMPLES, meter->sampled_us, &type, &count, samples);
    if (result == NVML_ERROR_NOT_FOUND)
        return true;
    if (result != NVML_SUCCESS || type != NVML_VALUE_TYPE_UNSIGNED_INT)
        return false;
    for (unsigned i = 0; i < count && i < SAMPLES_MAX; i++) {
        if (samples[i].timeStamp > meter->sampled_us)
            count_sample(meter, &samples[i], end_us);
    }
    return true;
}

static void take_rate(struct load_meter *meter, nvmlDevice_t device, unsigned *seen)
{
    nvmlUtilization_t utilization;
    if (load_nvml.nvmlDeviceGetUtilizationRates(device, &utilization) != NVML_SUCCESS)
        return;
    atomic_store(&meter->sampled_percent, utilization.gpu);
    if (++*seen <= RATES_SKIPPED)
        return;
    meter->sampled_sum += utilization.gpu;
    meter->sampled_count++;
}

static void *sample(void *argument)
{
    struct load_meter *meter = argument;
    nvmlDevice_t device;
    char bus[32];
    unsigned seen = 0;
    if (load_cuda.cuDeviceGetPCIBusId(bus, sizeof(bus), meter->device) != CUDA_SUCCESS ||
        load_nvml.nvmlDeviceGetHandleByPciBusId_v2(bus, &device) != NVML_SUCCESS)
        return NULL;
    bool given = true, measured = false;
    while (!atomic_load(&meter->sampler_ends)) {
        nanosleep(&(struct timespec){0, SAMPLE_NS}, NULL);
        if (!atomic_load(&meter->measuring))
            continue;
        measured = true;
        /* A device that gave samples once fails for a moment. */
        given = (given && take_samples(meter, device, UINT64_MAX)) || meter->sampled_us;
        if (!given)
            take_rate(meter, device, &seen);
    }
    if (given && measured)
        (void)take_samples(meter, device, wall_us(meter->end_ns));
    return NULL;
}

void load_meter_start_sampler(struct load_meter *meter, CUdevice device)
{
    sigset_t all, former;
    meter->device = device;
    atomic_store(&meter->sampled_percent, UINT32_MAX);
    if (!load_nvml_open())
        return;
    /* The signals are for the thread that works. */
    sigfillset(&all);
    pthread_sigmask(SIG_SETMASK, &all, &former);
    meter->sampling = pthread_create(&meter->sampler, NULL, sample, meter) == 0;
    pthread_sigmask(SIG_SETMASK, &former, NULL);
}

void load_meter_init(struct load_meter *meter, const struct load_options *options, double kernel_us,
    uint64_t start_ns)
{
    meter->options = options;
    meter->kernel_s = kernel_us / 1e6;
    meter->start_ns = start_ns;
    if (!meter->label)
        meter->label = "";
    meter->latencies_us = calloc(LOAD_LATENCIES_MAX, sizeof(*meter->latencies_us));
    if (!meter->latencies_us)
        load_fail("out of memory");
}

void load_meter_begin(struct load_meter *meter)
{
    const struct load_options *options = meter->options;
    uint64_t now;
    while ((now = clock_now_ns()) < meter->start_ns && !load_stop)
        nanosleep(&(struct timespec){0, (long)(meter->start_ns - now) % 1000000000}, NULL);
    /* Of processes that begin together one that comes late is measured from the common start on:
     * else each would count time that it has alone, and their sum be more than the device. */
    meter->begin_ns = meter->start_ns ? meter->start_ns : now;
    meter->begin_ns += (uint64_t)(options->warmup_s * 1e9);
    meter->reported_ns = meter->begin_ns;
    meter->end_ns = options->seconds > 0 ? meter->begin_ns + (uint64_t)(options->seconds * 1e9) : 0;
}

static void report(struct load_meter *meter, uint64_t now_ns)
{
    double seconds = (double)(now_ns - meter->reported_ns) / 1e9;
    double kernels = (double)(meter->kernels - meter->reported_kernels);
    unsigned percent = atomic_load(&meter->sampled_percent);
    char utilization[32] = "";
    if (meter->sampling && percent <= 100)
        snprintf(utilization, sizeof(utilization), "  NVML %3u %%", percent);
    printf("%s%6.1f s  work %.3f  %.0f kernels/s%s\n", meter->label,
        (double)(now_ns - meter->begin_ns) / 1e9, kernels * meter->kernel_s / seconds,
        kernels / seconds, utilization);
    fflush(stdout);
    meter->reported_ns = now_ns;
    meter->reported_kernels = meter->kernels;
}

static void close_time(struct load_meter *meter, uint64_t now_ns)
{
    meter->closed = true;
    meter->stopped = meter->end_ns == 0 || now_ns < meter->end_ns;
    meter->end_ns = now_ns > meter->begin_ns ? now_ns : meter->begin_ns;
    meter->cpu_s = meter->measuring ? cpu_seconds() - meter->cpu_s : 0;
    meter->measuring = false;
    if (!meter->options->json &&
        meter->end_ns >= meter->reported_ns + meter->options->report_ms * 900000)
        report(meter, meter->end_ns);
}

bool load_meter_goes_on(struct load_meter *meter)
{
    uint64_t now = clock_now_ns();
    if (meter->closed)
        return false;
    if (!meter->measuring && now >= meter->begin_ns) {
        meter->cpu_s = cpu_seconds();
        meter->measuring = true;
    }
    bool goes_on = !load_stop && (!meter->end_ns || now < meter->end_ns);
    if (!goes_on)
        close_time(meter, now);
    else if (!meter->options->json && meter->measuring &&
             now >= meter->reported_ns + meter->options->report_ms * 1000000)
        report(meter, now);
    return goes_on;
}

static uint64_t window_ns(const struct load_meter *meter)
{
    return meter->options->window_ms * 1000000;
}

static void count_window(struct load_meter *meter, uint64_t now_ns, unsigned kernels)
{
    size_t window = (now_ns - meter->begin_ns) / window_ns(meter);
    if (window >= meter->window_room) {
        size_t room = 2 * window + 64;
        uint32_t *windows = realloc(meter->windows, room * sizeof(*windows));
        if (!windows)
            load_fail("out of memory");
        memset(windows + meter->window_room, 0, (room - meter->window_room) * sizeof(*windows));
        meter->windows = windows;
        meter->window_room = room;
    }
    meter->windows[window] += kernels;
}

void load_meter_count(struct load_meter *meter, unsigned kernels)
{
    uint64_t now = clock_now_ns();
    if (!meter->measuring || !kernels)
        return;
    meter->kernels += kernels;
    count_window(meter, now, kernels);
}

void load_meter_launch(struct load_meter *meter, unsigned calls)
{
    if (meter->measuring)
        meter->launches += calls;
}

void load_meter_copy(struct load_meter *meter)
{
    if (meter->measuring)
        meter->copies++;
}

void load_meter_latency(struct load_meter *meter, uint64_t ns)
{
    if (!meter->measuring && !meter->closed)
        return;
    /* One that does not fit takes a random other's place, so that all are as likely to stay. */
    uint64_t place = meter->latency_count++;
    if (place >= LOAD_LATENCIES_MAX)
        place = (uint64_t)random() % meter->latency_count;
    if (place < LOAD_LATENCIES_MAX)
        meter->latencies_us[place] = (double)ns / 1000;
}

void load_meter_finish(struct load_meter *meter)
{
    if (meter->sampling) {
        atomic_store(&meter->sampler_ends, true);
        pthread_join(meter->sampler, NULL);
    }
    size_t whole = (meter->end_ns - meter->begin_ns) / window_ns(meter);
    if (whole)
        count_window(meter, meter->begin_ns + (whole - 1) * window_ns(meter), 0);
    meter->window_count = whole;
}

double load_meter_seconds(const struct load_meter *meter)
{
    return (double)(meter->end_ns - meter->begin_ns) / 1e9;
}

double load_meter_work_per_second(const struct load_meter *meter)
{
    double seconds = load_meter_seconds(meter);
    return seconds > 0 ? (double)meter->kernels * meter->kernel_s / seconds : 0;
}

double load_meter_utilization(const struct load_meter *meter)
{
    return meter->sampled_count ? meter->sampled_sum / meter->sampled_count : -1;
}

static int ascending(const void *a, const void *b)
{
    double x = *(const double *)a, y = *(const double *)b;
    return x < y ? -1 : x > y;
}

double load_meter_latency_us(struct load_meter *meter, double quantile)
{
    size_t count =
        meter->latency_count < LOAD_LATENCIES_MAX ? meter->latency_count : LOAD_LATENCIES_MAX;
    if (!count)
        return 0;
    qsort(meter->latencies_us, count, sizeof(double), ascending);
    return meter->latencies_us[(size_t)(quantile * (double)(count - 1) + 0.5)];
}
