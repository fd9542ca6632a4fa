/* SPDX-License-Identifier: Apache-2.0 */
/* vgpu-monitor: reads the containers' regions for /metrics, gives them HAMi's priority feedback,
 * and removes what Pods left that are gone. One thread with one event loop owns all state; a second
 * one asks NVML (node/monitor/card_samples.h). Exit status: 0 after SIGTERM or SIGINT, 1 where it
 * cannot run, 2 for flags that are not understood. */
#include "base/clock.h"
#include "daemon/monitor_flags.h"
#include "kube/client.h"
#include "net/http_server.h"
#include "net/log_line.h"
#include "node/monitor/card_samples.h"
#include "node/monitor/container_figures.h"
#include "node/monitor/containers.h"
#include "node/monitor/monitor_metrics.h"
#include "node/monitor/pod_names.h"
#include "node/monitor/priorities.h"

#include <errno.h>
#include <event2/event.h>
#include <malloc.h>
#include <signal.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <time.h>

#define EXIT_MISUSED 2
#define SECOND_NS 1000000000ull
/* Cards are asked for while somebody reads their metrics. */
#define READ_LATELY_NS (180 * SECOND_NS)
#define SAMPLE_AGE_NS (30 * SECOND_NS)

struct monitor {
    struct monitor_flags flags;
    struct event_base *base;
    struct event *signals[2], *tick;
    struct kube_auth *auth;
    struct kube_client *client;
    struct pod_names *names;
    struct containers *containers;
    struct card_samples *cards;
    struct http_server *server;
    uint64_t ticks, read_ns; /* when /metrics was last read */
};

/* ---- /metrics ---- */

static void write_metrics(
    struct monitor *monitor, const struct node_figures *figures, struct exposition *text)
{
    static struct card_sample cards[CARD_SAMPLES_MAX];
    uint64_t now = clock_now_ns();
    uint64_t age_ns = SAMPLE_AGE_NS + 2 * (uint64_t)monitor->flags.feedback_ns;
    struct monitor_metrics metrics = {.node_name = monitor->flags.node_name,
        .version = VGPU_VERSION,
        .legacy = monitor->flags.legacy_metrics,
        .cards = cards,
        .card_count = card_samples_read(monitor->cards, age_ns, cards),
        .figures = figures,
        .names = monitor->names,
        .container_count = containers_count(monitor->containers),
        .ticks = monitor->ticks,
        .removed = containers_removed(monitor->containers),
        .pods_known = pod_names_known_ns(monitor->names, now) > 0};
    monitor->read_ns = now;
    monitor_metrics_write(text, &metrics);
}

static void on_metrics(
    void *context, struct http_exchange *exchange, const struct http_server_request *request)
{
    struct monitor *monitor = context;
    struct node_figures figures;
    struct exposition text = {.bytes = 0};
    static const char failed[] = "no memory\n";
    (void)request;
    if (container_figures_read(
            monitor->containers, monitor->names, (uint64_t)time(NULL), &figures) == 0) {
        write_metrics(monitor, &figures, &text);
        container_figures_free(&figures);
    } else {
        text.failed = true;
    }
    if (text.failed || !text.text) {
        exposition_free(&text);
        http_exchange_answer(exchange, 503, "text/plain", failed, strlen(failed));
        return;
    }
    http_exchange_answer_taking(exchange, 200, EXPOSITION_CONTENT_TYPE, text.text, text.bytes);
}

static void on_health(
    void *context, struct http_exchange *exchange, const struct http_server_request *request)
{
    (void)context, (void)request;
    http_exchange_answer(exchange, 200, "text/plain", "ok\n", 3);
}

/* ---- the loop ---- */

static void on_tick(evutil_socket_t fd, short what, void *context)
{
    struct monitor *monitor = context;
    (void)fd, (void)what;
    containers_scan(monitor->containers);
    priorities_tick(monitor->containers);
    containers_remove_gone(
        monitor->containers, monitor->names, (uint64_t)monitor->flags.resync_ns / SECOND_NS);
    if (!monitor->ticks || clock_now_ns() - monitor->read_ns < READ_LATELY_NS)
        card_samples_ask(monitor->cards);
    monitor->ticks++;
}

static void on_signal(evutil_socket_t number, short what, void *context)
{
    struct monitor *monitor = context;
    (void)what;
    log_line(LOG_LINE_INFO, "monitor: ends by signal %d", (int)number);
    event_base_loopbreak(monitor->base);
}

/* ---- start and end ---- */

static int catch_signals(struct monitor *monitor, struct error *error)
{
    static const int numbers[] = {SIGTERM, SIGINT};
    signal(SIGPIPE, SIG_IGN);
    for (size_t i = 0; i < sizeof(numbers) / sizeof(numbers[0]); i++) {
        monitor->signals[i] = evsignal_new(monitor->base, numbers[i], on_signal, monitor);
        if (!monitor->signals[i] || event_add(monitor->signals[i], NULL))
            return error_set(error, ENOMEM, "signals cannot be caught");
    }
    return 0;
}

