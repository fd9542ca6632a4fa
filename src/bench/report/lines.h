/* SPDX-License-Identifier: Apache-2.0 */
/* Text on a terminal: how many columns it takes, and lines that end in time. Characters are UTF-8's
 * whatever the locale; where the C library has no UTF-8 locale each counts as one column. */
#ifndef VGPU_BENCH_REPORT_LINES_H
#define VGPU_BENCH_REPORT_LINES_H

#include "bench/report/report.h"

#include <stdbool.h>

enum line_style { LINE_PLAIN, LINE_BOLD, LINE_QUIET, LINE_GOOD, LINE_BAD, LINE_WARN };

struct lines {
    FILE *out;
    struct bench_look look;
};

/* Columns of the text, as it is after text_escape. */
unsigned lines_width(const char *text);

/* How many bytes from the text's begin fit into the columns: at least one character, where it has
 * one. `ret_columns`: how many they take. */
size_t lines_fitting(const char *text, unsigned columns, unsigned *ret_columns);

/* The same, but ends behind a word where the text goes on and a word ends in it. */
size_t lines_words(const char *text, unsigned columns, unsigned *ret_columns);

/* The first `length` bytes in a style, and blanks up to `columns`: before them where `right`. */
void lines_cell(const struct lines *lines, enum line_style style, const char *text, size_t length,
    unsigned columns, bool right);

/* A paragraph: its first line begins with `begin`, the others with as many blanks. */
void lines_paragraph(
    const struct lines *lines, enum line_style style, const char *begin, const char *text);

/* A copy without what steers a terminal; to be freed. */
char *lines_safe(const char *text);

#endif
