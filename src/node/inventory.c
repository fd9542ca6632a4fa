/* SPDX-License-Identifier: Apache-2.0 */
#include "node/inventory.h"

#include "net/log_line.h"
#include "node/scan.h"
#include "node/settings.h"

#include <math.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

static const char *const control_paths[INVENTORY_CONTROL_NODES_MAX] = {
    "/dev/nvidiactl", "/dev/nvidia-uvm", "/dev/nvidia-uvm-tools", "/dev/nvidia-modeset"};

_Static_assert(INVENTORY_CARDS_MAX == SCAN_CARDS_MAX, "all that are seen have room");

struct inventory {
    const struct node_settings *settings;
    void (*on_change)(void *context);
    void *context;

    bool known;
    char boot[96];
    struct scan_card facts[INVENTORY_CARDS_MAX];
    size_t fact_count;
    char without_memory[DEVICE_UUID_BYTES]; /* the card that a line was said of */

    struct node_card cards[INVENTORY_CARDS_MAX];
    size_t card_count;
    const char *control_nodes[INVENTORY_CONTROL_NODES_MAX];
    size_t control_count;
    bool derived;
};

static struct scan_card *find_fact(struct inventory *inventory, const char *uuid)
{
    for (size_t i = 0; i < inventory->fact_count; i++)
        if (!strcmp(inventory->facts[i].uuid, uuid))
            return &inventory->facts[i];
    return NULL;
}

static const struct scan_card *find_seen(const struct scan *scan, const char *uuid)
{
    for (size_t i = 0; i < scan->count; i++)
        if (*uuid && !strcmp(scan->cards[i].uuid, uuid))
            return &scan->cards[i];
    return NULL;
}

/* The one that NVML could not identify, at the place of a card that is missing. */
static const struct scan_card *find_nameless(const struct scan *scan, uint32_t index)
{
    for (size_t i = 0; i < scan->count; i++)
        if (!*scan->cards[i].uuid && !*scan->cards[i].parent && scan->cards[i].index == index)
            return &scan->cards[i];
    return NULL;
}

/* A card that was seen before and is not now. false: it is to be forgotten. */
static bool keep_missing(
    const struct inventory *inventory, const struct scan *scan, struct scan_card *fact)
{
    if (*fact->parent) {
        const struct scan_card *parent = find_seen(scan, fact->parent);
        if (parent && !*parent->problem)
            return false;
        snprintf(fact->problem, sizeof(fact->problem), "%s",
            parent ? parent->problem : "its card is not there any more");
        return parent || !strcmp(inventory->boot, scan->boot);
    }
    const struct scan_card *nameless = find_nameless(scan, fact->index);
    snprintf(fact->problem, sizeof(fact->problem), "%s",
        nameless ? nameless->problem : "the card is not there any more");
    return nameless || !strcmp(inventory->boot, scan->boot);
}

static int compare_facts(const void *left, const void *right)
{
    const struct scan_card *a = left, *b = right;
    if (a->index != b->index)
        return a->index < b->index ? -1 : 1;
    if (!*a->parent != !*b->parent)
        return *a->parent ? 1 : -1;
    if (a->mig_index != b->mig_index)
        return a->mig_index < b->mig_index ? -1 : 1;
    return strcmp(a->uuid, b->uuid);
}

void inventory_take_scan(struct inventory *inventory, const struct scan *scan)
{
    if (*scan->problem) {
        inventory_take_absence(inventory, scan->problem);
        return;
    }
    size_t kept = 0;
    for (size_t i = 0; i < inventory->fact_count; i++) {
        struct scan_card *fact = &inventory->facts[i];
        const struct scan_card *seen = find_seen(scan, fact->uuid);
        if (seen && !*seen->problem)
            *fact = *seen;
        else if (seen) /* what it told before stays: half of an answer would be another card */
            memcpy(fact->problem, seen->problem, sizeof(fact->problem));
        else if (!keep_missing(inventory, scan, fact))
            continue;
        if (kept != i)
            inventory->facts[kept] = *fact;
        kept++;
    }
    inventory->fact_count = kept;
    for (size_t i = 0; i < scan->count; i++) {
        const struct scan_card *seen = &scan->cards[i];
        if (*seen->uuid && !find_fact(inventory, seen->uuid) &&
            inventory->fact_count < INVENTORY_CARDS_MAX)
            inventory->facts[inventory->fact_count++] = *seen;
    }
    qsort(inventory->facts, inventory->fact_count, sizeof(inventory->facts[0]), compare_facts);
    memcpy(inventory->boot, scan->boot, sizeof(inventory->boot));
    inventory->known = true;
}

