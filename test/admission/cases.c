/* SPDX-License-Identifier: Apache-2.0 */
/* admission-cases DIRECTORY...: runs the behaviour cases of the kind "webhook" of all *.json there,
 * a file being a case or a list of cases. One TAP point a case; other kinds are counted and left
 * out. Beside what a case expects, each answer must be well-formed, and the patched object must be
 * taken without a further change: the API server may call a webhook again. */
#include "cases.h"

#include "admission/admission.h"
#include "cluster/pod_devices.h"
#include "kube/base64.h"
#include "kube/object.h"
#include "patch_apply.h"

#include <dirent.h>
#include <stdarg.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#define OWNERS_MAX 8

bool case_check(struct webhook_case *self, bool passed, const char *format, ...)
{
    self->checks++;
    if (passed)
        return true;
    self->failures++;
    va_list arguments;
    va_start(arguments, format);
    printf("# %s: ", self->name);
    vprintf(format, arguments);
    printf("\n");
    va_end(arguments);
    return false;
}

const json_t *case_expected(const struct webhook_case *self, const char *key)
{
    const json_t *value = json_object_get(self->expect, key);
    return json_is_null(value) ? NULL : value;
}

/* What is tested, as the case configures it. */
struct world {
    struct node_config config;
    struct admission_settings settings;
    const char *owners[OWNERS_MAX];
    const json_t *quotas, *pods;
};

static void print_line(void *context, const char *line)
{
    struct webhook_case *self = context;
    case_check(self, false, "config: %s", line);
}

static void world_init(struct world *world, struct webhook_case *self)
{
    json_t *config = json_deep_copy(json_object_get(self->input, "config"));
    const char *scheduler = object_string(self->input, "config", "schedulerName", NULL);
    const json_t *owners = object_get(self->input, "config", "owners", NULL);
    world->quotas = json_object_get(self->input, "quotas");
    world->pods = json_object_get(self->input, "pods");
    world->settings = (struct admission_settings){
        .config = &world->config,
        .scheduler_name = scheduler ? scheduler : "",
        .force_overwrite_default_scheduler =
            json_is_true(json_object_get(config, "forceOverwriteDefaultScheduler")),
        .owners = world->owners,
    };
    for (size_t i = 0; i < json_array_size(owners) && i < OWNERS_MAX; i++)
        world->owners[world->settings.owner_count++] = json_string_value(json_array_get(owners, i));
    json_object_del(config, "schedulerName");
    json_object_del(config, "forceOverwriteDefaultScheduler");
    json_object_del(config, "owners");
    json_t *document = json_pack("{s:o}", "nvidia", config ? config : json_object());
    node_config_default(&world->config);
    (void)node_config_read_global(&world->config, document, print_line, self);
    json_decref(document);
}

/* What the namespace's Pods hold, by their annotations. */
static void add_used(
    const struct world *world, const char *namespace, struct admission_quota *quota)
{
    size_t i;
    json_t *pod;
    json_array_foreach(world->pods, i, pod)
    {
        struct pod_devices devices = {0};
        const char *text = object_annotation(pod, "hami.io/vgpu-devices-allocated");
        if (!text || strcmp(object_namespace(pod), namespace) != 0 || object_pod_has_ended(pod) ||
            pod_devices_decode(text, &devices, NULL))
            continue;
        for (size_t c = 0; c < devices.count; c++)
            for (size_t d = 0; d < devices.containers[c].count; d++) {
                quota->memory_used_mib += devices.containers[c].devices[d].memory_mib;
                quota->cores_used += devices.containers[c].devices[d].cores_percent;
            }
        pod_devices_finish(&devices);
    }
}

/* The least of the namespace's quotas. */
static bool find_quota(
    const void *context, const char *namespace, struct admission_quota *ret_quota)
{
    const struct world *world = context;
    const struct request_config *names = &world->config.request;
    struct admission_quota quota = {0};
    char memory[256], cores[256];
    size_t i;
    json_t *value;
    snprintf(memory, sizeof(memory), "limits.%s", names->memory_name);
    snprintf(cores, sizeof(cores), "limits.%s", names->cores_name);
    json_array_foreach(world->quotas, i, value)
    {
        const char *own = object_string(value, "namespace", NULL);
        struct quantity amount;
        const char *text;
        int64_t limit;
        if (!own || strcmp(own, namespace) != 0)
            continue;
        text = object_string(value, "hard", memory, NULL);
        if (text && !quantity_parse(text, &amount) && !quantity_value(&amount, &limit)) {
            limit *= names->memory_factor;
            if (!quota.memory_is_limited || limit < quota.memory_limit_mib)
                quota.memory_limit_mib = limit;
            quota.memory_is_limited = true;
        }
        text = object_string(value, "hard", cores, NULL);
        if (text && !quantity_parse(text, &amount) && !quantity_value(&amount, &limit)) {
            if (!quota.cores_are_limited || limit < quota.cores_limit)
                quota.cores_limit = limit;
            quota.cores_are_limited = true;
        }
    }
    if (!quota.memory_is_limited && !quota.cores_are_limited)
        return false;
    add_used(world, namespace, &quota);
    *ret_quota = quota;
    return true;
}

