/* SPDX-License-Identifier: Apache-2.0 */
#include "kube/client.h"

#include "base/clock.h"
#include "kube/backoff.h"
#include "kube/client_http.h"

#include <errno.h>
#include <event2/event.h>
#include <stdbool.h>
#include <stdlib.h>
#include <string.h>
#include <sys/queue.h>

/* Streams beside the requests' connections. */
#define STREAMS_MAX 16
#define MS 1000000u

struct kube_call {
    TAILQ_ENTRY(kube_call) entry; /* of all */
    TAILQ_ENTRY(kube_call) ready; /* of those that wait for their turn */
    struct kube_client *client;
    bool is_ready;
    struct client_line line;
    char *body;
    size_t body_bytes;
    uint64_t deadline_ns; /* 0: none */
    struct event *timer;  /* ends a wait; for one that is ready: the deadline */
    struct http_call *http;
    struct backoff backoff;
    unsigned attempts;
    bool token_reloaded, too_large;
    int status, retry_after_s; /* of the last try */
    char text[ERROR_TEXT_BYTES];
    void (*on_done)(void *context, const struct kube_reply *reply);
    void (*on_retry)(void *context, const char *text, unsigned wait_ms);
    void *context;
};

TAILQ_HEAD(call_list, kube_call);

struct kube_client {
    struct event_base *base;
    struct kube_auth *auth;
    struct http_client *http;
    struct kube_client_options options;
    char *user_agent;
    struct call_list calls, ready;
    unsigned held, active;
    struct event *turn;
};

static void call_free(struct kube_call *call)
{
    struct kube_client *client = call->client;
    if (call->http) {
        http_call_cancel(call->http);
        client->active--;
        event_active(client->turn, EV_TIMEOUT, 0);
    }
    if (call->is_ready)
        TAILQ_REMOVE(&client->ready, call, ready);
    TAILQ_REMOVE(&client->calls, call, entry);
    client->held--;
    if (call->timer)
        event_free(call->timer);
    client_line_finish(&call->line);
    free(call->body);
    free(call);
}

/* Ends the call: the callback finds it gone already, and may start and cancel others. */
static void call_end(struct kube_call *call, const json_t *body)
{
    char text[ERROR_TEXT_BYTES];
    void (*on_done)(void *, const struct kube_reply *) = call->on_done;
    void *context = call->context;
    memcpy(text, call->text, sizeof(text));
    struct kube_reply reply = {
        call->status, body, text, call->attempts, call->retry_after_s, call->too_large};
    call_free(call);
    on_done(context, &reply);
}

/* UINT64_MAX where there is no deadline. */
static uint64_t remaining_ms(const struct kube_call *call)
{
    uint64_t now = clock_now_ns();
    if (!call->deadline_ns)
        return UINT64_MAX;
    return now < call->deadline_ns ? (call->deadline_ns - now) / MS : 0;
}

static void arm(struct kube_call *call, uint64_t wait_ms)
{
    struct timeval wait = {(time_t)(wait_ms / 1000), (suseconds_t)(wait_ms % 1000 * 1000)};
    event_add(call->timer, &wait);
}

static void make_ready(struct kube_call *call)
{
    call->is_ready = true;
    TAILQ_INSERT_TAIL(&call->client->ready, call, ready);
    if (call->deadline_ns)
        arm(call, remaining_ms(call));
    event_active(call->client->turn, EV_TIMEOUT, 0);
}

/* How long to wait before the next try; -1: there is no time for one. */
static int64_t choose_wait(struct kube_call *call)
{
    uint64_t left = remaining_ms(call);
    if (call->status == 401 && !call->token_reloaded) {
        call->token_reloaded = true;
        return left ? 0 : -1;
    }
    uint64_t wait = backoff_next_ms(&call->backoff, backoff_random());
    uint64_t after = call->retry_after_s < 0 ? 0 : (uint64_t)call->retry_after_s * 1000;
    if (after >= left)
        return -1;
    /* Half of what is left, so that a try is made near the deadline, and no number of them. */
    if (wait >= left && left >= call->backoff.first_ms)
        wait = left / 2;
    wait = after > wait ? after : wait;
    return wait < left ? (int64_t)wait : -1;
}

static void try_again(struct kube_call *call)
{
    int64_t wait = choose_wait(call);
    if (wait < 0) {
        call_end(call, NULL);
        return;
    }
    if (wait)
        arm(call, (uint64_t)wait);
    else
        make_ready(call);
    /* Last: it may cancel the call. */
    if (wait && call->on_retry)
        call->on_retry(call->context, call->text, (unsigned)wait);
}

