/* SPDX-License-Identifier: Apache-2.0 */
/* A driver for what the simulator does not have: more devices than a region's table, a pitch like
 * nobody else's, and calls that wait within it. It allocates without a resource manager. */
#ifndef VGPU_TEST_WIDE_H
#define VGPU_TEST_WIDE_H

#include <stddef.h>

#define WIDE_DEVICES 70
#define WIDE_PITCH(width) (3 * (width) + 7)

/* From now on a call that allocates or frees so many bytes waits within the driver until
 * wide_let_go(). */
void wide_hold(size_t bytes);
/* Returns when a call waits. */
void wide_wait_for_held(void);
void wide_let_go(void);

#endif
