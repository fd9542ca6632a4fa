/* SPDX-License-Identifier: Apache-2.0 */
/* vgpu region's words, for people and for programs. */
#include "tool/region.h"

#include "base/text.h"
#include "region/region_history.h"
#include "region/region_identity.h"
#include "region/slot.h"
#include "host/json_write.h"
#include "host/size.h"

#include <inttypes.h>
#include <limits.h>
#include <stdio.h>
#include <string.h>

#define SECOND_NS 1000000000ull

static unsigned device_count(const struct region_copy *copy)
{
    uint32_t count = copy->map.region.device_count;
    return count < VGPU_REGION_DEVICES ? count : VGPU_REGION_DEVICES;
}

/* Copies of texts that may lack their end. */
struct text64 {
    char text[65];
};

static struct text64 terminated(const char *text, size_t bytes)
{
    struct text64 copy = {""};
    memcpy(copy.text, text, strnlen(text, bytes < 64 ? bytes : 64));
    return copy;
}

/* Percent; below 0 where it cannot be told. */
static double share(const struct region_copy *copy, unsigned device, uint64_t span_ns)
{
    uint64_t busy, known;
    if (!region_history_share(&copy->map.region.history[device],
            copy->map.region.compute[device].busy_ns, copy->read_ns, span_ns, &busy, &known))
        return -1;
    return 100.0 * (double)busy / (double)known;
}

/* ---- for people ---- */

static void print_text(const char *name, const char *text)
{
    char clean[4 * 256];
    text_escape(clean, sizeof(clean), text, strlen(text));
    if (*text)
        printf("  %-16s %s\n", name, clean);
}

static void print_head(const char *path, const struct region_copy *copy)
{
    const struct vgpu_region *region = &copy->map.region;
    char clean[PATH_MAX];
    text_escape(clean, sizeof(clean), path, strlen(path));
    printf("region %s\n", clean);
    printf("  %-16s %u, %llu bytes, owner %u\n", "version", region->version,
        (unsigned long long)copy->status.st_size, (unsigned)copy->status.st_uid);
    printf("  %-16s %u of %u; slots up to %u of %u\n", "devices", region->device_count,
        VGPU_REGION_DEVICES, region->slot_high, VGPU_REGION_SLOTS);
    printf("  %-16s memory %s, cores %u %%, soft %u %%, set while programs ran: %u\n", "defaults",
        region->default_memory_limit ? size_text(region->default_memory_limit).text : "no limit",
        region->default_core_limit, region->default_core_soft_limit, region->defaults_set);
    printf("  %-16s epoch %u, paused %u, release %u.%u, priority %u (given by %u)\n", "orders",
        region->orders_epoch, region->paused, region->release / 4, region->release & 3,
        region->priority, region->priority_set);
    printf("  %-16s closed at %" PRIu64 " ns, until %" PRIu64 " ns; coupled at %" PRIu64 " ns\n",
        "window", region->window_closed_ns, region->window_until_ns, region->coupled_ns);
    printf("  %-16s utilization_switch %d, recent_kernel %d, priority %d, proc_num %d, "
           "last_kernel_time %" PRIu64 "\n",
        "HAMi's words", copy->map.hami.utilization_switch, copy->map.hami.recent_kernel,
        copy->map.hami.priority, copy->map.hami.proc_num, copy->map.hami.last_kernel_time);
}

static void print_identity(const struct region_copy *copy)
{
    struct region_identity identity;
    if (!region_identity_read(&copy->map.region.identity, &identity))
        return;
    print_text("pod", identity.pod_name);
    print_text("namespace", identity.pod_namespace);
    print_text("pod's uid", identity.pod_uid);
    print_text("container", identity.container_name);
}

static void print_share(const char *name, double percent)
{
    if (percent < 0)
        printf(", %s unknown", name);
    else
        printf(", %s %.1f %%", name, percent);
}

