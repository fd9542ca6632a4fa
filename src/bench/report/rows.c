/* SPDX-License-Identifier: Apache-2.0 */
/* The chart of most figures: a row for each condition, a lane in it for each subject, its median as
 * a mark over a line from the 10th to the 90th percentile and a stroke for each sample. Widths are
 * in percent, so that text keeps its size on a narrow page. */
#include "bench/results/need.h"
#include "bench/report/page.h"

#include "bench/report/axis.h"
#include "bench/report/lines.h"

#include <stdlib.h>
#include <string.h>

#define LABEL_HEIGHT 17
#define LANE_HEIGHT 15
#define ROW_GAP 9
#define AXIS_HEIGHT 38
#define LABEL_MOST 54      /* columns of a row's name that fit the narrowest page */
#define STROKE_PLACES 1000 /* places along the axis; samples on the same one are one stroke */

struct rows {
    struct page *page;
    const struct bench_figure *const *figures;
    size_t count;
    bool ratios; /* of each value to native's, of figures that have one */
    bool *shown; /* for each subject: it has a lane somewhere */
    struct axis axis;
};

/* What is drawn of a result: the value itself, or its ratio. */
struct mark {
    bool shown;
    double value, low, high;
    const struct bench_result *result;
};

static struct mark mark_of(
    const struct rows *rows, const struct bench_figure *figure, size_t subject)
{
    const char *label = rows->page->results->subjects[subject].label;
    const struct bench_result *result = report_measured(figure, label);
    if (!result)
        return (struct mark){0};
    if (!rows->ratios)
        return (struct mark){true, result->value, result->low, result->high, result};
    struct report_stand stand = report_stand_of(figure, result);
    return (struct mark){stand.has_ratio, stand.ratio, stand.ratio_low, stand.ratio_high, result};
}

/* A lane says so where there is no result. A subject without one in the whole chart has no lane. */
static bool has_lane(const struct rows *rows, const struct bench_figure *figure, size_t subject)
{
    return rows->ratios ? mark_of(rows, figure, subject).shown : rows->shown[subject];
}

static const char *row_words(const struct rows *rows, const struct bench_figure *figure)
{
    return rows->ratios ? figure->title : figure->condition;
}

static unsigned row_height(const struct rows *rows, const struct bench_figure *figure)
{
    unsigned height = ROW_GAP + (*row_words(rows, figure) ? LABEL_HEIGHT : 0);
    for (size_t i = 0; i < rows->page->results->subject_count; i++)
        height += has_lane(rows, figure, i) ? LANE_HEIGHT : 0;
    return height;
}

static struct axis make_axis(const struct rows *rows)
{
    struct axis_span span = {0};
    for (size_t i = 0; i < rows->count; i++) {
        const struct bench_figure *figure = rows->figures[i];
        for (size_t subject = 0; subject < rows->page->results->subject_count; subject++) {
            struct mark mark = mark_of(rows, figure, subject);
            if (mark.shown) {
                axis_span_add(&span, mark.value);
                axis_span_add(&span, mark.low);
                axis_span_add(&span, mark.high);
            }
        }
        if (!rows->ratios && figure->has_target)
            axis_span_add(&span, figure->target);
    }
    bool around_one = rows->ratios || !strcmp(rows->figures[0]->unit, "ratio");
    if (around_one) { /* and no wider for noise than 5 % */
        axis_span_add(&span, 0.95);
        axis_span_add(&span, 1.05);
    }
    return axis_make(&span, around_one ? AXIS_RATIO : AXIS_ZERO, 5);
}

static double percent(const struct rows *rows, double value)
{
    return 100 * axis_part(&rows->axis, value);
}

/* ---- what a screen reader says ---- */

