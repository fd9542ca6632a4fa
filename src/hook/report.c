/* SPDX-License-Identifier: Apache-2.0 */
/* The process's state in lines. */
#include "vgpu/report.h"

#include "base/elf.h"
#include "base/process.h"
#include "base/text.h"
#include "hook/hook.h"
#include "hook/report_file.h"
#include "account/account.h"
#include "rm/rm_audit.h"
#include "rm/rm_channels.h"
#include "rm/rm_memory.h"

#include <stdarg.h>
#include <stdio.h>
#include <string.h>

__typeof__(vgpu_report) vgpu_report EXPORT;

struct report {
    char *text;
    size_t bytes, length;
    bool full;
};

static void add(struct report *report, const char *line, size_t length)
{
    report->full = report->full || report->length + length + 1 > report->bytes;
    if (!report->full)
        memcpy(report->text + report->length, line, length + 1);
    report->length += length;
}

static void say(struct report *report, const char *name, const char *format, ...)
    __attribute__((format(printf, 3, 4)));

static void say(struct report *report, const char *name, const char *format, ...)
{
    char value[PATH_MAX], line[PATH_MAX + 128];
    va_list arguments;
    va_start(arguments, format);
    int length = vsnprintf(value, sizeof(value), format, arguments);
    va_end(arguments);
    if (length < 0)
        return;
    length = snprintf(line, sizeof(line), "%s ", name);
    length +=
        (int)text_escape(line + length, sizeof(line) - (size_t)length - 1, value, strlen(value));
    line[length++] = '\n';
    line[length] = '\0';
    add(report, line, (size_t)length);
}

static const char *yes(bool is)
{
    return is ? "yes" : "no";
}

/* dlsym, dlvsym and cuGetProcAddress are seen best by asking them. */
static void say_doors(struct report *report)
{
    bool linked = elf_next_function("cuInit", NULL) == (void *)hook_cuInit;
    say(report, "door.symbols", "%s", yes(linked));
    say(report, "door.ioctl", "%s", yes(rm_memory_door_is_first && rm_memory_door_is_first()));
}

/* The words whose bits are set, or "none". */
static void say_words(
    struct report *report, const char *name, const char *const *words, unsigned count, unsigned set)
{
    char text[64] = "";
    size_t length = 0;
    for (unsigned i = 0; i < count; i++) {
        if (set & 1u << i)
            length += (size_t)snprintf(
                text + length, sizeof(text) - length, "%s%s", length ? " " : "", words[i]);
    }
    say(report, name, "%s", length ? text : "none");
}

/* By what the program came to our functions. */
static void say_use(struct report *report)
{
    static const char *const doors[] = {
        "dlsym", "dlvsym", "procaddress", "ioctl", "symbols", "table"};
    static const char *const calls[] = {"cuda", "nvml"};
    char command[32];
    unsigned used = load_relaxed(&report_doors_used);
    used |= rm_memory_may_see() ? 1u << 3 : 0;
    used |= elf_is_needed("libcuda.so") ? 1u << 4 : 0;
    process_command(command, sizeof(command));
    say(report, "process.command", "%s", command);
    say_words(report, "process.calls", calls, 2, load_relaxed(&report_calls_made));
    say_words(report, "door.used", doors, 6, used);
}

static void say_ledger(struct report *report)
{
    static const char *const settings[] = {"auto", "rm", "api"};
    static const char *const in_use[] = {"undecided", "rm", "api"};
    say(report, "ledger.setting", "%s", settings[container_config()->ledger]);
    say(report, "ledger.used", "%s", in_use[memory_ledger()]);
    const char *blindness = rm_memory_blindness();
    say(report, "ledger.blindness", "%s", blindness ? blindness : "none");
    struct rm_audit audit;
    rm_audit_last(&audit);
    say(report, "ledger.audits", "%llu", (unsigned long long)audit.count);
    say(report, "ledger.differences", "%llu", (unsigned long long)audit.differences);
    say(report, "ledger.bytes", "%llu", (unsigned long long)audit.ledger_bytes);
    say(report, "ledger.driver_bytes", "%llu", (unsigned long long)audit.manager_bytes);
}

