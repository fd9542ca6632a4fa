/* SPDX-License-Identifier: Apache-2.0 */
/* The channel gate: the compute channels of this process, and the resource manager's controls that
 * take them off the GPU and let them go on, running kernels included. Nothing here calls libcuda:
 * while channels are closed a thread of the program may hold one of its locks and wait for the GPU.
 * A call that switches takes 0.3 to 0.5 ms for each 64 channels of a client and spins in the kernel
 * meanwhile (H200, driver 580.159.04). ABI: facts of NVIDIA's open kernel modules 580.95.05; needs
 * GSP firmware.
 *
 * Compute channels are the GPFIFO channels below a channel group on a GR engine, as
 * rm/rm_memory.c saw them allocated. `device` is the region's index. Any function may be called
 * by any thread; each waits at most for the controls that are under way, never for the GPU, a lock
 * of the driver or another thread's progress elsewhere. errno is kept.
 *
 * A forked child is to enter (container/container.h) before it calls these; opening, which may be
 * all that it does, enters by itself where there is something to open.
 *
 * A device is open at first. It is closed from rm_channels_close until the first of
 * rm_channels_open, _hold_open, _finish or a failure. Whatever fails, fails open. */
#ifndef VGPU_RM_RM_CHANNELS_H
#define VGPU_RM_RM_CHANNELS_H

#include "rm/rm_call.h"
#include "rm/rm_channels_state.h"

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

/* ---- the record, kept by rm/rm_memory.c ---- */

/* The kernel gave `allocation`, asked for by `call`. Channels that are born on a closed device are
 * closed before this returns. */
void rm_channels_added(const struct rm_call *call, const struct rm_allocation *allocation);

/* The kernel let a group's or a channel's channels run (RM_CTRL_GPFIFO_SCHEDULE): those of a closed
 * device are closed again. */
void rm_channels_scheduled(uint32_t client, uint32_t object);

struct rm_channels_detached; /* what left the record while the kernel frees it */

/* Before the kernel is asked to free the object: it and all below it leave the record, as they are;
 * what no longer could be switched without the object is opened. `class_id` is the object's, 0
 * where it is not known. NULL where it concerns none. */
struct rm_channels_detached *rm_channels_detach(
    uint32_t client, uint32_t object, uint32_t class_id);

/* The kernel refused: back they are, opened or closed as their device is by now. NULL is accepted.
 */
void rm_channels_attach(struct rm_channels_detached *detached);

/* The kernel freed them. NULL is accepted. */
void rm_channels_drop(struct rm_channels_detached *detached);

/* Forgets everything, without a lock or a call: the start of a process or of a forked child, which
 * has no channels of its own. */
void rm_channels_reset(void);

/* ---- the gate ---- */

/* Takes the device's compute channels off the GPU, and those that will be born until it is opened.
 * Returns how many channels were switched: 0 where the device is closed already or has none.
 *   -ENOTSUP   the gate does not work on this device (rm_channels_state); it is open. A device that
 *              was not tested is tested first
 *   -EBUSY     held open, or finished
 *   -ECANCELED rm_channels_open was called after this began; it is open, or will be when that
 *              returns
 * ret_times may be NULL; filled whatever is returned. */
int rm_channels_close(unsigned device, struct rm_channels_times *ret_times);

/* Lets go on what was closed and still exists. Returns how many channels were switched, 0 where
 * none was closed, or -EIO where some could not be: the device then still counts as closed, each
 * further call tries again. Costs a load where the device is open. ret_times as above. */
int rm_channels_open(unsigned device, struct rm_channels_times *ret_times);

/* Whether any of the device's channels may be off the GPU, or those born now would be. One load. */
bool rm_channels_is_closed(unsigned device);

/* Opens all devices, which then stay open until as many calls of rm_channels_release: around what
 * waits for the GPU inside the driver (a context is destroyed or reset) and before exec. Release
 * closes nothing by itself. Not for the child of a vfork, whose hold would stay its parent's. */
void rm_channels_hold_open(void);
void rm_channels_release(void);

/* They were held open for long enough: devices can be closed again. What the holders
 * release later may be another's hold, which then ends early. */
void rm_channels_end_holds(void);

/* The process ends: opens all devices for good. */
void rm_channels_finish(void);

bool rm_channels_any_closed(void);

/* Compute channels on record. One load. */
unsigned rm_channels_count(unsigned device);

/* ---- whether it works ---- */

/* The self-test, once for a process and device, when its first context was made: the group answers
 * GET_TIMESLICE, its channels can be enabled, disabled and enabled. Returns the state: UNTESTED
 * while held open or finished. Later calls return what is known. */
enum rm_channels_state rm_channels_test(unsigned device);

/* What is known, without a test. One load. */
enum rm_channels_state rm_channels_state(unsigned device);

/* The state in words, to follow "the channel gate ": "works", "does not work: …". */
#define RM_CHANNELS_WORDS 160
void rm_channels_describe(unsigned device, char ret_words[RM_CHANNELS_WORDS]);

/* ---- other processes ---- */

struct rm_pids;

/* The processes that have channels on the device, this one among them, as the resource manager
 * tells and as far as they are in our PID namespace. False where it cannot be told. A control of
 * about 10 us, under the GPU's lock. */
bool rm_channels_processes(unsigned device, struct rm_pids *ret_pids);

/* ---- time slices ---- */

/* Gives the device's compute groups, and those that will be born, time slices of `us` microseconds;
 * 0 gives back what each had at first. Returns how many groups were changed, or -EIO where one
 * could not be. */
int rm_channels_set_timeslice(unsigned device, uint64_t us);

#endif