static bool is_final(int status)
{
    return status >= 200 && status < 500 && status != 401 && status != 408 && status != 429;
}

static void on_reply(void *context, const struct http_reply *reply)
{
    struct kube_call *call = context;
    struct kube_client *client = call->client;
    call->http = NULL;
    client->active--;
    event_active(client->turn, EV_TIMEOUT, 0);
    call->retry_after_s = reply->failure ? -1 : reply->retry_after_s;
    call->status = reply->failure ? 0 : reply->status;
    if (call->status == 401)
        kube_auth_reload(client->auth);
    json_t *body = client_parse(reply);
    bool whole = call->status >= 300 || call->status == 204 || body;
    client_describe(&call->line, reply, body, call->text);
    call->too_large = reply->failure == HTTP_FAILURE_TOO_LARGE;
    if ((is_final(call->status) && whole) || call->too_large)
        call_end(call, body);
    else
        try_again(call);
    json_decref(body);
}

static void begin(struct kube_call *call)
{
    struct kube_client *client = call->client;
    uint64_t left = remaining_ms(call);
    struct http_request request = {.body = call->body,
        .body_bytes = call->body_bytes,
        .timeout_ms =
            left < client->options.attempt_ms ? (unsigned)left + 1 : client->options.attempt_ms,
        .reply_bytes_max = client->options.reply_bytes_max,
        .on_done = on_reply,
        .context = call};
    event_del(call->timer);
    call->attempts++;
    call->http = client_send(client->http, client->auth, client->user_agent, &call->line, &request);
    if (call->http) {
        client->active++;
        return;
    }
    call->status = 0;
    call->retry_after_s = -1;
    client_describe(
        &call->line, &(struct http_reply){.text = "no memory", .body = ""}, NULL, call->text);
    try_again(call);
}

static void end_late(struct kube_call *call)
{
    if (!call->attempts)
        client_describe(&call->line,
            &(struct http_reply){.text = "its deadline passed before its turn", .body = ""}, NULL,
            call->text);
    call_end(call, NULL);
}

static void give_turns(evutil_socket_t socket, short what, void *context)
{
    struct kube_client *client = context;
    (void)socket, (void)what;
    for (struct kube_call *call; client->active < client->options.connections_max &&
                                 (call = TAILQ_FIRST(&client->ready));) {
        TAILQ_REMOVE(&client->ready, call, ready);
        call->is_ready = false;
        /* The process may have stood still: then the deadline's timer comes too late. */
        if (remaining_ms(call))
            begin(call);
        else
            end_late(call);
    }
}

static void on_timer(evutil_socket_t socket, short what, void *context)
{
    struct kube_call *call = context;
    (void)socket, (void)what;
    if (!call->is_ready) {
        make_ready(call);
        return;
    }
    end_late(call);
}

static void set_defaults(struct kube_client_options *options)
{
    options->connections_max = options->connections_max ? options->connections_max : 4;
    options->calls_max = options->calls_max ? options->calls_max : 4096;
    options->attempt_ms = options->attempt_ms ? options->attempt_ms : 15000;
    options->backoff_first_ms = options->backoff_first_ms ? options->backoff_first_ms : 200;
    options->backoff_max_ms = options->backoff_max_ms ? options->backoff_max_ms : 10000;
    options->reply_bytes_max =
        options->reply_bytes_max ? options->reply_bytes_max : (size_t)32 << 20;
}

struct kube_client *kube_client_create(struct event_base *base, struct kube_auth *auth,
    const struct kube_client_options *options, struct error *error)
{
    struct kube_client *client = calloc(1, sizeof(*client));
    if (!client) {
        error_set(error, ENOMEM, "no memory for a client of the API server");
        return NULL;
    }
    if (options)
        client->options = *options;
    set_defaults(&client->options);
    const char *agent = client->options.user_agent;
    client->base = base;
    client->auth = auth;
    TAILQ_INIT(&client->calls);
    TAILQ_INIT(&client->ready);
    client->user_agent = strdup(agent ? agent : "vgpu");
    client->turn = event_new(base, -1, 0, give_turns, client);
    client->http = http_client_create(base, client->options.connections_max + STREAMS_MAX, error);
    if (client->user_agent && client->turn && client->http)
        return client;
    error_set(error, ENOMEM, "no memory for a client of the API server");
    kube_client_destroy(client);
    return NULL;
}

