/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Contexts: what one takes from the card (facts measured on an H200, driver 580.159.04: 17 memory
 * objects of 518 MiB together, 4 channel groups, 20 channels), its limits, and its end.
 */
#include <stdlib.h>
#include <string.h>

#include "abi/rm.h"
#include "sim/cuda_context.h"

#define DEFAULT_STACK_BYTES 1024
#define MAX_LOCAL_BYTES (512 * KIB)

static unsigned long long next_id = 1;

/* One large object and 16 small ones, together exactly the described size. */
static CUresult context_memory_init(struct context *context)
{
    uint64_t total = round_up(sim_description()->context_bytes, MEMORY_PAGE_BYTES);
    uint64_t small =
        total / MEMORY_PAGE_BYTES > 2 * CONTEXT_OBJECTS ? 2 * MEMORY_PAGE_BYTES : MEMORY_PAGE_BYTES;

    for (int i = 0; i < CONTEXT_OBJECTS && total; i++) {
        uint64_t bytes = i == CONTEXT_OBJECTS - 1 || total < small ? total : small;
        CUresult r = rm_memory_create(context->device, bytes, &context->memory[i]);

        if (r != CUDA_SUCCESS)
            return r;
        total -= bytes;
    }
    return CUDA_SUCCESS;
}

static CUresult context_channels_init(struct context *context)
{
    for (unsigned i = 0; i < 1 + CONTEXT_COPY_GROUPS; i++) {
        uint32_t engine = i == 0 ? RM_ENGINE_GR0 : RM_ENGINE_COPY0 + i - 1;
        CUresult r = rm_group_create(context->device, engine, &context->groups[i]);

        if (r != CUDA_SUCCESS)
            return r;
    }
    for (unsigned i = 0; i < CONTEXT_CHANNELS; i++) {
        /* 8 on the compute group, 4 on each copy group */
        uint32_t group = context->groups[i < 8 ? 0 : 1 + (i - 8) / 4];
        CUresult r = rm_channel_create(group, &context->channels[i]);

        if (r != CUDA_SUCCESS)
            return r;
    }
    return CUDA_SUCCESS;
}

/* Gives back all that the resource manager holds for the context. */
static void context_objects_finish(struct context *context)
{
    struct device *device = context->device;

    for (int i = CONTEXT_COPY_GROUPS; i >= 0; i--) {
        rm_free(device->rm_device, context->groups[i]);
        context->groups[i] = 0;
    }
    for (int i = 0; i < CONTEXT_OBJECTS; i++)
        rm_memory_destroy(device, &context->memory[i]);
    rm_memory_destroy(device, &context->local);
    rm_memory_destroy(device, &context->printf_fifo);
    rm_memory_destroy(device, &context->malloc_heap);
}

CUresult context_start(struct context *context)
{
    CUresult r = context_memory_init(context);

    if (r == CUDA_SUCCESS)
        r = context_channels_init(context);
    if (r == CUDA_SUCCESS)
        r = streams_context_init(context);
    if (r != CUDA_SUCCESS) {
        context_objects_finish(context);
        return r;
    }
    context->id = next_id++;
    context->local_bytes_per_thread = DEFAULT_STACK_BYTES;
    memset(context->limits, 0, sizeof context->limits);
    context->limits[CU_LIMIT_STACK_SIZE] = DEFAULT_STACK_BYTES;
    context->limits[CU_LIMIT_PRINTF_FIFO_SIZE] = 7 * MIB;
    context->limits[CU_LIMIT_MALLOC_HEAP_SIZE] = 8 * MIB;
    context->limits[CU_LIMIT_DEV_RUNTIME_SYNC_DEPTH] = 2;
    context->limits[CU_LIMIT_DEV_RUNTIME_PENDING_LAUNCH_COUNT] = 2048;
    context->limits[CU_LIMIT_MAX_L2_FETCH_GRANULARITY] = 64;
    context->live = true;
    return CUDA_SUCCESS;
}

