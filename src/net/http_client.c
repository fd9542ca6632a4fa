/* SPDX-License-Identifier: Apache-2.0 */
#include "net/http_client.h"

#include "net/retry_after.h"

#include <curl/curl.h>
#include <errno.h>
#include <event2/event.h>
#include <stdbool.h>
#include <stdlib.h>
#include <string.h>
#include <strings.h>
#include <sys/queue.h>
#include <time.h>

#define CONNECT_TIMEOUT_MS 10000L
/* Between probes of a connection on which nothing comes, in seconds: what lies between may drop it
 * silently, or because nothing was sent for long. */
#define KEEPALIVE_IDLE_S 30L
#define KEEPALIVE_INTERVAL_S 10L
#define RETRY_AFTER_BYTES 64

enum call_state {
    CALL_NEW,     /* libcurl does not have it yet */
    CALL_RUNNING, /* libcurl has it */
    CALL_DEAD,    /* cancelled, or idle: libcurl has it perhaps */
};

struct http_call {
    TAILQ_ENTRY(http_call) entry;
    struct http_client *client;
    enum call_state state;
    CURL *easy;
    bool added;
    struct curl_slist *headers;
    struct event *idle;
    struct timeval idle_time;
    char *request_body;
    char *body;
    size_t body_bytes, body_room, body_bytes_max;
    bool too_large;
    char retry_after[RETRY_AFTER_BYTES];
    char error_text[CURL_ERROR_SIZE];
    void (*on_data)(void *context, const char *data, size_t bytes);
    void (*on_done)(void *context, const struct http_reply *reply);
    void *context;
};

TAILQ_HEAD(call_list, http_call);

struct http_client {
    struct event_base *base;
    CURLM *multi;
    struct event *timer;
    struct event *work; /* starts and removes calls where libcurl is not on the stack */
    struct call_list calls;
};

/* One a socket of libcurl's. */
struct watcher {
    struct event *event;
    int what;
};

static void call_free(struct http_call *call)
{
    if (call->added)
        curl_multi_remove_handle(call->client->multi, call->easy);
    if (call->easy)
        curl_easy_cleanup(call->easy);
    if (call->idle)
        event_free(call->idle);
    curl_slist_free_all(call->headers);
    free(call->request_body);
    free(call->body);
    TAILQ_REMOVE(&call->client->calls, call, entry);
    free(call);
}

static enum http_failure failure_of(const struct http_call *call, CURLcode code)
{
    if (call->too_large)
        return HTTP_FAILURE_TOO_LARGE;
    switch (code) {
    case CURLE_OK:
        return HTTP_FAILURE_NONE;
    case CURLE_OPERATION_TIMEDOUT:
        return HTTP_FAILURE_TIMEOUT;
    case CURLE_COULDNT_RESOLVE_HOST:
    case CURLE_COULDNT_CONNECT:
        return HTTP_FAILURE_CONNECT;
    case CURLE_SSL_CONNECT_ERROR:
    case CURLE_PEER_FAILED_VERIFICATION:
    case CURLE_SSL_CERTPROBLEM:
    case CURLE_SSL_CACERT_BADFILE:
    case CURLE_SSL_CIPHER:
    case CURLE_SSL_ISSUER_ERROR:
        return HTTP_FAILURE_TLS;
    default:
        return HTTP_FAILURE_BROKEN;
    }
}

static void call_finish(struct http_call *call, enum http_failure failure, const char *text)
{
    long status = 0;
    unsigned seconds;
    curl_easy_getinfo(call->easy, CURLINFO_RESPONSE_CODE, &status);
    bool after = !retry_after_parse(call->retry_after, time(NULL), &seconds);
    struct http_reply reply = {
        .status = (int)status,
        .failure = failure,
        .text = text,
        .body = call->body ? call->body : "",
        .body_bytes = call->body_bytes,
        .retry_after_s = after ? (int)seconds : -1,
    };
    /* It may not be cancelled, nor found, from its own last callback. */
    call->state = CALL_DEAD;
    call->on_done(call->context, &reply);
    call_free(call);
}

