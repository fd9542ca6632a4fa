/* SPDX-License-Identifier: Apache-2.0 */
/* Turns among the tenants of one GPU whose working sets do not fit together.
 *
 * Each tenant has a share of the card's memory, its limit / ratio. A tenant that wants no more than
 * its share is never part of this, and never waits. The others form a group and take turns with
 * what their shares add up to: each keeps what cannot leave the card, the holder may hold what it
 * wants, as far as that goes, and the rest is left to the others in proportion to their shares. So
 * at a hand-over only that much moves that the next one lacks.
 *
 * Two things are kept apart. The turn says which tenant works: a word in the GPU's registry that
 * names the holder. The holder passes it on; it is taken from a holder that is gone, silent, or
 * holds for too long. The claim says how much memory a tenant may hold at most. It is lowered after
 * memory went out, and raised, under a lock that the tenants share, before memory comes in, and
 * never beyond what the shares add up to less the others' claims. So a wrong turn costs time, and
 * never memory.
 *
 * Pure functions of what the tenants say, any value of which may be a lie; no clock, no lock, no
 * driver. Times are nanoseconds of CLOCK_MONOTONIC, sizes pages of 2 MiB. */
#ifndef VGPU_RESIDENCY_TURNS_H
#define VGPU_RESIDENCY_TURNS_H

#include <stdbool.h>
#include <stdint.h>

#define TURNS_TENANTS_MAX 126

/* A holder that was not heard of for this time has lost its turn, and so has one that was named and
 * never said a word. Tenants in a group speak each TURNS_SPEAK_NS. */
#define TURNS_SPEAK_NS 50000000ull
#define TURNS_SILENT_NS 1000000000ull

/* Nanoseconds. Where a turn may be taken, each tenant waits this much longer than the one before
 * it, so that they do not all take it; one that says that it waits, and does not take it, is passed
 * over. */
#define TURNS_RANK_NS 100000000ull

/* A quantum: seconds, as long as makes the last hand-over the wanted part of the time. */
#define TURNS_QUANTUM_MIN_NS 1000000000ull
#define TURNS_QUANTUM_MAX_NS 60000000000ull

/* A holder works, although not all that it may hold is on the card, where nothing came for the
 * first time, or after the second in any case: another tenant may be unable to give its room up. */
#define TURNS_STUCK_NS 1000000000ull
#define TURNS_FILL_MAX_NS 10000000000ull

/* A holder that had no work for this time, or for half of what a hand-over takes where that is
 * more, passes the turn on. */
#define TURNS_IDLE_NS 100000000ull

/* No tenant of a group of n waits longer than n times this: after that, which takes a registry that
 * is written over all the time, it works for the least quantum without the turn. */
#define TURNS_BOUND_NS                                                                             \
    (TURNS_FILL_MAX_NS + TURNS_QUANTUM_MAX_NS + TURNS_SILENT_NS + TURNS_TENANTS_MAX * TURNS_RANK_NS)

/* Of the time that is spent moving, unless it is set. */
#define TURNS_OVERHEAD_PERCENT 10u

/* What a tenant says. */
struct turns_tenant {
    uint32_t share_pages;  /* 0: it has none, and is not looked at */
    uint32_t wanted_pages; /* its working set */
    uint32_t fixed_pages;  /* what of it cannot leave the card */
    uint32_t claim_pages;  /* it holds no more than this; 0: not said, which is its share */
    bool waits;            /* for the turn, with work to do */
    uint64_t heard_ns;     /* when it last spoke; 0 never */
    unsigned slot;         /* the caller's number of it */
};

struct turns_view {
    unsigned count;   /* of tenants */
    unsigned own;     /* ours */
    int holder;       /* -1: none, or none that lives */
    uint64_t turn_ns; /* when the turn was given to it, or was given back */
    struct turns_tenant tenants[TURNS_TENANTS_MAX]; /* those that live, in one order for all */
};

/* What this tenant knows of itself. */
struct turns_self {
    uint64_t idle_ns;        /* how long it has had no work; 0: it works, or a launch waits */
    uint32_t resident_pages; /* what it holds on the card */
    bool is_full;            /* nothing that it wants can come in within its claim */
};

/* The state of one device; zero at the beginning. One thread. */
struct turns {
    bool holds;
    bool ready;            /* it holds, and has what it may have */
    uint64_t since_ns;     /* since when it holds */
    uint64_t ready_ns;     /* since when it is ready */
    uint64_t filled_ns;    /* when what it holds last grew in this turn */
    uint32_t filled_pages; /* and to what */
    uint64_t waits_ns;     /* since when it waits; 0: it does not */
    uint64_t handover_ns;  /* what a hand-over costs: time between being named and being ready */
};

enum turns_act {
    TURNS_KEEP,
    TURNS_TAKE, /* swap the turn from what was read for one that names us */
    TURNS_PASS, /* once our work is held: swap it for one that names `to`; -1: none */
};

struct turns_order {
    bool works; /* launches pass */
    bool waits; /* to be said: it waits for the turn */
    enum turns_act act;
    int to;
    bool by_idleness;       /* it passes before its time, because it has no work */
    uint32_t ceiling_pages; /* it is to hold no more: what is beyond goes out */
};

/* Whether the tenant is one of those that take turns. */
bool turns_takes_part(const struct turns_tenant *tenant);

/* What the tenant is to hold at most under this holder. Never below the share of one that does not
 * take part. */
uint32_t turns_ceiling(const struct turns_view *view, unsigned index);

/* What our claim may be raised to now, under the tenants' lock: our ceiling, as far as the others'
 * claims leave room. Never below our claim. */
uint32_t turns_claim_room(const struct turns_view *view);

/* What is to be done now. `overhead_percent`: of the time that may be spent moving, 1 to 90. */
struct turns_order turns_step(struct turns *turns, const struct turns_view *view,
    const struct turns_self *self, unsigned overhead_percent, uint64_t now_ns);

/* How long a turn lasts from when its holder is ready. */
uint64_t turns_quantum_ns(uint64_t handover_ns, unsigned overhead_percent);

#endif
