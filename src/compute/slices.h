/* SPDX-License-Identifier: Apache-2.0 */
/* What a tenant of a GPU leaves to the others, and what they leave to it: the length of its time
 * slices, its part of the time, whether its soft limit holds, and whether it gives way.
 *
 * Pure functions of what the registry says (struct registry_view, any value of which may be a lie)
 * and of what the tenant itself knows; no clock. One thread at a time for a struct slices. Times
 * are nanoseconds of CLOCK_MONOTONIC. A part is in permille of the device's time. */
#ifndef VGPU_COMPUTE_SLICES_H
#define VGPU_COMPUTE_SLICES_H

#include "registry/registry.h"

#include <stdbool.h>
#include <stdint.h>

/* Nanoseconds without another tenant at work after which soft limits open: a tenant that
 * pauses between two requests is not taken for gone. */
#define SLICES_ALONE_NS 15000000ull

/* A tenant is saturating if it keeps the device busy for more than a quarter of the time, or for 70
 * % of what the driver's own time slices give it. Saturating tenants take longer slices: switches
 * cost 8 % of the device with the driver's slices of 2 ms, 2 % with 10 ms (H200, driver
 * 580.159.04). Rates are taken over 0.1 s. */
#define SLICES_SATURATING_PERMILLE 250
#define SLICES_USED_UP_PERMILLE 700
#define SLICES_RATE_NS 100000000ull
/* Beside more than 7 others a kernel lasts many time slices, and its time is known only at its end:
 * what the others take is known after 8 rates, 0.8 s. */
#define SLICES_MANY 7u
#define SLICES_RATES_KNOWN 8u
#define SLICES_LIGHT_RATES                                                                         \
    4u /* rates in a row below, until it is not: work may come in long pieces */
#define SLICES_ROUND_US 20000u /* a time slice of each saturating tenant, together */
#define SLICES_MIN_US 2048u
#define SLICES_MAX_US 16384u

/* No tenant proves its priority. A tenant that gave way for 4 s works for 20 ms, so that one that
 * lies takes 99.5 % of the device's time from the others, and not all of it; fewer than one in a
 * hundred requests of a truthful one waits for that. */
#define SLICES_GIVES_WAY_NS 4000000000ull
#define SLICES_WORKS_NS 20000000ull

/* A kernel longer than a time slice is cut each time that others work, and its duration alone
 * cannot be seen. Then slices are extended to 100 ms (50 ms where that is refused; both tried on an
 * H200, driver 580.159.04), until 3 kernels in a row are known, for 1 s or 16 kernels at most, and
 * not again for 3 s. */
#define SLICES_EXTENDED_US 100000u
#define SLICES_EXTENDED_SURE_US 50000u
#define SLICES_EXTENDED_NS 1000000000ull
#define SLICES_EXTENDED_KERNELS 16u
#define SLICES_EXTENDED_KNOWN 3u
#define SLICES_EXTENDED_PAUSE_NS 3000000000ull
#define SLICES_EXTENDED_OTHERS                                                                     \
    20u /* that pause again for each 20 other tenants at work: each waits for all of them */

/* The state of one device; zero at the beginning. */
struct slices {
    bool saturating; /* it keeps the device busy for a good part of the time */
    bool divided;    /* in a time-division slot, in which others that have one do nothing */
    unsigned light;  /* rates in a row in which it did not */
    unsigned others_permille; /* of the time, that the others say they used */
    unsigned rates;           /* number of rates in that, up to SLICES_RATES_KNOWN */
    uint64_t rated_ns, rated_busy_ns, rated_others_ns;
    uint64_t alone_since_ns;   /* 0: others work */
    uint64_t alone_at_ns;      /* when its soft limit opens, if no other is heard of */
    uint64_t extended_to_ns;   /* until then its slices are extended; 0: they are not */
    uint64_t extended_next_ns; /* not extended again before */
    uint32_t extended_blurred; /* kernels cut, up to the begin or the end of that */
    uint64_t
        way_since_ns; /* since when it gives way, or works for a little in between; 0: neither */
};

/* The container's part of the device's time while the others work that do now. The changes between
 * time slices are in no part. */
struct slices_part {
    unsigned permille;  /* what it has while it has work, at least */
    unsigned likely;    /* and at most, if the others did what they say: not below it */
    uint64_t others_us; /* for which its work may have to wait for the others' time slices */
};

/* What was done so far, by this container and by the others (registry_view.busy_ns). */
void slices_rate(
    struct slices *slices, uint64_t busy_ns, const struct registry_view *view, uint64_t now_ns);

/* The time slice of the container's channel groups in us; 0: the driver's own. Longer ones only
 * among saturating tenants: others would wait for them. `percent`: its limit, 0 none. */
uint64_t slices_length_us(
    const struct slices *slices, const struct registry_view *view, unsigned percent);

/* Kernels of the container that others' time slices cut. */
struct slices_cut {
    uint32_t blurred; /* so far, whose duration alone was not known */
    uint32_t known;   /* since the last of these, whose duration was */
};

/* Whether the container's time slices are to be extended now. */
bool slices_are_extended(struct slices *slices, const struct registry_view *view,
    const struct slices_cut *cut, uint64_t now_ns);

struct slices_part slices_part(
    const struct slices *slices, const struct registry_view *view, unsigned percent);

/* Whether the container's soft limit is open. */
bool slices_alone(struct slices *slices, const struct registry_view *view, uint64_t now_ns);

/* Whether the container does not work now, because a tenant of higher priority says that it
 * does. */
bool slices_give_way(struct slices *slices, const struct registry_view *view, uint64_t now_ns);

#endif
