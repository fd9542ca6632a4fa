/* SPDX-License-Identifier: Apache-2.0 */
/* Calls counted for the whole machine, and failed on demand by the rules of the process' own
 * description. */
#include "sim/machine/machine.h"

#include "sim/machine/machine_layout.h"

#include <signal.h>
#include <stdio.h>
#include <string.h>
#include <unistd.h>

static _Atomic uint32_t rule_calls[SIM_RULES_MAX];

static bool counter_matches(struct sim_counter *counter, const char *name)
{
    return strncmp(counter->name, name, sizeof counter->name - 1) == 0;
}

/* The counter of a name; made under the lock where there is none, if create. NULL: none, or the
 * table is full. */
static struct sim_counter *counter_find(const char *name, bool create)
{
    uint64_t hash = 0xcbf29ce484222325ull;
    for (const char *at = name; *at != '\0'; at++)
        hash = (hash ^ (unsigned char)*at) * 0x100000001b3ull;
    for (uint32_t probe = 0; probe < SIM_COUNTERS_MAX; probe++) {
        struct sim_counter *counter = &sim_machine->counters[(hash + probe) % SIM_COUNTERS_MAX];
        if (!atomic_load_explicit(&counter->live, memory_order_acquire)) {
            if (!create)
                return NULL;
            sim_lock();
            if (!atomic_load_explicit(&counter->live, memory_order_relaxed)) {
                snprintf(counter->name, sizeof counter->name, "%s", name);
                atomic_store_explicit(&counter->live, 1, memory_order_release);
            }
            sim_unlock();
        }
        if (counter_matches(counter, name))
            return counter;
    }
    return NULL;
}

void sim_count(const char *function)
{
    if (sim_attach() != 0)
        return;
    struct sim_counter *counter = counter_find(function, true);
    if (counter != NULL)
        atomic_fetch_add_explicit(&counter->calls, 1, memory_order_relaxed);
}

uint64_t sim_calls(const char *function)
{
    if (sim_attach() != 0)
        return 0;
    struct sim_counter *counter = counter_find(function, false);
    return counter == NULL ? 0 : atomic_load_explicit(&counter->calls, memory_order_relaxed);
}

static bool counter_begins(struct sim_counter *counter, const char *prefix)
{
    return atomic_load_explicit(&counter->live, memory_order_acquire) &&
           strncmp(counter->name, prefix, strlen(prefix)) == 0;
}

uint64_t sim_calls_all(const char *prefix)
{
    uint64_t calls = 0;
    if (sim_attach() != 0)
        return 0;
    for (uint32_t i = 0; i < SIM_COUNTERS_MAX; i++) {
        struct sim_counter *counter = &sim_machine->counters[i];
        if (counter_begins(counter, prefix))
            calls += atomic_load_explicit(&counter->calls, memory_order_relaxed);
    }
    return calls;
}

const char *sim_called(const char *prefix)
{
    if (sim_attach() != 0)
        return NULL;
    for (uint32_t i = 0; i < SIM_COUNTERS_MAX; i++) {
        if (counter_begins(&sim_machine->counters[i], prefix))
            return sim_machine->counters[i].name;
    }
    return NULL;
}

void sim_count_failed(const char *function)
{
    char name[80];
    snprintf(name, sizeof name, SIM_FAILED " %s", function);
    sim_count(SIM_FAILED);
    sim_count(name);
}

static bool rule_counts(
    const struct sim_rule *rule, enum sim_rule_kind kind, const char *function, uint32_t number)
{
    if (rule->kind != kind)
        return false;
    switch (kind) {
    case SIM_RULE_FUNCTION:
        return strcmp(rule->function, function) == 0;
    case SIM_RULE_API:
        return strncmp(rule->function, function, strlen(rule->function)) == 0;
    case SIM_RULE_RM_NUMBER:
        return rule->number == number;
    default:
        return true;
    }
}

bool sim_rule_hits(enum sim_rule_kind kind, const char *function, uint32_t number,
    const struct sim_rule **ret_rule)
{
    const struct sim_description *own = sim_description();
    bool hit = false;
    for (uint32_t i = 0; i < own->rule_count; i++) {
        const struct sim_rule *rule = &own->rules[i];
        if (!rule_counts(rule, kind, function, number))
            continue;
        uint32_t call = atomic_fetch_add_explicit(&rule_calls[i], 1, memory_order_relaxed) + 1;
        if (!hit && (rule->nth == 0 || rule->nth == call)) {
            *ret_rule = rule;
            hit = true;
        }
    }
    return hit;
}

bool sim_fail(const char *function, uint32_t *ret_code)
{
    const struct sim_rule *rule;
    sim_count(function);
    /* A call counts for both, whichever of them hits. */
    bool hit_api = sim_rule_hits(SIM_RULE_API, function, 0, &rule);
    if (!sim_rule_hits(SIM_RULE_FUNCTION, function, 0, &rule) && !hit_api)
        return false;
    if (rule->has_code && rule->code >= SIM_SIGNALS) {
        (void)kill(getpid(), (int)(rule->code - SIM_SIGNALS));
        return false;
    }
    sim_count_failed(function);
    uint32_t standard = strncmp(function, "nvml", 4) == 0
                            ? 999
                            : 2; /* NVML_ERROR_UNKNOWN, CUDA_ERROR_OUT_OF_MEMORY */
    *ret_code = rule->has_code ? rule->code : standard;
    return true;
}
