/* SPDX-License-Identifier: Apache-2.0 */
/* Calls counted for the whole machine, and failed on demand by the rules of the process' own
 * description. */
#include "sim/machine.h"

#include "sim/machine_layout.h"

#include <stdio.h>
#include <string.h>

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

bool sim_rule_hits(enum sim_rule_kind kind, const char *function, uint32_t number,
    const struct sim_rule **ret_rule)
{
    const struct sim_description *own = sim_description();
    bool hit = false;
    for (uint32_t i = 0; i < own->rule_count; i++) {
        const struct sim_rule *rule = &own->rules[i];
        if (rule->kind != kind ||
            (kind == SIM_RULE_FUNCTION && strcmp(rule->function, function) != 0) ||
            (kind == SIM_RULE_RM_NUMBER && rule->number != number))
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
    if (!sim_rule_hits(SIM_RULE_FUNCTION, function, 0, &rule))
        return false;
    uint32_t standard = strncmp(function, "nvml", 4) == 0
                            ? 999
                            : 2; /* NVML_ERROR_UNKNOWN, CUDA_ERROR_OUT_OF_MEMORY */
    *ret_code = rule->has_code ? rule->code : standard;
    return true;
}
