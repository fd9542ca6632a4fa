/* SPDX-License-Identifier: Apache-2.0 */
#include "hook/door/door_hold.h"

#include "base/atomic.h"
#include "base/elf.h"
#include "base/lock.h"
#include "container/container.h"
#include "pace/halt.h"

#include <string.h>

/* The real driver exports some 650 functions (580.159.04, src/sim/cuda/entries.def). */
#define DOOR_HOLD_STUBS 1024
#define STUB_BYTES 16

/* In door_hold.S. */
extern char door_hold_stubs[DOOR_HOLD_STUBS * STUB_BYTES] __attribute__((visibility("hidden")));

/* Read by the stubs. Only added to: a forked child keeps what its parent had. */
void *door_hold_targets[DOOR_HOLD_STUBS];

static struct lock targets_lock; /* a leaf */
static unsigned count GUARDED_BY(targets_lock);

static bool is_stub(const void *function)
{
    const char *at = function;
    return at >= door_hold_stubs && at < door_hold_stubs + sizeof(door_hold_stubs);
}

void *door_hold(void *real)
{
    if (!load_relaxed(&halt_is_counted) || is_stub(real))
        return real;
    LOCKED_TO_END(targets_lock);
    unsigned i = 0;
    while (i < count && door_hold_targets[i] != real)
        i++;
    if (i == DOOR_HOLD_STUBS)
        return real;
    if (i == count) {
        store_release(&door_hold_targets[i], real);
        count++;
    }
    return door_hold_stubs + (size_t)i * STUB_BYTES;
}

/* cuFile's functions, and others', begin likewise. */
bool door_hold_may(const char *name)
{
    return load_relaxed(&halt_is_counted) && name[0] == 'c' && name[1] == 'u' && name[2] >= 'A' &&
           name[2] <= 'Z';
}

void *door_hold_found(void *found)
{
    static const char library[] = "libcuda.so";
    char object[sizeof(library)];
    if (!found)
        return found;
    elf_object_name(found, object, sizeof(object));
    return strncmp(object, library, sizeof(library) - 1) == 0 ? door_hold(found) : found;
}

/* What a forked child's parent had stays. */
static void reset(void) NO_THREAD_SAFETY_ANALYSIS
{
    lock_reset(&targets_lock);
}

__attribute__((constructor)) static void register_callback(void)
{
    container_on_reset(reset);
}
