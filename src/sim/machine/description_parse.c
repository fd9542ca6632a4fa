/* SPDX-License-Identifier: Apache-2.0 */
/* Parser of the description of a pretend machine: one table of words, one function a word with a
 * value. */
#include "sim/machine/description.h"

#include "sim/machine/description_models.h"
#include "sim/machine/description_read.h"
#include "sim/machine/mig.h"

#include <ctype.h>
#include <errno.h>
#include <stdarg.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#define GIB (1024ull * 1024 * 1024)
#define MIB (1024ull * 1024)

static const char accepted[] =
    "h200, a100, NxMODEL, devices=N, memory=SIZE, sms=N, mig=[CARD:]PROFILE+..., driver=A.B.C, "
    "cuda=NNNNN, context=SIZE, "
    "unlisted=SIZE, machine=FILE, no-rm, "
    "driver=440|470|535|580|future, rm-memory=alloc|alloc-memory|vid-heap, memory-class=N, "
    "vmm-class=N, xfer, long-params, long-calls, new-objects, sandbox[=ERRNO], filter[=ERRNO], "
    "mps, no-gsp, failed-work, checkpoint, "
    "vgpu-guest, nvos21, no-procaddress, no-async, no-vmm, other-pointers, "
    "nvml-pid=own|none|host|INNER:OUTER, "
    "accounting, video, confidential, "
    "rm-status=STATUS@CLASS_OR_CMD|free|dup[:NTH], rm-status=STATUS@#NTH, "
    "fail=FUNCTION[:NTH[:CODE]], fail=cu#NTH[:CODE], fail=nvml#NTH[:CODE]";

#define FUTURE_VMM_CLASS 0xD041u

struct parse {
    struct sim_description description;
    struct sim_mig mig;
    uint32_t devices_wanted; /* devices=N, or 0 */
    uint64_t memory_bytes;   /* memory=, or 0 */
    uint32_t multiprocessors;
    const struct sim_profile *profile; /* driver= by a short name, or NULL */
    bool form_given;                   /* rm-memory= */
    char *error;
    size_t error_size;
};

__attribute__((format(printf, 2, 3))) static int parse_fail(
    struct parse *parse, const char *format, ...)
{
    va_list arguments;
    va_start(arguments, format);
    if (parse->error_size > 0)
        vsnprintf(parse->error, parse->error_size, format, arguments);
    va_end(arguments);
    return -EINVAL;
}

static int fail_value(struct parse *parse, const char *word, const char *expected)
{
    return parse_fail(parse, "VGPU_SIM: \"%s\": expected %s", word, expected);
}

static int set_devices(struct parse *parse, const char *word, const char *value)
{
    if (!sim_read_number(value, 1, SIM_DEVICES_MAX, &parse->devices_wanted))
        return fail_value(parse, word, "a number of devices from 1 to 16");
    parse->description.shape_given = true;
    return 0;
}

static int set_memory(struct parse *parse, const char *word, const char *value)
{
    if (!sim_read_size(value, &parse->memory_bytes) || parse->memory_bytes < 64 * MIB)
        return fail_value(parse, word, "a size of at least 64MiB, such as 80GiB");
    parse->description.shape_given = true;
    return 0;
}

static int set_unlisted(struct parse *parse, const char *word, const char *value)
{
    if (!sim_read_size(value, &parse->description.unlisted_bytes))
        return fail_value(parse, word, "a size, such as 9MiB");
    return 0;
}

static int set_multiprocessors(struct parse *parse, const char *word, const char *value)
{
    if (!sim_read_number(value, 1, 1024, &parse->multiprocessors))
        return fail_value(parse, word, "a number of multiprocessors from 1 to 1024");
    parse->description.shape_given = true;
    return 0;
}

static int set_mig(struct parse *parse, const char *word, const char *value)
{
    if (!sim_mig_parse(&parse->mig, value))
        return fail_value(parse, word, SIM_MIG_EXPECTED);
    parse->description.shape_given = true;
    return 0;
}

static int set_driver(struct parse *parse, const char *word, const char *value)
{
    size_t length = strlen(value);
    parse->profile = sim_profile_find(value);
    if (parse->profile) {
        value = parse->profile->version;
        length = strlen(value);
    }
    if (!isdigit((unsigned char)value[0]) || strspn(value, "0123456789.") != length ||
        length >= sizeof parse->description.driver_version)
        return fail_value(parse, word, "a driver version such as 470.82.01");
    memcpy(parse->description.driver_version, value, length + 1);
    parse->description.shape_given = true;
    return 0;
}