void inventory_take_absence(struct inventory *inventory, const char *problem)
{
    for (size_t i = 0; i < inventory->fact_count; i++)
        snprintf(inventory->facts[i].problem, sizeof(inventory->facts[i].problem), "%s", problem);
}

const struct scan_card *inventory_facts(const struct inventory *inventory, size_t *ret_count)
{
    *ret_count = inventory->fact_count;
    return inventory->facts;
}

/* Of a MIG device what is told of its card counts too. */
static bool is_filtered(const struct inventory *inventory, const struct scan_card *fact)
{
    const struct node_config *config = &inventory->settings->config;
    return node_config_filters(config, fact->uuid, fact->index) ||
           (*fact->parent && node_config_filters(config, fact->parent, fact->index));
}

static bool is_offered(const struct inventory *inventory, const struct scan_card *fact)
{
    if (is_filtered(inventory, fact))
        return false;
    if (inventory->settings->mig_mixed)
        return *fact->parent || !fact->mig_mode;
    return !*fact->parent;
}

static int64_t scale(int64_t value, double scaling)
{
    double scaled = floor((double)value * scaling);
    return scaled > INT32_MAX ? INT32_MAX : (int64_t)scaled;
}

static void set_resource(
    const struct inventory *inventory, const struct scan_card *fact, struct node_card *card)
{
    const char *name = inventory->settings->resource_name;
    if (!*fact->parent) {
        snprintf(card->resource, sizeof(card->resource), "%s", name);
        return;
    }
    /* "1g.5gb+me" is nvidia.com/mig-1g.5gb.me: a plus may not stand in a resource's name. */
    snprintf(card->profile, sizeof(card->profile), "%s", fact->profile);
    int length = snprintf(card->resource, sizeof(card->resource), "%.*s/mig-%s",
        (int)strcspn(name, "/"), name, fact->profile);
    for (int i = 0; i < length && i < (int)sizeof(card->resource); i++)
        if (card->resource[i] == '+')
            card->resource[i] = '.';
}

static void set_nodes(const struct scan_card *fact, struct node_card *card)
{
    if (fact->has_minor)
        snprintf(
            card->nodes[card->node_count++], INVENTORY_PATH_BYTES, "/dev/nvidia%u", fact->minor);
    for (unsigned i = 0; i < fact->capability_count; i++)
        snprintf(card->nodes[card->node_count++], INVENTORY_PATH_BYTES,
            "/dev/nvidia-caps/nvidia-cap%u", fact->capabilities[i]);
}

static bool set_memory(
    struct inventory *inventory, const struct scan_card *fact, struct node_card *card)
{
    const struct node_config *config = &inventory->settings->config;
    if (fact->has_memory)
        card->memory_mib = (int64_t)(fact->memory_bytes >> 20);
    else
        card->memory_mib = config->preconfigured_memory_mib;
    if (card->memory_mib > 0)
        return true;
    if (strcmp(inventory->without_memory, fact->uuid) != 0)
        log_line(LOG_LINE_WARNING,
            "inventory: %s is not offered: NVML does not tell its memory; "
            "preConfiguredDeviceMemory "
            "may",
            fact->uuid);
    memcpy(inventory->without_memory, fact->uuid, sizeof(inventory->without_memory));
    return false;
}

static bool make_card(
    struct inventory *inventory, const struct scan_card *fact, struct node_card *ret_card)
{
    const struct node_config *config = &inventory->settings->config;
    bool mig = *fact->parent;
    memset(ret_card, 0, sizeof(*ret_card));
    if (!set_memory(inventory, fact, ret_card))
        return false;
    snprintf(ret_card->uuid, sizeof(ret_card->uuid), "%s", fact->uuid);
    snprintf(ret_card->parent, sizeof(ret_card->parent), "%s", fact->parent);
    ret_card->index = fact->index;
    ret_card->mig_index = fact->mig_index;
    ret_card->gpu_instance = fact->gpu_instance;
    ret_card->compute_instance = fact->compute_instance;
    ret_card->minor = fact->minor;
    ret_card->scaled_memory_mib =
        mig ? ret_card->memory_mib : scale(ret_card->memory_mib, config->memory_scaling);
    ret_card->cores_percent = mig ? 100 : (int32_t)scale(100, config->cores_scaling);
    ret_card->replicas = mig ? 1 : (uint32_t)config->split_count;
    node_devices_format_type(fact->name, inventory->settings->register_csv, ret_card->type);
    snprintf(ret_card->bus_id, sizeof(ret_card->bus_id), "%s", fact->bus_id);
    ret_card->numa = fact->numa;
    set_resource(inventory, fact, ret_card);
    set_nodes(fact, ret_card);
    return true;
}

