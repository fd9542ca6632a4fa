/* SPDX-License-Identifier: Apache-2.0 */
/* What the governor does (pace/governor.h): it polls completions while the program's threads are
 * elsewhere, says on the boards that we are at work, and takes the container's channels off the GPU
 * and lets them on again: in windows where something runs that the launch gate cannot hold, and for
 * as long as the container is paused or somebody of higher priority works (pace/channels.h). */
#ifndef VGPU_PACE_GOVERN_H
#define VGPU_PACE_GOVERN_H

#include <stdint.h>

/* From now on the governor watches; it is made where there is none. One load where it is awake.
 * Without a compute limit there is nothing to measure, but the container may be paused: it then
 * sleeps until it is told something. */
void govern_watch(void);

/* A launch is held back by the limit: a governor that rests looks at once. */
void govern_note_wait(unsigned device, uint64_t now_ns);

/* One that was held back goes on. Others say again that they wait. */
void govern_note_admitted(unsigned device, uint64_t now_ns);

/* One waits until the container may work at all. */
void govern_note_held(uint64_t now_ns);

/* Launches pass without a measurement: what runs of them is not known from then on. */
void govern_note_unmeasured(void);

/* Work is admitted. */
void govern_note_work(unsigned device, uint64_t now_ns);

/* It has gone, and its timing event is recorded: a governor that rests because nothing worked looks
 * at once, so that the neighbours hear of it. */
void govern_rouse(void);

/* Another thread polled. */
void govern_note_polled(uint64_t now_ns);

/* The process ends: all is opened for good. */
void govern_finish(void);

/* In a forked child. */
void govern_reset(void);

#endif
