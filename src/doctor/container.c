/* SPDX-License-Identifier: Apache-2.0 */
/* Limits, gate and registry of the container. */
#include "doctor/checks.h"

#include "base/clock.h"
#include "doctor/deadline.h"
#include "registry/registry.h"
#include "vgpu/region.h"

#include <errno.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>
#include <unistd.h>

#define NONE (-1)
#define MIB (1024.0 * 1024.0)

int doctor_reported(const struct facts *facts, int ordinal)
{
    const char *uuid = fact(facts, "cuda.%d.uuid", ordinal);
    for (int i = 0; uuid && i < (int)VGPU_REGION_DEVICES; i++) {
        if (fact_is(facts, uuid, "device.%d.uuid", i))
            return i;
    }
    return -1;
}

/* ---- limits ---- */

static void describe_memory(const struct facts *facts, int i, char *words, size_t size)
{
    double limit = (double)fact_number(facts, "device.%d.memory.limit", i) / MIB;
    double used = (double)fact_number(facts, "device.%d.memory.used", i) / MIB;
    if (limit > 0)
        snprintf(words, size, "memory %.0f MiB, %.0f used", limit, used);
    else
        snprintf(words, size, "memory not limited, %.0f MiB used", used);
}

static void check_limits(struct checks *checks, const struct facts *facts, int ordinal, int i)
{
    char memory[96], cores[64] = "GPU time not limited", soft[80] = "";
    unsigned long long percent = fact_number(facts, "device.%d.cores", i);
    unsigned long long set = fact_number(facts, "device.%d.cores.set", i);
    unsigned long long soft_percent = fact_number(facts, "device.%d.cores.soft", i);
    if (fact_is(facts, "yes", "device.%d.memory.closed", i)) {
        check_add(checks, "limits", ordinal, CHECK_PROBLEM,
            "lines 'log' name the variable, or see the line 'region'",
            "a memory limit is not understood or cannot be kept: the device looks full");
        return;
    }
    if (set && !percent)
        snprintf(cores, sizeof(cores), "GPU time %llu %%, not in force", set);
    describe_memory(facts, i, memory, sizeof(memory));
    if (percent)
        snprintf(cores, sizeof(cores), "GPU time %llu %%", percent);
    if (soft_percent)
        snprintf(soft, sizeof(soft), ", up to %llu %% while others are idle", soft_percent);
    check_add(checks, "limits", ordinal, CHECK_FINE, NULL, "%s; %s%s", memory, cores, soft);
}

static void check_orders(struct checks *checks, const struct facts *facts)
{
    if (fact_is(facts, "disable", "policy"))
        check_add(checks, "policy", NONE, CHECK_NOTE, "unset GPU_CORE_UTILIZATION_POLICY",
            "compute limits do not hold: GPU_CORE_UTILIZATION_POLICY=disable");
    else if (fact_is(facts, "yes", "lifted") && !fact_is(facts, "force", "policy"))
        check_add(checks, "policy", NONE, CHECK_NOTE,
            "the monitor puts them in force again; GPU_CORE_UTILIZATION_POLICY=force keeps them",
            "compute limits do not hold: HAMi's monitor has lifted them (utilization_switch is 0)");
    if (fact(facts, "priority"))
        check_add(
            checks, "priority", NONE, CHECK_FINE, NULL, "%s (0 is high)", fact(facts, "priority"));
    if (fact_is(facts, "yes", "paused"))
        check_add(checks, "pause", NONE, CHECK_NOTE, "vgpu resume",
            "the container is paused: its programs wait, and no kernel was tried");
    if (fact_is(facts, "yes", "held"))
        check_add(checks, "pause", NONE, CHECK_NOTE, "HAMi's monitor lets it go on",
            "HAMi's monitor has the container wait; no kernel was tried");
}

/* ---- gate ---- */

