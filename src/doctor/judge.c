/* SPDX-License-Identifier: Apache-2.0 */
/* Whether the limits hold in each process of a command, and why not. */
#include "doctor/witnesses.h"

#include "vgpu/region.h"

#include <stdarg.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#define NONE (-1)
#define PIDS 3

/* What was found of processes alike, to be one line. */
struct finding {
    const char *name, *remedy;
    enum check_status status;
    char command[256], text[512];
    unsigned pids[PIDS], count;
};

struct findings {
    struct finding *list; /* from malloc */
    size_t count, room;
};

static struct finding *find_alike(
    const struct findings *findings, const struct witness *witness, const struct finding *like)
{
    for (size_t i = 0; i < findings->count; i++) {
        struct finding *found = &findings->list[i];
        if (!strcmp(found->name, like->name) && found->status == like->status &&
            !strcmp(found->text, like->text) && !strcmp(found->command, witness->command))
            return found;
    }
    return NULL;
}

static void found(struct findings *findings, const struct witness *witness, const char *name,
    enum check_status status, const char *remedy, const char *format, ...)
    __attribute__((format(printf, 6, 7)));

static void found(struct findings *findings, const struct witness *witness, const char *name,
    enum check_status status, const char *remedy, const char *format, ...)
{
    struct finding made = {.name = name, .status = status, .remedy = remedy};
    va_list arguments;
    va_start(arguments, format);
    vsnprintf(made.text, sizeof(made.text), format, arguments);
    va_end(arguments);
    snprintf(made.command, sizeof(made.command), "%s", witness->command);
    struct finding *finding = find_alike(findings, witness, &made);
    if (!finding && findings->list && findings->count < findings->room) {
        finding = &findings->list[findings->count++];
        *finding = made;
    }
    if (!finding)
        return;
    if (finding->count < PIDS)
        finding->pids[finding->count] = witness->pid;
    finding->count++;
}

static void add_findings(struct checks *checks, const struct findings *findings)
{
    for (size_t i = 0; i < findings->count; i++) {
        const struct finding *finding = &findings->list[i];
        char pids[64];
        size_t length = 0;
        for (unsigned p = 0; p < finding->count && p < PIDS; p++)
            length += (size_t)snprintf(pids + length, sizeof(pids) - length, "%s%u",
                p                    ? ", "
                : finding->count > 1 ? "processes "
                                     : "process ",
                finding->pids[p]);
        if (finding->count > PIDS)
            snprintf(pids + length, sizeof(pids) - length, " and %u more", finding->count - PIDS);
        check_add(checks, finding->name, NONE, finding->status, finding->remedy, "%.120s (%s): %s",
            finding->command[0] ? finding->command : "?", pids, finding->text);
    }
}

/* ---- a process without the library ---- */

/* Whether a libvgpu.so is meant to come into the programs that start here. */
static bool preloaded_here(void)
{
    const char *list = getenv("LD_PRELOAD");
    return list && (strstr(list, "libvgpu.so") || strstr(list, "libvgpu-control.so"));
}

static const char *why_absent(const struct watch_image *image, const char **ret_remedy)
{
    *ret_remedy = "write the library's path to /etc/ld.so.preload of the container";
    if (image->is_static) {
        *ret_remedy = "link it dynamically; a static program takes no library";
        return "it is statically linked";
    }
    if (image->secure)
        return "it runs with other rights than its caller (set-user-ID, capabilities): the loader "
               "drops LD_PRELOAD";
    if (image->elsewhere) {
        *ret_remedy = "mount the library and /etc/ld.so.preload there, too";
        return "it is in another mount namespace or under another root, where the library is not";
    }
    if (image->preload_named) {
        *ret_remedy = "see what the loader says on its stderr; the path must be readable to its "
                      "user";
        return image->is_musl ? "musl's loader did not load it, though LD_PRELOAD names it"
                              : "the loader did not load it, though LD_PRELOAD names it";
    }
    if (preloaded_here())
        return "LD_PRELOAD is not in its environment: something on the way dropped it (env -i, "
               "sudo, a service)";
    *ret_remedy = "use vgpu run, or set LD_PRELOAD or /etc/ld.so.preload";
    return "nothing has it loaded: LD_PRELOAD does not name it here";
}

