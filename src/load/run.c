/* SPDX-License-Identifier: Apache-2.0 */
/* From the options to a load that is ready. */
#include "load/run.h"

#include "load/stop.h"

#include <string.h>

static enum load_form form_of(enum load_shape shape)
{
    switch (shape) {
    case SHAPE_ONE_BLOCK:
        return FORM_ONE_BLOCK;
    case SHAPE_GRAPH:
        return FORM_GRAPH;
    case SHAPE_COOPERATIVE:
        return FORM_COOPERATIVE;
    case SHAPE_PERSISTENT:
        return FORM_PERSISTENT;
    default:
        return FORM_FULL;
    }
}

void load_run_open(struct load_run *run, const struct load_options *options)
{
    run->options = options;
    load_watch_stop();
    load_cuda_open();
    load_device_open(&run->device, (unsigned)options->device);
}

static void read_calibration(struct load_run *run, enum load_form form)
{
    const char *path = run->options->calibration;
    load_calibration_read(&run->calibration, path);
    if (run->calibration.rates[form].steps_per_us <= 0)
        load_fail("--calibration \"%.256s\" says nothing of %s kernels; --save-calibration "
                  "measures all",
            path, load_form_name(form));
    if (strcmp(run->calibration.device, run->device.name) != 0)
        load_error("--calibration \"%.256s\" was made on another device: %s, not %s", path,
            run->calibration.device, run->device.name);
}

void load_run_calibrate(struct load_run *run)
{
    const struct load_options *options = run->options;
    enum load_form form = form_of(options->shape);
    CUstream stream;
    if (options->calibration) {
        read_calibration(run, form);
        return;
    }
    LOAD_CALL(cuStreamCreate, &stream, CU_STREAM_NON_BLOCKING);
    load_calibration_warm_up(&run->device, stream);
    for (int i = 0; i < FORMS; i++) {
        bool wanted = options->save_calibration ? i != FORM_COOPERATIVE || run->device.cooperative
                                                : i == (int)form;
        if (wanted)
            load_calibration_measure(&run->calibration, &run->device, (enum load_form)i, stream);
    }
    if (options->save_calibration)
        load_calibration_save(&run->calibration, options->save_calibration);
}

void load_run_prepare(struct load_run *run)
{
    enum load_form form = form_of(run->options->shape);
    const struct load_rate *rate = &run->calibration.rates[form];
    uint32_t steps = load_calibration_steps(rate, (double)run->options->kernel_us);
    run->kernel_us = load_calibration_us(rate, steps);
    run->kernel = load_kernel_make(&run->device, form, steps);
    load_meter_start_sampler(&run->meter, run->device.device);
}

void load_run_print(struct load_run *run)
{
    struct load_meter *meter = &run->meter;
    const struct load_rate *rate = &run->calibration.rates[run->kernel.form];
    double seconds = load_meter_seconds(meter);
    printf("%s%s of %.1f us for %.3f s: work per second %.4f, %llu kernels, %.0f launches/s, "
           "CPU %.3f s",
        meter->label, load_shape_name(run->options->shape), run->kernel_us, seconds,
        load_meter_work_per_second(meter), (unsigned long long)meter->kernels,
        seconds > 0 ? (double)meter->launches / seconds : 0, meter->cpu_s);
    if (load_meter_utilization(meter) >= 0)
        printf(", NVML %.1f %%", load_meter_utilization(meter));
    if (meter->latency_count)
        printf(", latency p50 %.1f us, p99 %.1f us", load_meter_latency_us(meter, 0.5),
            load_meter_latency_us(meter, 0.99));
    if (run->options->shape == SHAPE_COPIES || run->options->shape == SHAPE_COPY)
        printf(", %llu copies of %.1f MiB", (unsigned long long)meter->copies,
            (double)run->options->copy_bytes / (1 << 20));
    puts("");
    if (rate->spread > 0.1)
        printf("%sThe calibration was disturbed (its measurements differ by %.0f %%); make one "
               "without a limit and with the device to yourself: --save-calibration\n",
            meter->label, rate->spread * 100);
    fflush(stdout);
}

static void write_latencies(struct load_meter *meter, FILE *file)
{
    if (!meter->latency_count) {
        fputs(", \"latency_us\": null", file);
        return;
    }
    fprintf(file,
        ", \"latency_us\": {\"p50\": %.2f, \"p90\": %.2f, \"p99\": %.2f, \"max\": %.2f, \"count\": "
        "%llu}",
        load_meter_latency_us(meter, 0.5), load_meter_latency_us(meter, 0.9),
        load_meter_latency_us(meter, 0.99), load_meter_latency_us(meter, 1),
        (unsigned long long)meter->latency_count);
}

void load_run_write_json(struct load_run *run, FILE *file)
{
    struct load_meter *meter = &run->meter;
    double seconds = load_meter_seconds(meter);
    fprintf(file,
        "{\"shape\": \"%s\", \"kernel_us\": %.4f, \"steps\": %u, \"streams\": %llu, "
        "\"seconds\": %.4f, \"work_per_second\": %.5f, \"kernels\": %llu, "
        "\"launches_per_second\": %.1f, \"copies\": %llu, \"cpu_seconds\": %.4f, \"stopped\": %s",
        load_shape_name(run->options->shape), run->kernel_us, run->kernel.steps,
        (unsigned long long)run->options->streams, seconds, load_meter_work_per_second(meter),
        (unsigned long long)meter->kernels, seconds > 0 ? (double)meter->launches / seconds : 0,
        (unsigned long long)meter->copies, meter->cpu_s, meter->stopped ? "true" : "false");
    if (load_meter_utilization(meter) >= 0)
        fprintf(file, ", \"nvml_utilization\": %.2f", load_meter_utilization(meter));
    else
        fputs(", \"nvml_utilization\": null", file);
    write_latencies(meter, file);
    fprintf(file, ", \"begin_ns\": %llu, \"window_ms\": %llu, \"windows\": [",
        (unsigned long long)meter->begin_ns, (unsigned long long)run->options->window_ms);
    for (size_t i = 0; i < meter->window_count; i++)
        fprintf(file, "%s%.4f", i ? ", " : "",
            meter->windows[i] * meter->kernel_s * 1e3 / (double)run->options->window_ms);
    fputs("], \"calibration\": ", file);
    load_calibration_write(&run->calibration, file);
    fputc('}', file);
}
