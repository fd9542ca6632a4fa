/* SPDX-License-Identifier: Apache-2.0 */
#include "schedule/flight.h"

#include "cluster/pod_devices.h"
#include "schedule/table.h"

#include <errno.h>
#include <stdlib.h>
#include <string.h>

/* What a container gets, as far as it matters for an Allocate. */
struct shape {
    size_t devices;
    uint64_t limits; /* a digest */
};

struct flight {
    char *uid, *node;
    int64_t deadline_ns;
    size_t count;
    struct shape shapes[];
};

struct flights {
    struct table table; /* of struct flight, by UID */
};

struct flights *flights_create(void)
{
    return calloc(1, sizeof(struct flights));
}

static void flight_free(struct flight *flight)
{
    free(flight->uid);
    free(flight->node);
    free(flight);
}

void flights_destroy(struct flights *flights)
{
    struct flight *flight;
    if (!flights)
        return;
    for (size_t cursor = 0; (flight = table_next(&flights->table, &cursor));)
        flight_free(flight);
    table_finish(&flights->table);
    free(flights);
}

static uint64_t mix(uint64_t digest, int32_t number)
{
    digest = (digest ^ (uint32_t)number) * UINT64_C(0x9E3779B97F4A7C15);
    return digest ^ (digest >> 29);
}

static struct shape shape_of(const struct pod_devices_container *container)
{
    struct shape shape = {container->count, 1};
    for (size_t i = 0; i < container->count; i++) {
        shape.limits = mix(shape.limits, container->devices[i].memory_mib);
        shape.limits = mix(shape.limits, container->devices[i].cores_percent);
    }
    return shape;
}

static bool has_shape(const struct flight *flight, const struct shape *shape)
{
    for (size_t i = 0; i < flight->count; i++)
        if (flight->shapes[i].devices == shape->devices &&
            flight->shapes[i].limits == shape->limits)
            return true;
    return false;
}

/* NULL without memory. */
static struct flight *make_flight(const char *node, const char *uid, const char *devices)
{
    struct pod_devices all;
    if (pod_devices_decode(devices, &all, NULL))
        all = (struct pod_devices){0};
    struct flight *flight = calloc(1, sizeof(*flight) + all.count * sizeof(flight->shapes[0]));
    for (size_t i = 0; flight && i < all.count; i++) {
        struct shape shape = shape_of(&all.containers[i]);
        if (shape.devices && !has_shape(flight, &shape))
            flight->shapes[flight->count++] = shape;
    }
    pod_devices_finish(&all);
    if (!flight)
        return NULL;
    flight->uid = strdup(uid);
    flight->node = strdup(node);
    if (flight->uid && flight->node)
        return flight;
    flight_free(flight);
    return NULL;
}

static bool do_clash(const struct flight *a, const struct flight *b)
{
    for (size_t i = 0; i < a->count; i++)
        for (size_t k = 0; k < b->count; k++)
            if (a->shapes[i].devices == b->shapes[k].devices &&
                a->shapes[i].limits != b->shapes[k].limits)
                return true;
    return false;
}

int flights_clash(const struct flights *flights, const char *node, const char *uid,
    const char *devices, int64_t now_ns)
{
    struct flight *flight = make_flight(node, uid, devices), *other;
    int result = flight ? 0 : -ENOMEM;
    for (size_t cursor = 0; !result && (other = table_next(&flights->table, &cursor));)
        if (other->deadline_ns > now_ns && !strcmp(other->node, node) &&
            strcmp(other->uid, uid) != 0 && do_clash(flight, other))
            result = 1;
    if (flight)
        flight_free(flight);
    return result;
}

int flights_each_clash(const struct flights *flights, const char *devices, int64_t now_ns,
    void (*take)(void *context, const char *node), void *context)
{
    struct flight *flight = make_flight("", "", devices), *other;
    if (!flight)
        return -ENOMEM;
    for (size_t cursor = 0; (other = table_next(&flights->table, &cursor));)
        if (other->deadline_ns > now_ns && do_clash(flight, other))
            take(context, other->node);
    flight_free(flight);
    return 0;
}

int flight_strings_clash(const char *a, const char *b)
{
    struct flight *one = make_flight("", "", a), *other = make_flight("", "", b);
    int result = one && other ? do_clash(one, other) : -ENOMEM;
    if (one)
        flight_free(one);
    if (other)
        flight_free(other);
    return result;
}

int flights_add(struct flights *flights, const char *node, const char *uid, const char *devices,
    int64_t deadline_ns)
{
    struct flight *flight = make_flight(node, uid, devices);
    if (!flight || table_reserve(&flights->table)) {
        if (flight)
            flight_free(flight);
        return -ENOMEM;
    }
    flight->deadline_ns = deadline_ns;
    (void)flights_remove(flights, uid);
    table_add_reserved(&flights->table, flight->uid, flight);
    return 0;
}

int64_t flights_deadline(const struct flights *flights, const char *uid)
{
    const struct flight *flight = table_get(&flights->table, uid);
    return flight ? flight->deadline_ns : 0;
}

void flights_set_deadline(struct flights *flights, const char *uid, int64_t deadline_ns)
{
    struct flight *flight = table_get(&flights->table, uid);
    if (flight)
        flight->deadline_ns = deadline_ns;
}

size_t flights_count(const struct flights *flights)
{
    return flights->table.count;
}

bool flights_remove(struct flights *flights, const char *uid)
{
    struct flight *flight = table_remove(&flights->table, uid);
    if (flight)
        flight_free(flight);
    return flight;
}