void kube_client_destroy(struct kube_client *client)
{
    if (!client)
        return;
    for (struct kube_call *call = TAILQ_FIRST(&client->calls), *next; call; call = next) {
        next = TAILQ_NEXT(call, entry);
        call_free(call);
    }
    http_client_destroy(client->http);
    if (client->turn)
        event_free(client->turn);
    free(client->user_agent);
    free(client);
}

static bool call_set(struct kube_call *call, const struct kube_request *request)
{
    if (request->body) {
        call->body = json_dumps(request->body, JSON_COMPACT);
        if (!call->body)
            return false;
        call->body_bytes = strlen(call->body);
    }
    call->timer = evtimer_new(call->client->base, on_timer, call);
    return call->timer &&
           !client_line_init(&call->line, kube_auth_server(call->client->auth), request->method,
               request->path, request->body ? request->content_type : NULL, request->body != NULL);
}

int kube_client_start(
    struct kube_client *client, const struct kube_request *request, struct kube_call **ret_call)
{
    if (client->held >= client->options.calls_max)
        return -EAGAIN;
    struct kube_call *call = calloc(1, sizeof(*call));
    if (!call)
        return -ENOMEM;
    call->client = client;
    call->backoff =
        (struct backoff){client->options.backoff_first_ms, client->options.backoff_max_ms, 0};
    call->retry_after_s = -1;
    call->on_done = request->on_done;
    call->on_retry = request->on_retry;
    call->context = request->context;
    if (request->deadline_ms)
        call->deadline_ns = clock_now_ns() + (uint64_t)request->deadline_ms * MS;
    TAILQ_INSERT_TAIL(&client->calls, call, entry);
    client->held++;
    if (!call_set(call, request)) {
        call_free(call);
        return -ENOMEM;
    }
    make_ready(call);
    if (ret_call)
        *ret_call = call;
    return 0;
}

void kube_call_cancel(struct kube_call *call)
{
    if (call)
        call_free(call);
}

void kube_client_backoff(const struct kube_client *client, struct backoff *ret_backoff)
{
    *ret_backoff =
        (struct backoff){client->options.backoff_first_ms, client->options.backoff_max_ms, 0};
}

struct event_base *kube_client_base(const struct kube_client *client)
{
    return client->base;
}

struct kube_stream {
    struct kube_client *client;
    struct client_line line;
    struct http_call *http;
    void (*on_data)(void *context, const char *data, size_t bytes);
    void (*on_done)(void *context, const struct kube_reply *reply);
    void *context;
};

static void stream_free(struct kube_stream *stream)
{
    client_line_finish(&stream->line);
    free(stream);
}

static void on_stream_data(void *context, const char *data, size_t bytes)
{
    struct kube_stream *stream = context;
    stream->on_data(stream->context, data, bytes);
}

static void on_stream_done(void *context, const struct http_reply *reply)
{
    struct kube_stream *stream = context;
    char text[ERROR_TEXT_BYTES];
    if (reply->status == 401)
        kube_auth_reload(stream->client->auth);
    json_t *body = client_parse(reply);
    client_describe(&stream->line, reply, body, text);
    if (reply->status >= 200 && reply->status <= 299 && !reply->failure)
        text[0] = 0;
    struct kube_reply result = {reply->status, body, text, 1, reply->retry_after_s, false};
    void (*on_done)(void *, const struct kube_reply *) = stream->on_done;
    void *stream_context = stream->context;
    stream_free(stream);
    on_done(stream_context, &result);
    json_decref(body);
}

struct kube_stream *kube_client_stream(struct kube_client *client, const char *path,
    unsigned idle_ms, void (*on_data)(void *context, const char *data, size_t bytes),
    void (*on_done)(void *context, const struct kube_reply *reply), void *context)
{
    struct kube_stream *stream = calloc(1, sizeof(*stream));
    if (!stream)
        return NULL;
    *stream = (struct kube_stream){
        .client = client, .on_data = on_data, .on_done = on_done, .context = context};
    struct http_request request = {.idle_ms = idle_ms,
        .reply_bytes_max = 65536, /* of an error's */
        .on_data = on_stream_data,
        .on_done = on_stream_done,
        .context = stream};
    if (!client_line_init(&stream->line, kube_auth_server(client->auth), "GET", path, NULL, false))
        stream->http =
            client_send(client->http, client->auth, client->user_agent, &stream->line, &request);
    if (!stream->http) {
        stream_free(stream);
        return NULL;
    }
    return stream;
}

void kube_stream_cancel(struct kube_stream *stream)
{
    if (!stream)
        return;
    http_call_cancel(stream->http);
    stream_free(stream);
}
