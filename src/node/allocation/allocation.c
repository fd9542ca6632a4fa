/* SPDX-License-Identifier: Apache-2.0 */
/* The records, and what changes of the node's Pods mean for them. */
#include "node/allocation/allocation.h"

#include "base/clock.h"
#include "cluster/erase.h"
#include "kube/object.h"
#include "net/log_line.h"
#include "node/allocation/allocation_files.h"
#include "node/allocation/allocation_parts.h"
#include "node/settings.h"

#include <errno.h>
#include <stdlib.h>
#include <string.h>

#define SWEEP_S 5
#define HOLD_S 3600
#define SETTLE_US 5000

const struct pods_pod *allocation_find_pod(const struct allocation *allocation, const char *uid)
{
    const struct pods_pod *pod = pods_find(allocation->pods, uid);
    const struct allocation_stray *stray;
    if (pod)
        return pod;
    LIST_FOREACH(stray, &allocation->strays, entry)
    if (!strcmp(stray->pod->view.uid, uid))
        return stray->pod;
    return NULL;
}

bool allocation_pod_has_ended(const struct pods_pod *pod)
{
    return !strcmp(pod->view.phase, "Succeeded") || !strcmp(pod->view.phase, "Failed");
}

bool allocation_has_pod_ended(
    const struct allocation *allocation, const struct allocation_record *record)
{
    const struct pods_pod *pod = allocation_find_pod(allocation, record->pod_uid);
    return record->gone || (pod && allocation_pod_has_ended(pod));
}

bool allocation_is_ended(
    const struct allocation *allocation, const struct allocation_record *record)
{
    /* The end of a Pod that was guessed is not that of the Pod which has the devices. */
    bool known = record->sure || record->unlisted || !allocation->pod_resources ||
                 (record->held_since_ns && clock_now_ns() - record->held_since_ns >=
                                               (uint64_t)allocation->hold_s * 1000000000u);
    return record->superseded || record->failed ||
           (known && allocation_has_pod_ended(allocation, record));
}

struct allocation_record *allocation_find_slot(
    const struct allocation *allocation, const char *uid, size_t slot)
{
    struct allocation_record *record;
    TAILQ_FOREACH(record, &allocation->records, entry)
    if (!record->failed && !record->unassigned && record->slot == slot &&
        !strcmp(record->pod_uid, uid))
        return record;
    return NULL;
}

struct allocation_record *allocation_find_failure(
    const struct allocation *allocation, const char *uid)
{
    struct allocation_record *record;
    TAILQ_FOREACH(record, &allocation->records, entry)
    if (record->failed && !strcmp(record->pod_uid, uid))
        return record;
    return NULL;
}

bool allocation_has_pod(const struct allocation *allocation, const char *uid)
{
    const struct allocation_record *record;
    TAILQ_FOREACH(record, &allocation->records, entry)
    {
        if (!strcmp(record->pod_uid, uid))
            return true;
        for (size_t i = 0; i < record->restore_count; i++)
            if (!strcmp(record->restores[i].pod_uid, uid))
                return true;
    }
    return false;
}

/* kubelet gives IDs again when their Pod has ended, and within a Pod those of init containers. */
void allocation_add(struct allocation *allocation, struct allocation_record *record)
{
    struct allocation_record *other;
    TAILQ_FOREACH(other, &allocation->records, entry)
    if (!record->failed && strcmp(other->pod_uid, record->pod_uid) != 0 &&
        !strcmp(other->resource, record->resource) &&
        allocation_record_shares_ids(other, (const char *const *)record->ids, record->id_count))
        other->superseded = true;
    if (record->serial >= allocation->serial)
        allocation->serial = record->serial + 1;
    TAILQ_INSERT_TAIL(&allocation->records, record, entry);
}

void allocation_remove(struct allocation *allocation, struct allocation_record *record)
{
    TAILQ_REMOVE(&allocation->records, record, entry);
    allocation_files_remove(allocation->settings->hook_path, record);
    allocation_record_destroy(record);
}

void allocation_save(struct allocation *allocation, const struct allocation_record *record)
{
    struct error error;
    if (allocation_files_save(allocation->settings->hook_path, record, &error))
        log_line(LOG_LINE_ERROR, "allocation: %s; it is lost at the next restart", error.text);
}

size_t allocation_count(const struct allocation *allocation)
{
    const struct allocation_record *record;
    size_t count = 0;
    TAILQ_FOREACH(record, &allocation->records, entry)
    count += record->limited && !allocation_is_ended(allocation, record);
    return count;
}

