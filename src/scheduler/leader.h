/* SPDX-License-Identifier: Apache-2.0 */
/* Which of several schedulers acts: the one beside the kube-scheduler that holds the Lease, as
 * HAMi has it. The holder's name begins with that of this Pod. Both are in one Pod, so that the
 * lease's time is of the clock that is read here. */
#ifndef VGPU_SCHEDULER_LEADER_H
#define VGPU_SCHEDULER_LEADER_H

#include "kube/client.h"
#include "net/error.h"

#include <jansson.h>
#include <stdbool.h>
#include <stdint.h>

/* Before the lease's end nothing is begun any more. */
#define LEADER_MARGIN_MS 2000

struct leader;

struct leader_options {
    struct kube_client *client;
    const char *lease_namespace, *lease_name;
    const char *identity; /* this Pod's name */
    /* The Lease has come to this Pod: what was known before may be old. */
    void (*on_gain)(void *context);
    /* It has gone, or comes for another term: another scheduler acts, or may have acted. kube-
     * scheduler gives it away when it ends, long before the lease's end. */
    void (*on_loss)(void *context);
    void *context;
};

/* What a Lease says. Pure. */
struct leader_term {
    bool is_ours;        /* "<identity>" or "<identity>_..." holds it */
    int64_t transitions; /* how often the holder has changed */
    int64_t end_ms;      /* of the wall clock, since 1970 */
};
/* A Lease that lacks something is nobody's. */
struct leader_term leader_read_term(const json_t *lease, const char *identity);

struct leader *leader_create(const struct leader_options *options, struct error *error);
void leader_destroy(struct leader *leader);

/* For how long it may act from now on, in ms; 0: not at all. */
int64_t leader_left_ms(const struct leader *leader);

#endif
