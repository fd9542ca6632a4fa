/* SPDX-License-Identifier: Apache-2.0 */
#include "flags/flag_table.h"

#include "base/text.h"
#include "flags/flag_value.h"

#include <errno.h>
#include <stdlib.h>
#include <string.h>

#define SHOWN_BYTES 96

/* A reading under way. */
struct reading {
    const struct flag_table *table;
    const struct flag_reader *reader;
    char *to;
    struct error *error;
};

static int take_value(
    const struct reading *reading, const struct flag_row *row, const char *shown, const char *value)
{
    char quoted[SHOWN_BYTES], accepted[SHOWN_BYTES * 2];
    if (flag_value_take(row, value, reading->to + row->offset))
        return 0;
    flag_value_describe(row, accepted, sizeof(accepted));
    text_escape(quoted, sizeof(quoted), value, strlen(value));
    return error_set(
        reading->error, EINVAL, "%s is \"%s\": accepted is %s", shown, quoted, accepted);
}

static bool has_no_effect(const struct flag_row *row)
{
    return row->kind >= FLAG_UNUSED;
}

static bool is_switch(const struct flag_row *row)
{
    return row->kind == FLAG_BOOL || row->kind == FLAG_SWITCH || row->kind == FLAG_QUIET_SWITCH;
}

/* As take_value, of one that somebody gave. */
static int take_given(
    const struct reading *reading, const struct flag_row *row, const char *shown, const char *value)
{
    const struct flag_reader *reader = reading->reader;
    int result = take_value(reading, row, shown, value);
    if (result)
        return result;
    if (reader->ret_given)
        *reader->ret_given |= 1ull << (row - reading->table->rows);
    if (reader->report && (row->kind == FLAG_UNUSED || row->kind == FLAG_SWITCH)) {
        char line[SHOWN_BYTES * 3];
        snprintf(line, sizeof(line), "%s has no effect: %s", shown, row->help);
        reader->report(reader->context, line);
    }
    return 0;
}

static bool is_name(const char *name, const char *text, size_t length)
{
    return name && strlen(name) == length && !memcmp(name, text, length);
}

static const struct flag_row *find(const struct flag_table *table, const char *name, size_t length)
{
    for (size_t i = 0; i < table->count; i++)
        if (is_name(table->rows[i].name, name, length) ||
            is_name(table->rows[i].alias, name, length))
            return &table->rows[i];
    return NULL;
}

static int refuse(const char *argument, const char *why, struct error *error)
{
    char quoted[SHOWN_BYTES];
    text_escape(quoted, sizeof(quoted), argument, strlen(argument));
    return error_set(error, EINVAL, "%s: %s; --help shows what is accepted", quoted, why);
}

/* *at is moved behind it. */
static int take_argument(const struct reading *reading, int argc, char *const *argv, int *at)
{
    const char *argument = argv[(*at)++];
    const char *name = argument + (argument[0] == '-') + (argument[0] == '-' && argument[1] == '-');
    size_t length = strcspn(name, "=");
    const struct flag_row *row = find(reading->table, name, length);
    char shown[SHOWN_BYTES];
    if (argument[0] != '-' || !row)
        return refuse(argument, argument[0] == '-' ? "there is no such flag" : "this is no flag",
            reading->error);
    snprintf(shown, sizeof(shown), "--%s", row->name);
    if (name[length])
        return take_given(reading, row, shown, name + length + 1);
    if (is_switch(row))
        return take_given(reading, row, shown, "true");
    if (*at >= argc)
        return refuse(argument, "a value is missing", reading->error);
    return take_given(reading, row, shown, argv[(*at)++]);
}

static int take_defaults(const struct reading *reading)
{
    int result = 0;
    for (size_t i = 0; i < reading->table->count && !result; i++) {
        const struct flag_row *row = &reading->table->rows[i];
        if (row->value)
            result = take_value(reading, row, row->name, row->value);
    }
    return result;
}

static int take_environment(const struct reading *reading)
{
    int result = 0;
    for (size_t i = 0; i < reading->table->count && !result; i++) {
        const struct flag_row *row = &reading->table->rows[i];
        const char *name = row->variable, *value = name ? getenv(name) : NULL;
        if ((!value || !*value) && row->variable_alias)
            value = getenv(name = row->variable_alias);
        if (value && *value)
            result = take_given(reading, row, name, value);
    }
    return result;
}

int flag_table_read(const struct flag_table *table, void *to, int argc, char *const *argv,
    const struct flag_reader *reader, enum flag_action *ret_action, struct error *error)
{
    const struct reading reading = {table, reader, to, error};
    int result = take_defaults(&reading);
    *ret_action = FLAG_RUN;
    if (!result)
        result = take_environment(&reading);
    for (int at = 1; at < argc && !result;) {
        const char *name = argv[at] + strspn(argv[at], "-");
        if (argv[at][0] == '-' &&
            (!strcmp(name, "help") || !strcmp(name, "h") || !strcmp(name, "version"))) {
            *ret_action = name[0] == 'v' ? FLAG_VERSION : FLAG_HELP;
            return 0;
        }
        result = take_argument(&reading, argc, argv, &at);
    }
    return result;
}

uint64_t flag_table_bit(const struct flag_table *table, const char *name)
{
    const struct flag_row *row = find(table, name, strlen(name));
    return row ? 1ull << (row - table->rows) : 0;
}

static void print_row(const struct flag_row *row, FILE *file)
{
    char name[SHOWN_BYTES];
    snprintf(name, sizeof(name), "--%s", row->name);
    fprintf(file, "  %-36s %s", name, row->help);
    if (row->kind == FLAG_WORD || row->kind == FLAG_CHOICE || row->kind == FLAG_LIST ||
        row->kind == FLAG_ONLY)
        fprintf(file, "; accepted: %s", row->accepted);
    if (row->alias)
        fprintf(file, "; also --%s", row->alias);
    if (row->variable)
        fprintf(file, " (also %s)", row->variable);
    if (row->value && *row->value)
        fprintf(file, " [%s]", row->value);
    fputc('\n', file);
}

void flag_table_print_help(const struct flag_table *table, FILE *file)
{
    fputs(table->usage, file);
    for (size_t i = 0; i < table->count; i++)
        if (!has_no_effect(&table->rows[i]))
            print_row(&table->rows[i], file);
    fputs("  --version\n  --help\n", file);
    const char *before = "\nAccepted without effect:";
    for (size_t i = 0; i < table->count; i++)
        if (has_no_effect(&table->rows[i])) {
            fprintf(file, "%s --%s", before, table->rows[i].name);
            before = "";
        }
    fputs(*before ? "" : "\n", file);
    if (table->notes)
        fprintf(file, "\n%s", table->notes);
}
