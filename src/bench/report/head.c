/* SPDX-License-Identifier: Apache-2.0 */
/* The begin of the page: what was compared, where and when, what was measured, what missed. */
#include "bench/report/page.h"

#include "bench/results/settings.h"

#include <stdlib.h>
#include <string.h>

/* "native, vgpu and hami" */
static void write_labels(struct page *page)
{
    const struct bench_results *results = page->results;
    for (size_t i = 0; i < results->subject_count; i++) {
        if (i)
            fputs(i + 1 < results->subject_count ? ", " : " and ", page->out);
        fputs("<bdi>", page->out);
        page_text(page, results->subjects[i].label);
        fputs("</bdi>", page->out);
    }
}

static const char *known(const char *text)
{
    return text && *text ? text : "unknown";
}

static void write_fact(struct page *page, const char *name, const char *value)
{
    fprintf(page->out, "<div><dt>%s</dt><dd>", name);
    page_text(page, known(value));
    fputs("</dd></div>\n", page->out);
}

static void write_facts(struct page *page)
{
    const struct bench_machine *machine = &page->results->machine;
    fputs("<dl class=\"facts\">\n", page->out);
    fputs("<div><dt>GPU</dt><dd>", page->out);
    page_text(page, known(machine->gpu));
    page_simulated(page);
    fputs("</dd></div>\n", page->out);
    write_fact(page, "Driver", machine->driver);
    write_fact(page, "CUDA", machine->cuda);
    fputs("<div><dt>CPU</dt><dd>", page->out);
    page_text(page, known(machine->cpu));
    if (machine->cores)
        fprintf(page->out, ", %u core%s", machine->cores, machine->cores == 1 ? "" : "s");
    fputs("</dd></div>\n", page->out);
    write_fact(page, "Kernel", machine->kernel);
    write_fact(page, "When", machine->when);
    write_fact(page, "Mode", page->results->full ? "full" : "quick");
    if (page->results->seed)
        fprintf(page->out, "<div><dt>Seed</dt><dd>%u</dd></div>\n", page->results->seed);
    fputs("</dl>\n", page->out);
}

static void write_settings(struct page *page, const struct bench_subject *subject)
{
    size_t count;
    struct bench_setting *settings = bench_settings_of(subject, &count);
    for (size_t i = 0; i < count; i++) {
        fputs("<code>", page->out);
        page_text(page, settings[i].name);
        putc('=', page->out);
        page_text(page, settings[i].value);
        fputs("</code> ", page->out);
    }
    if (!count)
        fputs("nothing added", page->out);
    free(settings);
}

static void write_subject(struct page *page, size_t number)
{
    const struct bench_subject *subject = &page->results->subjects[number];
    FILE *out = page->out;
    fprintf(out,
        "<tr><th scope=\"row\"><span class=\"s%zu\"><svg class=\"key\" width=\"14\" height=\"14\" "
        "viewBox=\"-7 -7 14 14\" aria-hidden=\"true\"><g class=\"mark\">",
        page_series(number));
    page_mark(page, number);
    fputs("</g></svg> <bdi>", out);
    page_text(page, subject->label);
    fputs("</bdi></span></th><td>", out);
    if (subject->library) {
        fputs("<code>", out);
        page_text(page, subject->library);
        fputs("</code>", out);
        if (subject->build) {
            fputs(" <small>build ", out);
            page_text(page, subject->build);
            fputs("</small>", out);
        }
    } else {
        fputs("no library", out);
    }
    fputs("</td><td>", out);
    write_settings(page, subject);
    fputs("</td></tr>\n", out);
}

static void write_subjects(struct page *page)
{
    fputs("<h2>What was compared</h2>\n<div class=\"scroll\" tabindex=\"0\" role=\"group\" "
          "aria-label=\"What was compared\">\n<table class=\"subjects\"><thead><tr>"
          "<th scope=\"col\">label</th><th scope=\"col\">library</th>"
          "<th scope=\"col\">environment</th></tr></thead>\n<tbody>\n",
        page->out);
    for (size_t i = 0; i < page->results->subject_count; i++)
        write_subject(page, i);
    fputs("</tbody></table>\n</div>\n<p>Beside LD_PRELOAD. {bytes}, {mib} and {percent} are the "
          "limits of a "
          "measurement: what names one is not set where there is none. {region} is a file of the "
          "container’s own, {board} a directory of those beside each other.</p>\n",
        page->out);
}

/* ---- what was measured ---- */

static bool has_group(const struct bench_results *results, const char *group)
{
    for (size_t i = 0; i < results->figure_count; i++) {
        if (!strcmp(results->figures[i].group, group))
            return true;
    }
    return false;
}

