/* SPDX-License-Identifier: Apache-2.0 */
/* A list of names and values. They are some hundreds: a scan does. */
#include "doctor/facts.h"

#include <stdarg.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

static struct fact *find(const struct facts *facts, const char *name)
{
    for (size_t i = 0; i < facts->count; i++) {
        if (!strcmp(facts->list[i].name, name))
            return (struct fact *)&facts->list[i];
    }
    return NULL;
}

void facts_set(struct facts *facts, const char *name, const char *value)
{
    struct fact *known = find(facts, name);
    char *copy = strdup(value);
    if (!copy || (!known && facts->count == DOCTOR_FACTS)) {
        free(copy);
        return;
    }
    if (!known) {
        char *own_name = strdup(name);
        if (!own_name) {
            free(copy);
            return;
        }
        known = &facts->list[facts->count++];
        *known = (struct fact){.name = own_name};
    }
    free(known->value);
    known->value = copy;
}

void facts_free(struct facts *facts)
{
    for (size_t i = 0; i < facts->count; i++) {
        free(facts->list[i].name);
        free(facts->list[i].value);
    }
    free(facts);
}

void facts_add_lines(struct facts *facts, char *text)
{
    char *rest = text;
    for (char *line; (line = strsep(&rest, "\n")) != NULL;) {
        char *value = strchr(line, ' ');
        if (!value || value == line)
            continue;
        *value = '\0';
        facts_set(facts, line, value + 1);
    }
}

static const char *find_formatted(const struct facts *facts, const char *format, va_list arguments)
{
    char name[96];
    vsnprintf(name, sizeof(name), format, arguments);
    struct fact *known = find(facts, name);
    return known ? known->value : NULL;
}

const char *fact(const struct facts *facts, const char *format, ...)
{
    va_list arguments;
    va_start(arguments, format);
    const char *value = find_formatted(facts, format, arguments);
    va_end(arguments);
    return value;
}

bool fact_is(const struct facts *facts, const char *value, const char *format, ...)
{
    va_list arguments;
    va_start(arguments, format);
    const char *known = find_formatted(facts, format, arguments);
    va_end(arguments);
    return known && !strcmp(known, value);
}

unsigned long long fact_number(const struct facts *facts, const char *format, ...)
{
    va_list arguments;
    va_start(arguments, format);
    const char *known = find_formatted(facts, format, arguments);
    va_end(arguments);
    return known ? strtoull(known, NULL, 10) : 0;
}
