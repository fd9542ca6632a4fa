/* SPDX-License-Identifier: Apache-2.0 */
/* What rm/rm_channels.h tells of a switch and of a device. */
#ifndef VGPU_RM_RM_CHANNELS_STATE_H
#define VGPU_RM_RM_CHANNELS_STATE_H

#include <stdint.h>

/* When the controls of a switch were made, by base/clock.h: the GPU changed between the two. Both 0
 * where none was. */
struct rm_channels_times {
    uint64_t before_ns, after_ns;
};

enum rm_channels_state {
    RM_CHANNELS_UNTESTED, /* no test was made yet */
    RM_CHANNELS_WORKS,
    /* At the last test this process had no compute channels here (an MPS client never has), or some
     * whose GPU could not be told; a later test may find others. */
    RM_CHANNELS_NO_GROUP,
    RM_CHANNELS_NO_GPU,
    RM_CHANNELS_REFUSED,  /* in the test a control was refused */
    RM_CHANNELS_TOO_SLOW, /* a control took longer than RM_CHANNELS_SLOW_NS in all tries */
    RM_CHANNELS_FAILED,   /* a control was refused later */
    /* The driver restored a context of this process here from a checkpoint. The GPU cannot
     * interrupt that context's kernels any more (seen on an H100, driver 580.159.04): a switch that
     * meets one is refused with BUSY_RETRY, and the kernel ends with a launch failure. */
    RM_CHANNELS_RESTORED,
};

#define RM_CHANNELS_SLOW_NS 20000000ull

#endif
