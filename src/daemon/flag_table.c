/* SPDX-License-Identifier: Apache-2.0 */
#include "daemon/flag_table.h"

#include "base/text.h"
#include "cluster/duration.h"
#include "cluster/number.h"

#include <errno.h>
#include <stdbool.h>
#include <stdlib.h>
#include <string.h>

#define SHOWN_BYTES 96

static bool take_text(const struct flag_row *row, const char *value, char *to)
{
    size_t length = strlen(value);
    if (length >= row->size || (row->kind == FLAG_PATH && length && *value != '/'))
        return false;
    for (const char *at = value; *at; at++)
        if ((unsigned char)*at <= ' ' || *at == 0x7f)
            return false;
    memcpy(to, value, length + 1);
    return true;
}

static bool is_word(const char *words, const char *value)
{
    size_t length = strlen(value);
    for (const char *at = words; *at;) {
        size_t word = strcspn(at, " ");
        if (word == length && !memcmp(at, value, length))
            return true;
        at += word;
        at += strspn(at, " ");
    }
    return false;
}

static bool take(const struct flag_row *row, const char *value, void *to)
{
    int64_t number;
    switch (row->kind) {
    case FLAG_TEXT:
    case FLAG_PATH:
        return take_text(row, value, to);
    case FLAG_WORD:
        return is_word(row->accepted, value) && take_text(row, value, to);
    case FLAG_BOOL:
        return !number_parse_bool(value, strlen(value), to);
    case FLAG_DURATION:
        if (duration_parse(value, &number) || number < 0)
            return false;
        *(int64_t *)to = number;
        return true;
    case FLAG_NUMBER:
        if (number_parse(value, strlen(value), -1, INT32_MAX, &number))
            return false;
        *(int32_t *)to = (int32_t)number;
        return true;
    default:
        return true;
    }
}

static int take_value(
    const struct flag_row *row, const char *shown, const char *value, void *to, struct error *error)
{
    static const char *const accepted[] = {[FLAG_TEXT] = "a text without blanks",
        [FLAG_PATH] = "an absolute path",
        [FLAG_BOOL] = "true or false",
        [FLAG_DURATION] = DURATION_ACCEPTED,
        [FLAG_NUMBER] = "a whole number from -1 on",
        [FLAG_WORD] = "",
        [FLAG_UNUSED] = "",
        [FLAG_SWITCH] = ""};
    char quoted[SHOWN_BYTES];
    if (take(row, value, (char *)to + row->offset))
        return 0;
    text_escape(quoted, sizeof(quoted), value, strlen(value));
    return error_set(error, EINVAL, "%s is \"%s\": accepted is %s", shown, quoted,
        row->kind == FLAG_WORD ? row->accepted : accepted[row->kind]);
}

static const struct flag_row *find(const struct flag_table *table, const char *name, size_t length)
{
    for (size_t i = 0; i < table->count; i++)
        if (strlen(table->rows[i].name) == length && !memcmp(table->rows[i].name, name, length))
            return &table->rows[i];
    return NULL;
}

static int refuse(const char *argument, const char *why, struct error *error)
{
    char quoted[SHOWN_BYTES];
    text_escape(quoted, sizeof(quoted), argument, strlen(argument));
    return error_set(error, EINVAL, "%s: %s; --help shows what is accepted", quoted, why);
}

static bool has_no_effect(const struct flag_row *row)
{
    return row->kind == FLAG_UNUSED || row->kind == FLAG_SWITCH;
}

/* *at is moved behind it. */
static int take_argument(const struct flag_table *table, void *to, int argc, char *const *argv,
    int *at, void (*report)(const char *line), struct error *error)
{
    const char *argument = argv[(*at)++];
    const char *name = argument + (argument[0] == '-') + (argument[0] && argument[1] == '-');
    size_t length = strcspn(name, "=");
    const struct flag_row *row = find(table, name, length);
    char shown[SHOWN_BYTES], line[SHOWN_BYTES * 2];
    if (argument[0] != '-' || !row)
        return refuse(argument, argument[0] == '-' ? "there is no such flag" : "no flag", error);
    snprintf(shown, sizeof(shown), "--%s", row->name);
    if (has_no_effect(row)) {
        snprintf(line, sizeof(line), "%s has no effect: %s", shown, row->help);
        report(line);
    }
    if (name[length])
        return take_value(row, shown, name + length + 1, to, error);
    if (row->kind == FLAG_BOOL || row->kind == FLAG_SWITCH)
        return take_value(row, shown, "true", to, error);
    if (*at >= argc)
        return refuse(argument, "a value is missing", error);
    return take_value(row, shown, argv[(*at)++], to, error);
}

int flag_table_read(const struct flag_table *table, void *to, int argc, char *const *argv,
    void (*report)(const char *line), enum flag_action *ret_action, struct error *error)
{
    int result = 0;
    *ret_action = FLAG_RUN;
    for (size_t i = 0; i < table->count && !result; i++) {
        const struct flag_row *row = &table->rows[i];
        const char *value = row->variable ? getenv(row->variable) : NULL;
        if (row->value)
            result = take_value(row, row->name, row->value, to, error);
        if (!result && value && *value)
            result = take_value(row, row->variable, value, to, error);
    }
    for (int at = 1; at < argc && !result;) {
        if (!strcmp(argv[at], "--help") || !strcmp(argv[at], "-h") ||
            !strcmp(argv[at], "--version")) {
            *ret_action = argv[at][2] == 'v' ? FLAG_VERSION : FLAG_HELP;
            return 0;
        }
        result = take_argument(table, to, argc, argv, &at, report, error);
    }
    return result;
}

void flag_table_print_help(const struct flag_table *table, FILE *file)
{
    fputs(table->usage, file);
    for (size_t i = 0; i < table->count; i++) {
        const struct flag_row *row = &table->rows[i];
        char name[SHOWN_BYTES];
        snprintf(name, sizeof(name), "--%s", row->name);
        if (has_no_effect(row))
            continue;
        fprintf(file, "  %-36s %s", name, row->help);
        if (row->kind == FLAG_WORD)
            fprintf(file, ": %s", row->accepted);
        if (row->variable)
            fprintf(file, " (also %s)", row->variable);
        fprintf(file, "%s%s%s\n", *row->value ? " [" : "", row->value, *row->value ? "]" : "");
    }
    fputs("  --version\n  --help\n", file);
    const char *before = "\nAccepted without effect:";
    for (size_t i = 0; i < table->count; i++)
        if (has_no_effect(&table->rows[i])) {
            fprintf(file, "%s --%s", before, table->rows[i].name);
            before = "";
        }
    fputs(*before ? "" : "\n", file);
}
