/* SPDX-License-Identifier: Apache-2.0 */
/* Shapes that leave the device idle at times, and how long their pieces take. */
#include "load/shapes.h"

#include "base/clock.h"
#include "load/queue.h"
#include "load/stop.h"

#include <stddef.h>

#define REST_US 1000
#define LONG_REST_US 10000
/* A copy of 1 GiB takes 20 ms (H200). The time between two looks at it, and until it is under way.
 */
#define COPY_REST_US 100
#define COPYING_NS 5000000
#define BURST_LAUNCHES_MAX 1024

static void wait_for_room(struct load_run *run, struct load_queue *queue)
{
    do {
        load_meter_count(&run->meter, load_queue_reap(queue) * queue->kernels);
        if (!load_queue_full(queue))
            return;
        load_shape_rest_us(load_queue_rest_us(queue, run->kernel_us));
    } while (load_meter_goes_on(&run->meter));
}

static void work_on_host_us(uint64_t us)
{
    uint64_t end_ns = clock_now_ns() + us * 1000;
    while (clock_now_ns() < end_ns) {
    }
}

void load_shape_hostbound(struct load_run *run)
{
    struct load_queue queue;
    unsigned unmarked = 0;
    load_queue_init(&queue, load_shape_stream(), run->kernel_us, 1, 1);
    load_meter_begin(&run->meter);
    while (load_meter_goes_on(&run->meter)) {
        load_kernel_launch(&run->device, &run->kernel, queue.stream);
        load_meter_launch(&run->meter, 1);
        if (++unmarked == queue.launches) {
            wait_for_room(run, &queue);
            if (load_queue_full(&queue))
                break;
            load_queue_mark(&queue);
            unmarked = 0;
        }
        work_on_host_us(run->options->host_us);
    }
    LOAD_CALL(cuStreamSynchronize, queue.stream);
}

static void rest_until(struct load_run *run, uint64_t until_ns)
{
    uint64_t now;
    while (load_meter_goes_on(&run->meter) && (now = clock_now_ns()) < until_ns) {
        uint64_t left_us = (until_ns - now) / 1000 + 1;
        load_shape_rest_us(left_us < LONG_REST_US ? (unsigned)left_us : LONG_REST_US);
    }
}

/* Until the period that began at *begin_ns is over. One that took longer is followed by the next at
 * once. */
static void rest_of_period(struct load_run *run, uint64_t *begin_ns)
{
    *begin_ns += run->options->period_ms * 1000000;
    if (*begin_ns < clock_now_ns())
        *begin_ns = clock_now_ns();
    rest_until(run, *begin_ns);
}

void load_shape_sync(struct load_run *run)
{
    CUstream stream = load_shape_stream();
    load_meter_begin(&run->meter);
    uint64_t period_ns = clock_now_ns();
    while (load_meter_goes_on(&run->meter)) {
        uint64_t begin_ns = clock_now_ns();
        load_meter_launch(&run->meter, 1);
        load_kernel_launch(&run->device, &run->kernel, stream);
        LOAD_CALL(cuStreamSynchronize, stream);
        load_meter_latency(&run->meter, clock_now_ns() - begin_ns);
        load_meter_count(&run->meter, 1);
        if (run->options->period_ms)
            rest_of_period(run, &period_ns);
    }
}

static void run_burst(struct load_run *run, CUstream stream, unsigned kernels)
{
    uint64_t begin_ns = clock_now_ns();
    while (kernels && !load_stop) {
        unsigned count = kernels < BURST_LAUNCHES_MAX ? kernels : BURST_LAUNCHES_MAX;
        for (unsigned i = 0; i < count; i++)
            load_kernel_launch(&run->device, &run->kernel, stream);
        load_meter_launch(&run->meter, count);
        LOAD_CALL(cuStreamSynchronize, stream);
        load_meter_count(&run->meter, count);
        kernels -= count;
    }
    load_meter_latency(&run->meter, clock_now_ns() - begin_ns);
}

void load_shape_burst(struct load_run *run)
{
    CUstream stream = load_shape_stream();
    double count = (double)run->options->burst_ms * 1000 / run->kernel_us + 0.5;
    load_meter_begin(&run->meter);
    uint64_t period_ns = clock_now_ns();
    while (load_meter_goes_on(&run->meter)) {
        run_burst(run, stream, count < 1 ? 1 : (unsigned)count);
        rest_of_period(run, &period_ns);
    }
}

/* A pause on a stream: what it waits for, and how it is made. */
struct pause {
    struct load_run *run;
    CUstream stream, other;
    CUevent event;
    uint32_t value;
    bool by_value;
};

