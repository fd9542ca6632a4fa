/* SPDX-License-Identifier: Apache-2.0 */
/* One collection of the API server, followed: a list, then a watch from its version on, and again
 * from there when the watch ends, dies silently, or its version has been forgotten (410). What was
 * deleted in a gap is reported at the next list. One request at a time; it never gives up, and
 * waits longer after each failure in a row. All runs in the loop's thread. */
#ifndef VGPU_KUBE_WATCH_H
#define VGPU_KUBE_WATCH_H

#include "kube/client.h"
#include "net/error.h"

#include <jansson.h>

struct kube_watch;

enum kube_watch_change {
    KUBE_WATCH_ADDED,
    KUBE_WATCH_MODIFIED,
    KUBE_WATCH_DELETED,
};

/* 0: the value in brackets. All text is copied. */
struct kube_watch_options {
    const char *path;           /* "/api/v1/pods" */
    const char *field_selector; /* "spec.nodeName=n1"; NULL: none */
    const char *label_selector; /* NULL: none */
    unsigned page_objects; /* in one answer of a list; what memory it takes goes by this [100] */
    unsigned idle_ms;      /* of a watch without a byte, bookmarks included [100,000] */
    /* A change of an object, each in its order. The object is borrowed: it may not be kept. For one
     * that was deleted in a gap it has metadata.name, namespace and uid only. An object of the same
     * name and another UID is a deletion and an addition. Objects that a new list names in the
     * version that is known are not reported. */
    void (*on_change)(void *context, enum kube_watch_change change, const json_t *object);
    /* The list is complete: all that exists has been reported. May be NULL. */
    void (*on_synced)(void *context);
    /* One line, once each time that it loses its hold; on_back when it follows again. May be
     * NULL. */
    void (*on_trouble)(void *context, const char *text);
    void (*on_back)(void *context);
    void *context;
};

/* Starts from the loop. The callbacks may use the client, but not destroy the watch. */
struct kube_watch *kube_watch_create(
    struct kube_client *client, const struct kube_watch_options *options, struct error *error);
void kube_watch_destroy(struct kube_watch *watch);

#endif
