/* SPDX-License-Identifier: Apache-2.0 */
/* Columns by the C library's UTF-8 locale, which nothing else is put into. */
#include "bench/report/lines.h"

#include "base/text.h"
#include "bench/results/need.h"
#include "bench/report/view.h"

#include <locale.h>
#include <stdlib.h>
#include <string.h>
#include <wchar.h>

static locale_t utf8(void)
{
    static locale_t locale;
    static bool tried;
    if (!tried)
        locale = newlocale(LC_CTYPE_MASK, "C.UTF-8", (locale_t)0);
    tried = true;
    return locale;
}

/* The bytes of the character at `text`, which is none of length 0, and its columns. */
static size_t character(const char *text, unsigned *ret_columns)
{
    size_t bytes = 1;
    while (((unsigned char)text[bytes] & 0xc0) == 0x80)
        bytes++;
    *ret_columns = 1;
    locale_t locale = bytes > 1 ? utf8() : (locale_t)0;
    if (locale) {
        locale_t before = uselocale(locale);
        mbstate_t state = {0};
        wchar_t wide;
        int columns = mbrtowc(&wide, text, bytes, &state) == bytes ? wcwidth(wide) : 1;
        *ret_columns = columns < 0 ? 1 : (unsigned)columns;
        uselocale(before);
    }
    return bytes;
}

unsigned lines_width(const char *text)
{
    unsigned width = 0;
    while (*text) {
        unsigned columns;
        text += character(text, &columns);
        width += columns;
    }
    return width;
}

size_t lines_fitting(const char *text, unsigned columns, unsigned *ret_columns)
{
    size_t taken = 0;
    unsigned width = 0;
    while (text[taken]) {
        unsigned more;
        size_t bytes = character(text + taken, &more);
        if (taken && width + more > columns)
            break;
        taken += bytes;
        width += more;
    }
    *ret_columns = width;
    return taken;
}

size_t lines_words(const char *text, unsigned columns, unsigned *ret_columns)
{
    size_t taken = lines_fitting(text, columns, ret_columns);
    size_t word = taken;
    if (!text[taken] || text[taken] == ' ')
        return taken;
    while (word && text[word - 1] != ' ')
        word--;
    while (word && text[word - 1] == ' ')
        word--;
    if (!word)
        return taken;
    size_t at = 0;
    *ret_columns = 0;
    while (at < word) {
        unsigned more;
        at += character(text + at, &more);
        *ret_columns += more;
    }
    return word;
}

void lines_cell(const struct lines *lines, enum line_style style, const char *text, size_t length,
    unsigned columns, bool right)
{
    static const char *const colours[] = {
        "", "\033[1m", "\033[2m", "\033[32m", "\033[31m", "\033[33m"};
    unsigned width = 0;
    for (size_t at = 0; at < length;) {
        unsigned more;
        at += character(text + at, &more);
        width += more;
    }
    int blanks = width < columns ? (int)(columns - width) : 0;
    bool coloured = lines->look.coloured && style != LINE_PLAIN && length;
    fprintf(lines->out, "%*s%s%.*s%s%*s", right ? blanks : 0, "", coloured ? colours[style] : "",
        (int)length, text, coloured ? "\033[0m" : "", right ? 0 : blanks, "");
}

void lines_paragraph(
    const struct lines *lines, enum line_style style, const char *begin, const char *text)
{
    unsigned indent = lines_width(begin);
    unsigned room = lines->look.columns > indent ? lines->look.columns - indent : 1;
    fputs(begin, lines->out);
    do {
        unsigned width;
        size_t length = lines_words(text, room, &width);
        lines_cell(lines, style, text, length, 0, false);
        putc('\n', lines->out);
        text += length;
        while (*text == ' ')
            text++;
        if (*text)
            fprintf(lines->out, "%*s", (int)indent, "");
    } while (*text);
}

char *lines_safe(const char *text)
{
    size_t room = 4 * (text ? strlen(text) : 0) + 1;
    char *safe = bench_need(malloc(room));
    text_escape(safe, room, text ? text : "", text ? strlen(text) : 0);
    return safe;
}
