/* SPDX-License-Identifier: Apache-2.0 */
/* The shapes: each a loop that launches, counts and ends when the meter says so. */
#ifndef VGPU_LOAD_SHAPES_H
#define VGPU_LOAD_SHAPES_H

#include "load/run.h"

typedef void load_shape_loop(struct load_run *run);

/* The load itself, not before the time given: returns when it has ended and was measured. */
void load_shape_run(struct load_run *run, uint64_t start_ns);

/* Always more work than the device can do (shapes_steady.c). */
load_shape_loop load_shape_steady, load_shape_per_thread_stream, load_shape_copies,
    load_shape_persistent;
/* Work that waits for the host (shapes_paced.c). */
load_shape_loop load_shape_hostbound, load_shape_sync, load_shape_burst, load_shape_host_function,
    load_shape_wait, load_shape_copy;

CUstream load_shape_stream(void);
void load_shape_rest_us(unsigned us);

/* Microseconds that one launch keeps the device busy, natively. */
double load_shape_launch_us(const struct load_run *run);

#endif
