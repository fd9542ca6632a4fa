/* SPDX-License-Identifier: Apache-2.0 */
/* A ring of events. */
#include "load/queue.h"

#define BATCH_US 1000
#define OUTSTANDING_US 64000
#define BATCH_LAUNCHES_MAX 64
#define LAUNCHES_MAX 1024
#define REST_US_MAX 1000
#define REST_US_MIN 20

static unsigned clamp(double value, unsigned min, unsigned max)
{
    return value < min ? min : value > max ? max : (unsigned)value;
}

void load_queue_init(
    struct load_queue *queue, CUstream stream, double launch_us, unsigned kernels, unsigned share)
{
    *queue = (struct load_queue){.stream = stream};
    queue->launches = clamp(BATCH_US / launch_us, 1, BATCH_LAUNCHES_MAX);
    queue->kernels = queue->launches * kernels;
    /* Two, so that the next waits on the device when one ends. */
    queue->limit = clamp(OUTSTANDING_US / launch_us / queue->launches / share, 2, LOAD_BATCHES_MAX);
    if (queue->limit * queue->launches * share > LAUNCHES_MAX)
        queue->limit = clamp((double)LAUNCHES_MAX / queue->launches / share, 2, LOAD_BATCHES_MAX);
    for (unsigned i = 0; i < queue->limit; i++)
        LOAD_CALL(cuEventCreate, &queue->events[i], CU_EVENT_DISABLE_TIMING);
}

bool load_queue_full(const struct load_queue *queue)
{
    return queue->count == queue->limit;
}

void load_queue_mark(struct load_queue *queue)
{
    LOAD_CALL(
        cuEventRecord, queue->events[(queue->first + queue->count) % queue->limit], queue->stream);
    queue->count++;
}

void load_queue_put(struct load_queue *queue, const struct load_device *device,
    const struct load_kernel *kernel, struct load_meter *meter)
{
    for (unsigned i = 0; i < queue->launches; i++)
        load_kernel_launch(device, kernel, queue->stream);
    load_meter_launch(meter, queue->launches);
    load_queue_mark(queue);
}

unsigned load_queue_reap(struct load_queue *queue)
{
    unsigned ended = 0;
    while (queue->count) {
        CUresult result = load_cuda.cuEventQuery(queue->events[queue->first]);
        if (result == CUDA_ERROR_NOT_READY)
            break;
        load_check(result, "cuEventQuery");
        queue->first = (queue->first + 1) % queue->limit;
        queue->count--;
        ended++;
    }
    return ended;
}

unsigned load_queue_rest_us(const struct load_queue *queue, double launch_us)
{
    return clamp(queue->limit * queue->launches * launch_us / 16, REST_US_MIN, REST_US_MAX);
}