static int set_cuda(struct parse *parse, const char *word, const char *value)
{
    if (!sim_read_number(value, 9000, 99990, &parse->description.cuda_version))
        return fail_value(parse, word, "a CUDA version such as 11040");
    parse->description.shape_given = true;
    return 0;
}

static int set_context(struct parse *parse, const char *word, const char *value)
{
    if (!sim_read_size(value, &parse->description.context_bytes))
        return fail_value(parse, word, "a size such as 518MiB");
    return 0;
}

static int set_machine(struct parse *parse, const char *word, const char *value)
{
    size_t length = strlen(value);
    if (length == 0 || length >= sizeof parse->description.machine_path)
        return fail_value(parse, word, "the path of a file");
    memcpy(parse->description.machine_path, value, length + 1);
    return 0;
}

static int set_memory_form(struct parse *parse, const char *word, const char *value)
{
    enum sim_rm_form *form = &parse->description.memory_form;
    parse->form_given = true;
    if (strcmp(value, "alloc") == 0)
        *form = SIM_RM_FORM_ALLOC;
    else if (strcmp(value, "alloc-memory") == 0)
        *form = SIM_RM_FORM_ALLOC_MEMORY;
    else if (strcmp(value, "vid-heap") == 0)
        *form = SIM_RM_FORM_VID_HEAP;
    else
        return fail_value(parse, word, "alloc, alloc-memory or vid-heap");
    return 0;
}

static int set_memory_class(struct parse *parse, const char *word, const char *value)
{
    if (!sim_read_number(value, 1, UINT32_MAX, &parse->description.memory_class))
        return fail_value(parse, word, "the number of a class, such as 0xd040");
    return 0;
}

static int set_vmm_class(struct parse *parse, const char *word, const char *value)
{
    if (!sim_read_number(value, 1, UINT32_MAX, &parse->description.vmm_class))
        return fail_value(parse, word, "the number of a class, such as 0xd041");
    return 0;
}

static int read_errno(struct parse *parse, const char *word, const char *value, int *ret_errno)
{
    static const struct {
        const char *name;
        int number;
    } known[] = {{"EPERM", EPERM}, {"EINVAL", EINVAL}, {"ENOSYS", ENOSYS}, {"EACCES", EACCES}};
    for (size_t i = 0; i < sizeof known / sizeof known[0]; i++) {
        if (strcmp(value, known[i].name) == 0) {
            *ret_errno = known[i].number;
            return 0;
        }
    }
    return fail_value(parse, word, "EPERM, EINVAL, ENOSYS or EACCES");
}

static int set_sandbox(struct parse *parse, const char *word, const char *value)
{
    parse->description.no_rm = true;
    return read_errno(parse, word, value, &parse->description.sandbox_errno);
}

static int set_filter(struct parse *parse, const char *word, const char *value)
{
    return read_errno(parse, word, value, &parse->description.filter_errno);
}

static int set_nvml_pid(struct parse *parse, const char *word, const char *value)
{
    if (strcmp(value, "own") == 0)
        parse->description.nvml_pid = SIM_NVML_PID_OWN;
    else if (strcmp(value, "none") == 0)
        parse->description.nvml_pid = SIM_NVML_PID_NONE;
    else if (strcmp(value, "host") == 0)
        parse->description.nvml_pid = SIM_NVML_PID_HOST;
    else if (!sim_read_pid_pair(
                 value, &parse->description.nvml_pid_inner, &parse->description.nvml_pid_outer))
        return fail_value(parse, word, "own, none, host or INNER:OUTER");
    return 0;
}

static int add_rule(struct parse *parse, const char *word, const struct sim_rule *rule)
{
    struct sim_description *description = &parse->description;
    if (description->rule_count == SIM_RULES_MAX)
        return fail_value(parse, word, "at most 32 rules");
    description->rules[description->rule_count++] = *rule;
    return 0;
}

/* Cuts text at the first separator and returns what follows it, or NULL. */
static char *cut(char *text, char separator)
{
    char *at = strchr(text, separator);
    if (at == NULL)
        return NULL;
    *at = '\0';
    return at + 1;
}

