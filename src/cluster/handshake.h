/* SPDX-License-Identifier: Apache-2.0 */
/* The handshake annotation hami.io/node-handshake: the scheduler asks ("Requesting_<time>"),
 * plugins up to HAMi 2.7 answer ("Reported <time>"), their scheduler marks a node that is gone
 * ("Deleted_<time>"). Its time is that of the scheduler's wall clock, without a zone. Pure. */
#ifndef VGPU_CLUSTER_HANDSHAKE_H
#define VGPU_CLUSTER_HANDSHAKE_H

#include <stdbool.h>
#include <stdint.h>

#define HANDSHAKE_TEXT_BYTES 64

enum handshake_kind {
    HANDSHAKE_ABSENT,
    HANDSHAKE_REQUESTING,
    HANDSHAKE_REPORTED,
    HANDSHAKE_DELETED,
    HANDSHAKE_OTHER,
};

struct handshake {
    enum handshake_kind kind;
    bool has_time;
    int64_t local_seconds; /* since 1970 on the wall clock where it was written */
};

/* Takes anything: NULL is absent, and a time that is none leaves has_time false. "Requesting"
 * counts wherever it stands in the text (HAMi). The time of an answer is not read. */
struct handshake handshake_decode(const char *text);

/* The scheduler's request, and the answer of a plugin up to 2.7, as HAMi's scheduler of that age
 * expects it; the times are seconds since 1970 on the wall clock (request) and in UTC (answer).
 * Return -ERANGE outside of the years 0 to 9999. */
int handshake_format_request(int64_t local_seconds, char text[HANDSHAKE_TEXT_BYTES])
    __attribute__((warn_unused_result));
int handshake_format_answer(int64_t utc_seconds, char text[HANDSHAKE_TEXT_BYTES])
    __attribute__((warn_unused_result));

#endif
