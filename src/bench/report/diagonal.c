/* SPDX-License-Identifier: Apache-2.0 */
/* The chart of a figure that is to meet a target of its own under each condition, as a share its
 * limit: value against target beside the diagonal, and below it how far off that is. A panel for
 * each load. */
#include "bench/results/need.h"
#include "bench/report/page.h"

#include "bench/report/axis.h"

#include <math.h>
#include <stdlib.h>
#include <string.h>

#define VALUE_HEIGHT 190
#define OFF_HEIGHT 92
#define DODGE 7 /* between the marks of two subjects, in the lower part */

struct panel {
    struct page *page;
    const struct report_family *family;
    char *name;
    struct axis share, off; /* the same for all panels of the family, to be compared */
    bool offs;              /* the lower part is drawn */
};

/* Whether the part of a condition only says what the target is: "limit 20", "20 %". (A load that
 * needs less than its limit has a target below it.) */
static bool says_target(const char *part, size_t length, double target)
{
    if (length > 6 && !strncmp(part, "limit ", 6))
        return true;
    while (length && strchr(" %", part[length - 1]))
        length--;
    size_t word = length;
    while (word && part[word - 1] != ' ')
        word--;
    char *end = NULL;
    double number = word < length ? strtod(part + word, &end) : -1;
    return end == part + length && (number == target || number / 100 == target);
}

/* The condition without that part ("full-1ms, limit 20": "full-1ms"); to be freed. */
static char *panel_name(const struct bench_figure *figure)
{
    size_t room = 2 * strlen(figure->condition) + 1, used = 0; /* a blank behind each comma */
    char *name = bench_need(calloc(1, room));
    for (const char *part = figure->condition; *part;) {
        part += strspn(part, " ");
        size_t length = strcspn(part, ",");
        if (!says_target(part, length, figure->target))
            used += (size_t)snprintf(
                name + used, room - used, "%s%.*s", used ? ", " : "", (int)length, part);
        part += length + (part[length] == ',');
    }
    return name;
}

static const struct bench_result *result_of(
    const struct panel *panel, size_t figure, size_t subject)
{
    return report_measured(
        panel->family->figures[figure], panel->page->results->subjects[subject].label);
}

/* The end of a result's spread that is farther from the target, as its distance. */
static double farther(const struct bench_result *result, double target)
{
    double low = result->low - target, high = result->high - target;
    return fabs(low) > fabs(high) ? low : high;
}

/* The largest distance of a subject from its targets; negative where it has no result. Native,
 * which no limit is set for, is not judged by it. */
static double farthest(const struct panel *panel, size_t subject)
{
    double most = -1;
    for (size_t i = 0; i < panel->family->count; i++) {
        const struct bench_result *result = result_of(panel, i, subject);
        if (result && strcmp(result->subject, BENCH_NATIVE) != 0)
            most = fmax(most, fabs(farther(result, panel->family->figures[i]->target)));
    }
    return most;
}

/* Values far from the target would press those near it onto the line: what is more than ten
 * times as far off as the best subject lies beyond this axis. */
static struct axis make_off_axis(const struct panel *panel)
{
    struct axis_span off = {0};
    double best = -1;
    for (size_t subject = 0; subject < panel->page->results->subject_count; subject++) {
        double most = farthest(panel, subject);
        best = most >= 0 && (best < 0 || most < best) ? most : best;
    }
    axis_span_add(&off, 0);
    for (size_t subject = 0; subject < panel->page->results->subject_count; subject++) {
        double most = farthest(panel, subject);
        for (size_t i = 0; most >= 0 && most <= 10 * best && i < panel->family->count; i++) {
            const struct bench_result *result = result_of(panel, i, subject);
            double target = panel->family->figures[i]->target;
            if (result) {
                axis_span_add(&off, result->low - target);
                axis_span_add(&off, result->high - target);
            }
        }
    }
    return axis_make(&off, AXIS_ZERO, 3);
}

static void make_axes(struct panel *panel)
{
    struct axis_span share = {0};
    axis_span_add(&share, 0);
    for (size_t i = 0; i < panel->family->count; i++) {
        axis_span_add(&share, panel->family->figures[i]->target);
        for (size_t subject = 0; subject < panel->page->results->subject_count; subject++) {
            const struct bench_result *result = result_of(panel, i, subject);
            for (int end = 0; result && end < 2; end++)
                axis_span_add(&share, end ? result->high : result->low);
        }
    }
    panel->share = axis_make(&share, AXIS_ZERO, 5);
    panel->off = make_off_axis(panel);
}

