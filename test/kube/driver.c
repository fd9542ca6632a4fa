/* SPDX-License-Identifier: Apache-2.0 */
/* A client of the API server that a test steers: commands are lines of stdin, what happens is lines
 * of stdout. The end of stdin ends it.
 *
 * kube-driver [attempt_ms=N] [first_ms=N] [max_ms=N] [connections=N] [calls=N] [reply=BYTES]
 * [repeat_ms=N] with KUBECONFIG, or SERVICE_ACCOUNT as the service account's directory request ID
 * DEADLINE_MS METHOD PATH [CONTENT_TYPE BODY] cancel ID watch PATH PAGE IDLE_MS FIELD_SELECTOR|-
 * LABEL_SELECTOR|- unwatch event REASON NAME MESSAGE      of a Pod in "default", UID "uid-NAME"; a
 * REASON with ! is a warning, with ? it is dispensable; dropped says how many events were dropped
 */
#include "kube/auth.h"
#include "kube/client.h"
#include "kube/event.h"
#include "kube/object.h"
#include "kube/watch.h"

#include <errno.h>
#include <event2/event.h>
#include <fcntl.h>
#include <signal.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#define CALLS_MAX 4096
#define LINE_BYTES_MAX 65536

struct driver;

struct slot {
    struct driver *driver;
    struct kube_call *call;
    int id;
};

struct driver {
    struct event_base *base;
    struct kube_client *client;
    struct kube_watch *watch;
    struct kube_events *events;
    struct slot slots[CALLS_MAX];
    char input[LINE_BYTES_MAX];
    size_t bytes;
};

static void on_done(void *context, const struct kube_reply *reply)
{
    struct slot *slot = context;
    slot->call = NULL;
    printf("DONE %d %d %u %s\n", slot->id, reply->status, reply->attempts,
        reply->text[0] ? reply->text : object_name(reply->body));
}

static void on_retry(void *context, const char *text, unsigned wait_ms)
{
    const struct slot *slot = context;
    printf("RETRY %d %u %s\n", slot->id, wait_ms, text);
}

static void do_request(struct driver *driver, char *line)
{
    int id = -1, body = 0;
    unsigned deadline_ms = 0;
    char method[16] = "", path[1024] = "", type[128] = "";
    sscanf(line, "%d %u %15s %1023s %127s %n", &id, &deadline_ms, method, path, type, &body);
    if (id < 0 || id >= CALLS_MAX)
        return;
    json_t *value = body ? json_loads(line + body, JSON_DECODE_ANY, NULL) : NULL;
    struct slot *slot = &driver->slots[id];
    *slot = (struct slot){driver, NULL, id};
    struct kube_request request = {.method = method,
        .path = path,
        .content_type = type,
        .body = value,
        .deadline_ms = deadline_ms,
        .on_done = on_done,
        .on_retry = on_retry,
        .context = slot};
    int failure = kube_client_start(driver->client, &request, &slot->call);
    if (failure)
        printf("REFUSED %d %s\n", id, failure == -EAGAIN ? "full" : "no memory");
    json_decref(value);
}

static void do_cancel(struct driver *driver, int id)
{
    if (id < 0 || id >= CALLS_MAX)
        return;
    kube_call_cancel(driver->slots[id].call);
    driver->slots[id].call = NULL;
    printf("CANCELLED %d\n", id);
}

static void on_change(void *context, enum kube_watch_change change, const json_t *object)
{
    static const char *const names[] = {"ADDED", "MODIFIED", "DELETED"};
    const char *note = object_annotation(object, "note");
    (void)context;
    printf("%s %s/%s %s %s\n", names[change], object_namespace(object), object_name(object),
        object_uid(object), note ? note : "-");
}

static void on_synced(void *context)
{
    (void)context;
    printf("SYNCED\n");
}

static void on_trouble(void *context, const char *text)
{
    (void)context;
    printf("TROUBLE %s\n", text);
}

static void on_back(void *context)
{
    (void)context;
    printf("BACK\n");
}

static void do_watch(struct driver *driver, const char *line)
{
    char path[256], field[256], label[256];
    unsigned page, idle_ms;
    struct error error = {0};
    if (sscanf(line, "%255s %u %u %255s %255s", path, &page, &idle_ms, field, label) != 5)
        return;
    struct kube_watch_options options = {.path = path,
        .field_selector = strcmp(field, "-") ? field : NULL,
        .label_selector = strcmp(label, "-") ? label : NULL,
        .page_objects = page,
        .idle_ms = idle_ms,
        .on_change = on_change,
        .on_synced = on_synced,
        .on_trouble = on_trouble,
        .on_back = on_back};
    kube_watch_destroy(driver->watch);
    driver->watch = kube_watch_create(driver->client, &options, &error);
    if (!driver->watch)
        printf("ERROR %s\n", error.text);
}

