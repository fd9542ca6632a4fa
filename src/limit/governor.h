/* SPDX-License-Identifier: Apache-2.0 */
/* The one thread of the library: it looks after work that is on its way while the program's own
 * threads are elsewhere. It exists only in a process that works under a compute limit, is made by
 * the first such launch, blocks all signals and sleeps for good while there is nothing to see. */
#ifndef VGPU_LIMIT_GOVERNOR_H
#define VGPU_LIMIT_GOVERNOR_H

#include <stdbool.h>
#include <stdint.h>

#define GOVERNOR_NOTHING UINT64_MAX

/* Work is on its way. `look` is called soon and again after the nanoseconds that it returns, until
 * it returns GOVERNOR_NOTHING for a tenth of a second; `rest` sleeps as long as it is told, or
 * less. One load where the thread is awake. Where no thread can be made, nothing happens. Any
 * thread. */
void governor_wake(uint64_t (*look)(void), void (*rest)(uint64_t ns));

/* Whether there is a thread, or will be in a moment: not before the first governor_wake, where none
 * could be made, and after governor_stop. One load. */
bool governor_works(void);

/* Whether there is one that sleeps for good: it sees nothing until it is woken. One load. */
bool governor_sleeps(void);

/* In a forked child: there is no thread. */
void governor_reset(void);

/* The process ends: the thread does not look any more. */
void governor_stop(void);

#endif
