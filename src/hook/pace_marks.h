/* SPDX-License-Identifier: Apache-2.0 */
/* The meter's marks: events with time that are recorded on the program's streams, and what they
 * tell when they are reached. A lane (limit/lane.h) for each stream that launches under a limit;
 * lanes and events die with their context. */
#ifndef VGPU_HOOK_PACE_MARKS_H
#define VGPU_HOOK_PACE_MARKS_H

#include "abi/cuda.h"
#include "base/lock.h"
#include "limit/lane.h"

#include <stdbool.h>
#include <stdint.h>

struct pace_context;

struct lane_record {
    struct lane lane;
    struct lane_record *next;
    struct pace_context *context;
    CUstream stream;
    const void *thread; /* whose per-thread stream it is */
    int device;
    bool orphan; /* its stream is gone */
};

/* Guards lanes and contexts. Of the driver's calls only those are made under it that ask for or
 * drop an event, or for the current context: none of them waits. */
extern struct lock marks_lock;

/* Changes when a lane goes: who kept a pointer to one asks for it anew. */
extern uint32_t marks_epoch;

/* How many marks were reached so far. */
extern uint64_t marks_reached;

/* Where the driver refuses a mark, or does not tell its time, the device's work cannot be measured:
 * until one is reached again the time between launches counts as busy. Returns how much passed
 * since the last call, 0 where marks are to be had. */
uint64_t marks_blind_ns(unsigned device, uint64_t now_ns);

/* The lane of the stream, a default stream's in the thread's current context; made where it is new.
 * NULL where there is no context, its device is not the container's, or there is no memory. */
struct lane_record *marks_lane(CUstream stream) REQUIRES(marks_lock);

/* Records a mark behind what the lane notes; errors of the driver leave the stretch open. `epoch`:
 * marks_epoch when the lane was had. run.shared is found out here. */
void marks_record(struct lane_record *record, uint32_t epoch, struct lane_run run);

/* Ends the open stretches on the context's other streams, as far as this thread may record there.
 */
void marks_close_others(const struct lane_record *record, uint32_t epoch);

/* Sees which marks were reached, on all streams of the device, and charges for them; what runs on
 * is charged up to now. Returns how many marks are outstanding. */
unsigned marks_harvest(int device) REQUIRES(marks_lock);
unsigned marks_harvest_all(void) REQUIRES(marks_lock);

void marks_stream_leaves(CUstream stream);
void marks_context_leaves(CUcontext context);
void marks_reset(void);

#endif
