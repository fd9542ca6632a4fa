/* SPDX-License-Identifier: Apache-2.0 */
/* What was done in the time measured: kernels in windows, latencies, the device's
 * utilisation as NVML tells it, the process's own CPU time. */
#ifndef VGPU_LOAD_METER_H
#define VGPU_LOAD_METER_H

#include "load/driver.h"
#include "load/options.h"

#include <pthread.h>
#include <stdatomic.h>
#include <stddef.h>

#define LOAD_LATENCIES_MAX (1u << 17)

struct load_meter {
    const struct load_options *options;
    double kernel_s;   /* a kernel's native duration */
    const char *label; /* before each line of text */
    uint64_t start_ns;
    uint64_t begin_ns, end_ns; /* CLOCK_MONOTONIC, of the time measured; end 0: not known yet */
    uint64_t reported_ns, reported_kernels;
    uint64_t kernels, launches, copies;
    double cpu_s;
    uint32_t *windows; /* kernels that ended in each */
    size_t window_count, window_room;
    double *latencies_us; /* a fair sample of all */
    uint64_t latency_count;
    atomic_bool measuring;
    bool closed, stopped; /* the time is over; before its end */
    CUdevice device;      /* whose utilisation is sampled */
    pthread_t sampler;
    bool sampling;
    atomic_bool sampler_ends;
    atomic_uint sampled_percent; /* the last */
    uint64_t sampled_us;         /* when that sample ended, by NVML's clock, which is the wall's */
    double sampled_sum;          /* of those within the time measured */
    unsigned sampled_count;
};

/* A kernel's native duration, and the time before which the load does not begin. */
void load_meter_init(struct load_meter *meter, const struct load_options *options, double kernel_us,
    uint64_t start_ns);

/* Called by each shape when it has what it needs: waits for the start, and begins the warm-up. */
void load_meter_begin(struct load_meter *meter);

void load_meter_start_sampler(struct load_meter *meter, CUdevice device);

/* Called often by the loop of each shape: begins to measure when the warm-up is over, prints the
 * lines that are due. False where the loop is to end: the time measured ends with that, somewhat
 * later than asked for where the loop was held up. What is counted later is left out, but for the
 * latency of what had begun. */
bool load_meter_goes_on(struct load_meter *meter);

/* Kernels that ended now; kernels that were launched, and the calls that did it. */
void load_meter_count(struct load_meter *meter, unsigned kernels);
void load_meter_launch(struct load_meter *meter, unsigned calls);
void load_meter_copy(struct load_meter *meter);
void load_meter_latency(struct load_meter *meter, uint64_t ns);

/* After the loop, which load_meter_goes_on has ended. */
void load_meter_finish(struct load_meter *meter);

double load_meter_seconds(const struct load_meter *meter);
double load_meter_work_per_second(const struct load_meter *meter);
/* -1 where NVML was not there. */
double load_meter_utilization(const struct load_meter *meter);
/* Sorts the latencies; 0 to 1. */
double load_meter_latency_us(struct load_meter *meter, double quantile);

#endif
