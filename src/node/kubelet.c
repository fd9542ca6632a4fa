/* SPDX-License-Identifier: Apache-2.0 */
/* The plugin's socket in the kubelet's directory, and what happens there. Events only say that
 * something may have changed; what is to be done follows from what is there. */
#include "node/kubelet.h"

#include "net/deviceplugin.h"
#include "net/log_line.h"
#include "net/message.h"
#include "node/kubelet_parts.h"

#include <errno.h>
#include <event2/event.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/inotify.h>
#include <time.h>
#include <unistd.h>

#define LOOK_MS 10000 /* beside inotify, which cannot tell that a program has died */
#define STANDBY_LOOK_MS 2000
#define BLIND_LOOK_MS 500    /* without inotify, or without the directory */
#define SOCKET_PATH_BYTES 96 /* 107 less a process ID, which a socket has in its name at first */
#define RESOURCE_BYTES 253

uint64_t kubelet_now_ms(void)
{
    struct timespec now;
    clock_gettime(CLOCK_MONOTONIC, &now);
    return (uint64_t)now.tv_sec * 1000 + (uint64_t)now.tv_nsec / 1000000;
}

void kubelet_say(struct kubelet *kubelet, const char *text)
{
    if (!strcmp(kubelet->said, text))
        return;
    snprintf(kubelet->said, sizeof(kubelet->said), "%s", text);
    log_line(LOG_LINE_WARNING, "kubelet: %s: %s", kubelet->resource, text);
}

static void watch_directory(struct kubelet *kubelet)
{
    if (kubelet->watch < 0 && kubelet->inotify >= 0)
        kubelet->watch = inotify_add_watch(kubelet->inotify, kubelet->directory,
            IN_CREATE | IN_DELETE | IN_MOVED_FROM | IN_MOVED_TO | IN_DELETE_SELF | IN_MOVE_SELF |
                IN_ONLYDIR);
}

static bool still_ours(const struct kubelet *kubelet)
{
    struct unix_socket_file there;
    /* As long as it is served its number is not given to another file; its change time may differ.
     */
    return unix_socket_find(kubelet->path, &there) && there.device == kubelet->file.device &&
           there.inode == kubelet->file.inode;
}

static void stop_serving(struct kubelet *kubelet)
{
    struct error error;
    kubelet->serving = false;
    if (grpc_server_listen(kubelet->server, -1, &error) != 0)
        kubelet_say(kubelet, error.text);
}

static void serve_socket(struct kubelet *kubelet)
{
    struct error error;
    int fd;
    if (kubelet->serving && still_ours(kubelet))
        return;
    if (kubelet->serving)
        stop_serving(kubelet);
    int failed = unix_socket_listen(kubelet->path, &fd, &kubelet->file, &error);
    kubelet->standby = failed == -EADDRINUSE;
    if (!failed)
        failed = grpc_server_listen(kubelet->server, fd, &error);
    if (failed) {
        if (kubelet->standby)
            (void)error_set(
                &error, EADDRINUSE, "%s; this plugin waits until that one has gone", error.text);
        kubelet_say(kubelet, error.text);
        return;
    }
    kubelet->serving = true;
    kubelet->said[0] = '\0';
    log_line(LOG_LINE_INFO, "kubelet: %s is served at %s", kubelet->resource, kubelet->path);
    kubelet_register_anew(kubelet);
}

static void wait_for_more(struct kubelet *kubelet)
{
    unsigned ms = LOOK_MS;
    if (kubelet->standby)
        ms = STANDBY_LOOK_MS;
    else if (!kubelet->serving || kubelet->watch < 0)
        ms = BLIND_LOOK_MS;
    unsigned due = kubelet->serving ? kubelet_register_due(kubelet) : UINT_MAX;
    if (due < ms)
        ms = due;
    const struct timeval wait = {ms / 1000, (suseconds_t)(ms % 1000 * 1000)};
    event_add(kubelet->timer, &wait);
}

static void look(struct kubelet *kubelet)
{
    if (!kubelet->published)
        return;
    watch_directory(kubelet);
    serve_socket(kubelet);
    if (kubelet->serving)
        kubelet_register(kubelet);
    wait_for_more(kubelet);
}

static void on_timer(evutil_socket_t fd, short what, void *argument)
{
    (void)fd, (void)what;
    look(argument);
}

static void on_changed(evutil_socket_t fd, short what, void *argument)
{
    struct kubelet *kubelet = argument;
    _Alignas(struct inotify_event) char bytes[4096];
    ssize_t got;
    (void)what;
    while ((got = read(fd, bytes, sizeof(bytes))) > 0) {
        const struct inotify_event *event;
        for (char *at = bytes; at < bytes + got; at += sizeof(*event) + event->len) {
            event = (const struct inotify_event *)(void *)at;
            if (event->wd != kubelet->watch)
                continue;
            if (event->mask & IN_MOVE_SELF)
                inotify_rm_watch(fd, kubelet->watch);
            if (event->mask & (IN_DELETE_SELF | IN_MOVE_SELF | IN_IGNORED))
                kubelet->watch = -1;
        }
    }
    look(kubelet);
}

void kubelet_wake(struct kubelet *kubelet)
{
    event_active(kubelet->timer, EV_TIMEOUT, 1);
}

