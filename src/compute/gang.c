/* SPDX-License-Identifier: Apache-2.0 */
/* Which kernels wait for other devices'. */
#include "compute/gang.h"

/* Score of a gang for certain, and what an end at another time takes from it; one at the expected
 * time adds 1. An independent kernel meets that time by chance in fewer than two of three cases
 * (with eight devices in one of four), so that its score does not grow. */
#define SCORE_CERTAIN 12
#define SCORE_OFF 2
/* Score from which a gang that was certain once begins again: four ends are enough then. */
#define SCORE_AGAIN (SCORE_CERTAIN - 4)

/* Nanoseconds by which an end may differ from its time: 80 us for the launch to begin, and a
 * sixteenth of the time itself, 0.5 ms at most. */
#define TOLERANCE_NS 80000u
#define TOLERANCE_SHARE 16
#define TOLERANCE_MAX_NS 500000u

/* Nanoseconds. Another kernel is followed if the one that was did not end for 10 s. */
#define FORGET_NS 10000000000ull

static uint64_t tolerance_ns(uint64_t after_ns)
{
    uint64_t tolerance = TOLERANCE_NS + after_ns / TOLERANCE_SHARE;
    return tolerance < TOLERANCE_MAX_NS ? tolerance : TOLERANCE_MAX_NS;
}

static void begin(struct gang *gang, uint64_t key, uint64_t after_ns)
{
    gang->key = key;
    gang->after_ns = after_ns;
    gang->score = 1;
}

bool gang_judge(struct gang *gang, uint64_t key, uint64_t after_ns, uint64_t at_ns)
{
    bool forgotten = !gang->score || at_ns > gang->seen_ns + FORGET_NS;
    if (key != gang->key && !forgotten)
        return false;
    gang->seen_ns = at_ns;
    if (forgotten) {
        begin(gang, key, after_ns);
        return false;
    }
    int64_t off = (int64_t)(after_ns - gang->after_ns);
    if ((uint64_t)(off < 0 ? -off : off) > tolerance_ns(gang->after_ns)) {
        gang->score -= gang->score < SCORE_OFF ? gang->score : SCORE_OFF;
        return false;
    }
    gang->after_ns += (uint64_t)(off / 4);
    if (++gang->score < SCORE_CERTAIN)
        return false;
    gang->score = SCORE_AGAIN;
    gang->seen_ns = at_ns + GANG_HOLDS_NS;
    return true;
}
