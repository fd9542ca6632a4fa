/* SPDX-License-Identifier: Apache-2.0 */
/* Quotas of namespaces: ResourceQuota objects with "limits.<memory resource>" and "limits.<cores
 * resource>" in spec.hard, and what the Pods of a namespace hold. Of several objects in a namespace
 * the strictest counts for each resource. Pure; not synchronised. */
#ifndef VGPU_SCHEDULE_QUOTA_H
#define VGPU_SCHEDULE_QUOTA_H

#include "cluster/request.h"
#include "net/error.h"

#include <jansson.h>
#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

/* What nobody limits. */
#define QUOTA_NONE INT64_MAX

/* Memory in MiB, cores in percent of one card. A limit of 0 lets nothing through. */
struct quota_amount {
    int64_t memory, cores;
};

struct quota_object {
    char *name;
    struct quota_amount limit; /* QUOTA_NONE where it sets none */
    struct quota_object *next;
};

struct quota_namespace {
    char *name;
    struct quota_object *objects;
    struct quota_amount limit; /* the strictest */
    struct quota_amount used;
    size_t holders; /* those who hold this pointer */
};

struct quotas;

struct quotas *quotas_create(void); /* NULL without memory */
void quotas_destroy(struct quotas *quotas);

/* The limits of a ResourceQuota. What is not a quantity, or below 0, is an error (the API server
 * takes none); what is beyond 64 bits is no limit. Returns 0 or -EINVAL. */
int quota_read(const json_t *object, const struct request_config *config,
    struct quota_amount *ret_limit, struct error *error) __attribute__((warn_unused_result));

/* Adds or replaces an object; one without limits is taken away. Returns 0 or -ENOMEM. */
int quotas_set(struct quotas *quotas, const char *namespace_name, const char *name,
    struct quota_amount limit) __attribute__((warn_unused_result));
void quotas_remove(struct quotas *quotas, const char *namespace_name, const char *name);

/* The namespace's entry, made where it is absent, until it is released. NULL without memory. */
struct quota_namespace *quotas_hold(struct quotas *quotas, const char *namespace_name);
void quotas_release(struct quotas *quotas, struct quota_namespace *entry);

/* NULL where nothing is known of it. */
const struct quota_namespace *quotas_find(const struct quotas *quotas, const char *namespace_name);

/* How much more Pods of the namespace may hold; below 0 where they hold too much already. NULL:
 * no limits. */
struct quota_amount quota_left(const struct quota_namespace *entry);

/* Whether `more` fits in. Nothing asked for always fits. */
bool quota_fits(struct quota_amount left, struct quota_amount more);

/* The entries in the order of their names; the caller frees the list. NULL without memory. */
const struct quota_namespace **quotas_list(const struct quotas *quotas, size_t *ret_count);

#endif
