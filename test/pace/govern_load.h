/* SPDX-License-Identifier: Apache-2.0 */
/* For the tests of what is held by the channel gate (pace_load.h): a kernel that goes on and on,
 * what it does by the machine's time, orders as a tool gives them, and threads that are kept from
 * running. `pid` is a process of the test's container. */
#ifndef VGPU_TEST_GOVERN_LOAD_H
#define VGPU_TEST_GOVERN_LOAD_H

#include "load.h"

#define FOREVER UINT64_MAX
#define PATIENCE_MS 20000u /* whatever is to happen happens within it on any computer */

/* A context, and a kernel on a stream of its own that goes on for so long. */
CUstream hold_begin(uint64_t duration_ns);

/* Waits until the container's window is closed for at least so long from now and the process's
 * kernels stand. Returns when it ends. */
uint64_t hold_await_closed(pid_t pid, uint64_t least_ns);

/* Kernels of the process run: waits for it, for PATIENCE_MS at most. */
bool hold_runs(pid_t pid);
/* None does, for 30 ms: not for a nanosecond. */
bool hold_stands(pid_t pid);
/* Waits until none does. */
bool hold_comes_to_stand(pid_t pid);

/* No more than the limit was used between the two, apart from what a loaded computer spoils. */
void hold_check_share(const struct load_state *from, const struct load_state *to, unsigned percent);

/* As `vgpu pause`, `vgpu resume` and `vgpu set --cores` do, but at once. The region is there. */
void order_pause(bool paused);
void order_limit(unsigned percent);
/* Raises the orders' epoch, and wakes. */
void order_raise(void);

/* Waits for the child; false, and it is killed, where it takes longer than PATIENCE_MS. */
bool ends_in_time(pid_t pid, int *ret_status);
bool ends_well_in_time(pid_t pid);

/* ---- threads that are kept from running ---- */

/* Forks the process that does it; before the first CUDA call. Skips the test where it may not. */
void freeze_begin(void);
/* The thread of that name in this process; 0: there is none. */
pid_t thread_named(const char *name);
pid_t governor_thread(void);
/* Stops the one thread where it waits and holds nothing. */
void freeze(pid_t thread);
void thaw(pid_t thread);
/* Lets a frozen thread run until it is about to rest for no longer than a moment: a governor that
 * has seen what it will act on in its next look. Skips the test where the kernel does not tell. */
void freeze_in_a_moment(pid_t thread);
/* Stops all threads of this process, as a debugger does that attaches, and lets them go on. */
void freeze_all(unsigned milliseconds);

#endif