static bool in_panel(const struct panel *panel, size_t figure)
{
    char *name = panel_name(panel->family->figures[figure]);
    bool in = !strcmp(name, panel->name);
    free(name);
    return in;
}

/* ---- drawing ---- */

static const struct axis *upright(const struct panel *panel)
{
    return panel->offs ? &panel->off : &panel->share;
}

static double height(const struct panel *panel)
{
    return panel->offs ? OFF_HEIGHT : VALUE_HEIGHT;
}

static double across(const struct panel *panel, double target)
{
    return 100 * axis_part(&panel->share, target);
}

static double down(const struct panel *panel, double value)
{
    return height(panel) * (1 - axis_part(upright(panel), value));
}

static void draw_axes(const struct panel *panel)
{
    struct page *page = panel->page;
    double bottom = height(panel);
    for (unsigned i = 0; i < upright(panel)->tick_count; i++) {
        double value = upright(panel)->ticks[i], at = down(panel, value);
        fprintf(page->out,
            "<line class=\"%s\" x1=\"0\" x2=\"100%%\" y1=\"%.2f\" y2=\"%.2f\"/><text "
            "class=\"tick up\" x=\"0\" dx=\"-6\" y=\"%.2f\">",
            panel->offs && value == 0 ? "target" : "grid", at, at, at + 4);
        page_tick(page, value, panel->offs);
        fputs("</text>\n", page->out);
    }
    for (unsigned i = 0; i < panel->share.tick_count; i++) {
        double at = across(panel, panel->share.ticks[i]);
        fprintf(page->out,
            "<line class=\"grid\" x1=\"%.3f%%\" x2=\"%.3f%%\" y1=\"0\" y2=\"%.2f\"/>", at, at,
            bottom);
        if (!panel->offs)
            continue;
        fprintf(page->out, "<text class=\"tick\" x=\"%.3f%%\" y=\"%.2f\">", at, bottom + 14);
        page_tick(page, panel->share.ticks[i], false);
        fputs("</text>\n", page->out);
    }
    if (!panel->offs)
        fprintf(page->out,
            "<line class=\"target\" x1=\"0\" x2=\"100%%\" y1=\"%.2f\" y2=\"%.2f\"/>\n",
            down(panel, panel->share.low), down(panel, panel->share.high));
}

static void tell_point(const struct panel *panel, const struct bench_result *result, double target)
{
    struct page *page = panel->page;
    fputs("<title>", page->out);
    page_text(page, result->subject);
    fputs(", target ", page->out);
    page_number(page, target);
    fputs(": ", page->out);
    page_number(page, result->value);
    fputs(" (", page->out);
    page_signed(page, result->value - target);
    fputs("); p10 to p90 ", page->out);
    page_number(page, result->low);
    fputs(" to ", page->out);
    page_number(page, result->high);
    fprintf(page->out, "; n = %lu</title>", result->repetitions);
}

/* At the edge, an arrow beyond which the value lies. */
static void draw_beyond(const struct panel *panel, bool above)
{
    double at = above ? 0 : height(panel);
    fprintf(panel->page->out, "<path class=\"mark\" d=\"M-5 %.2fH5L0 %.2fZ\"/>", at,
        above ? at - 8 : at + 8);
}

/* How far a mark is moved so that several of a target stand beside each other: of those that are
 * there. Beside the diagonal, a mark that is moved would be off it. */
static double dodge(const struct panel *panel, size_t subject)
{
    double place = 0, count = 0;
    for (size_t i = 0; i < panel->page->results->subject_count; i++) {
        bool there = farthest(panel, i) >= 0;
        place += there && i < subject;
        count += there;
    }
    return DODGE * (place - (count - 1) / 2);
}

static void draw_point(const struct panel *panel, size_t figure, size_t subject)
{
    const struct bench_result *result = result_of(panel, figure, subject);
    struct page *page = panel->page;
    double target = panel->family->figures[figure]->target, less = panel->offs ? target : 0;
    if (!result || (panel->offs && !strcmp(result->subject, BENCH_NATIVE)))
        return;
    double shift = panel->offs ? dodge(panel, subject) : 0;
    fprintf(page->out,
        "<svg class=\"s%zu\" x=\"%.3f%%\" y=\"0\" width=\"1\" height=\"1\" overflow=\"visible\"><g "
        "transform=\"translate(%.1f 0)\">",
        page_series(subject), across(panel, target), shift);
    tell_point(panel, result, target);
    if (axis_beyond(upright(panel), result->value - less)) {
        draw_beyond(panel, result->value - less > 0);
    } else {
        double low = down(panel, result->low - less), high = down(panel, result->high - less);
        fprintf(page->out,
            "<path class=\"spread\" d=\"M0 %.2fV%.2fM-3 %.2fH3M-3 %.2fH3\"/><g class=\"mark\" "
            "transform=\"translate(0 %.2f)\">",
            low, high, low, high, down(panel, result->value - less));
        page_mark(page, subject);
        fputs("</g>", page->out);
    }
    fputs("</g></svg>\n", page->out);
}

