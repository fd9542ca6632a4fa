/* SPDX-License-Identifier: Apache-2.0 */
/* Fills, all as one two-dimensional form. Contents are kept for transfers up to
 * CONTENTS_KEPT_BYTES; a larger one only takes its time. */
#include "sim/work/stream.h"

#include <string.h>

/* About the rate of an H200's memory. */
#define FILL_BYTES_PER_US 2400000
/* The duration of the smallest fill. */
#define FILL_LEAST_NS 2000

struct sim_work fill_work(const CUDA_MEMSET_NODE_PARAMS *fill)
{
    uint64_t bytes = fill->width * fill->elementSize * fill->height;
    struct sim_work work = {.kind = SIM_WORK_KERNEL};

    if (bytes)
        work.duration_ns = FILL_LEAST_NS + bytes * 1000 / FILL_BYTES_PER_US;
    return work;
}

CUresult fill_execute(const CUDA_MEMSET_NODE_PARAMS *fill)
{
    uint64_t row = fill->width * fill->elementSize;
    char *host;
    CUresult r;

    if (!row || !fill->height)
        return CUDA_SUCCESS;
    if (fill->elementSize != 1 && fill->elementSize != 2 && fill->elementSize != 4)
        return CUDA_ERROR_INVALID_VALUE;
    if (fill->dst % fill->elementSize || (fill->height > 1 && fill->pitch < row))
        return CUDA_ERROR_INVALID_VALUE;
    r = contents_of(fill->dst, row + (fill->height - 1) * fill->pitch, &host);
    if (r != CUDA_SUCCESS || !host)
        return r;
    for (uint64_t y = 0; y < fill->height; y++) {
        char *at = host + y * fill->pitch;

        if (fill->elementSize == 1) {
            memset(at, (int)fill->value, row);
            continue;
        }
        for (uint64_t x = 0; x < row; x += fill->elementSize)
            memcpy(at + x, &fill->value, fill->elementSize);
    }
    value_queue_memory_changed();
    return CUDA_SUCCESS;
}
