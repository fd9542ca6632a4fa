/* SPDX-License-Identifier: Apache-2.0 */
#include "node/health_state.h"

#include "base/text.h"
#include "codec/json_read.h"
#include "codec/number.h"

#include <errno.h>
#include <stdio.h>
#include <string.h>
#include <strings.h>

#define ALLOWED_MAX 1024

/* 13 graphics exception, 31 page fault, 43 stopped processing, 45 preemptive cleanup, 68 video
 * exception, 109 context switch timeout: a program's doing; the card goes on. */
static const uint64_t application_xids[] = {13, 31, 43, 45, 68, 109};

static bool equals(const char *text, size_t length, const char *word)
{
    return strlen(word) == length && !strncasecmp(text, word, length);
}

static bool holds(const uint64_t *xids, size_t count, uint64_t xid)
{
    for (size_t i = 0; i < count; i++)
        if (xids[i] == xid)
            return true;
    return false;
}

static void add(uint64_t *xids, size_t *count, uint64_t xid)
{
    if (*count < HEALTH_XIDS_MAX && !holds(xids, *count, xid))
        xids[(*count)++] = xid;
}

/* The next of a list by commas, without blanks around it; false at the end. */
static bool next_word(const char **at, const char **ret_word, size_t *ret_length)
{
    if (!**at)
        return false;
    size_t length = strcspn(*at, ",");
    const char *word = *at;
    *at += length + ((*at)[length] == ',');
    while (length && (*word == ' ' || *word == '\t'))
        word++, length--;
    while (length && (word[length - 1] == ' ' || word[length - 1] == '\t'))
        length--;
    *ret_word = word;
    *ret_length = length;
    return true;
}

static void read_list(const char *list, const char *variable, bool *ret_all, uint64_t *xids,
    size_t *count, void (*report)(void *context, const char *line), void *context)
{
    const char *word;
    size_t length;
    while (next_word(&list, &word, &length)) {
        int64_t xid;
        if (equals(word, length, "all") || equals(word, length, "xids")) {
            *ret_all = true;
        } else if (length && !number_parse(word, length, 0, INT64_MAX, &xid)) {
            add(xids, count, (uint64_t)xid);
        } else if (length && report) {
            char line[256], quoted[64];
            text_escape(quoted, sizeof(quoted), word, length);
            snprintf(line, sizeof(line),
                "%s has \"%s\": all, xids, or numbers of Xids by commas are accepted", variable,
                quoted);
            report(context, line);
        }
    }
}

void health_xids_read(struct health_xids *ret_xids, const char *disabled, const char *enabled,
    void (*report)(void *context, const char *line), void *context)
{
    struct health_xids xids = {0};
    read_list(disabled, "DP_DISABLE_HEALTHCHECKS", &xids.none, xids.ignored, &xids.ignored_count,
        report, context);
    read_list(enabled, "DP_ENABLE_HEALTHCHECKS", &xids.all, xids.counted, &xids.counted_count,
        report, context);
    *ret_xids = xids;
}

bool health_xids_counts(const struct health_xids *xids, uint64_t xid)
{
    /* What is named itself goes before what is meant by "all", and disabling before enabling. */
    if (holds(xids->ignored, xids->ignored_count, xid))
        return false;
    if (holds(xids->counted, xids->counted_count, xid))
        return true;
    if (xids->none)
        return false;
    return xids->all ||
           !holds(application_xids, sizeof(application_xids) / sizeof(application_xids[0]), xid);
}

bool health_state_is_healthy(const struct health_state *state)
{
    return state->fault == HEALTH_FAULT_NONE;
}

static bool answers(const struct health_look *look)
{
    return !look->problem || !*look->problem;
}

static void note_answer(struct health_state *state, const struct health_look *look)
{
    if (!answers(look))
        state->answering = false;
    else if (!state->answering) {
        state->answering = true;
        state->answering_since_ms = look->now_ms;
    }
}

/* NVML answers, as it must, and card or driver have begun anew since the Xid. */
static bool began_anew(const struct health_state *state, const struct health_look *look)
{
    return answers(look) &&
           ((state->has_energy && look->has_energy && look->energy_mj < state->energy_mj) ||
               (*state->boot && look->boot && *look->boot && strcmp(state->boot, look->boot) != 0));
}

static enum health_change recover(struct health_state *state)
{
    *state = (struct health_state){
        .answering = state->answering, .answering_since_ms = state->answering_since_ms};
    return HEALTH_RECOVERED;
}

