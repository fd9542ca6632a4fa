/* SPDX-License-Identifier: Apache-2.0 */
/* cases DIRECTORY...: runs the behaviour cases of kind "schedule" and "usage" of all *.json there,
 * a file being a case or a list of cases. One TAP point a case. */
#include "world.h"

#include "cluster/pod_devices.h"

#include <dirent.h>
#include <stdarg.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

struct behaviour {
    const char *name, *kind;
    const json_t *input, *expect;
    json_t *answer;
    unsigned checks, failures;
};

__attribute__((format(printf, 3, 4))) static bool check(
    struct behaviour *self, bool passed, const char *format, ...)
{
    self->checks++;
    if (passed)
        return true;
    self->failures++;
    va_list arguments;
    va_start(arguments, format);
    printf("# %s: ", self->name);
    vprintf(format, arguments);
    char *answer = json_dumps(self->answer, 0);
    printf("; the answer is %s\n", answer ? answer : "none");
    free(answer);
    va_end(arguments);
    return false;
}

static const char *text_of(const json_t *object, const char *key)
{
    const char *text = json_string_value(json_object_get(object, key));
    return text ? text : "";
}

/* The answer's devices as a list of lists of UUIDs. */
static json_t *uuids_of(const struct pod_devices *devices)
{
    json_t *list = json_array();
    for (size_t i = 0; i < devices->count; i++) {
        json_t *container = json_array();
        for (size_t k = 0; k < devices->containers[i].count; k++)
            json_array_append_new(container, json_string(devices->containers[i].devices[k].uuid));
        json_array_append_new(list, container);
    }
    return list;
}

static bool is_same_set(const json_t *a, const json_t *b)
{
    bool same = json_array_size(a) == json_array_size(b);
    for (size_t i = 0; same && i < json_array_size(a); i++) {
        bool found = false;
        for (size_t k = 0; k < json_array_size(b); k++)
            found |= json_equal(json_array_get(a, i), json_array_get(b, k));
        same = found;
    }
    return same;
}

static bool are_same_sets(const json_t *a, const json_t *b)
{
    bool same = json_array_size(a) == json_array_size(b);
    for (size_t i = 0; same && i < json_array_size(a); i++)
        same = is_same_set(json_array_get(a, i), json_array_get(b, i));
    return same;
}

static bool contains(const json_t *list, const json_t *item)
{
    for (size_t i = 0; i < json_array_size(list); i++)
        if (json_equal(json_array_get(list, i), item))
            return true;
    return false;
}

static void check_each(struct behaviour *self, const struct pod_devices *devices)
{
    const json_t *each = json_object_get(self->expect, "each");
    if (!each)
        return;
    for (size_t i = 0; i < devices->count; i++)
        for (size_t k = 0; k < devices->containers[i].count; k++) {
            const struct pod_device *device = &devices->containers[i].devices[k];
            check(self,
                device->memory_mib == json_integer_value(json_array_get(each, 0)) &&
                    device->cores_percent == json_integer_value(json_array_get(each, 1)),
                "%s has %d MiB and %d percent", device->uuid, device->memory_mib,
                device->cores_percent);
        }
}

static void check_devices(struct behaviour *self)
{
    const json_t *exact = json_object_get(self->expect, "devices");
    const json_t *set = json_object_get(self->expect, "devices_set");
    const json_t *any = json_object_get(self->expect, "devices_any");
    struct pod_devices devices;
    if (exact)
        check(self, !strcmp(text_of(self->answer, "devices"), json_string_value(exact)),
            "not the devices %s", json_string_value(exact));
    if (!check(self, !pod_devices_decode(text_of(self->answer, "devices"), &devices, NULL),
            "no device string"))
        return;
    json_t *uuids = uuids_of(&devices);
    if (set)
        check(self, are_same_sets(set, uuids), "not the set of devices");
    if (any)
        check(self, contains(any, uuids), "none of the accepted devices");
    check_each(self, &devices);
    json_decref(uuids);
    pod_devices_finish(&devices);
}

