/* SPDX-License-Identifier: Apache-2.0 */
/* vgpu-scheduler: chooses nodes and devices for Pods that ask for GPUs. One thread with one event
 * loop owns all state. Exit status: 0 after SIGTERM or SIGINT, 1 where it cannot run, 2 for flags
 * that are not understood. */
#include "scheduler/scheduler.h"

#include "cluster/node_config.h"
#include "cluster/proof.h"
#include "daemon/scheduler_flags.h"
#include "net/file_read.h"
#include "net/log_line.h"
#include "node/yaml_json.h"

#include <errno.h>
#include <event2/event.h>
#include <signal.h>
#include <stdlib.h>
#include <string.h>
#include <sys/resource.h>

#define EXIT_MISUSED 2
/* 5,000 names of nodes with the largest Pod, or some hundreds of whole nodes. */
#define FILTER_BYTES (4u << 20)
/* The object and the old one, each as large as etcd takes it, and the review around them. */
#define REVIEW_BYTES ((3u << 20) + (256u << 10))
/* Of all bodies at one port. */
#define BODIES_BYTES (32u << 20)
#define PROOF_KEY_BYTES_MAX 4096
/* How often it is looked whether the key's file is another one. */
#define KEY_TICK_S 2
/* kube-scheduler has one for each bind that waits (BINDS_WAITING_MAX) and for what else it does;
 * who else is at one address cannot take all. */
#define SERVED_MAX 4096
#define SERVED_PER_ADDRESS_MAX 1024
/* Names in --owners. */
#define OWNERS_MAX 32
/* Binds under way at once, and the watches. */
#define CONNECTIONS 32

struct program {
    struct scheduler_flags flags;
    struct node_config config;
    struct ask_config ask;
    struct admission_settings admission;
    const char *owners[OWNERS_MAX];
    char *proof_key;
    size_t proof_key_bytes;
    struct file_stamp key_stamp;
    struct event *key_timer;
    struct event_base *base;
    struct event *signals[2];
    struct kube_auth *auth;
    struct kube_client *client;
    struct kube_events *events;
    struct scheduler *scheduler;
    struct http_server *server, *extender, *metrics; /* extender: NULL where it is at server */
};

static void report(void *context, const char *line)
{
    (void)context;
    log_line(LOG_LINE_WARNING, "settings: %s", line);
}

static int read_config(struct program *program, struct error *error)
{
    const char *path = program->flags.config_file;
    char *text = NULL;
    size_t bytes = 0;
    struct file_stamp stamp;
    node_config_default(&program->config);
    if (!*path)
        return 0;
    int result = file_read(path, NODE_CONFIG_TEXT_MAX, &text, &bytes, &stamp, error);
    if (result)
        return result;
    json_t *document = yaml_json_read(path, text, bytes, error);
    free(text);
    if (!document)
        return -EINVAL;
    node_config_read_global(&program->config, document, report, NULL);
    json_decref(document);
    return 0;
}

static void override_text(char *to, size_t size, const char *value)
{
    if (*value)
        snprintf(to, size, "%s", value);
}

/* Flags that were given go over the configuration. */
static void override_config(struct program *program)
{
    const struct scheduler_flags *flags = &program->flags;
    struct request_config *request = &program->config.request;
    override_text(request->count_name, sizeof(request->count_name), flags->resource_name);
    override_text(request->memory_name, sizeof(request->memory_name), flags->resource_memory);
    override_text(
        request->percentage_name, sizeof(request->percentage_name), flags->resource_percentage);
    override_text(request->cores_name, sizeof(request->cores_name), flags->resource_cores);
    override_text(request->priority_name, sizeof(request->priority_name), flags->resource_priority);
    if (strcmp(flags->overwrite_env, "config") != 0)
        program->config.overwrite_env = !strcmp(flags->overwrite_env, "true");
    if (flags->default_memory >= 0)
        request->default_memory = flags->default_memory;
    if (flags->default_cores >= 0)
        request->default_cores = flags->default_cores;
    if (flags->default_count >= 0)
        request->default_count = flags->default_count;
}

