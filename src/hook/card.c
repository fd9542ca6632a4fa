/* SPDX-License-Identifier: Apache-2.0 */
/* What the hooks of fills and copies share. */
#include "hook/card.h"

#include "base/clock.h"
#include "hook/hook.h"
#include "vmem/world.h"

#include <stddef.h>

/* Bytes below which a fill or copy takes as long as an empty one: the time that its start takes. */
#define SMALL_BYTES (64u << 10)

/* A number for all values of one power of two and the same next two bits. */
static uint64_t quarter(uint64_t value)
{
    if (value < 4)
        return value;
    uint64_t power = 63u - (unsigned)__builtin_clzll(value);
    return power * 4 + (value >> (power - 2) & 3);
}

uint64_t card_key(enum card_work kind, uint64_t bytes, uint64_t rows)
{
    uint64_t size = bytes <= SMALL_BYTES ? 0 : quarter(bytes);
    return duration_key((uint64_t)kind + 1, size << 32 | quarter(rows));
}

struct pace_launch *card_begin_slow(struct pace_launch *work, enum card_work kind, uint64_t bytes,
    uint64_t rows, CUstream stream, enum stream_zero zero)
{
    world_wait(stream, zero);
    pace_begin(work, stream, zero, card_key(kind, bytes, rows));
    return work;
}

CUresult card_end_sync_slow(struct pace_launch *begun, CUresult result)
{
    begun->awaited = begun->meter && clock_now_ns() - begun->called_ns > PACE_WAITED_NS;
    pace_end(begun, result == CUDA_SUCCESS);
    return result;
}

/* A launch that is none: it looks whether there is a limit by now. */
static void look(CUstream stream, enum stream_zero zero)
{
    struct pace_launch none;
    pace_begin(&none, stream, zero, 0);
    pace_end(&none, false);
}

bool card_asks(CUstream stream, enum stream_zero zero)
{
    if (!load_relaxed(&policy_limited))
        look(stream, zero);
    if (!load_relaxed(&policy_limited))
        return false;
    pace_free_launches = 0;
    return !capture_records(stream, zero);
}

int card_of(CUdeviceptr pointer)
{
    unsigned type = 0;
    int ordinal = CARD_NONE;
    CUpointer_attribute names[] = {
        CU_POINTER_ATTRIBUTE_MEMORY_TYPE, CU_POINTER_ATTRIBUTE_DEVICE_ORDINAL};
    void *values[] = {&type, &ordinal};
    if (cuda.cuPointerGetAttributes(2, names, values, pointer) != CUDA_SUCCESS)
        return CARD_NONE;
    return type == CU_MEMORYTYPE_DEVICE && ordinal >= 0 ? ordinal : CARD_NONE;
}
