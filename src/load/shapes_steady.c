/* SPDX-License-Identifier: Apache-2.0 */
/* Shapes that would use the whole device: queues kept full, and a kernel that does not end. */
#include "load/shapes.h"

#include "base/clock.h"
#include "load/queue.h"
#include "load/stop.h"

#define COPIES_OUTSTANDING 2
#define PERSISTENT_REST_US 500
#define STOP_WAIT_NS 10000000000u
/* For a kernel that has not counted yet when a signal stops us: on the simulator none counts. */
#define STOP_WAIT_UNCOUNTED_NS 500000000u

/* Fills what is not full and counts what has ended. True where there was anything to do. */
static bool serve(struct load_run *run, const struct load_device *device, struct load_queue *queue)
{
    unsigned ended = load_queue_reap(queue);
    load_meter_count(&run->meter, ended * queue->kernels);
    if (load_queue_full(queue))
        return ended > 0;
    load_queue_put(queue, device, &run->kernel, &run->meter);
    return true;
}

static void steady(struct load_run *run, struct load_queue *queues, unsigned count)
{
    bool busy = true;
    load_meter_begin(&run->meter);
    while (load_meter_goes_on(&run->meter)) {
        if (!busy)
            load_shape_rest_us(load_queue_rest_us(&queues[0], load_shape_launch_us(run)));
        busy = false;
        for (unsigned i = 0; i < count; i++)
            busy = serve(run, &run->device, &queues[i]) || busy;
    }
    for (unsigned i = 0; i < count; i++)
        LOAD_CALL(cuStreamSynchronize, queues[i].stream);
}

/* A queue in each of several contexts, between which the device changes. */
static void contexts(struct load_run *run)
{
    struct load_device devices[LOAD_CONTEXTS_MAX];
    struct load_queue queues[LOAD_CONTEXTS_MAX];
    unsigned count = (unsigned)run->options->contexts;
    bool busy = true;
    for (unsigned i = 0; i < count; i++) {
        if (i == 0)
            devices[i] = run->device;
        else
            load_device_open_beside(&devices[i], &run->device);
        load_queue_init(&queues[i], load_shape_stream(), run->kernel_us, 1, count);
    }
    load_meter_begin(&run->meter);
    while (load_meter_goes_on(&run->meter)) {
        if (!busy)
            load_shape_rest_us(load_queue_rest_us(&queues[0], run->kernel_us));
        busy = false;
        for (unsigned i = 0; i < count; i++) {
            LOAD_CALL(cuCtxSetCurrent, devices[i].context);
            busy = serve(run, &devices[i], &queues[i]) || busy;
        }
    }
    for (unsigned i = 0; i < count; i++) {
        LOAD_CALL(cuCtxSetCurrent, devices[i].context);
        LOAD_CALL(cuStreamSynchronize, queues[i].stream);
    }
}

void load_shape_steady(struct load_run *run)
{
    struct load_queue queues[LOAD_STREAMS_MAX];
    if (run->options->contexts > 1) {
        contexts(run);
        return;
    }
    unsigned count = (unsigned)run->options->streams;
    for (unsigned i = 0; i < count; i++)
        load_queue_init(&queues[i], load_shape_stream(), load_shape_launch_us(run),
            load_kernel_count(&run->kernel), count);
    steady(run, queues, count);
}

void load_shape_per_thread_stream(struct load_run *run)
{
    struct load_queue queue;
    load_cuda_per_thread();
    load_queue_init(&queue, NULL, load_shape_launch_us(run), 1, 1);
    steady(run, &queue, 1);
}

struct copies {
    struct load_queue queue;
    void *source;
    CUdeviceptr target;
    size_t bytes;
};

static void copies_init(struct copies *copies, size_t bytes)
{
    load_queue_init(&copies->queue, load_shape_stream(), 1, 0, 1);
    copies->queue.limit = COPIES_OUTSTANDING;
    copies->bytes = bytes;
    LOAD_CALL(cuMemHostAlloc, &copies->source, bytes, 0);
    LOAD_CALL(cuMemAlloc_v2, &copies->target, bytes);
}

