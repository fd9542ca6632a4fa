/* SPDX-License-Identifier: Apache-2.0 */
/* Whose devices are whose: what pod-resources tells of the records that are guesses. */
#include "node/allocation/allocation.h"
#include "node/allocation/allocation_serving.h"

#include "base/clock.h"
#include "kube/event.h"
#include "net/log_line.h"
#include "node/pod_resources.h"
#include "node/settings.h"

#include <errno.h>
#include <stdarg.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#define FIRST_LOOK_S 2
#define LOOK_MAX_S 300

/* Its owner is not known, and pod-resources may tell. */
static bool is_guess(const struct allocation *allocation, const struct allocation_record *record)
{
    return !record->sure && !record->failed && !record->superseded &&
           !(record->unlisted && allocation_has_pod_ended(allocation, record));
}

static bool has_guesses(const struct allocation *allocation)
{
    const struct allocation_record *record;
    TAILQ_FOREACH(record, &allocation->records, entry)
    if (is_guess(allocation, record))
        return true;
    return false;
}

/* -- what was learned */

/* The slot that moved away from its Pod is its again, unless another record has it. */
static void restore_slot(struct allocation *allocation, const struct allocation_move *move)
{
    if (move->had_slot && !allocation_find_slot(allocation, move->pod_uid, move->slot) &&
        allocation_find_pod(allocation, move->pod_uid) &&
        allocation_record_restore(
            move->record, move->pod_namespace, move->pod_name, move->pod_uid, move->slot))
        log_line(LOG_LINE_ERROR, "allocation: Pod %s/%s stays without devices: no memory",
            move->pod_namespace, move->pod_name);
}

static void tell_move(struct allocation *allocation, const struct allocation_move *move)
{
    const struct allocation_record *record = move->record;
    struct error error;
    log_line(LOG_LINE_INFO, "allocation: the devices of Pod %s/%s are Pod %s/%s's, container %s%s",
        move->pod_namespace, move->pod_name, record->pod_namespace, record->pod_name,
        record->container, record->unassigned ? ", which was assigned none" : "");
    if (record->limited && allocation_write_grant(allocation, record, &error))
        log_line(LOG_LINE_ERROR, "allocation: %s", error.text);
    if (record->limited)
        allocation_wake(allocation, record);
    const struct kube_event event = {.kind = "Pod",
        .namespace_name = record->pod_namespace,
        .name = record->pod_name,
        .uid = record->pod_uid,
        .reason = "DevicesNotAssigned",
        .message = record->refusal ? record->refusal : "",
        .is_warning = true};
    if (record->unassigned)
        log_line(LOG_LINE_WARNING, "allocation: %s", event.message);
    if (record->unassigned && allocation->events)
        kube_event_post(allocation->events, &event);
}

/* One that was unassigned is looked at again at each try. */
static bool has_changed(const struct allocation_move *move)
{
    return move->had_slot || !move->record->unassigned ||
           strcmp(move->pod_uid, move->record->pod_uid) != 0;
}

static void finish_moves(struct allocation *allocation, struct allocation_move *moves, size_t count)
{
    for (size_t i = 0; i < count; i++) {
        restore_slot(allocation, &moves[i]);
        if (has_changed(&moves[i]))
            tell_move(allocation, &moves[i]);
    }
    for (size_t i = 0; i < count; i++)
        if (has_changed(&moves[i]))
            allocation_save(allocation, moves[i].record);
    for (size_t i = 0; i < count; i++) {
        allocation_write(allocation, moves[i].pod_uid);
        allocation_write(allocation, moves[i].record->pod_uid);
        const struct pods_pod *pod = allocation_find_pod(allocation, moves[i].record->pod_uid);
        if (pod)
            allocation_look_at_wish(allocation, pod);
        allocation_move_finish(&moves[i]);
    }
}

/* kubelet shows it, and tries again. */
static void refuse_start(struct allocation_record *record, const char *format, ...)
    __attribute__((format(printf, 2, 3)));
static void refuse_start(struct allocation_record *record, const char *format, ...)
{
    va_list arguments;
    va_start(arguments, format);
    free(record->refusal);
    if (vasprintf(&record->refusal, format, arguments) < 0)
        record->refusal = NULL;
    va_end(arguments);
}

static void refuse_assignment(struct allocation_record *record, const struct error *why)
{
    refuse_start(record,
        "Pod %s/%s, container %s, has devices by the kubelet, not by vgpu's scheduler: %s",
        record->pod_namespace, record->pod_name, record->container, why->text);
}