static void check_text(struct webhook_case *self, const char *key, const char *got)
{
    const char *wanted = json_string_value(case_expected(self, key));
    if (wanted)
        case_check(self, got && !strcmp(got, wanted), "%s is \"%s\", not \"%s\"", key,
            got ? got : "(none)", wanted);
}

static void check_status(struct webhook_case *self, const json_t *response)
{
    const json_t *status = json_object_get(response, "status");
    const char *message = object_string(status, "message", NULL);
    const char *part = json_string_value(case_expected(self, "message_contains"));
    const json_t *code = case_expected(self, "code"), *allowed = case_expected(self, "allowed");
    json_int_t got = json_integer_value(json_object_get(status, "code"));
    bool is_allowed = json_is_true(json_object_get(response, "allowed"));
    case_check(self, is_allowed == (got == 200), "allowed with the code %lld", (long long)got);
    if (allowed)
        case_check(self, json_is_true(allowed) == is_allowed, "it is %s: %s",
            is_allowed ? "allowed" : "denied", message ? message : "(no message)");
    if (code)
        case_check(self, json_integer_value(code) == got, "the code is %lld", (long long)got);
    if (part)
        case_check(self, message && strstr(message, part), "\"%s\" does not contain \"%s\"",
            message ? message : "(none)", part);
    check_text(self, "message", message);
    check_text(self, "reason", object_string(status, "reason", NULL));
    check_text(self, "uid", object_string(response, "uid", NULL));
}

/* The decoded patch; an empty list where there is none. */
static json_t *read_patch(struct webhook_case *self, const json_t *response)
{
    const char *encoded = object_string(response, "patch", NULL);
    const char *type = object_string(response, "patchType", NULL);
    char *text = NULL;
    json_t *operations = NULL;
    if (!encoded) {
        case_check(self, !type, "a patchType without a patch");
        return json_array();
    }
    case_check(self, type && !strcmp(type, "JSONPatch"), "the patch is a %s", type ? type : "?");
    case_check(self, json_is_true(json_object_get(response, "allowed")), "a patch, but denied");
    if (!base64_decode(encoded, &text))
        operations = json_loads(text, JSON_REJECT_DUPLICATES, NULL);
    case_check(self, json_array_size(operations) > 0, "\"%s\" is no patch", text ? text : encoded);
    free(text);
    return operations;
}

static void check_paths(struct webhook_case *self, const json_t *operations)
{
    const json_t *wanted = case_expected(self, "paths");
    size_t count = json_array_size(operations);
    if (!wanted)
        return;
    case_check(self, json_array_size(wanted) == count, "%zu operations", count);
    for (size_t i = 0; i < count; i++) {
        const char *path = object_string(json_array_get(operations, i), "path", NULL);
        const char *other = json_string_value(json_array_get(wanted, i));
        case_check(self, path && other && !strcmp(path, other), "operation %zu is at %s", i,
            path ? path : "(none)");
    }
}

static json_t *call(struct webhook_case *self, const struct world *world, const char *body)
{
    const struct admission_quota_view view = {find_quota, world};
    const char *role = object_string(self->input, "role", NULL);
    struct admission_answer answer;
    int error = admission_review(&world->settings, &view,
        role && !strcmp(role, "validate") ? ADMISSION_VALIDATE : ADMISSION_MUTATE, body,
        strlen(body), &answer);
    if (!case_check(self, !error, "error %d", error))
        return NULL;
    json_t *review = json_loadb(answer.body, answer.bytes, JSON_REJECT_DUPLICATES, NULL);
    const json_t *response = json_object_get(review, "response");
    case_check(self, response != NULL, "the answer is %s", answer.body);
    case_check(self, answer.allowed == json_is_true(json_object_get(response, "allowed")),
        "the answer's struct says otherwise");
    admission_answer_finish(&answer);
    return review;
}

