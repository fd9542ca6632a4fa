/* SPDX-License-Identifier: Apache-2.0 */
#include "load/shapes.h"

#include <time.h>

static load_shape_loop *const loops[SHAPES] = {
    [SHAPE_FULL] = load_shape_steady,
    [SHAPE_ONE_BLOCK] = load_shape_steady,
    [SHAPE_GRAPH] = load_shape_steady,
    [SHAPE_COOPERATIVE] = load_shape_steady,
    [SHAPE_PER_THREAD_STREAM] = load_shape_per_thread_stream,
    [SHAPE_PERSISTENT] = load_shape_persistent,
    [SHAPE_STREAMS] = load_shape_steady,
    [SHAPE_COPIES] = load_shape_copies,
    [SHAPE_HOSTBOUND] = load_shape_hostbound,
    [SHAPE_SYNC] = load_shape_sync,
    [SHAPE_BURST] = load_shape_burst,
    [SHAPE_HOST_FUNCTION] = load_shape_host_function,
    [SHAPE_WAIT] = load_shape_wait,
    [SHAPE_COPY] = load_shape_copy,
};

void load_shape_run(struct load_run *run, uint64_t start_ns)
{
    load_meter_init(&run->meter, run->options, run->kernel_us, start_ns);
    loops[run->options->shape](run);
    load_meter_finish(&run->meter);
}

CUstream load_shape_stream(void)
{
    CUstream stream;
    LOAD_CALL(cuStreamCreate, &stream, CU_STREAM_NON_BLOCKING);
    return stream;
}

void load_shape_rest_us(unsigned us)
{
    nanosleep(&(struct timespec){0, (long)us * 1000}, NULL);
}

double load_shape_launch_us(const struct load_run *run)
{
    return run->kernel_us * load_kernel_count(&run->kernel);
}
