/* SPDX-License-Identifier: Apache-2.0 */
/* Pods in flight: from their bind until kubelet has asked the node's plugin for their devices. An
 * Allocate carries no Pod, only a number of devices for a container. The plugin takes any Pod in
 * flight that waits for as many, which is right where all of those get the same limits. So two Pods
 * clash on a node where a container of the one and a container of the other have as many devices,
 * and other limits: they must not be in flight there together. Pure; not synchronised. */
#ifndef VGPU_SCHEDULE_FLIGHT_H
#define VGPU_SCHEDULE_FLIGHT_H

#include "net/error.h"

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

/* Its binding is under way: no deadline. */
#define FLIGHT_BINDING INT64_MAX

struct flights;

struct flights *flights_create(void); /* NULL without memory */
void flights_destroy(struct flights *flights);

/* Whether a Pod with this device string may not be bound to the node now, for another Pod that is
 * in flight there. One whose deadline has passed stands in nobody's way: its plugin does not
 * answer, or it never starts. A string that cannot be read clashes with nothing: the plugin refuses
 * it. Returns 0 or 1, or -ENOMEM. */
int flights_clash(const struct flights *flights, const char *node, const char *uid,
    const char *devices, int64_t now_ns) __attribute__((warn_unused_result));

/* Calls `take` with the name of each node where a Pod with this device string would clash now, some
 * more than once. Returns 0 or -ENOMEM. */
int flights_each_clash(const struct flights *flights, const char *devices, int64_t now_ns,
    void (*take)(void *context, const char *node), void *context)
    __attribute__((warn_unused_result));

/* Whether Pods with these device strings would clash on a node. Returns 0 or 1, or -ENOMEM. */
int flight_strings_clash(const char *a, const char *b) __attribute__((warn_unused_result));

/* The Pod takes off; it is known until it is removed. Returns 0 or -ENOMEM. */
int flights_add(struct flights *flights, const char *node, const char *uid, const char *devices,
    int64_t deadline_ns) __attribute__((warn_unused_result));

/* What is known of the Pod's deadline; 0: it is not in flight. */
int64_t flights_deadline(const struct flights *flights, const char *uid);
/* Nothing where it is not in flight. */
void flights_set_deadline(struct flights *flights, const char *uid, int64_t deadline_ns);

/* How many Pods are in flight, those whose deadline has passed among them. */
size_t flights_count(const struct flights *flights);

/* Returns whether it was known. */
bool flights_remove(struct flights *flights, const char *uid);

#endif