static const char *gate_remedy(const char *state)
{
    static const struct {
        const char *state, *remedy;
    } known[] = {{"refused", "use a driver with GSP firmware, and let a sandbox pass on the "
                             "controls FIFO_DISABLE_CHANNELS and GET_TIMESLICE"},
        {"no-group", "use the GPU without MPS; see also the lines 'door'"},
        {"no-gpu", "let the sandbox pass on the resource manager's controls on devices"},
        {"too-slow", "report it with the driver's version"},
        {"failed", "report it with the driver's version"}};
    for (size_t i = 0; state && i < sizeof(known) / sizeof(known[0]); i++) {
        if (!strcmp(known[i].state, state))
            return known[i].remedy;
    }
    return "see the lines above";
}

static void check_gate(struct checks *checks, const struct facts *facts, int ordinal, int i)
{
    static const char lost[] = "launches wait; one kernel that never ends is not stopped";
    const char *state = fact(facts, "device.%d.gate", i);
    const char *words = fact(facts, "device.%d.gate.words", i);
    bool forced = fact_is(facts, "channel", "gate.setting");
    const char *setting = forced ? ", by VGPU_GATE=channel" : "";
    if (!fact_is(facts, "ok", "cuda.%d.context", ordinal))
        check_add(checks, "gate", ordinal, CHECK_NOTE, gate_remedy("untested"),
            "not tried: no context was made");
    else if (fact_is(facts, "launch", "gate.setting"))
        check_add(checks, "gate", ordinal, CHECK_NOTE, "unset VGPU_GATE",
            "VGPU_GATE=launch: %s (the channel gate %s)", lost, words);
    else if (state && !strcmp(state, "works"))
        check_add(checks, "gate", ordinal, CHECK_FINE, NULL,
            "the channel gate works%s: what runs can be taken off the GPU", setting);
    else
        check_add(checks, "gate", ordinal, forced ? CHECK_PROBLEM : CHECK_NOTE, gate_remedy(state),
            "the channel gate %s%s; %s", words ? words : "was not tried", setting, lost);
}

/* ---- registry ---- */

#define REGISTRY_LOST                                                                              \
    "containers that share a GPU do not know of each other: soft limits stay shut, priorities "    \
    "mean nothing, and busy neighbours get less than their shares"
#define REGISTRY_REMEDY                                                                            \
    "make one directory on the node, mode 1777, and mount it there into each container "           \
    "(docs/registry.md)"

/* Whether registries may lie there. */
static bool check_directory(struct checks *checks, const char *directory)
{
    struct stat status;
    const char *named = getenv("VGPU_BOARD_DIR");
    if (!directory || !*directory) {
        check_add(checks, "board", NONE, CHECK_PROBLEM,
            "set VGPU_BOARD_DIR to an absolute path, or not at all",
            "VGPU_BOARD_DIR is not understood; " REGISTRY_LOST);
    } else if (stat(directory, &status) != 0) {
        check_add(checks, "board", NONE, named && *named ? CHECK_PROBLEM : CHECK_NOTE,
            REGISTRY_REMEDY, "%s: %s; " REGISTRY_LOST, directory, strerror(errno));
    } else if (!S_ISDIR(status.st_mode) || access(directory, X_OK) != 0) {
        check_add(checks, "board", NONE, CHECK_PROBLEM, REGISTRY_REMEDY, "%s %s; " REGISTRY_LOST,
            directory, S_ISDIR(status.st_mode) ? "may not be entered" : "is no directory");
    } else {
        bool open = (status.st_mode & (S_IWOTH | S_ISVTX)) == S_IWOTH;
        check_add(checks, "board", NONE, open ? CHECK_NOTE : CHECK_FINE, open ? "chmod 1777" : NULL,
            "%s%s", directory, open ? " lets every user delete what others' containers made" : "");
        return true;
    }
    return false;
}

