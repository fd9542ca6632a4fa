/* SPDX-License-Identifier: Apache-2.0 */
/* By process_vm_readv and process_vm_writev on the process itself. */
#include "base/own_memory.h"

#include "base/atomic.h"

#include <errno.h>
#include <string.h>
#include <sys/syscall.h>
#include <sys/uio.h>
#include <unistd.h>

#define STACK_NEAR_BYTES 8192u

static void *pointer(uint64_t address)
{
    return (void *)(uintptr_t)address; // NOLINT(performance-no-int-to-ptr): as the program has it
}

/* Whether a sandbox refuses it. */
static bool copies_refused;

static bool copy(long number, uint64_t address, void *local, size_t bytes, bool *ret_refused)
{
    struct iovec here = {.iov_base = local, .iov_len = bytes};
    struct iovec there = {.iov_base = pointer(address), .iov_len = bytes};
    int errno_kept = errno;
    long done = syscall(number, getpid(), &here, 1ul, &there, 1ul, 0ul);
    *ret_refused = done < 0 && errno != EFAULT;
    errno = errno_kept;
    return done == (long)bytes;
}

/* In a frame of our callers: then it is there, and the driver's arguments usually are. */
static bool is_on_stack(uint64_t address, size_t bytes)
{
    uint64_t here = (uintptr_t)__builtin_frame_address(0);
    return bytes < STACK_NEAR_BYTES && address > here && address - here < STACK_NEAR_BYTES - bytes;
}

bool own_memory_read(uint64_t address, void *to, size_t bytes)
{
    if (is_on_stack(address, bytes)) {
        memcpy(to, pointer(address), bytes);
        return true;
    }
    bool refused = load_relaxed(&copies_refused);
    if (!address)
        return false;
    if (!refused && copy(SYS_process_vm_readv, address, to, bytes, &refused))
        return true;
    if (refused) {
        store_relaxed(&copies_refused, true);
        memcpy(to, pointer(address), bytes);
    }
    return refused;
}

bool own_memory_write(uint64_t address, const void *from, size_t bytes)
{
    if (is_on_stack(address, bytes)) {
        memcpy(pointer(address), from, bytes);
        return true;
    }
    bool refused = load_relaxed(&copies_refused);
    if (!address)
        return false;
    if (!refused && copy(SYS_process_vm_writev, address, pointer((uintptr_t)from), bytes, &refused))
        return true;
    if (refused) {
        store_relaxed(&copies_refused, true);
        memcpy(pointer(address), from, bytes);
    }
    return refused;
}
