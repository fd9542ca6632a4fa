/* SPDX-License-Identifier: Apache-2.0 */
/* What the load generator is asked to do. */
#ifndef VGPU_LOAD_OPTIONS_H
#define VGPU_LOAD_OPTIONS_H

#include <stdbool.h>
#include <stdint.h>

#define LOAD_STREAMS_MAX 32
#define LOAD_CONTEXTS_MAX 16
#define LOAD_PROCESSES_MAX 64

enum load_shape {
    SHAPE_FULL,
    SHAPE_ONE_BLOCK,
    SHAPE_GRAPH,
    SHAPE_COOPERATIVE,
    SHAPE_PER_THREAD_STREAM,
    SHAPE_PERSISTENT,
    SHAPE_STREAMS,
    SHAPE_COPIES,
    SHAPE_HOSTBOUND,
    SHAPE_SYNC,
    SHAPE_BURST,
    SHAPE_HOST_FUNCTION,
    SHAPE_WAIT,
    SHAPE_COPY,
    SHAPES
};

struct load_options {
    enum load_shape shape;
    uint64_t kernel_us, streams, contexts, device, processes;
    uint64_t host_us;         /* hostbound */
    uint64_t burst_ms;        /* burst */
    uint64_t period_ms;       /* burst, sync, copy: 0 without a pause */
    uint64_t pause_ms;        /* host-function, wait */
    uint64_t copy_bytes;      /* copies, copy */
    double seconds, warmup_s; /* 0 seconds: until stopped */
    uint64_t report_ms;       /* between two lines of text */
    uint64_t window_ms;       /* the report's windows */
    bool json;
    const char *calibration, *save_calibration;
};

const char *load_shape_name(enum load_shape shape);

/* Fills in the options with what the arguments say and, where they say nothing, with the shape's
 * defaults. Returns whether to go on; where not, *ret_status is the exit status, and help or the
 * reason was printed. */
bool load_options_parse(int argc, char **argv, struct load_options *options, int *ret_status);

#endif