static void do_event(struct driver *driver, const char *line)
{
    char reason[64], name[128], uid[160];
    int message = 0;
    if (sscanf(line, "%63s %127s %n", reason, name, &message) != 2 || !message)
        return;
    snprintf(uid, sizeof(uid), "uid-%s", name);
    bool is_warning = strchr(reason, '!'), is_dispensable = strchr(reason, '?');
    reason[strcspn(reason, "!?")] = 0;
    struct kube_event event = {.kind = "Pod",
        .namespace_name = "default",
        .name = name,
        .uid = uid,
        .reason = reason,
        .message = line + message,
        .is_warning = is_warning,
        .is_dispensable = is_dispensable};
    kube_event_post(driver->events, &event);
}

static void do_line(struct driver *driver, char *line)
{
    if (!strncmp(line, "request ", 8)) {
        do_request(driver, line + 8);
    } else if (!strncmp(line, "cancel ", 7)) {
        do_cancel(driver, atoi(line + 7));
    } else if (!strncmp(line, "watch ", 6)) {
        do_watch(driver, line + 6);
    } else if (!strncmp(line, "event ", 6)) {
        do_event(driver, line + 6);
    } else if (!strcmp(line, "dropped")) {
        printf("DROPPED %lu\n", kube_events_dropped(driver->events));
    } else if (!strcmp(line, "unwatch")) {
        kube_watch_destroy(driver->watch);
        driver->watch = NULL;
        printf("UNWATCHED\n");
    }
}

static void on_input(evutil_socket_t fd, short what, void *context)
{
    struct driver *driver = context;
    (void)what;
    ssize_t got =
        read(fd, driver->input + driver->bytes, sizeof(driver->input) - 1 - driver->bytes);
    if (got <= 0) {
        event_base_loopbreak(driver->base);
        return;
    }
    driver->bytes += (size_t)got;
    driver->input[driver->bytes] = 0;
    char *line = driver->input;
    for (char *end; (end = strchr(line, '\n')); line = end + 1) {
        *end = 0;
        do_line(driver, line);
    }
    driver->bytes = strlen(line);
    memmove(driver->input, line, driver->bytes + 1);
}

static unsigned number_of(int argc, char **argv, const char *name)
{
    for (int i = 1; i < argc; i++) {
        if (!strncmp(argv[i], name, strlen(name)))
            return (unsigned)atoi(argv[i] + strlen(name));
    }
    return 0;
}

int main(int argc, char **argv)
{
    static struct driver driver;
    struct error error = {0};
    setvbuf(stdout, NULL, _IOLBF, 0);
    signal(SIGPIPE, SIG_IGN);
    struct kube_client_options options = {.attempt_ms = number_of(argc, argv, "attempt_ms="),
        .backoff_first_ms = number_of(argc, argv, "first_ms="),
        .backoff_max_ms = number_of(argc, argv, "max_ms="),
        .connections_max = number_of(argc, argv, "connections="),
        .calls_max = number_of(argc, argv, "calls="),
        .reply_bytes_max = number_of(argc, argv, "reply="),
        .user_agent = "kube-driver"};
    driver.base = event_base_new();
    struct kube_auth *auth = kube_auth_create(NULL, getenv("SERVICE_ACCOUNT"), &error);
    if (auth)
        driver.client = kube_client_create(driver.base, auth, &options, &error);
    if (driver.client)
        driver.events = kube_events_create(
            driver.client, "test", "n1", number_of(argc, argv, "repeat_ms="), &error);
    if (!driver.events) {
        printf("ERROR %s\n", error.text);
        return 1;
    }
    struct event *input =
        event_new(driver.base, STDIN_FILENO, EV_READ | EV_PERSIST, on_input, &driver);
    event_add(input, NULL);
    printf("READY\n");
    event_base_dispatch(driver.base);
    kube_watch_destroy(driver.watch);
    kube_events_destroy(driver.events);
    kube_client_destroy(driver.client);
    kube_auth_destroy(auth);
    event_free(input);
    event_base_free(driver.base);
    printf("END\n");
    return 0;
}
