/* SPDX-License-Identifier: Apache-2.0 */
/* The Node object's annotations that the plugin answers for. Each has a wanted value; what the node
 * has is told by the caller's watch, and a PATCH is sent only where the two differ: again after a
 * failure, again where somebody has removed it. The loop's thread. */
#ifndef VGPU_NODE_REGISTER_H
#define VGPU_NODE_REGISTER_H

#include "kube/client.h"
#include "net/error.h"
#include "node/inventory.h"

#include <jansson.h>
#include <stdbool.h>

#define REGISTER_DEVICES "hami.io/node-nvidia-register"
#define REGISTER_SCORES "hami.io/node-nvidia-score"
#define REGISTER_HANDSHAKE "hami.io/node-handshake"
#define REGISTER_PLUGIN "vgpu.io/plugin"   /* the plugin is vgpu's: its version */
#define REGISTER_HEALTHY "vgpu.io/healthy" /* an operator's, see health.h */

struct register_options {
    struct kube_client *client;
    const char *node_name;
    const char *version; /* for REGISTER_PLUGIN */
    /* The node has REGISTER_HEALTHY; it is removed then. */
    void (*on_healthy)(void *context, const char *list);
    /* The Node object as the API server answered a PATCH: newer than what a watch tells meanwhile.
     * May be NULL. */
    void (*on_node)(void *context, const json_t *node);
    void *context;
};

struct registration;

/* Texts are copied. */
struct registration *register_create(const struct register_options *options, struct error *error);
/* Sends nothing any more. */
void register_destroy(struct registration *registration);

/* The wanted values: the offered whole cards (MIG devices are resources of their own, which the
 * scheduler does not share out), as JSON or as CSV with the handshake that schedulers up to
 * HAMi 2.7 wait for; scores may be NULL (the annotation is removed). -ENOMEM and -EINVAL leave what
 * was wanted before. */
int register_set_devices(struct registration *registration, const struct inventory *inventory,
    bool csv, struct error *error) __attribute__((warn_unused_result));
int register_set_scores(struct registration *registration, const char *scores)
    __attribute__((warn_unused_result));

/* The Node as the watch has it; NULL: there is none. */
void register_take_node(struct registration *registration, const json_t *node);

#endif
