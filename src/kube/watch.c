/* SPDX-License-Identifier: Apache-2.0 */
#include "kube/watch.h"

#include "base/clock.h"
#include "kube/backoff.h"
#include "kube/known.h"
#include "kube/object.h"
#include "kube/url.h"
#include "kube/watch_lines.h"

#include <errno.h>
#include <event2/event.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

/* A watch that has lasted so long was a good one: the waits begin anew. */
#define GOOD_WATCH_NS (5ull * 1000000000)
/* After this number of bad streams from one version it lists anew: an event that cannot be decoded
 * would come again and again. */
#define BAD_STREAMS_MAX 3
/* timeoutSeconds: the server ends a watch then; spread, so that not all come back together. */
#define SERVER_SECONDS_MIN 240
#define SERVER_SECONDS_SPREAD 240
/* watch_lines_feed's result where an ERROR event ends the stream. */
#define TAKE_STOPS 1

struct kube_watch {
    struct kube_client *client;
    struct kube_watch_options options;
    char *path, *query; /* the selectors, each with & before it */
    struct kube_call *list;
    struct kube_stream *stream;
    struct event *timer;
    struct backoff backoff;
    struct watch_lines lines;
    struct known known;
    char *version;       /* to watch from; NULL: to list first */
    char *continue_from; /* of the list's next page */
    unsigned round, bad_streams;
    uint64_t stream_start_ns;
    unsigned page_objects; /* less than the option where pages were too large */
    bool in_trouble, expired;
};

static void go_on(struct kube_watch *watch);

static void set_text(char **target, const char *text)
{
    char *copy = text && *text ? strdup(text) : NULL;
    free(*target);
    *target = copy;
}

static void arm(struct kube_watch *watch, unsigned wait_ms)
{
    struct timeval wait = {wait_ms / 1000, (suseconds_t)(wait_ms % 1000) * 1000};
    event_add(watch->timer, &wait);
}

static void tell_trouble(struct kube_watch *watch, const char *text)
{
    if (!watch->in_trouble && watch->options.on_trouble)
        watch->options.on_trouble(watch->options.context, text);
    watch->in_trouble = true;
}

static void tell_back(struct kube_watch *watch)
{
    if (watch->in_trouble && watch->options.on_back)
        watch->options.on_back(watch->options.context);
    watch->in_trouble = false;
}

static void wait_and_go_on(struct kube_watch *watch, int retry_after_s)
{
    unsigned wait = backoff_next_ms(&watch->backoff, backoff_random());
    unsigned after = retry_after_s > 0 ? (unsigned)retry_after_s * 1000 : 0;
    arm(watch, wait > after ? wait : after);
}

static void report(struct kube_watch *watch, enum kube_watch_change change, const json_t *object)
{
    watch->options.on_change(watch->options.context, change, object);
}

static void report_gone(void *context, const struct known_object *object)
{
    json_t *stub = json_pack("{s:{s:s,s:s,s:s}}", "metadata", "name", object->name, "namespace",
        object->namespace_name, "uid", object->uid);
    if (stub)
        report(context, KUBE_WATCH_DELETED, stub);
    json_decref(stub);
}

/* An object exists in this version. Returns 0 or -ENOMEM. */
static int take_present(struct kube_watch *watch, const json_t *object, bool listed)
{
    const char *name = object_name(object), *namespace_name = object_namespace(object);
    const char *uid = object_uid(object), *version = object_resource_version(object);
    struct known_object *known = known_find(&watch->known, namespace_name, name);
    if (known && strcmp(known->uid, uid) != 0) {
        report_gone(watch, known);
        known_remove(&watch->known, known);
        known = NULL;
    }
    bool is_new = !known;
    if (is_new)
        known = known_add(&watch->known, namespace_name, name, uid);
    if (!known)
        return -ENOMEM;
    known->round = watch->round;
    bool same = !is_new && listed && *version && !strcmp(known->version, version);
    known_set_version(known, version);
    if (!same)
        report(watch, is_new ? KUBE_WATCH_ADDED : KUBE_WATCH_MODIFIED, object);
    return 0;
}

static void take_deleted(struct kube_watch *watch, const json_t *object)
{
    struct known_object *known =
        known_find(&watch->known, object_namespace(object), object_name(object));
    if (!known || strcmp(known->uid, object_uid(object)) != 0)
        return;
    known_remove(&watch->known, known);
    report(watch, KUBE_WATCH_DELETED, object);
}

