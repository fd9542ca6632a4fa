/* SPDX-License-Identifier: Apache-2.0 */
/* vgpu-device-plugin: offers a node's GPUs to the kubelet. One thread with one event loop owns all
 * state; a second one talks to NVML (node/probe.h). Exit status: 0 after SIGTERM or SIGINT, 1 where
 * it cannot run, 2 for flags that are not understood. */
#include "kube/client.h"
#include "kube/event.h"
#include "net/log_line.h"
#include "node/allocation/allocation.h"
#include "node/health.h"
#include "node/install.h"
#include "node/inventory.h"
#include "node/offer.h"
#include "node/pod_resources.h"
#include "node/pods.h"
#include "node/probe.h"
#include "node/register.h"
#include "node/settings_flags.h"
#include "node/settings_read.h"
#include "node/topology.h"

#include <errno.h>
#include <event2/event.h>
#include <signal.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#define EXIT_MISUSED 2
/* How long the files of a Pod stay that the API server does not have any more: the programs of one
 * that was deleted by force may end later. */
#define REMOVE_AFTER_S 300

struct plugin {
    struct node_settings settings;
    struct event_base *base;
    struct event *signals[3];
    struct kube_auth *auth;
    struct kube_client *client;
    struct kube_events *events;
    struct pods *pods;
    struct pods_listener listener;
    struct pod_resources *pod_resources;
    struct allocation *allocation;
    struct inventory *inventory;
    struct health *health;
    struct registration *registration;
    struct offer *offer;
    struct install *install;
    struct probe *probe;
    char *scores; /* the last ones */
};

static void report(void *context, const char *line)
{
    (void)context;
    log_line(LOG_LINE_WARNING, "settings: %s", line);
}

/* ---- What the parts tell each other ---- */

static void on_inventory(void *context)
{
    struct plugin *plugin = context;
    struct error error = {.text = ""};
    size_t count, healthy = 0;
    const struct node_card *cards = inventory_cards(plugin->inventory, &count);
    for (size_t i = 0; i < count; i++)
        healthy += cards[i].healthy;
    log_line(LOG_LINE_INFO, "inventory: %zu cards, %zu of them healthy", count, healthy);
    if (register_set_devices(
            plugin->registration, plugin->inventory, plugin->settings.register_csv, &error))
        log_line(LOG_LINE_ERROR, "register: %s", error.text);
    offer_update(plugin->offer);
}

static void ignore_asymmetric(
    void *context, const char *a, const char *b, int32_t a_to_b, int32_t b_to_a)
{
    (void)context, (void)a, (void)b, (void)a_to_b, (void)b_to_a;
}

static void tell_asymmetric(
    void *context, const char *a, const char *b, int32_t a_to_b, int32_t b_to_a)
{
    struct plugin *plugin = context;
    const char *node = plugin->settings.node_name;
    char message[512];
    snprintf(message, sizeof(message),
        "the link from %s to %s scores %d, and back %d: the pair counts as unconnected", a, b,
        a_to_b, b_to_a);
    log_line(LOG_LINE_WARNING, "topology: %s", message);
    kube_event_post(plugin->events, &(struct kube_event){.kind = "Node",
                                        .namespace_name = "",
                                        .name = node,
                                        .uid = node,
                                        .reason = "AsymmetricGPUP2PLink",
                                        .message = message,
                                        .is_warning = true});
}

/* A pair is told where the scores have changed. */
static void take_scores(struct plugin *plugin, const struct scan *scan)
{
    struct device_scores scores;
    if (topology_scores(scan, plugin->inventory, ignore_asymmetric, plugin, &scores))
        return;
    char *text = device_scores_encode(&scores);
    device_scores_finish(&scores);
    if (!text || (plugin->scores && !strcmp(plugin->scores, text)) ||
        register_set_scores(plugin->registration, text)) {
        free(text);
        return;
    }
    free(plugin->scores);
    plugin->scores = text;
    if (!topology_scores(scan, plugin->inventory, tell_asymmetric, plugin, &scores))
        device_scores_finish(&scores);
}

static void on_scan(void *context, const struct scan *scan)
{
    struct plugin *plugin = context;
    health_take_scan(plugin->health, scan);
    if (plugin->settings.topology_score)
        take_scores(plugin, scan);
}

static void on_event(void *context, const struct probe_event *event)
{
    struct plugin *plugin = context;
    health_take_event(plugin->health, event);
}

static void on_absent(void *context, const char *text)
{
    struct plugin *plugin = context;
    health_take_absence(plugin->health, text);
}