static void finish_ended(struct http_client *client)
{
    int left;
    for (CURLMsg *message; (message = curl_multi_info_read(client->multi, &left));) {
        struct http_call *call = NULL;
        CURLcode code = message->data.result;
        if (message->msg != CURLMSG_DONE ||
            curl_easy_getinfo(message->easy_handle, CURLINFO_PRIVATE, &call) || !call)
            continue;
        enum http_failure failure = failure_of(call, code);
        const char *text = call->error_text[0] ? call->error_text : curl_easy_strerror(code);
        if (call->too_large)
            text = "the answer is too large";
        if (call->state == CALL_RUNNING)
            call_finish(call, failure, failure ? text : "");
        else
            call_free(call);
    }
}

static void on_socket_ready(evutil_socket_t socket, short what, void *context)
{
    struct http_client *client = context;
    int running;
    curl_multi_socket_action(client->multi, socket,
        (what & EV_READ ? CURL_CSELECT_IN : 0) | (what & EV_WRITE ? CURL_CSELECT_OUT : 0),
        &running);
    finish_ended(client);
}

static void on_timer(evutil_socket_t socket, short what, void *context)
{
    struct http_client *client = context;
    int running;
    (void)socket, (void)what;
    curl_multi_socket_action(client->multi, CURL_SOCKET_TIMEOUT, 0, &running);
    finish_ended(client);
}

/* libcurl wants to hear of a socket. */
static int watch_socket(CURL *easy, curl_socket_t socket, int what, void *context, void *assigned)
{
    struct http_client *client = context;
    struct watcher *watcher = assigned;
    (void)easy;
    if (watcher && watcher->event)
        event_free(watcher->event);
    if (what == CURL_POLL_REMOVE) {
        free(watcher);
        curl_multi_assign(client->multi, socket, NULL);
        return 0;
    }
    if (!watcher)
        watcher = calloc(1, sizeof(*watcher));
    if (!watcher)
        return -1;
    short events = (short)((what & CURL_POLL_IN ? EV_READ : 0) |
                           (what & CURL_POLL_OUT ? EV_WRITE : 0) | EV_PERSIST);
    watcher->event = event_new(client->base, socket, events, on_socket_ready, client);
    curl_multi_assign(client->multi, socket, watcher);
    return watcher->event && !event_add(watcher->event, NULL) ? 0 : -1;
}

static int set_timer(CURLM *multi, long timeout_ms, void *context)
{
    struct http_client *client = context;
    (void)multi;
    if (timeout_ms < 0)
        return event_del(client->timer);
    struct timeval wait = {timeout_ms / 1000, timeout_ms % 1000 * 1000};
    return event_add(client->timer, &wait);
}

static void rearm_idle(struct http_call *call)
{
    if (call->idle)
        event_add(call->idle, &call->idle_time);
}

static bool keep_body(struct http_call *call, const char *data, size_t bytes)
{
    if (bytes > call->body_bytes_max - call->body_bytes) {
        call->too_large = true;
        return false;
    }
    if (call->body_bytes + bytes >= call->body_room) {
        size_t room = call->body_room ? call->body_room : 1024;
        while (room <= call->body_bytes + bytes)
            room *= 2;
        char *body = realloc(call->body, room);
        if (!body)
            return false;
        call->body = body;
        call->body_room = room;
    }
    memcpy(call->body + call->body_bytes, data, bytes);
    call->body_bytes += bytes;
    call->body[call->body_bytes] = 0;
    return true;
}

static size_t take_body(char *data, size_t one, size_t bytes, void *context)
{
    struct http_call *call = context;
    long status = 0;
    (void)one;
    if (call->state != CALL_RUNNING)
        return CURL_WRITEFUNC_ERROR;
    rearm_idle(call);
    curl_easy_getinfo(call->easy, CURLINFO_RESPONSE_CODE, &status);
    if (!call->on_data || status < 200 || status > 299)
        return keep_body(call, data, bytes) ? bytes : CURL_WRITEFUNC_ERROR;
    call->on_data(call->context, data, bytes);
    return call->state == CALL_RUNNING ? bytes : CURL_WRITEFUNC_ERROR;
}