static void check_again(
    struct webhook_case *self, const struct world *world, const json_t *review, json_t *object)
{
    json_t *again = json_deep_copy(review);
    json_object_set(json_object_get(again, "request"), "object", object);
    char *body = json_dumps(again, JSON_COMPACT);
    json_t *answer = call(self, world, body);
    const json_t *response = json_object_get(answer, "response");
    case_check(
        self, json_is_true(json_object_get(response, "allowed")), "the patched object is denied");
    case_check(self, !json_object_get(response, "patch"), "the patched object is patched again");
    json_decref(answer);
    json_decref(again);
    free(body);
}

static void run_webhook(struct webhook_case *self)
{
    struct world world = {0};
    const json_t *review = json_object_get(self->input, "review");
    const json_t *before = object_get(review, "request", "object", NULL);
    const char *raw = object_string(self->input, "body", NULL);
    char *body = raw ? strdup(raw) : json_dumps(review, JSON_COMPACT);
    world_init(&world, self);
    json_t *answer = call(self, &world, body);
    json_t *response = json_object_get(answer, "response");
    json_t *operations = read_patch(self, response);
    json_t *after = patch_apply(before, operations);
    check_text(self, "apiVersion", object_string(answer, "apiVersion", NULL));
    check_status(self, response);
    check_paths(self, operations);
    if (case_check(self, raw || !before || after, "the patch cannot be applied") && after) {
        case_check_object(self, before, after);
        if (json_is_true(json_object_get(response, "allowed")))
            check_again(self, &world, review, after);
    }
    json_decref(after);
    json_decref(operations);
    json_decref(answer);
    node_config_finish(&world.config);
    free(body);
}

static bool run_case(const json_t *value, int number)
{
    struct webhook_case self = {.name = json_string_value(json_object_get(value, "name")),
        .input = json_object_get(value, "input"),
        .expect = json_object_get(value, "expect")};
    case_check(&self, json_object_size(self.expect) > 0, "nothing is expected");
    run_webhook(&self);
    printf("%sok %d - %s\n", self.failures ? "not " : "", number, self.name);
    fflush(stdout);
    return !self.failures;
}

/* Adds the cases of a file to the lists; false where it is not one. */
static bool load_file(const char *path, json_t *cases, json_t *others)
{
    json_error_t error;
    json_t *file = json_load_file(path, JSON_REJECT_DUPLICATES | JSON_ALLOW_NUL, &error);
    json_t *list = json_is_array(file) ? json_incref(file) : json_pack("[O]", file);
    bool valid = file && list;
    size_t i;
    json_t *value;
    json_array_foreach(list, i, value)
    {
        const char *kind = object_string(value, "kind", NULL);
        valid = valid && kind && object_string(value, "name", NULL) &&
                json_is_object(json_object_get(value, "input")) &&
                json_is_object(json_object_get(value, "expect"));
        json_array_append(kind && !strcmp(kind, "webhook") ? cases : others, value);
    }
    if (!valid)
        printf("# %s: not a case: %s\n", path, file ? "a member is missing" : error.text);
    json_decref(list);
    json_decref(file);
    return valid;
}

static bool load_directory(const char *path, json_t *cases, json_t *others)
{
    struct dirent **entries = NULL;
    int count = scandir(path, &entries, NULL, alphasort);
    bool valid = count >= 0;
    if (!valid)
        printf("# %s: cannot be read\n", path);
    for (int i = 0; i < count; i++) {
        char file[4096];
        const char *suffix = strrchr(entries[i]->d_name, '.');
        snprintf(file, sizeof(file), "%s/%s", path, entries[i]->d_name);
        if (suffix && !strcmp(suffix, ".json"))
            valid &= load_file(file, cases, others);
        free(entries[i]);
    }
    free(entries);
    return valid;
}

int main(int argc, char **argv)
{
    json_t *cases = json_array(), *others = json_array();
    bool valid = argc > 1;
    for (int i = 1; i < argc; i++)
        valid &= load_directory(argv[i], cases, others);
    size_t count = json_array_size(cases), failed = 0;
    printf("1..%zu\n", count + 1);
    printf("%sok 1 - the cases can be read (%zu of other kinds are left out)\n",
        valid && count ? "" : "not ", json_array_size(others));
    for (size_t i = 0; valid && i < count; i++)
        failed += !run_case(json_array_get(cases, i), (int)i + 2);
    json_decref(cases);
    json_decref(others);
    return !valid || !count || failed;
}
