/* SPDX-License-Identifier: Apache-2.0 */
#include "kube/event.h"

#include "base/clock.h"
#include "kube/object.h"
#include "kube/patch.h"
#include "kube/url.h"

#include <errno.h>
#include <event2/event.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/queue.h>
#include <sys/random.h>
#include <time.h>

#define SAME_FOR_NS (600ull * 1000000000)
#define DEADLINE_MS 60000
#define INTERVAL_NS 200000000ull /* between any two requests */
#define REPEAT_MS 10000

/* An event that was or will be sent. Those with counts that the server lacks wait in the queue. */
struct record {
    TAILQ_ENTRY(record) entry; /* of all, the latest one last */
    TAILQ_ENTRY(record) queued;
    bool is_queued, is_sent; /* whether the server has it */
    bool is_warning;
    unsigned rank; /* warnings, which go first, have 2, what is dispensable 0 */
    char *kind, *namespace_name, *object_name, *uid, *reason, *message;
    char name[64]; /* of the Event, "" until it is chosen: "vgpu.0123456789abcdef" */
    unsigned count;
    time_t first, last;
    uint64_t last_ns, not_before_ns;
};

TAILQ_HEAD(record_list, record);

struct kube_events {
    struct kube_client *client;
    char *component, *host;
    struct record_list records, queue;
    unsigned known, waiting;
    struct event *timer;
    uint64_t repeat_ns, not_before_ns;
    struct record *sending; /* in the queue until it has been taken */
    struct kube_call *call;
    unsigned sending_count; /* the count that is on its way */
    unsigned long dropped;
};

static void send_next(struct kube_events *events);

static void unqueue(struct kube_events *events, struct record *record)
{
    TAILQ_REMOVE(&events->queue, record, queued);
    record->is_queued = false;
    events->waiting--;
}

static void record_free(struct kube_events *events, struct record *record)
{
    if (record->is_queued)
        unqueue(events, record);
    TAILQ_REMOVE(&events->records, record, entry);
    events->known--;
    free(record->kind);
    free(record->namespace_name);
    free(record->object_name);
    free(record->uid);
    free(record->reason);
    free(record->message);
    free(record);
}

/* Forgets the oldest ones that need not be sent, until there is room. */
static void make_room(struct kube_events *events)
{
    struct record *record = TAILQ_FIRST(&events->records), *next;
    for (; record && events->known >= EVENT_KNOWN_MAX; record = next) {
        next = TAILQ_NEXT(record, entry);
        if (!record->is_queued)
            record_free(events, record);
    }
}

static struct record *find(struct kube_events *events, const struct kube_event *event)
{
    struct record *record;
    uint64_t now = clock_now_ns();
    TAILQ_FOREACH(record, &events->records, entry)
    {
        if (!strcmp(record->uid, event->uid) && !strcmp(record->object_name, event->name) &&
            !strcmp(record->namespace_name, event->namespace_name) &&
            !strcmp(record->kind, event->kind) && !strcmp(record->reason, event->reason) &&
            !strncmp(record->message, event->message, EVENT_MESSAGE_MAX) &&
            record->is_warning == event->is_warning && now - record->last_ns < SAME_FOR_NS)
            return record;
    }
    return NULL;
}

/* At most `bytes_max` bytes, no character cut in two. */
static char *copy_cut(const char *text, size_t bytes_max)
{
    size_t length = strnlen(text, bytes_max + 1);
    if (length > bytes_max) {
        length = bytes_max;
        while (length && ((unsigned char)text[length] & 0xc0) == 0x80)
            length--;
    }
    return strndup(text, length);
}

static unsigned rank_of(const struct kube_event *event)
{
    return event->is_warning ? 2 : !event->is_dispensable;
}

