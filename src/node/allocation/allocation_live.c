/* SPDX-License-Identifier: Apache-2.0 */
/* Wishes of running Pods for other limits. */
#include "node/allocation/allocation_parts.h"

#include "base/clock.h"
#include "kube/event.h"
#include "net/log_line.h"
#include "node/allocation/allocation_limits.h"

#include <errno.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#define CONSENT_NS 10000000000ull

/* What a wish was looked at with: its text, and the consent to it. */
static char *format_wish(const struct pods_pod *pod)
{
    char *text = NULL;
    if (!pod->limits)
        return NULL;
    if (asprintf(&text, "%s\n%s", pod->limits, pod->limits_proof ? pod->limits_proof : "") < 0)
        return NULL;
    return text;
}

static bool is_looked_at(const struct pods_pod *pod, const struct allocation_record *record)
{
    char *text = format_wish(pod);
    bool same = text && record->wish ? !strcmp(text, record->wish) : !pod->limits && !record->wish;
    free(text);
    return same;
}

/* Whether all of the devices may have more: the scheduler agreed, and there is room. */
static bool may_raise(struct allocation *allocation, const struct pods_pod *pod,
    struct allocation_record *record, const struct limits_wish *wish, struct error *error)
{
    if (!allocation_is_proven(allocation, pod->view.uid, pod->limits, pod->limits_proof)) {
        error_set(error, EPERM,
            "container %s was given less than " POD_ANNOTATION_LIMITS
            " asks for, and " POD_ANNOTATION_LIMITS_PROOF " has no consent to it",
            record->container);
        return false;
    }
    for (size_t i = 0; i < record->device_count; i++)
        (void)allocation_limits_apply(&record->devices[i], wish, true);
    return allocation_check_room(allocation, record, error) == 0;
}

static bool apply(struct allocation *allocation, const struct pods_pod *pod,
    struct allocation_record *record, struct error *error)
{
    struct limits_wish wish = {0};
    struct error kept;
    char *text = format_wish(pod);
    bool more = false;
    bool bad = limits_wish_read(pod->limits, record->container, &wish, &kept) != 0;
    free(record->wish);
    record->wish = text;
    if (bad)
        wish = (struct limits_wish){0};
    for (size_t i = 0; i < record->device_count; i++)
        more = allocation_limits_apply(&record->devices[i], &wish, false) || more;
    if (more && !may_raise(allocation, pod, record, &wish, &kept)) {
        bad = true;
        for (size_t i = 0; i < record->device_count; i++)
            (void)allocation_limits_apply(&record->devices[i], &wish, false);
    }
    if (bad)
        *error = kept;
    return !bad;
}

static void refuse(struct allocation *allocation, const struct pods_pod *pod, const char *text)
{
    const struct kube_event event = {.kind = "Pod",
        .namespace_name = pod->view.pod_namespace,
        .name = pod->view.name,
        .uid = pod->view.uid,
        .reason = "LimitsRefused",
        .message = text,
        .is_warning = true};
    log_line(LOG_LINE_WARNING, "allocation: Pod %s/%s: %s", pod->view.pod_namespace, pod->view.name,
        text);
    if (allocation->events)
        kube_event_post(allocation->events, &event);
}

/* ---- wishes that have no consent yet ---- */

static void arm_consent(struct allocation *allocation, uint64_t now_ns)
{
    const struct allocation_record *record;
    uint64_t first = UINT64_MAX;
    TAILQ_FOREACH(record, &allocation->records, entry)
    if (record->unconsented && record->unconsented_ns < first)
        first = record->unconsented_ns;
    if (first == UINT64_MAX)
        return;
    uint64_t left_ms = first > now_ns ? (first - now_ns) / 1000000 + 1 : 1;
    const struct timeval wait = {(time_t)(left_ms / 1000), (suseconds_t)(left_ms % 1000 * 1000)};
    (void)event_add(allocation->consent, &wait);
}

static void forget_unconsented(struct allocation_record *record)
{
    free(record->unconsented);
    record->unconsented = NULL;
}

/* Once for the Pod. */
static void say_unconsented(struct allocation *allocation, const struct allocation_record *first)
{
    const struct pods_pod *pod = allocation_find_pod(allocation, first->pod_uid);
    struct allocation_record *record;
    if (pod)
        refuse(allocation, pod, first->unconsented);
    TAILQ_FOREACH(record, &allocation->records, entry)
    if (record != first && !strcmp(record->pod_uid, first->pod_uid))
        forget_unconsented(record);
}

static void on_consent(evutil_socket_t fd, short event, void *context)
{
    struct allocation *allocation = context;
    struct allocation_record *record;
    uint64_t now = clock_now_ns();
    (void)fd, (void)event;
    TAILQ_FOREACH(record, &allocation->records, entry)
    {
        if (!record->unconsented || record->unconsented_ns > now)
            continue;
        say_unconsented(allocation, record);
        forget_unconsented(record);
    }
    arm_consent(allocation, now);
}

/* The scheduler sees the wish at the same time, and its consent may be on the way. */
static bool wait_for_consent(
    struct allocation *allocation, struct allocation_record *record, const char *text)
{
    if (!allocation->consent)
        allocation->consent = evtimer_new(allocation->base, on_consent, allocation);
    record->unconsented = allocation->consent ? strdup(text) : NULL;
    record->unconsented_ns = clock_now_ns() + CONSENT_NS;
    if (record->unconsented)
        arm_consent(allocation, clock_now_ns());
    return record->unconsented != NULL;
}

static bool same_limits(
    const struct allocation_device *a, const struct allocation_device *b, size_t count)
{
    bool same = true;
    for (size_t i = 0; i < count; i++)
        same =
            same && a[i].memory_mib == b[i].memory_mib && a[i].cores_percent == b[i].cores_percent;
    return same;
}

static void change(struct allocation *allocation, const struct pods_pod *pod,
    struct allocation_record *record, bool *refused)
{
    struct error error;
    size_t bytes = record->device_count * sizeof(*record->devices);
    struct allocation_device *before = malloc(bytes + 1);
    if (before)
        memcpy(before, record->devices, bytes);
    forget_unconsented(record);
    /* Once for the Pod, however many of its containers it is about. */
    if (!apply(allocation, pod, record, &error) && !*refused &&
        (error.code != EPERM || !wait_for_consent(allocation, record, error.text))) {
        refuse(allocation, pod, error.text);
        *refused = true;
    }
    if (!before || !same_limits(before, record->devices, record->device_count)) {
        if (allocation_write_grant(allocation, record, &error))
            log_line(LOG_LINE_ERROR, "allocation: %s", error.text);
        else
            log_line(LOG_LINE_INFO, "allocation: Pod %s/%s, container %s: its limits have changed",
                pod->view.pod_namespace, pod->view.name, record->container);
        allocation_wake(allocation, record);
    }
    free(before);
    allocation_save(allocation, record);
}

void allocation_look_at_wish(struct allocation *allocation, const struct pods_pod *pod)
{
    struct allocation_record *record;
    bool refused = false;
    TAILQ_FOREACH(record, &allocation->records, entry)
    if (record->limited && !record->failed && !strcmp(record->pod_uid, pod->view.uid) &&
        !is_looked_at(pod, record))
        change(allocation, pod, record, &refused);
}