static int take_event(void *context, enum watch_line_type type, const json_t *object)
{
    struct kube_watch *watch = context;
    int failure = 0;
    if (type == WATCH_LINE_ERROR) {
        json_int_t code = json_integer_value(object_get(object, "code", NULL));
        const char *message = object_string(object, "message", NULL);
        watch->expired = code == 410;
        if (!watch->expired)
            tell_trouble(watch, message ? message : "the watch ended with an error");
        return TAKE_STOPS;
    }
    if (type == WATCH_LINE_DELETED)
        take_deleted(watch, object);
    else if (type != WATCH_LINE_BOOKMARK)
        failure = take_present(watch, object, false);
    if (failure) /* an event that was not taken comes again */
        return failure;
    if (*object_resource_version(object))
        set_text(&watch->version, object_resource_version(object));
    /* Not by the stream's beginning: what comes first may be that the version is too old. */
    tell_back(watch);
    return 0;
}

/* The list of the version that is known now is to be made anew. */
static void forget_version(struct kube_watch *watch)
{
    set_text(&watch->version, NULL);
    set_text(&watch->continue_from, NULL);
    watch->bad_streams = 0;
}

static void end_stream(struct kube_watch *watch)
{
    watch_lines_finish(&watch->lines);
    if (clock_now_ns() - watch->stream_start_ns >= GOOD_WATCH_NS)
        backoff_reset(&watch->backoff);
    if (watch->expired)
        forget_version(watch);
    watch->expired = false;
}

static void on_stream_data(void *context, const char *data, size_t bytes)
{
    struct kube_watch *watch = context;
    struct error error = {0};
    int result = watch_lines_feed(&watch->lines, data, bytes, take_event, watch, &error);
    if (!result)
        return;
    if (result < 0) {
        tell_trouble(watch, error.text[0] ? error.text : "no memory for a watch");
        if (++watch->bad_streams >= BAD_STREAMS_MAX)
            forget_version(watch);
    }
    kube_stream_cancel(watch->stream);
    watch->stream = NULL;
    end_stream(watch);
    wait_and_go_on(watch, 0);
}

static void on_stream_done(void *context, const struct kube_reply *reply)
{
    struct kube_watch *watch = context;
    bool good = reply->status >= 200 && reply->status <= 299;
    watch->stream = NULL;
    if (reply->status == 410)
        watch->expired = true;
    else if (!good || reply->text[0])
        tell_trouble(watch, reply->text);
    /* Not understood by the server: perhaps the version. */
    if (reply->status == 400)
        watch->expired = true;
    end_stream(watch);
    wait_and_go_on(watch, reply->retry_after_s);
}

/* Returns the path of the request, on the heap. */
static char *make_path(const struct kube_watch *watch)
{
    char *path = NULL, *value = NULL;
    int made = -1;
    if (watch->version) {
        value = url_escape(watch->version);
        unsigned seconds = SERVER_SECONDS_MIN + backoff_random() % SERVER_SECONDS_SPREAD;
        made = !value ? -1
                      : asprintf(&path,
                            "%s?watch=1&allowWatchBookmarks=true&timeoutSeconds=%u"
                            "&resourceVersion=%s%s",
                            watch->path, seconds, value, watch->query);
    } else if (watch->continue_from) {
        value = url_escape(watch->continue_from);
        made = !value ? -1
                      : asprintf(&path, "%s?limit=%u&continue=%s%s", watch->path,
                            watch->page_objects, value, watch->query);
    } else {
        made = asprintf(&path, "%s?limit=%u%s", watch->path, watch->page_objects, watch->query);
    }
    free(value);
    return made < 0 ? NULL : path;
}

static int take_page(struct kube_watch *watch, const json_t *list)
{
    const json_t *items = object_get(list, "items", NULL);
    for (size_t i = 0; i < json_array_size(items); i++) {
        int failure = take_present(watch, json_array_get(items, i), true);
        if (failure)
            return failure;
    }
    return 0;
}

static void end_list(struct kube_watch *watch, const char *version)
{
    known_sweep(&watch->known, watch->round, report_gone, watch);
    set_text(&watch->version, version);
    watch->page_objects = watch->options.page_objects;
    tell_back(watch);
    if (watch->options.on_synced)
        watch->options.on_synced(watch->options.context);
}