static void describe(const struct rows *rows)
{
    struct page *page = rows->page;
    FILE *out = page->out;
    size_t told = rows->count < 12 ? rows->count : 12;
    for (size_t i = 0; i < told; i++) {
        const struct bench_figure *figure = rows->figures[i];
        page_text(page, row_words(rows, figure));
        if (rows->ratios && *figure->condition) {
            fputs(", ", out);
            page_text(page, figure->condition);
        }
        fputs(*row_words(rows, figure) ? ": " : "", out);
        const char *comma = "";
        for (size_t subject = 0; subject < page->results->subject_count; subject++) {
            struct mark mark = mark_of(rows, figure, subject);
            if (!has_lane(rows, figure, subject))
                continue;
            fputs(comma, out);
            page_text(page, page->results->subjects[subject].label);
            putc(' ', out);
            if (mark.shown)
                page_number(page, mark.value);
            else
                fputs(
                    report_missing_words(&figure, 1, page->results->subjects[subject].label), out);
            comma = ", ";
        }
        fputs(". ", out);
    }
    if (told < rows->count)
        fprintf(out, "%zu more are in the table.", rows->count - told);
}

static void write_titles(const struct rows *rows, const char *title, const char *words)
{
    struct page *page = rows->page;
    unsigned number = ++page->charts;
    fprintf(page->out,
        "role=\"img\" aria-labelledby=\"chart%u-title chart%u-words\"><title "
        "id=\"chart%u-title\">",
        number, number, number);
    page_text(page, title);
    fprintf(page->out, "%s%s</title><desc id=\"chart%u-words\">", words,
        page->results->simulated ? " (simulated)" : "", number);
    describe(rows);
    fputs("</desc>\n", page->out);
}

/* ---- drawing ---- */

static void draw_axis(const struct rows *rows, const char *unit, unsigned top, unsigned bottom)
{
    struct page *page = rows->page;
    for (unsigned i = 0; i < rows->axis.tick_count; i++) {
        double at = percent(rows, rows->axis.ticks[i]);
        fprintf(page->out,
            "<line class=\"grid\" x1=\"%.3f%%\" x2=\"%.3f%%\" y1=\"%u\" y2=\"%u\"/><text "
            "class=\"tick\" x=\"%.3f%%\" y=\"%u\">",
            at, at, top, bottom, at, bottom + 14);
        page_tick(page, rows->axis.ticks[i], false);
        fputs("</text>\n", page->out);
    }
    fprintf(page->out, "<text class=\"unit\" x=\"50%%\" y=\"%u\">", bottom + 31);
    page_text(page, unit);
    fprintf(page->out, "%s</text>\n", rows->axis.logarithmic ? ", logarithmic scale" : "");
}

/* The line that values are to be below, above or at. */
static void draw_target(
    const struct rows *rows, const struct bench_figure *figure, unsigned top, unsigned bottom)
{
    double at = percent(rows, figure->target);
    if (figure->has_target && !rows->ratios)
        fprintf(rows->page->out,
            "<line class=\"target\" x1=\"%.3f%%\" x2=\"%.3f%%\" y1=\"%u\" y2=\"%u\"/>\n", at, at,
            top, bottom);
}

/* That samples lie before the axis or beyond it. */
static void draw_beyond(const struct rows *rows, bool beyond, unsigned middle)
{
    fprintf(rows->page->out, "<text class=\"%s\" x=\"%s\" dx=\"%d\" y=\"%u\">…</text>",
        beyond ? "beyond" : "before", beyond ? "100%" : "0", beyond ? 4 : -4, middle + 4);
}

static void draw_samples(const struct rows *rows, const struct mark *mark, unsigned middle)
{
    bool drawn[STROKE_PLACES + 1] = {false};
    FILE *out = rows->page->out;
    bool outside[2] = {false}; /* before the axis, beyond it */
    if (mark->result->sample_count < 2)
        return;
    fprintf(out,
        "<svg x=\"0\" y=\"%u\" width=\"100%%\" height=\"10\" viewBox=\"0 0 %d 10\" "
        "preserveAspectRatio=\"none\" overflow=\"visible\"><path class=\"samples\" d=\"",
        middle - 5, STROKE_PLACES);
    for (size_t i = 0; i < mark->result->sample_count; i++) {
        double value = mark->result->samples[i];
        unsigned place = (unsigned)(axis_part(&rows->axis, value) * STROKE_PLACES + 0.5);
        if (axis_beyond(&rows->axis, value))
            outside[value > rows->axis.high] = true;
        else if (!drawn[place])
            fprintf(out, "M%u 0V10", place);
        drawn[place] |= !axis_beyond(&rows->axis, value);
    }
    fputs("\"/></svg>", out);
    for (int side = 0; side < 2; side++) {
        if (outside[side])
            draw_beyond(rows, side, middle);
    }
}

