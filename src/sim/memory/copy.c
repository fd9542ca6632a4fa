/* SPDX-License-Identifier: Apache-2.0 */
/* Copies, all as one three-dimensional form. Contents are kept for transfers up to
 * CONTENTS_KEPT_BYTES; a larger one only takes its time. */
#include <string.h>

#include "sim/memory/array.h"
#include "sim/work/stream.h"

/* About the rate of an H200's memory. */
#define COPY_BYTES_PER_US 2000000
/* The duration of the smallest copy. */
#define COPY_LEAST_NS 1000

/* One side of a copy: bytes at base + z * layer + y * pitch. */
struct side {
    uint64_t address; /* 0: array */
    char *host;
    uint64_t pitch;
    uint64_t layer;
    bool device;
};

static CUresult side_locate(struct side *side, const CUDA_MEMCPY3D *copy)
{
    uint64_t span =
        copy->WidthInBytes + (copy->Height - 1) * side->pitch + (copy->Depth - 1) * side->layer;

    return contents_of(side->address, span, &side->host);
}

static CUresult side_init(struct side *side, const CUDA_MEMCPY3D *copy, bool source)
{
    CUmemorytype type = source ? copy->srcMemoryType : copy->dstMemoryType;
    uint64_t x = source ? copy->srcXInBytes : copy->dstXInBytes;
    uint64_t y = source ? copy->srcY : copy->dstY;
    uint64_t z = source ? copy->srcZ : copy->dstZ;
    uint64_t height = source ? copy->srcHeight : copy->dstHeight;
    struct array_facts array;

    *side = (struct side){.pitch = source ? copy->srcPitch : copy->dstPitch};
    if (type == CU_MEMORYTYPE_ARRAY) {
        if (!array_facts_of(source ? copy->srcArray : copy->dstArray, &array))
            return CUDA_ERROR_INVALID_HANDLE;
        side->address = array.address;
        side->pitch = array.row_bytes;
        height = array.height;
    } else if (type == CU_MEMORYTYPE_HOST) {
        side->address = (uintptr_t)(source ? copy->srcHost : copy->dstHost);
    } else {
        side->address = source ? copy->srcDevice : copy->dstDevice;
    }
    if (!side->pitch)
        side->pitch = copy->WidthInBytes;
    if (side->pitch < copy->WidthInBytes)
        return CUDA_ERROR_INVALID_VALUE;
    side->layer = side->pitch * (height ? height : copy->Height);
    side->device = address_is_device(side->address);
    if (!side->address)
        return CUDA_ERROR_INVALID_VALUE;
    side->address += x + y * side->pitch + z * side->layer;
    if (type == CU_MEMORYTYPE_HOST) {
        side->host = (char *)(uintptr_t)side->address;
        return CUDA_SUCCESS;
    }
    return side_locate(side, copy);
}

static bool copy_is_empty(const CUDA_MEMCPY3D *copy)
{
    return !copy->WidthInBytes || !copy->Height || !copy->Depth;
}

CUresult copy_execute(const CUDA_MEMCPY3D *copy)
{
    struct side from;
    struct side to;
    CUresult r;

    if (copy_is_empty(copy))
        return CUDA_SUCCESS;
    r = side_init(&from, copy, true);
    if (r == CUDA_SUCCESS)
        r = side_init(&to, copy, false);
    if (r == CUDA_SUCCESS && copy->Height == 1 && copy->Depth == 1 &&
        vmm_copy(to.address, from.address, copy->WidthInBytes)) {
        value_queue_memory_changed();
        return r;
    }
    if (r != CUDA_SUCCESS || !from.host || !to.host)
        return r;
    for (uint64_t z = 0; z < copy->Depth; z++) {
        for (uint64_t y = 0; y < copy->Height; y++)
            memmove(to.host + z * to.layer + y * to.pitch,
                from.host + z * from.layer + y * from.pitch, copy->WidthInBytes);
    }
    value_queue_memory_changed();
    return CUDA_SUCCESS;
}

uint64_t bytes_on_host(uint64_t address, uint64_t bytes)
{
    uint64_t sum = 0, end = address + bytes;

    for (uint64_t at = address; at < end;) {
        const struct allocation *part = allocation_find(at);
        uint64_t part_end;

        if (!part || part->kind != ALLOCATION_MAPPING)
            return sum;
        part_end = part->address + part->bytes;
        if (part->place == PLACE_HOST)
            sum += (part_end < end ? part_end : end) - at;
        at = part_end;
    }
    return sum;
}

/* Some mapping of the bytes is backed by the host: they cross the bus. */
static bool is_backed_by_host(uint64_t address, uint64_t bytes)
{
    return bytes_on_host(address, bytes) != 0;
}

/* Both sides are memory of one card. */
static bool is_on_card(const struct side *from, const struct side *to, uint64_t bytes)
{
    const struct allocation *source = allocation_find(from->address);
    const struct allocation *target = allocation_find(to->address);

    return from->device && to->device && (!source || !target || source->device == target->device) &&
           !is_backed_by_host(from->address, bytes) && !is_backed_by_host(to->address, bytes);
}

struct sim_work copy_work(const CUDA_MEMCPY3D *copy)
{
    struct sim_work work = {.kind = SIM_WORK_COPY};
    uint64_t bytes = copy->WidthInBytes * copy->Height * copy->Depth;
    uint64_t rate = BUS_BYTES_PER_US;
    struct side from;
    struct side to;

    if (copy_is_empty(copy))
        return work;
    if (side_init(&from, copy, true) == CUDA_SUCCESS &&
        side_init(&to, copy, false) == CUDA_SUCCESS && is_on_card(&from, &to, bytes)) {
        work.kind = SIM_WORK_KERNEL;
        rate = COPY_BYTES_PER_US;
    }
    work.duration_ns = COPY_LEAST_NS + bytes * 1000 / rate;
    return work;
}