static void run_schedule(struct behaviour *self, struct world *world)
{
    const json_t *node = json_object_get(self->expect, "node");
    const json_t *failed = json_object_get(self->expect, "failed");
    const json_t *fitting = json_object_get(self->expect, "fitting");
    const char *part = text_of(self->expect, "error_contains");
    self->answer = world_answer(world, self->input);
    check(self, !json_object_get(self->answer, "fault"), "a fault");
    if (json_is_true(json_object_get(self->expect, "error")))
        check(self, json_object_get(self->answer, "error") != NULL, "no error");
    if (*part)
        check(self, strstr(text_of(self->answer, "error"), part) != NULL, "no \"%s\"", part);
    if (json_is_true(json_object_get(self->expect, "passthrough")))
        check(self, json_is_true(json_object_get(self->answer, "passthrough")), "no passthrough");
    if (node)
        check(self, json_equal(node, json_object_get(self->answer, "node")), "another node");
    if (failed)
        check(self, json_equal(failed, json_object_get(self->answer, "failed")), "other reasons");
    if (fitting)
        check(self, is_same_set(fitting, json_object_get(self->answer, "fitting")),
            "other nodes fit");
    if (json_is_string(node))
        check_devices(self);
}

/* What the cluster's devices hold. */
static void run_usage(struct behaviour *self, struct world *world)
{
    self->answer = world_usage(world);
    check(self, json_equal(json_object_get(self->expect, "usage"), self->answer), "another usage");
}

static bool run_case(const json_t *value, int number)
{
    struct behaviour self = {.name = text_of(value, "name"),
        .kind = text_of(value, "kind"),
        .input = json_object_get(value, "input"),
        .expect = json_object_get(value, "expect")};
    struct world world = {0};
    if (check(&self, world_create(self.input, &world), "the input is no cluster"))
        (strcmp(self.kind, "usage") ? run_schedule : run_usage)(&self, &world);
    check(&self, self.checks > 0, "nothing was checked");
    world_destroy(&world);
    json_decref(self.answer);
    printf("%sok %d - %s\n", self.failures ? "not " : "", number, self.name);
    fflush(stdout);
    return !self.failures;
}

static bool is_ours(const json_t *value)
{
    const char *kind = text_of(value, "kind");
    return !strcmp(kind, "schedule") || !strcmp(kind, "usage");
}

static bool load_file(const char *path, json_t *ours, size_t *others)
{
    json_error_t error;
    json_t *file = json_load_file(path, 0, &error);
    json_t *list = json_is_array(file) ? json_incref(file) : json_pack("[O]", file);
    bool valid = file && list;
    for (size_t i = 0; valid && i < json_array_size(list); i++) {
        json_t *value = json_array_get(list, i);
        valid = *text_of(value, "name") && json_is_object(json_object_get(value, "input")) &&
                json_is_object(json_object_get(value, "expect"));
        if (is_ours(value))
            json_array_append(ours, value);
        else
            ++*others;
    }
    if (!valid)
        printf("# %s: not a case: %s\n", path, file ? "a member is missing" : error.text);
    json_decref(list);
    json_decref(file);
    return valid;
}

static bool load_directory(const char *path, json_t *ours, size_t *others)
{
    struct dirent **entries = NULL;
    int count = scandir(path, &entries, NULL, alphasort);
    bool valid = count >= 0;
    for (int i = 0; i < count; i++) {
        char file[4096];
        const char *suffix = strrchr(entries[i]->d_name, '.');
        snprintf(file, sizeof(file), "%s/%s", path, entries[i]->d_name);
        if (suffix && !strcmp(suffix, ".json"))
            valid &= load_file(file, ours, others);
        free(entries[i]);
    }
    free(entries);
    return valid;
}

int main(int argc, char **argv)
{
    json_t *ours = json_array();
    size_t others = 0, failed = 0;
    bool valid = argc > 1;
    for (int i = 1; i < argc; i++)
        valid &= load_directory(argv[i], ours, &others);
    size_t count = json_array_size(ours);
    printf("1..%zu\n", count + 1);
    printf("%sok 1 - the cases can be read (%zu of other kinds are left out)\n",
        valid && count ? "" : "not ", others);
    for (size_t i = 0; i < count; i++)
        failed += !run_case(json_array_get(ours, i), (int)i + 2);
    json_decref(ours);
    return !valid || !count || failed;
}
