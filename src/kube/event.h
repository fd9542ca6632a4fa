/* SPDX-License-Identifier: Apache-2.0 */
/* Events of core/v1, as `kubectl describe` shows them: best effort, never in the way. Equal ones
 * within ten minutes become one with a count, which is told at most once each `repeat_ms`. One is
 * sent at a time, at most five a second, warnings first; a burst waits in a bounded queue, and what
 * does not fit is dropped and counted: what is dispensable gives way to others, and all that is no
 * warning to warnings. All runs in the loop's thread. */
#ifndef VGPU_KUBE_EVENT_H
#define VGPU_KUBE_EVENT_H

#include "kube/client.h"
#include "net/error.h"

#include <stdbool.h>

#define EVENT_QUEUE_MAX 256    /* events that wait to be sent */
#define EVENT_KNOWN_MAX 1024   /* events whose repetition is counted */
#define EVENT_MESSAGE_MAX 1024 /* bytes; longer ones are cut (the API takes no more) */

struct kube_events;

/* Text is copied. */
struct kube_event {
    const char *kind;           /* of the object: "Pod", "Node" */
    const char *namespace_name; /* "" for a node: its events lie in "default" */
    const char *name, *uid;
    const char *reason;  /* "AllocateFailed": letters, for machines */
    const char *message; /* a sentence, for people */
    bool is_warning;
    bool is_dispensable; /* of no warning: another event says as much */
};

/* `component` and `host` (the node's name, may be "") name who reports. repeat_ms 0: 10,000. */
struct kube_events *kube_events_create(struct kube_client *client, const char *component,
    const char *host, unsigned repeat_ms, struct error *error);
void kube_events_destroy(struct kube_events *events);

/* Takes the event; never fails and never blocks. */
void kube_event_post(struct kube_events *events, const struct kube_event *event);

/* How many were dropped, because the queue was full, memory was short, or the API server refused.
 */
unsigned long kube_events_dropped(const struct kube_events *events);

#endif
