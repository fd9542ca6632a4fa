/* SPDX-License-Identifier: Apache-2.0 */
/* The keys of fills (hook/card.h). */
#include "hook/card.h"
#include "hook/hook.h"
#include "vmem/use.h"
#include "vmem/world.h"

#include <stddef.h>

static inline struct pace_launch *begin(
    struct pace_launch *fill, size_t bytes, CUstream stream, enum stream_zero zero)
{
    return card_begin(fill, CARD_FILL, bytes, 1, stream, zero);
}

static inline struct pace_launch *begin_rows(
    struct pace_launch *fill, size_t bytes, size_t rows, CUstream stream, enum stream_zero zero)
{
    return card_begin(fill, CARD_FILL_ROWS, bytes * rows, rows, stream, zero);
}

#define TWINS "hook/cuda_fill.def"
#include "hook/twins.h"
