/* SPDX-License-Identifier: Apache-2.0 */
/* Makes host memory ahead (VGPU_HOST_POOL_READY), in the pieces that the memory on the card would
 * need to move out. */
#ifndef VGPU_VMEM_HOST_POOL_FILL_H
#define VGPU_VMEM_HOST_POOL_FILL_H

#include <stdbool.h>

/* Makes one piece, for which the driver takes up to 25 ms; false: none lacks, or none can be had.
 * By the thread that moves. */
bool host_pool_fill(void);

#endif
