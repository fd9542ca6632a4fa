/* SPDX-License-Identifier: Apache-2.0 */
/* Work outstanding on a stream: batches of launches, each with an event after it, a bounded number
 * that all ends promptly. */
#ifndef VGPU_LOAD_QUEUE_H
#define VGPU_LOAD_QUEUE_H

#include "load/kernel.h"
#include "load/meter.h"

#define LOAD_BATCHES_MAX 64

struct load_queue {
    CUstream stream;
    CUevent events[LOAD_BATCHES_MAX];
    unsigned first, count, limit;
    unsigned launches, kernels; /* of a batch */
};

/* For launches of `launch_us` each; `share` queues share the device. */
void load_queue_init(
    struct load_queue *queue, CUstream stream, double launch_us, unsigned kernels, unsigned share);
bool load_queue_full(const struct load_queue *queue);

/* Launches a batch. The queue is not full. */
void load_queue_put(struct load_queue *queue, const struct load_device *device,
    const struct load_kernel *kernel, struct load_meter *meter);

/* An event after what the caller launched itself. The queue is not full. */
void load_queue_mark(struct load_queue *queue);

/* Takes out what has ended; returns how many batches. Never waits. */
unsigned load_queue_reap(struct load_queue *queue);

/* Microseconds that may pass before a full queue needs to be looked at. */
unsigned load_queue_rest_us(const struct load_queue *queue, double launch_us);

#endif
