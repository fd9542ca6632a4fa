/* SPDX-License-Identifier: Apache-2.0 */
/* The error of an allocation that failed. A function of its own, so that a reader and an analyzer
 * see that its result is never 0. */
#ifndef VGPU_CODEC_NO_MEMORY_H
#define VGPU_CODEC_NO_MEMORY_H

#include "net/error.h"

#include <errno.h>

/* "<what>: no memory". Returns -ENOMEM. */
static inline int no_memory(struct error *error, const char *what)
{
    (void)error_set(error, ENOMEM, "%s: no memory", what);
    return -ENOMEM;
}

#endif
