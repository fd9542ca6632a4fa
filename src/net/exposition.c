/* SPDX-License-Identifier: Apache-2.0 */
#include "net/exposition.h"

#include <inttypes.h>
#include <math.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#define FIRST_ROOM (size_t)65536
#define NUMBER_BYTES 40

static char *reserve(struct exposition *exposition, size_t bytes)
{
    size_t room = exposition->room ? exposition->room : FIRST_ROOM;
    while (room - exposition->bytes <= bytes)
        room *= 2;
    if (room != exposition->room) {
        char *text = exposition->failed ? NULL : realloc(exposition->text, room);
        if (!text) {
            exposition->failed = true;
            return NULL;
        }
        exposition->text = text;
        exposition->room = room;
    }
    return exposition->text + exposition->bytes;
}

static void add(struct exposition *exposition, const char *text, size_t length)
{
    char *to = reserve(exposition, length);
    if (!to)
        return;
    memcpy(to, text, length);
    to[length] = '\0';
    exposition->bytes += length;
}

static void add_text(struct exposition *exposition, const char *text)
{
    add(exposition, text, strlen(text));
}

static void label_add(struct exposition_labels *labels, const char *text, size_t length)
{
    if (labels->cut || length >= sizeof(labels->text) - labels->length) {
        labels->cut = true;
        return;
    }
    memcpy(labels->text + labels->length, text, length);
    labels->length += length;
    labels->text[labels->length] = '\0';
}

void exposition_label(struct exposition_labels *labels, const char *name, const char *value)
{
    if (labels->length)
        label_add(labels, ",", 1);
    label_add(labels, name, strlen(name));
    label_add(labels, "=\"", 2);
    for (const char *at = value; *at;) {
        size_t plain = strcspn(at, "\\\"\n");
        label_add(labels, at, plain);
        at += plain;
        if (*at)
            label_add(labels, *at == '\n' ? "\\n" : *at == '"' ? "\\\"" : "\\\\", 2);
        at += *at != '\0';
    }
    label_add(labels, "\"", 1);
}

void exposition_label_number(struct exposition_labels *labels, const char *name, uint64_t value)
{
    char text[NUMBER_BYTES];
    snprintf(text, sizeof(text), "%" PRIu64, value);
    exposition_label(labels, name, text);
}

void exposition_family(
    struct exposition *exposition, const char *name, const char *type, const char *help)
{
    exposition->name = name;
    exposition->type = type;
    exposition->help = help;
}

/* Help texts are ours: nothing in them needs an escape. */
static void begin_family(struct exposition *exposition)
{
    const char *const parts[] = {"# HELP ", exposition->name, " ", exposition->help, "\n# TYPE ",
        exposition->name, " ", exposition->type, "\n"};
    for (size_t i = 0; exposition->type && i < sizeof(parts) / sizeof(parts[0]); i++)
        add_text(exposition, parts[i]);
    exposition->type = NULL;
}

static void add_labels(struct exposition *exposition, const char *labels, const char *more)
{
    bool both = labels && *labels && more && *more;
    const char *const parts[] = {"{", labels ? labels : "", both ? "," : "", more ? more : "", "}"};
    if ((!labels || !*labels) && (!more || !*more))
        return;
    for (size_t i = 0; i < sizeof(parts) / sizeof(parts[0]); i++)
        add_text(exposition, parts[i]);
}

void exposition_sample(
    struct exposition *exposition, const char *labels, const char *more, double value)
{
    char text[NUMBER_BYTES];
    int length = snprintf(text, sizeof(text), "%.9f", value);
    if (!isfinite(value) || length < 0 || length >= (int)sizeof(text))
        return; /* beyond 10^28: no figure of ours */
    while (length > 1 && text[length - 1] == '0')
        text[--length] = '\0';
    if (text[length - 1] == '.')
        text[length - 1] = '\0';
    begin_family(exposition);
    add_text(exposition, exposition->name);
    add_labels(exposition, labels, more);
    add_text(exposition, " ");
    add_text(exposition, text);
    add_text(exposition, "\n");
}

void exposition_free(struct exposition *exposition)
{
    free(exposition->text);
    *exposition = (struct exposition){0};
}