/* What a pointer over the mark shows. */
static void tell_mark(
    const struct rows *rows, const struct bench_figure *figure, const struct mark *mark)
{
    struct page *page = rows->page;
    fputs("<title>", page->out);
    page_text(page, mark->result->subject);
    fputs(": ", page->out);
    page_number(page, mark->result->value);
    putc(' ', page->out);
    page_text(page, figure->unit);
    if (rows->ratios) {
        char ratio[REPORT_NUMBER];
        fprintf(page->out, ", %s× native", report_ratio(ratio, mark->value));
    }
    fputs("; p10 to p90 ", page->out);
    page_number(page, mark->result->low);
    fputs(" to ", page->out);
    page_number(page, mark->result->high);
    fprintf(page->out, "; n = %lu</title>", mark->result->repetitions);
}

static void draw_lane(
    const struct rows *rows, const struct bench_figure *figure, size_t subject, unsigned middle)
{
    struct page *page = rows->page;
    struct mark mark = mark_of(rows, figure, subject);
    fprintf(page->out, "<g class=\"s%zu\">", page_series(subject));
    if (!mark.shown) {
        fprintf(page->out, "<text class=\"missing\" x=\"0\" dx=\"4\" y=\"%u\">", middle + 4);
        page_text(page, page->results->subjects[subject].label);
        fprintf(page->out, ": %s</text></g>\n",
            report_missing_words(&figure, 1, page->results->subjects[subject].label));
        return;
    }
    double low = percent(rows, mark.low), high = percent(rows, mark.high);
    tell_mark(rows, figure, &mark);
    if (!rows->ratios)
        draw_samples(rows, &mark, middle);
    fprintf(page->out, "<line class=\"spread\" x1=\"%.3f%%\" x2=\"%.3f%%\" y1=\"%u\" y2=\"%u\"/>",
        low, high, middle, middle);
    for (int end = 0; end < 2 && mark.high > mark.low; end++)
        fprintf(page->out,
            "<line class=\"spread\" x1=\"%.3f%%\" x2=\"%.3f%%\" y1=\"%u\" y2=\"%u\"/>",
            end ? high : low, end ? high : low, middle - 3, middle + 3);
    fprintf(page->out,
        "<svg x=\"%.3f%%\" y=\"%u\" width=\"1\" height=\"1\" overflow=\"visible\"><g "
        "class=\"mark\">",
        percent(rows, mark.value), middle);
    page_mark(page, subject);
    fputs("</g></svg></g>\n", page->out);
}

/* The begin of a text, with an ellipsis where it is longer than what is left. */
static void write_cut(struct page *page, const char *text, unsigned *left)
{
    unsigned columns;
    size_t length = lines_fitting(text, *left, &columns);
    char *piece = bench_need(strndup(text, length));
    page_text(page, piece);
    free(piece);
    if (text[length])
        fputs("…", page->out);
    *left -= columns < *left ? columns : *left;
}

/* Cases differ by their ends as well ("…, limit 20"): where one has to be cut, its last part stays.
 */
static void write_case(struct page *page, const char *text, unsigned left)
{
    unsigned columns;
    const char *last = strrchr(text, ',');
    bool fits = !text[lines_fitting(text, left, &columns)];
    size_t end = last && !fits ? strlen(last) : 0;
    if (!end || end + 1 >= left) {
        write_cut(page, text, &left);
        return;
    }
    char *first = bench_need(strndup(text, strlen(text) - end));
    left -= (unsigned)end;
    write_cut(page, first, &left);
    page_text(page, last);
    free(first);
}

