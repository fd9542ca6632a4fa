/* SPDX-License-Identifier: Apache-2.0 */
#include "node/register.h"

#include "cluster/handshake.h"
#include "cluster/node_devices.h"
#include "kube/backoff.h"
#include "kube/object.h"
#include "kube/patch.h"
#include "kube/url.h"
#include "net/log_line.h"
#include "node/settings.h"

#include <errno.h>
#include <event2/event.h>
#include <stdlib.h>
#include <string.h>
#include <time.h>

/* Between two patches: a burst of changes is one, and two writers that undo each other's work do
 * not flood the API server. */
#define PATCH_GAP_MS 1000
#define CSV_FIELDS 9

/* What the node shall have under a key. */
enum { WANT_DEVICES, WANT_SCORES, WANT_PLUGIN, WANT_COUNT };

struct want {
    const char *key;
    bool decided; /* false: leave what is there */
    char *value;  /* NULL: it is to be absent */
    char *there;  /* what the node has; NULL: nothing */
};

struct registration {
    struct register_options options;
    char *path;
    bool csv;
    struct want wants[WANT_COUNT];
    /* The node. */
    bool node_is_known;
    unsigned long long version;
    enum handshake_kind handshake;
    char *healthy; /* REGISTER_HEALTHY's value, which is to go; NULL: it is not set */
    char *object_version;
    /* The patch. */
    struct kube_call *call;
    struct event *timer;
    struct backoff backoff;
    char said[ERROR_TEXT_BYTES];
};

static bool equals(const char *a, const char *b)
{
    return a == b || (a && b && !strcmp(a, b));
}

static bool answers_handshake(const struct registration *registration)
{
    return registration->csv && registration->wants[WANT_DEVICES].decided &&
           registration->handshake != HANDSHAKE_REPORTED;
}

static bool differs(const struct registration *registration)
{
    for (size_t i = 0; i < WANT_COUNT; i++)
        if (registration->wants[i].decided &&
            !equals(registration->wants[i].value, registration->wants[i].there))
            return true;
    return registration->healthy || answers_handshake(registration);
}

static void arm(struct registration *registration, unsigned wait_ms)
{
    const struct timeval wait = {wait_ms / 1000, (wait_ms % 1000) * 1000l};
    event_add(registration->timer, &wait);
}

/* A patch is sent at the next turn of the loop where one is needed and none is under way. */
static void consider(struct registration *registration)
{
    if (registration->node_is_known && !registration->call &&
        !event_pending(registration->timer, EV_TIMEOUT, NULL) && differs(registration))
        arm(registration, 0);
}

static json_t *make_patch(const struct registration *registration)
{
    char answer[HANDSHAKE_TEXT_BYTES];
    json_t *patch = patch_create();
    int failure = patch ? 0 : -ENOMEM;
    for (size_t i = 0; !failure && i < WANT_COUNT; i++) {
        const struct want *want = &registration->wants[i];
        if (want->decided && !equals(want->value, want->there))
            failure = patch_annotation(patch, want->key, want->value);
    }
    if (!failure && answers_handshake(registration))
        failure = handshake_format_answer(time(NULL), answer);
    if (!failure && answers_handshake(registration))
        failure = patch_annotation(patch, REGISTER_HANDSHAKE, answer);
    /* Only what was read may go: a value that was set meanwhile makes this a conflict. */
    if (!failure && registration->healthy)
        failure = patch_annotation(patch, REGISTER_HEALTHY, NULL);
    if (!failure && registration->healthy)
        failure = patch_resource_version(patch, registration->object_version);
    if (!failure)
        return patch;
    json_decref(patch);
    return NULL;
}

static void say(struct registration *registration, const char *text)
{
    if (equals(registration->said, text))
        return;
    snprintf(registration->said, sizeof(registration->said), "%s", text);
    log_line(LOG_LINE_WARNING, "register: %s; trying again", text);
}

static void on_done(void *context, const struct kube_reply *reply)
{
    struct registration *registration = context;
    registration->call = NULL;
    if (reply->status < 200 || reply->status > 299) {
        /* What was asked for is still wanted: nothing is taken as written. */
        say(registration, reply->text);
        arm(registration, backoff_next_ms(&registration->backoff, backoff_random()));
        return;
    }
    backoff_reset(&registration->backoff);
    if (*registration->said)
        log_line(LOG_LINE_INFO, "register: the node is patched again");
    *registration->said = '\0';
    /* The timer keeps the gap to the next patch. */
    arm(registration, PATCH_GAP_MS);
    register_take_node(registration, reply->body);
    if (registration->options.on_node)
        registration->options.on_node(registration->options.context, reply->body);
}

static void on_retry(void *context, const char *text, unsigned wait_ms)
{
    (void)wait_ms;
    say(context, text);
}

static void on_timer(evutil_socket_t fd, short what, void *context)
{
    struct registration *registration = context;
    (void)fd, (void)what;
    if (!registration->node_is_known || registration->call || !differs(registration))
        return;
    json_t *patch = make_patch(registration);
    const struct kube_request request = {.method = "PATCH",
        .path = registration->path,
        .content_type = PATCH_MERGE,
        .body = patch,
        .on_done = on_done,
        .on_retry = on_retry,
        .context = registration};
    if (!patch || kube_client_start(registration->options.client, &request, &registration->call))
        arm(registration, backoff_next_ms(&registration->backoff, backoff_random()));
    json_decref(patch);
}