static void on_pace(void *context, unsigned seconds, bool anew)
{
    struct plugin *plugin = context;
    if (plugin->probe)
        probe_hurry(plugin->probe, seconds, anew);
}

static void on_healthy(void *context, const char *list)
{
    struct plugin *plugin = context;
    health_take_allowed(plugin->health, list);
}

static void on_node(void *context, const json_t *node)
{
    struct plugin *plugin = context;
    register_take_node(plugin->registration, node);
}

static void on_patched(void *context, const json_t *node)
{
    struct plugin *plugin = context;
    pods_learn_node(plugin->pods, node);
}

static void on_installed(void *context)
{
    struct plugin *plugin = context;
    offer_open(plugin->offer);
}

static void on_signal(evutil_socket_t number, short what, void *context)
{
    struct plugin *plugin = context;
    struct error error = {.text = ""};
    (void)what;
    if (number != SIGHUP) {
        log_line(LOG_LINE_INFO, "plugin: ends by signal %d", (int)number);
        event_base_loopbreak(plugin->base);
        return;
    }
    if (node_settings_load(&plugin->settings, report, NULL, &error)) {
        log_line(LOG_LINE_ERROR, "settings: %s; what was read before stays", error.text);
        return;
    }
    log_line(LOG_LINE_INFO, "settings: read again");
    health_settings_changed(plugin->health);
    offer_update(plugin->offer);
    probe_wake(plugin->probe);
}

/* ---- Start and end ---- */

static int catch_signals(struct plugin *plugin, struct error *error)
{
    static const int numbers[] = {SIGTERM, SIGINT, SIGHUP};
    signal(SIGPIPE, SIG_IGN);
    for (size_t i = 0; i < sizeof(numbers) / sizeof(numbers[0]); i++) {
        plugin->signals[i] = evsignal_new(plugin->base, numbers[i], on_signal, plugin);
        if (!plugin->signals[i] || event_add(plugin->signals[i], NULL))
            return error_set(error, ENOMEM, "signals cannot be caught");
    }
    return 0;
}

static bool reach_cluster(struct plugin *plugin, struct error *error)
{
    const struct kube_client_options options = {.user_agent = "vgpu-device-plugin/" VGPU_VERSION};
    const char *node = plugin->settings.node_name;
    plugin->auth = kube_auth_create(NULL, NULL, error);
    plugin->client =
        plugin->auth ? kube_client_create(plugin->base, plugin->auth, &options, error) : NULL;
    plugin->events = plugin->client
                         ? kube_events_create(plugin->client, "vgpu-device-plugin", node, 0, error)
                         : NULL;
    return plugin->events;
}

/* The Node and its Pods, and what is given to them. */
static bool serve_pods(struct plugin *plugin, struct error *error)
{
    const struct node_settings *settings = &plugin->settings;
    plugin->pods =
        pods_create(plugin->client, settings->node_name, &settings->config.request, error);
    if (!plugin->pods)
        return false;
    plugin->listener = (struct pods_listener){.on_node = on_node, .context = plugin};
    pods_listen(plugin->pods, &plugin->listener);
    plugin->pod_resources = pod_resources_create(plugin->base, settings->pod_resources_socket);
    if (!plugin->pod_resources) {
        error_set(error, ENOMEM, "no memory for the kubelet's Pod resources");
        return false;
    }
    plugin->allocation = allocation_create(&(struct allocation_options){.base = plugin->base,
                                               .settings = settings,
                                               .inventory = plugin->inventory,
                                               .client = plugin->client,
                                               .pods = plugin->pods,
                                               .pod_resources = plugin->pod_resources,
                                               .events = plugin->events,
                                               .remove_after_s = REMOVE_AFTER_S},
        error);
    return plugin->allocation;
}

static bool make_offer(struct plugin *plugin, struct error *error)
{
    const struct offer_options options = {.settings = &plugin->settings,
        .inventory = plugin->inventory,
        .cards = {.allocate = allocation_allocate,
            .preferred = allocation_preferred,
            .pre_start = allocation_pre_start},
        .mig = {.allocate = allocation_allocate_mig},
        .context = plugin->allocation};
    plugin->offer = offer_create(plugin->base, &options, error);
    return plugin->offer;
}

static bool watch_cards(struct plugin *plugin, struct error *error)
{
    const struct node_settings *settings = &plugin->settings;
    plugin->health = health_create(&(struct health_options){.settings = settings,
                                       .inventory = plugin->inventory,
                                       .events = plugin->events,
                                       .on_pace = on_pace,
                                       .context = plugin},
        error);
    if (!plugin->health)
        return false;
    plugin->install = install_create(plugin->base, settings, on_installed, plugin, error);
    return plugin->install;
}

