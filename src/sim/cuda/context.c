/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Contexts: what one takes from the card (facts measured on an H200, driver 580.159.04: 17 memory
 * objects of 518 MiB together, 4 channel groups, 20 channels), its limits, and its end.
 */
#include "sim/cuda/context.h"

#include <stdlib.h>
#include <string.h>

#include "abi/rm.h"

#define DEFAULT_STACK_BYTES 1024
#define MAX_LOCAL_BYTES (512 * KIB)

/* The driver answers "unknown" where it is this one of a context's allocations that is refused, and
 * "out of memory" for each other of the 17 (seen on H200, driver 580.159.04). */
#define UNKNOWN_WHEN_REFUSED 11

unsigned long long context_next_id(void)
{
    static unsigned long long last;

    return ++last;
}

/* One large object and 16 small ones, together exactly the described size. */
static CUresult context_memory_init(struct context *context)
{
    uint64_t total = round_up(sim_description()->context_bytes, MEMORY_PAGE_BYTES);
    uint64_t small =
        total / MEMORY_PAGE_BYTES > 2 * CONTEXT_OBJECTS ? 2 * MEMORY_PAGE_BYTES : MEMORY_PAGE_BYTES;

    for (int i = 0; i < CONTEXT_OBJECTS && total; i++) {
        uint64_t bytes = i == CONTEXT_OBJECTS - 1 || total < small ? total : small;
        CUresult r = rm_memory_create(context->device, bytes, &context->memory[i]);

        if (r == CUDA_ERROR_OUT_OF_MEMORY && i + 1 == UNKNOWN_WHEN_REFUSED)
            return CUDA_ERROR_UNKNOWN;
        if (r != CUDA_SUCCESS)
            return r;
        total -= bytes;
    }
    return CUDA_SUCCESS;
}

/* Under the handles that they had, if they had any. */
static CUresult context_channels_make(struct context *context)
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

static CUresult context_channels_init(struct context *context)
{
    CUresult r = context_channels_make(context);

    if (r != CUDA_SUCCESS)
        return r;
    return sim_group_create(rm_descriptor(), context->device->index, rm_client(),
               context->groups[0], &context->timeline) == 0
               ? CUDA_SUCCESS
               : CUDA_ERROR_OUT_OF_MEMORY;
}

static CUresult context_restore(void *object)
{
    struct context *context = object;
    CUresult r = CUDA_SUCCESS;

    if (!context->live || context->home)
        return CUDA_SUCCESS;
    r = context_channels_make(context);
    if (r == CUDA_SUCCESS && context->groups[0] &&
        !sim_group_restore(&context->timeline, rm_descriptor(), rm_client(), context->groups[0]))
        r = CUDA_ERROR_UNKNOWN;
    return r;
}

CUresult contexts_restore(void)
{
    return object_visit(OBJECT_CONTEXT, context_restore);
}

/* Gives back all that the resource manager holds for the context. */
static void context_objects_finish(struct context *context)
{
    struct device *device = context->device;

    sim_group_destroy(&context->timeline);
    for (int i = CONTEXT_COPY_GROUPS; i >= 0; i--) {
        rm_free(device->rm_device, context->groups[i]);
        context->groups[i] = 0;
    }
    memset(context->channels, 0, sizeof context->channels); /* gone with their groups */
    for (int i = 0; i < CONTEXT_OBJECTS; i++)
        rm_memory_destroy(device, &context->memory[i]);
    rm_memory_destroy(device, &context->local);
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
    context->id = context_next_id();
    context->refs = 1;
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

static struct object *buried;

void context_bury(struct context *context)
{
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
    r = context_start(context);
    if (r != CUDA_SUCCESS) {
        free(context);
        return r;
    }
    object_add(&context->object, OBJECT_CONTEXT);
    *ret_context = context;
    return CUDA_SUCCESS;
}

/* The driver sizes local memory for all threads that the card can hold at once: on 132 SMs of 2,048
 * threads a kernel with 32 KiB of it took 8,184 MiB, a stack limit of 64 KiB 16,632 MiB (seen on
 * H200, driver 580.159.04). */
static uint64_t local_pool_bytes(const struct context *context, uint64_t per_thread)
{
    const struct sim_model *model = &context->device->facts->model;

    if (per_thread <= DEFAULT_STACK_BYTES)
        return 0;
    return (uint64_t)model->multiprocessors * model->threads_per_multiprocessor *
           (per_thread - DEFAULT_STACK_BYTES);
}

static CUresult local_resize(struct context *context, uint64_t bytes_per_thread)
{
    struct rm_object resized = {0};
    uint64_t bytes = local_pool_bytes(context, bytes_per_thread);
    CUresult r = CUDA_SUCCESS;

    if (bytes)
        r = rm_memory_create(context->device, bytes, &resized);
    if (r != CUDA_SUCCESS)
        return r;
    rm_memory_destroy(context->device, &context->local);
    context->local = resized;
    context->local_bytes_per_thread = bytes_per_thread;
    return CUDA_SUCCESS;
}

CUresult context_local_grow(struct context *context, uint64_t bytes)
{
    if (bytes <= context->local_bytes_per_thread)
        return CUDA_SUCCESS;
    return bytes > MAX_LOCAL_BYTES ? CUDA_ERROR_INVALID_VALUE : local_resize(context, bytes);
}

/* At once, up and down: 1 KiB again gives all back (seen on H200, driver 580.159.04). */
static CUresult stack_limit_set(struct context *context, size_t value)
{
    uint64_t bytes;

    if (value > MAX_LOCAL_BYTES)
        return CUDA_ERROR_INVALID_VALUE;
    bytes = round_up(value, 16);
    if (bytes < DEFAULT_STACK_BYTES)
        bytes = DEFAULT_STACK_BYTES;
    return bytes == context->local_bytes_per_thread ? CUDA_SUCCESS : local_resize(context, bytes);
}

/* The malloc heap (256 MiB) and the printf buffer (64 MiB) take no device memory here (seen on
 * H200, driver 580.159.04); that a later launch takes it is not simulated. */
CUresult sim_cuCtxSetLimit(CUlimit limit, size_t value)
{
    CUDA_LOCKED;
    struct context *context = context_current();
    CUresult r = CUDA_SUCCESS;

    if ((unsigned)limit >= CU_LIMIT_MAX)
        return CUDA_ERROR_INVALID_VALUE;
    if (limit == CU_LIMIT_STACK_SIZE)
        r = stack_limit_set(context, value);
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

struct context *context_ever_of(CUcontext handle)
{
    struct object *object = buried;

    while (object && (void *)object != (void *)handle)
        object = object->next;
    return object ? (struct context *)object : object_find(handle, OBJECT_CONTEXT);
}

struct context *context_of(CUcontext handle)
{
    struct context *context;

    if (!handle)
        return context_current_top();
    context = object_find(handle, OBJECT_CONTEXT);
    return context && context->live ? context : NULL;
}
