/* SPDX-License-Identifier: Apache-2.0 */
/* Commas, lines and escapes. */
#include "host/json_write.h"

#include "base/text.h"

#include <math.h>
#include <stdlib.h>
#include <string.h>

#define LINED_LEVELS 2

static void write_text(FILE *stream, const char *text)
{
    char piece[256];
    size_t left = strlen(text);
    putc_unlocked('"', stream);
    while (left) {
        /* What fits whole whatever it becomes; a character is not cut in two. */
        size_t taken = left < 60 ? left : 60;
        while (taken < left && taken > 1 && ((unsigned char)text[taken] & 0xc0) == 0x80)
            taken--;
        text_escape(piece, sizeof(piece), text, taken);
        for (const char *c = piece; *c; c++) {
            if (*c == '"' || *c == '\\')
                putc_unlocked('\\', stream);
            putc_unlocked(*c, stream);
        }
        text += taken;
        left -= taken;
    }
    putc_unlocked('"', stream);
}

static void new_line(const struct json *json)
{
    putc_unlocked('\n', json->stream);
    for (unsigned i = 0; i < json->depth; i++)
        fputs_unlocked("  ", json->stream);
}

/* What stands before each value. */
static void begin_value(struct json *json, const char *name)
{
    bool *begun = &json->level[json->depth - 1].begun;
    if (*begun)
        putc_unlocked(',', json->stream);
    if (json->depth <= LINED_LEVELS)
        new_line(json);
    else if (*begun)
        putc_unlocked(' ', json->stream);
    *begun = true;
    if (name) {
        write_text(json->stream, name);
        fputs_unlocked(": ", json->stream);
    }
}

static void open_level(struct json *json, char opening, char closing)
{
    putc_unlocked(opening, json->stream);
    if (json->depth == JSON_DEPTH)
        abort();
    json->level[json->depth].closing = closing;
    json->level[json->depth++].begun = false;
}

void json_write_begin(struct json *json, FILE *stream)
{
    json->stream = stream;
    json->depth = 0;
    open_level(json, '{', '}');
}

void json_write_begin_object(struct json *json, const char *name)
{
    begin_value(json, name);
    open_level(json, '{', '}');
}

void json_write_begin_array(struct json *json, const char *name)
{
    begin_value(json, name);
    open_level(json, '[', ']');
}

void json_write_end_inner(struct json *json)
{
    json->depth--;
    if (json->depth < LINED_LEVELS && json->level[json->depth].begun)
        new_line(json);
    putc_unlocked(json->level[json->depth].closing, json->stream);
}

void json_write_end(struct json *json)
{
    json_write_end_inner(json);
    putc_unlocked('\n', json->stream);
}

void json_write_string(struct json *json, const char *name, const char *text)
{
    begin_value(json, name);
    if (text)
        write_text(json->stream, text);
    else
        fputs_unlocked("null", json->stream);
}

void json_write_number(struct json *json, const char *name, unsigned long long number)
{
    begin_value(json, name);
    fprintf(json->stream, "%llu", number);
}

void json_write_signed(struct json *json, const char *name, long long number)
{
    begin_value(json, name);
    fprintf(json->stream, "%lld", number);
}

void json_write_fraction(struct json *json, const char *name, double number, int digits)
{
    begin_value(json, name);
    if (isfinite(number))
        fprintf(json->stream, "%.*f", digits, number);
    else
        fputs_unlocked("null", json->stream);
}

void json_write_bool(struct json *json, const char *name, bool is)
{
    begin_value(json, name);
    fputs_unlocked(is ? "true" : "false", json->stream);
}

void json_write_null(struct json *json, const char *name)
{
    begin_value(json, name);
    fputs_unlocked("null", json->stream);
}