static bool make_parts(struct plugin *plugin, struct error *error)
{
    const struct node_settings *settings = &plugin->settings;
    plugin->inventory = inventory_create(settings, on_inventory, plugin);
    if (!plugin->inventory) {
        error_set(error, ENOMEM, "no memory for the inventory");
        return false;
    }
    plugin->registration = register_create(&(struct register_options){.client = plugin->client,
                                               .node_name = settings->node_name,
                                               .version = VGPU_VERSION,
                                               .on_healthy = on_healthy,
                                               .on_node = on_patched,
                                               .context = plugin},
        error);
    return plugin->registration && serve_pods(plugin, error) && make_offer(plugin, error) &&
           watch_cards(plugin, error);
}

/* "all" and no Xid that counts nevertheless: nothing is waited for. */
static bool wants_events(const struct node_settings *settings)
{
    return (strcmp(settings->disable_health_checks, "all") != 0 &&
               strcmp(settings->disable_health_checks, "xids") != 0) ||
           *settings->enable_health_checks;
}

static bool start_probe(struct plugin *plugin, struct error *error)
{
    const struct node_settings *settings = &plugin->settings;
    const struct probe_options options = {.inside = settings->driver_root_inside,
        .root = settings->driver_root,
        .with_links = settings->topology_score,
        .with_events = wants_events(settings),
        .interval_s = (unsigned)settings->rescan_interval_s,
        .places = {"/sys", "/proc"}};
    const struct probe_callbacks callbacks = {
        .on_scan = on_scan, .on_event = on_event, .on_absent = on_absent, .context = plugin};
    plugin->probe = probe_create(plugin->base, &options, &callbacks, error);
    return plugin->probe;
}

static bool start(struct plugin *plugin, struct error *error)
{
    plugin->base = event_base_new();
    if (!plugin->base) {
        error_set(error, ENOMEM, "no event loop");
        return false;
    }
    return !catch_signals(plugin, error) && reach_cluster(plugin, error) &&
           make_parts(plugin, error) && start_probe(plugin, error);
}

static void finish(struct plugin *plugin)
{
    probe_destroy(plugin->probe);
    install_destroy(plugin->install);
    offer_destroy(plugin->offer);
    allocation_destroy(plugin->allocation);
    pod_resources_destroy(plugin->pod_resources);
    pods_destroy(plugin->pods);
    register_destroy(plugin->registration);
    health_destroy(plugin->health);
    inventory_destroy(plugin->inventory);
    kube_events_destroy(plugin->events);
    kube_client_destroy(plugin->client);
    kube_auth_destroy(plugin->auth);
    for (size_t i = 0; i < sizeof(plugin->signals) / sizeof(plugin->signals[0]); i++)
        if (plugin->signals[i])
            event_free(plugin->signals[i]);
    if (plugin->base)
        event_base_free(plugin->base);
    free(plugin->scores);
    node_settings_finish(&plugin->settings);
}

int main(int argc, char **argv)
{
    static struct plugin plugin;
    enum flag_action action = FLAG_RUN;
    struct error error = {.text = ""};
    if (node_settings_read(&plugin.settings, argc, argv, &action, report, NULL, &error)) {
        log_line(LOG_LINE_ERROR, "settings: %s", error.text);
        return EXIT_MISUSED;
    }
    if (action == FLAG_HELP) {
        flag_table_print_help(&settings_flag_table, stdout);
        return EXIT_SUCCESS;
    }
    if (action == FLAG_VERSION) {
        puts("vgpu-device-plugin " VGPU_VERSION);
        return EXIT_SUCCESS;
    }
    if (plugin.settings.verbose)
        log_line_set_level(LOG_LINE_DEBUG);
    bool running = false;
    if (node_settings_load(&plugin.settings, report, NULL, &error))
        log_line(LOG_LINE_ERROR, "settings: %s", error.text);
    else if (!(running = start(&plugin, &error)))
        log_line(LOG_LINE_ERROR, "plugin: %s", error.text);
    if (running)
        log_line(LOG_LINE_INFO, "plugin: version %s on node %s", VGPU_VERSION,
            plugin.settings.node_name);
    if (running && event_base_dispatch(plugin.base) < 0) {
        log_line(LOG_LINE_ERROR, "plugin: the event loop failed");
        running = false;
    }
    finish(&plugin);
    return running ? EXIT_SUCCESS : EXIT_FAILURE;
}