static void settle_nobodys(struct allocation *allocation, struct allocation_record *record)
{
    struct timeval now = {0, 0};
    /* A list that is older than the record does not say so. */
    if (!allocation_has_pod_ended(allocation, record) || record->serial >= allocation->look_serial)
        return;
    record->unlisted = true;
    if (record->gone)
        (void)event_add(allocation->sweep, &now);
}

/* Whether the record is another's by now: *ret_move. */
static bool learn_one(struct allocation *allocation, struct allocation_record *record,
    const struct allocation_owner *owner, struct allocation_move *ret_move)
{
    struct error error;
    bool own = owner->pod && !strcmp(owner->pod->view.uid, record->pod_uid);
    free(record->refusal);
    record->refusal = NULL;
    if (owner->kind == ALLOCATION_OWNER_NOBODY) {
        settle_nobodys(allocation, record);
        return false;
    }
    /* Before all Pods are known, one that loses its devices might be, and nobody's to restore. */
    if (owner->kind == ALLOCATION_OWNER_UNKNOWN ||
        (owner->kind == ALLOCATION_OWNER_POD && !own && !pods_are_known(allocation->pods))) {
        refuse_start(record,
            "the kubelet gave these devices to Pod %s/%s, of which the API server has not told "
            "yet",
            owner->space, owner->name);
        return false;
    }
    if (owner->kind == ALLOCATION_OWNER_NAMESAKE || !owner->pod)
        return false;
    const char *container = owner->pod->view.containers[owner->container].name;
    if (own && !strcmp(container, record->container) && !record->unassigned) {
        record->sure = true;
        record->waits = false;
        allocation_save(allocation, record);
        /* Its cards may be others than the scheduler's. */
        allocation_write(allocation, record->pod_uid);
        return false;
    }
    int result =
        allocation_move(allocation, record, owner->pod, owner->container, ret_move, &error);
    if (result)
        refuse_assignment(record, &error);
    return result != -ENOMEM;
}

/* All guesses at once: two that were exchanged are put right in one step. */
static void learn(
    struct allocation *allocation, const struct pod_resources_pod *pods, size_t pod_count)
{
    struct allocation_record *record;
    size_t room = 0, count = 0;
    TAILQ_FOREACH(record, &allocation->records, entry)
    room++;
    struct allocation_move *moves = calloc(room + 1, sizeof(*moves));
    TAILQ_FOREACH(record, &allocation->records, entry)
    {
        struct allocation_owner owner;
        bool stopped = record->unassigned && !record->gone && !record->superseded;
        if (!moves || (!stopped && !is_guess(allocation, record)))
            continue;
        allocation_find_owner(allocation, record, pods, pod_count, &owner);
        count += learn_one(allocation, record, &owner, &moves[count]);
    }
    struct error error;
    for (size_t i = 0; i < count; i++)
        if (allocation_move_check(allocation, &moves[i], &error))
            refuse_assignment(moves[i].record, &error);
    finish_moves(allocation, moves, count);
    free(moves);
}

/* -- PreStartContainer */

static void answer_start(
    struct allocation *allocation, struct kubelet_call *call, const struct kubelet_ids *devices)
{
    struct allocation_record *record;
    TAILQ_FOREACH(record, &allocation->records, entry)
    {
        if (record->failed || record->superseded ||
            !allocation_record_shares_ids(record, devices->ids, devices->count))
            continue;
        if (record->unassigned || record->refusal) {
            kubelet_refuse(call, GRPC_FAILED_PRECONDITION,
                record->refusal ? record->refusal
                                : "the Pod has devices by the kubelet, not by vgpu's scheduler");
            return;
        }
        /* Whoever it is, it runs from now on. */
        if (record->waits) {
            record->waits = false;
            allocation_save(allocation, record);
        }
    }
    kubelet_answer_pre_start(call);
}

static void look_later(struct allocation *allocation)
{
    struct timeval wait = {(time_t)allocation->identify_s, 0};
    allocation->identify_s =
        allocation->identify_s < LOOK_MAX_S / 2 ? 2 * allocation->identify_s : LOOK_MAX_S;
    (void)event_add(allocation->identify, &wait);
}

static bool has_joined(const struct allocation *allocation)
{
    const struct allocation_waiter *waiter;
    const struct serving *serving = TAILQ_FIRST(&allocation->servings);
    LIST_FOREACH(waiter, &allocation->waiters, entry)
    if (waiter->joined)
        return true;
    return serving && serving->asks_resources && serving->joined_resources;
}