/* A slot that a restore names gets what the scheduler gave it. */
static int restore_slots(const struct allocation *allocation, const struct pods_pod *pod,
    const struct pod_devices *all, struct pod_devices *left)
{
    const struct allocation_record *record;
    TAILQ_FOREACH(record, &allocation->records, entry)
    {
        for (size_t i = 0; i < record->restore_count; i++) {
            const struct allocation_restore *restore = &record->restores[i];
            size_t slot = restore->slot;
            if (strcmp(restore->pod_uid, pod->view.uid) != 0 || slot >= left->count ||
                slot >= all->count || left->containers[slot].count || !all->containers[slot].count)
                continue;
            struct pod_device *devices =
                reallocarray(NULL, all->containers[slot].count, sizeof(*devices));
            if (!devices)
                return -ENOMEM;
            memcpy(devices, all->containers[slot].devices,
                all->containers[slot].count * sizeof(*devices));
            left->containers[slot] =
                (struct pod_devices_container){devices, all->containers[slot].count};
        }
    }
    return 0;
}

char *allocation_effective(const struct allocation *allocation, const struct pods_pod *pod)
{
    struct pod_devices left = {0}, all = {0};
    const struct allocation_record *record;
    const struct pod_view *view = &pod->view;
    bool changed = false;
    char *text = NULL;
    if (!view->to_allocate || pod_devices_decode(view->to_allocate, &left, NULL))
        return NULL;
    if (view->allocated && pod_devices_decode(view->allocated, &all, NULL))
        all = (struct pod_devices){0};
    size_t used = pod_devices_used(&left);
    int result = restore_slots(allocation, pod, &all, &left);
    changed = pod_devices_used(&left) != used;
    TAILQ_FOREACH(record, &allocation->records, entry)
    {
        if (record->failed || record->unassigned || strcmp(record->pod_uid, view->uid) != 0 ||
            record->slot >= left.count || !left.containers[record->slot].count)
            continue;
        free(left.containers[record->slot].devices);
        left.containers[record->slot] = (struct pod_devices_container){0};
        changed = true;
    }
    /* What needs no change stays as it was written. */
    if (!result)
        text = changed ? pod_devices_encode(&left) : strdup(view->to_allocate);
    pod_devices_finish(&left);
    pod_devices_finish(&all);
    return text;
}

static void forget_stray(struct allocation *allocation, const char *uid)
{
    struct allocation_stray *stray = LIST_FIRST(&allocation->strays), *next;
    for (; stray; stray = next) {
        next = LIST_NEXT(stray, entry);
        if (strcmp(stray->pod->view.uid, uid) != 0)
            continue;
        LIST_REMOVE(stray, entry);
        pods_pod_destroy(stray->pod);
        free(stray);
    }
}

static void arm(struct event *timer, unsigned seconds)
{
    struct timeval wait = {(time_t)seconds, 0};
    (void)event_add(timer, &wait);
}

/* Its programs may still run for a while: the grant goes later. */
void allocation_pod_gone(
    struct allocation *allocation, const char *pod_namespace, const char *name, const char *uid)
{
    struct allocation_record *record;
    bool had = false;
    TAILQ_FOREACH(record, &allocation->records, entry)
    {
        for (size_t i = record->restore_count; i-- > 0;)
            if (!strcmp(record->restores[i].pod_uid, uid)) {
                allocation_record_unrestore(record, i);
                allocation_save(allocation, record);
            }
        if (strcmp(record->pod_uid, uid) != 0)
            continue;
        had = true;
        if (!record->gone)
            record->gone_since_ns = clock_now_ns();
        record->gone = true;
    }
    struct allocation_release *release = had ? calloc(1, sizeof(*release)) : NULL;
    if (release) {
        release->pod_namespace = strdup(pod_namespace);
        release->pod_name = strdup(name);
        LIST_INSERT_HEAD(&allocation->releases, release, entry);
    }
    forget_stray(allocation, uid);
    if (had) {
        allocation_identity_ended(allocation, uid);
        arm(allocation->sweep, allocation->remove_after_s ? SWEEP_S : 0);
        allocation_write_lock(allocation);
    }
}

static void on_sweep(evutil_socket_t fd, short event, void *context)
{
    struct allocation *allocation = context;
    struct allocation_record *record = TAILQ_FIRST(&allocation->records), *next;
    uint64_t now = clock_now_ns(), after = (uint64_t)allocation->remove_after_s * 1000000000u;
    bool left = false;
    (void)fd, (void)event;
    for (; record; record = next) {
        next = TAILQ_NEXT(record, entry);
        if (record->gone && allocation_is_ended(allocation, record) &&
            now - record->gone_since_ns >= after)
            allocation_remove(allocation, record);
        else
            left = left || record->gone;
    }
    if (left)
        arm(allocation->sweep, SWEEP_S);
}