static int start_ticks(struct monitor *monitor, struct error *error)
{
    uint64_t ns = (uint64_t)monitor->flags.feedback_ns;
    struct timeval interval = {(time_t)(ns / SECOND_NS), (suseconds_t)(ns % SECOND_NS / 1000)};
    monitor->tick = event_new(monitor->base, -1, EV_PERSIST, on_tick, monitor);
    if (!monitor->tick || event_add(monitor->tick, &interval))
        return error_set(error, ENOMEM, "no timer");
    containers_scan(monitor->containers); /* so that the first answer has them */
    card_samples_ask(monitor->cards);
    return 0;
}

static bool reach_cluster(struct monitor *monitor, struct error *error)
{
    const struct kube_client_options options = {.user_agent = "vgpu-monitor/" VGPU_VERSION};
    monitor->auth = kube_auth_create(NULL, NULL, error);
    monitor->client =
        monitor->auth ? kube_client_create(monitor->base, monitor->auth, &options, error) : NULL;
    monitor->names =
        monitor->client ? pod_names_create(monitor->client, monitor->flags.node_name, error) : NULL;
    return monitor->names;
}

static bool serve(struct monitor *monitor, struct error *error)
{
    const struct http_server_options options = {.address = monitor->flags.metrics_address,
        .connections_max = 16,
        .request_bytes_max = 4096};
    monitor->server = http_server_create(monitor->base, &options, error);
    if (!monitor->server)
        return false;
    if (http_server_handle(monitor->server, "GET", "/metrics", on_metrics, monitor) ||
        http_server_handle(monitor->server, "GET", "/healthz", on_health, monitor)) {
        error_set(error, ENOMEM, "no memory for the server");
        return false;
    }
    return true;
}

static bool start(struct monitor *monitor, struct error *error)
{
    const struct monitor_flags *flags = &monitor->flags;
    monitor->base = event_base_new();
    if (!monitor->base) {
        error_set(error, ENOMEM, "no event loop");
        return false;
    }
    monitor->containers = containers_create(flags->hook_path, error);
    monitor->cards = monitor->containers
                         ? card_samples_create(flags->driver_root_inside, flags->driver_root, error)
                         : NULL;
    return monitor->cards && !catch_signals(monitor, error) && reach_cluster(monitor, error) &&
           serve(monitor, error) && !start_ticks(monitor, error);
}

static void finish(struct monitor *monitor)
{
    http_server_destroy(monitor->server);
    pod_names_destroy(monitor->names);
    kube_client_destroy(monitor->client);
    kube_auth_destroy(monitor->auth);
    card_samples_destroy(monitor->cards);
    containers_destroy(monitor->containers);
    if (monitor->tick)
        event_free(monitor->tick);
    for (size_t i = 0; i < sizeof(monitor->signals) / sizeof(monitor->signals[0]); i++)
        if (monitor->signals[i])
            event_free(monitor->signals[i]);
    if (monitor->base)
        event_base_free(monitor->base);
}

int main(int argc, char **argv)
{
    static struct monitor monitor;
    enum flag_action action = FLAG_RUN;
    struct error error = {.text = ""};
    const struct flag_reader reader = {NULL, NULL, NULL};
    if (flag_table_read(
            &monitor_flag_table, &monitor.flags, argc, argv, &reader, &action, &error) ||
        (action == FLAG_RUN && monitor_flags_check(&monitor.flags, &error))) {
        log_line(LOG_LINE_ERROR, "flags: %s", error.text);
        return EXIT_MISUSED;
    }
    if (action == FLAG_HELP) {
        flag_table_print_help(&monitor_flag_table, stdout);
        return EXIT_SUCCESS;
    }
    if (action == FLAG_VERSION) {
        puts("vgpu-monitor " VGPU_VERSION);
        return EXIT_SUCCESS;
    }
    if (monitor.flags.verbose)
        log_line_set_level(LOG_LINE_DEBUG);
    mallopt(M_ARENA_MAX, 1); /* the second thread needs none of its own */
    bool running = start(&monitor, &error);
    if (!running)
        log_line(LOG_LINE_ERROR, "monitor: %s", error.text);
    else
        log_line(LOG_LINE_INFO, "monitor: version %s on node %s, port %u", VGPU_VERSION,
            monitor.flags.node_name, http_server_port(monitor.server));
    if (running && event_base_dispatch(monitor.base) < 0) {
        log_line(LOG_LINE_ERROR, "monitor: the event loop failed");
        running = false;
    }
    finish(&monitor);
    return running ? EXIT_SUCCESS : EXIT_FAILURE;
}
