/* SPDX-License-Identifier: Apache-2.0 */
#include "node/health.h"

#include "kube/event.h"
#include "net/file_read.h"
#include "net/log_line.h"
#include "node/health_state.h"
#include "node/inventory.h"
#include "node/probe.h"
#include "node/settings.h"
#include "node/store.h"

#include <errno.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <time.h>

#define HURRY_S 5
#define FILE_BYTES_MAX 65536

struct entry {
    char uuid[DEVICE_UUID_BYTES];
    struct health_state state;
    /* The card's last look; what an event adds to it. */
    bool has_energy;
    uint64_t energy_mj;
    char problem[128];
};

struct health {
    struct health_options options;
    struct health_xids xids;
    char boot[HEALTH_BOOT_BYTES];
    char path[SETTINGS_PATH_BYTES + 32];
    /* Cards that were seen, and those that are only in the file yet. */
    struct entry entries[2 * INVENTORY_CARDS_MAX];
    size_t count;
};

static void report(void *context, const char *line)
{
    (void)context;
    log_line(LOG_LINE_WARNING, "health: %s", line);
}

static struct entry *find_entry(struct health *health, const char *uuid)
{
    for (size_t i = 0; i < health->count; i++)
        if (!strcmp(health->entries[i].uuid, uuid))
            return &health->entries[i];
    return NULL;
}

static struct entry *get_entry(struct health *health, const char *uuid)
{
    struct entry *entry = find_entry(health, uuid);
    if (entry || health->count >= 2ul * INVENTORY_CARDS_MAX || strlen(uuid) >= sizeof(entry->uuid))
        return entry;
    entry = &health->entries[health->count++];
    memset(entry, 0, sizeof(*entry));
    memcpy(entry->uuid, uuid, strlen(uuid) + 1);
    return entry;
}

static struct health_look look_of(const struct health *health, const struct entry *entry)
{
    struct timespec monotonic;
    clock_gettime(CLOCK_MONOTONIC, &monotonic);
    return (struct health_look){.problem = entry->problem,
        .has_energy = entry->has_energy,
        .energy_mj = entry->energy_mj,
        .boot = health->boot,
        .now_s = time(NULL),
        .now_ms = (int64_t)monotonic.tv_sec * 1000 + monotonic.tv_nsec / 1000000};
}

static void post(const struct health *health, const char *reason, const char *message, bool warning)
{
    /* kubectl and the kubelet take the node's name for the UID in a node's events. */
    const char *node = health->options.settings->node_name;
    if (health->options.events)
        kube_event_post(health->options.events, &(struct kube_event){.kind = "Node",
                                                    .namespace_name = "",
                                                    .name = node,
                                                    .uid = node,
                                                    .reason = reason,
                                                    .message = message,
                                                    .is_warning = warning});
}

static void save(const struct health *health)
{
    const char *uuids[2 * INVENTORY_CARDS_MAX];
    struct health_state *states = calloc(health->count + 1, sizeof(*states));
    struct error error = {.text = "no memory"};
    json_t *saved = NULL;
    for (size_t i = 0; states && i < health->count; i++) {
        uuids[i] = health->entries[i].uuid;
        states[i] = health->entries[i].state;
    }
    if (states)
        saved = health_state_save(states, uuids, health->count);
    if (!saved || store_write(health->path, saved, &error))
        log_line(LOG_LINE_ERROR, "health: faults are not kept over a restart: %s", error.text);
    json_decref(saved);
    free(states);
}

static void tell(
    struct health *health, const struct entry *entry, enum health_change change, const char *before)
{
    char message[512];
    bool ill = change != HEALTH_RECOVERED;
    if (change == HEALTH_SAME)
        return;
    if (ill)
        snprintf(message, sizeof(message), "%s is unhealthy: %s", entry->uuid, entry->state.reason);
    else
        snprintf(
            message, sizeof(message), "%s is healthy again (it was not: %s)", entry->uuid, before);
    log_line(ill ? LOG_LINE_WARNING : LOG_LINE_INFO, "health: %s", message);
    post(health, ill ? "GPUUnhealthy" : "GPUHealthy", message, ill);
}

static bool is_healthy(void *context, const char *uuid)
{
    const struct entry *entry = find_entry(context, uuid);
    return entry && health_state_is_healthy(&entry->state);
}

static void set_pace(const struct health *health)
{
    bool ill = false, silent = false;
    size_t count;
    const struct scan_card *facts = inventory_facts(health->options.inventory, &count);
    for (size_t i = 0; i < health->count; i++)
        ill = ill || !health_state_is_healthy(&health->entries[i].state);
    for (size_t i = 0; i < count; i++)
        silent = silent || *facts[i].problem;
    if (health->options.on_pace)
        health->options.on_pace(health->options.context, ill || silent ? HURRY_S : 0, silent);
}

static void finish_change(struct health *health, bool keep)
{
    if (keep)
        save(health);
    set_pace(health);
    inventory_derive(health->options.inventory, is_healthy, health);
}

