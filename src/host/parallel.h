/* SPDX-License-Identifier: Apache-2.0 */
/* The same work on many things, by as many threads as there are processors. */
#ifndef VGPU_HOST_PARALLEL_H
#define VGPU_HOST_PARALLEL_H

#include <stddef.h>

/* Calls `work` with each index below `count`, in any order, by several threads at a time; returns
 * when all have been. Where no thread can be had, the calling one does it alone. */
void parallel_each(size_t count, void (*work)(size_t index, void *context), void *context);

#endif