static struct record *add(struct kube_events *events, const struct kube_event *event)
{
    struct record *record = calloc(1, sizeof(*record));
    uint64_t random = 0;
    if (!record)
        return NULL;
    TAILQ_INSERT_TAIL(&events->records, record, entry);
    events->known++;
    record->is_warning = event->is_warning;
    record->rank = rank_of(event);
    record->kind = strdup(event->kind);
    record->namespace_name = strdup(event->namespace_name);
    record->object_name = strdup(event->name);
    record->uid = strdup(event->uid);
    record->reason = strdup(event->reason);
    record->message = copy_cut(event->message, EVENT_MESSAGE_MAX);
    record->first = time(NULL);
    (void)!getrandom(&random, sizeof(random), GRND_NONBLOCK);
    random ^= clock_now_ns();
    snprintf(record->name, sizeof(record->name), "vgpu.%016llx", (unsigned long long)random);
    if (!record->kind || !record->namespace_name || !record->object_name || !record->uid ||
        !record->reason || !record->message) {
        record_free(events, record);
        return NULL;
    }
    return record;
}

static void format_time(time_t time, char *text, size_t bytes)
{
    struct tm parts;
    gmtime_r(&time, &parts);
    strftime(text, bytes, "%Y-%m-%dT%H:%M:%SZ", &parts);
}

static const char *namespace_of(const struct record *record)
{
    return record->namespace_name[0] ? record->namespace_name : "default";
}

static json_t *make_event(const struct kube_events *events, const struct record *record)
{
    char first[32], last[32];
    format_time(record->first, first, sizeof(first));
    format_time(record->last, last, sizeof(last));
    json_t *object = json_pack(
        "{s:s,s:s, s:{s:s,s:s}, s:{s:s,s:s,s:s,s:s}, s:s,s:s,s:s, s:i,s:s,s:s, s:{s:s,s:s}}",
        "apiVersion", "v1", "kind", "Event", "metadata", "name", record->name, "namespace",
        namespace_of(record), "involvedObject", "apiVersion", "v1", "kind", record->kind, "name",
        record->object_name, "uid", record->uid, "type", record->is_warning ? "Warning" : "Normal",
        "reason", record->reason, "message", record->message, "count", (int)record->count,
        "firstTimestamp", first, "lastTimestamp", last, "source", "component", events->component,
        "host", events->host);
    if (object && record->namespace_name[0] &&
        json_object_set_new(object_get(object, "involvedObject", NULL), "namespace",
            json_string(record->namespace_name))) {
        json_decref(object);
        return NULL;
    }
    return object;
}

static json_t *make_count(const struct record *record)
{
    char last[32];
    format_time(record->last, last, sizeof(last));
    return json_pack("{s:i,s:s}", "count", (int)record->count, "lastTimestamp", last);
}

static void on_sent(void *context, const struct kube_reply *reply)
{
    struct kube_events *events = context;
    struct record *record = events->sending;
    bool good = reply->status >= 200 && reply->status <= 299;
    events->call = NULL;
    events->sending = NULL;
    /* An answer that was lost: it is there. */
    if (reply->status == 409 && !record->is_sent)
        good = true;
    /* The server has forgotten it: it is posted again. */
    bool forgotten = reply->status == 404 && record->is_sent;
    record->is_sent = good;
    if (good && record->count == events->sending_count) {
        TAILQ_REMOVE(&events->queue, record, queued);
        record->is_queued = false;
        events->waiting--;
    } else if (!good && !forgotten) {
        events->dropped++;
        record_free(events, record);
    }
    send_next(events);
}

static int send_record(struct kube_events *events, struct record *record)
{
    char *namespace_name = url_escape(namespace_of(record)), *path = NULL;
    json_t *body = record->is_sent ? make_count(record) : make_event(events, record);
    int made = !namespace_name
                   ? -1
                   : asprintf(&path, "/api/v1/namespaces/%s/events%s%s", namespace_name,
                         record->is_sent ? "/" : "", record->is_sent ? record->name : "");
    struct kube_request request = {.method = record->is_sent ? "PATCH" : "POST",
        .content_type = record->is_sent ? PATCH_MERGE : NULL,
        .path = path,
        .body = body,
        .deadline_ms = DEADLINE_MS,
        .on_done = on_sent,
        .context = events};
    int failure = -ENOMEM;
    if (made >= 0 && body)
        failure = kube_client_start(events->client, &request, &events->call);
    if (made >= 0)
        free(path);
    free(namespace_name);
    json_decref(body);
    return failure;
}

static uint64_t time_of(const struct kube_events *events, const struct record *record)
{
    return record->not_before_ns > events->not_before_ns ? record->not_before_ns
                                                         : events->not_before_ns;
}