static void on_page(void *context, const struct kube_reply *reply)
{
    struct kube_watch *watch = context;
    const char *version = object_string(reply->body, "metadata", "resourceVersion", NULL);
    bool is_list = json_is_array(object_get(reply->body, "items", NULL)) && version && *version;
    watch->list = NULL;
    if (reply->too_large && watch->page_objects > 1) {
        watch->page_objects /= 2;
        wait_and_go_on(watch, 0);
        return;
    }
    if (reply->status < 200 || reply->status > 299 || !is_list) {
        /* The next page's token may have been forgotten: 410. */
        bool anew = reply->status == 410 && watch->continue_from;
        if (!anew)
            tell_trouble(watch, reply->text[0] ? reply->text : "the answer is not a list");
        forget_version(watch);
        wait_and_go_on(watch, reply->retry_after_s);
        return;
    }
    if (take_page(watch, reply->body)) {
        tell_trouble(watch, "no memory for the objects of a list");
        forget_version(watch);
        wait_and_go_on(watch, 0);
        return;
    }
    set_text(&watch->continue_from, object_string(reply->body, "metadata", "continue", NULL));
    if (!watch->continue_from)
        end_list(watch, version);
    go_on(watch);
}

static void on_page_retry(void *context, const char *text, unsigned wait_ms)
{
    (void)wait_ms;
    tell_trouble(context, text);
}

static int start_list(struct kube_watch *watch, const char *path)
{
    if (!watch->continue_from)
        watch->round++;
    struct kube_request request = {.method = "GET",
        .path = path,
        .on_done = on_page,
        .on_retry = on_page_retry,
        .context = watch};
    return kube_client_start(watch->client, &request, &watch->list);
}

static void start_stream(struct kube_watch *watch, const char *path)
{
    watch->stream_start_ns = clock_now_ns();
    watch->stream = kube_client_stream(
        watch->client, path, watch->options.idle_ms, on_stream_data, on_stream_done, watch);
}

/* The next request, by what is known. */
static void go_on(struct kube_watch *watch)
{
    char *path = make_path(watch);
    if (path && watch->version)
        start_stream(watch, path);
    if (!path || (watch->version ? !watch->stream : start_list(watch, path))) {
        tell_trouble(watch, "a watch cannot be sent now: no memory, or too many requests wait");
        wait_and_go_on(watch, 0);
    }
    free(path);
}

static void on_timer(evutil_socket_t socket, short what, void *context)
{
    (void)socket, (void)what;
    go_on(context);
}

/* "&name=value", or "". */
static char *make_selector(const char *name, const char *value)
{
    char *text = NULL, *escaped;
    if (!value)
        return strdup("");
    escaped = url_escape(value);
    if (!escaped || asprintf(&text, "&%s=%s", name, escaped) < 0)
        text = NULL;
    free(escaped);
    return text;
}

static bool set_query(struct kube_watch *watch)
{
    char *field = make_selector("fieldSelector", watch->options.field_selector);
    char *label = make_selector("labelSelector", watch->options.label_selector);
    if (!field || !label || asprintf(&watch->query, "%s%s", field, label) < 0)
        watch->query = NULL;
    free(field);
    free(label);
    return watch->query;
}

struct kube_watch *kube_watch_create(
    struct kube_client *client, const struct kube_watch_options *options, struct error *error)
{
    struct kube_watch *watch = calloc(1, sizeof(*watch));
    if (watch) {
        watch->client = client;
        watch->options = *options;
        watch->path = strdup(options->path);
        watch->timer = evtimer_new(kube_client_base(client), on_timer, watch);
        kube_client_backoff(client, &watch->backoff);
    }
    if (!watch || !watch->path || !watch->timer || !set_query(watch)) {
        error_set(error, ENOMEM, "no memory for a watch");
        kube_watch_destroy(watch);
        return NULL;
    }
    watch->options.path = watch->options.field_selector = watch->options.label_selector = NULL;
    if (!watch->options.page_objects)
        watch->options.page_objects = 100;
    watch->page_objects = watch->options.page_objects;
    if (!watch->options.idle_ms)
        watch->options.idle_ms = 100000;
    arm(watch, 0);
    return watch;
}

void kube_watch_destroy(struct kube_watch *watch)
{
    if (!watch)
        return;
    kube_call_cancel(watch->list);
    kube_stream_cancel(watch->stream);
    if (watch->timer)
        event_free(watch->timer);
    watch_lines_finish(&watch->lines);
    known_finish(&watch->known);
    free(watch->path);
    free(watch->query);
    free(watch->version);
    free(watch->continue_from);
    free(watch);
}