static void copies_serve(struct copies *copies, struct load_meter *meter)
{
    for (unsigned ended = load_queue_reap(&copies->queue); ended; ended--)
        load_meter_copy(meter);
    if (load_queue_full(&copies->queue))
        return;
    LOAD_CALL(
        cuMemcpyHtoDAsync_v2, copies->target, copies->source, copies->bytes, copies->queue.stream);
    load_queue_mark(&copies->queue);
}

void load_shape_copies(struct load_run *run)
{
    struct load_queue queue;
    struct copies copies;
    copies_init(&copies, run->options->copy_bytes);
    load_queue_init(&queue, load_shape_stream(), load_shape_launch_us(run), 1, 1);
    bool busy = true;
    load_meter_begin(&run->meter);
    while (load_meter_goes_on(&run->meter)) {
        if (!busy)
            load_shape_rest_us(load_queue_rest_us(&queue, load_shape_launch_us(run)));
        copies_serve(&copies, &run->meter);
        busy = serve(run, &run->device, &queue);
    }
    LOAD_CALL(cuCtxSynchronize);
}

/* What the kernel has counted since the last call. */
static void persistent_count(struct load_run *run, uint64_t *counted)
{
    uint64_t count = run->device.words->count;
    load_meter_count(&run->meter, (unsigned)(count - *counted));
    *counted = count;
}

/* True where the kernel has ended; false where it cannot be stopped. */
static bool persistent_stop(struct load_run *run, CUevent ended)
{
    uint64_t begin_ns = clock_now_ns();
    uint64_t simulated_ns = (uint64_t)(4 * (run->options->seconds + run->options->warmup_s) * 1e9);
    run->device.words->stop = 1;
    for (;;) {
        CUresult result = load_cuda.cuEventQuery(ended);
        load_note_returned();
        if (result == CUDA_SUCCESS)
            return true;
        if (result != CUDA_ERROR_NOT_READY)
            load_check(result, "cuEventQuery");
        bool counted = run->device.words->count != 0;
        uint64_t waited_ns = clock_now_ns() - begin_ns;
        if (!counted && load_stop && waited_ns > STOP_WAIT_UNCOUNTED_NS)
            return false;
        if (waited_ns > STOP_WAIT_NS + (counted ? 0 : simulated_ns))
            load_fail("the persistent kernel did not end in %llu s when it was told to",
                (unsigned long long)(waited_ns / 1000000000u));
        load_shape_rest_us(PERSISTENT_REST_US);
    }
}

void load_shape_persistent(struct load_run *run)
{
    const struct load_options *options = run->options;
    double run_s = options->warmup_s + options->seconds;
    CUstream stream = load_shape_stream();
    CUevent ended;
    uint64_t counted = 0;
    LOAD_CALL(cuEventCreate, &ended, CU_EVENT_DISABLE_TIMING);
    load_meter_begin(&run->meter);
    load_kernel_launch_persistent(&run->device, &run->kernel,
        options->seconds > 0 ? (uint64_t)(run_s * 1e9) : UINT64_MAX, stream);
    LOAD_CALL(cuEventRecord, ended, stream);
    while (load_meter_goes_on(&run->meter)) {
        load_shape_rest_us(PERSISTENT_REST_US);
        persistent_count(run, &counted);
    }
    bool has_ended = persistent_stop(run, ended);
    /* The simulator's kernels count nothing, but have ended after their time. */
    if (has_ended && !run->device.words->count && options->seconds > 0) {
        run->meter.end_ns = clock_now_ns();
        double measured_s = load_meter_seconds(&run->meter);
        double share = measured_s / (measured_s + options->warmup_s);
        run->meter.kernels = (uint64_t)(run_s * share * 1e6 / run->kernel_us);
    }
}
