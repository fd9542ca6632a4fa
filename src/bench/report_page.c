/* SPDX-License-Identifier: Apache-2.0 */
/* Texts, numbers and marks. */
#include "bench/report_page.h"

#include "base/text.h"

#include <stdlib.h>
#include <string.h>

/* U+FFFE and U+FFFF, which are no characters, and XML has none of them. */
static bool no_character(const char *at)
{
    return !strncmp(at, "\xef\xbf\xbe", 3) || !strncmp(at, "\xef\xbf\xbf", 3);
}

void page_text(struct page *page, const char *text)
{
    size_t room = 4 * strlen(text) + 1;
    char *shown = malloc(room);
    if (!shown) {
        fputs("vgpu-bench: out of memory\n", stderr);
        exit(1);
    }
    text_escape(shown, room, text, strlen(text));
    for (const char *at = shown; *at; at++) {
        const char *entity = *at == '&'    ? "&amp;"
                             : *at == '<'  ? "&lt;"
                             : *at == '>'  ? "&gt;"
                             : *at == '"'  ? "&quot;"
                             : *at == '\'' ? "&#39;"
                                           : NULL;
        if (no_character(at)) {
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

void page_legend(struct page *page, bool natives)
{
    const struct bench_results *results = page->results;
    fputs("<ul class=\"legend\">", page->out);
    for (size_t i = 0; i < results->subject_count; i++) {
        if (!natives && !strcmp(results->subjects[i].label, BENCH_NATIVE))
            continue;
        fprintf(page->out,
            "<li class=\"s%zu\"><svg class=\"key\" width=\"14\" height=\"14\" viewBox=\"-7 -7 14 "
            "14\" aria-hidden=\"true\"><g class=\"mark\">",
            page_series(i));
        page_mark(page, i);
        fputs("</g></svg> <bdi>", page->out);
        page_text(page, results->subjects[i].label);
        fputs("</bdi></li>", page->out);
    }
    if (results->simulated)
        fputs("<li class=\"simulated\">simulated</li>", page->out);
    fputs("</ul>\n", page->out);
}