static void say_region(struct report *report)
{
    struct container_file file;
    container_file(&file);
    say(report, "region.path", "%s", file.path);
    say(report, "region.attached", "%s", yes(file.error == 0));
    say(report, "region.error", "%s", file.error ? strerror(-file.error) : "none");
    say(report, "region.version", "%u", VGPU_REGION_VERSION);
    say(report, "region.pinned", "%s", yes(file.pinned));
    say(report, "region.slot", "%d", file.slot);
}

static void say_settings(struct report *report)
{
    static const char *const gates[] = {"auto", "launch", "channel"};
    static const char *const policies[] = {"default", "force", "disable"};
    const struct config *config = container_config();
    say(report, "gate.setting", "%s", gates[config->gate]);
    say(report, "policy", "%s", policies[config->core_policy]);
    say(report, "board.directory", "%s", config->registry_directory);
}

static void say_orders(struct report *report, const struct account_control *orders)
{
    say(report, "paused", "%s", yes(orders->paused));
    say(report, "held", "%s", yes(orders->held));
    say(report, "lifted", "%s", yes(orders->lifted));
    say(report, "priority", "%u", orders->priority);
}

static const char *gate_word(enum rm_channels_state state)
{
    static const char *const words[] = {[RM_CHANNELS_UNTESTED] = "untested",
        [RM_CHANNELS_WORKS] = "works",
        [RM_CHANNELS_NO_GROUP] = "no-group",
        [RM_CHANNELS_NO_GPU] = "no-gpu",
        [RM_CHANNELS_REFUSED] = "refused",
        [RM_CHANNELS_TOO_SLOW] = "too-slow",
        [RM_CHANNELS_FAILED] = "failed",
        [RM_CHANNELS_RESTORED] = "restored"};
    return words[state];
}

/* For say(): the name of a line about a device. */
struct device_name {
    char text[48];
};

static struct device_name name_of(unsigned device, const char *name)
{
    struct device_name whole;
    snprintf(whole.text, sizeof(whole.text), "device.%u.%s", device, name);
    return whole;
}

static void say_gate(struct report *report, unsigned device, unsigned flags)
{
    char words[RM_CHANNELS_WORDS];
    if (flags & VGPU_REPORT_TEST_GATE)
        (void)rm_channels_test(device);
    rm_channels_describe(device, words);
    say(report, name_of(device, "gate").text, "%s", gate_word(rm_channels_state(device)));
    say(report, name_of(device, "gate.words").text, "%s", words);
    say(report, name_of(device, "channels").text, "%u", rm_channels_count(device));
}

static void say_device(
    struct report *report, unsigned device, const struct account_control *orders, unsigned flags)
{
    char uuid[ACCOUNT_UUID_BYTES];
    struct account_view view;
    if (!account_uuid(device, uuid))
        return;
    account_view(device, &view);
    say(report, name_of(device, "uuid").text, "%s", uuid);
    say(report, name_of(device, "memory.closed").text, "%s", yes(view.closed));
    say(report, name_of(device, "memory.limit").text, "%llu", (unsigned long long)view.limit_bytes);
    say(report, name_of(device, "memory.used").text, "%llu", (unsigned long long)view.used_bytes);
    say(report, name_of(device, "cores").text, "%u", orders->percent[device]);
    say(report, name_of(device, "cores.soft").text, "%u", orders->soft[device]);
    say(report, name_of(device, "cores.set").text, "%u", orders->set[device]);
    say(report, name_of(device, "tenant").text, "%016llx",
        (unsigned long long)account_tenant(device));
    say_gate(report, device, flags);
}

int vgpu_report(char *text, size_t bytes, unsigned flags)
{
    struct report report = {.text = text, .bytes = bytes};
    struct account_control orders;
    if (bytes)
        *text = '\0';
    container_enter();
    (void)account_control(&orders);
    say(&report, "report", "%u", VGPU_REPORT_VERSION);
    say(&report, "version", "%s", VGPU_VERSION);
    say_doors(&report);
    say_use(&report);
    say_ledger(&report);
    say_region(&report);
    say_settings(&report);
    say_orders(&report, &orders);
    for (unsigned device = 0; device < VGPU_REGION_DEVICES; device++)
        say_device(&report, device, &orders, flags);
    return (int)report.length;
}