static size_t take_header(char *line, size_t one, size_t bytes, void *context)
{
    static const char name[] = "retry-after:";
    struct http_call *call = context;
    (void)one;
    rearm_idle(call);
    if (bytes >= 5 && !memcmp(line, "HTTP/", 5))
        call->retry_after[0] = 0;
    if (bytes <= strlen(name) || strncasecmp(line, name, strlen(name)) != 0)
        return bytes;
    size_t from = strlen(name), to = bytes;
    while (from < to && strchr(" \t", line[from]))
        from++;
    while (to > from && strchr(" \t\r\n", line[to - 1]))
        to--;
    if (to - from < sizeof(call->retry_after)) {
        memcpy(call->retry_after, line + from, to - from);
        call->retry_after[to - from] = 0;
    }
    return bytes;
}

static void on_idle(evutil_socket_t socket, short what, void *context)
{
    struct http_call *call = context;
    (void)socket, (void)what;
    if (call->state != CALL_DEAD)
        call_finish(call, HTTP_FAILURE_IDLE, "nothing came for too long");
}

/* Calls are handed to libcurl, and taken from it, only here: its callbacks may not do that. */
static void do_work(evutil_socket_t socket, short what, void *context)
{
    struct http_client *client = context;
    struct http_call *call, *next;
    (void)socket, (void)what;
    for (call = TAILQ_FIRST(&client->calls); call; call = next) {
        next = TAILQ_NEXT(call, entry);
        if (call->state == CALL_DEAD) {
            call_free(call);
        } else if (call->state == CALL_NEW) {
            call->state = CALL_RUNNING;
            call->added = !curl_multi_add_handle(client->multi, call->easy);
            if (call->added)
                continue;
            /* New calls that its callback makes lie behind `next`; what it cancels stays until the
             * next round. */
            call_finish(call, HTTP_FAILURE_BROKEN, "libcurl does not take the request");
        }
    }
}

static void free_timers(struct http_client *client)
{
    if (client->timer)
        event_free(client->timer);
    if (client->work)
        event_free(client->work);
}

struct http_client *http_client_create(
    struct event_base *base, unsigned connections_max, struct error *error)
{
    struct http_client *client = calloc(1, sizeof(*client));
    if (client && !curl_global_init(CURL_GLOBAL_DEFAULT)) {
        client->base = base;
        TAILQ_INIT(&client->calls);
        client->timer = evtimer_new(base, on_timer, client);
        client->work = event_new(base, -1, 0, do_work, client);
        client->multi = curl_multi_init();
    }
    if (!client || !client->timer || !client->work || !client->multi) {
        if (client)
            free_timers(client);
        free(client);
        error_set(error, ENOMEM, "no memory for an HTTP client");
        return NULL;
    }
    CURLM *multi = client->multi;
    curl_multi_setopt(multi, CURLMOPT_SOCKETFUNCTION, watch_socket);
    curl_multi_setopt(multi, CURLMOPT_SOCKETDATA, client);
    curl_multi_setopt(multi, CURLMOPT_TIMERFUNCTION, set_timer);
    curl_multi_setopt(multi, CURLMOPT_TIMERDATA, client);
    curl_multi_setopt(multi, CURLMOPT_MAX_TOTAL_CONNECTIONS, (long)connections_max);
    curl_multi_setopt(multi, CURLMOPT_MAXCONNECTS, (long)connections_max);
    return client;
}

void http_client_destroy(struct http_client *client)
{
    if (!client)
        return;
    while (!TAILQ_EMPTY(&client->calls))
        call_free(TAILQ_FIRST(&client->calls));
    curl_multi_cleanup(client->multi);
    free_timers(client);
    free(client);
    curl_global_cleanup();
}

static bool add_header(struct http_call *call, const char *line)
{
    struct curl_slist *list = curl_slist_append(call->headers, line);
    if (list)
        call->headers = list;
    return list;
}

static bool set_body(struct http_call *call, const struct http_request *request)
{
    if (!request->body)
        return true;
    call->request_body = malloc(request->body_bytes + 1);
    if (!call->request_body)
        return false;
    memcpy(call->request_body, request->body, request->body_bytes);
    curl_easy_setopt(call->easy, CURLOPT_POSTFIELDSIZE_LARGE, (curl_off_t)request->body_bytes);
    curl_easy_setopt(call->easy, CURLOPT_POSTFIELDS, call->request_body);
    /* Without these, libcurl says that the body is a form, and asks first for a large one. */
    return add_header(call, "Expect:");
}

