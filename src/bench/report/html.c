/* SPDX-License-Identifier: Apache-2.0 */
/* The page as a whole, and its way into the file. */
#include "bench/results/need.h"
#include "bench/report/report.h"

#include "bench/report/page.h"

#include <errno.h>
#include <fcntl.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>
#include <unistd.h>

static bool same_targets(const struct report_family *family)
{
    for (size_t i = 0; i < family->count; i++) {
        if (!family->figures[i]->has_target ||
            family->figures[i]->target != family->figures[0]->target)
            return false;
    }
    return true;
}

static void write_meta(struct page *page, const struct report_family *family)
{
    const struct bench_figure *first = family->figures[0];
    FILE *out = page->out;
    fputs("<p class=\"meta\"><code>", out);
    page_text(page, first->id);
    fputs("</code> · unit: ", out);
    page_text(page, first->unit);
    fprintf(out, " · %s", report_better_words(first->better));
    if (same_targets(family)) {
        fputs(" · target: ", out);
        page_number(page, first->target);
        putc(' ', out);
        page_text(page, first->unit);
    }
    fputs("</p>\n", out);
}

static bool measured_at_all(const struct report_family *family)
{
    for (size_t i = 0; i < family->count; i++) {
        for (size_t k = 0; k < family->figures[i]->result_count; k++) {
            if (!family->figures[i]->results[k].missing)
                return true;
        }
    }
    return false;
}

static void write_family(struct page *page, const struct report_family *family)
{
    const struct bench_figure *first = family->figures[0];
    FILE *out = page->out;
    fputs("<section class=\"figure\" id=\"", out);
    page_anchor(page, first->id);
    fputs("\">\n<h3>", out);
    page_text(page, first->title);
    page_simulated(page);
    fputs("</h3>\n<p>", out);
    page_text(page, first->definition);
    fputs("</p>\n", out);
    write_meta(page, family);
    if (!measured_at_all(family))
        fputs("<p class=\"none\">No chart: nothing was measured.</p>\n", out);
    else if (page_diagonal_worth(page, family))
        page_chart_diagonal(page, family);
    else
        page_chart_family(page, family);
    page_table(page, family);
    fputs("</section>\n", out);
}

static void write_group_head(struct page *page, const char *group)
{
    fprintf(
        page->out, "<section class=\"group\" id=\"%s\">\n<h2>%s", group, report_group_name(group));
    page_simulated(page);
    fprintf(page->out, "</h2>\n<p>%s</p>\n", report_group_question(group));
}

static void write_group(struct page *page, const char *group)
{
    struct report_families families = report_families_make(page->results, group);
    if (families.count)
        write_group_head(page, group);
    if (families.count)
        page_chart_ratios(page, group);
    for (size_t i = 0; i < families.count; i++)
        write_family(page, &families.list[i]);
    if (families.count)
        fputs("</section>\n", page->out);
    report_families_finish(&families);
}

static void write_page(struct page *page)
{
    FILE *out = page->out;
    /* Whatever a text tries: nothing is fetched, and no script runs. */
    fputs("<!DOCTYPE html>\n<html lang=\"en\">\n<head>\n<meta charset=\"utf-8\">\n"
          "<meta http-equiv=\"Content-Security-Policy\" content=\"default-src 'none'; "
          "style-src 'unsafe-inline'\">\n"
          "<meta name=\"viewport\" content=\"width=device-width, initial-scale=1\">\n"
          "<meta name=\"color-scheme\" content=\"light dark\">\n<title>vgpu bench: ",
        out);
    page_text(page, page->results->machine.gpu ? page->results->machine.gpu : "");
    fprintf(out, "%s</title>\n<style>\n%s</style>\n</head>\n<body>\n",
        page->results->simulated ? " (simulated)" : "", page_style);
    page_head(page);
    for (size_t i = 0; bench_groups[i]; i++)
        write_group(page, bench_groups[i]);
    fputs("</main>\n</body>\n</html>\n", out);
}

int bench_report_write(const struct bench_results *results, const char *path)
{
    size_t room = strlen(path) + sizeof(".XXXXXX");
    char *young = bench_need(malloc(room));
    snprintf(young, room, "%s.XXXXXX", path);
    int fd = mkostemp(young, O_CLOEXEC);
    FILE *file = fd < 0 ? NULL : fdopen(fd, "w");
    int error = file ? 0 : -errno;
    if (file) {
        struct page page = {.out = file, .results = results};
        errno = 0;
        write_page(&page);
        int failed = ferror(file);
        failed |= fchmod(fd, 0644) != 0;
        failed |= fclose(file) != 0;
        if (failed || rename(young, path) != 0) {
            error = -(errno ? errno : EIO);
            unlink(young);
        }
    }
    free(young);
    return error;
}