static void on_pod(void *context, const struct pods_pod *pod, bool gone)
{
    struct allocation *allocation = context;
    const struct pod_view *view = &pod->view;
    if (gone) {
        allocation_pod_gone(allocation, view->pod_namespace, view->name, view->uid);
        return;
    }
    forget_stray(allocation, view->uid);
    if (!allocation_has_pod(allocation, view->uid))
        return;
    allocation_write(allocation, view->uid);
    allocation_look_at_wish(allocation, pod);
    if (allocation_pod_has_ended(pod))
        allocation_identity_ended(allocation, view->uid);
}

static void on_node(void *context, const json_t *node)
{
    (void)node;
    allocation_write_lock(context);
}

/* A Pod that no list names is asked for by itself before it counts as gone: its record may be newer
 * than the list. */
static void on_synced(void *context)
{
    struct allocation *allocation = context;
    const struct allocation_record *record;
    TAILQ_FOREACH(record, &allocation->records, entry)
    if (!record->gone && !pods_find(allocation->pods, record->pod_uid))
        allocation_ask(allocation, record);
    allocation_write_all(allocation);
}

static void on_retry(evutil_socket_t fd, short event, void *context)
{
    (void)fd, (void)event;
    if (pods_are_known(((struct allocation *)context)->pods))
        on_synced(context);
    else
        allocation_write_all(context);
}

void allocation_settle(struct allocation *allocation)
{
    /* By then the answer has left. */
    const struct timeval wait = {0, SETTLE_US};
    (void)event_add(allocation->settle, &wait);
}

static void on_settle(evutil_socket_t fd, short event, void *context)
{
    struct allocation *allocation = context;
    const char *hook_path = allocation->settings->hook_path;
    struct allocation_record *record;
    struct error error;
    (void)fd, (void)event;
    TAILQ_FOREACH(record, &allocation->records, entry)
    {
        if (!record->named && allocation_files_sync(hook_path, record, &error))
            log_line(LOG_LINE_WARNING, "allocation: %s", error.text);
        record->named = true;
    }
    allocation_files_prepare(hook_path);
}

static void take(void *context, struct allocation_record *record)
{
    record->named = true;
    allocation_add(context, record);
}

/* A daemon that was killed between a record and its grant. */
static void mend_grants(struct allocation *allocation)
{
    const struct allocation_record *record;
    struct error error;
    TAILQ_FOREACH(record, &allocation->records, entry)
    if (record->limited && !record->failed && allocation_write_grant(allocation, record, &error))
        log_line(LOG_LINE_ERROR, "allocation: %s", error.text);
}

struct allocation *allocation_create(const struct allocation_options *options, struct error *error)
{
    struct allocation *allocation = calloc(1, sizeof(*allocation));
    if (!allocation) {
        error_set(error, ENOMEM, "allocation: no memory");
        return NULL;
    }
    *allocation = (struct allocation){.base = options->base,
        .settings = options->settings,
        .inventory = options->inventory,
        .client = options->client,
        .pods = options->pods,
        .pod_resources = options->pod_resources,
        .events = options->events,
        .remove_after_s = options->remove_after_s,
        .hold_s = options->hold_s ? options->hold_s : HOLD_S,
        .listener = {
            .on_pod = on_pod, .on_node = on_node, .on_synced = on_synced, .context = allocation}};
    TAILQ_INIT(&allocation->records);
    TAILQ_INIT(&allocation->servings);
    allocation->retry = evtimer_new(options->base, on_retry, allocation);
    allocation->sweep = evtimer_new(options->base, on_sweep, allocation);
    allocation->settle = evtimer_new(options->base, on_settle, allocation);
    int result = allocation->retry && allocation->sweep && allocation->settle
                     ? 0
                     : error_set(error, ENOMEM, "allocation: no memory");
    if (!result)
        result = allocation_files_load(options->settings->hook_path, take, allocation, error);
    pods_listen(options->pods, &allocation->listener);
    if (result) {
        allocation_destroy(allocation);
        return NULL;
    }
    mend_grants(allocation);
    allocation_settle(allocation);
    allocation_identity_start(allocation);
    return allocation;
}

void allocation_destroy(struct allocation *allocation)
{
    if (!allocation)
        return;
    LIST_REMOVE(&allocation->listener, entry);
    allocation_serve_stop(allocation);
    allocation_write_stop(allocation);
    allocation_identity_stop(allocation);
    for (struct allocation_stray *stray; (stray = LIST_FIRST(&allocation->strays));) {
        LIST_REMOVE(stray, entry);
        pods_pod_destroy(stray->pod);
        free(stray);
    }
    for (struct allocation_record *record; (record = TAILQ_FIRST(&allocation->records));) {
        TAILQ_REMOVE(&allocation->records, record, entry);
        allocation_record_destroy(record);
    }
    if (allocation->retry)
        event_free(allocation->retry);
    if (allocation->sweep)
        event_free(allocation->sweep);
    if (allocation->settle)
        event_free(allocation->settle);
    if (allocation->consent)
        event_free(allocation->consent);
    allocation_key_forget(allocation);
    free(allocation);
}