/* vendor/name of letters, digits, '-', '_' and '.'; the kubelet checks the rest. */
static bool is_resource(const char *resource)
{
    static const char accepted[] =
        "abcdefghijklmnopqrstuvwxyzABCDEFGHIJKLMNOPQRSTUVWXYZ0123456789-_.";
    const char *slash = strchr(resource, '/');
    return slash && slash != resource && slash[1] && strlen(resource) <= RESOURCE_BYTES &&
           strspn(resource, accepted) == (size_t)(slash - resource) &&
           strspn(slash + 1, accepted) == strlen(slash + 1);
}

static int check_options(
    const struct kubelet_options *options, const char *kubelet_path, struct error *error)
{
    const char *name = options->socket_name ? options->socket_name : "";
    const char *resource = options->resource ? options->resource : "";
    if (kubelet_path[0] != '/')
        return error_set(
            error, EINVAL, "kubelet socket %s: an absolute path is accepted", kubelet_path);
    if (!name[0] || name[0] == '.' || strchr(name, '/') ||
        !strcmp(name, strrchr(kubelet_path, '/') + 1))
        return error_set(error, EINVAL,
            "socket name %s: a file name other than the kubelet's is accepted", name);
    if (!is_resource(resource))
        return error_set(
            error, EINVAL, "resource %s: names such as nvidia.com/gpu are accepted", resource);
    size_t bytes = (size_t)(strrchr(kubelet_path, '/') - kubelet_path) + 1 + strlen(name);
    if (bytes > SOCKET_PATH_BYTES || strlen(kubelet_path) > SOCKET_PATH_BYTES)
        return error_set(error, ENAMETOOLONG, "socket %s beside %s: paths of %d bytes are accepted",
            name, kubelet_path, SOCKET_PATH_BYTES);
    return 0;
}

static int copy_options(
    struct kubelet *kubelet, const struct kubelet_options *options, const char *kubelet_path)
{
    size_t bytes = (size_t)(strrchr(kubelet_path, '/') - kubelet_path);
    kubelet->pre_start_required = options->pre_start_required;
    kubelet->preferred_allocation = options->preferred_allocation;
    kubelet->kubelet_path = strdup(kubelet_path);
    kubelet->directory = bytes ? strndup(kubelet_path, bytes) : strdup("/");
    kubelet->socket_name = strdup(options->socket_name);
    kubelet->resource = strdup(options->resource);
    if (!kubelet->kubelet_path || !kubelet->directory || !kubelet->socket_name ||
        !kubelet->resource)
        return -ENOMEM;
    if (asprintf(&kubelet->path, "%.*s/%s", (int)bytes, kubelet_path, options->socket_name) < 0) {
        kubelet->path = NULL;
        return -ENOMEM;
    }
    return 0;
}

struct kubelet *kubelet_create(struct event_base *base, const struct kubelet_options *options,
    const struct kubelet_callbacks *callbacks, void *context, struct error *error)
{
    const char *kubelet_path = options->kubelet_socket ? options->kubelet_socket
                                                       : DEVICEPLUGIN_DIRECTORY
                                   "/" DEVICEPLUGIN_KUBELET_SOCKET;
    if (check_options(options, kubelet_path, error) != 0)
        return NULL;
    struct kubelet *kubelet = calloc(1, sizeof(*kubelet));
    if (!kubelet) {
        (void)error_set(error, ENOMEM, "no memory for the device plugin");
        return NULL;
    }
    kubelet->base = base;
    kubelet->callbacks = *callbacks;
    kubelet->context = context;
    kubelet->watch = -1;
    kubelet->inotify = inotify_init1(IN_NONBLOCK | IN_CLOEXEC);
    LIST_INIT(&kubelet->streams);
    int failed = copy_options(kubelet, options, kubelet_path);
    kubelet->timer = event_new(base, -1, 0, on_timer, kubelet);
    if (kubelet->inotify >= 0)
        kubelet->changed =
            event_new(base, kubelet->inotify, EV_READ | EV_PERSIST, on_changed, kubelet);
    else
        log_line(LOG_LINE_WARNING, "kubelet: inotify: %s; the directory is looked at every %d ms",
            strerror(errno), BLIND_LOOK_MS);
    kubelet->server = failed ? NULL : kubelet_serve(kubelet);
    if (failed || !kubelet->timer || !kubelet->server ||
        (kubelet->inotify >= 0 && (!kubelet->changed || event_add(kubelet->changed, NULL) != 0))) {
        kubelet_destroy(kubelet);
        (void)error_set(error, ENOMEM, "no memory for the device plugin");
        return NULL;
    }
    return kubelet;
}

void kubelet_destroy(struct kubelet *kubelet)
{
    if (!kubelet)
        return;
    grpc_client_destroy(kubelet->client);
    if (kubelet->serving && still_ours(kubelet))
        unlink(kubelet->path);
    kubelet->registered = false;
    grpc_server_destroy(kubelet->server); /* ends the streams */
    if (kubelet->changed)
        event_free(kubelet->changed);
    if (kubelet->timer)
        event_free(kubelet->timer);
    if (kubelet->inotify >= 0)
        close(kubelet->inotify);
    free(kubelet->devices);
    free(kubelet->kubelet_path);
    free(kubelet->directory);
    free(kubelet->path);
    free(kubelet->socket_name);
    free(kubelet->resource);
    free(kubelet);
}

enum kubelet_state kubelet_state(const struct kubelet *kubelet)
{
    if (kubelet->standby)
        return KUBELET_STANDBY;
    return kubelet->serving && kubelet->registered ? KUBELET_REGISTERED : KUBELET_WAITING;
}