/* Visible below the device root, or, where only the host has that path, below the own root. */
static bool has_node(const struct inventory *inventory, const char *path)
{
    char below[SETTINGS_PATH_BYTES + INVENTORY_PATH_BYTES];
    snprintf(below, sizeof(below), "%s%s", inventory->settings->dev_root, path);
    return access(below, F_OK) == 0 || access(path, F_OK) == 0;
}

static bool derive_control_nodes(struct inventory *inventory)
{
    const char *nodes[INVENTORY_CONTROL_NODES_MAX] = {NULL};
    size_t count = 0;
    for (size_t i = 0; i < INVENTORY_CONTROL_NODES_MAX; i++)
        if (has_node(inventory, control_paths[i]))
            nodes[count++] = control_paths[i];
    if (count == inventory->control_count &&
        !memcmp(nodes, inventory->control_nodes, sizeof(nodes)))
        return false;
    memcpy(inventory->control_nodes, nodes, sizeof(nodes));
    inventory->control_count = count;
    return true;
}

static bool has_same_nodes(const struct node_card *a, const struct node_card *b)
{
    bool same = a->node_count == b->node_count;
    for (unsigned i = 0; same && i < a->node_count; i++)
        same = !strcmp(a->nodes[i], b->nodes[i]);
    return same;
}

/* Member by member: between them are bytes without a meaning. */
static bool is_same_card(const struct node_card *a, const struct node_card *b)
{
    return !strcmp(a->uuid, b->uuid) && !strcmp(a->parent, b->parent) &&
           !strcmp(a->resource, b->resource) && !strcmp(a->profile, b->profile) &&
           a->index == b->index && a->mig_index == b->mig_index &&
           a->gpu_instance == b->gpu_instance && a->compute_instance == b->compute_instance &&
           a->minor == b->minor && a->memory_mib == b->memory_mib &&
           a->scaled_memory_mib == b->scaled_memory_mib && a->cores_percent == b->cores_percent &&
           a->replicas == b->replicas && !strcmp(a->type, b->type) &&
           !strcmp(a->bus_id, b->bus_id) && a->numa == b->numa && a->healthy == b->healthy &&
           has_same_nodes(a, b);
}

void inventory_derive(
    struct inventory *inventory, bool (*is_healthy)(void *context, const char *uuid), void *context)
{
    bool changed = derive_control_nodes(inventory);
    size_t count = 0;
    if (!inventory->known)
        return;
    for (size_t i = 0; i < inventory->fact_count; i++) {
        const struct scan_card *fact = &inventory->facts[i];
        struct node_card card;
        if (!is_offered(inventory, fact) || !make_card(inventory, fact, &card))
            continue;
        card.healthy = is_healthy(context, fact->uuid);
        if (count >= inventory->card_count || !is_same_card(&card, &inventory->cards[count]))
            changed = true;
        memcpy(&inventory->cards[count++], &card, sizeof(card));
    }
    changed = changed || count != inventory->card_count || !inventory->derived;
    inventory->card_count = count;
    inventory->derived = true;
    if (changed)
        inventory->on_change(inventory->context);
}

const struct node_card *inventory_cards(const struct inventory *inventory, size_t *ret_count)
{
    *ret_count = inventory->card_count;
    return inventory->cards;
}

const struct node_card *inventory_find(const struct inventory *inventory, const char *uuid)
{
    for (size_t i = 0; i < inventory->card_count; i++)
        if (!strcmp(inventory->cards[i].uuid, uuid))
            return &inventory->cards[i];
    return NULL;
}

const char *const *inventory_control_nodes(const struct inventory *inventory, size_t *ret_count)
{
    *ret_count = inventory->control_count;
    return inventory->control_nodes;
}

bool inventory_is_known(const struct inventory *inventory)
{
    return inventory->derived;
}

struct inventory *inventory_create(
    const struct node_settings *settings, void (*on_change)(void *context), void *context)
{
    struct inventory *inventory = calloc(1, sizeof(*inventory));
    if (!inventory)
        return NULL;
    inventory->settings = settings;
    inventory->on_change = on_change;
    inventory->context = context;
    return inventory;
}

void inventory_destroy(struct inventory *inventory)
{
    free(inventory);
}
