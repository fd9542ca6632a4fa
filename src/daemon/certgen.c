/* SPDX-License-Identifier: Apache-2.0 */
/* vgpu-certgen: a job before and after an installation. Exit status: 0 where all is in place, 1
 * where it is not, 2 for flags that are not understood. */
#include "certgen/certgen.h"

#include "daemon/certgen_flags.h"
#include "net/log_line.h"

#include <errno.h>
#include <event2/event.h>
#include <signal.h>
#include <stdlib.h>
#include <string.h>

#define EXIT_MISUSED 2
#define DAY_S INT64_C(86400)
#define MS_NS 1000000

struct program {
    struct certgen_flags flags;
    struct certgen_options options;
    struct event_base *base;
    struct kube_auth *auth;
    struct kube_client *client;
};

static void report(void *context, const char *line)
{
    (void)context;
    log_line(LOG_LINE_WARNING, "settings: %s", line);
}

/* Splits the flag's text in place. */
static int settle_names(struct program *program, struct error *error)
{
    struct certificate_names *names = &program->options.names;
    char *rest = program->flags.names, *name;
    while ((name = strsep(&rest, ","))) {
        if (!*name)
            continue;
        if (certificate_check_name(name))
            return error_set(error, EINVAL,
                "--names has \"%.100s\": accepted are DNS names in lower case and addresses", name);
        if (names->count == CERTIFICATE_NAMES_MAX)
            return error_set(
                error, EINVAL, "--names has more than %d names", CERTIFICATE_NAMES_MAX);
        names->names[names->count++] = name;
    }
    return 0;
}

static int settle(struct program *program, struct error *error)
{
    const struct certgen_flags *flags = &program->flags;
    bool has_webhooks = *flags->mutating_webhook || *flags->validating_webhook;
    int result = settle_names(program, error);
    if (result)
        return result;
    if (!*flags->tls_secret && !*flags->proof_secret)
        return error_set(error, EINVAL, "nothing to do: --secret-name or --proof-secret-name");
    if (!*flags->tls_secret && (has_webhooks || program->options.names.count))
        return error_set(error, EINVAL, "--names and webhooks need --secret-name");
    if (*flags->tls_secret && !program->options.names.count)
        return error_set(error, EINVAL, "--secret-name needs --names");
    if (flags->valid_days < 1 || flags->renew_days < 0 || flags->renew_days >= flags->valid_days)
        return error_set(error, EINVAL,
            "--valid-days is %d and --renew-days %d: accepted are days from 1 on, and less of them",
            flags->valid_days, flags->renew_days);
    if (flags->timeout_ns < MS_NS || flags->timeout_ns / MS_NS > INT32_MAX)
        return error_set(error, EINVAL, "--timeout: accepted is 1ms to 24 days");
    return 0;
}

static int reach_cluster(struct program *program, struct error *error)
{
    const struct kube_client_options options = {.user_agent = "vgpu-certgen/" VGPU_VERSION};
    program->base = event_base_new();
    program->auth = program->base ? kube_auth_create(NULL, NULL, error) : NULL;
    program->client =
        program->auth ? kube_client_create(program->base, program->auth, &options, error) : NULL;
    if (program->client)
        return 0;
    return program->base ? -EINVAL : error_set(error, ENOMEM, "no event loop");
}

static int run(struct program *program, struct error *error)
{
    const struct certgen_flags *flags = &program->flags;
    int result = reach_cluster(program, error);
    if (result)
        return result;
    struct certgen_options *options = &program->options;
    options->client = program->client;
    options->secret_namespace =
        *flags->secret_namespace ? flags->secret_namespace : kube_auth_namespace(program->auth);
    options->tls_secret = flags->tls_secret;
    options->proof_secret = flags->proof_secret;
    options->valid_s = flags->valid_days * DAY_S;
    options->renew_s = flags->renew_days * DAY_S;
    options->mutating_webhook = flags->mutating_webhook;
    options->validating_webhook = flags->validating_webhook;
    options->webhooks_may_be_missing = flags->webhooks_may_be_missing;
    options->deadline_ms = (unsigned)(flags->timeout_ns / MS_NS);
    return certgen_run(options, time(NULL), error);
}

static void finish(struct program *program)
{
    if (program->client)
        kube_client_destroy(program->client);
    if (program->auth)
        kube_auth_destroy(program->auth);
    if (program->base)
        event_base_free(program->base);
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
    signal(SIGPIPE, SIG_IGN);
    if (flag_table_read(
            &certgen_flag_table, &program.flags, argc, argv, &reader, &action, &error) ||
        (action == FLAG_RUN && settle(&program, &error))) {
        log_line(LOG_LINE_ERROR, "settings: %s", error.text);
        return EXIT_MISUSED;
    }
    if (action == FLAG_HELP) {
        flag_table_print_help(&certgen_flag_table, stdout);
        return EXIT_SUCCESS;
    }
    if (action == FLAG_VERSION) {
        puts("vgpu-certgen " VGPU_VERSION);
        return EXIT_SUCCESS;
    }
    int result = run(&program, &error);
    if (result)
        log_line(LOG_LINE_ERROR, "certgen: %s", error.text);
    finish(&program);
    return result ? EXIT_FAILURE : EXIT_SUCCESS;
}
