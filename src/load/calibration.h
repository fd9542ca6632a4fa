/* SPDX-License-Identifier: Apache-2.0 */
/* How long a kernel of a number of steps takes when kernels follow each other without a gap. */
#ifndef VGPU_LOAD_CALIBRATION_H
#define VGPU_LOAD_CALIBRATION_H

#include "load/kernel.h"

#include <stdio.h>

/* A kernel of n steps takes overhead_us + n / steps_per_us. */
struct load_rate {
    double steps_per_us, overhead_us; /* 0 steps: not known */
    double spread;                    /* of the measurements, (largest - smallest) / smallest */
};

struct load_calibration {
    char device[128];
    struct load_rate rates[FORMS];
};

/* Measures the form. `stream` is idle. */
void load_calibration_measure(struct load_calibration *calibration, struct load_device *device,
    enum load_form form, CUstream stream);

/* Runs kernels until the clocks are those of a device that works. */
void load_calibration_warm_up(const struct load_device *device, CUstream stream);

/* End the program, with the file's name and the reason, where it cannot be used. */
void load_calibration_read(struct load_calibration *calibration, const char *path);
void load_calibration_save(const struct load_calibration *calibration, const char *path);

/* As a JSON object, without a newline at the end. */
void load_calibration_write(const struct load_calibration *calibration, FILE *file);

/* The steps of a kernel of a duration, and the duration of that number of steps. */
uint32_t load_calibration_steps(const struct load_rate *rate, double kernel_us);
double load_calibration_us(const struct load_rate *rate, uint32_t steps);

#endif
