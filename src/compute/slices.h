/* SPDX-License-Identifier: Apache-2.0 */
/* What a tenant of a GPU leaves to the others, and what they leave to it: the length of its time
 * slices, its part of the time, whether its soft limit holds, and whether it gives way.
 *
 * Pure functions of what the board says (struct board_view, each value of which may be a lie) and
 * of what the tenant itself knows: no board is read here, no clock. One thread at a time for a
 * struct slices. Times are nanoseconds of CLOCK_MONOTONIC. */
#ifndef VGPU_COMPUTE_SLICES_H
#define VGPU_COMPUTE_SLICES_H

#include "region/board.h"

#include <stdbool.h>
#include <stdint.h>

/* Soft limits open when nobody else has been at work for so long: who works now and then is not
 * taken for gone. */
#define SLICES_ALONE_NS 15000000ull

/* Who keeps the device busy for more than a quarter of the time, or for most of what the driver's
 * time slices give him, shares it in extended time slices: switches cost 8 % of it with the
 * driver's time slices of 2 ms, 2 % with 10 ms (H200, driver 580.159.04). */
#define SLICES_SATURATING_PERMILLE 250
#define SLICES_USED_UP_PERMILLE 700
#define SLICES_RATE_NS 100000000ull
/* Among more than so many others a kernel lasts many time slices, and is told of when it is over:
 * what they do is known after so many rates. */
#define SLICES_MANY 7u
#define SLICES_RATES_KNOWN 8u
#define SLICES_LIGHT_RATES 4u  /* so often in a row it was not: work may come in long pieces */
#define SLICES_ROUND_US 20000u /* a time slice of each */
#define SLICES_MIN_US 2048u
#define SLICES_MAX_US 16384u

/* Nobody proves his priority: who gave way for so long works for a little, so that he who lies
 * takes 99.5 % of the device's time from others, and not all of it; of the requests of one who
 * tells the truth, less than one in a hundred waits for that. */
#define SLICES_GIVES_WAY_NS 4000000000ull
#define SLICES_WORKS_NS 20000000ull

/* What runs longer than a time slice is cut by the others' each time, and what it takes alone is
 * seen only where it is not: time slices are made so long then, until it is known of some kernels
 * in a row, at most for a second or so many of them, and not again soon. The shorter ones were
 * tried (H200, driver 580.159.04), and serve where the others are refused. */
#define SLICES_EXTENDED_US 100000u
#define SLICES_EXTENDED_SURE_US 50000u
#define SLICES_EXTENDED_NS 1000000000ull
#define SLICES_EXTENDED_KERNELS 16u
#define SLICES_EXTENDED_KNOWN 3u
#define SLICES_EXTENDED_PAUSE_NS 3000000000ull
#define SLICES_EXTENDED_OTHERS 20u /* so much longer again for each so many others at work */

/* The state of one device; zero at the beginning. */
struct slices {
    bool saturating;          /* we keep the device busy for a good part of the time */
    bool divided;             /* and do so in a slot in which others who have one do nothing */
    unsigned light;           /* how often in a row we did not */
    unsigned others_permille; /* so much of the time others say that they did */
    unsigned rates;           /* by so many rates, up to SLICES_RATES_KNOWN */
    uint64_t rated_ns, rated_busy_ns, rated_others_ns;
    uint64_t alone_since_ns;   /* 0: others are at work */
    uint64_t alone_at_ns;      /* we may have our soft limit then, if nobody is heard of */
    uint64_t extended_to_ns;   /* until then time slices are extended; 0: they are not */
    uint64_t extended_next_ns; /* not again before */
    uint32_t extended_blurred; /* kernels that were cut, up to the beginning of that, or its end */
    uint64_t way_since_ns;     /* we give way, or work for a little in between; 0: neither */
};

/* Our part of the device's time while the others work that do now. The changes between time slices
 * are in nobody's. */
struct slices_part {
    unsigned permille;  /* what we have while we have work to do, at least */
    unsigned likely;    /* and at most, if the others have done what they say: not below it */
    uint64_t others_us; /* what is ours may have to wait so long for the others' time slices */
};

/* What was done so far, by us and by the others (board_view.busy_ns). */
void slices_rate(
    struct slices *slices, uint64_t busy_ns, const struct board_view *view, uint64_t now_ns);

/* The time slice of our channel groups, 0: as the driver made them. Long ones only among those who
 * use them up: who works now and then would wait for them. `percent`: our limit, 0 none. */
uint64_t slices_length_us(
    const struct slices *slices, const struct board_view *view, unsigned percent);

/* Of our kernels that others' time slices cut. */
struct slices_cut {
    uint32_t blurred; /* so far, of which it was not known what they take alone */
    uint32_t known;   /* since the last such, of which it was */
};

/* Whether our time slices are as long now as can be. */
bool slices_are_extended(struct slices *slices, const struct board_view *view,
    const struct slices_cut *cut, uint64_t now_ns);

struct slices_part slices_part(
    const struct slices *slices, const struct board_view *view, unsigned percent);

/* Whether we may have our soft limit. */
bool slices_alone(struct slices *slices, const struct board_view *view, uint64_t now_ns);

/* Whether we do not work now, because somebody of higher priority says that he does. */
bool slices_give_way(struct slices *slices, const struct board_view *view, uint64_t now_ns);

#endif
