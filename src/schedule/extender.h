/* SPDX-License-Identifier: Apache-2.0 */
/* kube-scheduler's extender protocol, v1: JSON in and out. Names of the outer members are taken in
 * any case, as Go takes them. Pure. */
#ifndef VGPU_SCHEDULE_EXTENDER_H
#define VGPU_SCHEDULE_EXTENDER_H

#include "net/error.h"
#include "schedule/choice.h"

#include <jansson.h>
#include <stddef.h>

/* HAMi's text for a request without a Pod. */
#define EXTENDER_NO_POD "extender args missing pod"
/* In one request. */
#define EXTENDER_NODES_MAX 65536

struct extender_filter {
    json_t *document;    /* the others are its parts */
    const json_t *pod;   /* NULL: there is none */
    const json_t *nodes; /* whole Node objects, a list; NULL: names were given */
    const char **names;  /* of the nodes or as given */
    size_t count;
};

/* Returns 0, -EINVAL, -E2BIG or -ENOMEM. The caller finishes it. */
int extender_read_filter(const char *body, size_t bytes, struct extender_filter *ret_filter,
    struct error *error) __attribute__((warn_unused_result));
void extender_finish_filter(struct extender_filter *filter);

struct extender_bind {
    json_t *document;
    const char *pod_name, *pod_namespace, *pod_uid, *node; /* none is "" */
};

int extender_read_bind(const char *body, size_t bytes, struct extender_bind *ret_bind,
    struct error *error) __attribute__((warn_unused_result));
void extender_finish_bind(struct extender_bind *bind);

/* Answers to a filter, to be freed with free(3); NULL without memory. */
char *extender_answer_error(const char *text);
/* Names alone; FailedNodes and the rest are null. */
char *extender_answer_names(const char *const *names, size_t count);
/* The nodes of the request as they came. */
char *extender_answer_all(const struct extender_filter *filter);
/* Nothing fits: a reason for each candidate. */
char *extender_answer_failed(const struct choice *choice);
/* For whole nodes: the best one, NULL for none, and why the others do not fit. */
char *extender_answer_node(const struct choice *choice, const json_t *node);

/* {"Error": text} */
char *extender_answer_bind(const char *text);

#endif