static void draw_label(const struct rows *rows, const struct bench_figure *figure, unsigned top)
{
    struct page *page = rows->page;
    unsigned left = LABEL_MOST;
    fprintf(page->out, "<text class=\"row\" x=\"0\" y=\"%u\">", top + LABEL_HEIGHT - 5);
    write_cut(page, row_words(rows, figure), &left);
    if (rows->ratios && *figure->condition && left > 4) {
        fputs(", ", page->out);
        write_case(page, figure->condition, left);
    }
    if (rows->ratios && figure->better == BENCH_HIGHER)
        fputs(" (more is better)", page->out);
    fputs("</text>\n", page->out);
}

static void draw(struct rows *rows, const char *title, const char *words, const char *unit)
{
    struct page *page = rows->page;
    unsigned bottom = ROW_GAP / 2;
    for (size_t i = 0; i < rows->count; i++)
        bottom += row_height(rows, rows->figures[i]);
    rows->axis = make_axis(rows);
    page_legend(page, rows->figures, rows->count, rows->shown, rows->ratios);
    fprintf(page->out, "<svg class=\"chart\" width=\"100%%\" height=\"%u\" overflow=\"visible\" ",
        bottom + AXIS_HEIGHT);
    write_titles(rows, title, words);
    draw_axis(rows, unit, 0, bottom);
    if (rows->ratios)
        fprintf(page->out, "<line class=\"one\" x1=\"%.3f%%\" x2=\"%.3f%%\" y1=\"0\" y2=\"%u\"/>\n",
            percent(rows, 1), percent(rows, 1), bottom);
    unsigned top = ROW_GAP / 2;
    for (size_t i = 0; i < rows->count; i++) {
        const struct bench_figure *figure = rows->figures[i];
        unsigned next = top + row_height(rows, figure), lane = top;
        if (*row_words(rows, figure)) {
            draw_label(rows, figure, top);
            lane += LABEL_HEIGHT;
        }
        draw_target(rows, figure, lane - 2, next - ROW_GAP + 2);
        for (size_t subject = 0; subject < page->results->subject_count; subject++) {
            if (has_lane(rows, figure, subject)) {
                draw_lane(rows, figure, subject, lane + LANE_HEIGHT / 2);
                lane += LANE_HEIGHT;
            }
        }
        top = next;
    }
    fputs("</svg>\n", page->out);
}

void page_chart_family(struct page *page, const struct report_family *family)
{
    struct rows rows = {.page = page,
        .figures = family->figures,
        .count = family->count,
        .shown = page_measured(page, family->figures, family->count)};
    fputs("<figure>\n", page->out);
    draw(&rows, family->figures[0]->title, ": median, 10th to 90th percentile and samples",
        family->figures[0]->unit);
    fputs("</figure>\n", page->out);
    free(rows.shown);
}

/* Whether a subject has one; notes which. */
static bool has_ratio(const struct rows *rows, const struct bench_figure *figure)
{
    bool has = false;
    for (size_t i = 0; i < rows->page->results->subject_count; i++) {
        bool shown = mark_of(rows, figure, i).shown;
        rows->shown[i] |= shown;
        has |= shown;
    }
    return has;
}

void page_chart_ratios(struct page *page, const char *group)
{
    const struct bench_results *results = page->results;
    const struct bench_figure **figures =
        bench_need(calloc(results->figure_count + 1, sizeof(void *)));
    struct rows rows = {
        .page = page, .figures = figures, .ratios = true, .shown = page_measured(page, NULL, 0)};
    for (size_t i = 0; i < results->figure_count; i++) {
        if (!strcmp(results->figures[i].group, group) && has_ratio(&rows, &results->figures[i]))
            figures[rows.count++] = &results->figures[i];
    }
    if (rows.count > 1) {
        fputs("<section class=\"figure\"><h3>Beside native", page->out);
        page_simulated(page);
        fputs("</h3>\n<p>Each value divided by native’s "
              "of the same run, of what is measured in turn by that of the same turn; the line "
              "through 1 is native. Less is better, but where a "
              "row says more. Definitions and values are below.</p>\n<figure>\n",
            page->out);
        draw(&rows, report_group_name(group), ": medians as ratios to native", "ratio to native");
        fputs("</figure>\n</section>\n", page->out);
    }
    free(rows.shown);
    free(figures);
}
