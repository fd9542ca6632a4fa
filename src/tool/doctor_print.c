/* SPDX-License-Identifier: Apache-2.0 */
/* What vgpu doctor found, for people and for programs. */
#include "tool/doctor.h"

#include "base/text.h"

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

/* text_escape leaves well-formed UTF-8 without control characters. */
static void print_string(const char *text)
{
    char clean[4096];
    text_escape(clean, sizeof(clean), text, strlen(text));
    putchar('"');
    for (const char *c = clean; *c; c++) {
        if (*c == '"' || *c == '\\')
            putchar('\\');
        putchar(*c);
    }
    putchar('"');
}

static void print_member(const char *name, const char *text)
{
    printf("\"%s\": ", name);
    if (text)
        print_string(text);
    else
        fputs("null", stdout);
}

static void print_check_json(const struct check *check)
{
    fputs("    {", stdout);
    print_member("check", check->name);
    fputs(", ", stdout);
    if (check->device >= 0)
        printf("\"device\": %d, ", check->device);
    else
        fputs("\"device\": null, ", stdout);
    print_member("status", words[check->status]);
    fputs(", ", stdout);
    print_member("text", check->text);
    fputs(", ", stdout);
    print_member("remedy", check->remedy);
    putchar('}');
}

void doctor_print_json(const struct checks *checks, const struct facts *facts)
{
    printf("{\n  \"doctor\": 1,\n  \"problems\": %u,\n  \"notes\": %u,\n  \"checks\": [\n",
        count(checks, CHECK_PROBLEM), count(checks, CHECK_NOTE));
    for (size_t i = 0; i < checks->count; i++) {
        print_check_json(&checks->list[i]);
        fputs(i + 1 < checks->count ? ",\n" : "\n", stdout);
    }
    fputs("  ],\n  \"facts\": {\n", stdout);
    for (size_t i = 0; i < facts->count; i++) {
        fputs("    ", stdout);
        print_string(facts->list[i].name);
        fputs(": ", stdout);
        print_string(facts->list[i].value);
        fputs(i + 1 < facts->count ? ",\n" : "\n", stdout);
    }
    fputs("  }\n}\n", stdout);
}
