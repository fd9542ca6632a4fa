/* SPDX-License-Identifier: Apache-2.0 */
/* The one thread of the library: it looks after work that is on its way while the program's own
 * threads are elsewhere. It exists only in a process that works under a compute limit, is made by
 * the first such launch, blocks all signals and sleeps for good while there is nothing to see. */
#ifndef VGPU_PACE_GOVERNOR_H
#define VGPU_PACE_GOVERNOR_H

#include <stdbool.h>
#include <stdint.h>

#define GOVERNOR_NOTHING UINT64_MAX
/* Added to a time: nothing works, but one is to look again after it. Who works ends the rest. */
#define GOVERNOR_IDLE (1ull << 63)

/* Sleeps for so long or less, and only while *word is `value`, which another thread of the process
 * changes and wakes; `word` is NULL where only the time counts. */
typedef void governor_rest_function(uint64_t ns, uint32_t *word, uint32_t value);

/* There may be something to see. `look` is called soon and again after the nanoseconds that it
 * returns, until it returns GOVERNOR_NOTHING for a tenth of a second. One load where the thread is
 * awake. Where no thread can be made, nothing happens. Any thread. */
void governor_wake(uint64_t (*look)(void), governor_rest_function *rest);

/* Work is on its way, which the caller has noted where `look` finds it: a thread that rests because
 * nothing works looks at once. One atomic write where it is awake. Any thread. */
void governor_rouse(void);

/* Whether there is a thread, or will be in a moment: not before the first governor_wake, where none
 * could be made, and after governor_stop. One load. */
bool governor_works(void);

/* Whether there is one, or will be in a moment, that sleeps on nothing but what governor_wake was
 * given. One load. */
bool governor_is_awake(void);

/* Whether there is one that sleeps because nothing works: it is to be told of what does. One load.
 */
bool governor_sleeps(void);

/* Whether it looks by itself within so long: it is awake, or rests for no longer. */
bool governor_looks_within(uint64_t ns);

/* The same as governor_rouse where it sleeps for good; where it only rests, it looks soon enough.
 */
void governor_stir(void);

/* In a forked child: there is no thread. */
void governor_reset(void);

/* The process ends: the thread does not look any more. */
void governor_stop(void);

#endif