/* The one in the queue that may be sent first; of those that may be sent now, a warning. */
static struct record *choose(const struct kube_events *events, uint64_t now)
{
    struct record *record, *best = NULL;
    uint64_t best_at = 0;
    TAILQ_FOREACH(record, &events->queue, queued)
    {
        uint64_t at = time_of(events, record);
        at = at > now ? at : now;
        if (best && (at > best_at || (at == best_at && record->rank <= best->rank)))
            continue;
        best = record;
        best_at = at;
    }
    return best;
}

/* Room in a full queue for one of this rank: the latest one of the lowest rank gives way. */
static void evict(struct kube_events *events, unsigned rank)
{
    struct record *record, *lowest = NULL;
    TAILQ_FOREACH(record, &events->queue, queued)
    {
        if (record != events->sending && record->rank < rank &&
            (!lowest || record->rank <= lowest->rank))
            lowest = record;
    }
    if (!lowest)
        return;
    events->dropped++;
    record_free(events, lowest);
}

static void send_later(struct kube_events *events, uint64_t wait_ns)
{
    uint64_t wait_us = wait_ns / 1000 + 1;
    struct timeval wait = {(time_t)(wait_us / 1000000), (suseconds_t)(wait_us % 1000000)};
    event_add(events->timer, &wait);
}

static void send_next(struct kube_events *events)
{
    uint64_t now = clock_now_ns();
    while (!events->sending && !TAILQ_EMPTY(&events->queue)) {
        struct record *record = choose(events, now);
        uint64_t at = time_of(events, record);
        if (at > now) {
            send_later(events, at - now);
            return;
        }
        if (send_record(events, record)) {
            events->dropped++;
            record_free(events, record);
            send_later(events, INTERVAL_NS);
            return;
        }
        events->sending = record;
        events->sending_count = record->count;
        events->not_before_ns = now + INTERVAL_NS;
        record->not_before_ns = now + events->repeat_ns;
    }
}

static void on_timer(evutil_socket_t socket, short what, void *context)
{
    (void)socket, (void)what;
    send_next(context);
}

struct kube_events *kube_events_create(struct kube_client *client, const char *component,
    const char *host, unsigned repeat_ms, struct error *error)
{
    struct kube_events *events = calloc(1, sizeof(*events));
    if (events) {
        events->client = client;
        TAILQ_INIT(&events->records);
        TAILQ_INIT(&events->queue);
        events->component = strdup(component);
        events->host = strdup(host);
        events->repeat_ns = (repeat_ms ? repeat_ms : REPEAT_MS) * 1000000ull;
        events->timer = evtimer_new(kube_client_base(client), on_timer, events);
    }
    if (!events || !events->component || !events->host || !events->timer) {
        error_set(error, ENOMEM, "no memory for events");
        kube_events_destroy(events);
        return NULL;
    }
    return events;
}

void kube_events_destroy(struct kube_events *events)
{
    if (!events)
        return;
    kube_call_cancel(events->call);
    struct record *record = TAILQ_FIRST(&events->records), *next;
    for (; record; record = next) {
        next = TAILQ_NEXT(record, entry);
        record_free(events, record);
    }
    if (events->timer)
        event_free(events->timer);
    free(events->component);
    free(events->host);
    free(events);
}

void kube_event_post(struct kube_events *events, const struct kube_event *event)
{
    struct record *record = find(events, event);
    if ((!record || !record->is_queued) && events->waiting >= EVENT_QUEUE_MAX)
        evict(events, rank_of(event));
    if (!record && events->waiting < EVENT_QUEUE_MAX) {
        make_room(events);
        record = add(events, event);
    }
    if (!record || (!record->is_queued && events->waiting >= EVENT_QUEUE_MAX)) {
        events->dropped++;
        return;
    }
    record->count++;
    record->last = time(NULL);
    record->last_ns = clock_now_ns();
    if (!record->is_queued) {
        record->is_queued = true;
        TAILQ_INSERT_TAIL(&events->queue, record, queued);
        events->waiting++;
    }
    send_next(events);
}

unsigned long kube_events_dropped(const struct kube_events *events)
{
    return events->dropped;
}