static void forget_key(struct program *program)
{
    if (program->proof_key)
        explicit_bzero(program->proof_key, program->proof_key_bytes);
    free(program->proof_key);
    program->proof_key = NULL;
}

/* On failure the key is as before. */
static int read_key(struct program *program, struct error *error)
{
    const char *path = program->flags.proof_key_file;
    char *key;
    size_t bytes;
    if (!*path)
        return 0;
    int result = file_read(path, PROOF_KEY_BYTES_MAX, &key, &bytes, &program->key_stamp, error);
    if (result)
        return result;
    if (bytes < PROOF_KEY_MIN) {
        free(key);
        return error_set(
            error, EINVAL, "%s has %zu bytes, a key has at least %d", path, bytes, PROOF_KEY_MIN);
    }
    forget_key(program);
    program->proof_key = key;
    program->proof_key_bytes = bytes;
    return 0;
}

/* The Secret's file is read again when it has been replaced. */
static void on_key_tick(evutil_socket_t number, short what, void *context)
{
    struct program *program = context;
    struct error error;
    (void)number, (void)what;
    if (!file_stamp_differs(&program->key_stamp, program->flags.proof_key_file))
        return;
    if (read_key(program, &error)) {
        log_line(LOG_LINE_WARNING, "scheduler: the key for proofs stays as it was: %s", error.text);
        return;
    }
    scheduler_set_proof_key(program->scheduler, program->proof_key, program->proof_key_bytes);
    log_line(LOG_LINE_INFO, "scheduler: proofs are made with another key from now on");
}

static bool watch_key(struct program *program, struct error *error)
{
    const struct timeval tick = {.tv_sec = KEY_TICK_S};
    if (!*program->flags.proof_key_file)
        return true;
    program->key_timer = event_new(program->base, -1, EV_PERSIST, on_key_tick, program);
    if (program->key_timer && !event_add(program->key_timer, &tick))
        return true;
    error_set(error, ENOMEM, "no memory for a timer");
    return false;
}

/* Splits the flag's text in place. */
static int settle_admission(struct program *program, struct error *error)
{
    struct scheduler_flags *flags = &program->flags;
    size_t count = 0;
    char *rest = flags->owners, *name;
    while ((name = strsep(&rest, ",")))
        if (*name && count == OWNERS_MAX)
            return error_set(error, EINVAL, "--owners has more than %d names", OWNERS_MAX);
        else if (*name)
            program->owners[count++] = name;
    program->admission = (struct admission_settings){.config = &program->config,
        .scheduler_name = flags->scheduler_name,
        .force_overwrite_default_scheduler = flags->force_overwrite,
        .owners = program->owners,
        .owner_count = count};
    return 0;
}

static int settle(struct program *program, struct error *error)
{
    const struct scheduler_flags *flags = &program->flags;
    struct policy policy;
    if (!*flags->certificate != !*flags->key)
        return error_set(error, EINVAL, "--cert_file and --key_file go together");
    if (flags->leader_elect &&
        (!*flags->lease_name || !*flags->lease_namespace || !*flags->identity))
        return error_set(error, EINVAL,
            "--leader-elect needs --leader-elect-resource-name, --leader-elect-resource-namespace "
            "and --pod-name");
    if (policy_parse(flags->device_policy, false, &policy, error))
        return error_set(error, EINVAL, "--gpu-scheduler-policy: %.200s", error->text);
    int result = read_config(program, error);
    if (!result)
        result = read_key(program, error);
    if (result)
        return result;
    override_config(program);
    result = settle_admission(program, error);
    if (result)
        return result;
    program->ask.request = program->config.request;
    program->ask.defaults.device_policy = flags->device_policy;
    return policy_parse_node(flags->node_policy, &program->ask.defaults.node_policy, error);
}