static void check_tenants(
    struct checks *checks, struct registry *registry, int ordinal, uint64_t own)
{
    struct registry_tenant tenants[VGPU_BOARD_SLOTS];
    unsigned count = registry_tenants(registry, clock_now_ns(), tenants), active = 0, turns = 0;
    const char *holder = "none of them has the turn";
    bool ours = false;
    for (unsigned i = 0; i < count; i++) {
        active += tenants[i].active;
        turns += tenants[i].takes_turns;
        if (tenants[i].has_turn)
            holder = own && tenants[i].said.tenant == own ? "this container has the turn"
                                                          : "another container has the turn";
        ours |= own && tenants[i].said.tenant == own;
    }
    check_add(checks, "board", ordinal, CHECK_FINE, NULL,
        "%u tenant%s, %u at work; no more than 126 can be told apart; %s", count,
        count == 1 ? "" : "s", active,
        ours ? "this container is one of them" : "nothing of this container is on it now");
    if (turns)
        check_add(checks, "board", ordinal, CHECK_NOTE, NULL,
            "%u want%s more of the card's memory than its share%s; %s", turns,
            turns == 1 ? "s" : "", turns == 1 ? "" : " each, and take turns", holder);
}

static void check_registry(struct checks *checks, const struct facts *facts, int ordinal, int i)
{
    static struct registry registry;
    const char *directory = fact(facts, "board.directory");
    const char *uuid = fact(facts, "cuda.%d.uuid", ordinal);
    const char *tenant = i >= 0 ? fact(facts, "device.%d.tenant", i) : NULL;
    int error = registry_open(&registry, directory, uuid);
    if (error == 0) {
        check_tenants(checks, &registry, ordinal, tenant ? strtoull(tenant, NULL, 16) : 0);
        registry_detach(&registry);
    } else if (error == -ENOENT && access(directory, W_OK) == 0) {
        check_add(checks, "board", ordinal, CHECK_FINE, NULL,
            "no container is on it yet: the first makes it");
    } else {
        check_add(checks, "board", ordinal, CHECK_PROBLEM,
            error == -ENOENT ? "chmod 1777 the directory"
                             : "delete the file: the next container makes it anew",
            "%s/" VGPU_BOARD_FILE_PREFIX "%s: %s; " REGISTRY_LOST, directory, uuid,
            error == -EPROTO   ? "no board of this version"
            : error == -ENOENT ? "it cannot be made in this directory"
                               : strerror(-error));
    }
}

/* ---- what the library said ---- */

/* What the library that is preloaded here says may have vgpu-controller's form, too. */
static bool is_error(const char *line)
{
    return strstr(line, "[HAMI-core ERROR ") || strstr(line, "[vGPU ERROR(");
}

/* Others' lines are not sorted out. */
static bool is_worth_noting(const char *line)
{
    static const char *const noted[] = {
        "[HAMI-core Warn(", "[HAMI-core Msg(", "[vGPU WARNING(", "[vGPU INFO("};
    for (size_t i = 0; i < sizeof(noted) / sizeof(noted[0]); i++) {
        if (strstr(line, noted[i]))
            return true;
    }
    return !strstr(line, "[HAMI-core") && !strstr(line, "[vGPU ");
}

static void check_log(struct checks *checks, const struct facts *facts)
{
    const char *line;
    for (unsigned i = 0; (line = fact(facts, "log.%u", i)) != NULL; i++) {
        bool error = is_error(line);
        if (error || is_worth_noting(line))
            check_add(checks, "log", NONE, error ? CHECK_PROBLEM : CHECK_NOTE, NULL, "%s", line);
    }
}

void checks_of_container(struct checks *checks, const struct facts *facts)
{
    bool registries = false;
    checks_of_region(checks, facts);
    check_orders(checks, facts);
    doctor_step("looking at the boards' directory");
    if (fact(facts, "report"))
        registries = check_directory(checks, fact(facts, "board.directory"));
    for (int ordinal = 0; ordinal < (int)fact_number(facts, "cuda.devices"); ordinal++) {
        int i = doctor_reported(facts, ordinal);
        if (!fact(facts, "cuda.%d.uuid", ordinal))
            continue;
        if (i >= 0) {
            check_limits(checks, facts, ordinal, i);
            check_gate(checks, facts, ordinal, i);
        }
        if (registries)
            check_registry(checks, facts, ordinal, i);
    }
    check_log(checks, facts);
}
