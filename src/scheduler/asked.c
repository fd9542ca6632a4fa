/* SPDX-License-Identifier: Apache-2.0 */
/* What Pods that are not bound ask for, as the API server has them. Who reaches /filter can name
 * any Pod: what it reserved counts for a bind only where it is what the real one asks for. */
#include "codec/rfc3339.h"
#include "kube/object.h"
#include "scheduler/scheduler_parts.h"

#include <stdlib.h>
#include <string.h>

struct asked {
    char *uid, *pod_namespace, *name;
    unsigned char digest[ASK_DIGEST_BYTES];
    int64_t created_s; /* since 1970; 0: unknown */
};

static void asked_free(struct asked *asked)
{
    free(asked->uid);
    free(asked->pod_namespace);
    free(asked->name);
    free(asked);
}

void asked_forget(struct scheduler *scheduler, const char *uid)
{
    struct asked *asked = table_remove(&scheduler->asked, uid);
    if (asked)
        asked_free(asked);
}

void asked_forget_all(struct scheduler *scheduler)
{
    struct asked *asked;
    for (size_t cursor = 0; (asked = table_next(&scheduler->asked, &cursor));)
        asked_free(asked);
    table_finish(&scheduler->asked);
}

static void keep(struct scheduler *scheduler, const struct ask *ask, int64_t created_s)
{
    struct asked *asked = calloc(1, sizeof(*asked));
    if (!asked)
        return; /* its bind asks the API server */
    *asked = (struct asked){
        .uid = strdup(ask->uid),
        .pod_namespace = strdup(ask->pod_namespace),
        .name = strdup(ask->name),
        .created_s = created_s,
    };
    memcpy(asked->digest, ask->digest, sizeof(asked->digest));
    if (!asked->uid || !asked->pod_namespace || !asked->name ||
        table_add(&scheduler->asked, asked->uid, asked))
        asked_free(asked);
}

int64_t asked_creation(const json_t *pod)
{
    const char *text = object_string(pod, "metadata", "creationTimestamp", NULL);
    int64_t seconds;
    return text && !rfc3339_parse(text, strlen(text), &seconds) ? seconds : 0;
}

int64_t asked_created(const struct scheduler *scheduler, const char *uid)
{
    const struct asked *asked = table_get(&scheduler->asked, uid);
    return asked ? asked->created_s : 0;
}

void asked_take(struct scheduler *scheduler, const json_t *pod)
{
    struct ask ask;
    struct error error;
    asked_forget(scheduler, object_uid(pod));
    if (*object_pod_node(pod) || object_pod_has_ended(pod) ||
        ask_read(pod, scheduler->options.ask, &ask, &error))
        return;
    if (ask.devices)
        keep(scheduler, &ask, asked_creation(pod));
    ask_finish(&ask);
}

bool asked_matches(const struct scheduler *scheduler, const struct usage_pod *reserved)
{
    const struct asked *asked = table_get(&scheduler->asked, reserved->uid);
    return asked && !strcmp(asked->pod_namespace, reserved->pod_namespace) &&
           !strcmp(asked->name, reserved->name) &&
           !memcmp(asked->digest, reserved->asked, sizeof(asked->digest));
}
