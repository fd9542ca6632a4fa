/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Device resources: multiprocessors, their groups, descriptors of them. On an H200 (driver
 * 580.159.04) the device has 132, 8 at least and in eights; of groups neither number is told, and
 * they are not split again. Sizes on other cards are those that NVIDIA's documentation names.
 */
#include "sim/cuda/resource.h"

#include <stdlib.h>
#include <string.h>

#define MAGIC 0x67726e31u
#define FINE_COUNT 2 /* SPLIT_IGNORE_SM_COSCHEDULING; assumed */

/* CUdevSmResourceSplit_flags of CUDA 13.0 */
#define SPLIT_IGNORE_COSCHEDULING 1u
#define SPLIT_MAX_CLUSTER 2u

struct descriptor {
    struct object object;
    CUdevResource sum;
};

struct resource_origin resource_origin(const CUdevResource *resource)
{
    struct resource_origin origin;

    memcpy(&origin, resource->_internal_padding, sizeof origin);
    return origin;
}

static CUdevResource resource_make(CUdevice ordinal, unsigned split, unsigned count)
{
    struct resource_origin origin = {MAGIC, ordinal, split};
    CUdevResource resource = {.type = CU_DEV_RESOURCE_TYPE_SM, .sm = {.smCount = count}};

    memcpy(resource._internal_padding, &origin, sizeof origin);
    return resource;
}

CUdevResource resource_whole(const struct device *device)
{
    const struct sim_model *model = &device->facts->model;
    CUdevResource resource = resource_make(device->ordinal, 0, (unsigned)model->multiprocessors);

    resource.sm.smCoscheduledAlignment = model->compute_major >= 9 ? 8 : 2;
    resource.sm.minSmPartitionSize = model->compute_major >= 9   ? 8
                                     : model->compute_major == 8 ? 4
                                                                 : 2;
    return resource;
}

static CUresult resource_check(const CUdevResource *resource)
{
    if (resource->type != CU_DEV_RESOURCE_TYPE_SM)
        return CUDA_ERROR_INVALID_RESOURCE_TYPE;
    return resource_origin(resource).magic == MAGIC ? CUDA_SUCCESS : CUDA_ERROR_INVALID_VALUE;
}

CUresult sim_cuDeviceGetDevResource(CUdevice ordinal, CUdevResource *ret, CUdevResourceType type)
{
    CUDA_LOCKED;
    const struct device *device = device_of(ordinal);

    if (!ret)
        return CUDA_ERROR_INVALID_VALUE;
    if (!device)
        return CUDA_ERROR_INVALID_DEVICE;
    if (type != CU_DEV_RESOURCE_TYPE_SM)
        return CUDA_ERROR_INVALID_RESOURCE_TYPE;
    *ret = resource_whole(device);
    return CUDA_SUCCESS;
}

/* A group with at least the given number of multiprocessors. */
static unsigned group_size(const CUdevResource *input, unsigned flags, unsigned at_least)
{
    bool fine = flags & SPLIT_IGNORE_COSCHEDULING;
    unsigned least = fine ? FINE_COUNT : input->sm.minSmPartitionSize;
    unsigned unit = fine ? FINE_COUNT : input->sm.smCoscheduledAlignment;

    return (unsigned)round_up(at_least > least ? at_least : least, unit);
}

CUresult sim_cuDevSmResourceSplitByCount(CUdevResource *result, unsigned int *count,
    const CUdevResource *input, CUdevResource *remaining, unsigned int flags, unsigned int at_least)
{
    static unsigned splits;
    CUDA_LOCKED;
    unsigned each;
    unsigned groups;
    CUresult r;

    if (!count || !input || flags & ~(SPLIT_IGNORE_COSCHEDULING | SPLIT_MAX_CLUSTER))
        return CUDA_ERROR_INVALID_VALUE;
    r = resource_check(input);
    if (r != CUDA_SUCCESS)
        return r;
    if (at_least > input->sm.smCount)
        return CUDA_ERROR_INVALID_VALUE;
    if (!input->sm.minSmPartitionSize)
        return CUDA_ERROR_INVALID_RESOURCE_CONFIGURATION;
    each = group_size(input, flags, at_least);
    groups = input->sm.smCount / each;
    if (!groups)
        return CUDA_ERROR_INVALID_RESOURCE_CONFIGURATION;
    if (result && *count < groups)
        groups = *count;
    *count = groups;
    splits++;
    for (unsigned i = 0; result && i < groups; i++)
        result[i] = resource_make(resource_origin(input).ordinal, splits, each);
    if (remaining) {
        *remaining = resource_make(
            resource_origin(input).ordinal, splits, input->sm.smCount - groups * each);
        if (!remaining->sm.smCount)
            remaining->type = CU_DEV_RESOURCE_TYPE_INVALID;
    }
    return CUDA_SUCCESS;
}

/* The sum of several, which must be of one split. */
static CUresult resources_add(const CUdevResource *list, unsigned count, CUdevResource *ret_sum)
{
    struct resource_origin first = resource_origin(list);

    *ret_sum = *list;
    for (unsigned i = 0; i < count; i++) {
        struct resource_origin origin = resource_origin(&list[i]);
        CUresult r = resource_check(&list[i]);

        if (r != CUDA_SUCCESS)
            return r;
        if (i && (!origin.split || memcmp(&origin, &first, sizeof origin)))
            return CUDA_ERROR_INVALID_RESOURCE_CONFIGURATION;
        if (i)
            ret_sum->sm.smCount += list[i].sm.smCount;
    }
    return CUDA_SUCCESS;
}

/* There is no call that gives a descriptor back. */
CUresult sim_cuDevResourceGenerateDesc(
    CUdevResourceDesc *ret, CUdevResource *list, unsigned int count)
{
    CUDA_LOCKED;
    struct descriptor *descriptor;
    CUdevResource sum;
    CUresult r;

    if (!ret || !list || !count)
        return CUDA_ERROR_INVALID_VALUE;
    r = resources_add(list, count, &sum);
    if (r != CUDA_SUCCESS)
        return r;
    descriptor = calloc(1, sizeof *descriptor);
    if (!descriptor)
        return CUDA_ERROR_OUT_OF_MEMORY;
    descriptor->sum = sum;
    object_add(&descriptor->object, OBJECT_RESOURCE_DESCRIPTOR);
    *ret = (CUdevResourceDesc)descriptor;
    return CUDA_SUCCESS;
}

bool resource_of_descriptor(CUdevResourceDesc handle, CUdevResource *ret_resource)
{
    const struct descriptor *descriptor = object_find(handle, OBJECT_RESOURCE_DESCRIPTOR);

    if (descriptor)
        *ret_resource = descriptor->sum;
    return descriptor;
}
