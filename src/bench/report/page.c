/* SPDX-License-Identifier: Apache-2.0 */
/* Texts, numbers and marks. */
#include "bench/report/page.h"

#include "base/text.h"
#include "bench/results/need.h"

#include <stdlib.h>
#include <string.h>

/* What is not shown as it is: U+FFFE and U+FFFF, which XML has not, and the marks of direction
 * (U+200E, U+200F, U+202A to U+202E, U+2066 to U+2069), which would turn what stands behind them.
 */
static bool not_shown(const char *at)
{
    const unsigned char *bytes = (const unsigned char *)at;
    if (bytes[0] == 0xef && bytes[1] == 0xbf)
        return bytes[2] >= 0xbe;
    if (bytes[0] != 0xe2 || (bytes[1] != 0x80 && bytes[1] != 0x81))
        return false;
    return bytes[1] == 0x81 ? bytes[2] >= 0xa6 && bytes[2] <= 0xa9
                            : (bytes[2] >= 0xaa && bytes[2] <= 0xae) || (bytes[2] & 0xfe) == 0x8e;
}

void page_text(struct page *page, const char *text)
{
    size_t room = 4 * strlen(text) + 1;
    char *shown = bench_need(malloc(room));
    text_escape(shown, room, text, strlen(text));
    for (const char *at = shown; *at; at++) {
        const char *entity = *at == '&'    ? "&amp;"
                             : *at == '<'  ? "&lt;"
                             : *at == '>'  ? "&gt;"
                             : *at == '"'  ? "&quot;"
                             : *at == '\'' ? "&#39;"
                                           : NULL;
        if (not_shown(at)) {
            entity = "\xef\xbf\xbd";
            at += 2;
        }
        if (entity)
            fputs(entity, page->out);
        else
            putc(*at, page->out);
    }
    free(shown);
}

void page_simulated(struct page *page)
{
    if (page->results->simulated)
        fputs(" <span class=\"simulated\">(simulated)</span>", page->out);
}

void page_anchor(struct page *page, const char *id)
{
    for (; *id; id++) {
        bool kept = (*id >= 'a' && *id <= 'z') || (*id >= 'A' && *id <= 'Z') ||
                    (*id >= '0' && *id <= '9') || *id == '.' || *id == '-';
        putc(kept ? *id : '-', page->out);
    }
}

static void put_number(struct page *page, const char *number)
{
    for (; *number; number++) {
        if (*number == '-')
            fputs("\u2212", page->out);
        else
            putc(*number, page->out);
    }
}

void page_number(struct page *page, double value)
{
    char text[REPORT_NUMBER];
    put_number(page, report_number(text, value));
}

void page_signed(struct page *page, double value)
{
    char text[REPORT_NUMBER];
    put_number(page, report_signed(text, value));
}

void page_tick(struct page *page, double value, bool sign)
{
    char text[REPORT_NUMBER];
    report_number(text, value);
    size_t length = strlen(text);
    while (strchr(text, '.') && !strchr(text, 'e') && strchr("0.", text[length - 1])) {
        bool point = text[length - 1] == '.';
        text[--length] = '\0';
        if (point)
            break;
    }
    fputs(sign && value > 0 ? "+" : "", page->out);
    put_number(page, text);
}

/* ---- subjects ---- */

size_t page_series(size_t subject)
{
    /* Native keeps the first, which is grey, for itself. */
    return subject ? (subject - 1) % (PAGE_SERIES - 1) + 1 : 0;
}

void page_mark(struct page *page, size_t subject)
{
    static const char *const marks[PAGE_SERIES] = {
        "<circle r=\"4\"/>",
        "<path d=\"M0 -5.2L5.2 0L0 5.2L-5.2 0Z\"/>",
        "<path d=\"M-4 -4H4V4H-4Z\"/>",
        "<path d=\"M0 -5L5 4H-5Z\"/>",
        "<path d=\"M0 5L5 -4H-5Z\"/>",
        "<path d=\"M-1.6 -5H1.6V-1.6H5V1.6H1.6V5H-1.6V1.6H-5V-1.6H-1.6Z\"/>",
        "<path d=\"M-5 0L-2.5 -4.4H2.5L5 0L2.5 4.4H-2.5Z\"/>",
        "<path d=\"M-5 -3H5V3H-5Z\"/>",
    };
    fputs(marks[page_series(subject)], page->out);
}

bool *page_measured(
    const struct page *page, const struct bench_figure *const *figures, size_t count)
{
    const struct bench_results *results = page->results;
    bool *measured = bench_need(calloc(results->subject_count + 1, sizeof(*measured)));
    for (size_t i = 0; i < count; i++) {
        for (size_t subject = 0; subject < results->subject_count; subject++)
            measured[subject] |=
                report_measured(figures[i], results->subjects[subject].label) != NULL;
    }
    return measured;
}

void page_legend(struct page *page, const struct bench_figure *const *figures, size_t count,
    const bool *shown, bool ratios)
{
    const struct bench_results *results = page->results;
    fputs("<ul class=\"legend\">", page->out);
    for (size_t i = 0; i < results->subject_count; i++) {
        if (ratios && !shown[i])
            continue;
        fprintf(page->out,
            "<li class=\"s%zu\"><svg class=\"key\" width=\"14\" height=\"14\" viewBox=\"-7 -7 14 "
            "14\" aria-hidden=\"true\"><g class=\"mark\">",
            page_series(i));
        page_mark(page, i);
        fputs("</g></svg> <bdi>", page->out);
        page_text(page, results->subjects[i].label);
        fputs("</bdi>", page->out);
        if (!shown[i])
            fprintf(page->out, " <i>%s</i>",
                report_missing_words(figures, count, results->subjects[i].label));
        fputs("</li>", page->out);
    }
    if (results->simulated)
        fputs("<li class=\"simulated\">simulated</li>", page->out);
    fputs("</ul>\n", page->out);
}
