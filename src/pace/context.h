/* SPDX-License-Identifier: Apache-2.0 */
/* What the meter keeps of a context: shared by those who record marks (pace/marks.c) and those
 * who see them reached (pace/harvest.c). */
#ifndef VGPU_PACE_CONTEXT_H
#define VGPU_PACE_CONTEXT_H

#include "pace/marks.h"

#define SPARE_EVENTS 64

/* GPU time as the events of a context tell it, put onto the processor's clock: a mark is reached
 * after it was recorded and before it is seen to be. */
struct pace_context {
    struct pace_context *next;
    CUcontext handle;
    int device;
    struct meter_record *meters;
    uint64_t harvested_ns; /* its marks were asked for last */
    CUevent base;
    uint64_t base_ns;    /* when it was reached, as far as that is known */
    uint64_t late_ns;    /* by so much at most marks on idle streams seem to be reached late */
    unsigned idle_marks; /* which were so many, since base_ns was set right by them */
    unsigned spare_count;
    CUevent spares[SPARE_EVENTS];
};

/* All of them, a list. */
struct pace_context *marks_contexts(void) REQUIRES(marks_lock);

/* An event of the context's that is not needed now. */
void marks_spare_give(struct pace_context *context, CUevent event) REQUIRES(marks_lock);

/* The driver refused a call by which time is measured; it answered one again. */
void marks_note_blind(int device, CUresult result, uint64_t now_ns);
void marks_note_seen(int device);

/* Forgets a meter whose marks are all out. */
void marks_meter_drop(struct meter_record **link) REQUIRES(marks_lock);

/* The meter is its stream's no more: nobody finds it, what it has marks for is seen to its end. */
void marks_meter_unlink(struct meter_record *record) REQUIRES(marks_lock);

/* Another id: what others kept of the meter is not current any more. */
void marks_meter_renew(struct meter_record *record) REQUIRES(marks_lock);

/* Whether another thread is between two steps of recording a mark on it. */
bool marks_others_record(const struct meter_record *record) REQUIRES(marks_lock);

/* Gives up the context's events. Where it has meters still, it stays for them, nobody's. */
void marks_context_drop(struct pace_context *context) REQUIRES(marks_lock);

/* Charges for the marks that were reached; returns how many are outstanding. */
unsigned marks_harvest_context(struct pace_context *context) REQUIRES(marks_lock);

#endif