static void describe(const struct panel *panel)
{
    struct page *page = panel->page;
    for (size_t i = 0; i < panel->family->count; i++) {
        if (!in_panel(panel, i))
            continue;
        fputs("Target ", page->out);
        page_number(page, panel->family->figures[i]->target);
        fputs(":", page->out);
        const char *comma = "";
        for (size_t subject = 0; subject < page->results->subject_count; subject++) {
            const struct bench_result *result = result_of(panel, i, subject);
            fprintf(page->out, "%s ", comma);
            page_text(page, page->results->subjects[subject].label);
            putc(' ', page->out);
            if (result)
                page_number(page, result->value);
            else
                fputs(report_missing_words(
                          &panel->family->figures[i], 1, page->results->subjects[subject].label),
                    page->out);
            comma = ",";
        }
        fputs(". ", page->out);
    }
}

static void draw_part(struct panel *panel, bool offs)
{
    struct page *page = panel->page;
    const struct bench_figure *first = panel->family->figures[0];
    panel->offs = offs;
    unsigned number = ++page->charts;
    fprintf(page->out,
        "<svg class=\"chart panel\" height=\"%.0f\" overflow=\"visible\" role=\"img\" "
        "aria-labelledby=\"chart%u-title chart%u-words\"><title id=\"chart%u-title\">",
        height(panel) + (offs ? 36 : 10), number, number, number);
    page_text(page, first->title);
    fputs(*panel->name ? ", " : "", page->out);
    page_text(page, panel->name);
    fprintf(page->out, "%s%s</title><desc id=\"chart%u-words\">",
        offs ? ": distance from the target" : ": value against target",
        page->results->simulated ? " (simulated)" : "", number);
    describe(panel);
    fputs("</desc>\n", page->out);
    draw_axes(panel);
    bool any = false;
    for (size_t i = 0; i < panel->family->count; i++) {
        for (size_t subject = 0; in_panel(panel, i) && subject < page->results->subject_count;
             subject++) {
            draw_point(panel, i, subject);
            any |= result_of(panel, i, subject) != NULL;
        }
    }
    if (!any && !offs)
        fprintf(page->out, "<text class=\"unit missing\" x=\"50%%\" y=\"%d\">not measured</text>\n",
            VALUE_HEIGHT / 2);
    if (offs) {
        fprintf(page->out, "<text class=\"unit\" x=\"50%%\" y=\"%d\">target, ", OFF_HEIGHT + 31);
        page_text(page, first->unit);
        fputs("</text>\n", page->out);
    }
    fputs("</svg>\n", page->out);
}

static bool drawn_before(const struct panel *panel, size_t figure)
{
    char *name = panel_name(panel->family->figures[figure]);
    bool before = false;
    for (size_t i = 0; i < figure && !before; i++) {
        char *other = panel_name(panel->family->figures[i]);
        before = !strcmp(name, other);
        free(other);
    }
    free(name);
    return before;
}

bool page_diagonal_worth(const struct page *page, const struct report_family *family)
{
    struct panel panel = {.page = (struct page *)page, .family = family};
    size_t panels = 0;
    for (size_t i = 0; i < family->count; i++)
        panels += !drawn_before(&panel, i);
    return family->diagonal && 2 * panels <= family->count;
}

void page_chart_diagonal(struct page *page, const struct report_family *family)
{
    struct panel panel = {.page = page, .family = family};
    bool *measured = page_measured(page, family->figures, family->count);
    make_axes(&panel);
    fputs("<figure>\n", page->out);
    page_legend(page, family->figures, family->count, measured, false);
    free(measured);
    fputs("<div class=\"panels\">\n", page->out);
    for (size_t i = 0; i < family->count; i++) {
        if (drawn_before(&panel, i))
            continue;
        panel.name = panel_name(family->figures[i]);
        fputs("<div>", page->out);
        if (*panel.name) {
            fputs("<h4>", page->out);
            page_text(page, panel.name);
            fputs("</h4>", page->out);
        }
        fputs("<p class=\"up\">value</p>\n", page->out);
        draw_part(&panel, false);
        fputs("<p class=\"up\">value − target</p>\n", page->out);
        draw_part(&panel, true);
        fputs("</div>\n", page->out);
        free(panel.name);
    }
    fputs("</div>\n</figure>\n", page->out);
}
