/* SPDX-License-Identifier: Apache-2.0 */
/* cases DIRECTORY...: runs the behaviour cases of all *.json there, a file being a case or a list
 * of cases. One TAP point a case; cases of kinds that are tested elsewhere (the scheduler's, the
 * metrics) are counted and left out. */
#include "cases.h"

#include <dirent.h>
#include <regex.h>
#include <stdarg.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

static const struct {
    const char *kind;
    void (*run)(struct behaviour_case *self);
} kinds[] = {
    {"podstring.decode", case_run_podstring_decode},
    {"podstring.encode", case_run_podstring_encode},
    {"register.decode", case_run_register_decode},
    {"register.encode", case_run_register_encode},
    {"request.parse", case_run_request},
    {"lock", case_run_lock},
    {"health", case_run_health},
    {"feedback", case_run_feedback},
    {"plugin.list", case_run_plugin_list},
    {"plugin.physical_id", case_run_plugin_physical_id},
    {"plugin.preferred", case_run_plugin_preferred},
    {"allocate", case_run_allocate},
};

bool case_check(struct behaviour_case *self, bool passed, const char *format, ...)
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

const json_t *case_expected(const struct behaviour_case *self, const char *key)
{
    const json_t *value = json_object_get(self->expect, key);
    return json_is_null(value) ? NULL : value;
}

const char *case_text(const json_t *object, const char *key)
{
    return json_string_value(json_object_get(object, key));
}

int64_t case_number(const json_t *object, const char *key)
{
    return json_integer_value(json_object_get(object, key));
}

bool case_truth(const json_t *object, const char *key)
{
    return json_is_true(json_object_get(object, key));
}

void case_check_truth(struct behaviour_case *self, const char *key, bool got)
{
    const json_t *wanted = case_expected(self, key);
    if (wanted)
        case_check(self, got == json_is_true(wanted), "%s is %s", key, got ? "true" : "false");
}

void case_check_number(struct behaviour_case *self, const char *key, int64_t got)
{
    const json_t *wanted = case_expected(self, key);
    if (wanted)
        case_check(self, got == json_integer_value(wanted), "%s is %lld, not %lld", key,
            (long long)got, (long long)json_integer_value(wanted));
}

void case_check_text(struct behaviour_case *self, const char *key, const char *got)
{
    const char *wanted = json_string_value(case_expected(self, key));
    if (wanted)
        case_check(self, got && !strcmp(got, wanted), "%s is \"%s\", not \"%s\"", key,
            got ? got : "(none)", wanted);
}

void case_check_contains(struct behaviour_case *self, const char *key, const char *got)
{
    const char *wanted = json_string_value(case_expected(self, key));
    if (wanted)
        case_check(self, got && strstr(got, wanted), "\"%s\" does not contain \"%s\"",
            got ? got : "(none)", wanted);
}

/* The patterns are Python's: \d is all of them that POSIX lacks. */
void case_check_regex(
    struct behaviour_case *self, const char *what, const char *pattern, const char *got)
{
    char posix[512] = "";
    size_t length = 0;
    for (const char *at = pattern; *at && length < sizeof(posix) - 8; at++) {
        bool digit = at[0] == '\\' && at[1] == 'd';
        length += (size_t)snprintf(posix + length, sizeof(posix) - length, "%s%.*s",
            digit ? "[0-9]" : "", digit ? 0 : 1, at);
        at += digit;
    }
    regex_t compiled;
    if (!case_check(self, !regcomp(&compiled, posix, REG_EXTENDED | REG_NOSUB),
            "\"%s\" is no pattern", posix))
        return;
    case_check(self, got && !regexec(&compiled, got, 0, NULL, 0), "%s \"%s\" does not match %s",
        what, got ? got : "(none)", pattern);
    regfree(&compiled);
}

bool case_check_error(struct behaviour_case *self, const char *error)
{
    bool wanted = case_truth(self->expect, "error") || case_expected(self, "error_contains");
    case_check(self, wanted == (error != NULL), "%s: %s", wanted ? "no error" : "an error",
        error ? error : "it was taken");
    if (error)
        case_check_contains(self, "error_contains", error);
    return !error && !wanted;
}

static bool run_case(const json_t *value, int number)
{
    struct behaviour_case self = {.name = case_text(value, "name"),
        .kind = case_text(value, "kind"),
        .input = json_object_get(value, "input"),
        .expect = json_object_get(value, "expect")};
    for (size_t i = 0; i < sizeof(kinds) / sizeof(kinds[0]); i++)
        if (!strcmp(self.kind, kinds[i].kind))
            kinds[i].run(&self);
    case_check(&self, self.checks > 0, "nothing was checked");
    printf("%sok %d - %s\n", self.failures ? "not " : "", number, self.name);
    fflush(stdout);
    return !self.failures;
}

static bool is_known(const json_t *value)
{
    const char *kind = case_text(value, "kind");
    for (size_t i = 0; kind && i < sizeof(kinds) / sizeof(kinds[0]); i++)
        if (!strcmp(kind, kinds[i].kind))
            return true;
    return false;
}

/* Adds the cases of a file to the lists; false where it is not one. */
static bool load_file(const char *path, json_t *known, json_t *other)
{
    json_error_t error;
    json_t *file = json_load_file(path, 0, &error);
    json_t *list = json_is_array(file) ? json_incref(file) : json_pack("[O]", file);
    bool valid = file && list;
    size_t i;
    json_t *value;
    json_array_foreach(list, i, value)
    {
        valid = valid && case_text(value, "name") && case_text(value, "kind") &&
                json_is_object(json_object_get(value, "input")) &&
                json_is_object(json_object_get(value, "expect"));
        json_array_append(is_known(value) ? known : other, value);
    }
    if (!valid)
        printf("# %s: not a case: %s\n", path, file ? "a member is missing" : error.text);
    json_decref(list);
    json_decref(file);
    return valid;
}

static bool load_directory(const char *path, json_t *known, json_t *other)
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
            valid &= load_file(file, known, other);
        free(entries[i]);
    }
    free(entries);
    return valid;
}

int main(int argc, char **argv)
{
    json_t *known = json_array(), *other = json_array();
    bool valid = argc > 1;
    for (int i = 1; i < argc; i++)
        valid &= load_directory(argv[i], known, other);
    size_t count = json_array_size(known), failed = 0;
    printf("1..%zu\n", count + 1);
    printf("%sok 1 - the cases can be read (%zu of other kinds are left out)\n",
        valid && count ? "" : "not ", json_array_size(other));
    for (size_t i = 0; valid && i < count; i++)
        failed += !run_case(json_array_get(known, i), (int)i + 2);
    json_decref(known);
    json_decref(other);
    return !valid || !count || failed;
}
