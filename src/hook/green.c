/* SPDX-License-Identifier: Apache-2.0 */
/* The green contexts of the process. */
#include "hook/green.h"

#include "base/atomic.h"
#include "base/lock.h"
#include "base/map.h"
#include "hook/primary.h"

#include <stddef.h>
#include <stdint.h>

static struct lock greens_lock;
static struct map devices GUARDED_BY(greens_lock); /* by the CUcontext: the ordinal and 1 */
static size_t green_count;                         /* of them, also read without the lock */

void green_reset(void) NO_THREAD_SAFETY_ANALYSIS
{
    lock_reset(&greens_lock);
    map_finish(&devices);
    green_count = 0;
}

static CUdevice device_of(const void *entry)
{
    return (CUdevice)((intptr_t)entry - 1);
}

void green_note(CUcontext context, CUdevice dev)
{
    LOCKED_TO_END(greens_lock);
    (void)!map_put(&devices, (uintptr_t)context, (void *)((intptr_t)dev + 1));
    store_relaxed(&green_count, devices.count);
}

CUdevice green_forget(CUcontext context)
{
    LOCKED_TO_END(greens_lock);
    CUdevice dev = device_of(map_remove(&devices, (uintptr_t)context));
    store_relaxed(&green_count, devices.count);
    return dev;
}

CUcontext green_home(CUcontext context)
{
    if (__builtin_expect(!load_relaxed(&green_count), true))
        return context;
    LOCKED_TO_END(greens_lock);
    CUcontext home = primary_handle(device_of(map_get(&devices, (uintptr_t)context)));
    return home ? home : context;
}

bool green_is_on(CUdevice dev)
{
    size_t cursor = 0;
    const void *entry;
    LOCKED_TO_END(greens_lock);
    do {
        entry = map_next(&devices, &cursor, &(uint64_t){0});
    } while (entry && device_of(entry) != dev);
    return entry != NULL;
}