static void write_counts(struct page *page, const char *group)
{
    FILE *out = page->out;
    fprintf(
        out, "<tr><th scope=\"row\"><a href=\"#%s\">%s</a></th>", group, report_group_name(group));
    for (size_t i = 0; i < page->results->subject_count; i++) {
        struct report_counts counts =
            report_count(page->results, group, page->results->subjects[i].label);
        fprintf(out, "<td>%u of %u", counts.measured, counts.measured + counts.missing);
        unsigned judged = counts.met + counts.missed + counts.unclear;
        if (judged)
            fprintf(out, "<small>targets met: %u of %u", counts.met, judged);
        if (counts.unclear)
            fprintf(out, ", not clear: %u", counts.unclear);
        fputs(judged ? "</small>" : "", out);
        fputs("</td>", out);
    }
    fputs("</tr>\n", out);
}

static void write_measured(struct page *page)
{
    FILE *out = page->out;
    const struct bench_results *results = page->results;
    fputs("<h2>What was measured", out);
    page_simulated(page);
    fputs("</h2>\n<div class=\"scroll\" tabindex=\"0\" role=\"group\" "
          "aria-label=\"What was measured\">\n<table><thead><tr><th scope=\"col\">figures of</th>",
        out);
    for (size_t i = 0; i < results->subject_count; i++) {
        fprintf(out, "<th scope=\"col\"><span class=\"s%zu\"><bdi>", page_series(i));
        page_text(page, results->subjects[i].label);
        fputs("</bdi></span></th>", out);
    }
    fputs("</tr></thead>\n<tbody>\n", out);
    for (size_t i = 0; bench_groups[i]; i++) {
        if (has_group(results, bench_groups[i]))
            write_counts(page, bench_groups[i]);
    }
    fputs("</tbody></table>\n</div>\n", out);
    const char *begin = "<p>Not measured by this run: ";
    for (size_t i = 0; bench_groups[i]; i++) {
        if (!has_group(results, bench_groups[i])) {
            fprintf(out, "%s%s", begin, bench_groups[i]);
            begin = ", ";
        }
    }
    if (*begin == ',')
        fputs(".</p>\n", out);
}

static void write_miss(
    struct page *page, const struct bench_figure *figure, const struct bench_result *result)
{
    FILE *out = page->out;
    fputs("<li><a href=\"#", out);
    page_anchor(page, figure->id);
    fputs("\">", out);
    page_text(page, figure->title);
    if (*figure->condition) {
        fputs(", ", out);
        page_text(page, figure->condition);
    }
    fputs("</a>: <bdi>", out);
    page_text(page, result->subject);
    fputs("</bdi> ", out);
    page_number(page, result->value);
    fprintf(out, ", target at %s ", figure->better == BENCH_LOWER ? "most" : "least");
    page_number(page, figure->target);
    putc(' ', out);
    page_text(page, figure->unit);
    fputs("</li>\n", out);
}

static void begin_misses(struct page *page, const char *title)
{
    fprintf(page->out, "<h2>%s", title);
    page_simulated(page);
    fputs("</h2>\n<ul class=\"misses\">\n", page->out);
}

static void write_misses(struct page *page, enum report_verdict verdict, const char *title)
{
    const struct bench_results *results = page->results;
    bool begun = false;
    for (size_t subject = 0; subject < results->subject_count; subject++) {
        for (size_t i = 0; i < results->figure_count; i++) {
            const struct bench_figure *figure = &results->figures[i];
            const struct bench_result *result =
                report_measured(figure, results->subjects[subject].label);
            if (!result || report_stand_of(figure, result).verdict != verdict)
                continue;
            if (!begun)
                begin_misses(page, title);
            begun = true;
            write_miss(page, figure, result);
        }
    }
    if (begun)
        fputs("</ul>\n", page->out);
}

void page_head(struct page *page)
{
    FILE *out = page->out;
    const struct bench_results *results = page->results;
    fputs("<header>\n<h1>vgpu bench</h1>\n<p class=\"lead\">", out);
    write_labels(page);
    fputs(" on ", out);
    page_text(page, known(results->machine.gpu));
    page_simulated(page);
    fputs(", measured in turn and in the same conditions.</p>\n", out);
    if (results->simulated)
        fputs("<p class=\"simulated\" role=\"note\"><strong>Simulated.</strong> Every figure here "
              "is of the simulator, and says nothing of a GPU.</p>\n",
            out);
    write_facts(page);
    fputs("</header>\n<main>\n<section>\n", out);
    write_subjects(page);
    write_measured(page);
    write_misses(page, REPORT_MISSED, "Targets that were missed");
    write_misses(page, REPORT_UNCLEAR,
        "Not clear: the target is within the median’s noise, or there is a single sample");
    fputs("<h2>How to read it</h2>\n<p>A mark is the median, the line through it goes from the "
          "10th to the 90th percentile, and the fine strokes are the single samples; … or an "
          "arrow at the edge: some lie beyond the axis. A dashed line is a target. A linear axis "
          "has 0 on it, or is around 1 for ratios; where values span more than two decades the "
          "axis is logarithmic and says "
          "so. "
          "<span class=\"beside\">1.020× native</span> is the median of what both took in the same "
          "turn, divided, or else the median divided by native’s; with ≈ the difference may be "
          "noise. Figures of different units "
          "are never added up.</p>\n</section>\n",
        out);
}