static void on_signal(evutil_socket_t number, short what, void *context)
{
    struct program *program = context;
    (void)what;
    log_line(LOG_LINE_INFO, "scheduler: ends by signal %d", (int)number);
    event_base_loopbreak(program->base);
}

static bool catch_signals(struct program *program, struct error *error)
{
    static const int numbers[] = {SIGTERM, SIGINT};
    signal(SIGPIPE, SIG_IGN);
    for (size_t i = 0; i < sizeof(numbers) / sizeof(numbers[0]); i++) {
        program->signals[i] = evsignal_new(program->base, numbers[i], on_signal, program);
        if (program->signals[i] && !event_add(program->signals[i], NULL))
            continue;
        error_set(error, ENOMEM, "signals cannot be caught");
        return false;
    }
    return true;
}

static bool reach_cluster(struct program *program, struct error *error)
{
    const struct scheduler_flags *flags = &program->flags;
    const struct kube_client_options options = {
        .user_agent = "vgpu-scheduler/" VGPU_VERSION, .connections_max = CONNECTIONS};
    const char *source = *flags->scheduler_name ? flags->scheduler_name : "vgpu-scheduler";
    program->auth = kube_auth_create(NULL, NULL, error);
    program->client =
        program->auth ? kube_client_create(program->base, program->auth, &options, error) : NULL;
    program->events =
        program->client ? kube_events_create(program->client, source, "", 0, error) : NULL;
    if (!program->events)
        return false;
    program->scheduler =
        scheduler_create(&(struct scheduler_options){.client = program->client,
                             .events = program->events,
                             .ask = &program->ask,
                             .admission = &program->admission,
                             .node_selector = flags->node_selector,
                             .proof_key = program->proof_key,
                             .proof_key_bytes = program->proof_key_bytes,
                             .filter_patch = flags->filter_patch,
                             .all_nodes = flags->all_nodes,
                             .lock_expiry_ns = flags->lock_expiry_ns,
                             .lock_retry_ns = flags->lock_retry_ns,
                             .flight_ns = flags->flight_ns,
                             .legacy_metrics = flags->legacy_metrics,
                             .lease_name = flags->leader_elect ? flags->lease_name : NULL,
                             .lease_namespace = flags->lease_namespace,
                             .identity = flags->identity,
                             .pod_namespace = *flags->pod_namespace ? flags->pod_namespace : NULL},
            error);
    return program->scheduler;
}

/* Connections need descriptors; what a shell sets is often 1,024. */
static void raise_descriptors(void)
{
    struct rlimit limit;
    if (getrlimit(RLIMIT_NOFILE, &limit) || limit.rlim_cur == limit.rlim_max)
        return;
    limit.rlim_cur = limit.rlim_max;
    if (setrlimit(RLIMIT_NOFILE, &limit))
        log_line(LOG_LINE_WARNING, "scheduler: the number of descriptors stays as it is");
}

static struct http_server *listen_at(
    struct program *program, const char *address, size_t bytes, struct error *error)
{
    const struct scheduler_flags *flags = &program->flags;
    return http_server_create(program->base,
        &(struct http_server_options){.address = address,
            .certificate = *flags->certificate ? flags->certificate : NULL,
            .key = *flags->key ? flags->key : NULL,
            .connections_max = SERVED_MAX,
            .per_address_max = SERVED_PER_ADDRESS_MAX,
            .request_bytes_max = bytes,
            .bodies_bytes_max = BODIES_BYTES},
        error);
}

static bool listen_all(struct program *program, struct error *error)
{
    const struct scheduler_flags *flags = &program->flags;
    program->server = listen_at(
        program, flags->http_bind, *flags->extender_bind ? REVIEW_BYTES : FILTER_BYTES, error);
    if (program->server && *flags->extender_bind) {
        program->extender = listen_at(program, flags->extender_bind, FILTER_BYTES, error);
        if (!program->extender)
            return false;
    }
    if (program->server)
        program->metrics = http_server_create(
            program->base, &(struct http_server_options){.address = flags->metrics_address}, error);
    return program->metrics;
}

