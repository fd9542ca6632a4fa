/* SPDX-License-Identifier: Apache-2.0 */
/* Copies of one row: whether they are on one card. */
#include "hook/card.h"
#include "hook/hook.h"
#include "vmem/use.h"
#include "vmem/world.h"

#include <stddef.h>

__attribute__((noinline)) static struct pace_launch *asked(struct pace_launch *copy, CUdeviceptr to,
    CUdeviceptr from, size_t bytes, CUstream stream, enum stream_zero zero)
{
    if (!card_asks(stream, zero))
        return NULL;
    if (card_is_same(card_of(to), card_of(from)))
        return card_begin_slow(copy, CARD_COPY, bytes, 1, stream, zero);
    card_note_copy(bytes, stream, zero);
    return NULL;
}

/* Either side may be memory of the host, or of another card. */
static inline struct pace_launch *begin(struct pace_launch *copy, CUdeviceptr to, CUdeviceptr from,
    size_t bytes, CUstream stream, enum stream_zero zero)
{
    return pace_passes() ? NULL : asked(copy, to, from, bytes, stream, zero);
}

/* Both sides are said to be device memory: that it is of two cards matters in large copies. */
static inline struct pace_launch *begin_on_card(struct pace_launch *copy, CUdeviceptr to,
    CUdeviceptr from, size_t bytes, CUstream stream, enum stream_zero zero)
{
    if (bytes < CARD_LARGE_BYTES)
        return card_begin(copy, CARD_COPY, bytes, 1, stream, zero);
    return begin(copy, to, from, bytes, stream, zero);
}

#define TWINS "hook/cuda_copy.def"
#include "hook/twins.h"
