/* SPDX-License-Identifier: Apache-2.0 */
/* Orders to release memory, as a tool gives them, and memory with marks, by which a loss is seen.
 */
#ifndef VGPU_TEST_FREEZE_H
#define VGPU_TEST_FREEZE_H

#include "abi/cuda.h"
#include "bed.h"

#include <stdbool.h>
#include <stdint.h>
#include <sys/syscall.h>
#include <unistd.h>

#define HANG_MS 60000u

static inline struct vgpu_slot *slot_of(pid_t pid)
{
    return (struct vgpu_slot *)(uintptr_t)bed_region_slot(pid);
}

static inline void raise_epoch(void)
{
    struct vgpu_region *region = bed_region();
    __atomic_add_fetch(&region->orders_epoch, 1, __ATOMIC_SEQ_CST);
    syscall(SYS_futex, &region->orders_epoch, 1 /* FUTEX_WAKE */, INT32_MAX, NULL, NULL, 0);
}

static inline uint32_t order(enum vgpu_release release)
{
    struct vgpu_region *region = bed_region();
    uint32_t word = (region->release / 4 + 1) << 2 | (uint32_t)release;
    __atomic_store_n(&region->release, word, __ATOMIC_SEQ_CST);
    raise_epoch();
    return word;
}

static inline enum vgpu_release_state state_of(pid_t pid, uint32_t *ret_order)
{
    const struct vgpu_slot *slot = slot_of(pid);
    uint64_t word = slot ? __atomic_load_n(&slot->release, __ATOMIC_SEQ_CST) : 0;
    *ret_order = (uint32_t)(word >> 32);
    return (enum vgpu_release_state)(uint32_t)word;
}

/* Waits until the process has made of the order what it can. */
static inline enum vgpu_release_state outcome(pid_t pid, uint32_t word)
{
    for (unsigned ms = 0; ms < HANG_MS; ms++) {
        uint32_t seen;
        enum vgpu_release_state state = state_of(pid, &seen);
        if (seen == word && state != VGPU_RELEASE_MOVING)
            return state;
        bed_sleep_ms(1);
    }
    return VGPU_RELEASE_MOVING;
}

static inline enum vgpu_release_state order_done(enum vgpu_release release)
{
    return outcome(getpid(), order(release));
}

static inline void set_paused(bool paused)
{
    bed_region()->paused = paused;
    raise_epoch();
}

static inline void write_marks(CUdeviceptr pointer, uint64_t bytes, unsigned seed)
{
    for (uint64_t at = 0; at<bytes; at += bytes> MIB ? bytes / 37 + 1 : bytes) {
        unsigned char mark = (unsigned char)(seed * 31 + at * 7 + 1);
        CHECK_EQ(CU(cuMemcpyHtoD_v2)(pointer + at, &mark, 1), CUDA_SUCCESS);
    }
}

static inline bool has_marks(CUdeviceptr pointer, uint64_t bytes, unsigned seed)
{
    for (uint64_t at = 0; at<bytes; at += bytes> MIB ? bytes / 37 + 1 : bytes) {
        unsigned char mark = 0;
        if (CU(cuMemcpyDtoH_v2)(&mark, pointer + at, 1) != CUDA_SUCCESS ||
            mark != (unsigned char)(seed * 31 + at * 7 + 1))
            return false;
    }
    return true;
}

#endif
