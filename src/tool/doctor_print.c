/* SPDX-License-Identifier: Apache-2.0 */
/* What vgpu doctor found, for people and for programs. */
#include "tool/doctor.h"

#include "base/text.h"
#include "tool/json.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

static const char *const words[] = {"ok", "note", "problem"};

static unsigned count(const struct checks *checks, enum check_status status)
{
    unsigned found = 0;
    for (size_t i = 0; i < checks->count; i++)
        found += checks->list[i].status == status;
    return found;
}

/* ---- for people ---- */

static void print_check(const struct check *check, bool coloured)
{
    static const char *const colours[] = {"\033[32m", "\033[33m", "\033[31m"};
    char name[32], text[1024];
    if (check->device >= 0)
        snprintf(name, sizeof(name), "%s %d", check->name, check->device);
    else
        snprintf(name, sizeof(name), "%s", check->name);
    text_escape(text, sizeof(text), check->text, strlen(check->text));
    printf("%s%-8s%s%-11s %s\n", coloured ? colours[check->status] : "", words[check->status],
        coloured ? "\033[0m" : "", name, text);
    if (check->remedy)
        printf("%-19s remedy: %s\n", "", check->remedy);
}

void doctor_print(const struct checks *checks)
{
    const char *terminal = getenv("TERM");
    bool coloured = isatty(STDOUT_FILENO) && terminal && strcmp(terminal, "dumb") != 0;
    unsigned notes = count(checks, CHECK_NOTE), problems = count(checks, CHECK_PROBLEM);
    for (size_t i = 0; i < checks->count; i++)
        print_check(&checks->list[i], coloured);
    printf("%u problem%s, %u note%s\n", problems, problems == 1 ? "" : "s", notes,
        notes == 1 ? "" : "s");
}

/* ---- for programs ---- */

static void print_check_json(struct json *json, const struct check *check)
{
    json_begin_object(json, NULL);
    json_string(json, "check", check->name);
    if (check->device >= 0)
        json_signed(json, "device", check->device);
    else
        json_null(json, "device");
    json_string(json, "status", words[check->status]);
    json_string(json, "text", check->text);
    json_string(json, "remedy", check->remedy);
    json_end_inner(json);
}

void doctor_print_json(const struct checks *checks, const struct facts *facts)
{
    struct json json;
    json_begin(&json, stdout);
    json_number(&json, "doctor", 1);
    json_number(&json, "problems", count(checks, CHECK_PROBLEM));
    json_number(&json, "notes", count(checks, CHECK_NOTE));
    json_begin_array(&json, "checks");
    for (size_t i = 0; i < checks->count; i++)
        print_check_json(&json, &checks->list[i]);
    json_end_inner(&json);
    json_begin_object(&json, "facts");
    for (size_t i = 0; i < facts->count; i++)
        json_string(&json, facts->list[i].name, facts->list[i].value);
    json_end_inner(&json);
    json_end(&json);
}
