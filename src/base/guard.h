/* SPDX-License-Identifier: Apache-2.0 */
/* Touching a mapped file that others may shorten at any moment. A page beyond the file's end is a
 * SIGBUS, which would end the program for somebody else's deed. So such mappings are touched
 * between guard_enter and guard_leave only: there a fault in a guarded range puts zeroed memory of
 * this process in the whole range's place and says so; the access goes on.
 *
 * The program's own disposition of SIGBUS is in force again after guard_leave. A SIGBUS that is not
 * ours meets it also in between. docs/decisions/0006 says what this costs and what else was
 * weighed. */
#ifndef VGPU_BASE_GUARD_H
#define VGPU_BASE_GUARD_H

#include <stdbool.h>
#include <stddef.h>

#define GUARD_RANGES_MAX 72 /* the region, and a registry for each GPU */

/* Guards `bytes` from `start`, both multiples of the page. `lost`, which must outlive the guarding,
 * becomes true when memory has taken the file's place. Returns 0, or -ENOSPC where
 * GUARD_RANGES_MAX are guarded. Any thread. */
int guard_add(void *start, size_t bytes, bool *lost) __attribute__((warn_unused_result));

/* Before the range is unmapped. */
void guard_remove(void *start);

/* Removes the range and unmaps it. `is_mapped` false: another mapping may lie there by now, as in a
 * forked child that the range was kept from, and nothing is unmapped. NULL is accepted. */
void guard_unmap(void *start, size_t bytes, bool is_mapped);

/* Any thread. Windows of several threads may overlap, and those of one may lie within each other:
 * only the outermost costs anything, two system calls, 0.3 to 0.8 us. A call of the driver may lie
 * within. Keep errno. */
void guard_enter(void);
void guard_leave(void);

/* guard_enter for code that may run in a signal's handler, which interrupted either of the two:
 * false, and no window is open, where a thread is in one of them, because it may be this thread. */
bool guard_try_enter(void) __attribute__((warn_unused_result));

/* In a forked child, which has no other thread: closes the windows of its parent. The ranges stay
 * guarded. */
void guard_reset(void);

#endif
