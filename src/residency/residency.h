/* SPDX-License-Identifier: Apache-2.0 */
/* Which memory is on the card and which on the host: by use, where use was seen, and else by age,
 * the youngest on the card.
 *
 * One move at a time is chosen, from all of a device's ranges, which are shown one by one. What is
 * beyond the ceiling goes out, the coldest first. What room there is takes the hottest in. Without
 * room the hottest on the host changes places with the coldest on the card only where that pays:
 * it was used several times since it is there, while the other was not used for long, and neither
 * moved lately. So a set that is larger than the card and used in a circle stays where it is.
 * Moves that no call waits for take a bounded part of the time.
 *
 * Pure: no clock, no lock, no driver. Times are nanoseconds of CLOCK_MONOTONIC. */
#ifndef VGPU_RESIDENCY_RESIDENCY_H
#define VGPU_RESIDENCY_RESIDENCY_H

#include <stdbool.h>
#include <stdint.h>

/* Neither place is left again for this time, and what was used within it is not cold: several times
 * what a step of a training takes. */
#define RESIDENCY_STAY_NS 10000000000ull

/* A read over the bus costs about what moving in does; a change of places moves twice. */
#define RESIDENCY_PAYS_USES 3u

/* The percentage of the time that moves may take which no call waits for, and how much unused time
 * is saved up, ns. */
#define RESIDENCY_PERCENT 5u
#define RESIDENCY_SAVED_NS 1000000000ull

enum residency_advice { RESIDENCY_NO_ADVICE, RESIDENCY_CARD, RESIDENCY_HOST };

/* What is known of the use of one range. */
struct residency_use {
    uint64_t made_ns;
    uint64_t used_ns;  /* when it was last seen to be used; 0 never */
    uint64_t moved_ns; /* when it last moved; 0 never */
    uint32_t uses;     /* seen since it last moved */
    uint32_t advice;   /* enum residency_advice, the program's own */
};

/* Uses that come together, as one launch's arguments do, count once in this time. */
#define RESIDENCY_USE_NS 10000000ull

void residency_note_use(struct residency_use *use, uint64_t now_ns);
void residency_note_move(struct residency_use *use, uint64_t now_ns);

/* A range that may be moved. */
struct residency_range {
    void *range; /* the caller's */
    uint64_t resident_bytes, spilled_bytes;
    struct residency_use use;
};

/* Those that come into question; zero before the first is shown. */
struct residency_pick {
    struct residency_range coldest; /* of those that have memory on the card; range NULL: none */
    struct residency_range hottest; /* of those that have memory on the host, likewise */
};

void residency_show(struct residency_pick *pick, const struct residency_range *range);

/* How the time for moves is spent; zero at the beginning. */
struct residency {
    uint64_t from_ns;  /* the time up to which was given; 0 never */
    uint64_t saved_ns; /* what is left of it, */
    uint64_t owed_ns;  /* or was taken too much */
};

/* A move took that long. */
void residency_spend(struct residency *residency, uint64_t ns);

struct residency_move {
    void *range; /* NULL: none */
    bool to_host;
    uint64_t bytes; /* at most */
};

/* The next move. `over_bytes`: what is on the card beyond the ceiling; `room_bytes`: what is
 * missing to the ceiling. `awaited`: launches wait for the move. */
struct residency_move residency_next(struct residency *residency, const struct residency_pick *pick,
    uint64_t over_bytes, uint64_t room_bytes, bool awaited, uint64_t now_ns);

#endif
