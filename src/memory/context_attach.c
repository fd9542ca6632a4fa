/* SPDX-License-Identifier: Apache-2.0 */
/* A count by context. */
#include "memory/context_attach.h"

#include "base/lock.h"
#include "base/map.h"

#include <stdint.h>

static struct lock attached_lock;
static struct map counts GUARDED_BY(attached_lock); /* by handle */

void context_attach_reset(void) NO_THREAD_SAFETY_ANALYSIS
{
    lock_reset(&attached_lock);
    map_finish(&counts);
}

static uintptr_t count_of(CUcontext context) REQUIRES(attached_lock)
{
    return (uintptr_t)map_get(&counts, (uintptr_t)context);
}

static void set_count(CUcontext context, uintptr_t count) REQUIRES(attached_lock)
{
    if (!count)
        (void)map_remove(&counts, (uintptr_t)context);
    else
        (void)!map_put(&counts, (uintptr_t)context, (void *)count);
}

void context_attach_add(CUcontext context)
{
    LOCKED_TO_END(attached_lock);
    set_count(context, count_of(context) + 1);
}

bool context_attach_take(CUcontext context)
{
    LOCKED_TO_END(attached_lock);
    uintptr_t count = count_of(context);
    if (count)
        set_count(context, count - 1);
    return count > 0;
}

void context_attach_forget(CUcontext context)
{
    LOCKED_TO_END(attached_lock);
    set_count(context, 0);
}
