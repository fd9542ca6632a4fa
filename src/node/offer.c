/* SPDX-License-Identifier: Apache-2.0 */
#include "node/offer.h"

#include "cluster/device_id.h"
#include "net/log_line.h"
#include "node/inventory.h"
#include "node/settings.h"

#include <errno.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/queue.h>

struct service {
    LIST_ENTRY(service) entry;
    char resource[REQUEST_NAME_BYTES];
    bool preferred;
    struct kubelet *kubelet;
    char said[ERROR_TEXT_BYTES];
};

struct offer {
    struct event_base *base;
    struct offer_options options;
    bool is_open;
    LIST_HEAD(, service) services;
};

/* The devices of one resource, as the kubelet is told. */
struct listing {
    struct kubelet_device *devices;
    char (*ids)[DEVICE_ID_BYTES];
    size_t count;
};

static void say(struct service *service, const char *text)
{
    if (!strcmp(service->said, text))
        return;
    snprintf(service->said, sizeof(service->said), "%s", text);
    log_line(LOG_LINE_ERROR, "offer: %s: %s", service->resource, text);
}

static bool list_card(struct listing *listing, const struct node_card *card, bool numa)
{
    for (uint32_t i = 0; i < card->replicas; i++) {
        size_t at = listing->count;
        if (device_id_format(card->uuid, i, listing->ids[at]))
            return false;
        listing->devices[at] = (struct kubelet_device){
            .id = listing->ids[at], .healthy = card->healthy, .numa_node = numa ? card->numa : -1};
        listing->count++;
    }
    return true;
}

static bool list_resource(
    const struct offer *offer, const char *resource, struct listing *ret_listing)
{
    size_t count, total = 0;
    const struct node_card *cards = inventory_cards(offer->options.inventory, &count);
    bool numa = offer->options.settings->config.numa_topology;
    for (size_t i = 0; i < count; i++)
        if (!strcmp(cards[i].resource, resource))
            total += cards[i].replicas;
    struct listing listing = {.devices = calloc(total + 1, sizeof(*listing.devices)),
        .ids = calloc(total + 1, sizeof(*listing.ids))};
    bool good = listing.devices && listing.ids;
    for (size_t i = 0; good && i < count; i++)
        if (!strcmp(cards[i].resource, resource))
            good = list_card(&listing, &cards[i], numa);
    *ret_listing = listing;
    return good;
}

static void publish(struct offer *offer, struct service *service)
{
    struct listing listing;
    struct error error = {.text = "no memory"};
    if (!service->kubelet)
        return;
    if (!list_resource(offer, service->resource, &listing) ||
        kubelet_publish(service->kubelet, listing.devices, listing.count, &error))
        say(service, error.text);
    else
        *service->said = '\0';
    free(listing.devices);
    free(listing.ids);
}

static bool is_mig(const struct offer *offer, const char *resource)
{
    return strcmp(resource, offer->options.settings->resource_name) != 0;
}

/* nvidia.com/gpu is served at nvidia-gpu.sock, as HAMi does it. */
static void open_service(struct offer *offer, struct service *service)
{
    const struct node_settings *settings = offer->options.settings;
    bool mig = is_mig(offer, service->resource);
    const struct kubelet_callbacks *callbacks = mig ? &offer->options.mig : &offer->options.cards;
    char socket_name[REQUEST_NAME_BYTES + 16];
    struct error error = {.text = "no memory"};
    const char *slash = strchr(service->resource, '/');
    snprintf(
        socket_name, sizeof(socket_name), "nvidia-%s.sock", slash ? slash + 1 : service->resource);
    service->preferred = settings->config.preferred_allocation;
    const struct kubelet_options options = {.kubelet_socket = settings->kubelet_socket,
        .socket_name = socket_name,
        .resource = service->resource,
        .pre_start_required = callbacks->pre_start != NULL,
        .preferred_allocation = service->preferred && callbacks->preferred};
    service->kubelet =
        kubelet_create(offer->base, &options, callbacks, offer->options.context, &error);
    if (!service->kubelet)
        say(service, error.text);
}

static struct service *find_service(struct offer *offer, const char *resource)
{
    struct service *service;
    LIST_FOREACH(service, &offer->services, entry)
    if (!strcmp(service->resource, resource))
        return service;
    return NULL;
}

static void add_service(struct offer *offer, const char *resource)
{
    struct service *service = calloc(1, sizeof(*service));
    if (!service)
        return;
    snprintf(service->resource, sizeof(service->resource), "%s", resource);
    LIST_INSERT_HEAD(&offer->services, service, entry);
    open_service(offer, service);
}

void offer_update(struct offer *offer)
{
    size_t count;
    struct service *service;
    const struct node_card *cards = inventory_cards(offer->options.inventory, &count);
    if (!offer->is_open || !inventory_is_known(offer->options.inventory))
        return;
    for (size_t i = 0; i < count; i++)
        if (!find_service(offer, cards[i].resource))
            add_service(offer, cards[i].resource);
    LIST_FOREACH(service, &offer->services, entry)
    {
        /* An option is told at the registration only. */
        if (service->kubelet &&
            service->preferred != offer->options.settings->config.preferred_allocation) {
            kubelet_destroy(service->kubelet);
            service->kubelet = NULL;
        }
        if (!service->kubelet)
            open_service(offer, service);
        publish(offer, service);
    }
}

void offer_open(struct offer *offer)
{
    offer->is_open = true;
    offer_update(offer);
}

struct offer *offer_create(
    struct event_base *base, const struct offer_options *options, struct error *error)
{
    struct offer *offer = calloc(1, sizeof(*offer));
    if (!offer) {
        error_set(error, ENOMEM, "no memory for the kubelet's services");
        return NULL;
    }
    offer->base = base;
    offer->options = *options;
    LIST_INIT(&offer->services);
    return offer;
}

void offer_destroy(struct offer *offer)
{
    if (!offer)
        return;
    for (struct service *service; (service = LIST_FIRST(&offer->services));) {
        LIST_REMOVE(service, entry);
        kubelet_destroy(service->kubelet);
        free(service);
    }
    free(offer);
}
