/* SPDX-License-Identifier: Apache-2.0 */
#include "scheduler/leader.h"

#include "codec/rfc3339.h"
#include "kube/object.h"
#include "kube/url.h"
#include "kube/watch.h"
#include "net/log_line.h"

#include <errno.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <time.h>

#define MS 1000
/* A holder renews the Lease every 2 s. A watch that says nothing for longer may be dead, and the
 * Lease another one's; where nobody renews it, it is asked for again as often. */
#define IDLE_MS 8000

struct leader {
    struct leader_options options;
    struct kube_watch *watch;
    struct leader_term term;
};

static bool is_identity(const char *holder, const char *identity)
{
    size_t length = strlen(identity);
    return length && !strncmp(holder, identity, length) &&
           (!holder[length] || holder[length] == '_');
}

struct leader_term leader_read_term(const json_t *lease, const char *identity)
{
    struct leader_term term = {.is_ours = false};
    const char *holder = object_string(lease, "spec", "holderIdentity", NULL);
    const char *renewed = object_string(lease, "spec", "renewTime", NULL);
    const json_t *duration = object_get(lease, "spec", "leaseDurationSeconds", NULL);
    const json_t *transitions = object_get(lease, "spec", "leaseTransitions", NULL);
    int64_t seconds;
    if (!holder || !renewed || !json_is_integer(duration) ||
        rfc3339_parse(renewed, strlen(renewed), &seconds))
        return term;
    term.is_ours = is_identity(holder, identity);
    term.transitions = json_integer_value(transitions);
    term.end_ms = (seconds + json_integer_value(duration)) * MS;
    return term;
}

static void on_lease(void *context, enum kube_watch_change change, const json_t *lease)
{
    struct leader *leader = context;
    struct leader_term before = leader->term;
    struct leader_term term = {.is_ours = false};
    if (change != KUBE_WATCH_DELETED)
        term = leader_read_term(lease, leader->options.identity);
    leader->term = term;
    if (before.is_ours && !term.is_ours)
        log_line(LOG_LINE_INFO, "leader: another one leads");
    if (before.is_ours && (!term.is_ours || before.transitions != term.transitions))
        leader->options.on_loss(leader->options.context);
    if (!term.is_ours || (before.is_ours && before.transitions == term.transitions))
        return;
    log_line(LOG_LINE_INFO, "leader: %s leads", leader->options.identity);
    leader->options.on_gain(leader->options.context);
}

static void on_trouble(void *context, const char *text)
{
    (void)context;
    log_line(LOG_LINE_WARNING, "leader: %s", text);
}

struct leader *leader_create(const struct leader_options *options, struct error *error)
{
    struct leader *leader = calloc(1, sizeof(*leader));
    char *space = url_escape(options->lease_namespace), *path = NULL, *selector = NULL;
    if (leader)
        leader->options = *options;
    if (space && asprintf(&path, "/apis/coordination.k8s.io/v1/namespaces/%s/leases", space) < 0)
        path = NULL;
    if (asprintf(&selector, "metadata.name=%s", options->lease_name) < 0)
        selector = NULL;
    if (leader && path && selector)
        leader->watch = kube_watch_create(options->client,
            &(struct kube_watch_options){.path = path,
                .field_selector = selector,
                .idle_ms = IDLE_MS,
                .on_change = on_lease,
                .on_trouble = on_trouble,
                .context = leader},
            error);
    else
        error_set(error, ENOMEM, "no memory for the Lease");
    free(space);
    free(path);
    free(selector);
    if (leader && leader->watch)
        return leader;
    free(leader);
    return NULL;
}

void leader_destroy(struct leader *leader)
{
    if (!leader)
        return;
    kube_watch_destroy(leader->watch);
    free(leader);
}

int64_t leader_left_ms(const struct leader *leader)
{
    struct timespec now;
    clock_gettime(CLOCK_REALTIME, &now);
    int64_t left = leader->term.end_ms - now.tv_sec * MS - now.tv_nsec / 1000000 - LEADER_MARGIN_MS;
    return leader->term.is_ours && left > 0 ? left : 0;
}