void context_stop(struct context *context)
{
    if (!context->live)
        return;
    context->live = false;
    streams_context_finish(context);
    modules_context_finish(context);
    memory_context_finish(context);
    context_objects_finish(context);
}

void context_bury(struct context *context)
{
    static struct object *buried;

    context->object.next = buried;
    buried = &context->object;
}

CUresult context_create(struct device *device, unsigned flags, bool primary, unsigned version,
    struct context **ret_context)
{
    struct context *context = calloc(1, sizeof *context);
    CUresult r;

    if (!context)
        return CUDA_ERROR_OUT_OF_MEMORY;
    context->device = device;
    context->primary = primary;
    context->flags = flags;
    context->version = version;
    context->refs = 1;
    r = context_start(context);
    if (r != CUDA_SUCCESS) {
        free(context);
        return r;
    }
    object_add(&context->object, OBJECT_CONTEXT);
    *ret_context = context;
    return CUDA_SUCCESS;
}

/* The driver sizes local memory for all threads that the card can hold at once: a kernel with
 * 32 KiB of it on 132 SMs of 2,048 threads took 8,184 MiB (H200, 580.159.04). */
static uint64_t local_pool_bytes(const struct context *context, uint64_t per_thread)
{
    const struct sim_model *model = &context->device->facts->model;

    if (per_thread <= DEFAULT_STACK_BYTES)
        return 0;
    return (uint64_t)model->multiprocessors * model->threads_per_multiprocessor *
           (per_thread - DEFAULT_STACK_BYTES);
}

CUresult context_local_grow(struct context *context, uint64_t bytes)
{
    struct rm_object grown;
    CUresult r;

    if (bytes <= context->local_bytes_per_thread)
        return CUDA_SUCCESS;
    if (bytes > MAX_LOCAL_BYTES)
        return CUDA_ERROR_INVALID_VALUE;
    r = rm_memory_create(context->device, local_pool_bytes(context, bytes), &grown);
    if (r != CUDA_SUCCESS)
        return r;
    rm_memory_destroy(context->device, &context->local);
    context->local = grown;
    context->local_bytes_per_thread = bytes;
    return CUDA_SUCCESS;
}

/* What a context holds of fifo and heap at their default sizes is part of its 518 MiB. */
static CUresult limit_object_resize(
    struct context *context, struct rm_object *object, size_t value, size_t initial)
{
    struct rm_object resized = {0};
    CUresult r;

    if (value > initial) {
        r = rm_memory_create(context->device, value - initial, &resized);
        if (r != CUDA_SUCCESS)
            return r;
    }
    rm_memory_destroy(context->device, object);
    *object = resized;
    return CUDA_SUCCESS;
}

CUresult sim_cuCtxSetLimit(CUlimit limit, size_t value)
{
    CUDA_LOCKED;
    struct context *context = context_current();
    CUresult r = CUDA_SUCCESS;

    if ((unsigned)limit >= CU_LIMIT_MAX)
        return CUDA_ERROR_INVALID_VALUE;
    if (limit == CU_LIMIT_STACK_SIZE)
        r = context_local_grow(context, round_up(value, 16));
    else if (limit == CU_LIMIT_PRINTF_FIFO_SIZE)
        r = limit_object_resize(context, &context->printf_fifo, value, 7 * MIB);
    else if (limit == CU_LIMIT_MALLOC_HEAP_SIZE)
        r = limit_object_resize(context, &context->malloc_heap, value, 8 * MIB);
    if (r == CUDA_SUCCESS)
        context->limits[limit] = value;
    return r;
}

CUresult sim_cuCtxGetLimit(size_t *value, CUlimit limit)
{
    CUDA_LOCKED;

    if (!value)
        return CUDA_ERROR_INVALID_VALUE;
    if ((unsigned)limit >= CU_LIMIT_MAX)
        return CUDA_ERROR_UNSUPPORTED_LIMIT;
    *value = context_current()->limits[limit];
    return CUDA_SUCCESS;
}