static void print_device(const struct region_copy *copy, unsigned number)
{
    const struct vgpu_device *device = &copy->map.region.devices[number];
    const struct vgpu_compute *compute = &copy->map.region.compute[number];
    struct text64 uuid = terminated(device->uuid, sizeof(device->uuid));
    char clean[4 * sizeof(uuid.text)];
    text_escape(clean, sizeof(clean), uuid.text, strlen(uuid.text));
    printf("device %u %s\n", number, clean);
    printf("  %-16s %s%s; orphaned %s, refused %" PRIu64 " times\n", "memory",
        device->memory_limit ? size_text(device->memory_limit).text : "no limit",
        device->memory_closed ? ", closed: its limit was not understood" : "",
        size_text(device->orphaned).text, device->refusals);
    printf("  %-16s limit %u %%, soft %u %%, tenant %016" PRIx64 "\n", "cores", device->core_limit,
        device->core_soft_limit, device->tenant);
    printf("  %-16s %" PRIu64 " ns busy, %" PRIu64 " ns waited, %" PRId64 " ns to spend",
        "GPU time", compute->busy_ns, compute->waited_ns,
        (int64_t)(compute->granted_ns - compute->charged_ns));
    print_share("last second", share(copy, number, SECOND_NS));
    print_share("last minute", share(copy, number, 60 * SECOND_NS));
    printf("\n  %-16s %" PRIu64 " marks made\n", "history", copy->map.region.history[number].made);
}

static void print_usage(unsigned device, const struct vgpu_usage *usage)
{
    static const char *const gates[] = {"none", "launch", "channel"};
    printf("  device %-9u %s (pending %s): context %s, module %s, buffer %s, managed %s, "
           "unexplained %s, spilled %s; exported %s, lingering %s, imported %s; gate %s\n",
        device, size_text(usage->bytes).text, size_text(usage->pending).text,
        size_text(usage->context).text, size_text(usage->module).text,
        size_text(usage->buffer).text, size_text(usage->managed).text,
        size_text(usage->unexplained).text, size_text(usage->spilled).text,
        size_text(usage->exported).text, size_text(usage->lingering).text,
        size_text(usage->imported).text,
        usage->gate <= VGPU_GATE_CHANNEL ? gates[usage->gate] : "unsound");
}

static void print_slot(const struct region_copy *copy, unsigned number)
{
    const struct vgpu_slot *slot = &copy->map.region.slots[number];
    struct text64 command = terminated(slot->command, sizeof(slot->command));
    char clean[4 * sizeof(command.text)];
    text_escape(clean, sizeof(clean), command.text, strlen(command.text));
    printf("slot %u %s, process %d of PID namespace %" PRIu64 ", generation %u\n", number,
        region_life_word(copy->life[number]), slot_word_pid(slot->state), slot->pid_namespace,
        (unsigned)(slot->state >> 32));
    if (copy->life[number] == SLOT_IS_CLAIMED || copy->life[number] == SLOT_IS_ABANDONED)
        return; /* the rest is not there yet */
    print_text("command", clean);
    printf("  %-16s %s\n", "ledger",
        slot->ledger == 1   ? "rm"
        : slot->ledger == 2 ? "api"
                            : "not chosen");
    for (unsigned d = 0; d < device_count(copy); d++)
        print_usage(d, &slot->usage[d]);
}

void region_print(const char *path, const struct region_copy *copy)
{
    print_head(path, copy);
    print_identity(copy);
    for (unsigned d = 0; d < device_count(copy); d++)
        print_device(copy, d);
    for (unsigned i = 0; i < VGPU_REGION_SLOTS; i++) {
        if (copy->life[i] != SLOT_IS_FREE)
            print_slot(copy, i);
    }
}