/* True where it used the GPU, or may have. */
static bool judge_stranger(struct findings *findings, const struct witness *witness)
{
    const struct watch_image *image = witness->image;
    const char *remedy, *why = why_absent(image, &remedy);
    if (image->hidden && !image->cuda && !image->device) {
        found(findings, witness, "process", CHECK_NOTE, "run vgpu doctor as root, or as its user",
            "it may not be looked at, and left no report");
        return false;
    }
    if (image->nvml && !image->cuda) {
        found(findings, witness, "process", CHECK_NOTE, remedy,
            "asks NVML without the library, and sees the whole card: %s", why);
        return false;
    }
    found(findings, witness, "process", CHECK_PROBLEM, remedy,
        "uses the GPU%s without the library, so no limit holds: %s",
        image->cuda ? " (libcuda is loaded)" : " (a device is open)", why);
    return true;
}

/* The library is there, and was never called. */
static bool judge_silent(struct findings *findings, const struct witness *witness)
{
    const struct watch_image *image = witness->image;
    if (image->device && !image->nvml) {
        found(findings, witness, "door", CHECK_PROBLEM,
            "report it with what the program is; the GPU is used by other ways than CUDA's calls",
            "has a device of the GPU's open, and no call of it came to the library");
        return true;
    }
    if (image->cuda)
        found(findings, witness, "process", CHECK_FINE, NULL,
            "loaded libcuda under the library, and called nothing of it");
    return false;
}

/* ---- a process with a report ---- */

static bool judge_limits(struct witness *witness)
{
    bool closed = false;
    for (unsigned i = 0; i < VGPU_REGION_DEVICES; i++) {
        closed |= fact_is(witness->facts, "yes", "device.%u.memory.closed", i);
        witness->limited |= closed || fact_number(witness->facts, "device.%u.memory.limit", i) ||
                            fact_number(witness->facts, "device.%u.cores", i);
    }
    return closed;
}

static bool met_device(const struct witness *witness)
{
    bool met = false;
    for (unsigned i = 0; i < VGPU_REGION_DEVICES; i++)
        met |= fact(witness->facts, "device.%u.uuid", i) != NULL;
    return met;
}

/* A compute limit is set that the process need not keep. */
static bool passes_cores(const struct witness *witness)
{
    bool passes = false;
    for (unsigned i = 0; i < VGPU_REGION_DEVICES; i++)
        passes |= fact_number(witness->facts, "device.%u.cores.set", i) &&
                  !fact_number(witness->facts, "device.%u.cores", i);
    return passes;
}

static void judge_ledger(struct findings *findings, const struct witness *witness)
{
    const struct facts *facts = witness->facts;
    if (fact_is(facts, "api", "ledger.used"))
        found(findings, witness, "ledger", CHECK_NOTE,
            "docs/compatibility.md tells what is not counted so",
            "memory is counted by the calls of the API: %s",
            fact_is(facts, "auto", "ledger.setting") ? fact(facts, "ledger.blindness")
                                                     : "VGPU_LEDGER says so");
    else if (fact_is(facts, "rm", "ledger.used") &&
             fact_number(facts, "ledger.driver_bytes") > fact_number(facts, "ledger.bytes"))
        found(findings, witness, "ledger", CHECK_NOTE,
            "report it with the driver's version; the larger figure counts",
            "the driver (NVML) has %llu bytes of it that did not pass the library",
            fact_number(facts, "ledger.driver_bytes") - fact_number(facts, "ledger.bytes"));
}

static void judge_gate(struct findings *findings, const struct witness *witness)
{
    for (unsigned i = 0; i < VGPU_REGION_DEVICES; i++) {
        const char *gate = fact(witness->facts, "device.%u.gate", i);
        if (!gate || !fact_number(witness->facts, "device.%u.cores", i) || !strcmp(gate, "works") ||
            !strcmp(gate, "untested"))
            continue;
        found(findings, witness, "gate", CHECK_NOTE,
            "see the line 'gate' of vgpu doctor without a command",
            "the channel gate %s; launches wait, one kernel that never ends is not stopped",
            fact(witness->facts, "device.%u.gate.words", i));
    }
}

