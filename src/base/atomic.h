/* SPDX-License-Identifier: Apache-2.0 */
/* Words shared between threads or processes are read and written only through these names,
 * each of which states its memory order. They work on any lock-free integer or pointer. */
#ifndef VGPU_BASE_ATOMIC_H
#define VGPU_BASE_ATOMIC_H

#include <stdbool.h>
#include <stdint.h>

#define load_relaxed(p) __atomic_load_n((p), __ATOMIC_RELAXED)
#define load_acquire(p) __atomic_load_n((p), __ATOMIC_ACQUIRE)
#define load_seq_cst(p) __atomic_load_n((p), __ATOMIC_SEQ_CST)
#define store_seq_cst(p, v) __atomic_store_n((p), (v), __ATOMIC_SEQ_CST)
#define store_relaxed(p, v) __atomic_store_n((p), (v), __ATOMIC_RELAXED)
#define store_release(p, v) __atomic_store_n((p), (v), __ATOMIC_RELEASE)
#define add_relaxed(p, v) ((void)__atomic_fetch_add((p), (v), __ATOMIC_RELAXED))
#define or_relaxed(p, v) __atomic_fetch_or((p), (v), __ATOMIC_RELAXED)
#define add_seq_cst(p, v) __atomic_add_fetch((p), (v), __ATOMIC_SEQ_CST)
#define sub_seq_cst(p, v) __atomic_sub_fetch((p), (v), __ATOMIC_SEQ_CST)
/* Later loads of this thread are not made before its earlier ones. */
#define fence_acquire() __atomic_thread_fence(__ATOMIC_ACQUIRE)
#define exchange_acq_rel(p, v) __atomic_exchange_n((p), (v), __ATOMIC_ACQ_REL)

/* Compare-and-swap, sequentially consistent; true where *p was `from` and is now `to`. */
#define swap_seq_cst(p, from, to)                                                                  \
    __extension__({                                                                                \
        __typeof__(*(p)) swap_expected = (from);                                                   \
        __atomic_compare_exchange_n(                                                               \
            (p), &swap_expected, (to), false, __ATOMIC_SEQ_CST, __ATOMIC_SEQ_CST);                 \
    })

#endif
