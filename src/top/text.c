/* SPDX-License-Identifier: Apache-2.0 */
#include "top/text.h"

#include <langinfo.h>
#include <string.h>
#include <wchar.h>

#define LEVELS 8 /* of a cell */

static bool is_utf8;

void top_text_begin(void)
{
    is_utf8 = strcmp(nl_langinfo(CODESET), "UTF-8") == 0;
}

/* The character at `text`, which is well-formed UTF-8, and its bytes. */
static wchar_t decode(const char *text, unsigned *ret_bytes)
{
    const unsigned char *at = (const unsigned char *)text;
    unsigned bytes = at[0] < 0xc0 ? 1 : at[0] < 0xe0 ? 2 : at[0] < 0xf0 ? 3 : 4;
    wchar_t character = bytes == 1 ? at[0] : at[0] & (0x7f >> bytes);
    *ret_bytes = bytes;
    for (unsigned i = 1; i < bytes; i++) {
        if ((at[i] & 0xc0) != 0x80) {
            *ret_bytes = i;
            return L'?';
        }
        character = (wchar_t)(character << 6 | (at[i] & 0x3f));
    }
    return character;
}

/* How it is shown, and the columns that it takes there. */
static unsigned show(const char *text, unsigned *ret_bytes, bool *ret_as_it_is)
{
    wchar_t character = decode(text, ret_bytes);
    int width = character < 0x80 ? 1 : is_utf8 ? wcwidth(character) : -1;
    *ret_as_it_is = width >= 0;
    return width >= 0 ? (unsigned)width : 1;
}

unsigned top_text_columns(const char *text)
{
    unsigned columns = 0, bytes;
    bool as_it_is;
    for (; *text; text += bytes)
        columns += show(text, &bytes, &as_it_is);
    return columns;
}

struct writer {
    char *at, *end; /* of the room, without the terminating zero */
};

static void put(struct writer *to, const char *text, size_t bytes)
{
    if ((size_t)(to->end - to->at) < bytes)
        return;
    memcpy(to->at, text, bytes);
    to->at += bytes;
}

/* The beginning of the text that fits into `columns` columns. Returns the columns used. */
static unsigned put_columns(struct writer *to, const char *text, unsigned columns)
{
    unsigned used = 0, bytes;
    bool as_it_is;
    for (; *text; text += bytes) {
        unsigned width = show(text, &bytes, &as_it_is);
        if (used + width > columns || (size_t)(to->end - to->at) < bytes)
            break;
        put(to, as_it_is ? text : "?", as_it_is ? bytes : 1);
        used += width;
    }
    return used;
}

size_t top_text_fit(char *target, size_t size, const char *text, unsigned columns, bool right)
{
    struct writer to = {target, target + size - 1};
    unsigned whole = top_text_columns(text), used = 0;
    for (unsigned i = whole; right && i < columns; i++, used++)
        put(&to, " ", 1);
    if (whole <= columns) {
        used += put_columns(&to, text, columns);
    } else if (columns) {
        used += put_columns(&to, text, columns - 1);
        put(&to, "+", 1);
        used++;
    }
    for (; used < columns; used++)
        put(&to, " ", 1);
    *to.at = '\0';
    return (size_t)(to.at - target);
}

const char *top_text_bar(float value, double scale, unsigned row, unsigned rows)
{
    static const char *const blocks[] = {" ", "▁", "▂", "▃", "▄", "▅", "▆", "▇", "█"};
    static const char *const ascii[] = {" ", "_", ".", ":", "-", "=", "+", "*", "#"};
    if (value < 0 || scale <= 0)
        return " ";
    double part = value / scale < 1 ? value / scale : 1;
    int level = (int)(part * rows * LEVELS + 0.5) - (int)(row * LEVELS);
    level = level > LEVELS ? LEVELS : level;
    if (level < !row) /* the lowest row shows that the value is known */
        level = !row;
    return is_utf8 ? blocks[level] : ascii[level];
}