static bool copy(char **to, const char *text)
{
    char *copied = text ? strdup(text) : NULL;
    if (text && !copied)
        return false;
    free(*to);
    *to = copied;
    return true;
}

/* A PATCH is answered before the watch has told of it, and of what was before. */
static bool is_older(const struct registration *registration, const json_t *node)
{
    char *end;
    const char *text = object_resource_version(node);
    unsigned long long version = strtoull(text, &end, 10);
    return *text && !*end && version < registration->version;
}

void register_take_node(struct registration *registration, const json_t *node)
{
    if (!node) {
        registration->node_is_known = false;
        registration->version = 0;
        return;
    }
    if (strcmp(object_name(node), registration->options.node_name) != 0 ||
        is_older(registration, node))
        return;
    registration->version = strtoull(object_resource_version(node), NULL, 10);
    for (size_t i = 0; i < WANT_COUNT; i++)
        if (!copy(
                &registration->wants[i].there, object_annotation(node, registration->wants[i].key)))
            return;
    registration->handshake = handshake_decode(object_annotation(node, REGISTER_HANDSHAKE)).kind;
    const char *healthy = object_annotation(node, REGISTER_HEALTHY);
    bool is_new = healthy && !equals(healthy, registration->healthy);
    if (!copy(&registration->healthy, healthy) ||
        !copy(&registration->object_version, object_resource_version(node)))
        return;
    registration->node_is_known = true;
    if (is_new && registration->options.on_healthy)
        registration->options.on_healthy(registration->options.context, healthy);
    consider(registration);
}

static bool add_device(struct node_devices *devices, const struct node_card *card)
{
    struct node_device *device = node_devices_add(devices);
    if (!device)
        return false;
    snprintf(device->id, sizeof(device->id), "%s", card->uuid);
    snprintf(device->type, sizeof(device->type), "%s", card->type);
    snprintf(device->mode, sizeof(device->mode), "hami-core");
    device->index = card->index;
    device->count = (int32_t)card->replicas;
    device->memory_mib = (int32_t)card->scaled_memory_mib;
    device->cores_percent = card->cores_percent;
    device->numa = card->numa < 0 ? 0 : card->numa;
    device->healthy = card->healthy;
    return true;
}

static void want(struct registration *registration, size_t which, char *value)
{
    free(registration->wants[which].value);
    registration->wants[which].value = value;
    registration->wants[which].decided = true;
    consider(registration);
}

int register_set_devices(struct registration *registration, const struct inventory *inventory,
    bool csv, struct error *error)
{
    struct node_devices devices = {0};
    size_t count;
    const struct node_card *cards = inventory_cards(inventory, &count);
    char *text = NULL;
    int failure = 0;
    for (size_t i = 0; !failure && i < count; i++)
        if (!*cards[i].parent && !add_device(&devices, &cards[i]))
            failure = error_set(error, ENOMEM, "no memory for the node's devices");
    if (!failure)
        failure = csv ? node_devices_encode_csv(&devices, CSV_FIELDS, &text, error)
                      : node_devices_encode_json(&devices, &text, error);
    node_devices_finish(&devices);
    if (failure)
        return failure;
    registration->csv = csv;
    /* Not before: the first patch has both. */
    registration->wants[WANT_PLUGIN].decided = true;
    want(registration, WANT_DEVICES, text);
    return 0;
}

int register_set_scores(struct registration *registration, const char *scores)
{
    char *text = NULL;
    if (!copy(&text, scores))
        return -ENOMEM;
    want(registration, WANT_SCORES, text);
    return 0;
}

struct registration *register_create(const struct register_options *options, struct error *error)
{
    struct registration *registration = calloc(1, sizeof(*registration));
    char *version = strdup(options->version), *name = strdup(options->node_name);
    if (registration && version && name) {
        registration->options = *options;
        registration->options.node_name = name;
        registration->wants[WANT_DEVICES].key = REGISTER_DEVICES;
        registration->wants[WANT_SCORES].key = REGISTER_SCORES;
        registration->wants[WANT_PLUGIN] = (struct want){.key = REGISTER_PLUGIN, .value = version};
        kube_client_backoff(options->client, &registration->backoff);
        registration->timer =
            evtimer_new(kube_client_base(options->client), on_timer, registration);
        char *escaped = url_escape(name);
        if (!escaped || asprintf(&registration->path, "/api/v1/nodes/%s", escaped) < 0)
            registration->path = NULL;
        free(escaped);
        if (registration->timer && registration->path)
            return registration;
        register_destroy(registration);
    } else {
        free(registration);
        free(version);
        free(name);
    }
    error_set(error, ENOMEM, "no memory for the node's annotations");
    return NULL;
}

void register_destroy(struct registration *registration)
{
    if (!registration)
        return;
    kube_call_cancel(registration->call);
    if (registration->timer)
        event_free(registration->timer);
    for (size_t i = 0; i < WANT_COUNT; i++) {
        free(registration->wants[i].value);
        free(registration->wants[i].there);
    }
    free(registration->healthy);
    free(registration->object_version);
    free(registration->path);
    free((char *)registration->options.node_name);
    free(registration);
}
