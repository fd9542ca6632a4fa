/* SPDX-License-Identifier: Apache-2.0 */
/* Text in columns of a terminal, and graphs of text: blocks of Unicode where the locale has UTF-8,
 * ASCII elsewhere. */
#ifndef VGPU_TOP_TEXT_H
#define VGPU_TOP_TEXT_H

#include <stdbool.h>
#include <stddef.h>

/* By the locale that is set (LC_CTYPE); before the functions below. */
void top_text_begin(void);

/* Bytes of a text of `columns` columns, terminated. */
#define TOP_TEXT_BYTES(columns) (4u * (columns) + 1u)

/* How many columns the text takes. Well-formed UTF-8. */
unsigned top_text_columns(const char *text);

/* Writes the text in exactly `columns` columns: cut, with "+" in the last one, or filled with
 * blanks, before it (`right`) or behind it. Without UTF-8 what is not ASCII is "?". Terminates.
 * Returns the bytes that it wrote. `size`: TOP_TEXT_BYTES(columns), or less is written. */
size_t top_text_fit(char *target, size_t size, const char *text, unsigned columns, bool right);

/* One cell of a graph's column: `value` of `scale` in the `row`th of `rows` rows, from below.
 * Where the value is below 0 it is not known, a blank. */
const char *top_text_bar(float value, double scale, unsigned row, unsigned rows);

#endif
