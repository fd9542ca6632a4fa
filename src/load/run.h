/* SPDX-License-Identifier: Apache-2.0 */
/* One process's load: what it was asked for, with what, and what came of it. */
#ifndef VGPU_LOAD_RUN_H
#define VGPU_LOAD_RUN_H

#include "load/calibration.h"
#include "load/kernel.h"
#include "load/meter.h"
#include "load/options.h"

#include <stdio.h>

struct load_run {
    const struct load_options *options;
    struct load_device device;
    struct load_calibration calibration;
    struct load_kernel kernel;
    double kernel_us; /* its native duration */
    struct load_meter meter;
};

/* Opens the driver and the device. */
void load_run_open(struct load_run *run, const struct load_options *options);

/* Reads, measures and saves what the options say of the calibration. */
void load_run_calibrate(struct load_run *run);

/* With a calibration, makes the kernel, and begins to ask NVML. */
void load_run_prepare(struct load_run *run);

/* The report, as lines for people or as one JSON object without a newline at the end. */
void load_run_print(struct load_run *run);
void load_run_write_json(struct load_run *run, FILE *file);

#endif
