/* SPDX-License-Identifier: Apache-2.0 */
/* One JSON document, written as it is made. Members of the two outermost levels get a line each,
 * what is deeper stands in its line. Nothing is checked: begin and end come in pairs, and names are
 * given in objects (NULL in arrays). */
#ifndef VGPU_HOST_JSON_WRITE_H
#define VGPU_HOST_JSON_WRITE_H

#include <stdbool.h>
#include <stdio.h>

#define JSON_DEPTH 16

struct json {
    FILE *stream;
    unsigned depth;
    struct {
        char closing; /* '}' or ']' */
        bool begun;   /* it has a member */
    } level[JSON_DEPTH];
};

/* Begins the document, an object. */
void json_write_begin(struct json *json, FILE *stream);

/* Ends it, and its line. Whether all of it could be written is the stream's to say. */
void json_write_end(struct json *json);

void json_write_begin_object(struct json *json, const char *name);
void json_write_begin_array(struct json *json, const char *name);

/* Ends the innermost object or array. */
void json_write_end_inner(struct json *json);

/* UTF-8; control characters and bytes that are no UTF-8 are written as base/text.h has them. NULL:
 * null. */
void json_write_string(struct json *json, const char *name, const char *text);

void json_write_number(struct json *json, const char *name, unsigned long long number);
void json_write_signed(struct json *json, const char *name, long long number);

/* With `digits` digits behind the point. */
void json_write_fraction(struct json *json, const char *name, double number, int digits);

void json_write_bool(struct json *json, const char *name, bool is);
void json_write_null(struct json *json, const char *name);

#endif