static bool look(struct allocation *allocation);

static void on_resources(void *context, enum grpc_status status, const char *text,
    const struct pod_resources_pod *pods, size_t count)
{
    struct allocation *allocation = context;
    allocation->identifying = false;
    if (status == GRPC_OK)
        learn(allocation, pods, count);
    else
        log_line(
            LOG_LINE_WARNING, "allocation: whose devices are whose is not known yet: %s", text);
    bool again = has_joined(allocation) && has_guesses(allocation) && look(allocation);
    struct allocation_waiter *waiter = LIST_FIRST(&allocation->waiters), *next;
    for (; waiter; waiter = next) {
        next = LIST_NEXT(waiter, entry);
        if (again && waiter->joined) {
            waiter->joined = false;
            continue;
        }
        LIST_REMOVE(waiter, entry);
        answer_start(allocation, waiter->call, &waiter->devices);
        free(waiter);
    }
    if (!again && has_guesses(allocation))
        look_later(allocation);
    struct serving *serving = TAILQ_FIRST(&allocation->servings);
    if (!serving || !serving->asks_resources)
        return;
    serving->asks_resources = again && serving->joined_resources;
    serving->joined_resources = false;
    if (!serving->asks_resources)
        serving_go_on(serving);
}

static bool look(struct allocation *allocation)
{
    struct error error;
    if (allocation->identifying)
        return true;
    if (!allocation->pod_resources)
        return false;
    int result = pod_resources_list(
        allocation->pod_resources, ALLOCATION_IDENTIFY_MS, on_resources, allocation, &error);
    if (result)
        log_line(LOG_LINE_WARNING, "allocation: pod-resources: %s", error.text);
    allocation->identifying = !result;
    allocation->look_serial = allocation->serial;
    return !result;
}

bool serving_ask_resources(struct serving *serving)
{
    struct allocation *allocation = serving->allocation;
    bool joined = allocation->identifying;
    serving->asked_resources = true;
    serving->asks_resources = has_guesses(allocation) && look(allocation);
    serving->joined_resources = joined;
    return serving->asks_resources;
}

void allocation_identity_ended(struct allocation *allocation, const char *uid)
{
    struct allocation_record *record;
    bool guessed = false;
    TAILQ_FOREACH(record, &allocation->records, entry)
    {
        if (strcmp(record->pod_uid, uid) != 0 || !is_guess(allocation, record))
            continue;
        guessed = true;
        if (!record->held_since_ns)
            record->held_since_ns = clock_now_ns();
    }
    if (!guessed)
        return;
    allocation->identify_s = FIRST_LOOK_S;
    if (!look(allocation))
        look_later(allocation);
}

static void on_timer(evutil_socket_t fd, short event, void *context)
{
    struct allocation *allocation = context;
    (void)fd, (void)event;
    if (has_guesses(allocation) && !look(allocation))
        look_later(allocation);
}

void allocation_pre_start(
    struct kubelet_call *call, const struct kubelet_ids *devices, void *context)
{
    struct allocation *allocation = context;
    const struct allocation_record *record;
    bool asks = false;
    TAILQ_FOREACH(record, &allocation->records, entry)
    asks =
        asks || ((!record->sure || record->unassigned) && !record->failed && !record->superseded &&
                    allocation_record_shares_ids(record, devices->ids, devices->count));
    struct allocation_waiter *waiter = asks ? calloc(1, sizeof(*waiter)) : NULL;
    bool joined = allocation->identifying;
    if (waiter && look(allocation)) {
        waiter->call = call;
        waiter->devices = *devices;
        waiter->joined = joined;
        LIST_INSERT_HEAD(&allocation->waiters, waiter, entry);
        return;
    }
    free(waiter);
    allocation->identify_s = FIRST_LOOK_S;
    if (asks)
        look_later(allocation);
    answer_start(allocation, call, devices);
}

void allocation_identity_start(struct allocation *allocation)
{
    allocation->identify_s = FIRST_LOOK_S;
    allocation->identify = evtimer_new(allocation->base, on_timer, allocation);
    if (allocation->identify && has_guesses(allocation))
        look_later(allocation);
}

void allocation_identity_stop(struct allocation *allocation)
{
    for (struct allocation_waiter *waiter; (waiter = LIST_FIRST(&allocation->waiters));) {
        LIST_REMOVE(waiter, entry);
        kubelet_refuse(waiter->call, GRPC_UNAVAILABLE, "the plugin ends");
        free(waiter);
    }
    if (allocation->identify)
        event_free(allocation->identify);
}
