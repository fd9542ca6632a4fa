/* SPDX-License-Identifier: Apache-2.0 */
/* What the governor does (pace/governor.h). It polls completions while the program's threads are
 * elsewhere, announces the container in the registries, and takes its channels off the GPU and lets
 * them on again (pace/channels.h): in windows, if something runs that the launch gate cannot hold,
 * and while the container is paused or a tenant of higher priority works. */
#ifndef VGPU_PACE_GOVERN_H
#define VGPU_PACE_GOVERN_H

#include <stdint.h>

/* From now on the governor watches; it is made if there is none. One load if it is awake. Without a
 * compute limit there is nothing to measure, but the container may be paused: then the governor
 * sleeps until it is told something. */
void govern_watch(void);

/* A launch is held back by the limit: a governor that rests looks at once. */
void govern_note_wait(unsigned device, uint64_t now_ns);

/* A launch that was held back goes on. Others say again that they wait. */
void govern_note_admitted(unsigned device, uint64_t now_ns);

/* A launch waits because the container is held. */
void govern_note_held(uint64_t now_ns);

/* Launches pass unthrottled: what runs of them is not known from then on. */
void govern_note_unmeasured(void);

/* Work is admitted. */
void govern_note_work(unsigned device, uint64_t now_ns);

/* Admitted work was launched, and its event recorded: a governor that rests looks at once, so that
 * the neighbours hear of it. */
void govern_rouse(void);

/* Another thread polled. */
void govern_note_polled(uint64_t now_ns);

/* The process ends: all channels are opened for good. */
void govern_finish(void);

/* In a forked child. */
void govern_reset(void);

#endif