static bool serve(struct program *program, struct error *error)
{
    struct scheduler *scheduler = program->scheduler;
    if (!listen_all(program, error))
        return false;
    struct http_server *server = program->server;
    struct http_server *extender = program->extender ? program->extender : server;
    int result = http_server_handle(extender, "POST", "/filter", scheduler_filter, scheduler);
    result |= http_server_handle(extender, "POST", "/bind", scheduler_bind, scheduler);
    result |= http_server_handle(server, "POST", "/webhook", scheduler_webhook, scheduler);
    result |= http_server_handle(server, "POST", "/validate", scheduler_validate, scheduler);
    result |= http_server_handle(server, "GET", "/healthz", scheduler_healthz, scheduler);
    result |= http_server_handle(server, "GET", "/readyz", scheduler_readyz, scheduler);
    result |= http_server_handle(program->metrics, "GET", "/metrics", scheduler_metrics, scheduler);
    if (!result)
        return true;
    error_set(error, ENOMEM, "no memory for the servers");
    return false;
}

static bool start(struct program *program, struct error *error)
{
    program->base = event_base_new();
    if (program->base)
        return catch_signals(program, error) && reach_cluster(program, error) &&
               watch_key(program, error) && serve(program, error);
    error_set(error, ENOMEM, "no event loop");
    return false;
}

static void finish(struct program *program)
{
    if (program->server)
        http_server_destroy(program->server);
    if (program->extender)
        http_server_destroy(program->extender);
    if (program->metrics)
        http_server_destroy(program->metrics);
    scheduler_destroy(program->scheduler);
    if (program->events)
        kube_events_destroy(program->events);
    if (program->client)
        kube_client_destroy(program->client);
    if (program->auth)
        kube_auth_destroy(program->auth);
    if (program->key_timer)
        event_free(program->key_timer);
    for (size_t i = 0; i < sizeof(program->signals) / sizeof(program->signals[0]); i++)
        if (program->signals[i])
            event_free(program->signals[i]);
    if (program->base)
        event_base_free(program->base);
    forget_key(program);
    node_config_finish(&program->config);
}

/* jansson takes some allocations that fail for bad input: then nothing would be right any more. */
static void *allocate(size_t bytes)
{
    void *memory = malloc(bytes);
    if (!memory)
        abort();
    return memory;
}

int main(int argc, char **argv)
{
    static struct program program;
    enum flag_action action = FLAG_RUN;
    const struct flag_reader reader = {.report = report};
    struct error error = {.text = ""};
    json_set_alloc_funcs(allocate, free);
    if (flag_table_read(
            &scheduler_flag_table, &program.flags, argc, argv, &reader, &action, &error)) {
        log_line(LOG_LINE_ERROR, "settings: %s", error.text);
        return EXIT_MISUSED;
    }
    if (action == FLAG_HELP) {
        flag_table_print_help(&scheduler_flag_table, stdout);
        return EXIT_SUCCESS;
    }
    if (action == FLAG_VERSION) {
        puts("vgpu-scheduler " VGPU_VERSION);
        return EXIT_SUCCESS;
    }
    if (program.flags.debug)
        log_line_set_level(LOG_LINE_DEBUG);
    raise_descriptors();
    bool running = false;
    if (settle(&program, &error))
        log_line(LOG_LINE_ERROR, "settings: %s", error.text);
    else if (!(running = start(&program, &error)))
        log_line(LOG_LINE_ERROR, "scheduler: %s", error.text);
    if (running)
        log_line(LOG_LINE_INFO,
            "scheduler: version %s, port %u, metrics at port %u, extender at port %u", VGPU_VERSION,
            http_server_port(program.server), http_server_port(program.metrics),
            http_server_port(program.extender ? program.extender : program.server));
    if (running && event_base_dispatch(program.base) < 0) {
        log_line(LOG_LINE_ERROR, "scheduler: the event loop failed");
        running = false;
    }
    finish(&program);
    return running ? EXIT_SUCCESS : EXIT_FAILURE;
}
