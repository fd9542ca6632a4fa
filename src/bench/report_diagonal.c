/* SPDX-License-Identifier: Apache-2.0 */
/* The chart of a figure that is to meet a target of its own under each condition, as a share its
 * limit: value against target beside the diagonal, and below it how far off that is. A panel for
 * each load. */
#include "bench/report_page.h"

#include "bench/report_axis.h"

#include <stdlib.h>
#include <string.h>

#define VALUE_HEIGHT 190
#define OFF_HEIGHT 92
#define DODGE 7 /* between the marks of two subjects */

struct panel {
    struct page *page;
    const struct report_family *family;
    char *name;
    struct axis share, off; /* the same for all panels of the family, to be compared */
    bool offs;              /* the lower part is drawn */
};

/* The condition without the part that only says the target again ("full-1ms, limit 20":
 * "full-1ms"); to be freed. */
static char *panel_name(const struct bench_figure *figure)
{
    char *name = calloc(1, strlen(figure->condition) + 1);
    for (const char *part = figure->condition; name && *part;) {
        size_t length = strcspn(part, ",");
        const char *digits = part + strcspn(part, "0123456789.");
        double number = digits < part + length ? strtod(digits, NULL) : -1;
        bool again = number == figure->target || number / 100 == figure->target;
        if (!again) {
            strcat(name, *name ? "," : "");
            strncat(name, part, length);
        }
        part += length + (part[length] == ',');
    }
    char *begin = name;
    while (begin && *begin == ' ')
        begin++;
    if (name)
        memmove(name, begin, strlen(begin) + 1);
    return name;
}

static const struct bench_result *result_of(
    const struct panel *panel, size_t figure, size_t subject)
{
    return report_measured(
        panel->family->figures[figure], panel->page->results->subjects[subject].label);
}

static void make_axes(struct panel *panel)
{
    struct axis_span share = {0}, off = {0};
    for (size_t i = 0; i < panel->family->count; i++) {
        double target = panel->family->figures[i]->target;
        axis_span_add(&share, target);
        for (size_t subject = 0; subject < panel->page->results->subject_count; subject++) {
            const struct bench_result *result = result_of(panel, i, subject);
            for (int end = 0; result && end < 2; end++) {
                axis_span_add(&share, end ? result->high : result->low);
                if (strcmp(result->subject, BENCH_NATIVE) != 0)
                    axis_span_add(&off, (end ? result->high : result->low) - target);
            }
        }
    }
    axis_span_add(&share, 0);
    panel->share = axis_make(&share, AXIS_ZERO, 5);
    axis_span_add(&off, 0);
    panel->off = axis_make(&off, AXIS_ZERO, 3);
}

static bool in_panel(const struct panel *panel, size_t figure)
{
    char *name = panel_name(panel->family->figures[figure]);
    bool in = name && panel->name && !strcmp(name, panel->name);
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
        if (panel->offs)
            page_signed(page, value);
        else
            page_number(page, value);
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
        page_number(page, panel->share.ticks[i]);
        fputs("</text>\n", page->out);
    }
    if (!panel->offs)
        fprintf(page->out,
            "<line class=\"target\" x1=\"0\" x2=\"100%%\" y1=\"%.2f\" y2=\"%.2f\"/>\n",
            down(panel, panel->share.low), down(panel, panel->share.high));
}

static void draw_point(const struct panel *panel, size_t figure, size_t subject)
{
    const struct bench_result *result = result_of(panel, figure, subject);
    struct page *page = panel->page;
    double target = panel->family->figures[figure]->target, less = panel->offs ? target : 0;
    if (!result || (panel->offs && !strcmp(result->subject, BENCH_NATIVE)))
        return;
    double middle = down(panel, result->value - less);
    double shift = DODGE * ((double)subject - ((double)page->results->subject_count - 1) / 2);
    fprintf(page->out,
        "<svg class=\"s%zu\" x=\"%.3f%%\" y=\"0\" width=\"1\" height=\"1\" overflow=\"visible\"><g "
        "transform=\"translate(%.1f 0)\"><title>",
        page_series(subject), across(panel, target), shift);
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
    fprintf(page->out,
        "; n = %lu</title><path class=\"spread\" d=\"M0 %.2fV%.2fM-3 %.2fH3M-3 %.2fH3\"/><g "
        "class=\"mark\" transform=\"translate(0 %.2f)\">",
        result->repetitions, down(panel, result->low - less), down(panel, result->high - less),
        down(panel, result->low - less), down(panel, result->high - less), middle);
    page_mark(page, subject);
    fputs("</g></g></svg>\n", page->out);
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
                fputs("not measured", page->out);
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
    for (size_t i = 0; i < panel->family->count; i++) {
        for (size_t subject = 0; in_panel(panel, i) && subject < page->results->subject_count;
             subject++)
            draw_point(panel, i, subject);
    }
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
    for (size_t i = 0; name && i < figure && !before; i++) {
        char *other = panel_name(panel->family->figures[i]);
        before = other && !strcmp(name, other);
        free(other);
    }
    free(name);
    return before;
}

void page_chart_diagonal(struct page *page, const struct report_family *family)
{
    struct panel panel = {.page = page, .family = family};
    make_axes(&panel);
    fputs("<figure>\n", page->out);
    page_legend(page, true);
    fputs("<div class=\"panels\">\n", page->out);
    for (size_t i = 0; i < family->count; i++) {
        if (drawn_before(&panel, i))
            continue;
        panel.name = panel_name(family->figures[i]);
        if (!panel.name)
            break;
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
