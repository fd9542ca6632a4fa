/* SPDX-License-Identifier: Apache-2.0 */
/* The page as it is written, and what its parts share: text that is escaped, the subjects' marks,
 * charts. */
#ifndef VGPU_BENCH_REPORT_PAGE_H
#define VGPU_BENCH_REPORT_PAGE_H

#include "bench/report/view.h"
#include "bench/results/results.h"

#include <stdio.h>

#define PAGE_SERIES 8 /* colours and marks; more subjects than that share them */

struct page {
    FILE *out;
    const struct bench_results *results;
    unsigned charts; /* drawn so far: their titles have numbers */
};

/* The style sheet. */
extern const char page_style[];

/* Text of others, for an element or an attribute in double quotes, of HTML and of XML. */
void page_text(struct page *page, const char *text);

/* Behind a heading or a name: that what it stands for is simulated, where it is. */
void page_simulated(struct page *page);

/* For an id: what is no letter, digit, point or hyphen becomes a hyphen. */
void page_anchor(struct page *page, const char *id);

/* Numbers as report_number makes them, with a true minus. */
void page_number(struct page *page, double value);
void page_signed(struct page *page, double value);

/* The same beside a tick, where zeros at the end say nothing. `sign`: with a plus. */
void page_tick(struct page *page, double value, bool sign);

/* The subject's mark around (0, 0), inside an <svg>. */
void page_mark(struct page *page, size_t subject);

/* A list of the subjects with their marks, for above a chart of the figures. Of those that are not
 * `shown` in it, by their numbers, it says why; `ratios`: they are left out. */
void page_legend(struct page *page, const struct bench_figure *const *figures, size_t count,
    const bool *shown, bool ratios);

/* Which subjects have a result in one of the figures: to be freed. */
bool *page_measured(
    const struct page *page, const struct bench_figure *const *figures, size_t count);

/* Which series (class s0, s1, ...) a subject has. */
size_t page_series(size_t subject);

/* The charts of a figure's family, and of a group's ratios to native: nothing where fewer than two
 * figures have one. */
void page_chart_family(struct page *page, const struct report_family *family);
void page_chart_ratios(struct page *page, const char *group);

/* Whether value and target are to be drawn against each other: with fewer than two targets a panel,
 * rows show them better. */
bool page_diagonal_worth(const struct page *page, const struct report_family *family);
void page_chart_diagonal(struct page *page, const struct report_family *family);

/* The family's numbers. */
void page_table(struct page *page, const struct report_family *family);

/* The head of the page: facts, subjects, what was measured. */
void page_head(struct page *page);

#endif