void region_print_findings(const struct findings *findings, bool repaired)
{
    for (size_t i = 0; i < findings->count; i++) {
        const struct finding *finding = &findings->list[i];
        const char *rest = repaired ? finding->outcome : finding->advice;
        const char *mendable = repaired ? "mended" : "'vgpu region --repair' mends it";
        printf("%s: %s; %s%s\n", finding->where, finding->text, repaired && rest ? "left: " : "",
            rest ? rest : mendable);
    }
    if (findings->more)
        printf("and %zu more\n", findings->more);
    if (!region_faults(findings, repaired))
        puts(repaired && findings->count ? "all mended" : "sound");
}

/* ---- for programs ---- */

static void write_devices(struct json *json, const struct region_copy *copy)
{
    json_write_begin_array(json, "devices");
    for (unsigned d = 0; d < device_count(copy); d++) {
        const struct vgpu_device *device = &copy->map.region.devices[d];
        const struct vgpu_compute *compute = &copy->map.region.compute[d];
        json_write_begin_object(json, NULL);
        json_write_number(json, "device", d);
        json_write_string(json, "uuid", terminated(device->uuid, sizeof(device->uuid)).text);
        json_write_number(json, "memory_limit", device->memory_limit);
        json_write_bool(json, "memory_closed", device->memory_closed != 0);
        json_write_number(json, "orphaned", device->orphaned);
        json_write_number(json, "refusals", device->refusals);
        json_write_number(json, "core_limit", device->core_limit);
        json_write_number(json, "core_soft_limit", device->core_soft_limit);
        json_write_number(json, "granted_ns", compute->granted_ns);
        json_write_number(json, "charged_ns", compute->charged_ns);
        json_write_number(json, "refilled_ns", compute->refilled_ns);
        json_write_number(json, "busy_ns", compute->busy_ns);
        json_write_number(json, "waited_ns", compute->waited_ns);
        json_write_number(json, "parts_ns", compute->parts_ns);
        json_write_number(json, "history_marks", copy->map.region.history[d].made);
        json_write_end_inner(json);
    }
    json_write_end_inner(json);
}

static void write_usage(struct json *json, unsigned device, const struct vgpu_usage *usage)
{
    const struct {
        const char *name;
        uint64_t value;
    } words[] = {{"device", device}, {"bytes", usage->bytes}, {"pending", usage->pending},
        {"lingering", usage->lingering}, {"imported", usage->imported}, {"context", usage->context},
        {"module", usage->module}, {"buffer", usage->buffer}, {"managed", usage->managed},
        {"unexplained", usage->unexplained}, {"gpu_time_ns", usage->gpu_time_ns},
        {"exported", usage->exported}, {"spilled", usage->spilled}, {"asked_ns", usage->asked_ns},
        {"gate", usage->gate}};
    json_write_begin_object(json, NULL);
    for (size_t i = 0; i < sizeof(words) / sizeof(words[0]); i++)
        json_write_number(json, words[i].name, words[i].value);
    json_write_end_inner(json);
}

static void write_slots(struct json *json, const struct region_copy *copy)
{
    json_write_begin_array(json, "slots");
    for (unsigned i = 0; i < VGPU_REGION_SLOTS; i++) {
        const struct vgpu_slot *slot = &copy->map.region.slots[i];
        bool whole = copy->life[i] == SLOT_LIVES || copy->life[i] == SLOT_IS_DEAD;
        if (copy->life[i] == SLOT_IS_FREE)
            continue;
        json_write_begin_object(json, NULL);
        json_write_number(json, "slot", i);
        json_write_string(json, "state", region_life_word(copy->life[i]));
        json_write_signed(json, "pid", slot_word_pid(slot->state));
        json_write_number(json, "generation", slot->state >> 32);
        if (whole) {
            json_write_number(json, "start_time", slot->start_time);
            json_write_number(json, "pid_namespace", slot->pid_namespace);
            json_write_string(
                json, "command", terminated(slot->command, sizeof(slot->command)).text);
            json_write_number(json, "ledger", slot->ledger);
            json_write_begin_array(json, "usage");
            for (unsigned d = 0; d < device_count(copy); d++)
                write_usage(json, d, &slot->usage[d]);
            json_write_end_inner(json);
        }
        json_write_end_inner(json);
    }
    json_write_end_inner(json);
}

