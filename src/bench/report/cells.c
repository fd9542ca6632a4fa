/* SPDX-License-Identifier: Apache-2.0 */
/* The numbers beneath a chart: a row for each condition, a column for each subject. */
#include "bench/report/page.h"

#include <string.h>

static void write_head(struct page *page, const struct report_family *family, bool conditions)
{
    FILE *out = page->out;
    const struct bench_results *results = page->results;
    fputs("<caption>", out);
    page_text(page, family->figures[0]->title);
    fputs(": median, 10th to 90th percentile (p10–p90) and number of repetitions (n), in ", out);
    page_text(page, family->figures[0]->unit);
    fputs(
        results->simulated ? "; simulated</caption>\n<thead><tr>" : "</caption>\n<thead><tr>", out);
    if (conditions)
        fputs("<th scope=\"col\">case</th>", out);
    for (size_t i = 0; i < results->subject_count; i++) {
        fprintf(out, "<th scope=\"col\"><span class=\"s%zu\"><bdi>", page_series(i));
        page_text(page, results->subjects[i].label);
        fputs("</bdi></span></th>", out);
    }
    fputs("</tr></thead>\n", out);
}

static void write_stand(
    struct page *page, const struct report_stand *stand, const struct bench_result *result)
{
    FILE *out = page->out;
    char ratio[REPORT_NUMBER];
    if (stand->has_ratio)
        fprintf(out, " <span class=\"beside%s\">%s%s× native</span>",
            stand->may_be_none ? " noise" : "", stand->may_be_none ? "≈ " : "",
            report_ratio(ratio, stand->ratio));
    if (stand->has_off) {
        fputs(" <span class=\"beside\">", out);
        page_signed(page, stand->off);
        fputs(" off target</span>", out);
    }
    if (stand->verdict == REPORT_MISSED)
        fputs(" <span class=\"missed\">target missed</span>", out);
    if (stand->verdict == REPORT_UNCLEAR)
        fprintf(out, " <span class=\"unclear\">%s</span>", report_unclear_words(result));
    if (stand->verdict == REPORT_MET)
        fputs(" <span class=\"met\">target met</span>", out);
}

static void write_cell(
    struct page *page, const struct bench_figure *figure, const struct bench_subject *subject)
{
    FILE *out = page->out;
    const struct bench_result *result = bench_figure_result(figure, subject->label);
    if (!result || result->missing) {
        fputs("<td class=\"none\">not measured: ", out);
        page_text(page, report_missing_reason(result));
        fputs("</td>", out);
        return;
    }
    struct report_stand stand = report_stand_of(figure, result);
    fputs("<td><b>", out);
    page_number(page, result->value);
    fputs("</b>", out);
    write_stand(page, &stand, result);
    fputs("<small>", out);
    if (result->sample_count > 1) {
        fputs("p10–p90 ", out);
        page_number(page, result->low);
        fputs(" to ", out);
        page_number(page, result->high);
    } else {
        fputs("one value, no spread", out);
    }
    fputs("; n\u00a0=\u00a0", out);
    page_number(page, (double)result->repetitions);
    fputs("</small></td>", out);
}

static bool targets_differ(const struct report_family *family)
{
    for (size_t i = 1; i < family->count; i++) {
        const struct bench_figure *figure = family->figures[i], *first = family->figures[0];
        if (figure->has_target != first->has_target ||
            (figure->has_target && figure->target != first->target))
            return true;
    }
    return false;
}

void page_table(struct page *page, const struct report_family *family)
{
    FILE *out = page->out;
    bool conditions = family->count > 1 || *family->figures[0]->condition;
    bool targets = targets_differ(family);
    fputs("<div class=\"scroll\" tabindex=\"0\" role=\"group\" aria-label=\"", out);
    page_text(page, family->figures[0]->title);
    fprintf(out, "\">\n<table class=\"numbers\" style=\"min-width:%zupx\">",
        124 * (page->results->subject_count + conditions) - 8);
    write_head(page, family, conditions);
    fputs("<tbody>\n", out);
    for (size_t i = 0; i < family->count; i++) {
        const struct bench_figure *figure = family->figures[i];
        fputs("<tr>", out);
        if (conditions) {
            fputs("<th scope=\"row\">", out);
            page_text(page, *figure->condition ? figure->condition : "–");
            if (targets && figure->has_target) {
                fputs("<small>target ", out);
                page_number(page, figure->target);
                fputs("</small>", out);
            }
            fputs("</th>", out);
        }
        for (size_t subject = 0; subject < page->results->subject_count; subject++)
            write_cell(page, figure, &page->results->subjects[subject]);
        fputs("</tr>\n", out);
    }
    fputs("</tbody></table>\n</div>\n", out);
}