static int set_rm_status(struct parse *parse, const char *word, const char *value)
{
    static const char expected[] =
        "STATUS@CLASS_OR_CMD[:NTH], such as 0x51@0x40:3, or STATUS@free, STATUS@dup, STATUS@#NTH";
    char text[128];
    struct sim_rule rule = {.kind = SIM_RULE_RM_NUMBER, .has_code = true};
    if (snprintf(text, sizeof text, "%s", value) >= (int)sizeof text)
        return fail_value(parse, word, expected);
    char *target = cut(text, '@');
    if (target == NULL || !sim_read_number(text, 1, UINT32_MAX, &rule.code))
        return fail_value(parse, word, expected);
    bool any = target[0] == '#';
    char *nth = any ? target + 1 : cut(target, ':');
    if (nth != NULL && !sim_read_number(nth, 1, UINT32_MAX, &rule.nth))
        return fail_value(parse, word, expected);
    if (any)
        rule.kind = SIM_RULE_RM;
    else if (strcmp(target, "free") == 0)
        rule.kind = SIM_RULE_RM_FREE;
    else if (strcmp(target, "dup") == 0)
        rule.kind = SIM_RULE_RM_DUP;
    else if (!sim_read_number(target, 0, UINT32_MAX, &rule.number))
        return fail_value(parse, word, expected);
    return add_rule(parse, word, &rule);
}

static int set_fail(struct parse *parse, const char *word, const char *value)
{
    static const char expected[] =
        "FUNCTION[:NTH[:CODE]], such as cuMemAlloc_v2:3:2, or cu#NTH[:CODE], nvml#NTH[:CODE]";
    char text[128];
    struct sim_rule rule = {0};
    if (snprintf(text, sizeof text, "%s", value) >= (int)sizeof text)
        return fail_value(parse, word, expected);
    char *nth = cut(text, '#');
    bool any = nth != NULL;
    if (any && strcmp(text, "cu") != 0 && strcmp(text, "nvml") != 0)
        return fail_value(parse, word, expected);
    if (!any)
        nth = cut(text, ':');
    char *code = nth == NULL ? NULL : cut(nth, ':');
    size_t length = strlen(text);
    if (length >= sizeof rule.function ||
        (strncmp(text, "cu", 2) != 0 && strncmp(text, "nvml", 4) != 0))
        return fail_value(parse, word, expected);
    memcpy(rule.function, text, length + 1);
    rule.kind = any ? SIM_RULE_API : SIM_RULE_FUNCTION;
    if (nth != NULL && !sim_read_number(nth, any, UINT32_MAX, &rule.nth))
        return fail_value(parse, word, expected);
    if (code != NULL && !sim_read_number(code, 1, UINT32_MAX, &rule.code))
        return fail_value(parse, word, expected);
    rule.has_code = code != NULL;
    return add_rule(parse, word, &rule);
}

static const struct {
    const char *name;
    int (*set)(struct parse *parse, const char *word, const char *value);
} settings[] = {
    {"devices", set_devices},
    {"memory", set_memory},
    {"sms", set_multiprocessors},
    {"mig", set_mig},
    {"driver", set_driver},
    {"cuda", set_cuda},
    {"context", set_context},
    {"unlisted", set_unlisted},
    {"machine", set_machine},
    {"rm-memory", set_memory_form},
    {"memory-class", set_memory_class},
    {"vmm-class", set_vmm_class},
    {"sandbox", set_sandbox},
    {"filter", set_filter},
    {"nvml-pid", set_nvml_pid},
    {"rm-status", set_rm_status},
    {"fail", set_fail},
};

static const struct {
    const char *name;
    size_t offset;
} behaviours[] = {
    {"no-rm", offsetof(struct sim_description, no_rm)},
    {"nvos21", offsetof(struct sim_description, nvos21)},
    {"xfer", offsetof(struct sim_description, xfer)},
    {"long-params", offsetof(struct sim_description, long_params)},
    {"long-calls", offsetof(struct sim_description, long_calls)},
    {"new-objects", offsetof(struct sim_description, new_objects)},
    {"mps", offsetof(struct sim_description, mps)},
    {"no-gsp", offsetof(struct sim_description, no_gsp)},
    {"vgpu-guest", offsetof(struct sim_description, vgpu_guest)},
    {"checkpoint", offsetof(struct sim_description, checkpoint)},
    {"failed-work", offsetof(struct sim_description, failed_work)},
    {"no-procaddress", offsetof(struct sim_description, no_procaddress)},
    {"no-async", offsetof(struct sim_description, no_async)},
    {"no-vmm", offsetof(struct sim_description, no_vmm)},
    {"other-pointers", offsetof(struct sim_description, other_pointers)},
    {"accounting", offsetof(struct sim_description, accounting)},
    {"video", offsetof(struct sim_description, video)},
    {"confidential", offsetof(struct sim_description, confidential)},
};

/* [N x] MODEL, where x may be the multiplication sign. *ret_known tells whether the word was one.
 */