static void write_head(struct json *json, const struct vgpu_region *region)
{
    const struct {
        const char *name;
        uint64_t value;
    } words[] = {{"version", region->version}, {"device_count", region->device_count},
        {"slot_high", region->slot_high}, {"settings_hash", region->settings_hash},
        {"default_memory_limit", region->default_memory_limit},
        {"default_core_limit", region->default_core_limit},
        {"default_core_soft_limit", region->default_core_soft_limit},
        {"defaults_set", region->defaults_set}, {"orders_epoch", region->orders_epoch},
        {"paused", region->paused}, {"release", region->release}, {"priority", region->priority},
        {"priority_set", region->priority_set}, {"window_closed_ns", region->window_closed_ns},
        {"window_until_ns", region->window_until_ns}, {"coupled_ns", region->coupled_ns},
        {"ready_asked_ns", region->ready_asked_ns}};
    json_write_begin_object(json, "head");
    for (size_t i = 0; i < sizeof(words) / sizeof(words[0]); i++)
        json_write_number(json, words[i].name, words[i].value);
    json_write_end_inner(json);
}

static void write_rest(struct json *json, const struct region_copy *copy)
{
    struct region_identity identity;
    json_write_begin_object(json, "hami");
    json_write_signed(json, "utilization_switch", copy->map.hami.utilization_switch);
    json_write_signed(json, "recent_kernel", copy->map.hami.recent_kernel);
    json_write_signed(json, "priority", copy->map.hami.priority);
    json_write_signed(json, "proc_num", copy->map.hami.proc_num);
    json_write_number(json, "last_kernel_time", copy->map.hami.last_kernel_time);
    json_write_end_inner(json);
    if (!region_identity_read(&copy->map.region.identity, &identity)) {
        json_write_null(json, "identity");
        return;
    }
    json_write_begin_object(json, "identity");
    json_write_string(json, "pod", identity.pod_name);
    json_write_string(json, "namespace", identity.pod_namespace);
    json_write_string(json, "pod_uid", identity.pod_uid);
    json_write_string(json, "container", identity.container_name);
    json_write_end_inner(json);
}

static void write_findings(struct json *json, const struct findings *findings, bool repaired)
{
    json_write_bool(json, "sound", !region_faults(findings, repaired));
    json_write_number(json, "more", findings->more);
    json_write_begin_array(json, "findings");
    for (size_t i = 0; i < findings->count; i++) {
        const struct finding *finding = &findings->list[i];
        json_write_begin_object(json, NULL);
        json_write_string(json, "where", finding->where);
        json_write_string(json, "text", finding->text);
        json_write_bool(json, "usual", finding->usual);
        json_write_bool(json, "mendable", finding->fix != FIX_NONE);
        if (repaired)
            json_write_bool(json, "mended", !finding->outcome);
        json_write_string(json, "advice", repaired ? finding->outcome : finding->advice);
        json_write_end_inner(json);
    }
    json_write_end_inner(json);
}

void region_print_json(const char *path, const struct region_copy *copy,
    const struct findings *findings, bool repaired)
{
    struct json json;
    json_write_begin(&json, stdout);
    json_write_number(&json, "region", 1);
    json_write_string(&json, "file", path);
    json_write_number(&json, "file_bytes", (unsigned long long)copy->status.st_size);
    json_write_number(&json, "owner", copy->status.st_uid);
    if (findings) {
        write_findings(&json, findings, repaired);
    } else {
        write_head(&json, &copy->map.region);
        write_devices(&json, copy);
        write_slots(&json, copy);
        write_rest(&json, copy);
    }
    json_write_end(&json);
}