/* Each thing that keeps its limits from being kept. */
static bool judge_obstacles(struct findings *findings, struct witness *witness)
{
    const struct facts *facts = witness->facts;
    bool broken = false;
    if (!fact_is(facts, "yes", "door.symbols") && strstr(fact(facts, "door.used"), "symbols")) {
        found(findings, witness, "door", CHECK_PROBLEM,
            "put libvgpu.so first in LD_PRELOAD or /etc/ld.so.preload",
            "is linked with libcuda, and another library's functions come before ours");
        broken = true;
    }
    if (!fact_is(facts, "yes", "region.attached")) {
        found(findings, witness, "region", CHECK_PROBLEM,
            "see the line 'region' of vgpu doctor without a command",
            "%s cannot be used: %s; what is set does not hold as it should",
            fact(facts, "region.path"), fact(facts, "region.error"));
        broken = true;
    }
    if (passes_cores(witness)) {
        bool disabled = fact_is(facts, "disable", "policy");
        found(findings, witness, "policy", CHECK_PROBLEM,
            disabled ? "unset GPU_CORE_UTILIZATION_POLICY"
                     : "the monitor puts it in force again; GPU_CORE_UTILIZATION_POLICY=force "
                       "keeps it",
            "its compute limit does not hold: %s",
            disabled ? "GPU_CORE_UTILIZATION_POLICY=disable"
                     : "HAMi's monitor has lifted it (utilization_switch is 0)");
        broken = true;
    }
    return broken;
}

static bool is_whole_report(const struct facts *facts)
{
    return fact(facts, "door.used") && fact(facts, "process.calls") && fact(facts, "ledger.used") &&
           fact(facts, "ledger.blindness") && fact(facts, "region.path") &&
           fact(facts, "region.error");
}

static void say_good(struct findings *findings, const struct witness *witness)
{
    const char *ledger = fact(witness->facts, "ledger.used");
    found(findings, witness, "process", CHECK_FINE, NULL,
        "the library is loaded; its calls came by %s; memory is counted by %s",
        fact(witness->facts, "door.used"),
        !strcmp(ledger, "rm")    ? "the driver's own allocations"
        : !strcmp(ledger, "api") ? "the calls of the API"
                                 : "nothing yet: no context was made");
}

enum use { UNUSED, USED, BROKEN };

static enum use judge_reported(struct findings *findings, struct witness *witness)
{
    if (!strstr(fact(witness->facts, "process.calls"), "cuda")) {
        found(findings, witness, "process", CHECK_FINE, NULL,
            "asks NVML alone, under the library: it sees the slice");
        return UNUSED;
    }
    if (!met_device(witness)) {
        found(findings, witness, "process", CHECK_FINE, NULL,
            "asked CUDA under the library, and used no device");
        return UNUSED;
    }
    bool closed = judge_limits(witness);
    bool broken = judge_obstacles(findings, witness);
    judge_ledger(findings, witness);
    judge_gate(findings, witness);
    if (closed)
        found(findings, witness, "limits", CHECK_NOTE,
            "its log on stderr names the variable or the region",
            "a memory limit is not understood or cannot be kept: the device looks full to it");
    if (!broken)
        say_good(findings, witness);
    if (!broken && !witness->limited)
        found(findings, witness, "limits", CHECK_NOTE,
            "vgpu run --memory SIZE --cores PERCENT, or vgpu set; docs/environment.md",
            "no limit is set for the devices that it met");
    return broken ? BROKEN : USED;
}

static enum use judge(struct findings *findings, struct witness *witness)
{
    if (witness->facts && is_whole_report(witness->facts))
        return judge_reported(findings, witness);
    if (!witness->image)
        return UNUSED;
    if (!witness->image->library)
        return judge_stranger(findings, witness) ? BROKEN : UNUSED;
    return judge_silent(findings, witness) ? BROKEN : UNUSED;
}

enum doctor_verdict doctor_judge(struct checks *checks, struct witnesses *witnesses)
{
    struct findings findings = {.room = 4 * witnesses->count + 1};
    bool used = false, broken = false, limited = true;
    findings.list = calloc(findings.room, sizeof(findings.list[0]));
    for (size_t i = 0; findings.list && i < witnesses->count; i++) {
        enum use use = judge(&findings, &witnesses->list[i]);
        used |= use != UNUSED;
        broken |= use == BROKEN;
        limited &= use == UNUSED || witnesses->list[i].limited;
    }
    if (findings.list)
        add_findings(checks, &findings);
    broken |= !findings.list;
    free(findings.list);
    if (broken)
        return VERDICT_BROKEN;
    if (!used)
        return VERDICT_UNUSED;
    return limited ? VERDICT_HOLD : VERDICT_UNLIMITED;
}