static void set_tls(CURL *easy, struct tls_files *tls)
{
    curl_easy_setopt(easy, CURLOPT_SSLVERSION, (long)CURL_SSLVERSION_TLSv1_2);
    if (!tls)
        return;
    tls_files_refresh(tls);
    if (tls_files_ca(tls)) {
        curl_easy_setopt(easy, CURLOPT_CAINFO, tls_files_ca(tls));
        /* The system's CAs, which would count beside it, and which GnuTLS reads for each
         * connection. */
        curl_easy_setopt(easy, CURLOPT_CAPATH, NULL);
    }
    if (tls_files_certificate(tls))
        curl_easy_setopt(easy, CURLOPT_SSLCERT, tls_files_certificate(tls));
    if (tls_files_key(tls))
        curl_easy_setopt(easy, CURLOPT_SSLKEY, tls_files_key(tls));
}

static void set_fixed(struct http_call *call)
{
    CURL *easy = call->easy;
    curl_easy_setopt(easy, CURLOPT_PRIVATE, call);
    curl_easy_setopt(easy, CURLOPT_ERRORBUFFER, call->error_text);
    curl_easy_setopt(easy, CURLOPT_WRITEFUNCTION, take_body);
    curl_easy_setopt(easy, CURLOPT_WRITEDATA, call);
    curl_easy_setopt(easy, CURLOPT_HEADERFUNCTION, take_header);
    curl_easy_setopt(easy, CURLOPT_HEADERDATA, call);
    curl_easy_setopt(easy, CURLOPT_NOSIGNAL, 1L);
    curl_easy_setopt(easy, CURLOPT_PROXY, "");
    curl_easy_setopt(easy, CURLOPT_PROTOCOLS_STR, "http,https");
    curl_easy_setopt(easy, CURLOPT_HTTP_VERSION, (long)CURL_HTTP_VERSION_1_1);
    curl_easy_setopt(easy, CURLOPT_CONNECTTIMEOUT_MS, CONNECT_TIMEOUT_MS);
    curl_easy_setopt(easy, CURLOPT_TCP_KEEPALIVE, 1L);
    curl_easy_setopt(easy, CURLOPT_TCP_KEEPIDLE, KEEPALIVE_IDLE_S);
    curl_easy_setopt(easy, CURLOPT_TCP_KEEPINTVL, KEEPALIVE_INTERVAL_S);
}

static bool call_set(struct http_call *call, const struct http_request *request)
{
    call->easy = curl_easy_init();
    if (!call->easy)
        return false;
    set_fixed(call);
    bool whole = set_body(call, request);
    for (size_t i = 0; whole && request->headers && request->headers[i]; i++)
        whole = add_header(call, request->headers[i]);
    curl_easy_setopt(call->easy, CURLOPT_HTTPHEADER, call->headers);
    whole = whole && !curl_easy_setopt(call->easy, CURLOPT_URL, request->url) &&
            !curl_easy_setopt(call->easy, CURLOPT_CUSTOMREQUEST, request->method);
    curl_easy_setopt(call->easy, CURLOPT_TIMEOUT_MS, (long)request->timeout_ms);
    set_tls(call->easy, request->tls);
    if (request->idle_ms) {
        call->idle_time = (struct timeval){
            request->idle_ms / 1000, (suseconds_t)(request->idle_ms % 1000) * 1000};
        call->idle = evtimer_new(call->client->base, on_idle, call);
        whole = whole && call->idle && !event_add(call->idle, &call->idle_time);
    }
    return whole;
}

struct http_call *http_client_start(struct http_client *client, const struct http_request *request)
{
    struct http_call *call = calloc(1, sizeof(*call));
    if (!call)
        return NULL;
    call->client = client;
    call->body_bytes_max = request->reply_bytes_max;
    call->on_data = request->on_data;
    call->on_done = request->on_done;
    call->context = request->context;
    TAILQ_INSERT_TAIL(&client->calls, call, entry);
    if (!call_set(call, request)) {
        call_free(call);
        return NULL;
    }
    event_active(client->work, EV_TIMEOUT, 0);
    return call;
}

void http_call_cancel(struct http_call *call)
{
    if (!call || call->state == CALL_DEAD)
        return;
    call->state = CALL_DEAD;
    if (call->idle)
        event_del(call->idle);
    event_active(call->client->work, EV_TIMEOUT, 0);
}