static int parse_model(struct parse *parse, const char *word, bool *ret_known)
{
    struct sim_description *description = &parse->description;
    const char *name = word;
    unsigned long count = 1;
    if (isdigit((unsigned char)word[0])) {
        char *end;
        count = strtoul(word, &end, 10);
        if (*end == 'x')
            name = end + 1;
        else if (strncmp(end, "\xC3\x97", 2) == 0)
            name = end + 2;
    }
    const struct sim_model *model = sim_model_find(name);
    *ret_known = model != NULL;
    if (model == NULL)
        return 0;
    if (count < 1 || count > SIM_DEVICES_MAX - description->device_count)
        return fail_value(parse, word, "1 to 16 devices in all");
    for (unsigned long device = 0; device < count; device++)
        description->devices[description->device_count++] = *model;
    description->shape_given = true;
    return 0;
}

static int parse_word(struct parse *parse, const char *word)
{
    for (size_t i = 0; i < sizeof settings / sizeof settings[0]; i++) {
        size_t length = strlen(settings[i].name);
        if (strncmp(word, settings[i].name, length) == 0 && word[length] == '=')
            return settings[i].set(parse, word, word + length + 1);
    }
    for (size_t i = 0; i < sizeof behaviours / sizeof behaviours[0]; i++) {
        if (strcmp(word, behaviours[i].name) == 0) {
            *(bool *)((char *)&parse->description + behaviours[i].offset) = true;
            return 0;
        }
    }
    if (strcmp(word, "sandbox") == 0)
        return set_sandbox(parse, word, "EPERM");
    if (strcmp(word, "filter") == 0)
        return set_filter(parse, word, "EINVAL");
    bool known = false;
    int error = parse_model(parse, word, &known);
    if (error == 0 && !known)
        error = parse_fail(
            parse, "VGPU_SIM: \"%s\" is not understood; accepted are: %s", word, accepted);
    return error;
}

/* Words that hold for all devices apply whatever their place in the text. */
static int apply_to_devices(struct parse *parse)
{
    struct sim_description *description = &parse->description;
    if (description->device_count == 0)
        description->devices[description->device_count++] = *sim_model_find("h200");
    if (parse->devices_wanted > 0) {
        struct sim_model last = description->devices[description->device_count - 1];
        for (uint32_t i = description->device_count; i < parse->devices_wanted; i++)
            description->devices[i] = last;
        description->device_count = parse->devices_wanted;
    }
    for (uint32_t i = 0; i < description->device_count; i++) {
        struct sim_model *model = &description->devices[i];
        if (parse->memory_bytes > 0) {
            model->memory_bytes = parse->memory_bytes;
            if (model->reserved_bytes > model->memory_bytes / 64)
                model->reserved_bytes = model->memory_bytes / 64 / MIB * MIB;
        }
        if (parse->multiprocessors > 0)
            model->multiprocessors = parse->multiprocessors;
    }
    if (!sim_mig_apply(&parse->mig, description))
        return fail_value(parse, "mig", SIM_MIG_EXPECTED);
    return 0;
}

/* What the profile says of words that were not given, whatever its place in the text. */
static void apply_profile(struct parse *parse)
{
    struct sim_description *description = &parse->description;
    const struct sim_profile *profile = parse->profile ? parse->profile : sim_profile_find("580");
    if (description->cuda_version == 0)
        description->cuda_version = profile->cuda_version;
    if (!parse->form_given)
        description->memory_form = profile->memory_form;
    description->nvos21 |= profile->nvos21;
    description->no_gsp |= profile->no_gsp;
    if (!profile->is_future)
        return;
    description->long_params = true;
    description->new_objects = true;
    if (description->vmm_class == 0)
        description->vmm_class = FUTURE_VMM_CLASS;
}

int sim_description_parse(
    const char *text, struct sim_description *ret_description, char *error, size_t error_size)
{
    struct parse parse = {.error = error, .error_size = error_size};
    parse.description.context_bytes = 518 * MIB; /* 518 to 522 seen on H200, driver 580.159.04 */
    memcpy(parse.description.driver_version, "580.159.04", sizeof "580.159.04");

    for (const char *at = text == NULL ? "" : text; *at != '\0';) {
        size_t length = strcspn(at, ",");
        const char *first = at;
        size_t kept = length;
        at += length + (at[length] == ',');
        while (kept > 0 && isspace((unsigned char)*first))
            first++, kept--;
        while (kept > 0 && isspace((unsigned char)first[kept - 1]))
            kept--;
        char word[640];
        if (kept == 0)
            continue;
        if (kept >= sizeof word)
            return parse_fail(&parse, "VGPU_SIM: \"%.40s...\" is too long", first);
        memcpy(word, first, kept);
        word[kept] = '\0';
        int result = parse_word(&parse, word);
        if (result != 0)
            return result;
    }
    apply_profile(&parse);
    int result = apply_to_devices(&parse);
    if (result == 0)
        *ret_description = parse.description;
    return result;
}