/* What the inventory knows of the cards now. */
static void look_at_facts(struct health *health)
{
    size_t count;
    bool keep = false;
    const struct scan_card *facts = inventory_facts(health->options.inventory, &count);
    for (size_t i = 0; i < count; i++) {
        struct entry *entry = get_entry(health, facts[i].uuid);
        if (!entry)
            continue;
        char before[HEALTH_REASON_BYTES];
        enum health_fault fault = entry->state.fault;
        memcpy(before, entry->state.reason, sizeof(before));
        entry->has_energy = facts[i].has_energy;
        entry->energy_mj = facts[i].energy_mj;
        snprintf(entry->problem, sizeof(entry->problem), "%s", facts[i].problem);
        struct health_look look = look_of(health, entry);
        tell(health, entry, health_state_look(&entry->state, &look), before);
        keep = keep || (fault == HEALTH_FAULT_XID && entry->state.fault != HEALTH_FAULT_XID);
    }
    finish_change(health, keep);
}

void health_take_scan(struct health *health, const struct scan *scan)
{
    snprintf(health->boot, sizeof(health->boot), "%s", scan->boot);
    inventory_take_scan(health->options.inventory, scan);
    look_at_facts(health);
}

void health_take_absence(struct health *health, const char *problem)
{
    log_line(LOG_LINE_WARNING, "health: no NVML: %s; trying again", problem);
    inventory_take_absence(health->options.inventory, problem);
    look_at_facts(health);
}

static bool concerns(const struct scan_card *fact, const struct probe_event *event)
{
    if (!*fact->parent)
        return !strcmp(fact->uuid, event->uuid);
    if (strcmp(fact->parent, event->uuid) != 0)
        return false;
    return event->gpu_instance == PROBE_NO_INSTANCE ||
           (event->gpu_instance == fact->gpu_instance &&
               (event->compute_instance == PROBE_NO_INSTANCE ||
                   event->compute_instance == fact->compute_instance));
}

void health_take_event(struct health *health, const struct probe_event *event)
{
    size_t count;
    bool changed = false;
    const struct scan_card *facts = inventory_facts(health->options.inventory, &count);
    if (!health_xids_counts(&health->xids, event->xid)) {
        log_line(LOG_LINE_DEBUG, "health: Xid %llu of %s is ignored",
            (unsigned long long)event->xid, event->uuid);
        return;
    }
    if (!*event->uuid)
        log_line(LOG_LINE_WARNING, "health: NVML does not tell the card of Xid %llu",
            (unsigned long long)event->xid);
    for (size_t i = 0; i < count; i++) {
        struct entry *entry = concerns(&facts[i], event) ? get_entry(health, facts[i].uuid) : NULL;
        if (!entry)
            continue;
        struct health_look look = look_of(health, entry);
        enum health_change change = health_state_xid(&entry->state, event->xid, &look);
        tell(health, entry, change, "");
        changed = changed || change != HEALTH_SAME;
    }
    if (changed)
        finish_change(health, true);
}

static void allow(void *context, const char *uuid)
{
    struct health *health = context;
    struct entry *entry = find_entry(health, uuid);
    char before[HEALTH_REASON_BYTES] = "";
    if (entry)
        memcpy(before, entry->state.reason, sizeof(before));
    struct health_look look = {.problem = NULL};
    if (entry)
        look = look_of(health, entry);
    enum health_change change = entry ? health_state_allow(&entry->state, &look) : HEALTH_SAME;
    if (change == HEALTH_SAME)
        log_line(LOG_LINE_INFO, "health: vgpu.io/healthy names %s, which %s", uuid,
            entry ? "has no fault that an operator decides on" : "is not known");
    else if (entry)
        tell(health, entry, change, before);
}

void health_take_allowed(struct health *health, const char *list)
{
    health_read_allowed(list, allow, health);
    finish_change(health, true);
}

void health_settings_changed(struct health *health)
{
    const struct node_settings *settings = health->options.settings;
    health_xids_read(&health->xids, settings->disable_health_checks, settings->enable_health_checks,
        report, health);
    inventory_derive(health->options.inventory, is_healthy, health);
}

static void restore(struct health *health)
{
    struct error error = {.text = ""};
    json_t *saved = store_read(health->path, FILE_BYTES_MAX, &error);
    const char *uuid;
    json_t *value;
    if (!saved) {
        if (error.code != ENOENT)
            log_line(LOG_LINE_WARNING, "health: %s; former faults are not known", error.text);
        return;
    }
    json_object_foreach(saved, uuid, value)
    {
        struct entry *entry = get_entry(health, uuid);
        if (!entry)
            continue;
        if (health_state_restore(saved, uuid, &entry->state, &error))
            log_line(LOG_LINE_WARNING, "health: %s: %s", health->path, error.text);
        else
            log_line(LOG_LINE_WARNING, "health: %s is unhealthy since before the start: %s",
                entry->uuid, entry->state.reason);
    }
    json_decref(saved);
}

struct health *health_create(const struct health_options *options, struct error *error)
{
    struct health *health = calloc(1, sizeof(*health));
    if (!health) {
        error_set(error, ENOMEM, "no memory for the cards' health");
        return NULL;
    }
    health->options = *options;
    snprintf(
        health->path, sizeof(health->path), "%s/vgpu/health.json", options->settings->hook_path);
    health_settings_changed(health);
    restore(health);
    return health;
}

void health_destroy(struct health *health)
{
    free(health);
}