enum health_change health_state_look(struct health_state *state, const struct health_look *look)
{
    note_answer(state, look);
    if (!answers(look)) {
        if (state->fault != HEALTH_FAULT_NONE)
            return HEALTH_SAME;
        state->fault = HEALTH_FAULT_NVML;
        state->since_s = look->now_s;
        snprintf(state->reason, sizeof(state->reason), "%s", look->problem);
        return HEALTH_ILL;
    }
    if (state->fault == HEALTH_FAULT_XID && began_anew(state, look)) {
        /* From here on it is as a card that did not answer until now. */
        state->fault = HEALTH_FAULT_NVML;
        state->answering_since_ms = look->now_ms;
    }
    /* The counter goes on: a reset shows against its highest value. */
    if (state->fault == HEALTH_FAULT_XID && look->has_energy) {
        state->has_energy = true;
        state->energy_mj = look->energy_mj;
    }
    if (state->fault == HEALTH_FAULT_NVML &&
        look->now_ms - state->answering_since_ms >= HEALTH_ANSWERING_MS)
        return recover(state);
    return HEALTH_SAME;
}

enum health_change health_state_xid(
    struct health_state *state, uint64_t xid, const struct health_look *look)
{
    enum health_fault before = state->fault;
    if (before == HEALTH_FAULT_XID)
        return HEALTH_SAME;
    state->fault = HEALTH_FAULT_XID;
    state->since_s = look->now_s;
    state->has_energy = look->has_energy;
    state->energy_mj = look->energy_mj;
    snprintf(state->boot, sizeof(state->boot), "%s", look->boot ? look->boot : "");
    snprintf(state->reason, sizeof(state->reason), "Xid %llu", (unsigned long long)xid);
    return before == HEALTH_FAULT_NONE ? HEALTH_ILL : HEALTH_WORSE;
}

enum health_change health_state_allow(struct health_state *state, const struct health_look *look)
{
    if (state->fault != HEALTH_FAULT_XID)
        return HEALTH_SAME;
    if (answers(look))
        return recover(state);
    state->fault = HEALTH_FAULT_NVML;
    snprintf(state->reason, sizeof(state->reason), "%s", look->problem);
    return HEALTH_WORSE;
}

json_t *health_state_save(const struct health_state *states, const char *const *uuids, size_t count)
{
    json_t *saved = json_object();
    for (size_t i = 0; saved && i < count; i++) {
        const struct health_state *state = &states[i];
        if (state->fault != HEALTH_FAULT_XID)
            continue;
        json_t *entry = json_pack("{s:s, s:I, s:s}", "reason", state->reason, "since",
            (json_int_t)state->since_s, "boot", state->boot);
        if (entry && state->has_energy)
            json_object_set_new(entry, "energy_mj", json_integer((json_int_t)state->energy_mj));
        if (json_object_set_new(saved, uuids[i], entry)) {
            json_decref(saved);
            return NULL;
        }
    }
    return saved;
}

int health_state_restore(
    const json_t *saved, const char *uuid, struct health_state *ret_state, struct error *error)
{
    struct health_state state = {.fault = HEALTH_FAULT_XID};
    const json_t *entry = json_object_get(saved, uuid);
    int64_t energy = -1;
    if (!entry)
        return -ENOENT;
    if (!json_is_object(entry))
        return error_set(error, EINVAL, "%s: an object is accepted", uuid);
    int failure =
        json_read_string(uuid, entry, "reason", state.reason, sizeof(state.reason), error);
    if (!failure)
        failure = json_read_string(uuid, entry, "boot", state.boot, sizeof(state.boot), error);
    if (!failure)
        failure = json_read_int(uuid, entry, "since", 0, INT64_MAX, &state.since_s, error);
    if (!failure)
        failure = json_read_int(uuid, entry, "energy_mj", 0, INT64_MAX, &energy, error);
    if (failure)
        return failure;
    state.has_energy = energy >= 0;
    state.energy_mj = energy >= 0 ? (uint64_t)energy : 0;
    *ret_state = state;
    return 0;
}

void health_read_allowed(
    const char *list, void (*allow)(void *context, const char *uuid), void *context)
{
    const char *word;
    size_t length;
    for (unsigned i = 0; i < ALLOWED_MAX && next_word(&list, &word, &length); i++) {
        char uuid[DEVICE_UUID_BYTES];
        if (!length || length >= sizeof(uuid))
            continue;
        memcpy(uuid, word, length);
        uuid[length] = '\0';
        allow(context, uuid);
    }
}