static void pause_on_host(void *argument)
{
    const struct pause *pause = argument;
    uint64_t end_ns = clock_now_ns() + pause->run->options->pause_ms * 1000000;
    while (!load_stop && clock_now_ns() < end_ns)
        load_shape_rest_us(REST_US);
}

static void pause_by_event(struct pause *pause)
{
    LOAD_CALL(cuLaunchHostFunc, pause->other, pause_on_host, pause);
    LOAD_CALL(cuEventRecord, pause->event, pause->other);
    LOAD_CALL(cuStreamWaitEvent, pause->stream, pause->event, 0);
}

/* False where the driver has no waits for values. */
static bool pause_by_value(struct pause *pause)
{
    const struct load_device *device = &pause->run->device;
    if (!load_cuda.cuStreamWaitValue32_v2)
        return false;
    CUresult result = load_cuda.cuStreamWaitValue32_v2(pause->stream,
        device->words_address + offsetof(struct load_shared_words, value), pause->value + 1,
        CU_STREAM_WAIT_VALUE_GEQ);
    if (result == CUDA_ERROR_NOT_SUPPORTED)
        return false;
    load_check(result, "cuStreamWaitValue32_v2");
    pause->value++;
    return true;
}

static void put_pause(struct pause *pause)
{
    if (pause->run->options->shape == SHAPE_HOST_FUNCTION) {
        LOAD_CALL(cuLaunchHostFunc, pause->stream, pause_on_host, pause);
        return;
    }
    pause->by_value = pause_by_value(pause);
    if (!pause->by_value)
        pause_by_event(pause);
}

static bool is_idle(CUstream stream)
{
    CUresult result = load_cuda.cuStreamQuery(stream);
    if (result != CUDA_ERROR_NOT_READY)
        load_check(result, "cuStreamQuery");
    return result == CUDA_SUCCESS;
}

static void await_idle(struct load_run *run, CUstream first, CUstream second, unsigned rest_us)
{
    while (!is_idle(first) || !is_idle(second)) {
        load_meter_goes_on(&run->meter);
        load_shape_rest_us(rest_us);
    }
}

/* A kernel, a pause, a kernel; its latency is the pause's length and theirs. */
static void paused(struct load_run *run)
{
    struct pause pause = {.run = run, .stream = load_shape_stream(), .other = load_shape_stream()};
    LOAD_CALL(cuEventCreate, &pause.event, CU_EVENT_DISABLE_TIMING);
    load_meter_begin(&run->meter);
    while (load_meter_goes_on(&run->meter)) {
        uint64_t begin_ns = clock_now_ns();
        load_kernel_launch(&run->device, &run->kernel, pause.stream);
        put_pause(&pause);
        load_kernel_launch(&run->device, &run->kernel, pause.stream);
        load_meter_launch(&run->meter, 2);
        if (pause.by_value)
            rest_until(run, begin_ns + run->options->pause_ms * 1000000);
        run->device.words->value = pause.value;
        await_idle(run, pause.stream, pause.other, REST_US / 2);
        load_meter_latency(&run->meter, clock_now_ns() - begin_ns);
        load_meter_count(&run->meter, 2);
    }
}

void load_shape_host_function(struct load_run *run)
{
    paused(run);
}

void load_shape_wait(struct load_run *run)
{
    paused(run);
}

/* A kernel, a copy and a kernel on one stream, and a kernel beside the copy on another. */
void load_shape_copy(struct load_run *run)
{
    CUstream stream = load_shape_stream(), other = load_shape_stream();
    size_t bytes = run->options->copy_bytes;
    CUdeviceptr target;
    void *source;
    LOAD_CALL(cuMemHostAlloc, &source, bytes, 0);
    LOAD_CALL(cuMemAlloc_v2, &target, bytes);
    load_meter_begin(&run->meter);
    uint64_t period_ns = clock_now_ns();
    while (load_meter_goes_on(&run->meter)) {
        uint64_t begin_ns = clock_now_ns();
        load_kernel_launch(&run->device, &run->kernel, stream);
        LOAD_CALL(cuMemcpyHtoDAsync_v2, target, source, bytes, stream);
        load_kernel_launch(&run->device, &run->kernel, stream);
        rest_until(run, begin_ns + COPYING_NS);
        load_kernel_launch(&run->device, &run->kernel, other);
        load_meter_launch(&run->meter, 3);
        await_idle(run, stream, other, COPY_REST_US);
        load_meter_latency(&run->meter, clock_now_ns() - begin_ns);
        load_meter_count(&run->meter, 3);
        load_meter_copy(&run->meter);
        if (run->options->period_ms)
            rest_of_period(run, &period_ns);
    }
}
