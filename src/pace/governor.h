/* SPDX-License-Identifier: Apache-2.0 */
/* The one thread of the library: it looks after work that is on its way while the program's own
 * threads are elsewhere. It exists only in a process that works under a limit or may be paused, is
 * made by the first such launch, blocks all signals and sleeps for good while there is nothing to
 * see. */
#ifndef VGPU_PACE_GOVERNOR_H
#define VGPU_PACE_GOVERNOR_H

#include <stdbool.h>
#include <stdint.h>

/* Returned by `look`: there is nothing to look at. */
#define GOVERNOR_NOTHING UINT64_MAX
/* Flag in the time that `look` returns: nothing works, but look again after it. Work ends the
 * rest. */
#define GOVERNOR_IDLE (1ull << 63)

/* Sleeps for `ns` or less, and only while *word is `value`, which another thread of the process
 * changes and wakes; `word` is NULL if only the time counts. */
typedef void governor_rest_function(uint64_t ns, uint32_t *word, uint32_t value);

/* There may be something to see. `look` is called soon, and again after the nanoseconds that it
 * returns, until it returns GOVERNOR_NOTHING for 0.1 s. One load if the thread is awake. Without a
 * thread nothing happens. Any thread. */
void governor_wake(uint64_t (*look)(void), governor_rest_function *rest);

/* Work is on its way, noted where `look` finds it: a thread that rests looks at once. One atomic
 * write if it is awake. Any thread. */
void governor_rouse(void);

/* Whether there is a thread, or will be in a moment: not before the first governor_wake, not if
 * none could be made, not after governor_stop. One load. */
bool governor_works(void);

/* Whether there is one, or will be in a moment, that sleeps on nothing but what governor_wake was
 * given. One load. */
bool governor_is_awake(void);

/* Whether there is one that sleeps because nothing works, and must be told of work. One load. */
bool governor_sleeps(void);

/* Whether it looks by itself within `ns`: it is awake, or rests for no longer. */
bool governor_looks_within(uint64_t ns);

/* As governor_rouse if it sleeps for good; if it rests, it looks soon enough. */
void governor_stir(void);

/* In a forked child: there is no thread. */
void governor_reset(void);

/* The process ends: the thread does not look any more. */
void governor_stop(void);

#endif
